"""Pulsar's metadata service URIs, converted to the ZooKeeper URIs of the same znodes.

Agrees with Pulsar 4.0, AbstractMetadataDriver and MetadataStoreFactoryImpl: ``metadata-store:``
precedes the address of a metadata store. A path after ZooKeeper's servers is a chroot, and the
ledgers are always at ``/ledgers`` below it.
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
    """Return the kind of store of a Pulsar URI, if it is not ZooKeeper."""
    store = _store(uri)
    return None if store in {None, "zk"} else _OTHER_STORES.get(store or "", store)


def as_zookeeper_uri(uri: str) -> str:
    """Return the ``zk+hierarchical://`` URI of a ``metadata-store:zk:`` URI; others unchanged.

    Raises:
        IncorrectParameterError: the store is not ZooKeeper.
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
    """Return the kind of store in a Pulsar URI; ZooKeeper without one."""
    match = _STORE.match(uri)
    return (match.group(1) or match.group(2)).lower() if match else None
