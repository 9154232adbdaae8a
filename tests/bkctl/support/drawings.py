"""Drawings held against those in ``drawings``, which ``DRAW=1`` in the environment writes anew."""

from __future__ import annotations

import os
from collections.abc import Iterable
from pathlib import Path

from bkctl.output.forms.text_width import display_width

WIDTHS = (60, 80, 120)

_HERE = Path(__file__).parents[1] / "drawings"


def check_drawing(name: str, lines: Iterable[str], width: int) -> None:
    """Compare with ``drawings/NAME-WIDTH.txt``; nothing may be wider than the width."""
    found = list(lines)
    assert all(display_width(line) <= width for line in found), [
        line for line in found if display_width(line) > width
    ]
    text = "".join(f"{line.rstrip()}\n" for line in found)
    path = _HERE / f"{name}-{width}.txt"
    if os.environ.get("DRAW"):
        path.write_text(text)
    assert text == path.read_text(), text
