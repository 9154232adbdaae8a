"""Lines that must not be kept, because they seem to contain a password or token."""

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
    """Return whether a line must not be kept: it begins with a space, or seems to have a secret."""
    return text.startswith(" ") or _SECRET.search(text) is not None


def masked(text: str) -> str:
    """Return a line with its apparent secrets masked."""
    return _SECRET.sub(rf"\g<1>{MASK}", text)
