"""The rules that a request meets, by its kind: fence, LAC, force, reads, adds.

``fencing`` has the rules of fences; ``add_requests`` also has those of explicit LACs and forces.
Requests and answers are values; this code uses no sockets. Agrees with BookKeeper 4.18.0
(BookieRequestProcessor, BookieImpl) except for the improvements that wire.md section 19 lists.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, Final

import attrs
from twisted.internet.interfaces import IReactorTime

from bookied.server.rules.add_requests import Adds
from bookied.server.rules.answer_from_disk import DiskRead
from bookied.server.rules.deleted_ledgers import FencedDeletions
from bookied.server.rules.entry_and_batch_reads import EntryReads
from bookied.server.rules.fencing import Fences
from bookied.server.rules.long_poll import Cancel, LongPolls
from bookied.server.rules.master_keys import LedgerWrites
from bookied.server.rules.metadata_fence_check import FenceCheck
from bookied.server.rules.pending_request import PendingRequest, Respond
from bookied.server.rules.read_requests import ReadRules
from bookied.stats.metrics import RequestStats
from bookied.storage.journal.writer import Journal
from bookied.storage.storages import Storages
from wire.codes import (
    FRAME_BYTES_MAX,
    V2_VERSION,
    V3_VERSION,
    BookieInfoFlag,
    Operation,
    ProtocolVersion,
    ReturnCode,
)
from wire.errors import BadVersionError, BookKeeperError
from wire.ids import LedgerId
from wire.messages import (
    AUTH_DISABLED,
    AddRequest,
    AuthRequest,
    AuthResponse,
    BadRequest,
    BatchReadRequest,
    BookieInfoRequest,
    BookieInfoResponse,
    ForceLedgerRequest,
    ListEntriesRequest,
    ReadLacRequest,
    ReadRequest,
    ReplyTo,
    Request,
    StartTlsRequest,
    WriteLacRequest,
)


@attrs.frozen(kw_only=True)
class ReadLimits:
    """The limits of reads."""

    batch_bytes_max: int = FRAME_BYTES_MAX
    """``maxBatchReadSize``."""
    polls_max: int = 10_000
    """Long polls that may wait at once; more are refused."""


DISK_SIZES_S: Final = 1.0
"""Seconds for which the sizes of the disks are cached."""


class Bookie:
    """The answers of one bookie to all requests.

    An add, a fence or an explicit LAC is answered only once the journal has synced it. The rules
    for each kind of request are parts of this class. All methods belong to the reactor's thread.
    """

    def __init__(
        self,
        storages: Storages,
        journals: Sequence[Journal],
        clock: IReactorTime,
        *,
        disk_usage: Callable[[], tuple[int, int]],
        limits: ReadLimits | None = None,
        fence_check: FenceCheck | None = None,
        stats: RequestStats | None = None,
        monotonic_s: Callable[[], float] | None = None,
    ) -> None:
        """Serve from ``storages`` and ``journals``.

        Args:
            storages: the entries.
            journals: ledger ``id % len(journals)`` belongs to that journal.
            clock: for long polls, and for the time that deletions are remembered.
            disk_usage: returns total and free bytes, summed over the ledger directories. Blocks.
            limits: the limits of reads.
            fence_check: knows the open ledgers, if fences may have been lost.
            stats: counts requests, for this class and for the connections.
            monotonic_s: counts seconds, unaffected by a change of the wall clock; ``clock`` by
                default.
        """
        limits = limits or ReadLimits()
        self.storages, self.journals = storages, journals
        self.polls = LongPolls(clock, polls_max=limits.polls_max)
        self.stats = stats = stats or RequestStats()
        self.deletions = FencedDeletions(clock, monotonic_s)
        writes = LedgerWrites(storages, journals, stats)
        fences = Fences(writes, self.polls, self.deletions, stats)
        self.adds = Adds(writes, fences, self.polls, self.deletions, fence_check)
        """The rules for adds."""
        entries = EntryReads(storages, batch_bytes_max=limits.batch_bytes_max)
        reads = ReadRules(storages, entries, fences, self.polls, stats)
        self._clock, self._disk_usage = clock, disk_usage
        self._disk_sizes: tuple[int, int] = (0, 0)
        self._disk_sizes_until_s = float("-inf")
        self._rules: dict[type[Any], Callable[[PendingRequest[Any]], Cancel | None]] = {
            AddRequest: self.adds.add,
            ReadRequest: reads.read,
            BatchReadRequest: reads.batch_read,
            WriteLacRequest: self.adds.write_lac,
            ReadLacRequest: reads.read_lac,
            ForceLedgerRequest: self.adds.force,
            BookieInfoRequest: self._info,
            ListEntriesRequest: reads.list_entries,
            AuthRequest: self._auth,
            StartTlsRequest: self._start_tls,
            BadRequest: self._bad_request,
        }

    def handle(
        self, request: Request, reply_to: ReplyTo, respond: Respond, address: str = ""
    ) -> Cancel | None:
        """Execute a request from ``address``.

        ``respond`` gets its answer, perhaps before this returns.

        Returns: For a request that may wait long (a long poll): the function to call if its client
            leaves.
        """
        asked = PendingRequest(request, reply_to, respond, address)
        try:
            if not _version_served(reply_to):
                raise BadVersionError(f"version {reply_to.header_version}")
            return self._rules[type(request)](asked)
        except (BookKeeperError, OSError) as error:
            asked.refuse(error)
            return None

    def ledger_deleted(
        self, ledger_id: LedgerId, *, was_fenced: bool, lives_on: bool = False
    ) -> None:
        """Note that garbage collection is about to drop a ledger from storage.

        ``lives_on``: other bookies store the ledger, and it may be copied here again.
        """
        if was_fenced:
            self.deletions.remember(ledger_id, lives_on=lives_on)
        self.polls.ledger_changed(ledger_id)

    def _info(self, asked: PendingRequest[BookieInfoRequest]) -> None:
        """Answer with the sizes of the disks, at most ``DISK_SIZES_S`` old."""
        requested = asked.request.requested

        def known(sizes: tuple[int, int]) -> BookieInfoResponse:
            if sizes is not self._disk_sizes:
                self._disk_sizes_until_s = self._clock.seconds() + DISK_SIZES_S
                self._disk_sizes = sizes
            return BookieInfoResponse(
                ReturnCode.EOK,
                sizes[0] if requested & BookieInfoFlag.TOTAL_DISK_CAPACITY else None,
                sizes[1] if requested & BookieInfoFlag.FREE_DISK_SPACE else None,
            )

        if self._clock.seconds() < self._disk_sizes_until_s:
            asked.respond(known(self._disk_sizes))
        else:
            asked.respond(DiskRead(LedgerId(0), self._disk_usage, known, asked.refused))

    def _auth(self, asked: PendingRequest[AuthRequest]) -> None:
        asked.respond(AuthResponse(ReturnCode.EOK, AUTH_DISABLED, b""))

    def _start_tls(self, asked: PendingRequest[StartTlsRequest]) -> None:
        asked.respond(asked.refused(ReturnCode.EBADREQ))

    def _bad_request(self, asked: PendingRequest[BadRequest]) -> None:
        asked.respond(asked.refused(asked.request.rc))


def _version_served(reply_to: ReplyTo) -> bool:
    if reply_to.version is ProtocolVersion.V3:
        return reply_to.header_version == V3_VERSION
    # Java answers AUTH of any version (4.18.0, BookieRequestProcessor).
    return reply_to.operation is Operation.AUTH or 0 <= reply_to.header_version <= V2_VERSION
