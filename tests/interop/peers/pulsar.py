"""A real Pulsar broker over bookies of ours: its jars, its process, its admin port."""

from __future__ import annotations

import http.client
import json
import os
from collections.abc import Sequence
from pathlib import Path
from typing import Any, Final

from bkctl.commands.local.child_process import ChildProcess
from bkctl.commands.local.java import Java, find_java
from bkctl.commands.local.ports import free_port
from tests.interop.peers.jars import default_directory, jars_of
from tests.interop.peers.peers import PeerFailed
from tests.support.waiting import NotInTimeError, until

VERSION: Final = os.environ.get("BKCTL_TEST_PULSAR", "4.0.7")
CLUSTER: Final = "test"
_MODULE: Final = ("org.apache.pulsar", "pulsar-broker")

_OPENED: Final = tuple(
    f"--add-opens=java.base/{package}=ALL-UNNAMED"
    for package in (
        "java.nio",
        "jdk.internal.misc",
        "java.io",
        "java.util.zip",
        "java.net",
        "sun.net",
    )
)
_JVM: Final = ("-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1", "-Xmx512m",
               "-XX:MaxDirectMemorySize=512m", "-Dpulsar.allocator.pooled=false")  # fmt: skip

_LOG4J: Final = """<Configuration status="error"><Appenders><Console name="C" target="SYSTEM_ERR">
<PatternLayout pattern="%d{ISO8601} %-5p [%t] %c{1} - %m%n"/></Console></Appenders>
<Loggers><Root level="WARN"><AppenderRef ref="C"/></Root></Loggers></Configuration>
"""


def pulsar_jars() -> list[Path]:
    """Return the class path of the broker, fetching it at the first call (some minutes).

    Raises:
        PeerUnavailable: the jars are not here and cannot be fetched.
    """
    directory = default_directory().with_name(f"pulsar-jars-{VERSION}")
    return jars_of(directory, (_MODULE,), VERSION)


class PulsarBroker:
    """A broker in a process of its own. ``chroot`` is where it keeps its nodes and the ledgers.

    ``conf`` takes the names of ``broker.conf``. Everything is in ``directory``.
    """

    def __init__(
        self,
        zookeeper: str,
        chroot: str,
        directory: Path,
        *,
        java: Java | None = None,
        **conf: object,
    ) -> None:
        self.metadata_store = f"zk:{zookeeper}{chroot}"
        self.directory, self._java = directory, java or find_java()
        self.port, self.http_port = free_port(), free_port()
        self.conf = conf
        self._process: ChildProcess | None = None
        self._log = directory / "broker.log"

    @property
    def service_url(self) -> str:
        return f"pulsar://127.0.0.1:{self.port}"

    def initialise(self) -> None:
        """Make the cluster's nodes, those of the ledgers among them."""
        log = self.directory / "initialise.log"
        process = ChildProcess(
            self._command([
                "org.apache.pulsar.PulsarClusterMetadataSetup",
                *("--cluster", CLUSTER),
                *("--metadata-store", self.metadata_store),
                *("--configuration-metadata-store", self.metadata_store),
                *("--web-service-url", f"http://127.0.0.1:{self.http_port}"),
                *("--broker-service-url", self.service_url),
            ]),
            log,
            cwd=self.directory,
        )  # fmt: skip
        self._wait(lambda: process.returncode is not None, 120, log)
        if process.returncode:
            raise PeerFailed(f"initialising ended with {process.returncode}:\n{_tail(log)}")

    def start(self, timeout_s: float = 120.0) -> None:
        """Start the broker; return when it serves."""
        self.launch()
        self.wait(timeout_s)

    def launch(self) -> None:
        """Start the broker; return at once."""
        conf: dict[str, object] = {
            "clusterName": CLUSTER,
            "metadataStoreUrl": self.metadata_store,
            "configurationMetadataStoreUrl": self.metadata_store,
            "advertisedAddress": "127.0.0.1",
            "bindAddress": "127.0.0.1",
            "brokerServicePort": self.port,
            "webServicePort": self.http_port,
            "managedLedgerDefaultEnsembleSize": 1,
            "managedLedgerDefaultWriteQuorum": 1,
            "managedLedgerDefaultAckQuorum": 1,
            "managedLedgerMinLedgerRolloverTimeMinutes": 0,
            "loadBalancerEnabled": "false",
            "functionsWorkerEnabled": "false",
            "numIOThreads": 2,
            "numHttpServerThreads": 8,
            "managedLedgerCacheSizeMB": 32,
            "brokerShutdownTimeoutMs": 1000,
            "topicLevelPoliciesEnabled": "false",
            "systemTopicEnabled": "true",
            **self.conf,
        }
        path = self.directory / "broker.conf"
        path.write_text("".join(f"{key}={value}\n" for key, value in conf.items()))
        command = self._command(["org.apache.pulsar.PulsarBrokerStarter", "-c", str(path)])
        self._process = ChildProcess(command, self._log, cwd=self.directory)

    def wait(self, timeout_s: float) -> None:
        """Wait until the broker serves."""
        self._wait(self._serves, timeout_s, self._log)

    def kill(self) -> None:
        """End the broker with SIGKILL; return when it has ended."""
        assert self._process is not None
        self._process.kill()

    def stop(self) -> None:
        if self._process is not None:
            self._process.stop(10)
            self._process = None

    def admin(self, method: str, path: str, body: Any = None) -> Any:
        """Ask the admin API (``/admin/v2`` + ``path``); return its JSON or None."""
        connection = http.client.HTTPConnection("127.0.0.1", self.http_port, timeout=60)
        try:
            data = None if body is None else json.dumps(body)
            connection.request(
                method, f"/admin/v2{path}", data, {"Content-Type": "application/json"}
            )
            answer = connection.getresponse()
            text = answer.read()
        finally:
            connection.close()
        if answer.status >= 300:
            raise PeerFailed(f"{method} {path}: {answer.status} {text[:300]!r}")
        return json.loads(text) if text else None

    def _serves(self) -> bool:
        assert self._process is not None
        if self._process.returncode is not None:
            raise PeerFailed(f"the broker ended:\n{_tail(self._log)}")
        try:
            self.admin("GET", "/brokers/health")
        except json.JSONDecodeError:
            return True  # It says "ok", which is not JSON.
        except (OSError, http.client.HTTPException, PeerFailed):
            return False
        return True

    def _wait(self, condition: Any, timeout_s: float, log: Path) -> None:
        try:
            until(condition, timeout_s=timeout_s)
        except NotInTimeError as error:
            raise PeerFailed(f"not within {timeout_s:g} s:\n{_tail(log)}") from error

    def _command(self, main: Sequence[str]) -> list[str]:
        log4j = self.directory / "log4j2.xml"
        log4j.write_text(_LOG4J)
        path = ":".join(map(str, pulsar_jars()))
        options = [*_JVM, *_OPENED, f"-Dlog4j2.configurationFile={log4j}"]
        options.append(f"-Djava.io.tmpdir={self.directory}")
        return [str(self._java.executable), *options, "-cp", path, *main]


def _tail(log: Path) -> str:
    return "\n".join(log.read_text(errors="replace").splitlines()[-30:])
