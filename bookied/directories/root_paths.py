"""A note of each root's path at the last start, to detect exchanged directories.

All cookies of a bookie have the same text. So a root passes the cookie check in the place of
another root of the same bookie, for example after two mounts were exchanged. A bookie with a
journal directory in the place of a ledger directory would start without entries. So
``bookied.path`` beside ``current`` contains the root's own path. A root without that file, such as
Java's, may be at any path.
"""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping
from pathlib import Path
from types import MappingProxyType
from typing import Final

from twisted.logger import Logger

from bookied.directories.roots import CURRENT, VERSION, Directories
from bookied.errors import WrongIdentityError
from bookied.storage.files.files import Files, read_if_there

NAME: Final = "bookied.path"

log = Logger()


def check_paths(
    files: Files, found: Directories, moved: Mapping[Path, Path] = MappingProxyType({})
) -> None:
    """Check that each root with a cookie is at its noted path, or was ``moved`` from there. Blocks.

    Raises:
        WrongIdentityError: a root was at another path.
        OSError: a note cannot be read.
    """
    for root, former in _elsewhere(files, found):
        if former == moved.get(root):
            continue
        if former in found.roots:
            raise WrongIdentityError(exchanged_message(root, former))
        raise WrongIdentityError(
            f"{root} was {former} at the last start; if it was moved on purpose: `bkctl cookie "
            f"repair -c FILE`, or, if all cookies are right already, remove {root / NAME}"
        )


def exchanged(files: Files, found: Directories) -> Iterator[tuple[Path, Path]]:
    """Yield each root with a cookie that was another one of these roots, and that root. Blocks.

    Raises:
        OSError: a note cannot be read.
    """
    for root, former in _elsewhere(files, found):
        if former in found.roots:
            yield root, former


def exchanged_message(root: Path, former: Path) -> str:
    """Return the message about a root that was another root of the same bookie."""
    return f"{root} was {former} at the last start: they were exchanged; mount each where it was"


def _elsewhere(files: Files, found: Directories) -> Iterator[tuple[Path, Path]]:
    for root in found.roots:
        former = _noted(files, root)
        has_cookie = files.exists(root / CURRENT / VERSION)
        if former is not None and former != root and has_cookie:
            yield root, former


def note_paths(files: Files, found: Directories) -> None:
    """Note each root's path durably; the next start tries again after a failure. Blocks."""
    for root in found.roots:
        try:
            if _noted(files, root) != root:
                files.write_atomic(root / NAME, os.fsencode(root) + b"\n")
        except OSError as error:
            log.warn("{path} is not written: {error}", path=root / NAME, error=error)


def _noted(files: Files, root: Path) -> Path | None:
    data = read_if_there(files, root / NAME)
    return None if data is None else Path(os.fsdecode(data.removesuffix(b"\n")))
