"""Names of the safety checks, for ``--force``."""

from __future__ import annotations

from typing import Final

REGISTERED: Final = "registered"
"""The bookie is not running."""

OPEN_LEDGERS: Final = "open-ledgers"
"""No ledger that the bookie has is open for writing."""

ONLY_COPIES: Final = "only-copies"
"""Every entry of the bookie can be copied from other bookies."""

UNVERIFIED: Final = "unverified"
"""The new bookie has the entries."""

TOO_FEW: Final = "too-few-bookies"
"""Enough bookies remain for every replica."""

TOO_LITTLE_SPACE: Final = "too-little-space"
"""The other bookies have space for the replicas."""

OTHERS_LOST: Final = "others-lost"
"""No repair of another lost bookie is in progress."""

TOO_FEW_RACKS: Final = "few-racks"
"""A replacement in an allowed rack exists, if racks are enforced."""

LEDGERS: Final = "ledgers"
"""No ledger would be lost."""

LIVE_BOOKIES: Final = "live-bookies"
"""No bookie is registered."""

ROOT: Final = "root"
"""The root of the metadata is empty."""

CONTENT: Final = "content"
"""The cookie is this bookie's, and of this cluster."""

DAMAGED_MARK: Final = "damaged-mark"
"""The mark of an under-replicated ledger can be read."""

UNREAD: Final = "unread-entries"
"""All cursors of the log have read the entries to delete."""

REFUSES_IF: Final = {
    REGISTERED: "the bookie is registered",
    ONLY_COPIES: "some entries are on this bookie alone",
    UNVERIFIED: "NEW does not return the entries",
    OTHERS_LOST: "other lost bookies are not repaired yet",
    TOO_FEW_RACKS: "no other bookie is in an allowed rack",
}
"""The reason for a refusal, if the check's name does not say it; for help."""
