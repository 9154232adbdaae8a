"""The rules for reads: plain, fencing, long polls, LACs, lists of entries."""

from __future__ import annotations

import contextlib
import time
from collections.abc import Callable
from functools import partial
from typing import Final

import attrs

from bookied.server.rules.answer_from_disk import Answer, DiskRead
from bookied.server.rules.entry_and_batch_reads import EntryReads
from bookied.server.rules.fencing import Fences
from bookied.server.rules.limbo import in_limbo, require_no_limbo
from bookied.server.rules.long_poll import Cancel, LongPolls
from bookied.server.rules.pending_request import PendingRequest, timed
from bookied.stats.metrics import RequestStats
from bookied.storage.index.ledger_pages import CachedLedger
from bookied.storage.storages import Storages
from wire.codes import ProtocolVersion, ReadFlag, ReturnCode
from wire.errors import BadRequestError, NoSuchEntryError, NoSuchLedgerError
from wire.ids import NO_ENTRY, EntryId, LedgerId
from wire.messages import (
    BatchReadRequest,
    ListEntriesRequest,
    ListEntriesResponse,
    ReadLacRequest,
    ReadLacResponse,
    ReadRequest,
    ReadResponse,
    Response,
)
from wire.records.entry_list import EntryListWriter

PAGES_AT_ONCE: Final = 64
"""Index pages from which a thread lists entries before other reads have their turn: 2 ms."""

RUNS_IN_ONE: Final = 64
"""Runs of entries that take as long as another page."""

WORK_S: Final = 0.0002
REST_S: Final = 0.00005
"""Seconds that a thread lists entries without a rest, and seconds of the rest."""


@attrs.define(eq=False)
class ReadRules:
    """The rules for reads. If the disk is needed, the answer is a ``DiskRead`` for the caller."""

    _storages: Storages
    _reads: EntryReads
    _fences: Fences
    _polls: LongPolls
    _stats: RequestStats

    def read(self, asked: PendingRequest[ReadRequest]) -> Cancel | None:
        """Answer a read: at once, after its ledger is fenced, or when the LAC has moved."""
        request = asked.request
        if request.flags is not ReadFlag.NONE and request.flags & ReadFlag.FENCE:
            self._fences.fence_then(asked, partial(self._read_entry, asked, with_lac=False))
        elif request.previous_lac is not None:
            return self._long_poll(asked, request.previous_lac)
        else:
            with_lac = asked.reply_to.version is ProtocolVersion.V3
            asked.respond(self._read_entry(asked, with_lac=with_lac))
        return None

    def _read_entry(self, asked: PendingRequest[ReadRequest], *, with_lac: bool) -> Answer:
        ledger_id, entry_id = asked.request.ledger_id, asked.request.entry_id

        def found(state: CachedLedger, packet: bytes) -> ReadResponse:
            max_lac = state.lac if with_lac and not state.limbo else None
            return ReadResponse(ReturnCode.EOK, ledger_id, entry_id, packet, max_lac)

        return self._reads.entry(ledger_id, entry_id, found, asked.refused, with_lac=with_lac)

    def batch_read(self, asked: PendingRequest[BatchReadRequest]) -> None:
        """Answer a read of several entries."""
        read = partial(self._reads.batch, asked.request, asked.refused)
        if asked.request.flags & ReadFlag.FENCE:
            self._fences.fence_then(asked, read)
        else:
            asked.respond(read())

    def _long_poll(self, asked: PendingRequest[ReadRequest], previous_lac: int) -> Cancel | None:
        request = asked.request
        if request.flags & ReadFlag.PIGGYBACK and request.entry_id != NO_ENTRY:
            raise BadRequestError("the entry to piggyback is chosen by the bookie")
        state = self._reads.ledger(request.ledger_id)
        require_no_limbo(state)

        if request.timeout_ms is None or state.lac > previous_lac:
            self._answer_poll(asked, previous_lac, None)
            return None
        timeout_s = request.timeout_ms / 1000
        woken = partial(self._poll_woken, asked, previous_lac, self._stats.now_ns())
        return self._polls.wait(request.ledger_id, previous_lac, timeout_s, woken, asked.address)

    def _poll_woken(
        self,
        asked: PendingRequest[ReadRequest],
        previous_lac: int,
        began_ns: int,
        moved_ms: int | None,
    ) -> None:
        self._stats.poll_wait.note(self._stats.since_us(began_ns), ok=moved_ms is not None)
        self._answer_poll(asked, previous_lac, moved_ms)

    def _answer_poll(
        self, asked: PendingRequest[ReadRequest], previous_lac: int, moved_ms: int | None
    ) -> None:
        read = partial(self._read_polled, asked, previous_lac, moved_ms)
        asked.attempt(timed(read, self._stats, self._stats.poll_read))

    def _read_polled(
        self, asked: PendingRequest[ReadRequest], previous_lac: int, moved_ms: int | None
    ) -> Answer:
        """Answer a poll whose wait has ended.

        ``moved_ms`` is the time of the LAC's move, if any.
        """
        if not asked.request.flags & ReadFlag.PIGGYBACK:
            return self._read_entry(asked, with_lac=True)
        ledger_id, entry_id = asked.request.ledger_id, EntryId(previous_lac + 1)
        state = self._reads.ledger(ledger_id)
        require_no_limbo(state)
        max_lac = state.lac
        without = ReadResponse(ReturnCode.EOK, ledger_id, NO_ENTRY, max_lac=max_lac)
        if max_lac <= previous_lac:
            return without

        def found(state: CachedLedger, packet: bytes) -> ReadResponse:
            return ReadResponse(ReturnCode.EOK, ledger_id, entry_id, packet, state.lac, moved_ms)

        def failed(code: ReturnCode) -> Response:
            return without if code is ReturnCode.ENOENTRY else asked.refused(code)

        try:
            return self._reads.entry(ledger_id, entry_id, found, failed)
        except NoSuchEntryError:
            # The entry is on other bookies. ``failed`` handles a missing entry on disk.
            return without

    def read_lac(self, asked: PendingRequest[ReadLacRequest]) -> None:
        """Answer with the explicit LAC and the last entry."""
        ledger_id = asked.request.ledger_id
        state = self._storages.of(ledger_id).ledgers.lookup(ledger_id)
        if state is None:
            raise NoSuchEntryError(f"ledger {ledger_id}")
        if state.limbo:
            raise in_limbo(state)

        def found(state: CachedLedger, packet: bytes | None) -> ReadLacResponse:
            return ReadLacResponse(ReturnCode.EOK, ledger_id, state.explicit_lac, packet)

        if state.last_entry >= 0 and state.doubt is None:
            asked.respond(self._reads.entry(ledger_id, NO_ENTRY, found, asked.refused))
        elif state.explicit_lac is not None:
            asked.respond(found(state, None))
        else:
            require_no_limbo(state)
            raise NoSuchEntryError(f"ledger {ledger_id} has neither explicit LAC nor entry")

    def list_entries(self, asked: PendingRequest[ListEntriesRequest]) -> None:
        """Answer with the ids of the ledger's entries on this bookie."""
        ledger_id = asked.request.ledger_id
        state = self._reads.ledger(ledger_id)
        require_no_limbo(state)

        asked.respond(_EntryList(self._storages, asked, state).go_on())


class _EntryList:
    """The answer to one list of entries, made in parts."""

    def __init__(
        self, storages: Storages, asked: PendingRequest[ListEntriesRequest], state: CachedLedger
    ) -> None:
        self._storages, self._asked, self._state = storages, asked, state
        self._writer, self._next_page = EntryListWriter(), 0

    def go_on(self) -> DiskRead:
        """Return the disk read that makes the next part."""
        return DiskRead(
            LedgerId(self._state.ledger_id),
            self._fetch,
            self._fetched,
            self._asked.refused,
            is_long=True,
        )

    def _fetch(self) -> bytes | None:
        """Add the runs of some pages; return the list after the last page, else None. Blocks."""
        ledger_id, rest, taken = self._state.ledger_id, _rests(), 0
        pages = self._storages.of(ledger_id).reads.runs_by_page(ledger_id, self._next_page)
        with contextlib.closing(pages):
            for page_no, runs in pages:
                self._writer.take(runs)
                self._next_page = page_no + 1
                taken += 1 + len(runs) // RUNS_IN_ONE
                if taken >= PAGES_AT_ONCE:
                    return None
                rest()
        return self._writer.encode()

    def _fetched(self, availability: bytes | None) -> Answer:
        state = self._state
        ledger_id = LedgerId(state.ledger_id)
        if self._storages.of(ledger_id).ledgers.lookup(ledger_id) is not state:
            raise NoSuchLedgerError(f"ledger {ledger_id}")  # The ledger was deleted meanwhile.
        require_no_limbo(state)
        if availability is None:
            return self.go_on()
        return ListEntriesResponse(ReturnCode.EOK, ledger_id, availability)


def _rests() -> Callable[[], None]:
    """Return a function that sleeps for a moment if the thread has worked long without a rest.

    The thread waits for nothing else, and keeps the interpreter's lock for 5 ms: a few threads that
    list entries would delay all other threads.
    """
    began_s = time.perf_counter()

    def rest() -> None:
        nonlocal began_s
        if time.perf_counter() - began_s >= WORK_S:
            time.sleep(REST_S)
            began_s = time.perf_counter()

    return rest
