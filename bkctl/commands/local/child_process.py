"""Child processes that end when this process ends."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import threading
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Final


class ChildProcess:
    """A child whose output goes to a file, and that ends when this process ends.

    The child has its own session: Ctrl-C reaches only the parent, which then stops its children in
    the right order. On Linux the kernel ends the child (SIGTERM) when the parent dies without
    stopping it. The kernel binds that guard to the *thread* that starts the child, so it is left
    out in other threads than the main thread.
    """

    def __init__(
        self,
        command: Sequence[str],
        log: Path,
        *,
        cwd: Path | None = None,
        env: Mapping[str, str] | None = None,
    ) -> None:
        self.log = log
        self._asked_to_end = False
        with log.open("ab") as output:
            self._process = subprocess.Popen(
                guarded(command),
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=subprocess.STDOUT,
                cwd=cwd,
                env=env,
                start_new_session=True,
            )

    @property
    def pid(self) -> int:
        return self._process.pid

    @property
    def returncode(self) -> int | None:
        """The exit status, negative for a signal; None while the child runs."""
        return self._process.poll()

    def send_signal(self, number: signal.Signals) -> None:
        """Send a signal; do nothing if the process has ended."""
        self._asked_to_end |= number == signal.SIGTERM
        self._process.send_signal(number)

    def wait(self, timeout_s: float) -> int:
        """Wait for the child's end, and return the exit status.

        Raises:
            TimeoutError: the child still runs.
        """
        try:
            return self._process.wait(timeout_s)
        except subprocess.TimeoutExpired as e:
            raise TimeoutError(f"process {self.pid} still runs after {timeout_s} s") from e

    def stop(self, timeout_s: float = 10.0) -> int:
        """End the child with SIGTERM, and with SIGKILL after ``timeout_s``; return the exit status.

        SIGTERM is sent only once: a bookie stops immediately at the second.
        """
        if not self._asked_to_end:
            self.send_signal(signal.SIGTERM)
        try:
            return self.wait(timeout_s)
        except TimeoutError:
            return self.kill()

    def kill(self) -> int:
        """End the child with SIGKILL; return the exit status."""
        self.send_signal(signal.SIGKILL)
        return self._process.wait()

    def log_tail(self, lines_max: int = 15) -> str:
        """Return the last lines of the child's log."""
        return "\n".join(last_lines(self.log, lines_max))


def last_lines(log: Path, lines_max: int) -> list[str]:
    """Return the last lines of a log; a line of more than 64 KiB loses its beginning."""
    with log.open("rb") as file:
        file.seek(max(0, file.seek(0, os.SEEK_END) - _TAIL_BYTES_MAX))
        text = file.read(_TAIL_BYTES_MAX).decode("utf-8", "replace")
    return text.splitlines()[-lines_max:]


class ServerProcess:
    """A server in a child process, which can be started again after it has ended."""

    def __init__(self) -> None:
        self._process: ChildProcess | None = None

    @property
    def pid(self) -> int:
        assert self._process is not None, "not started"
        return self._process.pid

    @property
    def running(self) -> bool:
        return self._process is not None and self._process.returncode is None

    @property
    def returncode(self) -> int | None:
        """The exit status, negative for a signal; None before the start and while it runs."""
        return None if self._process is None else self._process.returncode

    def stop(self, timeout_s: float = 10.0) -> int | None:
        """Send SIGTERM, then SIGKILL after ``timeout_s``; return the exit status, if any."""
        status = None if self._process is None else self._process.stop(timeout_s)
        self._process = None
        return status

    def kill(self) -> int | None:
        """Send SIGKILL; return the exit status, if any."""
        status = None if self._process is None else self._process.kill()
        self._process = None
        return status

    def __exit__(self, *_: object) -> None:
        self.stop()


def guarded(command: Sequence[str]) -> list[str]:
    """Wrap ``command`` so that the kernel sends it SIGTERM when the starting thread ends.

    Only on Linux and in the main thread, which ends with the process; otherwise ``command`` is
    returned unchanged. The wrapper replaces ``preexec_fn``, which may deadlock in a process with
    threads.
    """
    if sys.platform != "linux" or threading.current_thread() is not threading.main_thread():
        return list(command)
    return [sys.executable, "-I", "-S", "-c", _GUARD, str(os.getpid()), *command]


_TAIL_BYTES_MAX: Final = 64 * 1024


_GUARD: Final = """
import ctypes, os, signal, sys
PR_SET_PDEATHSIG = 1
ctypes.CDLL(None).prctl(PR_SET_PDEATHSIG, int(signal.SIGTERM), 0, 0, 0)
if os.getppid() != int(sys.argv[1]):
    sys.exit("the parent has ended")
try:
    os.execvp(sys.argv[2], sys.argv[2:])
except OSError as e:
    sys.exit(f"{sys.argv[2]}: {e.strerror}")
"""
