"""Entries in runs are the entries one by one, whatever stands between them."""

from __future__ import annotations

import struct
from pathlib import Path
from random import Random

import pytest

from bookied.errors import JournalRecordError
from bookied.storage.journal import format as layout
from bookied.storage.journal import group_format
from bookied.storage.journal.group_format import group_head
from bookied.storage.journal.reader import (
    RUN_BYTES,
    RUN_ENTRIES_MAX,
    EntryRun,
    JournalRecord,
    JournalScan,
    open_scan,
)
from tests.sim.world.disk import SimFiles

PATH = Path("/1.txn")
BLOCK = group_format.BLOCK_BYTES


def records(rng: Random) -> list[bytes]:
    made: list[bytes] = []
    for number in range(rng.randrange(1, 700)):
        ledger = rng.randrange(3)
        if rng.random() < 0.05:
            made.append(
                rng.choice(
                    [
                        layout.fence_record(ledger),
                        layout.ledger_key_record(ledger, b"k" * rng.choice([0, 20])),
                        layout.explicit_lac_record(ledger, bytes(20)),
                    ]
                )
            )
        size = rng.choice([0, 5, 100, 100, 100, 5000 if rng.random() < 0.2 else 7])
        packet = struct.pack(">qqq", ledger, number, number - 1) + b"x" * size
        made.append(layout.entry_record(packet))
    return made


def plain(made: list[bytes]) -> bytes:
    data = layout.header(6) + b"".join(made)
    return data + layout.padding(len(data), 512)


def grouped(made: list[bytes], rng: Random | None = None) -> bytes:
    data = group_format.file_start(6, 7, BLOCK)
    while made:
        count = rng.randrange(1, len(made) + 1) if rng else len(made)
        some, made = made[:count], made[count:]
        size = len(data)
        head = group_head(some, generation=7, offset=size, synced=size, alignment=BLOCK)
        data += head + b"".join(some)
    return data


def scan(data: bytes, offset: int = 0) -> JournalScan:
    files = SimFiles(Random(1))
    files.write_atomic(PATH, data)
    return open_scan(files, PATH, offset)


def flat(opened: JournalScan) -> list[JournalRecord]:
    found: list[JournalRecord] = []
    for part in opened.parts():
        if not isinstance(part, EntryRun):
            assert part.entry_id < 0
            found.append(part)
            continue
        assert len(part.heads) <= RUN_ENTRIES_MAX
        split = list(part.split())
        assert len(part.records) - len(split[-1].body) < RUN_BYTES + layout.LENGTH.size
        for one, head in zip(split, part.heads, strict=True):
            assert struct.unpack_from(">qqq", one.body) == head[1:]
        found += split
    return found


@pytest.mark.parametrize("seed", range(12))
def test_parts_are_the_records(seed: int) -> None:
    rng = Random(seed)
    made = records(rng)
    data = plain(made) if seed % 2 else grouped(made, rng)
    every = list(scan(data))
    assert [layout.entry_record(one.body) for one in every] == made
    assert flat(scan(data)) == every
    starts = [one.offset for one in every]
    for begin in rng.sample(starts, min(5, len(starts))):
        behind = [one for one in every if one.offset >= begin]
        assert flat(scan(data, begin)) == behind
        assert list(scan(data, begin)) == behind


def test_parts_end_where_the_records_do() -> None:
    for cut in (0, 1, 600, 5000):
        made = [layout.entry_record(struct.pack(">qqq", 1, n, n) + b"y" * 99) for n in range(60)]
        for data in (plain(made), grouped(made, Random(2))):
            one, other = scan(data[: len(data) - cut]), scan(data[: len(data) - cut])
            assert flat(one) == list(other)
            assert (one.end, one.is_torn) == (other.end, other.is_torn)


@pytest.mark.parametrize("bad", [b"\0\0\0\3bad", layout.LENGTH.pack(20) + bytes(20)])
def test_what_stands_before_damage_comes_before_the_error(bad: bytes) -> None:
    made = [layout.entry_record(struct.pack(">qqq", 1, n, n)) for n in range(10)]
    for data in (layout.header(6) + b"".join([*made, bad]), grouped([*made, bad])):
        parts = scan(data).parts()
        run = next(parts)
        assert isinstance(run, EntryRun)
        with pytest.raises(JournalRecordError):
            next(parts)
        assert [layout.entry_record(one.body) for one in run.split()] == made
