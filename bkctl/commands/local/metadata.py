"""The metadata of a local cluster: a SQLite file, its own ZooKeeper, or an existing service.

All calls block; commands, tests and worker threads call them, never the reactor's thread.
"""

from __future__ import annotations

import contextlib
import shlex
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import TYPE_CHECKING, TypeVar

from bkclient.blocking import call_in_reactor, reactor_in_thread
from bkclient.metadata import open_metadata
from bkclient.metadata.errors import AlreadyInitializedError, NotInitializedError
from bkctl.commands.local.ports import HOST
from bkctl.commands.local.zookeeper import ZooKeeperEndedError, ZooKeeperProcess
from bkctl.errors import ConflictError

if TYPE_CHECKING:
    from typing_extensions import Self

    from bkclient.metadata.tree.store import MetadataStore
    from wire.ids import BookieId

T = TypeVar("T")


class LocalMetadataService:
    """The metadata service of one local cluster."""

    def __init__(
        self, directory: Path, *, has_zookeeper: bool, zookeeper_port: int = 0, elsewhere: str = ""
    ) -> None:
        """With ``has_zookeeper`` the cluster runs its own ZooKeeper; port 0 is a free one.

        ``elsewhere`` is the URI of metadata that the cluster neither starts nor stops.
        """
        self.elsewhere, self.has_zookeeper = elsewhere, has_zookeeper
        self.zookeeper_port = zookeeper_port
        self._directory = directory
        self._server: ZooKeeperProcess | None = None

    @property
    def uri(self) -> str:
        """The metadata service URI; for an own ZooKeeper it is complete after the start."""
        if self.elsewhere:
            return self.elsewhere
        if self.has_zookeeper:
            return f"zk+hierarchical://{HOST}:{self.zookeeper_port}/ledgers"
        return f"sqlite://{self._directory / 'metadata.db'}"

    def start(self) -> None:
        """Start the ZooKeeper; return when it answers.

        Raises:
            ZooKeeperStartError: the ZooKeeper did not start.
        """
        directory = self._directory / "zookeeper"
        directory.mkdir(exist_ok=True)
        self._server = ZooKeeperProcess(directory, port=self.zookeeper_port)
        self._server.start()
        self.zookeeper_port = self._server.port

    def stop(self) -> None:
        """Stop the ZooKeeper, if one was started."""
        if self._server is not None:
            self._server.stop()
            self._server = None

    def require_running(self, start_line: str) -> None:
        """Raise if the cluster's own ZooKeeper has ended.

        ``start_line`` starts the cluster again; empty if its directory is temporary.

        Raises:
            ZooKeeperEndedError: it has ended; the cluster cannot work without it.
        """
        server = self._server
        if server is None or server.running:
            return
        next_step = "--dir DIR keeps its log and its files"
        if start_line:
            next_step = f"its log is {server.log}; to start all again: {start_line}"
        raise ZooKeeperEndedError(f"ZooKeeper ended with {server.returncode}", next_step=next_step)


class ClusterMetadata:
    """A client of a cluster's metadata: creates the cluster, and lists its registered bookies.

    It connects at the first use.
    """

    def __init__(self, uri: Callable[[], str]) -> None:
        self._uri = uri
        self._reactor = reactor_in_thread()
        self._store: MetadataStore | None = None

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        if self._store is not None:
            call_in_reactor(self._reactor, self._store.close)
            self._store = None

    def initialize(self, former_id: str | None = None) -> None:
        """Create the cluster unless it exists.

        ``former_id`` is the instance id in the bookies' data, if they have any.

        Raises:
            ConflictError: the bookies have data, but the metadata has no cluster: it was removed.
        """
        present_id = None
        with contextlib.suppress(NotInitializedError):
            present_id = self._ask(lambda store: store.instance_id())
        if former_id is not None and present_id is None:
            raise ConflictError(
                f"the bookies have data of cluster {former_id}, and {self._uri()} has no cluster",
                next_step="bring the metadata back from a backup: "
                f"`bkctl -u {shlex.quote(self._uri())} cluster restore FILE`; for a new cluster "
                "give another DIR",
            )
        with contextlib.suppress(AlreadyInitializedError):
            self._ask(lambda store: store.initialize())

    def writable(self) -> frozenset[BookieId]:
        """Return the writable bookies."""
        return self._ask(lambda store: store.writable_bookies())

    def known(self) -> frozenset[BookieId]:
        """Return the bookies that have a cookie."""
        return self._ask(lambda store: store.known_bookies())

    def is_repaired(self) -> bool:
        """Return whether autorecovery is enabled."""
        return self._ask(lambda store: store.replication_enabled())

    def _ask(self, ask: Callable[[MetadataStore], Awaitable[T]]) -> T:
        async def asked() -> T:
            if self._store is None:
                self._store = open_metadata(self._uri(), reactor=self._reactor)
                await self._store.connect()
            return await ask(self._store)

        found: T = call_in_reactor(self._reactor, asked)
        return found
