"""The values of a metadata store. What a store can do is in ``tree``: ``tree.store.MetadataStore``.

Every method of a store is a coroutine to be awaited under Twisted (``Deferred.fromCoroutine``); all
callbacks run on the reactor. One contract suite (tests/contract) runs on a tree in ZooKeeper
(``zookeeper``, shared with Java peers) and on one in a file (``sqlite``).

* A write that fails with ``MetadataUnavailableError`` may have been applied. Callers re-read.
* Watches are persistent: at least one callback comes after the last change, not one per change.
* Ephemeral things (registrations, locks, votes) vanish with the session. After
  ``SessionEvent.LOST`` their owner must make them anew; a store does not.
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


MarkError = MetadataFormatError | MetadataAccessError
"""Why a mark cannot be read."""

DamagedMark = Callable[[LedgerId, MarkError], None]
"""Hears of a mark that cannot be read, and why not."""

Missing = tuple[LedgerId, tuple[BookieId, ...]]
"""A ledger, and the bookies it lacks replicas on."""
