"""A query on YARN: executors in containers, with the archive of ``bkctl spark bundle`` alone."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

pytest.importorskip("pyspark", reason="PySpark is not installed: pip install 'bkctl[spark]'")

from bkclient.blocking import BlockingClient
from bkctl.commands.local.java import pyspark_jars, spark_java_home
from tests.bkctl.commands.export.spark.test_standalone import QUERY
from tests.bkctl.support.cluster import BKCTL, Cluster
from tests.bkctl.support.spark import bare_python, quick
from tests.interop.peers.hadoop import yarn
from tests.interop.peers.jars import PeerUnavailable
from tests.support.programs import missing

pytestmark = [pytest.mark.spark, pytest.mark.processes]

PAYLOADS = [b"entry %d" % n for n in range(250)]
TIMEOUT_S = 600


@pytest.fixture
def yarn_directory(tmp_path) -> Iterator[Path]:
    """A directory of a running YARN, which has the client's settings."""
    try:
        with yarn(tmp_path):
            yield tmp_path
    except PeerUnavailable as error:
        missing(error)


def test_executors_need_nothing_installed(
    yarn_directory: Path, cluster: Cluster, client: BlockingClient
) -> None:
    bundle, job = yarn_directory / "bkctl.tar.gz", yarn_directory / "job.py"
    subprocess.run([*BKCTL, "spark", "bundle", bundle], check=True)
    job.write_text(QUERY)
    ledger_id, _ = client.write_ledger(PAYLOADS)
    python = bare_python(yarn_directory)
    home = spark_java_home(yarn_directory / "java", quiet=True)
    options_of_jvms = quick(yarn_directory)
    given = options_of_jvms | {
        "spark.archives": f"{bundle}#bkctl",
        "spark.executorEnv.PYTHONPATH": "bkctl",
        "spark.executorEnv.JAVA_HOME": str(home),
        "spark.executor.instances": "1",
        "spark.executor.memory": "512m",
        "spark.pyspark.driver.python": sys.executable,
        "spark.pyspark.python": str(python),
        "spark.yarn.am.extraJavaOptions": options_of_jvms["spark.executor.extraJavaOptions"],
        "spark.yarn.appMasterEnv.JAVA_HOME": str(home),
        "spark.yarn.jars": f"local:{pyspark_jars()}/*",
    }
    words = [f"--conf={key}={value}" for key, value in given.items()]
    options = json.dumps({"uri": cluster.uri, "ledgers": ledger_id})
    done = subprocess.run(
        [Path(sys.executable).with_name("spark-submit"), "--master=yarn", *words, job, options],
        env={
            **os.environ,
            "HADOOP_CONF_DIR": str(yarn_directory),
            "JAVA_HOME": str(home),
            "PATH": f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}",
            "SPARK_LOCAL_IP": "127.0.0.1",
        },
        capture_output=True,
        text=True,
        timeout=TIMEOUT_S,
        check=False,
        cwd=yarn_directory,
    )
    assert done.returncode == 0, done.stderr
    found = json.loads(done.stdout)
    (payloads,) = found["payloads"]
    assert payloads == {str(n): payload.decode() for n, payload in enumerate(PAYLOADS)}
    for program, module in found["workers"]:
        assert program == str(python)
        assert Path(module).is_relative_to(yarn_directory), module
