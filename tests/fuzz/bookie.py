"""A bookie without sockets and threads that is sent anything, for the paths behind the decoders."""

from __future__ import annotations

import tempfile
from pathlib import Path
from typing import Any, Final

from twisted.logger import LogEvent, globalLogPublisher

from tests.bookied.serving import Serving, Transport

CONNECTIONS_MAX: Final = 500
"""After so many a new bookie takes over, or its ledgers would fill the memory."""


class BugError(Exception):
    """The bookie met an error that it has no name for, and closed the connection."""


class FuzzedBookie:
    """Takes each input on a connection of its own, in pieces."""

    def __init__(self) -> None:
        self._serving: Serving | None = None
        self._directory: tempfile.TemporaryDirectory[str] | None = None
        self._left = 0

    def take(self, data: bytes) -> None:
        """Send ``data``; raise what the bookie logs as a failure."""
        serving = self._ready()
        failures: list[LogEvent] = []

        def listen(event: LogEvent) -> None:
            if "log_failure" in event:
                failures.append(event)

        observe: Any = listen
        globalLogPublisher.addObserver(observe)
        try:
            self._send(serving, data)
        finally:
            globalLogPublisher.removeObserver(observe)
        if failures:
            self._left = 0
            raise BugError(repr(failures[0]["log_failure"].value)[:500])

    def _send(self, serving: Serving, data: bytes) -> None:
        client = serving.connect(transport=Transport())
        step = len(data) // (1 + (data[0] & 3 if data else 0)) + 1
        for at in range(1, len(data), step):
            client.connection.dataReceived(data[at : at + step])
        if self._left % 25 == 0:
            serving.sync()
        client.disconnect()

    def _ready(self) -> Serving:
        if self._serving is None or self._left == 0:
            self._end()
            self._directory = tempfile.TemporaryDirectory(prefix="fuzz-")
            self._serving = Serving(Path(self._directory.name), syncs=False)
            self._left = CONNECTIONS_MAX
        self._left -= 1
        return self._serving

    def _end(self) -> None:
        if self._serving is not None and self._directory is not None:
            self._serving.sync()
            self._serving.close()
            self._directory.cleanup()
