"""Directories of a stopped bookie that were moved to other paths on the same machine.

All cookies of a bookie have the same text, so a cookie does not say which directory it was written
to. A move is accepted if each directory has its old cookie, the paths leave no doubt about which
directory was moved where, and each directory holds what its former path held.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Final

import attrs

from bkctl.errors import RefusedError
from bkctl.output.units import counted
from bookied.directories.emptied_directories import foreign_contents, losses
from bookied.directories.lock import LOCK
from bookied.directories.roots import CURRENT, VERSION, Directories
from bookied.storage.files.files import RealFiles
from wire.errors import FormatError
from wire.records.cookie import Cookie, decode_cookie

_SEVERAL: Final = "move one directory at a time, and run this command after each"


def former_paths(new: Cookie, old: Cookie, *, has_shards: bool) -> dict[Path, Path]:
    """Return the former path of each root that was moved, by its new path; empty if none was.

    With ``has_shards`` a ledger is found by the number of its directory, as in DbLedgerStorage.

    Raises:
        RefusedError: the paths do not say which directory was moved where.
    """
    if attrs.evolve(_without_directories(new), layout_version=old.layout_version) != (
        _without_directories(old)
    ):
        return {}
    before, now = _lists(old), _lists(new)
    if [len(one) for one in before] != [len(one) for one in now]:
        return {}
    former: dict[Path, Path] = {}
    for number, (was, is_now) in enumerate(zip(before, now, strict=True)):
        pairs = [(path, root) for path, root in zip(was, is_now, strict=True) if path != root]
        # The number of a journal says which of the last marks is its own.
        if len(pairs) > 1 and (has_shards or number == 0):
            raise RefusedError(
                f"{counted(len(pairs), 'directory')} changed places in one list, and which one "
                "was moved where cannot be checked",
                next_step=_SEVERAL,
            )
        for path, root in pairs:
            if former.setdefault(root, path) != path:
                raise RefusedError(f"{root} would be two directories", next_step=_SEVERAL)
    known = {path for one in before for path in one}
    taken = sorted(root for root in former if root in known)
    if taken or len(set(former.values())) != len(former):
        where = taken[0] if taken else min(former.values())
        raise RefusedError(f"{where} was another directory of this bookie", next_step=_SEVERAL)
    return former


def _without_directories(cookie: Cookie) -> Cookie:
    return attrs.evolve(cookie, journal_dirs="", ledger_dirs=(), index_dirs=None)


def _lists(cookie: Cookie) -> tuple[tuple[Path, ...], ...]:
    ledgers = cookie.ledger_dirs
    names = (cookie.journal_dirs.split(","), ledgers, cookie.index_dirs or ledgers)
    return tuple(tuple(map(Path, one)) for one in names)


def refuse_other_contents(found: Directories, former: Mapping[Path, Path]) -> None:
    """Refuse directories that do not hold what their former paths held.

    Raises:
        RefusedError: a directory was emptied, exchanged, or copied in part.
    """
    files = RealFiles()
    for root, path in former.items():
        if foreign := foreign_contents(files, found, root):
            raise RefusedError(
                f"{root} holds {' and '.join(foreign)}, but the settings name it for other data",
                next_step="was it exchanged with another directory?",
            )
        if (missing := next(_missing(path, root), None)) is not None:
            raise RefusedError(
                f"{root} is not a complete copy of {path}: {missing} is missing or differs",
                next_step=f"copy the directory again while the bookie is stopped, or remove {path}",
            )
    for loss in losses(files, found, former):
        raise RefusedError(str(loss.error))


def _missing(path: Path, root: Path) -> Iterator[Path]:
    """Yield the files of the directory at the former path that its copy lacks; compare sizes."""
    try:
        is_copied = decode_cookie((path / CURRENT / VERSION).read_bytes()) == decode_cookie(
            (root / CURRENT / VERSION).read_bytes()
        )
    except (OSError, FormatError):
        return
    for file in path.rglob("*") if is_copied else ():
        name = file.relative_to(path)
        if file.is_file() and name != Path(LOCK) and not _is_copied(file, root / name):
            yield name


def _is_copied(file: Path, copy: Path) -> bool:
    return copy.is_file() and copy.stat().st_size == file.stat().st_size
