"""Checks of the files in the settings: findings before a start."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

from bkclient.config.client import ClientConfig
from bkclient.config.findings import SettingFinding, invalid
from bkclient.config.private_files import open_to_others
from bkclient.errors import SecurityError

if TYPE_CHECKING:
    from bkclient.config.tls import TlsSettings


def check_files(config: Any) -> Iterator[SettingFinding]:
    """Yield TLS files that cannot be used, and files with secrets that others may read."""
    yield from open_to_others(config)
    is_client = isinstance(config, ClientConfig)
    for settings in (config.tls, None if is_client else config.https):
        if settings is not None:
            yield from _tls(settings, is_client=is_client)


def _tls(settings: TlsSettings, *, is_client: bool) -> Iterator[SettingFinding]:
    from twisted.internet.task import Clock

    from bkclient.connection.security.tls_contexts import TlsContexts

    try:
        TlsContexts(settings, Clock(), is_client=is_client)
    except SecurityError as error:
        key, _, message = str(error).partition(" ")
        yield invalid(key.removesuffix(":"), message)
