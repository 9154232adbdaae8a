"""What a broken rule is made of; ``mutations`` has them all."""

from __future__ import annotations

import contextlib
import inspect
from collections.abc import Callable, Iterator
from typing import Any
from unittest.mock import patch

import attrs

Patches = Callable[[contextlib.ExitStack], None]


@attrs.frozen
class Mutation:
    """One broken rule."""

    what: str
    rule: str
    """Where client.md has it."""
    breaks: frozenset[str]
    """The invariants that may be the first to notice."""
    apply: Patches
    theme: str
    """Of which theme the seeds are that have to notice, or which scenario has to."""
    seeds_max: int
    """They have to notice within so many seeds of that theme; 0 for a scenario."""

    @contextlib.contextmanager
    def built_in(self) -> Iterator[None]:
        """Break the rule as long as the block lasts."""
        with contextlib.ExitStack() as stack:
            self.apply(stack)
            yield


def put(stack: contextlib.ExitStack, where: Any, **changes: Any) -> None:
    """Let these names mean something else there.

    Raises:
        TypeError: a function cannot be called like the one it replaces.
    """
    for name, value in changes.items():
        _require_same_call(getattr(where, name), value)
        stack.enter_context(patch.object(where, name, value))


def _require_same_call(usual: Any, value: Any) -> None:
    """Refuse a function that cannot be called like the one it replaces."""
    if not (inspect.isfunction(usual) and inspect.isfunction(value)):
        return
    wanted = inspect.signature(usual).parameters.values()
    by_place = [one for one in wanted if one.kind is not one.KEYWORD_ONLY]
    by_name = {one.name: None for one in wanted if one.kind is one.KEYWORD_ONLY}
    inspect.signature(value).bind(*by_place, **by_name)


def switch(
    what: str, rule: str, breaks: str, apply: Patches, theme: str, seeds_max: int
) -> Mutation:
    """Describe a mutation; ``breaks`` are names of invariants with spaces between."""
    return Mutation(what, rule, frozenset(breaks.split()), apply, theme, seeds_max)
