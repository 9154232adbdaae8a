"""The server of a bookie: its connections, bounded in number and memory."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from operator import attrgetter

from twisted.internet.defer import Deferred
from twisted.internet.interfaces import IAddress, IDelayedCall, IReactorTime
from twisted.internet.protocol import Factory
from twisted.logger import Logger

from bkclient.concurrency import cancel
from bookied.server.adds.add_batch import TakenRead
from bookied.server.answer_buffer import AnswerBuffer
from bookied.server.connection import BookieConnection
from bookied.server.limits.backpressure import ServerLimits
from bookied.server.limits.connections import ConnectionCounts, ConnectionSettings
from bookied.server.limits.timeouts import TimeoutWatch
from bookied.server.reads.reads_from_disk import RunBlocking
from bookied.server.rules.request_rules import Bookie
from bookied.server.shared_by_connections import AccessRules, ServerContext

log = Logger()


class BookieServer(Factory):
    """The factory of ``BookieConnection``s, which makes clients wait if the disks are slower.

    The journals call ``on_synced`` on the reactor, once for each group.
    """

    noisy = False

    def __init__(
        self,
        bookie: Bookie,
        clock: IReactorTime,
        run_blocking: RunBlocking,
        *,
        limits: ServerLimits | None = None,
        settings: ConnectionSettings | None = None,
        access: AccessRules | None = None,
        clients_wait: Callable[[bool], object] = lambda _: None,
        give_way: Callable[[], object] = lambda: None,
    ) -> None:
        """Serve ``bookie``.

        Args:
            bookie: the rules.
            clock: the reactor.
            run_blocking: runs a disk read, such as ``partial(deferToThreadPool, reactor, pool)``.
            limits: the limits at which clients wait; the default uses the storage's own limits.
            settings: the settings of every connection.
            access: the required authentication and TLS.
            clients_wait: gets True when clients have to wait for their turn, False when none does.
            give_way: lets the journals' threads run. Called while adds wait for the journals: when
                clients wait for their turn, and when a connection is opened or closed.
        """
        self.settings = settings = settings or ConnectionSettings()
        self.shared = shared = ServerContext(
            bookie,
            clock,
            run_blocking,
            limits or ServerLimits(unwritten_bytes_max=bookie.storages.limits.unwritten_bytes_max),
            settings,
            access or AccessRules(),
            clients_wait=clients_wait,
            give_way=give_way,
        )
        self.bookie, self.clock, self.stats = bookie, clock, bookie.stats
        self.hits, self.backpressure = shared.hits, shared.backpressure
        self.half_frames, self.unsent = shared.half_frames, shared.unsent
        self.connections: dict[BookieConnection, None] = {}
        """In order of arrival, so that a simulation is repeatable."""
        self.connections_broken = 0
        """Number of connections that were not closed in order: reset, or timed out by the
        system.
        """
        self._counts = ConnectionCounts(self.hits, clock)
        self._watch = TimeoutWatch(clock, settings.timeouts, lambda: self.connections)
        self._is_in_group = False
        self._unflushed: list[AnswerBuffer] = []
        self._drained: Deferred[None] | None = None
        self._cut: IDelayedCall | None = None

    def buildProtocol(self, addr: IAddress | None) -> BookieConnection | None:
        """Accept a client.

        Return None, which closes its connection, at a limit or while draining.
        """
        self.shared.let_journals_run()
        host = str(getattr(addr, "host", ""))
        if self._drained is not None or self._counts.refuses(host, self.settings):
            return None
        return BookieConnection(self.shared, self)

    def take(self, limits: ServerLimits, settings: ConnectionSettings) -> None:
        """Use these limits and settings from now on; open connections remain."""
        self.shared.obey(limits)
        self.settings = settings
        self._watch.take(settings.timeouts)

    @property
    def access(self) -> AccessRules:
        """The required authentication and TLS; a new value applies to new connections."""
        return self.shared.access

    @access.setter
    def access(self, access: AccessRules) -> None:
        self.shared.access = access

    def before_event(self, whose: object) -> None:
        """Gather adds while the events are those of clients; store them before any other event.

        Call this before each event. No other code may see a ledger or a storage before the gathered
        adds are stored.
        """
        adds = self.shared.fast_adds
        adds.is_gathering = isinstance(getattr(whose, "protocol", None), BookieConnection)
        if not adds.is_gathering:
            adds.store()

    def on_synced(self, done: Iterable[Callable[[], object] | list[TakenRead]]) -> None:
        """Answer the requests that a journal group has made durable; one write a connection."""
        self._is_in_group = True
        try:
            for each in done:
                if not isinstance(each, list):
                    self._call(each)
                    continue
                for replies, *read in each:
                    self._call(replies.adds_synced, *read)
        finally:
            self._is_in_group = False
        unflushed, self._unflushed = self._unflushed, []
        # A client with a few adds does not wait for the writes to all the others.
        for answers in sorted(unflushed, key=attrgetter("size_bytes")):
            answers.flush()

    def _call(self, done: Callable[..., object], *read: object) -> None:
        try:
            done(*read)
        except Exception:  # noqa: BLE001 -- one client's trouble is not the others'
            log.failure("a response could not be sent")

    def flush_soon(self, answers: AnswerBuffer) -> None:
        """Send the answers at the end of the current journal group, or now if there is no group."""
        if self._is_in_group:
            self._unflushed.append(answers)
        else:
            answers.flush()

    @property
    def reads_pending(self) -> int:
        """The number of reads that wait for the disk."""
        return self.shared.pending_reads.count

    @property
    def held_back(self) -> int:
        """The number of clients that are not read because too much is in flight."""
        return self.backpressure.held

    def drain(self, timeout_s: float) -> Deferred[None]:
        """Accept no more requests, answer the pending ones, and close; cut after ``timeout_s``.

        Long polls are dropped. The caller has closed the port already.
        """
        if self._drained is None:
            self._drained = Deferred()
            self._cut = self.clock.callLater(timeout_s, self._cut_all)
            for connection in list(self.connections):
                connection.drain()
        if not self.connections:
            self._finish_draining()
        return self._drained

    def connection_made(self, connection: BookieConnection, host: str) -> None:
        """Register a connection."""
        self.connections[connection] = None
        self._counts.opened(connection, host)
        self._watch.begin()

    def connection_lost(self, connection: BookieConnection, host: str, *, broken: bool) -> None:
        """Remove a connection."""
        self.shared.fast_adds.store()
        self.shared.let_journals_run()
        self.connections_broken += broken
        self.connections.pop(connection, None)
        self._counts.closed(connection, host)
        if not self.connections:
            self._watch.end()
        if self._drained is not None and not self.connections:
            self._finish_draining()

    def _finish_draining(self) -> None:
        cancel(self._cut)
        if self._drained is not None and not self._drained.called:
            self._drained.callback(None)

    def _cut_all(self) -> None:
        for connection in list(self.connections):
            connection.abort()
