"""A bookie's metrics under the names, labels and types of Java's bookie (4.18.0).

``bookied.stats.metrics`` declares latencies and counts. docs/metrics.md lists the metrics of Java
that bookied does not have, with reasons; a test compares both with the page of a Java bookie.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any, Final

import attrs

from bookied.admin.control.disks import DiskControl
from bookied.admin.monitoring.prometheus_text import (
    Family,
    Labels,
    declared,
    declared_of_all,
    gauge,
    summary,
)
from bookied.config.bookie import StorageClass
from bookied.server.server import BookieServer
from bookied.service.garbage_and_autorecovery import Collectors
from bookied.service.start_and_stop import BookieService
from bookied.state.bookie_state import State
from bookied.stats.metric_declaration import Kind
from bookied.stats.metrics import (
    ADD,
    FENCE,
    LIST_ENTRIES,
    LONG_POLL,
    OPERATIONS,
    READ,
    RequestStats,
)
from bookied.stats.quantiles import Summary
from bookied.storage.garbage.compaction_rules import TENTHS
from bookied.storage.journal.writer import Journal
from bookied.storage.ledger_storage.storage import LedgerStorage, StorageMemory
from bookied.storage.storages import Storages

Row = tuple[str, Kind, Callable[[Any], "float | Summary"]]
"""The name, the type, and a function that returns the value of a part."""


def families(of: BookieService) -> Iterator[Family]:
    """Yield the present metrics of a bookie."""
    yield gauge("bookie_SERVER_STATUS", _status(of))
    yield from _directories(of)
    if of.parts.metadata_stats is not None:
        for name, took in of.parts.metadata_stats.operations.items():
            yield summary(f"bookie_bookie_zk_{name}", took)
    if of.server is not None:
        yield from _server(of.server)
        yield from _threads(of, of.server)
    if of.engine is not None and of.engine.has_begun:
        yield from _journals(of.engine.journals, of.config.journal_queue_bytes_max)
        yield from _storages(of.engine.storages, of)
    if of.background.collectors is not None:
        yield from _collectors(of, of.background.collectors)


def _status(of: BookieService) -> int:
    """Return Java's SERVER_STATUS: 1 writable, 0 read-only, -1 not registered."""
    if of.registration is None or not of.registration.is_registered:
        return -1
    return 1 if of.state.now is State.WRITABLE else 0


def _is_db(of: BookieService) -> bool:
    return of.config.storage_class is StorageClass.DB


# The server ---------------------------------------------------------------------------------------


def _server(server: BookieServer) -> Iterator[Family]:
    stats, prefix = server.stats, "bookkeeper_server_"
    for operation in OPERATIONS:
        took = stats.requests[operation]
        yield summary(f"{prefix}{operation}_REQUEST", took)
        if operation not in {FENCE, LONG_POLL}:
            labels = _REACTOR if operation in {ADD, READ} else {}
            yield summary(f"{prefix}{operation}", took, labels)
    yield from declared(stats)
    yield from rows(_SERVER, prefix, server)
    yield from rows(_BOOKIE, "bookie_", stats)


_REACTOR: Final = {"threadPool": "reactor", "thread": "0"}
"""Java's labels of a thread, for two operations that one thread runs here."""

_SERVER: Final[tuple[Row, ...]] = (
    ("ADD_ENTRY_IN_PROGRESS", "gauge", lambda it: it.backpressure.adds_in_flight),
    ("ADD_ENTRY_BLOCKED", "gauge", lambda it: it.held_back),
    ("READ_ENTRY_IN_PROGRESS", "gauge", lambda it: it.reads_pending),
    ("READ_ENTRY_BLOCKED", "gauge", lambda it: it.held_back),
)

_BOOKIE: Final[tuple[Row, ...]] = (
    ("BOOKIE_READ_ENTRY", "summary", lambda it: it.requests[READ]),
    ("BOOKIE_GET_LIST_OF_ENTRIES_OF_LEDGER", "summary", lambda it: it.requests[LIST_ENTRIES]),
    ("SKIP_LIST_THROTTLING", "counter", lambda it: it.blocked_wait.success.count),
)


def _threads(of: BookieService, server: BookieServer) -> Iterator[Family]:
    prefix = "bookkeeper_server_thread_executor_"
    queued = tuple(({"thread": name}, one.queued) for name, one in of.parts.queues.items())
    completed = tuple(({"thread": name}, one.completed) for name, one in of.parts.queues.items())
    yield Family(f"{prefix}queue", "gauge", queued)
    yield Family(f"{prefix}completed", "gauge", completed)
    yield Family(f"{prefix}tasks_completed", "gauge", completed)
    rejected = server.stats.reads_rejected
    yield gauge(f"{prefix}tasks_rejected", rejected, {"thread": "read"})
    yield gauge("bookkeeper_server_BookieReadThreadPool_threads", of.config.read_threads)
    most = of.config.reads_in_progress_max
    yield gauge("bookkeeper_server_BookieReadThreadPool_max_queue_size", most)


# Journals -----------------------------------------------------------------------------------------


def _journals(journals: Sequence[Journal], queue_bytes_max: int) -> Iterator[Family]:
    yield gauge("bookie_JOURNAL_DIRS", len(journals))
    labelled = [({"journalIndex": str(number)}, one) for number, one in enumerate(journals)]
    of_stats = [(labels, journal.stats) for labels, journal in labelled]
    yield from declared_of_all(of_stats, "bookie_journal_")
    yield from _labelled_rows(_JOURNAL, "bookie_journal_", labelled)
    share = queue_bytes_max // len(journals)
    limits = tuple((labels, share) for labels, _ in labelled)
    yield Family("bookie_journal_JOURNAL_MEMORY_MAX", "gauge", limits)


_JOURNAL: Final[tuple[Row, ...]] = (
    ("JOURNAL_QUEUE_SIZE", "counter", lambda it: it.stats.queued - it.stats.done),
    ("JOURNAL_MEMORY_USED", "gauge", lambda it: it.queued_bytes),
)


# Directories --------------------------------------------------------------------------------------


def _directories(of: BookieService) -> Iterator[Family]:
    """Yield the metrics of Java's LedgerDirsManager.

    They are of the ledger directories, and of the index directories if those are separate.
    """
    found = of.directories
    yield from _directory_group("bookie_ledger", found.ledger_dirs, of)
    if found.index_dirs != found.ledger_dirs:
        yield from _directory_group("bookie_index", found.index_dirs, of)


def _directory_group(prefix: str, group: Sequence[Path], of: BookieService) -> Iterator[Family]:
    disks = DiskControl(of)
    yield gauge(f"{prefix}_num_dirs", len(group))
    yield gauge(f"{prefix}_writable_dirs", len({*group} - disks.full()))
    for sample in disks.samples():
        if sample.directory in group:
            name = re.sub(r"[^a-zA-Z0-9:_]", "_", str(sample.directory.parent))
            yield gauge(f"{prefix}_dir_{name}_usage", round(sample.used * 100, 3))


# Storage ------------------------------------------------------------------------------------------


def _storages(storages: Storages, of: BookieService) -> Iterator[Family]:
    if _is_db(of):
        labelled = list(zip(_labels_of(of), list(storages), strict=True))
        yield from _labelled_rows(_DB, "bookie_", labelled)
        yield gauge("bookie_write_cache_max_size", storages.limits.cache_bytes)
        return
    (storage,) = storages
    yield from rows(_INDEX, "bookie_", _Index(storage, storage.memory, of.server))


@attrs.frozen
class _Index:
    storage: LedgerStorage
    memory: StorageMemory
    server: BookieServer | None

    @property
    def pages_found(self) -> int:
        """The reads that needed no read of the index."""
        stats = RequestStats() if self.server is None else self.server.stats
        return max(0, stats.requests[READ].success.count - self.storage.stats.pages_loaded)

    @property
    def pages(self) -> int:
        return self.memory.dirty_pages + self.memory.clean_pages + self.memory.read_pages


_INDEX: Final[tuple[Row, ...]] = (
    ("NUM_INDEX_PAGES", "gauge", lambda it: it.pages),
    ("WRITE_FILE_INFO_CACHE_SIZE", "gauge", lambda it: it.memory.ledgers),
    ("READ_FILE_INFO_CACHE_SIZE", "gauge", lambda it: it.storage.open_indexes),
    ("LEDGER_CACHE_HIT", "counter", lambda it: it.pages_found),
    ("LEDGER_CACHE_MISS", "counter", lambda it: it.storage.stats.pages_loaded),
    ("LEDGER_CACHE_NUM_EVICTED_LEDGERS", "counter", lambda it: it.memory.evicted_ledgers),
    ("SKIP_LIST_FLUSH_BYTES", "counter", lambda it: it.storage.written_bytes),
)

_DB: Final[tuple[Row, ...]] = (
    ("ledgers_count", "gauge", lambda it: it.ledgers.count),
    ("write_cache_size", "gauge", lambda it: it.memory.cache_bytes),
    ("flush", "summary", lambda it: it.stats.flush),
)


def _labels_of(of: BookieService) -> list[Labels]:
    """Return Java's labels for each storage of DbLedgerStorage."""
    return [
        {"indexDir": str(index), "ledgerDir": str(ledgers)}
        for ledgers, index in of.directories.pairs()
    ]


# Garbage collection -------------------------------------------------------------------------------


def _collectors(of: BookieService, collectors: Collectors) -> Iterator[Family]:
    """Yield the rows of each collector.

    DbLedgerStorage has them without ``gc_``, one a directory.
    """
    prefix = "bookie_" if _is_db(of) else "bookie_gc_"
    labels = _labels_of(of) if _is_db(of) else [{}]
    statuses = list(zip(labels, collectors.statuses(), strict=True))
    yield from declared_of_all(statuses, prefix)
    for tenth in range(TENTHS):
        name = f"{prefix}entry_log_usage_buckets_le_{(tenth + 1) * 10}"
        samples = tuple((those, one.tenths[tenth]) for those, one in statuses)
        yield Family(name, "gauge", samples)
    yield from declared_of_all(list(zip(labels, collectors.stats(), strict=True)), prefix)


# Rows ---------------------------------------------------------------------------------------------


def rows(named: Sequence[Row], prefix: str, of: object) -> Iterator[Family]:
    """Yield the rows of one part, with ``prefix`` before each name."""
    return _labelled_rows(named, prefix, [({}, of)])


def _labelled_rows(
    named: Sequence[Row], prefix: str, parts: Sequence[tuple[Labels, object]]
) -> Iterator[Family]:
    for name, kind, value in named:
        samples = tuple((labels, value(part)) for labels, part in parts)
        yield Family(prefix + name, kind, samples)
