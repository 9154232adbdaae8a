"""A look at a cluster's metadata: reads on the caller's thread, many at a time.

For what only looks and ends: no reactor, no kazoo and nothing of Twisted is imported here, which is
half the time of a short command. Whatever changes or watches something takes a ``MetadataStore``.
"""

from __future__ import annotations

import os
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from bkclient.metadata.zookeeper_reader.reader import ZooKeeperReader

__all__ = ["open_metadata_reader"]


def open_metadata_reader(
    uri: str,
    *,
    session_timeout_s: float,
    requests_per_s_max: float = 0.0,
    sasl_options: dict[str, str] | None = None,
    auth_data: Any = (),
    **_other: Any,
) -> ZooKeeperReader | None:
    """Return a look at what a URI names, with options as for ``open_metadata``.

    ``None`` where it takes a store to look: at a file, with SASL, or at a measured pace.

    Raises:
        IncorrectParameterError: the URI cannot be understood.
    """
    if not uri.lower().startswith("zk") or sasl_options or requests_per_s_max > 0:
        return None
    from bkclient.metadata.zk_uri import parse_uri
    from bkclient.metadata.zookeeper_reader.read_session import ReadSession
    from bkclient.metadata.zookeeper_reader.reader import ZooKeeperReader

    parsed = parse_uri(uri)
    session = ReadSession(
        parsed, timeout_s=session_timeout_s, auth_data=auth_data, first_host=os.getpid()
    )
    return ZooKeeperReader(session, parsed)
