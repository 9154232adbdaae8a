"""A look at ZooKeeper sees what the store sees."""

from __future__ import annotations

from typing import Any

import attrs
import pytest
from hypothesis import given
from hypothesis import strategies as st

from bkclient.admin import cluster_operations
from bkclient.errors import IncorrectParameterError, MetadataStoreError
from bkclient.metadata import zk_paths
from bkclient.metadata.errors import (
    IncompatibleLayoutError,
    MetadataAccessError,
    NotInitializedError,
)
from bkclient.metadata.versions_and_watches import NEW
from bkclient.metadata.zk_uri import parse_uri
from bkclient.metadata.zookeeper_reader import open_metadata_reader
from bkclient.metadata.zookeeper_reader.read_session import ReadSession
from bkclient.metadata.zookeeper_reader.reader import ZooKeeperReader
from tests.bkclient.metadata.values import B1, B2, B3, closed, info, metadata
from tests.bkclient.metadata.zookeeper_reader.memory_server import (
    CTIME_MS,
    GET_DATA,
    NO_AUTH,
    Server,
)
from tests.bkclient.metadata.zookeeper_reader.store_and_server import ROOT, Both
from wire.ids import BookieId, LedgerId

LAYOUTS = ("flat", "hierarchical", "longhierarchical")


def look(server: Server, layout: str = "null") -> ZooKeeperReader:
    uri = parse_uri(f"zk+{layout}://host:1{ROOT}")
    return ZooKeeperReader(ReadSession(uri, timeout_s=10, connect=server.connect), uri)


def ids_of(found: ZooKeeperReader, after: int | None = None) -> list[int]:
    start = None if after is None else LedgerId(after)
    return [ledger_id for ids in found.ledger_ranges(start) for ledger_id in ids]


@given(
    layout=st.sampled_from(LAYOUTS),
    ids=st.sets(
        st.integers(0, 30) | st.integers(0, 2**31 - 2) | st.integers(2**31 - 3, 2**63 - 2),
        max_size=60,
    ),
    after=st.none() | st.integers(-1, 2**33),
)
def test_it_finds_the_ledgers_that_the_store_finds(
    layout: str, ids: set[int], after: int | None
) -> None:
    both = Both.of(layout)
    ids = {i for i in ids if layout != "flat" or i < 2**31 - 1}

    async def fill() -> list[int]:
        for ledger_id in ids:
            await both.store.create_ledger(LedgerId(ledger_id), metadata())
        return [i async for some in both.store.ledger_ranges(after=after) for i in some]

    stored = both.do(fill())
    assert stored == sorted(i for i in ids if after is None or i > after)
    assert ids_of(look(both.server()), after) == stored


def test_short_lists_of_names_are_asked_for_together() -> None:
    both = Both.of("longhierarchical")

    async def fill() -> None:
        for number in range(100):
            await both.store.create_ledger(LedgerId(number * 10**8), metadata())

    both.do(fill())
    server = both.server()
    assert len(ids_of(look(server))) == 100
    assert server.at_once_max == 16


def test_ledgers_come_with_their_metadata_and_those_that_are_gone_do_not() -> None:
    both = Both.of()

    async def fill() -> None:
        await both.store.create_ledger(LedgerId(1), metadata())
        await both.store.create_ledger(LedgerId(2), closed())
        await both.store.create_ledger(LedgerId(4), closed(last=-1, length=0))

    both.do(fill())
    server = both.server()
    server.nodes[f"{ROOT}/00/0000/L0004"] = b"damaged"
    found = [one for some in look(server).ledgers([*map(LedgerId, (4, 3, 2, 1))]) for one in some]
    assert [one.ledger_id for one in found] == [4, 2, 1]
    assert "ledger 4" in str(found[0].error)
    for one in found[1:]:
        stored = both.do(both.store.read_ledger(one.ledger_id)).value
        assert one.metadata == attrs.evolve(stored, ctime_ms=CTIME_MS)
        assert one.stored is not None
        assert one.stored.version == 3


def test_a_ledger_that_is_deleted_while_it_is_looked_for_is_left_out() -> None:
    both = Both.of()

    async def fill() -> None:
        for number in range(1, 1201):
            await both.store.create_ledger(LedgerId(number), metadata())

    both.do(fill())
    server = both.server()

    def delete_one(operation: int, path: str) -> None:
        if operation == GET_DATA and path.endswith("L0010"):
            server.nodes.pop(f"{ROOT}/00/0000/L1000", None)

    server.before = delete_one
    found = look(server)
    ids = [LedgerId(i) for i in ids_of(found)]
    assert len(ids) == 1200
    listed = [one.ledger_id for some in found.ledgers(ids) for one in some]
    assert listed == [i for i in range(1, 1201) if i != 1000]


def test_what_is_no_ledger_is_told_and_left_out() -> None:
    both = Both.of()
    both.do(both.store.create_ledger(LedgerId(7), metadata()))
    server = both.server()
    server.nodes |= {f"{ROOT}/00/0000/{name}": b"" for name in ("L00007", "Lx", "notes")}
    server.nodes |= {f"{ROOT}/00/notes": b"", f"{ROOT}/disableHealthCheck": b""}
    told: list[str] = []
    found = look(server)
    found.warn = told.append
    assert ids_of(found) == [7]
    assert sorted(told) == [
        f"ignored /00/0000/{name}: the node is not a ledger" for name in ("L00007", "Lx", "notes")
    ]


def test_it_sees_the_bookies_that_the_store_sees() -> None:
    both = Both.of()

    async def fill() -> Any:
        store = both.store
        await store.register(B1, info(B1), read_only=False)
        await store.register(B2, info(B2), read_only=True)
        for bookie in (B1, B3):
            await store.write_cookie(bookie, b"cookie", NEW)
        return await cluster_operations.list_bookies(attrs.make_class("Client", ["store"])(store))

    stored = both.do(fill())
    server = both.server()
    assert look(server).bookies() == stored
    # On its way from one list to the other, registered with nonsense, and no bookie at all:
    server.nodes[f"{ROOT}/available/{B2}"] = server.nodes[f"{ROOT}/available/readonly/{B2}"]
    server.nodes[f"{ROOT}/available/{B3}"] = b"\xff"
    server.nodes[f"{ROOT}/available/no bookie"] = b""
    server.nodes[f"{ROOT}/cookies/{'x' * 100_000}"] = b""
    told: list[str] = []
    found = look(server)
    found.warn = told.append
    assert [(one.bookie_id, one.state.value, one.info is None) for one in found.bookies()] == [
        (B1, "writable", False), (B2, "writable", False), (B3, "writable", True),
    ]  # fmt: skip
    assert told == [
        "ignored /available/no bookie: the name is not a bookie id",
        f"ignored /cookies/{'x' * 191}...: the name is not a bookie id",
    ]


def test_a_bookie_that_goes_while_it_is_looked_at_is_shown_as_it_was_listed() -> None:
    both = Both.of()
    both.do(both.store.register(B1, info(B1), read_only=False))
    server = both.server()

    def leave(operation: int, path: str) -> None:
        if operation == GET_DATA and path.endswith(B1):
            server.nodes.pop(f"{ROOT}/available/{B1}", None)

    server.before = leave
    (found,) = look(server).bookies()
    assert (found.bookie_id, found.state.value, found.info) == (BookieId(B1), "writable", None)


@pytest.mark.parametrize("note", [None, b"", b'{"reason": "tests"}'])
def test_it_sees_whether_autorecovery_is_off_and_what_was_said(note: bytes | None) -> None:
    server = Both.of().server()
    if note is not None:
        server.nodes[f"{ROOT}{zk_paths.REPLICATION_DISABLED}"] = note
    found = look(server)
    assert found.replication_note() == note
    assert found.instance_id() == server.nodes[f"{ROOT}{zk_paths.INSTANCE_ID}"].decode()
    asked = len(server.asked)
    found.bookies()
    found.replication_note()
    # Where the cluster is whole, three lists: nothing is asked twice.
    assert len(server.asked) == asked + 3


def test_the_first_question_sees_what_was_complete_before() -> None:
    server = Both.of().server()
    look(server).bookies()
    assert [operation for operation, _ in server.asked][:2] == [9, 4]


def test_a_cluster_that_is_not_there_or_another_one_is_told() -> None:
    with pytest.raises(NotInitializedError, match="no cluster here"):
        look(Server()).bookies()
    both = Both.of("flat")
    with pytest.raises(IncompatibleLayoutError, match="is flat, not hierarchical"):
        ids_of(look(both.server(), "hierarchical"))
    server = both.server()
    found = look(server)
    found.bookies()
    del server.nodes[ROOT]
    with pytest.raises(NotInitializedError, match="the cluster is gone"):
        ids_of(found)


def test_where_we_may_not_look_is_told_and_is_never_a_shorter_list() -> None:
    both = Both.of()
    both.do(both.store.create_ledger(LedgerId(7), metadata()))
    server = both.server()
    found = look(server)
    server.wrong = {f"{ROOT}/00/0000": NO_AUTH}
    with pytest.raises(MetadataAccessError, match="access denied"):
        ids_of(found)
    server.wrong = {f"{ROOT}/00/0000/L0007": NO_AUTH}
    ((ledger,),) = found.ledgers([LedgerId(7)])
    assert ledger.metadata is None
    assert "L0007: access denied" in str(ledger.error)


def test_an_error_of_the_server_is_never_a_shorter_list() -> None:
    both = Both.of()
    both.do(both.store.create_ledger(LedgerId(7), metadata()))
    server = both.server()
    found = look(server)
    assert ids_of(found) == [7]
    server.wrong = {f"{ROOT}/00/0000/L0007": -1}
    with pytest.raises(MetadataStoreError, match="answers with error -1"):
        list(found.ledgers([LedgerId(7)]))


def test_it_is_for_zookeeper_without_sasl_at_full_pace() -> None:
    uri, time_out = "zk+null://127.0.0.1:1/ledgers", {"session_timeout_s": 1.0}
    assert open_metadata_reader(uri, **time_out) is not None
    assert open_metadata_reader("sqlite:///x.db", **time_out) is None
    assert open_metadata_reader(uri, sasl_options={"mechanism": "DIGEST-MD5"}, **time_out) is None
    assert open_metadata_reader(uri, requests_per_s_max=10, **time_out) is None
    with pytest.raises(IncorrectParameterError):
        open_metadata_reader("zk://", **time_out)
