"""What the parts count: which request counts as what, and that no note of a thread gets lost."""

from __future__ import annotations

import sys
import threading

import pytest

from bookied.stats.metrics import JournalStats, RequestStats, operation_of
from wire.codes import AddFlag, BookieInfoFlag, ReadFlag, ReturnCode
from wire.frames.entry_packets import Packets
from wire.ids import NO_ENTRY, EntryId, LedgerId
from wire.messages import (
    AddRequest,
    AuthRequest,
    BatchReadResponse,
    BookieInfoRequest,
    ErrorResponse,
    ForceLedgerRequest,
    ReadRequest,
    ReadResponse,
    Request,
)

L, E = LedgerId(7), EntryId(0)


@pytest.mark.parametrize(
    ("request_", "name"),
    [
        (AddRequest(L, E, b"k" * 20, b"x" * 40), "ADD_ENTRY"),
        (ReadRequest(L, E), "READ_ENTRY"),
        (ReadRequest(L, E, ReadFlag.FENCE, b"k" * 20), "READ_ENTRY_FENCE"),
        (ReadRequest(L, NO_ENTRY, previous_lac=3, timeout_ms=10), "READ_ENTRY_LONG_POLL"),
        (BookieInfoRequest(BookieInfoFlag.FREE_DISK_SPACE), "GET_BOOKIE_INFO"),
        (ForceLedgerRequest(L), "FORCE_LEDGER"),
        (AuthRequest("plugin", b""), ""),
    ],
)
def test_a_request_counts_under_java_s_name(request_: Request, name: str) -> None:
    assert operation_of(request_) == name


def test_refusals_and_reads_of_nothing_are_counted_apart() -> None:
    stats = RequestStats(lambda: 5_000_000)
    stats.answered("ADD_ENTRY", ErrorResponse(ReturnCode.ETOOMANYREQUESTS), 2_000_000)
    stats.answered("READ_ENTRY", ErrorResponse(ReturnCode.ETOOMANYREQUESTS), 2_000_000)
    stats.answered("READ_ENTRY", ReadResponse(ReturnCode.ENOENTRY, L, NO_ENTRY), 2_000_000)
    stats.answered("READ_ENTRY", ReadResponse(ReturnCode.EOK, L, E, b"x" * 50), 2_000_000)
    entries = Packets.join([b"x" * 10, b"x" * 30])
    batch = BatchReadResponse(ReturnCode.EOK, L, E, 1, entries)
    stats.answered("READ_ENTRY", batch, 2_000_000)
    stats.answered("", ErrorResponse(ReturnCode.EUA), 0)
    stats.settle()
    assert (stats.adds_rejected, stats.reads_rejected, stats.no_last_entry) == (1, 1, 1)
    assert stats.read_bytes == 90
    assert stats.bookie_read_bytes.success.count == 3
    reads = stats.requests["READ_ENTRY"]
    assert (reads.success.count, reads.failure.count, reads.success.total) == (2, 2, 6.0)


def test_forces_and_recovery_adds_are_counted_when_they_are_taken() -> None:
    stats = RequestStats(lambda: 5_000_000)
    entry = b"x" * 40
    stats.handled(AddRequest(L, E, b"k" * 20, entry, AddFlag.RECOVERY), 4_000_000)
    stats.handled(AddRequest(L, E, b"k" * 20, entry), 4_000_000)
    stats.handled(ForceLedgerRequest(L), 4_000_000)
    stats.settle()
    assert (stats.forces, stats.packets_received, stats.write_bytes) == (1, 3, 80)
    assert stats.bookie_recovery_add.success.total == stats.bookie_add.success.total == 1.0


def test_no_note_of_the_journal_s_thread_gets_lost_to_who_reads() -> None:
    stats, notes = JournalStats(), 20_000

    def work() -> None:
        for number in range(notes):
            with stats.lock:
                stats.sync.success.note(number % 3000)

    before = sys.getswitchinterval()
    sys.setswitchinterval(1e-6)
    try:
        thread = threading.Thread(target=work)
        thread.start()
        while thread.is_alive():
            stats.settle()
            stats.rotate()
        thread.join()
    finally:
        sys.setswitchinterval(before)
    stats.settle()
    assert stats.sync.success.count == notes
