"""The adds of one handle in flight: packed once, sent to all, confirmed in order.

``AddQuorum`` decides; this module carries out. Adds are gathered for one turn of the reactor: one
join, one write a bookie. Acks arrive in lists. An add has no object except its bytes, and a
Deferred if the caller asked for one.

Agrees with BookKeeper 4.18.0, LedgerHandle and PendingAddOp.
"""

from __future__ import annotations

import itertools
from collections import deque
from collections.abc import Callable, Coroutine, Iterator, Sequence
from typing import Any, ClassVar, Final

import attrs
from twisted.internet.defer import Deferred, fail, succeed
from twisted.internet.interfaces import IDelayedCall, IReactorTime
from twisted.logger import Logger

from bkclient.concurrency import RateLimit, Waiters, cancel
from bkclient.connection.add_frames import FrameMaker, LedgerKeys
from bkclient.connection.add_stream import Writability
from bkclient.connection.pool import BookiePool
from bkclient.errors import (
    AddQuorumTimeoutError,
    ClientError,
    DuplicateEntryIdError,
    IncorrectParameterError,
    UnexpectedConditionError,
)
from bkclient.ledger.adds.ensemble_changes import ChangePause
from bkclient.ledger.adds.ensemble_members import AddFraming, EnsembleMembers, Member
from bkclient.ledger.cluster import PendingCopies
from bkclient.quorum.add_rules import AddQuorum, AddState
from bkclient.quorum.pending_adds import (
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
from wire.codes import AddFlag, ProtocolVersion
from wire.errors import LocalProtocolError
from wire.frames.bulk_adds import Packed
from wire.ids import BookieId, EntryId, LedgerId


@attrs.define(eq=False)
class QuorumTimeout:
    """The time limit of adds, in the order in which they were sent.

    Args:
        clock: the clock.
        quorum: knows which adds have their acks.
        timeout_s: seconds that each add may wait; 0 or less for no limit.
        overdue: called when an add has waited that long.
    """

    _clock: IReactorTime
    _quorum: AddQuorum
    _timeout_s: float
    _overdue: Callable[[AddQuorumTimeoutError], None]
    _sent: deque[tuple[float, list[int]]] = attrs.field(factory=deque, init=False)
    _timer: IDelayedCall | None = attrs.field(default=None, init=False)

    def sent(self, packed: list[Packed]) -> None:
        """Start the time limit of adds that are sent now."""
        if self._timeout_s <= 0:
            return
        due_s = self._clock.seconds() + self._timeout_s
        self._sent.append((due_s, [entry_id for entry_id, _ in packed]))
        if self._timer is None:
            self._check()

    def _check(self) -> None:
        """Wait for the oldest adds without a quorum, or report that they are overdue."""
        self._timer = None
        while self._sent and all(map(self._quorum.is_complete, self._sent[0][1])):
            self._sent.popleft()
        if not self._sent or self._quorum.state is AddState.ENDED:
            return
        left_s = self._sent[0][0] - self._clock.seconds()
        if left_s > 0:
            self._timer = self._clock.callLater(left_s, self._check)
            return
        self._overdue(AddQuorumTimeoutError(f"no ack quorum in {self._timeout_s:g} s"))

    def stop(self) -> None:
        """Stop the timer."""
        cancel(self._timer)
        self._timer = None


class Confirmations:
    """Deferreds in the order of their entries. An entry has none if no caller asks for one."""

    def __init__(self) -> None:
        """Begin without a Deferred."""
        self._waiting: deque[tuple[int, Deferred[EntryId]]] = deque()

    def wait_for(self, entry_id: EntryId) -> Deferred[EntryId]:
        """Return a Deferred that fires when the entry is confirmed, or with the error.

        Its cancellation ends only the wait; the add cannot be undone.
        """
        deferred: Deferred[EntryId] = Deferred()
        waiting, at = self._waiting, len(self._waiting)
        while at and waiting[at - 1][0] > entry_id:
            at -= 1
        if at == len(waiting):
            waiting.append((entry_id, deferred))
        else:
            waiting.insert(at, (entry_id, deferred))
        return deferred

    def confirm(self, last: EntryId) -> None:
        """Fire the Deferreds of entries up to ``last``."""
        waiting = self._waiting
        while waiting and waiting[0][0] <= last:
            entry_id, deferred = waiting.popleft()
            deferred.callback(EntryId(entry_id))

    def fail(self, error: ClientError) -> None:
        """Fail all Deferreds: nothing more is confirmed."""
        waiting, self._waiting = self._waiting, deque()
        for _, deferred in waiting:
            deferred.errback(error)


class WaitForSpace:
    """Callers that wait for space for more adds.

    Args:
        has_space: returns True if there is space, or the handle has ended.
        full_connection: returns the writability of a full connection, if that is the reason.
    """

    def __init__(
        self, has_space: Callable[[], bool], full_connection: Callable[[], Writability | None]
    ) -> None:
        self._has_space, self._full_connection = has_space, full_connection
        self._waiters = Waiters()

    async def wait(self) -> None:
        """Return when there is space."""
        while not self._has_space():
            waiter = self._waiters.wait()
            # Not for the connection alone: its bookie may be replaced while the connection stays
            # full.
            full = self._full_connection()
            if full is None:
                await waiter
                continue
            drained = full.when_writable()
            drained.addCallbacks(lambda _: self._waiters.wake(), lambda _: None)
            try:
                await waiter
            finally:
                drained.cancel()

    def wake(self) -> None:
        """Wake the callers if there is space now."""
        if self._waiters and self._has_space():
            self._waiters.wake()


log = Logger()

BYTES_IN_FLIGHT_MAX: Final = 32 * 1024 * 1024
"""The unconfirmed bytes above which ``wait_for_space`` waits."""

FRAME_OVERHEAD_BYTES: Final = 600
"""The bytes of a frame besides the payload: headers, digest, and the space that Java's entry
log needs.
"""

Ensemble = tuple[BookieId, ...]


@attrs.frozen(kw_only=True)
class AddSettings:
    """The settings of all adds of one handle."""

    write_quorum: int
    flags: AddFlag = AddFlag.NONE
    """The flags of every add."""
    rate: RateLimit | None = None
    """The limit on requests a second; shared with the reads of the same handle."""
    quorum_timeout_s: float = 0
    """Seconds that an add may wait for its ack quorum before all adds fail.

    0 or less for no limit.
    """
    frame_bytes_kept: int = FRAME_OVERHEAD_BYTES
    """The bytes of a frame that the payload must leave free."""


@attrs.frozen(kw_only=True)
class AddEffects:
    """The callbacks of the adds of one handle."""

    change_ensemble: Callable[[ChangeEnsemble], Coroutine[Deferred[Any], Any, Ensemble]]
    """Changes the ensemble and returns the new one."""
    gave_up: Callable[[ClientError], None] = lambda _error: None
    """Called once, after the adds failed, when the handle accepts no more adds."""
    confirmed: Callable[[EntryId], None] = lambda _last: None
    stamped_lac: Callable[[], int] | None = None
    """Returns the LAC for the entries' headers; ``None`` means the present LAC."""


class AddPipeline:
    """The adds of one handle.

    Args:
        quorum: the rules, with the first ensemble and LAC.
        settings: the settings of all adds.
        effects: the callbacks.
        length: payload bytes of the ledger so far.
    """

    def __init__(
        self,
        pool: BookiePool,
        keys: LedgerKeys,
        quorum: AddQuorum,
        settings: AddSettings,
        effects: AddEffects,
        *,
        length: int,
    ) -> None:
        self.quorum = quorum
        self.length = length
        self.confirmed_length = length
        """Payload bytes up to the last confirmed entry."""
        self.piggybacked_lac = -1
        """The LAC in the headers of the entries sent last."""
        flags, config = settings.flags, pool.config
        self._keys, self._clock, self._rate = keys, pool.clock, settings.rate
        self._effects = effects
        framing = AddFraming(
            keys,
            FrameMaker(keys, flags, pool.txn_ids),
            ProtocolVersion.V3 if flags & ~AddFlag.HIGH_PRIORITY else pool.protocol,
            is_deferred=bool(flags & AddFlag.DEFERRED_SYNC),
        )
        self.members = EnsembleMembers(
            pool,
            framing,
            quorum.ensemble,
            settings.write_quorum,
            acked=self._acked,
            failed=self._failed,
        )
        self._payload_bytes_max = config.frame_bytes_max - settings.frame_bytes_kept
        self._in_flight_max = config.adds_in_flight_max or 2**63
        self._unsent: list[tuple[int, bytes, int]] = []
        self._packets: dict[int, bytes] = {}
        self._bytes_in_flight = 0
        self._confirmations = Confirmations()
        self.space = WaitForSpace(self._has_space, lambda: self.members.full_connection)
        """The wait until more may be pushed; it also ends when the handle ends."""
        self._flush_call: IDelayedCall | None = None
        self._commands: deque[Command] = deque()
        self._running = False
        self._pause = ChangePause(pool.clock, keys.ledger_id)
        self._timeout = QuorumTimeout(
            pool.clock,
            quorum,
            settings.quorum_timeout_s,
            lambda error: self._run(quorum.handle(AddsOverdue(error))),
        )

    # Adding

    def push(self, payload: bytes) -> EntryId:
        """Accept an entry; it is sent with the others of this turn of the reactor.

        Raises:
            ClientError: the handle has ended, with the reason.
            IncorrectParameterError: the payload is too large for a frame.
        """
        _check_size(payload, self._payload_bytes_max)
        return self._take(self.quorum.push(), payload)

    def push_at(self, entry_id: EntryId, payload: bytes) -> None:
        """Accept an entry with an id of the caller's choice; see ``push``.

        Raises:
            DuplicateEntryIdError: the id was used before.
        """
        _check_size(payload, self._payload_bytes_max)
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
        """Accept entries as long as there is space; return their number. 0: there are no more.

        Raises:
            ClientError: as for ``push``; entries before an invalid one have been accepted.
        """
        adds_max = self._in_flight_max - self.quorum.pending
        bytes_left = BYTES_IN_FLIGHT_MAX - self._bytes_in_flight
        size_max, taken = self._payload_bytes_max, list[bytes]()
        try:
            for payload in itertools.islice(payloads, max(1, adds_max)):
                if type(payload) is not bytes or len(payload) > size_max:
                    _check_size(payload, size_max)
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

    def when_confirmed(self, entry_id: EntryId) -> Deferred[EntryId]:
        """Return a Deferred that fires when the pushed entry is confirmed.

        Its cancellation ends only the wait; the add cannot be undone.
        """
        if entry_id <= self.quorum.last_confirmed:
            return succeed(entry_id)
        if self.quorum.ended_by is not None:
            return fail(self.quorum.ended_by)
        return self._confirmations.wait_for(entry_id)

    def _has_space(self) -> bool:
        """Return whether an add stays within the limits of entries, bytes and connections."""
        return self.quorum.state is AddState.ENDED or (
            self.quorum.pending < self._in_flight_max
            and self._bytes_in_flight < BYTES_IN_FLIGHT_MAX
            and self.members.full_connection is None
        )

    def end(self, error: ClientError) -> None:
        """Accept no more entries; pending ones fail with ``error``."""
        self._run(self.quorum.handle(WriterEnding(error)))

    @property
    def is_busy(self) -> bool:
        """True while commands run: then one of them has called the caller."""
        return self._running

    def leave(self, last_copies: PendingCopies | None = None) -> None:
        """Release the connections: later answers are ignored.

        With ``last_copies`` each connection is kept until its bookie has answered.
        """
        if last_copies is None:
            self.members.leave()
        else:
            self.members.leave_when_answered(last_copies, EntryId(self.quorum.last_confirmed))
        self._timeout.stop()
        cancel(self._flush_call)
        self._flush_call = None

    @property
    def in_flight_anywhere(self) -> int:
        """The number of unanswered sends, including those of confirmed entries."""
        return len(self._unsent) + self.members.in_flight

    # Sending

    def _flush(self) -> None:
        self._flush_call, rate = None, self._rate
        if rate is not None and rate.wait_s and self._unsent:
            self._flush_call = self._clock.callLater(rate.wait_s, self._flush)
            return
        self._run(self.quorum.handle(AddsReady()) if self._unsent else [])
        if not self._unsent:
            return
        due = self._take_due()
        try:
            packed = self._pack(due)
        except LocalProtocolError as error:
            self._unsent = due + self._unsent
            self._run(self.quorum.handle(AddsOverdue(UnexpectedConditionError(str(error)))))
            return
        self._timeout.sent(packed)
        self.members.send(packed)

    def _take_due(self) -> list[tuple[int, bytes, int]]:
        """Remove and return the entries that may be sent now.

        A rate limit leaves the rest for later.
        """
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
        """Make the packets of new entries; they are the same for every bookie and never change."""
        package, ledger_id = self._keys.digester.package, self._keys.ledger_id
        stamped = self._effects.stamped_lac
        lac = self.quorum.last_confirmed if stamped is None else stamped()
        self.piggybacked_lac = lac
        packed = [
            (entry_id, package(ledger_id, entry_id, lac, length, payload))
            for entry_id, payload, length in due
        ]
        self._packets.update(packed)
        return packed

    def _acked(self, member: Member, entries: list[int]) -> None:
        self._run(self.quorum.handle(AddsAcked(member.index, member.bookie, entries)))

    def _failed(self, member: Member, entries: list[int], error: ClientError) -> None:
        self._run(self.quorum.handle(AddsFailed(member.index, member.bookie, entries, error)))

    # Carrying out commands

    def _run(self, commands: Sequence[Command]) -> None:
        """Carry out commands in order, including those that arise from them."""
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
        self.space.wake()

    def _confirm(self, command: ConfirmAdds) -> None:
        packets, head, last = self._packets, self._keys.digester.size + 32, command.last
        size = sum(
            [len(packets.pop(entry_id)) - head for entry_id in range(command.first, last + 1)]
        )
        self._bytes_in_flight -= size
        self.confirmed_length += size
        self._pause.confirmed()
        self._effects.confirmed(last)
        self._confirmations.confirm(last)

    def _fail(self, command: FailAdds) -> None:
        # All pending adds fail at once, so no remaining add counts.
        head = self._keys.digester.size + 32
        lost = sum(len(packet) - head for packet in self._packets.values())
        self.length -= lost + sum(len(payload) for _, payload, _ in self._unsent)
        self._packets, self._unsent, self._bytes_in_flight = {}, [], 0
        self._confirmations.fail(_as_outcome(command, self._keys.ledger_id))

    def _send_again(self, command: SendAgain) -> None:
        packets = self._packets
        packed: list[Packed] = [(e, packets[e]) for e in command.entries if e in packets]
        if packed:
            self._timeout.sent(packed)  # The entries may have been complete before.
            self.members.send_again(command.index, packed)

    def _begin_change(self, command: ChangeEnsemble) -> None:
        Deferred.fromCoroutine(self._change(command))

    async def _change(self, command: ChangeEnsemble) -> None:
        try:
            await self._pause.before_change(self.quorum.last_error)
            ensemble = await self._effects.change_ensemble(command)
        except ClientError as error:
            self._run(self.quorum.handle(EnsembleRefused(error)))
        except BaseException as error:  # noqa: BLE001 - the adds must not hang, whatever it was.
            log.failure("ensemble change")
            failure = UnexpectedConditionError(f"ensemble change: {error!r}")
            self._run(self.quorum.handle(EnsembleRefused(failure)))
        else:
            commands = self.quorum.handle(EnsembleStored(ensemble))
            self.members.renew(self.quorum.ensemble)
            self._run(commands)

    def _give_up(self, command: GiveUp) -> None:
        self._effects.gave_up(command.error)

    _DOERS: ClassVar[dict[type, Callable[..., None]]] = {
        ConfirmAdds: _confirm,
        FailAdds: _fail,
        SendAgain: _send_again,
        ChangeEnsemble: _begin_change,
        GiveUp: _give_up,
    }


def _check_size(payload: Any, bytes_max: int) -> None:
    if not isinstance(payload, bytes):
        raise IncorrectParameterError(f"an entry is bytes, not {type(payload).__name__}")
    if len(payload) > bytes_max:
        raise IncorrectParameterError(
            f"an entry of {len(payload)} bytes; the largest that fits is {bytes_max}"
        )


def _as_outcome(command: FailAdds, ledger_id: LedgerId) -> ClientError:
    """Return an error that names the failed adds and says that their outcome is unknown."""
    first, last = command.entries[0], command.entries[-1]
    which = f"entry {first}" if first == last else f"entries {first} to {last}"
    error = type(command.error)(
        f"{which} of ledger {ledger_id} not confirmed: {command.error}; "
        "the outcome is unknown until the ledger is closed"
    )
    error.__cause__, error.outcome_unknown = command.error, True
    return error
