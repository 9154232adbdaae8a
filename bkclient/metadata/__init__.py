"""A cluster's metadata: ``open_metadata`` returns the store of a service URI.

``tree.store`` has the operations of a store. Drivers are imported when a URI needs them.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from bkclient.config.pulsar_uri import as_zookeeper_uri
from bkclient.errors import IncorrectParameterError

if TYPE_CHECKING:
    from bkclient.metadata.tree.store import MetadataStore

__all__ = ["check_uri", "open_metadata"]


def check_uri(uri: str) -> str:
    """Check a metadata service URI; return its kind of store: ``zk`` or ``sqlite``.

    Raises:
        IncorrectParameterError: the URI is not valid.
    """
    uri = as_zookeeper_uri(uri)
    kind = uri.partition(":")[0].partition("+")[0].lower()
    if kind == "zk":
        from bkclient.metadata import zk_uri

        zk_uri.parse_uri(uri)
    elif kind == "sqlite":
        from bkclient.metadata.sqlite import store

        store.parse_uri(uri)
    else:
        raise IncorrectParameterError(
            f"{uri!r} is not a metadata service URI; give zk+hierarchical://HOST:PORT/ledgers"
            " or sqlite:///FILE"
        )
    return kind


def open_metadata(
    uri: str,
    *,
    reactor: Any = None,
    session_timeout_s: float = 10.0,
    requests_per_s_max: float = 0.0,
    **options: Any,
) -> MetadataStore:
    """Return the store of a metadata service URI, not yet connected.

    ``zk[+LAYOUT]://HOST:PORT[;HOST:PORT]/ROOT`` is a ZooKeeper tree, and so is Pulsar's
    ``metadata-store:zk:HOST:PORT[,HOST:PORT]``; ``sqlite:///FILE`` or ``sqlite:FILE`` is a file.
    ``options`` are those of the driver: ``open_zookeeper``, ``open_sqlite``. ``reactor`` defaults
    to Twisted's global reactor. ``requests_per_s_max`` limits the requests to a shared service, so
    a file has no limit; 0 means no limit.

    Raises:
        IncorrectParameterError: the URI is not valid.
    """
    kind = check_uri(uri)
    uri = as_zookeeper_uri(uri)
    if reactor is None:
        from twisted.internet import reactor
    if kind == "zk":
        from bkclient.metadata.zookeeper import open_zookeeper

        options["requests_per_s_max"] = requests_per_s_max
        return open_zookeeper(uri, reactor=reactor, session_timeout_s=session_timeout_s, **options)
    from bkclient.metadata.sqlite.store import open_sqlite

    return open_sqlite(uri, reactor=reactor, session_timeout_s=session_timeout_s, **options)
