"""Requests go on, whoever hears of them."""

from __future__ import annotations

import pytest

from bkclient.connection.request_trace import RequestTrace
from tests.bkclient.worlds import World, collect
from wire.codes import ProtocolVersion

ENTRIES = [b"entry %d" % number for number in range(10)]


@pytest.mark.parametrize("protocol", list(ProtocolVersion), ids=lambda p: p.name)
def test_requests_go_on_although_nobody_can_be_told(protocol: ProtocolVersion) -> None:
    """Standard error is a pipe that its reader has closed, say."""
    asked = 0

    def tell(_line: str) -> None:
        nonlocal asked
        asked += 1
        raise BrokenPipeError

    world = World()
    client = world.client(protocol=protocol)
    client.trace_requests(RequestTrace(tell))

    async def write_and_read() -> list[bytes]:
        writer = await client.create_ledger(ensemble_size=3, write_quorum=3, ack_quorum=2)
        await writer.add_many(ENTRIES)
        await writer.close()
        reader = await client.open_ledger(writer.ledger_id)
        assert (await reader.read_entry(0)).payload == ENTRIES[0]
        return await collect(reader.read())

    assert world.run(write_and_read()) == ENTRIES
    assert asked
