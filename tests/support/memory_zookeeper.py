"""A metadata service in memory: ZooKeeper's tree without threads, sockets or chance of its own.

For simulations and tests. It behaves as ZooKeeper does where that matters: sessions that expire,
watches that fire once, sequence numbers, operations of one session in order, and a connection that
can break between an operation and its answer. Time comes from a clock, so a test decides it.
"""

from __future__ import annotations

import enum
import random
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple, TypeVar

import attrs
from twisted.internet.defer import Deferred
from twisted.internet.interfaces import IDelayedCall, IReactorTime

from bkclient.metadata import zk_paths
from bkclient.metadata.session_state import SessionState
from bkclient.metadata.tree.nodes import (
    AnswerLostError,
    CreatedNode,
    Fired,
    Node,
    NodeExistsError,
    NodeVersionError,
    NoNodeError,
    NotEmptyError,
    Stat,
    Tree,
    retry_until_answered,
)
from bkclient.metadata.tree.store import MetadataStore
from bkclient.metadata.versions_and_watches import ANY, SessionEvent, Version, Watch
from wire.records.layout import LAYOUT_FACTORIES, Layout, encode_layout

if TYPE_CHECKING:
    from typing_extensions import Self

T = TypeVar("T")


class Fault(enum.Enum):
    """What goes wrong with one operation."""

    NONE = enum.auto()
    REQUEST_LOST = enum.auto()
    """It never arrives; the caller sees ``AnswerLostError``."""
    ANSWER_LOST = enum.auto()
    """It is applied; the caller sees ``AnswerLostError``."""


class TreeOperation(NamedTuple):
    """One operation on its way: what faults and delays are decided by."""

    session_id: int
    name: str
    """create, create_together, get, stat, children, set or delete."""
    path: str

    @property
    def writes(self) -> bool:
        """Whether it changes the tree."""
        return self.name in {"create", "create_together", "set", "delete"}


@attrs.define(eq=False)
class _StoredNode:
    value: bytes
    ctime_ms: int
    owner: int = 0
    created: int = 0
    version: Version = 0
    created_below: int = 0
    """How many children were ever made: the next sequence number."""
    names: set[str] = attrs.field(factory=set)

    def stat(self) -> Stat:
        return Stat(self.version, self.ctime_ms, self.owner, len(self.names), self.created)

    def copy(self) -> _StoredNode:
        rest = self.version, self.created_below, set(self.names)
        return _StoredNode(self.value, self.ctime_ms, self.owner, self.created, *rest)


class MemoryZooKeeper:
    """The service: one tree, shared by the sessions of ``connect``.

    ``faults``, ``delay_s`` and ``watch_delay_s`` may be replaced at any time; by default nothing
    fails and everything is done at once. With delays, an operation is applied half-way.
    """

    uri = "memory:"

    def __init__(self, clock: IReactorTime) -> None:
        self.clock = clock
        self.faults: Callable[[TreeOperation], Fault] = lambda _operation: Fault.NONE
        self.delay_s: Callable[[TreeOperation], float] = lambda _operation: 0.0
        self.watch_delay_s: Callable[[], float] = lambda: 0.0
        self._nodes: dict[str, _StoredNode] = {}
        self._watches: dict[tuple[str, bool], dict[Fired, None]] = {}
        self._sessions_made = 0
        self._nodes_made = 0
        self._live: set[int] = set()

    @classmethod
    def initialized(cls, clock: IReactorTime, layout: str = "hierarchical") -> Self:
        """Return a service with a new, empty cluster in it."""
        cluster = cls(clock)
        instance_id = b"00000000-0000-4000-8000-000000000000"
        written = encode_layout(Layout(LAYOUT_FACTORIES[layout], 1))
        for path, value in (
            ("", b""),
            (zk_paths.AVAILABLE, b""),
            (zk_paths.READ_ONLY, b""),
            (zk_paths.INSTANCE_ID, instance_id),
            (zk_paths.LAYOUT, written),
        ):
            cluster.create(path, value)
        return cluster

    def metadata(
        self,
        *,
        chance: random.Random | None = None,
        session_timeout_s: float = 10.0,
        clock: IReactorTime | None = None,
        **rest: Any,
    ) -> MemoryMetadata:
        """Return a store on this cluster, not yet connected; ``rest`` as for ``TreePart``.

        ``clock`` is that of the process which the session belongs to, if it has one of its own: it
        is what answers and watches come by, so that they wait while that process is stopped.
        """
        clock = self.clock if clock is None else clock
        return MemoryMetadata(
            MemoryTree(self, session_timeout_s, clock),
            clock=clock,
            chance=random.Random(0) if chance is None else chance,
            **rest,
        )

    # Sessions

    def open_session(self) -> int:
        """Return a new session's id."""
        self._sessions_made += 1
        self._live.add(self._sessions_made)
        return self._sessions_made

    def is_live(self, session_id: int) -> bool:
        """Return whether a session has not ended."""
        return session_id in self._live

    def end_session(self, session_id: int) -> None:
        """End a session and remove the nodes it owns."""
        self._live.discard(session_id)
        for path in [p for p, node in self._nodes.items() if node.owner == session_id]:
            self.delete(path)

    # The tree; what these raise is what the sessions' callers get.

    def create(self, path: str, value: bytes, owner: int = 0, *, sequence: bool = False) -> str:
        """Make a node; return its path."""
        above = None if zk_paths.is_top(path) else self._nodes.get(zk_paths.parent(path))
        if not zk_paths.is_top(path) and above is None:
            raise NoNodeError(f"no node {zk_paths.parent(path) or '/'}")
        if above is not None and above.owner:
            raise NoNodeError(f"{zk_paths.parent(path)} is ephemeral")
        if above is not None and sequence:
            path += f"{above.created_below:010d}"
        if path in self._nodes:
            raise NodeExistsError(f"{path or '/'} exists")
        self._nodes_made += 1
        now_ms = int(self.clock.seconds() * 1000)
        self._nodes[path] = _StoredNode(value, now_ms, owner, self._nodes_made)
        if above is not None:
            above.created_below += 1
            above.names.add(path.rpartition("/")[2])
        self._fire(path, of_children=False)
        self._fire_parent(path)
        return path

    def create_together(self, nodes: Sequence[tuple[str, bytes]]) -> None:
        """Make all or none."""
        for path, _value in nodes:
            if path in self._nodes:
                raise NodeExistsError(f"{path or '/'} exists")
        for path, value in nodes:
            self.create(path, value)

    def get(self, path: str) -> Node:
        """Return a node."""
        stored = self._node(path)
        return Node(stored.value, stored.stat())

    def stat(self, path: str, fired: Fired | None = None) -> Stat | None:
        """Return the node's data; watch it."""
        self._watch(path, fired, of_children=False)
        stored = self._nodes.get(path)
        return None if stored is None else stored.stat()

    def children(self, path: str, fired: Fired | None = None) -> list[str]:
        """Return names, sorted; watch them."""
        stored = self._node(path)
        self._watch(path, fired, of_children=True)
        return sorted(stored.names)

    def set(self, path: str, value: bytes, version: Version = ANY) -> Version:
        """Replace a value."""
        stored = self._node(path)
        if version not in {ANY, stored.version}:
            raise NodeVersionError(f"{path} has version {stored.version}, not {version}")
        stored.value, stored.version = value, stored.version + 1
        self._fire(path, of_children=False)
        return stored.version

    def delete(self, path: str, version: Version = ANY) -> None:
        """Remove a node."""
        stored = self._node(path)
        if version not in {ANY, stored.version}:
            raise NodeVersionError(f"{path} has version {stored.version}, not {version}")
        if stored.names:
            raise NotEmptyError(f"{path or '/'} has children")
        del self._nodes[path]
        if not zk_paths.is_top(path):
            self._nodes[zk_paths.parent(path)].names.discard(path.rpartition("/")[2])
        self._fire(path, of_children=False)
        self._fire(path, of_children=True)
        self._fire_parent(path)

    def forget(self, fired: Fired) -> None:
        """Drop a watch wherever it is set."""
        for key in [key for key, watches in self._watches.items() if fired in watches]:
            del self._watches[key][fired]
            if not self._watches[key]:
                del self._watches[key]

    def _node(self, path: str) -> _StoredNode:
        if path not in self._nodes:
            raise NoNodeError(f"no node {path or '/'}")
        return self._nodes[path]

    def _watch(self, path: str, fired: Fired | None, *, of_children: bool) -> None:
        if fired is not None:
            self._watches.setdefault((path, of_children), {})[fired] = None

    def _fire(self, path: str, *, of_children: bool) -> None:
        for fired in self._watches.pop((path, of_children), {}):
            self.clock.callLater(self.watch_delay_s(), fired)

    def _fire_parent(self, path: str) -> None:
        if not zk_paths.is_top(path):
            self._fire(zk_paths.parent(path), of_children=True)


class _Journey:
    """Operations of one session on their way, in order, where the service has delays."""

    def __init__(self, cluster: MemoryZooKeeper, clock: IReactorTime) -> None:
        """``clock`` is what answers come by."""
        self._cluster, self._clock = cluster, clock
        self._flying: dict[Deferred[None], None] = {}
        self._applied_at_s = self._answered_at_s = 0.0

    @property
    def is_empty(self) -> bool:
        return not self._flying

    def lose(self) -> None:
        """Lose every answer that has not come."""
        for flying in tuple(self._flying):
            if not flying.called:
                flying.errback(AnswerLostError(f"{self._cluster.uri}: connection lost"))

    async def make(self, operation: TreeOperation, apply: Callable[[], T], delay_s: float) -> T:
        """Apply later and answer later still, never overtaking this session's earlier ones."""
        clock = self._cluster.clock
        now_s = clock.seconds()
        self._applied_at_s = max(self._applied_at_s, now_s + delay_s / 2)
        self._answered_at_s = max(self._answered_at_s, now_s + delay_s)
        back_s = self._answered_at_s - self._applied_at_s
        answer: Deferred[None] = Deferred()
        results: list[T] = []
        errors: list[Exception] = []

        def arrive() -> None:
            if self._cluster.is_live(operation.session_id):
                try:
                    results.append(apply())
                except Exception as error:  # noqa: BLE001 - raised where it is awaited.
                    errors.append(error)
            self._clock.callLater(back_s, come_back)

        def come_back() -> None:
            if not answer.called:
                answer.callback(None)

        self._flying[answer] = None
        clock.callLater(self._applied_at_s - now_s, arrive)
        try:
            await answer
        finally:
            self._flying.pop(answer, None)
        if errors:
            raise errors[0]
        if not results:
            raise AnswerLostError(f"{self._cluster.uri}: the session ended")
        return results[0]


class _Watches:
    """The watches of one session: each fires once, and not once it is forgotten."""

    def __init__(self, cluster: MemoryZooKeeper, clock: IReactorTime) -> None:
        self._cluster, self._clock = cluster, clock
        self._called_by: dict[Fired, Fired] = {}
        """What the cluster calls for each."""
        self.heard: Callable[[], None] = lambda: None
        """Called when an event comes from the cluster."""

    def wrap(self, fired: Fired | None) -> Fired | None:
        """Return what the cluster is to call: it does nothing once forgotten."""
        if fired is None:
            return None

        def called() -> None:
            self.heard()
            self._clock.callLater(0, arrive)

        def arrive() -> None:
            # The same watch may be set at other places too; it stays set there.
            if self._called_by.get(fired) is called:
                fired()

        return self._called_by.setdefault(fired, called)

    def forget(self, fired: Fired) -> None:
        """Never call ``fired`` again."""
        called = self._called_by.pop(fired, None)
        if called is not None:
            self._cluster.forget(called)

    def lose(self) -> None:
        """Fire all: nothing more would be heard of them."""
        lost, self._called_by = self._called_by, {}
        for fired, called in lost.items():
            self._cluster.forget(called)
            self._clock.callLater(0, fired)


class MemoryTree(Tree):
    """One session with a ``MemoryZooKeeper``."""

    def __init__(
        self, cluster: MemoryZooKeeper, session_timeout_s: float, clock: IReactorTime
    ) -> None:
        self._cluster, self._timeout_s = cluster, session_timeout_s
        self._state = SessionState(clock, cluster.uri)
        self._session_id = 0
        self._expiry: IDelayedCall | None = None
        self._journey = _Journey(cluster, clock)
        self._watches = _Watches(cluster, clock)

    @property
    def uri(self) -> str:
        """Where this is."""
        return self._cluster.uri

    @property
    def session_id(self) -> int:
        """The session's id, also while suspended."""
        return self._session_id

    @property
    def session_timeout_s(self) -> float:
        """How long a suspended session lives."""
        return self._timeout_s

    async def connect(self) -> None:
        """Open a session."""
        self._begin()

    def _begin(self) -> None:
        self._session_id = self._cluster.open_session()
        self._state.move(SessionEvent.CONNECTED)

    async def close(self) -> None:
        """End the session: what it owns vanishes."""
        self._drop_expiry()
        self._state.close()
        self._watches.lose()
        if self._session_id:
            self._cluster.end_session(self._session_id)
        self._journey.lose()

    def on_session(self, changed: Callable[[SessionEvent], None]) -> Watch:
        """See ``Tree``."""
        return self._state.listen(changed)

    async def until_connected(self) -> None:
        """See ``Tree``."""
        await self._state.until_connected()

    # Faults

    def suspend(self) -> None:
        """Break the connection: what is on its way is lost, and the session's time runs."""
        if not self._state.connected:
            return
        self._state.move(SessionEvent.SUSPENDED)
        session_id = self._session_id
        cluster = self._cluster
        self._expiry = cluster.clock.callLater(self._timeout_s, cluster.end_session, session_id)
        self._journey.lose()
        self._watches.lose()

    def resume(self) -> None:
        """Make the connection again: with the same session, or a new one if that has expired."""
        if self._state.connected or self._state.closed:
            return
        self._drop_expiry()
        if self._cluster.is_live(self._session_id):
            self._state.move(SessionEvent.CONNECTED)
        else:
            self._expired()

    def expire(self) -> None:
        """Let the service end the session now; when connected, it is told and gets a new one."""
        self._cluster.end_session(self._session_id)
        if self._state.connected:
            self._expired()

    def _expired(self) -> None:
        self._session_id = 0
        self._state.move(SessionEvent.LOST)
        self._journey.lose()
        self._watches.lose()
        self._begin()

    def _drop_expiry(self) -> None:
        if self._expiry is not None and self._expiry.active():
            self._expiry.cancel()
        self._expiry = None

    # Operations

    async def create(
        self,
        path: str,
        value: bytes = b"",
        *,
        ephemeral: bool = False,
        sequence: bool = False,
        open_to_all: bool = False,
    ) -> CreatedNode:
        """See ``Tree``."""

        def apply() -> CreatedNode:
            owner = self._session_id if ephemeral else 0
            return CreatedNode(self._cluster.create(path, value, owner, sequence=sequence))

        return await self._do("create", path, apply)

    async def create_together(self, nodes: Sequence[tuple[str, bytes]]) -> None:
        """See ``Tree``."""
        await self._do("create_together", "", lambda: self._cluster.create_together(nodes))

    async def make_root_parents(self) -> None:
        """See ``Tree``; there are none."""

    async def get(self, path: str) -> Node:
        """See ``Tree``."""
        return await retry_until_answered(
            lambda: self._do("get", path, lambda: self._cluster.get(path))
        )

    async def stat(self, path: str, fired: Fired | None = None) -> Stat | None:
        """See ``Tree``."""
        return await retry_until_answered(
            lambda: self._do(
                "stat", path, lambda: self._cluster.stat(path, self._watches.wrap(fired))
            )
        )

    async def children(
        self,
        path: str,
        fired: Fired | None = None,
        *,
        fresh: bool = False,
    ) -> list[str]:
        """See ``Tree``."""
        return await retry_until_answered(
            lambda: self._do(
                "children", path, lambda: self._cluster.children(path, self._watches.wrap(fired))
            )
        )

    async def set(self, path: str, value: bytes, version: Version = ANY) -> Version:
        """See ``Tree``."""
        return await self._do("set", path, lambda: self._cluster.set(path, value, version))

    async def delete(self, path: str, version: Version = ANY) -> None:
        """See ``Tree``."""
        await self._do("delete", path, lambda: self._cluster.delete(path, version))

    def forget(self, fired: Fired) -> None:
        """See ``Tree``."""
        self._watches.forget(fired)

    async def _do(self, name: str, path: str, apply: Callable[[], T]) -> T:
        """Carry out one operation: to the cluster, with its delays and faults, and back."""
        if not self._state.connected:
            await self._state.until_connected(self._timeout_s)
        operation = TreeOperation(self._session_id, name, path)
        fault, delay_s = self._cluster.faults(operation), self._cluster.delay_s(operation)
        if fault is Fault.REQUEST_LOST:
            raise self._lost(operation)
        if delay_s <= 0 and self._journey.is_empty:
            result = apply()
        else:
            result = await self._journey.make(operation, apply, delay_s)
        if fault is Fault.ANSWER_LOST:
            raise self._lost(operation)
        return result

    def _lost(self, operation: TreeOperation) -> AnswerLostError:
        what = f"the answer to {operation.name} {operation.path} was lost"
        return AnswerLostError(f"{self.uri}: {what}")


class MemoryMetadata(MetadataStore):
    """A store on a ``MemoryZooKeeper``; ``session`` has the switches for what can go wrong."""

    def __init__(self, tree: MemoryTree, **rest: Any) -> None:
        super().__init__(tree, **rest)
        self.session = tree
