"""The width of a text in columns of a terminal, and its lines for a width."""

from __future__ import annotations

import re
import unicodedata
from typing import Final

_WORD: Final = re.compile(
    r"(?:`[^`\n]*`|(?<=: )bkctl (?:(?![;,] |\. )[^\n])+|\d{4}-\d\d-\d\d \d\d:|\S)+|\s+"
)
"""A word, or the space between words.

A time is one word, and so is a command to copy: in backquotes,
or from a colon to the end of its sentence.
"""


def wrapped(text: str, width: int) -> list[str]:
    """Return the lines of a text, broken between words.

    A word wider than ``width`` is not broken, and neither is a command to copy.
    """
    if display_width(text) <= width:
        return [text]
    lines, gap = [""], ""
    for word in _WORD.findall(text):
        if word.isspace():
            gap = word
        elif lines[-1] and display_width(lines[-1] + gap + word) > width:
            lines.append(word)
        else:
            lines[-1] += gap + word
    return lines


def widest_word(text: str) -> int:
    """Return the number of columns of a text's widest word."""
    return max(map(display_width, _WORD.findall(text)), default=0)


def display_width(text: str) -> int:
    """Return the number of columns that a terminal needs for ``text``."""
    if text.isascii():
        return len(text)
    return sum(_char_width(char) for char in text)


def first_columns(text: str, width: int) -> str:
    """Return the longest prefix of ``text`` that fits into ``width`` columns."""
    for index, char in enumerate(text):
        width -= _char_width(char)
        if width < 0:
            return text[:index]
    return text


def _char_width(char: str) -> int:
    if unicodedata.combining(char):
        return 0
    return 2 if unicodedata.east_asian_width(char) in "WF" else 1
