"""Manual pages as text: the input is prose, the output roff with the macros of man(7).

Prose is split after sentences and into short lines, as linters of manual pages require; words in
`backquotes` become bold.
"""

from __future__ import annotations

import inspect
import re
import textwrap
from collections.abc import Iterable
from typing import Final

LINE_CHARS_MAX: Final = 78
_GUARD: Final = "\\&"
NO_REWRAP: Final = "\b"
"""A paragraph that begins with this, as in click's help texts, is not changed."""

_SENTENCE: Final = re.compile(r"(?<=[.!?])\s+(?=[A-Z0-9`\"'(-])(?=(?:[^`]*`[^`]*`)*[^`]*$)")
"""The space between two sentences; never one in `backquotes`."""
_CODE: Final = re.compile(r"`([^`\n]+)`")
_OPTION: Final = re.compile(r"(?<![\w-])(--?[A-Za-z][\w-]*)")
_VARIABLE: Final = re.compile(r"\b([A-Z][A-Z0-9]*(?:_[A-Z0-9]+)*)\b|(\[[^]]*\]|\{[^}]*\})")


class Page:
    """One manual page in progress."""

    def __init__(self, name: str, section: int, *, about: str, date: str, source: str) -> None:
        """``about`` is the line in indexes of manual pages."""
        self.name, self.section = name, section
        self._lines = [
            '.\\" Made by `python -m bkctl.manual.generate`; change what it is made from.',
            f'.TH {escaped(name.upper())} {section} {date} "{source}" "Manual of bkctl"',
        ]
        # Left-aligned and without hyphenation: the text is read on a terminal.
        self._lines += [".ad l", ".nh"]
        self.title("NAME")
        self._lines += _wrapped(f"{escaped(name)} \\- {escaped(about)}")

    @property
    def text(self) -> str:
        return "\n".join(self._lines) + "\n"

    def title(self, text: str) -> None:
        self._lines.append(f'.SH "{escaped(text)}"')

    def subtitle(self, text: str) -> None:
        self._lines.append(f'.SS "{escaped(text)}"')

    def paragraph(self, text: str) -> None:
        """Add one paragraph of prose."""
        before = self._lines[-1]
        if not before.startswith((".SH", ".SS")):
            self._lines.append(".PP")
        self._lines += prose(text)

    def help(self, text: str) -> None:
        """Add a help text in click's form: paragraphs, some of them unchanged."""
        for paragraph in re.split(r"\n\s*\n", inspect.cleandoc(text)):
            first, _, rest = paragraph.partition("\n")
            if first.strip() == NO_REWRAP:
                self.literal(rest.splitlines())
            else:
                self.paragraph(paragraph)

    def literal(self, lines: Iterable[str]) -> None:
        """Add unchanged lines."""
        self._lines += [".PP", ".RS 4", ".nf", *map(_guarded, map(escaped, lines)), ".fi", ".RE"]

    def item(self, head: str, text: str) -> None:
        """Add a text under ``head``, which is roff already: see ``bold`` and ``usage``."""
        self._lines += [".TP", _guarded(head), *(prose(text) or ["\\&"])]

    def under(self, text: str) -> None:
        """Add a paragraph to the last item."""
        self._lines += [".IP", *prose(text)]

    def small_list(self, items: Iterable[tuple[str, str]]) -> None:
        """Add short words, each with its meaning, in two columns."""
        self._lines.append(".PD 0")
        for word, text in items:
            self._lines += [".TP 6", bold(word), *prose(text)]
        self._lines.append(".PD")

    def synopsis(self, lines: Iterable[tuple[str, str]]) -> None:
        """Add the usage of a program: its words, and its arguments."""
        for number, (words, rest) in enumerate(lines):
            self._lines += [".br"] * (number > 0)
            self._lines += _wrapped(f"{bold(words)} {usage(rest)}")


def escaped(text: str) -> str:
    """Return text escaped for roff, so that a copy from the page is unchanged."""
    done = text.replace("\\", "\\e").replace("-", "\\-").replace("'", "\\(aq")
    done = done.replace("`", "\\(ga").replace("^", "\\(ha").replace("~", "\\(ti")
    done = done.replace('"', "\\(dq")
    return "".join(c if c.isascii() else f"\\[u{ord(c):04X}]" for c in done)


def bold(text: str) -> str:
    """Return text in bold: to be typed literally."""
    return f"\\fB{escaped(text)}\\fR"


def italic(text: str) -> str:
    """Return text in italics: a placeholder."""
    return f"\\fI{escaped(text)}\\fR"


def usage(text: str) -> str:
    """Return names of options in bold and placeholders of values in italics."""
    found = []
    place = 0
    for match in re.finditer(f"{_OPTION.pattern}|{_VARIABLE.pattern}", text):
        found.append(escaped(text[place : match.start()]))
        word = match.group()
        found.append(bold(word) if word.startswith("-") else italic(word))
        place = match.end()
    found.append(escaped(text[place:]))
    return "".join(found)


def prose(text: str) -> list[str]:
    """Return the lines of a paragraph."""
    lines: list[str] = []
    for sentence in _SENTENCE.split(" ".join(text.split())):
        lines += _wrapped(_inline(sentence))
    return lines


def _wrapped(roff: str) -> list[str]:
    lines = _guarded_at(roff, LINE_CHARS_MAX)
    if any(len(line) > LINE_CHARS_MAX for line in lines):  # The guard of a line makes it longer.
        lines = _guarded_at(roff, LINE_CHARS_MAX - len(_GUARD))
    return lines


def _guarded_at(roff: str, width: int) -> list[str]:
    lines = textwrap.wrap(roff, width, break_long_words=False, break_on_hyphens=False)
    return [_guarded(line) for line in lines]


def _inline(sentence: str) -> str:
    """Return roff of a sentence: code and options in bold, the rest unchanged."""
    parts = _CODE.split(sentence)
    return "".join(bold(one) if n % 2 else _plain(one) for n, one in enumerate(parts))


def _plain(text: str) -> str:
    parts = _OPTION.split(text)
    return "".join(
        bold(one) if n % 2 else escaped(one).replace("\\-", "-") for n, one in enumerate(parts)
    )


def _guarded(line: str) -> str:
    """Protect a line from being read as a request."""
    return f"{_GUARD}{line}" if line.startswith((".", "'")) else line
