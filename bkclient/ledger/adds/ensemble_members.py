"""The ensemble of one handle: the connection to each bookie, and the entries striped to it."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import attrs
from twisted.internet.defer import Deferred
from twisted.internet.interfaces import IDelayedCall
from twisted.logger import Logger

from bkclient.concurrency import cancel
from bkclient.connection.add_frames import AddBatch, FrameMaker, LedgerKeys
from bkclient.connection.add_stream import AddStream, Writability
from bkclient.connection.channel import BookieChannel
from bkclient.connection.pool import BookiePool
from bkclient.errors import ClientError, TooManyRequestsClientError
from bkclient.ledger.cluster import PendingCopies
from bkclient.placement.policy import Ensemble
from bkclient.quorum.distribution import is_striped_to
from wire.codes import ProtocolVersion
from wire.frames.bulk_adds import Packed
from wire.ids import NO_ENTRY, BookieId, EntryId

log = Logger()


@attrs.frozen
class _BacklogWait:
    """A limited wait until a full connection accepts more bytes."""

    drained: Deferred[None]
    overdue: IDelayedCall


@attrs.frozen
class AddFraming:
    """The encoding of the adds of one handle."""

    keys: LedgerKeys
    frames: FrameMaker
    protocol: ProtocolVersion
    """V3 if another writer of the ledger uses the V2 connection."""
    is_deferred: bool = False
    """True if an acknowledged entry may be lost with the bookie's process."""


class Member:
    """A bookie at one index of the ensemble. A new member replaces it when the bookie is replaced.

    Every batch is sent, waits for the connection, or fails; no batch is dropped. Without a
    connection each batch starts to connect.

    Args:
        acked: called with this member and the entries that the bookie has stored.
        failed: called with this member, entries and the error.
    """

    def __init__(
        self,
        pool: BookiePool,
        framing: AddFraming,
        index: int,
        bookie: BookieId,
        *,
        acked: Callable[[Member, list[int]], None],
        failed: Callable[[Member, list[int], ClientError], None],
    ) -> None:
        self.index, self.bookie = index, bookie
        self._pool, self._keys, self._frames = pool, framing.keys, framing.frames
        self._protocol, self._is_deferred = framing.protocol, framing.is_deferred
        self._on_acked, self._on_failed = acked, failed
        self._stream: AddStream | None = None
        self._channel: BookieChannel | None = None
        self._backlog: list[Packed] = []
        self._connecting = False
        self._hold: _BacklogWait | None = None
        self._ailing = False
        self._gone = False
        self._last_copies: PendingCopies | None = None
        self._lacking, self._why_lacking = 0, ""
        self._acked_to = self._broken_at = NO_ENTRY
        channel = pool.ready(bookie, self._keys.ledger_id, self._protocol)
        if channel is not None:
            self._open_stream(channel)
        else:
            self._connect(self._protocol)

    @property
    def in_flight(self) -> int:
        """The number of unanswered entries."""
        sent = 0 if self._stream is None else len(self._stream.outstanding)
        return sent + len(self._backlog)

    def has_lost(self, forced: EntryId) -> bool:
        """Return whether the bookie may have lost an acknowledged entry after ``forced``.

        A bookie that died and was started again answers the next request; only the connection shows
        it.
        """
        broken = self._channel is not None and self._channel.lost is not None
        return (self._acked_to if broken else self._broken_at) > forced

    @property
    def full_connection(self) -> Writability | None:
        """The connection's writability, if it is full and the bookie has not failed recently."""
        channel = self._channel
        if (
            channel is None
            or channel.writability.is_writable
            or channel.lost is not None
            or self._ailing
        ):
            return None
        return channel.writability

    def send(self, batch: AddBatch) -> None:
        """Send a batch; no callback runs before this returns.

        A bookie that failed recently and whose connection is full gets no more entries. With
        ``waitTimeoutOnBackpressureMs`` no bookie with a full connection does: the batch waits that
        long.
        """
        stream = self._stream
        if self._hold is not None:
            self._backlog += batch.packed
        elif stream is None or not stream.channel.is_usable():
            self._backlog += batch.packed
            self._connect(self._protocol)
        elif self._ailing and not stream.channel.writability.is_writable:
            self._pool.clock.callLater(0, self._failed, batch.entries, self._full())
        elif self._wait_s >= 0 and not stream.channel.writability.is_writable:
            self._backlog += batch.packed
            overdue = self._pool.clock.callLater(self._wait_s, self._overdue)
            self._hold = _BacklogWait(stream.channel.writability.when_writable(), overdue)
            self._hold.drained.addCallbacks(lambda _: self._drained(), lambda _: None)
        else:
            is_v2 = stream.channel.protocol is ProtocolVersion.V2
            frames, keys = batch.v2() if is_v2 else batch.v3()
            stream.send(frames, keys, batch.entries)

    def part(self) -> None:
        """Release the bookie: nothing more is sent to it or accepted from it."""
        self._gone, self._backlog = True, []
        if self._last_copies is not None:
            self._last_copies.settled(self)
        self._cancel_hold()
        if self._stream is not None:
            self._stream.close()
            self._stream = None

    def part_when_answered(self, last_copies: PendingCopies, last: EntryId) -> None:
        """Release the bookie after it has answered or failed; no more results are reported.

        One warning lists the entries that it refused, up to ``last``, the end of the ledger.
        """

        def note_lack(_member: Member, entries: list[int], error: ClientError) -> None:
            self._lacking += sum(entry_id <= last for entry_id in entries)
            self._why_lacking = str(error)

        self._on_acked, self._on_failed = _ignore, note_lack
        self._last_copies = last_copies
        last_copies.expect(self, self.bookie)
        self._part_if_answered()

    def _part_if_answered(self) -> None:
        if self._last_copies is None or self.in_flight:
            return
        if self._lacking:
            log.warn(
                "bookie {bookie} may lack {count} of the last entries of ledger {ledger}: {why}",
                bookie=self.bookie,
                count=self._lacking,
                ledger=self._keys.ledger_id,
                why=self._why_lacking,
            )
        self.part()

    def _full(self) -> ClientError:
        return TooManyRequestsClientError(f"the connection to bookie {self.bookie} takes nothing")

    @property
    def _wait_s(self) -> float:
        return self._pool.config.backpressure_wait_ms / 1000

    def _cancel_hold(self) -> None:
        hold, self._hold = self._hold, None
        if hold is not None:
            hold.drained.cancel()
            cancel(hold.overdue)

    def _drained(self) -> None:
        """Send the waiting batches: the connection accepts more, or is closed."""
        self._cancel_hold()
        self._send_backlog()

    def _overdue(self) -> None:
        self._cancel_hold()
        self._fail_backlog(self._full())

    def _connect(self, protocol: ProtocolVersion) -> None:
        """Connect, unless that is in progress; waiting batches are then sent, or fail."""
        if self._connecting:
            return
        self._connecting, self._stream = True, None
        channel = self._pool.channel(self.bookie, self._keys.ledger_id, protocol)
        channel.addCallbacks(self._connected, lambda failure: self._not_connected(failure.value))
        channel.addErrback(lambda failure: log.failure("joining a bookie", failure))

    def _open_stream(self, channel: BookieChannel) -> None:
        ledger_id = self._keys.ledger_id
        if channel.protocol is ProtocolVersion.V2 and channel.streams.has(ledger_id):
            self._connect(ProtocolVersion.V3)
            return
        if self._channel is not channel:
            self._broken_at = self._acked_to
        self._channel = channel
        self._stream = channel.open_stream(ledger_id, self._acked, self._failed)

    def _connected(self, channel: BookieChannel) -> None:
        self._connecting = False
        if self._gone:
            return
        self._open_stream(channel)
        if self._stream is not None:
            self._send_backlog()

    def _send_backlog(self) -> None:
        backlog, self._backlog = self._backlog, []
        if backlog:
            self.send(AddBatch(backlog, self._frames))

    def _not_connected(self, error: Any) -> None:
        """Fail the waiting batches; the next batch connects again."""
        self._connecting = False
        assert isinstance(error, ClientError), error
        self._fail_backlog(error)

    def _fail_backlog(self, error: ClientError) -> None:
        backlog, self._backlog = self._backlog, []
        self._failed([entry_id for entry_id, _ in backlog], error)

    def _acked(self, entries: list[int]) -> None:
        self._ailing = False
        if self._is_deferred:
            self._acked_to = EntryId(max(self._acked_to, *entries))
        self._on_acked(self, entries)
        self._part_if_answered()

    def _failed(self, entries: list[int], error: ClientError) -> None:
        self._ailing = True
        if entries and not self._gone:
            self._pool.quarantine.count(self.bookie, error, len(entries))
            self._on_failed(self, entries, error)
            self._part_if_answered()


def _ignore(_member: Member, _entries: list[int]) -> None:
    """Ignore an answer that has no effect any more."""


class EnsembleMembers:
    """One ``Member`` for each index.

    Args:
        pool: the connections.
        framing: the encoding of the adds.
        ensemble: the first bookies.
        write_quorum: the number of bookies that each entry goes to.
        acked: called with a member and the entries that its bookie has stored.
        failed: called with a member, entries and the error.
    """

    def __init__(
        self,
        pool: BookiePool,
        framing: AddFraming,
        ensemble: Ensemble,
        write_quorum: int,
        *,
        acked: Callable[[Member, list[int]], None],
        failed: Callable[[Member, list[int], ClientError], None],
    ) -> None:
        self._pool, self._framing, self._write_quorum = pool, framing, write_quorum
        self._acked, self._failed = acked, failed
        self._members = [self._join(index, bookie) for index, bookie in enumerate(ensemble)]

    def _join(self, index: int, bookie: BookieId) -> Member:
        return Member(
            self._pool, self._framing, index, bookie, acked=self._acked, failed=self._failed
        )

    def send(self, packed: list[Packed]) -> None:
        """Send each member its entries: without striping, one batch that all share."""
        members, quorum, frames = self._members, self._write_quorum, self._framing.frames
        count = len(members)
        if count == quorum:
            everything = AddBatch(packed, frames)
            for member in members:
                member.send(everything)
            return
        for index, member in enumerate(members):
            mine = [p for p in packed if is_striped_to(p[0], index, count, quorum)]
            if mine:
                member.send(AddBatch(mine, frames))

    def send_again(self, index: int, packed: list[Packed]) -> None:
        """Send entries to the bookie at one index."""
        self._members[index].send(AddBatch(packed, self._framing.frames))

    def renew(self, ensemble: Ensemble) -> None:
        """Release the replaced bookies, and connect to the new ones."""
        for index, bookie in enumerate(ensemble):
            if self._members[index].bookie != bookie:
                self._members[index].part()
                self._members[index] = self._join(index, bookie)

    def leave(self) -> None:
        """Release the connections: later answers are ignored."""
        for member in self._members:
            member.part()

    def leave_when_answered(self, last_copies: PendingCopies, last: EntryId) -> None:
        """Release each connection after its bookie has answered all requests.

        The ledger ends with the entry ``last``.
        """
        for member in self._members:
            member.part_when_answered(last_copies, last)

    def that_lost(self, forced: EntryId) -> list[BookieId]:
        """Return the bookies that may have lost an acknowledged entry after ``forced``."""
        return [member.bookie for member in self._members if member.has_lost(forced)]

    @property
    def full_connection(self) -> Writability | None:
        """The writability of a full connection that adds should wait for."""
        full = (one.full_connection for one in self._members)
        return next((one for one in full if one is not None), None)

    @property
    def in_flight(self) -> int:
        """The number of unanswered sends, including those of confirmed entries."""
        return sum(member.in_flight for member in self._members)
