"""The rules a bookie follows: master key, fence, read-only, LAC, force, who waits for the journal.

Requests come in as values and answers go out as values; no sockets here. Agrees with BookKeeper
4.18.0 (BookieRequestProcessor, BookieImpl) but for what wire.md section 19 lists as improvements.
"""

from __future__ import annotations

import enum
import struct
from collections.abc import Callable, Sequence
from functools import partial
from typing import Any, Final, Generic, TypeVar

import attrs
from twisted.internet.interfaces import IReactorTime

from bookied.metrics.stats import RequestStats
from bookied.metrics.summary import Summary
from bookied.server.rules.deletions import FencedDeletions
from bookied.server.rules.disk_read import Answer, DiskRead, refusal_code
from bookied.server.rules.fence_check import FenceCheck, Standing
from bookied.server.rules.long_poll import Cancel, LongPolls
from bookied.server.rules.reads import EntryReads, in_limbo, insist_sure, packet_lac
from bookied.server.rules.refusal import refusal
from bookied.storage.index.format import has_place
from bookied.storage.index.ledger_pages import LedgerState
from bookied.storage.journal.format import (
    ENTRY_BYTES_MIN,
    entry_record,
    explicit_lac_record,
    fence_record,
)
from bookied.storage.journal.writer import Journal
from bookied.storage.storages import Storages
from wire.codes import (
    FRAME_BYTES_MAX,
    LAC_HEADER_BYTES,
    V2_VERSION,
    V3_VERSION,
    AddFlag,
    BookieInfoFlag,
    Operation,
    ProtocolVersion,
    ReadFlag,
    ReturnCode,
)
from wire.errors import (
    BadRequestError,
    BadVersionError,
    BookKeeperError,
    LedgerFencedError,
    NoSuchEntryError,
    NoSuchLedgerError,
    ReadOnlyBookieError,
    TooManyRequestsError,
    UnauthorizedError,
)
from wire.ids import NO_ENTRY, EntryId, LedgerId
from wire.messages import (
    AUTH_DISABLED,
    AddRequest,
    AddResponse,
    AuthRequest,
    AuthResponse,
    BadRequest,
    BatchReadRequest,
    BookieInfoRequest,
    BookieInfoResponse,
    ForceLedgerRequest,
    ForceLedgerResponse,
    ListEntriesRequest,
    ListEntriesResponse,
    ReadLacRequest,
    ReadLacResponse,
    ReadRequest,
    ReadResponse,
    ReplyTo,
    Request,
    Response,
    StartTlsRequest,
    WriteLacRequest,
    WriteLacResponse,
)
from wire.records import encode_entry_list

MASTER_KEY_BYTES_MAX: Final = 512
LAC_PACKET_BYTES_MAX: Final = 256
"""Both have to fit the 1024-byte header of an index file, with room to spare."""

Respond = Callable[[Answer], None]
"""Takes the one answer to a request: now, later, or never if the bookie dies."""


class Writes(enum.Enum):
    """Which adds a bookie takes: what its disks and its operator allow."""

    ALL = enum.auto()
    HIGH_PRIORITY = enum.auto()
    """Read-only, with room left for recovery and re-replication."""
    NONE = enum.auto()


_R = TypeVar("_R", bound=Request)


@attrs.frozen
class Asked(Generic[_R]):
    """A request under way, with all that its answer needs."""

    request: _R
    reply_to: ReplyTo
    respond: Respond

    @property
    def ledger_id(self) -> LedgerId:
        """Whom it is about, for the log; -1 if it is about no ledger."""
        return getattr(self.request, "ledger_id", LedgerId(-1))

    def refused(self, rc: ReturnCode) -> Response:
        """Return the answer that says no."""
        return refusal(self.request, self.reply_to, rc)

    def attempt(self, read: Callable[[], Answer]) -> None:
        """Respond with what ``read`` returns or raises: for reads that had to wait their time."""
        try:
            answer = read()
        except (BookKeeperError, OSError) as error:
            answer = self.refused(refusal_code(error, self.ledger_id))
        self.respond(answer)


class Bookie:
    """One bookie's answers to whatever clients ask.

    An answer to an add, a fence or an explicit LAC is given only once the journal has it on disk.
    ``storages`` know of a write before the journal does, so that a checkpoint taken at any moment
    covers what has been acknowledged. All methods belong to the reactor's thread.
    """

    def __init__(
        self,
        storages: Storages,
        journals: Sequence[Journal],
        clock: IReactorTime,
        *,
        disk_usage: Callable[[], tuple[int, int]],
        batch_bytes_max: int = FRAME_BYTES_MAX,
        polls_max: int = 10_000,
        fence_check: FenceCheck | None = None,
        stats: RequestStats | None = None,
        monotonic_s: Callable[[], float] | None = None,
    ) -> None:
        """Serve from ``storages`` and ``journals``.

        Args:
            storages: the entries.
            journals: ledger ``id % len(journals)`` belongs to that journal.
            clock: for long polls and for how long deletions are remembered.
            disk_usage: blocking; total and free bytes, summed over the ledger directories.
            batch_bytes_max: ``maxBatchReadSize``.
            polls_max: long polls that may wait at once; more are refused.
            fence_check: says which ledgers are open, where fences may have been lost.
            stats: what is counted of requests, here and by who brings them.
            monotonic_s: counts seconds that setting a clock does not change; ``clock`` by default.
        """
        self.storages, self.journals = storages, journals
        self.polls = LongPolls(clock, polls_max=polls_max)
        self.writes = Writes.ALL
        self.fence_check = fence_check
        self.stats = stats or RequestStats()
        self._reads = EntryReads(storages, batch_bytes_max=batch_bytes_max)
        self.deletions = FencedDeletions(clock, monotonic_s)
        self._disk_usage = disk_usage
        # Who waits for the fence of a ledger to be durable. Later fencers wait with the first.
        self._fencing: dict[LedgerId, list[Callable[[], None]]] = {}
        self._rules: dict[type[Any], Callable[[Asked[Any]], Cancel | None]] = {
            AddRequest: self._add,
            ReadRequest: self._read,
            BatchReadRequest: self._batch_read,
            WriteLacRequest: self._write_lac,
            ReadLacRequest: self._read_lac,
            ForceLedgerRequest: self._force,
            BookieInfoRequest: self._info,
            ListEntriesRequest: self._list_entries,
            AuthRequest: self._auth,
            StartTlsRequest: self._start_tls,
            BadRequest: self._bad_request,
        }

    def handle(self, request: Request, reply_to: ReplyTo, respond: Respond) -> Cancel | None:
        """Obey one request; ``respond`` gets its answer, perhaps before this returns.

        Returns:
            For a request that may wait long (a long poll): what to call when its asker is gone.
        """
        asked = Asked(request, reply_to, respond)
        try:
            if not _version_served(reply_to):
                raise BadVersionError(f"version {reply_to.header_version}")
            return self._rules[type(request)](asked)
        except (BookKeeperError, OSError) as error:
            respond(asked.refused(refusal_code(error, asked.ledger_id)))
            return None

    def ledger_deleted(
        self, ledger_id: LedgerId, *, was_fenced: bool, lives_on: bool = False
    ) -> None:
        """Garbage collection calls this right before it drops a ledger from storage.

        ``lives_on``: other bookies have it, and it may be copied here again.
        """
        if was_fenced:
            self.deletions.remember(ledger_id, lives_on=lives_on)
        self.polls.ledger_changed(ledger_id)

    # Writing -----------------------------------------------------------------------------------

    def _add(self, asked: Asked[AddRequest]) -> None:
        request = asked.request
        packet = request.entry
        self._check_writable(request.flags)
        ledger_id, entry_id = _packet_ids(packet)
        recovery = bool(request.flags & AddFlag.RECOVERY)
        was_deleted = ledger_id in self.deletions
        if was_deleted and not (recovery and self.deletions.lives_on(ledger_id)):
            raise LedgerFencedError(f"ledger {ledger_id} was fenced and deleted")
        state = self._ledger_to_write(ledger_id, request.master_key)
        if was_deleted:
            self._fence(state, lambda: None)  # In the journal before the entry.
        if not recovery:
            _check_not_fenced(state)
        check = self.fence_check
        if check is not None and not recovery and not check.is_open(ledger_id):
            check.ask(ledger_id, partial(self._add_if_open, asked))
            return
        self.storages.of(ledger_id).adds.add(state, entry_id, packet)
        answer = AddResponse(ReturnCode.EOK, request.ledger_id, request.entry_id)
        # Recovery adds are what a ledger is closed upon, so they wait for the disk always.
        early = bool(request.flags & AddFlag.DEFERRED_SYNC) and not recovery
        self._append(state, entry_record(packet), partial(asked.respond, answer), early=early)
        self.note_lac(state, packet_lac(packet))

    def _add_if_open(self, asked: Asked[AddRequest], standing: Standing) -> None:
        """Go on with an add to a ledger in doubt, now that metadata was asked."""
        try:
            if standing is Standing.UNKNOWN:
                raise TooManyRequestsError(f"ledger {asked.ledger_id}: metadata does not answer")
            if standing is Standing.CLOSED:
                state = self._ledger_to_write(asked.ledger_id, asked.request.master_key)
                self._fence(state, lambda: None)
            self._add(asked)
        except (BookKeeperError, OSError) as error:
            asked.respond(asked.refused(refusal_code(error, asked.ledger_id)))

    def note_lac(self, state: LedgerState, lac: int) -> None:
        """Remember the highest LAC seen and wake those who waited for it."""
        state.lac = max(state.lac, lac)
        if state.ledger_id in self.polls.waiting:
            self.polls.lac_advanced(LedgerId(state.ledger_id), state.lac)

    def _write_lac(self, asked: Asked[WriteLacRequest]) -> None:
        request = asked.request
        packet = request.body
        if self.writes is not Writes.ALL:
            raise ReadOnlyBookieError("explicit LAC")
        if not LAC_HEADER_BYTES <= len(packet) <= LAC_PACKET_BYTES_MAX:
            raise BadRequestError(f"LAC packet of {len(packet)} bytes")
        ledger_id, lac = _TWO_IDS.unpack_from(packet)
        if ledger_id in self.deletions:
            raise NoSuchLedgerError(f"ledger {ledger_id} was fenced and deleted")
        state = self._ledger_to_write(ledger_id, request.master_key)
        self.storages.of(ledger_id).ledgers.set_explicit_lac(state, packet)
        answer = WriteLacResponse(ReturnCode.EOK, request.ledger_id)
        record = b""
        if self._journal(ledger_id).takes_explicit_lacs:
            record = explicit_lac_record(ledger_id, packet)
        self._append(state, record, partial(asked.respond, answer))
        self.note_lac(state, lac)

    def _force(self, asked: Asked[ForceLedgerRequest]) -> None:
        ledger_id = asked.request.ledger_id
        answer = ForceLedgerResponse(ReturnCode.EOK, ledger_id)
        self._journal(ledger_id).append(b"", partial(asked.respond, answer))

    def _check_writable(self, flags: AddFlag) -> None:
        if self.writes is Writes.ALL:
            return
        if self.writes is Writes.HIGH_PRIORITY and flags & AddFlag.HIGH_PRIORITY:
            return
        raise ReadOnlyBookieError("add")

    def _ledger_to_write(self, ledger_id: LedgerId, master_key: bytes) -> LedgerState:
        """Return the ledger for whom the key opens it; the first to come creates it.

        Raises:
            UnauthorizedError: it has another key.
        """
        if ledger_id < 0 or len(master_key) > MASTER_KEY_BYTES_MAX:
            raise BadRequestError(f"ledger {ledger_id}, key of {len(master_key)} bytes")
        storage = self.storages.of(ledger_id)
        state = storage.ledgers.lookup(ledger_id)
        if state is None:
            return storage.ledgers.create(ledger_id, master_key)
        # A rebuilt index knows no keys: the first to write to such a ledger brings it back.
        if state.master_key != master_key and not storage.ledgers.adopt_key(state, master_key):
            self.stats.keys_refused += 1
            raise UnauthorizedError(f"ledger {ledger_id}")
        return state

    def _journal(self, ledger_id: int) -> Journal:
        return self.journals[ledger_id % len(self.journals)]

    def _append(
        self, state: LedgerState, record: bytes, done: Callable[[], None], *, early: bool = False
    ) -> None:
        """Journal a record, the ledger's key before it unless that is journalled or on disk.

        Without the key a replay would take the ledger for a deleted one and drop the record.
        """
        records = 1
        if not state.key_logged:
            record = self.storages.of(state.ledger_id).ledgers.key_record(state) + record
            state.key_logged, records = True, 2
        self._journal(state.ledger_id).append(record, done, early=early, entries=records)

    # Fencing -----------------------------------------------------------------------------------

    def _fence_then(
        self, asked: Asked[ReadRequest] | Asked[BatchReadRequest], read: Callable[[], Answer]
    ) -> None:
        """Fence, and only once that is durable ``read`` and answer, be it with a refusal.

        A client counts a negative answer as fenced too (client.md section 10).
        """
        ledger_id, master_key = asked.request.ledger_id, asked.request.master_key
        if master_key is None:
            self.stats.keys_refused += 1
            raise UnauthorizedError(f"fencing ledger {ledger_id} without its key")
        if ledger_id in self.deletions and not self.deletions.lives_on(ledger_id):
            raise NoSuchLedgerError(f"ledger {ledger_id} was fenced and deleted")
        began_ns = self.stats.now_ns()

        def fenced() -> None:
            self.stats.fence_wait.note(self.stats.since_us(began_ns))
            asked.attempt(self._timed(read, self.stats.fence_read))

        self._fence(self._ledger_to_write(ledger_id, master_key), fenced)

    def _timed(self, read: Callable[[], Answer], took: Summary) -> Callable[[], Answer]:
        """Return ``read`` with its time counted, up to where it goes to the disk."""

        def timed() -> Answer:
            began_ns = self.stats.now_ns()
            try:
                answer = read()
            except Exception:
                took.note(self.stats.since_us(began_ns), ok=False)
                raise
            took.note(self.stats.since_us(began_ns))
            return answer

        return timed

    def _fence(self, state: LedgerState, fenced: Callable[[], None]) -> None:
        ledger_id = LedgerId(state.ledger_id)
        if ledger_id in self._fencing:
            self._fencing[ledger_id].append(fenced)
        elif state.fenced:
            fenced()
        else:
            self.storages.of(ledger_id).ledgers.set_fenced(state)
            self._fencing[ledger_id] = [fenced]
            self._append(state, fence_record(ledger_id), partial(self._fence_durable, ledger_id))
            self.polls.ledger_changed(ledger_id)

    def _fence_durable(self, ledger_id: LedgerId) -> None:
        for fenced in self._fencing.pop(ledger_id):
            fenced()

    # Reading -----------------------------------------------------------------------------------

    def _read(self, asked: Asked[ReadRequest]) -> Cancel | None:
        request = asked.request
        if request.flags is not ReadFlag.NONE and request.flags & ReadFlag.FENCE:
            self._fence_then(asked, partial(self._read_entry, asked, with_lac=False))
        elif request.previous_lac is not None:
            return self._long_poll(asked, request.previous_lac)
        else:
            with_lac = asked.reply_to.version is ProtocolVersion.V3
            asked.respond(self._read_entry(asked, with_lac=with_lac))
        return None

    def _read_entry(self, asked: Asked[ReadRequest], *, with_lac: bool) -> Answer:
        ledger_id, entry_id = asked.request.ledger_id, asked.request.entry_id

        def found(state: LedgerState, packet: bytes) -> ReadResponse:
            max_lac = state.lac if with_lac and not state.limbo else None
            return ReadResponse(ReturnCode.EOK, ledger_id, entry_id, packet, max_lac)

        return self._reads.entry(ledger_id, entry_id, found, asked.refused)

    def _batch_read(self, asked: Asked[BatchReadRequest]) -> None:
        read = partial(self._reads.batch, asked.request, asked.refused)
        if asked.request.flags & ReadFlag.FENCE:
            self._fence_then(asked, read)
        else:
            asked.respond(read())

    def _long_poll(self, asked: Asked[ReadRequest], previous_lac: int) -> Cancel | None:
        request = asked.request
        if request.flags & ReadFlag.PIGGYBACK and request.entry_id != NO_ENTRY:
            raise BadRequestError("the entry to piggyback is chosen by the bookie")
        state = self._reads.ledger(request.ledger_id)
        insist_sure(state)

        began_ns = self.stats.now_ns()

        def answer(moved_ms: int | None) -> None:
            read = partial(self._read_polled, asked, previous_lac, moved_ms)
            asked.attempt(self._timed(read, self.stats.poll_read))

        def woken(moved_ms: int | None) -> None:
            self.stats.poll_wait.note(self.stats.since_us(began_ns), ok=moved_ms is not None)
            answer(moved_ms)

        if request.timeout_ms is None or state.lac > previous_lac:
            answer(None)
            return None
        timeout_s = request.timeout_ms / 1000
        return self.polls.wait(request.ledger_id, previous_lac, timeout_s, woken)

    def _read_polled(
        self, asked: Asked[ReadRequest], previous_lac: int, moved_ms: int | None
    ) -> Answer:
        """Answer a poll whose wait is over; ``moved_ms`` is when the LAC moved, if it did."""
        if not asked.request.flags & ReadFlag.PIGGYBACK:
            return self._read_entry(asked, with_lac=True)
        ledger_id, entry_id = asked.request.ledger_id, EntryId(previous_lac + 1)
        state = self._reads.ledger(ledger_id)
        insist_sure(state)
        max_lac = state.lac
        without = ReadResponse(ReturnCode.EOK, ledger_id, NO_ENTRY, max_lac=max_lac)
        if max_lac <= previous_lac:
            return without

        def found(state: LedgerState, packet: bytes) -> ReadResponse:
            return ReadResponse(ReturnCode.EOK, ledger_id, entry_id, packet, state.lac, moved_ms)

        try:
            return self._reads.entry(ledger_id, entry_id, found, asked.refused)
        except NoSuchEntryError:
            return without  # It was striped to other bookies.

    def _read_lac(self, asked: Asked[ReadLacRequest]) -> None:
        ledger_id = asked.request.ledger_id
        state = self.storages.of(ledger_id).ledgers.lookup(ledger_id)
        if state is None:
            raise NoSuchEntryError(f"ledger {ledger_id}")
        state = self._reads.ledger(ledger_id)  # Where there is a doubt it may be settled.
        if state.limbo:
            raise in_limbo(state)

        def found(state: LedgerState, packet: bytes | None) -> ReadLacResponse:
            return ReadLacResponse(ReturnCode.EOK, ledger_id, state.explicit_lac, packet)

        if state.last_entry >= 0 and state.doubt is None:
            asked.respond(self._reads.entry(ledger_id, NO_ENTRY, found, asked.refused))
        elif state.explicit_lac is not None:
            asked.respond(found(state, None))
        else:
            insist_sure(state)
            raise NoSuchEntryError(f"ledger {ledger_id} has neither explicit LAC nor entry")

    def _list_entries(self, asked: Asked[ListEntriesRequest]) -> None:
        ledger_id = asked.request.ledger_id
        state = self._reads.ledger(ledger_id)
        insist_sure(state)

        def listed(availability: bytes) -> ListEntriesResponse:
            return ListEntriesResponse(ReturnCode.EOK, ledger_id, availability)

        def fetch() -> bytes:
            return encode_entry_list(self.storages.of(ledger_id).reads.iter_entries(ledger_id))

        asked.respond(DiskRead(ledger_id, fetch, listed, asked.refused))

    # Everything else ---------------------------------------------------------------------------

    def _info(self, asked: Asked[BookieInfoRequest]) -> None:
        requested = asked.request.requested

        def known(sizes: tuple[int, int]) -> BookieInfoResponse:
            return BookieInfoResponse(
                ReturnCode.EOK,
                sizes[0] if requested & BookieInfoFlag.TOTAL_DISK_CAPACITY else None,
                sizes[1] if requested & BookieInfoFlag.FREE_DISK_SPACE else None,
            )

        asked.respond(DiskRead(LedgerId(0), self._disk_usage, known, asked.refused))

    def _auth(self, asked: Asked[AuthRequest]) -> None:
        asked.respond(AuthResponse(ReturnCode.EOK, AUTH_DISABLED, b""))

    def _start_tls(self, asked: Asked[StartTlsRequest]) -> None:
        asked.respond(asked.refused(ReturnCode.EBADREQ))

    def _bad_request(self, asked: Asked[BadRequest]) -> None:
        asked.respond(asked.refused(asked.request.rc))


_TWO_IDS: Final = struct.Struct(">qq")


def _version_served(reply_to: ReplyTo) -> bool:
    if reply_to.version is ProtocolVersion.V3:
        return reply_to.header_version == V3_VERSION
    # Java answers AUTH whatever its version (4.18.0, BookieRequestProcessor).
    return reply_to.operation is Operation.AUTH or 0 <= reply_to.header_version <= V2_VERSION


def _check_not_fenced(state: LedgerState) -> None:
    """Refuse ordinary adds; Java agrees: SingleDirectoryDbLedgerStorage.isFenced (4.18.0).

    Raises:
        LedgerFencedError: the ledger is fenced.
        UnauthorizedError: it may have been, and that be lost. Clients take this for final too.
    """
    if state.fenced:
        raise LedgerFencedError(f"ledger {state.ledger_id}")
    if state.limbo:
        raise UnauthorizedError(f"ledger {state.ledger_id} may have been fenced")


def _packet_ids(packet: bytes) -> tuple[LedgerId, EntryId]:
    """Return whose entry this is.

    Raises:
        BadRequestError: too short, or an id that is none. A negative entry id would be read back
            from the journal as something else than an entry.
    """
    if len(packet) < ENTRY_BYTES_MIN:
        raise BadRequestError(f"entry packet of {len(packet)} bytes")
    ledger_id, entry_id = _TWO_IDS.unpack_from(packet)
    if not (ledger_id >= 0 and has_place(entry_id)):
        raise BadRequestError(f"entry {entry_id} of ledger {ledger_id}")
    return ledger_id, entry_id
