"""Consecutive entries of one ledger as one buffer with offsets, without an object for each.

Arrow stores a column of binary values in this form, and the payloads can be written to a file or a
pipe with one write.
"""

from __future__ import annotations

from array import array
from collections.abc import Iterator
from itertools import accumulate
from typing import Final

import attrs

from wire.codes import ENTRY_HEADER_BYTES
from wire.digest import Entry, VerifiedEntries
from wire.ids import EntryId, LedgerId

PAYLOAD_BYTES_MAX: Final = 2**31 - 1
"""The largest offset in a batch."""


@attrs.frozen
class EntryBatch:
    """Verified entries of one ledger with consecutive ids.

    Java's nearest is LedgerEntries, the value of ``ReadHandle.batchRead``.

    Attributes:
        ledger_id: the ledger of the entries.
        first_entry_id: the id of the first entry.
        payloads: all payloads, one after the other, with nothing between them.
        offsets: one more than there are entries, signed 32-bit in the machine's order: payload
            ``i`` is ``payloads[offsets[i]:offsets[i + 1]]``. Arrow's offsets of a binary column.
        headers: 32 bytes for each entry, big-endian: ledger id, entry id, LAC, length
            (``wire.digest.ENTRY_HEADER``).
    """

    ledger_id: LedgerId
    first_entry_id: EntryId
    payloads: bytes = attrs.field(repr=False)
    offsets: array[int] = attrs.field(repr=False)
    headers: bytes = attrs.field(repr=False)

    def __len__(self) -> int:
        return len(self.offsets) - 1

    @property
    def entry_ids(self) -> range:
        """The ids of the entries."""
        return range(self.first_entry_id, self.first_entry_id + len(self))

    @property
    def last_entry_id(self) -> EntryId:
        """The id of the last entry."""
        return EntryId(self.first_entry_id + len(self) - 1)

    def payload(self, index: int) -> bytes:
        """Return the payload of the entry at ``index``, counted from 0; copies it."""
        return self.payloads[self.offsets[index] : self.offsets[index + 1]]

    def entries(self) -> list[Entry]:
        """Return an object for each entry; copies the payloads."""
        starts = range(0, len(self.headers), ENTRY_HEADER_BYTES)
        headers = [self.headers[at : at + ENTRY_HEADER_BYTES] for at in starts]
        return VerifiedEntries(headers, [self.payload(i) for i in range(len(self))]).entries()


def batches(ledger_id: LedgerId, first: int, found: VerifiedEntries) -> Iterator[EntryBatch]:
    """Yield these entries, consecutive from ``first`` on, as one batch.

    If their payloads are more than ``PAYLOAD_BYTES_MAX``, each entry is a batch of its own.
    """
    headers, payloads = found
    if sum(map(len, payloads)) <= PAYLOAD_BYTES_MAX:
        yield _batch(ledger_id, first, headers, payloads)
        return
    for at in range(len(payloads)):
        yield _batch(ledger_id, first + at, headers[at : at + 1], payloads[at : at + 1])


def _batch(
    ledger_id: LedgerId, first: int, headers: list[bytes], payloads: list[bytes]
) -> EntryBatch:
    offsets = array("i", accumulate(map(len, payloads), initial=0))
    return EntryBatch(ledger_id, EntryId(first), b"".join(payloads), offsets, b"".join(headers))
