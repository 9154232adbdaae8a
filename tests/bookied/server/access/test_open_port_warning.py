"""A port that is open to everybody is said to be, with the settings that close it."""

from __future__ import annotations

import pytest

from bkclient.config.properties import parse_properties
from bookied.config.bookie import load_bookie_config
from bookied.service.client_port import open_port_warning

SASL = "bookieAuthProviderFactoryClass=SASLBookieAuthProviderFactory"
TLS = "tlsProviderFactoryClass=TLSContextFactory\ntlsKeyStore=k\ntlsTrustStore=t"
PORT = "port 3181 takes entries from every host that reaches it: on "
NO_NAME = "without a login (bookieAuthProviderFactoryClass)"
NO_TLS = ", without TLS (tlsProviderFactoryClass, tlsRequired)"
NOT_ONLY_TLS = ", also without TLS (tlsRequired)"


@pytest.mark.parametrize(
    ("text", "host", "said"),
    [
        ("", "", f"{PORT}every address (listeningInterface), {NO_NAME}{NO_TLS}"),
        ("", "192.0.2.1", f"{PORT}address 192.0.2.1, {NO_NAME}{NO_TLS}"),
        ("", "127.0.0.1", None),
        ("", "::1", None),
        (SASL, "", None),
        (TLS, "", f"{PORT}every address (listeningInterface), {NO_NAME}{NOT_ONLY_TLS}"),
        (f"{TLS}\ntlsRequired=true", "", f"{PORT}every address (listeningInterface), {NO_NAME}"),
        (f"{TLS}\ntlsRequired=true\ntlsClientAuthentication=true", "", None),
    ],
)
def test_an_open_port_is_told_with_its_settings(text: str, host: str, said: str | None) -> None:
    config, _ = load_bookie_config(parse_properties(f"metadataServiceUri=sqlite:///m\n{text}"))
    assert open_port_warning(config, host, 3181) == said
