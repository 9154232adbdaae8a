"""A new cluster, and the id that it gets: `cluster init`, `id`."""

from __future__ import annotations

from typing import TYPE_CHECKING

from bkclient.admin import operations
from bkctl.commands.cluster.columns import ClusterCreated, ClusterId
from bkctl.errors import NothingFoundError

if TYPE_CHECKING:
    from bkclient.client import Client
    from bkclient.metadata.api import MetadataStore
    from bkctl.session.session import Session


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
