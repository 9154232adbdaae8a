"""Exports to a real S3 server and to a real HDFS."""

from __future__ import annotations

import os
import signal
import subprocess
import sys

import pytest

from bkclient.blocking import BlockingClient
from bkctl.commands.export.errors import ExportBusyError
from bkctl.commands.export.run import export_ledgers
from bkctl.commands.export.target.arrow_file_systems import ArrowFiles, LockFile
from bkctl.commands.export.target.export_commit import STAGING_PREFIX
from tests.bkctl.commands.export.target.dying_system import check_every_step
from tests.bkctl.commands.export.target.test_export_commit import Killed
from tests.bkctl.support.cluster import BKCTL
from tests.support.waiting import until

pytestmark = [pytest.mark.processes]

PAYLOADS = [b"", b"one", *(b"entry %d" % i for i in range(500))]


def write(client: BlockingClient, payloads: list[bytes]) -> int:
    return client.write_ledger(payloads)[0]


def read_back(target: str) -> dict[int, list[bytes]]:
    """Return what a reader finds: all files that Spark would not ignore."""
    from pyarrow import parquet

    files, found = ArrowFiles.at(target), dict[int, dict[int, bytes]]()
    for path in files.sizes():
        if path.startswith("_"):
            continue
        with files.open(path) as stream:
            table = parquet.ParquetFile(stream).read(["ledger_id", "entry_id", "payload"])
        for row in table.to_pylist():
            ledger = found.setdefault(row["ledger_id"], {})
            assert row["entry_id"] not in ledger
            ledger[row["entry_id"]] = row["payload"]
    return {n: [one[i] for i in range(len(one))] for n, one in found.items()}


@pytest.mark.parametrize("layout", ["ledger", "none"])
def test_each_export_adds_what_is_new(place, cluster, client, layout) -> None:
    target = f"{place}/adds-{layout}"
    first = write(client, PAYLOADS)
    export_ledgers(cluster.uri, [first], target, layout=layout, verify=True)
    second = write(client, PAYLOADS[:7])
    report = export_ledgers(cluster.uri, [first, second], target, layout=layout, verify=True)
    assert report.entries == len(PAYLOADS) + 7
    assert read_back(target) == {first: PAYLOADS, second: PAYLOADS[:7]}
    kept = ArrowFiles.at(target).sizes()
    export_ledgers(cluster.uri, [first, second], target, layout=layout, verify=True)
    assert ArrowFiles.at(target).sizes() == kept
    if layout == "ledger":
        export_ledgers(cluster.uri, [first], target, layout=layout, again=True)
        assert read_back(target) == {first: PAYLOADS, second: PAYLOADS[:7]}


def test_a_delta_table_has_each_run_as_one_version(place, cluster, client) -> None:
    from deltalake import DeltaTable

    target = f"{place}/delta"
    for _ in range(2):
        ledger_id = write(client, PAYLOADS[:9])
        export_ledgers(cluster.uri, [ledger_id], target, layout="none", table_format="delta")
    table = DeltaTable(target)
    assert table.version() == 1
    assert len(table.file_uris()) == 2
    assert sum(table.get_add_actions().column("num_records").to_pylist()) == 18


def test_a_commit_that_dies_leaves_all_or_nothing(place) -> None:
    files = ArrowFiles.at(f"{place}/steps")
    # Each step is tried on local files: see test_arrow_files.
    assert check_every_step(files.system, files, Killed(), stride=5) > 10


def is_free(files: ArrowFiles) -> bool:
    """Take the lock for a moment, with less patience than an export has."""
    try:
        with LockFile(files, lost_s=3.0):
            return True
    except BlockingIOError:
        return False


_EXPORT = """
import sys
from bkctl.commands.export.run import export_ledgers
export_ledgers(sys.argv[1], [int(one) for one in sys.argv[3:]], sys.argv[2])
"""


def test_an_export_that_is_killed_is_done_by_the_next_one(place, cluster, client) -> None:
    target = f"{place}/killed"
    ledgers = [write(client, PAYLOADS) for _ in range(12)]
    files = ArrowFiles.at(target)
    command = [sys.executable, "-c", _EXPORT, cluster.uri, target, *map(str, ledgers)]
    with subprocess.Popen(command, env=dict(os.environ), start_new_session=True) as process:
        try:
            until(
                lambda: any(one.endswith(".parquet") for one in files.sizes()),
                "no task has written a file",
                check=process.poll,
            )
        finally:
            os.killpg(process.pid, signal.SIGKILL)
    with pytest.raises(ExportBusyError, match=r"_bkctl/lock-\w+ is held by process \d+ on"):
        export_ledgers(cluster.uri, ledgers, target)
    until(lambda: is_free(files), "the lock of a killed export does not expire")
    export_ledgers(cluster.uri, ledgers, target, verify=True)
    assert read_back(target) == dict.fromkeys(ledgers, PAYLOADS)
    assert not [one for one in files.sizes() if STAGING_PREFIX in one or "lock" in one]


def test_exports_at_one_time_leave_each_row_once(place, cluster, client) -> None:
    target = f"{place}/together"
    ledgers = [write(client, PAYLOADS) for _ in range(3)]
    command = [*BKCTL, "-u", cluster.uri, "export", *map(str, ledgers), "--to", target]
    running = [
        subprocess.Popen([*command, "--partition-by", "none"], stderr=subprocess.PIPE)
        for _ in range(3)
    ]
    try:
        ended = [(one.communicate()[1], one.returncode) for one in running]
    finally:
        for one in running:
            one.kill()
    for told, status in ended:
        # Two that begin at the same time may both give way.
        assert status in (0, ExportBusyError.exit_status), told
        assert status == 0 or b"another export writes to" in told
    export_ledgers(cluster.uri, ledgers, target, layout="none", verify=True)
    assert read_back(target) == dict.fromkeys(ledgers, PAYLOADS)
