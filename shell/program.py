"""The interface between the shell and its program: a click tree, and its objects.

The shell uses nothing else of the program, so it works with any click program.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Protocol

if TYPE_CHECKING:
    import click

Candidate = tuple[str, str]
"""A value for completion, and a short description."""


class PlaceStatus(Protocol):
    """The present state of the place that commands use."""

    @property
    def label(self) -> str:
        """The text in the prompt if ``Program.where`` returns no name."""

    @property
    def text(self) -> str:
        """One line for the bar below the prompt."""

    @property
    def problem(self) -> str:
        """The problem in a few words; empty without one."""


class Program(Protocol):
    """A program as its shell sees it.

    ``given`` are options of the tree's root that the user has set for all commands. ``candidates``
    and ``status`` may block: they run in threads of their own while commands run. If they raise,
    the shell knows no values.
    """

    @property
    def tree(self) -> click.Group:
        """All commands. Its name is the program's."""

    @property
    def obj(self) -> Any:
        """The object of each command's click context, for the life of the shell.

        A program keeps its connections between commands in this object.
        """

    @property
    def kinds(self) -> Mapping[str, click.ParamType[Any]]:
        """The words of ``use``, with the type of the arguments of each.

        The ``name`` distinguishes types.
        """

    @property
    def greeting(self) -> str:
        """The text above the first prompt."""

    def candidates(
        self, kind: str, prefix: str, given: Sequence[str]
    ) -> tuple[Sequence[Candidate], bool]:
        """Return values for parameters whose type is named ``kind``, best first.

        The flag is True if these are all values that begin with ``prefix``.
        """

    def ordered(self, command: click.Command, found: Sequence[Candidate]) -> Sequence[Candidate]:
        """Return candidates in the order in which a command most likely uses them."""

    @property
    def place(self) -> str:
        """The long name of the root's option that selects the place of commands; empty without one.

        ``use VALUE`` sets it to one of the values that its type completes to.
        """

    def go(self, place: str) -> Sequence[str]:
        """Note that commands use another place from now on.

        Return the long names of the root's options that conflict with it: they are forgotten.
        """

    def where(self, given: Sequence[str]) -> tuple[str, str]:
        """Return the name of the place of commands, and a warning about it; empty if there is none.

        Called for each prompt: must not block.
        """

    @property
    def live(self) -> frozenset[str]:
        """The names of the types for which ``candidates`` has values."""

    def status(self, given: Sequence[str]) -> PlaceStatus:
        """Return the present state of the place."""

    def may_fill(self, command: click.Command) -> bool:
        """Return whether missing arguments of a command may be filled from ``use``.

        If not, the user can still name them by a dot.
        """

    @property
    def last(self) -> Mapping[str, str]:
        """The values that were printed last, by type name; ``_`` stands for them."""

    @property
    def open_resources(self) -> Sequence[str]:
        """The resources that stay open between commands, in a few words each: ``ledger 42``."""

    def release(self, report: Callable[[str, bool], object]) -> bool:
        """Release the open resources; return whether that succeeded.

        ``report`` is called with the result of each, and True if it is a failure. Called before
        commands use another place, and at the end.
        """

    def close(self) -> None:
        """Release the connections; called once, at the end."""
