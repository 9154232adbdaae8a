"""A metadata service of several servers: a session reads from one that may be behind the others.

As with ZooKeeper: a session never sees the tree older than it has seen it, or than its own last
write. ``fresh`` listings are of now. A watch that is set on old data fires once its server has the
change.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Coroutine, Sequence
from random import Random
from typing import Any, Final, TypeVar

import attrs
from twisted.internet.interfaces import IReactorTime

from bkclient.metadata import zk_paths
from bkclient.metadata.tree.nodes import Fired, Node, NoNodeError, Stat, retry_until_answered
from bkclient.metadata.versions_and_watches import Version
from tests.sim.engine.oracle import WatchedCluster
from tests.support.memory_zookeeper import MemoryMetadata, MemoryTree

T = TypeVar("T")

WRITES: Final = frozenset({"create", "create_together", "set", "delete"})
"""Operations that the leader makes: a server has all that came before when it answers."""

STANDSTILL_SHARE: Final = 0.2
"""How often a server stands still after a read, instead of following at once."""


@attrs.frozen
class _Change:
    """One node before a change of the tree."""

    at_s: float
    number: int
    path: str
    before: Any
    """A copy of what the tree has of it; None for nothing."""
    is_of_children: bool


class LaggingCluster(WatchedCluster):
    """The service. With ``lag_s`` a session's server may be behind by that much."""

    lag_s = 0.0

    def __init__(self, clock: IReactorTime) -> None:
        super().__init__(clock)
        self.chance = Random(0)
        self.number = 0
        """How many changes the tree has had."""
        self._past: deque[_Change] = deque()
        self._is_together = False

    def metadata(
        self,
        *,
        chance: Random | None = None,
        session_timeout_s: float = 10.0,
        clock: IReactorTime | None = None,
        **rest: Any,
    ) -> MemoryMetadata:
        clock = self.clock if clock is None else clock
        tree = FollowerTree(self, session_timeout_s, clock)
        return MemoryMetadata(tree, clock=clock, chance=chance or Random(0), **rest)

    # Changes

    def _note(self, path: str, *, of_parent: bool) -> None:
        if not self._is_together:
            self.number += 1
        if not self.lag_s:
            return
        self._past.append(self._change(path, is_of_children=False))
        if of_parent and not zk_paths.is_top(path):
            self._past.append(self._change(zk_paths.parent(path), is_of_children=True))
        while self._past and self._past[0].at_s < self.clock.seconds() - self.lag_s:
            self._past.popleft()

    def _change(self, path: str, *, is_of_children: bool) -> _Change:
        stored = self._nodes.get(path)
        before = None if stored is None else stored.copy()
        return _Change(self.clock.seconds(), self.number, path, before, is_of_children)

    def create(self, path: str, value: bytes, owner: int = 0, *, sequence: bool = False) -> str:
        above = None if zk_paths.is_top(path) else self._nodes.get(zk_paths.parent(path))
        made = f"{path}{above.created_below:010d}" if sequence and above is not None else path
        self._note(made, of_parent=True)
        return super().create(path, value, owner, sequence=sequence)

    def create_together(self, nodes: Sequence[tuple[str, bytes]]) -> None:
        self.number += 1
        self._is_together = True
        try:
            super().create_together(nodes)
        finally:
            self._is_together = False

    def set(self, path: str, value: bytes, version: Version = -1) -> Version:
        self._note(path, of_parent=False)
        return super().set(path, value, version)

    def delete(self, path: str, version: Version = -1) -> None:
        self._note(path, of_parent=True)
        super().delete(path, version)

    # What a server has

    def oldest(self, at_least: int) -> int:
        """Return up to which change a server has the tree at least."""
        since_s = self.clock.seconds() - self.lag_s
        known = (one.number for one in self._past if one.at_s >= since_s)
        return max(at_least, min(known, default=self.number + 1) - 1)

    def stored_at(self, path: str, number: int) -> Any:
        """Return a node as it was after so many changes."""
        for change in self._past:
            if change.path == path and change.number > number:
                return change.before
        return self._nodes.get(path)

    def is_missed(self, path: str, number: int, *, of_children: bool) -> bool:
        """Whether a watch of a server that is at ``number`` has a change to report already."""
        later = (one for one in self._past if one.path == path and one.number > number)
        # Children are made and go with their parent; a value changes without them.
        return any(of_children is one.is_of_children or one.before is None for one in later)


class FollowerTree(MemoryTree):
    """One session, and how far its server is."""

    _cluster: LaggingCluster

    def __init__(
        self, cluster: LaggingCluster, session_timeout_s: float, clock: IReactorTime
    ) -> None:
        super().__init__(cluster, session_timeout_s, clock)
        self._seen, self._stands_until_s = 0, 0.0
        self._watches.heard = self._catch_up

    def _begin(self) -> None:
        super()._begin()
        self._catch_up()

    def _catch_up(self) -> None:
        """See all that was changed so far: after an own write, and with an event."""
        self._seen, self._stands_until_s = self._cluster.number, 0.0

    async def get(self, path: str) -> Node:
        def apply() -> Node:
            stored = self._stored(path)
            if stored is None:
                raise NoNodeError(f"no node {path or '/'}")
            return Node(stored.value, stored.stat())

        return await retry_until_answered(lambda: self._do("get", path, apply))

    async def stat(self, path: str, fired: Fired | None = None) -> Stat | None:
        def apply() -> Stat | None:
            stored = self._stored(path)
            self._watch(path, fired, of_children=False)
            return None if stored is None else stored.stat()

        return await retry_until_answered(lambda: self._do("stat", path, apply))

    async def children(
        self, path: str, fired: Fired | None = None, *, fresh: bool = False
    ) -> list[str]:
        def apply() -> list[str]:
            if fresh:
                self._catch_up()
            stored = self._stored(path)
            if stored is None:
                raise NoNodeError(f"no node {path or '/'}")
            self._watch(path, fired, of_children=True)
            return sorted(stored.names)

        return await retry_until_answered(lambda: self._do("children", path, apply))

    def _stored(self, path: str) -> Any:
        self._follow()
        return self._cluster.stored_at(path, self._seen)

    def _follow(self) -> None:
        """Let the session's server follow the others, or stand still for a while."""
        cluster = self._cluster
        now_s = cluster.clock.seconds()
        if not cluster.lag_s:
            self._catch_up()
        elif now_s < self._stands_until_s:
            self._seen = cluster.oldest(self._seen)
        elif cluster.chance.random() < STANDSTILL_SHARE:
            self._seen = cluster.oldest(self._seen)
            self._stands_until_s = now_s + cluster.chance.uniform(0, cluster.lag_s)
        else:
            self._seen = cluster.number

    def _watch(self, path: str, fired: Fired | None, *, of_children: bool) -> None:
        cluster, called = self._cluster, self._watches.wrap(fired)
        if called is None:
            return
        if cluster.is_missed(path, self._seen, of_children=of_children):
            cluster.clock.callLater(cluster.chance.uniform(0, cluster.lag_s), called)
        else:
            cluster._watch(path, called, of_children=of_children)

    def _do(self, name: str, path: str, apply: Callable[[], T]) -> Coroutine[Any, Any, T]:
        def written() -> T:
            try:
                return apply()
            finally:
                self._catch_up()

        is_late = self._cluster.lag_s and name in WRITES
        return super()._do(name, path, written if is_late else apply)
