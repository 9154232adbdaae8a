"""``bookied`` as a process whose ledger disk has no space while it checkpoints, replays, compacts.

With each kind of storage: nothing acknowledged is lost, on the full disk or once it has space.
"""

from __future__ import annotations

from pathlib import Path

import pytest

from bkclient.blocking import BlockingClient
from bkclient.client import Client
from bkctl.bookies.http.admin_client import AdminClient
from tests.bookied.scenarios.test_full_disks import (
    MB,
    Machine,
    disks,
    machine,
    payload,
    refusal,
    wait_until,
)
from tests.bookied.worlds.file_systems import fill
from tests.live.bookied.processes import BookieProcess, free_port
from tests.support.waiting import until
from wire.codes import ReturnCode
from wire.ids import LedgerId

__all__ = ["disks", "machine"]  # The fixtures.

pytestmark = [
    pytest.mark.processes,
    pytest.mark.parametrize(
        "storage",
        [
            "InterleavedLedgerStorage",
            "SortedLedgerStorage",
            "DbLedgerStorage",
        ],
    ),
]

ONE = {"ensemble_size": 1, "write_quorum": 1, "ack_quorum": 1}
ENTRIES = 300
LATE_MS = 600_000
SPACES = (4 << 10, 64 << 10, MB)
"""So much is free at a time: each ends what is written at another place."""


def start(machine: Machine, storage: str, directory: Path, **changes: object) -> BookieProcess:
    return machine.start(
        ledgerStorageClass=f"org.apache.bookkeeper.bookie.{storage}",
        ledgerDirectories=directory,
        **changes,
    ).ready()


def start_again(machine: Machine) -> BookieProcess | None:
    """Start it on the disk as full as it is; None where RocksDB has no space to open its files."""
    bookie = machine.start()

    def has_ended_or_serves() -> bool:
        bookie.told_within(0)
        return bookie.process.poll() is not None or "READY=1" in bookie.told

    until(has_ended_or_serves, bookie.output.read_text)
    if bookie.process.poll() is None:
        return bookie
    status, line = refusal(bookie)
    assert (status, line.partition(":")[0]) == (5, "no space to start")
    return None


def shrink(ballast: Path, by_bytes: int) -> None:
    with ballast.open("r+b") as file:
        file.truncate(ballast.stat().st_size - by_bytes)


def check_with_space(machine: Machine, ballast: Path) -> None:
    """Give the disk its space back; see that the bookie has everything and goes on."""
    ballast.unlink()
    for _ in range(2):
        bookie = machine.start().ready()
        machine.check(bookie)
        assert machine.add(bookie, 10) is ReturnCode.EOK
        machine.check(bookie)
        assert bookie.stop() == 0


def test_checkpoints_that_find_no_space_lose_nothing(
    machine: Machine, disks: list[Path], storage: str
) -> None:
    # So late that a checkpoint finds no space before a look at the disks does.
    bookie = start(machine, storage, disks[0], diskCheckInterval=LATE_MS)
    assert machine.add(bookie, 50) is ReturnCode.EOK
    ballast = fill(disks[0])
    machine.add(bookie, 300)
    wait_until(lambda: "No space left on device" in bookie.output.read_text(), bookie)
    for space_bytes in SPACES:
        shrink(ballast, space_bytes)
        machine.add(bookie, 20)
        fill(disks[0], "more")
        machine.check(bookie)
    bookie.kill()
    if (again := start_again(machine)) is not None:
        machine.check(again)
        again.kill()
    (disks[0] / "more").unlink()
    check_with_space(machine, ballast)


def test_a_replay_that_finds_no_space_is_repeated(
    machine: Machine, disks: list[Path], storage: str
) -> None:
    bookie = start(machine, storage, disks[0], flushInterval=LATE_MS)
    assert machine.add(bookie, 400) is ReturnCode.EOK
    bookie.kill()
    ballast = fill(disks[0])
    for space_bytes in SPACES:
        if (again := start_again(machine)) is not None:
            machine.check(again)
            again.kill()
        shrink(ballast, space_bytes)
    check_with_space(machine, ballast)


@pytest.mark.parametrize("transactional", ["false", "true"], ids=["in-place", "transactional"])
def test_a_compaction_that_finds_no_space_loses_nothing(
    machine: Machine, disks: list[Path], storage: str, transactional: str
) -> None:
    port = free_port()
    bookie = start(
        machine,
        storage,
        disks[0],
        diskCheckInterval=LATE_MS,
        logSizeLimit=MB,
        majorCompactionThreshold=0.95,
        minorCompactionThreshold=0.9,
        compactionRateByEntries=100_000,
        useTransactionalCompaction=transactional,
        httpServerEnabled="true",
        httpServerPort=port,
        httpAdminToken="t",
    )
    admin = AdminClient("127.0.0.1", port, token="t")
    with BlockingClient(machine.uri) as client:
        writers = [client.call(Client.create_ledger, **ONE) for _ in range(2)]
        for number in range(ENTRIES):
            for writer in writers:
                client.run(writer.add, payload(number, 8000))
        kept, deleted = (writer.ledger_id for writer in writers)
        for writer in writers:
            client.run(writer.close)
        client.call(Client.delete_ledger, deleted)
        ballast = fill(disks[0])
        for space_bytes in SPACES:
            shrink(ballast, space_bytes)
            collect(admin, bookie)
            fill(disks[0], "more")
            assert_intact(client, kept)
        bookie.kill()
        if (again := start_again(machine)) is not None:
            assert_intact(client, kept)
            again.kill()
        (disks[0] / "more").unlink()
        ballast.unlink()
        bookie = machine.start().ready()
        before_bytes = log_bytes(disks[0])
        collect(admin, bookie)
        assert log_bytes(disks[0]) < before_bytes
        assert_intact(client, kept)
        assert bookie.stop() == 0
        bookie = machine.start().ready()
        assert_intact(client, kept)
    assert bookie.stop() == 0


def collect(admin: AdminClient, bookie: BookieProcess) -> None:
    """Collect garbage and compact; return when that has ended, well or not."""
    rounds = collected(admin)
    admin.ask("POST", "/api/v2/bookie/gc", {"major": True, "minor": True})
    wait_until(lambda: collected(admin) > rounds, bookie)


def collected(admin: AdminClient) -> int:
    (found,) = admin.ask("GET", "/api/v2/bookie/gc").json
    return 0 if found["running"] else int(found["rounds"]) + int(found["failed_rounds"])


def log_bytes(directory: Path) -> int:
    return sum(path.stat().st_size for path in directory.rglob("*.log"))


def assert_intact(client: BlockingClient, ledger_id: LedgerId) -> None:
    found = [entry.payload for entry in client.iter_entries(ledger_id)]
    assert found == [payload(number, 8000) for number in range(ENTRIES)]
