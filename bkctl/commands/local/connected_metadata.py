"""The metadata of a cluster whose bookies are being started."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from bkclient.blocking import call_in_reactor, reactor_in_thread
from bkclient.metadata import open_metadata
from bkclient.metadata.api import AlreadyInitializedError

if TYPE_CHECKING:
    from typing_extensions import Self

    from bkclient.metadata.api import MetadataStore
    from wire.ids import BookieId


class ClusterMetadata:
    """A cluster's metadata, for what starts its bookies: make it, and see who is registered.

    Connects at the first use, when there is something to connect to.
    """

    def __init__(self, uri: Callable[[], str]) -> None:
        self._uri = uri
        self._reactor = reactor_in_thread()
        self._store: MetadataStore | None = None

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        if self._store is not None:
            self._run(self._store.close)
            self._store = None

    def initialize(self) -> None:
        """Make the cluster, unless it is there already."""
        self._run(self._initialize)

    async def _initialize(self) -> None:
        store = await self._connected()
        try:
            await store.initialize()
        except AlreadyInitializedError:
            return

    def writable(self) -> frozenset[str]:
        """Return the bookies that take adds."""
        found: frozenset[str] = self._run(self._writable)
        return found

    def known(self) -> frozenset[str]:
        """Return the bookies that have a cookie."""
        found: frozenset[str] = self._run(self._known)
        return found

    def is_repaired(self) -> bool:
        """Return whether autorecovery is enabled."""
        enabled: bool = self._run(self._replication_enabled)
        return enabled

    async def _replication_enabled(self) -> bool:
        return await (await self._connected()).replication_enabled()

    async def _known(self) -> frozenset[BookieId]:
        return await (await self._connected()).known_bookies()

    async def _writable(self) -> frozenset[BookieId]:
        return await (await self._connected()).writable_bookies()

    def _run(self, work: Callable[[], Any]) -> Any:
        return call_in_reactor(self._reactor, work)

    async def _connected(self) -> MetadataStore:
        if self._store is None:
            self._store = open_metadata(self._uri(), reactor=self._reactor)
            await self._store.connect()
        return self._store
