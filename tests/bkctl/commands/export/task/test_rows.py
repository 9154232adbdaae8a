"""What a task asks bookies and the metadata store for."""

from __future__ import annotations

import attrs
import pytest

pytest.importorskip("pyarrow", reason="pyarrow is not installed: pip install 'bkctl[spark]'")

from bkctl.commands.export.task.ledger_ends import read_extents
from bkctl.commands.export.task.partitions import cut
from bkctl.commands.export.task.rows import BYTES_AT_ONCE, Part, RangeReadError, read_ranges
from tests.bkclient.worlds import World
from tests.bkctl.support.world import WorldClient
from wire.codes import ProtocolVersion
from wire.ids import EntryId, LedgerId
from wire.ledger_metadata import Fragment
from wire.messages import BatchReadRequest, ReadRequest

LEDGERS = 250


class Task:
    """A task that reads small ledgers of 20 entries."""

    def __init__(self) -> None:
        self.world = World(4)
        self.client = WorldClient(self.world, protocol=ProtocolVersion.V2)
        self.ids = [self.write() for _ in range(LEDGERS)]
        extents = self.client.call(read_extents, self.ids)
        (self.ranges,) = cut(extents, 1)

    def write(self, ledger_id: LedgerId | None = None) -> LedgerId:
        creating = self.client.client.create_ledger(write_quorum=3, ledger_id=ledger_id)
        writer = self.world.run(creating)
        for number in range(20):
            writer.add(b"%d" % number * 100)
        self.world.run(writer.drain())
        self.world.run(writer.close())
        return writer.ledger_id

    def read(self, **options: bool) -> list[Part]:
        found = self.client.iterate(lambda client: read_ranges(client, self.ranges, **options))
        return [part for parts in found for part in parts]

    def reads(self) -> list[ReadRequest | BatchReadRequest]:
        return [
            request
            for bookie in self.world.bookies.values()
            for request in bookie.log
            if isinstance(request, (ReadRequest, BatchReadRequest))
        ]


def test_a_small_closed_ledger_takes_one_request() -> None:
    task = Task()
    assert [(one.ledger_id, len(batch)) for one, batch in task.read()] == [
        (ledger_id, 20) for ledger_id in task.ids
    ]
    assert [type(one) for one in task.reads()] == [BatchReadRequest] * LEDGERS


def test_of_a_large_ledger_several_chunks_are_handed_over_at_a_time() -> None:
    world = World(3)
    client = WorldClient(world, protocol=ProtocolVersion.V2)
    writer = world.run(client.client.create_ledger(write_quorum=3))
    for number in range(5000):
        writer.add(b"%04d" % number * 256)
    world.run(writer.drain())
    world.run(writer.close())
    (task,) = cut(client.call(read_extents, [writer.ledger_id]), 1, target_bytes=1 << 30)
    found = [
        list(parts) for parts in client.iterate(lambda connected: read_ranges(connected, task))
    ]
    assert len(found) <= 5000 * 1024 // BYTES_AT_ONCE + 1
    batches = [batch for parts in found for _, batch in parts]
    assert [one for batch in batches for one in batch.entry_ids] == list(range(5000))
    assert batches[-1].payload(len(batches[-1]) - 1) == b"4999" * 256


def test_entries_are_found_that_moved_after_the_metadata_was_read() -> None:
    task = Task()
    moved = task.ids[70]
    client, bookies = task.client.client, task.world.bookies

    async def move() -> None:
        stored = await client.store.read_ledger(moved)
        (new,) = set(bookies) - set(stored.value.ensemble)
        copies = [bookies[old].ledgers.pop(moved) for old in stored.value.ensemble]
        bookies[new].ledgers[moved] = copies[0]
        fragment = Fragment(EntryId(0), (new, *stored.value.ensemble[1:]))
        changed = attrs.evolve(stored.value, fragments=(fragment,))
        await client.store.write_ledger(moved, changed, stored.version)

    async def read() -> list[Part]:
        found: list[Part] = []
        async for parts in read_ranges(client, task.ranges):
            if not found:
                await move()
            found += parts
        return found

    assert sum(len(batch) for _, batch in task.world.run(read())) == 20 * LEDGERS


@pytest.mark.parametrize("is_created_again", [False, True])
def test_a_ledger_that_is_gone_is_named_or_skipped(is_created_again) -> None:
    task = Task()
    task.world.run(task.client.client.delete_ledger(task.ids[120]))
    if is_created_again:
        task.world.clock.advance(1)
        assert task.write(task.ids[120]) == task.ids[120]
    with pytest.raises(RangeReadError, match=f"ledger {task.ids[120]}: "):
        task.read()
    assert len(task.read(skip_gone=True)) == LEDGERS - 1
