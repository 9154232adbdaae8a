"""The adds of one handle on their way: packed once, sent to all, confirmed in order.

``AddQuorum`` decides; this carries out. Adds are gathered for one turn of the reactor: one join,
one write a bookie. Acks come in lists. There is no object for an add but its bytes, and a Deferred
where the caller asked for one.

Agrees with BookKeeper 4.18.0, LedgerHandle and PendingAddOp.
"""

from __future__ import annotations

import itertools
from collections import deque
from collections.abc import Callable, Coroutine, Iterator, Sequence
from typing import Any, ClassVar, Final

from twisted.internet.defer import Deferred
from twisted.internet.interfaces import IDelayedCall
from twisted.internet.task import deferLater
from twisted.logger import Logger

from bkclient.concurrency import RateLimit
from bkclient.connection.channel import BookieChannel
from bkclient.connection.ledger_keys import Batch, FrameMaker, LedgerKeys
from bkclient.connection.pool import BookiePool
from bkclient.errors import (
    AddQuorumTimeoutError,
    ClientError,
    DuplicateEntryIdError,
    IncorrectParameterError,
    UnexpectedConditionError,
)
from bkclient.ledger.ensemble_member import AddFraming, Member
from bkclient.quorum.add_events import (
    AddsAcked,
    AddsFailed,
    AddsOverdue,
    AddsReady,
    ChangeEnsemble,
    Command,
    ConfirmAdds,
    EnsembleRefused,
    EnsembleStored,
    FailAdds,
    GiveUp,
    SendAgain,
    WriterEnding,
)
from bkclient.quorum.add_rules import AddQuorum, State
from bkclient.quorum.distribution import is_striped_to
from wire.codes import AddFlag, ProtocolVersion
from wire.errors import LocalProtocolError
from wire.frames.adds import Packed
from wire.ids import BookieId, EntryId

log = Logger()

BYTES_IN_FLIGHT_MAX: Final = 32 * 1024 * 1024
"""More unconfirmed bytes than this, and ``room`` waits."""

FRAME_OVERHEAD_BYTES: Final = 600
"""What a payload must leave of a frame: heads, digest, and what Java's entry log wants free."""

CHANGES_BEFORE_PAUSE: Final = 5
"""Ensemble changes without a confirmation in between, before each waits a little."""

PAUSE_S_MAX: Final = 1.0

Ensemble = tuple[BookieId, ...]


class AddPipeline:
    """The adds of one handle.

    Args:
        quorum: the rules, with the ensemble and the LAC to begin with.
        length: payload bytes of the ledger so far.
        change_ensemble: makes an ensemble change and returns the ensemble that holds then.
        gave_up: called once when nothing can be added any more, after the adds failed.
        stamped_lac: gives what entries carry as LAC; ``None`` is the LAC of the moment.
        flags: what every add carries.
        rate: how many may go a second; shared with the reads of the same handle.
        quorum_timeout_s: how long an add may wait for its ack quorum before all end; not above 0
            is for ever.
        frame_bytes_kept: how much of a frame is not for the payload.
    """

    def __init__(
        self,
        pool: BookiePool,
        keys: LedgerKeys,
        quorum: AddQuorum,
        *,
        write_quorum: int,
        length: int,
        change_ensemble: Callable[[ChangeEnsemble], Coroutine[Deferred[Any], Any, Ensemble]],
        gave_up: Callable[[ClientError], None] = lambda _error: None,
        confirmed: Callable[[EntryId], None] = lambda _last: None,
        stamped_lac: Callable[[], int] | None = None,
        flags: AddFlag = AddFlag.NONE,
        rate: RateLimit | None = None,
        quorum_timeout_s: float = 0,
        frame_bytes_kept: int = FRAME_OVERHEAD_BYTES,
    ) -> None:
        self.quorum = quorum
        self.length = length
        self.confirmed_length = length
        """Payload bytes up to the last confirmed entry."""
        self.piggybacked_lac = -1
        """The LAC that the entries sent last carried."""
        self._pool, self._keys, self._write_quorum = pool, keys, write_quorum
        self._clock, self._config = pool.clock, pool.config
        self._change_ensemble, self._gave_up = change_ensemble, gave_up
        self._confirmed = confirmed
        self._stamped_lac, self._rate = stamped_lac, rate
        self._frames = FrameMaker(keys, flags, pool.txn_ids)
        self._framing = AddFraming(
            keys,
            self._frames,
            ProtocolVersion.V3 if flags & ~AddFlag.HIGH_PRIORITY else pool.protocol,
            is_deferred=bool(flags & AddFlag.DEFERRED_SYNC),
        )
        self._payload_bytes_max = self._config.frame_bytes_max - frame_bytes_kept
        self._in_flight_max = self._config.adds_in_flight_max or 2**63
        self._members = [self._join(i, bookie) for i, bookie in enumerate(quorum.ensemble)]
        self._unsent: list[tuple[int, bytes, int]] = []
        self._packets: dict[int, bytes] = {}
        self._bytes_in_flight = 0
        self._waiting: deque[tuple[int, Deferred[EntryId]]] = deque()
        self._want_room: list[Deferred[None]] = []
        self._flush_call: IDelayedCall | None = None
        self._commands: deque[Command] = deque()
        self._running = False
        self._changes_in_a_row = 0
        self._sent_at: deque[tuple[float, list[int]]] = deque()
        self._quorum_timeout_s = quorum_timeout_s
        self._quorum_timer: IDelayedCall | None = None

    # Adding

    def push(self, payload: bytes) -> EntryId:
        """Take an entry; it is sent with the others of this turn of the reactor.

        Raises:
            ClientError: nothing is taken any more, and why.
            IncorrectParameterError: the payload is too large for a frame.
        """
        self._check_size(payload)
        return self._take(self.quorum.push(), payload)

    def push_at(self, entry_id: EntryId, payload: bytes) -> None:
        """Take an entry under an id of the caller's choice; see ``push``.

        Raises:
            DuplicateEntryIdError: the id was taken before.
        """
        self._check_size(payload)
        try:
            self.quorum.push_at(entry_id)
        except LocalProtocolError as error:
            raise DuplicateEntryIdError(
                f"entry {entry_id} of ledger {self._keys.ledger_id} was added before"
            ) from error
        self._take(entry_id, payload)

    def _take(self, entry_id: EntryId, payload: bytes) -> EntryId:
        self.length += len(payload)
        self._bytes_in_flight += len(payload)
        self._unsent.append((entry_id, payload, self.length))
        if self._flush_call is None:
            self._flush_call = self._clock.callLater(0, self._flush)
        return entry_id

    def push_some(self, payloads: Iterator[bytes]) -> int:
        """Take entries as far as there is space; return how many. 0: there are no more.

        Raises:
            ClientError: as for ``push``; entries before a bad one have been taken.
        """
        room = self._in_flight_max - self.quorum.pending
        bytes_left = BYTES_IN_FLIGHT_MAX - self._bytes_in_flight
        size_max, taken = self._payload_bytes_max, list[bytes]()
        try:
            for payload in itertools.islice(payloads, max(1, room)):
                if type(payload) is not bytes or len(payload) > size_max:
                    self._check_size(payload)
                taken.append(payload)
                bytes_left -= len(payload)
                if bytes_left <= 0:
                    break
        finally:
            self._push_all(taken)
        return len(taken)

    def _push_all(self, payloads: list[bytes]) -> None:
        entries, length, unsent = self.quorum.push_many(len(payloads)), self.length, self._unsent
        for entry_id, payload in zip(entries, payloads, strict=True):
            length += len(payload)
            unsent.append((entry_id, payload, length))
        self._bytes_in_flight += length - self.length
        self.length = length
        if self._flush_call is None and unsent:
            self._flush_call = self._clock.callLater(0, self._flush)

    def _check_size(self, payload: Any) -> None:
        if not isinstance(payload, bytes):
            raise IncorrectParameterError(f"an entry is bytes, not {type(payload).__name__}")
        if len(payload) > self._payload_bytes_max:
            raise IncorrectParameterError(
                f"an entry of {len(payload)} bytes; "
                f"the largest that fits is {self._payload_bytes_max}"
            )

    def when_confirmed(self, entry_id: EntryId) -> Deferred[EntryId]:
        """Return a Deferred that fires when the entry, which was pushed, is confirmed.

        Cancelling it lets go of the answer; the add itself cannot be taken back.
        """
        deferred: Deferred[EntryId] = Deferred()
        if entry_id <= self.quorum.last_confirmed:
            deferred.callback(entry_id)
        elif self.quorum.ended_by is not None:
            deferred.errback(self.quorum.ended_by)
        else:
            waiting, at = self._waiting, len(self._waiting)
            while at and waiting[at - 1][0] > entry_id:
                at -= 1
            waiting.insert(at, (entry_id, deferred))
        return deferred

    @property
    def has_room(self) -> bool:
        """Whether adding now stays within the limits of entries, bytes and connections."""
        return (
            self.quorum.pending < self._in_flight_max
            and self._bytes_in_flight < BYTES_IN_FLIGHT_MAX
            and self._full_channel() is None
        )

    async def room(self) -> None:
        """Wait until ``has_room``; also returns when the handle has ended."""
        while self.quorum.state is not State.ENDED and not self.has_room:
            waiter: Deferred[None] = Deferred()
            self._want_room.append(waiter)
            # Not for the connection alone: its bookie may be replaced, and it stay full for ever.
            full = self._full_channel()
            if full is None:
                await waiter
                continue
            drained = full.gate.when_open()
            drained.addCallbacks(lambda _, waiter=waiter: _fire(waiter), lambda _: None)
            try:
                await waiter
            finally:
                drained.cancel()

    def _full_channel(self) -> BookieChannel | None:
        for member in self._members:
            channel = member.full_channel
            if channel is not None:
                return channel
        return None

    def _give_room(self) -> None:
        if self._want_room and (self.quorum.state is State.ENDED or self.has_room):
            waiting, self._want_room = self._want_room, []
            for waiter in waiting:
                _fire(waiter)

    def end(self, error: ClientError) -> None:
        """Take no more; what is pending fails with ``error``."""
        self._run(self.quorum.handle(WriterEnding(error)))

    @property
    def is_busy(self) -> bool:
        """Whether commands are being carried out: the caller is called by one of them."""
        return self._running

    def leave(self) -> None:
        """Release connections: answers that still come are ignored."""
        for member in self._members:
            member.part()
        for timer in (self._flush_call, self._quorum_timer):
            if timer is not None and timer.active():
                timer.cancel()
        self._flush_call = self._quorum_timer = None

    @property
    def in_flight_anywhere(self) -> int:
        """How many sends have not been answered, those of confirmed entries included."""
        return len(self._unsent) + sum(member.in_flight for member in self._members)

    # Sending

    def _flush(self) -> None:
        self._flush_call = None
        if self._rate is not None and not self._may_go(self._rate):
            return
        self._run(self.quorum.handle(AddsReady()) if self._unsent else [])
        if not self._unsent:
            return
        packed = self._pack(self._take_due())
        self._watch_quorum(packed)
        everything = Batch(packed, self._frames)
        for member in self._members:
            self._send(member, packed, everything)

    def _send(self, member: Member, packed: list[Packed], everything: Batch) -> None:
        """Send a member what is striped to it: without striping, the batch that all share."""
        if len(self._members) == self._write_quorum:
            member.send(everything)
            return
        mine = [p for p in packed if self._is_striped(p[0], member.index)]
        if mine:
            member.send(Batch(mine, self._frames))

    def _may_go(self, rate: RateLimit) -> bool:
        """Return whether anything may be sent now; if not, try again when it may."""
        if rate.wait_s and self._unsent:
            self._flush_call = self._clock.callLater(rate.wait_s, self._flush)
            return False
        return True

    def _take_due(self) -> list[tuple[int, bytes, int]]:
        """Take what may be sent now; with a limit on the rate the rest waits for its time."""
        unsent, rate = self._unsent, self._rate
        if rate is None:
            self._unsent = []
            return unsent
        allowed = rate.allowance()
        due, self._unsent = unsent[:allowed], unsent[allowed:]
        rate.take(len(due))
        if self._unsent and self._flush_call is None:
            self._flush_call = self._clock.callLater(rate.wait_s, self._flush)
        return due

    def _pack(self, due: list[tuple[int, bytes, int]]) -> list[Packed]:
        """Make the packets of what is new; they are the same for every bookie, for ever."""
        package, ledger_id = self._keys.digester.package, self._keys.ledger_id
        lac = self.quorum.last_confirmed if self._stamped_lac is None else self._stamped_lac()
        self.piggybacked_lac = lac
        packed = [
            (entry_id, package(ledger_id, entry_id, lac, length, payload))
            for entry_id, payload, length in due
        ]
        self._packets.update(packed)
        return packed

    def _is_striped(self, entry_id: int, index: int) -> bool:
        return is_striped_to(entry_id, index, len(self._members), self._write_quorum)

    def _join(self, index: int, bookie: BookieId) -> Member:
        return Member(
            self._pool,
            self._framing,
            index,
            bookie,
            acked=self._acked,
            failed=self._failed,
        )

    def has_lost(self, forced: EntryId) -> list[BookieId]:
        """Return the bookies that may have lost an acknowledged entry behind ``forced``."""
        return [member.bookie for member in self._members if member.has_lost(forced)]

    def _acked(self, member: Member, entries: list[int]) -> None:
        self._run(self.quorum.handle(AddsAcked(member.index, member.bookie, entries)))

    def _failed(self, member: Member, entries: list[int], error: ClientError) -> None:
        self._run(self.quorum.handle(AddsFailed(member.index, member.bookie, entries, error)))

    # Carrying out commands

    def _run(self, commands: Sequence[Command]) -> None:
        """Carry out commands in order, also those that come up while one is carried out."""
        self._commands += commands
        if self._running:
            return
        self._running = True
        try:
            while self._commands:
                command = self._commands.popleft()
                self._DOERS[type(command)](self, command)
        finally:
            self._running = False
        self._give_room()

    def _confirm(self, command: ConfirmAdds) -> None:
        packets, head, last = self._packets, self._keys.digester.size + 32, command.last
        size = sum(
            [len(packets.pop(entry_id)) - head for entry_id in range(command.first, last + 1)]
        )
        self._bytes_in_flight -= size
        self.confirmed_length += size
        self._changes_in_a_row = 0
        self._confirmed(last)
        waiting = self._waiting
        while waiting and waiting[0][0] <= last:
            entry_id, deferred = waiting.popleft()
            deferred.callback(EntryId(entry_id))

    def _fail(self, command: FailAdds) -> None:
        # All that is pending fails at once, so nothing remains that would count.
        head = self._keys.digester.size + 32
        lost = sum(len(packet) - head for packet in self._packets.values())
        self.length -= lost + sum(len(payload) for _, payload, _ in self._unsent)
        self._packets, self._unsent, self._bytes_in_flight = {}, [], 0
        waiting, self._waiting = self._waiting, deque()
        error = self._as_outcome(command)
        for _, deferred in waiting:
            deferred.errback(error)

    def _as_outcome(self, command: FailAdds) -> ClientError:
        """Say which adds failed, and that nobody knows yet what became of them."""
        first, last = command.entries[0], command.entries[-1]
        which = f"entry {first}" if first == last else f"entries {first} to {last}"
        error = type(command.error)(
            f"{which} of ledger {self._keys.ledger_id} not confirmed: {command.error}; "
            "the outcome is unknown until the ledger is closed or recovered"
        )
        error.__cause__, error.outcome_unknown = command.error, True
        return error

    def _send_again(self, command: SendAgain) -> None:
        packets = self._packets
        packed: list[Packed] = [(e, packets[e]) for e in command.entries if e in packets]
        if packed:
            self._members[command.index].send(Batch(packed, self._frames))

    def _begin_change(self, command: ChangeEnsemble) -> None:
        Deferred.fromCoroutine(self._change(command))

    async def _change(self, command: ChangeEnsemble) -> None:
        try:
            await self._pause_between_changes()
            ensemble = await self._change_ensemble(command)
        except ClientError as error:
            self._run(self.quorum.handle(EnsembleRefused(error)))
        except BaseException as error:  # noqa: BLE001 - the adds must not hang, whatever it was.
            log.failure("ensemble change")
            failure = UnexpectedConditionError(f"ensemble change: {error!r}")
            self._run(self.quorum.handle(EnsembleRefused(failure)))
        else:
            commands = self.quorum.handle(EnsembleStored(ensemble))
            self._renew_members()
            self._run(commands)

    async def _pause_between_changes(self) -> None:
        """Do not go round and round among bookies that all refuse."""
        self._changes_in_a_row += 1
        excess = self._changes_in_a_row - CHANGES_BEFORE_PAUSE
        if excess > 0:
            await deferLater(self._clock, min(PAUSE_S_MAX, 0.01 * 2**excess))

    def _renew_members(self) -> None:
        for index, bookie in enumerate(self.quorum.ensemble):
            if self._members[index].bookie != bookie:
                self._members[index].part()
                self._members[index] = self._join(index, bookie)

    def _give_up(self, command: GiveUp) -> None:
        self._gave_up(command.error)

    _DOERS: ClassVar[dict[type, Callable[..., None]]] = {
        ConfirmAdds: _confirm,
        FailAdds: _fail,
        SendAgain: _send_again,
        ChangeEnsemble: _begin_change,
        GiveUp: _give_up,
    }

    # The add-quorum time-out

    def _watch_quorum(self, packed: list[Packed]) -> None:
        if self._quorum_timeout_s <= 0:
            return
        due_s = self._clock.seconds() + self._quorum_timeout_s
        self._sent_at.append((due_s, [entry_id for entry_id, _ in packed]))
        if self._quorum_timer is None:
            self._wait_for_quorum()

    def _wait_for_quorum(self) -> None:
        self._quorum_timer = None
        while self._sent_at and all(map(self.quorum.is_complete, self._sent_at[0][1])):
            self._sent_at.popleft()
        if not self._sent_at or self.quorum.state is State.ENDED:
            return
        left_s = self._sent_at[0][0] - self._clock.seconds()
        if left_s > 0:
            self._quorum_timer = self._clock.callLater(left_s, self._wait_for_quorum)
            return
        text = f"no ack quorum in {self._quorum_timeout_s:g} s"
        self._run(self.quorum.handle(AddsOverdue(AddQuorumTimeoutError(text))))


def _fire(waiter: Deferred[None]) -> None:
    if not waiter.called:
        waiter.callback(None)
