"""The order of completed ids: first the ids that the command usually handles."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    import click

_FIRST: Final = {
    "decommission": ("down", "read-only"), "recover": ("down", "open", "in-recovery"),
    "close": ("open", "in-recovery"), "fence": ("open",), "add": ("open",),
}  # fmt: skip
"""The states that a command usually handles; a candidate's description begins with its state."""

Values = list[tuple[str, str]]


def ordered(command: click.Command, found: Sequence[tuple[str, str]]) -> Values:
    """Sort candidates: first those in the command's usual states, such as a bookie that is down."""
    first = _FIRST.get(command.name or "", ())

    def place(one: tuple[str, str]) -> int:
        state = one[1].partition(",")[0]
        return first.index(state) if state in first else len(first)

    return sorted(found, key=place)
