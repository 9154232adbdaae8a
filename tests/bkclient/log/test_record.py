"""What a log's record says, and how it is stored."""

from __future__ import annotations

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from bkclient.errors import IncorrectParameterError, QuorumError
from bkclient.log.errors import LogDamagedError
from bkclient.log.record import (
    EARLIEST,
    LATEST,
    LEDGERS_MAX,
    LastBatch,
    LogLedger,
    LogOptions,
    LogRecord,
    Position,
    decode_record,
)
from wire.codes import DigestType
from wire.ids import LedgerId

options = st.builds(
    LogOptions,
    ensemble_size=st.integers(2, 9),
    digest_type=st.sampled_from(DigestType),
    password=st.binary(max_size=30),
    roll_bytes=st.integers(0, 2**40),
    roll_entries=st.integers(0, 2**40),
    roll_s=st.floats(0, 1e9),
)
ledgers = st.builds(LogLedger, st.integers(0, 2**62).map(LedgerId), st.integers(0, 2**45))
batches = st.builds(
    LastBatch, st.text(max_size=5), st.integers(0, 2**62), st.none() | st.integers(0, 2**62)
)
records = st.builds(
    LogRecord,
    options=options,
    ledgers=st.lists(ledgers, max_size=5).map(tuple),
    trimmed=st.integers(0, 1000),
    sealed=st.booleans(),
    log_id=st.text(max_size=5),
    batches=st.lists(batches, max_size=3).map(tuple),
)


@given(records)
def test_a_record_comes_back_as_it_was(record: LogRecord) -> None:
    assert decode_record("events", record.encode()) == record


@pytest.mark.parametrize(
    "stored",
    [
        b"",
        b"\xff",
        b"[]",
        b"{}",
        b'{"v": 1}',
        b'{"v": 1, "ledgers": 7}',
        b"null",
        b'{"v":"1"}',
        b"[" * 100_000,
        LogRecord().encode().replace(b'"roll_bytes":', b'"roll_bytes":1e999,"x":'),
        LogRecord().encode().replace(b'"ensemble_size":3', b'"ensemble_size":1'),
        LogRecord().encode().replace(b'"roll_s":0.0', b'"roll_s":NaN'),
        LogRecord().encode().replace(b'"roll_s":0.0', b'"roll_s":1e999'),
    ],
)
def test_what_is_no_record_is_refused(stored: bytes) -> None:
    with pytest.raises(LogDamagedError, match="log events"):
        decode_record("events", stored)


@pytest.mark.parametrize(
    ("stored", "why"),
    [
        (b"", "Expecting value: line 1 column 1 (char 0)"),
        ("{}".encode("utf-16"), "it is not UTF-8"),
        (b"{}", "'v' is missing"),
        (b"[]", "a part of it has another form"),
        (b'{"v": "' + b"2" * 1000 + b'"}', "later format"),
    ],
)
def test_the_reason_is_short_and_in_words(stored: bytes, why: str) -> None:
    with pytest.raises(LogDamagedError) as caught:
        decode_record("events", stored)
    assert why in str(caught.value)
    assert "Error(" not in str(caught.value)
    assert len(str(caught.value)) < 100


def test_a_later_format_is_not_guessed_at() -> None:
    stored = json.loads(LogRecord().encode()) | {"v": 2}
    with pytest.raises(LogDamagedError, match="later format, 2"):
        decode_record("events", json.dumps(stored).encode())


def test_the_password_is_not_shown() -> None:
    assert "secret" not in repr(LogRecord(options=LogOptions(password=b"secret")))


def test_a_ledgers_index_never_changes() -> None:
    record = LogRecord()
    for number in range(4):
        record = record.appended(LedgerId(10 - number), number)
    assert [record.ledger(index).ledger_id for index in range(4)] == [10, 9, 8, 7]
    kept = record.trimmed_to(2)
    assert [kept.ledger(index).ledger_id for index in (2, 3)] == [8, 7]
    assert 1 not in kept
    assert 2 in kept
    assert 4 not in kept
    assert (kept.next_index, kept.last_ledger_id) == (4, 7)
    assert kept.lists(LedgerId(8))
    assert not kept.lists(LedgerId(10))


class CountedId(int):
    """A ledger's id that counts how often one is compared."""

    compared = 0

    def __eq__(self, other: object) -> bool:
        CountedId.compared += 1
        return int(self) == other

    __hash__ = int.__hash__


def test_the_ledgers_of_a_full_log_are_looked_for_once_each() -> None:
    """A sweep looks for all of them: 20,000 in a list of as many kept the client busy a minute."""
    ids = [LedgerId(CountedId(number)) for number in range(LEDGERS_MAX)]
    record = LogRecord(ledgers=tuple(LogLedger(LedgerId(int(one)), 0) for one in ids[:-1]))
    assert record.unlisted(ids) == ids[-1:]
    assert CountedId.compared <= 2 * LEDGERS_MAX


def test_a_record_that_grows_too_long_is_refused_with_advice() -> None:
    record = LogRecord(ledgers=(LogLedger(LedgerId(1), 0),) * LEDGERS_MAX)
    with pytest.raises(IncorrectParameterError, match="trim the log"):
        record.appended(LedgerId(2), 0)
    assert len(record.encode()) < 1024 * 1024


def test_positions_follow_each_other_over_ledgers() -> None:
    assert Position(0, 7) < Position(1, 0) < Position(1, 1)
    assert EARLIEST < Position(0, 0) < LATEST
    assert Position(1, 2, LedgerId(5)) == Position(1, 2)


def test_positions_are_text_for_people() -> None:
    assert str(Position(3, 17)) == "3:17"
    assert Position.parse(" 3:17 ") == Position(3, 17)
    for wrong in ("", "3", "3:", ":17", "a:b", "1:2:3"):
        with pytest.raises(IncorrectParameterError, match="INDEX:ENTRY"):
            Position.parse(wrong)


def test_options_that_cannot_be_are_refused() -> None:
    with pytest.raises(QuorumError):
        LogOptions(ensemble_size=1).check()
    with pytest.raises(IncorrectParameterError):
        LogOptions(roll_entries=-1).check()
