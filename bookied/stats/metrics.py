"""The metrics of a bookie's parts, with their names.

A batch is counted once, with the number of its entries: no entry of the hot path costs a call.
"""

from __future__ import annotations

import threading
import time
from collections import OrderedDict
from collections.abc import Callable, Iterator
from typing import Any, Final

import attrs

from bookied.stats.metric_declaration import count, latency, level, sizes
from bookied.stats.quantiles import Summary
from wire.codes import AddFlag, ReadFlag, ReturnCode
from wire.ids import NO_ENTRY, LedgerId
from wire.ledger_metadata import LedgerMetadata
from wire.messages import (
    AddRequest,
    BatchReadRequest,
    BatchReadResponse,
    BookieInfoRequest,
    ForceLedgerRequest,
    ListEntriesRequest,
    ReadLacRequest,
    ReadRequest,
    ReadResponse,
    Request,
    Response,
    WriteLacRequest,
)

ADD: Final = "ADD_ENTRY"
READ: Final = "READ_ENTRY"
FENCE: Final = "READ_ENTRY_FENCE"
LONG_POLL: Final = "READ_ENTRY_LONG_POLL"
LIST_ENTRIES: Final = "GET_LIST_OF_ENTRIES_OF_LEDGER"
FORCE: Final = "FORCE_LEDGER"

_BY_TYPE: Final[dict[type[Any], str]] = {
    AddRequest: ADD,
    ReadRequest: READ,
    BatchReadRequest: READ,
    WriteLacRequest: "WRITE_LAC",
    ReadLacRequest: "READ_LAC",
    ForceLedgerRequest: FORCE,
    BookieInfoRequest: "GET_BOOKIE_INFO",
    ListEntriesRequest: LIST_ENTRIES,
}
OPERATIONS: Final = (*dict.fromkeys(_BY_TYPE.values()), FENCE, LONG_POLL)

_MS: Final = 1000.0

FAILURES_MAX: Final = 1000
"""Ledgers whose reason of a failed repair is remembered."""


def operation_of(request: Request) -> str:
    """Return the name under which a request is counted; empty if Java does not count it."""
    if isinstance(request, (ReadRequest, BatchReadRequest)):
        if request.flags & ReadFlag.FENCE:
            return FENCE
        if isinstance(request, ReadRequest) and request.previous_lac is not None:
            return LONG_POLL
    return _BY_TYPE.get(type(request), "")


class Summaries:
    """Metrics with noted values and windows."""

    def settle(self) -> None:
        """Count the noted values; called before metrics are read."""
        for one in self._summaries():
            one.fold()

    def rotate(self) -> None:
        """End a window."""
        for one in self._summaries():
            one.rotate()

    def _summaries(self) -> Iterator[Summary]:
        for value in attrs.asdict(self, recurse=False).values():  # type: ignore[arg-type]
            if isinstance(value, Summary):
                yield value
            elif isinstance(value, dict):
                yield from (one for one in value.values() if isinstance(one, Summary))


@attrs.define(eq=False)
class RequestStats(Summaries):
    """Requests of clients and their durations; sizes are of entry packets, in bytes."""

    now_ns: Callable[[], int] = time.perf_counter_ns
    requests: dict[str, Summary] = attrs.field(
        init=False, factory=lambda: {name: Summary() for name in OPERATIONS}
    )
    """From the read that completed the request to the write of the answer."""
    bookie_add: Summary = latency("bookie_BOOKIE_ADD_ENTRY")
    """The time to store adds in memory and queue them for the journal."""
    bookie_recovery_add: Summary = latency("bookie_BOOKIE_RECOVERY_ADD_ENTRY")
    bookie_add_bytes: Summary = sizes("bookie_BOOKIE_ADD_ENTRY_BYTES")
    bookie_read_bytes: Summary = sizes("bookie_BOOKIE_READ_ENTRY_BYTES")
    channel_write: Summary = latency("bookkeeper_server_CHANNEL_WRITE")
    """The time to pass answers to the transport."""
    fence_wait: Summary = latency("bookkeeper_server_READ_ENTRY_FENCE_WAIT")
    fence_read: Summary = latency("bookkeeper_server_READ_ENTRY_FENCE_READ")
    poll_wait: Summary = latency("bookkeeper_server_READ_ENTRY_LONG_POLL_WAIT")
    poll_read: Summary = latency("bookkeeper_server_READ_ENTRY_LONG_POLL_READ")
    disk_wait: Summary = latency("bookkeeper_server_READ_ENTRY_SCHEDULING_DELAY")
    """The time that reads wait for a thread."""
    disk_read: Summary = latency("bookie_STORAGE_GET_ENTRY")
    blocked_wait: Summary = latency(
        "bookkeeper_server_ADD_ENTRY_BLOCKED_WAIT",
        "bookkeeper_server_READ_ENTRY_BLOCKED_WAIT",
        "bookie_SKIP_LIST_THROTTLING_LATENCY",
    )
    """The time that no connection was read, because too much was in progress."""
    write_bytes: int = count("bookie_WRITE_BYTES")
    read_bytes: int = count("bookie_READ_BYTES")
    adds_rejected: int = count("bookkeeper_server_ADD_ENTRY_REJECTED")
    reads_rejected: int = count("bookkeeper_server_READ_ENTRY_REJECTED")
    no_last_entry: int = count("bookkeeper_server_READ_LAST_ENTRY_NOENTRY_ERROR")
    """Reads of the last entry of ledgers without entries."""
    forces: int = count("bookie_BOOKIE_FORCE_LEDGER")
    packets_received: int = count("bookied_packets_received_total")
    packets_sent: int = count("bookied_packets_sent_total")
    tls_handshakes: int = count("bookied_tls_handshakes_total")
    tls_failures: int = count("bookied_tls_failures_total")
    """Failed handshakes, and connections that ended with an error of TLS."""
    auth_successes: int = count("bookied_auth_successes_total")
    auth_failures: int = count("bookied_auth_failures_total")
    requests_unauthenticated: int = count("bookied_unauthenticated_requests_total")
    """Requests before the required authentication or TLS."""
    keys_refused: int = count("bookied_ledger_keys_refused_total")
    """Requests for ledgers with another password than the ledger's."""

    def since_us(self, began_ns: int) -> int:
        """Return the microseconds since ``began_ns``, the unit of noted values."""
        return (self.now_ns() - began_ns) // 1000

    def adds_stored(
        self, adds: int, size_bytes: int, began_ns: int, *, is_recovery: bool = False
    ) -> None:
        """Count a batch of adds of the hot path that is queued for the journal."""
        self.packets_received += adds
        self.write_bytes += size_bytes
        kind = self.bookie_recovery_add if is_recovery else self.bookie_add
        kind.success.share((self.now_ns() - began_ns) // 1000, adds)
        self.bookie_add_bytes.success.share(size_bytes, adds)

    def reads_answered(self, reads: int, size_bytes: int, began_ns: int) -> None:
        """Count a batch of reads that the hot path has answered."""
        self.packets_received += reads
        self.requests[READ].success.note(self.since_us(began_ns), reads)
        self._read_together(size_bytes, reads)

    def reads_refused(self, reads: int, began_ns: int) -> None:
        """Count a batch of reads that the hot path has refused."""
        self.packets_received += reads
        self.requests[READ].failure.note(self.since_us(began_ns), reads)

    def handled(self, request: Request, began_ns: int) -> None:
        """Count a request that the bookie has accepted; its answer may come later."""
        self.packets_received += 1
        if isinstance(request, AddRequest):
            recovery = request.flags & AddFlag.RECOVERY
            (self.bookie_recovery_add if recovery else self.bookie_add).success.note(
                self.since_us(began_ns)
            )
            self.write_bytes += len(request.entry)
            self.bookie_add_bytes.success.note(len(request.entry))
        elif isinstance(request, ForceLedgerRequest):
            self.forces += 1

    def answered(self, operation: str, response: Response, began_ns: int) -> None:
        """Count a sent answer."""
        if not operation:
            return
        rc = response.rc
        self.requests[operation].note(self.since_us(began_ns), ok=rc is ReturnCode.EOK)
        if rc is ReturnCode.ETOOMANYREQUESTS:
            if operation == ADD:
                self.adds_rejected += 1
            else:
                self.reads_rejected += 1
        self._count_read(response)

    def _count_read(self, response: Response) -> None:
        if isinstance(response, ReadResponse):
            if response.entry is not None:
                self._read(len(response.entry))
            elif response.rc is ReturnCode.ENOENTRY and response.entry_id == NO_ENTRY:
                self.no_last_entry += 1
        elif isinstance(response, BatchReadResponse) and response.entries:
            self._read_together(response.entries.size_bytes, len(response.entries))

    def _read_together(self, size_bytes: int, reads: int) -> None:
        self.read_bytes += size_bytes
        self.bookie_read_bytes.success.share(size_bytes, reads)

    def _read(self, size_bytes: int) -> None:
        self.read_bytes += size_bytes
        self.bookie_read_bytes.success.note(size_bytes)


@attrs.define(eq=False)
class JournalStats(Summaries):
    """The metrics of one journal; counted in its thread, a group at a time, with the lock."""

    lock: threading.Lock = attrs.field(factory=threading.Lock)

    add: Summary = latency("JOURNAL_ADD_ENTRY")
    """From the queue to the disk."""
    queue: Summary = latency("JOURNAL_QUEUE_LATENCY")
    """From the queue to the begin of its group."""
    process: Summary = latency("JOURNAL_PROCESS_TIME_LATENCY")
    """The duration of a group."""
    flush: Summary = latency("JOURNAL_FLUSH_LATENCY")
    """The duration of a write."""
    sync: Summary = latency("JOURNAL_SYNC")
    creation: Summary = latency("JOURNAL_CREATION_LATENCY")
    force: Summary = latency("JOURNAL_FORCE_LEDGER")
    batch_entries: Summary = sizes("JOURNAL_FORCE_WRITE_BATCH_ENTRIES")
    batch_bytes: Summary = sizes("JOURNAL_FORCE_WRITE_BATCH_BYTES")
    write_bytes: int = count("JOURNAL_WRITE_BYTES")
    queued: int = 0
    """Records queued so far, counted by the reactor; ``done`` counts the completed ones."""
    done: int = 0
    ended_by_wait: int = count("JOURNAL_NUM_FLUSH_MAX_WAIT")
    """Groups that ended because their oldest record had waited long enough."""
    ended_by_bytes: int = count("JOURNAL_NUM_FLUSH_MAX_OUTSTANDING_BYTES")
    ended_by_empty_queue: int = count("JOURNAL_NUM_FLUSH_EMPTY_QUEUE")

    def settle(self) -> None:
        """Count the noted values, while the journal's thread notes nothing."""
        with self.lock:
            super().settle()

    def rotate(self) -> None:
        """End a window, while the journal's thread notes nothing."""
        with self.lock:
            super().rotate()


ZK_OPERATIONS: Final = (
    "create",
    "multi",
    "get_data",
    "exists",
    "get_children",
    "set_data",
    "delete",
)


@attrs.define(eq=False)
class MetadataStats(Summaries):
    """The durations of ZooKeeper requests; an error in an answer counts as an answer."""

    operations: dict[str, Summary] = attrs.field(
        init=False, factory=lambda: {name: Summary() for name in ZK_OPERATIONS}
    )

    def observe(self, name: str, took_s: float, is_answered: bool) -> None:  # noqa: FBT001
        """Count one operation."""
        self.operations[name].observe(took_s * _MS, ok=is_answered)


@attrs.define(eq=False)
class CollectorStats(Summaries):
    """The durations of one collector's work."""

    thread: Summary = latency("THREAD_RUNTIME")
    """A round."""
    compact: Summary = latency("COMPACT_RUNTIME")
    ledgers: Summary = latency("GC_LEDGER_RUNTIME")
    """The comparison with the metadata, and the removal of ledgers."""
    logs: Summary = latency("EXTRACT_META_RUNTIME")
    """The scan of entry logs for their ledgers."""


@attrs.define(eq=False)
class StorageStats(Summaries):
    """The metrics of one storage."""

    seconds: Callable[[], float] = time.perf_counter
    flush: Summary = attrs.field(init=False, factory=Summary)
    """The time to make everything in memory durable."""
    pages_loaded: int = 0
    """Index pages that were read for readers."""


@attrs.define(eq=False)
class AuditorStats(Summaries):
    """The metrics of the auditors of this process, over all terms; times are milliseconds."""

    audit: Summary = latency("AUDIT_BOOKIES_TIME")
    """The search for lost bookies."""
    walk: Summary = latency("BOOKIE_TO_LEDGERS_MAP_CREATION_TIME")
    """The part of an audit that reads the metadata of all ledgers."""
    publish: Summary = latency("URL_PUBLISH_TIME_FOR_LOST_BOOKIE")
    """The part of an audit that writes marks."""
    check_ledgers: Summary = latency("CHECK_ALL_LEDGERS_TIME")
    check_placement: Summary = latency("PLACEMENT_POLICY_CHECK_TIME")
    check_replicas: Summary = latency("REPLICAS_CHECK_TIME")
    marked: Summary = sizes("NUM_UNDER_REPLICATED_LEDGERS")
    """Ledgers that an audit marked."""
    marked_bytes: Summary = sizes("UNDER_REPLICATED_LEDGERS_TOTAL_SIZE")
    fragments: Summary = sizes("NUM_FRAGMENTS_PER_LEDGER")
    """Fragments of each checked ledger; the next one counts its bookies."""
    bookies: Summary = sizes("NUM_BOOKIES_PER_LEDGER")
    ledgers_checked: int = count("NUM_LEDGERS_CHECKED")
    audits_delayed: int = count("NUM_BOOKIE_AUDITS_DELAYED")
    delayed_audits_cancelled: int = count("NUM_DELAYED_BOOKIE_AUDITS_CANCELLED")
    checks_skipped: int = count("NUM_SKIPPING_CHECK_TASK_TIMES")
    misplaced: int = level("NUM_LEDGERS_NOT_ADHERING_TO_PLACEMENT_POLICY")
    """Ledgers found by the last check of placement; the next three of replicas."""
    without_a_replica: int = level("NUM_LEDGERS_HAVING_NO_REPLICA_OF_AN_ENTRY")
    below_ack_quorum: int = level("NUM_LEDGERS_HAVING_LESS_THAN_AQ_REPLICAS_OF_AN_ENTRY")
    below_write_quorum: int = level("NUM_LEDGERS_HAVING_LESS_THAN_WQ_REPLICAS_OF_AN_ENTRY")
    overdue: int = level("NUM_UNDERREPLICATED_LEDGERS_ELAPSED_RECOVERY_GRACE_PERIOD")
    """Marks that were overdue at the last check of placement."""
    audited_s: float = 0.0
    """The end of the last successful audit, in seconds since the epoch."""

    def checked(self, metadata: LedgerMetadata) -> None:
        """Count a checked ledger."""
        self.ledgers_checked += 1
        self.fragments.success.note(len(metadata.fragments))
        self.bookies.success.note(len(metadata.all_bookies()))


@attrs.define(eq=False)
class WorkerStats(Summaries):
    """The metrics of the workers of this process."""

    repair: Summary = latency("rereplicate")
    """The repair of one ledger; a success means that all its replicas exist."""
    read_bytes: Summary = sizes("NUM_BYTES_READ")
    """Of each copied entry; written bytes count once for each copy."""
    written_bytes: Summary = sizes("NUM_BYTES_WRITTEN")
    entries_read: int = count("NUM_ENTRIES_READ")
    entries_written: int = count("NUM_ENTRIES_WRITTEN")
    unreadable: int = count("NUM_ENTRIES_UNABLE_TO_READ_FOR_REPLICATION")
    ledgers: int = count("NUM_FULL_OR_PARTIAL_LEDGERS_REPLICATED")
    """Ledgers of which something was copied."""
    respread: int = count("NUM_NOT_ADHERING_PLACEMENT_LEDGERS_REPLICATED")
    """Ledgers of which a fragment was moved for its placement."""
    deferred: int = count("NUM_DEFER_LEDGER_LOCK_RELEASE_OF_FAILED_LEDGER")
    """Locks that were kept for some time because a repair failed."""
    failures: OrderedDict[LedgerId, tuple[float, str]] = attrs.field(factory=OrderedDict)
    """Time and reason of the last failed repair of each ledger: the latest ledgers, until
    repaired.
    """

    def failed(self, ledger_id: LedgerId, now_s: float, why: str) -> None:
        """Remember why a ledger was not repaired; replaces the earlier reason."""
        self.failures.pop(ledger_id, None)
        self.failures[ledger_id] = now_s, why
        if len(self.failures) > FAILURES_MAX:
            self.failures.popitem(last=False)

    def repaired(self, ledger_id: LedgerId) -> None:
        """Forget the reason for a ledger."""
        self.failures.pop(ledger_id, None)

    def copied(self, size_bytes: int, copies: int) -> None:
        """Count a copied entry."""
        self.entries_read += 1
        self.entries_written += copies
        self.read_bytes.success.note(size_bytes)
        self.written_bytes.success.note(size_bytes, copies)


@attrs.frozen
class RepairStats:
    """The metrics of auditors and workers, for all sessions of one process."""

    auditor: AuditorStats = attrs.field(factory=AuditorStats)
    worker: WorkerStats = attrs.field(factory=WorkerStats)
