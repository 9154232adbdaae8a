"""The harness's handles on client processes."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections import defaultdict
from contextlib import suppress
from pathlib import Path

from bkctl.commands.local.child_process import guarded
from tests.proof.client import Command
from tests.proof.history import Event, Kind, parse
from tests.support.tcp_proxy import TcpProxy
from tests.support.waiting import until

STARTED_S = 120.0


class ClientProcess:
    """One client in a process of its own, and the proxy on its way to ZooKeeper.

    ``name`` begins with whose it is and its protocol: ``ours-v3-w0``. Its history is in
    ``NAME.events``; its files are in the directory ``NAME``.
    """

    def __init__(self, name: str, uri: str, directory: Path, zookeeper: TcpProxy) -> None:
        self.name, self.zookeeper = name, zookeeper
        self._path = directory / f"{name}.events"
        self._offset = 0
        self._partial = ""
        self._events: dict[int, list[Event]] = defaultdict(list)
        self._created: list[Event] = []
        self._handles = 0
        whose, protocol, _ = name.split("-", 2)
        # Removed with the run's directory: a killed client removes nothing.
        own = directory / name
        own.mkdir(exist_ok=True)
        command = [sys.executable, "-m", "tests.proof.client", "--name", name, "--whose", whose,
                   "--protocol", protocol, "--uri", uri, "--directory", str(own)]  # fmt: skip
        with self._path.open("wb") as events, self._path.with_suffix(".log").open("wb") as log:
            self._process = subprocess.Popen(
                guarded(command),
                stdin=subprocess.PIPE,
                stdout=events,
                stderr=log,
                start_new_session=True,
            )

    @property
    def running(self) -> bool:
        return self._process.poll() is None

    def wait_ready(self) -> None:
        """Return once it takes commands."""

        def goes_on() -> None:
            assert self.running, f"{self.name} ended: {self._path.with_suffix('.log').read_text()}"

        until(self._pids, f"{self.name} did not begin", timeout_s=STARTED_S, check=goes_on)

    def ask(self, **fields: object) -> int:
        """Give it a command; return the handle that its events will have."""
        self._handles += 1
        command = Command(**{"handle": self._handles, **fields})  # type: ignore[arg-type]
        assert self._process.stdin is not None
        with suppress(BrokenPipeError):
            self._process.stdin.write(command.line().encode())
            self._process.stdin.flush()
        return command.handle

    def of(self, handle: int) -> list[Event]:
        """Return what it has reported so far of one command."""
        self._take()
        return self._events[handle]

    def created(self) -> list[Event]:
        """Return the ledgers that it has created so far."""
        self._take()
        return self._created

    def signal(self, number: signal.Signals) -> None:
        """Send a signal to all its processes."""
        for pid in [self._process.pid, *self._pids()]:
            if self.running:
                with suppress(ProcessLookupError):
                    os.kill(pid, number)

    def kill(self) -> None:
        """End it with SIGKILL, its JVM too, whether it is paused or not."""
        for pid in [*self._pids()[1:], self._process.pid]:
            if self.running:
                with suppress(ProcessLookupError):
                    os.kill(pid, signal.SIGKILL)
        self._process.wait()
        assert self._process.stdin is not None
        with suppress(BrokenPipeError):
            self._process.stdin.close()

    def _take(self) -> None:
        """Read what is new in its history."""
        with self._path.open(encoding="utf-8") as file:
            file.seek(self._offset)
            text = self._partial + file.read()
            self._offset = file.tell()
        lines = text.splitlines(keepends=True)
        self._partial = lines.pop() if lines and not lines[-1].endswith("\n") else ""
        for event in parse(lines):
            self._events[event.handle].append(event)
            if event.kind is Kind.CREATED:
                self._created.append(event)

    def _pids(self) -> list[int]:
        began = [event for event in self.of(0) if event.kind is Kind.BEGAN]
        return [int(word) for word in began[0].note.split()] if began else []
