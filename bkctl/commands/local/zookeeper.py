"""A ZooKeeper server in a child process, and `bkctl local zookeeper`, which runs only ZooKeeper."""

from __future__ import annotations

import os
import shutil
import socket
import tempfile
import time
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, ClassVar, Final

from bkctl.commands.local.child_process import ChildProcess, ServerProcess
from bkctl.commands.local.columns import LocalZooKeeper
from bkctl.commands.local.java import Java, find_java, pyspark_jars
from bkctl.commands.local.ports import HOST, free_port, port_is_free
from bkctl.errors import CommandError, Interrupted, NothingFoundError, UsageError
from bkctl.exit_status import ExitStatus
from wire.errors import BookKeeperError

if TYPE_CHECKING:
    from typing_extensions import Self

    from bkctl.session.session import Session

_ZOOKEEPER_MAIN: Final = "org.apache.zookeeper.server.ZooKeeperServerMain"
_ZOOKEEPER_JARS: Final = (
    "commons-cli", "commons-io", "log4j-", "metrics-core", "netty-", "slf4j-api", "snappy-java",
    "zookeeper-",
)  # fmt: skip
_POLL_S: Final = 0.05


class ZooKeeperEndedError(CommandError):
    """The ZooKeeper of a local cluster has ended by itself."""

    exit_status = ExitStatus.UNREACHABLE


class ZooKeeperStartError(BookKeeperError):
    """The ZooKeeper server could not be started; its log has the reason."""

    exit_status: ClassVar[int] = 5


class ZooKeeperProcess(ServerProcess):
    """A ZooKeeper server in a child process, started from PySpark's jars.

    It listens on ``host`` only and has no admin port. ``port`` 0 chooses a free port at the first
    start and keeps it, so that a later start finds the same sessions and data. ``fsync`` False
    makes the server's log faster but not durable, for tests. The server writes ``zookeeper.conf``,
    ``zookeeper.log`` and ``data`` to ``directory``.
    """

    def __init__(
        self,
        directory: Path,
        port: int = 0,
        *,
        host: str = "127.0.0.1",
        tick_ms: int = 2000,
        heap_mb: int = 128,
        fsync: bool = True,
        java: Java | None = None,
    ) -> None:
        super().__init__()
        self.directory, self.host, self.port = directory, host, port
        self._tick_ms, self._heap_mb, self._fsync = tick_ms, heap_mb, fsync
        self._java = java
        self._picks_port = port == 0

    @property
    def address(self) -> str:
        """``host:port``, the form of a metadata URI and of kazoo."""
        return f"{self.host}:{self.port}"

    @property
    def log(self) -> Path:
        return self.directory / "zookeeper.log"

    def start(self, timeout_s: float = 30.0) -> None:
        """Start the server, and return when it serves.

        Raises:
            ZooKeeperStartError: the server ended, or did not serve in time.
            JavaNotFoundError, SparkNotFoundError: a required part is not installed.
        """
        deadline_s = time.monotonic() + timeout_s
        while True:
            self.spawn()
            try:
                self.wait_ready(deadline_s - time.monotonic())
            except ZooKeeperStartError:
                self.stop()
                # Another process can take the free port before the server binds it.
                if not self._picks_port or port_is_free(self.host, self.port):
                    raise
                self.port = 0
            except BaseException:
                self.stop()
                raise
            else:
                self._picks_port = False
                return

    def spawn(self) -> None:
        """Start the process and return immediately; ``wait_ready`` waits until it serves.

        Raises:
            ZooKeeperStartError: the port is in use.
        """
        assert not self.running, "started twice"
        java, jars = self._java or find_java(), pyspark_jars()
        if self.port == 0:
            self.port = free_port(self.host)
        elif not port_is_free(self.host, self.port):
            raise ZooKeeperStartError(f"{self.address} is in use; choose another port")
        (self.directory / "data").mkdir(parents=True, exist_ok=True)
        (self.directory / "zookeeper.conf").write_text(self._configuration(), encoding="utf-8")
        self._process = ChildProcess(self._command(java, jars), self.log, cwd=self.directory)

    def wait_ready(self, timeout_s: float = 30.0) -> None:
        """Return when the server serves; callable from any thread.

        Raises:
            ZooKeeperStartError: the server ended, or did not serve in time.
        """
        assert self._process is not None, "not started"
        deadline_s = time.monotonic() + timeout_s
        while not self._serves():
            if not self.running:
                raise ZooKeeperStartError(self._failure(f"ended with {self._process.returncode}"))
            if time.monotonic() > deadline_s:
                raise ZooKeeperStartError(self._failure(f"does not serve after {timeout_s:.0f} s"))
            time.sleep(_POLL_S)

    def __enter__(self) -> Self:
        self.start()
        return self

    def _command(self, java: Java, jars: Path) -> list[str]:
        wanted = sorted(jar for jar in jars.glob("*.jar") if jar.name.startswith(_ZOOKEEPER_JARS))
        return [
            str(java.executable),
            f"-Xmx{self._heap_mb}m",
            # The server does little and must start fast: the simple collector and compiler are
            # enough.
            "-XX:+UseSerialGC",
            "-XX:TieredStopAtLevel=1",
            "-Dzookeeper.preAllocSize=1024",
            "-Dzookeeper.jmx.log4j.disable=true",
            "-Dorg.apache.logging.log4j.level=WARN",
            f"-Dzookeeper.forceSync={'yes' if self._fsync else 'no'}",
            "-cp",
            os.pathsep.join(map(str, wanted)),
            _ZOOKEEPER_MAIN,
            str(self.directory / "zookeeper.conf"),
        ]

    def _configuration(self) -> str:
        settings = {
            "dataDir": self.directory / "data",
            "clientPort": self.port,
            "clientPortAddress": self.host,
            "tickTime": self._tick_ms,
            "maxClientCnxns": 0,
            "admin.enableServer": "false",
            "4lw.commands.whitelist": "ruok,srvr,mntr,dump",
        }
        return "".join(f"{key}={value}\n" for key, value in settings.items())

    def _serves(self) -> bool:
        """Return whether the server answers that it serves; earlier it answers that it does not."""
        address = (self.host, self.port)
        with suppress(OSError), socket.create_connection(address, timeout=2.0) as connection:
            connection.sendall(b"srvr")
            answer = b"".join(iter(lambda: connection.recv(4096), b""))
            return b"Mode:" in answer and self.running
        return False

    def _failure(self, what: str) -> str:
        assert self._process is not None
        return f"ZooKeeper {what}; {self._process.log}:\n{self._process.log_tail()}"


PORT_DEFAULT: Final = 2181
PORT_MAX: Final = 65535
CONF_VARIABLE: Final = "BOOKIE_ZK_CONF"
_POLL_EVERY_S: Final = 0.5


def run(session: Session, directory: str | None, port: int | None, *, keep: bool) -> None:
    """Start a server, print its address, and watch it until it is stopped.

    ``BOOKIE_ZK_CONF`` may name a zookeeper.conf, as for Java's launcher. Its port and its directory
    are the defaults of the options.

    Raises:
        ZooKeeperStartError: the server did not start.
        ZooKeeperEndedError: the server has ended by itself.
    """
    conf = settings(session.host.environ)
    chosen = port or int(conf.get("clientPort", PORT_DEFAULT))
    home = directory or conf.get("dataDir")
    if session.plans_only(
        [f"start ZooKeeper at {HOST}:{chosen} in {home or 'a temporary directory'}"]
    ):
        return
    place = Path(home or tempfile.mkdtemp(prefix="bkctl-zookeeper-")).absolute()
    place.mkdir(parents=True, exist_ok=True)
    server = ZooKeeperProcess(place, chosen)
    try:
        with server:
            _watch(session, server)
    finally:
        if home is None and not keep:
            shutil.rmtree(place, ignore_errors=True)
        else:
            session.note(f"kept in {place}")


def settings(environ: Mapping[str, str]) -> dict[str, str]:
    """Return the settings in the file of ``BOOKIE_ZK_CONF``; empty if the variable is not set.

    Raises:
        NothingFoundError: the file cannot be read.
        UsageError: its port is not a number.
    """
    path = environ.get(CONF_VARIABLE)
    if not path:
        return {}
    try:
        lines = Path(path).read_text(encoding="utf-8").splitlines()
    except OSError as error:
        raise NothingFoundError(f"{CONF_VARIABLE} {path}: {error.strerror}") from error
    pairs = (line.partition("=") for line in lines if not line.lstrip().startswith("#"))
    found = {key.strip(): text.strip() for key, equals, text in pairs if equals}
    port = found.get("clientPort", str(PORT_DEFAULT))
    if not port.isdigit() or not 1 <= int(port) <= PORT_MAX:
        raise UsageError(
            f"clientPort is {port!r} in {path}, ZooKeeper's settings file by {CONF_VARIABLE}; "
            f"a port is a number from 1 to {PORT_MAX}"
        )
    return found


def _watch(session: Session, server: ZooKeeperProcess) -> None:
    try:
        session.emit(
            LocalZooKeeper(
                server.address,
                f"zk+hierarchical://{server.address}/ledgers",
                str(server.directory),
                server.pid,
            )
        )
        session.finish()
        session.host.stdout.flush()
        session.note("Ctrl-C stops it")
        while server.running:
            time.sleep(_POLL_EVERY_S)
    except Interrupted as reason:
        session.note("stopping")
        if reason.exit_status == ExitStatus.TIME_LIMIT:
            raise
        return
    raise ZooKeeperEndedError(
        f"ZooKeeper ended with {server.returncode}", next_step=f"its log is {server.log}"
    )
