"""Plain reads of entries in a row are answered from pieces of a log, as one by one."""

from __future__ import annotations

import time
from array import array
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from bookied.server.reads.reads_from_memory import AnswerLimits, FastReadResult, FastReads
from bookied.storage.ledger_storage.storage import LedgerStorage
from bookied.storage.ledger_storage.storage_limits import StorageLimits
from tests.bookied.worlds.served_bookie import KEY, Serving, packet
from wire.codes import ProtocolVersion, ReturnCode
from wire.frames import v2, v3
from wire.ids import EntryId, LedgerId
from wire.messages import AddRequest, ReadRequest

ENTRIES = 60


class PlainReads(FastReads):
    """Takes nothing, so that the plain path takes all."""

    def take(self, data: bytes, at: int, must_wait: Any, most: AnswerLimits) -> FastReadResult:
        return FastReadResult(at, [], 0, 0, 0)


class CountedReads:
    """Counts the looks at memory on their way to a storage's reads."""

    def __init__(self, storage: LedgerStorage) -> None:
        self._reads, self.singly, self.rows = storage.reads, 0, 0
        storage.reads = self  # type: ignore[assignment]

    def read_memory(self, *args: Any) -> Any:
        self.singly += 1
        return self._reads.read_memory(*args)

    def copy_now(self, wanted: Any, *args: Any) -> Any:
        self.singly += len(wanted)
        return self._reads.copy_now(wanted, *args)

    def read_rows(self, *args: Any) -> Any:
        self.rows += 1
        return self._reads.read_rows(*args)

    def __getattr__(self, name: str) -> Any:
        return getattr(self._reads, name)


def serve(directory: Path, sizes: list[int], *, db: bool = False, cache_bytes: int = 1) -> Serving:
    """Return a bookie with ledgers 5 and 6, written in turn, and that much kept in memory."""
    limits = StorageLimits(cache_bytes=cache_bytes)
    serving = Serving(directory, is_cold=False, db=db, storage_limits=limits)
    adds = [
        AddRequest(
            LedgerId(ledger_id),
            EntryId(entry_id),
            KEY,
            packet(ledger_id, entry_id, payload=b"p" * sizes[entry_id % len(sizes)]),
        )
        for entry_id in range(ENTRIES)
        for ledger_id in ((5, 6) if entry_id % 20 < 10 else (5,))
    ]
    client = serving.connect()
    client.send(b"".join(map(v2.encode_request, adds)))
    serving.flush()
    client.receive()
    for ledger_id in (5, 6):  # Opens the log, and brings pages and LACs.
        client.ask(ReadRequest(LedgerId(ledger_id), EntryId(1)))
    return serving


def page_of(serving: Serving, ledger_id: int) -> array[int]:
    """Return the first page of a ledger's index, as it is in memory."""
    state = serving.storage.ledgers.lookup(ledger_id)
    assert state is not None
    page = state.pages.get(0)
    if page is None:
        page = serving.storage.pages.read_pages.page(ledger_id, 0)
    assert page is not None
    return page


def frames(protocol: ProtocolVersion, wanted: list[tuple[int, int]]) -> bytes:
    requests = [ReadRequest(LedgerId(ledger), EntryId(entry)) for ledger, entry in wanted]
    if protocol is ProtocolVersion.V2:
        return b"".join(map(v2.encode_request, requests))
    return b"".join(v3.encode_request(one, 120 + n) for n, one in enumerate(requests))


@st.composite
def reads(draw: st.DrawFn) -> list[tuple[int, int]]:
    first = draw(st.integers(-2, ENTRIES + 1))
    count = draw(st.sampled_from([1, 3, 4, 9, 30, ENTRIES]))
    step = draw(st.sampled_from([1, 1, 2, 3, 3, -1]))
    ledger_id = draw(st.sampled_from([5, 5, 6, 7]))
    return [(ledger_id, first + step * n) for n in range(count)]


@settings(max_examples=30)
@given(
    wanted=st.lists(reads(), min_size=1, max_size=5),
    sizes=st.lists(st.sampled_from([0, 40, 40, 900, 5000]), min_size=1, max_size=3),
    wrong=st.dictionaries(st.integers(0, ENTRIES - 1), st.integers(0, ENTRIES), max_size=2),
    protocol=st.sampled_from(list(ProtocolVersion)),
    cache_bytes=st.sampled_from([1, 1, 20_000]),
    cut=st.integers(0, 3000),
)
def test_answers_are_those_of_the_plain_path_also_where_the_index_is_wrong(
    tmp_path_factory: pytest.TempPathFactory,
    wanted: list[list[tuple[int, int]]],
    sizes: list[int],
    wrong: dict[int, int],
    protocol: ProtocolVersion,
    cache_bytes: int,
    cut: int,
) -> None:
    serving = serve(tmp_path_factory.mktemp("runs"), sizes, cache_bytes=cache_bytes)
    page = page_of(serving, 5)
    for entry_id, other in wrong.items():  # That of another entry, or of another ledger.
        page[entry_id] = page[other] if other < ENTRIES else page_of(serving, 6)[0]
    data = frames(protocol, [one for run in wanted for one in run])
    outcomes = []
    for kind in (PlainReads, FastReads):
        serving.server.shared.fast_reads = kind(serving.storages)
        client = serving.connect(protocol)
        client.send(data[: cut % (len(data) + 1)])
        client.send(data[cut % (len(data) + 1) :])
        outcomes.append(client.answers())
    serving.close()
    key = lambda one: (one.ledger_id, one.entry_id, one.rc.name, one.entry or b"")  # noqa: E731
    assert sorted(outcomes[0], key=key) == sorted(outcomes[1], key=key)
    for answer in outcomes[1]:
        if answer.rc is ReturnCode.EOK and answer.entry_id >= 0:
            assert answer.entry is not None
            assert answer.entry.startswith(packet(answer.ledger_id, answer.entry_id)[:24])


@pytest.mark.parametrize("db", [False, True])
@pytest.mark.parametrize("protocol", list(ProtocolVersion))
@pytest.mark.parametrize(
    ("size", "step", "rows_max"), [(40, 1, 1), (40, 3, 1), (12_000, 1, 5), (12_000, 3, 5)]
)
def test_reads_in_a_row_take_few_looks(
    tmp_path: Path,
    protocol: ProtocolVersion,
    size: int,
    step: int,
    rows_max: int,
    *,
    db: bool,
) -> None:
    serving = serve(tmp_path, [size], db=db)
    client, counted = serving.connect(protocol), CountedReads(serving.storage)
    asked = range(0, ENTRIES, step)
    client.send(frames(protocol, [(5, entry_id) for entry_id in asked]))
    assert [answer.entry for answer in client.answers()] == [
        packet(5, entry_id, payload=b"p" * size) for entry_id in asked
    ]
    # Entries that lie far from each other are looked for in a row once a turn or two.
    assert 0 < counted.rows <= rows_max
    assert counted.singly == 1 or rows_max > 1


def cpu_s_of_reads(directory: Path, batch: int, protocol: ProtocolVersion) -> float:
    """Return what 128 reads in a row take at least, of entries that were added in batches."""
    serving = Serving(directory, storage_limits=StorageLimits(cache_bytes=1 << 20))
    client, count = serving.connect(), 128
    for first in range(0, count, batch):
        batched = range(first, min(first + batch, count))
        adds = [AddRequest(LedgerId(5), EntryId(one), KEY, packet(5, one)) for one in batched]
        client.send(b"".join(map(v2.encode_request, adds)))
    data = frames(protocol, [(5, entry_id) for entry_id in range(count)])
    fast_reads, most, took = FastReads(serving.storages), AnswerLimits(1 << 20, count, 1), []
    for _ in range(20):
        began = time.thread_time()
        assert fast_reads.take(data, 0, lambda _: False, most).reads == count
        took.append(time.thread_time() - began)
    serving.close()
    return min(took)


@pytest.mark.parametrize("protocol", list(ProtocolVersion))
def test_a_run_in_many_pieces_is_looked_for_once(tmp_path: Path, protocol: ProtocolVersion) -> None:
    singly = cpu_s_of_reads(tmp_path / "small", 3, protocol)
    assert cpu_s_of_reads(tmp_path / "large", 5, protocol) < 2 * singly
