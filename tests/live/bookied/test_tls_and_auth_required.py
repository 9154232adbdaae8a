"""A live bookie that wants TLS, certificates and passwords, and those who come without.

Each way in is tried twice, from an address of its own: it is refused, counted each time, told once,
and nothing that was asked has been done. At the end the log holds no secret.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from pathlib import Path
from urllib.request import urlopen

import attrs
import pytest
from twisted.internet.task import Clock

from bkclient.blocking import BlockingClient
from bkclient.config.client import ClientConfig
from bkclient.config.settings import load
from bkclient.connection.security.tls_contexts import TlsContexts
from bkclient.errors import SecurityError
from bkctl.bookies.http.https import TlsStream
from tests.bookied.worlds.raw_client import RawConnection
from tests.bookied.worlds.secured_link import conf, jaas_of_both
from tests.bookied.worlds.served_bookie import KEY, WRONG_KEY, packet
from tests.live.bookied.processes import BookieProcess, free_port, make_cluster, write_conf
from tests.support.certificates import Authority, Issued, bookie_keys, client_keys, write_pem
from tests.support.waiting import until
from wire.codes import ProtocolVersion, ReturnCode
from wire.frames import v3
from wire.ids import EntryId, LedgerId
from wire.messages import (
    SASL,
    AddRequest,
    AuthRequest,
    AuthResponse,
    BatchReadRequest,
    ReadRequest,
    Request,
    StartTlsRequest,
)
from wire.sasl_digest_md5 import DigestMd5Client

pytestmark = pytest.mark.processes

AUTHORITY, OTHERS = Authority(), Authority("others")
CLIENT, REVOKED = AUTHORITY.issue("client", unit="0:writers"), AUTHORITY.issue("revoked")
OLD = AUTHORITY.issue("old", days=-1)
PASSWORD, GUESS = "the-password", "a-guess"
JAAS = jaas_of_both(PASSWORD)
SASL_BOOKIE = {"bookieAuthProviderFactoryClass": "SASLBookieAuthProviderFactory"}
PATIENCE_S = 60.0
L = LedgerId(4)


@attrs.frozen
class Fort:
    """A bookie, where it counts, and what its clients need."""

    directory: Path
    uri: str
    bookie: BookieProcess
    http_port: int

    def count(self, metric: str) -> int:
        with urlopen(f"http://127.0.0.1:{self.http_port}/metrics", timeout=PATIENCE_S) as answer:
            text = answer.read().decode()
        (found,) = re.findall(rf"^{re.escape(metric)} (\d+)", text, re.MULTILINE)
        return int(found)

    def lines_about(self, host: str) -> list[str]:
        text = self.bookie.output.read_text()
        return [line for line in text.splitlines() if re.search(rf"\b{re.escape(host)}\b", line)]

    def end(self, own: Issued | None) -> TlsContexts:
        """Return TLS as a client speaks it who shows ``own``."""
        pem = write_pem(self.directory / "intruder", own or CLIENT, AUTHORITY)
        told = client_keys(pem, tlsClientAuthentication=str(own is not None).lower())
        settings = load(ClientConfig, conf(told))[0].tls
        assert settings is not None
        return TlsContexts(settings, Clock(), is_client=True)


class Intruder(RawConnection):
    """One connection of somebody who means no good."""

    def __init__(self, fort: Fort, host: str) -> None:
        super().__init__(fort.bookie.port, PATIENCE_S, host=host)
        self.fort, self.host = fort, host
        self._stream: TlsStream | None = None

    def send(self, *requests: Request) -> None:
        self.send_bytes(b"".join(map(self.frame, requests)))

    def send_bytes(self, data: bytes) -> None:
        (self._stream or self._socket).sendall(data)

    def receive_bytes(self) -> bytes:
        """Return what comes next, or nothing where the bookie has closed."""
        try:
            if self._stream is None:
                return super().receive_bytes()
            buffer = bytearray(65536)
            return bytes(buffer[: self._stream.read_into(buffer)])
        except ConnectionResetError:
            return b""

    def ask(self, *requests: Request) -> list[object]:
        """Return the code of each answer, and ``None`` where the bookie closes instead."""
        self.send(*requests)
        return [getattr(self.next_answer(), "rc", None) for _ in requests]

    def begin_tls(self, own: Issued | None = CLIENT) -> Intruder:
        assert self.ask(StartTlsRequest()) == [ReturnCode.EOK]
        return self.shake_hands(own)

    def shake_hands(self, own: Issued | None = CLIENT) -> Intruder:
        stream = TlsStream(self._socket, self.fort.end(own).end("127.0.0.1"))
        stream.shake_hands()
        self._stream = stream
        return self

    def challenge(self) -> bytes:
        self.send(AuthRequest(SASL, b""))
        answer = self.next_answer()
        assert isinstance(answer, AuthResponse)
        return answer.payload

    def log_in(self) -> Intruder:
        assert self.ask(response(self.challenge())) == [ReturnCode.EOK]
        return self


def response(challenge: bytes, password: str = PASSWORD) -> AuthRequest:
    return AuthRequest(SASL, DigestMd5Client("bookkeeper", password, lambda: "n").answer(challenge))


def add(entry_id: int = 0, key: bytes = KEY) -> AddRequest:
    return AddRequest(L, EntryId(entry_id), key, packet(L, entry_id))


@pytest.fixture(scope="module")
def fort(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Fort]:
    """One for names, ledgers and what is asked in clear."""
    yield from serve(tmp_path_factory.mktemp("fort"), **SASL_BOOKIE)


@pytest.fixture(scope="module")
def wall(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Fort]:
    """One for TLS: of more than twenty refusals at a time not all are told."""
    yield from serve(tmp_path_factory.mktemp("wall"), **SASL_BOOKIE)


@pytest.fixture(scope="module")
def roles(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Fort]:
    told = {"bookieAuthProviderFactoryClass": "BookieAuthZFactory", "authorizedRoles": "readers"}
    yield from serve(tmp_path_factory.mktemp("roles"), **told)


def serve(directory: Path, **told: str) -> Iterator[Fort]:
    own = write_pem(directory / "keys", AUTHORITY.issue("bookie"), AUTHORITY)
    (directory / "jaas.conf").write_text(JAAS)
    (directory / "revoked.pem").write_bytes(AUTHORITY.revocation_list(REVOKED))
    uri, http_port = make_cluster(directory / "metadata.db"), free_port()
    keys = bookie_keys(
        own,
        tlsClientAuthentication="true",
        tlsRequired="true",
        tlsRevocationListPath=directory / "revoked.pem",
        saslJaasConfigFile=directory / "jaas.conf",
        httpServerEnabled="true",
        httpServerPort=http_port,
    )
    bookie = BookieProcess(write_conf(directory / "b1", uri, **keys, **told))
    try:
        yield Fort(directory, uri, bookie.ready(), http_port)
        assert bookie.stop() == 0
    finally:
        if bookie.process.poll() is None:
            bookie.kill()


# The ways in. Each returns what came of it: codes of answers, None for a connection closed, or why
# there is no TLS.

Way = Callable[[Intruder], object]
EUA = ReturnCode.EUA


def replayed(intruder: Intruder) -> object:
    """Give the very message that another connection was let in with."""
    recorded = response(intruder.begin_tls().challenge())
    assert intruder.ask(recorded) == [ReturnCode.EOK]
    second = Intruder(intruder.fort, intruder.host).begin_tls()
    second.challenge()
    found = second.ask(recorded, add())
    second.close()
    return found


def injected(*requests: Request) -> Way:
    """Put requests between START_TLS and the client's own handshake."""

    def way(intruder: Intruder) -> object:
        intruder.send(StartTlsRequest(), *requests)
        return (intruder.next_answer().rc, closed(intruder))  # type: ignore[attr-defined]

    return way


def half_a_frame(intruder: Intruder) -> object:
    """Have the client's handshake taken for the end of a request."""
    begun = intruder.frame(add())
    intruder.send_bytes(intruder.frame(StartTlsRequest()) + begun[:10])
    assert intruder.next_answer() is not None
    try:
        intruder.shake_hands()
    except ConnectionResetError:
        return None
    return "there is TLS"


def wrong_key(intruder: Intruder) -> object:
    intruder.begin_tls().log_in()
    return intruder.ask(add(7)), intruder.ask(add(8, WRONG_KEY))


def closed(intruder: Intruder) -> bool:
    return intruder.next_answer() is None


def no_tls(own: Issued | None) -> Way:
    def way(intruder: Intruder) -> object:
        try:
            return intruder.begin_tls(own).ask(add())
        except SecurityError as error:
            return str(error)

    return way


def in_v2(request: Request) -> Way:
    def way(intruder: Intruder) -> object:
        intruder.send_bytes(intruder.frame(request, ProtocolVersion.V2))
        return getattr(intruder.next_answer(ProtocolVersion.V2), "rc", None)

    return way


def plain(data: bytes) -> Way:
    def way(intruder: Intruder) -> object:
        intruder.send_bytes(data)
        return closed(intruder)

    return way


def begun_in_v2(intruder: Intruder) -> object:
    intruder.begin_tls()
    intruder.send_bytes(intruder.frame(AuthRequest(SASL, b""), ProtocolVersion.V2))
    challenge = intruder.next_answer(ProtocolVersion.V2)
    assert isinstance(challenge, AuthResponse)
    return intruder.ask(response(challenge.payload, GUESS), add())


def token_of_a_megabyte(intruder: Intruder) -> object:
    intruder.begin_tls()
    frame = v3.encode_request(AuthRequest(SASL, bytes(1 << 20)), 1)
    intruder.send_bytes(frame[:1000])  # The bookie closes, and does not take the rest.
    return closed(intruder)


STRANGER, CLEAR = (
    "it sent a request before it authenticated",
    "it sent a request without TLS, but tlsRequired is set",
)
AUTH, ASKED = "bookied_auth_failures_total", "bookied_unauthenticated_requests_total"
TLS, KEYS = "bookied_tls_failures_total", "bookied_ledger_keys_refused_total"
FRAMES = 'bookied_limit_hits_total{limit="frames"}'

# fmt: off
NAME_WAYS: dict[str, tuple[Way, object, str, str]] = {
    "no name": (lambda i: i.begin_tls().ask(add()), [EUA], ASKED, STRANGER),
    "first asked, then named": (
        lambda i: i.begin_tls().ask(AuthRequest(SASL, b""), add()), [ReturnCode.EOK, EUA],
        ASKED, STRANGER,
    ),
    "the second message first": (
        lambda i: i.begin_tls().ask(response(b'nonce="n",algorithm=md5-sess'), add()), [EUA, None],
        AUTH, "the first token is not empty",
    ),
    "a recorded message": (replayed, [EUA, None], AUTH, "answers another challenge than ours"),
    "a wrong password": (
        lambda i: i.begin_tls().ask(response(i.challenge(), GUESS), add()), [EUA, None],
        AUTH, "user 'bookkeeper' is unknown, or the password is wrong",
    ),
    "a token at the beginning": (
        lambda i: i.begin_tls().ask(AuthRequest(SASL, bytes(5000))), [EUA],
        AUTH, "the first token is not empty",
    ),
    "another plugin": (
        lambda i: i.begin_tls().ask(AuthRequest("kerberos", b"")), [EUA],
        AUTH, "its plugin is 'kerberos', but this bookie uses sasl",
    ),
    "another ledger password": (
        wrong_key, ([ReturnCode.EOK], [EUA]),
        KEYS, "it does not give the password that ledger 4 was made with",
    ),
    "a token of a megabyte": (token_of_a_megabyte, True, FRAMES, "a frame was too long"),
    "in clear": (lambda i: i.ask(add()), [EUA], ASKED, CLEAR),
    "a name in clear": (lambda i: i.ask(AuthRequest(SASL, b"")), [EUA], ASKED, CLEAR),
    "V2 in clear": (in_v2(add()), EUA, ASKED, CLEAR),
    "V2 in TLS without a name": (
        lambda i: in_v2(add())(i.begin_tls()), EUA, ASKED, STRANGER,
    ),
    "a name begun in V2 and ended in V3, with a wrong password": (
        begun_in_v2, [EUA, None],
        AUTH, "user 'bookkeeper' is unknown, or the password is wrong",
    ),
    "V2 without an answer that says no": (
        in_v2(BatchReadRequest(L, EntryId(0), 1, 1, 1000)), None, ASKED, CLEAR,
    ),
}
TLS_WAYS: dict[str, tuple[Way, object, str, str]] = {
    "a request put behind START_TLS": (
        injected(add()), (ReturnCode.EOK, True),
        TLS, "no TLS: a request without TLS after START_TLS",
    ),
    "two names put behind START_TLS": (
        injected(AuthRequest(SASL, b""), AuthRequest(SASL, b"")), (ReturnCode.EOK, True),
        TLS, "no TLS: a request without TLS after START_TLS",
    ),
    "half a request put behind START_TLS": (
        half_a_frame, None, FRAMES, "a frame was too long, or could not be read",
    ),
    "START_TLS twice, in clear": (
        injected(StartTlsRequest()), (ReturnCode.EOK, True),
        TLS, "no TLS: a request without TLS after START_TLS",
    ),
    "START_TLS in TLS": (
        lambda i: i.begin_tls().ask(StartTlsRequest()), [None], TLS, "no TLS: START_TLS twice",
    ),
    "TLS without START_TLS": (
        plain(b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03"), True, TLS,
        "no TLS: TLS where a frame must be; START_TLS comes first",
    ),
    "no certificate": (
        no_tls(None), "no TLS: it requires a client certificate, and tlsKeyStore names none",
        TLS, "it sent no certificate, and this bookie requires one",
    ),
    "an old certificate": (
        no_tls(OLD), "no TLS: it reports that our certificate has expired: it was valid until "
        + OLD.certificate.not_valid_after_utc.isoformat(),
        TLS, "(CN=old) has expired: it was valid until",
    ),
    "a revoked certificate": (
        no_tls(REVOKED), "no TLS: it reports that our certificate has been revoked",
        TLS, "(CN=revoked) has been revoked",
    ),
    "another authority's certificate": (
        no_tls(OTHERS.issue("other")),
        "no TLS: it does not trust the authority that signed our certificate",
        TLS, "(CN=other) comes from an authority that is not trusted",
    ),
}
# fmt: on


def twice(fort: Fort, host: str, way: Way, outcome: object, metric: str, why: str) -> None:
    before = fort.count(metric)
    for _ in range(2):
        intruder = Intruder(fort, host)
        try:
            assert way(intruder) == outcome
        finally:
            intruder.close()
    until(lambda: fort.count(metric) >= before + 2 and fort.lines_about(host))
    assert fort.count(metric) == before + 2
    (line,) = fort.lines_about(host)
    assert why in line


@pytest.mark.parametrize("name", list(NAME_WAYS))
def test_no_way_leads_past_names_and_keys(fort: Fort, name: str) -> None:
    twice(fort, f"127.0.1.{1 + list(NAME_WAYS).index(name)}", *NAME_WAYS[name])


@pytest.mark.parametrize("name", list(TLS_WAYS))
def test_no_way_leads_past_tls(wall: Fort, name: str) -> None:
    twice(wall, f"127.0.1.{1 + list(TLS_WAYS).index(name)}", *TLS_WAYS[name])


def test_a_certificate_of_another_role_is_refused_everything(roles: Fort) -> None:
    host, before = "127.0.1.1", (roles.count(AUTH), roles.count(ASKED))
    for _ in range(2):
        intruder = Intruder(roles, host).begin_tls()
        assert intruder.ask(add(), ReadRequest(L, EntryId(0))) == [EUA, EUA]
        intruder.close()
    until(lambda: len(roles.lines_about(host)) == 2)
    assert (roles.count(AUTH), roles.count(ASKED)) == (before[0] + 2, before[1] + 4)
    role, asked = roles.lines_about(host)
    assert "role 'writers' is not among authorizedRoles" in role
    assert STRANGER in asked


def test_those_who_belong_are_served_meanwhile_and_the_log_holds_no_secret(fort: Fort) -> None:
    intruder = Intruder(fort, "127.0.2.1").begin_tls().log_in()
    codes = intruder.ask(ReadRequest(L, EntryId(0)), ReadRequest(L, EntryId(8)))
    assert ReturnCode.EOK not in codes, "something of theirs was stored"
    intruder.close()
    pem = write_pem(fort.directory / "client", CLIENT, AUTHORITY)
    told = client_keys(
        pem,
        tlsClientAuthentication="true",
        clientAuthProviderFactoryClass="SASLClientProviderFactory",
        saslJaasConfigFile=fort.directory / "jaas.conf",
    )
    with BlockingClient(fort.uri, config=load(ClientConfig, conf(told))[0]) as client:
        sizes = {"ensemble_size": 1, "write_quorum": 1, "ack_quorum": 1}
        ledger_id, _ = client.write_ledger([b"an entry"], **sizes)
        assert client.read_entry(ledger_id, 0).payload == b"an entry"
    log = fort.bookie.output.read_text()
    secrets = (PASSWORD, GUESS, "response=", "cnonce", "rspauth", KEY.hex(), "BEGIN")
    assert [secret for secret in secrets if secret in log] == []
