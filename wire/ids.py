"""The three kinds of id, as distinct types so that two of them cannot change places."""

from __future__ import annotations

from typing import Final, NewType

LedgerId = NewType("LedgerId", int)
"""A ledger's number: 0 to 2**63 - 1 on the wire; we never create ``LEDGER_ID_REFUSED``."""

EntryId = NewType("EntryId", int)
"""An entry's place in its ledger: 0-based and dense. ``NO_ENTRY`` stands for "none yet"."""

BookieId = NewType("BookieId", str)
"""A bookie's name in metadata: ``host:port`` or a configured word."""

NO_ENTRY: Final = EntryId(-1)
"""The last entry of an empty ledger; in a read request: the entry with the highest id."""

LEDGER_ID_REFUSED: Final = LedgerId(2**63 - 1)
"""A ledger with this id makes Java's garbage collectors delete every ledger; never create it."""
