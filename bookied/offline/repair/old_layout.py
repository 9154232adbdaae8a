"""The layout of a bookie's roots: before, during and after an upgrade.

    version  where data is                VERSION
    1        in the root                  missing
    2        in the root                  in the root, only the number
    3 to 5   in ``current/``              in ``current/``, a cookie

An upgrade keeps the old data in the root until it is finalized: until then a root has both. Agrees
with BookKeeper 4.18.0, FileSystemUpgrade.detectPreviousVersion.
"""

from __future__ import annotations

import enum
import re
from collections.abc import Sequence
from pathlib import Path
from typing import Final

import attrs

from bookied.directories.roots import CURRENT, VERSION, Directories
from bookied.errors import BadCookieError, LayoutTooNewError
from bookied.storage.entrylog import format as log_layout
from bookied.storage.files.files import Files, read_if_there
from bookied.storage.index import file_names
from bookied.storage.index.index_files.paths import index_files
from bookied.storage.journal import format as journal_layout
from bookied.storage.journal.mark import MARK_NAME
from wire.errors import FormatError
from wire.records.cookie import COOKIE_VERSION, Cookie, decode_cookie

UPGRADING: Final = "upgradeTmp."
"""Prefix of a directory that is to become ``current``; also Java's name."""

ROLLED_BACK: Final = "rolledBack."
"""Prefix of the former ``current`` during a rollback."""

FINALIZING: Final = "bookied.finalizing"
"""A file in a root whose old data is being removed: a rollback is no longer possible."""

_NUMBER: Final = re.compile(rb"\s*([0-9]{1,9})\s*")
_IN_ROOT_MAX: Final = 2


class RootState(enum.Enum):
    """The state of a root in an upgrade."""

    EMPTY = "empty"
    """The root has neither old data nor ``current``."""
    OLD = "old"
    """The root has data of version 1 or 2 only."""
    UPGRADED = "upgraded"
    """The root has ``current`` and also, for a rollback, the old data."""
    CURRENT = "current"
    """The root has ``current`` only."""


@attrs.frozen
class RootLayout:
    """The layout of one root.

    ``version`` is that of the old data if the root has any, else that of the cookie in ``current``.
    ``has_new_journal`` is True if a bookie has begun a journal in ``current`` since the upgrade.
    """

    root: Path
    state: RootState
    version: int | None
    cookie: Cookie | None
    upgrading: tuple[Path, ...]
    rolled_back: tuple[Path, ...]
    is_finalizing: bool
    has_new_journal: bool

    @property
    def current(self) -> Path:
        return self.root / CURRENT

    @property
    def has_old(self) -> bool:
        """True if the root has data of an older layout."""
        return self.state in {RootState.OLD, RootState.UPGRADED}


@attrs.frozen
class OldData:
    """The files of version 1 or 2 in one root, by the way an upgrade copies them."""

    shared: tuple[Path, ...]
    """Journals and entry logs: never written again, so a link serves as a copy."""
    rewritten: tuple[Path, ...]
    """Marks, ``lastId`` and index files: changed in place, so copied."""

    def __bool__(self) -> bool:
        return bool(self.shared or self.rewritten)


def is_any_old(roots: Sequence[RootLayout]) -> bool:
    """Return whether any root has data of an older layout."""
    return any(root.has_old for root in roots)


def read_layouts(files: Files, found: Directories) -> list[RootLayout]:
    """Return the layout of every root, in the order journal, ledger, index.

    Raises:
        LayoutTooNewError: a layout is of a newer release.
        BadCookieError: a VERSION is not a cookie.
        OSError: a root cannot be read.
    """
    return [_read_layout(files, root) for root in found.roots]


def _read_layout(files: Files, root: Path) -> RootLayout:
    names = files.list(root) if files.exists(root) else []
    version = _root_version(files, root, names)
    has_current = CURRENT in names
    cookie = read_cookie(files, root / CURRENT) if has_current else None
    if version is not None:
        state = RootState.UPGRADED if has_current else RootState.OLD
    else:
        state = RootState.CURRENT if has_current else RootState.EMPTY
        version = None if cookie is None else cookie.layout_version
    return RootLayout(
        root=root,
        state=state,
        version=version,
        cookie=cookie,
        upgrading=_with_prefix(root, names, UPGRADING),
        rolled_back=_with_prefix(root, names, ROLLED_BACK),
        is_finalizing=FINALIZING in names,
        has_new_journal=has_current and _journals(files, root / CURRENT) > _journals(files, root),
    )


def _with_prefix(root: Path, names: list[str], prefix: str) -> tuple[Path, ...]:
    return tuple(root / name for name in sorted(names) if name.startswith(prefix))


def _journals(files: Files, directory: Path) -> int:
    """Return the highest journal id in a directory; -1 for none."""
    ids = map(journal_layout.journal_id, files.list(directory))
    return max((number for number in ids if number is not None), default=-1)


def _root_version(files: Files, root: Path, names: list[str]) -> int | None:
    """Return the version of the data in the root itself; None if there is no old data."""
    if VERSION in names:
        path = root / VERSION
        match = _NUMBER.fullmatch(files.read(path))
        version = int(match[1]) if match else 0
        _refuse_newer(path, version)
        if not 1 <= version <= _IN_ROOT_MAX:
            raise BadCookieError(path, None, "is not the number of an old layout, 1 or 2")
        return version
    return 1 if old_data(files, root) else None


def read_cookie(files: Files, directory: Path) -> Cookie | None:
    """Return the cookie in a ``current``; None if the cookie is missing.

    Raises:
        LayoutTooNewError: the cookie is of a newer release.
        BadCookieError: the file is not a cookie.
    """
    path = directory / VERSION
    data = read_if_there(files, path)
    if data is None:
        return None
    match = _NUMBER.fullmatch(data.partition(b"\n")[0])
    _refuse_newer(path, int(match[1]) if match else 0)
    try:
        return decode_cookie(data)
    except FormatError as error:
        raise BadCookieError(path, None, f"is not a cookie: {error}") from error


def _refuse_newer(path: Path, version: int) -> None:
    if version > COOKIE_VERSION:
        raise LayoutTooNewError(
            path, None, f"layout {version} is of a newer release; we know up to {COOKIE_VERSION}"
        )


def old_data(files: Files, root: Path) -> OldData:
    """Return the data files in a root itself, without files that are not a bookie's."""
    if not files.exists(root):
        return OldData((), ())
    names = sorted(files.list(root))
    return OldData(
        shared=tuple(root / name for name in names if _is_shared(name)),
        rewritten=(
            *(root / one for one in names if one == log_layout.LAST_ID or MARK_NAME.fullmatch(one)),
            *(path for path in index_files(files, root) if _is_index(path.name)),
        ),
    )


def _is_shared(name: str) -> bool:
    return journal_layout.journal_id(name) is not None or log_layout.log_id(name) is not None


def _is_index(name: str) -> bool:
    return file_names.ledger_id(name.removesuffix(file_names.MOVING)) is not None
