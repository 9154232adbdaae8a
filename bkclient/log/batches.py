"""Batches of ledgers that a log takes at once: written by many, listed by one compare-and-swap.

Each ledger of a batch says in its custom metadata which batch of which stream it is. So a batch
that is offered again, by a writer that does not know whether it was taken, is taken once.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from bkclient.client import Client
from bkclient.errors import NoSuchLedgerError
from bkclient.log.record import LogRecord
from wire.ids import LedgerId
from wire.ledger_metadata import LedgerMetadata

STREAM_KEY: Final = "bkctl.stream"
"""The custom metadata of a batch's ledgers: which stream of batches it belongs to."""

BATCH_KEY: Final = "bkctl.batch"
"""The number of the batch in its stream, ascending, in decimal."""

OFFER_AGE_S: Final = 12 * 3600.0
"""How old a ledger may be when its batch is taken."""

SWEEP_AGE_S: Final = 2 * OFFER_AGE_S
"""Younger ledgers of a batch are not swept: the batch may yet be taken."""

SWEPT_KEY: Final = "bkctl.swept"
"""The custom metadata of a batch's ledger that a sweep deletes: no log lists it from then on.

The ages above compare clocks of several hosts. They only keep a sweep from ending live batches.
"""


def batch_of(custom: dict[str, bytes] | None, stream: str) -> int | None:
    """Return which batch of a stream a ledger is, by its custom metadata; None for any other."""
    if not custom or custom.get(STREAM_KEY) != stream.encode():
        return None
    number = custom.get(BATCH_KEY, b"")
    return int(number) if number.isdigit() else None


async def last_batch(client: Client, record: LogRecord, stream: str) -> int | None:
    """Return the last batch of a stream that a log has taken; None where it has none.

    The record has it, unless many other streams wrote since, or an earlier release did. Then the
    ledgers say it, which are looked at from the end; trimmed ones are not there any more.
    """
    for name, number in record.batches:
        if name == stream:
            return number
    for ledger in reversed(record.ledgers):
        try:
            metadata = (await client.read_metadata(ledger.ledger_id)).value
        except NoSuchLedgerError:
            continue
        found = batch_of(dict(metadata.custom), stream)
        if found is not None:
            return found
    return None


async def entries_taken(client: Client, record: LogRecord, stream: str, number: int) -> int | None:
    """Return how many entries a log has of a batch; None unless it has all ledgers of the batch."""
    counts: list[int] = []
    for ledger in reversed(record.ledgers):
        try:
            metadata = (await client.read_metadata(ledger.ledger_id)).value
        except NoSuchLedgerError:
            return None
        if batch_of(dict(metadata.custom), stream) == number:
            counts.append(_entries(metadata))
        elif counts:
            return sum(counts)
    return None if record.trimmed or not counts else sum(counts)


async def entries_of(client: Client, ledger_ids: Sequence[LedgerId]) -> int:
    """Return how many entries closed ledgers have.

    Raises:
        NoSuchLedgerError: a ledger is missing.
    """
    return sum([_entries((await client.read_metadata(one)).value) for one in ledger_ids])


def _entries(metadata: LedgerMetadata) -> int:
    return 0 if metadata.last_entry_id is None else metadata.last_entry_id + 1


async def is_settled(client: Client, record: LogRecord) -> bool:
    """Return whether the last ledger came with a batch: then all ledgers are closed for good."""
    last: LedgerId | None = record.last_ledger_id
    if last is None:
        return True
    metadata = (await client.read_metadata(last)).value
    return metadata.is_closed and BATCH_KEY in metadata.custom
