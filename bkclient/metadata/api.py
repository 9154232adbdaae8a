"""What the rest needs of a metadata store, as small protocols: values in, values out.

Drivers: ``zookeeper`` (Java's tree, shared with Java peers) and ``sqlite`` (one machine). Every
method is a coroutine to be awaited under Twisted (``Deferred.fromCoroutine``); all callbacks run on
the reactor. One contract suite (tests/contract) runs on each driver.

Rules that hold for every driver:

* A write that fails with ``MetadataUnavailableError`` may have been applied. Callers re-read.
* Watches are persistent: at least one callback comes after the last change, not one per change.
* Ephemeral things (registrations, locks, votes) vanish with the session. After
  ``SessionEvent.LOST`` their owner must make them anew; a driver does not.
"""

from __future__ import annotations

import enum
from collections.abc import AsyncGenerator, AsyncIterator, Callable, Sequence
from typing import Final, Generic, Protocol, TypeVar

import attrs

from bkclient.errors import MetadataSerializationError
from bkclient.metadata.errors import MetadataAccessError
from wire.errors import MetadataFormatError
from wire.ids import BookieId, LedgerId
from wire.ledger_metadata import LedgerMetadata
from wire.records.service_info import BookieServiceInfo
from wire.records.underreplication import UnderreplicatedMark

T = TypeVar("T")

Version = int
"""The store's version of a value: another one after each write.

Versions are compared as equal or not. A log or a cookie that is removed and created again under
its name has versions that it did not have before; so has everything in SQLite. A ledger in
ZooKeeper begins with 0 again, as with Java.
"""

NEW: Final = -2
"""The version of a value that must not exist yet."""

ANY: Final = -1
"""Whatever version the value has."""


class SessionEvent(enum.Enum):
    """What happened to the connection with the store."""

    CONNECTED = enum.auto()
    """Up, or up again with the same session: ephemerals are still there.

    After ``LOST`` it says that a new session is up.
    """
    SUSPENDED = enum.auto()
    """Down for now; ephemerals still count until the session expires."""
    LOST = enum.auto()
    """The session expired; every ephemeral it owned is gone."""


@attrs.frozen
class Versioned(Generic[T]):
    """A value and the version it has in the store."""

    value: T
    version: Version


@attrs.frozen
class LayoutInfo:
    """What kind of tree this is: the layout's short name (``hierarchical`` …) and Java factory."""

    name: str
    factory: str


@attrs.frozen
class HeldLock:
    """A lock on a ledger under repair: who holds it, and since when by the store's clock."""

    ledger_id: LedgerId
    owner: str
    since_ms: int | None


@attrs.frozen
class StoredNode:
    """One node of the tree: its path below the root, its value and its version.

    The root's path is ``""``. Paths of nodes beside the root begin with ``.logs`` or ``.cursors``.
    ``children`` is the number of nodes directly below this one. An ephemeral node vanishes with its
    session. ``ctime_ms`` is the time of creation in ms since 1970; 0 if it is unknown.
    ``unreadable`` says why all but the path is unknown.
    """

    path: str
    value: bytes
    version: Version
    children: int = 0
    is_ephemeral: bool = False
    ctime_ms: int = 0
    unreadable: str = ""


class Watch(Protocol):
    """A watch that can be cancelled; no callback runs after ``cancel`` returned."""

    def cancel(self) -> None:
        """End the watch. A second call does nothing."""
        ...


@attrs.frozen
class StoredLedger:
    """A ledger as it is stored. ``error`` says why ``stored`` is None: it cannot be read."""

    ledger_id: LedgerId
    stored: Versioned[LedgerMetadata] | None
    error: MetadataSerializationError | None = attrs.field(default=None, eq=False)

    @property
    def metadata(self) -> LedgerMetadata | None:
        """The metadata; None if it cannot be read."""
        return None if self.stored is None else self.stored.value

    def readable(self) -> LedgerMetadata:
        """Return the metadata.

        Raises:
            MetadataSerializationError: it cannot be read.
        """
        if self.error is not None:
            raise self.error
        assert self.stored is not None
        return self.stored.value


class LedgerStore(Protocol):
    """Ledger metadata with compare-and-swap. BookKeeper 4.18.0, AbstractZkLedgerManager."""

    async def create_ledger(
        self, ledger_id: LedgerId, metadata: LedgerMetadata, *, is_allocated: bool = False
    ) -> Version:
        """Store new metadata; return its version.

        A retried create that finds its own ``creator_token`` counts as success. It is not retried
        with an id that ``is_allocated``, where another can be had: if nothing is found after an
        answer was lost, the ledger may have been there, and closed and deleted meanwhile.

        Raises:
            LedgerExistsError: another client's ledger has this id, or may have had it.
            IncorrectParameterError: ``LEDGER_ID_REFUSED`` or a negative id.
            MetadataFormatError: the metadata must not be written as it is.
            MetadataUnavailableError: outcome unknown.
        """
        ...

    async def read_ledger(self, ledger_id: LedgerId) -> Versioned[LedgerMetadata]:
        """Return the metadata; ``ctime_ms`` falls back to the store's creation time.

        Raises:
            NoSuchLedgerError: there is no such ledger.
            MetadataSerializationError: it cannot be read.
        """
        ...

    def read_ledgers(self, ids: Sequence[LedgerId]) -> AsyncGenerator[list[StoredLedger]]:
        """Yield very many ledgers in the order of ``ids``, as many as have come.

        Those that are gone are left out; one that cannot be read says so. Nothing is older than
        the call. Close it (``aclosing``) unless it is read to its end.
        """
        ...

    async def write_ledger(
        self, ledger_id: LedgerId, metadata: LedgerMetadata, version: Version
    ) -> Version:
        """Replace the metadata if it still has ``version``; return the new version.

        Raises:
            NoSuchLedgerError: there is none (any more).
            MetadataVersionError: it has another version.
            MetadataUnavailableError: outcome unknown.
        """
        ...

    async def remove_ledger(self, ledger_id: LedgerId, version: Version = ANY) -> None:
        """Remove the metadata. With the version ``ANY`` a missing ledger is no error.

        Raises:
            NoSuchLedgerError: there is no such ledger, and ``version`` is not ``ANY``.
            MetadataVersionError: the metadata has another version.
        """
        ...

    def ledger_ranges(
        self, *, after: LedgerId | None = None
    ) -> AsyncIterator[tuple[LedgerId, ...]]:
        """Yield ascending ids, at most 10 000 at a time, of all ledgers above ``after``.

        Any error ends the iteration with that error: it is never "no more ledgers".
        """
        ...

    async def watch_ledger(self, ledger_id: LedgerId, changed: Callable[[], None]) -> Watch:
        """Call ``changed`` after each change or removal of the metadata."""
        ...


class LedgerIds(Protocol):
    """New ledger ids. BookKeeper 4.18.0, LongZkLedgerIdGenerator."""

    async def allocate_ledger_id(self) -> LedgerId:
        """Return an id that no call has returned before and no ledger has by allocation."""
        ...


class BookieRegistry(Protocol):
    """The registered bookies. BookKeeper 4.18.0, ZKRegistrationManager and ZKRegistrationClient."""

    async def register(
        self, bookie_id: BookieId, info: BookieServiceInfo, *, read_only: bool
    ) -> None:
        """Announce a bookie for the life of this session.

        Going read-only makes the read-only entry before it removes the writable one; the other
        way round the same. An entry of another session is waited for, a bit longer than the
        session time-out, then:

        Raises:
            RegistrationExistsError: the other session stayed.
        """
        ...

    async def unregister(self, bookie_id: BookieId) -> None:
        """Take the bookie's own registrations away (either kind)."""
        ...

    async def writable_bookies(self) -> frozenset[BookieId]:
        """Return the bookies that are registered as writable."""
        ...

    async def read_only_bookies(self) -> frozenset[BookieId]:
        """Return the bookies that are registered as read-only."""
        ...

    async def known_bookies(self) -> frozenset[BookieId]:
        """Return every bookie that has a cookie, alive or not."""
        ...

    async def service_info(self, bookie_id: BookieId) -> BookieServiceInfo:
        """Return where a registered bookie listens.

        Raises:
            NotFoundError: it is not registered.
        """
        ...

    async def watch_bookies(self, changed: Callable[[], None]) -> Watch:
        """Call ``changed`` after each change of the writable or read-only set."""
        ...


async def registered_bookies(store: BookieRegistry) -> frozenset[BookieId]:
    """Return the bookies that are registered, writable or read-only.

    The writable ones are read twice: a bookie may go from one list to the other, in either
    direction.
    """
    before = await store.writable_bookies()
    return before | await store.read_only_bookies() | await store.writable_bookies()


class CookieStore(Protocol):
    """The cookies that tie a bookie's directories to the cluster."""

    async def read_cookie(self, bookie_id: BookieId) -> Versioned[bytes]:
        """Raise ``CookieNotFoundError`` where there is none."""
        ...

    async def write_cookie(self, bookie_id: BookieId, cookie: bytes, version: Version) -> Version:
        """Create (``NEW``) or replace a cookie; return its version.

        Raises:
            CookieExistsError: ``NEW``, and there is one.
            CookieNotFoundError: not ``NEW``, and there is none.
            MetadataVersionError: it has another version.
        """
        ...

    async def remove_cookie(self, bookie_id: BookieId, version: Version = ANY) -> None:
        """Raise ``CookieNotFoundError`` or ``MetadataVersionError`` where it cannot be."""
        ...


class LogStore(Protocol):
    """The records of logs made of ledgers: small values by name, changed by version.

    They are this project's own; Java knows nothing of them.
    """

    async def create_log(self, name: str, record: bytes) -> Version:
        """Keep the first record of a log; return its version.

        Raises:
            LogExistsError: a log of this name exists.
            IncorrectParameterError: no log can be called so.
        """
        ...

    async def read_log(self, name: str) -> Versioned[bytes]:
        """Raise ``NoSuchLogError`` where there is none."""
        ...

    async def write_log(self, name: str, record: bytes, version: Version) -> Version:
        """Replace a record that has this version.

        Raises:
            NoSuchLogError: there is none.
            MetadataVersionError: it has another version.
        """
        ...

    async def remove_log(self, name: str, version: Version = ANY) -> None:
        """Raise ``NoSuchLogError`` or ``MetadataVersionError`` where it cannot be."""
        ...

    async def list_logs(self) -> list[str]:
        """Return the names of all logs, sorted."""
        ...

    async def watch_log(self, name: str, changed: Callable[[], None]) -> Watch:
        """Call ``changed`` after each change or removal of a record."""
        ...


class CursorStore(Protocol):
    """How far readers of logs and topics have come: a value for each log or topic.

    They are this project's own; Java knows nothing of them.
    """

    async def read_cursors(self, source: str) -> Versioned[bytes]:
        """Return the value of a log or topic; ``b""`` with the version ``NEW`` if there is none."""
        ...

    async def write_cursors(self, source: str, value: bytes, version: Version) -> Version:
        """Create (``NEW``) or replace the value of a log or topic; return its version.

        Raises:
            MetadataVersionError: the value has another version.
        """
        ...

    async def list_cursors(self) -> list[str]:
        """Return the logs and topics that have a value, sorted."""
        ...


class ClusterAdmin(Protocol):
    """The tree as a whole."""

    async def initialize(self, layout: str | None = None) -> str:
        """Make a new cluster; return its instance id.

        Without ``layout`` it gets the one the URI names, else the hierarchical one.

        Raises:
            AlreadyInitializedError: the root exists.
        """
        ...

    async def format(self) -> str:
        """Remove all ledgers, marks, locks and cookies; return the new instance id.

        What stays is what Java's metaformat leaves (metadata.md 13.2). Asks no question.
        """
        ...

    async def nuke(self, *, keep_versions: bool = False) -> None:
        """Remove the cluster from the store, root and all (metadata.md 13.3), without a question.

        Nothing there counts as done. With ``keep_versions`` logs that are made again go on with the
        versions of those before; a file keeps them in any case.

        Raises:
            ClusterInUseError: bookies are registered, or there are foreign nodes.
        """
        ...

    async def layout(self) -> LayoutInfo:
        """Raise ``NotInitializedError`` where there is none."""
        ...

    async def instance_id(self) -> str | None:
        """Return the cluster's instance id; None if none is stored.

        Raises:
            MetadataFormatError: the stored id cannot be read.
        """
        ...

    async def dump(self) -> dict[str, tuple[bytes, Version]]:
        """Return every stored value by its path below the root (ZooKeeper's form of path).

        Inner nodes are in it, with empty values.
        """
        ...

    async def health_check_enabled(self) -> bool:
        """Return whether clients may quarantine bookies that look unhealthy."""
        ...

    async def set_health_check_enabled(self, *, enabled: bool) -> None:
        """Raise ``AlreadySetError`` when it is so already."""
        ...


class RawNodes(Protocol):
    """Every stored value by its path in ZooKeeper's tree: to look at, to copy, to bring back."""

    def nodes(
        self, path: str = "", *, depth: int | None = None
    ) -> AsyncIterator[tuple[StoredNode, ...]]:
        """Yield a node and what is below it, parents first, some at a time.

        With the root comes what lies beside it. ``depth`` is how many levels below are wanted. It
        is not one moment: what changes meanwhile may be seen before or after.

        Raises (while iterating):
            NotFoundError: there is no such node.
        """
        ...

    async def add_nodes(self, nodes: Sequence[StoredNode], layout: str) -> list[str]:
        """Make those of the nodes that are not there, and the root; nothing is replaced.

        Each needs its parent, among them or there. Return the paths of those that are there with
        another value. A SQLite file keeps their creation times; a tree sets new ones.
        """
        ...

    async def skip_ledger_ids(self, last: LedgerId, layout: str) -> None:
        """Let ``allocate_ledger_id`` return no id up to ``last`` any more.

        The layout need not be stored yet: until it is, there is no cluster that gives out ids.

        Raises:
            LedgerIdOverflowError: a tree of this layout would need too many nodes for it.
        """
        ...


class SiblingNodes(Protocol):
    """What another program keeps beside the cluster's root: Pulsar's ``/managed-ledgers``.

    Paths begin with ``/`` and are relative to the parent of the root: Pulsar keeps its own nodes
    and its ledgers in one tree. Nothing is ever written here.
    """

    async def read_sibling(self, path: str) -> Versioned[bytes]:
        """Return the value of a node. Each write raises the version by one.

        Raises:
            NotFoundError: there is no such node.
        """
        ...

    async def sibling_names(self, path: str) -> list[str]:
        """Return the names of a node's children, sorted.

        Raises:
            NotFoundError: there is no such node.
        """
        ...


MarkError = MetadataFormatError | MetadataAccessError
"""Why a mark cannot be read."""

DamagedMark = Callable[[LedgerId, MarkError], None]
"""Hears of a mark that cannot be read, and why not."""

Missing = tuple[LedgerId, tuple[BookieId, ...]]
"""A ledger, and the bookies it lacks replicas on."""


class UnderreplicationQueue(Protocol):
    """Ledgers that lack replicas, and the bookies that repair them.

    BookKeeper 4.18.0, ZkLedgerUnderreplicationManager; metadata.md section 11.
    """

    async def mark_underreplicated(
        self, ledger_id: LedgerId, missing: tuple[BookieId, ...]
    ) -> None:
        """Create the mark or add ``missing`` to it.

        While a repair is in progress the mark gets a new version in any case: it outlives that
        repair. Java leaves the mark as it is, and loses it (4.18.0).
        """
        ...

    async def mark_all_underreplicated(
        self, marks: Sequence[Missing], damaged: DamagedMark
    ) -> None:
        """Mark very many ledgers, as ``mark_underreplicated`` does each of them.

        ``damaged`` hears of ledgers with a mark that cannot be read: it stays as it is.
        """
        ...

    async def underreplicated(self, ledger_id: LedgerId) -> UnderreplicatedMark | None:
        """Return the mark of a ledger; None if the ledger is not marked."""
        ...

    def list_underreplicated(
        self, damaged: DamagedMark | None = None
    ) -> AsyncIterator[tuple[LedgerId, UnderreplicatedMark]]:
        """Yield all marks, ascending; ``damaged`` hears of those that cannot be read.

        Raises:
            MetadataFormatError: a mark cannot be read, and no caller was told.
        """
        ...

    async def poll_underreplicated(self) -> LedgerId | None:
        """Lock some marked, unlocked ledger and return it; ``None`` when there is none now."""
        ...

    async def watch_underreplicated(self, changed: Callable[[], None]) -> Watch:
        """Call ``changed`` when marks or locks may have changed, so that polling is worth it."""
        ...

    async def take_underreplicated(self, ledger_id: LedgerId) -> bool:
        """Lock one ledger as polling does; ``False`` when it is not marked, or locked."""
        ...

    async def acquire_lock(self, ledger_id: LedgerId) -> bool:
        """Lock a ledger that need not be marked; ``False`` when another client holds the lock."""
        ...

    async def release_lock(self, ledger_id: LedgerId) -> None:
        """Release this session's lock of a ledger, if it has one; the mark stays."""
        ...

    async def mark_replicated(self, ledger_id: LedgerId) -> None:
        """Delete the mark at the version seen when it was locked, and release the lock.

        A mark that was renewed meanwhile stays.
        """
        ...

    async def lock_owner(self, ledger_id: LedgerId) -> str | None:
        """Return the worker that has locked a ledger, as its lock names it; None without a lock."""
        ...

    async def repair_locks(self) -> list[HeldLock]:
        """Return every lock, of whichever session, by ledger; one that is unreadable has no owner.

        There are as many as ledgers under repair, which is few.
        """
        ...

    async def set_replication_enabled(self, *, enabled: bool, note: bytes = b"") -> None:
        """Raise ``AlreadySetError`` when it is so already.

        ``note`` is kept while it is disabled. Java's switch has none, and ignores ours.
        """
        ...

    async def set_replication_note(self, note: bytes) -> None:
        """Replace the note; raise ``AlreadySetError`` when replication is enabled."""
        ...

    async def replication_note(self) -> bytes | None:
        """Return the note that came with disabling it; ``None`` while it is enabled."""
        ...

    async def enable_replication_noted(self, note: bytes) -> bool:
        """Enable replication if it is disabled with this note; return whether that was so.

        An operator who disabled it with another note a moment ago keeps it disabled.
        """
        ...

    async def replication_enabled(self) -> bool:
        """Return whether autorecovery is switched on."""
        ...

    async def watch_replication_enabled(self, changed: Callable[[], None]) -> Watch:
        """Call ``changed`` after each change of the switch."""
        ...

    async def lost_bookie_recovery_delay(self) -> int | None:
        """Return the stored delay in seconds; ``None`` when none is stored."""
        ...

    async def versioned_recovery_delay(self) -> Versioned[int] | None:
        """Return the stored delay with its version, which shows that it was written again."""
        ...

    async def set_lost_bookie_recovery_delay(self, delay_s: int) -> None:
        """Store the delay in seconds."""
        ...

    async def watch_lost_bookie_recovery_delay(self, changed: Callable[[], None]) -> Watch:
        """Call ``changed`` after each write of the delay, also of the same value."""
        ...

    async def check_time(self, check: str) -> int | None:
        """Return when a check last ended, in ms since 1970; None if it never did.

        ``check`` is all-ledgers, placement or replicas.
        """
        ...

    async def set_check_time(self, check: str, time_ms: int) -> None:
        """Store when a check ended, in ms since 1970."""
        ...


class AuditorElection(Protocol):
    """The election of the auditor. BookKeeper 4.18.0, ZkLedgerAuditorManager."""

    async def elect(self, bookie_id: BookieId) -> None:
        """Stand for election; return once elected. Cancelling the Deferred withdraws."""
        ...

    async def resign(self) -> None:
        """Withdraw from the election; another candidate can be elected then."""
        ...

    async def current_auditor(self) -> BookieId | None:
        """Return the elected auditor; None without one."""
        ...


class MetadataStore(
    LedgerStore,
    LedgerIds,
    BookieRegistry,
    CookieStore,
    LogStore,
    CursorStore,
    ClusterAdmin,
    RawNodes,
    SiblingNodes,
    UnderreplicationQueue,
    AuditorElection,
    Protocol,
):
    """One connection to one cluster's metadata: everything above, and its life."""

    @property
    def uri(self) -> str:
        """The service URI, such as ``zk+hierarchical://host:port/ledgers``."""
        ...

    @property
    def session_id(self) -> int:
        """The session that owns what is ephemeral; 0 while there is none."""
        ...

    async def connect(self) -> None:
        """Connect; raise ``MetadataUnavailableError`` when that takes longer than the time-out."""
        ...

    async def close(self) -> None:
        """End the session: its ephemerals vanish."""
        ...

    def on_session(self, changed: Callable[[SessionEvent], None]) -> Watch:
        """Call ``changed`` on the reactor at each session event."""
        ...
