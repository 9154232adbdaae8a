"""The reactor of a bookie's process: Twisted's reactor with less work for each event."""

from __future__ import annotations

import sys
from collections.abc import Callable
from heapq import heappop, heappush
from typing import Any, Final

from twisted.internet.main import installReactor

TURN_BYTES: Final = 128 * 1024
"""Expected bytes of the events that one turn handles, if more events wait: 2 to 4 ms of adds."""

LONG_READ_BYTES: Final = 32 * 1024
LONG_READS_BYTES: Final = 256 * 1024
"""Bytes of long reads in a turn while clients of one address add alone: 8 ms of tiny adds.

Shorter reads do not wait there: short turns would cost rate.
"""

EVENT_BYTES: Final = 4096
"""Bytes that an event counts besides those read: one small request takes as long."""

SMALL_BYTES: Final = 1024
LARGE_BYTES: Final = 4096
"""Reads of fewer or of more bytes are equal in the order of the connections."""

WAITED_BYTES: Final = 32
"""So a connection is passed over by new events of others in at most 96 turns."""

if sys.platform == "linux":
    from twisted.internet.epollreactor import EPollReactor

    def _nothing(_: object) -> None:
        """Do nothing."""

    class PromptReactor(EPollReactor):
        """A reactor that reads and writes as Twisted's reactor of this system.

        Twisted notes in its log context which connection each event belongs to. That takes 5 µs, as
        long as some requests, and bookied's log does not use the note.
        """

        def __init__(self) -> None:
            super().__init__()  # type: ignore[no-untyped-call]
            self._turn = 0
            self._queue: list[tuple[int, int]] = []
            """The connections that wait, with their order: a heap. Some may have no event now."""
            self._queued: set[int] = set()

        before_event: Callable[[object], object] = staticmethod(_nothing)
        """Called before each of several events with the reader or writer, and with None after all
        events.

        A single event cannot be gathered with others, so there is no call for it.
        """

        def doPoll(self, timeout: float | None) -> None:
            """Wait at most ``timeout`` seconds, and pass each event to its reader or writer."""
            events = self._poller.poll(timeout, len(self._selectables))
            if len(events) > 1:
                events = self._first_of(events)
            before_event = self.before_event if len(events) > 1 else _nothing
            try:
                for fd, event in events:
                    selectable = self._selectables.get(fd)
                    # A previous event may have removed the reader or writer.
                    if selectable is not None:
                        before_event(selectable)
                        self._doReadOrWrite(selectable, fd, event)  # type: ignore[no-untyped-call]
            finally:
                before_event(None)

        doIteration = doPoll

        def _first_of(self, events: list[tuple[int, int]]) -> list[tuple[int, int]]:
            """Return the events of this turn; the system reports the others again.

            Connections whose last read was small are first, so that clients with one request at a
            time do not wait for clients that send without pause. Each turn that a connection waits
            counts as ``WAITED_BYTES`` less. While clients of one address add alone, their
            ``shares_turns`` is False: connections wait only if their last read was long.

            The order of the connections that wait is kept: few events are new in a turn.
            """
            self._turn += 1
            chosen, ready = [], dict(events)
            for fd in ready.keys() - self._queued:
                selectable: Any = self._selectables.get(fd)
                read_bytes = getattr(selectable, "read_bytes", 0)
                if read_bytes > LONG_READ_BYTES or getattr(selectable, "shares_turns", False):
                    size_bytes = max(SMALL_BYTES, min(read_bytes, LARGE_BYTES))
                    heappush(self._queue, (size_bytes + self._turn * WAITED_BYTES, fd))
                    self._queued.add(fd)
                else:
                    chosen.append((fd, ready[fd]))
            used = 0.0
            while self._queue and used < 1:
                _, fd = heappop(self._queue)
                self._queued.remove(fd)
                if fd in ready:
                    chosen.append((fd, ready[fd]))
                    client = self._selectables.get(fd)
                    shares = getattr(client, "shares_turns", False)
                    turn_bytes = TURN_BYTES if shares else LONG_READS_BYTES
                    used += (getattr(client, "read_bytes", 0) + EVENT_BYTES) / turn_bytes
            return chosen


def install() -> None:
    """Make this reactor ``twisted.internet.reactor``, if it exists for this system."""
    if sys.platform == "linux":
        installReactor(PromptReactor())
