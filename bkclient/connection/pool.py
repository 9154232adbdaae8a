"""Connections to bookies: one a bookie and kind, made when first needed, with back-off.

A connection is tried once; until its back-off ends, a caller gets the same error at once.
Another bookie is chosen by the caller. A bookie's address comes from its registration; an id that
is ``host:port`` needs none.
"""

from __future__ import annotations

import itertools
import random
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, Final, Protocol

import attrs
from twisted.internet.defer import Deferred
from twisted.internet.interfaces import IProtocol, IReactorTime
from twisted.internet.protocol import Protocol as TwistedProtocol
from twisted.logger import Logger
from twisted.python.failure import Failure

from bkclient.concurrency import doubled_s
from bkclient.config.client import ClientConfig
from bkclient.connection.bookie_health import Quarantine
from bkclient.connection.channel import BookieChannel, ChannelSettings
from bkclient.connection.tcp import reason_of
from bkclient.errors import (
    BookieUnavailableError,
    ClientClosedError,
    ClientError,
    ReadFailedError,
    refusal,
)
from bkclient.metadata.errors import NotFoundError
from bkclient.metadata.tree.store import MetadataStore
from wire.codes import AddFlag, ProtocolVersion, ReadFlag, ReturnCode
from wire.ids import BookieId, LedgerId
from wire.messages import (
    AddRequest,
    BatchReadRequest,
    BookieInfoRequest,
    ForceLedgerRequest,
    ListEntriesRequest,
    ReadLacRequest,
    Request,
    WriteLacRequest,
)

if TYPE_CHECKING:
    from bkclient.connection.request_trace import RequestTrace
    from bkclient.connection.security.tls_and_sasl_handshake import Greeting

log = Logger()

BACKOFF_FIRST_S: Final = 0.05
BACKOFF_MAX_S: Final = 1.0
SERVICE: Final = "bookie"
"""The id of the endpoint for reads and adds; Java names its protocol ``bookie-rpc``."""


class Connect(Protocol):
    """A function that connects; a simulation replaces it."""

    def __call__(
        self, host: str, port: int, make_protocol: Callable[[], TwistedProtocol], timeout_s: float
    ) -> Deferred[IProtocol]:
        """Connect and return the protocol made, with its transport set."""
        ...


@attrs.define(eq=False)
class _ConnectionSlot:
    """The connection to one bookie in one protocol, or the attempt to connect."""

    channel: BookieChannel | None = None
    connecting: list[Deferred[BookieChannel]] | None = None
    attempt: Deferred[Any] | None = None
    failures: int = 0
    retry_at_s: float = 0.0
    last_error: ClientError | None = None

    def usable(self) -> BookieChannel | None:
        """Return the connection, unless it has ended."""
        channel = self.channel
        return channel if channel is not None and channel.is_usable() else None


class BookiePool:
    """All connections of one client.

    Args:
        connect: connects to a host and port.
        clock: for time-outs and back-off.
        registry: looks up addresses.
        protocol: the protocol of reads and adds; V3 carries the requests that V2 does not have.
        rng: for jitter.
        greeting: TLS and authentication of each new connection; ``None`` for neither.
    """

    def __init__(
        self,
        connect: Connect,
        clock: IReactorTime,
        registry: MetadataStore,
        config: ClientConfig,
        *,
        protocol: ProtocolVersion,
        rng: random.Random,
        greeting: Greeting | None = None,
    ) -> None:
        self.clock, self.config, self.protocol = clock, config, protocol
        self._connect, self._registry, self._rng = connect, registry, rng
        self._greeting = greeting
        self._settings = ChannelSettings.of(config)
        self._txn_ids = itertools.count(1)
        self._slots: dict[tuple[BookieId, ProtocolVersion, int], _ConnectionSlot] = {}
        self._closed: ClientError | None = None
        self._trace: RequestTrace | None = None
        self.quarantine = Quarantine(clock, rng, config)
        self.without_stripes: set[BookieId] = set()
        """Bookies that answered a batch read without its stride, as Java's do."""

    def trace(self, trace: RequestTrace | None) -> None:
        """Start or stop the trace of every connection's requests."""
        self._trace = trace
        for slot in self._slots.values():
            if slot.channel is not None:
                slot.channel.trace = trace

    def anew(self) -> BookiePool:
        """Return a pool with the same settings without connections; its owner closes it."""
        pool = BookiePool(
            self._connect,
            self.clock,
            self._registry,
            self.config,
            protocol=self.protocol,
            rng=self._rng,
            greeting=self._greeting,
        )
        pool.trace(self._trace)
        return pool

    def next_txn_id(self) -> int:
        """Return an id that no other request of this client has."""
        return next(self._txn_ids)

    def txn_ids(self, count: int) -> range:
        """Return ``count`` consecutive ids at once."""
        first = next(self._txn_ids)
        self._txn_ids = itertools.count(first + count)
        return range(first, first + count)

    def protocol_of(self, request: Request) -> ProtocolVersion:
        """Return the protocol of a request.

        In V2 answers differ only by their entry. A late answer to a plain read must not pass for
        the answer to a fencing read, so recovery uses V3. Batch reads always use V2: V3 does not
        have them, every bookie serves both on its port, and an old bookie that closes the
        connection closes one without adds.
        """
        if isinstance(request, BatchReadRequest) and not request.flags & ReadFlag.FENCE:
            return ProtocolVersion.V2
        if self.protocol is ProtocolVersion.V3 or isinstance(request, _V3_ONLY):
            return ProtocolVersion.V3
        flags: int = getattr(request, "flags", 0)
        if isinstance(request, AddRequest):
            plain = flags in {AddFlag.NONE, AddFlag.HIGH_PRIORITY}
        else:
            plain = flags in {ReadFlag.NONE, ReadFlag.HIGH_PRIORITY}
            plain = plain and getattr(request, "previous_lac", None) is None
        return ProtocolVersion.V2 if plain else ProtocolVersion.V3

    def send(
        self, bookie: BookieId, request: Request, *, timeout_s: float | None = None
    ) -> Deferred[Any]:
        """Send a request to a bookie; connect first if needed.

        The Deferred fires with the ``Response``, never before this returns.

        Raises (through the Deferred):
            BookieUnavailableError: no connection could be made, or it was lost.
            RequestTimeoutError: no answer in time.
            ClientClosedError: the client is closed.
        """
        ledger_id = getattr(request, "ledger_id", LedgerId(0))
        protocol = self.protocol_of(request)
        channel = self.ready(bookie, ledger_id, protocol)
        if channel is not None:
            sent = channel.request(request, timeout_s=timeout_s)
        else:
            sent = self.channel(bookie, ledger_id, protocol)
            sent.addCallback(BookieChannel.request, request, timeout_s=timeout_s)
        if self.config.health_check:
            sent.addBoth(self._count, bookie)
        return sent

    def _count(self, outcome: Any, bookie: BookieId) -> Any:
        """Count errors of a bookie, for any request."""
        if not isinstance(outcome, Failure):
            if outcome.rc is not ReturnCode.EOK:
                self.quarantine.count(bookie, refusal(outcome.rc, ReadFailedError, ""))
        elif isinstance(outcome.value, ClientError):
            self.quarantine.count(bookie, outcome.value)
        return outcome

    def ready(
        self, bookie: BookieId, ledger_id: LedgerId, protocol: ProtocolVersion
    ) -> BookieChannel | None:
        """Return the channel if it is connected."""
        slot = self._slots.get(self._key(bookie, ledger_id, protocol))
        return None if slot is None else slot.usable()

    def pending(self, bookie: BookieId) -> int:
        """Return the number of a bookie's unanswered requests, over all connections to it."""
        pending = 0
        for protocol in ProtocolVersion:
            for number in range(self.config.channels_per_bookie):
                slot = self._slots.get((bookie, protocol, number))
                if slot is not None and slot.channel is not None:
                    pending += slot.channel.in_flight
        return pending

    def channel(
        self, bookie: BookieId, ledger_id: LedgerId, protocol: ProtocolVersion | None = None
    ) -> Deferred[BookieChannel]:
        """Return the channel for a ledger's requests, connected; never fires at once on failure."""
        key = self._key(bookie, ledger_id, protocol or self.protocol)
        slot = self._slots.setdefault(key, _ConnectionSlot())
        deferred: Deferred[BookieChannel] = Deferred()
        channel = slot.usable()
        if channel is not None:
            deferred.callback(channel)
            return deferred
        refused = self._closed
        if slot.connecting is None and self.clock.seconds() < slot.retry_at_s:
            refused = refused or slot.last_error
        if refused is not None:
            self.clock.callLater(0, deferred.errback, refused)
            return deferred
        if slot.connecting is None:
            slot.connecting = []
            # In a later turn: a connection may fail at once.
            slot.attempt = Deferred.fromCoroutine(self._make(key, slot))
            slot.attempt.addErrback(lambda failure: log.failure("connecting", failure))
        if slot.connecting is None:
            return self.channel(bookie, ledger_id, protocol)
        slot.connecting.append(deferred)
        return deferred

    def _key(
        self, bookie: BookieId, ledger_id: LedgerId, protocol: ProtocolVersion
    ) -> tuple[BookieId, ProtocolVersion, int]:
        return bookie, protocol, ledger_id % self.config.channels_per_bookie

    async def _make(
        self, key: tuple[BookieId, ProtocolVersion, int], slot: _ConnectionSlot
    ) -> None:
        bookie, protocol, _ = key
        try:
            host, port = await self.address(bookie)
            made = await self._connect(
                host, port, lambda: self._new_channel(bookie, protocol), self._connect_timeout_s
            )
            assert isinstance(made, BookieChannel)
            await self._greet(slot, made, host)
        except ClientError as error:
            self._failed(slot, error)
        except Exception as error:  # noqa: BLE001 - whatever a transport raises means "not there".
            text = f"bookie {bookie} cannot be reached: {reason_of(error)}"
            failure = BookieUnavailableError(text)
            failure.__cause__ = error
            self.quarantine.unreachable(bookie)
            self._failed(slot, failure)
        else:
            self._connected(slot, made)

    async def _greet(self, slot: _ConnectionSlot, channel: BookieChannel, host: str) -> None:
        if self._greeting is None:
            return
        try:
            await self._greeting.say(channel, host)
        except ClientError as error:
            if str(error) != str(slot.last_error):
                # The waiting caller may only report too few bookies.
                log.warn("{error}", error=error)
            raise

    @property
    def _connect_timeout_s(self) -> float:
        return self.config.connect_timeout_ms / 1000

    def _new_channel(self, bookie: BookieId, protocol: ProtocolVersion) -> BookieChannel:
        channel = BookieChannel(
            self.clock,
            bookie,
            protocol=protocol,
            next_txn_id=self.next_txn_id,
            settings=self._settings,
        )
        channel.trace = self._trace
        return channel

    async def address(self, bookie: BookieId) -> tuple[str, int]:
        """Return a bookie's host and port: from its registration, else from its id.

        Raises:
            BookieUnavailableError: it is not registered, and its id is not a ``host:port``.
        """
        if self.config.resolve_addresses:
            try:
                info = await self._registry.service_info(bookie)
            except NotFoundError:
                info = None
            if info is not None and info.endpoints:
                chosen = [one for one in info.endpoints if one.id == SERVICE] or info.endpoints
                return chosen[0].host, chosen[0].port
        host, _, port = bookie.rpartition(":")
        if not host or not port.isdecimal():
            raise BookieUnavailableError(f"bookie {bookie} is not registered")
        return host.strip("[]"), int(port)

    def _connected(self, slot: _ConnectionSlot, channel: BookieChannel) -> None:
        if self._closed is not None:
            channel.close(self._closed)
            self._failed(slot, self._closed)
            return
        slot.failures, slot.last_error = 0, None
        waiting, slot.connecting, slot.attempt = slot.connecting or [], None, None
        if channel.lost is None:
            slot.channel = channel
            channel.on_lost = lambda lost: self._lost(slot, lost)
        for deferred in waiting:
            deferred.callback(channel)

    def _lost(self, slot: _ConnectionSlot, channel: BookieChannel) -> None:
        self.without_stripes.discard(channel.bookie_id)  # The bookie may return as a newer version.
        if slot.channel is channel:
            slot.channel = None

    def _failed(self, slot: _ConnectionSlot, error: ClientError) -> None:
        pause_s = doubled_s(BACKOFF_FIRST_S, slot.failures, BACKOFF_MAX_S)
        slot.failures += 1
        slot.retry_at_s = self.clock.seconds() + pause_s * self._rng.uniform(0.5, 1.0)
        slot.last_error = error
        waiting, slot.connecting, slot.attempt = slot.connecting or [], None, None
        for deferred in waiting:
            deferred.errback(error)

    def close(self) -> None:
        """Close every connection; requests in flight fail with ``ClientClosedError``."""
        self._closed = ClientClosedError("the client is closed")
        for slot in list(self._slots.values()):
            if slot.channel is not None:
                slot.channel.close(self._closed)
            if slot.attempt is not None:
                slot.attempt.cancel()
        self._slots.clear()


_V3_ONLY: Final = (
    WriteLacRequest,
    ReadLacRequest,
    ForceLedgerRequest,
    BookieInfoRequest,
    ListEntriesRequest,
)
