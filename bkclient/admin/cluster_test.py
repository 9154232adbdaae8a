"""A trial of a whole cluster: one ledger from create to delete, each step timed.

Takes the place of BookKeeper 4.18.0, SimpleTestCommand: entries of CRC32C, read once before the
ledger is closed and once after. Unlike Java's, what is read is compared with what was written.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import TypeVar

import attrs

from bkclient.client import Client
from bkclient.errors import ReadFailedError
from bkclient.ledger.reader import LedgerReader
from wire.ids import BookieId, LedgerId

T = TypeVar("T")


@attrs.frozen(kw_only=True)
class Trial:
    """What a trial found: that all entries came back, and the seconds each step took."""

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
    """None where the ledger was kept."""


async def try_cluster(
    client: Client,
    *,
    ensemble_size: int,
    write_quorum: int,
    ack_quorum: int,
    entries: int,
    entry_bytes: int,
    keep: bool = False,
) -> Trial:
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
    return Trial(
        ledger_id=ledger_id,
        ensemble=writer.metadata.ensemble,
        write_quorum=write_quorum,
        ack_quorum=ack_quorum,
        entries=entries,
        entry_bytes=entry_bytes,
        **took,
    )


def _payload(number: int, size: int) -> bytes:
    """Return an entry's content: different ones, so that one in another's place is noticed."""
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
    reader = await client.open_ledger(ledger_id, recover=False)
    try:
        found = await how(reader, len(payloads))
    finally:
        reader.close()
    if found != payloads:
        raise ReadFailedError(f"ledger {ledger_id} gave back other entries than were added")
