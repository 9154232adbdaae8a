"""A bookie without sockets and threads that is sent anything, for the paths behind the decoders."""

from __future__ import annotations

import re
import secrets
import tempfile
from pathlib import Path
from typing import Any, Final

import attrs
from twisted.internet.error import ConnectionDone
from twisted.logger import LogEvent, globalLogPublisher
from twisted.python.failure import Failure

from bkclient.config.tls import StoreFile, StoreType, TlsSettings
from bkclient.connection.security.tls_contexts import TlsContexts
from bookied.server.access.authenticators import PasswordAuthenticator
from tests.bookied.worlds.served_bookie import Serving, Transport
from tests.fuzz.security import NONCE
from tests.support.certificates import Authority, write_pem
from tests.support.tls_link import LinkTransport

AUTHORITY: Final = Authority()
CONNECTIONS_MAX: Final = 500
"""After so many a new bookie takes over, or its ledgers would fill the memory."""


class BugError(Exception):
    """The bookie met an error that it has no name for, and closed the connection."""


class FuzzedBookie:
    """Takes each input on a connection of its own, in pieces."""

    def __init__(self) -> None:
        self._serving: Serving | None = None
        self._directory: tempfile.TemporaryDirectory[str] | None = None
        self._left = 0

    def take(self, data: bytes) -> None:
        """Send ``data``; raise what the bookie logs as a failure."""
        serving = self._ready()
        failures: list[LogEvent] = []

        def listen(event: LogEvent) -> None:
            if "log_failure" in event:
                failures.append(event)

        observe: Any = listen
        globalLogPublisher.addObserver(observe)
        try:
            self._send(serving, data)
        finally:
            globalLogPublisher.removeObserver(observe)
        if failures:
            self._left = 0
            raise BugError(repr(failures[0]["log_failure"].value)[:500])

    def _send(self, serving: Serving, data: bytes) -> None:
        client = serving.connect(transport=Transport())
        for piece in pieces(data):
            client.connection.dataReceived(piece)
        if self._left % 25 == 0:
            serving.sync()
        client.disconnect()

    def _ready(self) -> Serving:
        if self._serving is None or self._left == 0:
            self._end()
            self._directory = tempfile.TemporaryDirectory(prefix="fuzz-")
            self._serving = self._begin(Path(self._directory.name))
            self._left = CONNECTIONS_MAX
        self._left -= 1
        return self._serving

    def _begin(self, directory: Path) -> Serving:
        return Serving(directory, syncs=False)

    def _end(self) -> None:
        if self._serving is not None and self._directory is not None:
            self._serving.sync()
            self._serving.close()
            self._directory.cleanup()


class FuzzedTlsBookie(FuzzedBookie):
    """Offers TLS: what comes behind START_TLS, in clear or not, goes through OpenSSL as well."""

    def _begin(self, directory: Path) -> Serving:
        serving = super()._begin(directory)
        tls = TlsContexts(_tls_settings(directory), serving.clock, is_client=False)
        serving.server.access = attrs.evolve(serving.server.access, tls=tls)
        return serving

    def _send(self, serving: Serving, data: bytes) -> None:
        transport = LinkTransport(
            serving.server.buildProtocol(None), serving.clock, is_client=False
        )
        for piece in pieces(data):
            transport.protocol.dataReceived(piece)
            serving.clock.advance(0)
        transport.protocol.connectionLost(Failure(ConnectionDone()))


class FuzzedGuardedBookie(FuzzedBookie):
    """Wants a password that no input has: whoever comes must stay a stranger, and store nothing."""

    def _begin(self, directory: Path) -> Serving:
        serving = super()._begin(directory)
        users = {"bookkeeper": secrets.token_hex(16)}
        auth = PasswordAuthenticator(users, re.compile(".*"), lambda: NONCE)
        serving.server.access = attrs.evolve(serving.server.access, auth=auth)
        return serving

    def _send(self, serving: Serving, data: bytes) -> None:
        super()._send(serving, data)
        if serving.server.stats.auth_successes or serving.storage.ledgers.ids():
            self._left = 0
            raise BugError("a stranger was let in")


def pieces(data: bytes) -> list[bytes]:
    """Cut an input: its first byte says in how many pieces the rest comes."""
    step = len(data) // (1 + (data[0] & 3 if data else 0)) + 1
    return [data[at : at + step] for at in range(1, len(data), step)]


def _tls_settings(directory: Path) -> TlsSettings:
    pem = write_pem(directory / "keys", AUTHORITY.issue("bookie"), AUTHORITY)
    stores = {
        name: StoreFile(key=name, type=StoreType.PEM, path=str(path), password_path="")
        for name, path in (("tlsKeyStore", pem.key), ("tlsTrustStore", pem.trust))
    }
    return TlsSettings(
        certificate_path=str(pem.certificate),
        key_store=stores["tlsKeyStore"],
        trust_store=stores["tlsTrustStore"],
        client_authentication=True,
    )
