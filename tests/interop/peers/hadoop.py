"""A real HDFS and YARN of this host's: Hadoop's own clusters for tests, in a JVM of their own."""

from __future__ import annotations

import json
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Final

from bkctl.commands.local.java import find_java, pyspark_jars
from bkctl.commands.local.process import ChildProcess
from tests.interop.peers.jars import default_directory, jars_of
from tests.support.children import until_child
from tests.support.waiting import until

MINICLUSTER: Final = (("org.apache.hadoop", "hadoop-client-minicluster"),)
_QUICK: Final = ("-XX:TieredStopAtLevel=1", "-XX:+UseSerialGC", "-Xshare:auto")


def hadoop_jars() -> list[Path]:
    """Return the class path of Hadoop in the release that PySpark has, with its test clusters.

    Raises:
        PeerUnavailable: they are not here and cannot be fetched.
    """
    (client,) = pyspark_jars().glob("hadoop-client-api-*.jar")
    version = client.stem.removeprefix("hadoop-client-api-")
    return jars_of(default_directory().with_name(f"hadoop-jars-{version}"), MINICLUSTER, version)


@contextmanager
def hdfs(directory: Path) -> Iterator[str]:
    """Run a name node and a data node; give the file system's URI."""
    details = directory / "details.json"
    command = [
        *(str(find_java().executable), *_QUICK),
        *("-cp", ":".join(map(str, hadoop_jars())), "org.apache.hadoop.test.MiniDFSClusterManager"),
        *("-datanodes", "1", "-format", "-writeDetails", str(details)),
        *("-D", f"hdfs.minidfs.basedir={directory}"),
    ]
    process = ChildProcess(command, directory / "hdfs.log", cwd=directory)
    try:
        until_child(process, details.exists, timeout_s=120)
        until(lambda: details.read_text().endswith("}"), details.read_text)
        yield f"hdfs://localhost:{json.loads(details.read_text())['namenode_port']}"
    finally:
        process.stop(30)
