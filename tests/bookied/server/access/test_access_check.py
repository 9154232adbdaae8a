"""Who is let in, and what becomes of those who are not."""

from __future__ import annotations

import struct
from pathlib import Path
from typing import Any

import attrs
import pytest
from twisted.internet.error import ConnectionDone
from twisted.internet.task import Clock
from twisted.python.failure import Failure

from bkclient.connection.security.tls_and_sasl_handshake import Greeting
from bkclient.errors import ClientUnauthorizedError, LoginCutOffError, SecurityError
from bookied.server.access.access_check import REPORT_EVERY_S, Refusals
from bookied.server.access.authenticators import open_again
from bookied.server.access.login_delays import (
    ADDRESSES_MAX,
    DELAY_S_MAX,
    FORGOTTEN_AFTER_S,
    FREE_FAILURES,
    WAIT_S_MAX,
    LoginDelays,
)
from bookied.server.tls_and_login import UNAUTHENTICATED_FRAME_BYTES_MAX
from tests.bookied.worlds.secured_link import AUTHORITY, Connection, Stage
from tests.bookied.worlds.served_bookie import KEY, WRONG_KEY, Client, packet
from tests.support.certificates import write_pem
from wire.codes import ProtocolVersion, ReadFlag, ReturnCode
from wire.frames import v3
from wire.ids import EntryId, LedgerId
from wire.messages import (
    AUTH_DISABLED,
    SASL,
    AddRequest,
    AddResponse,
    AuthRequest,
    BatchReadRequest,
    ErrorResponse,
    ForceLedgerRequest,
    ReadRequest,
    StartTlsRequest,
)
from wire.sasl_digest_md5 import DigestMd5Client

V2, V3 = ProtocolVersion.V2, ProtocolVersion.V3
L, E = LedgerId(4), EntryId(0)
SASL_PACKAGE = "org.apache.bookkeeper.sasl"
JAAS = """
Bookie {
    org.apache.zookeeper.server.auth.DigestLoginModule required
    user_bookkeeper="secret" user_stranger="known";
};
BookKeeper {
    org.apache.zookeeper.server.auth.DigestLoginModule required
    username="bookkeeper" password="secret";
};
Wrong {
    org.apache.zookeeper.server.auth.DigestLoginModule required
    username="bookkeeper" password="guess";
};
Stranger {
    org.apache.zookeeper.server.auth.DigestLoginModule required
    username="stranger" password="known";
};
"""


def add(entry_id: int = 0) -> AddRequest:
    return AddRequest(L, EntryId(entry_id), KEY, packet(L, entry_id))


def with_passwords(directory: Path, *, tls: bool = False) -> Stage:
    stage = Stage(directory, tls=tls)
    path = directory / "jaas.conf"
    path.write_text(JAAS)
    stage.bookie_settings |= {
        "bookieAuthProviderFactoryClass": f"{SASL_PACKAGE}.SASLBookieAuthProviderFactory",
        "saslJaasConfigFile": path,
    }
    stage.client_settings |= {
        "clientAuthProviderFactoryClass": f"{SASL_PACKAGE}.SASLClientProviderFactory",
        "saslJaasConfigFile": path,
    }
    return stage


def read_again(stage: Stage) -> None:
    """Have the bookie read names, passwords and settings anew."""
    server = stage.serving.server
    auth = server.access.auth
    assert auth is not None
    server.access = attrs.evolve(server.access, auth=open_again(auth, stage._config()))


@pytest.fixture
def stage(tmp_path: Path) -> Stage:
    found = with_passwords(tmp_path)
    found.set_up()
    return found


@pytest.mark.parametrize("tls", [False, True])
@pytest.mark.parametrize("protocol", list(ProtocolVersion))
def test_whoever_knows_the_password_may_ask(tmp_path: Path, protocol, tls: bool) -> None:  # noqa: FBT001
    stage = with_passwords(tmp_path, tls=tls)
    connection = stage.connect(protocol)
    assert connection.is_greeted
    assert connection.ask(add()).rc is ReturnCode.EOK
    assert connection.ask(ReadRequest(L, E)).entry == packet(L, 0)
    assert (stage.stats.auth_successes, stage.stats.auth_failures) == (1, 0)
    assert stage.stats.requests_unauthenticated == 0


def test_a_bookie_that_asks_nobody_is_fine_with_a_name(tmp_path: Path) -> None:
    stage = with_passwords(tmp_path)
    stage.bookie_settings = {}
    assert stage.connect().is_greeted


def test_a_client_can_require_a_bookie_that_asks(tmp_path: Path) -> None:
    stage = with_passwords(tmp_path)
    stage.client_settings["clientAuthRequired"] = "true"
    assert stage.connect().is_greeted
    other = with_passwords(tmp_path / "other")
    other.bookie_settings = {}
    assert other.refused(clientAuthRequired="true") == (
        "bookie b1 does not authenticate clients, but clientAuthRequired is set here"
    )


@pytest.mark.parametrize("section", ["Wrong", "Stranger"])
def test_a_wrong_password_and_a_name_that_is_not_allowed_are_refused(stage, logs, section) -> None:
    stage.client_settings["saslJaasClientSectionName"] = section
    user = {"Wrong": "bookkeeper", "Stranger": "stranger"}[section]
    failure = stage.connect(V3).failure
    assert isinstance(failure, ClientUnauthorizedError)
    assert str(failure) == (
        f"bookie b1 rejects user '{user}': wrong password, unknown or refused user, "
        "or the bookie requires TLS (answer: EUA)"
    )
    assert "saslJaasConfigFile" in failure.hint
    failure = stage.connect(V2).failure
    assert isinstance(failure, LoginCutOffError)
    assert str(failure).startswith(f"bookie b1 rejects user '{user}': it closed the connection")
    assert stage.stats.auth_failures == 2
    why = {
        "Wrong": "user 'bookkeeper' is unknown, or the password is wrong",
        "Stranger": "user 'stranger' is not among saslJaasClientAllowedIds",
    }[section]
    # Two connections of one host, and one line.
    assert [line for line in logs if "refused" in line] == [f"refused 192.0.2.1: {why}"]
    assert not [line for line in logs if "guess" in line or "secret" in line]


def test_the_same_refusal_is_told_again_after_a_while(stage: Stage, logs: list[str]) -> None:
    stage.client_settings["saslJaasClientSectionName"] = "Wrong"
    for _ in range(3):
        stage.connect()
        stage.clock.advance(REPORT_EVERY_S / 2)
    assert len([line for line in logs if "password is wrong" in line]) == 2


@pytest.mark.parametrize("request_", [add(), ReadRequest(L, E), ForceLedgerRequest(L)])
def test_in_v3_strangers_get_a_bare_status(stage: Stage, request_: Any) -> None:
    client = stage.serving.connect(V3)
    assert client.ask(request_) == ErrorResponse(ReturnCode.EUA)
    assert not client.is_closed
    assert stage.stats.requests_unauthenticated == 1


def test_in_v2_strangers_get_a_code_where_there_is_one_and_else_are_cut_off(stage: Stage) -> None:
    client = stage.serving.connect(V2)
    assert client.ask(add()) == AddResponse(ReturnCode.EUA, L, E)
    assert client.ask(ReadRequest(L, E)).rc is ReturnCode.EUA
    assert not client.is_closed
    client.request(BatchReadRequest(L, E, 7, 10, 1000))
    assert client.is_closed
    assert client.receive() == b""


def test_nothing_of_a_stranger_reaches_the_storage(stage: Stage, logs: list[str]) -> None:
    client = stage.serving.connect(V2)
    for entry_id in range(5):
        assert client.ask(add(entry_id)).rc is ReturnCode.EUA
    fenced = ReadRequest(L, E, flags=1, master_key=KEY)  # type: ignore[arg-type]
    assert client.ask(fenced).rc is ReturnCode.EUA
    assert stage.serving.storage.ledgers.count == 0
    assert (stage.stats.write_bytes, stage.stats.packets_received) == (0, 6)
    assert len([line for line in logs if "it sent a request before it authenticated" in line]) == 1


def test_a_stranger_has_one_request_taken_before_others_have_their_turn(stage: Stage) -> None:
    client = stage.serving.connect(V3)
    frames = b"".join(v3.encode_request(ReadRequest(L, E), number) for number in range(50))
    client.connection.dataReceived(frames)
    assert stage.stats.requests_unauthenticated == 1
    for _ in range(100):
        stage.clock.advance(0)
    assert stage.stats.requests_unauthenticated == 50


def test_addresses_of_one_ipv6_network_do_not_fill_the_log(logs: list[str]) -> None:
    refusals = Refusals(Clock())
    for number in range(100):
        refusals.report(f"2001:db8::{number:x}", "key", "a reason")
    assert logs == ["refused 2001:db8::0: a reason"]


def test_a_stranger_may_ask_for_tls_and_hears_that_there_is_none(stage: Stage) -> None:
    assert stage.serving.connect(V3).ask(StartTlsRequest()).rc is ReturnCode.EBADREQ


def challenged(client: Client) -> bytes:
    answer = client.ask(AuthRequest(SASL, b""))
    assert answer.rc is ReturnCode.EOK
    payload: bytes = answer.payload
    return payload


def response_to(challenge: bytes, nonce: str = "n") -> AuthRequest:
    return AuthRequest(
        SASL, DigestMd5Client("bookkeeper", "secret", lambda: nonce).answer(challenge)
    )


@pytest.mark.parametrize("protocol", list(ProtocolVersion))
def test_a_recorded_exchange_is_worth_nothing_on_another_connection(stage, protocol) -> None:
    first, second = stage.serving.connect(protocol), stage.serving.connect(protocol)
    recorded = response_to(challenged(first))
    assert first.ask(recorded).rc is ReturnCode.EOK
    challenged(second)
    second.request(recorded)
    assert second.is_closed
    answers = second.answers()
    assert answers == ([] if protocol is V2 else [ErrorResponse(ReturnCode.EUA)])
    assert first.ask(add()).rc is ReturnCode.EOK


def test_messages_out_of_turn_are_refused(stage: Stage, logs: list[str]) -> None:
    client = stage.serving.connect(V3)
    response = response_to(challenged(stage.serving.connect(V3)))
    assert client.ask(response) == ErrorResponse(ReturnCode.EUA)
    assert client.is_closed
    client = stage.serving.connect(V3)
    challenged(client)
    assert client.ask(AuthRequest(SASL, b"")) == ErrorResponse(ReturnCode.EUA)
    assert client.is_closed
    assert stage.stats.auth_failures == 2
    assert [line for line in logs if "the first token is not empty" in line]


def test_requests_right_behind_the_last_token_are_obeyed(stage: Stage) -> None:
    client = stage.serving.connect(V3)
    response = response_to(challenged(client))
    stage.serving.syncs = False
    client.request(response)
    client.request(add())
    stage.serving.sync()
    proof, added = client.answers()
    assert proof.payload.startswith(b"rspauth=")
    assert added.rc is ReturnCode.EOK


def test_javas_last_empty_message_is_answered_as_java_does(stage: Stage) -> None:
    client = stage.serving.connect(V3)
    client.ask(response_to(challenged(client)))
    answer = client.ask(AuthRequest(SASL, b""))
    assert (answer.rc, answer.plugin) == (ReturnCode.EOK, AUTH_DISABLED)


@pytest.mark.parametrize("protocol", list(ProtocolVersion))
def test_another_plugin_is_refused(stage: Stage, protocol) -> None:
    client = stage.serving.connect(protocol)
    client.request(AuthRequest("kerberos", b""))
    assert client.answers() == ([] if protocol is V2 else [ErrorResponse(ReturnCode.EUA)])
    assert client.is_closed is (protocol is V2)
    assert stage.stats.auth_failures == 1


@pytest.mark.parametrize("protocol", list(ProtocolVersion))
def test_a_client_that_speaks_gssapi_is_told_of_in_a_clear_word(stage, logs, protocol) -> None:
    client = stage.serving.connect(protocol)
    client.request(AuthRequest(SASL, bytes.fromhex("6082025506092a864886f712010202") + bytes(600)))
    assert client.answers() == ([] if protocol is V2 else [ErrorResponse(ReturnCode.EUA)])
    assert client.is_closed
    said = [line for line in logs if "refused" in line]
    assert said == [
        "refused 192.168.1.1: it speaks GSSAPI (Kerberos), which is not offered; DIGEST-MD5 is"
    ]


def test_new_passwords_count_once_they_are_read_again(stage: Stage, logs: list[str]) -> None:
    path = stage.directory / "jaas.conf"
    path.write_text(JAAS.replace('"secret"', '"changed"'))
    assert isinstance(stage.connect().failure, ClientUnauthorizedError)
    read_again(stage)
    greeting = stage.greeting()
    assert Connection(stage, greeting, V3).is_greeted
    path.write_text("nothing")
    read_again(stage)
    assert Connection(stage, greeting, V3).is_greeted
    assert [line for line in logs if "keeping the old users and passwords" in line]


def test_who_is_let_in_is_read_again_too(stage: Stage) -> None:
    assert stage.connect().is_greeted
    stage.bookie_settings["saslJaasClientAllowedIds"] = "stranger"
    read_again(stage)
    assert isinstance(stage.connect().failure, ClientUnauthorizedError)


def test_a_client_takes_its_new_password_once_it_is_read_again(stage: Stage) -> None:
    greeting = stage.greeting()
    path = stage.directory / "jaas.conf"
    path.write_text(JAAS.replace('"secret"', '"changed"'))
    read_again(stage)
    assert not Connection(stage, greeting, V3).is_greeted
    greeting.reload()
    assert Connection(stage, greeting, V3).is_greeted
    path.unlink()
    greeting.reload()
    assert Connection(stage, greeting, V3).is_greeted


def test_names_that_a_client_makes_up_do_not_fill_the_log(stage: Stage, logs: list[str]) -> None:
    for number in range(20):
        guess(stage, f"bookkeeper{number}")
        stage.clock.advance(2 * DELAY_S_MAX)
    assert stage.stats.auth_failures == 20
    # Once a minute, and twenty guesses take longer.
    assert len([line for line in logs if "refused" in line]) == 4


# Guessing


def guess(stage: Stage, user: str = "bookkeeper", password: str = "guess") -> Client:
    client = stage.serving.connect(V3)
    exchange = DigestMd5Client(user, password, lambda: "n")
    client.request(AuthRequest(SASL, exchange.answer(challenged(client))))
    return client


def test_an_address_that_guesses_waits_longer_each_time(stage: Stage) -> None:
    waits = []
    for _ in range(FREE_FAILURES + 8):
        client, began_s = guess(stage), stage.clock.seconds()
        while not client.is_closed:
            stage.clock.advance(0.25)
        waits.append(stage.clock.seconds() - began_s)
    assert waits == [0, 0, 0, 0.25, 0.5, 1, 2, 4, *[DELAY_S_MAX] * 3]
    assert stage.stats.auth_failures == len(waits)


def test_many_connections_guess_no_faster_and_the_last_are_turned_away(stage: Stage, logs) -> None:
    for _ in range(FREE_FAILURES + 5):
        guess(stage)
        stage.clock.advance(DELAY_S_MAX)
    failures = stage.stats.auth_failures
    clients = [guess(stage) for _ in range(50)]
    turned_away = [client for client in clients if client.is_closed]
    assert len(turned_away) >= 50 - WAIT_S_MAX / DELAY_S_MAX - 2
    assert any("too many wrong passwords lately" in line for line in logs)
    stage.clock.pump([1.0] * int(WAIT_S_MAX + 2 * DELAY_S_MAX))
    assert all(client.is_closed for client in clients)
    assert stage.stats.auth_failures == failures + 50


def test_the_right_password_waits_too_and_is_let_in(stage: Stage) -> None:
    for _ in range(FREE_FAILURES):
        guess(stage)
    client = guess(stage, password="secret")
    assert client.answers() == []
    stage.clock.advance(0.25)
    (answer,) = client.answers()
    assert answer.rc is ReturnCode.EOK
    assert client.ask(add()).rc is ReturnCode.EOK


def test_who_leaves_while_it_waits_is_forgotten(stage: Stage) -> None:
    for _ in range(FREE_FAILURES):
        guess(stage)
    failures = stage.stats.auth_failures
    guess(stage).connection.connectionLost(Failure(ConnectionDone()))
    stage.clock.advance(60)
    assert stage.stats.auth_failures == failures
    assert not stage.clock.getDelayedCalls()


def test_wrong_passwords_are_forgotten_after_a_while() -> None:
    clock = Clock()
    delays = LoginDelays(clock)
    for _ in range(20):
        delays.failed("192.0.2.1")
    assert delays.wait_s("192.0.2.2") == 0
    assert delays.wait_s("::ffff:192.0.2.1") == DELAY_S_MAX
    clock.advance(FORGOTTEN_AFTER_S + 1)
    assert delays.wait_s("192.0.2.1") == 0


def test_an_ipv6_network_is_one_address_and_what_is_remembered_is_bounded() -> None:
    delays = LoginDelays(Clock())
    for number in range(10):
        delays.failed(f"2001:db8::{number:x}")
    assert delays.wait_s("2001:db8::ffff") == DELAY_S_MAX
    for number in range(ADDRESSES_MAX + 5):
        delays.failed(f"2001:db8:{number:x}::1")
    assert len(delays._failures) == ADDRESSES_MAX


# The size of what a stranger sends


@pytest.mark.parametrize("protocol", list(ProtocolVersion))
def test_a_stranger_gets_short_frames_and_who_is_let_in_long_ones(stage, protocol) -> None:
    client = stage.serving.connect(protocol)
    client.send(struct.pack(">i", UNAUTHENTICATED_FRAME_BYTES_MAX - 4))
    assert not client.is_closed
    client = stage.serving.connect(protocol)
    client.send(struct.pack(">i", UNAUTHENTICATED_FRAME_BYTES_MAX - 3))
    assert client.is_closed
    client = stage.serving.connect(protocol)
    assert client.ask(response_to(challenged(client))).rc is ReturnCode.EOK
    client.send(struct.pack(">i", UNAUTHENTICATED_FRAME_BYTES_MAX * 100))
    assert not client.is_closed


def test_where_tls_is_wanted_frames_before_it_are_short(tmp_path: Path) -> None:
    stage = Stage(tmp_path)
    stage.bookie_settings["tlsRequired"] = "true"
    stage.set_up()
    client = stage.serving.connect(V3)
    client.send(struct.pack(">i", UNAUTHENTICATED_FRAME_BYTES_MAX - 3))
    assert client.is_closed
    connection = stage.connect()
    assert connection.is_greeted
    entry = packet(L, 0, payload=b"x" * 50_000)
    assert connection.ask(AddRequest(L, E, KEY, entry)).rc is ReturnCode.EOK


def test_where_nobody_has_to_log_in_frames_are_as_long_as_set(tmp_path: Path) -> None:
    stage = Stage(tmp_path, tls=False)
    client = stage.serving.connect(V3)
    client.send(struct.pack(">i", UNAUTHENTICATED_FRAME_BYTES_MAX * 100))
    assert not client.is_closed


def test_a_pattern_that_lets_nobody_in_is_warned_about(stage: Stage, logs: list[str]) -> None:
    stage.bookie_settings["saslJaasClientAllowedIds"] = "admin"
    stage.set_up()
    assert [line for line in logs if "none of the users in the JAAS file is allowed" in line]


def test_a_name_of_any_length_is_a_short_word_in_the_log(stage: Stage, logs: list[str]) -> None:
    client = stage.serving.connect(V3)
    exchange = DigestMd5Client("bookkeeper" + "\n" * 1000, "guess", lambda: "n")
    client.ask(AuthRequest(SASL, exchange.answer(challenged(client))))
    (line,) = (line for line in logs if "refused" in line)
    assert len(line) < 200
    assert "\n" not in line


def test_a_token_beyond_what_the_exchange_can_have_is_refused(stage: Stage, logs) -> None:
    client = stage.serving.connect(V3)
    challenged(client)
    assert client.ask(AuthRequest(SASL, b"x" * 5000)) == ErrorResponse(ReturnCode.EUA)
    assert client.is_closed
    assert stage.stats.auth_failures == 1
    assert [line for line in logs if line.endswith("a token of 5000 bytes")]


# Ledgers' keys


@pytest.mark.parametrize(
    "request_",
    [
        AddRequest(L, EntryId(1), WRONG_KEY, packet(L, 1)),
        ReadRequest(L, E, ReadFlag.FENCE, WRONG_KEY),
    ],
)
@pytest.mark.parametrize("protocol", list(ProtocolVersion))
def test_a_wrong_key_for_a_ledger_is_refused_told_once_and_counted(
    stage: Stage, logs, protocol, request_: Any
) -> None:
    stage.set_up()
    server = stage.serving.server
    server.access = attrs.evolve(server.access, auth=None)
    client = stage.serving.connect(protocol)
    assert client.ask(add()).rc is ReturnCode.EOK
    for _ in range(3):
        assert client.ask(request_).rc is ReturnCode.EUA
    assert stage.stats.keys_refused == 3
    assert not stage.serving.storage.ledgers.lookup(L).fenced
    why = "it does not give the password that ledger 4 was made with"
    assert [line for line in logs if "refused" in line] == [f"refused 192.168.1.1: {why}"]


# TLS before names


def proven_in_clear(stage: Stage) -> Connection:
    """Return a connection that has shown a name and a password, and not begun TLS."""
    connection = Connection(stage, None)
    challenge = connection.ask(AuthRequest(SASL, b"")).payload
    assert connection.ask(response_to(challenge)).rc is ReturnCode.EOK
    return connection


def without_a_name(stage: Stage) -> Greeting:
    stage.client_settings["clientAuthProviderFactoryClass"] = ""
    return stage.greeting()


def test_what_was_shown_in_clear_before_start_tls_counts_for_nothing_in_it(tmp_path: Path) -> None:
    # Somebody on the way could have said who they are, and put another's TLS behind it.
    stage = with_passwords(tmp_path, tls=True)
    stage.set_up()
    connection = proven_in_clear(stage)
    assert connection.ask(add()).rc is ReturnCode.EOK
    connection.greet(without_a_name(stage))
    assert connection.is_greeted
    assert connection.ask(add(1)) == ErrorResponse(ReturnCode.EUA)


# Nothing in clear


def requiring_tls(directory: Path, *, names: bool) -> Stage:
    stage = with_passwords(directory, tls=True) if names else Stage(directory)
    stage.bookie_settings["tlsRequired"] = "true"
    return stage


@pytest.mark.parametrize("names", [False, True])
@pytest.mark.parametrize("protocol", list(ProtocolVersion))
def test_a_bookie_that_requires_tls_serves_those_who_begin_it(tmp_path, names, protocol) -> None:
    connection = requiring_tls(tmp_path, names=names).connect(protocol)
    assert connection.is_greeted
    assert connection.ask(add()).rc is ReturnCode.EOK


@pytest.mark.parametrize("names", [False, True])
def test_it_does_nothing_in_clear_not_even_hear_a_password(tmp_path, logs, names: bool) -> None:  # noqa: FBT001
    stage = requiring_tls(tmp_path, names=names)
    stage.set_up()
    for request in (add(), ReadRequest(L, E), ForceLedgerRequest(L), AuthRequest(SASL, b"")):
        assert stage.serving.connect(V3).ask(request) == ErrorResponse(ReturnCode.EUA)
    assert stage.serving.connect(V2).ask(add()) == AddResponse(ReturnCode.EUA, L, E)
    for request in (BatchReadRequest(L, E, 7, 10, 1000), AuthRequest(SASL, b"")):
        client = stage.serving.connect(V2)
        client.request(request)
        assert client.is_closed
    assert stage.stats.requests_unauthenticated == 7
    assert stage.serving.storage.ledgers.count == 0
    why = "it sent a request without TLS, but tlsRequired is set"
    assert [line for line in logs if "refused" in line] == [f"refused 192.168.1.1: {why}"]


def test_a_client_in_clear_hears_that_tls_may_be_what_is_missing(tmp_path: Path) -> None:
    stage = requiring_tls(tmp_path, names=True)
    stage.client_settings["tlsProviderFactoryClass"] = ""
    assert "or the bookie requires TLS (answer: EUA)" in str(stage.connect().failure)


# Certificates


def with_roles(directory: Path, unit: str) -> Stage:
    stage = Stage(directory)
    stage.bookie_settings |= {
        "bookieAuthProviderFactoryClass": "org.apache.bookkeeper.tls.BookieAuthZFactory",
        "authorizedRoles": "writers,readers",
        "tlsClientAuthentication": "true",
    }
    stage.client_settings["tlsClientAuthentication"] = "true"
    write_pem(directory / "client-keys", AUTHORITY.issue("client", unit=unit), AUTHORITY)
    return stage


@pytest.mark.parametrize("unit", ["0:readers", "1:cluster;0:writers,other", "0: writers ;1:c"])
@pytest.mark.parametrize("protocol", list(ProtocolVersion))
def test_a_certificate_with_an_authorized_role_is_enough(tmp_path, protocol, unit: str) -> None:
    connection = with_roles(tmp_path, unit).connect(protocol)
    assert connection.ask(add()).rc is ReturnCode.EOK


@pytest.mark.parametrize(
    ("unit", "why"),
    [
        ("", "its certificate has no role (OU=0:ROLE)"),
        ("writers", "its certificate has no role (OU=0:ROLE)"),
        ("1:writers", "its certificate has no role (OU=0:ROLE)"),
        ("0:others,writers", "role 'others' is not among authorizedRoles"),
    ],
)
def test_a_certificate_without_one_is_not(tmp_path: Path, logs, unit: str, why: str) -> None:
    stage = with_roles(tmp_path, unit)
    connection = stage.connect()
    assert connection.is_greeted
    assert connection.ask(add()) == ErrorResponse(ReturnCode.EUA)
    assert [line for line in logs if line.endswith(why)]
    assert stage.stats.auth_failures == 1


def test_without_tls_no_role_is_shown(tmp_path: Path) -> None:
    stage = with_roles(tmp_path, "0:writers")
    stage.set_up()
    client = stage.serving.connect(V3)
    assert client.ask(add()) == ErrorResponse(ReturnCode.EUA)
    assert client.ask(AuthRequest("BookieAuthZFactory", b"x")) == ErrorResponse(ReturnCode.EUA)
    assert client.is_closed


KRB5 = """
{section} {{
    com.sun.security.auth.module.Krb5LoginModule required
    useKeyTab=true keyTab="/etc/bookkeeper/keytab" principal="bookkeeper/host@REALM";
}};
"""


def test_settings_that_ask_for_kerberos_are_refused_on_both_sides(tmp_path: Path) -> None:
    stage = with_passwords(tmp_path)
    path = stage.directory / "jaas.conf"
    for section, begin in (("Bookie", stage.set_up), ("BookKeeper", stage.greeting)):
        path.write_text(KRB5.format(section=section))
        told = rf"{section} logs in by Kerberos \(GSSAPI\), which is not offered; DIGEST-MD5 is"
        with pytest.raises(SecurityError, match=told):
            begin()


def test_passwords_that_cannot_be_read_are_an_error_of_the_client_too(tmp_path: Path) -> None:
    stage = with_passwords(tmp_path)
    stage.client_settings["saslJaasConfigFile"] = tmp_path / "nowhere"
    with pytest.raises(SecurityError, match="saslJaasConfigFile: cannot read"):
        stage.greeting()
