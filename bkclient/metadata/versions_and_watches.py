"""The values of a metadata store. ``tree.store.MetadataStore`` has its operations.

Every method of a store is a coroutine to be awaited under Twisted (``Deferred.fromCoroutine``); all
callbacks run on the reactor. One contract suite (tests/contract) runs on a tree in ZooKeeper
(``zookeeper``, shared with Java peers) and on a tree in a file (``sqlite``).

* A write that fails with ``MetadataUnavailableError`` may have been applied. Callers re-read.
* Watches are persistent: at least one callback follows the last change, not one per change.
* Ephemeral nodes (registrations, locks, votes) vanish with the session. After
  ``SessionEvent.LOST`` their owner must create them again; the store does not.
"""

from __future__ import annotations

import enum
from collections.abc import Callable
from typing import Final, Generic, Protocol, TypeVar

import attrs

from bkclient.errors import MetadataSerializationError
from bkclient.metadata.errors import MetadataAccessError
from wire.errors import MetadataFormatError
from wire.ids import BookieId, LedgerId
from wire.ledger_metadata import LedgerMetadata

T = TypeVar("T")

Version = int
"""The store's version of a value, which differs after each write.

Callers may only test versions for equality. If a log or a cookie is deleted and created again, the
versions of its name do not repeat; in SQLite no versions repeat. A new ledger in ZooKeeper starts
at 0 again, as with Java.
"""

NEW: Final = -2
"""The version of a value that must not exist yet."""

ANY: Final = -1
"""Matches any version of the value."""


class SessionEvent(enum.Enum):
    """A change of the session with the store."""

    CONNECTED = enum.auto()
    """Connected, or connected again in the same session: ephemeral nodes still exist.

    After ``LOST`` it means that a new session has begun.
    """
    SUSPENDED = enum.auto()
    """Disconnected; ephemeral nodes remain until the session expires."""
    LOST = enum.auto()
    """The session expired; all its ephemeral nodes are deleted."""


@attrs.frozen
class Versioned(Generic[T]):
    """A value and its version in the store."""

    value: T
    version: Version


@attrs.frozen
class LayoutInfo:
    """The layout of a tree: its short name (``hierarchical`` …) and its Java factory."""

    name: str
    factory: str


@attrs.frozen
class HeldLock:
    """A lock on a ledger under repair: its owner, and its time by the store's clock."""

    ledger_id: LedgerId
    owner: str
    since_ms: int | None


@attrs.frozen
class StoredNode:
    """One node of the tree: its path below the root, its value and its version.

    The root's path is ``""``. Paths of nodes beside the root begin with ``.logs`` or ``.cursors``.
    ``children`` is the number of nodes directly below this one. An ephemeral node vanishes with its
    session. ``ctime_ms`` is the time of creation in ms since 1970; 0 if it is unknown.
    ``unreadable`` is the error of a node of which only the path is known.
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
    """A stored ledger. If it cannot be read, ``stored`` is None and ``error`` has the reason."""

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
            MetadataSerializationError: the metadata cannot be read.
        """
        if self.error is not None:
            raise self.error
        assert self.stored is not None
        return self.stored.value


MarkError = MetadataFormatError | MetadataAccessError
"""The error of a mark that cannot be read."""

DamagedMark = Callable[[LedgerId, MarkError], None]
"""A callback for marks that cannot be read, with the error."""

Missing = tuple[LedgerId, tuple[BookieId, ...]]
"""A ledger, and the bookies on which it lacks replicas."""
