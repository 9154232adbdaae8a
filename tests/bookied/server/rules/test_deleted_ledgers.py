from __future__ import annotations

import zlib
from pathlib import Path
from random import Random

import pytest
from twisted.internet.task import Clock

from bookied.server.rules.deleted_ledgers import (
    FILE_NAME,
    KEPT_AT_START_S,
    LEDGERS_MAX,
    REMEMBERED_S,
    FencedDeletions,
    write_deletions,
)
from bookied.storage.files.files import read_if_there
from tests.sim.world.disk import SimFiles
from wire.ids import LedgerId

ROOT = Path("/root")


def remembering(clock: Clock, *ledger_ids: int) -> FencedDeletions:
    found = FencedDeletions(clock)
    for ledger_id in ledger_ids:
        found.remember(LedgerId(ledger_id))
        clock.advance(1)
    return found


def held(found: FencedDeletions, *ledger_ids: int) -> list[int]:
    return [one for one in ledger_ids if one in found]


def test_what_was_kept_is_remembered_after_a_power_cut_until_its_week_is_over() -> None:
    clock, files = Clock(), SimFiles(Random(1))
    files.make_durable(ROOT)
    assert read_if_there(files, ROOT / FILE_NAME) is None
    before = remembering(clock, 7, 2**40, 0)
    assert before.has_changes
    write_deletions(files, ROOT, before.encode())
    files.crash()
    after = remembering(clock, 5)
    kept = read_if_there(files, ROOT / FILE_NAME)
    assert kept is not None
    after.restore(kept)
    assert held(after, 7, 2**40, 0, 5, 6) == [7, 2**40, 0, 5]
    clock.advance(REMEMBERED_S - clock.seconds() + 1.5)
    assert held(after, 7, 2**40, 0, 5) == [0, 5]


def test_a_clock_that_is_set_forgets_nothing() -> None:
    wall, monotonic = Clock(), Clock()
    wall.advance(1_700_000_000)
    found = FencedDeletions(wall, monotonic.seconds)
    found.remember(LedgerId(1))
    for jump_s in (10 * REMEMBERED_S, -20 * REMEMBERED_S, 15 * REMEMBERED_S):
        wall.rightNow += jump_s
        assert held(found, 1) == [1]
        after = FencedDeletions(wall, Clock().seconds)
        after.restore(found.encode())
        assert held(after, 1) == [1]
    monotonic.advance(REMEMBERED_S + 1)
    assert held(found, 1) == []


@pytest.mark.parametrize("jump_s", [10 * REMEMBERED_S, -10 * REMEMBERED_S])
def test_a_clock_that_is_set_while_the_bookie_is_down_leaves_a_day(jump_s: float) -> None:
    wall, monotonic = Clock(), Clock()
    wall.advance(1_700_000_000)
    data = remembering(wall, 1, 2, 3).encode()
    wall.rightNow += jump_s
    after = FencedDeletions(wall, monotonic.seconds)
    after.restore(data)
    after.remember(LedgerId(4))
    monotonic.advance(KEPT_AT_START_S - 1)
    assert held(after, 1, 2, 3, 4) == [1, 2, 3, 4]
    monotonic.advance(REMEMBERED_S)
    assert held(after, 1, 2, 3, 4) == []


@pytest.mark.parametrize("damage", [b"", b"x", None])
def test_a_damaged_file_is_as_good_as_none(damage: bytes | None) -> None:
    clock = Clock()
    data = bytearray(remembering(clock, 1, 2).encode())
    data[10] ^= 1
    found = remembering(clock, 3)
    found.restore(bytes(data) if damage is None else damage)
    assert held(found, 1, 2, 3) == [3]


def test_the_file_knows_which_ledgers_live_on_elsewhere() -> None:
    clock = Clock()
    before = remembering(clock, 0, 7)
    for ledger_id in (0, 8, 9):
        before.remember(LedgerId(ledger_id), lives_on=True)
    before.remember(LedgerId(9))
    after = FencedDeletions(clock)
    after.restore(before.encode())
    assert held(after, 0, 7, 8, 9) == [0, 7, 8, 9]
    assert [one for one in (0, 7, 8, 9) if after.lives_on(LedgerId(one))] == [0, 8]
    # What happened since the file was written holds.
    later = remembering(clock, 8)
    later.restore(before.encode())
    assert not later.lives_on(LedgerId(8))
    clock.advance(REMEMBERED_S + 60)
    assert not held(after, 0, 8)
    assert not after.lives_on(LedgerId(8))


def test_a_file_of_half_a_row_is_damaged_whatever_its_checksum() -> None:
    clock = Clock()
    body = remembering(clock, 1, 2).encode()[:-12]
    found = remembering(clock, 3)
    found.restore(body + zlib.crc32(body).to_bytes(4, "big"))
    assert held(found, 1, 2, 3) == [3]


def test_the_file_has_no_more_than_the_memory() -> None:
    clock = Clock()
    found = FencedDeletions(clock)
    for ledger_id in range(LEDGERS_MAX + 10):
        found.remember(LedgerId(ledger_id))
    assert len(found.encode()) == 12 + 16 * LEDGERS_MAX
    assert held(found, 9, 10) == [10]
