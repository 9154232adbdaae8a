"""bkctl asks a bookie whose HTTP server speaks TLS: the keys it shows, and what it says without."""

from __future__ import annotations

import signal
import socket
import threading
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import attrs
import pytest

from bkclient.config.tls import StoreFile, StoreType, TlsSettings
from bkclient.errors import BookieUnavailableError, SecurityError
from bkctl.bookies.http.admin_client import AdminClient
from tests.bkctl.support.runner import cli
from tests.bkctl.support.terminal import FakeHost
from tests.live.bookied.processes import BookieProcess, free_port, make_cluster, write_conf
from tests.support.certificates import Authority, Pem, client_keys, write_pem
from tests.support.waiting import until

AUTHORITY, STRANGERS = Authority(), Authority("strangers")
PATIENCE_S = 60


def _settings(pem: Pem, *, shows: bool = True) -> TlsSettings:
    return TlsSettings(
        certificate_path=str(pem.certificate),
        key_store=StoreFile(key="clientKeyStore", type=StoreType.PEM, path=str(pem.key)),
        trust_store=StoreFile(key="clientTrustStore", type=StoreType.PEM, path=str(pem.trust)),
        client_authentication=shows,
    )


@attrs.frozen
class Secured:
    """A bookie whose HTTP server wants certificates, and a settings file for bkctl."""

    directory: Path
    bookie: BookieProcess
    port: int
    pem: Pem
    client_conf: Path
    uri: str

    def run(self, *words: str, conf: Path | None = None) -> tuple[int, str, str]:
        with closing(FakeHost()) as host:
            status = cli.run(["-u", self.uri, "-c", str(conf or self.client_conf), *words], host)
        return status, host.out.text, host.err.text

    def conf(self, name: str, pem: Pem, **changes: object) -> Path:
        path = self.directory / name
        settings = client_keys(pem, **changes)
        del settings["tlsProviderFactoryClass"]  # What bookies speak on their own port.
        path.write_text("".join(f"{key}={value}\n" for key, value in settings.items()))
        return path


@pytest.fixture(scope="module")
def secured(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Secured]:
    directory = tmp_path_factory.mktemp("https")
    uri, port = make_cluster(directory / "metadata.db"), free_port()
    own = write_pem(directory / "keys", AUTHORITY.issue("bookie"), AUTHORITY)
    conf = write_conf(
        directory / "b1",
        uri,
        httpServerEnabled="true",
        httpServerPort=port,
        httpServerHost="0.0.0.0",
        httpServerTlsEnable="true",
        httpServerKeyStoreType="PEM",
        httpServerKeyStorePath=own.key,
        httpServerCertificatePath=own.certificate,
        httpServerTrustStoreType="PEM",
        httpServerTrustStorePath=own.trust,
    )
    bookie = BookieProcess(conf)
    try:
        bookie.ready()
        pem = write_pem(directory / "client", AUTHORITY.issue("operator", hosts=()), AUTHORITY)
        found = Secured(directory, bookie, port, pem, directory / "client.conf", uri)
        found.conf("client.conf", pem)
        yield found
        assert bookie.stop() == 0
    finally:
        if bookie.process.poll() is None:
            bookie.kill()


@pytest.mark.processes
def test_a_certificate_asks_and_changes_where_the_bookie_published_https(secured: Secured) -> None:
    status, out, err = secured.run("-o", "json", "bookie", "state", "b1")
    assert (status, err) == (0, "")
    assert '"writable"' in out
    status, _, err = secured.run("bookie", "readonly", "b1", "on")
    assert status == 0
    assert err == "a restart makes it writable: persistBookieStatusEnabled is off\n"
    _, out, _ = secured.run("-o", "json", "bookie", "state", "b1")
    assert '"read-only"' in out
    shown = secured.run("bookie", "readonly", "b1")
    assert shown == (
        0,
        "bookie b1 is read-only\n",
        "to change that: bkctl bookie readonly b1 off\n",
    )
    assert secured.run("bookie", "readonly", "b1", "off")[0] == 0
    assert "PUT /api/v2/bookie/read-only (CN=operator)" in secured.bookie.output.read_text()


@pytest.mark.processes
def test_an_address_with_https_is_asked_in_tls_and_one_without_is_not(secured: Secured) -> None:
    where = f"127.0.0.1:{secured.port}"
    metrics = ("bookie", "metrics", "b1", "--http", f"https://{where}")
    status, out, _ = secured.run("-o", "jsonl", *metrics)
    assert status == 0
    assert len(out) > 64 * 1024, "more than one piece"
    assert '"value": "nan"' in out
    assert "  nan  " not in secured.run(*metrics)[1], "tables leave out what has no value"
    status, _, err = secured.run("bookie", "metrics", "b1", "--http", where)
    assert status != 0
    assert "no HTTP at" in err
    assert secured.run("bookie", "state", "b1", "--http", f"ftp://{where}/x")[0] == 2


@pytest.mark.processes
def test_lists_that_ask_every_bookie_ask_in_tls_too(secured: Secured) -> None:
    status, out, err = secured.run("-o", "json", "bookie", "info", "b1")
    assert (status, err) == (0, "")
    assert '"journal_queue"' in out


@pytest.mark.processes
def test_what_is_wrong_with_keys_is_said(secured: Secured) -> None:
    stranger = write_pem(secured.directory / "stranger", STRANGERS.issue("stranger"), AUTHORITY)
    distrust = write_pem(secured.directory / "distrust", AUTHORITY.issue("operator"), STRANGERS)
    for pem, why in (
        (stranger, "it does not trust the authority that signed our certificate"),
        (distrust, "(CN=an authority) comes from an authority that is not trusted"),
    ):
        status, _, err = secured.run("bookie", "state", "b1", conf=secured.conf("other.conf", pem))
        assert status != 0
        assert why in err
    bare = secured.conf("bare.conf", secured.pem, clientKeyStore="")

    def is_logged() -> bool:
        status, _, err = secured.run("bookie", "state", "b1", conf=bare)
        assert status != 0
        assert "it requires a client certificate, and tlsKeyStore names none" in err
        return "it sent no certificate" in secured.bookie.output.read_text()

    until(is_logged, "a line of a handshake, of which there is one in ten seconds")


@pytest.mark.processes
def test_a_certificate_has_to_be_for_the_host_where_that_is_wanted(secured: Secured) -> None:
    requires = secured.conf("host.conf", secured.pem, tlsHostnameVerificationEnabled="true")
    assert secured.run("bookie", "state", "b1", conf=requires)[0] == 0
    elsewhere = f"https://127.0.0.2:{secured.port}"
    status, _, err = secured.run("bookie", "state", "b1", "--http", elsewhere, conf=requires)
    assert status != 0
    assert "is for localhost, 127.0.0.1, not for 127.0.0.2" in err


@pytest.mark.processes
def test_a_new_certificate_is_shown_after_sighup(secured: Secured) -> None:
    strange = write_pem(secured.directory / "client-2", AUTHORITY.issue("operator"), STRANGERS)
    client = AdminClient("127.0.0.1", secured.port, _settings(strange))

    def is_trusted() -> bool:
        try:
            return client.request("GET", "/heartbeat").ok
        except SecurityError:
            return False

    assert not is_trusted()
    for authority, trusted in ((STRANGERS, True), (AUTHORITY, False)):
        write_pem(secured.directory / "keys", authority.issue("bookie"), AUTHORITY)
        secured.bookie.process.send_signal(signal.SIGHUP)
        until(lambda wanted=trusted: is_trusted() is wanted)  # type: ignore[misc]


# Servers that are none ----------------------------------------------------------------------------


def test_a_server_that_says_nothing_or_leaves_is_an_error_in_time(tmp_path: Path) -> None:
    settings = _settings(write_pem(tmp_path, AUTHORITY.issue("operator"), AUTHORITY))
    with socket.create_server(("127.0.0.1", 0)) as server:
        port = server.getsockname()[1]
        silent = AdminClient("127.0.0.1", port, settings, timeout_s=0.05)
        with pytest.raises(BookieUnavailableError, match="timed out"):
            silent.request("GET", "/")
        server.accept()[0].close()

        def leave() -> None:
            server.accept()[0].close()

        leaving = threading.Thread(target=leave)
        leaving.start()
        with pytest.raises(BookieUnavailableError):
            AdminClient("127.0.0.1", port, settings, timeout_s=PATIENCE_S).request("GET", "/")
        leaving.join()
