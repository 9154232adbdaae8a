"""How far an export's tasks have come, told to the driver by datagrams.

Spark tells its driver of finished tasks only; a person watching a bar wants more. A lost datagram
costs nothing: each carries running totals. Nothing here decides whether an export is complete.
"""

from __future__ import annotations

import contextlib
import json
import socket
import time
from collections.abc import Iterator
from typing import Final

import attrs

REPORT_INTERVAL_S: Final = 0.25
_DATAGRAM_BYTES_MAX: Final = 256


@attrs.frozen
class Done:
    """Entries and payload bytes read so far, over all tasks."""

    entries: int
    payload_bytes: int


class ProgressListener:
    """The driver's end: a socket that is emptied at each look.

    One line a task and attempt is kept; a task that runs again starts its line anew.
    """

    def __init__(self, host: str = "127.0.0.1") -> None:
        self._socket = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
        self._socket.bind((host, 0))
        self._socket.setblocking(False)
        self._by_task: dict[int, tuple[int, int]] = {}

    @property
    def address(self) -> str:
        """``host:port`` to give to the tasks."""
        host, port = self._socket.getsockname()
        return f"{host}:{port}"

    def done(self) -> Done:
        """Return the totals known now; never waits."""
        while True:
            try:
                datagram = self._socket.recv(_DATAGRAM_BYTES_MAX)
            except BlockingIOError:
                break
            self._note(datagram)
        rows = self._by_task.values()
        return Done(sum(entries for entries, _ in rows), sum(size for _, size in rows))

    def _note(self, datagram: bytes) -> None:
        try:
            task, entries, size = map(int, json.loads(datagram))
        except (ValueError, TypeError):
            return  # Not from a task of ours; the socket is open to the whole machine.
        self._by_task[task] = (entries, size)

    def close(self) -> None:
        self._socket.close()


class NoListener:
    """Stands in where no socket can be bound: the export goes on, and reports nothing."""

    address = ""

    def done(self) -> Done:
        """Return nothing done."""
        return Done(0, 0)

    def close(self) -> None:
        """Do nothing."""


@contextlib.contextmanager
def open_listener(host: str) -> Iterator[ProgressListener | NoListener]:
    """Give a listener on ``host``, a name or an address of this machine."""
    listener: ProgressListener | NoListener
    try:
        listener = ProgressListener(host)
    except OSError:
        listener = NoListener()
    try:
        yield listener
    finally:
        listener.close()


class ProgressReporter:
    """A task's end: says now and then how much it has read, and does not mind being unheard."""

    def __init__(self, address: str, task: int) -> None:
        host, _, port = address.rpartition(":")
        self._to = (host, int(port)) if port else None
        self._task = task
        self._socket = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
        self._entries = self._bytes = 0
        self._next_s = 0.0

    def add(self, entries: int, payload_bytes: int) -> None:
        self._entries += entries
        self._bytes += payload_bytes
        if time.monotonic() >= self._next_s:
            self._send()

    def close(self) -> None:
        self._send()
        self._socket.close()

    def _send(self) -> None:
        self._next_s = time.monotonic() + REPORT_INTERVAL_S
        if self._to is None:
            return
        try:
            self._socket.sendto(
                json.dumps([self._task, self._entries, self._bytes]).encode(), self._to
            )
        except OSError:
            self._to = None  # The bar falls back on finished tasks.
