"""A recorded session as one animated SVG: the screens of a terminal, one after the other.

A line is drawn once for as long as it stays. Waits are shortened. A viewer that animates nothing
shows the last screen.
"""

from __future__ import annotations

import html
import io
import itertools
import re
import time
from collections.abc import Callable, Iterator, Sequence
from typing import Final

import attrs
from rich.color import Color
from rich.console import Console
from rich.segment import Segment
from rich.style import Style
from rich.terminal_theme import SVG_EXPORT_THEME
from rich.text import Text

from tests.shell.screen import Terminal

FRAME_S_MIN: Final = 0.12
"""How long a screen is shown at least: words that are typed are seen one by one."""
FRAME_S_MAX: Final = 1.2
"""How long a screen that does not change is shown at most."""
READ_S: Final = 1.8
"""How long what a command has printed is shown."""
END_S: Final = 6.0
"""How long the last screen is shown before it begins again."""
_CHAR_WIDTH: Final = 12.2
_LINE_HEIGHT: Final = 24.4
_BASELINE: Final = 18.5


@attrs.frozen
class Frame:
    """A screen and when it was seen, in seconds; ``is_result``: a command has just ended."""

    at_s: float
    lines: tuple[Text, ...]
    is_result: bool = False


class Recorder:
    """Types at a terminal and keeps what is on its screen while that changes."""

    def __init__(
        self, screen: Terminal, shown: Callable[[Terminal], list[Text]], prompt: str
    ) -> None:
        self.frames: list[Frame] = []
        self._screen, self._shown, self._prompt = screen, shown, prompt

    def look(self, wait_s: float = 0.1) -> None:
        """Draw what comes in this time, and keep the screen if it is another one."""
        self._screen.read(wait_s)
        lines = tuple(self._shown(self._screen))
        if not self.frames or [*map(_key, lines)] != [*map(_key, self.frames[-1].lines)]:
            self.frames.append(Frame(time.monotonic(), lines))

    def run(self, line: str, timeout_s: float = 90.0) -> None:
        """Type a command word by word, and look until the prompt is back."""
        for word in re.findall(r"\S+\s*", line):
            self._screen.type(word)
            self.look(0.15)
        self._screen.type("\r")
        deadline_s = time.monotonic() + timeout_s
        above = self._screen.screen.cursor.y
        while self._screen.screen.cursor.y <= above or not self._is_prompting():
            assert time.monotonic() < deadline_s, "\n".join(self._screen.lines)
            self.look()
        self.frames[-1] = attrs.evolve(self.frames[-1], is_result=True)

    def _is_prompting(self) -> bool:
        return self._screen.lines[self._screen.screen.cursor.y] == self._prompt.rstrip()


@attrs.frozen
class _Shown:
    """A line at its place, from one moment to another, in seconds of the animation."""

    row: int
    line: Text
    begin_s: float
    end_s: float


def animated(frames: Sequence[Frame], *, title: str, columns: int, name: str) -> str:
    """Return an SVG that shows the frames one after the other, for ever."""
    rows = max(len(frame.lines) for frame in frames)
    console = Console(
        record=True, width=columns, file=io.StringIO(), force_terminal=True, legacy_windows=False
    )
    for _ in range(rows):
        console.print()
    empty = console.export_svg(title=title, unique_id=name)
    total_s, shown = _spans(frames)
    drawn = "\n".join(_drawn(one, total_s) for one in shown)
    matrix = f'<g class="{name}-matrix">'
    before, found, after = empty.partition(matrix)
    assert found, "rich draws its text in a group of this class"
    return f"{before}{matrix}\n{drawn}\n{after[after.index('</g>') :]}"


def _spans(frames: Sequence[Frame]) -> tuple[float, list[_Shown]]:
    """Return how long it all takes, and each line with its time; long waits are cut."""
    times_s = [0.0]
    for one, other in itertools.pairwise(frames):
        passed_s = max(FRAME_S_MIN, min(FRAME_S_MAX, other.at_s - one.at_s))
        times_s.append(times_s[-1] + (READ_S if one.is_result else passed_s))
    total_s = times_s[-1] + END_S
    rows = max(len(frame.lines) for frame in frames)
    return total_s, [span for row in range(rows) for span in _row(frames, times_s, total_s, row)]


def _row(
    frames: Sequence[Frame], times_s: Sequence[float], total_s: float, row: int
) -> Iterator[_Shown]:
    line, begin_s = Text(""), 0.0
    for frame, at_s in zip(frames, times_s, strict=True):
        new = frame.lines[row] if row < len(frame.lines) else Text("")
        if _key(new) != _key(line):
            if line.plain.strip():
                yield _Shown(row, line, begin_s, at_s)
            line, begin_s = new, at_s
    if line.plain.strip():
        yield _Shown(row, line, begin_s, total_s)


def _key(line: Text) -> tuple[str, str]:
    return line.plain, str(line.spans)


def _drawn(shown: _Shown, total_s: float) -> str:
    """Return a line as SVG. Its last screen is what a viewer without animations shows."""
    y = shown.row * _LINE_HEIGHT + _BASELINE
    texts = "".join(_texts(shown.line, y))
    begin, end = shown.begin_s / total_s, shown.end_s / total_s
    if begin == 0 and end >= 1:
        return f"<g>{texts}</g>"
    steps = [(0.0, "hidden"), (begin, "visible"), (end, "hidden")]
    steps = [one for n, one in enumerate(steps) if one[0] < 1 and (n or begin > 0)]
    values = ";".join(value for _, value in steps)
    moments = ";".join(f"{at:.4f}".rstrip("0").rstrip(".") or "0" for at, _ in steps)
    still = "visible" if end >= 1 else "hidden"
    return (
        f'<g visibility="{still}">{texts}<animate attributeName="visibility" values="{values}" '
        f'keyTimes="{moments}" calcMode="discrete" dur="{total_s:.2f}s" '
        'repeatCount="indefinite"/></g>'
    )


def _texts(line: Text, y: float) -> Iterator[str]:
    """Yield the texts of a line, each in one style."""
    x = 0
    for segment in line.render(Console(file=io.StringIO())):
        width = len(segment.text)
        if segment.text.strip():
            yield _text(segment, x, y)
        x += width


def _text(segment: Segment, x: int, y: float) -> str:
    style = segment.style or Style()
    text = segment.text.rstrip()
    ahead = len(text) - len(text.lstrip())
    text = text.lstrip()
    bold = ' font-weight="bold"' if style.bold else ""
    return (
        f'<text x="{(x + ahead) * _CHAR_WIDTH:.1f}" y="{y:.1f}" fill="{_hex(style.color)}"{bold} '
        f'textLength="{len(text) * _CHAR_WIDTH:.1f}">'
        f"{html.escape(text, quote=False).replace(' ', '&#160;')}</text>"
    )


def _hex(color: Color | None) -> str:
    chosen = color or Color.default()
    return chosen.get_truecolor(SVG_EXPORT_THEME).hex
