"""What a bookie is given rather than makes: the world outside, so that a test can be that world."""

from __future__ import annotations

import random
import resource
import sys
import threading
import time
from collections.abc import Callable, Mapping
from functools import partial
from typing import TYPE_CHECKING, Any, Final

import attrs
from twisted.internet.defer import Deferred, maybeDeferred
from twisted.internet.interfaces import IReactorTime
from twisted.internet.threads import deferToThreadPool
from twisted.logger import Logger
from twisted.python.failure import Failure
from twisted.python.threadpool import ThreadPool

from bkclient.config.client import ClientConfig, KeepAlive
from bkclient.connection.tcp import TcpConnect
from bkclient.errors import IncorrectParameterError, SecurityError
from bkclient.metadata import open_metadata
from bkclient.metadata.api import MetadataStore
from bkclient.metadata.store_settings import store_options
from bookied.config.bookie import BookieConfig
from bookied.directories.identity import HostNames, RealHost
from bookied.directories.lock import DirectoryLocks
from bookied.errors import (
    BookieExitStatus,
    BookieStopError,
    OpenFilesError,
    SecurityStartError,
    ThreadsError,
)
from bookied.runtime.listener import Listener, TcpListener
from bookied.server.disk_reads import RunBlocking
from bookied.stats.metrics import MetadataStats
from bookied.storage.files.files import Files, RealFiles
from bookied.storage.index.key_values import OpenKeyValues

if TYPE_CHECKING:
    from bkclient.client import Client
    from bkclient.connection.pool import Connect
    from bkclient.connection.security.handshake import Greeting

log = Logger()

BLOCKING_THREADS: Final = 2
"""Start, checkpoints and disk checks; reads have a pool of their own."""

OPEN_FILES_MIN: Final = 128
"""A bookie keeps what it promises with so many; see tests/live/bookied/test_few_descriptors.py."""

THREADS_MIN: Final = 48
"""A start takes as many: RocksDB opens its files with 16, and aborts the process without them."""

_SMALL_STACK_BYTES: Final = 64 * 1024

SWITCH_S: Final = sys.getswitchinterval()
SWITCH_SOON_S: Final = 0.0001
GIVE_WAY_S: Final = 0.00001


class CountedRuns:
    """A way to run things in threads that knows how many of them are not done."""

    def __init__(self, run: RunBlocking) -> None:
        self._run = run
        self.queued = self.completed = 0

    def __call__(self, function: Callable[[], Any]) -> Deferred[Any]:
        """Run a function in a thread."""
        self.queued += 1
        return self._run(function).addBoth(self._done)

    def _done(self, result: Any) -> Any:
        self.queued -= 1
        self.completed += 1
        return result


def in_own_thread(
    call_from_thread: Callable[..., object], function: Callable[[], Any]
) -> Deferred[Any]:
    """Run what takes long in a thread of its own, which no other work waits for."""
    done: Deferred[Any] = Deferred()

    def work() -> None:
        try:
            value = function()
        except Exception:  # noqa: BLE001  # it comes out of the Deferred
            call_from_thread(done.errback, Failure())
        else:
            call_from_thread(done.callback, value)

    threading.Thread(target=work, name="long-work", daemon=True).start()
    return done


@attrs.frozen(kw_only=True)
class Parts:
    """The world of one bookie.

    With ``threads`` off, journals and entry logs have no threads of their own: the simulation calls
    their ``step``. ``close`` is called at the very end.
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
    queues: Mapping[str, CountedRuns] = attrs.field(factory=dict)
    """The queues of the threads by name, for metrics."""
    metadata_stats: MetadataStats | None = None
    """What ZooKeeper takes, where the metadata is there."""
    connect: Connect
    """How other bookies are reached."""
    open_store: Callable[..., MetadataStore] | None = None
    """Makes another store on the same cluster, for a session of its own; None: there is none.

    It takes options of ``open_metadata``.
    """
    client_config: ClientConfig = attrs.field(factory=ClientConfig)
    """What clients of the bookie's own are told, those that repair ledgers."""
    greeting: Greeting | None = None
    """How the connections of those clients begin."""
    rng: random.Random = attrs.field(factory=random.Random)
    threads: bool = True
    open_key_values: OpenKeyValues | None = None
    """Opens a database of DbLedgerStorage's index; RocksDB if None."""
    open_files_max: int | None = None
    """The process's limit on open files; None for none."""
    monotonic_s: Callable[[], float] | None = None
    """Counts seconds that setting the clock does not change; ``clock`` if None."""
    switch_threads_soon: Callable[[bool], object] = lambda _: None
    """Gets True when a thread must not wait long for its turn, False when it may."""
    give_way: Callable[[], object] = lambda: None
    """Lets other threads run at once."""
    close: Callable[[], Deferred[None]]


def make_client(parts: Parts, store: MetadataStore) -> Client:
    """Return a client of the cluster over a store that is connected.

    What it needs is loaded only now: many a bookie never repairs.
    """
    from bkclient.client import Client
    from bkclient.placement.from_config import real_script
    from bkclient.placement.topology import RackScript

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
    """Return this host as the topology script knows it, if repairs read from near bookies first.

    Blocks, as all that is asked of the machine does.
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
    """The metadata service URI cannot be understood."""

    exit_status = BookieExitStatus.INVALID_CONFIGURATION


def real_dependencies(config: BookieConfig, reactor: Any, **changes: Any) -> Parts:
    """Return this machine as the world, but for ``changes``.

    Raises:
        ThreadsError: the threads that work needs cannot be started.
        MetadataUriError: the URI cannot be understood.
        SecurityStartError: keys or certificates of the bookie's own clients cannot be used.
    """
    if "client_config" in changes:
        # As Java's auditor and workers do, by another section of the JAAS file than programs.
        own = attrs.evolve(changes["client_config"], client_role="system")
        changes |= {"client_config": own, "greeting": _greeting(own, reactor)}
    blocking = _begun_pool(BLOCKING_THREADS, "blocking")
    reads = _begun_pool(max(1, config.read_threads), "read")
    pools = (blocking, reads)
    run_reads: RunBlocking = partial(deferToThreadPool, reactor, reads)
    if config.read_threads == 0:
        run_reads = maybeDeferred

    queues = {
        "read": CountedRuns(run_reads),
        "blocking": CountedRuns(partial(deferToThreadPool, reactor, blocking)),
    }

    metadata_stats = MetadataStats()

    def close() -> Deferred[None]:
        return maybeDeferred(_stop_pools, pools)

    try:
        store = changes.pop("store", None) or _open_store(config, reactor, metadata_stats)
    except BaseException:
        _stop_pools(pools)
        raise
    given: dict[str, Any] = {
        "clock": reactor,
        "monotonic_s": time.monotonic,
        "call_from_thread": reactor.callFromThread,
        "store": store,
        "metadata_stats": metadata_stats if _is_zookeeper(config) else None,
        "files": RealFiles(),
        "host": RealHost(),
        "listener": TcpListener(reactor, _keep_alive(config)),
        "locks": DirectoryLocks(),
        "run_blocking": queues["blocking"],
        "run_reads": queues["read"],
        "queues": queues,
        "connect": TcpConnect(reactor),
        "open_store": partial(_open_store, config, reactor, metadata_stats),
        "close": close,
        "switch_threads_soon": switch_threads_soon,
        "give_way": give_way,
        "open_files_max": resource.getrlimit(resource.RLIMIT_NOFILE)[0],
    }
    return Parts(**(given | changes))


def _greeting(config: ClientConfig, reactor: Any) -> Greeting | None:
    from bkclient.connection.security.handshake import greeting_of

    try:
        return greeting_of(config, reactor)
    except SecurityError as error:
        raise SecurityStartError(str(error)) from error


def raise_open_files_limit() -> None:
    """Raise the limit on open files as far as allowed."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if soft != hard:
        resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))


def insist_enough_open_files() -> None:
    """Refuse a limit under which a checkpoint, a stop or clients would fail later.

    Raises:
        OpenFilesError: it is one.
    """
    allowed = resource.getrlimit(resource.RLIMIT_NOFILE)[0]
    if 0 <= allowed < OPEN_FILES_MIN:
        raise OpenFilesError(
            f"the process may open {allowed} files, and a bookie needs {OPEN_FILES_MIN}: raise "
            "`ulimit -n`, or LimitNOFILE of its unit"
        )


def insist_enough_threads(config: BookieConfig) -> None:
    """Refuse a limit under which a part would fail later.

    Raises:
        ThreadsError: it is one.
    """
    may_end, begun = threading.Event(), list[threading.Thread]()
    stack_bytes = threading.stack_size(_SMALL_STACK_BYTES)
    try:
        for _ in range(THREADS_MIN + config.read_threads):
            thread = threading.Thread(target=may_end.wait, daemon=True)
            thread.start()
            begun.append(thread)
    except RuntimeError as error:
        raise ThreadsError from error
    finally:
        threading.stack_size(stack_bytes)
        may_end.set()
        for thread in begun:
            thread.join()


def warn_of_small_files(config: BookieConfig) -> None:
    """Warn of a limit on the size of a file that a journal or an entry log reaches."""
    allowed = resource.getrlimit(resource.RLIMIT_FSIZE)[0]
    needed = max(config.journal_bytes_max, config.log_bytes_max)
    if 0 <= allowed < needed:
        log.warn(
            "the process may write files of {allowed} bytes, and journals and entry logs reach "
            "{needed}: writes will fail. Raise `ulimit -f`, or LimitFSIZE of its unit; or lower "
            "journalMaxSizeMB and logSizeLimit",
            allowed=allowed,
            needed=needed,
        )


def switch_threads_soon(soon: bool) -> None:  # noqa: FBT001 -- a callback
    """Have the reactor's thread give way to others after 0.1 ms, or after 5 ms as Python does.

    A reactor that always has work keeps the interpreter's lock for as long as it may, and the
    journal's thread needs it a few times for each group: beside clients whose requests are taken
    one by one, adds of others took 15 to 30 ms. At all times it would cost adds 5 to 8 % of CPU.
    """
    sys.setswitchinterval(SWITCH_SOON_S if soon else SWITCH_S)


def give_way() -> None:
    """Sleep for as short as the system can, some 0.06 ms, so that waiting threads run.

    A thread that waits for the interpreter's lock asks for it only once the lock was held for
    ``SWITCH_SOON_S`` on end. A reactor at work lets go of it for a microsecond each turn, which is
    too short to wake up in: so a group of the journal took four times as long.
    """
    time.sleep(GIVE_WAY_S)


def _keep_alive(config: BookieConfig) -> KeepAlive:
    return KeepAlive(
        idle_s=config.tcp_keepalive_idle_s,
        interval_s=config.tcp_keepalive_interval_s,
        count=config.tcp_keepalive_count,
        unconfirmed_ms=config.tcp_user_timeout_ms,
    )


def _begun_pool(threads: int, name: str) -> ThreadPool:
    """Return a pool that has all its threads: later, the system may refuse them.

    The process can end without them: a part that failed may have left work there.
    """
    pool = ThreadPool(threads, threads, name)
    pool.threadFactory = partial(threading.Thread, daemon=True)  # type: ignore[assignment]
    try:
        pool.start()
    except RuntimeError as error:
        raise ThreadsError from error
    return pool


def _stop_pools(pools: tuple[ThreadPool, ...]) -> None:
    for pool in pools:
        pool.stop()


def _is_zookeeper(config: BookieConfig) -> bool:
    return (config.service_uri or "").lower().startswith("zk")


def _open_store(
    config: BookieConfig, reactor: Any, stats: MetadataStats, **options: Any
) -> MetadataStore:
    uri = config.service_uri
    assert uri is not None, "load() insists on one"
    if _is_zookeeper(config):
        options["observe"] = stats.observe
    try:
        return open_metadata(uri, reactor=reactor, **store_options(config, uri), **options)
    except IncorrectParameterError as error:
        raise MetadataUriError(f"metadataServiceUri: {error}") from error
    except SecurityError as error:
        raise SecurityStartError(str(error)) from error
