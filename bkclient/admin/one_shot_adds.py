"""One-shot adds: a ledger passes from writer to writer by compare-and-swap on its own metadata.

Custom metadata ``bkctl.handover`` is there only while no writer exists; it says where the next one
goes on. Who removes it is the only writer; who has written puts it back as its last act. There are
no leases and no clocks: a writer that dies, or whose add fails, leaves no key, and the ledger is
then closed by recovery like that of any dead writer. Java readers, recoverers and replication see
nothing of it.

``bkctl.writer`` holds a random word of the writer, by which it recognises its own change after a
reply was lost.
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
"""How long a release waits for the whole write quorum, where the ack quorum is met already."""

log = Logger()

_LOOK_S: Final = 0.01


def read_handover(ledger_id: LedgerId, metadata: LedgerMetadata) -> HandoverState:
    """Return where the next writer goes on.

    Raises:
        ClientError: the ledger is not open.
        NotHandedOverError: there is no key, or one that we do not understand.
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
    """Create a ledger that no writer has yet; raises what ``create`` does."""
    custom = {**new.custom, HANDOVER_KEY: HandoverState(NO_ENTRY, 0).encode()}
    ledger_id, stored = await create(client.cluster, attrs.evolve(new, custom=custom))
    return ledger_id, stored.value


async def claim_ledger(client: Client, ledger_id: LedgerId) -> LedgerWriter:
    """Become the only writer of a ledger that was handed over.

    Raises:
        NotHandedOverError: it has a writer, or had one that did not hand over.
        LedgerClosedError, ClientLedgerFencedError: it is closed, or being recovered.
        NoSuchLedgerError: there is no such ledger.
        MetadataUnavailableError: the store is away. The claim may have been stored; then the
            ledger has no writer any more and must be recovered.
    """
    local = await client.local_metadata(ledger_id)
    nonce = b"%032x" % client.cluster.rng.getrandbits(128)
    start = read_handover(ledger_id, local.value)

    def needed(metadata: LedgerMetadata) -> bool:
        nonlocal start
        # Of a ledger that was closed since, other bookies may have the entries, and no fence.
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
    """Hand the ledger over to the writer that claims it next. The writer takes no more entries.

    Returns the metadata as it was found last: of the next writer, where the reply to the release
    was lost and the ledger was claimed meanwhile.

    First every add is confirmed; then the rest of the write quorum is waited for, at most
    ``settle_s``, so that the ledger is left with all its copies where that can be.

    Raises:
        ClientError: an add failed, or another client changed the metadata. The ledger is
            not handed over then, and must be recovered.
        IllegalOperationError: the writer did not claim the ledger.
    """
    nonce = writer.metadata.custom.get(WRITER_KEY)
    if nonce is None or HANDOVER_KEY in writer.metadata.custom:
        raise IllegalOperationError(f"ledger {writer.ledger_id} was not claimed by this writer")
    await writer.drain()
    await _settle(writer, settle_s)
    await writer.drain()
    value = HandoverState(writer.last_add_confirmed, writer.length).encode()
    # From here on this process never writes again, whatever comes of the release.
    writer.retire()

    may_be_done = False

    def needed(metadata: LedgerMetadata) -> bool:
        is_ours = metadata.custom.get(WRITER_KEY) == nonce
        if is_ours and metadata.custom.get(HANDOVER_KEY) == value:
            return False
        # Nothing but our release lets another writer claim, so it was applied.
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
