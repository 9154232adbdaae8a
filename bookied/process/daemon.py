"""``bookied --daemonize`` and ``bookied stop``, for where no service manager does it.

The pid file is locked for as long as the process runs: whoever gets the lock knows that nobody
does, whatever number is in the file and whichever process has that number by now.

Agrees with BookKeeper 4.18.0, bin/bookkeeper-daemon.sh, in what the environment says, in keeping
five files of output, and in what a stop does that takes too long.
"""

from __future__ import annotations

import argparse
import contextlib
import errno
import fcntl
import os
import select
import shutil
import signal
import socket
import sys
import tempfile
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Final

from bookied.errors import ExitStatus

PID_DIR_VARIABLE: Final = "BOOKIE_PID_DIR"
STOP_TIMEOUT_VARIABLE: Final = "BOOKIE_STOP_TIMEOUT"
STOP_S: Final = 30.0
OUTPUTS_KEPT: Final = 5
_POLL_S: Final = 0.1


class PidFileError(Exception):
    """A pid file cannot be used; ``status`` is what the process ends with."""

    def __init__(self, message: str, status: int) -> None:
        super().__init__(message)
        self.status = status


class PidFile:
    """A file with the number of the process that holds its lock."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self._descriptor: int | None = None

    def take(self) -> bool:
        """Take the lock; return whether nobody had it.

        Raises:
            PidFileError: the file cannot be opened.
        """
        try:
            descriptor = os.open(self.path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o644)
        except OSError as error:
            message = f"pid file {self.path}: {error.strerror}"
            raise PidFileError(message, ExitStatus.INVALID_CONFIGURATION) from error
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError as error:
            os.close(descriptor)
            if error.errno in {errno.EWOULDBLOCK, errno.EACCES}:
                return False
            raise
        self._descriptor = descriptor
        return True

    def write(self, pid: int) -> None:
        """Put a number into the file, whose lock we have."""
        assert self._descriptor is not None, "not taken"
        os.ftruncate(self._descriptor, 0)
        os.pwrite(self._descriptor, b"%d\n" % pid, 0)

    def pid(self) -> int | None:
        """Return the number in the file, if there is one."""
        try:
            return int(self.path.read_text(encoding="ascii"))
        except (OSError, ValueError):
            return None

    def remove(self) -> None:
        """Take the file away, and let go of the lock."""
        with contextlib.suppress(OSError):
            self.path.unlink()
        if self._descriptor is not None:
            os.close(self._descriptor)
            self._descriptor = None


def pid_path(given: Path | None, environ: Mapping[str, str], service: str) -> Path:
    """Return the pid file: the one given, else that of Java's script in ``BOOKIE_PID_DIR``.

    Raises:
        PidFileError: nothing says where it is.
    """
    if given is not None:
        return given.absolute()
    if directory := environ.get(PID_DIR_VARIABLE):
        return Path(directory).absolute() / f"bookkeeper-{service}.pid"
    raise PidFileError(
        f"which pid file? give --pid-file FILE, or set {PID_DIR_VARIABLE}",
        ExitStatus.INVALID_CONFIGURATION,
    )


# Start -------------------------------------------------------------------------------------------


def daemonize(path: Path) -> int | PidFile:
    """Go on in a child without a terminal; there, return the pid file, to be removed at the end.

    In the parent return the exit status: 0 once the child serves, else that with which it ended.
    What the child writes to stdout and stderr goes to a file beside the pid file. No thread and no
    reactor may be there yet.

    Raises:
        PidFileError: one runs already, or the file cannot be written.
    """
    pid_file = PidFile(path)
    if not pid_file.take():
        raise PidFileError(
            f"it runs already, as process {pid_file.pid()} ({path})", ExitStatus.CANNOT_START_NOW
        )
    output = _fresh_output(path.with_suffix(".out"))
    sys.stdout.flush()
    sys.stderr.flush()
    with _ReadySocket() as (ready, address):
        child = os.fork()
        if child:
            return _until_ready(child, ready, output)
        os.environ["NOTIFY_SOCKET"] = address
        os.environ.pop("WATCHDOG_USEC", None)  # That was for our parent.
    _let_go(output)
    pid_file.write(os.getpid())
    return pid_file


def _fresh_output(path: Path) -> Path:
    """Return a file for output that is not there yet; the last five are kept under numbers."""
    if path.exists():
        for number in range(OUTPUTS_KEPT - 1, 0, -1):
            older = path.with_name(f"{path.name}.{number}")
            if older.exists():
                older.replace(path.with_name(f"{path.name}.{number + 1}"))
        path.replace(path.with_name(f"{path.name}.1"))
    return path


class _ReadySocket:
    """A socket that the child tells when it serves, as it would tell systemd."""

    def __enter__(self) -> tuple[socket.socket, str]:
        self._owner = os.getpid()
        self._directory = tempfile.mkdtemp(prefix="bookied-")
        self._socket = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)
        address = f"{self._directory}/ready"
        self._socket.bind(address)
        return self._socket, address

    def __exit__(self, *_: object) -> None:
        self._socket.close()
        if os.getpid() == self._owner:  # The child still needs its name.
            shutil.rmtree(self._directory, ignore_errors=True)


def _until_ready(child: int, ready: socket.socket, output: Path) -> int:
    """Wait for the child to serve or to end; return our exit status."""
    while True:
        told, _, _ = select.select([ready], [], [], _POLL_S)
        if told and "READY=1" in ready.recv(4096).decode(errors="replace").split("\n"):
            sys.stdout.write(f"bookied runs as process {child}; its output is in {output}\n")
            return ExitStatus.OK
        ended, status = os.waitpid(child, os.WNOHANG)
        if ended:
            _repeat_last_line(output)
            code = os.waitstatus_to_exitcode(status)
            return code if code > 0 else ExitStatus.FATAL


def _repeat_last_line(output: Path) -> None:
    with contextlib.suppress(OSError):
        lines = output.read_text(encoding="utf-8", errors="replace").splitlines()
        sys.stderr.write("".join(f"{line}\n" for line in lines[-1:]))


def _let_go(output: Path) -> None:
    """Leave session, terminal and standard streams behind."""
    os.setsid()
    null = os.open(os.devnull, os.O_RDONLY)
    out = os.open(output, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o644)
    for descriptor, stream in ((null, 0), (out, 1), (out, 2)):
        os.dup2(descriptor, stream)
    os.close(null)
    os.close(out)


# Stop --------------------------------------------------------------------------------------------


def stop(arguments: Sequence[str], environ: Mapping[str, str]) -> int:
    """Run ``bookied stop``; return the exit status."""
    options = _stop_parser(environ).parse_args(arguments)
    try:
        pid_file = PidFile(pid_path(options.pid_file, environ, options.service))
        return _stop(pid_file, options.timeout, force=options.force)
    except PidFileError as error:
        sys.stderr.write(f"bookied: {error}\n")
        return error.status


def _stop_parser(environ: Mapping[str, str]) -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="bookied stop",
        description="Stop the bookied that a pid file names, as TERM does, and wait for its end.",
        epilog="exit status: 0 it has ended, or did not run; 1 it still runs.",
        allow_abbrev=False,
    )
    add = parser.add_argument
    add("service", nargs="?", choices=["bookie", "autorecovery"], default="bookie",
        help="whose pid file in BOOKIE_PID_DIR, where none is given (bookie)")  # fmt: skip
    add("--pid-file", type=Path, metavar="FILE", help="as given to --daemonize")
    add("--timeout", type=float, metavar="SECONDS", default=_timeout_s(environ),
        help="how long to wait (BOOKIE_STOP_TIMEOUT, else 30)")  # fmt: skip
    add("--force", "-force", action="store_true", help="kill what has not ended by then")
    return parser


def _timeout_s(environ: Mapping[str, str]) -> float:
    try:
        return float(environ[STOP_TIMEOUT_VARIABLE])
    except (KeyError, ValueError):
        return STOP_S


def _stop(pid_file: PidFile, timeout_s: float, *, force: bool) -> int:
    pid = pid_file.pid()
    if pid is None or pid_file.take():
        pid_file.remove()
        sys.stdout.write("no bookied to stop\n")
        return ExitStatus.OK
    os.kill(pid, signal.SIGTERM)
    if not _ended(pid_file, timeout_s):
        os.kill(pid, signal.SIGQUIT)  # What it is at goes to its log.
        if not force:
            sys.stderr.write(
                f"bookied: process {pid} still runs after {timeout_s:g} s; its log says what it "
                "is at. --force kills it\n"
            )
            return ExitStatus.INVALID_CONFIGURATION
        time.sleep(_POLL_S)
        os.kill(pid, signal.SIGKILL)
        if not _ended(pid_file, STOP_S):
            sys.stderr.write(f"bookied: process {pid} was killed and still runs\n")
            return ExitStatus.INVALID_CONFIGURATION
        sys.stdout.write(f"killed process {pid}\n")
    else:
        sys.stdout.write(f"stopped process {pid}\n")
    pid_file.remove()
    return ExitStatus.OK


def _ended(pid_file: PidFile, timeout_s: float) -> bool:
    """Wait until the lock is free; return whether it is."""
    deadline_s = time.monotonic() + timeout_s
    while not pid_file.take():
        if time.monotonic() > deadline_s:
            return False
        time.sleep(_POLL_S)
    return True
