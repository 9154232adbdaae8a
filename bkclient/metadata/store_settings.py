"""The options of a store from the settings: rate limit, time-out, credentials for ZooKeeper."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from bkclient.config.client import MetadataConfig


def store_options(config: MetadataConfig, uri: str) -> dict[str, Any]:
    """Return the ``options`` of ``open_metadata`` for a URI.

    Raises:
        SecurityError: the file with credentials cannot be read.
    """
    options: dict[str, Any] = {
        "session_timeout_s": config.zk_timeout_ms / 1000,
        "requests_per_s_max": config.zk_request_rate_limit,
        "mark_times": config.store_mark_time,
    }
    if not uri.lower().startswith("zk"):
        return options
    from bkclient.metadata.zk_credentials import credentials

    return options | credentials(config) | {"secure": config.zk_enable_security}
