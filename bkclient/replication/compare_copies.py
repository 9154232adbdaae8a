"""The copies of single entries, as each bookie returns them, compared."""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterable
from functools import partial
from itertools import islice
from typing import Final

import attrs

from bkclient.client import Client
from bkclient.concurrency import for_each, map_each
from bkclient.errors import ClientError
from bkclient.quorum.distribution import write_set
from bkclient.replication.ledger_verification import (
    Content,
    CopyReader,
    Flaw,
    content_of,
    flaw_of,
    prevalent,
)
from bkclient.replication.replica_check import OURS, LedgerView, view_ledger
from wire.codes import ENTRY_HEADER_BYTES
from wire.digest import header
from wire.ids import BookieId, EntryId, LedgerId

ENTRIES_AT_ONCE: Final = 8
"""Entries whose copies are in memory together."""


@attrs.frozen(kw_only=True)
class EntryCopy:
    """One bookie's copy of one entry, compared with the other copies."""

    ledger_id: LedgerId
    entry_id: EntryId
    bookie_id: BookieId
    flaw: Flaw | None = None
    """None for a copy that agrees with most copies."""
    why: str = ""
    lac: EntryId | None = None
    payload: bytes | None = None
    """The bytes at the payload's position, even if damaged; None if the bookie returned none."""
    is_verified: bool = False
    """True if the digest matches. It cannot be checked without a password in the metadata."""


async def compare_copies(
    client: Client, ledger_id: LedgerId, entries: Iterable[EntryId]
) -> AsyncIterator[list[EntryCopy]]:
    """Yield the copies of each entry, in the order of its write set. No writer is fenced.

    Raises:
        NoSuchLedgerError: the ledger does not exist.
        MetadataSerializationError: the ledger's metadata cannot be read.
    """
    ledger = await view_ledger(client, ledger_id)
    reader = CopyReader(client, ledger)
    iterator = iter(entries)
    while batch := list(islice(iterator, ENTRIES_AT_ONCE)):
        for copies in await map_each(batch, partial(_copies, reader, ledger), ENTRIES_AT_ONCE):
            yield copies


async def _copies(reader: CopyReader, ledger: LedgerView, entry_id: EntryId) -> list[EntryCopy]:
    ensemble = ledger.metadata.fragment_of(entry_id).ensemble
    indexes = write_set(entry_id, len(ensemble), ledger.metadata.write_quorum)
    bookies = [ensemble[index] for index in indexes]
    found: dict[BookieId, EntryCopy] = {}
    contents: dict[BookieId, Content] = {}

    async def read(bookie_id: BookieId) -> None:
        copy = EntryCopy(ledger_id=ledger.ledger_id, entry_id=entry_id, bookie_id=bookie_id)
        try:
            packet = await reader.packet(bookie_id, entry_id)
            copy = _with_bytes(copy, packet, reader.payload_at)
            contents[bookie_id] = content_of(reader.verified(bookie_id, entry_id, packet))
            copy = attrs.evolve(copy, is_verified=reader.can_verify)
        except OURS:
            raise
        except ClientError as error:
            copy = attrs.evolve(copy, flaw=flaw_of(error), why=str(error))
        found[bookie_id] = copy

    await for_each(bookies, read, len(bookies))
    if contents:
        right, why = prevalent([contents[one] for one in bookies if one in contents])
        for bookie_id, content in contents.items():
            if content != right:
                found[bookie_id] = attrs.evolve(found[bookie_id], flaw=Flaw.DIFFERING, why=why)
    return [found[bookie_id] for bookie_id in bookies]


def _with_bytes(copy: EntryCopy, packet: bytes, payload_at: int) -> EntryCopy:
    lac = header(packet).lac if len(packet) >= ENTRY_HEADER_BYTES else None
    return attrs.evolve(copy, lac=lac, payload=packet[payload_at:])
