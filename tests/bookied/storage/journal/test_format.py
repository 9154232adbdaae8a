from __future__ import annotations

from pathlib import Path
from random import Random

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from bookied.errors import CorruptError, JournalFormatError, JournalRecordError
from bookied.storage.journal import format as layout
from bookied.storage.journal.reader import JournalRecord, open_scan
from tests.sim.world.disk import SimFiles

PATH = Path("/1.txn")
IDS = st.integers(0, 2**63 - 1)


def a_record(rng: Random) -> bytes:
    """Return a record as a bookie writes it; no body ends with a zero."""
    ledger = rng.randrange(5)
    kind = rng.randrange(6)
    if kind == 0:
        return layout.ledger_key_record(ledger, rng.randbytes(19) + b"k")
    if kind == 1:
        return layout.explicit_lac_record(ledger, rng.randbytes(19) + b"d")
    head = layout.IDS.pack(ledger, rng.randrange(100)) + rng.randbytes(16)
    return layout.entry_record(head + rng.randbytes(rng.choice([0, 10, 700])) + b"e")


def a_journal(seed: int, *, zeros: int = 0) -> tuple[bytes, list[bytes]]:
    """Return a version 6 journal of some groups, and its records."""
    rng = Random(seed)
    data, records = layout.header(6), []
    for _ in range(rng.randrange(1, 5)):
        group = [a_record(rng) for _ in range(rng.randrange(1, 4))]
        records += group
        data += b"".join(group)
        data += layout.padding(len(data), 512)
    return data + bytes(zeros), records


def scan(data: bytes) -> tuple[list[JournalRecord], CorruptError | None, bool]:
    files = SimFiles(Random(1))
    files.write_atomic(PATH, data)
    found: list[JournalRecord] = []
    try:
        reading = open_scan(files, PATH)
        found.extend(reading)
    except CorruptError as error:
        return found, error, False
    return found, None, reading.is_torn


def bytes_of(records: list[JournalRecord]) -> list[bytes]:
    return [layout.entry_record(record.body) for record in records]


@given(position=st.integers(0, 10**7), alignment=st.sampled_from([512, 1024, 4096]))
def test_padding_ends_at_a_multiple_of_the_alignment(position: int, alignment: int) -> None:
    padding = layout.padding(position, alignment)
    assert (position + len(padding)) % alignment == 0
    assert len(padding) == 0 or 8 <= len(padding) < alignment + 8
    if padding:
        mark, size = layout.LENGTH.unpack(padding[:4])[0], layout.LENGTH.unpack(padding[4:8])[0]
        assert (mark, size) == (layout.PADDING_MARK, len(padding) - 8)


@pytest.mark.parametrize("seed", range(20))
@pytest.mark.parametrize("zeros", [0, 5000])
def test_what_was_written_is_scanned(seed: int, zeros: int) -> None:
    data, records = a_journal(seed, zeros=zeros)
    found, error, is_torn = scan(data)
    assert bytes_of(found) == records
    assert error is None
    assert not is_torn


@pytest.mark.parametrize("seed", range(6))
def test_a_cut_anywhere_leaves_the_records_before_it(seed: int) -> None:
    data, records = a_journal(seed)
    for cut in range(0, len(data), 7):
        found, error, _ = scan(data[:cut])
        assert error is None, cut
        assert bytes_of(found) == records[: len(found)]
        assert len(found) == sum(end <= cut for end in ends(data))


@pytest.mark.parametrize("seed", range(6))
def test_a_cut_in_reserved_space_leaves_the_records_before_it(seed: int) -> None:
    data, records = a_journal(seed, zeros=4096)
    for cut in range(512, len(data) - 4096, 7):
        found, error, _ = scan(data[:cut] + bytes(len(data) - cut))
        assert error is None, cut
        assert bytes_of(found) == records[: len(found)]
        assert len(found) >= sum(end <= cut for end in ends(data)) - 1


def ends(data: bytes) -> list[int]:
    found, _, _ = scan(data)
    return [record.offset + 4 + len(record.body) for record in found]


@settings(max_examples=300)
@given(seed=st.integers(0, 5), at=st.floats(0, 1), flip=st.integers(1, 255))
def test_a_flipped_byte_never_invents_a_record(seed: int, at: float, flip: int) -> None:
    data, records = a_journal(seed)
    place = int(at * (len(data) - 1))
    damaged = bytearray(data)
    damaged[place] ^= flip
    found, _, _ = scan(bytes(damaged))
    # No checksums: a record that was hit may come out changed, but only that one, at its place.
    for record in found:
        whole = layout.entry_record(record.body)
        was_hit = record.offset <= place < record.offset + len(whole)
        assert whole in records or was_hit or record.offset > place


@pytest.mark.parametrize(
    ("body", "version", "message"),
    [
        (b"x" * 15, 6, "15 bytes"),
        (layout.IDS.pack(1, 5), 6, "entry of 16"),
        (layout.IDS.pack(1, layout.LEDGER_KEY), 6, "-1 bytes"),
        (layout.IDS.pack(1, layout.LEDGER_KEY) + b"\0\0\0\x05abcd", 6, "5 bytes"),
        (layout.IDS.pack(1, layout.LEDGER_KEY) + b"\xff\0\0\x05abcd", 6, "bytes in a record"),
        (layout.IDS.pack(1, layout.EXPLICIT_LAC) + b"\0\0\0\x0f" + bytes(15), 6, "15 bytes"),
        (layout.IDS.pack(1, layout.LEDGER_KEY) + b"\0\0\0\0", 2, "since 3"),
        (layout.IDS.pack(1, layout.FENCE), 3, "since 4"),
        (layout.IDS.pack(1, layout.EXPLICIT_LAC) + b"\0\0\0\x10" + bytes(16), 5, "since 6"),
    ],
)
def test_a_record_that_cannot_be_replayed_is_named(body: bytes, version: int, message: str) -> None:
    with pytest.raises(JournalRecordError, match=message) as caught:
        layout.check_record(body, version, PATH, 512)
    assert (caught.value.path, caught.value.offset) == (PATH, 512)
    assert caught.value.exit_status == 7


def test_a_kind_of_record_we_do_not_know_is_passed_on() -> None:
    layout.check_record(layout.IDS.pack(1, -5), 6, PATH, 512)


@pytest.mark.parametrize("version", [0, 7, -1, 2**31 - 1])
def test_a_version_we_do_not_know_is_refused(version: int) -> None:
    with pytest.raises(JournalFormatError, match="version"):
        layout.parse_header(layout.HEADER.pack(layout.MAGIC, version), PATH)


@pytest.mark.parametrize("cut", range(8))
def test_a_header_cut_off_at_creation_is_an_empty_journal(cut: int) -> None:
    for rest in (b"", bytes(512 - cut)):
        found, error, _ = scan(layout.header(6)[:cut] + rest)
        assert (found, error) == ([], None)


@pytest.mark.parametrize(
    ("name", "number"),
    [
        ("0.txn", 0),
        ("1a1fc678c2b.txn", 0x1A1FC678C2B),
        ("7fffffffffffffff.txn", 2**63 - 1),
        ("8000000000000000.txn", None),
        ("xyz.txn", None),
        ("1A.txn", None),
        (".txn", None),
        ("1.txn.tmp", None),
        ("1.log", None),
    ],
)
def test_journals_are_told_by_their_names(name: str, number: int | None) -> None:
    assert layout.journal_id(name) == number
    if number is not None:
        assert layout.file_name(number) == name
