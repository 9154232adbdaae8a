"""Batches while the bookie's files change under them, and with an index that is wrong."""

from __future__ import annotations

from typing import Any

import pytest

from bookied.server.rules.answer_from_disk import Answer, DiskRead
from bookied.server.rules.entry_and_batch_reads import EntryReads
from bookied.storage.index.ledger_pages import Move
from bookied.storage.ledger_storage.storage import LedgerStorage
from tests.bookied.worlds.gc_world import GcWorld, index_of
from wire.codes import ReturnCode
from wire.ids import EntryId, LedgerId
from wire.messages import BatchReadRequest, BatchReadResponse

ENTRIES = 20
DELETED, KEPT = LedgerId(0), LedgerId(1)


def make_world(seed: int, *, transactional: bool = False, in_turn: bool = True) -> GcWorld:
    """Return a bookie with two ledgers of equal entries in finished logs, in turn or in rows."""
    options = {"transactional": transactional, "outstanding_max": 1000, "target_bytes": None}
    world = GcWorld(seed, directories=1, settings_options=options)
    wanted = [(entry_id, ledger_id) for entry_id in range(ENTRIES) for ledger_id in (0, 1)]
    if not in_turn:
        wanted.sort(key=lambda one: one[1])
    for entry_id, ledger_id in wanted:
        world.add(ledger_id, entry_id, 300)
        for journal in world.journals:
            while journal.step():
                pass
    world.stop()
    world.start()
    return world


def begin(world: GcWorld) -> Answer:
    request = BatchReadRequest(KEPT, EntryId(0), 7, 0, 1 << 20)

    def refused(code: ReturnCode) -> BatchReadResponse:
        return BatchReadResponse(code, KEPT, EntryId(0), 7)

    return EntryReads(world.storages).batch(request, refused)


def finish(answer: Answer) -> BatchReadResponse:
    while isinstance(answer, DiskRead):
        answer.fetch()
        answer = answer.answer()
    assert isinstance(answer, BatchReadResponse)
    return answer


def stored(world: GcWorld) -> list[bytes]:
    storage: LedgerStorage = world.storages.of(KEPT)
    return [storage.reads.read_disk(0, KEPT, entry_id) for entry_id in range(ENTRIES)]


def steps_of(seed: int) -> int:
    """Return how often a batch goes to the disk, where nothing happens meanwhile."""
    answer, steps = begin(make_world(seed)), 0
    while isinstance(answer, DiskRead):
        answer.fetch()
        answer, steps = answer.answer(), steps + 1
    return steps


def batches_beside_a_collection(seed: int, *, transactional: bool) -> int:
    """Collect at each step of a batch, in a world of its own; return how many steps it has."""
    steps = steps_of(seed)
    for step in range(steps):
        world = make_world(seed, transactional=transactional)
        entries, before = stored(world), world.log_names()
        world.delete(DELETED)
        answer = begin(world)
        for _ in range(step):
            assert isinstance(answer, DiskRead)
            answer.fetch()
            answer = answer.answer()
        world.collect()
        assert before - world.log_names(), "no log was removed"
        found = finish(answer)
        assert (found.rc, list(found.entries)) == (ReturnCode.EOK, entries)
    return steps


def test_a_batch_is_complete_though_compaction_removes_its_logs_meanwhile() -> None:
    assert batches_beside_a_collection(1, transactional=False) > 1


def test_a_batch_is_complete_though_a_transaction_removes_its_logs_meanwhile() -> None:
    assert batches_beside_a_collection(2, transactional=True) > 1


@pytest.mark.parametrize("seed", range(1, 3))
def test_a_batch_of_a_ledger_that_is_collected_meanwhile_has_no_other_entries(seed: int) -> None:
    world = make_world(seed)
    entries = stored(world)
    answer = begin(world)
    world.delete(DELETED)
    world.delete(KEPT)
    world.collect()
    assert not world.log_names()
    found = finish(answer)
    if found.rc is ReturnCode.EOK:
        assert list(found.entries) == entries[: len(found.entries)]
    else:
        assert found.rc in {ReturnCode.ENOLEDGER, ReturnCode.ENOENTRY, ReturnCode.EIO}


def test_a_batch_ends_where_the_index_names_a_run_of_another_ledger() -> None:
    world = make_world(1, in_turn=False)
    entries, index = stored(world), index_of(world)
    right = 5
    places: list[Any] = [
        (index.location(KEPT, entry_id), index.location(DELETED, entry_id))
        for entry_id in range(right, ENTRIES)
    ]
    index.switch([Move(KEPT, entry_id, *pair) for entry_id, pair in enumerate(places, start=right)])
    found = finish(begin(world))
    assert (found.rc, list(found.entries)) == (ReturnCode.EOK, entries[:right])
