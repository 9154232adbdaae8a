"""TLS and authentication with Java peers, both ways: our bookie and Java's client, and the reverse.

Every test has one bookie, ours or Java's, of which clients of both kinds want something.
"""

from __future__ import annotations

import os
import signal
from pathlib import Path
from typing import Any

import attrs
import pytest

from bkclient.client import Client
from bkclient.config.client import ClientConfig
from bkclient.config.properties import parse_properties
from bkclient.config.settings import load
from bkclient.errors import ClientUnauthorizedError, RequestTimeoutError, SecurityError
from bookied.config.bookie import BookieConfig
from tests.interop.peers.both_shells import bkctl
from tests.interop.peers.java_client import PATIENT, JavaClient
from tests.interop.peers.jvm import FAST_JVM, JavaVM
from tests.interop.peers.our_bookie import our_bookie
from tests.interop.peers.peers import JavaBookie, JavaError, Peers, write_conf
from tests.support.certificates import (
    PASSWORD,
    Authority,
    Issued,
    Pem,
    bookie_keys,
    client_keys,
    write_pem,
)
from tests.support.keytool import key_store, trust_store
from tests.support.reactor import run, the_reactor
from tests.support.waiting import until
from wire.codes import BookieInfoFlag
from wire.ids import BookieId, LedgerId
from wire.messages import BookieInfoRequest

ENTRIES = [b"entry %d" % i * 50 for i in range(300)]


@attrs.frozen
class Stage:
    """One bookie that speaks TLS and wants certificates, and what clients of it need."""

    peers: Peers
    uri: str
    bookie: JavaBookie
    authority: Authority
    bookie_pem: Pem
    pem: Pem

    def keys(self, **more: object) -> dict[str, object]:
        return client_keys(self.pem, **{"tlsClientAuthentication": "true", **more})

    def ours(self, *, v2: bool = False, **more: object) -> Client:
        keys = self.keys(useV2WireProtocol=v2, **more)
        text = {**PATIENT, "metadataServiceUri": self.uri, **keys}
        lines = "".join(f"{key}={value}\n" for key, value in text.items())
        config, _ = load(ClientConfig, parse_properties(lines))
        client = run(Client.connect(config, reactor=the_reactor()))
        self.peers.on_close(lambda: run(client.close()))
        return client

    def java(self, *, v2: bool = False, **more: object) -> Any:
        keys = {key: str(value) for key, value in self.keys(**more).items()}
        return self.peers.java_client(self.uri, v2=v2, **keys)


@pytest.fixture(scope="module", params=["ours", "java"])
def stage(request, module_peers: Peers) -> Stage:
    peers = module_peers
    directory = peers.new_directory("keys")
    authority = Authority()
    pem = write_pem(directory / "client", authority.issue("client", unit="0:writers"), authority)
    bookie_pem = write_pem(directory / "bookie", authority.issue("bookie"), authority)
    # Java's bookie passes over the last.
    keys = bookie_keys(bookie_pem, tlsClientAuthentication="true", tlsRequired="true")
    uri = peers.metadata_uri()
    make = our_bookie if request.param == "ours" else Peers.java_bookie
    bookie = make(peers, uri, **keys)
    return Stage(peers, uri, bookie, authority, bookie_pem, pem)


def written_and_read(writer: Any, reader: Any) -> None:
    ledger = writer.create_ledger(1, 1, 1, password=b"pw")
    ledger.add_many(ENTRIES)
    ledger.close()
    opened = reader.open_ledger(ledger.ledger_id, password=b"pw")
    assert opened.read(0, len(ENTRIES) - 1) == ENTRIES


async def written_by(client: Client) -> LedgerId:
    writer = await client.create_ledger(ensemble_size=1, write_quorum=1, ack_quorum=1)
    await writer.add_many(ENTRIES)
    await writer.close()
    return writer.ledger_id


async def written_by_us(client: Client) -> list[bytes]:
    """Return what can be read of entries that were just written."""
    reader = await client.open_ledger(await written_by(client))
    found = [entry.payload async for entry in reader.read()]
    reader.close()
    return found


def test_javas_client_speaks_tls_in_both_protocols(stage: Stage) -> None:
    clients = [stage.java(), stage.java(v2=True)]
    for writer, reader in (clients, clients[::-1]):
        written_and_read(writer, reader)


@pytest.mark.parametrize("v2", [False, True])
def test_our_client_speaks_tls_in_both_protocols(stage: Stage, v2: bool) -> None:  # noqa: FBT001
    client = stage.ours(v2=v2, tlsHostnameVerificationEnabled="true")
    assert run(written_by_us(client)) == ENTRIES


def refused(stage: Stage, **keys: object) -> str:
    """Return why our client cannot ask the bookie anything."""
    pool = stage.ours(**keys).cluster.pool
    request = BookieInfoRequest(BookieInfoFlag.FREE_DISK_SPACE)

    async def asked() -> Any:
        return await pool.send(BookieId(stage.bookie.bookie_id), request)

    with pytest.raises(SecurityError) as caught:
        run(asked())
    return str(caught.value)


def test_a_client_without_a_certificate_is_turned_away(stage: Stage) -> None:
    with pytest.raises(JavaError):
        stage.java(tlsClientAuthentication="false").create_ledger(1, 1, 1).add(b"entry")
    assert "tlsKeyStore names none" in refused(stage, tlsClientAuthentication="false")


def test_a_client_that_does_not_trust_the_bookie_says_so(stage: Stage) -> None:
    other = Authority("another")
    pem = write_pem(stage.peers.new_directory("other"), other.issue("client"), other)
    assert "an authority that is not trusted" in refused(stage, clientTrustStore=pem.trust)


def stores_of(
    directory: Path, kind: str, own: Issued, trusted: Authority, prefix: str
) -> dict[str, object]:
    """Return the settings of one end whose key and trust are in stores made by keytool."""
    directory.mkdir(exist_ok=True)
    password = directory / "password"
    password.write_bytes(PASSWORD)
    return {
        f"{prefix}KeyStoreType": kind,
        f"{prefix}KeyStore": key_store(directory / "key", kind, own),
        f"{prefix}KeyStorePasswordPath": password,
        f"{prefix}TrustStoreType": kind,
        f"{prefix}TrustStore": trust_store(directory / "trust", kind, trusted),
        f"{prefix}TrustStorePasswordPath": password,
    }


@pytest.mark.parametrize("kind", ["PKCS12", "JKS"])
def test_keytools_stores_serve_both_clients(stage: Stage, kind: str) -> None:
    directory, own = stage.peers.new_directory("stores"), stage.authority.issue("client")
    keys = stores_of(directory, kind, own, stage.authority, "client")
    written_and_read(stage.java(**keys), stage.java(**keys))
    assert run(written_by_us(stage.ours(**keys))) == ENTRIES


@pytest.mark.parametrize("kind", ["PKCS12", "JKS"])
def test_a_bookie_of_ours_serves_javas_client_from_keytools_stores(
    module_peers: Peers, kind: str
) -> None:
    authority, directory = Authority(), module_peers.new_directory("stores")
    uri = module_peers.metadata_uri()
    keys = stores_of(directory / "bookie", kind, authority.issue("bookie"), authority, "tls")
    our_bookie(
        module_peers,
        uri,
        tlsProviderFactoryClass="org.apache.bookkeeper.tls.TLSContextFactory",
        tlsClientAuthentication="true",
        tlsRequired="true",
        **keys,
    )
    pem = write_pem(directory / "pem", authority.issue("client"), authority)
    stores = stores_of(directory / "client", kind, authority.issue("client"), authority, "client")
    found = client_keys(pem, tlsClientAuthentication="true", **stores)
    client = module_peers.java_client(uri, **{key: str(value) for key, value in found.items()})
    written_and_read(client, client)


def test_version_and_suite_are_those_asked_for_by_javas_names(stage: Stage) -> None:
    suite = "TLS_ECDHE_ECDSA_WITH_AES_128_GCM_SHA256"
    keys = {"tlsEnabledProtocols": "TLSv1.2", "tlsEnabledCipherSuites": suite}
    client = stage.ours(**keys)
    assert run(written_by_us(client)) == ENTRIES
    java = stage.java(**keys)
    written_and_read(java, java)

    async def spoken() -> str:
        channel = await client.cluster.pool.channel(BookieId(stage.bookie.bookie_id), LedgerId(0))
        assert channel._tls_end is not None
        return channel._tls_end.version

    assert run(spoken()) == "TLSv1.2 ECDHE-ECDSA-AES128-GCM-SHA256"


@pytest.mark.parametrize("stage", ["ours"], indirect=True)  # Java's looks by the clock alone.
def test_a_new_certificate_is_shown_after_sighup(stage: Stage) -> None:
    other = Authority("the next")
    write_pem(stage.bookie_pem.key.parent, other.issue("bookie"), stage.authority)
    os.kill(stage.bookie.pid, signal.SIGHUP)
    until(lambda: "TLS files read again" in stage.bookie.log.read_text())
    assert "an authority that is not trusted" in refused(stage)


# Names and passwords

JAAS = """
Bookie {{
    org.apache.zookeeper.server.auth.DigestLoginModule required
    user_bookkeeper="{password}";
}};
BookKeeper {{
    org.apache.zookeeper.server.auth.DigestLoginModule required
    username="bookkeeper"
    password="{password}";
}};
Auditor {{
    org.apache.zookeeper.server.auth.DigestLoginModule required
    username="bookkeeper"
    password="{password}";
}};
"""
PACKAGE = "org.apache.bookkeeper"


@attrs.frozen
class Guarded:
    """One bookie that wants names and passwords and offers TLS, and what clients of it need."""

    peers: Peers
    uri: str
    bookie: JavaBookie
    vm: JavaVM
    jaas: Path
    tls: dict[str, object]

    def keys(self, *, tls: bool, **more: object) -> dict[str, object]:
        return {
            "clientAuthProviderFactoryClass": f"{PACKAGE}.sasl.SASLClientProviderFactory",
            "saslJaasConfigFile": self.jaas,
            **(self.tls if tls else {}),
            **more,
        }

    def ours(self, *, v2: bool, tls: bool, **more: object) -> Client:
        keys = self.keys(tls=tls, useV2WireProtocol=v2, **more)
        text = {**PATIENT, "metadataServiceUri": self.uri, **keys}
        lines = "".join(f"{key}={value}\n" for key, value in text.items())
        config, _ = load(ClientConfig, parse_properties(lines))
        client = run(Client.connect(config, reactor=the_reactor()))
        self.peers.on_close(lambda: run(client.close()))
        return client

    def java(self, *, v2: bool, tls: bool, named: bool = True) -> JavaClient:
        factory = f"{PACKAGE}.sasl.SASLClientProviderFactory"
        auth = {"clientAuthProviderFactoryClass": factory} if named else {}
        keys = {key: str(value) for key, value in (self.tls if tls else {}).items()}
        client = JavaClient(self.vm, self.uri, v2=v2, **auth, **keys)
        self.peers.on_close(client.close)
        return client


@pytest.fixture(scope="module", params=["ours", "java"])
def guarded(request, module_peers: Peers) -> Guarded:
    peers = module_peers
    directory = peers.new_directory("guarded")
    authority = Authority()
    pem = write_pem(directory / "client", authority.issue("client"), authority)
    bookie_pem = write_pem(directory / "bookie", authority.issue("bookie"), authority)
    jaas = directory / "jaas.conf"
    jaas.write_text(JAAS.format(password="a password"))
    told = f"-Djava.security.auth.login.config={jaas}"
    keys = {
        **bookie_keys(bookie_pem),
        "bookieAuthProviderFactoryClass": f"{PACKAGE}.sasl.SASLBookieAuthProviderFactory",
    }
    uri = peers.metadata_uri()
    if request.param == "ours":
        bookie: JavaBookie = our_bookie(peers, uri, saslJaasConfigFile=jaas, **keys)
    else:
        options = (*FAST_JVM, "-Xmx256m", told)
        bookie = peers.java_bookie(uri, jvm_options=options, **keys)
    vm = peers.java_vm(jvm_options=(*FAST_JVM, told))
    return Guarded(peers, uri, bookie, vm, jaas, client_keys(pem))


@pytest.mark.parametrize(("v2", "tls"), [(False, False), (True, False), (False, True)])
def test_javas_client_shows_who_it_is(guarded: Guarded, v2: bool, tls: bool) -> None:  # noqa: FBT001
    # In V2 with TLS Java's client cannot speak with Java's bookie; see the next test.
    client = guarded.java(v2=v2, tls=tls)
    written_and_read(client, client)


def test_javas_client_in_v2_and_tls_can_speak_with_our_bookie(guarded: Guarded) -> None:
    client = guarded.java(v2=True, tls=True)
    if type(guarded.bookie) is JavaBookie:
        with pytest.raises(JavaError):
            written_and_read(client, client)
        return
    try:
        written_and_read(client, client)
    except JavaError:
        # Now and then Java's client does not begin with SASL's empty token then.
        assert "the first token is not empty" in guarded.bookie.log.read_text()
        client = guarded.java(v2=True, tls=True)
        written_and_read(client, client)


@pytest.mark.parametrize("v2", [False, True])
@pytest.mark.parametrize("tls", [False, True])
def test_our_client_shows_who_it_is(guarded: Guarded, v2: bool, tls: bool) -> None:  # noqa: FBT001
    assert run(written_by_us(guarded.ours(v2=v2, tls=tls))) == ENTRIES


def test_a_client_without_a_name_may_do_nothing(guarded: Guarded) -> None:
    with pytest.raises(JavaError):
        guarded.java(v2=False, tls=False, named=False).create_ledger(1, 1, 1).add(b"entry")
    client = guarded.ours(v2=False, tls=False, clientAuthProviderFactoryClass="")
    with pytest.raises(ClientUnauthorizedError):
        run(written_by_us(client))


def test_a_wrong_password_is_refused(guarded: Guarded) -> None:
    wrong = guarded.jaas.with_name("wrong.conf")
    wrong.write_text(JAAS.format(password="another"))
    client = guarded.ours(v2=False, tls=False, saslJaasConfigFile=wrong)
    request = BookieInfoRequest(BookieInfoFlag.FREE_DISK_SPACE)

    async def asked() -> Any:
        return await client.cluster.pool.send(BookieId(guarded.bookie.bookie_id), request)

    # Java's bookie leaves us without an answer.
    is_java = type(guarded.bookie) is JavaBookie
    with pytest.raises(RequestTimeoutError if is_java else ClientUnauthorizedError) as caught:
        run(asked())
    assert "rejects user 'bookkeeper'" in str(caught.value)
    if not is_java:
        log = guarded.bookie.log.read_text()
        told = log.count("user 'bookkeeper' is unknown, or the password is wrong")
        # Ways to fail an exchange share their turns in the log: ten seconds for each.
        assert told == (0 if "the first token is not empty" in log else 1)


def test_bkctl_is_let_in_by_x_keys_and_by_a_settings_file(guarded: Guarded) -> None:
    keys = guarded.keys(tls=True)
    ledger_id = run(written_by(guarded.ours(v2=False, tls=True)))
    options = [word for key, value in keys.items() for word in ("-X", f"{key}={value}")]
    listed = bkctl("-u", guarded.uri, *options, "ledger", "read", ledger_id, "--raw")
    assert listed.out.encode() == b"".join(ENTRIES)
    conf = guarded.jaas.with_name("client.conf")
    write_conf(conf, {"metadataServiceUri": guarded.uri, **keys})
    assert bkctl("-c", conf, "ledger", "read", ledger_id, "--raw").out == listed.out


def test_bkctl_says_why_it_is_not_let_in(guarded: Guarded) -> None:
    ledger_id = run(written_by(guarded.ours(v2=False, tls=True)))
    other = Authority("another")
    pem = write_pem(guarded.peers.new_directory("other"), other.issue("client"), other)
    keys = guarded.keys(tls=True, clientTrustStore=pem.trust)
    options = [word for key, value in keys.items() for word in ("-X", f"{key}={value}")]
    found = bkctl("-u", guarded.uri, *options, "ledger", "read", ledger_id, ok=False)
    assert found.status != 0
    assert "comes from an authority that is not trusted" in found.err


def test_autorecovery_of_a_bookie_is_let_in_by_java_and_by_ours(module_peers: Peers) -> None:
    peers = module_peers
    directory = peers.new_directory("repaired")
    authority = Authority()
    own = write_pem(directory, authority.issue("bookie"), authority)
    jaas = directory / "jaas.conf"
    jaas.write_text(JAAS.format(password="a password"))
    keys = {
        **bookie_keys(own, tlsClientAuthentication="true"),
        "bookieAuthProviderFactoryClass": f"{PACKAGE}.sasl.SASLBookieAuthProviderFactory",
        "clientAuthProviderFactoryClass": f"{PACKAGE}.sasl.SASLClientProviderFactory",
        "saslJaasConfigFile": jaas,
    }
    uri = peers.metadata_uri()
    told = f"-Djava.security.auth.login.config={jaas}"
    options = (*FAST_JVM, "-Xmx256m", told)
    bookies = [
        our_bookie(peers, uri, autoRecoveryDaemonEnabled="true", **keys),
        peers.java_bookie(uri, jvm_options=options, **keys),
    ]
    lines = "".join(
        f"{key}={value}\n" for key, value in {**PATIENT, "metadataServiceUri": uri, **keys}.items()
    )
    config, _ = load(ClientConfig, parse_properties(lines), also=(BookieConfig,))
    client = run(Client.connect(config, reactor=the_reactor()))
    peers.on_close(lambda: run(client.close()))

    async def written() -> LedgerId:
        writer = await client.create_ledger(ensemble_size=2, write_quorum=2, ack_quorum=2)
        await writer.add_many(ENTRIES)
        await writer.close()
        return writer.ledger_id

    ledger_id = run(written())
    spare = our_bookie(peers, uri, **keys)
    bookies[1].kill()
    bookies[1].forget()

    def ensemble() -> set[str]:
        return set(run(client.read_metadata(ledger_id)).value.all_bookies())

    until(
        lambda: ensemble() == {bookies[0].bookie_id, spare.bookie_id},
        lambda: bookies[0].log.read_text()[-3000:],
        timeout_s=120,
    )


# Roles


@pytest.mark.parametrize("kind", ["ours", "java"])
def test_a_role_in_the_certificate_lets_in(module_peers: Peers, kind: str) -> None:
    peers = module_peers
    authority = Authority()
    pems = {
        role: write_pem(
            peers.new_directory(role), authority.issue(role, unit=f"0:{role};1:c"), authority
        )
        for role in ("bookie", "writers", "others")
    }
    keys = bookie_keys(
        pems["bookie"],
        tlsClientAuthentication="true",
        bookieAuthProviderFactoryClass=f"{PACKAGE}.tls.BookieAuthZFactory",
        authorizedRoles="readers,writers",
    )
    uri = peers.metadata_uri()
    make = our_bookie if kind == "ours" else Peers.java_bookie
    bookie = make(peers, uri, **keys)
    stage = Stage(peers, uri, bookie, authority, pems["bookie"], pems["writers"])
    for v2 in (False, True):
        java = stage.java(v2=v2)
        written_and_read(java, java)
        assert run(written_by_us(stage.ours(v2=v2))) == ENTRIES
    stranger = attrs.evolve(stage, pem=pems["others"])
    with pytest.raises(JavaError) as caught:
        stranger.java().create_ledger(1, 1, 1).add(b"entry")
    assert caught.value.name == "BKUnauthorizedAccessException"
    with pytest.raises(ClientUnauthorizedError):
        run(written_by_us(stranger.ours()))
