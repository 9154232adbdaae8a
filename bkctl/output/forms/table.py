"""Tables as text that fit a width: texts are wrapped at words, then columns are left out.

If the columns that may not be left out are still too wide, each row becomes a record: one line for
each cell, after its title. No cell is ever cut: ids, numbers and times stay on one line.
"""

from __future__ import annotations

import itertools
from collections.abc import Container, Iterable, Iterator, Mapping, Sequence
from typing import Any, Final

import attrs

from bkctl.output.forms.text_width import display_width, widest_word, wrapped
from bkctl.output.state_colors import STATE_COLORS

_GAP: Final = "  "
_WRAPPED_MIN: Final = 24
"""Narrower columns are never wrapped: their text would be one word a line."""
_BOLD: Final = "\x1b[1m"
_REVERSE: Final = "\x1b[7m"
_RESET: Final = "\x1b[0m"


@attrs.frozen
class Cell:
    """The text of a cell; ``state`` allows the colour of its first word."""

    text: str
    state: bool = False
    changed: bool = False
    """True if the text differs from the last round of a watch."""


class Table:
    """A table that is printed while its rows arrive.

    The first rows set the widths of the columns.
    """

    def __init__(
        self,
        columns: Sequence[tuple[str, int, bool]],
        *,
        width: int | None,
        headers: bool = True,
        color: bool = False,
        records: bool = False,
        if_any: Container[int] = (),
    ) -> None:
        """``columns``: title, rank (0 is never left out, the highest is the first), right-aligned.

        ``records`` allows records if the columns do not fit side by side. ``if_any`` has the
        indexes of columns that are left out if the first rows have only dashes in them.
        """
        self._columns, self._width, self._if_any = columns, width, if_any
        self._filled: list[int] = []
        """The indexes of the columns that are not left out."""
        self._headers, self._color = headers, color
        self._widths: list[int] = []
        self._wrapped: frozenset[int] = frozenset()
        self._shown: list[int] = []
        self._form = ""
        """A format string for a line of texts in which each character is one column wide."""
        self._may_be_records, self._as_records = records and headers, False
        self._has_record = False
        self.started = False

    @property
    def hidden(self) -> list[str]:
        """The titles of columns that did not fit."""
        return [self._columns[n][0] for n in self._filled if n not in self._shown]

    def lines(self, rows: Sequence[Sequence[Cell | str]]) -> Iterator[str]:
        """Yield the lines of some more rows, after the header the first time.

        A text is a cell without a colour.
        """
        if not self.started:
            self._start(rows)
            if self._headers and not self._as_records:
                line = self._line([title for title, _, _ in self._columns])
                yield f"{_BOLD}{line}{_RESET}" if self._color else line
        for row in rows:
            if self._as_records:
                yield from self._record(row)
            elif self._wrapped:
                yield from map(self._line, self._lines_of(row))
            else:
                yield self._line(row)

    def _start(self, rows: Sequence[Sequence[Cell | str]]) -> None:
        self.started = True
        titles = [display_width(title) if self._headers else 0 for title, _, _ in self._columns]
        self._widths = [
            max([title, *(display_width(_text(row[n])) for row in rows)])
            for n, title in enumerate(titles)
        ]
        self._filled = [
            n
            for n in range(len(self._columns))
            if n not in self._if_any or any(_text(row[n]) != "-" for row in rows)
        ]
        self._shown = list(self._filled)
        if self._width is not None:
            self._fit(self._width, self._narrowest(rows))
            self._as_records = self._may_be_records and self._total() > self._width
        if self._as_records:
            self._shown = list(self._filled)
        aligned = (f"%{'' if self._columns[n][2] else '-'}{self._widths[n]}s" for n in self._shown)
        self._form = _GAP.join(aligned)

    def _narrowest(self, rows: Sequence[Sequence[Cell | str]]) -> dict[int, int]:
        """Return the minimum width of each column whose texts can be wrapped."""
        found = {}
        for n, (title, _, right) in enumerate(self._columns):
            if right or self._widths[n] <= _WRAPPED_MIN:
                continue
            words = (widest_word(_text(row[n])) for row in rows)
            least = max([_WRAPPED_MIN, display_width(title), *words])
            if least < self._widths[n]:
                found[n] = least
        return found

    def _fit(self, width: int, narrowest: Mapping[int, int]) -> None:
        """Leave out columns if wrapping is not enough, then wrap texts as far as needed."""

        def spare() -> int:
            return sum(self._widths[n] - narrowest[n] for n in self._shown if n in narrowest)

        while self._total() - spare() > width:
            rank, last = max((self._columns[n][1], n) for n in self._shown)
            if rank == 0:
                break
            self._shown.remove(last)
        shrunk = set()
        while (over := self._total() - width) > 0 and spare():
            some = [n for n in self._shown if self._widths[n] > narrowest.get(n, self._widths[n])]
            widest = max(some, key=lambda n: self._widths[n])
            step = max(1, over // (2 * len(some)))  # So that texts become about equally wide.
            self._widths[widest] -= min(step, self._widths[widest] - narrowest[widest])
            shrunk.add(widest)
        self._wrapped = frozenset(shrunk)

    def _record(self, row: Sequence[Cell | str]) -> Iterator[str]:
        """Yield the lines of a row as titles and cells, with an empty line between two rows."""
        if self._has_record:
            yield ""
        self._has_record = True
        cells = [cell if isinstance(cell, Cell) else Cell(cell) for cell in row]
        titled = ((self._columns[n][0], cells[n]) for n in self._filled)
        yield from vertical(titled, color=self._color, width=self._width)

    def _lines_of(self, row: Sequence[Cell | str]) -> Iterator[list[Cell | str]]:
        """Yield the lines of a row that has wrapped texts."""
        texts = [
            wrapped(_text(cell), self._widths[n]) if n in self._wrapped else [_text(cell)]
            for n, cell in enumerate(row)
        ]
        for line in itertools.zip_longest(*texts, fillvalue=""):
            yield [_with_text(cell, text) for cell, text in zip(row, line, strict=True)]

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
    """Return whether all cells are plain texts with one column for each character."""
    try:
        return "".join(cells).isascii()
    except TypeError:
        return False


def _with_text(cell: Cell | str, text: str) -> Cell | str:
    """Return a cell with one line of its text."""
    return text if isinstance(cell, str) else attrs.evolve(cell, text=text)


def _text(cell: Cell | str) -> str:
    return cell if isinstance(cell, str) else cell.text


def vertical(
    pairs: Iterable[tuple[str, Cell]], *, color: bool = False, width: int | None = None
) -> Iterator[str]:
    """Yield one object as lines of title and text; further lines of a text are indented.

    Texts are wrapped at words to fit ``width``; None means no limit.
    """
    known = list(pairs)
    indent = max((display_width(title) for title, _ in known), default=0)
    room = None if width is None else max(_WRAPPED_MIN, width - indent - len(_GAP))
    for title, cell in known:
        lines = cell.text.split("\n")
        if room is not None:
            lines = [part for line in lines for part in wrapped(line, room)]
        head = title.lower()
        for line in lines:
            text = colored(attrs.evolve(cell, text=line)) if color else line
            yield f"{head:{indent}}{_GAP}{text}".rstrip()
            head = ""


def colored(cell: Cell) -> str:
    """Return the cell's text, reversed if it changed, or in the colour of its state."""
    if cell.changed:
        return f"{_REVERSE}{cell.text}{_RESET}"
    if not cell.state:
        return cell.text
    word = cell.text.lower().partition(" ")[0]
    code = STATE_COLORS.get(word)
    return f"\x1b[{code}m{cell.text}{_RESET}" if code else cell.text
