"""Messages wrapped at words for a terminal."""

from __future__ import annotations

import os
import re
from typing import Final, TextIO

from bkctl.environment_and_streams import columns_of_environment
from bkctl.output.forms.text_width import wrapped
from bkctl.output.forms.value_text import safe

_NO_SPACES: Final = re.compile(r"\S+")
_LONG_CHARS: Final = 500
_WIDTH_MIN: Final = 20


def fitted(text: str, stream: TextIO) -> str:
    """Return ``text`` with its lines wrapped at words to the width of the terminal ``stream``.

    A command stays on one line, so that it can be copied. Text for a pipe is not wrapped. Control
    characters are always replaced. So is the middle of a word of thousands of characters: nodes of
    the metadata may have long names.
    """
    text = _NO_SPACES.sub(_without_middle, safe(text))
    columns = _columns(stream) if stream.isatty() else None
    if columns is None:
        return text
    width = max(_WIDTH_MIN, columns)
    return "\n".join(part for line in text.split("\n") for part in wrapped(line, width))


def _without_middle(found: re.Match[str]) -> str:
    word = found[0]
    return word if len(word) <= _LONG_CHARS else f"{word[:200]}...{word[-50:]}"


def _columns(stream: TextIO) -> int | None:
    """Return the terminal's width, or None if unknown; ``COLUMNS`` overrides the terminal."""
    if (given := columns_of_environment()) is not None:
        return given
    try:
        return os.get_terminal_size(stream.fileno()).columns or None  # A new pty has no size.
    except (ValueError, OSError):
        return None
