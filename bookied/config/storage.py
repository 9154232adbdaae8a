"""The settings of a bookie's ledger storage: directories, entry logs, write cache, index.

Keys, defaults and limits are Java's (BookKeeper 4.18.0, ServerConfiguration). Numbers keep the
unit that their key has in a file; the properties are bytes and seconds.
"""

from __future__ import annotations

import enum
from collections.abc import Iterator
from typing import Final

import attrs

from bkclient.config.auth import simple_name
from bkclient.config.declaration import setting
from bkclient.config.findings import SettingFinding, invalid
from bookied.config.journal import may_be_emptied

_MB: Final = 1024 * 1024
_LOG_BYTES_MAX: Final = 1024 * _MB
_ONE_LOG: Final = "all ledgers share one entry log"


class StorageClass(enum.Enum):
    """The layout of the storage; the value is the simple name of Java's class."""

    INTERLEAVED = "InterleavedLedgerStorage"
    SORTED = "SortedLedgerStorage"
    DB = "DbLedgerStorage"


def _storage_class(text: str) -> StorageClass:
    try:
        return StorageClass(simple_name(text))
    except ValueError:
        raise ValueError(
            f"is not a ledger storage; set one of {', '.join(one.value for one in StorageClass)}"
        ) from None


@attrs.frozen(kw_only=True, slots=False)  # One of several base classes.
class LedgerConfig:
    """The directories, sizes and buffers of entry logs and index."""

    ledger_directories: tuple[str, ...] = setting(
        ("/tmp/bk-data",),  # noqa: S108  # Java's default, warned about
        key="ledgerDirectories",
        group="Ledger storage",
        doc="Directories of the entry logs. They also hold the index if indexDirectories is not "
        "set.",
        refuse=lambda dirs: None if dirs else "leaves the bookie no directory to store entries in",
    )
    _index_directories: tuple[str, ...] = setting(
        (),
        key="indexDirectories",
        doc="Directories of the index; by default the ledger directories.",
    )
    _storage_class: StorageClass = setting(
        StorageClass.SORTED,
        key="ledgerStorageClass",
        doc="Format of the ledger directories, by Java's class name.",
        parse=_storage_class,
    )
    sorted_storage: bool = setting(
        True,
        key="sortedLedgerStorageEnabled",
        doc="If false and ledgerStorageClass is not set, use InterleavedLedgerStorage.",
    )
    flush_interval_ms: int = setting(
        10_000, key="flushInterval", minimum=1, doc="Pause between checkpoints."
    )
    write_cache_bytes_max: int = setting(
        67_108_864,
        key="skipListSizeLimit",
        minimum=_MB,
        doc="Memory for entries that are not yet in an entry log. When it is full, clients wait.",
    )
    log_bytes_max: int = setting(
        _LOG_BYTES_MAX,
        key="logSizeLimit",
        minimum=2048,
        maximum=_LOG_BYTES_MAX,
        doc="Size at which the bookie starts a new entry log.",
    )
    open_files_max: int = setting(
        20_000,
        key="openFileLimit",
        minimum=0,
        doc="Most index files open at a time; 0 (the value in Pulsar's file) means the default.",
    )
    index_pages_max: int = setting(
        -1, key="pageLimit", minimum=-1, doc="Most index pages in memory; -1 is a fixed budget."
    )
    log_per_ledger: bool = setting(
        False,
        key="entryLogPerLedgerEnabled",
        doc="Use one entry log for each ledger.",
        refuse=lambda on: f"is not offered: {_ONE_LOG}" if on else None,
    )
    check_integrity: bool = setting(
        False,
        key="dataIntegrityChecking",
        doc="Copy entries that this bookie lacks from other bookies (DbLedgerStorage only).",
    )
    stamp_missing_cookies: bool = setting(
        False,
        key="dataIntegrityStampMissingCookies",
        doc="With dataIntegrityChecking: start although cookies are missing or differ, for "
        "instance after the loss of a disk. The bookie then repairs its ledgers and writes "
        "new cookies.",
    )
    consistency_check_at_start: bool = setting(
        False,
        key="localConsistencyCheckOnStartup",
        doc="Check the index against the entry logs at the start. If the check fails, refuse to "
        "start.",
    )

    @property
    def storage_class(self) -> StorageClass:
        """The layout in effect."""
        if self._storage_class is StorageClass.SORTED and not self.sorted_storage:
            return StorageClass.INTERLEAVED
        return self._storage_class

    @property
    def named_index_directories(self) -> tuple[str, ...] | None:
        """The index directories, ``None`` if none are configured."""
        return self._index_directories or None

    @property
    def index_directories(self) -> tuple[str, ...]:
        """The index directories; the ledger directories if none are configured."""
        return self._index_directories or self.ledger_directories

    def ledger_problems(self) -> Iterator[SettingFinding]:
        """Yield settings of entry logs and index that cannot work, and unsafe directories."""
        yield from may_be_emptied("ledgerDirectories", self.ledger_directories)
        yield from may_be_emptied("indexDirectories", self._index_directories)
        ledgers, indexes = len(self.ledger_directories), len(self.index_directories)
        if self.storage_class is StorageClass.DB and ledgers != indexes:
            yield invalid(
                "indexDirectories",
                f"are {indexes} for {ledgers} ledgerDirectories, and DbLedgerStorage has one for "
                "each: name as many, in the same order, or none",
            )
        if self.check_integrity and self.storage_class is not StorageClass.DB:
            yield invalid(
                "dataIntegrityChecking",
                "needs ledgerStorageClass=org.apache.bookkeeper.bookie.storage.ldb.DbLedgerStorage:"
                " only that can note what may be missing",
            )
        if self.stamp_missing_cookies and not self.check_integrity:
            yield invalid(
                "dataIntegrityStampMissingCookies",
                "needs dataIntegrityChecking=true, or lost entries would pass for ones never added",
            )
