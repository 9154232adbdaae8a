"""One contract for every metadata driver: memory, SQLite, ZooKeeper."""

from __future__ import annotations

import random
import time
from contextlib import aclosing
from typing import Any

import pytest
from twisted.internet.defer import CancelledError

from bkclient.errors import (
    ClientClosedError,
    IncorrectParameterError,
    LedgerExistsError,
    MetadataVersionError,
    NoSuchLedgerError,
)
from bkclient.metadata import zk_paths
from bkclient.metadata.errors import (
    AlreadyInitializedError,
    AlreadySetError,
    ClusterInUseError,
    CookieExistsError,
    CookieNotFoundError,
    LogExistsError,
    NoSuchLogError,
    NotFoundError,
    NotInitializedError,
    RegistrationExistsError,
)
from bkclient.metadata.tree.nodes import run_together
from bkclient.metadata.versions_and_watches import ANY, NEW, SessionEvent, StoredNode, Versioned
from tests.bkclient.metadata.values import B1, B2, B3, closed, info, metadata, start
from wire.codes import LedgerState
from wire.errors import FormatError, MetadataFormatError
from wire.ids import LEDGER_ID_REFUSED, BookieId, EntryId, LedgerId
from wire.ledger_metadata import Fragment
from wire.records.bookie_service_info import BookieServiceInfo

TOPIC = "persistent://shop/eu/orders"
CURSORS_OF_TOPIC = ".cursors/persistent%3A%2F%2Fshop%2Feu%2Forders"


async def all_ranges(store: Any, **how: Any) -> list[tuple[LedgerId, ...]]:
    return [ids async for ids in store.ledger_ranges(**how)]


def without_inner(dump: dict[str, tuple[bytes, int]]) -> dict[str, tuple[bytes, int]]:
    """Return what a dump holds besides inner nodes."""
    containers = {
        zk_paths.COOKIES,
        zk_paths.IDGEN,
        zk_paths.MARKS,
        zk_paths.LOCKS,
        zk_paths.READ_ONLY,
        zk_paths.ELECTION,
    }
    inner = {zk_paths.parent(path) for path in dump} | containers
    return {path: stored for path, stored in dump.items() if path not in inner or stored[0]}


class TestLedgers:
    def test_what_was_created_can_be_read_by_another_session(self, driver: Any) -> None:
        async def scenario() -> None:
            writer, reader = await driver.open(), await driver.open()
            assert await writer.create_ledger(LedgerId(7), metadata()) == 0
            found = await reader.read_ledger(LedgerId(7))
            assert found.version == 0
            assert found.value.fragments == metadata().fragments
            assert found.value.password == b"secret"
            assert dict(found.value.custom) == {"application": b"contract"}
            assert found.value.creator_token != 0
            # The time of creation comes from the store where the metadata has none.
            assert found.value.ctime_ms is not None
            assert found.value.ctime_ms > 1_600_000_000_000

        driver.run(scenario())

    def test_a_write_needs_the_last_version(self, driver: Any) -> None:
        async def scenario() -> None:
            one, other = await driver.open(), await driver.open()
            await one.create_ledger(LedgerId(1), metadata())
            assert await other.write_ledger(LedgerId(1), closed(), 0) == 1
            with pytest.raises(MetadataVersionError):
                await one.write_ledger(LedgerId(1), metadata(state=LedgerState.IN_RECOVERY), 0)
            found = await one.read_ledger(LedgerId(1))
            assert (found.version, found.value.state) == (1, LedgerState.CLOSED)
            assert await one.write_ledger(LedgerId(1), found.value, 1) == 2

        driver.run(scenario())

    def test_of_two_writers_of_one_version_one_wins(self, driver: Any) -> None:
        async def scenario() -> None:
            stores = [await driver.open() for _ in range(4)]
            await stores[0].create_ledger(LedgerId(1), metadata())

            async def attempt(number: int) -> int | None:
                try:
                    await stores[number].write_ledger(LedgerId(1), closed(last=number), 0)
                except MetadataVersionError:
                    return None
                return number

            won = [n for n in await run_together(map(attempt, range(4))) if n is not None]
            assert len(won) == 1
            stored = (await stores[0].read_ledger(LedgerId(1))).value
            assert stored.last_entry_id == won[0]

        driver.run(scenario())

    def test_an_id_can_be_used_once(self, driver: Any) -> None:
        async def scenario() -> None:
            one, other = await driver.open(), await driver.open(chance=random.Random(1))
            await one.create_ledger(LedgerId(1), metadata())
            with pytest.raises(LedgerExistsError):
                await other.create_ledger(LedgerId(1), metadata())

        driver.run(scenario())

    def test_a_retry_with_the_same_token_is_the_same_creation(self, driver: Any) -> None:
        async def scenario() -> None:
            store = await driver.open()
            mine = metadata(creator_token=4711)
            assert await store.create_ledger(LedgerId(1), mine) == 0
            assert await store.create_ledger(LedgerId(1), mine) == 0
            with pytest.raises(LedgerExistsError):
                await store.create_ledger(LedgerId(1), metadata(creator_token=4712))

        driver.run(scenario())

    def test_formats_without_a_token_have_no_retries(self, driver: Any) -> None:
        async def scenario() -> None:
            store = await driver.open()
            old = metadata(format_version=2)
            await store.create_ledger(LedgerId(1), old)
            assert (await store.read_ledger(LedgerId(1))).value.format_version == 2
            with pytest.raises(LedgerExistsError):
                await store.create_ledger(LedgerId(1), old)

        driver.run(scenario())

    @pytest.mark.parametrize("ledger_id", [-1, LEDGER_ID_REFUSED, 2**63])
    def test_ids_that_do_harm_are_refused(self, driver: Any, ledger_id: int) -> None:
        async def scenario() -> None:
            store = await driver.open()
            with pytest.raises(IncorrectParameterError):
                await store.create_ledger(LedgerId(ledger_id), metadata())
            assert await all_ranges(store) == []

        driver.run(scenario())

    def test_metadata_that_would_do_harm_is_not_written(self, driver: Any) -> None:
        twice = metadata(fragments=(Fragment(EntryId(0), (B1, B1)),))

        async def scenario() -> None:
            store = await driver.open()
            with pytest.raises(MetadataFormatError):
                await store.create_ledger(LedgerId(1), twice)
            await store.create_ledger(LedgerId(1), metadata())
            with pytest.raises(MetadataFormatError):
                await store.write_ledger(LedgerId(1), twice, 0)
            assert (await store.read_ledger(LedgerId(1))).version == 0

        driver.run(scenario())

    def test_what_is_not_there_is_said_so(self, driver: Any) -> None:
        async def scenario() -> None:
            store = await driver.open()
            with pytest.raises(NoSuchLedgerError):
                await store.read_ledger(LedgerId(5))
            with pytest.raises(NoSuchLedgerError):
                await store.write_ledger(LedgerId(5), metadata(), 0)
            with pytest.raises(NoSuchLedgerError):
                await store.remove_ledger(LedgerId(5), 0)
            await store.remove_ledger(LedgerId(5))  # Whatever version: absent is done.

        driver.run(scenario())

    def test_removal_can_depend_on_the_version(self, driver: Any) -> None:
        async def scenario() -> None:
            store = await driver.open()
            await store.create_ledger(LedgerId(5), metadata())
            await store.write_ledger(LedgerId(5), closed(), 0)
            with pytest.raises(MetadataVersionError):
                await store.remove_ledger(LedgerId(5), 0)
            await store.remove_ledger(LedgerId(5), 1)
            with pytest.raises(NoSuchLedgerError):
                await store.read_ledger(LedgerId(5))
            # Its place is free again. Versions go on in SQLite; ZooKeeper's begin at 0 again.
            again = await store.create_ledger(LedgerId(5), metadata())
            assert again == (2 if driver.name == "sqlite" else 0)
            assert (await store.read_ledger(LedgerId(5))).version == again

        driver.run(scenario())

    def test_removal_leaves_no_empty_levels_behind(self, driver: Any) -> None:
        async def scenario() -> None:
            store = await driver.open()
            before = await store.dump()
            for ledger_id in (0, 1, 2**31 - 1, 2**40):
                await store.create_ledger(LedgerId(ledger_id), metadata())
            for ledger_id in (0, 1, 2**31 - 1, 2**40):
                await store.remove_ledger(LedgerId(ledger_id))
            after = dict(await store.dump())
            after.pop("/idgen", None)  # SQLite's generator has counted the chosen ids.
            assert after == before

        driver.run(scenario())

    def test_ranges_ascend_over_both_spaces_of_ids(self, driver: Any) -> None:
        ids = [0, 1, 12345, 99999999, 2147483646, 2147483647, 9999999999, 10**10, 2**63 - 2]

        async def scenario() -> None:
            store = await driver.open()
            for ledger_id in random.Random(5).sample(ids, len(ids)):
                await store.create_ledger(LedgerId(ledger_id), metadata())
            ranges = await all_ranges(store)
            assert [i for some in ranges for i in some] == ids
            for after in (0, 5, 99999999, 2147483646, 2147483647, 2**63 - 2):
                rest = await all_ranges(store, after=LedgerId(after))
                assert [i for some in rest for i in some] == [i for i in ids if i > after]

        driver.run(scenario())

    def test_ranges_cross_the_ten_thousand(self, driver: Any) -> None:
        # A leaf of the tree holds ten thousand: begin near its end. On a real disk few must do.
        count = 10_300 if driver.name == "memory" else 250
        first = 9_900

        async def scenario() -> None:
            store = await driver.open()

            async def create(offset: int) -> None:
                await store.create_ledger(LedgerId(first + offset), metadata())

            for begin in range(0, count, 500):
                await run_together(map(create, range(begin, min(begin + 500, count))))
            ranges = await all_ranges(store)
            assert all(0 < len(some) <= 10_000 for some in ranges)
            assert [i for some in ranges for i in some] == list(range(first, first + count))

        driver.run(scenario())

    def test_ids_are_unique_whoever_asks(self, driver: Any) -> None:
        async def scenario() -> None:
            stores = [await driver.open() for _ in range(3)]

            async def some(store: Any) -> list[LedgerId]:
                return [await store.allocate_ledger_id() for _ in range(20)]

            given = [i for ids in await run_together(some(store) for store in stores) for i in ids]
            assert sorted(given) == list(range(60))

        driver.run(scenario())

    def test_a_watch_sees_every_last_change(self, driver: Any) -> None:
        async def scenario() -> None:
            writer, reader = await driver.open(), await driver.open()
            await writer.create_ledger(LedgerId(1), metadata())
            await writer.create_ledger(LedgerId(2), metadata())
            calls: list[int] = []
            watch = await reader.watch_ledger(LedgerId(1), lambda: calls.append(1))
            for version in range(3):
                seen = len(calls)
                await writer.write_ledger(LedgerId(1), closed(last=version), version)
                await driver.until(lambda seen=seen: len(calls) > seen)
            seen = len(calls)
            await writer.remove_ledger(LedgerId(1))
            await driver.until(lambda: len(calls) > seen)
            seen = len(calls)
            await writer.write_ledger(LedgerId(2), closed(), 0)  # Somebody else's.
            await driver.sleep(0.2)
            assert len(calls) == seen
            watch.cancel()
            await writer.create_ledger(LedgerId(1), metadata())
            await driver.sleep(0.2)
            assert len(calls) == seen

        driver.run(scenario())

    def test_after_a_storm_the_watcher_knows_the_last_state(self, driver: Any) -> None:
        async def scenario() -> None:
            writer, reader = await driver.open(), await driver.open()
            await writer.create_ledger(LedgerId(1), metadata())
            seen: list[int] = []

            def changed() -> None:
                start(reader.read_ledger(LedgerId(1))).addCallback(lambda f: seen.append(f.version))

            watch = await reader.watch_ledger(LedgerId(1), changed)
            for version in range(30):
                await writer.write_ledger(LedgerId(1), closed(last=version), version)
            await driver.until(lambda: 30 in seen)
            watch.cancel()

        driver.run(scenario())


class TestBookies:
    def test_registrations_are_seen_by_others(self, driver: Any) -> None:
        async def scenario() -> None:
            bookie, client = await driver.open(), await driver.open()
            calls: list[int] = []
            watch = await client.watch_bookies(lambda: calls.append(1))
            await bookie.register(B1, info(B1), read_only=False)
            await driver.until(lambda: calls)
            assert await client.writable_bookies() == {B1}
            assert await client.read_only_bookies() == frozenset()
            assert await client.service_info(B1) == info(B1)
            with pytest.raises(NotFoundError):
                await client.service_info(B2)
            await bookie.register(B1, info(B1), read_only=False)  # Ours already: nothing to do.
            watch.cancel()

        driver.run(scenario())

    def test_a_bookie_is_never_in_neither_list(self, driver: Any) -> None:
        async def scenario() -> None:
            bookie, client = await driver.open(), await driver.open()
            await bookie.register(B1, info(B1), read_only=False)
            seen: list[tuple[bool, bool]] = []
            going = True

            async def look() -> None:
                while going:
                    writable = B1 in await client.writable_bookies()
                    read_only = B1 in await client.read_only_bookies()
                    # Between the two reads it may go from the second list to the first.
                    seen.append((writable, read_only or B1 in await client.writable_bookies()))
                    await driver.sleep(0.001)

            looking = start(look())
            for read_only in (True, False, True, False):
                await bookie.register(B1, info(B1), read_only=read_only)
                assert (await client.read_only_bookies() == {B1}) is read_only
                assert (await client.writable_bookies() == {B1}) is not read_only
                assert await client.service_info(B1) == info(B1)
            going = False
            await looking
            assert seen
            assert all(one or other for one, other in seen)

        driver.run(scenario())

    def test_a_changing_set_calls_the_watcher_each_time(self, driver: Any) -> None:
        async def scenario() -> None:
            bookie, client = await driver.open(), await driver.open()
            calls: list[int] = []
            watch = await client.watch_bookies(lambda: calls.append(1))
            for step in (
                lambda: bookie.register(B1, info(B1), read_only=False),
                lambda: bookie.register(B2, info(B2), read_only=True),
                lambda: bookie.register(B1, info(B1), read_only=True),
                lambda: bookie.unregister(B2),
                bookie.close,
            ):
                seen = len(calls)
                await step()
                await driver.until(lambda seen=seen: len(calls) > seen)
            assert await client.writable_bookies() | await client.read_only_bookies() == set()
            watch.cancel()

        driver.run(scenario())

    def test_closing_the_session_takes_the_bookie_away(self, driver: Any) -> None:
        async def scenario() -> None:
            bookie, client = await driver.open(), await driver.open()
            await bookie.register(B1, info(B1), read_only=False)
            assert await client.writable_bookies() == {B1}
            await bookie.close()
            assert await client.writable_bookies() == frozenset()

        driver.run(scenario())

    def test_another_sessions_bookie_is_waited_for(self, driver: Any) -> None:
        async def scenario() -> None:
            old, new = await driver.open(), await driver.open(registration_wait_s=10.0)
            await old.register(B1, info(B1), read_only=False)
            registering = start(new.register(B1, info(B1), read_only=False))
            await driver.sleep(0.3)
            assert not registering.called
            await old.close()
            await registering
            assert await new.writable_bookies() == {B1}

        driver.run(scenario())

    def test_two_living_bookies_of_one_name_do_not_both_run(self, driver: Any) -> None:
        async def scenario() -> None:
            first, second = await driver.open(), await driver.open(registration_wait_s=1.0)
            await first.register(B1, info(B1), read_only=False)
            with pytest.raises(RegistrationExistsError, match="3181"):
                await second.register(B1, info(B1), read_only=False)
            # Nor does the second take the first one's registration away.
            await second.unregister(B1)
            assert await second.writable_bookies() == {B1}

        driver.run(scenario())

    def test_an_expired_session_loses_its_bookie_and_can_bring_it_back(self, driver: Any) -> None:
        async def scenario() -> None:
            bookie, client = await driver.open(), await driver.open()
            events: list[SessionEvent] = []
            bookie.on_session(events.append)
            changes: list[int] = []
            await client.watch_bookies(lambda: changes.append(1))
            await bookie.register(B1, info(B1), read_only=False)
            old_session = bookie.session_id
            await driver.expire(bookie)
            await driver.until(lambda: SessionEvent.LOST in events)
            await driver.until(lambda: events[-1] is SessionEvent.CONNECTED)
            await bookie.register(B1, info(B1), read_only=False)
            assert bookie.session_id != old_session
            assert await client.writable_bookies() == {B1}
            await driver.until(lambda: changes)

        driver.run(scenario())

    @pytest.mark.parametrize("name", ["", "a/b", "readonly", "a b", "a@b", "../x"])
    def test_names_that_do_harm_are_refused(self, driver: Any, name: str) -> None:
        async def scenario() -> None:
            store = await driver.open()
            with pytest.raises(IncorrectParameterError):
                await store.register(BookieId(name), info(B1), read_only=False)
            with pytest.raises(IncorrectParameterError):
                await store.write_cookie(BookieId(name), b"cookie", NEW)
            with pytest.raises(IncorrectParameterError):
                await store.register(B1, BookieServiceInfo(), read_only=False)
            assert await store.writable_bookies() | await store.known_bookies() == set()

        driver.run(scenario())


class TestCookies:
    def test_a_cookie_changes_by_version(self, driver: Any) -> None:
        async def scenario() -> None:
            store = await driver.open()
            with pytest.raises(CookieNotFoundError):
                await store.read_cookie(B1)
            with pytest.raises(CookieNotFoundError):
                await store.write_cookie(B1, b"cookie", 0)
            with pytest.raises(CookieNotFoundError):
                await store.remove_cookie(B1)
            first = await store.write_cookie(B1, b"cookie", NEW)
            with pytest.raises(CookieExistsError):
                await store.write_cookie(B1, b"other", NEW)
            found = await store.read_cookie(B1)
            assert (found.value, found.version) == (b"cookie", first)
            second = await store.write_cookie(B1, b"wider", first)
            with pytest.raises(MetadataVersionError):
                await store.write_cookie(B1, b"late", first)
            third = await store.write_cookie(B1, b"any", ANY)
            assert len({first, second, third}) == 3
            assert (await store.read_cookie(B1)).version == third
            assert await store.known_bookies() == {B1}
            with pytest.raises(MetadataVersionError):
                await store.remove_cookie(B1, first)
            await store.remove_cookie(B1, third)
            assert await store.known_bookies() == frozenset()

        driver.run(scenario())

    def test_a_version_of_a_removed_cookie_is_none_of_the_next(self, driver: Any) -> None:
        async def scenario() -> None:
            store = await driver.open()
            first = await store.write_cookie(B1, b"cookie", NEW)
            await store.remove_cookie(B1)
            again = await store.write_cookie(B1, b"cookie", NEW)
            for stale in (
                store.write_cookie(B1, b"stale", first),
                store.remove_cookie(B1, first),
            ):
                with pytest.raises(MetadataVersionError):
                    await stale
            found = await store.read_cookie(B1)
            assert (found.value, found.version) == (b"cookie", again)

        driver.run(scenario())


class TestLogs:
    def test_a_record_changes_by_version(self, driver: Any) -> None:
        async def scenario() -> None:
            store = await driver.open()
            assert await store.list_logs() == []
            for touch in (
                store.read_log("events"),
                store.write_log("events", b"{}", 0),
                store.remove_log("events"),
            ):
                with pytest.raises(NoSuchLogError):
                    await touch
            first = await store.create_log("events", b"first")
            with pytest.raises(LogExistsError):
                await store.create_log("events", b"again")
            assert await store.read_log("events") == Versioned(b"first", first)
            assert await store.write_log("events", b"second", first) == first + 1
            with pytest.raises(MetadataVersionError):
                await store.write_log("events", b"late", first)
            await store.create_log("audit", b"")
            assert await store.list_logs() == ["audit", "events"]
            with pytest.raises(MetadataVersionError):
                await store.remove_log("events", first)
            await store.remove_log("events", first + 1)
            assert await store.list_logs() == ["audit"]

        driver.run(scenario())

    def test_versions_go_on_where_a_log_is_made_again(self, driver: Any) -> None:
        async def scenario() -> None:
            store, other = await driver.open(), await driver.open()
            first = await store.create_log("events", b"first")
            second = await store.write_log("events", b"second", first)
            await other.remove_log("events", second)
            seen = {first, second}
            for version in seen:
                for stale in (
                    store.write_log("events", b"stale", version),
                    store.remove_log("events", version),
                ):
                    with pytest.raises(NoSuchLogError):
                        await stale
            again = await other.create_log("events", b"another")
            assert again not in seen
            for version in seen:
                for stale in (
                    store.write_log("events", b"stale", version),
                    store.remove_log("events", version),
                ):
                    with pytest.raises(MetadataVersionError):
                        await stale
            found = await store.read_log("events")
            assert (found.value, found.version) == (b"another", again)
            await store.remove_log("events", again)
            assert await store.list_logs() == []

        driver.run(scenario())

    def test_versions_go_on_where_a_cluster_is_formatted(self, driver: Any) -> None:
        async def scenario() -> None:
            store = await driver.open()
            first = await store.create_log("events", b"first")
            await store.format()
            assert await store.create_log("events", b"another") != first
            with pytest.raises(MetadataVersionError):
                await store.write_log("events", b"stale", first)

        driver.run(scenario())

    def test_a_removed_log_is_restored_from_a_copy(self, driver: Any) -> None:
        async def scenario() -> None:
            store = await driver.open()
            await store.create_log("events", b"first")
            copied = [node for node in (await all_nodes(store)).values() if node.value == b"first"]
            await store.remove_log("events")
            assert await store.add_nodes(copied, "hierarchical") == []
            assert (await store.read_log("events")).value == b"first"

        driver.run(scenario())

    def test_changes_are_told(self, driver: Any) -> None:
        async def scenario() -> None:
            store, other = await driver.open(), await driver.open()
            await store.create_log("events", b"first")
            told: list[None] = []
            watch = await store.watch_log("events", lambda: told.append(None))
            await other.write_log("events", b"second", 0)
            await driver.until(lambda: told)
            watch.cancel()
            seen = len(told)
            await other.remove_log("events")
            await driver.sleep(0.1)
            assert len(told) == seen

        driver.run(scenario())

    @pytest.mark.parametrize("name", ["", ".", "..", ".hidden", "a/b", "a b", "x" * 201])
    def test_what_is_no_name_is_refused(self, driver: Any, name: str) -> None:
        async def scenario() -> None:
            store = await driver.open()
            with pytest.raises(IncorrectParameterError):
                await store.create_log(name, b"")

        driver.run(scenario())

    def test_versions_go_on_where_a_formatted_cluster_is_restored(self, driver: Any) -> None:
        async def scenario() -> None:
            store = await driver.open()
            first = await store.create_log("events", b"first")
            second = await store.write_log("events", b"second", first)
            nodes = [node async for some in store.nodes() for node in some if node.path]
            await store.format()
            await store.nuke(keep_versions=True)
            assert await store.add_nodes(nodes, "hierarchical") == []
            found = await store.read_log("events")
            assert (found.value, found.version > second) == (b"second", True)

        driver.run(scenario())

    def test_the_cluster_is_what_it_would_be_without_them(self, driver: Any) -> None:
        async def scenario() -> None:
            store = await driver.open()
            before = await store.dump()
            await store.create_log("events", b"first")
            assert await store.dump() == before
            await store.format()
            assert await store.list_logs() == []
            await store.create_log("events", b"first")
            await store.nuke()
            await store.initialize()
            assert await store.list_logs() == []

        driver.run(scenario())


class TestCursors:
    def test_a_value_is_kept_for_each_source_and_changed_by_version(self, driver: Any) -> None:
        async def scenario() -> None:
            store, other = await driver.open(), await driver.open()
            assert await store.list_cursors() == []
            assert await store.read_cursors("events") == Versioned(b"", NEW)
            first = await store.write_cursors("events", b"first", NEW)
            await other.write_cursors(TOPIC, b"of a topic", NEW)
            assert await other.list_cursors() == ["events", TOPIC]
            assert await other.read_cursors("events") == Versioned(b"first", first)
            second = await other.write_cursors("events", b"second", first)
            for version in (NEW, first):
                with pytest.raises(MetadataVersionError):
                    await store.write_cursors("events", b"late", version)
            assert await store.read_cursors("events") == Versioned(b"second", second)
            with pytest.raises(MetadataVersionError):
                await store.write_cursors("audit", b"of nothing", second)

        driver.run(scenario())

    def test_the_cluster_is_what_it_would_be_without_them(self, driver: Any) -> None:
        async def scenario() -> None:
            store = await driver.open()
            before = await store.dump()
            await store.write_cursors("events", b"first", NEW)
            assert await store.dump() == before
            await store.format()
            assert await store.list_cursors() == []
            await store.write_cursors("events", b"first", NEW)
            await store.nuke()
            await store.initialize()
            assert await store.list_cursors() == []

        driver.run(scenario())


class TestCluster:
    def test_a_new_cluster_has_javas_nodes(self, bare_driver: Any) -> None:
        async def scenario() -> None:
            store = await bare_driver.open()
            instance_id = await store.initialize()
            assert await store.dump() == {
                "/INSTANCEID": (instance_id.encode(), 0),
                "/LAYOUT": (
                    b"2\norg.apache.bookkeeper.meta.HierarchicalLedgerManagerFactory:1",
                    0,
                ),
                "/available": (b"", 0),
                "/available/readonly": (b"", 0),
            }
            assert len(instance_id) == 36
            assert await store.instance_id() == instance_id
            assert (await store.layout()).name == "hierarchical"
            with pytest.raises(AlreadyInitializedError):
                await store.initialize()

        bare_driver.run(scenario())

    @pytest.mark.parametrize(
        "stored", [b"", b"\xff", b"one\ntwo", b"\x1b[31m", b"A" * 900_000], ids=len
    )
    def test_what_is_not_an_instance_id_is_named(self, bare_driver: Any, stored: bytes) -> None:
        async def scenario() -> None:
            store = await bare_driver.open()
            await store.add_nodes([StoredNode("/INSTANCEID", stored, 0)], "hierarchical")
            with pytest.raises(FormatError, match="/INSTANCEID holds ") as caught:
                await store.instance_id()
            assert str(caught.value).isprintable()
            assert len(str(caught.value)) < 300

        bare_driver.run(scenario())

    def test_a_cluster_that_is_not_there_has_no_empty_lists(self, bare_driver: Any) -> None:
        async def scenario() -> None:
            store = await bare_driver.open()
            for ask in (
                store.layout,
                lambda: all_ranges(store),
                lambda: store.read_ledger(LedgerId(1)),
                lambda: store.create_ledger(LedgerId(1), metadata()),
                store.allocate_ledger_id,
                store.writable_bookies,
                store.known_bookies,
                lambda: store.register(B1, info(B1), read_only=False),
                lambda: store.write_cookie(B1, b"cookie", NEW),
                lambda: store.mark_underreplicated(LedgerId(1), (B1,)),
            ):
                with pytest.raises(NotInitializedError):
                    await ask()
            await store.nuke()  # Nothing there is done already.

        bare_driver.run(scenario())

    def test_formatting_leaves_what_java_leaves(self, driver: Any) -> None:
        async def scenario() -> None:
            store, bookie = await driver.open(), await driver.open()
            await bookie.register(B1, info(B1), read_only=False)
            old_id = await store.instance_id()
            for ledger_id in (await store.allocate_ledger_id(), LedgerId(2**40)):
                await store.create_ledger(ledger_id, metadata())
            await store.write_cookie(B1, b"cookie", NEW)
            await store.mark_underreplicated(LedgerId(0), (B2,))
            assert await store.acquire_lock(LedgerId(3))
            await store.set_replication_enabled(enabled=False)
            await store.set_lost_bookie_recovery_delay(30)
            new_id = await store.format()
            assert new_id != old_id
            found = without_inner(await store.dump())
            assert set(found) == {
                "/INSTANCEID",
                "/LAYOUT",
                f"/available/{B1}",
                "/underreplication/LAYOUT",
                "/underreplication/disable",
                "/underreplication/lostBookieRecoveryDelay",
            }
            assert found["/INSTANCEID"][0] == new_id.encode()
            assert await all_ranges(store) == []
            assert await store.allocate_ledger_id() == 0
            assert await store.poll_underreplicated() is None

        driver.run(scenario())

    def test_an_auditor_that_outlives_a_format_marks_ledgers(self, driver: Any) -> None:
        async def scenario() -> None:
            auditor, operator = await driver.open(), await driver.open()
            for ledger_id in (1, 2):
                marks = [(LedgerId(ledger_id), (B1,))]
                await auditor.mark_all_underreplicated(marks, lambda _one, _why: None)
                found = [one async for one, _ in auditor.list_underreplicated()]
                assert found == [ledger_id]
                await operator.format()

        driver.run(scenario())

    def test_formatting_nothing_makes_a_cluster(self, bare_driver: Any) -> None:
        async def scenario() -> None:
            store = await bare_driver.open()
            assert await store.format() == await store.instance_id()
            assert (await store.layout()).name == "hierarchical"

        bare_driver.run(scenario())

    def test_a_cluster_in_use_is_not_nuked(self, driver: Any) -> None:
        async def scenario() -> None:
            store, bookie = await driver.open(), await driver.open()
            await bookie.register(B1, info(B1), read_only=True)
            await store.set_health_check_enabled(enabled=False)
            with pytest.raises(ClusterInUseError, match="3181"):
                await store.nuke()
            await bookie.close()
            await store.create_ledger(LedgerId(1), metadata())
            await store.mark_underreplicated(LedgerId(1), (B1,))
            await store.nuke()
            with pytest.raises(NotInitializedError):
                await all_ranges(store)
            await store.initialize()
            assert await all_ranges(store) == []

        driver.run(scenario())

    def test_a_dump_has_zookeepers_paths(self, driver: Any) -> None:
        async def scenario() -> None:
            store = await driver.open(lock_owner="host-1")
            await store.create_ledger(LedgerId(12345), metadata(creator_token=1))
            await store.create_ledger(LedgerId(2**32), metadata(creator_token=1))
            await store.write_cookie(B1, b"cookie", NEW)
            await store.register(B1, info(B1), read_only=False)
            await store.mark_underreplicated(LedgerId(13), (B2,))
            assert await store.acquire_lock(LedgerId(13))
            await store.set_check_time("all-ledgers", 1700000000123)
            dump = without_inner(await store.dump())
            assert set(dump) == {
                "/INSTANCEID",
                "/LAYOUT",
                "/00/0001/L2345",
                "/000/0000/0042/9496/L7296",
                f"/cookies/{B1}",
                f"/available/{B1}",
                "/underreplication/LAYOUT",
                "/underreplication/ledgers/0000/0000/0000/000d/urL0000000013",
                "/underreplication/locks/urL0000000013",
                "/underreplication/checkallledgersctime",
            }
            assert dump["/underreplication/LAYOUT"] == (b'type: "BASIC"\nversion: 1\n', 0)
            assert dump["/underreplication/locks/urL0000000013"] == (b'bookieId: "host-1"\n', 0)
            assert dump["/underreplication/checkallledgersctime"][0].hex() == "08fbd095ffbc31"
            assert dump[f"/cookies/{B1}"] == (b"cookie", 0)

        driver.run(scenario())


async def all_nodes(store: Any, *path: str, **how: Any) -> dict[str, StoredNode]:
    return {node.path: node async for some in store.nodes(*path, **how) for node in some}


class TestSiblingNodes:
    def test_what_nobody_has_put_beside_the_root_is_not_found(self, driver: Any) -> None:
        async def scenario() -> None:
            store = await driver.open()
            for path in ("/managed-ledgers", "/managed-ledgers/a/b"):
                with pytest.raises(NotFoundError):
                    await store.read_sibling(path)
                with pytest.raises(NotFoundError):
                    await store.sibling_names(path)

        driver.run(scenario())

    def test_nodes_beside_the_root_are_read_with_value_version_and_names(self, driver: Any) -> None:
        async def scenario() -> None:
            store = await driver.open()
            tree = store._tree
            if driver.name == "sqlite":
                return  # A file holds nothing of other programs.
            await tree.create(zk_paths.beside("/other"))
            for name in ("b", "a"):
                await tree.create(zk_paths.beside(f"/other/{name}"), name.encode())
            versions = [(await store.read_sibling("/other/a")).version]
            await tree.set(zk_paths.beside("/other/a"), b"new")
            assert await store.sibling_names("/other") == ["a", "b"]
            found = await store.read_sibling("/other/a")
            assert (found.value, found.version) == (b"new", versions[0] + 1)
            versions.append(found.version)
            await tree.delete(zk_paths.beside("/other/a"))
            await tree.create(zk_paths.beside("/other/a"), b"anew")
            assert (await store.read_sibling("/other/a")).version not in versions
            # They are not a part of the cluster.
            assert not [path for path in await all_nodes(store) if "other" in path]

        driver.run(scenario())


class TestRawNodes:
    async def fill(self, store: Any) -> None:
        for ledger_id in (1, 2, 12345, 2**32):
            await store.create_ledger(LedgerId(ledger_id), metadata(creator_token=1))
        await store.write_ledger(LedgerId(2), closed(), 0)
        await store.write_cookie(B1, b"cookie", NEW)
        await store.register(B1, info(B1), read_only=False)
        await store.mark_underreplicated(LedgerId(13), (B2,))
        assert await store.acquire_lock(LedgerId(13))
        await store.set_check_time("replicas", 1700000000123)
        await store.set_lost_bookie_recovery_delay(7)
        await store.set_replication_enabled(enabled=False)
        await store.create_log("l", b"record")
        await store.write_cursors(TOPIC, b"cursors", NEW)

    def test_every_node_comes_after_its_parent_with_its_value_and_version(
        self, driver: Any
    ) -> None:
        async def scenario() -> None:
            store = await driver.open()
            await self.fill(store)
            found = await all_nodes(store)
            dump = await store.dump()
            assert {p: (n.value, n.version) for p, n in found.items() if p in dump} == dump
            assert found.keys() - dump.keys() == {
                "",
                ".logs",
                ".logs/l",
                ".cursors",
                CURSORS_OF_TOPIC,
            }
            assert found["/00/0000/L0002"].version == 1
            assert found["/cookies"].children == 1
            seen: set[str] = set()
            for path in found:
                assert zk_paths.is_top(path) or zk_paths.parent(path) in seen, path
                seen.add(path)
            ephemeral = {path for path, node in found.items() if node.is_ephemeral}
            assert {f"/available/{B1}", "/underreplication/locks/urL0000000013"} == ephemeral

        driver.run(scenario())

    def test_one_node_or_a_few_levels_can_be_asked_for(self, driver: Any) -> None:
        async def scenario() -> None:
            store = await driver.open()
            await self.fill(store)
            cookies = await all_nodes(store, "/cookies")
            assert list(cookies) == ["/cookies", f"/cookies/{B1}"]
            assert list(await all_nodes(store, "/cookies", depth=0)) == ["/cookies"]
            top = await all_nodes(store, depth=1)
            assert "/00" in top
            assert "/00/0000" not in top
            assert list(await all_nodes(store, ".logs/l")) == [".logs/l"]
            with pytest.raises(NotFoundError):
                await all_nodes(store, "/cookies/nobody")

        driver.run(scenario())

    def test_where_there_is_no_cluster_there_is_no_root(self, bare_driver: Any) -> None:
        async def scenario() -> None:
            with pytest.raises(NotFoundError):
                await all_nodes(await bare_driver.open())

        bare_driver.run(scenario())

    def test_nodes_can_be_brought_back_into_nothing(self, driver: Any) -> None:
        async def scenario() -> None:
            store = await driver.open()
            await self.fill(store)
            before = await all_nodes(store)
            await store.close()
            keeper = await driver.open()
            await keeper.nuke()
            lasting = [node for node in before.values() if not node.is_ephemeral]
            assert await keeper.add_nodes(lasting, "hierarchical") == []
            after = await all_nodes(keeper)
            valued = {path: node.value for path, node in after.items() if node.value}
            assert valued == {node.path: node.value for node in lasting if node.value}
            ranges = await all_ranges(keeper)
            assert [one for ids in ranges for one in ids] == [1, 2, 12345, 2**32]
            assert (await keeper.read_ledger(LedgerId(2))).value.is_closed
            assert not await keeper.replication_enabled()
            assert await keeper.lost_bookie_recovery_delay() == 7
            assert (await keeper.read_log("l")).value == b"record"
            assert (await keeper.read_cursors(TOPIC)).value == b"cursors"
            assert await keeper.underreplicated(LedgerId(13)) is not None

        driver.run(scenario())

    def test_what_is_there_stays_and_is_told_where_it_differs(self, driver: Any) -> None:
        async def scenario() -> None:
            store = await driver.open()
            await self.fill(store)
            before = await all_nodes(store)
            await store.write_cookie(B1, b"new", 0)
            await store.remove_ledger(LedgerId(1))
            lasting = [node for node in before.values() if not node.is_ephemeral]
            assert await store.add_nodes(lasting, "hierarchical") == [f"/cookies/{B1}"]
            assert (await store.read_cookie(B1)).value == b"new"
            brought_back = (await store.read_ledger(LedgerId(1))).value
            assert brought_back.fragments == metadata().fragments

        driver.run(scenario())

    def test_ids_can_be_skipped_before_there_is_a_cluster(self, driver: Any) -> None:
        async def scenario() -> None:
            store = await driver.open()
            nodes = await all_nodes(store)
            layout = nodes.pop(zk_paths.LAYOUT)
            await store.nuke()
            lasting = [node for node in nodes.values() if not node.is_ephemeral]
            await store.add_nodes(lasting, "hierarchical")
            await store.skip_ledger_ids(LedgerId(70), "hierarchical")
            with pytest.raises(NotInitializedError):
                await store.layout()
            await store.add_nodes([layout], "hierarchical")
            assert await store.allocate_ledger_id() == 71

        driver.run(scenario())

    def test_ids_that_are_skipped_never_come(self, driver: Any) -> None:
        async def scenario() -> None:
            store = await driver.open()
            first = await store.allocate_ledger_id()
            await store.skip_ledger_ids(LedgerId(first + 600), "hierarchical")
            assert await store.allocate_ledger_id() == first + 601
            await store.skip_ledger_ids(LedgerId(first + 3), "hierarchical")
            # A tree uses one up to look.
            assert await store.allocate_ledger_id() in {first + 602, first + 603}
            await store.skip_ledger_ids(LedgerId(2_000_000), "hierarchical")
            assert await store.allocate_ledger_id() > 2_000_000
            await store.skip_ledger_ids(LedgerId(2**40 + 5), "hierarchical")
            assert await store.allocate_ledger_id() > 2**40 + 5
            assert await (await driver.open()).allocate_ledger_id() > 2**40 + 5

        driver.run(scenario())


class TestSwitches:
    def test_replication_is_switched_once(self, driver: Any) -> None:
        async def scenario() -> None:
            one, other = await driver.open(), await driver.open()
            calls: list[int] = []
            watch = await other.watch_replication_enabled(lambda: calls.append(1))
            assert await one.replication_enabled()
            with pytest.raises(AlreadySetError):
                await one.set_replication_enabled(enabled=True)
            await one.set_replication_enabled(enabled=False)
            await driver.until(lambda: calls)
            with pytest.raises(AlreadySetError):
                await one.set_replication_enabled(enabled=False)
            assert not await other.replication_enabled()
            assert await other.replication_note() == b""
            seen = len(calls)
            await one.set_replication_enabled(enabled=True)
            await driver.until(lambda: len(calls) > seen)
            assert await other.replication_enabled()
            watch.cancel()

        driver.run(scenario())

    def test_replication_is_enabled_if_the_note_is_still_the_same(self, driver: Any) -> None:
        async def scenario() -> None:
            one, other = await driver.open(), await driver.open()
            assert not await one.enable_replication_noted(b"")
            await one.set_replication_enabled(enabled=False, note=b"for 30m")
            await other.set_replication_note(b"for 60m")
            assert not await one.enable_replication_noted(b"for 30m")
            assert not await one.replication_enabled()
            assert await one.enable_replication_noted(b"for 60m")
            assert await other.replication_enabled()

        driver.run(scenario())

    def test_a_note_stays_while_replication_is_disabled(self, driver: Any) -> None:
        async def scenario() -> None:
            one, other = await driver.open(), await driver.open()
            assert await one.replication_note() is None
            await one.set_replication_enabled(enabled=False, note=b"rolling restart")
            assert await other.replication_note() == b"rolling restart"
            await other.set_replication_note(b"again")
            assert await one.replication_note() == b"again"
            await other.set_replication_enabled(enabled=True)
            assert await one.replication_note() is None
            with pytest.raises(AlreadySetError):
                await one.set_replication_note(b"too late")

        driver.run(scenario())

    def test_health_checks_are_switched_once(self, driver: Any) -> None:
        async def scenario() -> None:
            store = await driver.open()
            assert await store.health_check_enabled()
            with pytest.raises(AlreadySetError):
                await store.set_health_check_enabled(enabled=True)
            await store.set_health_check_enabled(enabled=False)
            with pytest.raises(AlreadySetError):
                await store.set_health_check_enabled(enabled=False)
            assert not await store.health_check_enabled()
            await store.set_health_check_enabled(enabled=True)
            assert await store.health_check_enabled()

        driver.run(scenario())

    def test_the_same_delay_written_again_is_news(self, driver: Any) -> None:
        async def scenario() -> None:
            one, other = await driver.open(), await driver.open()
            assert await one.lost_bookie_recovery_delay() is None
            calls: list[int] = []
            watch = await other.watch_lost_bookie_recovery_delay(lambda: calls.append(1))
            versions = []
            for delay_s in (30, 30, 0):
                seen = len(calls)
                await one.set_lost_bookie_recovery_delay(delay_s)
                await driver.until(lambda seen=seen: len(calls) > seen)
                assert await other.lost_bookie_recovery_delay() == delay_s
                stored = await other.versioned_recovery_delay()
                assert stored is not None
                assert stored.value == delay_s
                versions.append(stored.version)
            assert versions == [0, 1, 2]
            with pytest.raises(IncorrectParameterError):
                await one.set_lost_bookie_recovery_delay(-1)
            watch.cancel()

        driver.run(scenario())

    def test_check_times_are_kept_by_check(self, driver: Any) -> None:
        async def scenario() -> None:
            store = await driver.open()
            checks = ("all-ledgers", "placement", "replicas")
            for number, check in enumerate(checks):
                assert await store.check_time(check) is None
                await store.set_check_time(check, 1700000000000 + number)
                await store.set_check_time(check, 1700000001000 + number)
            found = [await store.check_time(check) for check in checks]
            assert found == [1700000001000, 1700000001001, 1700000001002]
            with pytest.raises(IncorrectParameterError):
                await store.check_time("every-ledger")

        driver.run(scenario())

    def test_a_damaged_check_time_is_named(self, driver: Any) -> None:
        async def scenario() -> None:
            store, path = await driver.open(), zk_paths.CHECK_TIMES["replicas"]
            above = StoredNode(zk_paths.UNDERREPLICATION, b"", 0)
            await store.add_nodes([above, StoredNode(path, b"\xff", 0)], "hierarchical")
            with pytest.raises(FormatError, match=path):
                await store.check_time("replicas")

        driver.run(scenario())


class TestVeryManyLedgers:
    def test_they_are_read_in_order_without_those_that_are_gone(self, driver: Any) -> None:
        async def scenario() -> None:
            store, other = await driver.open(), await driver.open()
            ids = [LedgerId(number) for number in range(7, 330)]
            for ledger_id in ids[::2]:
                await other.create_ledger(ledger_id, metadata())
            async with aclosing(store.read_ledgers(ids)) as pieces:
                found = [one async for piece in pieces for one in piece]
            assert [one.ledger_id for one in found] == ids[::2]
            assert found[3].stored == await store.read_ledger(found[3].ledger_id)
            await other.remove_ledger(ids[2])
            async with aclosing(store.read_ledgers(ids)) as pieces:
                first = await anext(pieces)  # And no more: the rest is given up.
            assert first[0].ledger_id == ids[0]
            assert [one async for one in store.read_ledgers([])] == []

        driver.run(scenario())


class TestRepair:
    def test_marks_gather_missing_replicas(self, driver: Any) -> None:
        async def scenario() -> None:
            one, other = await driver.open(), await driver.open()
            assert await one.underreplicated(LedgerId(13)) is None
            await one.mark_underreplicated(LedgerId(13), (B1,))
            await other.mark_underreplicated(LedgerId(13), (B2, B1))
            await other.mark_underreplicated(LedgerId(2**40), ())
            mark = await one.underreplicated(LedgerId(13))
            assert mark is not None
            assert mark.replicas == (B1, B2)
            assert mark.ctime_ms is not None
            listed = [(ledger_id, m.replicas) async for ledger_id, m in one.list_underreplicated()]
            assert listed == [(LedgerId(13), (B1, B2)), (LedgerId(2**40), ())]

        driver.run(scenario())

    def test_very_many_ledgers_are_marked_as_one_by_one(self, driver: Any) -> None:
        async def scenario() -> None:
            auditor, worker = await driver.open(), await driver.open()
            ids = [*map(LedgerId, range(1, 150)), LedgerId(2**40)]
            await auditor.mark_underreplicated(LedgerId(2), (B1,))
            await auditor.mark_underreplicated(LedgerId(3), (B2,))
            await auditor.mark_underreplicated(LedgerId(4), (B1,))
            await driver.spoil_mark(auditor, LedgerId(4))
            await auditor.mark_underreplicated(LedgerId(5), (B1, B2))
            assert await worker.take_underreplicated(LedgerId(5))
            told: list[LedgerId] = []
            for _ in range(2):
                await auditor.mark_all_underreplicated(
                    [(one, (B1, B1)) for one in ids], lambda one, _why: told.append(one)
                )
            assert told == [4, 4]
            listed = auditor.list_underreplicated(lambda _one, _why: None)
            marks = {one: mark.replicas async for one, mark in listed}
            assert list(marks) == [one for one in ids if one != 4]
            assert (marks[LedgerId(2)], marks[LedgerId(3)]) == ((B1,), (B2, B1))
            await worker.mark_replicated(LedgerId(5))  # It began before the ledger was marked.
            assert await auditor.underreplicated(LedgerId(5)) is not None
            await auditor.mark_all_underreplicated([], lambda _one, _why: None)

        driver.run(scenario())

    def test_a_damaged_mark_is_told_and_hides_no_other(self, driver: Any) -> None:
        async def scenario() -> None:
            store = await driver.open()
            for number in (1, 2, 3):
                await store.mark_underreplicated(LedgerId(number), (B1,))
            await driver.spoil_mark(store, LedgerId(2))
            told: list[tuple[LedgerId, str]] = []
            listed = store.list_underreplicated(lambda one, why: told.append((one, str(why))))
            assert [ledger_id async for ledger_id, _ in listed] == [1, 3]
            assert [one for one, _ in told] == [2]
            assert told[0][1].startswith("the mark of ledger 2: ")
            with pytest.raises(MetadataFormatError, match="the mark of ledger 2: "):
                [one async for one in store.list_underreplicated()]
            with pytest.raises(MetadataFormatError, match="the mark of ledger 2: "):
                await store.underreplicated(LedgerId(2))

        driver.run(scenario())

    def test_two_markers_at_once_lose_nothing(self, driver: Any) -> None:
        async def scenario() -> None:
            stores = [await driver.open() for _ in range(3)]
            bookies = [BookieId(f"b{i}:1") for i in range(9)]
            await run_together(
                stores[i % 3].mark_underreplicated(LedgerId(1), (bookie,))
                for i, bookie in enumerate(bookies)
            )
            mark = await stores[0].underreplicated(LedgerId(1))
            assert mark is not None
            assert sorted(mark.replicas) == bookies

        driver.run(scenario())

    def test_a_ledger_is_repaired_by_one_worker_at_a_time(self, driver: Any) -> None:
        async def scenario() -> None:
            auditor = await driver.open()
            workers = [await driver.open(lock_owner=f"host-{i}") for i in range(3)]
            for ledger_id in (1, 2, 2**33):
                await auditor.mark_underreplicated(LedgerId(ledger_id), (B1,))
            taken = [await worker.poll_underreplicated() for worker in workers]
            assert sorted(taken) == [1, 2, 2**33]
            assert [await worker.poll_underreplicated() for worker in workers] == [None] * 3
            assert await auditor.lock_owner(taken[1]) == "host-1"
            assert not await workers[0].acquire_lock(taken[1])
            # Who does not hold the lock can neither release it nor end the repair.
            await workers[0].release_lock(taken[1])
            await workers[0].mark_replicated(taken[1])
            assert await auditor.underreplicated(taken[1]) is not None
            assert await auditor.lock_owner(taken[1]) == "host-1"

            await workers[1].mark_replicated(taken[1])
            assert await auditor.underreplicated(taken[1]) is None
            assert await auditor.lock_owner(taken[1]) is None
            await workers[0].release_lock(taken[0])
            assert await workers[2].poll_underreplicated() == taken[0]

        driver.run(scenario())

    def test_every_lock_is_listed_with_its_owner_and_age(self, driver: Any) -> None:
        async def scenario() -> None:
            one, other = await driver.open(lock_owner="a"), await driver.open(lock_owner="b")
            assert await one.repair_locks() == []
            await one.mark_underreplicated(LedgerId(2**33), (B1,))
            assert await other.poll_underreplicated() == 2**33
            assert await one.acquire_lock(LedgerId(7))
            held = await other.repair_locks()
            assert [(lock.ledger_id, lock.owner) for lock in held] == [(7, "a"), (2**33, "b")]
            assert all(lock.since_ms > 1_600_000_000_000 for lock in held)
            await other.mark_replicated(LedgerId(2**33))
            assert [lock.ledger_id for lock in await one.repair_locks()] == [7]

        driver.run(scenario())

    @pytest.mark.parametrize("again", [(B2,), (B1,), (B2, B1)])
    def test_a_mark_renewed_during_the_repair_stays(
        self, driver: Any, again: tuple[BookieId, ...]
    ) -> None:
        async def scenario() -> None:
            auditor, worker = await driver.open(), await driver.open()
            await auditor.mark_underreplicated(LedgerId(1), (B1,))
            assert await worker.poll_underreplicated() == 1
            await auditor.mark_underreplicated(LedgerId(1), again)
            await worker.mark_replicated(LedgerId(1))
            mark = await auditor.underreplicated(LedgerId(1))
            assert mark is not None
            assert set(mark.replicas) == {B1, *again}
            assert await auditor.lock_owner(LedgerId(1)) is None
            assert await worker.poll_underreplicated() == 1
            await worker.mark_replicated(LedgerId(1))
            assert await auditor.underreplicated(LedgerId(1)) is None

        driver.run(scenario())

    def test_one_marked_ledger_is_taken_as_by_polling(self, driver: Any) -> None:
        async def scenario() -> None:
            one, other = await driver.open(), await driver.open()
            assert not await one.take_underreplicated(LedgerId(1))
            for ledger_id in (LedgerId(1), LedgerId(2)):
                await other.mark_underreplicated(ledger_id, (B1,))
            assert await one.take_underreplicated(LedgerId(1))
            assert not await other.take_underreplicated(LedgerId(1))
            await one.mark_replicated(LedgerId(1))
            assert [ledger_id async for ledger_id, _ in other.list_underreplicated()] == [2]
            assert await other.take_underreplicated(LedgerId(2))
            await one.mark_underreplicated(LedgerId(2), (B2,))
            await other.mark_replicated(LedgerId(2))
            assert await one.underreplicated(LedgerId(2)) is not None

        driver.run(scenario())

    def test_marks_have_no_time_where_none_is_wanted(self, driver: Any) -> None:
        async def scenario() -> None:
            timed, untimed = await driver.open(), await driver.open(mark_times=False)
            await untimed.mark_underreplicated(LedgerId(1), (B1,))
            await untimed.mark_underreplicated(LedgerId(1), (B2,))
            await timed.mark_underreplicated(LedgerId(2), (B1,))
            times = {i: mark.ctime_ms async for i, mark in timed.list_underreplicated()}
            assert times[1] is None
            assert times[2] is not None

        driver.run(scenario())

    def test_a_mark_that_is_made_again_keeps_its_time(self, driver: Any) -> None:
        async def scenario() -> None:
            auditor, worker = await driver.open(), await driver.open()
            await auditor.mark_underreplicated(LedgerId(1), (B1,))
            before = await auditor.underreplicated(LedgerId(1))
            assert await worker.take_underreplicated(LedgerId(1))
            began_s = time.monotonic()
            while time.monotonic() - began_s < 0.003:  # Until a clock of milliseconds has moved.
                await auditor.mark_underreplicated(LedgerId(1), (B1,))
            assert await auditor.underreplicated(LedgerId(1)) == before
            await worker.mark_replicated(LedgerId(1))
            assert await auditor.underreplicated(LedgerId(1)) == before, "it was marked meanwhile"

        driver.run(scenario())

    def test_a_lock_taken_without_a_mark_deletes_none(self, driver: Any) -> None:
        async def scenario() -> None:
            auditor, collector = await driver.open(), await driver.open()
            await auditor.mark_underreplicated(LedgerId(1), (B1,))
            assert await collector.acquire_lock(LedgerId(1))
            assert await auditor.poll_underreplicated() is None
            await collector.mark_replicated(LedgerId(1))
            assert await auditor.underreplicated(LedgerId(1)) is not None
            assert await auditor.poll_underreplicated() == 1

        driver.run(scenario())

    def test_repaired_ledgers_leave_no_empty_levels_behind(self, driver: Any) -> None:
        async def scenario() -> None:
            store = await driver.open()
            assert await store.poll_underreplicated() is None
            assert await store.acquire_lock(LedgerId(0))
            await store.release_lock(LedgerId(0))
            before = await store.dump()
            for ledger_id in (1, 2, 2**33):
                await store.mark_underreplicated(LedgerId(ledger_id), (B1,))
            for _ in range(3):
                await store.mark_replicated(await store.poll_underreplicated())
            assert await store.dump() == before

        driver.run(scenario())

    def test_an_expired_sessions_lock_is_free_and_its_repair_void(self, driver: Any) -> None:
        async def scenario() -> None:
            worker, other = await driver.open(), await driver.open()
            lost: list[SessionEvent] = []
            worker.on_session(lost.append)
            await other.mark_underreplicated(LedgerId(1), (B1,))
            assert await worker.poll_underreplicated() == 1
            await driver.expire(worker)
            await driver.until(lambda: SessionEvent.LOST in lost)
            await worker.mark_replicated(LedgerId(1))
            assert await other.underreplicated(LedgerId(1)) is not None
            assert await other.poll_underreplicated() == 1

        driver.run(scenario())

    def test_who_waits_for_work_is_woken(self, driver: Any) -> None:
        async def scenario() -> None:
            auditor, worker = await driver.open(), await driver.open()
            calls: list[int] = []
            watch = await worker.watch_underreplicated(lambda: calls.append(1))
            for ledger_id in (1, 2, 70_000, 2**40):
                assert await worker.poll_underreplicated() is None
                seen = len(calls)
                await auditor.mark_underreplicated(LedgerId(ledger_id), (B1,))
                found = None
                while found is None:
                    await driver.until(lambda seen=seen: len(calls) > seen)
                    seen = len(calls)
                    found = await worker.poll_underreplicated()
                assert found == ledger_id
            # A lock that is given back is work again.
            seen = len(calls)
            await worker.release_lock(LedgerId(2))
            await driver.until(lambda: len(calls) > seen)
            watch.cancel()

        driver.run(scenario())


class TestElection:
    def test_a_node_that_is_not_a_vote_keeps_nobody_from_being_elected(self, driver: Any) -> None:
        async def scenario() -> None:
            store = await driver.open()
            tree = store._tree
            if driver.name == "sqlite":
                return  # A file has votes only.
            await store.elect(B1)
            await tree.create(f"{zk_paths.ELECTION}/V_x")
            other = await driver.open()
            standing = start(other.elect(B2))
            assert await store.current_auditor() == B1
            await store.resign()
            await standing
            assert await store.current_auditor() == B2

        driver.run(scenario())

    def test_the_first_to_stand_wins_and_the_next_follows(self, driver: Any) -> None:
        async def scenario() -> None:
            stores = [await driver.open() for _ in range(3)]
            assert await stores[0].current_auditor() is None
            await stores[0].elect(B1)
            second = start(stores[1].elect(B2))
            await driver.sleep(0.2)
            for _ in range(5):  # Answered in turn: behind each other, and behind its vote.
                await stores[1].current_auditor()
            third = start(stores[2].elect(B3))
            await driver.sleep(0.2)
            assert not second.called
            assert not third.called
            assert await stores[2].current_auditor() == B1
            dump = await stores[2].dump()
            assert dump["/underreplication/auditorelection"][0] == f'bookieId: "{B1}"\n'.encode()

            await driver.expire(stores[0])
            await second
            assert await stores[2].current_auditor() == B2
            assert not third.called
            dump = await stores[2].dump()
            assert dump["/underreplication/auditorelection"][0] == f'bookieId: "{B2}"\n'.encode()

            await stores[1].resign()
            await third
            assert await stores[1].current_auditor() == B3
            await stores[2].close()
            assert await stores[1].current_auditor() is None

        driver.run(scenario())

    def test_a_candidate_can_withdraw(self, driver: Any) -> None:
        async def scenario() -> None:
            one, other = await driver.open(), await driver.open()
            await one.elect(B1)
            standing = start(other.elect(B2))
            await driver.sleep(0.2)
            standing.cancel()
            with pytest.raises(CancelledError):
                await standing
            await one.resign()
            assert await one.current_auditor() is None

        driver.run(scenario())

    def test_a_candidate_stands_on_after_its_session_expired(self, driver: Any) -> None:
        async def scenario() -> None:
            one, other = await driver.open(), await driver.open()
            await one.elect(B1)
            standing = start(other.elect(B2))
            await driver.sleep(0.2)
            await driver.expire(other)
            await driver.sleep(0.5)
            assert not standing.called
            await one.resign()
            await standing
            assert await one.current_auditor() == B2

        driver.run(scenario())


class TestSessions:
    def test_watches_outlive_the_session(self, driver: Any) -> None:
        async def scenario() -> None:
            writer, reader = await driver.open(), await driver.open()
            await writer.create_ledger(LedgerId(1), metadata())
            # Something it owns, so that there is a session to lose.
            await reader.register(B3, info(B3), read_only=False)
            ledger: list[int] = []
            bookies: list[int] = []
            events: list[SessionEvent] = []
            reader.on_session(events.append)
            await reader.watch_ledger(LedgerId(1), lambda: ledger.append(1))
            await reader.watch_bookies(lambda: bookies.append(1))
            await driver.expire(reader)
            await driver.until(lambda: SessionEvent.LOST in events)
            await driver.until(lambda: events[-1] is SessionEvent.CONNECTED)
            await driver.sleep(0.3)
            seen = len(ledger), len(bookies)
            await writer.write_ledger(LedgerId(1), closed(), 0)
            await driver.until(lambda: len(ledger) > seen[0])
            await writer.register(B1, info(B1), read_only=False)
            await driver.until(lambda: len(bookies) > seen[1])

        driver.run(scenario())

    def test_who_waits_when_the_store_is_closed_hears_of_it(self, driver: Any) -> None:
        async def scenario() -> None:
            one, other = await driver.open(), await driver.open(registration_wait_s=20.0)
            await one.elect(B1)
            await one.register(B1, info(B1), read_only=False)
            waiting = [
                start(other.elect(B2)),
                start(other.register(B1, info(B1), read_only=False)),
            ]
            await driver.sleep(0.3)
            await other.close()
            for each in waiting:
                with pytest.raises(ClientClosedError):
                    await each
            with pytest.raises(ClientClosedError):
                await other.layout()

        driver.run(scenario())

    def test_a_closed_store_tells_nothing_more(self, driver: Any) -> None:
        async def scenario() -> None:
            store, other = await driver.open(), await driver.open()
            events: list[SessionEvent] = []
            store.on_session(events.append)
            calls: list[int] = []
            await store.create_ledger(LedgerId(1), metadata())
            await store.watch_ledger(LedgerId(1), lambda: calls.append(1))
            await store.close()
            await other.write_ledger(LedgerId(1), closed(), 0)
            await driver.sleep(0.2)
            assert (events, calls) == ([], [])

        driver.run(scenario())
