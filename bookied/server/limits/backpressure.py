"""Back pressure: stop reading from clients when too much is unanswered or not yet written."""

from __future__ import annotations

from collections.abc import Callable
from enum import Enum
from typing import Final

import attrs
from twisted.internet.interfaces import IReactorTime

from bookied.server.limits.journal_queue_shares import SharedAdds
from bookied.server.limits.large_add_turns import LargeAddTurns
from bookied.storage.index.format import PAGE_BYTES

RECHECK_S: Final = 0.01
"""Seconds between two checks whether the entry log has caught up, which no event reports."""

SHARED_ADDS_BYTES: Final = 2 * 1024 * 1024
"""Bytes for each journal: enough to write one group while the next gathers, in few milliseconds."""


SHARED_ADD_BYTES: Final = 512
"""Bytes that an add counts besides its own: small adds cost more work than their bytes say."""


@attrs.frozen(kw_only=True)
class ServerLimits:
    """The limits at which a bookie makes clients wait or refuses requests.

    Reading from every client stops at ``in_flight_bytes_max`` of unanswered requests, at
    ``unwritten_bytes_max`` of entries that are not in an entry log yet, or at ``adds_max``
    unanswered adds. From three quarters of a limit on, reading stops from clients that exceed their
    share; the shares grow again while entries are written. At half of each limit all clients are
    read again. ``HalfFrames`` and ``UnsentAnswers`` enforce the last two limits. Besides, each
    connection may occupy memory for one read and a full transport buffer. None means no limit.

    If several connections add, and more than ``shared_adds_bytes_max`` of adds are unanswered,
    reading stops from connections that exceed their share (``SharedAdds``). There an add counts
    ``shared_add_bytes`` more than its size. Large adds wait for their turn (``LargeAddTurns``).

    If more than ``reads_pending_max`` reads wait for the disk, further reads are answered
    ETOOMANYREQUESTS, except a few of each connection.
    """

    in_flight_bytes_max: int = 32 * 1024 * 1024
    unwritten_bytes_max: int | None = None
    adds_max: int | None = None  # maxAddsInProgressLimit
    shared_adds_bytes_max: int = SHARED_ADDS_BYTES
    shared_add_bytes: int = SHARED_ADD_BYTES
    reads_pending_max: int = 10_000  # maxPendingReadRequestsPerThread
    half_frames_bytes_max: int = 64 * 1024 * 1024
    unsent_bytes_max: int = 64 * 1024 * 1024


class PressureLevel(Enum):
    """The pressure on a bookie's limits, which decides from which clients it reads."""

    NONE = "all are read"
    SHARED = "clients with more than their share wait"
    FULL = "all wait"


_OVER: Final = {PressureLevel.NONE: 0.5, PressureLevel.SHARED: 0.75, PressureLevel.FULL: 1.0}
"""Part of a limit above which a level begins; for ``NONE``, above which some clients still wait."""

FULL_ENDS: Final = 0.9
"""Part of a limit below which clients within their share are read again."""

NEW_PART: Final = 0.125
"""Part of ``unwritten_bytes_max`` that all clients together may add while they share."""

LOOKS: Final = 64
"""Checks of the unwritten bytes while a limit's worth of entries arrives.

A check takes as long as an add. A request counts as its bytes and an index page for each entry.
"""

READ_BYTES: Final = 128 * 1024
"""Bytes of one read at most. Twice Twisted's 64 KiB: fewer turns, wake-ups and journal records."""

READS_BYTES_MAX: Final = 64 * 1024 * 1024
"""Bytes of one read from every connection in total: requests wait for their turn in memory. With
more connections than fit at ``READ_BYTES`` each, reads get shorter."""

READ_BYTES_MIN: Final = 4 * 1024

LARGE_READ_BYTES: Final = 512 * 1024
"""Bytes of one read from the only client that adds, with large entries: it takes no longer.

One connection has this size at a time. It keeps the size while it adds nothing, until another
connection gets the size.
"""

LARGE_ADD_BYTES: Final = 4096
"""Mean bytes of an add above which entries count as large."""

SHARED_READ_BYTES: Final = 16 * 1024
"""Bytes of one read while clients share. A share is checked only after a read, and small requests
can leave a hundred times their size in memory.
"""

REFILL_PART: Final = 0.5
"""Part of the bytes written while clients share that they may add.

The unwritten rest still shrinks.
"""


class ConnectionLoad:
    """The requests in flight of one connection, and whether the connection has to wait."""

    __slots__ = (
        "add_bytes",
        "added_in",
        "address",
        "adds",
        "adds_bytes",
        "is_held",
        "new_bytes",
        "size_bytes",
        "update",
    )

    def __init__(self, update: Callable[[], object], address: str = "") -> None:
        """Begin with nothing in flight; ``update`` is called when ``is_held`` has changed."""
        self.update, self.address = update, address
        self.size_bytes = self.adds = self.adds_bytes = self.added_in = self.add_bytes = 0
        self.new_bytes = 0
        """Bytes received since clients share, or the memory used because of them, if that is more.

        ``REFILL_PART`` reduces them as entries are written.
        """
        self.is_held = False
        """Whether the connection must not be read."""


class Backpressure:
    """The count of everything in flight, and the decision what connections are not read.

    A connection that fills a limit waits, and leaves a quarter of the limit to the others, which
    are read. ``limited`` is called when the first clients have to wait, and ``freed`` when all are
    read again. One read of each connection may still arrive after that, and exceed a limit by its
    size. While any client waits, ``write_soon`` is called every ``RECHECK_S``: entry logs are
    written in large pieces, and the clients may be waiting only for a piece that still grows.
    """

    def __init__(
        self,
        limits: ServerLimits,
        clock: IReactorTime,
        unwritten_bytes: Callable[[], int],
        *,
        limited: Callable[[], None],
        freed: Callable[[], None],
        write_soon: Callable[[], None] = lambda: None,
    ) -> None:
        self.limits, self._clock, self._unwritten_bytes = limits, clock, unwritten_bytes
        self._limited, self._freed, self._write_soon = limited, freed, write_soon
        self._rechecking = False
        self._loads: dict[ConnectionLoad, None] = {}
        self._read_large: ConnectionLoad | None = None
        self._read_bytes = READ_BYTES
        self._sharers = 1
        self._shared_adds = SharedAdds(clock)
        self._adds_wait = False
        self.large_adds = LargeAddTurns(clock, self._must_large_adds_wait)
        self._last_unwritten_bytes = self._unseen_bytes = 0
        self.in_flight_bytes = 0
        self.adds_in_flight = 0
        self.level = PressureLevel.NONE

    @property
    def several_add(self) -> bool:
        """True if clients of several addresses have added in the last seconds."""
        return self._shared_adds.several_add

    def read_bytes_max(self, load: ConnectionLoad) -> int:
        """Return the size of the next read from a connection.

        Call this after a read, and when ``update`` is called: the connection that had
        ``LARGE_READ_BYTES`` gets an ``update`` when another one gets them.
        """
        if self.level is PressureLevel.SHARED:
            return min(SHARED_READ_BYTES, self._read_bytes)
        is_alone = load.adds_bytes == self._shared_adds.size_bytes
        is_large = load.adds_bytes > LARGE_ADD_BYTES * load.adds
        if not (is_alone and is_large):
            limits = self.limits
            return self._shared_adds.read_bytes_max(
                load, self._read_bytes, limits.shared_adds_bytes_max, limits.shared_add_bytes
            )
        before, self._read_large = self._read_large, load
        if before is not None and before is not load:
            before.update()
        return LARGE_READ_BYTES

    @property
    def held(self) -> int:
        """The number of connections that are not read."""
        return sum(load.is_held for load in self._loads)

    def begin(self, load: ConnectionLoad) -> None:
        """Register a new connection."""
        self._loads[load] = None
        load.is_held = self.level is PressureLevel.FULL
        is_over = len(self._loads) * self._read_bytes > READS_BYTES_MAX
        if is_over and self._read_bytes > READ_BYTES_MIN:
            self._read_bytes //= 2
            for one in list(self._loads):
                one.update()

    def end(self, load: ConnectionLoad) -> None:
        """Remove a connection; its requests in flight still count."""
        self._loads.pop(load, None)
        if self._read_large is load:
            self._read_large = None
        # Only at a quarter of the limit, so that a few changing connections do not toggle the size.
        if (
            self._read_bytes < READ_BYTES
            and len(self._loads) * self._read_bytes * 4 <= READS_BYTES_MAX
        ):
            self._read_bytes *= 2

    def received(self, load: ConnectionLoad, size_bytes: int, adds: int = 0) -> None:
        """Count a connection's request, or a batch of its adds."""
        self.in_flight_bytes += size_bytes
        self.adds_in_flight += adds
        load.size_bytes += size_bytes
        load.adds += adds
        load.new_bytes += size_bytes
        if adds:
            self._shared_adds.received(load, size_bytes, adds)
        self._unseen_bytes += size_bytes + PAGE_BYTES * (adds or 1)
        if self.level is not PressureLevel.NONE or self._may_be_over():
            is_shared = self.level is PressureLevel.SHARED
            next_level = PressureLevel.FULL if is_shared else PressureLevel.SHARED
            if self._is_over(_OVER[next_level]):
                self._grow()
        if adds or self.level is PressureLevel.SHARED:
            self._judge(load)

    def answered(self, load: ConnectionLoad, size_bytes: int, adds: int = 0) -> None:
        """Count out what ``received`` has counted."""
        self.in_flight_bytes -= size_bytes
        self.adds_in_flight -= adds
        load.size_bytes -= size_bytes
        load.adds -= adds
        assert self.in_flight_bytes >= 0 <= self.adds_in_flight
        if adds:
            self._shared_adds.answered(load, size_bytes, adds)
            self.large_adds.go_on()
        if self.level is not PressureLevel.NONE:
            self._shrink()
        if (load.is_held or self.level is PressureLevel.SHARED) and load in self._loads:
            self._judge(load)

    def begin_read(self, load: ConnectionLoad) -> int | None:
        """Return the unwritten bytes before a connection is read, for ``end_read``.

        None: not needed.
        """
        is_sharing = self.level is PressureLevel.SHARED
        return self._unwritten_bytes() - load.new_bytes if is_sharing else None

    def end_read(self, load: ConnectionLoad, before: int | None) -> None:
        """Count the memory that a read has used as new bytes of its connection.

        The memory can be much larger than the requests: an entry of a few bytes may need an index
        page.
        """
        if before is not None and self.level is PressureLevel.SHARED and load in self._loads:
            load.new_bytes = max(load.new_bytes, self._unwritten_bytes() - before)
            self._judge(load)

    def adds_wait(self, *, wait: bool) -> None:
        """Stop counting adds while the adds in flight wait for disk space and no more are accepted.

        Their number cannot grow, and their clients may read entries on the same connections.
        """
        self._adds_wait = wait
        if self._is_over(_OVER[PressureLevel.SHARED]):
            self._grow()
        elif self.level is not PressureLevel.NONE:
            self._shrink()
        for load in list(self._loads):
            self._judge(load)
        self.large_adds.go_on()

    def _must_large_adds_wait(self) -> bool:
        shared, limits = self._shared_adds, self.limits
        return (
            shared.several_add
            and not self._adds_wait
            and shared.is_over(limits.shared_adds_bytes_max, limits.shared_add_bytes)
        )

    def _grow(self) -> None:
        """Make clients wait: all at the limit, before it only those that exceed their share."""
        if self.level is PressureLevel.FULL:
            return
        if self.level is PressureLevel.NONE:
            self._limited()
            self._sharers = max(1, sum(load.size_bytes > 0 for load in self._loads))
            for load in self._loads:
                load.new_bytes = 0
            self._last_unwritten_bytes = self._unwritten_bytes()
            self._recheck_later()
        is_full = self._is_over(_OVER[PressureLevel.FULL])
        self._set(PressureLevel.FULL if is_full else PressureLevel.SHARED)

    def _shrink(self) -> None:
        """Read from clients again: all at half of the limits, before only those in their share."""
        if not self._is_over(_OVER[PressureLevel.NONE]):
            self._set(PressureLevel.NONE)
            self._freed()
        elif self.level is PressureLevel.FULL and not self._is_over(FULL_ENDS):
            self._set(PressureLevel.SHARED)

    def _set(self, level: PressureLevel) -> None:
        is_new, self.level = level is not self.level, level
        for load in list(self._loads):
            self._judge(load, is_new=is_new)

    def _judge(self, load: ConnectionLoad, *, is_new: bool = False) -> None:
        """Decide whether a connection waits; call its ``update`` on a change, or if ``is_new``."""
        has_too_many_adds = not self._adds_wait and self._shared_adds.is_over_share(
            load, self.limits.shared_adds_bytes_max, self.limits.shared_add_bytes
        )
        is_held = self.level is PressureLevel.FULL or (
            has_too_many_adds or (self.level is PressureLevel.SHARED and self._is_over_share(load))
        )
        if is_held is not load.is_held or is_new:
            load.is_held = is_held
            load.update()

    def _is_over_share(self, load: ConnectionLoad) -> bool:
        limits, part = self.limits, _OVER[PressureLevel.SHARED] / self._sharers
        unwritten_max = limits.unwritten_bytes_max
        waiting = self._adds_wait
        return (
            load.size_bytes - waiting * load.adds_bytes > limits.in_flight_bytes_max * part
            or (limits.adds_max is not None and not waiting and load.adds > limits.adds_max * part)
            or (
                unwritten_max is not None
                and load.new_bytes > unwritten_max * NEW_PART / self._sharers
                and self._unwritten_bytes() > unwritten_max * _OVER[PressureLevel.NONE]
            )
        )

    def _may_be_over(self) -> bool:
        """Return whether to check all limits.

        The unwritten bytes may slightly exceed theirs unseen.
        """
        limits, part = self.limits, _OVER[PressureLevel.SHARED]
        unwritten_max, adds_max = limits.unwritten_bytes_max, limits.adds_max
        is_unseen = unwritten_max is not None and self._unseen_bytes * LOOKS >= unwritten_max
        if is_unseen:
            self._unseen_bytes = 0
        return (
            is_unseen
            or self.in_flight_bytes > limits.in_flight_bytes_max * part
            or (adds_max is not None and self.adds_in_flight > adds_max * part)
        )

    def _is_over(self, part: float) -> bool:
        limits, waiting = self.limits, self._adds_wait
        adds_bytes = waiting * self._shared_adds.size_bytes
        adds = 0 if waiting else self.adds_in_flight
        return (
            self.in_flight_bytes - adds_bytes > limits.in_flight_bytes_max * part
            or (limits.adds_max is not None and adds > limits.adds_max * part)
            or (
                limits.unwritten_bytes_max is not None
                and self._unwritten_bytes() > limits.unwritten_bytes_max * part
            )
        )

    def _recheck_later(self) -> None:
        if not self._rechecking and self.limits.unwritten_bytes_max is not None:
            self._rechecking = True
            self._clock.callLater(RECHECK_S, self._recheck)

    def _recheck(self) -> None:
        self._rechecking = False
        if self.level is not PressureLevel.NONE:
            self._write_soon()
            self._refill()
            self._shrink()
        if self.level is not PressureLevel.NONE:
            self._recheck_later()

    def _refill(self) -> None:
        """Refund a part of the written bytes, so that modest clients need not wait for all."""
        self._sharers = max(self._sharers, sum(load.new_bytes > 0 for load in self._loads))
        now = self._unwritten_bytes()
        written, self._last_unwritten_bytes = self._last_unwritten_bytes - now, now
        if written <= 0:
            return
        for load in list(self._loads):
            load.new_bytes = max(0, load.new_bytes - int(written * REFILL_PART / self._sharers))
            self._judge(load)
