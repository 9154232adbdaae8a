"""The elements of drawings in a terminal: bars, sparklines, charts; in Unicode or ASCII.

A drawing is lines of text and depends only on values, so tests compare it with snapshots.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from typing import Final

import attrs

from bkctl.output.forms.text_width import display_width, first_columns
from bkctl.output.forms.value_text import safe
from bkctl.output.state_colors import GREEN, RED, STATE_COLORS, YELLOW

WIDTH_DEFAULT: Final = 80
"""The width without a terminal that reports one."""

_DIM, _BOLD = "2", "1"

_LEVELS: Final = " ▁▂▃▄▅▆▇█"
_LEVELS_ASCII: Final = " .:-=+*#@"
_EIGHTHS: Final = " ▏▎▍▌▋▊▉█"
_NEARLY_FULL: Final = 0.9
_FULL: Final = 0.95
_LABEL_WIDTH: Final = 9
_DOTS: Final = ((0x40, 0x04, 0x02, 0x01), (0x80, 0x20, 0x10, 0x08))
"""The bits of a braille cell's dots: left and right column, from the bottom up."""


@attrs.frozen
class Canvas:
    """The terminal features that a drawing may use: width in columns, Unicode, colour."""

    width: int = WIDTH_DEFAULT
    unicode: bool = True
    color: bool = False
    utc: bool = False
    """True for times in UTC, false for the reader's zone."""

    def pick(self, unicode: str, plain: str) -> str:
        """Return ``unicode`` if the terminal can show it, else ``plain``."""
        return unicode if self.unicode else plain

    def paint(self, text: str, code: str) -> str:
        """Return ``text`` in a colour, if colours are allowed."""
        return f"\x1b[{code}m{text}\x1b[0m" if self.color and code and text else text

    def state(self, text: str, state: str) -> str:
        """Return ``text`` in the colour of a state."""
        return self.paint(text, STATE_COLORS.get(state, ""))

    def bold(self, text: str) -> str:
        return self.paint(text, _BOLD)

    def dim(self, text: str) -> str:
        return self.paint(text, _DIM)

    def fitted(self, text: str, width: int) -> str:
        """Return ``text`` in exactly ``width`` columns, cut at the end if it is longer.

        Control characters are replaced.
        """
        text = safe(text)
        if len(begin := first_columns(text, width)) < len(text):
            text = first_columns(begin, width - 1) + self.pick("…", "~")[: max(0, width)]
        return text + " " * (width - display_width(text))

    def rule(self, title: str) -> str:
        """Return a line over the whole width with a title in it."""
        line = self.pick("─", "-")
        head = f"{line * 2} {title} "
        return head + line * max(0, self.width - display_width(head))

    def bar(self, share: float, width: int) -> str:
        """Return a bar of ``width`` columns, filled to a share; its colour depends on the share."""
        share = min(max(share, 0.0), 1.0)
        if self.unicode:
            eighths = round(share * width * 8)
            if share > 0:
                eighths = max(eighths, 1)
            whole, part = divmod(eighths, 8)
            filled = "█" * whole + (_EIGHTHS[part] if part else "")
            empty = "░" * (width - len(filled))
        else:
            filled = "#" * round(share * width)
            empty = "." * (width - len(filled))
        code = RED if share >= _FULL else YELLOW if share >= _NEARLY_FULL else GREEN
        return self.paint(filled, code) + self.dim(empty)

    def sparkline(self, values: Sequence[float | None], width: int) -> str:
        """Return the last ``width`` values as one line, from 0 to the highest of them.

        An unknown value is a blank; a small value differs from zero.
        """
        shown = list(values)[-width:]
        top = max((value for value in shown if value is not None), default=0.0)
        levels = self.pick(_LEVELS, _LEVELS_ASCII)
        steps = len(levels) - 1

        def level(value: float | None) -> str:
            if value is None:
                return " "
            if top <= 0:
                return levels[1]
            return levels[max(1, min(steps, math.ceil(value / top * steps)))]

        return "".join(map(level, shown)).rjust(width)

    def chart(
        self,
        values: Sequence[float | None],
        height: int,
        label: Callable[[float], str],
        footer: tuple[str, str] = ("", ""),
    ) -> list[str]:
        """Return a curve over the full width with its scale on the left, the oldest value left.

        ``footer`` is the text below its left and its right end.
        """
        known = [value for value in values if value is not None]
        low, high = min(known, default=0.0), max(known, default=0.0)
        low = 0.0 if low >= 0 and low < high / 2 else low
        high = high if high > low else low + 1.0
        scale = [high - (high - low) * row / (height - 1) for row in range(height)]
        labels = [label(scale[0]), *[""] * (height - 2), label(scale[-1])]
        labels[height // 2] = label(scale[height // 2])
        room = max(*map(display_width, labels), _LABEL_WIDTH)
        columns = max(1, self.width - room - 2)
        shares = [None if v is None else (v - low) / (high - low) for v in values]
        rows = (
            self._braille(shares, columns, height)
            if self.unicode
            else _stars(shares, columns, height)
        )
        axis = self.pick("┤", "|")
        lines = [
            f"{text.rjust(room)} {axis}{row}".rstrip()
            for text, row in zip(labels, rows, strict=True)
        ]
        base = " " * (room + 1) + self.pick("└", "+") + self.pick("─", "-") * columns
        left, right = footer
        below = " " * (room + 2) + left + right.rjust(columns - display_width(left))
        return [*lines, base, below.rstrip()]

    def _braille(self, shares: Sequence[float | None], columns: int, height: int) -> list[str]:
        cells = [[0] * columns for _ in range(height)]
        points = _resampled(shares, columns * 2)
        before: int | None = None
        for x, share in enumerate(points):
            if share is None:
                before = None
                continue
            y = round(share * (height * 4 - 1))
            # Joined with the previous point, so that a jump is a line and not two dots.
            for dot in range(min(y, y if before is None else before), max(y, before or y) + 1):
                cells[height - 1 - dot // 4][x // 2] |= _DOTS[x % 2][dot % 4]
            before = y
        return ["".join(chr(0x2800 + cell) if cell else " " for cell in row) for row in cells]


def _stars(shares: Sequence[float | None], columns: int, height: int) -> list[str]:
    rows = [[" "] * columns for _ in range(height)]
    for x, share in enumerate(_resampled(shares, columns)):
        if share is not None:
            rows[height - 1 - round(share * (height - 1))][x] = "*"
    return ["".join(row) for row in rows]


def _resampled(values: Sequence[float | None], count: int) -> list[float | None]:
    """Return ``count`` values: means if there are more, the nearest value if there are fewer."""
    if not values:
        return [None] * count
    found: list[float | None] = []
    for n in range(count):
        first = n * len(values) // count
        last = max(first + 1, (n + 1) * len(values) // count)
        known = [value for value in values[first:last] if value is not None]
        found.append(sum(known) / len(known) if known else None)
    return found


def supports_unicode(environ: Mapping[str, str], encoding: str | None) -> bool:
    """Return whether output may contain Unicode, from the locale and the stream's encoding."""
    if environ.get("TERM") == "dumb":
        return False
    locale = next((environ[n] for n in ("LC_ALL", "LC_CTYPE", "LANG") if environ.get(n)), None)
    if locale is not None and "utf8" not in locale.lower().replace("-", ""):
        return False
    return (encoding or "").lower().replace("-", "") == "utf8"
