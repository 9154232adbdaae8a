"""How many columns of a terminal a text takes, and lines that fit into so many."""

from __future__ import annotations

import re
import unicodedata
from typing import Final

_WORD: Final = re.compile(
    r"(?:`[^`\n]*`|(?<=: )bkctl (?:(?![;,] |\. )[^\n])+|\d{4}-\d\d-\d\d \d\d:|\S)+|\s+"
)
"""A word, or what is between words. A time is one word, and so is a command that is to be copied:
in backquotes, or from a colon to the end of its sentence."""


def wrapped(text: str, width: int) -> list[str]:
    """Return the lines of a text, broken between words.

    A word wider than ``width`` is not broken, nor is a command that is to be copied.
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
    """Return how many columns the widest word of a text needs."""
    return max(map(display_width, _WORD.findall(text)), default=0)


def display_width(text: str) -> int:
    """Return how many columns a terminal needs for ``text``."""
    if text.isascii():
        return len(text)
    return sum(_char_width(char) for char in text)


def first_columns(text: str, width: int) -> str:
    """Return as much of the begin of ``text`` as fits into so many columns."""
    for index, char in enumerate(text):
        width -= _char_width(char)
        if width < 0:
            return text[:index]
    return text


def _char_width(char: str) -> int:
    if unicodedata.combining(char):
        return 0
    return 2 if unicodedata.east_asian_width(char) in "WF" else 1
