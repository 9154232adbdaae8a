"""The load generator sends what it says it does."""

from __future__ import annotations

import struct
from pathlib import Path
from typing import Any

import pytest

from tests.bench.loads.load import Latencies, Load, Ring, answer_layout
from tests.bookied.worlds.served_bookie import Serving
from wire.codes import ProtocolVersion
from wire.framing import ServerConnection
from wire.messages import AddRequest, ReceivedRequest


def decode(data: bytes) -> list[Any]:
    connection = ServerConnection()
    connection.receive_data(data)
    events = []
    while isinstance(event := connection.next_event(), ReceivedRequest):
        events.append(event)
    return events


@pytest.mark.parametrize("protocol", ["v2", "v3"])
@pytest.mark.parametrize("size", [0, 100, 5000])
def test_each_round_goes_on_where_the_last_one_ended(protocol: str, size: int) -> None:
    ring = Ring(Load(protocol=protocol, size_bytes=size), ledger_id=77)
    first = ring.first_entry_id
    for round_no in (0, 1, 300):
        ring.go_to(round_no)
        begin = first + round_no * ring.frames
        received = decode(bytes(ring.view))
        requests = [event.request for event in received]
        assert all(isinstance(request, AddRequest) for request in requests)
        assert [request.entry_id for request in requests] == [*range(begin, begin + ring.frames)]
        packet_ids = [struct.unpack_from(">qq", request.entry) for request in requests]
        assert packet_ids == [(77, begin + i) for i in range(ring.frames)]
        if protocol == "v3":
            txn_ids = [event.reply_to.txn_id for event in received]
            assert txn_ids == [*range(begin, begin + ring.frames)]


@pytest.mark.parametrize("protocol", list(ProtocolVersion), ids=lambda protocol: protocol.name)
def test_answers_have_the_size_and_status_it_counts_on(
    tmp_path: Path, protocol: ProtocolVersion
) -> None:
    load = Load(protocol=protocol.name.lower(), size_bytes=10)
    client = Serving(tmp_path).connect(protocol)
    ring = Ring(load, ledger_id=77)
    client.send(bytes(ring.view[: 3 * ring.stride]))
    answers = client.receive()
    size, status_at, status = answer_layout(load, 77)
    assert len(answers) == 3 * size
    assert set(answers[status_at::size]) == {status}


def test_percentiles_are_right_to_a_few_percent() -> None:
    latencies = Latencies()
    for ms in range(1, 1001):
        latencies.add(ms / 1000, 2)
    assert latencies.percentile_ms(50) == pytest.approx(500, rel=0.04)
    assert latencies.percentile_ms(99) == pytest.approx(990, rel=0.04)
    assert latencies.max_s == 1.0
