"""WriterEnd: why a writer takes no more entries, and where its ledger ends."""

from __future__ import annotations

from bkclient.errors import (
    ClientClosedError,
    ClientError,
    ClientLedgerFencedError,
    LedgerClosedError,
)
from wire.ids import EntryId

NO_METADATA_AFTER = (ClientLedgerFencedError, LedgerClosedError, ClientClosedError)
"""Errors that end the handle and leave the ledger's metadata to another client."""


class WriterEnd:
    """Why a writer takes no more entries, and where its ledger ends."""

    def __init__(self) -> None:
        self.error: ClientError | None = None
        """Why; None while it takes entries, or after it closed the ledger."""
        self.at: tuple[EntryId, int] | None = None
        """The last entry and the length, once that is decided."""

    @property
    def is_left_to_others(self) -> bool:
        """Whether the ledger's metadata is no longer this writer's to change."""
        return isinstance(self.error, NO_METADATA_AFTER)

    def raise_if_left_to_others(self) -> None:
        """Raise the error that ended the writer, if another client ends the ledger."""
        if self.error is not None and self.is_left_to_others:
            raise self.error
