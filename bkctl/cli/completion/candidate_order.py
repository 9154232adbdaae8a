"""The order in which ids are offered: those first that a command is mostly about."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    import click

_FIRST: Final = {
    "decommission": ("down", "read-only"), "recover": ("down", "open", "in-recovery"),
    "close": ("open", "in-recovery"), "fence": ("open",), "add": ("open",),
}  # fmt: skip
"""What commands are mostly about, by the word that its description begins with."""

Values = list[tuple[str, str]]


def ordered(command: click.Command, found: Sequence[tuple[str, str]]) -> Values:
    """Put first what a command is mostly about: a bookie that is down, an open ledger."""
    first = _FIRST.get(command.name or "", ())

    def place(one: tuple[str, str]) -> int:
        state = one[1].partition(",")[0]
        return first.index(state) if state in first else len(first)

    return sorted(found, key=place)
