"""The watches of one session with ZooKeeper: each path has one, however many wait for it."""

from __future__ import annotations

from collections.abc import Callable

from bkclient.metadata.tree.nodes import Fired

Place = tuple[str, bool]
"""A path, and whether it is its children that are watched."""


class Watches:
    """Who waits for what to change."""

    def __init__(self, remove: Callable[[Place, PathWatchers], object]) -> None:
        """``remove`` takes a watch away from the server, once no caller waits for it any more."""
        self._remove = remove
        self._watched: dict[Place, PathWatchers] = {}
        self._places: dict[Fired, set[Place]] = {}

    def __len__(self) -> int:
        return len(self._watched)

    def add(self, path: str, fired: Fired | None, *, of_children: bool) -> PathWatchers | None:
        """Return the one object that kazoo knows for all watches of a path; ``None`` for none."""
        if fired is None:
            return None
        key = (path, of_children)
        if key not in self._watched:
            self._watched[key] = PathWatchers(key, self._fired)
        self._watched[key].add(fired)
        self._places.setdefault(fired, set()).add(key)
        return self._watched[key]

    def forget(self, fired: Fired) -> None:
        """Call ``fired`` no more. The server forgets it too, once no other caller waits there."""
        for key in self._places.pop(fired, ()):
            watched = self._watched.get(key)
            if watched is not None and watched.forget(fired):
                del self._watched[key]
                self._remove(key, watched)

    def fire_all(self) -> None:
        """Call everybody: who waits looks again, and finds what has become of the session."""
        for watched in tuple(self._watched.values()):
            watched(None)

    def _fired(self, watched: PathWatchers) -> None:
        """Call who waits for a watch, which is gone now."""
        if self._watched.get(watched.key) is watched:
            del self._watched[watched.key]
        for fired in watched.take():
            places = self._places.get(fired, set())
            places.discard(watched.key)
            if not places:
                self._places.pop(fired, None)
            fired()


class PathWatchers:
    """Who waits for a path to change; what kazoo calls, on the reactor."""

    def __init__(self, key: tuple[str, bool], called: Callable[[PathWatchers], None]) -> None:
        self.key, self._called = key, called
        self._waiting: dict[Fired, None] = {}

    def add(self, fired: Fired) -> None:
        self._waiting[fired] = None

    def forget(self, fired: Fired) -> bool:
        """Forget one; return whether none is left."""
        self._waiting.pop(fired, None)
        return not self._waiting

    def take(self) -> dict[Fired, None]:
        """Return who waits, and forget them."""
        waiting, self._waiting = self._waiting, {}
        return waiting

    def __call__(self, _event: object) -> None:
        self._called(self)
