"""The path of a ledger's index file below ``current`` of an index directory. Agrees with Java's.

``<hex((id >> 8) & 0xff)>/<hex(id & 0xff)>/<hex id>.idx``.
"""

from __future__ import annotations

import re
from pathlib import Path
from typing import Final

_NAME: Final = re.compile(r"([0-9a-f]{1,16})\.idx")
_ID_LIMIT: Final = 2**63

MOVING: Final = ".rloc"
"""The suffix of a file that is being moved to another directory."""

TEMPORARY: Final = ".tmp"
"""The suffix of a new file until it is complete; Java ignores files with it."""


DIRECTORY_NAME: Final = re.compile(r"[0-9a-f]{1,2}")
"""The names of the directories of index files, on both levels."""


def relative_path(ledger_id: int) -> Path:
    """Return the path of a ledger's index file below ``current`` of an index directory."""
    return Path(relative_name(ledger_id))


def relative_name(ledger_id: int) -> str:
    """Return ``relative_path`` as text, which is quicker to join to a directory."""
    return f"{ledger_id >> 8 & 0xFF:x}/{ledger_id & 0xFF:x}/{ledger_id:x}.idx"


def ledger_id(name: str) -> int | None:
    """Return the ledger of the index file with this name; None if it is not an index file."""
    match = _NAME.fullmatch(name)
    number = int(match[1], 16) if match else _ID_LIMIT
    return number if number < _ID_LIMIT else None
