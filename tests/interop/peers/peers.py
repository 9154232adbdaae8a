"""Real peers for tests: the Java bookie, the Java tools, and a stage that cleans up after them.

The Java client is in ``java_client``, its JVM in ``jvm``; both are offered here too.
"""

from __future__ import annotations

import secrets
import socket
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final
from urllib.parse import urlsplit

from kazoo.client import KazooClient
from kazoo.exceptions import NoNodeError

from bkctl.commands.local.child_process import ChildProcess, ServerProcess
from bkctl.commands.local.java import Java
from bkctl.commands.local.ports import bookie_ports, port_is_free
from bkctl.commands.local.zookeeper import ZooKeeperProcess
from tests.interop.peers.jars import PeerUnavailable, bookkeeper_jars
from tests.interop.peers.java_client import (
    PATIENT,
    JavaClient,
    JavaEntry,
    JavaFuture,
    JavaLedger,
    JavaLedgerMetadata,
    LoadResult,
    java_load,
)
from tests.interop.peers.java_shell import java_shell_process
from tests.interop.peers.jvm import FAST_JVM, LOG_LEVEL_PROPERTY, JavaError, JavaVM, java_command
from tests.support.waiting import START_S, NotInTimeError, until
from wire.frames import v2
from wire.ids import EntryId, LedgerId
from wire.messages import ReadRequest

if TYPE_CHECKING:
    from typing_extensions import Self

SHIPPED_JVM: Final = (
    "-Xms1g",
    "-Xmx1g",
    "-XX:MaxDirectMemorySize=2g",
    "-XX:+UseG1GC",
    "-XX:MaxGCPauseMillis=10",
    "-XX:+ParallelRefProcEnabled",
    "-XX:+DisableExplicitGC",
)
"""What the release's start script gives a bookie where conf/bkenv.sh is left as shipped."""

_PORTS_GIVEN: Final[list[int]] = []
"""None is given twice: a bookie that has ended leaves its cookie, which has the port in its id."""

FAST_CONF: Final = {
    **PATIENT,
    "journalPreAllocSizeMB": 4,
    "diskUsageThreshold": 0.99,
    "diskUsageWarnThreshold": 0.98,
    "minUsableSizeForIndexFileCreation": 1 << 20,
}
"""Small files, and no mistaking a slow machine for a loss; a run that measures leaves them out."""

_ASKED_FIRST: Final = v2.encode_request(ReadRequest(LedgerId(2**62), EntryId(0)))


class PeerFailed(AssertionError):  # noqa: N818  the test fails by it
    """A peer that should run did not start, ended, or could not be talked to."""


class JavaBookie(ServerProcess):
    """A bookie of the Java release in a process of its own.

    ``conf`` takes the Java names and wins over what is set here. ``port`` 0 picks a free one at
    the first start and keeps it. Everything lies in ``directory``: ``bk_server.conf``,
    ``bookie.log``, ``journal``, ``ledgers``. Use ``shipped`` to measure. ``zk_login`` is what kazoo
    needs to see its registration, where not everybody may.
    """

    def __init__(
        self,
        uri: str,
        directory: Path,
        port: int = 0,
        *,
        heap_mb: int = 512,
        jvm_options: Sequence[str] | None = None,
        defaults: Mapping[str, object] = FAST_CONF,
        java: Java | None = None,
        zk_login: Mapping[str, Any] | None = None,
        **conf: object,
    ) -> None:
        super().__init__()
        self.uri, self.directory, self.port = uri, directory, port
        self._zk_login = zk_login or {}
        small = (*FAST_JVM, f"-Xmx{heap_mb}m", "-XX:MaxDirectMemorySize=256m")
        self._jvm_options = small if jvm_options is None else tuple(jvm_options)
        self._conf, self._java = {**defaults, **conf}, java

    @classmethod
    def shipped(cls, uri: str, directory: Path, port: int = 0, **conf: Any) -> JavaBookie:
        """Return one with the release's defaults: JVM options of bkenv.sh, SortedLedgerStorage.

        One thing differs from the shipped ``bk_server.conf``, in Java's favour: no statistics are
        kept, where that file names the Prometheus provider.
        """
        return cls(uri, directory, port, jvm_options=SHIPPED_JVM, defaults={}, **conf)

    @property
    def bookie_id(self) -> str:
        return str(self._conf.get("bookieId", f"127.0.0.1:{self.port}"))

    @property
    def conf_path(self) -> Path:
        """Its ``bk_server.conf``, for ``java_shell`` and for our own offline tools."""
        return self.directory / "bk_server.conf"

    @property
    def journal_directory(self) -> Path:
        return self.directory / "journal"

    @property
    def ledger_directory(self) -> Path:
        return self.directory / "ledgers"

    @property
    def log(self) -> Path:
        return self.directory / "bookie.log"

    def start(self, timeout_s: float = 120.0) -> Self:
        """Start it and return once it has registered.

        Raises:
            PeerUnavailable: Java or its jars are missing.
            PeerFailed: it ended or did not register in time.
        """
        self.spawn()
        return self.wait_ready(timeout_s)

    def spawn(self) -> None:
        """Start the process and return at once; several start side by side this way."""
        assert not self.running, "started twice"
        if self.port == 0:
            (self.port,) = bookie_ports(1, 0, _PORTS_GIVEN)
            _PORTS_GIVEN.append(self.port)
        elif not port_is_free("127.0.0.1", self.port):
            raise PeerFailed(f"port {self.port} is in use")
        for directory in (self.directory, self.journal_directory, self.ledger_directory):
            directory.mkdir(parents=True, exist_ok=True)
        write_conf(self.conf_path, self._settings())
        self.forget()
        self._process = ChildProcess(self._command(), self.log, cwd=self.directory)

    def _command(self) -> list[str]:
        main = ["org.apache.bookkeeper.server.Main", "--conf", str(self.conf_path)]
        options = [*self._jvm_options, f"-D{LOG_LEVEL_PROPERTY}=INFO"]
        return java_command(self.directory, options, main, java=self._java)

    def wait_ready(self, timeout_s: float = 120.0) -> Self:
        """Return once it has registered, writable or read-only, and answers requests.

        Java's registers first, and for a moment resets connections that come then.

        Raises:
            PeerFailed: it ended or did not register in time.
        """
        assert self._process is not None, "not started"

        def goes_on() -> None:
            if self.returncode is not None:
                raise PeerFailed(self._failure(f"ended with {self.returncode}"))

        try:
            with zookeeper_client(self.uri, **self._zk_login) as zk:
                until(
                    lambda: self._registrations(zk),
                    f"not registered after {timeout_s:.0f} s",
                    timeout_s=timeout_s,
                    check=goes_on,
                )
            until(
                lambda: not self.running or self._answers(timeout_s),
                f"answers nobody after {timeout_s:.0f} s",
                timeout_s=timeout_s,
            )
        except NotInTimeError as error:
            raise PeerFailed(self._failure(str(error))) from error
        return self

    def _answers(self, timeout_s: float) -> bool:
        """Ask for an entry that nobody has; whoever may not ask is answered, too."""
        address = ("127.0.0.1", self.port)
        try:
            with socket.create_connection(address, timeout=max(1.0, timeout_s)) as made:
                made.sendall(_ASKED_FIRST)
                return made.recv(1) != b""
        except OSError:
            return False

    def forget(self) -> None:
        """Remove the registration that a killed one leaves: its session ends so much later."""
        assert not self.running, "it still runs"
        with zookeeper_client(self.uri, **self._zk_login) as zk:
            for path in self._registrations(zk):
                with suppress(NoNodeError):
                    zk.delete(path)

    def stop(self, timeout_s: float = 60.0) -> int | None:
        return super().stop(timeout_s)

    def wait(self, timeout_s: float) -> int:
        """Wait for it to end by itself; return its exit status."""
        assert self._process is not None, "not started"
        return self._process.wait(timeout_s)

    def restart(self, *, kill: bool = False, timeout_s: float = 120.0) -> Self:
        """End it, if it still runs, and start it on the same directories and port."""
        if kill:
            self.kill()
        else:
            self.stop()
        return self.start(timeout_s)

    def __enter__(self) -> Self:
        return self.start()

    def _settings(self) -> dict[str, object]:
        return {
            "metadataServiceUri": self.uri,
            "bookiePort": self.port,
            "advertisedAddress": "127.0.0.1",
            "allowLoopback": "true",
            "journalDirectories": self.journal_directory,
            "ledgerDirectories": self.ledger_directory,
            "httpServerEnabled": "false",
            **self._conf,
        }

    def _registrations(self, zk: KazooClient) -> list[str]:
        """Return the nodes that say it is there: writable, read-only, for a moment both."""
        available = f"{ledgers_root(self.uri)}/available"
        paths = [f"{path}/{self.bookie_id}" for path in (available, f"{available}/readonly")]
        return [path for path in paths if zk.exists(path)]

    def _failure(self, what: str) -> str:
        assert self._process is not None
        tail = self._process.log_tail(25)
        return f"{type(self).__name__} {self.bookie_id} {what}; {self.log}:\n{tail}"


def init_cluster(uri: str, directory: Path) -> None:
    """Initialise a cluster with Java's own ``initnewcluster``; the root's parent must exist.

    Raises:
        PeerFailed: the tool refused.
    """
    directory.mkdir(parents=True, exist_ok=True)
    done = java_shell_process(write_client_conf(directory, uri), "initnewcluster")
    if done.returncode != 0:
        raise PeerFailed(f"initnewcluster ended with {done.returncode}:\n{done.stderr}")


def write_client_conf(directory: Path, uri: str, **conf: object) -> Path:
    """Write the configuration file ``java_shell`` needs where there is no Java bookie."""
    path = directory / "client.conf"
    write_conf(path, {"metadataServiceUri": uri, "allowLoopback": "true", **conf})
    return path


def write_conf(path: Path, settings: Mapping[str, object]) -> None:
    """Write settings as a Java properties file."""
    lines = (f"{key}={value}\n" for key, value in settings.items())
    path.write_text("".join(lines), encoding="utf-8")


def ledgers_root(uri: str) -> str:
    """Return the path of the ledgers root in a ZooKeeper metadata URI."""
    return urlsplit(uri).path


@contextmanager
def zookeeper_client(uri: str, **login: Any) -> Iterator[KazooClient]:
    """Give a kazoo session on the ZooKeeper of a metadata URI, to look or to break things."""
    hosts, session_s = urlsplit(uri).netloc.replace(";", ","), PATIENT["zkTimeout"] / 1000
    client = KazooClient(hosts, timeout=session_s, **login)
    client.start(timeout=START_S)
    try:
        yield client
    finally:
        client.stop()
        client.close()


class Peers:
    """What a test has started; ``close`` ends all of it, the latest first.

    Clusters are apart from each other by their ledgers roots in the one shared ZooKeeper.
    """

    def __init__(self, zookeeper: ZooKeeperProcess, vm: JavaVM, directory: Path) -> None:
        self.zookeeper, self.vm, self.directory = zookeeper, vm, directory
        self._stack = ExitStack()

    def metadata_uri(self, *, layout: str = "hierarchical", initialised: bool = True) -> str:
        """Return the URI of a fresh ledgers root, which Java has initialised.

        ``layout`` is hierarchical, longhierarchical or flat. With ``initialised`` False only the
        root's parent exists, and no JVM is needed.
        """
        parent = f"/t{secrets.token_hex(4)}"
        uri = f"zk+{layout}://{self.zookeeper.address}{parent}/ledgers"
        with zookeeper_client(uri) as zk:
            zk.create(parent)
        if initialised:
            vm = self.vm.start()
            configuration = vm.bookkeeper.conf.ServerConfiguration()
            configuration.setMetadataServiceUri(uri)
            assert vm.call(vm.bookkeeper.client.BookKeeperAdmin.initNewCluster, configuration)
        return uri

    def java_bookies(self, count: int, uri: str, **options: Any) -> list[JavaBookie]:
        """Start Java bookies side by side; ``options`` as of ``JavaBookie``."""
        bookies = [self.java_bookie(uri, start=False, **options) for _ in range(count)]
        for bookie in bookies:
            bookie.spawn()
        return [bookie.wait_ready() for bookie in bookies]

    def java_bookie(self, uri: str, *, start: bool = True, **options: Any) -> JavaBookie:
        """Make a Java bookie in a directory of its own, and start it."""
        bookie = JavaBookie(uri, self.new_directory("java-bookie"), **options)
        self.on_close(bookie.kill)
        return bookie.start() if start else bookie

    def java_client(self, uri: str, *, v2: bool = False, **conf: object) -> JavaClient:
        """Open a Java client in the shared JVM."""
        client = JavaClient(self.vm.start(), uri, v2=v2, **conf)
        self.on_close(client.close)
        return client

    def java_vm(self, **options: Any) -> JavaVM:
        """Start a JVM of its own, whose clients can be killed with it; for load runs as well."""
        vm = JavaVM(self.new_directory("java-vm"), **options)
        self.on_close(vm.kill)
        return vm.start()

    def new_directory(self, name: str) -> Path:
        """Make an empty directory for one of the test's parts."""
        directory = self.directory / f"{name}-{secrets.token_hex(3)}"
        directory.mkdir(parents=True)
        return directory

    def on_close(self, callback: Callable[[], object]) -> None:
        """Have ``callback`` called at the end, whatever happens: for processes of our own."""
        self._stack.callback(callback)

    def close(self) -> None:
        """End everything started here."""
        self._stack.close()


__all__ = [
    "FAST_CONF",
    "FAST_JVM",
    "SHIPPED_JVM",
    "JavaBookie",
    "JavaClient",
    "JavaEntry",
    "JavaError",
    "JavaFuture",
    "JavaLedger",
    "JavaLedgerMetadata",
    "JavaVM",
    "LoadResult",
    "PeerFailed",
    "PeerUnavailable",
    "Peers",
    "bookkeeper_jars",
    "init_cluster",
    "java_load",
    "ledgers_root",
    "write_client_conf",
    "write_conf",
    "zookeeper_client",
]
