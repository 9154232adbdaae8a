"""The hot loops against the plain path: the same frames, the same answers, the same state."""

from __future__ import annotations

import errno
import struct
from array import array
from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from itertools import pairwise, product
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from bookied.errors import IndexTruncatedError
from bookied.server.adds.add_batch import AddReplies
from bookied.server.adds.fast_adds import VIEWED_BYTES_MIN, FastAdds
from bookied.server.adds.uniform_adds import ROWS
from bookied.server.frame_dispatch import PAGES_IN_ONE
from bookied.server.limits.request_turns import SLICE_REQUESTS
from bookied.server.reads.reads_from_memory import AnswerLimits, FastReadResult, FastReads
from bookied.server.rules.add_requests import Writes
from bookied.server.rules.request_rules import Bookie
from bookied.stats.metrics import READ
from bookied.storage.entrylog.usage import read_usage
from bookied.storage.files.files import Buffer, Files, RealFiles
from bookied.storage.index.index_files.index import IndexFiles
from bookied.storage.index.store import IndexStore
from bookied.storage.index.unflushed_locations import SLOTS_MAX
from bookied.storage.journal.reader import open_scan
from bookied.storage.journal.writer import Journal
from bookied.storage.ledger_storage.storage import LedgerStorage
from bookied.storage.ledger_storage.storage_limits import StorageLimits
from tests.bookied.worlds.served_bookie import KEY, WRONG_KEY, Client, Serving, packet
from tests.support.stored_entries import stored_entries
from wire.codes import AddFlag, ProtocolVersion, ReadFlag, ReturnCode
from wire.frames import v2, v3
from wire.ids import EntryId, LedgerId
from wire.messages import AddRequest, ReadRequest, Request

LEDGERS = [5, 6, 2**40 + 1, 200]
ENTRIES = [0, 1, 2, 3, 127, 128, 1023, 1024, 16384, 2**40, 2**40 + 1, -1, -0x2000]


class PlainAdds(FastAdds):
    """Takes nothing, so that the plain path takes all."""

    def take(self, data: bytes, at: int, replies: AddReplies, pages_max: int) -> int:
        return at


class PlainReads(FastReads):
    """Takes nothing either."""

    def take(self, data: bytes, at: int, must_wait: Any, most: AnswerLimits) -> FastReadResult:
        return FastReadResult(at, [], 0, 0, 0)


class CountingReplies:
    """Counts batches on their way to ``replies``."""

    def __init__(self, replies: AddReplies) -> None:
        self._replies, self.adds, self.batches = replies, 0, 0
        self.adds_synced, self.drop_adds = replies.adds_synced, replies.drop_adds

    def begin_adds(self, size_bytes: int, adds: int) -> None:
        self.adds += adds
        self.batches += 1
        self._replies.begin_adds(size_bytes, adds)


class CountingAdds(FastAdds):
    """Counts what the loop took."""

    def __init__(self, bookie: Bookie) -> None:
        super().__init__(bookie)
        self.adds = self.takes = self.batches = 0

    def take(self, data: bytes, at: int, replies: AddReplies, pages_max: int) -> int:
        counting = CountingReplies(replies)
        end = super().take(data, at, counting, pages_max)
        self.adds += counting.adds
        self.batches += counting.batches
        self.takes += bool(counting.adds)
        return end


def serve(
    directory: Path, kind: type[FastAdds], journals: int, storages: int = 1, *, db: bool = False
) -> Serving:
    serving = Serving(directory, journals=journals, storages=storages, db=db)
    serving.server.shared.fast_adds = kind(serving.bookie)
    if kind is PlainAdds:
        serving.server.shared.fast_reads = PlainReads(serving.storages)
    return serving


@st.composite
def adds(draw: st.DrawFn) -> AddRequest:
    ledger_id, entry_id = draw(st.sampled_from(LEDGERS)), draw(st.sampled_from(ENTRIES))
    key = KEY if draw(st.integers(0, 15)) else WRONG_KEY
    flags = AddFlag.NONE if draw(st.integers(0, 9)) else draw(st.sampled_from(list(AddFlag)[:2]))
    lac = draw(st.sampled_from([-1, 0, 1, 5, entry_id - 1]))
    body = packet(ledger_id, entry_id, lac, b"p" * draw(st.sampled_from([0, 3, 3, 3, 200])))
    return AddRequest(LedgerId(ledger_id), EntryId(entry_id), key, body, flags)


@st.composite
def runs(draw: st.DrawFn) -> list[Request]:
    """Consecutive adds to one ledger, as a writer sends them."""
    ledger_id, first = draw(st.sampled_from(LEDGERS)), draw(st.sampled_from([0, 100, 1020, 16380]))
    payload = b"r" * draw(st.sampled_from([0, 50, 300]))
    flags = draw(st.sampled_from([AddFlag.NONE, AddFlag.NONE, AddFlag.RECOVERY]))
    return [
        AddRequest(
            LedgerId(ledger_id), EntryId(e), KEY, packet(ledger_id, e, e - 1, payload), flags
        )
        for e in range(first, first + draw(st.sampled_from([1, 5, 12, 17, 40, SLOTS_MAX + 9])))
    ]


@st.composite
def turns(draw: st.DrawFn) -> list[Request]:
    """Adds that take turns among ledgers; some have another key, or a longer packet."""
    ledgers = draw(st.permutations(LEDGERS))[: draw(st.integers(2, 4))]
    first, rounds = draw(st.sampled_from([0, 120, 1020])), draw(st.sampled_from([5, 17, 40]))
    odd = draw(st.dictionaries(st.integers(0, 159), st.sampled_from([b"rr", None]), max_size=2))
    found: list[Request] = []
    for entry_id in range(first, first + rounds):
        for ledger_id in ledgers:
            payload = odd.get(len(found), b"r")
            body = packet(ledger_id, entry_id, entry_id - 1, payload or b"r")
            key = KEY if payload else WRONG_KEY
            found.append(AddRequest(LedgerId(ledger_id), EntryId(entry_id), key, body))
    return found


@st.composite
def others(draw: st.DrawFn) -> Request:
    ids = LedgerId(draw(st.sampled_from(LEDGERS))), EntryId(draw(st.sampled_from(ENTRIES)))
    if draw(st.integers(0, 9)) == 0:
        return ReadRequest(*ids, ReadFlag.FENCE, KEY)
    return ReadRequest(*ids)


def encode(request: Request, protocol: ProtocolVersion, txn_id: int, mangled: int) -> bytes:
    if protocol is ProtocolVersion.V2:
        frame = v2.encode_request(request)
    else:
        frame = v3.encode_request(request, txn_id)
    if mangled == 1:  # A shorter packet under an honest prefix: too short to be an add, or cut.
        return struct.pack(">i", 60) + frame[4:64].ljust(60, b"\0")
    if mangled == 2:  # Bytes behind the entry, part of the packet in V2, no protobuf in V3.
        return struct.pack(">i", len(frame) + 3) + frame[4:] + b"\xff\xff\xff\xff\xff\xff\xff"[:7]
    return frame


streams = st.lists(
    st.one_of(runs(), turns(), adds().map(lambda add: [add]), others().map(lambda read: [read])),
    min_size=1,
    max_size=12,
).map(lambda groups: [request for group in groups for request in group])


def state_of(serving: Serving) -> dict[int, Any]:
    """Return what the storage knows, entries included."""
    seen = {}
    for number, storage in enumerate(serving.storages):
        for ledger_id in storage.ledgers.ids():
            state = storage.ledgers.lookup(ledger_id)
            assert state is not None
            held = stored_entries(storage, ledger_id)
            packets = [storage.reads.read_memory(state, entry_id) for entry_id in held]
            marks = (state.master_key, state.fenced, state.last_entry, state.lac, state.key_logged)
            seen[ledger_id] = (number, marks, list(zip(held, packets, strict=True)))
    return seen


def play(client: Client, data: bytes, cuts: list[int]) -> tuple[bytes, bool]:
    places = [0, *sorted({cut % (len(data) + 1) for cut in cuts}), len(data)]
    for begin, end in pairwise(places):
        client.send(data[begin:end])
    return client.receive(), client.is_closed


@settings(max_examples=60)
@given(
    requests=streams,
    protocol=st.sampled_from(list(ProtocolVersion)),
    mangled=st.dictionaries(st.integers(0, 90), st.integers(1, 2), max_size=1),
    cuts=st.lists(st.integers(0, 20_000), max_size=5),
    journals=st.integers(1, 3),
    storages=st.integers(1, 3),
    db=st.booleans(),
    first_txn_id=st.sampled_from([1, 120, 2**63]),
)
def test_the_hot_loops_and_the_plain_path_agree(
    tmp_path_factory: pytest.TempPathFactory,
    requests: list[Request],
    protocol: ProtocolVersion,
    mangled: dict[int, int],
    cuts: list[int],
    journals: int,
    storages: int,
    first_txn_id: int,
    *,
    db: bool,
) -> None:
    data = b"".join(
        encode(request, protocol, first_txn_id + number, mangled.get(number, 0))
        for number, request in enumerate(requests)
    )
    directory = tmp_path_factory.mktemp("agree")
    outcomes = []
    for kind in (PlainAdds, CountingAdds):
        serving = serve(directory / kind.__name__, kind, journals, storages, db=db)
        for ledger_id in LEDGERS[:2]:
            prepare = AddRequest(LedgerId(ledger_id), EntryId(0), KEY, packet(ledger_id, 0))
            serving.connect().send(v2.encode_request(prepare))
        answers, is_closed = play(serving.connect(protocol), data, cuts)
        outcomes.append((sorted(frames_of(answers)), is_closed, state_of(serving)))
        serving.close()
    assert outcomes[0] == outcomes[1]


def frames_of(data: bytes) -> list[bytes]:
    frames, at = [], 0
    while at < len(data):
        end = at + 4 + struct.unpack_from(">i", data, at)[0]
        frames.append(data[at:end])
        at = end
    return frames


# That the loop is what does the work, and where it stops -----------------------------------------


def frame_of(
    protocol: ProtocolVersion,
    entry_id: int,
    ledger_id: int = 5,
    txn_id: int = 7,
    key: bytes = KEY,
) -> bytes:
    request = AddRequest(
        LedgerId(ledger_id), EntryId(entry_id), key, packet(ledger_id, entry_id, payload=b"x" * 90)
    )
    return encode(request, protocol, txn_id, 0)


@pytest.fixture(params=list(ProtocolVersion), ids=lambda protocol: protocol.name)
def client(tmp_path: Path, request: pytest.FixtureRequest) -> Client:
    serving = serve(tmp_path, CountingAdds, 2)
    client = serving.connect(request.param)
    for ledger_id in (5, 6, 7):
        client.send(frame_of(request.param, 0, ledger_id))
    client.receive()
    return client


def taken(client: Client) -> int:
    adds = client._serving.server.shared.fast_adds
    assert isinstance(adds, CountingAdds)
    before, adds.adds = adds.adds, 0
    return before


def test_plain_adds_are_taken_in_one_go(client: Client) -> None:
    taken(client)
    frames = [frame_of(client._protocol, e, 5 + 2 * (e % 2), e) for e in range(1, 3000)]
    client.send(b"".join(frames))
    assert taken(client) == 2999
    assert [answer.entry_id for answer in client.answers()] == list(range(1, 3000))


def test_large_and_small_adds_in_turn_are_stored_as_they_came(client: Client) -> None:
    taken(client)
    sizes = [90, VIEWED_BYTES_MIN, 100, 3 * VIEWED_BYTES_MIN, VIEWED_BYTES_MIN + 1, 90]
    payloads = [bytes([65 + at]) * size for at, size in enumerate(sizes)]
    adds = [
        AddRequest(LedgerId(ledger_id), EntryId(1 + at), KEY, packet(ledger_id, 1 + at, at, some))
        for at, some in enumerate(payloads)
        for ledger_id in (5, 6)
    ]
    data = b"".join(encode(add, client._protocol, 7 + at, 0) for at, add in enumerate(adds))
    for at in range(0, len(data), 150_000):
        client.send(data[at : at + 150_000])
    assert taken(client) == len(adds)
    assert len(client.answers()) == len(adds)
    journals = [journal.directory.glob("*.txn") for journal in client._serving.journals]
    journaled = b"".join(path.read_bytes() for paths in journals for path in paths)
    assert all(add.entry in journaled for add in adds)
    client._serving.flush()
    for add in adds:
        assert client.ask(ReadRequest(add.ledger_id, add.entry_id)).entry == add.entry


# Rows of adds that take turns among ledgers -------------------------------------------------------


@pytest.fixture(params=[False, True], ids=["files", "db"])
def turning(tmp_path: Path, request: pytest.FixtureRequest) -> Client:
    """A V2 client of a bookie with one journal and one directory; ledgers 0 to 99 have entry 0."""
    client = serve(tmp_path, CountingAdds, 1, db=request.param).connect(ProtocolVersion.V2)
    client.send(in_turn(client, [0], ledgers=100))
    client.send(in_turn(client, [1], ledgers=100))
    client.answers()
    taken(client)
    return client


def test_adds_in_turn_are_found_before_and_after_a_checkpoint(turning: Client) -> None:
    last = 2 * SLOTS_MAX + 10
    turning.send(in_turn(turning, range(2, last + 1), ledgers=100))
    assert taken(turning) == 100 * (last - 1)
    assert {answer.rc for answer in turning.answers()} == {ReturnCode.EOK}
    for _ in range(2):
        for entry_id, ledger_id in product((1, 2, SLOTS_MAX, last), (0, 64, 99)):
            read = turning.ask(ReadRequest(LedgerId(ledger_id), EntryId(entry_id)))
            assert read.entry == packet(ledger_id, entry_id, payload=b"x" * 90)
        turning._serving.flush()
        turning.send(in_turn(turning, [last + 1], ledgers=100))
        assert taken(turning) == 100
        turning.answers()


def fence(client: Client, ledger_id: int) -> None:
    read = ReadRequest(LedgerId(ledger_id), EntryId(0), ReadFlag.FENCE, KEY)
    assert client.ask(read).rc is ReturnCode.EOK


def put_in_limbo(client: Client, ledger_id: int) -> None:
    ledgers = client._serving.storages.of(ledger_id).ledgers
    state = ledgers.lookup(ledger_id)
    assert state is not None
    if ledgers.keeps_limbo:
        ledgers.set_limbo(state, limbo=True)
    else:
        ledgers.set_fenced(state)


@pytest.mark.parametrize("refuse", [fence, put_in_limbo])
def test_a_ledger_that_takes_no_more_adds_is_refused_within_a_row(
    turning: Client, refuse: Callable[[Client, int], None]
) -> None:
    refuse(turning, 40)
    turning.send(in_turn(turning, [2], ledgers=100))
    answers = turning.answers()
    assert [one.ledger_id for one in answers if one.rc is not ReturnCode.EOK] == [40]
    assert taken(turning) == 99
    state = turning._serving.storages.of(40).ledgers.lookup(40)
    assert state is not None
    assert state.last_entry == 1


def test_a_row_with_another_key_is_refused_where_the_key_is_wrong(turning: Client) -> None:
    frames = [frame_of(ProtocolVersion.V2, 2, ledger_id, key=WRONG_KEY) for ledger_id in range(70)]
    turning.send(b"".join(frames))
    assert {one.rc for one in turning.answers()} == {ReturnCode.EUA}
    assert taken(turning) == 0


def test_a_deleted_ledger_gets_no_entry_of_a_row_until_it_is_created_again(turning: Client) -> None:
    turning._serving.storages.of(40).ledgers.delete(40)
    turning.send(in_turn(turning, [2], ledgers=100))
    assert {answer.rc for answer in turning.answers()} == {ReturnCode.EOK}
    assert taken(turning) == 99  # The plain path has created the ledger anew.
    assert turning.ask(ReadRequest(LedgerId(40), EntryId(1))).rc is ReturnCode.ENOENTRY


# Adds to many ledgers in turn, over several journals and directories -----------------------------


@pytest.fixture(params=list(ProtocolVersion), ids=lambda protocol: protocol.name)
def wide(tmp_path: Path, request: pytest.FixtureRequest) -> Client:
    """A client of a bookie with two journals and three directories; ledgers 0 to 11 exist."""
    client = serve(tmp_path, CountingAdds, 2, 3).connect(request.param)
    client.send(in_turn(client, [0]))
    client.receive()
    adds = client._serving.server.shared.fast_adds
    assert isinstance(adds, CountingAdds)
    adds.adds = adds.takes = adds.batches = 0
    return client


def in_turn(client: Client, entries: Iterable[int], *, ledgers: int = 12) -> bytes:
    ids = [(e, ledger_id) for e in entries for ledger_id in range(ledgers)]
    return b"".join(frame_of(client._protocol, *each, txn_id=n) for n, each in enumerate(ids))


def test_adds_to_many_ledgers_in_turn_are_one_batch_for_each_journal_and_directory(
    wide: Client,
) -> None:
    adds = wide._serving.server.shared.fast_adds
    assert isinstance(adds, CountingAdds)
    wide.send(in_turn(wide, range(1, 50)))
    assert (adds.adds, adds.takes, adds.batches) == (49 * 12, 1, 6)
    answers = wide.answers()
    for ledger_id in range(12):
        of_ledger = [answer.entry_id for answer in answers if answer.ledger_id == ledger_id]
        assert of_ledger == list(range(1, 50))
        for entry_id in (1, 49):
            read = wide.ask(ReadRequest(LedgerId(ledger_id), EntryId(entry_id)))
            assert read.entry == packet(ledger_id, entry_id, payload=b"x" * 90)
    assert not wide._serving.server.backpressure.in_flight_bytes
    counted: Counter[int] = Counter()
    for storage in wide._serving.storages:
        for ledger_id, size_bytes in storage._log._counted:
            counted[ledger_id] += size_bytes
    record_bytes = 4 + len(packet(0, 1, payload=b"x" * 90))
    assert counted == dict.fromkeys(range(12), 50 * record_bytes)  # The first came before.


@pytest.mark.parametrize("db", [False, True])
def test_adds_that_have_a_page_of_the_index_each_have_turns(tmp_path: Path, *, db: bool) -> None:
    serving = Serving(tmp_path, db=db)
    client = serving.connect()
    client.ask(add_of_size(0, 5))
    pages = 3 * SLICE_REQUESTS * PAGES_IN_ONE
    frames = [frame_of(ProtocolVersion.V2, page << 10) for page in range(1, pages)]
    client.connection.dataReceived(b"".join(frames))
    state = serving.storage.ledgers.lookup(5)
    assert state is not None
    # DbLedgerStorage keeps locations without their page: each of 10,000 ledgers needs them anew
    # after a checkpoint.
    assert state.last_entry >> 10 == (pages - 1 if db else SLICE_REQUESTS * PAGES_IN_ONE)
    serving.take_turns()
    serving.sync()
    assert state.last_entry >> 10 == pages - 1
    assert len(client.answers()) == pages - 1


def test_each_journal_gets_the_entries_of_its_own_ledgers(wide: Client) -> None:
    serving = wide._serving
    wide.send(in_turn(wide, [1, 2]))
    assert {answer.rc for answer in wide.answers()} == {ReturnCode.EOK}
    for number, journal in enumerate(serving.journals):
        (path,) = journal.directory.glob("*.txn")
        scan = open_scan(RealFiles(), path)
        ids = [(record.ledger_id, record.entry_id) for record in scan]
        scan.close()
        own = range(number, 12, 2)
        assert sorted(each for each in ids if each[1] > 0) == [
            (ledger_id, entry_id) for ledger_id in own for entry_id in (1, 2)
        ]


def test_only_the_adds_of_a_journal_that_hangs_wait(wide: Client) -> None:
    serving = wide._serving
    serving.syncs = False
    wide.send(in_turn(wide, [1, 2]))
    assert wide.answers() == []
    serving.sync(1)
    assert {answer.ledger_id % 2 for answer in wide.answers()} == {1}
    serving.sync(0)
    assert {answer.ledger_id % 2 for answer in wide.answers()} == {0}
    assert not serving.server.backpressure.in_flight_bytes


def test_a_fenced_ledger_among_many_refuses_its_own_adds_alone(wide: Client) -> None:
    wide.request(ReadRequest(LedgerId(5), EntryId(-1), ReadFlag.FENCE, KEY))
    wide.answers()
    wide.send(in_turn(wide, [1, 2]))
    codes = {(answer.ledger_id, answer.entry_id): answer.rc for answer in wide.answers()}
    assert codes == {
        (ledger_id, entry_id): ReturnCode.EFENCED if ledger_id == 5 else ReturnCode.EOK
        for ledger_id in range(12)
        for entry_id in (1, 2)
    }


class IndexWithoutPage(IndexFiles):
    """Cannot read pages of ledger 5."""

    def load_page(self, ledger_id: int, page_no: int) -> array[int]:
        if ledger_id == 5:
            raise OSError(errno.EIO, "a disk fails")
        return super().load_page(ledger_id, page_no)


class StorageWithoutPage(LedgerStorage):
    """Has such an index."""

    def __init__(
        self, files: Files, directories: Sequence[Path], _index: IndexStore, **options: Any
    ) -> None:
        super().__init__(files, directories, IndexWithoutPage(files, directories), **options)


def test_adds_to_many_ledgers_ask_for_a_checkpoint_before_each_has_a_page(tmp_path: Path) -> None:
    serving = Serving(tmp_path, db=True, storage_limits=StorageLimits(dirty_pages_max=40))
    client, added = serving.connect(), 0
    for entry_id in range(SLOTS_MAX):
        if not serving.storage.needs_checkpoint:
            client.send(in_turn(client, [entry_id], ledgers=60))
            added += 60
    assert 20 * SLOTS_MAX <= added < 20 * SLOTS_MAX + 60
    assert not any(state.pages for state in serving.storage.hot.values())


@pytest.mark.parametrize("protocol", list(ProtocolVersion))
def test_a_page_of_the_index_that_cannot_be_read_refuses_the_adds_of_its_ledger_alone(
    tmp_path: Path, protocol: ProtocolVersion
) -> None:
    client = Serving(tmp_path).connect(protocol)
    client.send(in_turn(client, [0]))
    client._serving.flush()
    client._serving.storage.close()
    client._serving.close()

    serving = Serving(tmp_path, storage_class=StorageWithoutPage)
    client = serving.connect(protocol)
    for ledger_id in range(12):
        assert client.ask(ReadRequest(LedgerId(ledger_id), EntryId(0))).rc is ReturnCode.EOK
    client.send(in_turn(client, range(1, 10)))
    codes = {(answer.ledger_id, answer.entry_id): answer.rc for answer in client.answers()}
    assert codes == {
        (ledger_id, entry_id): ReturnCode.EIO if ledger_id == 5 else ReturnCode.EOK
        for ledger_id in range(12)
        for entry_id in range(1, 10)
    }
    serving.storage.adds.write_out()
    serving.storage.close()
    log = max(tmp_path.rglob("*.log"))
    (usage,) = read_usage(RealFiles(), log, int(log.stem, 16))
    assert usage is not None
    assert 5 not in usage.ledgers


class FailingJournal(Journal):
    """Takes no records while it ``fails``."""

    fails = False

    def append(self, records: Buffer, done: object, **options: Any) -> None:
        if self.fails:
            raise ValueError("a bug")
        super().append(records, done, **options)


@pytest.mark.parametrize("protocol", list(ProtocolVersion))
@pytest.mark.parametrize("failing", [0, 1])
def test_a_bug_between_two_journals_leaves_nothing_counted_wrong(
    tmp_path: Path, protocol: ProtocolVersion, failing: int
) -> None:
    serving = Serving(tmp_path, journals=2, journal_class=FailingJournal)
    client = serving.connect(protocol)
    client.send(in_turn(client, [0]))
    client.receive()
    serving.syncs = False
    journal = serving.journals[failing]
    assert isinstance(journal, FailingJournal)
    journal.fails = True
    client.send(in_turn(client, [1]))
    backpressure = serving.server.backpressure
    assert client.is_closed
    assert backpressure.adds_in_flight == (6 if failing else 0)
    serving.sync()
    assert (backpressure.adds_in_flight, backpressure.in_flight_bytes) == (0, 0)


def test_adds_that_are_all_alike_are_taken_by_columns(client: Client) -> None:
    adds = client._serving.server.shared.fast_adds
    frames = [frame_of(client._protocol, e, txn_id=e) for e in range(128, 128 + ROWS)]
    client.send(b"".join(frames[:-1]))
    assert made_rows(adds) is None
    client.send(b"".join(frames))
    assert made_rows(adds) is not None
    sent = [*range(128, 127 + ROWS), *range(128, 128 + ROWS)]
    assert [answer.entry_id for answer in client.answers()] == sent


def test_adds_of_many_sizes_are_each_looked_into_once(v3_client: Client) -> None:
    adds = v3_client._serving.server.shared.fast_adds
    frames = [
        encode(add_of_size(e, 40 + e % 50), ProtocolVersion.V3, 300 + e, 0)
        for e in range(128, 1000)
    ]
    v3_client.send(b"".join(frames))
    assert taken(v3_client) == len(frames)
    assert [answer.entry_id for answer in v3_client.answers()] == list(range(128, 1000))
    known = set(adds._shapes.values())
    assert len(known) == 50
    v3_client.send(b"".join(frames))
    assert set(adds._shapes.values()) == known


def test_no_more_than_so_many_shapes_are_kept(v3_client: Client) -> None:
    adds = v3_client._serving.server.shared.fast_adds
    frames = [
        encode(add_of_size(e, 40 + e), ProtocolVersion.V3, 300 + e, 0) for e in range(1, 1100)
    ]
    v3_client.send(b"".join(frames))
    assert taken(v3_client) == len(frames)
    assert len(adds._shapes) <= 256
    assert len(adds._alike) <= 1024


def test_adds_to_ledgers_in_turn_are_looked_into_once_for_each_ledger(v3_client: Client) -> None:
    adds = v3_client._serving.server.shared.fast_adds
    for ledger_id in (6, 7):
        v3_client.send(frame_of(ProtocolVersion.V3, 0, ledger_id))
    v3_client.receive()
    taken(v3_client)
    v3_client.send(b"".join(frame_of(ProtocolVersion.V3, 1, ledger_id) for ledger_id in (5, 6, 7)))
    known = set(adds._alike.values())
    for entry_id in range(2, 10):
        frames = [frame_of(ProtocolVersion.V3, entry_id, ledger_id) for ledger_id in (5, 6, 7)]
        v3_client.send(b"".join(frames))
    assert taken(v3_client) == 27
    assert set(adds._alike.values()) == known


def test_a_frame_with_all_of_a_known_add_but_its_transaction_id_is_no_add(
    v3_client: Client,
) -> None:
    v3_client.send(frame_of(ProtocolVersion.V3, 0, 6))
    known = [frame_of(ProtocolVersion.V3, 1, ledger_id, txn_id=300) for ledger_id in (5, 6)]
    v3_client.send(b"".join(known))
    v3_client.receive()
    frame = bytearray(frame_of(ProtocolVersion.V3, 2, 5, txn_id=300))
    frame[11:13] = b"\x01\x01"  # Two bytes, but the first of them is a complete number.
    v3_client.send(bytes(frame))
    assert v3_client.is_closed


def test_a_frame_with_all_of_a_known_add_but_its_entry_id_is_no_add(v3_client: Client) -> None:
    v3_client.send(frame_of(ProtocolVersion.V3, 299, 5))
    v3_client.receive()
    frame = frame_of(ProtocolVersion.V3, 300, 5)
    assert frame.count(b"\x10\xac\x02\x1a") == 1
    v3_client.send(frame.replace(b"\x10\xac\x02\x1a", b"\x10\x01\x01\x1a"))
    assert v3_client.is_closed


def test_an_add_that_differs_from_a_known_one_in_its_key_is_refused(client: Client) -> None:
    client.send(frame_of(client._protocol, 1))
    client.receive()
    wrong = [frame_of(client._protocol, e, key=WRONG_KEY) for e in (2, 3)]
    other = client._serving.connect(client._protocol)
    other.send(wrong[0])
    assert [answer.rc for answer in other.answers()] == [ReturnCode.EUA]
    client.send(frame_of(client._protocol, 4) + wrong[1] + frame_of(client._protocol, 5))
    answers = {answer.entry_id: answer.rc for answer in client.answers()}
    assert answers == {4: ReturnCode.EOK, 3: ReturnCode.EUA, 5: ReturnCode.EOK}


def add_of_size(entry_id: int, size_bytes: int) -> AddRequest:
    body = packet(5, entry_id, payload=b"z" * size_bytes)
    return AddRequest(LedgerId(5), EntryId(entry_id), KEY, body)


def recovery_frame(entry_id: int, ledger_id: int = 5, payload: bytes = b"x" * 90) -> bytes:
    body = packet(ledger_id, entry_id, payload=payload)
    request = AddRequest(LedgerId(ledger_id), EntryId(entry_id), KEY, body, AddFlag.RECOVERY)
    return v3.encode_request(request, entry_id)


@pytest.fixture
def v3_client(tmp_path: Path) -> Client:
    client = serve(tmp_path, CountingAdds, 1).connect(ProtocolVersion.V3)
    client.send(frame_of(ProtocolVersion.V3, 0))
    client.receive()
    return client


def test_adds_of_a_recovery_are_taken_in_one_go_also_where_the_ledger_is_fenced(
    v3_client: Client,
) -> None:
    v3_client.request(ReadRequest(LedgerId(5), EntryId(-1), ReadFlag.FENCE, KEY))
    v3_client.answers()
    sizes = {e: b"y" * (50 + e // 100) for e in range(1, 1000)}
    v3_client.send(b"".join(recovery_frame(e, payload=sizes[e]) for e in sizes))
    assert taken(v3_client) == 999
    assert [answer.entry_id for answer in v3_client.answers()] == list(sizes)
    for entry_id in (1, 99, 100, 999):
        v3_client.request(ReadRequest(LedgerId(5), EntryId(entry_id)))
        (answer,) = v3_client.answers()
        assert answer.entry == packet(5, entry_id, payload=sizes[entry_id])


def test_a_plain_add_among_those_of_a_recovery_is_refused_where_the_ledger_is_fenced(
    v3_client: Client,
) -> None:
    v3_client.request(ReadRequest(LedgerId(5), EntryId(-1), ReadFlag.FENCE, KEY))
    v3_client.answers()
    plain = frame_of(ProtocolVersion.V3, 3, txn_id=3)
    v3_client.send(recovery_frame(1) + recovery_frame(2) + plain + recovery_frame(4))
    assert taken(v3_client) == 3
    codes = {answer.entry_id: answer.rc for answer in v3_client.answers()}
    assert codes == {
        1: ReturnCode.EOK,
        2: ReturnCode.EOK,
        3: ReturnCode.EFENCED,
        4: ReturnCode.EOK,
    }


@pytest.mark.parametrize("end", [b"\xa0\x06\x02", b"\xa0\x06\x00", b"\x28\x81\x00"])
def test_an_add_that_ends_almost_as_those_of_a_recovery_is_none(
    v3_client: Client, end: bytes
) -> None:
    v3_client.request(ReadRequest(LedgerId(5), EntryId(-1), ReadFlag.FENCE, KEY))
    v3_client.answers()
    almost = recovery_frame(2).removesuffix(v3.RECOVERY_END) + end
    v3_client.send(recovery_frame(1) + almost + recovery_frame(3))
    codes = {answer.entry_id: answer.rc for answer in v3_client.answers()}
    assert codes == {1: ReturnCode.EOK, 2: ReturnCode.EFENCED, 3: ReturnCode.EOK}


def test_adds_of_a_recovery_are_counted_apart(v3_client: Client) -> None:
    stats = v3_client._serving.bookie.stats
    recovered, plain = stats.bookie_recovery_add.success, stats.bookie_add.success
    plain.fold()
    before = plain.count
    frames = [recovery_frame(e) for e in range(1, 9)]
    v3_client.send(b"".join([*frames, frame_of(ProtocolVersion.V3, 9), recovery_frame(10)]))
    assert taken(v3_client) == 10
    recovered.fold()
    plain.fold()
    assert (recovered.count, plain.count - before) == (9, 1)


def test_plain_reads_are_taken_in_one_go(client: Client) -> None:
    client.send(b"".join(frame_of(client._protocol, e) for e in range(1, 300)))
    client.receive()
    wanted = [*range(299, 0, -1), -1]
    frames = b"".join(
        encode(ReadRequest(LedgerId(5), EntryId(e)), client._protocol, 7 + e, 0) for e in wanted
    )
    reads = client._serving.server.shared.fast_reads
    taken = reads.take(frames, 0, lambda _ledger_id: False, AnswerLimits(1 << 20, 1000))
    assert (taken.end, taken.reads) == (len(frames), len(wanted))
    client.connection.transport.write(b"".join(taken.answers))  # type: ignore[union-attr]
    read = client.answers()
    assert [answer.entry_id for answer in read] == wanted
    assert read[0].entry == read[-1].entry == packet(5, 299, payload=b"x" * 90)
    if client._protocol is ProtocolVersion.V3:
        assert read[0].max_lac == 298


def test_the_last_entry_is_not_known_where_the_index_is_in_doubt(client: Client) -> None:
    state = client._serving.storages.of(5).ledgers.lookup(5)
    assert state is not None
    assert client.ask(ReadRequest(LedgerId(5), EntryId(-1))).rc is ReturnCode.EOK
    state.doubt = IndexTruncatedError(Path("5.idx"), 1100, "ends within page 0")
    assert client.ask(ReadRequest(LedgerId(5), EntryId(-1))).rc is ReturnCode.EIO
    assert client.ask(ReadRequest(LedgerId(5), EntryId(0))).rc is ReturnCode.EOK


def test_a_read_that_must_wait_for_another_is_left(client: Client) -> None:
    frame = encode(ReadRequest(LedgerId(5), EntryId(0)), client._protocol, 7, 0)
    reads = client._serving.server.shared.fast_reads
    taken = reads.take(frame, 0, lambda _ledger_id: True, AnswerLimits(1 << 20, 1000))
    assert (taken.end, taken.answers, taken.reads) == (0, [], 0)


def test_reads_stop_where_enough_was_answered(client: Client) -> None:
    frame = encode(ReadRequest(LedgerId(5), EntryId(0)), client._protocol, 7, 0)
    reads = client._serving.server.shared.fast_reads
    few = reads.take(frame * 10, 0, lambda _ledger_id: False, AnswerLimits(300, 1000))
    assert 0 < few.end < 10 * len(frame)
    seven = reads.take(frame * 10, 0, lambda _ledger_id: False, AnswerLimits(1 << 20, 7))
    assert (seven.end, seven.reads) == (7 * len(frame), 7)


@pytest.mark.parametrize("protocol", list(ProtocolVersion))
def test_ledgers_that_are_not_in_memory_are_loaded_together_and_no_more_than_may_be(
    tmp_path: Path, protocol: ProtocolVersion
) -> None:
    first = Serving(tmp_path)
    client = first.connect()
    for entry_id, ledger_id in product(range(2), range(10, 20)):
        request = AddRequest(
            LedgerId(ledger_id), EntryId(entry_id), KEY, packet(ledger_id, entry_id)
        )
        client.send(v2.encode_request(request))
    first.flush()
    first.close()
    serving = Serving(tmp_path)
    asked = [10, 10, 11, 999, *range(12, 20)]  # There is no ledger 999.
    frames = b"".join(
        encode(ReadRequest(LedgerId(ledger_id), EntryId(0)), protocol, 7, 0) for ledger_id in asked
    )
    reads, hot = serving.server.shared.fast_reads, serving.storage.hot
    assert not hot
    taken = reads.take(frames, 0, lambda _ledger_id: False, AnswerLimits(1 << 20, 1000, 5))
    assert (taken.loads, set(hot)) == (5, {10, 11, 12, 13, 14})
    # V3 answers have the LAC, which is the last entry's.
    is_v3 = protocol is ProtocolVersion.V3
    assert {(state.lac, state.lac_is_unread) for state in hot.values()} == {
        (0, False) if is_v3 else (-1, True)
    }
    client = serving.connect(protocol)
    client.send(frames)
    answers = {(answer.ledger_id, answer.rc, answer.max_lac) for answer in client.answers()}
    missing = {(999, ReturnCode.ENOLEDGER, None)}
    assert answers == missing | {
        (one, ReturnCode.EOK, 0 if is_v3 else None) for one in asked if one != 999
    }


def test_a_ledger_that_v2_reads_have_loaded_gets_its_lac_with_the_first_v3_read(
    tmp_path: Path,
) -> None:
    first = Serving(tmp_path)
    for entry_id in range(3):
        request = AddRequest(LedgerId(10), EntryId(entry_id), KEY, packet(10, entry_id))
        first.connect().send(v2.encode_request(request))
    first.flush()
    first.close()
    serving = Serving(tmp_path)
    reads, most = serving.server.shared.fast_reads, AnswerLimits(1 << 20, 1000, 5)
    v2_frame, v3_frame = (
        encode(ReadRequest(LedgerId(10), EntryId(0)), protocol, 7, 0)
        for protocol in (ProtocolVersion.V2, ProtocolVersion.V3)
    )
    assert reads.take(v2_frame, 0, lambda _ledger_id: False, most).loads == 1
    assert serving.storage.hot[10].lac_is_unread
    assert not reads.take(v3_frame, 0, lambda _ledger_id: False, most._replace(loads=0)).end
    assert reads.take(v3_frame, 0, lambda _ledger_id: False, most).loads == 1
    assert serving.storage.hot[10].lac == 1
    assert reads.take(v3_frame, 0, lambda _ledger_id: False, most).loads == 0


def test_a_ledger_that_v2_reads_have_loaded_takes_its_first_add_on_the_plain_path(
    tmp_path: Path,
) -> None:
    """That looks at the last entry, which may show that the index is out of date."""
    first = serve(tmp_path, CountingAdds, 1)
    first.connect().send(b"".join(frame_of(ProtocolVersion.V2, e, 10) for e in range(3)))
    first.flush()
    first.close()
    client = serve(tmp_path, CountingAdds, 1).connect(ProtocolVersion.V2)
    assert client.ask(ReadRequest(LedgerId(10), EntryId(0))).rc is ReturnCode.EOK
    state = client._serving.storage.hot[10]
    assert (state.lac_is_unread, taken(client)) == (True, 0)
    client.send(frame_of(ProtocolVersion.V2, 3, 10) + frame_of(ProtocolVersion.V2, 4, 10))
    assert (state.lac_is_unread, taken(client)) == (False, 1)
    assert [answer.entry_id for answer in client.answers()] == [3, 4]


def test_reads_of_ledgers_that_are_not_here_are_refused_in_one_go(client: Client) -> None:
    asked = [1 << power for power in range(10, 63)]
    requests = [ReadRequest(LedgerId(one), EntryId(-(one % 3))) for one in asked]
    frames = b"".join(encode(one, client._protocol, 7, 0) for one in requests)
    reads, stats = client._serving.server.shared.fast_reads, client._serving.bookie.stats
    taken = reads.take(frames, 0, lambda _ledger_id: False, AnswerLimits(1 << 20, 1000, 16))
    assert (taken.reads, taken.refused, taken.loads) == (len(asked), len(asked), 0)
    assert taken.end == len(frames)
    client.connection.transport.write(b"".join(taken.answers))  # type: ignore[union-attr]
    answers = [(one.ledger_id, one.entry_id, one.rc, one.max_lac) for one in client.answers()]
    missing = ReturnCode.ENOLEDGER
    assert answers == [(one.ledger_id, one.entry_id, missing, None) for one in requests]
    refused = stats.requests[READ].failure
    refused.fold()
    assert refused.count == len(asked)
    waits = reads.take(frames, 0, lambda _ledger_id: True, AnswerLimits(1 << 20, 1000, 16))
    assert (waits.reads, waits.end) == (0, 0)


def made_rows(adds: FastAdds) -> object:
    return adds._rows or (adds._shape and adds._shape._rows)


def test_ledgers_of_another_journal_come_with_the_next_go(client: Client) -> None:
    frames = [frame_of(client._protocol, e, ledger) for e in (1, 2) for ledger in (5, 6, 7, 6)]
    client.send(b"".join(frames))
    assert taken(client) == 8
    assert len(client.answers()) == 8


@pytest.mark.parametrize("protocol", list(ProtocolVersion))
def test_ledgers_of_another_storage_come_with_the_next_go(
    tmp_path: Path, protocol: ProtocolVersion
) -> None:
    client = serve(tmp_path, CountingAdds, journals=1, storages=2).connect(protocol)
    for ledger_id in (5, 6, 7):
        client.send(frame_of(protocol, 0, ledger_id))
    client.answers()
    client.send(b"".join(frame_of(protocol, e, at) for e in (1, 2) for at in (5, 6, 7, 6)))
    assert taken(client) == 8
    assert len(client.answers()) == 8
    held = {number: sorted(storage.hot) for number, storage in enumerate(client._serving.storages)}
    assert held == {0: [6], 1: [5, 7]}


def test_the_first_add_after_a_start_is_left_to_the_plain_path(client: Client) -> None:
    client.send(frame_of(client._protocol, 0, 9))
    assert taken(client) == 0
    client.send(frame_of(client._protocol, 1, 9))
    assert taken(client) == 1


def test_a_ledger_whose_key_is_not_journalled_is_left_to_the_plain_path(client: Client) -> None:
    """Replay would take the ledger for a deleted one, and drop its entries."""
    state = client._serving.storages.of(5).ledgers.lookup(5)
    assert state is not None
    state.master_key = bytes(20)  # As a rebuilt index leaves it.
    assert client._serving.storages.of(5).ledgers.adopt_key(state, KEY)
    client.send(frame_of(client._protocol, 1))
    assert taken(client) == 0
    assert state.key_logged
    client.send(frame_of(client._protocol, 2))
    assert taken(client) == 1


@pytest.mark.parametrize("writes", [Writes.NONE, Writes.HIGH_PRIORITY])
def test_a_read_only_bookie_takes_nothing_in_the_loop(client: Client, writes: Writes) -> None:
    client._serving.bookie.adds.allowed = writes
    client.send(frame_of(client._protocol, 1))
    assert taken(client) == 0


def test_readers_see_entries_when_they_are_told_of_them(client: Client) -> None:
    reader = client._serving.connect(ProtocolVersion.V3)
    reader.request(
        ReadRequest(LedgerId(5), EntryId(-1), ReadFlag.PIGGYBACK, None, 0, timeout_ms=1000)
    )
    client.send(b"".join(frame_of(client._protocol, e) for e in range(1, 4)))
    assert taken(client) == 3
    client._serving.clock.advance(0)
    (answer,) = reader.answers()
    assert (answer.entry_id, answer.max_lac) == (1, 2)
    assert answer.entry == packet(5, 1, payload=b"x" * 90)
