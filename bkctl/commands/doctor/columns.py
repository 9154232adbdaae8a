"""The printed form of a finding: its columns, its colour, and its repair commands."""

from __future__ import annotations

import sys
from collections.abc import Iterable, Iterator
from typing import Final

import attrs

from bkclient.config.findings import Finding, Severity
from bkctl.output.forms.text_width import wrapped
from bkctl.output.forms.value_text import safe
from bkctl.output.views import WIDE, Column, Kind, shown

_COLORS: Final = {
    Severity.LOSS: "\x1b[1;31m",
    Severity.RISK: "\x1b[31m",
    Severity.TROUBLE: "\x1b[33m",
    Severity.NOTE: "\x1b[2m",
}
_RESET: Final = "\x1b[0m"
_INDENT: Final = 9
_TEXT_MIN: Final = 24
_LINE_MAX: Final = 160
"""Longest repair on one line, also where the width of the output is unknown."""


def _finding(v: ClusterFinding, width: int | None, color: bool) -> Iterator[str]:  # noqa: FBT001
    """Yield the finding, wrapped at words, and its repair on a line that can be copied."""
    ids = ", ".join(v.examples) + (", ..." if v.count > len(v.examples) else "")
    which = f": {ids}" if v.count == 1 and ids and not _named_in(v) else ""
    room = sys.maxsize if width is None else max(_TEXT_MIN, width - _INDENT)
    texts = wrapped(safe(f"{v.message}{which}"), room)
    if v.count > 1:
        texts += wrapped(safe(ids), room)
    word = f"{v.severity.value:<{_INDENT}}"
    yield (f"{_COLORS[v.severity]}{word}{_RESET}" if color else word) + texts[0]
    yield from (f"{'':{_INDENT}}{text}" for text in texts[1:])
    if v.fix:
        yield from (f"{'':{_INDENT}}{text}" for text in _fix(safe(v.fix), room))


def _fix(text: str, room: int) -> Iterator[str]:
    """Yield the repair of a finding; if it is too long, one line for each command."""
    is_short = len(text) + 3 <= min(room, _LINE_MAX)
    first, *others = [text] if is_short else _lines_of_fix(text, room - 3)
    yield f"-> {first}"
    yield from (f"   {one}" for one in others)


def _lines_of_fix(text: str, room: int) -> Iterator[str]:
    for number, way in enumerate(text.split(", or ")):
        either = "or " if number else ""
        why, mark, command = way.partition(": bkctl ")
        if mark:
            yield from (*wrapped(f"{either}{why}:", room), f"bkctl {command}")
        elif way.startswith("bkctl "):
            yield f"{either}{way}"
        else:
            yield from wrapped(f"{either}{way}", room)


def _named_in(v: ClusterFinding) -> bool:
    """Return whether the message itself names the examples."""
    return all(example in v.message for example in v.examples)


def _texts(ids: Iterable[object]) -> tuple[str, ...]:
    return tuple(map(str, ids))


@shown(
    "findings",
    Column("danger", "loss, risk, trouble or note.", "severity.value", Kind.STATE),
    Column("name", "Kind of the finding; the word does not change between releases.", "kind"),
    Column("what", "Description of the finding.", "message"),
    Column("fix", "Command or step that repairs the finding.", rank=1),
    Column("count", "Number of bookies, ledgers or nodes with the finding.", rank=2),
    Column("examples", "The first few bookies, ledgers or nodes.", rank=WIDE),
    id="name",
    lines=_finding,
)
@attrs.frozen
class ClusterFinding(Finding):
    """A finding about a cluster, or about the bookie on this machine."""

    examples: tuple[str, ...] = attrs.field(default=(), converter=_texts)
    count: int = 1
