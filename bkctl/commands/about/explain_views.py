"""How explanations of errors are shown."""

from __future__ import annotations

import textwrap
from collections.abc import Mapping
from typing import Final

import attrs

from bkctl.commands.about.explanations import ErrorExplanation
from bkctl.output.emit import Field, Kind, View

_WIDTH: Final = 96


@attrs.frozen
class ErrorName:
    """One error in a list of all."""

    error: ErrorExplanation


def _told(error: ErrorExplanation) -> str:
    """Return an explanation as people read it."""
    of = "" if error.program == "bkctl" else f" of {error.program}"
    status = f"Exit status{of} {error.status}" + (f": {error.meaning}." if error.meaning else ".")
    parts = [f"{error.name}: {error.what}", status]
    if error.cause:
        parts.append(textwrap.fill(error.cause, _WIDTH))
    if error.steps:
        parts.append("\n".join(["What to do:", *(f"  - {step}" for step in error.steps)]))
    return "\n\n".join(parts)


EXPLAIN_VIEWS: Final[Mapping[type, View]] = {
    ErrorName: View(
        "errors",
        (
            Field("name", "Its name, for good.", lambda v: v.error.name),
            Field("status", "The exit status.", lambda v: v.error.status, Kind.COUNT),
            Field("what", "What it says.", lambda v: v.error.what, rank=1),
        ),
        "name",
    ),
    ErrorExplanation: View(
        "errors",
        (
            Field("name", "Its name, for good.", lambda v: v.name),
            Field("what", "What it says.", lambda v: v.what),
            Field("status", "The exit status.", lambda v: v.status, Kind.COUNT),
            Field("program", "Whose exit status: bkctl, or bookied.", lambda v: v.program),
            Field("meaning", "What the exit status says.", lambda v: v.meaning or None),
            Field("cause", "Why it happens.", lambda v: v.cause or None),
            Field("steps", "What to do.", lambda v: list(v.steps), Kind.NESTED),
        ),
        "name",
        sentence=_told,
    ),
}
