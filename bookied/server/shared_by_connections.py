"""The objects that all connections of one bookie share."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import TYPE_CHECKING

import attrs
from twisted.internet.defer import DeferredSemaphore
from twisted.internet.interfaces import IReactorTime

from bookied.server.access.access_check import Authenticator, Refusals
from bookied.server.access.login_delays import LoginDelays
from bookied.server.adds.fast_adds import FastAdds
from bookied.server.limits.backpressure import Backpressure, PressureLevel, ServerLimits
from bookied.server.limits.connections import ConnectionSettings
from bookied.server.limits.handshake_turns import HandshakeTurns
from bookied.server.limits.limit_hits import Limit, LimitHits
from bookied.server.limits.memory import HalfFrames, UnsentAnswers
from bookied.server.limits.pending_disk_reads import PendingReads
from bookied.server.limits.request_turns import Turns
from bookied.server.reads.reads_from_disk import RunBlocking
from bookied.server.reads.reads_from_memory import FastReads
from bookied.server.rules.request_rules import Bookie

if TYPE_CHECKING:
    from bkclient.connection.security.tls_contexts import TlsContexts


@attrs.frozen(kw_only=True)
class AccessRules:
    """The authentication and TLS that the bookie requires of clients."""

    tls: TlsContexts | None = None
    """The TLS contexts for START_TLS; None if TLS is not offered."""
    tls_required: bool = False
    """Whether requests before START_TLS are refused."""
    auth: Authenticator | None = None
    """The authentication method; None if clients need not authenticate."""


class ServerContext:
    """The bookie, and the limits of all its connections together."""

    def __init__(
        self,
        bookie: Bookie,
        clock: IReactorTime,
        run_blocking: RunBlocking,
        limits: ServerLimits,
        settings: ConnectionSettings,
        access: AccessRules,
        *,
        clients_wait: Callable[[bool], object],
        give_way: Callable[[], object],
    ) -> None:
        """Begin without connections; see ``BookieServer``."""
        self.bookie, self.access = bookie, access
        self.clock, self.run_blocking = clock, run_blocking
        self.run_long: RunBlocking = partial(DeferredSemaphore(1).run, run_blocking)
        """Runs functions in threads, one function at a time."""
        self.frame_bytes_max = settings.frame_bytes_max
        self.tcp_keep_alive = settings.tcp_keep_alive
        self.stats = bookie.stats
        self.fast_adds = FastAdds(bookie, frame_bytes_max=settings.frame_bytes_max)
        self.fast_reads = FastReads(bookie.storages, bookie.stats)
        self.hits = LimitHits(clock, Limit)
        self.backpressure = Backpressure(
            limits,
            clock,
            lambda: bookie.storages.unwritten_bytes + self.fast_adds.unstored_bytes,
            limited=self._note_limited,
            freed=self._note_freed,
            write_soon=bookie.storages.write_soon,
        )
        self.half_frames = HalfFrames(
            clock,
            bytes_max=limits.half_frames_bytes_max,
            is_reading=self._reads_all_frames,
        )
        self.unsent = UnsentAnswers(clock, bytes_max=limits.unsent_bytes_max)
        self.pending_reads = PendingReads(
            self.hits, lambda: self.backpressure.limits.reads_pending_max
        )
        self.turns = Turns(clock, clients_wait, self.let_journals_run)
        self.handshakes = HandshakeTurns(clock)
        self.refusals, self.login_delays = Refusals(clock), LoginDelays(clock)
        self._give_way, self._limited_ns = give_way, 0

    def obey(self, limits: ServerLimits) -> None:
        """Use these limits from now on."""
        self.backpressure.limits = limits
        self.half_frames.bytes_max = limits.half_frames_bytes_max
        self.unsent.bytes_max = limits.unsent_bytes_max

    def _reads_all_frames(self) -> bool:
        """Return whether no frame waits for anything but its own client."""
        pressure = self.backpressure
        return pressure.level is PressureLevel.NONE and not pressure.large_adds

    def let_journals_run(self) -> None:
        """Let the journals' threads run if adds wait for them."""
        if self.backpressure.adds_in_flight:
            self._give_way()

    def _note_limited(self) -> None:
        self.hits.hit(Limit.IN_FLIGHT)
        self._limited_ns = self.stats.now_ns()

    def _note_freed(self) -> None:
        self.stats.blocked_wait.note(self.stats.since_us(self._limited_ns))
