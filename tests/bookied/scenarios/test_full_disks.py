"""``bookied`` as a process on disks that fill up, fail, or go away."""

from __future__ import annotations

import os
import shutil
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path

import pytest

from tests.bookied.worlds.file_systems import fill, read_only, small_file_system
from tests.bookied.worlds.served_bookie import packet
from tests.live.bookied.processes import SOON_FORGOTTEN, BookieProcess, make_cluster, write_conf
from tests.support.waiting import until
from wire.codes import ReturnCode
from wire.ids import EntryId, LedgerId
from wire.messages import ReadRequest, ReadResponse

pytestmark = pytest.mark.processes

MB = 1 << 20
SMALL = {
    "diskCheckInterval": 100,
    "flushInterval": 100,
    "logSizeLimit": 4 * MB,
    "minUsableSizeForIndexFileCreation": 1,
    "gcWaitTime": 3_600_000,
    **SOON_FORGOTTEN,
}
DB = "org.apache.bookkeeper.bookie.storage.ldb.DbLedgerStorage"
LEDGER_ID = 7
LARGE = 60_000
"""The size of entries of which a few hundred fill a disk."""


class Machine:
    """A bookie and what it has acknowledged."""

    def __init__(self, directory: Path) -> None:
        self.directory = directory
        self.uri = make_cluster(directory / "metadata.db")
        self.conf: Path | None = None
        self.started: list[BookieProcess] = []
        self.acked = 0

    def start(self, *, prefix: Sequence[str] = (), **changes: object) -> BookieProcess:
        if self.conf is None:
            self.conf = write_conf(self.directory / "b1", self.uri, **(SMALL | changes))
        bookie = BookieProcess(self.conf, prefix=prefix)
        self.started.append(bookie)
        return bookie

    def add(self, bookie: BookieProcess, count: int, size: int = 8000) -> ReturnCode:
        """Add entries until one is refused; return its code, or EOK."""
        with bookie.client() as client:
            for _ in range(count):
                rc = client.add(LEDGER_ID, self.acked, payload(self.acked, size))
                if rc is not ReturnCode.EOK:
                    return rc
                self.acked += 1
        return ReturnCode.EOK

    def check(self, bookie: BookieProcess) -> None:
        """Read back all that was acknowledged."""
        with bookie.client() as client:
            for entry_id in range(self.acked):
                found = client.read(LEDGER_ID, entry_id)
                assert isinstance(found, bytes), (entry_id, found)
                body = found[36:]
                wanted = packet(LEDGER_ID, entry_id, payload=payload(entry_id, len(body)))
                assert found == wanted, entry_id

    def end(self) -> None:
        for bookie in self.started:
            if bookie.process.poll() is None:
                bookie.kill()


def payload(entry_id: int, size: int) -> bytes:
    return (b"%d." % entry_id * size)[:size]


@pytest.fixture
def machine(tmp_path: Path) -> Iterator[Machine]:
    found = Machine(tmp_path)
    yield found
    found.end()


@pytest.fixture
def disks(tmp_path: Path) -> Iterator[list[Path]]:
    first, second = tmp_path / "disk0", tmp_path / "disk1"
    with small_file_system(first, 40 * MB) as one, small_file_system(second, 60 * MB) as other:
        yield [one, other]


def wait_until(fact: Callable[[], bool], bookie: BookieProcess) -> None:
    def goes_on() -> None:
        assert bookie.process.poll() is None, bookie.output.read_text()

    until(fact, bookie.output.read_text, check=goes_on)


def refusal(bookie: BookieProcess) -> tuple[int, str]:
    """Return the exit status and the one line that says why."""
    status = bookie.ended()
    line = bookie.own_lines()[-1]
    assert bookie.last_line() == line
    return status, line.removeprefix("bookied: ")


def active_log_of(disks: list[Path]) -> Path:
    """Return the disk that has the newest entry log."""
    logs = [path for disk in disks for path in (disk / "current").glob("*.log")]
    return max(logs, key=lambda path: int(path.stem, 16)).parent.parent


@pytest.mark.parametrize("by_any", ["false", "true"])
def test_a_bookie_goes_on_in_other_directories_when_one_is_filled_to_the_last_byte(
    machine: Machine, disks: list[Path], by_any: str
) -> None:
    where = ",".join(map(str, disks))
    settings = {"ledgerDirectories": where, "readOnlyModeOnAnyDiskFullEnabled": by_any}
    # So late that a write finds no room before a look at the disks does.
    bookie = machine.start(diskCheckInterval=60_000, **settings).ready()
    assert machine.add(bookie, 50) is ReturnCode.EOK
    wait_until(lambda: any((disk / "current/0.log").exists() for disk in disks), bookie)
    full = active_log_of(disks)
    ballast = fill(full)
    rc = machine.add(bookie, 200, LARGE)
    assert rc is (ReturnCode.EOK if by_any == "false" else ReturnCode.EREADONLY)
    machine.check(bookie)
    bookie.kill()
    mode = "writable" if by_any == "false" else "read-only"
    again = machine.start().wait_for(f"STATUS=serving, {mode}").ready()
    machine.check(again)
    ballast.unlink()
    assert again.stop() == 0
    assert " early: " in bookie.output.read_text()
    last = machine.start().ready()
    machine.check(last)
    assert machine.add(last, 10) is ReturnCode.EOK
    assert last.stop() == 0


def test_a_full_disk_makes_it_read_only_and_room_makes_it_writable_again(
    machine: Machine, disks: list[Path]
) -> None:
    disk = disks[1]
    # More than half: what no checkpoint had reached yet is replayed into new logs beside the old.
    reserve = disk / "reserve"
    reserve.write_bytes(bytes(34 * MB))
    bookie = machine.start(ledgerDirectories=disk).ready()
    assert machine.add(bookie, 20_000, LARGE) is ReturnCode.EREADONLY
    machine.check(bookie)
    ballast = fill(disk)
    machine.check(bookie)
    bookie.kill()
    # It starts without room for a single byte, too, and has everything.
    bookie = machine.start().wait_for("STATUS=serving, read-only").ready()
    machine.check(bookie)
    assert machine.add(bookie, 1) is ReturnCode.EREADONLY
    ballast.unlink()
    reserve.unlink()
    bookie.wait_for("STATUS=serving, writable")
    assert machine.add(bookie, 20) is ReturnCode.EOK
    machine.check(bookie)
    assert bookie.stop() == 0
    again = machine.start().ready()
    machine.check(again)
    assert again.stop() == 0


@pytest.mark.parametrize("storage", ["SortedLedgerStorage", "ldb.DbLedgerStorage"])
def test_a_bookie_that_stops_on_a_full_disk_says_what_the_next_start_does(
    machine: Machine, disks: list[Path], storage: str
) -> None:
    settings = {
        "ledgerDirectories": disks[0],
        "ledgerStorageClass": f"org.apache.bookkeeper.bookie.{storage}",
        # So late that the stop is what finds no space.
        "flushInterval": 600_000,
        "diskCheckInterval": 600_000,
    }
    bookie = machine.start(**settings).ready()
    assert machine.add(bookie, 50) is ReturnCode.EOK
    ballast = fill(disks[0])
    bookie.process.terminate()
    status, line = refusal(bookie)
    assert status == 5
    assert line.startswith("stopped without space to flush (")
    assert str(disks[0]) in line
    assert line.endswith("no acknowledged entry is lost: the next start replays the journals")
    assert "Traceback" not in bookie.output.read_text()
    ballast.unlink()
    again = machine.start().ready()
    machine.check(again)
    assert again.stop() == 0


def test_a_bookie_whose_disk_fails_at_the_stop_says_what_the_next_start_does(
    machine: Machine, disks: list[Path]
) -> None:
    bookie = machine.start(ledgerDirectories=disks[0], flushInterval=600_000).ready()
    assert machine.add(bookie, 50) is ReturnCode.EOK
    dirty = disks[0] / "current" / "DIRTY"
    dirty.unlink()
    dirty.mkdir()
    bookie.process.terminate()
    status, line = refusal(bookie)
    assert status == 5
    assert line.startswith("stopped by a disk that failed (")
    assert str(dirty) in line
    assert line.endswith("no acknowledged entry is lost: the next start replays the journals")
    assert "Traceback" not in bookie.output.read_text()
    dirty.rmdir()
    dirty.touch()
    again = machine.start().ready()
    machine.check(again)
    assert again.stop() == 0


def test_a_bookie_that_may_not_be_read_only_ends_with_5_on_a_full_disk(
    machine: Machine, disks: list[Path]
) -> None:
    bookie = machine.start(ledgerDirectories=disks[0], readOnlyModeEnabled="false").ready()
    assert machine.add(bookie, 10) is ReturnCode.EOK
    fill(disks[0])
    directory = disks[0] / "current"
    message = f"{directory} is full, and readOnlyModeEnabled=false forbids to go read-only"
    assert refusal(bookie) == (5, message)
    assert refusal(machine.start()) == (5, message)


@pytest.mark.parametrize("kind", ["journalDirectories", "ledgerDirectories"])
def test_a_file_system_that_turns_read_only_ends_the_bookie_with_5(
    machine: Machine, disks: list[Path], kind: str
) -> None:
    bookie = machine.start(**{kind: disks[0]}).ready()
    assert machine.add(bookie, 10) is ReturnCode.EOK
    with read_only(disks[0]):
        status, line = refusal(bookie)
    assert status == 5
    assert str(disks[0] / "current") in line
    assert "Read-only file system" in line


@pytest.mark.parametrize("kind", ["journal", "ledgers"])
@pytest.mark.parametrize("what", ["", "current", "current/VERSION"])
def test_a_directory_that_vanishes_ends_the_bookie_with_5(
    machine: Machine, kind: str, what: str
) -> None:
    bookie = machine.start().ready()
    assert machine.add(bookie, 10) is ReturnCode.EOK
    path = machine.directory / "b1" / kind / what
    path.rename(gone := machine.directory / "gone")  # The bookie may be writing there.
    shutil.rmtree(gone) if gone.is_dir() else gone.unlink()
    status, line = refusal(bookie)
    assert status == 5
    current = machine.directory / "b1" / kind / "current"
    # Found by a look at the disks, or by the sync of a file that is not there any more.
    assert line.startswith((f"a disk failed: {current}", f"{current}/"))
    # And does not start on what is left, as if it had never held anything.
    status, line = refusal(machine.start())
    assert status == 6
    assert "lost its cookie" in line


def unprivileged() -> list[str]:
    """Return what runs a program so that permissions hold for it, whoever runs the tests."""
    if os.geteuid():
        return []
    if shutil.which("setpriv") is None:
        pytest.skip("root may read everything, and setpriv is not there to take that away")
    return ["setpriv", "--bounding-set", "-dac_override,-dac_read_search"]


def test_a_directory_made_unreadable_ends_the_bookie_with_5(machine: Machine) -> None:
    bookie = machine.start(prefix=unprivileged()).ready()
    directory = machine.directory / "b1/ledgers/current"
    directory.chmod(0)
    try:
        status, line = refusal(bookie)
    finally:
        directory.chmod(0o755)
    assert status == 5
    assert line.startswith(f"a disk failed: {directory}: Permission denied; check the disk")


def test_a_full_journal_disk_stops_adds_only_until_there_is_room(
    machine: Machine, disks: list[Path]
) -> None:
    bookie = machine.start(journalDirectories=disks[0]).ready()
    assert machine.add(bookie, 10) is ReturnCode.EOK
    ballast = fill(disks[0])
    with bookie.client() as waiting:
        sent = machine.acked
        while "adds are refused until the journal has space" not in bookie.output.read_text():
            waiting.send_add(LEDGER_ID, sent, payload(sent, 8000))
            sent += 1
        bookie.wait_for("STATUS=serving, read-only")
        machine.check(bookie)
        assert machine.add(bookie, 1) is ReturnCode.EREADONLY
        bookie.tells("STATUS=serving, writable", after=ballast.unlink)
    assert machine.add(bookie, 10) is ReturnCode.EOK
    bookie.kill()
    again = machine.start().ready()
    machine.check(again)
    assert again.stop() == 0


@pytest.mark.parametrize("is_killed", [True, False])
def test_databases_on_a_disk_without_a_free_byte_are_read(
    machine: Machine, tmp_path: Path, *, is_killed: bool
) -> None:
    """RocksDB writes files as it opens a database for writing."""
    with small_file_system(tmp_path / "disk", 160 * MB) as disk:
        storage = {"ledgerStorageClass": DB, "ledgerDirectories": disk}
        bookie = machine.start(dbStorage_writeCacheMaxSizeMb=16, **storage).ready()
        assert machine.add(bookie, 100) is ReturnCode.EOK
        bookie.kill() if is_killed else bookie.stop()
        ballast = fill(disk)
        again = machine.start().ready()
        again.wait_for("STATUS=serving, read-only")
        machine.check(again)
        assert machine.add(again, 1) is ReturnCode.EREADONLY
        again.tells("STATUS=serving, writable", after=ballast.unlink)
        assert machine.add(again, 100) is ReturnCode.EOK
        machine.check(again)
        assert again.stop() == 0
        last = machine.start().ready()
        machine.check(last)
        assert last.stop() == 0


def test_entries_are_read_on_connections_whose_adds_wait_for_a_full_journal_disk(
    machine: Machine, disks: list[Path]
) -> None:
    bookie = machine.start(journalDirectories=disks[0]).ready()
    assert machine.add(bookie, 10) is ReturnCode.EOK
    wanted = packet(LEDGER_ID, 3, payload=payload(3, 8000))
    ballast = fill(disks[0])
    with bookie.client() as first, bookie.client() as second:
        sent = machine.acked
        while "adds are refused until the journal has space" not in bookie.output.read_text():
            for client in (first, second):
                for _ in range(150):
                    client.send_add(LEDGER_ID, sent, payload(sent, 8000))
                    sent += 1
        bookie.wait_for("STATUS=serving, read-only")
        for client in (first, second):
            client.send(ReadRequest(LedgerId(LEDGER_ID), EntryId(3)))
            answer = client.receive()
            while not isinstance(answer, ReadResponse):
                answer = client.receive()
            assert answer.entry == wanted
        bookie.tells("STATUS=serving, writable", after=ballast.unlink)
    assert bookie.stop() == 0


def test_a_full_journal_directory_ends_a_bookie_that_may_not_be_read_only_and_loses_nothing(
    machine: Machine, disks: list[Path]
) -> None:
    bookie = machine.start(journalDirectories=disks[0], readOnlyModeEnabled="false").ready()
    assert machine.add(bookie, 10) is ReturnCode.EOK
    ballast = fill(disks[0])
    with pytest.raises(ConnectionError):
        machine.add(bookie, 10_000)
    status, line = refusal(bookie)
    assert status == 5
    assert line.startswith(f"{disks[0] / 'current'}/")
    assert "No space left on device" in line
    fill(disks[0])
    status, line = refusal(machine.start())
    assert status == 5
    assert line.startswith(f"no space to start: {disks[0] / 'current'}")
    ballast.unlink()
    again = machine.start().ready()
    machine.check(again)
    assert again.stop() == 0
