"""The cluster's metadata for commands that only look at it: the cheapest way there is.

In ZooKeeper a ``bkclient.metadata.zookeeper_reader``, which needs neither a reactor nor what comes
with one; anywhere else the client.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Awaitable, Callable, Iterator, Sequence
from typing import TYPE_CHECKING, Concatenate, ParamSpec, Protocol, TypeVar

if TYPE_CHECKING:
    from bkclient.client import Client
    from bkclient.metadata.api import StoredLedger
    from bkclient.metadata.stored_values import BookieStatus
    from wire.ids import LedgerId


P = ParamSpec("P")
T = TypeVar("T")


class MetadataView(Protocol):
    """What can be seen. Everything blocks, and raises ``ClientError`` where it cannot be seen."""

    def begin(self) -> None:
        """Watch the metadata from now on; does nothing where that was done since ``close``."""

    def ledger_ranges(self, after: LedgerId | None) -> Iterator[Sequence[LedgerId]]:
        """Yield the ids of all ledgers above ``after``, ascending, many at a time."""

    def ledgers(self, ids: Sequence[LedgerId]) -> Iterator[list[StoredLedger]]:
        """Yield ledgers in the order of ``ids``, as many as have come; those gone are left out."""

    def bookies(self) -> tuple[BookieStatus, ...]:
        """Return every bookie that is registered or has a cookie, by id."""

    def replication_note(self) -> bytes | None:
        """Return what was said when autorecovery was disabled; ``None`` while it is enabled."""

    def instance_id(self) -> str | None:
        """Return the cluster's instance id; ``None`` where it has none."""

    def close(self) -> None:
        """Release what was opened to look."""


class Caller(Protocol):
    """Runs functions of a client on the reactor; a ``Session`` is one."""

    def call(
        self,
        function: Callable[Concatenate[Client, P], Awaitable[T]],
        *args: P.args,
        **kwargs: P.kwargs,
    ) -> T:
        """Run ``await function(client, *args)``; return its value."""

    def iterate(
        self,
        function: Callable[Concatenate[Client, P], AsyncIterator[T]],
        *args: P.args,
        **kwargs: P.kwargs,
    ) -> Iterator[T]:
        """Yield what ``function(client, *args)``, an async iterator, yields."""


class ClientMetadataView:
    """A ``MetadataView`` through a client."""

    def __init__(self, caller: Caller) -> None:
        self._caller = caller

    def begin(self) -> None:
        """Leave that to the client, which hears of changes."""

    def ledger_ranges(self, after: LedgerId | None) -> Iterator[Sequence[LedgerId]]:
        return self._caller.iterate(lambda client: client.store.ledger_ranges(after=after))

    def ledgers(self, ids: Sequence[LedgerId]) -> Iterator[list[StoredLedger]]:
        """Yield ledgers; ``AT_FIRST`` of them come first."""
        from bkclient.admin.ledger_scan import AT_FIRST, IDS_AT_ONCE

        end = 0
        while end < len(ids):
            at, end = end, end + (IDS_AT_ONCE if end else AT_FIRST)
            yield self._caller.call(_ledgers, ids[at:end])

    def bookies(self) -> tuple[BookieStatus, ...]:
        from bkclient.admin import operations

        return self._caller.call(operations.list_bookies)

    def replication_note(self) -> bytes | None:
        return self._caller.call(replication_note)

    def instance_id(self) -> str | None:
        return self._caller.call(lambda client: client.store.instance_id())

    def close(self) -> None:
        """Leave the client to its owner."""


async def _ledgers(client: Client, ids: Sequence[LedgerId]) -> list[StoredLedger]:
    from bkclient.admin.ledger_scan import read_ledgers

    return await read_ledgers(client.store, ids)


async def replication_note(client: Client) -> bytes | None:
    """Return what ``MetadataView.replication_note`` does."""
    return await client.store.replication_note()
