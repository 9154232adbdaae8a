"""What looks like a password, a token or the like in a line, and must not be kept."""

from __future__ import annotations

import re
from typing import Final

_SECRET: Final = re.compile(
    r"""(?ix) ( (?: pass(?:word|wd|phrase)? | secret | token | credential ) s?
                (?! [\w-]* (?:file|stdin)\b ) [\w.-]* [=\s:]\s* )
        ( '[^']*' | "[^"]*" | \S+ )"""
)
MASK: Final = "***"


def is_private(text: str) -> bool:
    """Tell whether a line must not be kept: it begins with a space, or seems to hold a secret."""
    return text.startswith(" ") or _SECRET.search(text) is not None


def masked(text: str) -> str:
    """Return a line with what seems to be secret in it replaced."""
    return _SECRET.sub(rf"\g<1>{MASK}", text)
