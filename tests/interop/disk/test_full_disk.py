"""A file system that fills up under the load of Java's client, and has room again later."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.bookied.worlds.file_systems import fill, small_file_system
from tests.interop.peers.java_client import JavaClient, JavaLedger
from tests.interop.peers.jvm import JavaError
from tests.interop.peers.our_bookie import OurBookie
from tests.interop.peers.peers import Peers, ledgers_root, zookeeper_client
from tests.support.waiting import until

MB = 1 << 20
CONF = {
    "diskUsageThreshold": 0.95,
    "diskUsageWarnThreshold": 0.90,
    "diskCheckInterval": 500,
    "flushInterval": 200,
    "logSizeLimit": 4 * MB,
    "minUsableSizeForHighPriorityWrites": 64 * 1024,
    "minUsableSizeForIndexFileCreation": 16 * 1024,
    "gcWaitTime": 3_600_000,
}
WINDOW = 200


@pytest.fixture
def disk(tmp_path: Path) -> Iterator[Path]:
    with small_file_system(tmp_path / "disk", 48 * MB) as path:
        yield path


def payload(ledger_id: int, entry_id: int) -> bytes:
    return (b"%d/%d;" % (ledger_id, entry_id) * 1000)[: 1000 + entry_id * 7919 % 6000]


def write(ledger: JavaLedger, count: int, acked: int = 0) -> int:
    """Add entries, a window of them at a time; return how many were acknowledged, in order."""
    while acked < count:
        ids = range(acked, min(count, acked + WINDOW))
        futures = [ledger.add_async(payload(ledger.ledger_id, entry_id)) for entry_id in ids]
        for entry_id, future in zip(ids, futures, strict=True):
            try:
                assert future.result() == entry_id
            except JavaError:
                return acked
            acked += 1
    return acked


def check(client: JavaClient, ledger_id: int, acked: int) -> None:
    """Let Java's client recover the ledger, and read all of it: it checks each digest."""
    ledger = client.open_ledger(ledger_id)
    last = ledger.last_add_confirmed
    assert last >= acked - 1, f"{acked} were acknowledged, {last + 1} are there"
    for first in range(0, last + 1, WINDOW):
        until = min(last, first + WINDOW - 1)
        found = ledger.read(first, until)
        assert found == [payload(ledger_id, entry_id) for entry_id in range(first, until + 1)]
    ledger.close()


def is_registered(uri: str, bookie: OurBookie, *, read_only: bool) -> bool:
    path = f"{ledgers_root(uri)}/available/{'readonly/' if read_only else ''}{bookie.bookie_id}"
    with zookeeper_client(uri) as zk:
        return zk.exists(path) is not None


@pytest.mark.parametrize("to_the_last_byte", [False, True])
def test_nothing_acknowledged_is_lost_on_a_disk_that_fills_up(
    peers: Peers, disk: Path, *, to_the_last_byte: bool
) -> None:
    uri = peers.metadata_uri()
    reserve = disk / "reserve"
    reserve.write_bytes(bytes(16 * MB))
    # Where the looks at the disk come late, writes meet its end.
    interval_ms = 4000 if to_the_last_byte else 200
    bookie = OurBookie(
        uri,
        peers.new_directory("bookied"),
        **(CONF | {"ledgerDirectories": disk, "diskCheckInterval": interval_ms}),
    )
    peers.on_close(bookie.kill)
    bookie.start()
    client = peers.java_client(uri)
    first = client.create_ledger(1, 1, 1)
    acked = write(first, 20_000)
    assert 0 < acked < 20_000
    until(lambda: is_registered(uri, bookie, read_only=True), timeout_s=120)
    ballast = fill(disk) if to_the_last_byte else None
    bookie.restart(kill=True)
    assert is_registered(uri, bookie, read_only=True)
    with pytest.raises(JavaError):
        client.create_ledger(1, 1, 1)

    reserve.unlink()
    if ballast is not None:
        ballast.unlink()
    until(lambda: is_registered(uri, bookie, read_only=False), timeout_s=120)
    # The first client may take the bookie for a faulty one for a good while yet.
    client = peers.java_client(uri)
    second = writable_ledger(client)
    assert write(second, 300, acked=1) == 300
    second.close()
    for ledger_id, count in ((first.ledger_id, acked), (second.ledger_id, 300)):
        check(client, ledger_id, count)
    bookie.restart(kill=True)
    for ledger_id, count in ((first.ledger_id, acked), (second.ledger_id, 300)):
        check(client, ledger_id, count)
    assert bookie.stop() == 0


def writable_ledger(client: JavaClient) -> JavaLedger:
    """Return a ledger with one entry, once the client has heard that the bookie is writable."""
    made: list[JavaLedger] = []

    def is_written() -> bool:
        try:
            made.append(client.create_ledger(1, 1, 1))
        except JavaError:
            return False
        return write(made[-1], 1) == 1

    until(is_written, timeout_s=120)
    return made[-1]
