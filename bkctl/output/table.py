"""Tables as text: columns that give way where there is no room, cells that are never cut."""

from __future__ import annotations

import unicodedata
from collections.abc import Iterable, Iterator, Sequence
from typing import Any, Final

import attrs

_GAP: Final = "  "
_BOLD: Final = "\x1b[1m"
_REVERSE: Final = "\x1b[7m"
_RESET: Final = "\x1b[0m"
_STATE_COLORS: Final = {
    "\x1b[32m": ("open", "writable", "up", "ready", "ok"),
    "\x1b[33m": ("in-recovery", "read-only", "starting", "stopping"),
    "\x1b[31m": ("down", "failed", "missing"),
}


@attrs.frozen
class Cell:
    """A cell's text; a ``state`` may be coloured by its word."""

    text: str
    state: bool = False
    changed: bool = False
    """Not as it was in the last round of a watch."""


class Table:
    """A table that is printed as its rows come. The first rows set the widths of the columns."""

    def __init__(
        self,
        columns: Sequence[tuple[str, int, bool]],
        *,
        width: int | None,
        headers: bool = True,
        color: bool = False,
    ) -> None:
        """``columns``: title, rank (0 never gives way, the highest goes first), right-aligned."""
        self._columns, self._width = columns, width
        self._headers, self._color = headers, color
        self._widths: list[int] = []
        self._shown: list[int] = []
        self._form = ""
        """A line of texts in which each character takes one column."""
        self.started = False

    @property
    def hidden(self) -> list[str]:
        """The titles of columns that had no room."""
        return [c[0] for n, c in enumerate(self._columns) if self.started and n not in self._shown]

    def lines(self, rows: Sequence[Sequence[Cell | str]]) -> Iterator[str]:
        """Yield the lines of some more rows, after the header the first time.

        A text stands for a cell that has no colour of its own.
        """
        if not self.started:
            self._start(rows)
            if self._headers:
                line = self._line([title for title, _, _ in self._columns])
                yield f"{_BOLD}{line}{_RESET}" if self._color else line
        yield from (self._line(row) for row in rows)

    def _start(self, rows: Sequence[Sequence[Cell | str]]) -> None:
        self.started = True
        titles = [display_width(title) if self._headers else 0 for title, _, _ in self._columns]
        self._widths = [
            max([title, *(display_width(_text(row[n])) for row in rows)])
            for n, title in enumerate(titles)
        ]
        self._shown = list(range(len(self._columns)))
        while self._width is not None and self._total() > self._width:
            rank, last = max((self._columns[n][1], n) for n in self._shown)
            if rank == 0:
                break
            self._shown.remove(last)
        aligned = (f"%{'' if self._columns[n][2] else '-'}{self._widths[n]}s" for n in self._shown)
        self._form = _GAP.join(aligned)

    def _total(self) -> int:
        return sum(self._widths[n] for n in self._shown) + len(_GAP) * (len(self._shown) - 1)

    def _line(self, cells: Sequence[Cell | str]) -> str:
        if _are_ascii(cells):
            return (self._form % tuple([cells[n] for n in self._shown])).rstrip()
        parts = []
        for n in self._shown:
            cell, width, right = cells[n], self._widths[n], self._columns[n][2]
            text = _text(cell)
            fill = " " * (width - display_width(text))
            if self._color and isinstance(cell, Cell):
                text = colored(cell)
            parts.append(fill + text if right else text + fill)
        return _GAP.join(parts).rstrip()


def _are_ascii(cells: Sequence[Any]) -> bool:
    """Tell whether these are nothing but texts of which each character takes one column."""
    try:
        return "".join(cells).isascii()
    except TypeError:
        return False


def _text(cell: Cell | str) -> str:
    return cell if isinstance(cell, str) else cell.text


def vertical(pairs: Iterable[tuple[str, Cell]], color: bool = False) -> Iterator[str]:  # noqa: FBT001, FBT002
    """Yield one object as lines of title and text; further lines of a text are indented."""
    known = list(pairs)
    width = max((display_width(title) for title, _ in known), default=0)
    for title, cell in known:
        first, *more = (colored(cell) if color else cell.text).split("\n")
        yield f"{title.lower():{width}}{_GAP}{first}".rstrip()
        yield from (f"{'':{width}}{_GAP}{line}" for line in more)


def colored(cell: Cell) -> str:
    """Return the cell's text, reversed if it changed, or in the colour of the state it names."""
    if cell.changed:
        return f"{_REVERSE}{cell.text}{_RESET}"
    if not cell.state:
        return cell.text
    word = cell.text.lower().partition(" ")[0]
    for code, words in _STATE_COLORS.items():
        if word in words:
            return f"{code}{cell.text}{_RESET}"
    return cell.text


def display_width(text: str) -> int:
    """Return how many columns a terminal needs for ``text``."""
    if text.isascii():
        return len(text)
    return sum(_char_width(char) for char in text)


def _char_width(char: str) -> int:
    if unicodedata.combining(char):
        return 0
    return 2 if unicodedata.east_asian_width(char) in "WF" else 1
