"""How a store is reached, by the settings: pace, patience, and who we are to ZooKeeper."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from bkclient.config.client import MetadataConfig


def store_options(config: MetadataConfig, uri: str) -> dict[str, Any]:
    """Return what ``open_metadata`` takes for a URI, beside that and the reactor.

    Raises:
        SecurityError: names and passwords cannot be read.
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
