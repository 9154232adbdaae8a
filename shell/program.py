"""What the shell is told of the program it serves: a click tree, and what to hand to it.

Nothing else of the program is known here, so that any program made with click can have this shell.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Protocol

if TYPE_CHECKING:
    import click

Candidate = tuple[str, str]
"""A value that could be typed, and a few words about it."""


class PlaceStatus(Protocol):
    """How what the program works on is now."""

    @property
    def label(self) -> str:
        """What the prompt shows where ``Program.where`` gives no name."""

    @property
    def text(self) -> str:
        """One line for the bar below the prompt."""

    @property
    def trouble(self) -> str:
        """What is wrong, in a few words; empty when nothing is."""


class Program(Protocol):
    """A program as its shell sees it.

    ``given`` are words of options of the tree's root, as the user has set them for all commands.
    ``candidates`` and ``status`` may block: they are called on threads of their own, and commands
    go on meanwhile. What they raise counts as nothing known.
    """

    @property
    def tree(self) -> click.Group:
        """All commands. Its name is the program's."""

    @property
    def obj(self) -> Any:
        """What every command gets as the object of its click context; lives as long as the shell.

        It is here that a program keeps its connections from one command to the next.
        """

    @property
    def kinds(self) -> Mapping[str, click.ParamType[Any]]:
        """What ``use`` can name, each with the type that such arguments of commands have.

        The ``name`` distinguishes types.
        """

    @property
    def greeting(self) -> str:
        """What is said once, above the first prompt."""

    def candidates(
        self, kind: str, prefix: str, given: Sequence[str]
    ) -> tuple[Sequence[Candidate], bool]:
        """Return values for parameters whose type has the name ``kind``, best first.

        The flag says whether these are all that begin with ``prefix``.
        """

    def ordered(self, command: click.Command, found: Sequence[Candidate]) -> Sequence[Candidate]:
        """Return candidates in the order in which a command has most likely use for them."""

    @property
    def place(self) -> str:
        """The root's option that says where commands go, by its long name; empty for none.

        ``use VALUE`` sets it to one of the values that its type completes to.
        """

    def go(self, place: str) -> Sequence[str]:
        """Be told that commands go to a place from now on.

        Return the options of the root, by their long names, that said otherwise until now: they are
        forgotten.
        """

    def where(self, given: Sequence[str]) -> tuple[str, str]:
        """Return the name of where commands go, and a word of warning about it; or nothing.

        Called for each prompt: must not block.
        """

    @property
    def live(self) -> frozenset[str]:
        """The names of the types that ``candidates`` knows."""

    def status(self, given: Sequence[str]) -> PlaceStatus:
        """Return how things are."""

    def may_fill(self, command: click.Command) -> bool:
        """Tell whether missing arguments of a command may come from ``use``.

        Where they may not, they can still be named by a dot.
        """

    @property
    def last(self) -> Mapping[str, str]:
        """What was printed last of each kind, by the names of types: ``_`` stands for it."""

    @property
    def held(self) -> Sequence[str]:
        """What is kept open from one command to the next, in a few words each: ``ledger 42``."""

    def hand_back(self, tell: Callable[[str, bool], object]) -> bool:
        """Close in order what is held; return whether that has succeeded.

        ``tell`` hears what became of each, and whether that is a failure. Called before commands
        go to another place, and at the end.
        """

    def close(self) -> None:
        """Release the connections; called once, at the very end."""
