"""Recovery's steps, without a network."""

from __future__ import annotations

import itertools
from collections import deque

import attrs
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from bkclient.errors import (
    BookieUnavailableError,
    ClientError,
    ClientUnauthorizedError,
    DataUnknownError,
    LedgerRecoveryError,
    NoSuchEntryInLedgerError,
    ReadFailedError,
    RequestTimeoutError,
)
from bkclient.quorum.read_rules import KnownLac
from bkclient.quorum.recovery_rules import (
    UNWRITTEN_BYTES_MAX,
    AbortRecovery,
    CloseAt,
    EntryVerdict,
    FenceBookies,
    MeasureLength,
    ReadReplicas,
    Recovery,
    RecoveryCommand,
    WriteBack,
)
from wire.codes import DigestType, LedgerState
from wire.digest import Entry
from wire.errors import LocalProtocolError
from wire.ids import BookieId, EntryId, LedgerId
from wire.ledger_metadata import Fragment, LedgerMetadata

NEGATIVE = NoSuchEntryInLedgerError("no")
SILENT = RequestTimeoutError("silent")
LIMBO = DataUnknownError("limbo")


def metadata(*firsts: int, size: int = 3, write: int = 3, ack: int = 2) -> LedgerMetadata:
    fragments = tuple(
        Fragment(EntryId(first), tuple(BookieId(f"f{number}b{i}") for i in range(size)))
        for number, first in enumerate(firsts or (0,))
    )
    return LedgerMetadata(
        ensemble_size=size,
        write_quorum=write,
        ack_quorum=ack,
        state=LedgerState.IN_RECOVERY,
        fragments=fragments,
        digest_type=DigestType.CRC32C,
        password=b"",
    )


def entry(entry_id: int, length: int | None = None) -> Entry:
    size = 10 * (entry_id + 1) if length is None else length
    return Entry(LedgerId(1), EntryId(entry_id), EntryId(entry_id - 1), size, b"x" * 10)


def large(entry_id: int, size_bytes: int) -> Entry:
    return attrs.evolve(entry(entry_id), payload=bytes(size_bytes))


def fenced(*known: KnownLac | None, **rest: int) -> tuple[Recovery, list[RecoveryCommand]]:
    """Return a recovery whose bookies have answered the fencing."""
    recovery = Recovery(metadata(**rest))
    commands: list[RecoveryCommand] = []
    recovery.start()
    for index, one in enumerate(known):
        commands += recovery.fence_answered(index, one)
    return recovery, commands


# Verdicts --------------------------------------------------------------------------------------


@pytest.mark.parametrize(("write", "ack"), [(1, 1), (2, 1), (2, 2), (3, 2), (3, 3), (4, 2)])
def test_every_order_of_answers_gives_the_right_verdict(write: int, ack: int) -> None:
    for kinds in itertools.product("onu", repeat=write):
        for order in itertools.permutations(range(write)):
            verdict = EntryVerdict(EntryId(0), write, ack)
            negatives = found = 0
            for index in order:
                if verdict.decided:
                    break
                if kinds[index] == "o":
                    verdict.found(index, entry(0))
                    found += 1
                else:
                    verdict.failed(index, NEGATIVE if kinds[index] == "n" else LIMBO)
                    negatives += kinds[index] == "n"
            assert verdict.decided, "all have answered"
            if verdict.is_end:
                # I14: an ack quorum would have to be among those who said no.
                assert negatives >= write - ack + 1
                assert not found
            elif verdict.entry is not None:
                assert found == 1
            else:
                assert verdict.failure is not None
                assert negatives < write - ack + 1
                assert not found


# Steps -----------------------------------------------------------------------------------------


def test_the_last_fragment_is_fenced_first() -> None:
    recovery = Recovery(metadata(0, 7))
    assert recovery.start() == [FenceBookies(metadata(0, 7).last_fragment.ensemble)]


def test_an_empty_ledger_ends_empty() -> None:
    recovery, commands = fenced(None, None)
    (read,) = commands
    assert isinstance(read, ReadReplicas)
    assert read.entry_id == 0
    assert [index for index, _ in read.replicas] == [0, 1, 2]
    assert recovery.read_failed(EntryId(0), 0, NEGATIVE) == []
    assert recovery.read_failed(EntryId(0), 2, NEGATIVE) == [CloseAt(EntryId(-1), 0)]


def test_entries_beyond_the_lac_are_written_back_with_lac0() -> None:
    recovery, commands = fenced(KnownLac(3, 50), KnownLac(2, 40))
    assert isinstance(commands[0], ReadReplicas)
    assert commands[0].entry_id == 4
    write, read = recovery.read_answered(1, entry(4))
    assert write == WriteBack(entry(4), EntryId(3))
    assert isinstance(read, ReadReplicas)
    write, read = recovery.read_answered(0, entry(5))
    # S14: the LAC on recovery adds does not move.
    assert write == WriteBack(entry(5), EntryId(3))
    recovery.read_failed(EntryId(6), 0, NEGATIVE)
    assert recovery.read_failed(EntryId(6), 1, NEGATIVE) == [], "write back has not ended"
    assert recovery.wrote_back(EntryId(4)) == []
    assert recovery.wrote_back(EntryId(5)) == [CloseAt(EntryId(5), 60)]
    assert recovery.wrote_back(EntryId(5)) == [], "it is closed once"


def test_a_ledger_of_one_entry_has_its_length() -> None:
    recovery, _ = fenced(None, None)
    recovery.read_answered(0, entry(0))
    recovery.read_failed(EntryId(1), 0, NEGATIVE)
    recovery.read_failed(EntryId(1), 1, NEGATIVE)
    assert recovery.wrote_back(EntryId(0)) == [CloseAt(EntryId(0), 10)]


def test_an_entry_that_never_had_its_quorum_adds_nothing_to_the_length() -> None:
    recovery, _ = fenced(KnownLac(-1, 10), None)
    recovery.read_failed(EntryId(0), 1, NEGATIVE)
    assert recovery.read_failed(EntryId(0), 2, NEGATIVE) == [CloseAt(EntryId(-1), 0)]


def test_a_bookie_that_refuses_twice_counts_once() -> None:
    verdict = EntryVerdict(EntryId(0), 3, 2)
    verdict.failed(0, NEGATIVE)
    verdict.failed(0, NEGATIVE)
    assert not verdict.decided
    verdict.failed(1, NEGATIVE)
    assert verdict.is_end


def test_what_comes_after_a_recovery_was_given_up_changes_nothing() -> None:
    recovery, _ = fenced(None, None)
    (aborted,) = recovery.write_back_failed(SILENT)
    assert isinstance(aborted, AbortRecovery)
    assert recovery.read_answered(0, entry(0)) == []
    assert recovery.read_failed(EntryId(0), 1, NEGATIVE) == []
    assert recovery.write_back_failed(SILENT) == []


def test_s2_the_first_key_counts_where_the_last_fragment_is_empty() -> None:
    recovery = Recovery(metadata(0, 1000, 2000))
    recovery.start()
    recovery.fence_answered(0, None)
    (read,) = recovery.fence_answered(1, None)
    assert isinstance(read, ReadReplicas)
    assert read.entry_id == 2000
    assert recovery.lac0 == 1999


def test_s42_the_length_is_measured_where_nothing_was_written_back() -> None:
    recovery = Recovery(metadata(0, 1000))
    recovery.start()
    recovery.fence_answered(0, None)
    recovery.fence_answered(1, None)
    recovery.read_failed(EntryId(1000), 0, NEGATIVE)
    assert recovery.read_failed(EntryId(1000), 1, NEGATIVE) == [MeasureLength(EntryId(999))]
    assert recovery.measured(12345) == [CloseAt(EntryId(999), 12345)]


def test_a_bookie_that_always_has_a_next_entry_is_not_read_for_ever() -> None:
    recovery = Recovery(metadata(), entries_max=2)
    recovery.start()
    recovery.fence_answered(0, KnownLac(6, 70))
    recovery.fence_answered(1, KnownLac(6, 70))
    recovery.read_answered(0, entry(7))
    recovery.read_answered(0, entry(8))
    (aborted,) = recovery.read_answered(0, entry(9))
    assert isinstance(aborted, AbortRecovery)
    assert "more than 2 entries follow entry 6" in str(aborted.error)


def test_a_bookie_that_always_has_a_next_large_entry_is_not_read_for_ever() -> None:
    recovery = Recovery(metadata(), bytes_max=25)
    recovery.start()
    recovery.fence_answered(0, KnownLac(6, 70))
    recovery.fence_answered(1, KnownLac(6, 70))
    recovery.read_answered(0, large(7, 10))
    recovery.read_answered(0, large(8, 10))
    (aborted,) = recovery.read_answered(0, large(9, 10))
    assert isinstance(aborted, AbortRecovery)
    assert "more than 25 bytes follow entry 6" in str(aborted.error)


def test_what_other_bookies_have_not_stored_is_bounded() -> None:
    size_bytes, recovery = 1 << 20, Recovery(metadata())
    recovery.start()
    recovery.fence_answered(0, KnownLac(6, 70))
    commands = recovery.fence_answered(1, KnownLac(6, 70))
    unwritten = 0
    while any(isinstance(one, ReadReplicas) for one in commands):
        commands = recovery.read_answered(0, large(7 + unwritten, size_bytes))
        unwritten += 1
    assert unwritten * size_bytes <= UNWRITTEN_BYTES_MAX
    (read,) = recovery.wrote_back(EntryId(7))
    assert isinstance(read, ReadReplicas)
    assert read.entry_id == 7 + unwritten
    assert recovery.read_failed(EntryId(7 + unwritten), 1, NEGATIVE) == []
    assert recovery.read_failed(EntryId(7 + unwritten), 2, NEGATIVE) == []
    (close,) = recovery.wrote_back(EntryId(6 + unwritten))
    assert isinstance(close, CloseAt)


def test_what_is_answered_behind_the_end_asks_for_nothing_more() -> None:
    recovery, _ = fenced(KnownLac(3, 50), KnownLac(3, 50))
    recovery.read_failed(EntryId(4), 0, NEGATIVE)
    assert recovery.read_failed(EntryId(4), 1, NEGATIVE) == [MeasureLength(EntryId(3))]
    assert recovery.read_answered(2, entry(4)) == []
    assert recovery.read_failed(EntryId(4), 2, NEGATIVE) == []


def test_the_stamped_length_serves_where_measuring_fails() -> None:
    recovery, _ = fenced(KnownLac(3, 50), KnownLac(3, 50))
    recovery.read_failed(EntryId(4), 0, NEGATIVE)
    assert recovery.read_failed(EntryId(4), 1, NEGATIVE) == [MeasureLength(EntryId(3))]
    assert recovery.measured(None) == [CloseAt(EntryId(3), 50)]


def test_s13_a_bookie_that_hangs_is_not_waited_for() -> None:
    recovery, _ = fenced(KnownLac(0, 10), KnownLac(0, 10))
    recovery.read_failed(EntryId(1), 1, NEGATIVE)
    assert recovery.read_failed(EntryId(1), 2, NEGATIVE) == [MeasureLength(EntryId(0))]


def test_s13_a_bookie_that_hangs_is_no_negative_answer() -> None:
    recovery, _ = fenced(KnownLac(0, 10), KnownLac(0, 10))
    recovery.read_failed(EntryId(1), 1, NEGATIVE)
    recovery.read_failed(EntryId(1), 2, SILENT)
    (abort,) = recovery.read_failed(EntryId(1), 0, LIMBO)
    assert isinstance(abort, AbortRecovery)
    assert isinstance(abort.error, LedgerRecoveryError)
    assert recovery.read_answered(0, entry(1)) == []


@pytest.mark.parametrize(
    ("error", "told"),
    [
        (SILENT, RequestTimeoutError),
        (ClientUnauthorizedError("wrong"), ClientUnauthorizedError),
        (BookieUnavailableError("gone"), ReadFailedError),
        (LIMBO, ReadFailedError),
    ],
)
def test_fencing_that_is_not_covered_aborts(error: ClientError, told: type) -> None:
    recovery = Recovery(metadata())
    recovery.start()
    commands: list[RecoveryCommand] = []
    for index in range(3):
        commands += recovery.fence_failed(index, error)
    (abort,) = commands
    assert isinstance(abort, AbortRecovery)
    assert isinstance(abort.error, told)


def test_a_write_back_that_fails_aborts() -> None:
    recovery, _ = fenced(KnownLac(0, 10), KnownLac(0, 10))
    recovery.read_answered(0, entry(1))
    (abort,) = recovery.write_back_failed(BookieUnavailableError("gone"))
    assert isinstance(abort, AbortRecovery)
    assert recovery.wrote_back(EntryId(1)) == []


def test_what_was_not_read_cannot_have_been_written_back() -> None:
    recovery, _ = fenced(KnownLac(0, 10), KnownLac(0, 10))
    with pytest.raises(LocalProtocolError):
        recovery.wrote_back(EntryId(1))


def _reads_at_a_time(entries: int, payload: bytes) -> int:
    """Recover a ledger; return how many entries were being read at a time, at most."""
    recovery, commands = fenced(None, None)
    reads: deque[EntryId] = deque()
    most = 0
    written = EntryId(-1)
    while not any(isinstance(command, CloseAt) for command in commands):
        reads += [one.entry_id for one in commands if isinstance(one, ReadReplicas)]
        most = max(most, len(reads))
        if not reads:
            commands = recovery.wrote_back(written)
            continue
        at = reads.popleft()
        if at < entries:
            written = at
            commands = recovery.read_answered(0, attrs.evolve(entry(at), payload=payload))
        else:
            recovery.read_failed(at, 0, NEGATIVE)
            commands = recovery.read_failed(at, 1, NEGATIVE)
            reads.clear()
    assert commands == [CloseAt(EntryId(entries - 1), 10 * entries)]
    return most


@pytest.mark.parametrize(
    ("entries", "payload_bytes", "most"),
    [(15, 10, 1), (40, 10, 2), (5000, 10, 64), (5000, 1 << 18, 4), (100, 1 << 20, 1)],
)
def test_the_longer_a_recovery_the_more_small_entries_are_read_at_a_time(
    entries: int, payload_bytes: int, most: int
) -> None:
    assert _reads_at_a_time(entries, bytes(payload_bytes)) == most


# Any window and any order ----------------------------------------------------------------------


@settings(max_examples=200)
@given(
    window=st.integers(1, 4),
    copies=st.lists(st.sets(st.integers(0, 2)), max_size=6),
    data=st.data(),
)
def test_the_end_is_the_first_entry_that_nobody_has(
    window: int, copies: list[set[int]], data: st.DataObject
) -> None:
    """Entry e is on ``copies[e]``; every bookie answers honestly, in any order."""
    recovery = Recovery(metadata(), window=window)
    recovery.start()
    recovery.fence_answered(0, None)
    commands = recovery.fence_answered(1, None)
    pending: list[tuple[str, int, int]] = []
    written: list[int] = []
    acked: set[int] = set()
    done = -1
    closed: CloseAt | None = None
    while True:
        for command in commands:
            if isinstance(command, ReadReplicas):
                pending += [("read", int(command.entry_id), i) for i, _ in command.replicas]
            elif isinstance(command, WriteBack):
                assert command.entry.entry_id == len(written)
                written.append(command.entry.entry_id)
                pending.append(("wrote", int(command.entry.entry_id), 0))
            elif isinstance(command, MeasureLength):
                commands = recovery.measured(None)
                assert isinstance(commands[0], CloseAt)
                closed = commands[0]
            else:
                assert isinstance(command, CloseAt), command
                closed = command
        if closed is not None or not pending:
            break
        kind, entry_id, index = pending.pop(data.draw(st.integers(0, len(pending) - 1)))
        if kind == "wrote":
            acked.add(entry_id)
            while done + 1 in acked:  # Completions come in order.
                done += 1
            commands = recovery.wrote_back(EntryId(done))
        elif entry_id < len(copies) and index in copies[entry_id]:
            commands = recovery.read_answered(index, entry(entry_id))
        else:
            commands = recovery.read_failed(EntryId(entry_id), index, NEGATIVE)
    assert closed is not None, "it must come to an end"
    # Whatever had an ack quorum is in; whatever nobody has is out.
    safe = next((e for e, held in enumerate(copies) if len(held) < 2), len(copies))
    none = next((e for e, held in enumerate(copies) if not held), len(copies))
    assert safe - 1 <= closed.last_entry <= none - 1
    assert closed.last_entry == len(written) - 1
