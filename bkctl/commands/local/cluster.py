"""A cluster on this machine: N bookies as child processes, and their metadata.

Everything lies in one directory:

    cluster.json    what it is made of: ports, metadata URI and settings, so that it can be started
                    again
    bkctl.env       for a shell: `. DIR/bkctl.env` tells bkctl where the cluster is
    config.toml     the profile `local`, with the address of the cluster and the admin token's file
    admin-token     what the bookies want to see before they change something on request over HTTP
    bookied.lock    held by the process that runs the cluster
    metadata.db     the embedded metadata, or zookeeper/ with --zookeeper
    bookie-N/       bookie.conf, bookie.log, journal/ and ledgers/ of one bookie

Nothing is ever deleted that was not made here.
"""

from __future__ import annotations

import contextlib
import json
import os
import secrets
import shlex
import shutil
import signal
import socket
import stat
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, Final

import attrs

from bkclient.config.settings import value_text
from bkctl.commands.local.columns import LocalBookie
from bkctl.commands.local.process import ChildProcess, free_port, port_is_free
from bkctl.errors import CommandError, ConflictError, RefusedError
from bkctl.exit_status import ExitStatus
from bkctl.output.units import counted
from bookied.directories.lock import LOCK, DirectoryLocks, is_locked
from bookied.errors import DirectoryInUseError

if TYPE_CHECKING:
    from typing_extensions import Self

    from bkctl.commands.local.java import ZooKeeperProcess

HOST: Final = "127.0.0.1"
STATE_FILE: Final = "cluster.json"
ENV_FILE: Final = "bkctl.env"
CONF_FILE: Final = "bookie.conf"
BACKGROUND_LOG: Final = "local.log"
PROFILE_FILE: Final = "config.toml"
TOKEN_FILE: Final = "admin-token"  # noqa: S105 -- its name
PROFILE: Final = "local"
START_S_MAX: Final = 60.0
STOP_S_MAX: Final = 15.0
_POLL_S: Final = 0.05
_REASON: Final = "bookied: "
"""How the line begins with which bookied says why it ends."""

BOOKIE_SETTINGS: Final[Mapping[str, str]] = {
    "allowLoopback": "true",
    # A machine people try things on is often rather full.
    "diskUsageThreshold": "0.99",
    "diskUsageWarnThreshold": "0.98",
    "logSizeLimit": str(256 * 1024 * 1024),
    "minUsableSizeForEntryLogCreation": str(64 * 1024 * 1024),
    "minUsableSizeForHighPriorityWrites": str(64 * 1024 * 1024),
    "httpServerPort": "0",  # A free one: several bookies share the machine.
}
"""What differs from a bookie's defaults on one machine."""


class LocalStartError(CommandError):
    """A part of the local cluster did not start."""

    exit_status = ExitStatus.UNREACHABLE


class ZooKeeperEndedError(CommandError):
    """The ZooKeeper of a local cluster has ended by itself."""

    exit_status = ExitStatus.UNREACHABLE


@attrs.define
class _Bookie:
    number: int
    port: int
    directory: Path
    process: ChildProcess | None = None
    stopping: bool = False

    @property
    def bookie_id(self) -> str:
        return f"{HOST}:{self.port}"

    @property
    def log(self) -> Path:
        return self.directory / "bookie.log"


def bookie_directory(directory: Path, number: int) -> Path:
    """Return where a bookie of the cluster in ``directory`` lives; 1 is the first."""
    return directory / f"bookie-{number}"


class LocalCluster:
    """N bookies on this machine. For the main thread: it blocks, and its end ends the children."""

    def __init__(
        self,
        directory: Path | None,
        bookies: int,
        *,
        zookeeper: bool = False,
        uri: str = "",
        port_base: int = 0,
        settings: Mapping[str, str] | None = None,
        defaults: Mapping[str, str] = MappingProxyType({}),
    ) -> None:
        """Without ``directory`` a temporary one is made; ``settings`` go into each bookie's file.

        Settings of earlier starts apply as well, unless ``settings`` changes them. ``defaults``
        apply where neither sets a key.

        With ``zookeeper`` one is started; with ``uri`` the metadata is there already, and stays.

        Raises:
            RefusedError: the directory holds something else.
            ConflictError: it holds a cluster of another kind, or of more bookies.
        """
        self.is_temporary = directory is None
        if directory is None:
            directory = Path(tempfile.mkdtemp(prefix="bkctl-local-"))
        self.directory = directory.absolute()
        self._zookeeper: ZooKeeperProcess | None = None
        self._lock = DirectoryLocks()
        self._uri = uri
        refuse_others_directory(self.directory)
        known = self._known(bookies, zookeeper=zookeeper)
        self._proven: Mapping[str, str] = known.get("settings", {})
        """What the bookies were told at the last start, beyond what all are told."""
        self._given = {**self._proven, **(settings or {})}
        self._defaults = defaults
        self._zookeeper_port = known.get("zookeeper_port", 0)
        ports = list(known.get("ports", ()))
        self._with_zookeeper = zookeeper
        self._bookies = [
            _Bookie(n, port, bookie_directory(self.directory, n))
            for n, port in enumerate([*ports, *_ports(bookies - len(ports), port_base, ports)], 1)
        ]

    def _known(self, bookies: int, *, zookeeper: bool) -> dict[str, Any]:
        state = self.directory / STATE_FILE
        if not state.exists():
            refuse_foreign(self.directory)
            return {}
        known = json.loads(state.read_text(encoding="utf-8"))
        if bool(known.get("zookeeper_port")) != zookeeper:
            raise ConflictError(
                f"{self.directory} was made {'without' if zookeeper else 'with'} --zookeeper"
            )
        if self._uri != known.get("elsewhere", ""):
            made_for = known.get("elsewhere") or "metadata of its own"
            raise ConflictError(f"{self.directory} was made with {made_for}")
        if len(known["ports"]) > bookies:
            raise ConflictError(
                f"{self.directory} holds {counted(len(known['ports']), 'bookie')}, not {bookies}",
                next_step=f"bkctl local {len(known['ports'])} --dir {self.directory}",
            )
        return dict(known)

    @property
    def uri(self) -> str:
        """The metadata service URI."""
        if self._uri:
            return self._uri
        if self._with_zookeeper:
            return f"zk+hierarchical://{HOST}:{self._zookeeper_port}/ledgers"
        return f"sqlite://{self.directory / 'metadata.db'}"

    @property
    def env_file(self) -> Path:
        return self.directory / ENV_FILE

    @property
    def token_file(self) -> Path:
        return self.directory / TOKEN_FILE

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.stop()

    # Start and stop -----------------------------------------------------------------------------

    def start(
        self,
        registered: Callable[[], frozenset[str]],
        initialize: Callable[[], None],
        told: Callable[[str], None] = lambda _: None,
    ) -> None:
        """Start everything and return once every bookie is registered.

        ``initialize`` makes the cluster in the metadata where there is none, ``registered`` gives
        the bookies that are there by now, ``told`` hears what goes on.

        Raises:
            ConflictError: it runs already.
            LocalStartError: a part did not start; its last log lines are in the message.
        """
        self._refuse_running()
        self.directory.mkdir(mode=0o700, parents=True, exist_ok=True)
        self._take_lock()
        if self._with_zookeeper:
            told("starting ZooKeeper")
            self._start_zookeeper()
        self._save()
        initialize()
        self._await_gone(registered, self._bookies, told)
        told(f"starting {counted(len(self._bookies), 'bookie')}")
        for bookie in self._bookies:
            self._spawn(bookie)
        self._wait(registered, self._bookies)
        self._proven = self._given  # What stops a start is not kept for the next one.
        self._save()

    def _refuse_running(self) -> None:
        if any(is_locked(bookie.directory / "ledgers") for bookie in self._bookies):
            raise self._runs_already()

    def _take_lock(self) -> None:
        try:
            self._lock.take([self.directory])
        except DirectoryInUseError as error:
            raise self._runs_already() from error

    def _runs_already(self) -> ConflictError:
        return ConflictError(
            f"the cluster in {self.directory} runs already",
            next_step=f"to use it: . {shlex.quote(str(self.env_file))}; for another number of "
            f"bookies stop it first: bkctl local stop {shlex.quote(str(self.directory))}",
        )

    def _start_zookeeper(self) -> None:
        from bkctl.commands.local.java import ZooKeeperProcess

        directory = self.directory / "zookeeper"
        directory.mkdir(exist_ok=True)
        self._zookeeper = ZooKeeperProcess(directory, port=self._zookeeper_port)
        self._zookeeper.start()
        self._zookeeper_port = self._zookeeper.port

    def _save(self) -> None:
        state = {
            "uri": self.uri,
            "ports": [bookie.port for bookie in self._bookies],
            "zookeeper_port": self._zookeeper_port,
            "elsewhere": self._uri,
            "settings": self._proven,
        }
        _write_private(self.directory / STATE_FILE, json.dumps(state, indent=1) + "\n")
        if not self.token_file.exists():
            _write_private(self.token_file, secrets.token_urlsafe(24) + "\n")
        profile_file = self.directory / PROFILE_FILE
        _write_private(profile_file, self._profile_text())
        self.env_file.write_text(
            f"# The cluster in {self.directory}, for a shell: . {shlex.quote(str(self.env_file))}\n"
            f"export BKCTL_SERVICE_URI={shlex.quote(self.uri)}\n"
            f"export BKCTL_CONFIG={shlex.quote(str(profile_file))}\n"
            f"export BKCTL_PROFILE={PROFILE}\n",
            "utf-8",
        )

    def _profile_text(self) -> str:
        """Return a file of profiles with this cluster in it."""
        found = {"service-uri": self.uri, "admin-token-file": str(self.token_file)}
        lines = (f"{key} = {json.dumps(text)}\n" for key, text in found.items())
        return f'profile = "{PROFILE}"\n\n[profiles.{PROFILE}]\n{"".join(lines)}'

    def _spawn(self, bookie: _Bookie) -> None:
        bookie.directory.mkdir(exist_ok=True)
        if not port_is_free(HOST, bookie.port):
            raise LocalStartError(
                f"port {bookie.port} is in use", next_step="try another --port-base"
            )
        conf = bookie.directory / CONF_FILE
        settings = {
            "bookiePort": str(bookie.port),
            "advertisedAddress": HOST,
            "metadataServiceUri": value_text(self.uri),
            "journalDirectories": str(bookie.directory / "journal"),
            "ledgerDirectories": str(bookie.directory / "ledgers"),
            **_loopback(),
            **BOOKIE_SETTINGS,
            "httpAdminTokenFile": value_text(str(self.token_file)),
            **self._defaults,
            **self._given,
        }
        _write_private(conf, "".join(f"{key}={text}\n" for key, text in settings.items()))
        command = [sys.executable, "-m", "bookied", "--conf", str(conf)]
        bookie.stopping = False
        bookie.process = ChildProcess(command, bookie.log, env=_environment())

    def _await_gone(
        self,
        registered: Callable[[], frozenset[str]],
        bookies: list[_Bookie],
        told: Callable[[str], None],
    ) -> None:
        """Wait until no bookie is registered: one that was killed is for a while, without being.

        Else it would be taken for the one that starts, which has to wait as long in any case.
        """
        ids = {bookie.bookie_id for bookie in bookies}
        if not ids & registered():
            return
        told("waiting until the registrations from before a crash have ended")
        deadline_s = time.monotonic() + START_S_MAX
        while there := ids & registered():
            self.insist_on_zookeeper()
            if time.monotonic() > deadline_s:
                raise LocalStartError(f"{min(there)} is registered by another process")
            time.sleep(_POLL_S)

    def _wait(self, registered: Callable[[], frozenset[str]], wanted: list[_Bookie]) -> None:
        deadline_s = time.monotonic() + START_S_MAX
        missing = list(wanted)
        while missing:
            for bookie in wanted:
                self._check_alive(bookie)
            self.insist_on_zookeeper()
            if time.monotonic() > deadline_s:
                raise LocalStartError(
                    f"{missing[0].bookie_id} is not up after {START_S_MAX:.0f} s; "
                    f"{missing[0].log}:\n{_tail(missing[0])}"
                )
            time.sleep(_POLL_S)
            there = registered()
            missing = [bookie for bookie in missing if bookie.bookie_id not in there]

    def _check_alive(self, bookie: _Bookie) -> None:
        assert bookie.process is not None
        status = bookie.process.returncode
        if status is not None:
            raise LocalStartError(
                f"bookie {bookie.bookie_id} did not start: {_cause(bookie)}",
                next_step=f"its settings are {bookie.directory / CONF_FILE}, its log {bookie.log}",
            )

    def stop(self) -> None:
        """Stop everything that runs, bookies first; a temporary directory is left to ``remove``."""
        for bookie in self._bookies:
            if bookie.process is not None:
                bookie.stopping = True
                bookie.process.send_signal(signal.SIGTERM)
        deadline_s = time.monotonic() + STOP_S_MAX
        for bookie in self._bookies:
            if bookie.process is not None:
                bookie.process.stop(max(0.1, deadline_s - time.monotonic()))
        if self._zookeeper is not None:
            self._zookeeper.stop()
            self._zookeeper = None
        self._lock.release()

    def remove(self) -> None:
        """Remove the directory, if it is one that was made here for the time being."""
        if self.is_temporary:
            shutil.rmtree(self.directory, ignore_errors=True)

    def write_configs(self, directory: Path) -> None:
        """Leave the settings of each bookie there, and those of all as ``baseconf.conf``.

        The names are those of Java's `localbookie`, which `bookkeeper shell -localbookie` looks
        for.
        """
        directory.mkdir(parents=True, exist_ok=True)
        for bookie in self._bookies:
            text = (bookie.directory / CONF_FILE).read_text("utf-8")
            _write_private(directory / f"{bookie.bookie_id}.conf", text)
        base = f"metadataServiceUri={value_text(self.uri)}\n"
        _write_private(directory / "baseconf.conf", base)

    # One bookie ---------------------------------------------------------------------------------

    def kill(self, number: int) -> str:
        """End a bookie (1 is the first) with SIGKILL; return its id."""
        bookie = self._bookies[number - 1]
        if bookie.process is not None:
            bookie.process.kill()
        return bookie.bookie_id

    def restart(self, number: int, registered: Callable[[], frozenset[str]]) -> None:
        """Start a bookie again that has ended, and wait until it is registered.

        Raises:
            LocalStartError: it did not start.
        """
        bookie = self._bookies[number - 1]
        self._await_gone(registered, [bookie], lambda _: None)
        self._spawn(bookie)
        self._wait(registered, [bookie])

    def insist_on_zookeeper(self) -> None:
        """Do nothing where the ZooKeeper runs, or none was started.

        Raises:
            ZooKeeperEndedError: it has ended; nothing works without it.
        """
        server = self._zookeeper
        if server is None or server.running:
            return
        next_step = "--dir DIR keeps its log and its files"
        if not self.is_temporary:
            again = f"bkctl local {len(self._bookies)} --zookeeper --dir {self.directory}"
            next_step = f"its log is {server.log}; to start all again: {again}"
        raise ZooKeeperEndedError(f"ZooKeeper ended with {server.returncode}", next_step=next_step)

    def newly_ended(self) -> Iterator[tuple[str, int, Path]]:
        """Yield id, exit status and log of bookies that ended by themselves since the last call."""
        for bookie in self._bookies:
            status = None if bookie.process is None else bookie.process.returncode
            if status is not None and not bookie.stopping:
                bookie.process = None
                yield bookie.bookie_id, status, bookie.log

    @property
    def running(self) -> int:
        """How many bookies run."""
        return sum(state.state == "up" for state in self.states())

    def states(self) -> list[LocalBookie]:
        """Return the cluster's processes, for a table."""
        return [
            LocalBookie(
                bookie_id=bookie.bookie_id,
                state="up" if bookie.process and bookie.process.returncode is None else "down",
                pid=bookie.process.pid if bookie.process else None,
                directory=str(bookie.directory),
                log=str(bookie.log),
            )
            for bookie in self._bookies
        ]


def refuse_others_directory(directory: Path) -> None:
    """Refuse a directory that another user owns or can change: what is in it tells us what to do.

    Raises:
        RefusedError: it is one.
    """
    for found in (read(directory) for read in (os.lstat, os.stat) if directory.exists()):
        if found.st_uid != os.geteuid():
            raise RefusedError(
                f"{directory} belongs to user {found.st_uid}", next_step="give one of your own"
            )
        if stat.S_ISDIR(found.st_mode) and found.st_mode & stat.S_IWOTH:
            raise RefusedError(
                f"every user can change what is in {directory}",
                next_step=f"chmod o-w {shlex.quote(str(directory))}",
            )


def refuse_foreign(directory: Path) -> None:
    """Refuse a directory that holds what is not ours.

    Raises:
        RefusedError: it does.
    """
    if not directory.is_dir() or (directory / STATE_FILE).exists():
        return
    if any(child.name not in {BACKGROUND_LOG, LOCK} for child in directory.iterdir()):
        raise RefusedError(f"{directory} holds something else", next_step="give an empty directory")


def _write_private(path: Path, text: str) -> None:
    """Write a file that may hold a secret: nobody else reads it, and no link is followed."""
    flags = os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_NOFOLLOW | os.O_CLOEXEC
    with open(os.open(path, flags, 0o600), "w", encoding="utf-8") as file:  # noqa: PTH123
        os.fchmod(file.fileno(), 0o600)
        file.write(text)


def _ports(count: int, base: int, taken: list[int]) -> Iterator[int]:
    """Yield ports: from ``base`` on in order, else free ones."""
    chosen = set(taken)
    while count > 0:
        port = (
            free_port(HOST) if not base else next(p for p in range(base, 65536) if p not in chosen)
        )
        if port not in chosen:
            chosen.add(port)
            count -= 1
            yield port


def _tail(bookie: _Bookie) -> str:
    with contextlib.suppress(OSError):
        assert bookie.process is not None
        return bookie.process.log_tail(5) or "it wrote no log"
    return "it wrote no log"


def _cause(bookie: _Bookie) -> str:
    """Return the reason that a bookie printed at its end; else the last line of its log."""
    lines = _tail(bookie).splitlines()
    printed = (line for line in reversed(lines) if line.startswith(_REASON))
    return next(printed, lines[-1]).removeprefix(_REASON)


def _loopback() -> dict[str, str]:
    """Name the loopback interface, so that nobody else can reach the bookies."""
    names = [name for _, name in socket.if_nameindex()]
    return {"listeningInterface": "lo"} if "lo" in names else {}


def _environment() -> dict[str, str]:
    """Return the environment of a bookie: ours, without settings meant for another one."""
    kept = {key: value for key, value in os.environ.items() if not key.startswith("BK_")}
    return {**kept, "PYTHONPATH": os.pathsep.join(path for path in sys.path if path)}
