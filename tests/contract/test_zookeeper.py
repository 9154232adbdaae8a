"""What only a real ZooKeeper can show: broken connections, restarts, layouts, access rights."""

from __future__ import annotations

import itertools
import socket
import threading
import time
from contextlib import closing
from typing import Any

import pytest
from kazoo.security import READ_ACL_UNSAFE
from twisted.internet.defer import Deferred, gatherResults
from twisted.internet.threads import deferToThread

from bkclient.errors import LedgerExistsError
from bkclient.metadata import open_metadata, zk_paths
from bkclient.metadata.errors import (
    ClusterInUseError,
    IncompatibleLayoutError,
    MetadataAccessError,
    MetadataUnavailableError,
    NotInitializedError,
)
from bkclient.metadata.versions_and_watches import SessionEvent
from bkctl.cli.root import cli
from bkctl.commands.local.ports import free_port
from bkctl.commands.local.zookeeper import ZooKeeperProcess
from bkctl.exit_status import ExitStatus
from tests.bkclient.metadata.values import B1, B2, closed, info, metadata, start
from tests.bkctl.support.terminal import FakeHost
from tests.contract.metadata_drivers import ZooKeeperDriver
from tests.support import reactor
from tests.wire.vectors import load
from wire.ids import LedgerId

pytestmark = pytest.mark.interop

L1 = LedgerId(1)


async def all_ids(store: Any) -> list[int]:
    return [i async for ids in store.ledger_ranges() for i in ids]


def watch_count(server: ZooKeeperProcess) -> int:
    """Return how many watches the server keeps."""
    with socket.create_connection((server.host, server.port), timeout=5) as connection:
        connection.sendall(b"mntr")
        answer = b"".join(iter(lambda: connection.recv(4096), b"")).decode()
    return int(next(line for line in answer.splitlines() if "zk_watch_count" in line).split()[1])


def test_requests_go_no_faster_than_they_may(zk_driver: ZooKeeperDriver) -> None:
    async def scenario() -> float:
        store = await zk_driver.open(requests_per_s_max=20)
        await store.create_ledger(L1, metadata())
        began_s = time.monotonic()
        reads = [Deferred.fromCoroutine(store.read_ledger(L1)) for _ in range(60)]
        assert len(await gatherResults(reads)) == 60
        return time.monotonic() - began_s

    # A second's worth may have been saved.
    assert zk_driver.run(scenario()) > (60 - 20 - 2) / 20


class TestLostAnswers:
    """The server applies a write; the connection breaks before its answer arrives."""

    def test_a_creation_is_recognised_by_its_token(self, zk_driver: ZooKeeperDriver) -> None:
        async def scenario() -> None:
            store = await zk_driver.open()
            await store.create_ledger(LedgerId(0), metadata())  # So that the parents are there.
            zk_driver.proxy.lose_answer()
            assert await store.create_ledger(L1, metadata()) == 0
            assert zk_driver.proxy.lost == 1
            assert (await store.read_ledger(L1)).version == 0
            with pytest.raises(LedgerExistsError):
                await store.create_ledger(L1, metadata())

        zk_driver.run(scenario())

    def test_a_swap_is_left_to_the_caller(self, zk_driver: ZooKeeperDriver) -> None:
        async def scenario() -> None:
            store = await zk_driver.open()
            await store.create_ledger(L1, metadata())
            zk_driver.proxy.lose_answer()
            with pytest.raises(MetadataUnavailableError, match="127"):
                await store.write_ledger(L1, closed(), 0)
            found = await store.read_ledger(L1)
            assert (found.version, found.value.is_closed) == (1, True)

        zk_driver.run(scenario())

    def test_who_listens_hears_of_every_operation_and_which_had_no_answer(
        self, zk_driver: ZooKeeperDriver
    ) -> None:
        heard: list[tuple[str, bool]] = []

        def observe(name: str, took_s: float, is_answered: bool) -> None:  # noqa: FBT001
            assert 0 <= took_s < 60
            heard.append((name, is_answered))

        async def scenario() -> None:
            store = await zk_driver.open(observe=observe)
            await store.create_ledger(L1, metadata())
            with pytest.raises(LedgerExistsError):
                await store.create_ledger(L1, metadata())
            assert {is_answered for _, is_answered in heard} == {True}, "an error is an answer"
            zk_driver.proxy.lose_answer()
            with pytest.raises(MetadataUnavailableError):
                await store.write_ledger(L1, closed(), 0)
            assert ("set_data", False) in heard
            await store.read_ledger(L1)
            assert heard[-1] == ("get_data", True)

        zk_driver.run(scenario())

    def test_any_one_of_many_writes_may_lose_its_answer(self, zk_driver: ZooKeeperDriver) -> None:
        proxy = zk_driver.proxy

        async def scenario() -> None:
            store, other = await zk_driver.open(), await zk_driver.open()
            for after in itertools.count():
                ledger_id, name = LedgerId(after), f"log-{after}"
                await other.create_ledger(ledger_id, metadata())
                await other.create_log(name, b"record")
                lost_before = proxy.lost
                proxy.lose_answer(after=after)
                assert await store.acquire_lock(ledger_id)
                assert not await other.acquire_lock(ledger_id)
                await store.remove_log(name)
                await store.remove_ledger(ledger_id)
                await store.set_lost_bookie_recovery_delay(after)
                await store.release_lock(ledger_id)
                await store.register(B1, info(B1), read_only=after % 2 == 1)
                proxy.lose_answer(0)
                assert await other.list_logs() == []
                assert await all_ids(other) == []
                assert await other.lost_bookie_recovery_delay() == after
                assert await other.lock_owner(ledger_id) is None
                registered = await other.writable_bookies(), await other.read_only_bookies()
                assert registered == ((set(), {B1}) if after % 2 else ({B1}, set()))
                if proxy.lost == lost_before:
                    assert after > 5
                    return

        zk_driver.run(scenario())

    @pytest.mark.parametrize("count", [1, 2, 3])
    def test_what_may_be_repeated_is(self, zk_driver: ZooKeeperDriver, count: int) -> None:
        async def scenario() -> None:
            store, other = await zk_driver.open(), await zk_driver.open()
            zk_driver.proxy.lose_answer(count)
            await store.register(B1, info(B1), read_only=False)
            zk_driver.proxy.lose_answer(count)
            given = [await store.allocate_ledger_id() for _ in range(3)]
            assert given == sorted(set(given))
            zk_driver.proxy.lose_answer(count)
            await store.mark_underreplicated(L1, (B2,))
            zk_driver.proxy.lose_answer(count)
            assert await store.poll_underreplicated() == L1
            assert await other.poll_underreplicated() is None
            zk_driver.proxy.lose_answer(count)
            await store.mark_replicated(L1)
            assert await other.underreplicated(L1) is None
            assert await other.lock_owner(L1) is None
            zk_driver.proxy.lose_answer(count)
            await store.elect(B1)
            assert await other.current_auditor() == B1
            votes = [p for p in await other.dump() if zk_paths.VOTE_PREFIX in p]
            assert len(votes) == 1
            assert await other.writable_bookies() == {B1}

        zk_driver.run(scenario())


class TestConnections:
    def test_a_broken_connection_is_made_again_in_the_same_session(
        self, zk_driver: ZooKeeperDriver
    ) -> None:
        async def scenario() -> None:
            store, other = await zk_driver.open(), await zk_driver.open()
            await store.register(B1, info(B1), read_only=False)
            await store.create_ledger(L1, metadata())
            events: list[SessionEvent] = []
            calls: list[int] = []
            store.on_session(events.append)
            await store.watch_ledger(L1, lambda: calls.append(1))
            session_id = store.session_id
            zk_driver.proxy.cut()
            await zk_driver.until(lambda: events[-1:] == [SessionEvent.CONNECTED])
            assert events == [SessionEvent.SUSPENDED, SessionEvent.CONNECTED]
            assert store.session_id == session_id
            assert await other.writable_bookies() == {B1}
            await zk_driver.until(lambda: calls)  # Set again: what happened meanwhile is unknown.
            seen = len(calls)
            await other.write_ledger(L1, closed(), 0)
            await zk_driver.until(lambda: len(calls) > seen)

        zk_driver.run(scenario())

    def test_connections_without_an_answer_leave_the_session_time_for_another(
        self, zk_driver: ZooKeeperDriver
    ) -> None:
        """ZooKeeper 3.9.5 may forget a connection that it accepts while it starts."""
        proxy = zk_driver.proxy

        async def scenario() -> None:
            store = await zk_driver.open()
            await store.register(B1, info(B1), read_only=False)
            events: list[SessionEvent] = []
            store.on_session(events.append)
            proxy.freeze()
            proxy.cut()
            await zk_driver.until(lambda: sum(link.up.lost_some for link in proxy.links) == 2)
            proxy.forget()
            proxy.to_server.open()
            await zk_driver.until(lambda: events[-1] is not SessionEvent.SUSPENDED)
            assert events == [SessionEvent.SUSPENDED, SessionEvent.CONNECTED]
            assert await store.writable_bookies() == {B1}

        zk_driver.run(scenario())

    def test_too_long_away_ends_the_session(self, zk_driver: ZooKeeperDriver) -> None:
        async def scenario() -> None:
            direct = await zk_driver.open(uri=zk_driver.direct_uri)
            store = await zk_driver.open(session_timeout_s=2.0)
            await store.register(B1, info(B1), read_only=False)
            events: list[SessionEvent] = []
            store.on_session(events.append)
            zk_driver.proxy.accepts = False
            zk_driver.proxy.cut()
            await zk_driver.until(lambda: events)
            gone: list[int] = []
            await direct.watch_bookies(lambda: gone.append(1))
            await zk_driver.until(lambda: gone)
            assert await direct.writable_bookies() == frozenset()
            assert events == [SessionEvent.SUSPENDED]
            with pytest.raises(MetadataUnavailableError, match="zk\\+hierarchical://127"):
                await store.read_ledger(L1)
            zk_driver.proxy.accepts = True
            await zk_driver.until(lambda: events[-1] is SessionEvent.CONNECTED, timeout_s=60.0)
            assert events[1:] == [SessionEvent.LOST, SessionEvent.CONNECTED]
            await store.register(B1, info(B1), read_only=False)
            assert await direct.writable_bookies() == {B1}

        zk_driver.run(scenario())

    def test_a_server_that_restarts_finds_everything_again(
        self, zk_driver: ZooKeeperDriver, contract_zookeeper: ZooKeeperProcess
    ) -> None:
        async def scenario() -> None:
            store = await zk_driver.open(session_timeout_s=60.0)
            await store.register(B1, info(B1), read_only=False)
            await store.create_ledger(L1, metadata())
            events: list[SessionEvent] = []
            calls: list[int] = []
            store.on_session(events.append)
            await store.watch_ledger(L1, lambda: calls.append(1))
            await deferToThread(contract_zookeeper.stop)
            await zk_driver.until(lambda: events)
            waiting = start(store.read_ledger(L1))
            await deferToThread(contract_zookeeper.start)
            assert (await waiting).version == 0
            assert events == [SessionEvent.SUSPENDED, SessionEvent.CONNECTED]
            assert await store.writable_bookies() == {B1}
            seen = len(calls)
            await store.write_ledger(L1, closed(), 0)
            await zk_driver.until(lambda: len(calls) > seen)

        zk_driver.run(scenario())

    def test_no_server_is_an_error_that_names_it(self) -> None:
        uri = f"zk+hierarchical://127.0.0.1:{free_port('127.0.0.1')}/ledgers"
        store = open_metadata(uri, reactor=reactor.the_reactor(), session_timeout_s=0.5)
        before = set(threading.enumerate())
        with pytest.raises(MetadataUnavailableError, match="no ZooKeeper answered") as e:
            reactor.run(store.connect())
        assert uri in str(e.value)
        left = [t for t in set(threading.enumerate()) - before if "PoolThread" not in t.name]
        for thread in left:
            thread.join(10)  # One that dies tells so before it is gone.
        assert not any(thread.is_alive() for thread in left)

    def test_an_answer_that_never_comes_is_not_waited_for(self, zk_driver: ZooKeeperDriver) -> None:
        async def scenario() -> None:
            store = await zk_driver.open(session_timeout_s=1.0)
            zk_driver.proxy.freeze()
            with pytest.raises(MetadataUnavailableError):
                await store.write_ledger(L1, metadata(), 0)
            zk_driver.proxy.thaw()

        zk_driver.run(scenario())

    def test_watches_that_were_given_up_are_gone_from_the_server(
        self, zk_driver: ZooKeeperDriver, contract_zookeeper: ZooKeeperProcess
    ) -> None:
        async def scenario() -> None:
            store, other = await zk_driver.open(), await zk_driver.open()
            calls: list[int] = []
            before = watch_count(contract_zookeeper)
            for ledger_id in range(20):
                await store.create_ledger(LedgerId(ledger_id), metadata())
            watches = [
                await store.watch_ledger(LedgerId(i % 20), lambda: calls.append(1))
                for i in range(40)
            ]
            bookies = await store.watch_bookies(lambda: calls.append(1))
            assert watch_count(contract_zookeeper) - before == 22
            for watch in watches[:20]:
                watch.cancel()
            await store.layout()
            assert watch_count(contract_zookeeper) - before == 22  # The others still wait.
            for watch in watches[20:]:
                watch.cancel()
            bookies.cancel()
            await store.layout()
            assert watch_count(contract_zookeeper) - before == 0
            kazoo: Any = store.session._session.kazoo
            assert not any(kazoo._data_watchers.values())
            assert not any(kazoo._child_watchers.values())
            assert not len(store.session._watches)
            assert not store.session._watches._places

            # Given up in the moment it fires: the server has no such watch any more.
            for _ in range(20):
                watch = await store.watch_ledger(L1, lambda: calls.append(1))
                version = (await other.read_ledger(L1)).version
                writing = start(other.write_ledger(L1, closed(), version))
                watch.cancel()
                await writing
            await store.watch_ledger(L1, lambda: calls.append(1))
            seen = len(calls)
            await other.write_ledger(L1, closed(), (await other.read_ledger(L1)).version)
            await zk_driver.until(lambda: len(calls) > seen)

        zk_driver.run(scenario())

    def test_closing_leaves_no_thread(self, zk_driver: ZooKeeperDriver) -> None:
        async def scenario() -> None:
            stores = [await zk_driver.open() for _ in range(3)]
            for store in stores:
                await store.close()

        before = set(threading.enumerate())
        zk_driver.run(scenario())
        left = [t for t in set(threading.enumerate()) - before if "PoolThread" not in t.name]
        for thread in left:
            thread.join(10)  # One that dies tells so before it is gone.
        assert not any(thread.is_alive() for thread in left)


def strange_answer(driver: ZooKeeperDriver, _store: Any) -> None:
    """Have the server answer the next request with an error of no release."""
    driver.proxy.spoil_answer()


def dead_thread(_driver: ZooKeeperDriver, store: Any) -> None:
    """Have kazoo's thread end at the next answer, which kazoo does not notice."""

    kazoo = store.session._session.kazoo

    def read(_timeout_s: float) -> None:
        kazoo._pending.popleft()
        raise ArithmeticError("a bug of kazoo")

    kazoo._connection._read_socket = read


BREAKS = [
    pytest.param(strange_answer, "not a ZooKeeper: error -9999", id="answer"),
    pytest.param(dead_thread, "thread died.*a bug of kazoo", id="thread"),
]


@pytest.mark.parametrize(("spoil", "said"), BREAKS)
class TestBrokenAnswers:
    """An answer that no ZooKeeper gives, or one at which kazoo's thread ends."""

    def test_the_session_goes_on(self, zk_driver: ZooKeeperDriver, spoil: Any, said: str) -> None:
        async def scenario() -> None:
            store, other = await zk_driver.open(), await zk_driver.open(uri=zk_driver.direct_uri)
            await store.register(B1, info(B1), read_only=False)
            await store.create_ledger(L1, metadata())
            events: list[SessionEvent] = []
            calls: list[int] = []
            store.on_session(events.append)
            await store.watch_ledger(L1, lambda: calls.append(1))
            session_id = store.session_id
            spoil(zk_driver, store)
            with pytest.raises(MetadataUnavailableError, match=said):
                await store.write_ledger(L1, metadata(), 0)
            assert (await store.read_ledger(L1)).version == 1
            assert events == [SessionEvent.SUSPENDED, SessionEvent.CONNECTED]
            assert store.session_id == session_id
            assert await other.writable_bookies() == {B1}
            await zk_driver.until(lambda: calls)  # Set again: what happened meanwhile is unknown.
            seen = len(calls)
            await other.write_ledger(L1, closed(), 1)
            await zk_driver.until(lambda: len(calls) > seen)

        zk_driver.run(scenario())

    def test_a_session_that_expired_meanwhile_is_told_as_lost(
        self, zk_driver: ZooKeeperDriver, spoil: Any, said: str
    ) -> None:
        async def scenario() -> None:
            store = await zk_driver.open()
            await store.create_ledger(L1, metadata())
            events: list[SessionEvent] = []
            store.on_session(events.append)
            identity = store.session_id, store.session.session_password
            spoil(zk_driver, store)
            with pytest.raises(MetadataUnavailableError, match=said):
                await store.write_ledger(L1, metadata(), 0)
            await deferToThread(zk_driver.end_session, identity)
            told = [SessionEvent.SUSPENDED, SessionEvent.LOST, SessionEvent.CONNECTED]
            # It may be back once, before its session is ended.
            await zk_driver.until(lambda: events[-3:] == told)
            await store.register(B1, info(B1), read_only=False)

        zk_driver.run(scenario())

    def test_it_can_be_closed_before_it_is_back(
        self, zk_driver: ZooKeeperDriver, spoil: Any, said: str
    ) -> None:
        async def scenario() -> None:
            store = await zk_driver.open()
            await store.create_ledger(L1, metadata())
            spoil(zk_driver, store)
            with pytest.raises(MetadataUnavailableError, match=said):
                await store.write_ledger(L1, metadata(), 0)
            await store.close()

        before = set(threading.enumerate())
        zk_driver.run(scenario())
        left = [t for t in set(threading.enumerate()) - before if "PoolThread" not in t.name]
        for thread in left:
            thread.join(10)  # One that dies tells so before it is gone.
        assert not any(thread.is_alive() for thread in left)


class TestLayouts:
    @pytest.mark.parametrize("layout", ["flat", "hierarchical", "longhierarchical"])
    def test_each_layout_has_javas_paths_and_ids(
        self, zk_driver: ZooKeeperDriver, layout: str
    ) -> None:
        vectors = load("metadata.json")
        ids = vectors["ranges_listing"]["hierarchical"]["ids"]
        at = zk_driver.at(f"{zk_driver.root}/{layout}", layout)

        async def scenario() -> None:
            store = await zk_driver.open(uri=at)
            await store.initialize()
            assert (await store.layout()).name == layout
            first = 3 if layout == "flat" else 0
            assert [await store.allocate_ledger_id() for _ in range(2)] == [first, first + 1]
            for ledger_id in ids:
                await store.create_ledger(LedgerId(ledger_id), metadata())
            dump = await store.dump()
            for vector in vectors["paths"]:
                assert (vector[layout] in dump) is (vector["ledger_id"] in ids)
            expected = {
                "hierarchical": vectors["ranges_listing"]["hierarchical"]["ranges"],
                "longhierarchical": vectors["ranges_listing"]["longhierarchical_ranges"],
                "flat": vectors["ranges_listing"]["flat_ranges"],
            }
            assert [list(some) async for some in store.ledger_ranges()] == expected[layout]
            rest = [i async for some in store.ledger_ranges(after=LedgerId(12345)) for i in some]
            assert rest == [i for i in ids if i > 12345]
            # What the URI does not say is found in the store.
            for detecting in ("zk+null", "zk"):
                other = await zk_driver.open(uri=f"{detecting}://{at.partition('://')[2]}")
                assert await all_ids(other) == ids
            wrong = "flat" if layout != "flat" else "hierarchical"
            other = await zk_driver.open(uri=f"zk+{wrong}://{at.partition('://')[2]}")
            with pytest.raises(IncompatibleLayoutError, match=layout):
                await all_ids(other)
            new_id = await store.format()
            assert await store.instance_id() == new_id
            assert (await store.layout()).name == layout
            assert await all_ids(store) == []
            await store.nuke()

        zk_driver.run(scenario())

    def test_the_legacy_layout_can_be_used_where_it_is_found(
        self, zk_driver: ZooKeeperDriver
    ) -> None:
        factory = b"org.apache.bookkeeper.meta.LegacyHierarchicalLedgerManagerFactory"
        at = zk_driver.at(zk_driver.root, "null")

        async def scenario() -> None:
            store = await zk_driver.open(uri=at)
            await store.session.set(zk_paths.LAYOUT, b"2\n" + factory + b":1")
            assert (await store.layout()).name == "legacyhierarchical"
            for ledger_id in (12345, 3, 2**31 - 2):
                await store.create_ledger(LedgerId(ledger_id), metadata())
            assert await all_ids(store) == [3, 12345, 2**31 - 2]
            await store.remove_ledger(LedgerId(3))
            assert "/00/0000" in await store.dump()  # Java does not prune here.
            assert await store.allocate_ledger_id() == 0

        zk_driver.run(scenario())

    def test_ids_go_on_beyond_31_bits(self, zk_driver: ZooKeeperDriver) -> None:
        async def scenario() -> None:
            store = await zk_driver.open()
            tree = store.session
            assert await store.allocate_ledger_id() == 0
            await tree.create(zk_paths.IDGEN_LONG)
            fresh = await zk_driver.open()
            given = [await fresh.allocate_ledger_id() for _ in range(2)]
            assert given == [4294967296, 4294967297]
            for epoch in (2, 3, 4, 7):
                await tree.create(zk_paths.epoch(epoch))
            await tree.create(f"{zk_paths.IDGEN_LONG}/HOB-x")
            fresh = await zk_driver.open()
            assert await fresh.allocate_ledger_id() == 30064771072
            wanted = [*(f"HOB-{number:010d}" for number in (3, 4, 7)), "HOB-x"]
            # Old ones are deleted behind the caller's back; for ever wrong is a time-out.
            while sorted(await tree.children(zk_paths.IDGEN_LONG)) != wanted:
                await zk_driver.sleep(0.05)

        zk_driver.run(scenario())

    def test_a_root_that_is_not_ours_alone_is_not_nuked(self, zk_driver: ZooKeeperDriver) -> None:
        async def scenario() -> None:
            store = await zk_driver.open()
            await store.session.create("/mine", b"precious")
            with pytest.raises(ClusterInUseError, match="mine"):
                await store.nuke()
            assert (await store.layout()).name == "hierarchical"
            await store.session.delete("/mine")
            await store.nuke()
            with pytest.raises(NotInitializedError):
                await store.layout()

        zk_driver.run(scenario())

    def test_connecting_mends_a_missing_read_only_list_and_makes_no_cluster(
        self, zk_driver: ZooKeeperDriver
    ) -> None:
        async def scenario() -> None:
            store = await zk_driver.open()
            await store.session.delete(zk_paths.READ_ONLY)
            await zk_driver.open()
            assert await store.session.stat(zk_paths.READ_ONLY) is not None
            elsewhere = await zk_driver.open(uri=zk_driver.at("/contract/typo", "hierarchical"))
            assert await elsewhere.session.stat("") is None

        zk_driver.run(scenario())


class TestSafety:
    def test_a_poisonous_registration_harms_nobody(self, zk_driver: ZooKeeperDriver) -> None:
        async def scenario() -> None:
            store = await zk_driver.open()
            await store.register(B1, info(B1), read_only=False)
            for name, value in (("garbage:1", b"\xff\xff\xff"), ("no id", b""), ("hostonly", b"")):
                await store.session.create(f"{zk_paths.AVAILABLE}/{name}", value, ephemeral=True)
            assert await store.writable_bookies() == {B1, "garbage:1", "hostonly"}
            assert await store.service_info(B1) == info(B1)

        zk_driver.run(scenario())

    def test_nodes_can_be_for_their_creator_only(self, zk_driver: ZooKeeperDriver) -> None:
        async def scenario() -> None:
            at = zk_driver.at(f"{zk_driver.root}/secure", "hierarchical")
            auth = [("digest", "bookie:secret")]
            store = await zk_driver.open(uri=at, auth_data=auth, secure=True)
            await store.initialize()
            await store.create_ledger(L1, metadata())
            with pytest.raises(MetadataAccessError, match="access denied"):
                await zk_driver.open(uri=at)
            friend = await zk_driver.open(uri=at, auth_data=auth, secure=True)
            assert (await friend.read_ledger(L1)).version == 0

        zk_driver.run(scenario())

    def test_a_format_that_was_denied_half_way_says_that_it_goes_on(
        self, zk_driver: ZooKeeperDriver
    ) -> None:
        async def scenario() -> None:
            store = await zk_driver.open()
            await store.create_ledger(L1, metadata())
            kazoo: Any = store.session._session.kazoo
            await deferToThread(kazoo.set_acls, f"{zk_driver.root}/00/0000", READ_ACL_UNSAFE)

        zk_driver.run(scenario())
        words = ["cluster", "format", "--no-backup", "--force", "ledgers", "--yes"]
        with closing(FakeHost(environ={"PAGER": ""})) as host:
            assert cli.run(["-u", zk_driver.direct_uri, *words], host) == ExitStatus.REFUSED
        assert "access denied" in host.err.text
        assert "may be deleted already; the same command continues" in host.err.text
