"""The three kinds of id, as distinct types so that they cannot be confused, and their rules."""

from __future__ import annotations

import re
from functools import lru_cache
from typing import Final, NewType

LedgerId = NewType("LedgerId", int)
"""A ledger's number: 0 to 2**63 - 1 on the wire; bkclient never creates ``LEDGER_ID_REFUSED``."""

EntryId = NewType("EntryId", int)
"""An entry's position in its ledger, from 0 without gaps. ``NO_ENTRY`` means "none yet"."""

BookieId = NewType("BookieId", str)
"""A bookie's name in metadata: ``host:port`` or a configured word."""

NO_ENTRY: Final = EntryId(-1)
"""The last entry of an empty ledger; in a read request: the entry with the highest id."""

LEDGER_ID_REFUSED: Final = LedgerId(2**63 - 1)
"""A ledger with this id makes Java's garbage collectors delete every ledger; never create it."""

BOOKIE_ID_CHARS_MAX: Final = 1024
"""Java has no limit. A host name has 253 characters at most."""

_BOOKIE_ID: Final = re.compile(r"[A-Za-z0-9:-_.\-]+")
_READ_ONLY: Final = "readonly"
_NOT_NAMES: Final = frozenset({".", ".."})
"""Names that ZooKeeper refuses for a node."""


def is_valid_bookie_id(text: str) -> bool:
    """Return whether Java accepts a bookie id and a bookie can be registered under it.

    Java's pattern has ``:-_`` as a range, so everything from ``:`` to ``_`` passes (BookieId).
    """
    return len(text) <= BOOKIE_ID_CHARS_MAX and _matches(text)


@lru_cache(4096)  # The same ids occur in every fragment of every ledger.
def _matches(text: str) -> bool:
    is_name = _BOOKIE_ID.fullmatch(text) is not None and text.lower() != _READ_ONLY
    return is_name and text not in _NOT_NAMES
