"""At which path each root was at the last start, so that exchanged directories are noticed.

All cookies of a bookie have the same text. So a root passes the check of cookies in the place of
another root of the same bookie, as after two mounts changed places: a bookie whose journals lie
where the entry logs belong would start without any entry. So beside ``current`` lies
``bookied.path`` with the root's own path. A root without that file, as Java leaves one, may be at
any path.
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from pathlib import Path
from types import MappingProxyType
from typing import Final

from twisted.logger import Logger

from bookied.directories.roots import CURRENT, VERSION, Directories
from bookied.errors import WrongIdentityError
from bookied.storage.files.files import Files

NAME: Final = "bookied.path"

log = Logger()


def check_paths(
    files: Files, found: Directories, moved: Mapping[Path, Path] = MappingProxyType({})
) -> None:
    """Insist that each root with a cookie is where it was, or was ``moved`` from there. Blocks.

    Raises:
        WrongIdentityError: a root was at another path.
        OSError: a note cannot be read.
    """
    for root in found.roots:
        former = _noted(files, root)
        is_new = not files.exists(root / CURRENT / VERSION)
        if not is_new and former not in {None, root, moved.get(root)}:
            raise WrongIdentityError(
                f"{root} was {former} at the last start: if directories were exchanged, mount each "
                f"where it was; if this directory was moved on purpose, remove {root / NAME}"
            )


def note_paths(files: Files, found: Directories) -> None:
    """Put down, durably, where each root is now; the next start tries again what fails. Blocks."""
    for root in found.roots:
        try:
            if _noted(files, root) != root:
                files.write_atomic(root / NAME, os.fsencode(root) + b"\n")
        except OSError as error:
            log.warn("{path} is not written: {error}", path=root / NAME, error=error)


def _noted(files: Files, root: Path) -> Path | None:
    try:
        data = files.read(root / NAME)
    except FileNotFoundError:
        return None
    return Path(os.fsdecode(data.removesuffix(b"\n")))
