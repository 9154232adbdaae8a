"""Spark as the engine of an export to S3 and HDFS, and as the reader of what it wrote."""

from __future__ import annotations

import json
import os
import subprocess
import sys

import pytest

pytest.importorskip("pyspark", reason="PySpark is not installed: pip install 'bkctl[spark]'")

from tests.bkctl.support.cluster import BKCTL
from tests.bkctl.support.spark import quick
from tests.interop.peers.hadoop import s3a_jars
from tests.interop.peers.jars import PeerUnavailable
from tests.support.programs import missing

pytestmark = [pytest.mark.spark, pytest.mark.processes]

PAYLOADS = [b"", bytes(range(256)), *(b"entry %d" % i for i in range(1000))]
LIMIT_S = 300
_READ = """
import json, sys
from bkctl.commands.export.spark.session import spark_session
read_back, options = sys.argv[1], json.loads(sys.argv[2])
with spark_session("local[2]", options=options) as spark:
    rows = eval(read_back).orderBy("ledger_id", "entry_id").collect()
    print(json.dumps([(row["ledger_id"], row["entry_id"], row["payload"].hex()) for row in rows]))
"""


@pytest.fixture(scope="module")
def options(place: str) -> dict[str, str]:
    """Settings with which Spark reaches the store."""
    if not place.startswith("s3a:"):
        return quick()
    try:
        jars = ",".join(map(str, s3a_jars()))
    except PeerUnavailable as error:
        missing(error)
    # A server on 127.0.0.1 has no name for each bucket.
    return quick() | {"spark.jars": jars, "spark.hadoop.fs.s3a.path.style.access": "true"}


def run(command: list[str]) -> bytes:
    done = subprocess.run(
        command, capture_output=True, timeout=LIMIT_S, env=dict(os.environ), check=False
    )
    assert done.returncode == 0, done.stderr[-4000:]
    return done.stdout


def test_spark_writes_a_store_and_reads_it_back(place, cluster, client, options) -> None:
    alone = {"ensemble_size": 1, "write_quorum": 1, "ack_quorum": 1}
    ids = [client.write_ledger(PAYLOADS, **alone)[0] for _ in range(3)]
    words = [f"--spark-conf={key}={value}" for key, value in quick().items()]
    words += ["--engine", "spark", "--master", "local[2]", "--verify", "-o", "json"]
    export = [*BKCTL, "-u", cluster.uri, "export", *map(str, ids), "--to", f"{place}/by-spark"]
    told = json.loads(run([*export, *words]))
    assert told["entries"] == 3 * len(PAYLOADS)
    rows = json.loads(run([sys.executable, "-c", _READ, told["read_back"], json.dumps(options)]))
    expected = [[i, n, payload.hex()] for i in ids for n, payload in enumerate(PAYLOADS)]
    assert rows == expected
