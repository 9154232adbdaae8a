"""Rows of figures, Java's and ours, as one table."""

from __future__ import annotations

import statistics
from collections.abc import Iterable

import attrs


@attrs.frozen
class Figure:
    """One figure of one kind of bookie, client or tool."""

    row: str
    kind: str
    """``java`` or ``ours``."""
    value: float
    unit: str
    is_rate: bool
    """Whether more is better."""


@attrs.define
class Row:
    """A row: what each round gave."""

    unit: str
    is_rate: bool
    java: list[float] = attrs.field(factory=list)
    ours: list[float] = attrs.field(factory=list)

    @property
    def ratios(self) -> list[float]:
        """How many times as fast ours is as Java's, ascending; empty without both."""
        pairs = [(o, j) for o, j in zip(self.ours, self.java, strict=False) if o and j]
        return sorted(o / j if self.is_rate else j / o for o, j in pairs)


Rows = dict[str, Row]


def add_round(rows: Rows, figures: Iterable[Figure]) -> None:
    """Add what one round of a bench found."""
    for one in figures:
        row = rows.setdefault(one.row, Row(one.unit, one.is_rate))
        (row.java if one.kind == "java" else row.ours).append(one.value)


def table(rows: Rows) -> str:
    """Return the rows as a table of Markdown; those that Java leads are marked."""
    lines = ["| | Java | ours | ours is faster by | |", "| --- | --- | --- | --- | --- |"]
    lines += [_line(name, row) for name, row in rows.items()]
    return "\n".join(lines)


def _line(name: str, row: Row) -> str:
    java, ours = (_value(found, row.unit) for found in (row.java, row.ours))
    ratios = row.ratios
    ratio, mark = "", ""
    if ratios:
        median = statistics.median(ratios)
        ratio = f"{median:.2f}"
        if len(ratios) > 1:
            ratio += f" ({ratios[0]:.2f} to {ratios[-1]:.2f})"
        mark = "Java leads" if median < 1 else ""
    return f"| {name} | {java} | {ours} | {ratio} | {mark} |"


def _value(found: list[float], unit: str) -> str:
    if not found:
        return ""
    value = statistics.median(found)
    digits = 0 if value >= 100 else 1
    return f"{value:,.{digits}f} {unit}"
