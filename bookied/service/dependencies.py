"""The dependencies of a bookie on the world outside, which a test can replace."""

from __future__ import annotations

import random
import resource
import time
from collections.abc import Callable, Mapping
from functools import partial
from typing import TYPE_CHECKING, Any

import attrs
from twisted.internet.defer import Deferred, maybeDeferred
from twisted.internet.interfaces import IReactorTime
from twisted.internet.threads import deferToThreadPool
from twisted.logger import Logger

from bkclient.config.client import ClientConfig
from bkclient.config.shared import KeepAlive
from bkclient.connection.tcp import TcpConnect
from bkclient.errors import IncorrectParameterError, SecurityError
from bkclient.metadata import open_metadata
from bkclient.metadata.store_settings import store_options
from bkclient.metadata.tree.store import MetadataStore
from bookied.config.bookie import BookieConfig
from bookied.directories.bookie_id import HostNames, RealHost
from bookied.directories.lock import DirectoryLocks
from bookied.errors import BookieExitStatus, BookieStopError, SecurityStartError
from bookied.server.listener import Listener, TcpListener
from bookied.server.reads.reads_from_disk import RunBlocking
from bookied.service.threads import (
    BLOCKING_THREADS,
    ThreadQueue,
    ThreadSwitches,
    give_way,
    start_pool,
    stop_pools,
)
from bookied.stats.metrics import MetadataStats
from bookied.storage.files.files import Files, RealFiles
from bookied.storage.index.key_value_store import OpenKeyValues

if TYPE_CHECKING:
    from bkclient.client import Client
    from bkclient.connection.pool import Connect
    from bkclient.connection.security.tls_and_sasl_handshake import Greeting

log = Logger()


@attrs.frozen(kw_only=True)
class Dependencies:
    """The disks, clock, network, threads and metadata of one bookie.

    With ``threads`` off, journals and entry logs have no threads: the simulation calls their
    ``step``. ``close`` is called last.
    """

    clock: IReactorTime
    call_from_thread: Callable[..., object]
    store: MetadataStore
    files: Files
    host: HostNames
    listener: Listener
    locks: DirectoryLocks
    run_blocking: RunBlocking
    run_reads: RunBlocking
    queues: Mapping[str, ThreadQueue] = attrs.field(factory=dict)
    """The queues of the threads by name, for metrics."""
    metadata_stats: MetadataStats | None = None
    """The times of ZooKeeper requests, if the metadata is in ZooKeeper."""
    connect: Connect
    """Connects to other bookies."""
    open_store: Callable[..., MetadataStore] | None = None
    """Opens another store on the same cluster, with a session of its own; None if it cannot.

    It accepts the options of ``open_metadata``.
    """
    client_config: ClientConfig = attrs.field(factory=ClientConfig)
    """The settings of the bookie's own clients, which repair ledgers."""
    greeting: Greeting | None = None
    """The begin of the connections of these clients."""
    rng: random.Random = attrs.field(factory=random.Random)
    threads: bool = True
    open_key_values: OpenKeyValues | None = None
    """Opens a database of DbLedgerStorage's index; RocksDB if None."""
    open_files_max: int | None = None
    """The process's limit on open files; None if there is no limit."""
    monotonic_s: Callable[[], float] | None = None
    """Returns seconds that never go backward; ``clock`` if None."""
    switch_threads_soon: Callable[[bool], object] = lambda _: None
    """Called with True before work for which threads must switch sooner, and with False after
    it.
    """
    give_way: Callable[[], object] = lambda: None
    """Lets other threads run at once."""
    watch_events: Callable[[Callable[[object], object]], object] = lambda _: None
    """Registers a function that is called before each event; see ``bookied.process.reactor``."""
    close: Callable[[], Deferred[None]]


def make_client(parts: Dependencies, store: MetadataStore) -> Client:
    """Return a client of the cluster over a connected store.

    The client's modules are loaded here, because many bookies never repair ledgers.
    """
    from bkclient.client import Client
    from bkclient.placement.from_config import real_script
    from bkclient.placement.rack_script import RackScript

    config = parts.client_config
    script = real_script(config, parts.run_blocking)
    return Client(
        store,
        clock=parts.clock,
        connect=parts.connect,
        config=config,
        rng=parts.rng,
        racks=script and RackScript(script, host_to_read_near(config, parts.host)),
        greeting=parts.greeting,
    )


def host_to_read_near(config: ClientConfig, host: HostNames) -> str | None:
    """Return this host's name for the topology script, if repairs read from near bookies first.

    The lookup of the host's names blocks.
    """
    from bkclient.placement.from_config import reads_near

    if not reads_near(config) or config.ignore_local_node:
        return None
    try:
        address = host.address(None)
        return host.canonical_name(address) if config.use_hostname_for_local_node else address
    except OSError as error:
        log.warn("cannot determine which bookies are near: {error}", error=error)
        return None


class MetadataUriError(BookieStopError):
    """The URI of the metadata service is invalid."""

    exit_status = BookieExitStatus.INVALID_CONFIGURATION


def real_dependencies(config: BookieConfig, reactor: Any, **changes: Any) -> Dependencies:
    """Return the dependencies of a bookie on this machine, with ``changes``.

    Raises:
        ThreadsError: the threads cannot be started.
        MetadataUriError: the URI is invalid.
        SecurityStartError: keys or certificates of the bookie's own clients cannot be used.
    """
    if "client_config" in changes:
        # As Java's auditor and workers do, which use another section of the JAAS file than
        # programs.
        own = attrs.evolve(changes["client_config"], client_role="system")
        changes |= {"client_config": own, "greeting": _greeting(own, reactor)}
    blocking = start_pool(BLOCKING_THREADS, "blocking")
    reads = start_pool(max(1, config.read_threads), "read")
    pools = (blocking, reads)
    run_reads: RunBlocking = partial(deferToThreadPool, reactor, reads)
    if config.read_threads == 0:
        run_reads = maybeDeferred

    queues = {
        "read": ThreadQueue(run_reads),
        "blocking": ThreadQueue(partial(deferToThreadPool, reactor, blocking)),
    }

    metadata_stats = MetadataStats()

    def close() -> Deferred[None]:
        return maybeDeferred(stop_pools, pools)

    try:
        store = changes.pop("store", None) or _open_store(config, reactor, metadata_stats)
    except BaseException:
        stop_pools(pools)
        raise
    defaults: dict[str, Any] = {
        "clock": reactor,
        "monotonic_s": time.monotonic,
        "call_from_thread": reactor.callFromThread,
        "store": store,
        "metadata_stats": metadata_stats if _is_zookeeper(config) else None,
        "files": RealFiles(),
        "host": RealHost(),
        "listener": TcpListener(reactor, KeepAlive.of(config)),
        "locks": DirectoryLocks(),
        "run_blocking": queues["blocking"],
        "run_reads": queues["read"],
        "queues": queues,
        "connect": TcpConnect(reactor),
        "open_store": partial(_open_store, config, reactor, metadata_stats),
        "close": close,
        "switch_threads_soon": ThreadSwitches(),
        "give_way": give_way,
        "watch_events": partial(setattr, reactor, "before_event"),
        "open_files_max": resource.getrlimit(resource.RLIMIT_NOFILE)[0],
    }
    return Dependencies(**(defaults | changes))


def _greeting(config: ClientConfig, reactor: Any) -> Greeting | None:
    from bkclient.connection.security.tls_and_sasl_handshake import greeting_of

    try:
        return greeting_of(config, reactor)
    except SecurityError as error:
        raise SecurityStartError(str(error)) from error


def _is_zookeeper(config: BookieConfig) -> bool:
    return (config.service_uri or "").lower().startswith("zk")


def _open_store(
    config: BookieConfig, reactor: Any, stats: MetadataStats, **options: Any
) -> MetadataStore:
    uri = config.service_uri
    assert uri is not None, "load() requires one"
    if _is_zookeeper(config):
        options["observe"] = stats.observe
    try:
        return open_metadata(uri, reactor=reactor, **store_options(config, uri), **options)
    except IncorrectParameterError as error:
        raise MetadataUriError(f"metadataServiceUri: {error}") from error
    except SecurityError as error:
        raise SecurityStartError(str(error)) from error
