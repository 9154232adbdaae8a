"""Answers of a bookie's HTTP API as values; an answer of another form is an error."""

from __future__ import annotations

import functools
from collections.abc import Callable, Mapping
from math import isfinite
from typing import Any, ParamSpec, TypeVar, get_args, get_type_hints

from bkctl.errors import CommandError

P = ParamSpec("P")
T = TypeVar("T")


def require_known_form(ask: Callable[P, T]) -> Callable[P, T]:
    """Return a function that raises ``CommandError`` if an answer has an unexpected form."""

    @functools.wraps(ask)
    def asked(*args: P.args, **kwargs: P.kwargs) -> T:
        try:
            return ask(*args, **kwargs)
        except (AttributeError, LookupError, OverflowError, TypeError, ValueError) as error:
            raise CommandError(f"the bookie's answer has an unknown form: {error!r}") from error

    return asked


def value_of_answer(kind: type[T], found: Mapping[str, Any], **others: Any) -> T:
    """Return an answer of v2 as a value: its fields with the same name, and ``others``."""
    hints = get_type_hints(kind)
    values = {name: found[name] if name not in others else others[name] for name in hints}
    for name, value in values.items():
        hint = hints[name]
        wanted = int | hint if float in {hint, *get_args(hint)} else hint
        if not isinstance(value, wanted) or (isinstance(value, float) and not isfinite(value)):
            raise TypeError(f"{name} is {str(value)[:80]}")
    return kind(**values)
