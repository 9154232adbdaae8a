"""Where clients must log in, a live bookie does not keep those that never do."""

from __future__ import annotations

import contextlib
import time
from collections.abc import Iterator

import pytest

from tests.bookied.worlds.raw_client import RawClient
from tests.live.bookied.attacked_bookie import Live, WellBehaved, is_cut, kept_service
from tests.support.waiting import until
from wire.frames import v2
from wire.ids import EntryId, LedgerId
from wire.messages import SASL, AuthRequest, ReadRequest

pytestmark = pytest.mark.processes

LOGIN_S = 4.0
"""Long enough for the client that behaves, on a machine that may be busy with other tests."""

STRANGERS = 10
JAAS = """
Bookie {
    org.apache.zookeeper.server.auth.DigestLoginModule required
    user_bookkeeper="secret";
};
"""


@pytest.fixture(scope="module")
def live(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Live]:
    directory = tmp_path_factory.mktemp("strangers")
    jaas = directory / "jaas.conf"
    jaas.write_text(JAAS)
    found = Live(
        directory,
        bookieAuthProviderFactoryClass="SASLBookieAuthProviderFactory",
        saslJaasConfigFile=jaas,
        serverAuthTimeoutMs=int(LOGIN_S * 1000),
    )
    yield found
    found.process.kill()


def log_in(client: RawClient) -> None:
    client.log_in("bookkeeper", "secret")


@pytest.fixture(autouse=True)
def service(live: Live, request: pytest.FixtureRequest) -> Iterator[WellBehaved]:
    with kept_service(live.port, request.node.name, log_in) as client:
        yield client


@pytest.mark.parametrize(
    ("words", "again"),
    [
        pytest.param(b"", False, id="silent"),
        pytest.param(v2.encode_request(AuthRequest(SASL, b"")), False, id="half-way"),
        pytest.param(
            v2.encode_request(ReadRequest(LedgerId(1), EntryId(0))), True, id="asking-all-the-time"
        ),
    ],
)
def test_strangers_that_do_not_log_in_are_cut_in_time(
    live: Live, words: bytes, *, again: bool
) -> None:
    before = live.hits("login_time")
    began_s = time.monotonic()
    with live.hostiles(STRANGERS):
        left = set(live.of)
        for sock in left:
            sock.sendall(words)

        def are_cut() -> bool:
            for sock in left if again else ():
                with contextlib.suppress(ConnectionError):
                    sock.sendall(words)
            left.difference_update([sock for sock in left if is_cut(sock)])
            return not left

        until(are_cut)
        assert time.monotonic() - began_s >= LOGIN_S
    assert live.hits("login_time") == before + STRANGERS
    assert live.said("login_time") >= 1
