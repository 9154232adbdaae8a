"""A real HDFS and YARN of this host's: Hadoop's own clusters for tests, in a JVM of their own."""

from __future__ import annotations

import json
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Final

from py4j.java_gateway import JavaGateway

from bkctl.commands.local.child_process import ChildProcess
from bkctl.commands.local.java import find_java, pyspark_jars
from tests.interop.peers.jars import default_directory, jars_of
from tests.support.child_processes import until_child
from tests.support.waiting import until

MINICLUSTER: Final = (("org.apache.hadoop", "hadoop-client-minicluster"),)
_AWS: Final = "2.35.4"
_ACCELERATOR: Final = "1.3.1"
"""The releases that Hadoop 3.5.0 is built with."""

_ACCELERATOR_GROUP: Final = "software.amazon.s3.analyticsaccelerator"
_AWS_MODULES: Final = tuple(
    ("software.amazon.awssdk", name)
    for name in ("s3-transfer-manager", "sts", "apache-client", "netty-nio-client")
)
_OF_YARN: Final = {
    ("org.junit.jupiter", "junit-jupiter-api"): "5.13.4",
    ("org.bouncycastle", "bcpkix-jdk18on"): "1.80",
}
"""What the test cluster of YARN uses, and the jar of the test clusters does not have."""

_YARN: Final = {
    "yarn.resourcemanager.scheduler.class": (
        "org.apache.hadoop.yarn.server.resourcemanager.scheduler.fifo.FifoScheduler"
    ),
    "yarn.scheduler.minimum-allocation-mb": "128",
    "yarn.nodemanager.resource.memory-mb": "4096",
    "yarn.nodemanager.disk-health-checker.enable": "false",
    "yarn.nodemanager.pmem-check-enabled": "false",
    "yarn.nodemanager.vmem-check-enabled": "false",
}
_QUICK: Final = ("-XX:TieredStopAtLevel=1", "-XX:+UseSerialGC", "-Xshare:auto")


def _hadoop_version() -> str:
    (client,) = pyspark_jars().glob("hadoop-client-api-*.jar")
    return client.stem.removeprefix("hadoop-client-api-")


def hadoop_jars() -> list[Path]:
    """Return the class path of Hadoop in the release that PySpark has, with its test clusters.

    Raises:
        PeerUnavailable: they are not here and cannot be fetched.
    """
    version = _hadoop_version()
    return jars_of(default_directory().with_name(f"hadoop-jars-{version}"), MINICLUSTER, version)


def s3a_jars() -> list[Path]:
    """Return what Spark needs besides its own jars for ``s3a:``.

    Hadoop asks for a bundle of all of Amazon's services, of 686 MB. These are the few modules of
    the same release that it uses.

    Raises:
        PeerUnavailable: they are not here and cannot be fetched.
    """
    version = _hadoop_version()
    cache = default_directory()
    found = jars_of(cache.with_name(f"aws-jars-{_AWS}"), _AWS_MODULES, _AWS)
    # Spark has the others, newer.
    found = [path for path in found if path.name.startswith(("software.", "org.reactivestreams"))]
    for module, release in (("hadoop-aws", version), ("analyticsaccelerator-s3", _ACCELERATOR)):
        group = "org.apache.hadoop" if module == "hadoop-aws" else _ACCELERATOR_GROUP
        place = cache.with_name(f"{module}-{release}")
        found += jars_of(place, ((group, module),), release, alone=True)
    return found


@contextmanager
def hdfs(directory: Path) -> Iterator[str]:
    """Run a name node and a data node; give the file system's URI."""
    details = directory / "details.json"
    command = [
        *(str(find_java().executable), *_QUICK, f"-Djava.io.tmpdir={directory}"),
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


@contextmanager
def yarn(directory: Path) -> Iterator[None]:
    """Run a resource manager and a node manager; write the client's ``yarn-site.xml``."""
    cache, spark = default_directory(), pyspark_jars()
    more = [
        jar
        for module, version in _OF_YARN.items()
        for jar in jars_of(cache.with_name(f"{module[1]}-{version}"), (module,), version)
    ]
    (py4j,) = spark.glob("py4j-*.jar")
    with (directory / "yarn.log").open("w") as log:
        gateway = JavaGateway.launch_gateway(
            jarpath=str(py4j),
            classpath=":".join(map(str, [*hadoop_jars(), *more, *spark.glob("log4j-*.jar")])),
            javaopts=[*_QUICK, f"-Djava.io.tmpdir={directory}"],
            java_path=str(find_java().executable),
            redirect_stdout=log,
            redirect_stderr=log,
            die_on_exit=True,
            enable_auth=True,
            cwd=str(directory),
        )
    try:
        hadoop = gateway.jvm.org.apache.hadoop
        settings = hadoop.yarn.conf.YarnConfiguration()
        for key, value in _YARN.items():
            settings.set(key, value)
        cluster = hadoop.yarn.server.MiniYARNCluster("yarn", 1, 1, 1)
        cluster.init(settings)
        cluster.start()
        assert cluster.waitForNodeManagersToConnect(60_000)
        site = gateway.jvm.java.io.FileOutputStream(str(directory / "yarn-site.xml"))
        cluster.getConfig().writeXml(site)
        site.close()
        yield
    finally:
        gateway.shutdown()
        gateway.java_process.kill()
        gateway.java_process.stdin.close()
        gateway.java_process.wait()  # A thread of py4j reads its output, and closes it.
