"""What the cluster and bookie commands do: the steps between parsed options and printed values.

Functions whose first argument is a ``client`` are coroutines for the reactor's thread, given to
``Session.call``. Those that take a ``session`` run on the main thread and block.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Final, TypeVar

import attrs

from bkclient.admin import operations
from bkclient.blocking import call_in_reactor, reactor_in_thread, with_store
from bkclient.metadata import open_metadata
from bkclient.metadata.api import AlreadyInitializedError
from bkclient.metadata.store_settings import store_options
from bkclient.metadata.tree.nodes import together
from bkclient.placement.rack import DEFAULT_RACK
from bkctl.bookies import load_metrics as bookie_figures
from bkctl.bookies import summary
from bkctl.bookies.admin_api import http_address
from bkctl.bookies.summary import BookieSummary
from bkctl.commands.cluster.columns import ClusterCreated, ClusterId, HealthCheck
from bkctl.errors import NothingFoundError, error_message
from wire.errors import BookKeeperError

if TYPE_CHECKING:
    from typing_extensions import Self

    from bkclient.client import Client
    from bkclient.metadata.api import MetadataStore
    from bkctl.session.session import Session
    from wire.ids import BookieId

T = TypeVar("T")

FIGURES_TIMEOUT_S: Final = 3.0
"""How long one bookie's metrics may take where they are only an addition."""


async def bookies(client: Client, wanted: str | None, *, ask: bool) -> list[BookieSummary]:
    """Return the bookies in a state (``None``: all), by id; ``ask`` them for their free space."""
    found = [
        one for one in await operations.list_bookies(client) if wanted in {None, one.state.value}
    ]
    racks = await racks_of(client, found)
    return await together(_look_at(client, one, racks.get(one.bookie_id), ask=ask) for one in found)


async def _look_at(
    client: Client, one: operations.BookieStatus, rack: str | None, *, ask: bool
) -> BookieSummary:
    found = attrs.evolve(summary.summary(one), rack=rack)
    if one.info is None:
        return found
    found = attrs.evolve(found, http=http_address(one.info, client.config))
    if not ask:
        return found
    try:
        disks = await operations.bookie_info(client, one.bookie_id)
    except BookKeeperError as error:
        # The state is what metadata says; the sizes stay unknown.
        return attrs.evolve(found, unreachable=error_message(error))
    return attrs.evolve(found, free=disks.free_bytes, total=disks.total_bytes)


async def racks_of(
    client: Client, bookies: Collection[operations.BookieStatus]
) -> Mapping[BookieId, str]:
    """Return where bookies are in the network; nothing where no topology script is configured.

    One that is down is where the address that its id consists of is, as in Java.
    """
    topology = client.cluster.topology if client.has_topology_script else None
    if topology is None:
        return {}
    await topology.learn([one.bookie_id for one in bookies])
    found = {one: topology.rack_of(one.bookie_id) for one in bookies}
    return {
        one.bookie_id: rack
        for one, rack in found.items()
        if one.info is not None or rack != DEFAULT_RACK
    }


def with_figures(found: Sequence[BookieSummary], *, now_s: float) -> list[BookieSummary]:
    """Return bookies with what only their metrics tell, where they can be asked; blocks."""
    told = bookie_figures.ask_all([one.http for one in found], FIGURES_TIMEOUT_S)
    return [
        attrs.evolve(
            one,
            version=figures.version,
            uptime_s=None if figures.started_s is None else max(0.0, now_s - figures.started_s),
        )
        if isinstance(figures, bookie_figures.Figures)
        else one
        for one, figures in zip(found, told, strict=True)
    ]


def print_id(session: Session) -> None:
    """Print the cluster's instance id.

    Raises:
        NothingFoundError: it has none.
    """
    session.emit(session.call(cluster_id))


async def cluster_id(client: Client) -> ClusterId:
    """Return the cluster's instance id.

    Raises:
        NothingFoundError: it has none.
    """
    found = await client.store.instance_id()
    if found is None:
        raise NothingFoundError("the cluster has no instance id")
    return ClusterId(found)


def switch_health_check(session: Session, *, switch: str | None) -> None:
    """Print or switch whether clients may quarantine bookies."""
    if switch is not None and session.dry_run:
        session.plan([f"{switch} the health check"])
        return
    wanted = None if switch is None else switch == "enable"
    session.emit(session.call(health_check, wanted))


async def health_check(client: Client, wanted: bool | None) -> HealthCheck:  # noqa: FBT001  # a value
    """Return whether clients may quarantine bookies, after switching it where that is wanted."""
    store = client.store
    enabled = await store.health_check_enabled()
    if wanted is None or wanted is enabled:
        return HealthCheck(enabled, changed=False)
    await store.set_health_check_enabled(enabled=wanted)
    return HealthCheck(wanted, changed=True)


def init(session: Session, *, layout: str | None) -> None:
    """Make a new cluster where the session's URI points.

    Raises:
        AlreadyInitializedError: there is one.
    """
    if session.dry_run:
        session.plan([f"make a cluster at {session.uri}"])
        return
    options = store_options(session.config, session.uri)

    async def make(store: MetadataStore) -> ClusterCreated:
        instance_id = await operations.init_cluster(store, layout)
        return ClusterCreated(store.uri, instance_id, (await store.layout()).name)

    created: ClusterCreated = with_store(session.uri, make, **options)
    session.emit(created)


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

    async def _writable(self) -> frozenset[BookieId]:
        return await (await self._connected()).writable_bookies()

    def _run(self, work: Callable[[], Any]) -> Any:
        return call_in_reactor(self._reactor, work)

    async def _connected(self) -> MetadataStore:
        if self._store is None:
            self._store = open_metadata(self._uri(), reactor=self._reactor)
            await self._store.connect()
        return self._store
