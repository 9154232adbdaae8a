"""The rules a bookie follows, row by row of wire.md sections 7 to 10 and 15."""

from __future__ import annotations

import struct
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from bookied.errors import NoWritableDirError
from bookied.server.reads.reads_from_disk import PART_REQUEST_BYTES, PART_REQUESTS
from bookied.server.rules.add_requests import Writes
from bookied.server.rules.deleted_ledgers import REMEMBERED_S
from bookied.server.rules.entry_and_batch_reads import BYTES_AT_ONCE, ENTRIES_AT_ONCE
from bookied.server.rules.read_requests import PAGES_AT_ONCE
from bookied.server.rules.request_rules import ReadLimits
from bookied.storage.files.files import AppendFile, RealFiles
from bookied.storage.index.format import ENTRY_ID_MAX, HEADER_BYTES
from bookied.storage.index.ledger_pages import CachedLedger
from bookied.storage.journal import format as journal_format
from bookied.storage.journal.reader import journal_ids, open_scan
from bookied.storage.ledger_storage.reads import StoredEntryReads
from bookied.storage.ledger_storage.storage import LedgerStorage
from bookied.storage.ledger_storage.storage_limits import StorageLimits
from tests.bookied.worlds.served_bookie import KEY, WRONG_KEY, Client, Serving, packet
from wire.codes import AddFlag, BookieInfoFlag, ProtocolVersion, ReadFlag, ReturnCode
from wire.errors import UnknownLedgerStateError
from wire.frames.v2 import encode_request
from wire.ids import NO_ENTRY, EntryId, LedgerId
from wire.messages import (
    AddRequest,
    AuthRequest,
    BatchReadRequest,
    BatchReadResponse,
    BookieInfoRequest,
    BookieInfoResponse,
    ForceLedgerRequest,
    ListEntriesRequest,
    ReadLacRequest,
    ReadRequest,
    ReadResponse,
    Request,
    StartTlsRequest,
    WriteLacRequest,
)
from wire.records.entry_list import decode_entry_list

V2, V3 = ProtocolVersion.V2, ProtocolVersion.V3
FENCE, RECOVERY, PRIORITY = ReadFlag.FENCE, AddFlag.RECOVERY, AddFlag.HIGH_PRIORITY
EOK, ENOLEDGER, ENOENTRY = ReturnCode.EOK, ReturnCode.ENOLEDGER, ReturnCode.ENOENTRY
EUA, EFENCED, EREADONLY = ReturnCode.EUA, ReturnCode.EFENCED, ReturnCode.EREADONLY
EBADREQ, EIO = ReturnCode.EBADREQ, ReturnCode.EIO
DAY_S = 24 * 3600.0


def add(
    ledger_id: int,
    entry_id: int,
    *,
    key: bytes = KEY,
    flags: AddFlag = AddFlag.NONE,
    lac: int | None = None,
    payload: bytes = b"hello",
) -> AddRequest:
    body = packet(ledger_id, entry_id, lac, payload)
    return AddRequest(LedgerId(ledger_id), EntryId(entry_id), key, body, flags)


def read(ledger_id: int, entry_id: int, flags: ReadFlag = ReadFlag.NONE) -> ReadRequest:
    return ReadRequest(LedgerId(ledger_id), EntryId(entry_id), flags)


def fence(ledger_id: int, entry_id: int = NO_ENTRY, key: bytes | None = KEY) -> ReadRequest:
    return ReadRequest(LedgerId(ledger_id), EntryId(entry_id), FENCE, key)


def write_lac(ledger_id: int, lac: int, *, key: bytes = KEY, size: int = 20) -> WriteLacRequest:
    body = struct.pack(">qqi", ledger_id, lac, 7)[:size].ljust(size, b"d")
    return WriteLacRequest(LedgerId(ledger_id), lac, key, body)


def poll(
    ledger_id: int,
    previous_lac: int,
    *,
    timeout_ms: int | None = 1000,
    entry_id: int = NO_ENTRY,
    piggyback: bool = True,
) -> ReadRequest:
    flags = ReadFlag.PIGGYBACK if piggyback else ReadFlag.NONE
    ids = LedgerId(ledger_id), EntryId(entry_id)
    return ReadRequest(*ids, flags, None, previous_lac, timeout_ms)


def batch(
    ledger_id: int, entry_id: int, *, count: int = 0, size: int = 1 << 20, **rest: Any
) -> BatchReadRequest:
    ids = LedgerId(ledger_id), EntryId(entry_id)
    return BatchReadRequest(*ids, 77, count, size, **rest)


@pytest.fixture
def serving(tmp_path: Path) -> Serving:
    return Serving(tmp_path)


@pytest.fixture(params=[V2, V3], ids=["V2", "V3"])
def client(serving: Serving, request: pytest.FixtureRequest) -> Client:
    return serving.connect(request.param)


@pytest.fixture
def v2(serving: Serving) -> Client:
    return serving.connect(V2)


@pytest.fixture
def v3(serving: Serving) -> Client:
    return serving.connect(V3)


# Adds ------------------------------------------------------------------------------------------


def test_an_add_to_an_unknown_ledger_creates_it(client: Client) -> None:
    assert client.ask(read(5, 0)).rc is ENOLEDGER
    assert client.ask(add(5, 0)).rc is EOK
    assert client.ask(read(5, 0)).entry == packet(5, 0)


def test_the_same_entry_may_be_added_again(client: Client) -> None:
    for _ in range(3):
        assert client.ask(add(5, 0)).rc is EOK


def test_an_add_with_another_key_is_refused(client: Client) -> None:
    client.ask(add(5, 0))
    assert client.ask(add(5, 1, key=WRONG_KEY)).rc is EUA
    assert client.ask(add(5, 1, key=WRONG_KEY, flags=RECOVERY)).rc is EUA
    assert client.ask(read(5, 1)).rc is ENOENTRY


def test_the_key_is_still_compared_after_a_restart(tmp_path: Path, client: Client) -> None:
    client.ask(add(5, 0))
    client._serving.flush()
    again = Serving(tmp_path).connect(client._protocol)
    assert again.ask(add(5, 1, key=WRONG_KEY)).rc is EUA
    assert again.ask(fence(5, key=WRONG_KEY)).rc is EUA
    assert again.ask(add(5, 1)).rc is EOK


def test_the_packet_decides_what_is_stored_and_the_fields_are_echoed(v3: Client) -> None:
    answer = v3.ask(AddRequest(LedgerId(999), EntryId(9), KEY, packet(5, 3)))
    assert (answer.rc, answer.ledger_id, answer.entry_id) == (EOK, 999, 9)
    assert v3.ask(read(5, 3)).entry == packet(5, 3)
    assert v3.ask(read(999, 9)).rc is ENOLEDGER


@pytest.mark.parametrize(
    ("ledger_id", "entry_id"), [(5, -1), (5, -0x2000), (-1, 0), (5, ENTRY_ID_MAX + 1)]
)
def test_ids_that_no_journal_could_hold_are_refused(
    client: Client, ledger_id: int, entry_id: int
) -> None:
    assert client.ask(add(ledger_id, entry_id)).rc is EBADREQ
    assert client.ask(read(max(ledger_id, 0), 0)).rc is ENOLEDGER


def test_a_key_that_no_index_header_could_hold_is_refused(v3: Client) -> None:
    assert v3.ask(add(5, 0, key=b"k" * 5000)).rc is EBADREQ
    assert v3.ask(add(5, 0, key=b"any length")).rc is EOK


def test_a_key_lost_by_a_rebuilt_index_comes_back_with_the_first_writer(
    serving: Serving, client: Client
) -> None:
    serving.storage.ledgers.create(5, b"")
    assert client.ask(add(5, 0)).rc is EOK
    assert client.ask(add(5, 1, key=WRONG_KEY)).rc is EUA


def test_an_add_without_a_writable_directory_fails_and_the_bookie_goes_on(
    serving: Serving, client: Client
) -> None:
    directories = serving.storage.directories

    def nowhere() -> Path:
        raise NoWritableDirError("there is none")

    directories.choose = nowhere  # type: ignore[method-assign]
    assert client.ask(add(5, 0)).rc is EIO
    del directories.choose  # type: ignore[method-assign]
    assert client.ask(add(5, 0)).rc is EOK


def test_an_add_is_answered_once_the_journal_has_it(serving: Serving, client: Client) -> None:
    serving.syncs = False
    client.request(add(5, 0))
    client.request(add(5, 1))
    assert client.answers() == []
    serving.sync()
    assert [answer.entry_id for answer in client.answers()] == [0, 1]


def test_a_read_may_overtake_the_add_it_reads(serving: Serving, client: Client) -> None:
    serving.syncs = False
    client.request(add(5, 0))
    assert client.ask(read(5, 0)).entry == packet(5, 0)


# Fencing ---------------------------------------------------------------------------------------


def test_fencing_an_unknown_ledger_creates_it_fenced(client: Client) -> None:
    assert client.ask(fence(5)).rc is ENOENTRY
    assert client.ask(read(5, 0)).rc is ENOENTRY
    assert client.ask(add(5, 0)).rc is EFENCED
    assert client.ask(add(5, 0, flags=RECOVERY)).rc is EOK
    assert client.ask(add(5, 1, flags=RECOVERY | PRIORITY)).rc is EOK
    assert client.ask(fence(5)).entry == packet(5, 1)


def test_fencing_needs_the_key(client: Client) -> None:
    client.ask(add(5, 0))
    assert client.ask(fence(5, key=WRONG_KEY)).rc is EUA
    assert client.ask(add(5, 1)).rc is EOK


def test_a_fencing_read_without_any_key_is_refused(v3: Client) -> None:
    v3.ask(add(5, 0))
    assert v3.ask(fence(5, key=None)).rc is EUA
    assert v3.ask(add(5, 1)).rc is EOK


@pytest.mark.parametrize("entry_id", [0, 7], ids=["found", "missing"])
def test_no_answer_to_a_fence_before_it_is_durable(
    serving: Serving, client: Client, entry_id: int
) -> None:
    client.ask(add(5, 0))
    serving.syncs = False
    client.request(fence(5, entry_id))
    assert client.answers() == []
    serving.sync()
    (answer,) = client.answers()
    assert answer.rc is (EOK if entry_id == 0 else ENOENTRY)


def test_a_second_fence_waits_for_the_first(serving: Serving, client: Client) -> None:
    client.ask(add(5, 0))
    serving.syncs = False
    other = serving.connect(V2)
    client.request(fence(5))
    other.request(fence(5))
    assert client.answers() == other.answers() == []
    serving.sync()
    assert [a.rc for a in (*client.answers(), *other.answers())] == [EOK, EOK]


def test_adds_are_refused_from_the_moment_a_fence_arrives(serving: Serving, client: Client) -> None:
    client.ask(add(5, 0))
    serving.syncs = False
    client.request(fence(5))
    assert client.ask(add(5, 1)).rc is EFENCED
    serving.sync()
    assert client.answers()[0].entry == packet(5, 0)


def test_a_fence_needs_no_second_record(serving: Serving, client: Client) -> None:
    client.ask(fence(5))
    serving.syncs = False
    assert client.ask(fence(5)).rc is ENOENTRY


def journal_records(serving: Serving) -> list[tuple[int, int]]:
    files, directory = RealFiles(), serving.journals[0].directory
    return [
        (record.ledger_id, record.entry_id)
        for journal_id in journal_ids(files, directory)
        for record in open_scan(files, directory / journal_format.file_name(journal_id))
    ]


def test_the_key_is_journalled_before_the_fence_of_an_unknown_ledger(
    serving: Serving, client: Client
) -> None:
    client.ask(fence(5))
    client.ask(add(5, 0, flags=RECOVERY))
    kinds = [journal_format.LEDGER_KEY, journal_format.FENCE, 0]
    assert journal_records(serving) == [(5, kind) for kind in kinds]


def test_a_fence_outlives_a_restart(tmp_path: Path, client: Client) -> None:
    client.ask(add(5, 0))
    client.ask(fence(5))
    client._serving.flush()
    again = Serving(tmp_path).connect(client._protocol)
    assert again.ask(add(5, 1)).rc is EFENCED
    assert again.ask(fence(5)).rc is EOK


@pytest.mark.parametrize("flags", [AddFlag.NONE, RECOVERY])
def test_nobody_writes_to_a_ledger_that_was_fenced_and_deleted(
    serving: Serving, client: Client, flags: AddFlag
) -> None:
    client.ask(fence(5))
    serving.bookie.ledger_deleted(LedgerId(5), was_fenced=True)
    serving.storage.ledgers.delete(5)
    assert client.ask(add(5, 0, flags=flags)).rc is EFENCED
    assert client.ask(fence(5)).rc is ENOLEDGER
    assert client.ask(read(5, 0)).rc is ENOLEDGER
    serving.clock.advance(REMEMBERED_S - DAY_S)
    assert client.ask(add(5, 0, flags=flags)).rc is EFENCED
    serving.clock.advance(2 * DAY_S)
    assert client.ask(add(5, 0, flags=flags)).rc is EOK


def test_a_fenced_ledger_that_is_deleted_for_its_excess_may_be_copied_here_again(
    serving: Serving, client: Client
) -> None:
    client.ask(fence(5))
    serving.bookie.ledger_deleted(LedgerId(5), was_fenced=True, lives_on=True)
    serving.storage.ledgers.delete(5)
    assert client.ask(add(5, 0)).rc is EFENCED
    assert client.ask(read(5, 0)).rc is ENOLEDGER
    before = len(journal_records(serving))
    assert client.ask(add(5, 0, flags=RECOVERY)).rc is EOK
    assert client.ask(add(5, 1, flags=RECOVERY)).rc is EOK
    kinds = [journal_format.LEDGER_KEY, journal_format.FENCE, 0, 1]
    assert journal_records(serving)[before:] == [(5, kind) for kind in kinds]
    assert client.ask(read(5, 1)).entry == packet(5, 1)
    assert client.ask(fence(5, 1)).entry == packet(5, 1)
    serving.clock.advance(REMEMBERED_S + DAY_S)
    assert client.ask(add(5, 2)).rc is EFENCED


def test_who_fences_a_ledger_that_is_deleted_for_its_excess_fences_it_again(
    serving: Serving, client: Client
) -> None:
    client.ask(fence(5))
    serving.bookie.ledger_deleted(LedgerId(5), was_fenced=True, lives_on=True)
    serving.storage.ledgers.delete(5)
    assert client.ask(fence(5)).rc is ENOENTRY
    serving.clock.advance(REMEMBERED_S + DAY_S)
    assert client.ask(add(5, 0)).rc is EFENCED


@pytest.mark.parametrize("protocol", [V2, V3])
def test_a_ledger_that_is_deleted_while_its_fence_is_on_its_way_is_fenced_again(
    tmp_path: Path, protocol: ProtocolVersion
) -> None:
    """The record on its way is of the ledger that is gone; a replay would drop it."""
    serving = Serving(tmp_path, syncs=False)
    client = serving.connect(protocol)
    client.request(fence(5))
    serving.bookie.ledger_deleted(LedgerId(5), was_fenced=True, lives_on=True)
    serving.storage.ledgers.delete(5)
    client.request(add(5, 0, flags=RECOVERY))
    client.request(add(5, 1))
    serving.sync()
    assert sorted(one.rc for one in client.answers()) == [EOK, EOK, EFENCED]
    kinds = [journal_format.FENCE, journal_format.LEDGER_KEY, journal_format.FENCE, 0]
    assert [kind for _, kind in journal_records(serving)][1:] == kinds


def test_an_explicit_lac_of_a_fenced_and_deleted_ledger_is_refused(
    serving: Serving, v3: Client
) -> None:
    v3.ask(fence(5))
    serving.bookie.ledger_deleted(LedgerId(5), was_fenced=True)
    serving.storage.ledgers.delete(5)
    assert v3.ask(write_lac(5, 0)).rc is ENOLEDGER


def test_a_ledger_deleted_without_a_fence_may_come_back(serving: Serving, client: Client) -> None:
    client.ask(add(5, 0))
    serving.bookie.ledger_deleted(LedgerId(5), was_fenced=False)
    serving.storage.ledgers.delete(5)
    assert client.ask(add(5, 1, key=WRONG_KEY)).rc is EOK
    assert client.ask(read(5, 0)).rc is ENOENTRY


# Reads -----------------------------------------------------------------------------------------


def test_what_is_not_there_is_told_apart(client: Client) -> None:
    client.ask(add(5, 0))
    assert client.ask(read(6, 0)).rc is ENOLEDGER
    assert client.ask(read(6, NO_ENTRY)).rc is ENOLEDGER
    assert client.ask(read(5, 1)).rc is ENOENTRY
    assert client.ask(read(5, -2)).rc is EBADREQ


def test_a_read_of_minus_one_gives_the_highest_entry_and_echoes_minus_one(client: Client) -> None:
    for entry_id in (0, 3000, 7):
        client.ask(add(5, entry_id))
    answer = client.ask(read(5, NO_ENTRY))
    assert (answer.entry_id, answer.entry) == (NO_ENTRY, packet(5, 3000))


def test_only_v3_tells_the_highest_lac(serving: Serving, v2: Client, v3: Client) -> None:
    v2.ask(add(5, 9, lac=8))
    v2.ask(add(5, 3, lac=2))
    assert v2.ask(read(5, 3)).max_lac is None
    assert v3.ask(read(5, 3)).max_lac == 8
    v3.ask(write_lac(5, 20))
    v3.ask(write_lac(5, 1))
    assert v3.ask(read(5, 3)).max_lac == 20
    assert v3.ask(read(5, 4)).max_lac is None
    assert v3.ask(fence(5, 3)).max_lac is None


def started_again(directory: Path, serving: Serving) -> Serving:
    serving.flush()
    serving.close()
    return Serving(directory, is_cold=False)


@pytest.mark.parametrize("begins", [read(5, 3), batch(5, 0)], ids=["read", "batch"])
def test_the_highest_lac_is_known_after_reads_that_did_not_ask_for_it(
    tmp_path: Path, serving: Serving, begins: Request
) -> None:
    for entry_id in range(10):
        serving.connect(V2).ask(add(5, entry_id, lac=entry_id - 1))
    serving = started_again(tmp_path, serving)
    v2, v3 = serving.connect(V2), serving.connect(V3)
    assert v2.ask(begins).rc is EOK
    assert v3.ask(read(5, 3)).max_lac == 8
    assert v3.ask(read(5, 3)).max_lac == 8


def test_an_add_after_a_read_that_did_not_ask_for_the_lac_keeps_it(
    tmp_path: Path, serving: Serving
) -> None:
    for entry_id in range(10):
        serving.connect(V2).ask(add(5, entry_id, lac=entry_id - 1))
    serving = started_again(tmp_path, serving)
    v2, v3 = serving.connect(V2), serving.connect(V3)
    assert v2.ask(read(5, 3)).rc is EOK
    assert v2.ask(add(5, 10, lac=3)).rc is EOK
    assert v3.ask(read(5, 3)).max_lac == 8


@pytest.mark.parametrize("absent", [20, 5000])
def test_of_an_index_with_a_wrong_last_location_nothing_is_said_to_be_absent(
    tmp_path: Path, serving: Serving, absent: int
) -> None:
    for entry_id in range(10):
        serving.connect(V2).ask(add(5, entry_id))
    serving.flush()
    serving.close()
    (index,) = tmp_path.rglob("5.idx")
    data = bytearray(index.read_bytes())
    data[HEADER_BYTES + 72 : HEADER_BYTES + 80] = data[HEADER_BYTES + 24 : HEADER_BYTES + 32]
    index.write_bytes(data)
    v2 = Serving(tmp_path).connect(V2)
    assert v2.ask(read(5, 3)).entry == packet(5, 3)
    assert v2.ask(read(5, absent)).rc is EIO
    assert v2.ask(batch(5, absent)).rc is EIO


class LimboReads(StoredEntryReads):
    """Reads of a storage that may have lost entries and says so (DbLedgerStorage does)."""

    def read_memory(self, state: CachedLedger, entry_id: int) -> bytes:
        raise UnknownLedgerStateError(f"entry {entry_id} of ledger {state.ledger_id}")


class LimboStorage(LedgerStorage):
    reads_class = LimboReads


def test_limbo_is_told_in_v3_and_never_in_v2(tmp_path: Path) -> None:
    serving = Serving(tmp_path, storage_class=LimboStorage)
    v2, v3 = serving.connect(V2), serving.connect(V3)
    v2.ask(add(5, 0))
    v2.request(read(5, 0))
    assert struct.unpack_from(">i", v2.receive(), 8) == (101,)
    answer = v3.ask(read(5, 0))
    assert (answer.rc, answer.entry) == (ReturnCode.EUNKNOWNLEDGERSTATE, None)


def test_entries_are_read_from_files_as_from_memory(tmp_path: Path) -> None:
    serving = Serving(tmp_path, storage_limits=StorageLimits(cache_bytes=0))
    v2, v3 = serving.connect(V2), serving.connect(V3)
    for entry_id in range(3):
        v2.ask(add(5, entry_id))
    serving.flush()
    assert v2.ask(read(5, 1)).entry == packet(5, 1)
    answer = v3.ask(read(5, NO_ENTRY))
    assert (answer.entry, answer.max_lac) == (packet(5, 2), 1)
    assert v2.ask(fence(5, 0)).entry == packet(5, 0)


def test_damage_on_disk_is_told_as_eio(tmp_path: Path) -> None:
    serving = Serving(tmp_path, storage_limits=StorageLimits(cache_bytes=0))
    client = serving.connect(V3)
    client.ask(add(5, 0))
    serving.flush()
    for log in tmp_path.rglob("*.log"):
        log.write_bytes(log.read_bytes()[:1024] + bytes(4096))
    answer = client.ask(read(5, 0))
    assert (answer.rc, answer.entry) == (EIO, None)


# Read-only -------------------------------------------------------------------------------------


@pytest.mark.parametrize("writes", [Writes.NONE, Writes.HIGH_PRIORITY])
def test_a_read_only_bookie_takes_no_ordinary_writes(
    serving: Serving, client: Client, writes: Writes
) -> None:
    client.ask(add(5, 0))
    serving.bookie.adds.allowed = writes
    assert client.ask(add(5, 1)).rc is EREADONLY
    assert client.ask(add(5, 1, flags=RECOVERY)).rc is EREADONLY
    assert client.ask(add(5, 1, key=WRONG_KEY)).rc is EREADONLY
    urgent = client.ask(add(5, 1, flags=PRIORITY))
    assert urgent.rc is (EOK if writes is Writes.HIGH_PRIORITY else EREADONLY)


def test_a_read_only_bookie_reads_and_fences(serving: Serving, v3: Client) -> None:
    v3.ask(add(5, 0))
    serving.bookie.adds.allowed = Writes.NONE
    assert v3.ask(write_lac(5, 0)).rc is EREADONLY
    assert v3.ask(read(5, 0)).rc is EOK
    assert v3.ask(fence(5, 0)).rc is EOK
    assert v3.ask(fence(6)).rc is ENOENTRY
    assert v3.ask(ForceLedgerRequest(LedgerId(5))).rc is EOK
    assert v3.ask(ReadLacRequest(LedgerId(5))).rc is EOK
    assert v3.ask(ListEntriesRequest(LedgerId(5))).rc is EOK
    assert v3.ask(BookieInfoRequest(BookieInfoFlag.NONE)).rc is EOK


# Explicit LAC ----------------------------------------------------------------------------------


def test_an_explicit_lac_is_kept_verbatim_once_durable(serving: Serving, v3: Client) -> None:
    serving.syncs = False
    v3.request(write_lac(5, 3))
    assert v3.answers() == []
    serving.sync()
    assert v3.answers()[0].rc is EOK
    answer = v3.ask(ReadLacRequest(LedgerId(5)))
    assert (answer.rc, answer.lac_body, answer.last_entry) == (EOK, write_lac(5, 3).body, None)


def test_the_key_is_journalled_before_the_explicit_lac_of_an_unknown_ledger(
    serving: Serving, v3: Client
) -> None:
    v3.ask(write_lac(5, 3))
    kinds = [journal_format.LEDGER_KEY, journal_format.EXPLICIT_LAC]
    assert journal_records(serving) == [(5, kind) for kind in kinds]


@pytest.mark.parametrize("version", [4, 5])
def test_an_explicit_lac_stays_out_of_journals_too_old_for_it(tmp_path: Path, version: int) -> None:
    serving = Serving(tmp_path, journal_version=version)
    v3 = serving.connect(V3)
    assert [v3.ask(write_lac(5, lac)).rc for lac in (3, 4)] == [EOK, EOK]
    assert v3.ask(ReadLacRequest(LedgerId(5))).lac_body == write_lac(5, 4).body
    assert journal_records(serving) == [(5, journal_format.LEDGER_KEY)]
    serving.close()


def test_a_lower_explicit_lac_replaces_a_higher_one(v3: Client) -> None:
    v3.ask(add(5, 0))
    v3.ask(write_lac(5, 3))
    v3.ask(write_lac(5, 1))
    answer = v3.ask(ReadLacRequest(LedgerId(5)))
    assert (answer.lac_body, answer.last_entry) == (write_lac(5, 1).body, packet(5, 0))


def test_an_explicit_lac_is_refused_for_its_key_and_its_size_but_not_for_a_fence(
    v3: Client,
) -> None:
    v3.ask(fence(5))
    assert v3.ask(write_lac(5, 1, key=WRONG_KEY)).rc is EUA
    assert v3.ask(write_lac(5, 1, size=15)).rc is EBADREQ
    assert v3.ask(write_lac(5, 1, size=2000)).rc is EBADREQ
    assert v3.ask(write_lac(-5, 1)).rc is EBADREQ
    assert v3.ask(write_lac(5, 1, size=16)).rc is EOK


def test_the_lac_of_a_ledger_without_any_is_no_entry(v3: Client) -> None:
    v3.ask(fence(5))
    assert v3.ask(ReadLacRequest(LedgerId(5))).rc is ENOENTRY
    assert v3.ask(ReadLacRequest(LedgerId(6))).rc is ENOENTRY


def test_a_last_entry_that_cannot_be_read_is_not_passed_over_in_silence(tmp_path: Path) -> None:
    serving = Serving(tmp_path, storage_limits=StorageLimits(cache_bytes=0))
    v3 = serving.connect(V3)
    v3.ask(add(5, 0))
    v3.ask(write_lac(5, 0))
    serving.flush()
    for log in tmp_path.rglob("*.log"):
        log.unlink()
    assert v3.ask(ReadLacRequest(LedgerId(5))).rc is EIO


# Long poll -------------------------------------------------------------------------------------


def test_a_poll_of_an_unknown_ledger_ends_at_once(v3: Client) -> None:
    assert v3.ask(poll(5, -1)).rc is ENOLEDGER
    assert v3.ask(poll(5, -1, timeout_ms=None)).rc is ENOLEDGER


def test_a_poll_that_is_behind_gets_the_next_entry_at_once(v3: Client) -> None:
    for entry_id in range(4):
        v3.ask(add(5, entry_id))
    answer = v3.ask(poll(5, 0))
    assert answer == ReadResponse(EOK, LedgerId(5), EntryId(1), packet(5, 1), 2)


def test_the_next_entry_may_be_on_another_bookie(v3: Client) -> None:
    v3.ask(add(5, 3, lac=2))
    assert v3.ask(poll(5, 0)) == ReadResponse(EOK, LedgerId(5), NO_ENTRY, None, 2)


def test_a_poll_for_an_entry_of_other_bookies_is_no_failure_where_only_the_disk_knows(
    tmp_path: Path,
) -> None:
    """Where no page is kept, the disk tells that the entry was striped to others."""
    limits = StorageLimits(clean_pages_max=0, read_pages_bytes_max=0)
    serving = Serving(tmp_path, storage_limits=limits)
    v3 = serving.connect(V3)
    v3.ask(add(5, 0))
    v3.ask(add(5, 3, lac=2))
    serving.flush()
    assert v3.ask(poll(5, 0)) == ReadResponse(EOK, LedgerId(5), NO_ENTRY, None, 2)


def test_a_poll_without_time_to_wait_answers_what_there_is(v3: Client) -> None:
    v3.ask(add(5, 0))
    answer = v3.ask(poll(5, 50, timeout_ms=None))
    assert answer == ReadResponse(EOK, LedgerId(5), NO_ENTRY, None, -1)


def test_a_poll_waits_its_time(serving: Serving, v3: Client) -> None:
    v3.ask(add(5, 0))
    v3.request(poll(5, 0, timeout_ms=200))
    serving.clock.advance(0.199)
    assert v3.answers() == []
    serving.clock.advance(0.002)
    assert v3.answers() == [ReadResponse(EOK, LedgerId(5), NO_ENTRY, None, -1)]


@pytest.mark.parametrize("wake", ["add", "fast add", "explicit LAC"])
def test_a_poll_is_woken_by_the_lac(serving: Serving, v3: Client, wake: str) -> None:
    reader = serving.connect(V3)
    for entry_id in range(2):
        v3.ask(add(5, entry_id, lac=-1))
    reader.request(poll(5, 0))
    v3.ask(add(5, 2, lac=0))
    assert reader.answers() == []
    serving.clock.advance(0.25)
    if wake == "explicit LAC":
        v3.ask(write_lac(5, 1))
    else:
        flags = RECOVERY if wake == "add" else AddFlag.NONE
        v3.ask(add(5, 3, lac=1, flags=flags))
    moved_ms = int(serving.clock.seconds() * 1000)
    serving.clock.advance(0)
    assert reader.answers() == [
        ReadResponse(EOK, LedgerId(5), EntryId(1), packet(5, 1, lac=-1), 1, moved_ms)
    ]
    assert serving.clock.getDelayedCalls() == []


def test_a_poll_is_woken_by_the_fence_but_does_not_end_for_being_fenced(
    serving: Serving, v3: Client
) -> None:
    reader = serving.connect(V3)
    v3.ask(add(5, 0))
    reader.request(poll(5, 0))
    v3.ask(fence(5))
    serving.clock.advance(0)
    without = ReadResponse(EOK, LedgerId(5), NO_ENTRY, None, -1)
    assert reader.answers() == [without]
    reader.request(poll(5, 0))
    v3.ask(fence(5))
    serving.clock.advance(0)
    assert reader.answers() == []
    serving.clock.advance(1.0)
    assert reader.answers() == [without]


def test_a_poll_without_piggyback_reads_what_it_asked_for(serving: Serving, v3: Client) -> None:
    v3.ask(add(5, 0))
    v3.request(poll(5, 0, entry_id=0, piggyback=False))
    serving.clock.advance(1.0)
    assert v3.answers() == [ReadResponse(EOK, LedgerId(5), EntryId(0), packet(5, 0), -1)]
    assert v3.ask(poll(5, -2, entry_id=9, piggyback=False)).rc is ENOENTRY


def test_a_poll_may_not_choose_the_entry_to_piggyback(v3: Client) -> None:
    v3.ask(add(5, 0))
    assert v3.ask(poll(5, 9, entry_id=0)).rc is EBADREQ


def test_other_requests_overtake_a_poll(serving: Serving, v3: Client) -> None:
    v3.ask(add(5, 0))
    v3.request(poll(5, 0))
    assert v3.ask(read(5, 0)).entry == packet(5, 0)
    assert v3.ask(add(6, 0)).rc is EOK


def test_polls_beyond_the_limit_are_refused(tmp_path: Path) -> None:
    serving = Serving(tmp_path, read_limits=ReadLimits(polls_max=2))
    v3 = serving.connect(V3)
    v3.ask(add(5, 0))
    v3.request(poll(5, 0))
    v3.request(poll(5, 0))
    assert v3.ask(poll(5, 0)).rc is ReturnCode.ETOOMANYREQUESTS
    v3.disconnect()
    assert len(serving.bookie.polls) == 0
    assert serving.clock.getDelayedCalls() == []


# Deferred sync ---------------------------------------------------------------------------------


def test_force_answers_once_all_before_it_is_durable(serving: Serving, v3: Client) -> None:
    serving.syncs = False
    v3.request(add(5, 0, flags=AddFlag.DEFERRED_SYNC))
    v3.request(ForceLedgerRequest(LedgerId(5)))
    assert v3.answers() == []
    serving.sync()
    assert [answer.rc for answer in v3.answers()] == [EOK, EOK]


def test_force_of_an_unknown_ledger_is_fine(v3: Client) -> None:
    assert v3.ask(ForceLedgerRequest(LedgerId(5))).rc is EOK
    assert v3.ask(read(5, 0)).rc is ENOLEDGER


class SyncedFile:
    """An append file that asks before it syncs."""

    def __init__(self, file: AppendFile, before_sync: Callable[[], object]) -> None:
        self._file, self._before_sync = file, before_sync

    def sync(self) -> None:
        self._before_sync()
        self._file.sync()

    def __getattr__(self, name: str) -> Any:
        return getattr(self._file, name)


class SyncedFiles(RealFiles):
    before_sync: Callable[[], object] = staticmethod(lambda: None)

    def open_append(self, path: Path, **how: Any) -> Any:
        return SyncedFile(super().open_append(path, **how), self._ask)

    def _ask(self) -> None:
        self.before_sync()


@pytest.mark.parametrize(
    ("flags", "expected"),
    [
        (AddFlag.NONE, [False]),
        (AddFlag.DEFERRED_SYNC, [True]),
        (AddFlag.DEFERRED_SYNC | RECOVERY, [False]),
    ],
)
def test_only_deferred_adds_are_answered_before_the_sync(
    tmp_path: Path, flags: AddFlag, expected: list[bool]
) -> None:
    files = SyncedFiles()
    v3 = Serving(tmp_path, journal_files=files).connect(V3)
    v3.ask(add(5, 0))
    answered_before_sync = []
    files.before_sync = lambda: answered_before_sync.append(len(v3.transport.value()) > 0)
    v3.request(add(5, 1, flags=flags))
    assert answered_before_sync == expected
    assert v3.answers()[0].rc is EOK


# Batch read ------------------------------------------------------------------------------------


def packets_of(answer: BatchReadResponse) -> list[int]:
    return [struct.unpack_from(">q", entry, 8)[0] for entry in answer.entries]


@pytest.fixture(params=["memory", "files", "page cache"])
def batches(tmp_path: Path, request: pytest.FixtureRequest) -> Client:
    """A client of a bookie with 136-byte packets 0 to 5, 7 and 8 of ledger 5."""
    limits = None if request.param == "memory" else StorageLimits(cache_bytes=0)
    serving = Serving(
        tmp_path,
        storage_limits=limits,
        read_limits=ReadLimits(batch_bytes_max=2000),
        is_cold=request.param == "files",
    )
    client = serving.connect(V2)
    for entry_id in (*range(6), 7, 8):
        client.ask(add(5, entry_id, payload=b"x" * 100))
    serving.flush()
    return client


@pytest.mark.parametrize(
    ("asked", "given"),
    [
        (batch(5, 0, count=3), [0, 1, 2]),
        (batch(5, 0, size=316), [0, 1]),
        (batch(5, 0, size=315), [0]),
        (batch(5, 0, size=0), [0]),
        (batch(5, 0, size=-5), [0]),
        (batch(5, 3), [3, 4, 5]),
        (batch(5, 3, count=-1), [3, 4, 5]),
        (batch(5, 7), [7, 8]),
        (batch(5, NO_ENTRY), [8]),
        (batch(5, 0, stride=2), [0, 2, 4]),
        (batch(5, 1, stride=2), [1, 3, 5, 7]),
        (batch(5, 1, stride=2, count=2), [1, 3]),
        (batch(5, 1, stride=3), [1, 4, 7]),
        (batch(5, 0, stride=7), [0, 7]),
        (batch(5, 0, stride=255), [0]),
        (batch(5, 0, stride=3, size=316), [0, 3]),
        (batch(5, NO_ENTRY, stride=3), [8]),
    ],
)
def test_a_batch_ends_with_its_limit_or_the_first_hole(
    batches: Client, asked: BatchReadRequest, given: list[int]
) -> None:
    answer = batches.ask(asked)
    assert (answer.rc, answer.request_id, answer.entry_id) == (EOK, 77, asked.entry_id)
    assert answer.stride == asked.stride
    assert packets_of(answer) == given


def test_a_batch_is_bounded_by_the_bookies_own_limit(tmp_path: Path) -> None:
    serving = Serving(tmp_path, read_limits=ReadLimits(batch_bytes_max=36 + 2 * (4 + 136)))
    client = serving.connect(V2)
    for entry_id in range(5):
        client.ask(add(5, entry_id, payload=b"x" * 100))
    assert packets_of(client.ask(batch(5, 1))) == [1, 2]


def test_later_entries_of_a_batch_may_be_larger_than_the_first(tmp_path: Path) -> None:
    for cache_bytes in (1 << 20, 0):
        limits = StorageLimits(cache_bytes=cache_bytes)
        serving = Serving(tmp_path / str(cache_bytes), storage_limits=limits)
        client = serving.connect(V2)
        for entry_id, size in enumerate((10, 10, 500, 10)):
            client.ask(add(5, entry_id, payload=b"x" * size))
        serving.flush()
        assert packets_of(client.ask(batch(5, 0, size=400))) == [0, 1]


@pytest.mark.parametrize("cache_bytes", [0, 20_000, 1 << 20])
@pytest.mark.parametrize("is_cold", [False, True])
def test_a_batch_is_the_entries_that_single_reads_give(
    tmp_path: Path, cache_bytes: int, *, is_cold: bool
) -> None:
    limits = StorageLimits(cache_bytes=cache_bytes)
    serving = Serving(tmp_path, storage_limits=limits, is_cold=is_cold)
    client = serving.connect(V2)
    for entry_id in range(1100):
        client.ask(add(5, entry_id, payload=b"x" * (entry_id * 37 % 300)))
        client.ask(add(6, entry_id, payload=b"y" * (1 + entry_id % 5 * 50)))
        if entry_id in {300, 700}:
            serving.flush()
    singly = [client.ask(read(5, entry_id)).entry for entry_id in range(1100)]
    for first, count in ((0, 2000), (299, 20), (690, 400), (1000, 50), (1099, 2)):
        answer = client.ask(batch(5, first, count=count, size=1 << 20))
        assert list(answer.entries) == singly[first : first + count]
    for first, stride in ((0, 3), (1, 3), (2, 5), (299, 255)):
        answer = client.ask(batch(5, first, stride=stride))
        assert list(answer.entries) == singly[first::stride]


@pytest.mark.parametrize("is_cold", [False, True])
def test_a_stripe_of_a_ledger_whose_other_entries_are_elsewhere(
    tmp_path: Path, *, is_cold: bool
) -> None:
    limits = StorageLimits(cache_bytes=0)
    serving = Serving(tmp_path, storage_limits=limits, is_cold=is_cold)
    client = serving.connect(V2)
    held = [entry_id for entry_id in range(1200) if entry_id % 3 != 1]  # Of E3 Qw2, a third lacks.
    for entry_id in held:
        client.ask(add(5, entry_id, payload=b"x" * 200))
    serving.flush()
    assert packets_of(client.ask(batch(5, 0, stride=3))) == held[::2]
    assert packets_of(client.ask(batch(5, 2, stride=3))) == held[1::2]
    assert packets_of(client.ask(batch(5, 2))) == [2, 3]


def test_a_batch_from_the_disk_takes_a_fetch_for_many_entries(tmp_path: Path) -> None:
    serving = Serving(tmp_path, storage_limits=StorageLimits(cache_bytes=0), fetches=False)
    client = serving.connect(V2)
    for entry_id in range(200):
        client.ask(add(5, entry_id, payload=b"x" * 1000))
    serving.flush()
    client.request(batch(5, 0))
    assert _fetches(serving, client) == 2
    (answer,) = client.answers()
    assert packets_of(answer) == list(range(200))


def test_a_stripe_from_the_disk_takes_a_fetch_for_many_entries(tmp_path: Path) -> None:
    serving = Serving(tmp_path, storage_limits=StorageLimits(cache_bytes=0), fetches=False)
    client = serving.connect(V2)
    for entry_id in range(200):
        client.ask(add(5, entry_id, payload=b"x" * 1000))
    serving.flush()
    client.request(batch(5, 0, stride=3))
    assert _fetches(serving, client) == 2
    (answer,) = client.answers()
    assert packets_of(answer) == list(range(0, 200, 3))


def test_a_batch_of_500_small_entries_in_memory_is_answered_at_once(
    tmp_path: Path,
) -> None:
    serving = Serving(tmp_path)
    client = serving.connect(V2)
    client.send(b"".join(encode_request(add(5, entry_id)) for entry_id in range(500)))
    client.receive()
    client.connection.dataReceived(encode_request(batch(5, 0)))
    (answer,) = client.answers()
    assert packets_of(answer) == list(range(500))


def test_a_batch_of_very_many_entries_in_memory_lets_others_have_their_turn(
    tmp_path: Path,
) -> None:
    serving = Serving(tmp_path)
    client, other = serving.connect(V2), serving.connect(V2)
    entries = 5 * ENTRIES_AT_ONCE // 2
    adds = [add(5, entry_id, payload=b"") for entry_id in range(entries)]
    client.send(b"".join(map(encode_request, adds)))
    client.receive()
    client.connection.dataReceived(encode_request(batch(5, 0)))
    turns = 0
    while not client.transport.value():
        other.connection.dataReceived(encode_request(ReadRequest(LedgerId(5), EntryId(0))))
        assert len(other.answers()) == 1
        serving.take_turn()
        turns += 1
    assert turns == 2 * PART_REQUESTS + 1, "turns without a part follow each of the first two"
    (answer,) = client.answers()
    assert packets_of(answer) == list(range(entries))


@pytest.mark.parametrize("is_in_file", [False, True])
def test_a_part_of_a_batch_is_bounded_in_bytes_and_adds_are_taken_before_the_next(
    tmp_path: Path,
    is_in_file: bool,  # noqa: FBT001
) -> None:
    limits = StorageLimits(cache_bytes=0 if is_in_file else 1 << 30)
    serving = Serving(tmp_path, storage_limits=limits, is_cold=False)
    client, writer = serving.connect(V2), serving.connect(V2)
    payload_bytes, entries = BYTES_AT_ONCE // 4, 20
    for entry_id in range(entries):
        client.ask(add(5, entry_id, payload=b"x" * payload_bytes))
    if is_in_file:
        serving.flush()
        client.ask(ReadRequest(LedgerId(5), EntryId(0)))  # Opens the log.
    client.connection.dataReceived(encode_request(batch(5, 0, size=4 << 20)))
    adds = 0
    while not client.transport.value():
        writer.connection.dataReceived(encode_request(add(6, adds)))
        serving.sync()
        assert len(writer.answers()) == 1
        adds += 1
        serving.take_turn()
    part_bytes = 4 * payload_bytes
    turns_each = PART_REQUESTS + part_bytes // PART_REQUEST_BYTES
    # Of a part that the system just has not in its cache, a thread reads some; it counts as less.
    parts = entries // 4 - (2 if is_in_file else 1)
    assert adds >= parts * turns_each, "adds waited for more than one part"
    (answer,) = client.answers()
    assert packets_of(answer) == list(range(entries))


def test_a_client_that_leaves_between_two_parts_of_a_batch_has_no_further_turn(
    tmp_path: Path,
) -> None:
    serving = Serving(tmp_path)
    client, leaving = serving.connect(V2), serving.connect(V2)
    for entry_id in range(3 * ENTRIES_AT_ONCE):
        client.ask(add(5, entry_id, payload=b""))
    leaving.connection.dataReceived(encode_request(batch(5, 0)))
    assert len(serving.server.shared.turns) == 1
    leaving.disconnect()
    assert len(serving.server.shared.turns) == 0
    assert serving.server.backpressure.in_flight_bytes == 0
    assert serving.server.shared.pending_reads.count == 0


def test_a_client_that_leaves_in_the_middle_of_a_batch_leaves_nothing(tmp_path: Path) -> None:
    serving = Serving(tmp_path, storage_limits=StorageLimits(cache_bytes=0), fetches=False)
    client = serving.connect(V2)
    adds = [add(5, entry_id, payload=b"x" * 10_000) for entry_id in range(200)]
    client.send(b"".join(map(encode_request, adds)))
    client.receive()
    serving.flush()
    for fetches in range(3):
        leaving = serving.connect(V2)
        leaving.request(batch(5, 0, size=4 << 20))
        for _ in range(fetches):
            assert serving.fetch() == 1
        assert not leaving.transport.value(), "the batch is sent already"
        leaving.disconnect()
        while serving.fetch():
            pass
        assert not leaving.transport.value()
        assert serving.server.backpressure.in_flight_bytes == 0
        assert serving.server.shared.pending_reads.count == 0
    client.request(batch(5, 0, size=4 << 20))
    assert _fetches(serving, client) > 2
    (answer,) = client.answers()
    assert packets_of(answer) == list(range(200))


@pytest.mark.parametrize("db", [False, True])
def test_a_long_list_of_entries_is_made_in_parts_between_which_others_are_read(
    tmp_path: Path, *, db: bool
) -> None:
    serving = Serving(tmp_path, fetches=False, db=db, storage_limits=StorageLimits(cache_bytes=0))
    writer, lister, other = serving.connect(V2), serving.connect(V3), serving.connect(V2)
    held = [number * 1500 for number in range(3 * PAGES_AT_ONCE)]
    held += range(held[-1] + 2, held[-1] + 1000, 2)
    writer.send(b"".join(encode_request(add(5, entry_id)) for entry_id in held))
    writer.request(add(6, 0))
    serving.flush()
    for client in (lister, lister, other):
        client.request(ListEntriesRequest(LedgerId(5)) if client is lister else read(6, 0))
    serving.fetch()
    assert [answer.rc for answer in other.answers()] == [EOK]
    assert _fetches(serving, lister) >= 2
    while serving.fetch():
        pass
    first, second = lister.answers()
    assert list(decode_entry_list(first.availability)) == held
    assert first == second


def test_a_ledger_that_is_deleted_while_its_entries_are_listed_is_not_here(tmp_path: Path) -> None:
    serving = Serving(tmp_path, fetches=False)
    client = serving.connect(V3)
    for number in range(PAGES_AT_ONCE + 1):
        client.ask(add(5, number * 1500))
    client.request(ListEntriesRequest(LedgerId(5)))
    serving.fetch()
    serving.bookie.ledger_deleted(LedgerId(5), was_fenced=False)
    serving.storage.ledgers.delete(5)
    serving.fetch()
    assert [answer.rc for answer in client.answers()] == [ENOLEDGER]


def _fetches(serving: Serving, client: Client) -> int:
    """Fetch until there is an answer; return how often that was."""
    fetches = 0
    while not client.transport.value():
        fetches += serving.fetch()
    return fetches


def test_a_batch_that_cannot_begin_says_why(batches: Client) -> None:
    for asked, rc in [
        (batch(6, 0), ENOLEDGER),
        (batch(5, 6), ENOENTRY),
        (batch(5, -2), EBADREQ),
        (batch(5, 0, flags=FENCE, master_key=WRONG_KEY), EUA),
    ]:
        answer = batches.ask(asked)
        assert (answer.rc, answer.request_id, len(answer.entries)) == (rc, 77, 0)


def test_a_batch_may_fence(batches: Client) -> None:
    answer = batches.ask(batch(5, 0, count=1, flags=FENCE, master_key=KEY))
    assert packets_of(answer) == [0]
    assert batches.ask(add(5, 9)).rc is EFENCED


def test_an_unreadable_entry_ends_a_batch_unless_it_is_the_first(tmp_path: Path) -> None:
    serving = Serving(tmp_path, storage_limits=StorageLimits(cache_bytes=0))
    client = serving.connect(V2)
    for entry_id in range(4):
        client.ask(add(5, entry_id, payload=b"x" * 5000))
    serving.flush()
    (log,) = tmp_path.rglob("*.log")
    log.write_bytes(log.read_bytes()[:12_000])
    assert packets_of(client.ask(batch(5, 0))) == [0, 1]
    assert client.ask(batch(5, 2)).rc is EIO


# The rest --------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("requested", "sizes"),
    [(0, (None, None)), (1, (1000, None)), (2, (None, 400)), (3, (1000, 400))],
)
def test_bookie_info_gives_the_sizes_asked_for(
    v3: Client, requested: int, sizes: tuple[int | None, int | None]
) -> None:
    answer = v3.ask(BookieInfoRequest(BookieInfoFlag(requested)))
    assert answer == BookieInfoResponse(EOK, *sizes)


def test_bookie_info_fails_with_the_disk(tmp_path: Path) -> None:
    def disk_usage() -> tuple[int, int]:
        raise OSError(5, "Input/output error")

    serving = Serving(tmp_path, disk_usage=disk_usage)
    assert serving.connect(V3).ask(BookieInfoRequest(BookieInfoFlag(3))).rc is EIO


def test_entries_held_are_listed(serving: Serving, v3: Client) -> None:
    for entry_id in (0, 1, 2, 5, 3000):
        v3.ask(add(5, entry_id))
    answer = v3.ask(ListEntriesRequest(LedgerId(5)))
    assert answer.rc is EOK
    held = decode_entry_list(answer.availability)
    assert list(held) == [0, 1, 2, 5, 3000]
    assert v3.ask(ListEntriesRequest(LedgerId(6))).rc is ENOLEDGER


def test_authentication_is_answered_as_switched_off(client: Client) -> None:
    answer = client.ask(AuthRequest("sasl", b"token"))
    assert (answer.plugin, answer.payload) == ("AuthDisabledPlugin", b"")


def test_tls_is_refused_and_the_connection_goes_on(v3: Client) -> None:
    assert v3.ask(StartTlsRequest()).rc is EBADREQ
    assert v3.ask(add(5, 0)).rc is EOK
