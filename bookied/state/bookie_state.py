"""What a bookie is doing, as a table: starting, writable, read-only, stopping, stopped."""

from __future__ import annotations

import enum
from typing import Final

from wire.errors import LocalProtocolError


class State(enum.Enum):
    """Where a bookie is in its life."""

    STARTING = "starting"
    """No client is served, nothing is registered."""
    WRITABLE = "writable"
    READ_ONLY = "read-only"
    STOPPING = "stopping"
    """No new connections; requests in progress are finished."""
    STOPPED = "stopped"


class Event(enum.Enum):
    """What moves it on."""

    STARTED = "started"
    STARTED_READ_ONLY = "started read-only"
    TURN_READ_ONLY = "turn read-only"
    TURN_WRITABLE = "turn writable"
    STOP = "stop"
    """Asked for, or for a failure."""
    DRAINED = "drained"


TRANSITIONS: Final = {
    (State.STARTING, Event.STARTED): State.WRITABLE,
    (State.STARTING, Event.STARTED_READ_ONLY): State.READ_ONLY,
    (State.STARTING, Event.STOP): State.STOPPING,
    (State.WRITABLE, Event.TURN_READ_ONLY): State.READ_ONLY,
    (State.WRITABLE, Event.STOP): State.STOPPING,
    (State.READ_ONLY, Event.TURN_WRITABLE): State.WRITABLE,
    (State.READ_ONLY, Event.STOP): State.STOPPING,
    (State.STOPPING, Event.DRAINED): State.STOPPED,
}
"""A pair that is absent must not happen."""

SERVING: Final = frozenset({State.WRITABLE, State.READ_ONLY})
"""The states in which a bookie is registered and answers."""


class BookieLifecycle:
    """The state of one bookie."""

    def __init__(self) -> None:
        self.now = State.STARTING

    def move(self, event: Event) -> State:
        """Return the state that ``event`` leads to.

        Raises:
            LocalProtocolError: it leads nowhere from here.
        """
        after = TRANSITIONS.get((self.now, event))
        if after is None:
            raise LocalProtocolError(f"'{event.value}' while {self.now.value}")
        self.now = after
        return after
