"""Client: create, open and delete ledgers.

    client = await Client.connect("zk+hierarchical://127.0.0.1:2181/ledgers", reactor=reactor)
    writer = await client.create_ledger(ensemble_size=3, write_quorum=3, ack_quorum=2)
    await writer.add(b"hello")
    await writer.close()
    async for entry in (await client.open_ledger(writer.ledger_id)).read():
        print(entry.payload)
    await client.close()

Agrees with BookKeeper 4.18.0: BookKeeper, LedgerCreateOp, LedgerOpenOp, LedgerDeleteOp.
"""

from __future__ import annotations

import contextlib
import random
from collections.abc import AsyncIterator, Callable, Mapping
from typing import TYPE_CHECKING, Any

import attrs
from twisted.internet.defer import Deferred
from twisted.internet.threads import deferToThreadPool
from twisted.logger import Logger

from bkclient.config.client import ClientConfig
from bkclient.config.pulsar_uri import as_zookeeper_uri
from bkclient.errors import IncorrectParameterError
from bkclient.metadata import open_metadata
from bkclient.metadata.ledger_metadata_updates import LocalMetadata
from bkclient.metadata.store_settings import store_options
from bkclient.metadata.tree.store import MetadataStore
from bkclient.metadata.versions_and_watches import Versioned
from wire.codes import DigestType, ProtocolVersion
from wire.errors import FormatError
from wire.ids import LedgerId
from wire.ledger_metadata import LedgerMetadata

if TYPE_CHECKING:
    from bkclient.connection.add_frames import LedgerKeys
    from bkclient.connection.pool import Connect
    from bkclient.connection.request_trace import RequestTrace
    from bkclient.connection.security.tls_and_sasl_handshake import Greeting
    from bkclient.ledger.cluster import Cluster
    from bkclient.ledger.reader import LedgerReader
    from bkclient.ledger.recovery_run import ProgressReport
    from bkclient.ledger.writer import LedgerWriter
    from bkclient.placement.policy import Placement
    from bkclient.placement.rack_script import RackScript

log = Logger()


class Client:
    """One connection to one cluster.

    Args:
        store: the cluster's metadata, connected.
        clock: the reactor; for timers only.
        connect: opens connections to bookies.
        config: by Java's keys.
        rng: random numbers, for placement and jitter.
        placement: overrides ``ensemblePlacementPolicy``.
        racks: the source of racks; by default no bookie has a rack.
        greeting: the handshake of connections, to be shared by clients; by default of ``config``.

    Raises:
        SecurityError: TLS is switched on, and its files cannot be used.
    """

    def __init__(
        self,
        store: MetadataStore,
        *,
        clock: Any,
        connect: Connect,
        config: ClientConfig | None = None,
        rng: random.Random | None = None,
        placement: Placement | None = None,
        racks: RackScript | None = None,
        greeting: Greeting | None = None,
    ) -> None:
        config = ClientConfig() if config is None else config
        self.store, self.config = store, config
        if greeting is None and (config.tls is not None or config.has_sasl):
            from bkclient.connection.security.tls_and_sasl_handshake import greeting_of

            greeting = greeting_of(config, clock)
        self._parts: dict[str, Any] = {
            "clock": clock,
            "connect": connect,
            "config": config,
            "rng": random.Random() if rng is None else rng,
            "placement": placement,
            "racks": racks,
            "greeting": greeting,
        }
        self._cluster: Cluster | None = None
        self._trace: RequestTrace | None = None
        self._is_closed = False
        self._owns_store = False

    @classmethod
    async def connect(
        cls,
        uri_or_config: str | ClientConfig,
        *,
        reactor: Any,
        config: ClientConfig | None = None,
        protocol: ProtocolVersion | None = None,
        **rest: Any,
    ) -> Client:
        """Connect to the metadata service and return a client; bookies are reached when needed.

        Args:
            uri_or_config: a metadata service URI, or a configuration that has one.
            reactor: the reactor; nothing here imports it.
            config: settings beside a URI.
            protocol: overrides ``useV2WireProtocol``.
            rest: as for the constructor.

        Raises:
            IncorrectParameterError: no URI, or an invalid URI.
            MetadataUnavailableError: the metadata service cannot be reached.
            NotInitializedError: there is no cluster at that URI.
            SecurityError: keys, certificates or passwords cannot be used.
        """
        if isinstance(uri_or_config, ClientConfig):
            config, uri = uri_or_config, uri_or_config.service_uri
        else:
            uri = as_zookeeper_uri(uri_or_config)
        if uri is None:
            raise IncorrectParameterError("the configuration names no metadata service")
        config = ClientConfig() if config is None else config
        if protocol is not None:
            config = attrs.evolve(config, use_v2_protocol=protocol is ProtocolVersion.V2)
        store = open_metadata(uri, reactor=reactor, **store_options(config, uri))
        if "connect" not in rest:
            from bkclient.connection.tcp import TcpConnect

            rest["connect"] = TcpConnect(reactor)

        def run_blocking(work: Callable[[], Any]) -> Deferred[Any]:
            return deferToThreadPool(reactor, reactor.getThreadPool(), work)

        try:
            await store.connect()
            # The code that needs the layout reports its damage.
            with contextlib.suppress(FormatError):
                await store.layout()
            if config.topology_script:
                from bkclient.placement.from_config import real_racks

                rest.setdefault("racks", await real_racks(config, run_blocking))
            client = cls(store, clock=reactor, config=config, **rest)
        except BaseException:
            await store.close()
            raise
        client._owns_store = True
        return client

    @property
    def cluster(self) -> Cluster:
        """The connections with bookies, made at the first use.

        Their imports take longer than a walk over the metadata of many ledgers.
        """
        if self._cluster is None:
            from bkclient.ledger.cluster import make_cluster

            self._cluster = make_cluster(self.store, **self._parts)
            self._cluster.pool.trace(self._trace)
            if self._is_closed:
                self._cluster.pool.close()
        return self._cluster

    def trace_requests(self, trace: RequestTrace | None) -> None:
        """Log every request to a bookie from now on, or stop logging them."""
        self._trace = trace
        if self._cluster is not None:
            self._cluster.pool.trace(trace)

    @property
    def has_topology_script(self) -> bool:
        """True if a topology script is configured. Reading this opens no connection."""
        return self._parts["racks"] is not None

    async def close(self) -> None:
        """Close all connections; requests in flight fail with ``ClientClosedError``.

        Waits until the bookies of closed ledgers have answered the last adds, so that each entry
        has its write quorum. A bookie that does not answer is waited for as long as an add may
        take, and its connection as long as connecting may. A cancellation ends only this wait.
        """
        self._is_closed = True
        try:
            if self._cluster is not None:
                await self._cluster.last_copies.wait(
                    self._cluster.clock,
                    self.config.connect_timeout_ms / 1000 + self.config.add_timeout_s,
                )
        finally:
            if self._cluster is not None:
                self._cluster.pool.close()
            if self._owns_store:
                await self.store.close()

    async def __aenter__(self) -> Client:  # noqa: PYI034 - typing.Self needs Python 3.11.
        return self

    async def __aexit__(self, *_error: object) -> None:
        await self.close()

    # Create

    async def create_ledger(
        self,
        *,
        ensemble_size: int = 3,
        write_quorum: int = 2,
        ack_quorum: int = 2,
        digest_type: DigestType = DigestType.CRC32C,
        password: bytes = b"",
        custom: Mapping[str, bytes] | None = None,
        ledger_id: LedgerId | None = None,
        explicit_ids: bool = False,
        deferred_sync: bool = False,
    ) -> LedgerWriter:
        """Create a ledger and return its writer. No bookie is contacted.

        With ``explicit_ids`` entries get their ids from the caller (``LedgerHandleAdv``), with
        ``deferred_sync`` they are safe only once they were forced; see ``LedgerWriter``.
        ``ledger_id`` must never have been a ledger's: a writer of the deleted ledger could still
        add to the new one, or close it.

        Raises:
            QuorumError: the sizes do not fit.
            NotEnoughBookiesError: there are fewer writable bookies than ``ensemble_size``.
            LedgerExistsError: ``ledger_id`` is in use.
            MetadataStoreError: the store failed.
        """
        from bkclient.ledger.creation import NewLedger, create
        from bkclient.ledger.writer import LedgerWriter

        new = NewLedger(
            ensemble_size=ensemble_size,
            write_quorum=write_quorum,
            ack_quorum=ack_quorum,
            digest_type=digest_type,
            password=password,
            custom=custom or {},
            ledger_id=ledger_id,
        )
        ledger, stored = await create(self.cluster, new)
        keys = self.cluster.keys(ledger, digest_type, password)
        return LedgerWriter(
            self.cluster,
            LocalMetadata(stored),
            keys,
            explicit_ids=explicit_ids,
            deferred_sync=deferred_sync,
        )

    # Open

    async def open_ledger(
        self,
        ledger_id: LedgerId,
        *,
        password: bytes | None = None,
        digest_type: DigestType | None = None,
        recover: bool = True,
        progress: ProgressReport | None = None,
    ) -> LedgerReader:
        """Open a ledger for reading.

        With ``recover`` a ledger that is not closed is recovered first: its writer is fenced, and
        the ledger ends. Without, it is left as it is, and can be read up to the LAC.

        ``password`` ``None`` takes the one in the metadata (administrative open).

        Raises:
            NoSuchLedgerError: there is no such ledger.
            ClientUnauthorizedError: the ledger has another password.
            ClientDigestMismatchError: the ledger has another digest type, if it is not detected.
            LedgerRecoveryError: it cannot be recovered now.
            ReadFailedError: without recovery: too few bookies answered to know the LAC.
        """
        from bkclient.ledger.opening import open_reader, settle_keys

        local = await self.local_metadata(ledger_id)
        keys = settle_keys(self.cluster, ledger_id, local.value, password, digest_type)
        return await open_reader(self.cluster, local, keys, recovers=recover, progress=progress)

    async def local_metadata(self, ledger_id: LedgerId) -> LocalMetadata:
        """Read a ledger's metadata, to be changed or followed.

        Raises:
            NoSuchLedgerError: there is no such ledger.
        """
        return LocalMetadata(await self.store.read_ledger(ledger_id))

    def keys_of(self, ledger_id: LedgerId, metadata: LedgerMetadata) -> LedgerKeys:
        """Return the keys of a ledger's requests, from its metadata and the configuration."""
        from bkclient.ledger.opening import settle_keys

        return settle_keys(self.cluster, ledger_id, metadata, None, None)

    def writer_of(
        self, ledger_id: LedgerId, local: LocalMetadata, *, last: int, length: int
    ) -> LedgerWriter:
        """Return a writer that continues after ``last``; only after a hand-over was claimed."""
        from bkclient.ledger.writer import LedgerWriter

        keys = self.keys_of(ledger_id, local.value)
        return LedgerWriter(self.cluster, local, keys, last_confirmed=last, length=length)

    # The rest

    async def delete_ledger(self, ledger_id: LedgerId) -> None:
        """Remove a ledger's metadata; bookies drop its entries later. Deleting twice is safe."""
        await self.store.remove_ledger(ledger_id)

    async def read_metadata(self, ledger_id: LedgerId) -> Versioned[LedgerMetadata]:
        """Return a ledger's metadata with its version.

        Raises:
            NoSuchLedgerError: there is no such ledger.
        """
        return await self.store.read_ledger(ledger_id)

    async def is_closed(self, ledger_id: LedgerId) -> bool:
        """Return whether a ledger is closed, by its metadata."""
        return (await self.read_metadata(ledger_id)).value.is_closed

    async def list_ledgers(self, *, after: LedgerId | None = None) -> AsyncIterator[LedgerId]:
        """Yield the ids of all ledgers, ascending."""
        async for ids in self.store.ledger_ranges(after=after):
            for ledger_id in ids:
                yield ledger_id
