"""ZooKeeper service URIs, parsed without a ZooKeeper client."""

from __future__ import annotations

from typing import Final
from urllib.parse import urlsplit

import attrs

from bkclient.errors import IncorrectParameterError
from bkclient.metadata import zk_paths

DEFAULT_PORT: Final = 2181

_UNUSABLE: Final = {
    "ms": "Java's own release cannot use it either",
    "legacyhierarchical": "only what is stored can say so: use zk+null://",
}


@attrs.frozen
class ZooKeeperUri:
    """A parsed service URI. ``layout`` is ``None`` if the store decides."""

    text: str
    hosts: str
    """``host:port,host:port``"""
    root: str
    """The path of the cluster's root; begins with ``/``, does not end with one."""
    layout: str | None


def parse_uri(text: str) -> ZooKeeperUri:
    """Parse ``zk[+TYPE]://host:port[;host:port…]/ROOT``.

    Agrees with BookKeeper, ZKMetadataDriverBase.

    Raises:
        IncorrectParameterError: the text is not a ZooKeeper URI, or its layout cannot be used.
    """
    scheme, separator, rest = text.partition("://")
    kind, _, layout = scheme.lower().partition("+")
    servers, slash, path = rest.partition("/")
    hosts = [_host_and_port(text, server) for server in servers.replace(";", ",").split(",")]
    root = f"/{path}".rstrip("/")
    if kind != "zk" or not separator or not slash or not root or "//" in root:
        raise IncorrectParameterError(
            f"{text!r} is not a ZooKeeper URI; give zk+hierarchical://HOST:PORT[;HOST:PORT]/ledgers"
        )
    if layout in _UNUSABLE:
        raise IncorrectParameterError(
            f"{text}: layout {layout!r} cannot be used: {_UNUSABLE[layout]}"
        )
    if layout not in {"", "null", *zk_paths.LAYOUTS}:
        raise IncorrectParameterError(
            f"{text}: no layout {layout!r}; there are hierarchical, longhierarchical, flat, null"
        )
    return ZooKeeperUri(text, ",".join(hosts), root, layout if layout not in {"", "null"} else None)


def _host_and_port(uri: str, server: str) -> str:
    try:
        parts = urlsplit(f"//{server}")
        host, port = parts.hostname, parts.port or DEFAULT_PORT
    except ValueError as error:
        raise IncorrectParameterError(
            f"{uri}: {server!r} is not an address; give HOST:PORT"
        ) from error
    if not host or parts.path or parts.username:
        raise IncorrectParameterError(f"{uri}: {server!r} is not an address; give HOST:PORT")
    return f"[{host}]:{port}" if ":" in host else f"{host}:{port}"
