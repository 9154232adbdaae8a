"""The ZooKeeper driver. Only this package imports kazoo, and imports it late.

``client`` adapts kazoo; ``zookeeper_tree`` is one session as a tree of nodes. The store on that
tree is ``bkclient.metadata.tree``. Kazoo runs its own thread; its answers and events reach the
reactor in batches, with one ``callFromThread`` per batch.
"""

from __future__ import annotations

import random
import socket
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from bkclient.concurrency import rate_limit
from bkclient.metadata.tree.store import MetadataStore
from bkclient.metadata.zk_uri import parse_uri

if TYPE_CHECKING:
    from bkclient.metadata.zookeeper.zookeeper_tree import KazooTree

__all__ = ["ZooKeeperMetadata", "open_zookeeper", "parse_uri"]


def open_zookeeper(
    uri: str,
    *,
    reactor: Any,
    session_timeout_s: float,
    chance: random.Random | None = None,
    lock_owner: str | None = None,
    registration_wait_s: float | None = None,
    auth_data: Sequence[tuple[str, str]] = (),
    sasl_options: dict[str, str] | None = None,
    secure: bool = False,
    requests_per_s_max: float = 0.0,
    mark_times: bool = True,
    **observing: Any,
) -> ZooKeeperMetadata:
    """Return a store on ZooKeeper, not yet connected.

    Args:
        uri: as for ``parse_uri``.
        reactor: the reactor of all callbacks.
        session_timeout_s: the requested time-out; the server may set another.
        chance: the random source of tokens and of the order of repairs.
        lock_owner: the name in our locks; by default the host's name.
        registration_wait_s: how long an older session may keep our bookie id.
        auth_data: ``(scheme, credential)`` pairs.
        sasl_options: in kazoo's form.
        secure: create nodes for their creator only (``zkEnableSecurity``); needs credentials.
        requests_per_s_max: the most requests a second (``zkRequestRateLimit``); 0 means no limit.
        mark_times: True if marks of under-replicated ledgers have a creation time.
        observing: ``observe``, a ``session.Observe``, is called with the time of each operation.
    """
    parsed = parse_uri(uri)  # A wrong URI fails without kazoo.
    from bkclient.metadata.zookeeper.bulk_reads import BulkNodeReads
    from bkclient.metadata.zookeeper.zookeeper_tree import KazooTree

    bulk = BulkNodeReads(
        parsed, reactor=reactor, session_timeout_s=session_timeout_s, auth_data=auth_data
    )
    tree = KazooTree(
        parsed,
        reactor=reactor,
        session_timeout_s=session_timeout_s,
        auth_data=auth_data,
        sasl_options=sasl_options,
        secure=secure,
        rate=rate_limit(reactor, requests_per_s_max),
        **observing,
    )
    return ZooKeeperMetadata(
        tree,
        clock=reactor,
        chance=random.Random() if chance is None else chance,
        layout=parsed.layout,
        lock_owner=socket.gethostname() if lock_owner is None else lock_owner,
        registration_wait_s=registration_wait_s,
        mark_times=mark_times,
        # Bulk reads support neither SASL nor a rate limit.
        many_values=None if sasl_options or requests_per_s_max > 0 else bulk,
    )


class ZooKeeperMetadata(MetadataStore):
    """A store on ZooKeeper."""

    def __init__(self, tree: KazooTree, **rest: Any) -> None:
        """See ``MetadataStore``."""
        super().__init__(tree, **rest)
        self.session = tree
