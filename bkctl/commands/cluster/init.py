"""A new cluster, and the id that it gets: `cluster init`, `id`."""

from __future__ import annotations

from typing import TYPE_CHECKING

import attrs

from bkclient.admin import operations
from bkctl.errors import NothingFoundError
from bkctl.output.views import column, shown

if TYPE_CHECKING:
    from bkclient.client import Client
    from bkclient.metadata.api import MetadataStore
    from bkctl.session.session import Session


@shown("clusters", column("instance_id", "The cluster's id."), bare=True)
@attrs.frozen
class ClusterId:
    """The cluster's instance id."""

    instance_id: str


@shown(
    "clusters",
    column("uri", "The metadata service."),
    column("instance_id", "The cluster's id."),
    column("layout", "Layout of the metadata."),
    id="instance_id",
)
@attrs.frozen
class ClusterCreated:
    """A new cluster."""

    uri: str
    instance_id: str
    layout: str


def init(session: Session, *, layout: str | None) -> None:
    """Make a new cluster where the session's URI points.

    Raises:
        AlreadyInitializedError: there is one.
    """
    if session.dry_run:
        session.plan([f"make a cluster at {session.uri}"])
        return

    async def make(store: MetadataStore) -> ClusterCreated:
        instance_id = await operations.init_cluster(store, layout)
        return ClusterCreated(store.uri, instance_id, (await store.layout()).name)

    session.emit(session.cluster.with_store(make))


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
