"""The shared parts of one client's handles: metadata, connections, placement, clock, randomness."""

from __future__ import annotations

import random
from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING, Any

import attrs
from twisted.internet.interfaces import IReactorTime
from twisted.logger import Logger

from bkclient.concurrency import SILENT_S, RateLimit, Waiters, cancel, rate_limit
from bkclient.config.client import ClientConfig
from bkclient.connection.add_frames import LedgerKeys
from bkclient.connection.bookie_health import BookieHealth, Quarantine
from bkclient.connection.pool import BookiePool, Connect
from bkclient.errors import NotEnoughBookiesError
from bkclient.ledger.reads.entry_fetcher import EntryFetcher
from bkclient.ledger.reads.replica_read import LedgerReads
from bkclient.metadata.ledger_metadata_updates import Updater
from bkclient.metadata.tree.store import MetadataStore
from bkclient.placement.ensemble_search import holds
from bkclient.placement.free_space import FreeSpace, ask_sizes
from bkclient.placement.from_config import placement_of
from bkclient.placement.policy import Ensemble, Placement, PlacementRequest, Replacement
from bkclient.placement.rack_script import RackScript, ScriptError, Topology
from wire.codes import DigestType, ProtocolVersion
from wire.digest import digester, master_key
from wire.ids import BookieId, LedgerId
from wire.ledger_metadata import LedgerMetadata

if TYPE_CHECKING:
    from bkclient.connection.security.tls_and_sasl_handshake import Greeting

log = Logger()


class PendingCopies:
    """The bookies of closed writers that still have copies to acknowledge.

    The ack quorum confirms an entry. Without a wait, a client that ends just after the close leaves
    entries with fewer copies than the write quorum.
    """

    def __init__(self) -> None:
        """Begin with no copy."""
        self._owing: dict[object, BookieId] = {}
        self._waiters = Waiters()

    def expect(self, member: object, bookie: BookieId) -> None:
        """Count a member of an ensemble, which is ``bookie``, until ``settled``."""
        self._owing[member] = bookie

    def settled(self, member: object) -> None:
        """Forget a bookie: it has acknowledged all its copies, or failed."""
        self._owing.pop(member, None)
        if not self._owing:
            self._waiters.wake()

    async def wait(self, clock: IReactorTime, timeout_s: float) -> None:
        """Wait until all bookies have answered, at most ``timeout_s``."""
        if not self._owing:
            return
        notice = clock.callLater(SILENT_S, self._say_waiting, timeout_s)
        try:
            await self._waiters.wait_within(timeout_s, clock)
        finally:
            cancel(notice)

    def _say_waiting(self, timeout_s: float) -> None:
        log.warn(
            "waiting for {bookies} to store the last entries, at most {timeout_s:g} s in all",
            bookies=", ".join(sorted(set(self._owing.values()))),
            timeout_s=timeout_s,
        )


@attrs.frozen(kw_only=True)
class Cluster:
    """The parts of one client."""

    store: MetadataStore
    pool: BookiePool
    placement: Placement
    health: BookieHealth
    updater: Updater
    clock: IReactorTime
    rng: random.Random
    config: ClientConfig
    last_copies: PendingCopies = attrs.field(factory=PendingCopies)
    topology: Topology | None = None
    """The racks, if the placement uses them."""
    free_space: FreeSpace | None = None
    """The free space of bookies, if the placement uses it."""

    @property
    def quarantine(self) -> Quarantine:
        """The bookies that failed too often."""
        return self.pool.quarantine

    def keys(self, ledger_id: LedgerId, digest_type: DigestType, password: bytes) -> LedgerKeys:
        """Return the keys for a ledger's requests."""
        return LedgerKeys(
            ledger_id=ledger_id,
            master_key=master_key(password),
            digester=digester(digest_type, password),
        )

    def rate_limit(self) -> RateLimit | None:
        """Return the limit on the requests of a new handle."""
        return rate_limit(self.clock, self.config.requests_per_s_max)

    def fetcher(self, keys: LedgerKeys, rate: RateLimit | None = None) -> EntryFetcher:
        """Return a fetcher of a ledger's entries, with a rate limit."""
        sticky = self.rng.randrange(2**16) if self.config.sticky_reads else None
        return EntryFetcher(
            LedgerReads(
                self.pool, keys.ledger_id, keys.digester, self.placement, self.health, sticky
            ),
            rate,
        )

    async def choose_ensemble(self, size: int, write_quorum: int, ack_quorum: int) -> Ensemble:
        """Return bookies for a new ledger; bookies that failed recently only if needed.

        Raises:
            NotEnoughBookiesError: there are too few writable bookies.
        """
        writable = await self.store.writable_bookies()
        await self.learn_racks(writable)
        await self._learn_space(writable)
        failing = self.health.failing(writable)
        quarantined = await self._quarantined()
        for excluded in (failing | quarantined, quarantined, frozenset[BookieId]()):
            request = PlacementRequest(
                write_quorum, ack_quorum, writable=writable, excluded=excluded
            )
            try:
                ensemble = self.placement.choose(size, request)
                self.require_fault_domains(ensemble, write_quorum)
            except NotEnoughBookiesError:
                if not excluded:
                    raise
            else:
                return ensemble
        raise AssertionError("the second choice excludes no bookie")

    def require_fault_domains(self, ensemble: Ensemble, write_quorum: int) -> None:
        """Check that adds to an ensemble can be acknowledged; Java's client waits without end.

        Raises:
            NotEnoughBookiesError: acks must span fault domains, and a write quorum does not.
        """

        def can_acknowledge(bookies: Sequence[str], _: int) -> bool:
            return self.placement.spans_enough(tuple(map(BookieId, bookies)), write_quorum)

        is_asked = self.config.enforce_fault_domains
        if is_asked and not holds(ensemble, write_quorum, can_acknowledge):
            raise NotEnoughBookiesError(
                f"the bookies {', '.join(ensemble)} span {self.placement.shortfall}; with "
                "enforceMinNumFaultDomainsForWrite no add to them would be acknowledged"
            )

    async def _quarantined(self) -> frozenset[BookieId]:
        """Return the bookies in quarantine; a switch in the metadata ends every quarantine."""
        quarantined = self.quarantine.members()
        if quarantined and not await self.store.health_check_enabled():
            self.quarantine.clear()
            return frozenset()
        return quarantined

    async def learn_racks(self, bookies: frozenset[BookieId]) -> None:
        """Resolve the racks of bookies, if the placement uses them.

        Raises:
            ScriptError: racks are enforced and the script fails.
        """
        if self.topology is not None:
            await self.topology.learn(bookies)

    async def learn_near(self, metadata: LedgerMetadata) -> None:
        """Resolve which of a ledger's bookies are near, if the placement reads from near bookies.

        A failing script does not stop a client that only reads, because it needs no racks.
        """
        if not self.placement.prefers_near:
            return
        writable = await self.store.writable_bookies()
        try:
            await self.learn_racks(writable.union(metadata.all_bookies()))
        except ScriptError as error:
            log.warn("cannot determine which bookies are near: {error}", error=error)

    async def _learn_space(self, bookies: frozenset[BookieId]) -> None:
        if self.free_space is not None:
            await self.free_space.learn(bookies)

    async def replacement(
        self, metadata: LedgerMetadata, failed: Iterable[tuple[int, BookieId]]
    ) -> Replacement:
        """Read the registered bookies again, to replace bookies that have just failed."""
        gone = dict(failed)
        for bookie in gone.values():
            self.health.failed(bookie)
        writable = await self.store.writable_bookies()
        await self.learn_racks(writable.union(metadata.ensemble, gone.values()))
        await self._learn_space(writable)
        return Replacement(
            placement=self.placement,
            failed=gone,
            write_quorum=metadata.write_quorum,
            ack_quorum=metadata.ack_quorum,
            writable=writable,
            failing=self.health.failing(writable),
            quarantined=await self._quarantined(),
        )


def make_cluster(
    store: MetadataStore,
    *,
    clock: Any,
    connect: Connect,
    config: ClientConfig,
    rng: random.Random,
    placement: Placement | None,
    racks: RackScript | None,
    greeting: Greeting | None,
) -> Cluster:
    """Return the parts of one client; the arguments are those of ``Client``."""
    protocol = ProtocolVersion.V2 if config.use_v2_protocol else ProtocolVersion.V3
    pool = BookiePool(connect, clock, store, config, protocol=protocol, rng=rng, greeting=greeting)

    async def host_of(bookie: BookieId) -> str:
        return (await pool.address(bookie))[0]

    topology = free_space = None
    if placement is None:
        if config.weighted_placement:
            free_space = _free_space(pool, clock, config)
        placement, topology = placement_of(
            config,
            rng,
            clock,
            racks=racks,
            host_of=host_of,
            free_of=None if free_space is None else free_space.of,
        )
    return Cluster(
        store=store,
        pool=pool,
        placement=placement,
        topology=topology,
        free_space=free_space,
        health=BookieHealth(
            clock,
            config.failure_memory_ms / 1000 if config.track_failures else 0.0,
            pool.quarantine,
            # If load decides the order of reads, slowness does not count as well.
            minds_slow=config.reorder_pending_threshold <= 0,
        ),
        updater=Updater(store=store, clock=clock, rng=rng),
        clock=clock,
        rng=rng,
        config=config,
    )


def _free_space(pool: BookiePool, clock: Any, config: ClientConfig) -> FreeSpace:
    return FreeSpace(
        clock,
        lambda bookie: ask_sizes(pool, bookie).addCallback(lambda sizes: sizes.free_bytes or 0),
        interval_s=config.bookie_info_interval_s,
        retry_s=config.bookie_info_retry_s,
    )
