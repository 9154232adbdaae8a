"""A live bookie that may open 128 files: it keeps what it promises, and starts again so.

With fewer, or with too few threads, it does not start.
"""

from __future__ import annotations

import contextlib
import os
import subprocess
import sys
import tempfile
from pathlib import Path

import pytest

from bkclient.blocking import BlockingClient
from bkclient.client import Client
from bkclient.errors import MORE_THREADS
from bkctl.bookies.http.admin_client import AdminClient
from bookied.errors import BookieExitStatus
from tests.bookied.worlds.raw_client import RawClient
from tests.live.bookied.processes import (
    SOON_FORGOTTEN,
    BookieProcess,
    free_port,
    make_cluster,
    write_conf,
)
from tests.support.waiting import until
from wire.codes import ReturnCode
from wire.ids import LedgerId

pytestmark = pytest.mark.processes

FEW = ("sh", "-c", 'ulimit -n 128; exec "$@"', "sh")
USER = 54321
AS_USER_OF_FEW_THREADS = (
    *("prlimit", "--nproc=20", "setpriv", "--reuid", str(USER), "--regid", str(USER)),
    # The interpreter may be in root's home.
    *("--clear-groups", "--inh-caps=-all,+dac_read_search", "--ambient-caps=+dac_read_search"),
)
LEDGERS = 1500
MB = 1 << 20
ONE = {"ensemble_size": 1, "write_quorum": 1, "ack_quorum": 1}
ENTRIES = 200
CONNECTIONS = 120
"""More than are taken."""


def test_more_ledgers_than_descriptors_are_kept_through_a_kill(tmp_path: Path) -> None:
    conf = write_conf(
        tmp_path / "b1",
        make_cluster(tmp_path / "metadata.db"),
        flushInterval=300,
        httpServerEnabled="true",
        httpServerPort=free_port(),
    )
    process = BookieProcess(conf, prefix=FEW).ready()
    try:
        with contextlib.ExitStack() as stack:
            for _ in range(6):
                stack.enter_context(process.client())
            client = stack.enter_context(process.client())
            assert fill(client) == {ReturnCode.EOK}
        until(lambda: index_files(tmp_path) == LEDGERS)
        assert "checkpoint failed" not in process.output.read_text()
        with process.client() as client:
            client.add(9999, 0, b"journal only")
    finally:
        process.kill()
    process = BookieProcess(conf, prefix=FEW).ready()
    try:
        with process.client() as client:
            for ledger_id in range(LEDGERS):
                assert b"%d." % ledger_id in bytes(client.read(ledger_id, 0))
            assert b"journal only" in bytes(client.read(9999, 0))
    finally:
        assert process.stop() == 0


def test_too_few_descriptors_end_the_start_with_a_hint(tmp_path: Path) -> None:
    conf = write_conf(tmp_path / "b1", make_cluster(tmp_path / "metadata.db"))
    process = BookieProcess(conf, prefix=("sh", "-c", 'ulimit -n 127; exec "$@"', "sh"))
    assert process.ended() == BookieExitStatus.INVALID_CONFIGURATION
    assert "may open 127 files, and a bookie needs 128" in process.last_line()


def test_too_few_threads_end_the_start_with_a_hint() -> None:
    try:
        subprocess.run([*AS_USER_OF_FEW_THREADS, sys.executable, "-c", ""], check=True)
    except (OSError, subprocess.CalledProcessError):
        pytest.skip("only root can be another user, and root may start any number of threads")
    with tempfile.TemporaryDirectory(prefix="bkctl-threads-") as name:
        directory = Path(name)
        conf = write_conf(directory / "b1", make_cluster(directory / "metadata.db"))
        for path in (directory, *directory.rglob("*")):
            os.chown(path, USER, USER)
        process = BookieProcess(conf, prefix=AS_USER_OF_FEW_THREADS)
        assert process.ended() == BookieExitStatus.FATAL
        last = f"the process can start no more threads; {MORE_THREADS}"
        assert process.own_lines() == [f"bookied: {last}"]
        assert "Traceback" not in process.output.read_text()


def fill(client: RawClient) -> set[object]:
    return {client.add(ledger_id, 0, b"%d." % ledger_id) for ledger_id in range(LEDGERS)}


def index_files(directory: Path) -> int:
    return sum(1 for _ in directory.rglob("*.idx"))


@pytest.mark.parametrize(
    "storage", ["InterleavedLedgerStorage", "SortedLedgerStorage", "DbLedgerStorage"]
)
@pytest.mark.parametrize("transactional", ["false", "true"], ids=["in-place", "transactional"])
def test_journals_roll_and_logs_are_compacted_beside_all_connections_that_are_taken(
    tmp_path: Path, storage: str, transactional: str
) -> None:
    uri, http_port = make_cluster(tmp_path / "metadata.db"), free_port()
    conf = write_conf(
        tmp_path / "b1",
        uri,
        ledgerStorageClass=f"org.apache.bookkeeper.bookie.{storage}",
        useTransactionalCompaction=transactional,
        flushInterval=200,
        logSizeLimit=MB,
        journalMaxSizeMB=1,
        gcWaitTime=3_600_000,
        minorCompactionThreshold=0.9,
        majorCompactionThreshold=0.95,
        compactionRateByEntries=100_000,
        httpServerEnabled="true",
        httpServerPort=http_port,
        httpAdminToken="t",
        **SOON_FORGOTTEN,
    )
    admin = AdminClient("127.0.0.1", http_port, token="t")
    process = BookieProcess(conf, prefix=FEW).ready()
    try:
        with BlockingClient(uri) as client, contextlib.ExitStack() as stack:
            kept, deleted = write_two(client)
            for _ in range(CONNECTIONS):
                stack.enter_context(process.client())
            more = write_two(client)[0]
            client.call(Client.delete_ledger, deleted)
            collect(admin)
            assert [intact(client, one) for one in (kept, more)] == [True, True]
            stack.close()
            collect(admin)
            until(lambda: (tmp_path / "b1/ledgers/current/0.log").exists() is False)
            last = write_two(client)[0]
            process.kill()
            process = BookieProcess(conf, prefix=FEW).ready()
            assert [intact(client, one) for one in (kept, more, last)] == [True] * 3
        assert "Too many open files" not in process.output.read_text()
    finally:
        assert process.stop() == 0


def write_two(client: BlockingClient) -> tuple[LedgerId, LedgerId]:
    """Write two ledgers into the same logs; return their ids."""
    one, other = (client.call(Client.create_ledger, **ONE) for _ in range(2))
    for number in range(ENTRIES):
        client.run(one.add, payload(number))
        client.run(other.add, payload(number))
    client.run(one.close)
    client.run(other.close)
    return one.ledger_id, other.ledger_id


def payload(number: int) -> bytes:
    return (b"%d." % number * 8000)[:8000]


def intact(client: BlockingClient, ledger_id: LedgerId) -> bool:
    found = [entry.payload for entry in client.iter_entries(ledger_id)]
    return found == [payload(number) for number in range(ENTRIES)]


def collect(admin: AdminClient) -> None:
    """Collect garbage and compact; return when that has ended."""

    def rounds() -> int:
        (found,) = admin.ask("GET", "/api/v2/bookie/gc").json
        assert found["failed_rounds"] == 0, found["last_error"]
        return 0 if found["running"] else int(found["rounds"])

    before = rounds()
    admin.ask("POST", "/api/v2/bookie/gc", {"major": True, "minor": True})
    until(lambda: rounds() > before)
