"""The roots of a bookie: their layout, their creation, and the mark of an unclean stop.

Each configured root contains ``current/`` (all data), ``bookied.lock`` (see ``lock``), notes of the
contents and path (see ``emptied_directories``, ``root_paths``) and, while a new cookie is written,
``bookied.stamping``. All but the first lie beside ``current/``, because Java refuses a new
``current/`` that is not empty. Agrees with BookKeeper 4.18.0, BookieImpl.checkDirectoryStructure
and UncleanShutdownDetectionImpl.
"""

from __future__ import annotations

import errno
from functools import cached_property
from pathlib import Path
from typing import Final

import attrs
from twisted.logger import Logger

from bookied.config.bookie import BookieConfig
from bookied.errors import NO_SPACE, DirectoryError, LayoutTooOldError
from bookied.storage.files.files import Files

CURRENT: Final = "current"
VERSION: Final = "VERSION"
COOKIE_BYTES_MAX: Final = 1 << 16
"""Bytes that are read of a ``VERSION`` file; valid ones are much shorter."""
DIRTY: Final = "DIRTY"
CONVERTING: Final = "bookied.converting"
"""A file in the first root while the index is converted to another storage class."""
RENAMING: Final = "bkctl.flipping"
"""A file in the first root, with both ids, while the bookie gets another id."""

_NOT_OURS: Final = {errno.EACCES, errno.EPERM, errno.EROFS, errno.EINVAL}
"""The errors of a directory in which this process cannot have created anything."""

OLD_DATA: Final = (".txn", ".idx", ".log")
"""The suffixes of data files in the root itself, from before layout 3."""


log = Logger()


@attrs.frozen
class Directories:
    """The configured roots by purpose, in the order of the configuration."""

    journals: tuple[Path, ...]
    ledgers: tuple[Path, ...]
    indexes: tuple[Path, ...]

    @cached_property
    def roots(self) -> tuple[Path, ...]:
        """Every root once: journal, ledger, then index."""
        return tuple(dict.fromkeys((*self.journals, *self.ledgers, *self.indexes)))

    @cached_property
    def journal_dirs(self) -> tuple[Path, ...]:
        return tuple(root / CURRENT for root in self.journals)

    @cached_property
    def ledger_dirs(self) -> tuple[Path, ...]:
        return tuple(root / CURRENT for root in self.ledgers)

    @cached_property
    def index_dirs(self) -> tuple[Path, ...]:
        return tuple(root / CURRENT for root in self.indexes)

    def pairs(self) -> list[tuple[Path, Path]]:
        """Return (ledger directory, its index directory) pairs, as DbLedgerStorage has them.

        Raises:
            DirectoryError: the numbers of index and ledger directories differ.
        """
        ledgers, indexes = self.ledger_dirs, self.index_dirs
        if len(ledgers) != len(indexes):
            raise DirectoryError(
                f"{len(indexes)} index directories for {len(ledgers)} ledger directories; with "
                "DbLedgerStorage each ledger directory has its own"
            )
        return list(zip(ledgers, indexes, strict=True))

    @cached_property
    def all_dirs(self) -> tuple[Path, ...]:
        """Every ``current`` once: journal, ledger, then index."""
        return tuple(root / CURRENT for root in self.roots)

    def existing(self, below: str = "") -> Directories:
        """Return the roots that are directories, and have the directory ``below``."""
        lists = (self.journals, self.ledgers, self.indexes)
        return Directories(
            *(tuple(one for one in roots if (one / below).is_dir()) for roots in lists)
        )


def directories(config: BookieConfig) -> Directories:
    """Return the directories of a configuration.

    Raises:
        DirectoryError: a directory is listed twice for the same purpose.
    """
    lists = (config.journal_directories, config.ledger_directories, config.index_directories)
    kinds = ("journalDirectories", "ledgerDirectories", "indexDirectories")
    for kind, names in zip(kinds, lists, strict=True):
        twice = {name for name in names if names.count(name) > 1}
        if twice:
            raise DirectoryError(f"{kind}: {', '.join(sorted(twice))} is listed twice")
    return Directories(*(tuple(map(Path, names)) for names in lists))


def prepare(files: Files, found: Directories, *, several_per_disk: bool = True) -> None:
    """Create the roots and their ``current``; refuse directories that cannot store data.

    Raises:
        DirectoryError: a path is not a directory, not readable or writable; two are on one disk
            partition with ``several_per_disk`` off; or a conversion or rename was interrupted.
        LayoutTooOldError: data of a layout before version 3.
    """
    if files.exists(found.roots[0] / CONVERTING):
        raise DirectoryError(
            f"{found.roots[0]}: the index is on its way to another kind of storage; run the "
            "`bkctl disk convert` again that was cut short"
        )
    if files.exists(found.roots[0] / RENAMING):
        # Ledgers may list the new id already: garbage collection would delete them as excess.
        ids = files.read(found.roots[0] / RENAMING, COOKIE_BYTES_MAX).decode("utf-8", "replace")
        raise DirectoryError(
            f"{found.roots[0]}: the rename from {' to '.join(ids.split())} was interrupted; "
            "`bkctl bookie rename -c FILE` finishes it, with the new id in FILE"
        )
    for root in found.roots:
        try:
            files.mkdirs(root)
            _refuse_old_layout(files, root)
            files.mkdirs(root / CURRENT)
            _make_names_durable(files, root)
            files.check_usable(root / CURRENT)
            files.check_usable(root)
        except OSError as error:
            raise DirectoryError(f"{root} cannot be used: {error.strerror or error}") from error
    if not several_per_disk:
        for roots in (found.journals, found.ledgers, found.indexes):
            _refuse_shared_disk(roots)


def _make_names_durable(files: Files, root: Path) -> None:
    """Sync the parents of the roots, so that a power cut cannot remove a root with a cookie."""
    files.sync_dir(root)
    for parent in root.parents:
        try:
            files.sync_dir(parent)
        except OSError as error:
            if error.errno not in _NOT_OURS:
                raise
            return


def _refuse_old_layout(files: Files, root: Path) -> None:
    if files.exists(root / CURRENT):
        return
    old = [name for name in files.list(root) if name == VERSION or name.endswith(OLD_DATA)]
    if old:
        raise LayoutTooOldError(
            root, None, f"holds {old[0]} of an old layout; run `bkctl upgrade --upgrade` first"
        )


def _refuse_shared_disk(roots: tuple[Path, ...]) -> None:
    by_device: dict[int, Path] = {}
    for root in roots:
        other = by_device.setdefault(root.stat().st_dev, root)
        if other != root:
            raise DirectoryError(
                f"{other} and {root} are on one disk partition, which "
                "allowMultipleDirsUnderSameDiskPartition=false forbids"
            )


def mark_dirty(files: Files, found: Directories) -> None:
    """Note on disk that a bookie runs; a start that finds the mark follows a crash."""
    for directory in found.ledger_dirs:
        try:
            files.write_atomic(directory / DIRTY, b"")
        except OSError as error:
            if error.errno not in NO_SPACE:
                raise
            log.warn("no space for {name} in {path}", name=DIRTY, path=directory)


def clear_dirty(files: Files, found: Directories) -> None:
    """Note on disk that the bookie stopped with everything flushed."""
    for directory in found.ledger_dirs:
        if files.exists(directory / DIRTY):
            files.remove(directory / DIRTY)
            files.sync_dir(directory)


def was_dirty(files: Files, found: Directories) -> bool:
    """Return whether the last stop was unclean."""
    return any(files.exists(directory / DIRTY) for directory in found.ledger_dirs)
