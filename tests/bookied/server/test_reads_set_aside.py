"""Reads that find their entry on the disk are looked for again after the others."""

from __future__ import annotations

import random
from collections import Counter, defaultdict
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from bookied.server.reads.reads_from_memory import (
    ASIDE_MAX,
    AnswerLimits,
    FastReadResult,
    FastReads,
)
from bookied.storage.entrylog.reader import WantedEntry
from bookied.storage.ledger_storage.reads import NeedsDisk
from bookied.storage.ledger_storage.storage import LedgerStorage
from bookied.storage.ledger_storage.storage_limits import StorageLimits
from tests.bookied.worlds.served_bookie import KEY, Serving, packet
from wire.codes import ProtocolVersion, ReturnCode
from wire.frames import v2, v3
from wire.ids import NO_ENTRY, EntryId, LedgerId
from wire.messages import AddRequest, ReadRequest

ENTRIES = 4


@pytest.fixture(params=list(ProtocolVersion), ids=lambda protocol: protocol.name)
def protocol(request: pytest.FixtureRequest) -> ProtocolVersion:
    version: ProtocolVersion = request.param
    return version


def forget_pages(serving: Serving) -> None:
    """Put the index pages out of memory, as reads of many other ledgers do."""
    for ledger_id in serving.storage.hot:
        serving.storage._pages.read_pages.drop_ledger(ledger_id)
        for page_no in tuple(serving.storage.hot[ledger_id].pages):
            del serving.storage.hot[ledger_id].pages[page_no]


def test_index_pages_that_are_not_in_memory_are_read_together_and_no_more_than_may_be(
    tmp_path: Path, protocol: ProtocolVersion
) -> None:
    serving = serve(tmp_path, range(5, 13))
    forget_pages(serving)
    wanted = [(ledger, 1) for ledger in range(5, 13)] + [(5, 2), (6, ENTRIES), (99, 0)]
    most = AnswerLimits(1 << 20, len(wanted), 6)
    reads, data = FastReads(serving.storages), frames(protocol, wanted)
    taken = reads.take(data, 0, lambda _: False, most)
    assert (taken.end, taken.reads, taken.loads) == (len(frames(protocol, wanted[:6])), 6, 6)
    taken = reads.take(data, taken.end, lambda _: False, most)
    assert (taken.reads, taken.loads) == (3, 2)  # An entry that is not there goes the plain way.
    serving.close()


class SlowDisk:
    """A storage's reads that find an entry in memory after some looks only."""

    def __init__(self, storage: LedgerStorage, misses: dict[tuple[int, int], int]) -> None:
        self._reads, self._misses = storage.reads, Counter(misses)
        self.looks: Counter[tuple[int, int]] = Counter()
        storage.reads = self  # type: ignore[assignment]

    def read_memory(self, state: Any, entry_id: int) -> Any:
        key = state.ledger_id, entry_id
        self.looks[key] += 1
        if self._misses[key]:
            self._misses[key] -= 1
            location = state.location(entry_id)
            return NeedsDisk(location, state, state.changes) if location else None
        return self._reads.read_memory(state, entry_id)

    def copy_now(
        self, wanted: list[WantedEntry], target: memoryview, gap_bytes: int, bytes_max: int
    ) -> list[int]:
        sizes, at = list[int](), 0
        for one in wanted:
            self.looks[one[1:]] += 1
            size = 0
            if self._misses[one[1:]]:
                self._misses[one[1:]] -= 1
            else:
                (size,) = self._reads.copy_now([one], target[at:], gap_bytes, bytes_max)
                at += size + gap_bytes
            sizes.append(size)
            if at >= bytes_max:
                break
        return sizes

    def __getattr__(self, name: str) -> Any:
        return getattr(self._reads, name)


def serve(directory: Path, ledgers: range, size: int = 5) -> Serving:
    """Return a bookie whose entries are in its log and in the page cache, index pages in memory."""
    serving = Serving(directory, is_cold=False, storage_limits=StorageLimits(cache_bytes=1))
    client = serving.connect()
    for entry_id in range(ENTRIES):
        for ledger_id in ledgers:
            body = packet(ledger_id, entry_id, payload=b"p" * size)
            add = AddRequest(LedgerId(ledger_id), EntryId(entry_id), KEY, body)
            client.send(v2.encode_request(add))
    serving.flush()
    client.receive()
    for ledger_id in ledgers:
        client.ask(ReadRequest(LedgerId(ledger_id), EntryId(0)))
    return serving


def frames(protocol: ProtocolVersion, wanted: list[tuple[int, int]]) -> bytes:
    requests = [ReadRequest(LedgerId(ledger), EntryId(entry)) for ledger, entry in wanted]
    if protocol is ProtocolVersion.V2:
        return b"".join(map(v2.encode_request, requests))
    return b"".join(v3.encode_request(one, 1 + one.ledger_id) for one in requests)


def take(
    protocol: ProtocolVersion,
    serving: Serving,
    wanted: list[tuple[int, int]],
    bytes_max: int = 1 << 20,
) -> FastReadResult:
    most = AnswerLimits(bytes_max, len(wanted), 1)
    return FastReads(serving.storages).take(frames(protocol, wanted), 0, lambda _: False, most)


@settings(max_examples=60)
@given(
    wanted=st.lists(
        st.tuples(st.integers(5, 12), st.integers(-1, ENTRIES)), min_size=1, max_size=40
    ),
    misses=st.dictionaries(
        st.tuples(st.integers(5, 12), st.integers(0, ENTRIES - 1)), st.integers(1, 6), max_size=12
    ),
    cut=st.integers(0, 2000),
    protocol=st.sampled_from(ProtocolVersion),
)
def test_each_read_is_answered_once_and_those_of_a_ledger_in_order(
    tmp_path_factory: pytest.TempPathFactory,
    wanted: list[tuple[int, int]],
    misses: dict[tuple[int, int], int],
    cut: int,
    protocol: ProtocolVersion,
) -> None:
    serving = serve(tmp_path_factory.mktemp("looks"), range(5, 13))
    SlowDisk(serving.storage, misses)
    client, data = serving.connect(protocol), frames(protocol, wanted)
    client.send(data[: cut % (len(data) + 1)])
    client.send(data[cut % (len(data) + 1) :])
    answers = client.answers()
    serving.close()
    asked, answered = defaultdict(list), defaultdict(list)
    for ledger_id, entry_id in wanted:
        asked[ledger_id].append(entry_id)
    for answer in answers:
        answered[answer.ledger_id].append(answer.entry_id)
        held = ENTRIES - 1 if answer.entry_id == NO_ENTRY else answer.entry_id
        if held < ENTRIES:
            assert answer.entry == packet(answer.ledger_id, held, payload=b"p" * 5)
        else:
            assert answer.rc is ReturnCode.ENOENTRY
    assert answered == asked


def test_what_has_come_meanwhile_goes_to_no_thread(
    tmp_path: Path, protocol: ProtocolVersion
) -> None:
    serving = serve(tmp_path, range(5, 13))
    SlowDisk(serving.storage, {(6, 1): 1, (8, 1): 1, (9, NO_ENTRY): 1, (9, ENTRIES - 1): 1})
    wanted = [(ledger, 1) for ledger in range(5, 9)] + [(9, NO_ENTRY)]
    taken = take(protocol, serving, wanted)
    data = frames(protocol, wanted)
    assert (taken.end, taken.reads, taken.left) == (len(data), len(wanted), b"")
    client = serving.connect(protocol)
    client.transport.write(b"".join(taken.answers))
    assert [(one.ledger_id, one.entry_id) for one in client.answers()] == [
        (5, 1), (7, 1), (6, 1), (8, 1), (9, NO_ENTRY),
    ]  # fmt: skip
    serving.close()


@pytest.mark.parametrize("storages", [1, 3])
def test_entries_of_all_sizes_and_storages_are_answered_in_order(
    tmp_path: Path, protocol: ProtocolVersion, storages: int
) -> None:
    limits = StorageLimits(cache_bytes=1)
    serving = Serving(tmp_path, is_cold=False, storages=storages, storage_limits=limits)
    client = serving.connect()
    sizes = [3, 1000, 5000, 20_000, 100_000, 300_000, 40]
    stored = {
        (ledger, entry): packet(ledger, entry, payload=bytes([entry]) * size)
        for ledger in range(5, 15)
        for entry, size in enumerate(sizes)
    }
    for (ledger, entry), body in stored.items():
        client.request(AddRequest(LedgerId(ledger), EntryId(entry), KEY, body))
    serving.flush()
    client.receive()
    for ledger in range(5, 15):
        client.ask(ReadRequest(LedgerId(ledger), EntryId(0)))
    rng = random.Random(1)
    wanted = [(rng.randrange(5, 15), rng.randrange(len(sizes))) for _ in range(300)]
    client = serving.connect(protocol)
    client.send(frames(protocol, wanted))
    asked, answered = defaultdict(list), defaultdict(list)
    for ledger, entry in wanted:
        asked[ledger].append(entry)
    for answer in client.answers():
        assert answer.entry == stored[answer.ledger_id, answer.entry_id]
        answered[answer.ledger_id].append(answer.entry_id)
    assert answered == asked
    serving.close()


def test_what_has_not_come_is_left_after_two_looks(
    tmp_path: Path, protocol: ProtocolVersion
) -> None:
    serving = serve(tmp_path, range(5, 9))
    disk = SlowDisk(serving.storage, {(6, 1): 9, (8, 1): 9})
    wanted = [(ledger, 1) for ledger in range(5, 9)]
    taken = take(protocol, serving, wanted)
    assert (taken.end, taken.reads) == (len(frames(protocol, wanted)), 2)
    assert taken.left == frames(protocol, [(6, 1), (8, 1)])
    assert (disk.looks[6, 1], disk.looks[8, 1]) == (2, 2)
    serving.close()


def test_a_ledger_that_waits_ends_what_is_taken(tmp_path: Path, protocol: ProtocolVersion) -> None:
    serving = serve(tmp_path, range(5, 9))
    SlowDisk(serving.storage, {(6, 1): 9})
    wanted = [(5, 1), (6, 1), (7, 1), (6, 2), (8, 1)]
    taken = take(protocol, serving, wanted)
    assert (taken.end, taken.reads) == (len(frames(protocol, wanted[:3])), 2)
    assert taken.left == frames(protocol, [(6, 1)])
    serving.close()


def test_late_answers_end_where_enough_was_answered(
    tmp_path: Path, protocol: ProtocolVersion
) -> None:
    ledgers = range(5, 5 + ASIDE_MAX + 3)
    serving = serve(tmp_path, ledgers, size=1000)
    SlowDisk(serving.storage, {(ledger, 1): 1 for ledger in ledgers})
    wanted = [(ledger, 1) for ledger in ledgers]
    taken = take(protocol, serving, wanted, bytes_max=3000)
    # No more than these are put aside.
    assert taken.end == len(frames(protocol, wanted[:ASIDE_MAX]))
    assert taken.reads == 3
    assert taken.left == frames(protocol, wanted[3:ASIDE_MAX])
    serving.close()


def test_a_client_with_ever_more_reads_gets_what_the_disk_has(
    tmp_path: Path, protocol: ProtocolVersion
) -> None:
    serving = serve(tmp_path, range(5, 9))
    SlowDisk(serving.storage, {(6, 1): 1000})
    client = serving.connect(protocol)
    wanted = [(6, 1)] + [(ledger, entry % ENTRIES) for entry in range(500) for ledger in (5, 7, 8)]
    client.connection.dataReceived(frames(protocol, wanted))
    while serving.server.shared.turns:
        serving.take_turn()
    assert [one.ledger_id for one in client.answers()].index(6) < 1000
    serving.close()
