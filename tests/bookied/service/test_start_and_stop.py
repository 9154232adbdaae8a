"""A bookie as a whole, in this process: real files, sockets and threads, metadata in memory."""

from __future__ import annotations

import errno
import shutil
import threading
from collections.abc import Iterator
from functools import partial
from pathlib import Path
from typing import Any

import attrs
import pytest
from twisted.internet.defer import Deferred

from bkclient.config.client import ClientConfig
from bkclient.config.tls import StoreType
from bkclient.metadata.errors import MetadataUnavailableError
from bkclient.metadata.versions_and_watches import ANY
from bookied.directories.last_journal_note import ALL_LEDGERS, NO_LEDGER
from bookied.directories.lock import is_locked
from bookied.directories.roots import VERSION, Directories, was_dirty
from bookied.errors import (
    BookieExitStatus,
    DirectoryEmptiedError,
    DirectoryInUseError,
    DiskWriteFailedError,
    JournalMissingError,
    JournalRecordError,
    MetadataStartError,
    NoSpaceError,
    PortInUseError,
    RunTimeError,
    SecurityStartError,
    WrongIdentityError,
)
from bookied.server.limits.backpressure import SHARED_ADDS_BYTES, ConnectionLoad
from bookied.service.dependencies import Dependencies, real_dependencies
from bookied.service.start_and_stop import BookieService
from bookied.service.start_failures import StopRequestedError
from bookied.state.bookie_state import State
from bookied.storage.files.files import RealFiles
from bookied.storage.journal import format as layout
from bookied.storage.journal.group_format import GROUP_MAGIC
from tests.bkclient.metadata.values import metadata
from tests.bookied.worlds.fakes import config_for
from tests.bookied.worlds.raw_client import RawClient
from tests.support.certificates import Authority, write_pem
from tests.support.memory_zookeeper import MemoryZooKeeper
from tests.support.reactor import call, run, the_reactor, until
from wire.codes import LedgerState, ReturnCode
from wire.ids import BookieId, EntryId, LedgerId

B1 = BookieId("b1")
FILES = RealFiles()
PACKET_HEADER = 36  # Four ids and lengths, and the digest.


class Running:
    """Bookies on one set of directories and one cluster, one after the other."""

    def __init__(self, tmp_path: Path) -> None:
        self.config = config_for(tmp_path)
        self.cluster: MemoryZooKeeper = call(MemoryZooKeeper.initialized, the_reactor())
        self.onlooker = self.new_store()
        run(self.onlooker.connect())
        self.services: list[BookieService] = []
        self.failures: list[Exception] = []
        self.phases: list[str] = []

    def new_store(self) -> Any:
        return call(self.cluster.metadata)

    def make(self, *, parts: dict[str, Any] | None = None, **changes: Any) -> BookieService:
        self.config = attrs.evolve(self.config, **changes)
        given = {"store": self.new_store()} | (parts or {})
        world = call(lambda: real_dependencies(self.config, the_reactor(), **given))
        service = BookieService(
            self.config, world, failed=self.failures.append, progress=self.phases.append
        )
        self.services.append(service)
        return service

    def start(self, **changes: Any) -> BookieService:
        service = self.make(**changes)
        run(service.start())
        return service

    def client(self, service: BookieService) -> RawClient:
        assert service.identity is not None
        return RawClient(service.identity.port)

    def end(self) -> None:
        for service in self.services:
            run(service.stop() if not self.failures else service.abandon())
        run(self.onlooker.close())

    @property
    def has_crashed(self) -> bool:
        return bool(self.failures) or any(service._errors.has_failed for service in self.services)

    def seen(self) -> str:
        if B1 in run(self.onlooker.writable_bookies()):
            return "writable"
        return "read-only" if B1 in run(self.onlooker.read_only_bookies()) else "absent"


@pytest.fixture
def running(tmp_path: Path) -> Iterator[Running]:
    world = Running(tmp_path)
    before = set(threading.enumerate())
    yield world
    world.end()
    # After a failure the entry log is left as it is; its thread waits for the process to end.
    may_stay = {"entry-log"} if world.has_crashed else set()

    def left() -> set[str]:
        return {thread.name for thread in set(threading.enumerate()) - before}

    run(until(lambda: left() <= may_stay))


def test_a_started_bookie_is_registered_and_serves(running: Running) -> None:
    service = running.start()
    assert service.state.now is State.WRITABLE
    assert running.seen() == "writable"
    assert service.identity is not None
    info = run(running.onlooker.service_info(B1))
    assert info.endpoint().port == service.identity.port
    with running.client(service) as client:
        assert client.add(7, 0, b"payload") is ReturnCode.EOK
        found = client.read(7, 0)
        assert isinstance(found, bytes)
        assert found.endswith(b"payload")
        assert client.read(7, 1) is ReturnCode.ENOENTRY
        assert client.read(8, 0) is ReturnCode.ENOLEDGER


def test_a_journal_and_a_ledger_directory_that_changed_places_are_refused(
    running: Running, tmp_path: Path
) -> None:
    """Without entry logs, and without journals, all that was acknowledged would be denied."""
    service = running.start()
    with running.client(service) as client:
        assert client.add(7, 0, b"payload") is ReturnCode.EOK
    run(service.stop())
    for old, new in (("journal", "x"), ("ledgers", "journal"), ("x", "ledgers")):
        (tmp_path / old).rename(tmp_path / new)
    with pytest.raises(WrongIdentityError, match="exchanged"):
        running.start()


def test_the_start_goes_through_its_phases_in_order(running: Running) -> None:
    running.start()
    assert running.phases == [
        "connecting to memory:",
        "checking cookies",
        "opening storage",
        "replaying journals",
        "registering",
        "serving, writable",
    ]


def test_a_clean_stop_leaves_nothing_behind_but_the_data(running: Running) -> None:
    service = running.start()
    assert was_dirty(FILES, service.directories)
    assert all(is_locked(root) for root in service.directories.roots)
    with running.client(service) as client:
        assert client.add(7, 0) is ReturnCode.EOK
        run(service.stop())
        with pytest.raises(ConnectionError):
            client.receive()
    assert service.state.now is State.STOPPED
    assert running.seen() == "absent"
    assert not was_dirty(FILES, service.directories)
    assert not any(is_locked(root) for root in service.directories.roots)
    again = running.start()
    with running.client(again) as client:
        assert client.read(7, 0) == client.read(7, -1)


def test_stopping_again_and_stopping_what_never_started_do_nothing(running: Running) -> None:
    service = running.start()
    run(service.stop())
    run(service.stop())
    never = running.make()
    run(never.stop())
    assert never.state.now is State.STARTING
    run(never.abandon())


def test_unflushed_entries_survive_a_bookie_that_was_given_up(running: Running) -> None:
    service = running.start(flush_interval_ms=3_600_000)
    with running.client(service) as client:
        for entry_id in range(100):
            assert client.add(7, entry_id, b"%d" % entry_id) is ReturnCode.EOK
        assert client.read(7, 50, fence=True) != ReturnCode.EOK
    service._errors.has_failed = True  # As after a fatal failure: nothing is flushed.
    run(service.abandon())
    assert was_dirty(FILES, service.directories)
    again = running.start()
    with running.client(again) as client:
        found = [client.read(7, entry_id) for entry_id in range(100)]
        payloads = [entry[PACKET_HEADER:] for entry in found if isinstance(entry, bytes)]
        assert payloads == [b"%d" % entry_id for entry_id in range(100)]
        assert client.add(7, 100) is ReturnCode.EFENCED


def test_a_checkpoint_runs_while_there_are_changes(running: Running) -> None:
    service = running.start(flush_interval_ms=50)
    with running.client(service) as client:
        assert client.add(7, 0) is ReturnCode.EOK
        run(until(lambda: service.engine is not None and not service.engine.storages.has_changes))
        marks = service.directories.ledger_dirs[0] / "lastMark"
        run(until(lambda: FILES.exists(marks) and FILES.read(marks) != bytes(16)))


def test_several_directories_of_each_kind_are_used(running: Running, tmp_path: Path) -> None:
    journals = tuple(str(tmp_path / f"j{number}") for number in range(2))
    service = running.start(
        journal_directories=journals,
        ledger_directories=(str(tmp_path / "l0"), str(tmp_path / "l1")),
        index_directories=(str(tmp_path / "i"),),
    )
    with running.client(service) as client:
        for ledger_id in range(4):
            assert client.add(ledger_id, 0) is ReturnCode.EOK
    run(service.stop())
    assert len(list((tmp_path / "i").rglob("*.idx"))) == 4
    assert {path.name for path in (tmp_path / "l0/current").glob("lastMark*")} == {
        "lastMark.0",
        "lastMark.1",
    }


def test_a_port_in_use_stops_the_start_before_anything_is_written(running, tmp_path) -> None:
    first = running.start()
    assert first.identity is not None
    other = running.make(
        port=first.identity.port,
        bookie_id="b2",
        journal_directories=(str(tmp_path / "other"),),
        ledger_directories=(str(tmp_path / "other"),),
    )
    with pytest.raises(PortInUseError, match=f"port {first.identity.port} is in use") as caught:
        run(other.start())
    assert caught.value.exit_status == BookieExitStatus.CANNOT_START_NOW
    assert other.state.now is State.STOPPED
    assert not (tmp_path / "other/current").exists()


def test_directories_in_use_stop_the_start(running: Running) -> None:
    running.start()
    with pytest.raises(DirectoryInUseError, match="in use by another bookie"):
        running.start()


def test_a_foreign_cookie_stops_the_start(running: Running) -> None:
    service = running.start()
    run(service.stop())
    path = service.directories.all_dirs[1] / VERSION
    path.write_bytes(path.read_bytes().replace(b'"b1"', b'"b9"'))
    with pytest.raises(WrongIdentityError, match="bookie id is b9, expected b1"):
        running.start()
    assert running.seen() == "absent"
    assert not is_locked(service.directories.roots[0])


def test_a_lost_journal_stops_the_start(running: Running) -> None:
    service = running.start()
    with running.client(service) as client:
        assert client.add(7, 0) is ReturnCode.EOK
    run(service.stop())
    for path in service.directories.journal_dirs[0].glob("*.txn"):
        path.unlink()
    with pytest.raises(JournalMissingError) as caught:
        running.start()
    assert caught.value.exit_status == BookieExitStatus.DAMAGED


def served_once(running: Running) -> Directories:
    """Let a bookie acknowledge an entry and stop; return its directories."""
    service = running.start()
    with running.client(service) as client:
        assert client.add(7, 0) is ReturnCode.EOK
    run(service.stop())
    return service.directories


def take_away(directory: Path) -> Path:
    """Move all but the cookie elsewhere."""
    away = directory.with_name("away")
    directory.rename(away)
    directory.mkdir()
    shutil.copy(away / VERSION, directory)
    return away


@pytest.mark.parametrize("number", [0, 1])
def test_an_emptied_directory_with_its_cookie_stops_the_start(running: Running, number) -> None:
    found = served_once(running)
    assert len(found.all_dirs) == 2
    directory = found.all_dirs[number]
    away = take_away(directory)
    with pytest.raises((JournalMissingError, DirectoryEmptiedError), match="emptied") as caught:
        running.start()
    assert caught.value.exit_status == BookieExitStatus.DAMAGED
    assert [path.name for path in directory.iterdir()] == [VERSION]
    shutil.rmtree(directory)
    away.rename(directory)
    with running.client(running.start()) as client:
        assert client.read(7, 0) == client.read(7, -1)


def test_emptied_directories_stop_the_start_however_they_ended(running: Running) -> None:
    service = running.start()
    with running.client(service) as client:
        assert client.add(7, 0) is ReturnCode.EOK
    service._errors.has_failed = True  # As after a fatal failure: nothing is flushed.
    run(service.abandon())
    for directory in service.directories.all_dirs:
        take_away(directory)
    with pytest.raises(JournalMissingError):
        running.start()


def test_directories_that_somebody_cleared_for_a_new_bookie_are_new(running: Running) -> None:
    """As administrators do: away with ``current``, away with the cookie."""
    found = served_once(running)
    for directory in found.all_dirs:
        shutil.rmtree(directory)
    run(running.onlooker.remove_cookie(B1, ANY))
    with running.client(running.start()) as client:
        assert client.read(7, 0) is ReturnCode.ENOLEDGER


def with_tls(tmp_path: Path) -> dict[str, Any]:
    authority = Authority()
    pem = write_pem(tmp_path / "keys", authority.issue("bookie"), authority)
    return {
        "tls_factory": "TLSContextFactory",
        "tls_key_store_type": StoreType.PEM,
        "tls_key_store": str(pem.key),
        "tls_certificate_path": str(pem.certificate),
    }


def test_a_bookie_with_tls_says_so_where_it_registers(running: Running, tmp_path: Path) -> None:
    running.start(**with_tls(tmp_path))
    endpoint = run(running.onlooker.service_info(B1)).endpoint()
    assert endpoint is not None
    assert endpoint.extensions == ("tls",)


def test_unusable_keys_stop_the_start_before_anything_is_locked(running, tmp_path) -> None:
    with pytest.raises(SecurityStartError, match="tlsKeyStore: cannot read nowhere") as caught:
        running.start(**{**with_tls(tmp_path), "tls_key_store": "nowhere"})
    assert caught.value.exit_status == BookieExitStatus.INVALID_CONFIGURATION
    assert not (tmp_path / "ledgers/current").exists()


def own_clients(running: Running, **settings: Any) -> Dependencies:
    """Return the world of a bookie whose own clients are told ``settings``."""
    given = {"store": running.new_store(), "client_config": ClientConfig(**settings)}
    made: Dependencies = call(lambda: real_dependencies(running.config, the_reactor(), **given))
    return made


def test_clients_of_a_bookie_log_in_by_the_section_for_those_that_repair(
    running: Running, tmp_path: Path
) -> None:
    path = tmp_path / "jaas.conf"
    login = "org.apache.zookeeper.server.auth.DigestLoginModule required"
    path.write_text(f'Auditor {{ {login} username="a" password="b"; }};')
    told = {"client_auth_factory": "SASLClientProviderFactory", "jaas_path": str(path)}
    parts = own_clients(running, **told)
    assert parts.greeting is not None
    assert parts.client_config.client_role == "system"
    call(parts.close)
    path.write_text(f'BookKeeper {{ {login} username="a" password="b"; }};')
    with pytest.raises(SecurityStartError, match="there is no section Auditor"):
        own_clients(running, **told)


class NoEntryLogs(RealFiles):
    """A disk that takes no entry log."""

    def open_append(self, path: Path, **rest: Any) -> Any:
        if path.suffix == ".log":
            raise OSError(errno.EIO, "Input/output error", str(path))
        return super().open_append(path, **rest)


def test_what_cannot_be_put_into_files_after_replay_stops_the_start(running: Running) -> None:
    service = running.start(flush_interval_ms=3_600_000)
    with running.client(service) as client:
        assert client.add(7, 0) is ReturnCode.EOK
    service._errors.has_failed = True
    run(service.abandon())
    marks = service.directories.ledger_dirs[0] / "lastMark"
    before = marks.exists() and FILES.read(marks)
    with pytest.raises(DiskWriteFailedError, match="Input/output error") as caught:
        running.start(parts={"files": NoEntryLogs()})
    assert caught.value.exit_status == BookieExitStatus.FATAL
    assert running.seen() == "absent"
    assert (marks.exists() and FILES.read(marks)) == before
    again = running.start()
    with running.client(again) as client:
        assert isinstance(client.read(7, 0), bytes)


class Away:
    """A metadata service out of reach."""

    uri = "zk://h:1/ledgers"

    async def connect(self) -> None:
        raise MetadataUnavailableError("h:1: no answer")

    async def close(self) -> None:
        pass


def test_metadata_out_of_reach_stops_the_start(running: Running) -> None:
    with pytest.raises(MetadataStartError, match="cannot be reached: h:1: no answer") as caught:
        running.start(parts={"store": Away()})
    assert caught.value.exit_status == BookieExitStatus.CANNOT_START_NOW


def test_a_cluster_that_was_never_made_stops_the_start(running: Running) -> None:
    running.cluster = call(MemoryZooKeeper, the_reactor())
    with pytest.raises(MetadataStartError, match="bkctl cluster init"):
        running.start()


class Endless(Away):
    """A metadata service that does not answer until told to."""

    def __init__(self) -> None:
        self.answer: Deferred[None] = Deferred()

    async def connect(self) -> None:
        await self.answer

    async def layout(self) -> None:
        pass


def test_a_start_can_be_stopped(running: Running) -> None:
    store = Endless()
    service = running.make(parts={"store": store})

    async def stop_in_the_middle() -> list[Any]:
        outcome: list[Any] = []
        Deferred.fromCoroutine(service.start()).addBoth(outcome.append)
        stopping = Deferred.fromCoroutine(service.stop())
        store.answer.callback(None)
        await stopping
        return outcome

    (failure,) = run(stop_in_the_middle())
    assert failure.check(StopRequestedError)
    assert failure.value.exit_status == BookieExitStatus.OK
    assert service.state.now is State.STOPPED


def test_a_forced_read_only_bookie_registers_so_and_takes_no_adds(running: Running) -> None:
    service = running.start()
    with running.client(service) as client:
        assert client.add(7, 0) is ReturnCode.EOK
    run(service.stop())
    service = running.start(force_read_only=True)
    assert running.seen() == "read-only"
    with running.client(service) as client:
        assert client.add(7, 1) is ReturnCode.EREADONLY
        assert isinstance(client.read(7, 0), bytes)


class ShrinkingDisk(RealFiles):
    """A disk whose use the test decides."""

    used = 0.5

    def disk_usage(self, path: Path) -> tuple[int, int]:
        return 10_000_000_000, int(10_000_000_000 * (1 - self.used))


def test_a_full_disk_makes_the_bookie_read_only_until_there_is_space(running: Running) -> None:
    disk = ShrinkingDisk()
    service = running.start(parts={"files": disk}, disk_check_interval_ms=20)
    with running.client(service) as client:
        assert client.add(7, 0) is ReturnCode.EOK
        disk.used = 0.96
        run(until(lambda: service.state.now is State.READ_ONLY))
        assert client.add(7, 1) is ReturnCode.EREADONLY
        assert isinstance(client.read(7, 0), bytes)
        run(until(lambda: _is(running, "read-only")))
        disk.used = 0.5
        run(until(lambda: service.state.now is State.WRITABLE))
        assert client.add(7, 1) is ReturnCode.EOK
        run(until(lambda: _is(running, "writable")))


def test_clients_are_read_while_their_adds_wait_for_space_of_a_journal(running: Running) -> None:
    service = running.start()
    assert service.server is not None
    assert service.disk_mode is not None
    pressure, mode = service.server.backpressure, service.disk_mode.mode
    loads = [ConnectionLoad(lambda: None), ConnectionLoad(lambda: None)]

    def add() -> None:
        for load in loads:
            pressure.begin(load)
        for load in loads * 2:
            pressure.received(load, SHARED_ADDS_BYTES, adds=1)

    call(add)
    assert all(load.is_held for load in loads)
    call(partial(mode.journal_space, NoSpaceError("a full journal")))
    assert not any(load.is_held for load in loads)
    call(partial(mode.journal_space, None))
    assert all(load.is_held for load in loads)


def _is(running: Running, mode: str) -> bool:
    paths = running.cluster._nodes
    return ("/available/b1" in paths) == (mode == "writable")


def test_a_bookie_starts_read_only_on_a_full_disk(running: Running) -> None:
    disk = ShrinkingDisk()
    disk.used = 0.99
    service = running.start(parts={"files": disk})
    assert service.state.now is State.READ_ONLY
    assert running.seen() == "read-only"


def test_a_mode_set_by_hand_is_kept_over_a_restart(running: Running) -> None:
    service = running.start(persist_status=True)
    assert service.disk_mode is not None
    call(partial(service.disk_mode.mode.set_by_hand, read_only=True))
    path = service.directories.ledger_dirs[0] / "BOOKIE_STATUS"
    run(until(path.exists))
    run(service.stop())
    again = running.start()
    assert again.state.now is State.READ_ONLY
    assert running.seen() == "read-only"


def test_a_full_disk_ends_a_bookie_that_may_not_go_read_only(running: Running) -> None:
    disk = ShrinkingDisk()
    running.start(parts={"files": disk}, disk_check_interval_ms=20, read_only_mode=False)
    disk.used = 0.96
    run(until(lambda: running.failures))
    assert isinstance(running.failures[0], NoSpaceError)
    assert running.failures[0].exit_status == BookieExitStatus.FATAL


def test_a_directory_that_vanishes_is_a_failed_disk(running: Running) -> None:
    service = running.start(disk_check_interval_ms=20)
    shutil.rmtree(service.directories.ledgers[0])
    run(until(lambda: running.failures))
    assert isinstance(running.failures[0], RunTimeError)
    directory = service.directories.ledger_dirs[0]
    # The cookie goes a little earlier than the directory.
    assert str(running.failures[0]).startswith(f"a disk failed: {directory}")


@pytest.mark.parametrize("left", ["", "current"])
def test_what_is_added_while_a_disk_is_unmounted_comes_back_with_it(
    running: Running, tmp_path: Path, left: str
) -> None:
    """Between two looks at the disks a checkpoint finds no index, and makes a new one there."""
    index, away = tmp_path / "index", tmp_path / "away"
    rare = {"disk_check_interval_ms": 600_000, "flush_interval_ms": 600_000}
    service = running.start(index_directories=(str(index),), **rare)
    assert service.engine is not None
    with running.client(service) as client:
        assert client.add(7, 0) is ReturnCode.EOK
        run(service.engine.checkpoint())
        index.rename(away)
        (index / left).mkdir(parents=True)
        assert client.add(7, 1) is ReturnCode.EOK
        with pytest.raises(FileNotFoundError, match="unmounted"):
            run(service.engine.checkpoint())
    call(service.fail, RunTimeError("killed"))
    run(service.abandon())
    shutil.rmtree(index)
    away.rename(index)
    running.failures.clear()
    with running.client(running.start()) as client:
        for entry_id in (0, 1):
            assert isinstance(client.read(7, entry_id), bytes)


def test_after_another_program_metadata_says_which_ledgers_take_adds(running: Running) -> None:
    service = running.start()
    assert service.engine is not None
    assert service.engine.in_doubt_to == NO_LEDGER
    with running.client(service) as client:
        assert client.add(7, 0) is ReturnCode.EOK
        assert client.add(9, 0) is ReturnCode.EOK
    run(service.stop())
    closed = {"state": LedgerState.CLOSED, "last_entry_id": EntryId(0), "length": 5}
    run(running.onlooker.create_ledger(LedgerId(7), attrs.evolve(metadata(), **closed)))
    run(running.onlooker.create_ledger(LedgerId(9), metadata()))
    journals = service.directories.journal_dirs[0]
    last = max(int(path.stem, 16) for path in journals.glob("*.txn"))
    (journals / f"{last + 1:x}.txn").write_bytes(layout.header(6))
    for entry_id in (1, 2):  # The second time, all journals since are ours.
        again = running.start()
        assert again.engine is not None
        assert again.engine.in_doubt_to == ALL_LEDGERS
        with running.client(again) as client:
            assert client.add(7, entry_id) is ReturnCode.EFENCED
            assert client.add(9, entry_id) is ReturnCode.EOK
            assert client.add(11, entry_id) is ReturnCode.EOK, "metadata knows of no such ledger"
        run(again.stop())


def test_a_fence_in_a_skipped_part_of_a_journal_is_asked_of_the_metadata(
    running: Running,
) -> None:
    service = running.start()
    with running.client(service) as client:
        assert client.add(7, 0) is ReturnCode.EOK
        assert client.add(7, 1) is ReturnCode.EOK
        client.read(7, 0, fence=True)
    call(service.fail, RunTimeError("killed"))
    run(service.abandon())
    running.failures.clear()
    recovering = attrs.evolve(metadata(), state=LedgerState.IN_RECOVERY)
    run(running.onlooker.create_ledger(LedgerId(7), recovering))
    (path,) = service.directories.journal_dirs[0].glob("*.txn")
    data = bytearray(path.read_bytes())
    data[data.index(GROUP_MAGIC) + 100] ^= 1  # The first of several groups.
    path.write_bytes(data)
    with pytest.raises(JournalRecordError):
        running.start()
    for skips in (True, False):  # The second start has nothing to skip any more.
        again = running.start(skip_invalid_records=skips)
        with running.client(again) as client:
            assert client.add(7, 2) is ReturnCode.EFENCED
        run(again.stop())


class FailingSync(RealFiles):
    """A disk whose journals cannot be synced any more, once told so."""

    broken = False

    def open_append(self, path: Path, **rest: Any) -> Any:
        file = super().open_append(path, **rest)
        if path.suffix != ".txn":
            return file
        real_sync = file.sync

        def sync() -> None:
            if self.broken:
                raise OSError(5, "Input/output error")
            real_sync()

        file.sync = sync  # type: ignore[method-assign]
        return file


def test_a_journal_that_cannot_be_synced_acknowledges_nothing_and_ends_the_bookie(
    running: Running,
) -> None:
    disk = FailingSync()
    service = running.start(parts={"files": disk})
    with running.client(service) as client:
        assert client.add(7, 0) is ReturnCode.EOK
        disk.broken = True
        client.send_add(7, 1, b"x")
        run(until(lambda: running.failures))
        run(service.abandon())
        with pytest.raises(ConnectionError):
            client.receive()
    assert isinstance(running.failures[0], DiskWriteFailedError)
    assert running.failures[0].exit_status == BookieExitStatus.FATAL
    assert was_dirty(FILES, service.directories)


def test_a_lost_session_does_not_stop_the_service(running: Running) -> None:
    store = running.new_store()
    service = running.start(parts={"store": store})
    call(store.session.expire)
    run(until(lambda: _is(running, "writable")))
    with running.client(service) as client:
        assert client.add(7, 0) is ReturnCode.EOK
    assert running.failures == []


def test_the_dump_says_how_the_bookie_is(running: Running) -> None:
    service = running.start()
    with running.client(service) as client:
        assert client.add(7, 0) is ReturnCode.EOK
        dump = call(service.dump)
    assert dump["state"] == "writable"
    assert dump["registered"] is True
    assert dump["connections"] == 1
    assert dump["connections that are not read"] == dump["connections that wait for answers"] == 0
    assert dump["ledgers in memory"] == 1


def test_port_zero_is_advertised_as_the_port_that_was_bound(running: Running) -> None:
    service = running.start(bookie_id=None, advertised_address="127.0.0.1")
    assert service.identity is not None
    assert service.identity.bookie_id == f"127.0.0.1:{service.identity.port}"
    assert service.identity.port != 0


def test_the_threads_are_named(running: Running) -> None:
    running.start()
    names = {thread.name for thread in threading.enumerate()}
    assert "journal" in names
