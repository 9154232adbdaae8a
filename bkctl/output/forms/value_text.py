"""Values as one text, without control characters."""

from __future__ import annotations

import json
from typing import Any

from wire.control_characters import printable


def safe(text: str) -> str:
    """Return ``text`` without control characters: its source may be anybody."""
    return printable(text, keep="\n")


def text_of(value: Any) -> str:
    """Return a table's text for a value without its own form for people."""
    if isinstance(value, dict):
        value = [f"{key}={flat(inner)}" for key, inner in value.items()] or "-"
    return safe(flat(value))


def flat(value: Any) -> str:
    """Return a value of a machine form as one text."""
    if isinstance(value, str):
        return value
    if type(value) is int:  # Most cells of long tables; json takes five times as long.
        return str(value)
    if isinstance(value, (list, tuple)) and all(isinstance(element, str) for element in value):
        return " ".join(value)
    return "" if value is None else json.dumps(value)
