"""A client as a process: commands come as JSON lines on stdin, what it sees goes to stdout.

    python -m tests.proof.client --name w1 --whose java --protocol v3 --uri zk+hierarchical://… \
        --directory /tmp/w1

It ends when stdin does.
"""

from __future__ import annotations

import argparse
import json
import os
import sys
import threading
from collections.abc import Sequence
from pathlib import Path
from typing import Any, Final, Protocol

import attrs

from tests.proof.history import Event, Kind

WINDOW: Final = 10
"""Adds in flight."""


@attrs.frozen(kw_only=True)
class Command:
    """What a client is asked to do; a field that the verb does not need has its default."""

    do: str
    """``write``, ``finish``, ``tail``, ``recover`` or ``read``."""
    handle: int
    ledger: int = -1
    sizes: tuple[int, int, int] = (3, 3, 2)
    digest: str = "CRC32C"
    entries: int = 0
    pause_s: float = 0.2

    def line(self) -> str:
        """Return the command as a line of JSON."""
        return json.dumps(attrs.asdict(self)) + "\n"


class Side(Protocol):
    """Our client or Java's; each call returns at once and reports by events."""

    pids: Sequence[int]

    def begin(self, command: Command) -> None:
        """Begin what a command asks for."""

    def close(self) -> None:
        """End everything."""


class Reporter:
    """Writes events as they come; from any thread."""

    def __init__(self, client: str) -> None:
        self._client, self._lock = client, threading.Lock()

    def __call__(self, kind: Kind, **fields: Any) -> None:
        line = Event(client=self._client, kind=kind, **fields).line()
        with self._lock:
            sys.stdout.write(line)
            sys.stdout.flush()


def command_of(line: str) -> Command:
    """Read a line of JSON."""
    found = json.loads(line)
    return Command(**{**found, "sizes": tuple(found["sizes"])})


def main(arguments: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.proof.client", description=__doc__)
    parser.add_argument("--name", required=True)
    parser.add_argument("--whose", choices=("ours", "java"), required=True)
    parser.add_argument("--protocol", choices=("v2", "v3"), required=True)
    parser.add_argument("--uri", required=True)
    parser.add_argument("--directory", type=Path, required=True, help="for files of its own")
    asked = parser.parse_args(arguments)
    report = Reporter(asked.name)
    side: Side
    if asked.whose == "java":
        from tests.proof.java_side import JavaSide

        side = JavaSide(asked.uri, asked.protocol, report, asked.directory)
    else:
        from tests.proof.our_side import OurSide

        side = OurSide(asked.uri, asked.protocol, report)
    try:
        report(Kind.BEGAN, note=" ".join(map(str, (os.getpid(), *side.pids))))
        for line in sys.stdin:
            side.begin(command_of(line))
    finally:
        side.close()
    return 0


if __name__ == "__main__":
    status = main()
    sys.stdout.flush()
    # A call that never ends would keep its thread, and with it the process.
    os._exit(status)
