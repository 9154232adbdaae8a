"""The reactor of a bookie's process: Twisted's reactor with less work for each event."""

from __future__ import annotations

import sys
from collections.abc import Callable

from twisted.internet.main import installReactor

if sys.platform == "linux":
    from twisted.internet.epollreactor import EPollReactor

    def _nothing(_: object) -> None:
        """Do nothing."""

    class PromptReactor(EPollReactor):
        """A reactor that reads and writes as Twisted's reactor of this system.

        Twisted notes in its log context which connection each event belongs to. That takes 5 µs, as
        long as some requests, and bookied's log does not use the note.
        """

        before_event: Callable[[object], object] = staticmethod(_nothing)
        """Called before each of several events with the reader or writer, and with None after all
        events.

        A single event cannot be gathered with others, so there is no call for it.
        """

        def doPoll(self, timeout: float | None) -> None:
            """Wait at most ``timeout`` seconds, and pass each event to its reader or writer."""
            events = self._poller.poll(timeout, len(self._selectables))
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


def install() -> None:
    """Make this reactor ``twisted.internet.reactor``, if it exists for this system."""
    if sys.platform == "linux":
        installReactor(PromptReactor())  # type: ignore[no-untyped-call]
