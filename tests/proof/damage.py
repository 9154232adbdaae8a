"""Damage to the files of a stopped bookie.

Only entry logs are damaged. What a bookie of ours cannot see from its files alone, it cannot refuse
to answer for: a zeroed slot of an index, an index file that is missing, a fence bit (tests/sim).
"""

from __future__ import annotations

import random
from pathlib import Path
from typing import Final

HEADER_BYTES: Final = 1024
"""An entry log's own header; what follows are entries."""


def entry_logs(directory: Path) -> list[Path]:
    """Return the entry logs of a bookie that hold any entries."""
    return sorted(
        path for path in directory.rglob("*.log")
        if path.parent.name == "current" and path.stat().st_size > HEADER_BYTES
    )  # fmt: skip


def flip(directory: Path, rng: random.Random) -> str:
    """Turn one bit of one entry log over; return what was done."""
    if not (logs := entry_logs(directory)):
        return "no entry log yet"
    path = rng.choice(logs)
    data = bytearray(path.read_bytes())
    at = rng.randrange(HEADER_BYTES, len(data))
    data[at] ^= 1 << rng.randrange(8)
    path.write_bytes(data)
    return f"a bit of {path.name} at {at}"


def truncate(directory: Path, rng: random.Random) -> str:
    """Cut one entry log short; return what was done."""
    if not (logs := entry_logs(directory)):
        return "no entry log yet"
    path = rng.choice(logs)
    before = path.stat().st_size
    after = rng.randrange(HEADER_BYTES, before)
    with path.open("r+b") as file:
        file.truncate(after)
    return f"{path.name} cut from {before} to {after} bytes"
