"""Which pairs of state and event the writer's rules and those of recovery have met."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator
from typing import Any, Final
from unittest.mock import patch

from bkclient.quorum.add_rules import AddQuorum
from bkclient.quorum.recovery_rules import Recovery

Cover = Callable[[str, Any, str], None]

RECOVERY_STATES: Final = ("fencing", "reading", "writing back", "ended")
RECOVERY_EVENTS: Final = (
    "fence_answered",
    "fence_failed",
    "read_answered",
    "read_failed",
    "wrote_back",
    "write_back_failed",
    "measured",
)
IMPOSSIBLE: Final = frozenset(
    {("fencing", event) for event in RECOVERY_EVENTS if not event.startswith("fence")}
    | {("reading", "measured")}
)
"""What cannot come in these states of a recovery: it has not been asked for yet."""


@contextlib.contextmanager
def noted(cover: Cover) -> Iterator[None]:
    """Tell ``cover`` of each event as long as the block lasts: part, state, event."""
    with contextlib.ExitStack() as stack:
        stack.enter_context(patch.object(AddQuorum, "handle", _of_writer(cover)))
        for event in RECOVERY_EVENTS:
            stack.enter_context(patch.object(Recovery, event, _of_recovery(cover, event)))
        yield


def _of_writer(cover: Cover) -> Any:
    usual = AddQuorum.handle

    def handle(self: AddQuorum, event: Any) -> Any:
        cover("writer", self.state.name, type(event).__name__)
        return usual(self, event)

    return handle


def _of_recovery(cover: Cover, event: str) -> Any:
    usual = getattr(Recovery, event)

    def handle(self: Recovery, *arguments: Any) -> Any:
        cover("recovery", _state_of(self), event)
        return usual(self, *arguments)

    return handle


def _state_of(recovery: Recovery) -> str:
    if recovery.ended:
        return "ended"
    if not recovery.fenced:
        return "fencing"
    return "writing back" if recovery._end_found else "reading"


def everything() -> dict[str, set[tuple[str, str]]]:
    """Return the pairs that can be met, by part."""
    writer = {(state.name, event.__name__) for state, event in AddQuorum.TRANSITIONS}
    recovery = {(state, event) for state in RECOVERY_STATES for event in RECOVERY_EVENTS}
    return {"writer": writer, "recovery": recovery - IMPOSSIBLE}
