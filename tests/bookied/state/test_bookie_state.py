"""The bookie's states: every pair, one by one."""

from __future__ import annotations

import itertools

import pytest

from bookied.state.bookie_state import SERVING, TRANSITIONS, BookieLifecycle, Event, State
from wire.errors import LocalProtocolError


@pytest.mark.parametrize(("state", "event"), list(itertools.product(State, Event)))
def test_every_pair_of_state_and_event_moves_as_the_table_says_or_is_refused(state, event) -> None:
    bookie = BookieLifecycle()
    bookie.now = state
    after = TRANSITIONS.get((state, event))
    if after is None:
        with pytest.raises(LocalProtocolError, match=f"'{event.value}' while {state.value}"):
            bookie.move(event)
        assert bookie.now is state
    else:
        assert bookie.move(event) is bookie.now is after


def test_a_bookie_goes_from_starting_to_stopped() -> None:
    bookie, writable = BookieLifecycle(), State.WRITABLE
    events = Event.STARTED, Event.TURN_READ_ONLY, Event.TURN_WRITABLE, Event.STOP, Event.DRAINED
    assert list(map(bookie.move, events)) == [
        writable,
        State.READ_ONLY,
        writable,
        State.STOPPING,
        State.STOPPED,
    ]


@pytest.mark.parametrize("state", [State.STARTING, State.WRITABLE, State.READ_ONLY])
def test_every_state_can_stop(state: State) -> None:
    bookie = BookieLifecycle()
    bookie.now = state
    assert bookie.move(Event.STOP) is State.STOPPING
    assert bookie.move(Event.DRAINED) is State.STOPPED


def test_only_registered_states_serve() -> None:
    assert {State.WRITABLE, State.READ_ONLY} == SERVING
