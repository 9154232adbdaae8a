"""TLS between our client and our bookie, joined in memory: begun, refused, renewed."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import attrs
import pytest
from OpenSSL import SSL
from twisted.internet.defer import Deferred
from twisted.internet.protocol import Protocol

from bkclient.connection.channel import BookieChannel
from bkclient.errors import RequestTimeoutError, SecurityError
from bookied.server.access.start_tls import HANDSHAKE_S
from bookied.server.limits.handshake_turns import HANDSHAKE_GAP_S
from tests.bookied.worlds.secured_link import AUTHORITY, BOOKIE, CLIENT, Connection, Stage
from tests.bookied.worlds.served_bookie import KEY, packet
from tests.support.certificates import PASSWORD, Authority, Issued, Pem, write_pem
from tests.support.keytool import key_store, trust_store
from tests.support.tls_link import Link
from wire.codes import ProtocolVersion, ReturnCode
from wire.frames import v2, v3
from wire.ids import BookieId, EntryId, LedgerId
from wire.messages import (
    AddRequest,
    AuthRequest,
    BatchReadRequest,
    ReadRequest,
    StartTlsRequest,
)

L, E = LedgerId(4), EntryId(0)


@pytest.fixture
def stage(tmp_path: Path) -> Stage:
    return Stage(tmp_path)


def add(entry_id: int = 0) -> AddRequest:
    return AddRequest(L, EntryId(entry_id), KEY, packet(L, entry_id))


@pytest.mark.parametrize("protocol", list(ProtocolVersion))
def test_requests_of_either_protocol_go_through_tls(stage: Stage, protocol) -> None:
    connection = stage.connect(protocol)
    assert connection.is_greeted
    assert connection.ask(add()).rc is ReturnCode.EOK
    assert connection.ask(ReadRequest(L, E)).entry == packet(L, 0)
    assert stage.stats.tls_handshakes == 1


def test_nothing_of_an_entry_can_be_read_on_the_way(stage: Stage) -> None:
    connection, seen = stage.connect(), []
    carry = connection.link._carry
    connection.link._carry = lambda a, b: (seen.append(a.value()), carry(a, b))[1]  # type: ignore[method-assign]
    assert connection.ask(add()).rc is ReturnCode.EOK
    assert seen
    assert all(b"hello" not in data and data[:1] in {b"", b"\x17"} for data in seen)


@pytest.mark.parametrize("protocol", list(ProtocolVersion))
def test_a_bookie_that_stops_closes_connections_in_tls_at_once(stage: Stage, protocol) -> None:
    connection = stage.connect(protocol)
    assert connection.ask(add()).rc is ReturnCode.EOK
    stage.serving.server.drain(10)
    connection.link.settle()
    assert connection.link.is_closed, "it waits for an answer that it does not read"


@pytest.mark.parametrize("kind", ["JKS", "JCEKS", "PKCS12"])
def test_stores_that_keytool_made_serve_both_ends(stage: Stage, kind: str) -> None:
    password = stage.directory / "password"
    password.write_bytes(PASSWORD)
    ends = (("tls", BOOKIE, stage.bookie_settings), ("client", CLIENT, stage.client_settings))
    for prefix, own, settings in ends:
        paths = (
            key_store(stage.directory / f"{prefix}.key", kind, own),
            trust_store(stage.directory / f"{prefix}.trust", kind, AUTHORITY),
        )
        for store, path in zip(("Key", "Trust"), paths, strict=True):
            settings[f"{prefix}{store}Store"] = path
            settings[f"{prefix}{store}StoreType"] = kind
            settings[f"{prefix}{store}StorePasswordPath"] = password
        settings["tlsClientAuthentication"] = "true"
    assert stage.connect().is_greeted


@pytest.mark.parametrize("kind", ["PKCS12", "JKS"])
def test_stores_as_keytool_writes_them_are_read_under_either_name(stage: Stage, kind) -> None:
    for pem, own in ((stage.bookie_pem, BOOKIE), (stage.client_pem, CLIENT)):
        pem.key.write_bytes(own.pkcs12())
        pem.trust.write_bytes(AUTHORITY.pkcs12())
    password = stage.directory / "password"
    password.write_bytes(b"a store's password\n")
    for prefix, settings in (("tls", stage.bookie_settings), ("client", stage.client_settings)):
        for store in ("Key", "Trust"):
            settings[f"{prefix}{store}StoreType"] = kind
            settings[f"{prefix}{store}StorePasswordPath"] = password
        settings["tlsClientAuthentication"] = "true"
    assert stage.connect().is_greeted


def test_a_key_in_pem_may_have_a_password(stage: Stage) -> None:
    stage.bookie_pem.key.write_bytes(BOOKIE.key_pem(b"pw"))
    password = stage.directory / "password"
    password.write_bytes(b"pw\n")
    stage.bookie_settings["tlsKeyStorePasswordPath"] = password
    assert stage.connect().is_greeted


def test_a_bookie_that_wants_certificates_takes_those_it_trusts(stage: Stage) -> None:
    stage.bookie_settings["tlsClientAuthentication"] = "true"
    stage.client_settings["tlsClientAuthentication"] = "true"
    assert stage.connect().is_greeted


@pytest.mark.parametrize("version", ["TLSv1.2", "TLSv1.3"])
def test_a_client_without_a_certificate_learns_that_one_is_wanted(stage: Stage, version) -> None:
    stage.bookie_settings["tlsClientAuthentication"] = "true"
    failure = stage.refused(tlsEnabledProtocols=version)
    reasons = {
        "TLSv1.2": "both ends share no TLS version, cipher suite or kind of certificate",
        "TLSv1.3": "it requires a client certificate, and tlsKeyStore names none",
    }
    assert failure == f"no TLS with bookie b1: {reasons[version]}"
    assert stage.stats.tls_failures == 1


def issue(stage: Stage, pem: Pem, own: Issued, trusted: Authority = AUTHORITY) -> None:
    write_pem(pem.key.parent, own, trusted)
    stage.bookie_settings["tlsClientAuthentication"] = "true"
    stage.client_settings["tlsClientAuthentication"] = "true"


def test_what_is_wrong_with_the_bookies_certificate_is_said(stage: Stage) -> None:
    names: tuple[dict[str, Any], ...] = ({"hosts": ["other.example"]}, {"hosts": []})
    found = []
    for how in names:
        issue(stage, stage.bookie_pem, AUTHORITY.issue("bookie", **how))
        stage.set_up()
        found.append(stage.refused(tlsHostnameVerificationEnabled="true"))
    issue(stage, stage.bookie_pem, Authority("another").issue("bookie"))
    stage.set_up()
    found.append(stage.refused())
    own = "no TLS with bookie b1: its certificate "
    assert found == [
        f"{own}is for other.example, not for bookie.example",
        f"{own}names no host (subjectAltName), and bookie.example must be there",
        f"{own}(CN=bookie) comes from an authority that is not trusted",
    ]


def test_a_certificate_outside_its_time_is_refused_with_the_date(
    stage: Stage, logs: list[str]
) -> None:
    expired, future = AUTHORITY.issue("bookie", days=-1), AUTHORITY.issue("bookie", begins_days=2)
    until = expired.certificate.not_valid_after_utc.isoformat()
    begin = future.certificate.not_valid_before_utc.isoformat()
    for own, why, date in (
        (expired, "has expired", f"it was valid until {until}"),
        (future, "is not valid yet", f"it is valid from {begin} on"),
    ):
        issue(stage, stage.bookie_pem, own)
        stage.set_up()
        assert (
            stage.refused() == f"no TLS with bookie b1: its certificate (CN=bookie) {why}: {date}"
        )
        assert [line for line in logs if "every peer refuses" in line and date in line]


def test_the_host_is_checked_unless_a_setting_says_otherwise(stage: Stage) -> None:
    issue(stage, stage.bookie_pem, AUTHORITY.issue("bookie", hosts=["other.example"]))
    assert "its certificate is for other.example, not for bookie.example" in stage.refused()
    stage.client_settings["tlsHostnameVerificationEnabled"] = "false"
    assert stage.connect().is_greeted


@pytest.mark.parametrize(
    "suite", ["AES128-GCM-SHA256", "ECDHE-ECDSA-AES128-SHA256", "ECDHE-RSA-AES256-SHA"]
)
def test_suites_without_forward_secrecy_or_with_cbc_take_a_setting(stage: Stage, suite) -> None:
    stage.client_settings |= {
        "tlsEnabledProtocols": "TLSv1.2", "tlsEnabledCipherSuites": suite
    }  # fmt: skip
    assert not stage.connect().is_greeted
    offered = SSL.Connection(stage.contexts().end()._context, None).get_cipher_list()
    assert offered
    assert not [name for name in offered if "GCM" not in name and "CHACHA20" not in name]
    assert not [name for name in offered if not name.startswith(("TLS_", "ECDHE-", "DHE-"))]


@pytest.mark.parametrize(
    ("own", "told", "logged"),
    [
        (
            AUTHORITY.issue("client", days=-1),
            "it reports that our certificate has expired: it was valid until 20",
            "its certificate (CN=client) has expired: it was valid until 20",
        ),
        (
            AUTHORITY.issue("client", begins_days=2),
            "it rejects our certificate: it is valid from 20",
            "its certificate (CN=client) is not valid yet: it is valid from 20",
        ),
        (
            Authority("another").issue("client"),
            "it does not trust the authority that signed our certificate",
            "its certificate (CN=client) comes from an authority that is not trusted",
        ),
    ],
)
def test_what_is_wrong_with_the_clients_certificate_is_said_on_both_sides(
    stage: Stage, logs: list[str], own: Issued, told: str, logged: str
) -> None:
    issue(stage, stage.client_pem, own)
    assert stage.refused().startswith(f"no TLS with bookie b1: {told}")
    assert [line for line in logs if logged in line]


def revoking(stage: Stage, text: bytes) -> Path:
    path = stage.directory / "revoked.pem"
    path.write_bytes(text)
    return path


def test_a_client_whose_certificate_is_revoked_is_turned_away(stage: Stage, logs) -> None:
    listed = revoking(stage, AUTHORITY.revocation_list(AUTHORITY.issue("another")))
    stage.bookie_settings |= {"tlsClientAuthentication": "true", "tlsRevocationListPath": listed}
    stage.client_settings["tlsClientAuthentication"] = "true"
    assert stage.connect().is_greeted
    listed.write_bytes(AUTHORITY.revocation_list(CLIENT))
    tls = stage.serving.server.access.tls
    assert tls is not None
    assert tls.reload()
    assert "it reports that our certificate has been revoked" in stage.refused()
    assert [line for line in logs if "no TLS: its certificate (CN=client) has been revoked" in line]


def test_a_bookie_whose_certificate_is_revoked_is_not_talked_to(stage: Stage) -> None:
    listed = revoking(stage, AUTHORITY.revocation_list(BOOKIE))
    assert "has been revoked" in stage.refused(tlsRevocationListPath=listed)


@pytest.mark.parametrize(
    ("text", "why"),
    [
        (AUTHORITY.revocation_list(days=-1), "revocation list of its authority is out of date"),
        (Authority("another").revocation_list(), "there is no revocation list of its authority"),
    ],
)
def test_without_a_list_that_holds_nobody_is_trusted(stage: Stage, text: bytes, why: str) -> None:
    assert why in stage.refused(tlsRevocationListPath=revoking(stage, text))


def test_a_list_that_is_none_is_refused(stage: Stage) -> None:
    stage.client_settings["tlsRevocationListPath"] = revoking(stage, b"nothing")
    with pytest.raises(SecurityError, match=r"tlsRevocationListPath: .* holds no revocation list"):
        stage.greeting()


def test_a_bookie_without_tls_is_named(stage: Stage) -> None:
    greeting = stage.greeting()
    failure = Connection(stage, greeting, ProtocolVersion.V3).failure
    assert isinstance(failure, SecurityError)
    assert "does not offer TLS (it answered EBADREQ)" in str(failure)


def test_versions_that_do_not_meet_are_named(stage: Stage) -> None:
    stage.bookie_settings["tlsEnabledProtocols"] = "TLSv1.3"
    failure = stage.refused(tlsEnabledProtocols="TLSv1.2")
    assert failure.endswith("both ends share no TLS version")


def test_a_suite_by_javas_name_is_the_one_that_is_spoken(stage: Stage) -> None:
    stage.client_settings["tlsEnabledCipherSuites"] = "TLS_ECDHE_ECDSA_WITH_AES_128_GCM_SHA256"
    connection = stage.connect()
    assert connection.is_greeted
    end = connection.channel._tls_end
    assert end is not None
    assert end.version == "TLSv1.2 ECDHE-ECDSA-AES128-GCM-SHA256"


def test_suites_that_do_not_meet_are_named(stage: Stage) -> None:
    stage.bookie_settings["tlsEnabledCipherSuites"] = "TLS_ECDHE_ECDSA_WITH_AES_128_GCM_SHA256"
    failure = stage.refused(tlsEnabledCipherSuites="TLS_ECDHE_ECDSA_WITH_AES_256_GCM_SHA384")
    assert "both ends share no TLS version" in failure


def test_a_handshake_that_does_not_end_is_given_up_on_both_sides(stage: Stage) -> None:
    connection = stage.connect()
    del connection
    channel = BookieChannel(stage.clock, BookieId("b1"))
    server = stage.serving.server.buildProtocol(None)
    assert server is not None
    link = Link(channel, server)
    found: list[Any] = []
    Deferred.fromCoroutine(stage.greeting().say(channel, "b")).addBoth(found.append)
    server.dataReceived(link.client.value())
    link.client.clear()
    channel.dataReceived(link.server.value())
    stage.clock.advance(10)
    assert isinstance(found[0].value, RequestTimeoutError)
    assert not link.server.is_aborted
    stage.clock.advance(HANDSHAKE_S)
    assert link.server.is_aborted


def start_tls() -> bytes:
    return v3.encode_request(StartTlsRequest(), 1)


def test_an_auth_message_in_clear_behind_start_tls_is_answered_in_tls(stage: Stage) -> None:
    # Java's client sends it so, before it knows the answer to START_TLS.
    for is_whole in (True, False):
        server = stage.serving.server
        server.access = attrs.evolve(server.access, tls=stage.contexts())
        client = stage.serving.connect(ProtocolVersion.V3)
        auth = v3.encode_request(AuthRequest("sasl", b""), 2)
        for data in [start_tls() + auth] if is_whole else [start_tls(), auth[:7], auth[7:]]:
            client.send(data)
        (agreed,) = client.answers()
        assert agreed.rc is ReturnCode.EOK
        assert client.receive() == b"", "held back until TLS is there"
        assert not client.is_closed


def test_only_one_such_message_is_taken(stage: Stage) -> None:
    stage.set_up()
    client = stage.serving.connect(ProtocolVersion.V3)
    auth = v3.encode_request(AuthRequest("sasl", b""), 2)
    client.send(start_tls() + auth + auth)
    assert client.is_closed
    assert stage.stats.tls_failures == 1


@pytest.mark.parametrize("request_", [add(), ReadRequest(L, E), StartTlsRequest()])
@pytest.mark.parametrize("protocol", list(ProtocolVersion))
def test_any_other_request_in_clear_behind_start_tls_closes(
    stage, logs, protocol, request_
) -> None:
    # It might have been put there by somebody on the way, to be taken for the client's own.
    server = stage.serving.server
    server.access = attrs.evolve(server.access, tls=stage.contexts())
    client = stage.serving.connect(protocol)
    is_v2 = protocol is ProtocolVersion.V2 and not isinstance(request_, StartTlsRequest)
    behind = v2.encode_request(request_) if is_v2 else v3.encode_request(request_, 2)
    client.send(start_tls() + behind)
    assert client.is_closed
    assert (stage.stats.packets_received, stage.stats.tls_failures) == (1, 1)
    said = [line for line in logs if "refused" in line]
    assert said == ["refused 192.168.1.1: no TLS: a request without TLS after START_TLS"]


def test_start_tls_within_tls_closes(stage: Stage, logs: list[str]) -> None:
    connection = stage.connect()
    connection.channel.request(StartTlsRequest()).addErrback(lambda _: None)
    connection.link.settle()
    assert connection.link.is_closed
    assert stage.stats.tls_failures == 1
    assert [line for line in logs if line.endswith("no TLS: START_TLS twice")]


def test_tls_without_start_tls_is_told_what_is_missing(stage: Stage, logs: list[str]) -> None:
    client = stage.serving.connect()
    client.send(b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03")
    assert client.is_closed
    assert [line for line in logs if "TLS where a frame must be; START_TLS comes first" in line]


def test_clear_text_is_still_served_beside_tls(stage: Stage) -> None:
    stage.connect()
    assert stage.serving.connect().ask(add()).rc is ReturnCode.EOK


def serial(connection: Connection) -> int:
    end = connection.channel._tls_end
    assert end is not None
    certificate = end.peer_certificate()
    assert certificate is not None
    return certificate.serial_number


def renewed(stage: Stage) -> Issued:
    own = AUTHORITY.issue("bookie", hosts=["bookie.example"])
    write_pem(stage.bookie_pem.key.parent, own, AUTHORITY)
    return own


def test_a_new_certificate_is_shown_when_told_so_and_old_connections_stay(stage: Stage) -> None:
    old = stage.connect()
    own = renewed(stage)
    assert serial(stage.connect()) == BOOKIE.certificate.serial_number
    assert stage.serving.server.access.tls is not None
    assert stage.serving.server.access.tls.reload()
    assert serial(stage.connect()) == own.certificate.serial_number
    assert old.ask(add()).rc is ReturnCode.EOK


def test_files_are_looked_at_as_often_as_told(stage: Stage) -> None:
    stage.bookie_settings["tlsCertFilesRefreshDurationSeconds"] = 60
    stage.connect()
    own = renewed(stage)
    stage.clock.advance(59)
    assert serial(stage.connect()) == BOOKIE.certificate.serial_number
    stage.clock.advance(1)
    assert serial(stage.connect()) == own.certificate.serial_number


def test_files_that_cannot_be_used_leave_the_old_certificate(stage: Stage, logs) -> None:
    stage.connect()
    stage.bookie_pem.key.write_bytes(CLIENT.key_pem())
    assert stage.serving.server.access.tls is not None
    assert not stage.serving.server.access.tls.reload()
    assert [line for line in logs if "does not belong to the first certificate" in line]
    assert stage.connect().is_greeted


def test_a_certificate_near_its_end_is_warned_about(stage: Stage, logs: list[str]) -> None:
    own = AUTHORITY.issue("bookie", days=7)
    write_pem(stage.bookie_pem.key.parent, own, AUTHORITY)
    stage.contexts()
    end = own.certificate.not_valid_after_utc.date().isoformat()
    assert [line for line in logs if "CN=bookie ends at" in line and end in line]


def test_a_batch_in_tls_has_the_bytes_that_it_has_in_clear(stage: Stage) -> None:
    connection, plain = stage.connect(ProtocolVersion.V2), stage.serving.connect()
    for entries in (range(400), range(400, 600)):
        stage.serving.flush()  # The second part stays in memory.
        adds = [
            AddRequest(L, EntryId(one), KEY, packet(L, one, payload=b"x" * (one * 37 % 5000)))
            for one in entries
        ]
        plain.send(b"".join(map(v2.encode_request, adds)))
        plain.receive()
    seen = bytearray()
    connection.channel.dataReceived = seen.extend  # type: ignore[method-assign,assignment]
    for first, count, stride in ((0, 0, 1), (390, 20, 1), (599, 5, 1), (1, 0, 3), (600, 1, 1)):
        frame = v2.encode_request(
            BatchReadRequest(L, EntryId(first), 7, count, 4 << 20, stride=stride)
        )
        seen.clear()
        connection.channel.transport.write(frame)
        connection.link.settle()
        stage.serving.take_turns()
        connection.link.settle()
        plain.send(frame)
        assert bytes(seen) == plain.receive() != b""


def test_one_handshake_begins_at_a_time(stage: Stage) -> None:
    stage.set_up()
    begun: list[object] = []
    for _ in range(5):
        client = stage.serving.connect(ProtocolVersion.V3)
        client.transport.startTLS = lambda end, _: begun.append(end)
        client.transport.protocol = Protocol()
        client.connection.dataReceived(start_tls())
        client.connection.dataReceived(b"\x16\x03\x01")
    for number in range(1, 6):
        stage.serving.clock.advance(0 if number == 1 else HANDSHAKE_GAP_S)
        assert len(begun) == number
