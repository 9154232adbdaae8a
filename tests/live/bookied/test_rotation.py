"""Keys, passwords and revocation lists of a live bookie, changed while a client writes."""

from __future__ import annotations

import signal
import threading
from collections.abc import Iterator
from pathlib import Path

import attrs
import pytest

from bkclient.blocking import BlockingClient
from bkclient.config.client import ClientConfig
from bkclient.config.settings import load
from bkclient.errors import SecurityError
from tests.bookied.worlds.secured_link import conf
from tests.live.bookied.test_tls_and_auth_required import (
    AUTHORITY,
    CLIENT,
    GUESS,
    JAAS,
    PASSWORD,
    SASL_BOOKIE,
    Fort,
    Intruder,
    add,
    response,
    serve,
)
from tests.support.certificates import client_keys, write_pem
from tests.support.waiting import until
from wire.codes import ReturnCode

pytestmark = pytest.mark.processes

ROTATIONS = 5
PATIENCE_S = 60
ONE = {"ensemble_size": 1, "write_quorum": 1, "ack_quorum": 1}


@pytest.fixture
def fort(tmp_path: Path) -> Iterator[Fort]:
    yield from serve(tmp_path, **SASL_BOOKIE)


@attrs.define
class Writing:
    """A client at work in a thread; it stops at the first failure."""

    fort: Fort
    entries: int = 0
    wanted: bool = True
    failure: Exception | None = None

    def run(self) -> None:
        pem = write_pem(self.fort.directory / "client", CLIENT, AUTHORITY)
        told = client_keys(
            pem,
            tlsClientAuthentication="true",
            clientAuthProviderFactoryClass="SASLClientProviderFactory",
            saslJaasConfigFile=self.fort.directory / "jaas.conf",
            addEntryTimeoutSec=PATIENCE_S,
            readEntryTimeoutSec=PATIENCE_S,
        )
        config = load(ClientConfig, conf(told))[0]
        try:
            with BlockingClient(self.fort.uri, config=config) as client:
                while self.wanted:
                    payloads = [b"%d" % i for i in range(100)]
                    ledger_id, _ = client.write_ledger(payloads, **ONE)
                    found = [entry.payload for entry in client.iter_entries(ledger_id)]
                    assert found == payloads
                    self.entries += len(found)
        except Exception as error:  # noqa: BLE001 -- told by the test
            self.failure = error


@pytest.fixture
def writing(fort: Fort) -> Iterator[Writing]:
    """A client that writes and reads all the time, and has had no trouble at the end."""
    found = Writing(fort)
    thread = threading.Thread(target=found.run, daemon=True)
    thread.start()
    until(lambda: bool(found.entries or found.failure))
    yield found
    before = found.entries
    until(lambda: found.entries > before or found.failure is not None)
    found.wanted = False
    thread.join(PATIENCE_S)
    assert found.failure is None


def read_again(fort: Fort, word: str) -> None:
    """Have files read again, and wait until that is told."""
    times = fort.bookie.output.read_text().count(word)
    fort.bookie.process.send_signal(signal.SIGHUP)
    until(lambda: fort.bookie.output.read_text().count(word) > times)


def serial_shown(fort: Fort) -> int:
    intruder = Intruder(fort, "127.0.3.1").begin_tls()
    assert intruder._stream is not None
    certificate = intruder._stream._end.peer_certificate()
    intruder.close()
    assert certificate is not None
    return certificate.serial_number


def test_new_certificates_are_shown_and_nobody_at_work_notices(
    fort: Fort, writing: Writing
) -> None:
    for _ in range(ROTATIONS):
        before = writing.entries
        own = AUTHORITY.issue("bookie")
        write_pem(fort.directory / "keys", own, AUTHORITY)
        read_again(fort, "TLS files read again")
        assert serial_shown(fort) == own.certificate.serial_number
        (fort.directory / "keys" / "key.pem").write_text("half a k")
        read_again(fort, "TLS continues with the old certificate")
        assert serial_shown(fort) == own.certificate.serial_number
        until(lambda before=before: writing.entries > before)  # type: ignore[misc]


def test_passwords_and_lists_count_from_sighup_on_for_those_who_come(
    fort: Fort, writing: Writing
) -> None:
    assert writing.failure is None
    next_password = "the-next-password"
    jaas = fort.directory / "jaas.conf"
    jaas.write_text(JAAS.replace(PASSWORD, next_password))
    revoked = AUTHORITY.issue("leaver")
    (fort.directory / "revoked.pem").write_bytes(AUTHORITY.revocation_list(revoked))
    read_again(fort, "TLS files read again")
    for password, rc in ((PASSWORD, ReturnCode.EUA), (next_password, ReturnCode.EOK)):
        intruder = Intruder(fort, "127.0.3.2").begin_tls()
        assert intruder.ask(response(intruder.challenge(), password)) == [rc]
        intruder.close()
    leaver = Intruder(fort, "127.0.3.3")
    with pytest.raises(SecurityError, match="our certificate has been revoked"):
        leaver.begin_tls(revoked).ask(add())
    leaver.close()
    log = fort.bookie.output.read_text()
    assert [word for word in (PASSWORD, next_password, GUESS) if word in log] == []
