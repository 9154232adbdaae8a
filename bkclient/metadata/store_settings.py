"""The options of a store from the settings: rate limit, time-out, credentials for ZooKeeper.

No import of Twisted: read-only commands start without it.

Java's clients use SASL, with the section ``Client`` of their JAAS file. ``zkDigestAuthFile`` is our
own setting, for servers without users: the digest scheme accepts any name and password.
"""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from bkclient.errors import SecurityError

if TYPE_CHECKING:
    from bkclient.config.shared import SharedConfig

SECTION: Final = "Client"
"""The section of the JAAS file for ZooKeeper, as in Java."""


def store_options(config: SharedConfig, uri: str) -> dict[str, Any]:
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
    return options | _credentials(config) | {"secure": config.zk_enable_security}


def _credentials(config: SharedConfig) -> dict[str, Any]:
    """Return the credentials of the settings, as options of ``open_zookeeper``.

    Raises:
        SecurityError: the credentials cannot be read, or ``zkEnableSecurity`` is set without any.
    """
    from bkclient.config.jaas import read_jaas

    found: dict[str, Any] = {}
    if config.zk_digest_path:
        found["auth_data"] = [("digest", _digest(config.zk_digest_path))]
    jaas = read_jaas(config.jaas_path) if config.jaas_path else None
    if jaas is not None and SECTION in jaas:
        login = jaas.login(SECTION)
        found["sasl_options"] = {
            "mechanism": "DIGEST-MD5",
            "username": login.user,
            "password": login.password,
        }
    if config.zk_enable_security and not found:
        raise SecurityError(
            "zkEnableSecurity needs credentials: a section Client in saslJaasConfigFile, or"
            " zkDigestAuthFile"
        )
    return found


def _digest(path: str) -> str:
    try:
        text = Path(path).read_text(encoding="utf-8").strip()
    except OSError as error:
        raise SecurityError(f"zkDigestAuthFile: cannot read {path}: {error.strerror}") from error
    if not text.partition(":")[2] or "\n" in text:
        raise SecurityError(f"zkDigestAuthFile: {path} is not one line USER:PASSWORD")
    return text
