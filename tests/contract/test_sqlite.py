"""What only a file can show: several processes, kills, clocks, damage, wrong places."""

from __future__ import annotations

import random
import signal
import sqlite3
import stat
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from twisted.internet.defer import CancelledError, Deferred

from bkclient.errors import IncorrectParameterError, MetadataStoreError, MetadataVersionError
from bkclient.metadata import open_metadata, zk_paths
from bkclient.metadata.errors import (
    IncompatibleLayoutError,
    MetadataUnavailableError,
    NoSuchLogError,
    NotInitializedError,
)
from bkclient.metadata.sqlite.database import file_system_of
from bkclient.metadata.sqlite.rows import CHANGES_KEPT, Rows
from bkclient.metadata.sqlite.session import Database, FileSession
from bkclient.metadata.sqlite.store import open_sqlite, parse_uri
from bkclient.metadata.tree.logs import TOMBSTONE
from bkclient.metadata.tree.nodes import NoNodeError
from bkclient.metadata.versions_and_watches import SessionEvent
from tests.bkclient.metadata.values import B1, B2, closed, info, metadata
from tests.contract.metadata_drivers import SqliteDriver
from tests.support import reactor
from wire.errors import FormatError
from wire.ids import LedgerId

L0, L1 = LedgerId(0), LedgerId(1)


@pytest.fixture
def files(tmp_path: Path) -> Iterator[SqliteDriver]:
    """A driver with a cluster in a file."""
    driver = SqliteDriver(tmp_path)
    driver.run(_made(driver))
    yield driver
    driver.run(driver.close())


async def _made(driver: SqliteDriver) -> None:
    store = await driver.open()
    await store.initialize()
    await store.close()


def open_at(path: Path, **options: Any) -> Any:
    return open_metadata(f"sqlite://{path}", reactor=reactor.the_reactor(), **options)


def process(path: Path, role: str, *arguments: str) -> subprocess.Popen[str]:
    command = [sys.executable, "-m", "tests.contract.sqlite_process", str(path), role, *arguments]
    return subprocess.Popen(
        command, stdout=subprocess.PIPE, text=True, cwd=Path(__file__).parent.parent.parent
    )


def session_at(
    path: Path, now_s: Callable[[], float], monotonic_s: Callable[[], float]
) -> FileSession:
    return FileSession(
        path,
        now_s=now_s,
        monotonic_s=monotonic_s,
        session_timeout_s=10.0,
        busy_timeout_s=0.0,
    )


def lock(rows: Rows, session: int | None) -> None:
    rows.insert("lock", 1, b"", session)


class TestUris:
    @pytest.mark.parametrize(
        ("uri", "path"),
        [
            ("sqlite:///var/lib/bk.sqlite", "/var/lib/bk.sqlite"),
            ("sqlite:////var/lib/bk.sqlite", "/var/lib/bk.sqlite"),
            ("sqlite://localhost/var/bk.sqlite", "/var/bk.sqlite"),
            ("sqlite:bk.sqlite", "bk.sqlite"),
            ("sqlite:./some dir/bk.sqlite", "some dir/bk.sqlite"),
            ("SQLite:/bk", "/bk"),
        ],
    )
    def test_a_uri_names_a_file(self, uri: str, path: str) -> None:
        assert parse_uri(uri) == Path(path)

    @pytest.mark.parametrize(
        "uri",
        ["sqlite:", "sqlite://", "sqlite:///", "sqlite://host/file", "sqlite:dir/", "sqlit:x"],
    )
    def test_what_names_no_file_is_a_bad_argument(self, uri: str) -> None:
        with pytest.raises(IncorrectParameterError) as caught:
            open_sqlite(uri, reactor=reactor.the_reactor(), session_timeout_s=1.0)
        assert caught.value.exit_status == 2


class TestPlaces:
    def test_a_typo_makes_no_file_and_names_the_remedy(self, tmp_path: Path) -> None:
        path = tmp_path / "typo.sqlite"
        store = open_at(path)
        reactor.run(store.connect())
        with pytest.raises(NotInitializedError, match=r"typo\.sqlite") as caught:
            reactor.run(store.read_ledger(L1))
        assert "bkctl cluster init" in caught.value.hint
        reactor.run(store.close())
        assert list(tmp_path.iterdir()) == []

    def test_a_missing_directory_is_said(self, tmp_path: Path) -> None:
        store = open_at(tmp_path / "missing" / "bk.sqlite")
        with pytest.raises(MetadataUnavailableError, match=r"no directory .*missing"):
            reactor.run(store.connect())

    def test_a_directory_is_no_file(self, tmp_path: Path) -> None:
        with pytest.raises(MetadataUnavailableError, match="is a directory"):
            reactor.run(open_at(tmp_path).connect())

    @pytest.mark.parametrize("content", [b"some text, quite long enough to be seen\n" * 40])
    def test_another_file_is_not_touched(self, tmp_path: Path, content: bytes) -> None:
        path = tmp_path / "notes.txt"
        path.write_bytes(content)
        with pytest.raises(IncompatibleLayoutError, match="is not a metadata file"):
            reactor.run(open_at(path).connect())
        assert path.read_bytes() == content

    def test_another_programs_database_is_not_touched(self, tmp_path: Path) -> None:
        path = tmp_path / "other.sqlite"
        with sqlite3.connect(path) as connection:
            connection.execute("CREATE TABLE precious(thing)")
        connection.close()
        before = path.read_bytes()
        with pytest.raises(IncompatibleLayoutError, match="another program"):
            reactor.run(open_at(path).connect())
        assert path.read_bytes() == before

    def test_a_newer_schema_is_refused(self, files: SqliteDriver) -> None:
        with sqlite3.connect(files.path) as connection:
            connection.execute("PRAGMA user_version = 2")
        connection.close()
        with pytest.raises(IncompatibleLayoutError, match="schema 2"):
            reactor.run(open_at(files.path).connect())

    def test_only_the_owner_can_read_passwords(self, files: SqliteDriver) -> None:
        assert stat.S_IMODE(files.path.stat().st_mode) == 0o600

    def test_a_file_that_cannot_be_written_is_said(self, files: SqliteDriver) -> None:
        connection = sqlite3.connect(f"file:{files.path}?mode=ro", uri=True, isolation_level=None)
        database = Database(files.path, connection, busy_timeout_s=1.0)
        writing = database.transaction(lambda: 0, write=True)
        with pytest.raises(MetadataUnavailableError, match="cannot be written"), writing as rows:
            rows.insert("meta", "x", b"")
        connection.close()

    def test_damage_is_said(self, files: SqliteDriver) -> None:
        async def scenario() -> None:
            store = await files.open()
            for ledger_id in range(50):
                await store.create_ledger(LedgerId(ledger_id), metadata())

        files.run(scenario())
        files.run(files.close())
        content = bytearray(files.path.read_bytes())
        content[4096 * 1 : 4096 * 6] = b"\xaa" * 4096 * 5
        files.path.write_bytes(content)

        async def read() -> None:
            store = await files.open()
            await store.dump()

        with pytest.raises(MetadataStoreError, match="damaged"):
            files.run(read())

    @pytest.mark.parametrize(
        ("directory", "kind"),
        [
            ("/home/me", "ext4"),
            ("/home/me/net", "nfs4"),
            ("/home/me/net/deep/er", "nfs4"),
            ("/home/me/network", "ext4"),
            ("/mnt/a b/c", "cifs"),
            ("/mnt/données\u3000\x85/c", "nfs"),
            ("/mnt/\udcff\\n/c", "ceph"),
            ("/", "overlay"),
        ],
    )
    def test_network_file_systems_are_known(self, directory: str, kind: str) -> None:
        mounts = (
            "22 1 0:21 / / rw,relatime shared:1 - overlay overlay rw\n"
            "23 22 8:1 / /home rw,relatime shared:2 - ext4 /dev/sda1 rw\n"
            "24 23 0:40 / /home/me/net rw shared:3 master:1 - nfs4 host:/x rw\n"
            "25 22 0:41 / /mnt/a\\040b rw - cifs //host/share rw\n"
            "26 22 0:42 / /mnt/données\u3000\x85 rw - nfs host:/y rw\n"
            "27 22 0:43 / /mnt/\udcff\\134n rw - ceph host:/z rw\n"
            "garbage\n"
        )
        assert file_system_of(Path(directory), mounts) == kind

    def test_a_network_file_system_is_refused(
        self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        real = Path.read_text
        place = str(tmp_path).replace(" ", "\\040")
        mounts = f"22 1 0:21 / {place} rw - nfs4 host:/x rw\n"
        monkeypatch.setattr(
            Path,
            "read_text",
            lambda p, **kw: mounts if str(p) == "/proc/self/mountinfo" else real(p, **kw),
        )
        with pytest.raises(MetadataUnavailableError, match=r"network file system \(nfs4\)"):
            reactor.run(open_at(tmp_path / "bk.sqlite").connect())


class TestDamage:
    def test_no_ledger_is_made_under_a_layout_that_cannot_be_read(
        self, files: SqliteDriver
    ) -> None:
        async def scenario() -> None:
            store = await files.open()
            with sqlite3.connect(files.path) as connection:
                connection.execute("UPDATE node SET value = x'fffe' WHERE key = '/LAYOUT'")
            connection.close()
            with pytest.raises(FormatError, match="/LAYOUT cannot be read"):
                await store.allocate_ledger_id()
            with pytest.raises(FormatError, match="/LAYOUT cannot be read"):
                await store.create_ledger(L1, metadata())

        files.run(scenario())


class TestLocks:
    def test_a_file_locked_too_long_is_said(self, files: SqliteDriver) -> None:
        async def scenario() -> None:
            store = await files.open(busy_timeout_s=0.2)
            other = sqlite3.connect(files.path, isolation_level=None)
            other.execute("BEGIN IMMEDIATE")
            assert (await store.layout()).name == "hierarchical"  # Reading needs no lock.
            with pytest.raises(MetadataUnavailableError, match="locked by another process"):
                await store.create_ledger(L1, metadata())
            other.execute("ROLLBACK")
            other.close()
            assert await store.create_ledger(L1, metadata()) == 0

        files.run(scenario())

    def test_a_lease_that_cannot_be_renewed_is_suspended_and_then_lost(
        self, files: SqliteDriver
    ) -> None:
        async def scenario() -> None:
            store = await files.open(busy_timeout_s=0.05, session_timeout_s=3.0)
            events: list[SessionEvent] = []
            store.on_session(events.append)
            await store.register(B1, info(B1), read_only=False)
            other = sqlite3.connect(files.path, isolation_level=None)
            other.execute("BEGIN IMMEDIATE")
            await files.until(lambda: SessionEvent.SUSPENDED in events)
            await files.until(lambda: SessionEvent.LOST in events)
            other.execute("ROLLBACK")
            other.close()
            await files.until(lambda: events[-1] is SessionEvent.CONNECTED)
            # The old registration is this process's own: it does not stand in the way.
            await store.register(B1, info(B1), read_only=False)
            assert events[-1] is SessionEvent.CONNECTED
            assert await store.writable_bookies() == {B1}

        files.run(scenario())


class TestClocks:
    def test_a_clock_that_jumps_ends_the_session(self, files: SqliteDriver) -> None:
        async def scenario() -> None:
            monotonic = [1000.0]
            store = await files.open(monotonic_s=lambda: monotonic[0] + time.monotonic())
            events: list[SessionEvent] = []
            store.on_session(events.append)
            await store.register(B1, info(B1), read_only=False)
            await files.sleep(0.5)
            assert events == []
            monotonic[0] += files.timeout_s * 0.6
            await files.until(lambda: SessionEvent.LOST in events)
            await store.register(B1, info(B1), read_only=False)
            assert await store.writable_bookies() == {B1}

        files.run(scenario())

    def test_a_lease_counts_from_before_its_renewal(self, files: SqliteDriver) -> None:
        now_s = [0.0]
        session = session_at(files.path, lambda: 1_700_000_000 + now_s[0], lambda: now_s[0])
        assert session.do(lambda _rows, one: one, write=True, needs_session=True).value
        now_s[0] = 3.0

        def take_long(statement: str) -> None:
            if statement == "COMMIT":
                now_s[0] = 9.0

        assert session._database is not None
        connection = session._database._connection
        connection.set_trace_callback(take_long)
        assert session.renew().error is None
        connection.set_trace_callback(None)
        now_s[0] = 13.5
        other = sqlite3.connect(files.path, isolation_level=None)
        other.execute("BEGIN IMMEDIATE")  # So that the file itself cannot be asked.
        assert session.renew().lost_session
        other.close()
        session.close()

    @pytest.mark.parametrize(
        ("back_s", "is_over"), [(2.0, False), (3.0, False), (4.0, True), (86_400.0, True)]
    )
    def test_a_clock_set_back_leaves_no_session_of_the_future(
        self, files: SqliteDriver, back_s: float, *, is_over: bool
    ) -> None:
        now_s = [1_700_000_000.0]
        dead, other = (session_at(files.path, lambda: now_s[0], lambda: 0.0) for _ in range(2))
        assert dead.do(lock, write=True, needs_session=True).error is None
        now_s[0] -= back_s
        seen = other.do(lambda rows, _: rows.get("lock", 1), write=False).value
        assert (seen is None) is is_over
        assert dead.renew().lost_session is is_over  # Both count alike.
        assert (other.do(lock, write=True, needs_session=True).error is None) is is_over
        dead.close()
        other.close()

    def test_a_write_that_waited_for_the_file_ends_no_session_renewed_meanwhile(
        self, files: SqliteDriver
    ) -> None:
        now_s = [1_700_000_000.0]
        live, waiting = (
            session_at(files.path, lambda: now_s[0], lambda: now_s[0]) for _ in range(2)
        )
        assert live.do(lock, write=True, needs_session=True).error is None
        assert waiting.look().error is None

        def wait(statement: str) -> None:
            if statement == "BEGIN IMMEDIATE":
                now_s[0] += 4.0
                assert live.renew().error is None

        assert waiting._database is not None
        connection = waiting._database._connection
        connection.set_trace_callback(wait)
        assert waiting.do(lambda _rows, one: one, write=True).error is None
        connection.set_trace_callback(None)
        assert not live.renew().lost_session
        assert waiting.do(lambda rows, _: rows.get("lock", 1), write=False).value is not None
        live.close()
        waiting.close()

    def test_a_session_that_was_given_up_is_ended_with_the_next_write(
        self, files: SqliteDriver
    ) -> None:
        monotonic_s = [0.0]
        session = session_at(files.path, lambda: 1_700_000_000.0, lambda: monotonic_s[0])
        assert session.do(lock, write=True, needs_session=True).error is None
        monotonic_s[0] = 6.0  # By the wall clock no time has passed.
        assert session.do(lambda _rows, one: one, write=True).lost_session
        assert session.do(lambda rows, _: rows.get("lock", 1), write=True).value is None
        session.close()

    def test_a_session_lives_on_while_its_process_does(self, files: SqliteDriver) -> None:
        async def scenario() -> None:
            store, other = await files.open(session_timeout_s=3.0), await files.open()
            events: list[SessionEvent] = []
            store.on_session(events.append)
            await store.register(B1, info(B1), read_only=False)
            await files.sleep(6)
            await other.create_ledger(L1, metadata())  # A writer, which removes what is expired.
            assert await other.writable_bookies() == {B1}
            assert events == []

        files.run(scenario())


class TestFiles:
    def test_a_replaced_file_is_noticed(self, files: SqliteDriver) -> None:
        async def scenario() -> None:
            store = await files.open()
            events: list[SessionEvent] = []
            store.on_session(events.append)
            await store.register(B1, info(B1), read_only=False)
            await store.create_ledger(L1, metadata())
            for name in files.path.parent.iterdir():
                name.unlink()
            await files.until(lambda: SessionEvent.LOST in events)
            with pytest.raises(NotInitializedError):
                await store.read_ledger(L1)
            fresh = await files.open()
            await fresh.initialize()
            assert [ids async for ids in fresh.ledger_ranges()] == []
            assert [ids async for ids in store.ledger_ranges()] == []
            await store.register(B1, info(B1), read_only=False)
            assert await fresh.writable_bookies() == {B1}

        files.run(scenario())

    def test_who_fell_behind_the_change_log_is_told_all_the_same(self, files: SqliteDriver) -> None:
        async def scenario() -> None:
            writer, reader = await files.open(), await files.open(poll_interval_s=0.5)
            await writer.create_ledger(L1, metadata())
            calls: list[int] = []
            await reader.watch_ledger(L1, lambda: calls.append(1))
            await writer.write_ledger(L1, closed(), 0)
            with sqlite3.connect(files.path) as connection:
                connection.execute("DELETE FROM change")
                connection.execute("UPDATE sqlite_sequence SET seq = seq + 5 WHERE name = 'change'")
                connection.execute("INSERT INTO change(kind, key) VALUES('cookie', 'x')")
            connection.close()
            await files.until(lambda: calls)

        files.run(scenario())

    def test_the_change_log_is_trimmed(self, files: SqliteDriver) -> None:
        database = Database.open(files.path, busy_timeout_s=1.0)
        with database.transaction(lambda: 1, write=True) as rows:
            for number in range(CHANGES_KEPT * 3):
                rows.put("meta", "x", b"%d" % number)
        with database.transaction(lambda: 1, write=False) as rows:
            assert rows.changes.after(CHANGES_KEPT * 3 - 5)[1]
            assert rows.changes.after(0)[1] is None
        database.close()
        with sqlite3.connect(files.path) as connection:
            count = connection.execute("SELECT count(*) FROM change").fetchone()[0]
        connection.close()
        assert count <= CHANGES_KEPT * 1.2

    def test_a_hundred_thousand_ledgers_come_in_order(self, files: SqliteDriver) -> None:
        ids = sorted(random.Random(3).sample(range(2**40), 100_000))

        async def scenario() -> None:
            store = await files.open()
            await store.create_ledger(LedgerId(0), metadata())
            with sqlite3.connect(files.path) as connection:
                connection.executemany(
                    "INSERT INTO node SELECT kind, ?, value, 0, ctime_ms, NULL FROM node"
                    " WHERE kind = 'ledger' AND key = 0",
                    [(i,) for i in ids if i],
                )
            connection.close()
            ranges = [some async for some in store.ledger_ranges()]
            assert [i for some in ranges for i in some] == [0, *ids]
            assert max(map(len, ranges)) == 10_000
            after = [i async for some in store.ledger_ranges(after=ids[500]) for i in some]
            assert after == ids[501:]

        files.run(scenario())


class TestLedgerIds:
    def test_an_id_that_was_chosen_is_not_generated(self, files: SqliteDriver) -> None:
        async def scenario() -> None:
            store = await files.open()
            assert await store.allocate_ledger_id() == 0
            await store.create_ledger(LedgerId(2), metadata())
            await store.remove_ledger(LedgerId(2))
            assert await store.allocate_ledger_id() == 3
            await store.create_ledger(LedgerId(1), metadata())
            assert await store.allocate_ledger_id() == 4

        files.run(scenario())

    def test_the_highest_ids_do_not_use_up_the_others(self, files: SqliteDriver) -> None:
        async def scenario() -> None:
            store = await files.open()
            await store.create_ledger(LedgerId(2**63 - 2), metadata())
            assert await store.allocate_ledger_id() == 0

        files.run(scenario())

    def test_the_writer_of_a_deleted_ledger_changes_nothing_of_the_next_of_its_id(
        self, files: SqliteDriver
    ) -> None:
        async def scenario() -> None:
            store = await files.open()
            stale = await store.create_ledger(LedgerId(7), metadata())
            await store.remove_ledger(LedgerId(7))
            await store.create_ledger(LedgerId(7), metadata())
            with pytest.raises(MetadataVersionError):
                await store.write_ledger(LedgerId(7), closed(), stale)
            assert not (await store.read_ledger(LedgerId(7))).value.is_closed

        files.run(scenario())

    def test_who_lives_through_the_removal_of_a_cluster_changes_nothing_of_the_next(
        self, files: SqliteDriver
    ) -> None:
        async def scenario() -> None:
            store = await files.open()
            first = await store.create_log("events", b"first")
            version = await store.create_ledger(L0, metadata(), is_allocated=True)
            await store.nuke()
            await store.initialize()
            assert await store.create_log("events", b"another") > first
            await store.create_ledger(L0, metadata(), is_allocated=True)
            with pytest.raises(MetadataVersionError):
                await store.write_log("events", b"stale", first)
            with pytest.raises(MetadataVersionError):
                await store.write_ledger(L0, closed(), version)

        files.run(scenario())


@pytest.mark.processes
class TestFailedCalls:
    def test_a_call_that_fails_has_changed_nothing(self, files: SqliteDriver) -> None:
        async def scenario() -> None:
            store = await files.open()
            assert await store.allocate_ledger_id() == 0
            other = sqlite3.connect(files.path, isolation_level=None)
            other.execute("ALTER TABLE change RENAME TO hidden")
            with pytest.raises(MetadataStoreError, match="change"):
                await store.allocate_ledger_id()
            other.execute("ALTER TABLE hidden RENAME TO change")
            other.close()
            assert await store.allocate_ledger_id() == 1

        files.run(scenario())


class TestCancelledCalls:
    def test_a_change_that_one_has_noticed_is_told(self, files: SqliteDriver) -> None:
        async def scenario() -> None:
            other = await files.open()
            await other.create_ledger(L1, metadata())
            store = await files.open(poll_interval_s=3600.0)  # Only its own calls notice changes.
            told: list[int] = []
            await store.watch_ledger(L1, lambda: told.append(1))
            await other.write_ledger(L1, closed(), 0)
            call = Deferred.fromCoroutine(store.allocate_ledger_id())
            call.cancel()
            with pytest.raises(CancelledError):
                await call
            await files.until(lambda: told)

        files.run(scenario())

    def test_a_lock_that_one_has_taken_can_be_released(self, files: SqliteDriver) -> None:
        async def scenario() -> None:
            store = await files.open()
            assert await store.acquire_lock(L0)  # So that the next one begins with its write.
            call = Deferred.fromCoroutine(store.acquire_lock(L1))
            call.cancel()
            with pytest.raises(CancelledError):
                await call
            assert await store.lock_owner(L1) is not None
            await store.release_lock(L1)
            assert await store.lock_owner(L1) is None

        files.run(scenario())


class TestOwners:
    def test_what_another_session_owns_is_not_deleted(self, files: SqliteDriver) -> None:
        async def scenario() -> None:
            owner, late = await files.open(), await files.open()
            assert await owner.acquire_lock(L0)
            with pytest.raises(NoNodeError):  # As where the lock was still its own when it looked.
                await late._tree.delete(zk_paths.lock(L0))
            assert await late.lock_owner(L0) is not None

        files.run(scenario())


class TestWatches:
    def test_watches_outlive_a_cluster_that_is_removed_and_made_again(
        self, files: SqliteDriver
    ) -> None:
        async def scenario() -> None:
            store, other = await files.open(), await files.open()
            told: list[str] = []
            await store.watch_replication_enabled(lambda: told.append("switch"))
            await store.watch_bookies(lambda: told.append("bookies"))
            await other.nuke()
            await files.until(lambda: {*told} == {"switch", "bookies"})
            await other.initialize()
            told.clear()
            await other.set_replication_enabled(enabled=False)
            await other.register(B1, info(B1), read_only=False)
            await files.until(lambda: {*told} == {"switch", "bookies"})

        files.run(scenario())


class TestRemovedLogs:
    def test_nothing_stays_in_the_file_that_an_older_release_could_misread(
        self, files: SqliteDriver
    ) -> None:
        async def scenario() -> None:
            store = await files.open()
            first = await store.create_log("events", b"record")
            await store.remove_log("events")
            with sqlite3.connect(files.path) as connection:
                found = connection.execute("SELECT key FROM node WHERE kind = 'log'").fetchall()
            connection.close()
            assert found == []
            assert await store.create_log("events", b"another") > first

        files.run(scenario())

    def test_a_removed_log_of_a_backup_is_no_log(self, files: SqliteDriver) -> None:
        async def scenario() -> None:
            store = await files.open()
            await store._tree.create(zk_paths.log("events"), TOMBSTONE)
            assert await store.list_logs() == []
            with pytest.raises(NoSuchLogError):
                await store.remove_log("events")
            assert await store.create_log("events", b"record") == 1

        files.run(scenario())


class TestProcesses:
    def test_many_processes_lose_no_update(self, files: SqliteDriver) -> None:
        async def prepare() -> None:
            store = await files.open()
            assert await store.allocate_ledger_id() == 0
            await store.create_ledger(L0, metadata())

        files.run(prepare())
        workers = [process(files.path, "add", "25") for _ in range(4)]
        given = [int(line) for w in workers for line in w.communicate(timeout=180)[0].split()]
        assert [w.returncode for w in workers] == [0] * 4
        assert sorted(given) == list(range(1, 101))

        async def check() -> None:
            store = await files.open()
            assert [i async for ids in store.ledger_ranges() for i in ids] == list(range(101))
            found = await store.read_ledger(L0)
            assert found.value.custom["count"] == b"100"
            assert found.version == 100

        files.run(check())

    def test_many_processes_make_one_cluster(self, tmp_path: Path) -> None:
        path = tmp_path / "new.sqlite"
        makers = [process(path, "make") for _ in range(4)]
        made = {maker.communicate(timeout=180)[0] for maker in makers}
        assert [maker.returncode for maker in makers] == [0] * 4
        assert len(made) == 1

    def test_what_a_killed_process_held_is_free_after_its_time_out(
        self, files: SqliteDriver
    ) -> None:
        holder = process(files.path, "hold", B2)
        assert holder.stdout is not None
        assert holder.stdout.readline() == "holding\n"

        async def scenario() -> None:
            store = await files.open()
            assert await store.writable_bookies() == {B2}
            assert not await store.acquire_lock(L0)
            gone: list[int] = []
            await store.watch_bookies(lambda: gone.append(1))
            holder.send_signal(signal.SIGKILL)
            await files.until(lambda: gone)
            assert await store.writable_bookies() == frozenset()
            assert await store.acquire_lock(L0)

        files.run(scenario())
        holder.wait(60)
        holder.stdout.close()
