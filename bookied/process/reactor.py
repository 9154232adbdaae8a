"""The reactor of a bookie's process: Twisted's, with less to do for each event."""

from __future__ import annotations

import sys
from collections.abc import Callable

from twisted.internet.main import installReactor

if sys.platform == "linux":
    from twisted.internet.epollreactor import EPollReactor

    def _nothing(_: object) -> None:
        """Do nothing."""

    class PromptReactor(EPollReactor):
        """Reads and writes as Twisted's reactor of this system does.

        Twisted notes for its log which connection each event is for. That takes 5 µs, as long as
        some requests, and nothing of ours is logged with it.
        """

        before_event: Callable[[object], object] = staticmethod(_nothing)
        """Called before each event of several, with the reader or writer, and with None after all.

        An event that comes alone has no others to be gathered with, and costs no call.
        """

        def doPoll(self, timeout: float | None) -> None:
            """Wait for events, at most so many seconds, and tell whom they are for."""
            events = self._poller.poll(timeout, len(self._selectables))
            before_event = self.before_event if len(events) > 1 else _nothing
            try:
                for fd, event in events:
                    selectable = self._selectables.get(fd)
                    if selectable is not None:  # It may have gone with an event before.
                        before_event(selectable)
                        self._doReadOrWrite(selectable, fd, event)  # type: ignore[no-untyped-call]
            finally:
                before_event(None)

        doIteration = doPoll


def install() -> None:
    """Have ``twisted.internet.reactor`` be this one, where there is one for the system."""
    if sys.platform == "linux":
        installReactor(PromptReactor())  # type: ignore[no-untyped-call]
