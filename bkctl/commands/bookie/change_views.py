"""What the fields of the doctor's findings are, and of changes to a bookie's id and directories."""

from __future__ import annotations

import sys
from collections.abc import Iterator, Mapping
from typing import Final

from bkctl.commands.bookie.ledgers_of import BookieUpdated
from bkctl.commands.bookie.rename import IdFlipped, StorageExpanded
from bkctl.commands.doctor.state import Danger, Finding
from bkctl.output.emit import WIDE, Field, Kind, View
from bkctl.output.table import wrapped
from bkctl.output.units import counted

_BOOKIE: Final = Field("bookie_id", "The bookie.", lambda v: v.bookie_id, header="BOOKIE")
_WAS: Final = Field("was", "What it was before.", lambda v: v.was)


def _flipped(v: IdFlipped) -> str:
    ledgers = (
        "its ledgers list the old id still" if v.ledgers is None
        else f"renamed in {counted(v.ledgers, 'ledger')}"
    )  # fmt: skip
    return f"bookie {v.was} is {v.bookie_id} now: {ledgers}; it can be started"


def _expanded(v: StorageExpanded) -> str:
    if not v.added:
        return f"bookie {v.bookie_id} has all its directories already"
    return f"bookie {v.bookie_id} may use {', '.join(v.added)} too; it can be started"


def _updated(v: BookieUpdated) -> str:
    return f"{counted(v.ledgers, 'ledger')} changed from {v.old} to {v.new}"


_COLORS: Final = {
    Danger.LOSS: "\x1b[1;31m",
    Danger.RISK: "\x1b[31m",
    Danger.TROUBLE: "\x1b[33m",
    Danger.NOTE: "\x1b[2m",
}
_RESET: Final = "\x1b[0m"
_INDENT: Final = 9
_TEXT_MIN: Final = 24


def _finding(v: Finding, width: int | None, color: bool) -> Iterator[str]:  # noqa: FBT001
    """Yield what is wrong, wrapped at words; and what repairs it, on a line that can be copied."""
    ids = ", ".join(v.examples) + (", ..." if v.count > len(v.examples) else "")
    which = f": {ids}" if v.count == 1 and ids and not _named_in(v) else ""
    room = sys.maxsize if width is None else max(_TEXT_MIN, width - _INDENT)
    texts = wrapped(f"{v.what}{which}", room)
    if v.count > 1:
        texts += wrapped(ids, room)
    word = f"{v.danger.value:<{_INDENT}}"
    yield (f"{_COLORS[v.danger]}{word}{_RESET}" if color else word) + texts[0]
    yield from (f"{'':{_INDENT}}{text}" for text in texts[1:])
    yield f"{'':{_INDENT}}-> {v.fix}"


def _named_in(v: Finding) -> bool:
    """Tell whether the sentence names its examples itself."""
    return all(example in v.what for example in v.examples)


BOOKIE_CHANGE_VIEWS: Final[Mapping[type, View]] = {
    Finding: View(
        "findings",
        (
            Field("danger", "loss, risk, trouble or note.", lambda v: v.danger.value, Kind.STATE),
            Field("name", "A stable word for this kind.", lambda v: v.name),
            Field("what", "What is wrong.", lambda v: v.what),
            Field("fix", "What repairs it.", lambda v: v.fix, rank=1),
            Field("count", "How many it is about.", lambda v: v.count, Kind.COUNT, rank=2),
            Field(
                "examples", "The first of them.", lambda v: list(v.examples), Kind.NESTED, rank=WIDE
            ),
        ),
        "name",
        lines=_finding,
    ),
    IdFlipped: View(
        "bookies",
        (
            _BOOKIE,
            _WAS,
            Field("directories", "VERSION files.", lambda v: v.directories, Kind.COUNT),
            Field("ledgers", "Ledgers renamed.", lambda v: v.ledgers, Kind.COUNT),
        ),
        "bookie_id",
        sentence=_flipped,
    ),
    StorageExpanded: View(
        "bookies",
        (_BOOKIE, Field("added", "New directories.", lambda v: list(v.added), Kind.NESTED)),
        "bookie_id",
        sentence=_expanded,
    ),
    BookieUpdated: View(
        "updates",
        (
            Field("old", "The old id.", lambda v: v.old),
            Field("new", "The new id.", lambda v: v.new),
            Field("ledgers", "Ledgers changed.", lambda v: v.ledgers, Kind.COUNT),
            Field(
                "skipped",
                "Ledgers left as they are, and why.",
                lambda v: [
                    {"ledger_id": str(one.ledger_id), "outcome": one.outcome.value, "why": one.why}
                    for one in v.skipped
                ],
                Kind.NESTED,
            ),
        ),
        "new",
        sentence=_updated,
    ),
}
