"""Clients of HTTPS shake hands in turns, as those of the bookie's port do."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from twisted.internet.address import IPv4Address
from twisted.internet.task import Clock

from bkclient.connection.security.tls_contexts import TlsContexts
from bookied.admin.http.site import site
from bookied.admin.monitoring.http_metrics import HttpCounts
from bookied.config.bookie import load_bookie_config
from bookied.server.limits.handshake_turns import HANDSHAKE_GAP_S, HandshakeTurns
from tests.bookied.server.test_client_transport import Pair
from tests.bookied.worlds.secured_link import conf
from tests.support.certificates import Authority, bookie_keys, write_pem

AUTHORITY = Authority()
CLIENTS = 5


async def nothing(*_asked: Any) -> Any:
    raise AssertionError("nobody has asked")


def test_one_client_at_a_time_is_read_until_hands_are_shaken(tmp_path: Path) -> None:
    pem = write_pem(tmp_path, AUTHORITY.issue("bookie"), AUTHORITY)
    keys = {"metadataServiceUri": "sqlite:///m.db", **bookie_keys(pem)}
    settings = load_bookie_config(conf(keys))[0].tls
    assert settings is not None
    clock = Clock()
    contexts, turns = TlsContexts(settings, clock, is_client=False), HandshakeTurns(clock)
    served = site(nothing, clock, HttpCounts(clock), contexts)
    pairs = [
        Pair(served.buildProtocol(IPv4Address("TCP", "127.0.0.1", 1)), turns)
        for _ in range(CLIENTS)
    ]

    def count_read() -> int:
        return sum(pair.connection in pair.reactor.readers for pair in pairs)

    assert count_read() == 0
    clock.advance(0)
    assert count_read() == 1
    clock.advance(HANDSHAKE_GAP_S)
    assert count_read() == 2
    for pair in pairs:
        pair.client.close()
        pair.own.close()
