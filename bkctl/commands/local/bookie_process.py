"""One bookie of a local cluster: a ``bookied`` as a child process, with its files."""

from __future__ import annotations

import contextlib
import os
import re
import shlex
import signal
import socket
import sys
from collections.abc import Mapping
from pathlib import Path
from types import MappingProxyType
from typing import Final

from bkclient.config.properties import Property, parse_properties, read_properties
from bkctl.commands.local.child_process import ChildProcess
from bkctl.commands.local.columns import LocalBookie
from bkctl.commands.local.directory import CONF_FILE, bookie_id_in, write_private
from bkctl.commands.local.ports import HOST, port_is_free
from bkctl.errors import CommandError
from bkctl.exit_status import ExitStatus
from bkctl.output.atomic_file import write_atomically
from wire.errors import BookKeeperError

_REASON: Final = "bookied: "
"""The start of the log line in which bookied prints why it ends."""

_LOG_BYTES_MAX: Final = 1 << 20

BOOKIE_SETTINGS: Final[Mapping[str, str]] = {
    "allowLoopback": "true",
    # The disk of a developer's machine is often nearly full.
    "diskUsageThreshold": "0.99",
    "diskUsageWarnThreshold": "0.98",
    "logSizeLimit": str(256 * 1024 * 1024),
    "minUsableSizeForEntryLogCreation": str(64 * 1024 * 1024),
    "minUsableSizeForHighPriorityWrites": str(64 * 1024 * 1024),
    "httpServerPort": "0",  # A free port: several bookies share the machine.
}
"""Settings of a local bookie that differ from the defaults."""


_OWN: Final = ("bookiePort", "metadataServiceUri", "httpAdminTokenFile")
"""Settings that bind a bookie to its cluster; in a copied directory they name the first cluster."""

_STATEMENT: Final = re.compile(rb"(?:(?!\s*[#!])[^\n]*\\\n)*[^\n]*\n?")
"""A line of a settings file, with the lines that continue it."""

_KEY: Final = re.compile(rb"\s*([^\s#!=:]+)")


class LocalStartError(CommandError):
    """A part of the local cluster did not start."""

    exit_status = ExitStatus.UNREACHABLE


class BookieProcess:
    """One bookie: its address, its directory, and its process while it runs."""

    def __init__(self, host: str, port: int, directory: Path) -> None:
        self.host, self.first_port, self.directory = host, port, directory
        self._process: ChildProcess | None = None
        self._is_stopping = False
        self._undo: tuple[Path, bytes | None] | None = None
        self.is_decommissioned = False
        """True if the bookie's cookie was removed: its directories never start again."""

    @property
    def bookie_id(self) -> str:
        """The bookie's id in its files, where `bookie rename` may have changed it."""
        return bookie_id_in(self.directory, f"{self.host}:{self.first_port}")

    @property
    def port(self) -> int:
        """The bookie's port, which `bookie rename` may have changed."""
        host, _, port = self.bookie_id.rpartition(":")
        return int(port) if host == self.host and port.isdecimal() else self.first_port

    @property
    def runs(self) -> bool:
        """True if the bookie's process runs."""
        return self._process is not None and self._process.returncode is None

    @property
    def conf(self) -> Path:
        return self.directory / CONF_FILE

    @property
    def log(self) -> Path:
        return self.directory / "bookie.log"

    def start(
        self, settings: Mapping[str, str], given: Mapping[str, str] = MappingProxyType({})
    ) -> None:
        """Start the bookie's process; write its settings file if there is none yet.

        ``settings`` are those of the cluster; they override the settings of every local bookie. An
        existing file keeps its user's changes, except for the keys in ``given``. A stop undoes the
        change of these keys, unless ``keep_settings`` was called.

        Raises:
            LocalStartError: another process has the port, or the file is not this bookie's.
            PropertiesError: the file has a syntax error.
        """
        self.directory.mkdir(exist_ok=True)
        if not port_is_free(self.host, self.port):
            raise LocalStartError(
                f"port {self.port} is in use", next_step="try another --port-base"
            )
        lines = {
            "bookiePort": str(self.port),
            "advertisedAddress": self.host,
            "journalDirectories": str(self.directory / "journal"),
            "ledgerDirectories": str(self.directory / "ledgers"),
            **_loopback(self.host),
            **BOOKIE_SETTINGS,
            **settings,
        }
        before = self.conf.read_bytes() if self.conf.exists() else None
        if before is None:
            write_private(self.conf, _text(lines))
        else:
            self._require_own_lines(lines)
        if given:
            self._undo = (self.conf, before)
        if given and before is not None:
            write_atomically(str(self.conf), with_settings(before, given), private=True)
        command = [sys.executable, "-m", "bookied", "--conf", str(self.conf)]
        self._is_stopping = False
        self._process = ChildProcess(command, self.log, env=_environment())

    def _require_own_lines(self, lines: Mapping[str, str]) -> None:
        found = read_properties(self.conf).entries
        for one in parse_properties(_text({key: lines[key] for key in _OWN})).entries.values():
            there = found.get(one.key)
            if there is None or _texts(there) != _texts(one):
                raise LocalStartError(
                    f"{self.conf} does not set {one.key}={lines[one.key]}",
                    next_step="write that line there, or remove the file to get a new one"
                    if one.key != "bookiePort"
                    else "write that line there; to move the bookie to the file's port: "
                    f"bkctl bookie rename -c {shlex.quote(str(self.conf))}",
                )

    def keep_settings(self) -> None:
        """Keep the settings of this start for later starts."""
        self._undo = None

    def require_running(self) -> None:
        """Raise if the started bookie has ended.

        Raises:
            LocalStartError: the bookie has ended; the message has its reason.
        """
        if self._process is not None and self._process.returncode is not None:
            where = f"its log is {self.log}"
            if self._undo is None:
                where = f"its settings are {self.conf}, its log {self.log}"
            raise LocalStartError(
                f"bookie {self.bookie_id} did not start: {with_conf(self._cause(), self.conf)}",
                next_step=where,
            )

    def log_tail(self) -> str:
        """Return the last lines of the bookie's log, or that it wrote none."""
        with contextlib.suppress(OSError):
            if self._process is not None:
                return self._process.log_tail(5) or "it wrote no log"
        return "it wrote no log"

    def log_reason(self, error: BookKeeperError) -> None:
        """Write to the log why the bookie was not started, in the form of bookied."""
        hint = f"; {error.hint}" if error.hint else ""
        with self.log.open("a", encoding="utf-8") as log:
            log.write(f"{_REASON}{error}{hint}\n")

    def _cause(self) -> str:
        """Return the reason that bookied printed at its end; else the last line of its log."""
        lines = self.log_tail().splitlines()
        printed = (line for line in reversed(lines) if line.startswith(_REASON))
        return next(printed, lines[-1]).removeprefix(_REASON)

    def ask_to_stop(self) -> None:
        """Send SIGTERM, if the bookie runs."""
        if self._process is not None:
            self._is_stopping = True
            self._process.send_signal(signal.SIGTERM)

    def stop(self, timeout_s: float) -> None:
        """Wait until the bookie has ended; kill it after ``timeout_s``."""
        if self._process is not None:
            self._process.stop(timeout_s)
        if self._undo is not None:
            path, before = self._undo
            if before is None:
                path.unlink(missing_ok=True)
            else:
                write_atomically(str(path), before, private=True)

    def kill(self) -> None:
        """End the bookie with SIGKILL."""
        if self._process is not None:
            self._process.kill()

    def take_end(self) -> int | None:
        """Return the exit status of a bookie that ended by itself, once; else None."""
        status = None if self._process is None else self._process.returncode
        if status is None or self._is_stopping:
            return None
        self._process = None
        return status

    def state(self) -> LocalBookie:
        """Return the bookie as a row of a table."""
        return LocalBookie(
            bookie_id=self.bookie_id,
            state="up" if self.runs else "decommissioned" if self.is_decommissioned else "down",
            pid=self._process.pid if self._process else None,
            directory=str(self.directory),
            log=str(self.log),
        )


def with_settings(text: bytes, settings: Mapping[str, str]) -> bytes:
    """Return a settings file with other values for some keys; other lines stay unchanged."""
    kept = b"".join(
        statement
        for statement in _STATEMENT.findall(text)
        if not ((key := _KEY.match(statement)) and key[1].decode("utf-8", "replace") in settings)
    )
    return kept + (b"" if kept.endswith(b"\n") or not kept else b"\n") + _text(settings).encode()


def _text(settings: Mapping[str, str]) -> str:
    return "".join(f"{key}={text}\n" for key, text in settings.items())


def _texts(found: Property) -> list[str]:
    return [value.text for value in found.values]


def with_conf(reason: str, conf: Path) -> str:
    """Return the reason that a bookie ended, with its own settings file in the commands."""
    return reason.replace("-c FILE", f"-c {shlex.quote(str(conf))}")


def printed_reason(log: Path, offset: int) -> str | None:
    """Return the reason that bookied printed to its log after ``offset``; None without one."""
    try:
        with log.open("rb") as file:
            file.seek(offset)
            lines = file.read(_LOG_BYTES_MAX).decode("utf-8", "replace").splitlines()
    except FileNotFoundError:
        return None
    reasons = (line.removeprefix(_REASON) for line in lines if line.startswith(_REASON))
    return next(reasons, None)


def _loopback(host: str) -> dict[str, str]:
    """Return settings for a loopback address, so that no other machine can reach the bookie.

    The interface's name means only its first address.
    """
    if host != HOST:
        return {"listeningInterface": host}
    names = [name for _, name in socket.if_nameindex()]
    return {"listeningInterface": "lo"} if "lo" in names else {}


def _environment() -> dict[str, str]:
    """Return the environment of a bookie: ours, without settings for other bookies."""
    kept = {key: value for key, value in os.environ.items() if not key.startswith("BK_")}
    return {**kept, "PYTHONPATH": os.pathsep.join(path for path in sys.path if path)}
