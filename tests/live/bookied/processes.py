"""Real ``bookied`` processes, told apart by their directories."""

from __future__ import annotations

import os
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Sequence
from pathlib import Path

from bkclient.metadata import open_metadata
from bkctl.commands.local.ports import free_port
from tests.bookied.worlds.raw_client import RawClient
from tests.support.reactor import call, run, the_reactor
from tests.support.waiting import is_readable

READY_S = 90.0
END_S = 90.0

SESSION_MS = 10_000
"""How long a bookie may be held up before others take it for gone."""

SOON_FORGOTTEN = {"zkTimeout": 1000}
"""For one that is killed and started again: each start waits for the session of the one before."""


def make_cluster(path: Path) -> str:
    """Make a cluster in a SQLite file; return its service URI."""
    uri = f"sqlite://{path}"
    store = call(lambda: open_metadata(uri, reactor=the_reactor()))
    run(store.connect())
    run(store.initialize())
    run(store.close())
    return uri


def write_conf(directory: Path, uri: str, **changes: object) -> Path:
    """Write a bookie's settings file; return its path."""
    directory.mkdir(parents=True, exist_ok=True)
    settings: dict[str, object] = {
        "metadataServiceUri": uri,
        "bookiePort": free_port(),
        "bookieId": directory.name,
        "advertisedAddress": "127.0.0.1",
        "allowLoopback": "true",
        "zkTimeout": SESSION_MS,
        "journalPreAllocSizeMB": 1,
        "journalDirectories": directory / "journal",
        "ledgerDirectories": directory / "ledgers",
    }
    settings |= changes
    path = directory / "bk.conf"
    path.write_text("".join(f"{key}={value}\n" for key, value in settings.items()))
    return path


class BookieProcess:
    """``python -m bookied`` with its output in a file; end it with ``kill`` or ``stop``."""

    def __init__(
        self,
        conf: Path,
        *arguments: str,
        prefix: Sequence[str] = (),
        command: Sequence[str] = (),
        **environ: str,
    ) -> None:
        self.directory = conf.parent
        self._notify = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)
        address = f"\0bookied-test-{os.getpid()}-{id(self)}"
        self._notify.bind(address)
        self.told: list[str] = []
        self.output = self.directory / "output"
        with self.output.open("ab") as out:
            self.process = subprocess.Popen(
                [
                    *(*prefix, sys.executable, "-m", "bookied"),
                    *(*command, "--conf", str(conf), *arguments),
                ],
                stdout=out,
                stderr=out,
                env={**os.environ, "NOTIFY_SOCKET": address.replace("\0", "@"), **environ},
            )
        self.port = int(
            next(
                line.partition("=")[2]
                for line in conf.read_text().splitlines()
                if line.startswith("bookiePort=")
            )
        )

    @property
    def pid(self) -> int:
        return self.process.pid

    def wait_for(self, word: str, timeout_s: float = READY_S) -> BookieProcess:
        """Wait until the process has told its service manager ``word``."""
        deadline_s = time.monotonic() + timeout_s
        while word not in self.told:
            self._hear_or_fail(word, deadline_s)
        return self

    def tells(self, *words: str, after: Callable[[], object] = tuple) -> None:
        """Wait until the process has told each of these words anew.

        ``after`` is done first, and what is told in answer to it counts.
        """
        so_far = self._heard()
        after()
        deadline_s = time.monotonic() + READY_S
        while missing := set(words) - set(self.told[so_far:]):
            self._hear_or_fail(" ".join(missing), deadline_s)

    def told_within(self, seconds: float) -> list[str]:
        """Return what the process tells its service manager in so much time from now on."""
        so_far = self._heard()
        until_s = time.monotonic() + seconds
        while time.monotonic() < until_s:
            self._hear()
        return self.told[so_far:]

    def _heard(self) -> int:
        """Hear what has been told; return how many words that makes."""
        while self._hear(0):
            pass
        return len(self.told)

    def _hear_or_fail(self, word: str, deadline_s: float) -> None:
        # Looked at first: what it told before its end is there to be heard.
        has_ended = self.process.poll() is not None
        if not self._hear():
            assert not has_ended, f"ended without {word}:\n{self.output.read_text()}"
            assert time.monotonic() < deadline_s, f"no {word}:\n{self.output.read_text()}"

    def _hear(self, wait_s: float = 0.05) -> bool:
        """Wait a little for a message; return whether one came."""
        if not is_readable(self._notify, wait_s):
            return False
        self.told += self._notify.recv(4096).decode().splitlines()
        return True

    def ready(self, timeout_s: float = READY_S) -> BookieProcess:
        return self.wait_for("READY=1", timeout_s)

    def client(self) -> RawClient:
        return RawClient(self.port)

    def kill(self) -> None:
        """End it as a power cut would."""
        self.process.kill()
        self.ended()

    def stop(self) -> int:
        """Ask it to stop; return its exit status."""
        self.process.send_signal(signal.SIGTERM)
        return self.ended()

    def ended(self) -> int:
        """Wait for the end; return the exit status."""
        status = self.process.wait(END_S)
        self._notify.close()
        return status

    def rss_kib(self) -> int:
        """Return its resident memory."""
        for line in Path(f"/proc/{self.pid}/status").read_text().splitlines():
            if line.startswith("VmRSS:"):
                return int(line.split()[1])
        raise AssertionError("no VmRSS")

    def last_line(self) -> str:
        return self.output.read_text().splitlines()[-1]

    def own_lines(self) -> list[str]:
        """Return what it said of its end: the lines that are not a log lines."""
        lines = self.output.read_text().splitlines()
        return [line for line in lines if line.startswith("bookied: ")]
