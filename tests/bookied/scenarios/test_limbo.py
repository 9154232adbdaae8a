"""What a bookie answers about a ledger of which it may have lost entries (BP-46)."""

from __future__ import annotations

import struct
from pathlib import Path

import pytest

from bookied.storage.index.ledger_pages import NO_BLOCK, CachedLedger
from bookied.storage.ledger_storage.storage_limits import StorageLimits
from tests.bookied.worlds.served_bookie import KEY, Client, Serving, packet
from wire.codes import AddFlag, ProtocolVersion, ReadFlag, ReturnCode
from wire.ids import NO_ENTRY, EntryId, LedgerId
from wire.messages import (
    AddRequest,
    BatchReadRequest,
    ForceLedgerRequest,
    ListEntriesRequest,
    ReadLacRequest,
    ReadRequest,
    Request,
    WriteLacRequest,
)

V2, V3 = ProtocolVersion.V2, ProtocolVersion.V3
L = LedgerId(5)
EUNKNOWN = ReturnCode.EUNKNOWNLEDGERSTATE
V2_EIO = 101  # Java's V2 clients do not know 107 and drop the connection.


def add(entry_id: int, flags: AddFlag = AddFlag.NONE) -> AddRequest:
    return AddRequest(L, EntryId(entry_id), KEY, packet(L, entry_id), flags)


def read(entry_id: int, flags: ReadFlag = ReadFlag.NONE) -> ReadRequest:
    key = KEY if flags & ReadFlag.FENCE else None
    return ReadRequest(L, EntryId(entry_id), flags, key)


class Limbo:
    """Ledger 5 with entries 0 and 2, in limbo, in memory or on disk."""

    def __init__(self, directory: Path, *, on_disk: bool) -> None:
        self.serving = Serving(directory, storage_limits=StorageLimits(cache_bytes=0))
        self.v2, self.v3 = self.serving.connect(V2), self.serving.connect(V3)
        for entry_id in (0, 2):
            self.v3.ask(add(entry_id))
        if on_disk:
            self.serving.flush()
        self.state.limbo = True
        self.state.open_block = NO_BLOCK  # As with each change of the header.

    @property
    def state(self) -> CachedLedger:
        state = self.serving.storage.ledgers.lookup(L)
        assert state is not None
        return state


@pytest.fixture(params=[False, True], ids=["memory", "disk"])
def limbo(request: pytest.FixtureRequest, tmp_path: Path) -> Limbo:
    return Limbo(tmp_path, on_disk=request.param)


def v2_code(client: Client, request: Request) -> int:
    client.request(request)
    return int(struct.unpack_from(">i", client.receive(), 8)[0])


def test_entries_that_are_there_are_answered(limbo: Limbo) -> None:
    for client in (limbo.v2, limbo.v3):
        for entry_id in (0, 2):
            answer = client.ask(read(entry_id))
            assert (answer.rc, answer.entry) == (ReturnCode.EOK, packet(L, entry_id))
            assert answer.max_lac is None
    batch = BatchReadRequest(L, EntryId(0), 1, max_count=5, max_bytes=1000)
    assert tuple(limbo.v2.ask(batch).entries) == (packet(L, 0),)


@pytest.mark.parametrize("entry_id", [1, 3, NO_ENTRY])
def test_what_is_not_there_may_have_been(limbo: Limbo, entry_id: int) -> None:
    assert limbo.v3.ask(read(entry_id)).rc is EUNKNOWN
    assert v2_code(limbo.v2, read(entry_id)) == V2_EIO


@pytest.mark.parametrize(
    "request_",
    [
        ReadLacRequest(L),
        ListEntriesRequest(L),
        ReadRequest(L, EntryId(-1), ReadFlag.PIGGYBACK, None, 0, timeout_ms=1000),
        ReadRequest(L, EntryId(-1), ReadFlag.NONE, None, 0, timeout_ms=None),
    ],
    ids=["read lac", "list", "long poll", "poll"],
)
def test_nothing_is_said_about_where_the_ledger_ends(limbo: Limbo, request_: Request) -> None:
    assert limbo.v3.ask(request_).rc is EUNKNOWN


def test_ordinary_adds_are_refused_and_recovery_adds_taken(limbo: Limbo) -> None:
    # The hot path leaves such a ledger to the rules.
    assert limbo.v2.ask(add(3)).rc is ReturnCode.EUA
    assert limbo.v3.ask(add(3)).rc is ReturnCode.EUA
    for client in (limbo.v2, limbo.v3):
        assert client.ask(add(1, AddFlag.RECOVERY)).rc is ReturnCode.EOK
        assert client.ask(read(1)).entry == packet(L, 1)
    assert limbo.v3.ask(ForceLedgerRequest(L)).rc is ReturnCode.EOK
    lac = struct.pack(">qqi", L, 1, 0)
    assert limbo.v3.ask(WriteLacRequest(L, EntryId(1), KEY, lac)).rc is ReturnCode.EOK


def test_fencing_counts_and_is_then_certain(limbo: Limbo) -> None:
    answer = limbo.v3.ask(read(0, ReadFlag.FENCE))
    assert (answer.rc, answer.entry) == (ReturnCode.EOK, packet(L, 0))
    assert limbo.state.fenced
    assert limbo.v3.ask(read(NO_ENTRY, ReadFlag.FENCE)).rc is EUNKNOWN
    assert limbo.v3.ask(add(3)).rc is ReturnCode.EFENCED


def test_out_of_limbo_all_is_as_ever(limbo: Limbo) -> None:
    limbo.state.limbo = False
    assert limbo.v3.ask(read(1)).rc is ReturnCode.ENOENTRY
    assert limbo.v3.ask(read(NO_ENTRY)).entry == packet(L, 2)
    assert limbo.v3.ask(add(3)).rc is ReturnCode.EOK
