"""HTTP in TLS: who is let in, by what right things are changed, and how keys are changed."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import attrs
import pytest
from twisted.internet.protocol import Protocol
from twisted.internet.task import Clock
from twisted.logger import LogEvent, globalLogPublisher
from twisted.python.failure import Failure

from bkclient.config.findings import ConfigError
from bkclient.config.tls import StoreFile, StoreType, TlsSettings
from bkclient.connection.security.tls_contexts import TlsContexts, TlsEnd
from bookied.admin.http.limits import HttpLimit
from bookied.admin.server import AdminServer
from bookied.config.bookie import load_bookie_config
from bookied.errors import SecurityStartError
from tests.bookied.worlds.clock_world import World
from tests.bookied.worlds.fakes import done
from tests.bookied.worlds.secured_link import conf
from tests.support.certificates import PASSWORD, Authority, Issued
from tests.support.tls_link import Link
from wire.records.bookie_service_info import Endpoint

AUTHORITY, STRANGERS = Authority(), Authority("strangers")
SERVER = AUTHORITY.issue("server")
OPERATOR = AUTHORITY.issue("operator", hosts=[])
CHANGE = "PUT /api/v1/bookie/gc HTTP/1.0\r\n{}\r\n"
ADDRESS = ("127.0.0.1", 8080)


class Asker(Protocol):
    """A client that asks once TLS is there."""

    def __init__(self, request: str) -> None:
        self._request, self.answer, self.why = request.encode(), "", ""
        self.end: TlsEnd | None = None

    def begin(self) -> None:
        assert self.transport is not None
        self.transport.startTLS(self.end, False)
        self.transport.write(self._request)

    def dataReceived(self, data: bytes) -> None:
        self.answer += data.decode()

    def connectionLost(self, reason: Failure) -> None:
        assert self.end is not None
        self.why = self.end.why_lost(reason.value) or ""


@attrs.define
class Stage:
    """An admin server in TLS with the stores that keytool makes."""

    directory: Path
    given: dict[str, Any] = attrs.field(factory=dict)
    world: World = attrs.field(init=False)
    admin: AdminServer = attrs.field(init=False)

    def __attrs_post_init__(self) -> None:
        self.write(SERVER)
        (self.directory / "trust").write_bytes(AUTHORITY.pkcs12())
        told = {
            "http_enabled": True,
            "http_tls": True,
            "http_key_store": str(self.directory / "key"),
            "http_key_store_password": PASSWORD.decode(),
            "http_trust_store": str(self.directory / "trust"),
            "http_trust_store_password": PASSWORD.decode(),
            "http_token": "t0ken",
        }
        self.world = World(self.directory / "bookie", **(told | self.given))
        self.admin = AdminServer(self.world.service)

    def write(self, own: Issued) -> None:
        (self.directory / "key").write_bytes(own.pkcs12())

    def serve(self) -> Stage:
        self.admin.start()
        done(self.world.service.start())
        return self

    def ask(self, request: str, own: Issued | None = None, trusts: Authority = AUTHORITY) -> Asker:
        factory: Any = self.world.listener.others[ADDRESS].factory
        asker = Asker(request)
        asker.end = self._client(own, trusts).end("127.0.0.1")
        link = Link(asker, factory.buildProtocol(None))
        asker.begin()
        link.settle()
        return asker

    def _client(self, own: Issued | None, trusts: Authority) -> TlsContexts:
        trust = self.directory / "client-trust"
        trust.write_bytes(trusts.certificate_pem)
        key = self.directory / "client-key"
        if own is not None:
            key.write_bytes(own.key_pem() + own.certificate_pem)
        settings = TlsSettings(
            certificate_path=str(key),
            key_store=StoreFile(key="key", type=StoreType.PEM, path=str(key)),
            trust_store=StoreFile(key="trust", type=StoreType.PEM, path=str(trust)),
            client_authentication=own is not None,
            check_host=True,
        )
        return TlsContexts(settings, Clock(), is_client=True)


def test_a_certificate_opens_in_the_place_of_the_token(tmp_path: Path) -> None:
    stage = Stage(tmp_path).serve()
    assert " 200 " in stage.ask("GET /api/v2/bookie HTTP/1.0\r\n\r\n", OPERATOR).answer
    assert " 200 " in stage.ask(CHANGE.format(""), OPERATOR).answer
    info = done(stage.world.store.service_info(stage.world.service.identity.bookie_id))
    assert Endpoint("httpserver", 8080, "127.0.0.1", "https") in info.endpoints


@pytest.mark.parametrize("own", [None, STRANGERS.issue("stranger")])
def test_whoever_shows_no_certificate_that_is_trusted_is_turned_away(tmp_path: Path, own) -> None:
    stage, events = Stage(tmp_path).serve(), list[LogEvent]()
    globalLogPublisher.addObserver(events.append)
    try:
        asker = stage.ask(CHANGE.format("Authorization: Bearer t0ken\r\n"), own)
    finally:
        globalLogPublisher.removeObserver(events.append)
    assert asker.answer == ""
    assert asker.why
    (why,) = [one["why"] for one in events if one.get("limit") == HttpLimit.TLS.label]
    assert why == ": " + (
        "it sent no certificate, and this bookie requires one"
        if own is None
        else "its certificate (CN=stranger) comes from an authority that is not trusted"
    )


def test_where_certificates_may_be_missing_the_token_opens_and_strangers_are_turned_away(
    tmp_path: Path,
) -> None:
    stage = Stage(tmp_path, {"http_client_authentication": False}).serve()
    assert " 200 " in stage.ask("GET /metrics HTTP/1.0\r\n\r\n").answer
    assert " 401 " in stage.ask(CHANGE.format("")).answer
    assert " 200 " in stage.ask(CHANGE.format("Authorization: Bearer t0ken\r\n")).answer
    assert " 200 " in stage.ask(CHANGE.format(""), OPERATOR).answer
    assert stage.ask(CHANGE.format(""), STRANGERS.issue("stranger")).answer == ""


def test_nothing_is_served_in_clear(tmp_path: Path) -> None:
    stage = Stage(tmp_path).serve()
    factory: Any = stage.world.listener.others[ADDRESS].factory
    said = list[bytes]()

    class InClear(Protocol):
        def dataReceived(self, data: bytes) -> None:
            said.append(data)

    client = InClear()
    link = Link(client, factory.buildProtocol(None))
    assert client.transport is not None
    client.transport.write(b"GET /metrics HTTP/1.0\r\n\r\n")
    link.settle()
    assert link.is_closed
    assert b"HTTP/1" not in b"".join(said)


def test_keys_are_read_again_and_what_cannot_be_used_changes_nothing(tmp_path: Path) -> None:
    stage = Stage(tmp_path).serve()
    asked = "GET /metrics HTTP/1.0\r\n\r\n"
    (tmp_path / "key").write_bytes(b"spoilt")
    stage.admin.reload()
    assert " 200 " in stage.ask(asked, OPERATOR).answer
    stage.write(STRANGERS.issue("server"))
    stage.admin.reload()
    assert stage.ask(asked, OPERATOR).answer == ""
    assert " 200 " in stage.ask(asked, OPERATOR, trusts=STRANGERS).answer


def test_keys_that_cannot_be_used_stop_the_start(tmp_path: Path) -> None:
    stage = Stage(tmp_path, {"http_key_store_password": "wrong"})
    with pytest.raises(SecurityStartError, match=r"httpServerKeyStorePath.*password is wrong"):
        stage.serve()


def test_versions_are_those_of_the_bookie(tmp_path: Path) -> None:
    stage = Stage(tmp_path, {"tls_versions": ("TLSv1.2",)}).serve()
    asker = stage.ask("GET /metrics HTTP/1.0\r\n\r\n", OPERATOR)
    assert asker.end is not None
    assert asker.end.version.startswith("TLSv1.2 ")


def test_what_is_revoked_is_turned_away_here_too(tmp_path: Path) -> None:
    (tmp_path / "revoked").write_bytes(AUTHORITY.revocation_list(OPERATOR))
    stage = Stage(tmp_path, {"tls_revoked_path": str(tmp_path / "revoked")}).serve()
    asker = stage.ask(CHANGE.format(""), OPERATOR)
    assert (asker.answer, asker.why) == ("", "it reports that our certificate has been revoked")


def test_what_is_missing_is_named_before_the_start() -> None:
    given = {"metadataServiceUri": "sqlite:///m.db", "httpServerEnabled": "true"}
    settings = {"httpServerTlsEnable": "true", "httpServerKeyStoreType": "PEM", **given}
    missing = {"httpServerKeyStorePath", "httpServerCertificatePath", "httpServerTrustStorePath"}
    with pytest.raises(ConfigError) as refused:
        load_bookie_config(conf(settings))
    assert missing <= {one.key for one in refused.value.findings}
