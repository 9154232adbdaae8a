"""The states of a bookie as a table: starting, writable, read-only, stopping, stopped."""

from __future__ import annotations

import enum
from typing import Final

from wire.errors import LocalProtocolError


class State(enum.Enum):
    """A state of a bookie."""

    STARTING = "starting"
    """The bookie serves no client and is not registered."""
    WRITABLE = "writable"
    READ_ONLY = "read-only"
    STOPPING = "stopping"
    """The bookie accepts no connection and finishes the requests in progress."""
    STOPPED = "stopped"


class Event(enum.Enum):
    """An event that changes the state."""

    STARTED = "started"
    STARTED_READ_ONLY = "started read-only"
    TURN_READ_ONLY = "turn read-only"
    TURN_WRITABLE = "turn writable"
    STOP = "stop"
    """A request to stop, or a failure."""
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
"""The next state for each state and event; other pairs must not occur."""

SERVING: Final = frozenset({State.WRITABLE, State.READ_ONLY})
"""The states in which a bookie is registered and answers."""


class BookieLifecycle:
    """The state of one bookie."""

    def __init__(self) -> None:
        self.now = State.STARTING

    def move(self, event: Event) -> State:
        """Return the state after ``event``.

        Raises:
            LocalProtocolError: the event must not occur in the present state.
        """
        after = TRANSITIONS.get((self.now, event))
        if after is None:
            raise LocalProtocolError(f"'{event.value}' while {self.now.value}")
        self.now = after
        return after
