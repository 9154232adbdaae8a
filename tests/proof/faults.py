"""How each fault is done to the cluster, and undone."""

from __future__ import annotations

import os
import random
import resource
import signal
from collections import Counter
from collections.abc import Callable
from contextlib import suppress
from typing import Any, Final

from bkctl.commands.local.zookeeper import ZooKeeperStartError
from tests.interop.peers.peers import JavaBookie, PeerFailed
from tests.proof.cluster import ZOOKEEPER_S, ProofCluster
from tests.proof.damage import flip, truncate
from tests.proof.load import Load
from tests.proof.schedule import OF_CLIENTS, Fault, Step
from tests.support.reactor import call
from tests.support.tcp_proxy import TcpProxy

SLOW_S: Final = 0.2
STOP_S: Final = 20.0
READY_S: Final = 120.0
STARTS: Final = 5
"""How often a bookie may end by itself when all faults are over: of what befell it before."""


LINKS: Final[dict[Fault, Callable[[TcpProxy], None]]] = {
    Fault.CUT: TcpProxy.cut,
    Fault.PARTITION: TcpProxy.hold,
    Fault.HALF_OPEN: TcpProxy.swallow,
    Fault.REQUESTS_LOST: lambda proxy: proxy.to_server.swallow(),
    Fault.ANSWERS_LOST: lambda proxy: proxy.to_client.swallow(),
    Fault.SLOW: lambda proxy: proxy.delay(SLOW_S),
}
DOWN: Final = {Fault.KILL, Fault.RESTART, Fault.READ_ONLY, Fault.FLIP, Fault.TRUNCATE}
"""A bookie with one of these is stopped on purpose."""


class Faults:
    """Begins and ends steps. ``counts`` has how often each was done, and what came of it."""

    def __init__(self, cluster: ProofCluster, load: Load, say: Callable[[str], None]) -> None:
        self._cluster, self._load, self._say = cluster, load, say
        self.counts: Counter[str] = Counter()
        self._busy: set[int] = set()
        """Bookies that are stopped on purpose."""

    def begin(self, step: Step) -> None:
        """Do what a step says."""
        self.counts[step.fault.value] += 1
        if step.fault in OF_CLIENTS:
            self._begin_of_client(step)
            return
        member = self._cluster.members[step.target]
        rng = random.Random(step.seed)
        if step.fault in LINKS:
            call(LINKS[step.fault], member.proxy)
            return
        if step.fault in DOWN:
            self._busy.add(step.target)
        match step.fault:
            case Fault.REFUSED:
                call(refuse, member.proxy)
            case Fault.SESSION:
                call(member.zookeeper.hold)
            case Fault.ZOOKEEPER_CUT:
                call(member.zookeeper.cut)
            case Fault.KILL:
                member.bookie.kill()
            case Fault.RESTART:
                member.bookie.stop(STOP_S)
            case Fault.PAUSE:
                _signal(member.bookie, signal.SIGSTOP)
            case Fault.WRITES_FAIL:
                _limit_files(member.bookie, 1)
            case Fault.CLOCK_AHEAD | Fault.CLOCK_BACK:
                assert member.clock is not None
                sign = 1 if step.fault is Fault.CLOCK_AHEAD else -1
                member.clock.set(sign * rng.choice((5, 300, 86_400, 8 * 86_400)))
            case Fault.FULL:
                assert member.disk is not None
                member.disk.fill()
            case Fault.READ_ONLY:
                assert member.disk is not None
                member.bookie.stop(STOP_S)
                member.disk.set_read_only(read_only=True)
                member.bookie.spawn()
            case Fault.FLIP | Fault.TRUNCATE:
                member.bookie.stop(STOP_S)
                damage = flip if step.fault is Fault.FLIP else truncate
                self._say(f"          {damage(member.bookie.directory, rng)}")

    def end(self, step: Step) -> None:
        """Undo it."""
        if step.fault in OF_CLIENTS:
            self._end_of_client(step)
            return
        member = self._cluster.members[step.target]
        self._busy.discard(step.target)
        call(member.proxy.heal)
        call(member.zookeeper.heal)
        if member.clock is not None:
            member.clock.set(0)
        if member.disk is not None:
            if step.fault is Fault.FULL:
                member.disk.empty()
            if step.fault is Fault.READ_ONLY:
                member.bookie.kill()
                member.disk.set_read_only(read_only=False)
        if member.bookie.running:
            _signal(member.bookie, signal.SIGCONT)
            _limit_files(member.bookie, resource.RLIM_INFINITY)
        else:
            member.bookie.spawn()

    def revive(self) -> None:
        """Start bookies again that ended by themselves, as a service manager does."""
        for number, member in enumerate(self._cluster.members):
            if number not in self._busy and not member.bookie.running:
                self.counts["bookies that ended by themselves"] += 1
                self._say(f"          bookie {number} has ended with {member.bookie.returncode}")
                member.bookie.spawn()

    def heal(self) -> None:
        """Undo everything, and wait until all bookies serve."""
        self._busy.clear()
        for member in self._cluster.members:
            call(member.zookeeper.heal)
            call(member.proxy.heal)
        for client in self._cluster.clients:
            call(client.zookeeper.heal)
            client.signal(signal.SIGCONT)
        for _ in range(STARTS):
            self.revive()
            if all(_is_ready(member.bookie) for member in self._cluster.members):
                return
        raise AssertionError("not all bookies start")

    def _begin_of_client(self, step: Step) -> None:
        slot = self._load.slots[step.target % len(self._load.slots)]
        match step.fault:
            case Fault.FENCE:
                self._load.fence(slot, random.Random(step.seed))
            case Fault.CLIENT_KILL:
                self._load.kill(slot)
            case Fault.CLIENT_PAUSE:
                slot.client.signal(signal.SIGSTOP)
            case Fault.CLIENT_SESSION:
                call(slot.client.zookeeper.hold)
            case Fault.ZOOKEEPER_RESTART:
                self._restart_zookeeper()

    def _end_of_client(self, step: Step) -> None:
        slot = self._load.slots[step.target % len(self._load.slots)]
        match step.fault:
            case Fault.CLIENT_PAUSE:
                slot.client.signal(signal.SIGCONT)
            case Fault.CLIENT_SESSION:
                call(slot.client.zookeeper.heal)

    def _restart_zookeeper(self) -> None:
        os.kill(self._cluster.zookeeper.pid, signal.SIGKILL)
        self._cluster.zookeeper.stop()
        try:
            self._cluster.zookeeper.start(ZOOKEEPER_S)
        except ZooKeeperStartError:
            # The port may still be in the hands of a connection that is being closed.
            self._cluster.zookeeper.start(ZOOKEEPER_S)


def refuse(proxy: TcpProxy) -> None:
    """Reset all connections, and those to come."""
    proxy.accepts = False
    proxy.cut()


def _is_ready(bookie: JavaBookie) -> bool:
    """Wait until a bookie serves; return False if it ended instead."""
    try:
        bookie.wait_ready(READY_S)
    except PeerFailed:
        if bookie.running:
            raise
    return bookie.running


def _signal(bookie: JavaBookie, number: signal.Signals) -> None:
    with suppress(ProcessLookupError):
        os.kill(bookie.pid, number)


def _limit_files(bookie: JavaBookie, size_bytes: int) -> None:
    """Have writes behind ``size_bytes`` of a file fail, in a process that runs."""
    prlimit: Any = resource.prlimit
    with suppress(ProcessLookupError):
        prlimit(bookie.pid, resource.RLIMIT_FSIZE, (size_bytes, resource.RLIM_INFINITY))
