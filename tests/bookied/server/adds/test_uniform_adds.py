"""Rows are taken when all frames are alike, and left alone when any one is not."""

from __future__ import annotations

import struct
from array import array
from typing import Any
from unittest.mock import ANY, MagicMock

import pytest

from bookied.server.adds.add_batch import AddPart, StorageShare
from bookied.server.adds.uniform_adds import ROWS, V2_ALIKE_BYTES, V2Rows, V3Rows, is_worth_a_try
from bookied.storage.index.ledger_pages import BLOCK_SHIFT, CachedLedger
from tests.bookied.worlds.served_bookie import KEY, WRONG_KEY, packet
from wire.codes import AddFlag
from wire.frames import v2, v3
from wire.ids import EntryId, LedgerId
from wire.messages import AddRequest

LEDGER = 5
FIRST = 200
"""From here on entry ids and transaction ids take two bytes as varints."""


def add(entry_id: int, ledger_id: int = LEDGER, **changes: Any) -> AddRequest:
    settings: dict[str, Any] = {
        "master_key": KEY,
        "payload": b"x" * 90,
        "packet_entry": entry_id,
    } | changes
    body = packet(ledger_id, settings["packet_entry"], entry_id - 1, settings["payload"])
    flags = changes.get("flags", AddFlag.NONE)
    return AddRequest(LedgerId(ledger_id), EntryId(entry_id), settings["master_key"], body, flags)


class Columns:
    """What a row's ``take`` is given and makes."""

    def __init__(self, protocol: str, requests: list[AddRequest], first_txn_id: int = 300) -> None:
        self.requests = requests
        if protocol == "v2":
            self.frames = [v2.encode_request(request) for request in requests]
        else:
            self.frames = [
                v3.encode_request(request, first_txn_id + n) for n, request in enumerate(requests)
            ]
        self.stored = StorageShare(1028)
        self.part = AddPart(MagicMock(), ANY, self.stored, has_others=False)
        self.advanced: list[tuple[CachedLedger, int]] = []
        self.state = CachedLedger(LEDGER, KEY, ANY)
        self.state.open_page = self.page = array("q", bytes(8192))
        self.state.open_block = requests[0].entry_id >> BLOCK_SHIFT
        self.rows = v2_rows(self.frames[0]) if protocol == "v2" else v3_rows(self.frames[0])

    def take(self) -> bool:
        data = b"".join(self.frames)
        return self.rows.take(data, 0, 1028, self.state, self.part, self.advanced)

    @property
    def highest(self) -> tuple[int, int]:
        return self.state.last_entry, max(lac for _, lac in self.advanced)


def v2_rows(frame: bytes) -> V2Rows:
    return V2Rows(len(frame))


def v3_rows(frame: bytes) -> V3Rows:
    matched = v3.match_add(frame, 4)
    assert matched is not None
    answer = v3.add_response(matched.txn, matched.ledger, matched.entry)
    packet_at, packet_bytes = matched.packet_at, len(frame) - matched.packet_at
    txn_end, entry_at = 11 + 2, packet_at - 24 - 2
    parts = [frame[:11], matched.txn, frame[txn_end:entry_at], matched.entry]
    parts.append(frame[entry_at + 2 : packet_at])
    assert b"".join(parts) == frame[:packet_at]
    between = answer[11 + 2 : len(answer) - 2]
    return V3Rows(parts, packet_bytes, (answer[:11], between))


@pytest.fixture(params=["v2", "v3"])
def protocol(request: pytest.FixtureRequest) -> str:
    return str(request.param)


def test_a_row_becomes_records_locations_and_answers(protocol: str) -> None:
    # Not one after the other: a bookie of a wider ensemble gets only some of a ledger's entries.
    columns = Columns(protocol, [add(FIRST + 2 * n) for n in range(ROWS)])
    assert columns.take()
    assert columns.highest == (FIRST + 2 * ROWS - 2, FIRST + 2 * ROWS - 3)
    packets = [request.entry for request in columns.requests]
    sizes = [struct.pack(">i", len(each)) for each in packets]
    assert columns.stored.records == [
        part for both in zip(sizes, packets, strict=True) for part in both
    ]
    size = len(packets[0]) + 4
    assert columns.stored.sizes == [(LEDGER, ROWS * size)]
    found = {FIRST + 2 * n: 1028 + n * size for n in range(ROWS)}
    assert {slot: place for slot, place in enumerate(columns.page) if place} == found
    if protocol == "v2":
        assert columns.part.answers == [each[:16] for each in packets]
    else:
        matches = [v3.match_add(frame, 4) for frame in columns.frames]
        assert b"".join(columns.part.answers) == b"".join(
            v3.add_response(each.txn, each.ledger, each.entry) for each in matches if each
        )


def test_of_an_entry_that_comes_twice_the_later_one_counts(protocol: str) -> None:
    columns = Columns(protocol, [add(FIRST) for _ in range(ROWS)])
    assert columns.take()
    assert columns.highest == (FIRST, FIRST - 1)
    size = len(columns.requests[0].entry) + 4
    assert columns.page[FIRST] == 1028 + (ROWS - 1) * size


def test_a_row_that_goes_back_to_the_page_before_is_left_alone(protocol: str) -> None:
    columns = Columns(protocol, [add(1024 + n) for n in range(ROWS - 1)] + [add(1023)])
    assert not columns.take()
    assert not any(columns.page)


@pytest.mark.parametrize("odd", [1, ROWS // 2, ROWS - 1])
@pytest.mark.parametrize(
    "changes",
    [
        {"ledger_id": LEDGER + 1},
        {"master_key": WRONG_KEY},
        {"payload": b"x" * 91},
        {"flags": AddFlag.RECOVERY},
        {"entry_id": 1024},
        {"entry_id": -0x2000},
    ],
    ids=str,
)
def test_a_row_with_one_frame_of_another_kind_is_left_alone(
    protocol: str, changes: dict[str, Any], odd: int
) -> None:
    requests = [add(FIRST + n) for n in range(ROWS)]
    requests[odd] = add(**{"entry_id": FIRST + odd} | changes)
    check_left_alone(Columns(protocol, [*requests, add(FIRST + ROWS)]))


def test_a_row_whose_transaction_ids_grow_longer_is_left_alone() -> None:
    check_left_alone(Columns("v3", [add(FIRST + n) for n in range(ROWS + 1)], 2**14 - ROWS // 2))


def test_a_varint_that_ends_early_is_not_taken_for_a_longer_one() -> None:
    columns = Columns("v3", [add(FIRST + n) for n in range(ROWS)])
    frame = bytearray(columns.frames[3])
    frame[11] &= 0x7F  # The transaction id now has one byte, and its length is still that of two.
    columns.frames[3] = bytes(frame)
    check_left_alone(columns)


def check_left_alone(columns: Columns) -> None:
    assert not columns.take()
    assert (columns.stored.records, columns.part.answers) == ([], [])
    assert (columns.stored.sizes, columns.advanced, columns.state.last_entry) == ([], [], -1)
    assert not any(columns.page)


@pytest.mark.parametrize("odd", [1, ROWS - 1])
def test_a_row_is_tried_only_where_its_second_and_last_frame_are_like_the_first(odd: int) -> None:
    frames = [v2.encode_request(add(FIRST + n)) for n in range(ROWS)]
    assert is_worth_a_try(b"".join(frames), 0, len(frames[0]), 0, V2_ALIKE_BYTES)
    frames[odd] = v2.encode_request(add(FIRST + odd, LEDGER + 1))
    assert not is_worth_a_try(b"".join(frames), 0, len(frames[0]), 0, V2_ALIKE_BYTES)
