"""The rules for adds, explicit LACs and forces. ``master_keys`` checks their keys."""

from __future__ import annotations

import enum
import struct
from collections.abc import Iterable
from functools import partial
from typing import Final

import attrs

from bookied.server.rules.deleted_ledgers import FencedDeletions
from bookied.server.rules.fencing import Fences, require_not_fenced
from bookied.server.rules.long_poll import LongPolls
from bookied.server.rules.master_keys import LedgerWrites
from bookied.server.rules.metadata_fence_check import FenceCheck, FenceState
from bookied.server.rules.pending_request import PendingRequest
from bookied.storage.index.format import has_place
from bookied.storage.index.ledger_pages import CachedLedger
from bookied.storage.journal.format import ENTRY_BYTES_MIN, entry_record, explicit_lac_record
from bookied.storage.ledger_storage.reads import packet_lac
from wire.codes import LAC_HEADER_BYTES, AddFlag, ReturnCode
from wire.errors import (
    BadRequestError,
    BookKeeperError,
    LedgerFencedError,
    NoSuchLedgerError,
    ReadOnlyBookieError,
    TooManyRequestsError,
)
from wire.ids import EntryId, LedgerId
from wire.messages import (
    AddRequest,
    AddResponse,
    ForceLedgerRequest,
    ForceLedgerResponse,
    WriteLacRequest,
    WriteLacResponse,
)

LAC_PACKET_BYTES_MAX: Final = 256
"""An explicit LAC must fit the 1024-byte header of an index file, with space to spare."""

_TWO_IDS: Final = struct.Struct(">qq")


class Writes(enum.Enum):
    """The adds that a bookie accepts, given its disks and its operator's settings."""

    ALL = enum.auto()
    HIGH_PRIORITY = enum.auto()
    """Read-only, with space left for recovery and re-replication."""
    NONE = enum.auto()


@attrs.define(eq=False)
class Adds:
    """The rules for adds. An add is answered only once the journal has synced it."""

    _writes: LedgerWrites
    _fences: Fences
    _polls: LongPolls
    _deletions: FencedDeletions
    fence_check: FenceCheck | None
    """Knows the open ledgers, if fences may have been lost."""
    allowed: Writes = attrs.field(default=Writes.ALL, init=False)
    """The adds that the disks and the operator allow."""

    def takes(self, state: CachedLedger, *, is_recovery: bool) -> bool:
        """Return whether ``add`` would store an add with the right key at once."""
        if state.doubt is not None:
            return False
        if is_recovery:
            return state.ledger_id not in self._deletions
        check = self.fence_check
        in_doubt = check is not None and not check.is_open(state.ledger_id)
        return not (state.fenced or state.limbo or in_doubt)

    def add(self, asked: PendingRequest[AddRequest]) -> None:
        """Store an entry; the answer waits for the journal."""
        request = asked.request
        packet = request.entry
        self._check_writable(request.flags)
        ledger_id, entry_id = _packet_ids(packet)
        recovery = bool(request.flags & AddFlag.RECOVERY)
        was_deleted = ledger_id in self._deletions
        if was_deleted and not (recovery and self._deletions.lives_on(ledger_id)):
            raise LedgerFencedError(f"ledger {ledger_id} was fenced and deleted")
        state = self._writes.ledger_to_write(ledger_id, request.master_key)
        if was_deleted:
            self._fences.fence(state, lambda: None)  # The journal gets the fence before the entry.
        if not recovery:
            require_not_fenced(state)
        if state.doubt is not None:
            raise state.doubt  # The entry would hide the damage.
        check = self.fence_check
        if check is not None and not recovery and not check.is_open(ledger_id):
            check.ask(ledger_id, partial(self._add_if_open, asked))
            return
        self._writes.storages.of(ledger_id).adds.add(state, entry_id, packet)
        answer = AddResponse(ReturnCode.EOK, request.ledger_id, request.entry_id)
        # A ledger is closed after recovery adds, so they always wait for the disk.
        early = bool(request.flags & AddFlag.DEFERRED_SYNC) and not recovery
        self._writes.append(
            state, entry_record(packet), partial(asked.respond, answer), early=early
        )
        self.note_lacs([(state, packet_lac(packet))])

    def _add_if_open(self, asked: PendingRequest[AddRequest], standing: FenceState) -> None:
        """Continue an add to a ledger in doubt, with the state that the metadata reported."""
        try:
            if standing is FenceState.UNKNOWN:
                raise TooManyRequestsError(f"ledger {asked.ledger_id}: metadata does not answer")
            if standing is FenceState.CLOSED:
                state = self._writes.ledger_to_write(asked.ledger_id, asked.request.master_key)
                self._fences.fence(state, lambda: None)
            self.add(asked)
        except (BookKeeperError, OSError) as error:
            asked.refuse(error)

    def note_lacs(self, advanced: Iterable[tuple[CachedLedger, int]]) -> None:
        """Update the highest LAC of each ledger, and wake the readers that wait for it."""
        waiting = self._polls.waiting
        for state, lac in advanced:
            if lac > state.lac:  # noqa: PLR1730 -- a call costs five times as much
                state.lac = lac
            if state.ledger_id in waiting:
                self._polls.lac_advanced(LedgerId(state.ledger_id), state.lac)

    def write_lac(self, asked: PendingRequest[WriteLacRequest]) -> None:
        """Store an explicit LAC; the answer waits for the journal."""
        request = asked.request
        packet = request.body
        if self.allowed is not Writes.ALL:
            raise ReadOnlyBookieError("explicit LAC")
        if not LAC_HEADER_BYTES <= len(packet) <= LAC_PACKET_BYTES_MAX:
            raise BadRequestError(f"LAC packet of {len(packet)} bytes")
        ledger_id, lac = _TWO_IDS.unpack_from(packet)
        if ledger_id in self._deletions:
            raise NoSuchLedgerError(f"ledger {ledger_id} was fenced and deleted")
        state = self._writes.ledger_to_write(ledger_id, request.master_key)
        self._writes.storages.of(ledger_id).ledgers.set_explicit_lac(state, packet)
        answer = WriteLacResponse(ReturnCode.EOK, request.ledger_id)
        record = b""
        if self._writes.journal(ledger_id).takes_explicit_lacs:
            record = explicit_lac_record(ledger_id, packet)
        self._writes.append(state, record, partial(asked.respond, answer))
        self.note_lacs([(state, lac)])

    def force(self, asked: PendingRequest[ForceLedgerRequest]) -> None:
        """Answer once all earlier adds are on disk."""
        ledger_id = asked.request.ledger_id
        answer = ForceLedgerResponse(ReturnCode.EOK, ledger_id)
        self._writes.journal(ledger_id).append(b"", partial(asked.respond, answer))

    def _check_writable(self, flags: AddFlag) -> None:
        if self.allowed is Writes.ALL:
            return
        if self.allowed is Writes.HIGH_PRIORITY and flags & AddFlag.HIGH_PRIORITY:
            return
        raise ReadOnlyBookieError("add")


def _packet_ids(packet: bytes) -> tuple[LedgerId, EntryId]:
    """Return the ledger id and entry id of a packet.

    Raises:
        BadRequestError: the packet is too short, or an id is invalid. A journal record with a
            negative entry id would not be an entry.
    """
    if len(packet) < ENTRY_BYTES_MIN:
        raise BadRequestError(f"entry packet of {len(packet)} bytes")
    ledger_id, entry_id = _TWO_IDS.unpack_from(packet)
    if not (ledger_id >= 0 and has_place(entry_id)):
        raise BadRequestError(f"entry {entry_id} of ledger {ledger_id}")
    return ledger_id, entry_id
