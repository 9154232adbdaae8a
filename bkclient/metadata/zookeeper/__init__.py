"""The ZooKeeper driver. This package is the only importer of kazoo, and imports it late.

``client`` is kazoo made to measure, ``zookeeper_tree`` one session as a tree of nodes; the store on
that tree is ``bkclient.metadata.tree``. Kazoo runs a thread of its own; what it has to say crosses
to the reactor in batches, one ``callFromThread`` for however many answers and events have gathered.
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
        reactor: where everything is called back.
        session_timeout_s: asked for; the server may give another.
        chance: the source of tokens and of the order of repairs.
        lock_owner: what locks say of us; the host's name by default.
        registration_wait_s: how long an older session may keep our bookie id.
        auth_data: ``(scheme, credential)`` pairs.
        sasl_options: as kazoo takes them.
        secure: make nodes for their creator only (``zkEnableSecurity``); needs credentials.
        requests_per_s_max: how many requests may go a second (``zkRequestRateLimit``); 0 is all.
        mark_times: whether the marks of under-replicated ledgers hold their time.
        observing: ``observe``, a ``session.Observe``, hears how long each operation takes.
    """
    parsed = parse_uri(uri)  # A wrong one needs no kazoo.
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
        # It knows neither SASL nor a measured pace.
        many_values=None if sasl_options or requests_per_s_max > 0 else bulk,
    )


class ZooKeeperMetadata(MetadataStore):
    """A store on ZooKeeper."""

    def __init__(self, tree: KazooTree, **rest: Any) -> None:
        """See ``MetadataStore``."""
        super().__init__(tree, **rest)
        self.session = tree
