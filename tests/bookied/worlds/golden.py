"""The golden directories: what real Java bookies wrote, and what it means."""

from __future__ import annotations

import hashlib
import json
from pathlib import Path
from typing import Any

DIRECTORY = Path(__file__).parents[2] / "vectors" / "storage"

WITH_LEDGERS = [
    "interleaved/clean",
    "interleaved/journal-v4-index-v0",
    "interleaved/rotated",
    "sorted/clean",
]
CRASHED = ["interleaved/crash", "sorted/crash"]


def expected(name: str) -> Any:
    """Return what a golden set holds."""
    return json.loads((DIRECTORY / name / "expected.json").read_text("utf-8"))


def sha256(data: bytes) -> str:
    """Return a digest as the sets state it."""
    return hashlib.sha256(data).hexdigest()
