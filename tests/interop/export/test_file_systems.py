"""Exports to a real S3 server and to a real HDFS."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections.abc import Iterator

import pytest

from bkclient.blocking import BlockingClient
from bkctl.commands.export.run import ExportBusyError, export_ledgers
from bkctl.commands.export.target.arrow_file_systems import ArrowFiles
from bkctl.commands.export.target.commit import STAGING_PREFIX
from tests.bkctl.commands.export.target.dying_system import check_every_step
from tests.bkctl.commands.export.target.test_commit import Killed
from tests.bkctl.support.cluster import Cluster, local_cluster
from tests.interop.peers.hadoop import hdfs
from tests.interop.peers.jars import PeerUnavailable
from tests.support.programs import missing
from tests.support.s3_server import BUCKET, s3_server
from tests.support.waiting import until

pytestmark = [pytest.mark.processes]

PAYLOADS = [b"", b"one", *(b"entry %d" % i for i in range(500))]


@pytest.fixture(scope="module", params=["s3a", "hdfs"])
def place(request, tmp_path_factory) -> Iterator[str]:
    """The URI of an empty file system; the environment has what clients need."""
    directory = tmp_path_factory.mktemp(request.param)
    if request.param == "s3a":
        with s3_server(directory) as variables, pytest.MonkeyPatch.context() as patch:
            for name, value in variables.items():
                patch.setenv(name, value)
            yield f"s3a://{BUCKET}"
        return
    try:
        with hdfs(directory) as uri:
            yield uri
    except PeerUnavailable as error:
        missing(error)


@pytest.fixture(scope="module")
def cluster(tmp_path_factory) -> Iterator[Cluster]:
    with local_cluster(tmp_path_factory.mktemp("cluster") / "bk", 3) as running:
        yield running


@pytest.fixture(scope="module")
def client(cluster: Cluster) -> Iterator[BlockingClient]:
    with BlockingClient(cluster.uri) as connected:
        yield connected


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
    # Its lock counts no more after a while, or when it is removed: see test_lock_file.
    (lock,) = [one for one in files.sizes("_bkctl") if "lock" in one]
    files.remove(lock)
    export_ledgers(cluster.uri, ledgers, target, verify=True)
    assert read_back(target) == dict.fromkeys(ledgers, PAYLOADS)
    assert not [one for one in files.sizes() if STAGING_PREFIX in one or "lock" in one]
