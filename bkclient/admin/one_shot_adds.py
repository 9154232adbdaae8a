"""One-shot adds: a ledger passes from writer to writer by compare-and-swap on its own metadata.

The custom metadata ``bkctl.handover`` exists only while the ledger has no writer; it has the
position for the next writer. The client that removes it is the only writer, and stores it again as
its last act. There are no leases and no clocks: a writer that dies, or whose add fails, leaves no
key, and the ledger is then closed by recovery, as after any lost writer. For Java readers, recovery
and re-replication the ledger is like any other.

``bkctl.writer`` has a random word of the writer, by which the writer recognises its own change
after a lost reply.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

import attrs
from twisted.internet.task import deferLater
from twisted.logger import Logger

from bkclient.concurrency import SILENT_S
from bkclient.errors import IllegalOperationError
from bkclient.ledger.creation import NewLedger, create
from bkclient.ledger.handover_state import (
    HANDOVER_KEY,
    WRITER_KEY,
    HandoverState,
    NotHandedOverError,
    decode_handover,
)
from bkclient.metadata.ledger_metadata_updates import state_error
from wire.codes import LedgerState
from wire.ids import NO_ENTRY, LedgerId
from wire.ledger_metadata import LedgerMetadata

if TYPE_CHECKING:
    from bkclient.client import Client
    from bkclient.ledger.writer import LedgerWriter

SETTLE_S: Final = 5.0
"""Seconds that a release waits for the complete write quorum after the ack quorum."""

log = Logger()

_LOOK_S: Final = 0.01


def read_handover(ledger_id: LedgerId, metadata: LedgerMetadata) -> HandoverState:
    """Return the position for the next writer.

    Raises:
        ClientError: the ledger is not open.
        NotHandedOverError: the key is missing or has an unknown form.
    """
    if metadata.state is not LedgerState.OPEN:
        raise state_error(ledger_id, metadata.state)
    value = metadata.custom.get(HANDOVER_KEY)
    if value is None:
        raise NotHandedOverError(ledger_id, ": the last writer did not hand over")
    return decode_handover(ledger_id, value)


def is_handed_over(metadata: LedgerMetadata) -> bool:
    """Return whether the ledger waits for its next writer."""
    return metadata.state is LedgerState.OPEN and HANDOVER_KEY in metadata.custom


async def create_handed_over(client: Client, new: NewLedger) -> tuple[LedgerId, LedgerMetadata]:
    """Create a ledger that has no writer yet; raises the errors of ``create``."""
    custom = {**new.custom, HANDOVER_KEY: HandoverState(NO_ENTRY, 0).encode()}
    ledger_id, stored = await create(client.cluster, attrs.evolve(new, custom=custom))
    return ledger_id, stored.value


async def claim_ledger(client: Client, ledger_id: LedgerId) -> LedgerWriter:
    """Become the only writer of a ledger that was handed over.

    Raises:
        NotHandedOverError: the ledger has a writer, or had one that did not hand it over.
        LedgerClosedError, ClientLedgerFencedError: the ledger is closed, or in recovery.
        NoSuchLedgerError: the ledger does not exist.
        MetadataUnavailableError: the store cannot be reached. The claim may have been stored; then
            the ledger has no writer and must be recovered.
    """
    local = await client.local_metadata(ledger_id)
    nonce = b"%032x" % client.cluster.rng.getrandbits(128)
    start = read_handover(ledger_id, local.value)

    def needed(metadata: LedgerMetadata) -> bool:
        nonlocal start
        # If the ledger was closed since, other bookies may have the entries, without a fence.
        if metadata.custom.get(WRITER_KEY) == nonce and metadata.state is LedgerState.OPEN:
            return False
        start = read_handover(ledger_id, metadata)
        return True

    def claimed(metadata: LedgerMetadata) -> LedgerMetadata:
        custom = {key: value for key, value in metadata.custom.items() if key != HANDOVER_KEY}
        custom[WRITER_KEY] = nonce
        return attrs.evolve(metadata, custom=custom, creator_token=0)

    await client.cluster.updater.update(ledger_id, local, needed, claimed)
    await client.cluster.learn_racks(frozenset(local.value.ensemble))
    return client.writer_of(ledger_id, local, last=start.last, length=start.length)


async def release_ledger(writer: LedgerWriter, *, settle_s: float = SETTLE_S) -> LedgerMetadata:
    """Hand the ledger over to the next writer. This writer accepts no more entries.

    Return the metadata as read last: the next writer's, if the reply to the release was lost and
    the ledger was claimed since.

    First every add is confirmed. Then the writer waits for the rest of the write quorum, at most
    ``settle_s``, so that every entry has all its copies if possible.

    Raises:
        ClientError: an add failed, or another client changed the metadata. The ledger is then not
            handed over, and must be recovered.
        IllegalOperationError: the writer did not claim the ledger.
    """
    nonce = writer.metadata.custom.get(WRITER_KEY)
    if nonce is None or HANDOVER_KEY in writer.metadata.custom:
        raise IllegalOperationError(f"ledger {writer.ledger_id} was not claimed by this writer")
    await writer.drain()
    await _settle(writer, settle_s)
    await writer.drain()
    value = HandoverState(writer.last_add_confirmed, writer.length).encode()
    # From here on this process never writes again, whatever the result of the release.
    writer.retire()

    may_be_done = False

    def needed(metadata: LedgerMetadata) -> bool:
        is_ours = metadata.custom.get(WRITER_KEY) == nonce
        if is_ours and metadata.custom.get(HANDOVER_KEY) == value:
            return False
        # Only the release lets another writer claim, so the release was stored.
        if may_be_done and not is_ours:
            return False
        if metadata.state is not LedgerState.OPEN:
            raise state_error(writer.ledger_id, metadata.state)
        if not is_ours:
            raise NotHandedOverError(writer.ledger_id, " has another writer")
        return True

    def released(metadata: LedgerMetadata) -> LedgerMetadata:
        custom = {**metadata.custom, HANDOVER_KEY: value}
        return attrs.evolve(metadata, custom=custom, creator_token=0)

    def lost_reply() -> None:
        nonlocal may_be_done
        may_be_done = True

    return await writer.update_metadata(needed, released, lost_reply)


async def _settle(writer: LedgerWriter, settle_s: float) -> None:
    clock = writer.clock
    begin_s, is_said = clock.seconds(), False
    while writer.in_flight_anywhere and clock.seconds() < begin_s + settle_s:
        if not is_said and clock.seconds() > begin_s + SILENT_S:
            is_said = True
            log.warn(
                "waiting for the last copies of ledger {ledger_id}, at most {settle_s:g} s",
                ledger_id=writer.ledger_id,
                settle_s=settle_s,
            )
        await deferLater(clock, _LOOK_S)
