"""A live bookie that wants SASL, and clients whose messages come in another order.

Nothing is served before the login, whatever comes between its messages, and a client that keeps to
the order is served meanwhile.
"""

from __future__ import annotations

import random
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.bookied.worlds.raw_client import RawConnection
from tests.bookied.worlds.secured_link import jaas_of_both
from tests.bookied.worlds.served_bookie import KEY, packet
from tests.live.bookied.attacked_bookie import Live, WellBehaved, kept_service
from tests.support.waiting import until
from wire.codes import ProtocolVersion, ReturnCode
from wire.frames import v3
from wire.ids import EntryId, LedgerId
from wire.messages import (
    SASL,
    AddRequest,
    AuthRequest,
    AuthResponse,
    ReadRequest,
    ReadResponse,
    Request,
)
from wire.sasl_digest_md5 import TOKEN_BYTES_MAX, DigestMd5Client

pytestmark = pytest.mark.processes

PASSWORD = "the-password"
BEGIN = AuthRequest(SASL, b"")
OTHER = AuthRequest("BookieAuthZFactory", b"a token")
V2, V3 = ProtocolVersion.V2, ProtocolVersion.V3
L = LedgerId(4)
ADD = AddRequest(L, EntryId(0), KEY, packet(4, 0))
READ = ReadRequest(L, EntryId(0))
EUA, EOK = ReturnCode.EUA, ReturnCode.EOK
LEAVERS = 500
SEEDS = 300
HOSTS = iter(range(10, 250))


@pytest.fixture(scope="module")
def live(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Live]:
    directory = tmp_path_factory.mktemp("order")
    (directory / "jaas.conf").write_text(jaas_of_both(PASSWORD))
    found = Live(
        directory,
        bookieAuthProviderFactoryClass="SASLBookieAuthProviderFactory",
        saslJaasConfigFile=directory / "jaas.conf",
    )
    yield found
    assert "Traceback" not in found.process.output.read_text()
    assert found.process.stop() == 0


@pytest.fixture(autouse=True)
def service(live: Live, request: pytest.FixtureRequest) -> Iterator[WellBehaved]:
    def log_in(client: object) -> None:
        client.log_in("bookkeeper", PASSWORD)  # type: ignore[attr-defined]

    with kept_service(live.port, request.node.name, log_in) as client:
        yield client


class Peer(RawConnection):
    """One connection from an address of its own, in either protocol at any time."""

    def __init__(self, live: Live, host: str = "") -> None:
        super().__init__(live.port, host=host or f"127.0.3.{next(HOSTS)}")

    def send(self, request: Request, version: ProtocolVersion = V3) -> None:
        self.send_bytes(self.frame(request, version))

    def ask(self, request: Request, version: ProtocolVersion = V3) -> object:
        """Return the answer; ``None`` where the bookie closes instead."""
        try:
            self.send(request, version)
            return self.next_answer(version)
        except ConnectionError:
            return None

    def code(self, request: Request, version: ProtocolVersion = V3) -> object:
        return getattr(self.ask(request, version), "rc", None)

    def challenge(self, version: ProtocolVersion = V3) -> bytes:
        answer = self.ask(BEGIN, version)
        assert isinstance(answer, AuthResponse)
        return answer.payload

    def log_in(self) -> None:
        assert self.code(proof(self.challenge())) is EOK


def proof(challenge: bytes) -> AuthRequest:
    return AuthRequest(SASL, DigestMd5Client("bookkeeper", PASSWORD, lambda: "n").answer(challenge))


@pytest.fixture
def peer(live: Live) -> Iterator[Peer]:
    found = Peer(live)
    yield found
    found.close()


def test_a_login_that_begins_twice_is_refused_and_closed(peer: Peer) -> None:
    peer.challenge()
    assert peer.code(BEGIN) is EUA
    assert peer.code(ADD) is None


def test_a_proof_given_twice_keeps_the_login_and_shows_nothing_new(peer: Peer) -> None:
    given = proof(peer.challenge())
    assert peer.code(given) is EOK
    for late in (given, BEGIN, OTHER):
        assert not isinstance(peer.ask(late), ReadResponse)
    assert peer.code(READ) is not EUA


@pytest.mark.parametrize("version", [V2, V3], ids=["v2", "v3"])
def test_requests_between_the_steps_are_refused_and_the_login_goes_on(
    peer: Peer, version: ProtocolVersion
) -> None:
    assert peer.code(ADD, version) is EUA
    given = proof(peer.challenge(version))
    assert peer.code(READ, version) is EUA
    assert peer.code(ADD, version) is EUA
    assert peer.code(given, version) is EOK
    assert peer.code(READ, version) in {ReturnCode.ENOLEDGER, ReturnCode.ENOENTRY}


def test_another_mechanism_in_the_middle_does_not_pass_for_a_proof(peer: Peer) -> None:
    given = proof(peer.challenge())
    assert peer.code(OTHER) is EUA
    assert peer.code(READ) is EUA
    assert peer.code(given) is EOK


def test_a_login_may_change_its_protocol_and_counts_for_both(peer: Peer) -> None:
    given = proof(peer.challenge(V2))
    assert peer.code(ADD, V3) is EUA
    assert peer.code(given, V3) is EOK
    assert peer.code(READ, V2) is not EUA
    assert peer.code(READ, V3) is not EUA


TOKENS = {
    "empty": b"",
    "one byte": b"\0",
    "longest": b"a" * TOKEN_BYTES_MAX,
    "too long": b"a" * (TOKEN_BYTES_MAX + 1),
    "longer than a stranger's frame": b"a" * (1 << 20),
    "no text": bytes(range(128, 256)) * 8,
    "commas": b"," * TOKEN_BYTES_MAX,
    "open quote": b'username="' + b"\\" * 4000,
    "backslashes": b'username="' + b"\\\\" * 2000 + b'"x',
    "spaces": b" " * TOKEN_BYTES_MAX,
    "names": b",".join(b"a" * n + b"=1" for n in range(1, 80)),
    "twice": b'username="bookkeeper",username="other"',
    "kerberos": b"\x60\x0e" + bytes.fromhex("06092a864886f712010202") + b"rest",
}


@pytest.mark.parametrize("name", list(TOKENS))
def test_a_token_that_is_no_proof_is_refused_and_closed(peer: Peer, name: str) -> None:
    peer.challenge()
    assert peer.code(AuthRequest(SASL, TOKENS[name])) in {EUA, None}
    assert peer.code(ADD) is None


def test_clients_that_leave_in_the_middle_of_a_login_leave_nothing_behind(live: Live) -> None:
    before = live.metrics()["bookied_auth_failures_total"]
    whole = v3.encode_request(proof(b'nonce="n",algorithm=md5-sess'), 1)
    open_files = Path(f"/proc/{live.process.pid}/fd")
    files_before = len(list(open_files.iterdir()))
    for number in range(LEAVERS):
        peer = Peer(live, "127.0.0.3")
        if number % 3:
            peer.challenge()
        peer.send_bytes(whole[: number % len(whole)])
        peer.close()
    until(lambda: len(list(open_files.iterdir())) <= files_before + 2)
    assert live.metrics()["bookied_auth_failures_total"] == before
    peer = Peer(live, "127.0.0.3")
    peer.log_in()  # No failure: this address does not wait.
    peer.close()


def test_no_order_of_messages_is_served_without_a_proof(live: Live) -> None:
    tokens = [AuthRequest(SASL, token[:4000]) for token in TOKENS.values()]
    messages: list[Request] = [BEGIN, OTHER, ADD, READ, *tokens]
    for seed in range(SEEDS):
        rng = random.Random(seed)
        # Addresses of a network each: wrong proofs of one address wait in a row.
        peer = Peer(live, f"127.{1 + seed % 250}.{seed // 250}.9")
        for _ in range(rng.randrange(1, 8)):
            request = rng.choice(messages)
            answer = peer.ask(request, V3)
            if answer is None:
                break
            if not isinstance(request, AuthRequest):
                assert getattr(answer, "rc", None) is EUA, (seed, request)
        peer.close()
    last = Peer(live)
    last.log_in()
    assert last.code(READ) is ReturnCode.ENOLEDGER, "something of theirs was stored"
    last.close()
