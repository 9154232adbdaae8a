"""Pulsar's metadata service URIs, as the ZooKeeper URIs that name the same znodes.

Agrees with Pulsar 4.0, AbstractMetadataDriver and MetadataStoreFactoryImpl: behind
``metadata-store:`` is the address of a metadata store. A path after ZooKeeper's servers is a
chroot, and the ledgers are at ``/ledgers`` below it, whatever the path is.
"""

from __future__ import annotations

import re
from typing import Final

from bkclient.errors import IncorrectParameterError

PREFIX: Final = "metadata-store:"
LEDGERS_ROOT: Final = "/ledgers"

_OTHER_STORES: Final = {
    "etcd": "etcd",
    "memory": "memory of one process",
    "oxia": "Oxia",
    "rocksdb": "a RocksDB file",
}
_STORE: Final = re.compile(
    rf"{PREFIX}(?:(zk|{'|'.join(_OTHER_STORES)}):|([a-z0-9]+)://)", re.IGNORECASE
)


def unserved_store(uri: str) -> str | None:
    """Return what a URI of Pulsar's keeps its metadata in, if that is not ZooKeeper."""
    store = _store(uri)
    return None if store in {None, "zk"} else _OTHER_STORES.get(store or "", store)


def as_zookeeper_uri(uri: str) -> str:
    """Return the ``zk+hierarchical://`` URI of a ``metadata-store:zk:`` URI; others unchanged.

    Raises:
        IncorrectParameterError: the metadata is kept in something else than ZooKeeper.
    """
    if not uri.lower().startswith(PREFIX):
        return uri
    other = unserved_store(uri)
    if other is not None:
        raise IncorrectParameterError(
            f"{uri}: the metadata is in {other}, and only ZooKeeper is served:"
            " metadata-store:zk:HOST:PORT"
        )
    address = uri[len(PREFIX) :]
    if _store(uri) == "zk":
        address = address.partition(":")[2]
    servers, _, chroot = address.partition("/")
    root = f"/{chroot}".rstrip("/") + LEDGERS_ROOT
    return f"zk+hierarchical://{servers.replace(',', ';')}{root}"


def _store(uri: str) -> str | None:
    """Return the kind of store that a URI of Pulsar's names; without one it is ZooKeeper."""
    match = _STORE.match(uri)
    return (match.group(1) or match.group(2)).lower() if match else None
