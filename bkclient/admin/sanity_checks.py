"""Sanity checks of a cluster and of one bookie: a ledger from create to delete, timed.

The check of a cluster replaces BookKeeper 4.18.0, SimpleTestCommand: entries with CRC32C, read once
before the ledger is closed and once after. Unlike in Java, the read entries are compared with the
written ones.

The check of a bookie agrees with BookKeeper 4.18.0, SanityTestCommand: one replica, HMAC digest,
empty password. It works with any bookie, not only with the one on this host.
"""

from __future__ import annotations

import contextlib
from collections.abc import Awaitable, Callable
from typing import TypeVar

import attrs

from bkclient.client import Client
from bkclient.errors import ReadFailedError
from bkclient.ledger.reader import LedgerReader
from bkclient.metadata.ledger_metadata_updates import LocalMetadata
from bkclient.metadata.versions_and_watches import Versioned
from wire.codes import DigestType
from wire.ids import NO_ENTRY, BookieId, EntryId, LedgerId
from wire.ledger_metadata import Fragment, LedgerMetadata

T = TypeVar("T")


@attrs.frozen(kw_only=True)
class ClusterCheck:
    """The result of a cluster check: all entries were read, and the seconds of each step."""

    ledger_id: LedgerId
    ensemble: tuple[BookieId, ...]
    write_quorum: int
    ack_quorum: int
    entries: int
    entry_bytes: int
    create_s: float
    add_s: float
    read_open_s: float
    close_s: float
    read_s: float
    delete_s: float | None = None
    """None if the ledger was kept."""


async def check_cluster(
    client: Client,
    *,
    ensemble_size: int,
    write_quorum: int,
    ack_quorum: int,
    entries: int,
    entry_bytes: int,
    keep: bool = False,
) -> ClusterCheck:
    """Write a ledger, read it while it is open, close it, read it again, delete it.

    Raises:
        ClientError: a step failed; the ledger is deleted, unless it was to be kept.
    """
    took: dict[str, float] = {}
    clock = client.cluster.clock

    async def timed(step: str, work: Awaitable[T]) -> T:
        began_s = clock.seconds()
        result = await work
        took[f"{step}_s"] = clock.seconds() - began_s
        return result

    writer = await timed(
        "create",
        client.create_ledger(
            ensemble_size=ensemble_size,
            write_quorum=write_quorum,
            ack_quorum=ack_quorum,
            custom={"application": b"bkctl cluster test"},
        ),
    )
    ledger_id = writer.ledger_id
    payloads = [_payload(number, entry_bytes) for number in range(entries)]
    try:
        try:
            await timed("add", writer.add_many(payloads))
            await timed("read_open", _read(client, ledger_id, payloads, _unconfirmed))
            await timed("close", writer.close())
        except BaseException:
            writer.abandon()
            raise
        await timed("read", _read(client, ledger_id, payloads, _confirmed))
    except BaseException:
        if not keep:
            await client.delete_ledger(ledger_id)
        raise
    if not keep:
        await timed("delete", client.delete_ledger(ledger_id))
    return ClusterCheck(
        ledger_id=ledger_id,
        ensemble=writer.metadata.ensemble,
        write_quorum=write_quorum,
        ack_quorum=ack_quorum,
        entries=entries,
        entry_bytes=entry_bytes,
        **took,
    )


def _payload(number: int, size: int) -> bytes:
    """Return the payload of an entry; payloads differ, so that an exchanged entry is noticed."""
    return (b"entry-%d " % number * (size // 7 + 1))[:size]


async def _unconfirmed(reader: LedgerReader, count: int) -> list[bytes]:
    return [e.payload async for e in reader.read(0, count - 1, unconfirmed=True)]


async def _confirmed(reader: LedgerReader, _count: int) -> list[bytes]:
    return [entry.payload async for entry in reader.read()]


async def _read(
    client: Client,
    ledger_id: LedgerId,
    payloads: list[bytes],
    how: Callable[[LedgerReader, int], Awaitable[list[bytes]]],
) -> None:
    with contextlib.closing(await client.open_ledger(ledger_id, recover=False)) as reader:
        found = await how(reader, len(payloads))
    if found != payloads:
        raise ReadFailedError(f"ledger {ledger_id} gave back other entries than were added")


@attrs.frozen
class BookieCheck:
    """The result of a bookie check: all entries were read, and the seconds."""

    bookie_id: BookieId
    ledger_id: LedgerId
    entries: int
    write_s: float
    read_s: float


async def check_bookie(client: Client, bookie_id: BookieId, entries: int) -> BookieCheck:
    """Write entries to one bookie, read them back, and delete their ledger.

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
) -> BookieCheck:
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
    with contextlib.closing(await client.open_ledger(ledger_id)) as reader:
        found = [entry.payload async for entry in reader.read()]
    if found != payloads or writer.metadata.all_bookies() != {bookie_id}:
        raise ReadFailedError(f"bookie {bookie_id} gave back other entries than it was given")
    return BookieCheck(
        bookie_id, ledger_id, entries, written_s - began_s, clock.seconds() - written_s
    )
