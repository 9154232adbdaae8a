"""A test of one bookie: a ledger of its own, written, read back and deleted.

Agrees with BookKeeper 4.18.0, SanityTestCommand: one replica, HMAC digest, empty password. It works
on any bookie, not only on the one of this machine.
"""

from __future__ import annotations

import attrs

from bkclient.client import Client
from bkclient.errors import ReadFailedError
from bkclient.metadata.api import Versioned
from bkclient.metadata.update import LocalMetadata
from wire.codes import DigestType
from wire.ids import NO_ENTRY, BookieId, EntryId, LedgerId
from wire.ledger_metadata import Fragment, LedgerMetadata


@attrs.frozen
class Sanity:
    """What a test of one bookie found: that all entries came back, and how long it took."""

    bookie_id: BookieId
    ledger_id: LedgerId
    entries: int
    write_s: float
    read_s: float


async def check_bookie(client: Client, bookie_id: BookieId, entries: int) -> Sanity:
    """Write entries to one bookie, read them back, and delete their ledger again.

    Raises:
        ClientError: the bookie failed one of these steps; the test ledger is deleted.
    """
    ledger_id = await client.store.allocate_ledger_id()
    metadata = LedgerMetadata(
        ensemble_size=1,
        write_quorum=1,
        ack_quorum=1,
        fragments=(Fragment(EntryId(0), (bookie_id,)),),
        digest_type=DigestType.MAC,
        password=b"",
        custom={"application": b"bkctl bookie test"},
        creator_token=client.cluster.rng.getrandbits(62) + 1,
    )
    version = await client.store.create_ledger(ledger_id, metadata)
    try:
        return await _write_and_read(client, ledger_id, Versioned(metadata, version), entries)
    finally:
        await client.delete_ledger(ledger_id)


async def _write_and_read(
    client: Client, ledger_id: LedgerId, stored: Versioned[LedgerMetadata], entries: int
) -> Sanity:
    (bookie_id,) = stored.value.ensemble
    clock = client.cluster.clock
    began_s = clock.seconds()
    payloads = [b"entry-%d" % n for n in range(entries)]
    writer = client.writer_of(ledger_id, LocalMetadata(stored), last=NO_ENTRY, length=0)
    try:
        await writer.add_many(payloads)
        await writer.drain()
        await writer.close()
    except BaseException:
        writer.abandon()
        raise
    written_s = clock.seconds()
    reader = await client.open_ledger(ledger_id)
    try:
        found = [entry.payload async for entry in reader.read()]
    finally:
        reader.close()
    if found != payloads or writer.metadata.all_bookies() != {bookie_id}:
        raise ReadFailedError(f"bookie {bookie_id} gave back other entries than it was given")
    return Sanity(bookie_id, ledger_id, entries, written_s - began_s, clock.seconds() - written_s)
