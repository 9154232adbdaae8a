"""`cluster init` and `cluster id`: a new cluster, and its instance id."""

from __future__ import annotations

from typing import TYPE_CHECKING

from bkclient.admin import cluster_operations
from bkctl.errors import NothingFoundError
from bkctl.output.views import field, shown

if TYPE_CHECKING:
    from bkclient.client import Client
    from bkclient.metadata.tree.store import MetadataStore
    from bkctl.session.session import Session


@shown("clusters", bare=True)
class ClusterId:
    """The cluster's instance id."""

    instance_id: str = field("The cluster's id.")


@shown("clusters", id="instance_id")
class ClusterCreated:
    """A new cluster."""

    uri: str = field("The metadata service.")
    instance_id: str = field("The cluster's id.")
    layout: str = field("Layout of the metadata.")


def init(session: Session, *, layout: str | None) -> None:
    """Create a cluster at the session's URI.

    Raises:
        AlreadyInitializedError: a cluster exists.
    """
    if session.plans_only([f"make a cluster at {session.uri}"]):
        return

    async def make(store: MetadataStore) -> ClusterCreated:
        instance_id = await cluster_operations.init_cluster(store, layout)
        return ClusterCreated(store.uri, instance_id, (await store.layout()).name)

    session.emit(session.cluster.with_store(make))


def print_id(session: Session) -> None:
    """Print the cluster's instance id.

    Raises:
        NothingFoundError: the cluster has no instance id.
    """
    session.emit(session.call(cluster_id))


async def cluster_id(client: Client) -> ClusterId:
    """Return the cluster's instance id.

    Raises:
        NothingFoundError: the cluster has no instance id.
    """
    found = await client.store.instance_id()
    if found is None:
        raise NothingFoundError("the cluster has no instance id")
    return ClusterId(found)
