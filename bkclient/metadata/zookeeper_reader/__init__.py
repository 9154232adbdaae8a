"""A reader of a cluster's metadata: pipelined reads on the caller's thread.

For commands that only read and end. This package imports no reactor, kazoo or Twisted, which would
take half the time of a short command. Writes and watches need a ``MetadataStore``.
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
    """Return a reader for a URI, with options as for ``open_metadata``.

    ``None`` if reading needs a store: for a file, with SASL, or with a rate limit.

    Raises:
        IncorrectParameterError: the URI is not valid.
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
