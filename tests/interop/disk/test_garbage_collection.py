"""Garbage collection of our bookie in a real cluster, beside Java's client and Java's bookie.

Payloads can be made again from ledger and entry id, so what is read is compared byte for byte.
"""

from __future__ import annotations

import contextlib
import os
import signal
import threading
import time
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any, Final

import pytest

from bkctl.commands.local.zookeeper import ZooKeeperProcess
from bookied.errors import LedgersMapError
from bookied.storage.entrylog import format as layout
from bookied.storage.entrylog.log_list import list_logs
from bookied.storage.entrylog.scan import open_scan, read_ledgers_map
from bookied.storage.files.files import RealFiles
from bookied.storage.garbage.transactional_compaction import UnfinishedCompaction
from tests.interop.peers.java_client import JavaClient
from tests.interop.peers.our_bookie import OurBookie, our_bookie
from tests.interop.peers.peers import JavaBookie, Peers, init_cluster
from tests.support.waiting import START_S, until
from wire.ids import LedgerId

ENTRIES: Final = 300
PAYLOAD_BYTES: Final = 4000
OFTEN: Final[dict[str, Any]] = {
    "logSizeLimit": 1_000_000,
    "flushInterval": 200,
    "compactionRateByEntries": 50_000,
    "majorCompactionThreshold": 0.99,
}
"""Small logs; collections come when they are asked for."""


def payload(ledger_id: int, entry_id: int) -> bytes:
    return b"%d/%d." % (ledger_id, entry_id) * (PAYLOAD_BYTES // 8)


def write_ledgers(client: JavaClient, count: int) -> list[int]:
    """Write ledgers whose entries lie mixed in the logs; return their ids."""
    ledgers = [client.create_ledger(1, 1, 1) for _ in range(count)]
    for start in range(0, ENTRIES, 50):
        for ledger in ledgers:
            ledger.add_many(payload(ledger.ledger_id, at) for at in range(start, start + 50))
    for ledger in ledgers:
        ledger.close()
    return [ledger.ledger_id for ledger in ledgers]


def require_readable(client: JavaClient, ledger_ids: Sequence[int]) -> None:
    for ledger_id in ledger_ids:
        ledger = client.open_ledger(ledger_id, recover=False)
        wanted = [payload(ledger_id, at) for at in range(ENTRIES)]
        assert ledger.read(0, ENTRIES - 1) == wanted


def log_files(bookie: JavaBookie) -> dict[str, int]:
    """Return name and size of every file of entry logs."""
    found = {}
    for path in (bookie.ledger_directory / "current").iterdir():
        if ".log" in path.name:
            with contextlib.suppress(FileNotFoundError):  # It was collected meanwhile.
                found[path.name] = path.stat().st_size
    return found


def leftovers(bookie: JavaBookie) -> set[str]:
    """Return the files of compactions that are under way, or came to nothing."""
    return {name for name in log_files(bookie) if not name.endswith(".log")}


def ledgers_in_logs(bookie: JavaBookie) -> set[int]:
    """Return the ledgers of which any finished log with a map has entries."""
    found: set[int] = set()
    for path in list_logs(RealFiles(), [bookie.ledger_directory / "current"]).values():
        with contextlib.suppress(LedgersMapError, FileNotFoundError):
            found |= {*read_ledgers_map(RealFiles(), path)}
    return found


def collect(bookie: JavaBookie) -> None:
    os.kill(bookie.pid, signal.SIGUSR1)


@contextlib.contextmanager
def under_load(client: JavaClient, ledger_ids: Sequence[int]) -> Iterator[list[bytes]]:
    """Read ledgers and add to another one meanwhile; whatever fails there fails here.

    What is added comes into the list.
    """
    ending, troubles, added = threading.Event(), list[BaseException](), list[bytes]()

    def load() -> None:
        try:
            writer = client.create_ledger(1, 1, 1)
            while not ending.is_set():
                added.extend([b"x" * 1000] * 20)
                writer.add_many(added[-20:])
                require_readable(client, ledger_ids[:2])
            writer.close()
        except BaseException as trouble:  # noqa: BLE001 -- told by the test's own thread
            troubles.append(trouble)

    thread = threading.Thread(target=load)
    thread.start()
    try:
        yield added
    finally:
        ending.set()
        thread.join(120)
    assert not thread.is_alive()
    if troubles:
        raise troubles[0]


@pytest.mark.parametrize("transactional", [False, True], ids=["in-place", "transactional"])
@pytest.mark.parametrize(
    "storage", ["SortedLedgerStorage", "InterleavedLedgerStorage", "storage.ldb.DbLedgerStorage"]
)
def test_deleted_ledgers_leave_the_disk_and_live_ones_stay(
    peers: Peers, storage: str, *, transactional: bool
) -> None:
    uri = peers.metadata_uri()
    conf: dict[str, Any] = {
        "ledgerStorageClass": f"org.apache.bookkeeper.bookie.{storage}",
        "useTransactionalCompaction": str(transactional).lower(),
        **OFTEN,
    }
    bookie = our_bookie(peers, uri, **conf)
    client = peers.java_client(uri)
    ledger_ids = write_ledgers(client, 6)
    gone, live = ledger_ids[::2], ledger_ids[1::2]
    require_readable(client, ledger_ids)
    full_bytes = sum(log_files(bookie).values())
    for ledger_id in gone:
        client.delete_ledger(ledger_id)
    with under_load(client, live) as added:

        def are_gone() -> bool:
            collect(bookie)  # The log that was written to the last time has its turn now.
            return not ledgers_in_logs(bookie).intersection(gone)

        until(are_gone, "deleted ledgers are in logs", timeout_s=120, pause_s=1)
    require_readable(client, live)
    # The last collection may be at work yet; none follows it by itself.
    until(lambda: not leftovers(bookie), "leftovers of a compaction", timeout_s=120)
    bookie.restart()
    one_ledger_bytes = ENTRIES * PAYLOAD_BYTES
    added_bytes = sum(map(len, added))

    def is_room_back() -> bool:
        collect(bookie)
        return sum(log_files(bookie).values()) < full_bytes + added_bytes - 2 * one_ledger_bytes

    until(is_room_back, "the room is not back", timeout_s=120, pause_s=1)
    # A client of its own: one that met the bookie while it was down may not try it again at once.
    require_readable(peers.java_client(uri), live)
    bookie.restart(kill=True)
    require_readable(peers.java_client(uri), live)
    bookie.stop()
    java = JavaBookie(uri, bookie.directory, bookie.port, **conf)
    peers.on_close(java.kill)
    java.start()
    require_readable(client, live)
    java.stop()


def test_nothing_is_deleted_while_the_metadata_service_is_away(
    tmp_path: Path, peers: Peers, jars: list[Path]
) -> None:
    directory = tmp_path / "zk"
    zookeeper = ZooKeeperProcess(directory, tick_ms=500, fsync=False, heap_mb=128)
    zookeeper.start(START_S)
    peers.on_close(zookeeper.stop)
    uri = f"zk+hierarchical://{zookeeper.address}/ledgers"
    init_cluster(uri, tmp_path)
    bookie = our_bookie(peers, uri, zkTimeout=5000, **OFTEN)
    client = peers.java_client(uri)
    ledger_ids = write_ledgers(client, 2)
    client.delete_ledger(ledger_ids[0])
    client.close()
    zookeeper.stop()
    before = log_files(bookie)
    collect(bookie)
    # It waits as long as a session may be away, and gives up.
    until(
        lambda: "garbage collection failed" in bookie.log.read_text(),
        "it waits on",
        timeout_s=120,
    )
    after = log_files(bookie)
    assert all(after[name] >= size for name, size in before.items())
    assert bookie.running
    zookeeper.start(START_S)
    client = peers.java_client(uri)
    require_readable(client, ledger_ids[1:])
    assert LedgerId(ledger_ids[0]) in ledgers_in_logs(bookie)

    def is_gone() -> bool:
        collect(bookie)
        return ledger_ids[0] not in ledgers_in_logs(bookie)

    until(is_gone, "the deleted ledger stays", timeout_s=120, pause_s=1)
    require_readable(client, ledger_ids[1:])


def compact_as_java_does(bookie: JavaBookie, target: int) -> UnfinishedCompaction:
    """Leave what a Java bookie leaves that ends right after it has written the compacted log."""
    files, current = RealFiles(), bookie.ledger_directory / "current"
    source = min(list_logs(files, [current]))
    todo = UnfinishedCompaction(source, target, current)
    scan = open_scan(files, current / layout.file_name(source))
    data, sizes = bytearray(layout.LogHeader().encode()), dict[int, int]()
    for record in scan:
        sizes[record.ledger_id] = sizes.get(record.ledger_id, 0) + 4 + len(record.body)
        data += layout.LENGTH.pack(len(record.body)) + record.body
    scan.close()
    place = layout.MAP_PLACE.pack(len(data), len(sizes))
    data[layout.MAP_PLACE_OFFSET : layout.MAP_PLACE_OFFSET + len(place)] = place
    todo.compacted.write_bytes(data + layout.encode_ledgers_map(sizes))
    return todo


def test_what_a_java_bookie_left_of_a_compaction_is_finished(peers: Peers) -> None:
    uri = peers.metadata_uri()
    conf: dict[str, Any] = {
        "ledgerStorageClass": "org.apache.bookkeeper.bookie.InterleavedLedgerStorage",
        "useTransactionalCompaction": "true",
        **OFTEN,
        "gcWaitTime": 1000,
    }
    java = peers.java_bookie(uri, **conf)
    client = peers.java_client(uri)
    ledger_ids = write_ledgers(client, 2)
    java.stop()
    todo = compact_as_java_does(java, 0xAF)
    java.start()
    # Its recovery spells the target in decimal, and then does not find it; so it tries for good.
    until(todo.decimal.exists, "Java has not tried to finish the compaction", timeout_s=120)
    time.sleep(2)
    assert not todo.final.exists()
    require_readable(client, ledger_ids)
    java.stop()
    conf["gcWaitTime"] = 3_600_000
    bookie = OurBookie(uri, java.directory, java.port, **conf)
    peers.on_close(bookie.kill)
    bookie.start()
    collect(bookie)
    superfluous = {todo.decimal.name, f"{todo.source:x}.log"}

    def is_finished() -> bool:
        names = log_files(bookie).keys()
        return todo.final.name in names and not (todo.compacted.exists() or superfluous & names)

    until(is_finished, "the compaction is not finished", timeout_s=120)
    require_readable(client, ledger_ids)
    bookie.restart(kill=True)
    require_readable(client, ledger_ids)
    bookie.stop()
    java.start()
    require_readable(client, ledger_ids)
    java.stop()
