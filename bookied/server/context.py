"""What the connections of one bookie have in common."""

from __future__ import annotations

from typing import TYPE_CHECKING

import attrs
from twisted.internet.interfaces import IReactorTime

from bookied.server.access.auth_gate import Authenticator, Refusals
from bookied.server.access.login_delays import LoginDelays
from bookied.server.adds.fast_adds import FastAdds
from bookied.server.disk_reads import RunBlocking
from bookied.server.fast_reads import FastReads
from bookied.server.limits.backpressure import Backpressure
from bookied.server.limits.handshake_turns import HandshakeTurns
from bookied.server.limits.limit_hits import Limit, LimitHits
from bookied.server.limits.memory import HalfFrames, UnsentAnswers
from bookied.server.limits.pending_reads import PendingReads
from bookied.server.limits.request_turns import Turns
from bookied.server.rules.bookie import Bookie
from bookied.stats.counters import RequestStats

if TYPE_CHECKING:
    from bkclient.connection.security.tls import TlsContexts


@attrs.frozen(kw_only=True)
class AccessRules:
    """What clients have to do before they may ask for anything."""

    tls: TlsContexts | None = None
    """What is offered to clients that ask for it with START_TLS."""
    tls_required: bool = False
    """Whether they may do nothing before."""
    auth: Authenticator | None = None
    """How clients show who they are before they may do anything else."""


@attrs.define(eq=False, kw_only=True)
class ServerContext:
    """The rules of the bookie, and what bounds all its connections together."""

    bookie: Bookie
    clock: IReactorTime
    run_blocking: RunBlocking
    access: AccessRules
    frame_bytes_max: int
    tcp_keep_alive: bool
    stats: RequestStats
    fast_adds: FastAdds
    fast_reads: FastReads
    backpressure: Backpressure
    half_frames: HalfFrames
    unsent: UnsentAnswers
    pending_reads: PendingReads
    turns: Turns
    handshakes: HandshakeTurns
    hits: LimitHits[Limit]
    refusals: Refusals
    login_delays: LoginDelays
