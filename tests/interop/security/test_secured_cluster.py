"""One cluster with everything closed, made as docs/security.md says: TLS, names and ZooKeeper.

Bookies of both kinds, ours not in clear at all. bkctl asks both, also over HTTP in TLS; the auditor
and the worker of either kind mend what the other's bookies hold.
"""

from __future__ import annotations

import re
import socket
import subprocess
import sys
from collections.abc import Iterator
from functools import partial
from pathlib import Path
from typing import Any

import attrs
import pytest

from bkclient.client import Client
from bkclient.config.client import ClientConfig
from bkclient.config.properties import parse_properties
from bkclient.config.settings import load
from bkclient.metadata.store_settings import store_options
from bkctl.commands.local.child_process import ChildProcess
from bkctl.commands.local.ports import free_port
from tests.interop.peers.admin import JavaAdminBookie
from tests.interop.peers.both_shells import bkctl
from tests.interop.peers.java_client import PATIENT
from tests.interop.peers.jvm import FAST_JVM, java_command
from tests.interop.peers.our_bookie import our_bookie
from tests.interop.peers.peers import JavaBookie, Peers, write_conf
from tests.interop.security.test_zookeeper_security import (
    SaslZooKeeper,
    acl_of,
    exported,
    require_closed,
)
from tests.support.certificates import PASSWORD, Authority
from tests.support.child_processes import until_child
from tests.support.reactor import run, the_reactor
from tests.support.waiting import until
from wire.ids import LedgerId

MANUAL = Path(__file__).parents[3] / "docs" / "security.md"
ENTRIES = [b"entry %d" % i * 50 for i in range(300)]
HEALED_S = 120.0


def blocks(kind: str) -> list[str]:
    """Return what the manual has to be typed or copied."""
    return re.findall(rf"```{kind}\n(.*?)```", MANUAL.read_text(encoding="utf-8"), re.DOTALL)


@attrs.frozen
class Closed:
    """The cluster, and the files of its operators."""

    peers: Peers
    uri: str
    directory: Path
    zk_login: dict[str, Any]
    java_options: tuple[str, ...]

    def settings(self, *ini: str, **more: object) -> dict[str, object]:
        """Return settings as the manual gives them, with our paths."""
        lines = "\n".join(ini).replace("/etc/bookkeeper", str(self.directory))
        lines = lines.replace("bookie1.example.org", "localhost")
        found = {prop.key: prop.values[0].text for prop in parse_properties(lines).entries.values()}
        return {"metadataServiceUri": self.uri, "zkEnableSecurity": "true", **found, **more}

    @property
    def bookie_settings(self) -> dict[str, object]:
        """Return what a bookie and the autorecovery beside it are told."""
        tls_bookie, tls_client, names = blocks("ini")
        # Where one file serves both ends, the client's end shows the bookie's key.
        checks = "tlsHostnameVerificationEnabled=true\n"
        assert checks in tls_client
        return self.settings(
            tls_bookie,
            checks,
            names,
            advertisedAddress="localhost",
            allowLoopback="true",
            tlsProvider="JDK",
        )

    @property
    def client_conf(self) -> Path:
        path = self.directory / "client.conf"
        _, tls, names = blocks("ini")
        waits = {key: PATIENT[key] for key in ("readTimeout", "zkTimeout")}
        write_conf(path, self.settings(tls, "#" + names.partition("# clients")[2], **waits))
        return path

    def ours(self, name: str, **more: object) -> JavaBookie:
        told = {**self.bookie_settings, "bookieId": name, "tlsRequired": "true", **more}
        return our_bookie(self.peers, self.uri, zk_login=self.zk_login, **told)

    def java(self, name: str, **more: object) -> JavaBookie:
        bookie = JavaAdminBookie(
            self.uri,
            self.peers.new_directory(name),
            zk_login=self.zk_login,
            jvm_options=(*self.java_options, "-Xmx256m", "-XX:MaxDirectMemorySize=128m"),
            **{**self.bookie_settings, "bookieId": name, **more},
        )
        self.peers.on_close(bookie.kill)
        return bookie.start()

    def autorecovery(self, kind: str) -> ChildProcess:
        directory = self.peers.new_directory(f"{kind}-autorecovery")
        conf = directory / "bk_server.conf"
        write_conf(conf, {**self.bookie_settings, "bookiePort": free_port(), "zkTimeout": 20_000})
        if kind == "ours":
            command = [sys.executable, "-m", "bookied", "autorecovery", "--conf", str(conf)]
        else:
            main = ["org.apache.bookkeeper.replication.AutoRecoveryMain", "--conf", str(conf)]
            command = java_command(directory, [*self.java_options, "-Xmx256m"], main)
        process = ChildProcess(command, directory / "log")
        self.peers.on_close(lambda: process.stop(20))
        return process

    def client(self) -> Client:
        text = self.client_conf.read_text()
        config, findings = load(ClientConfig, parse_properties(text))
        assert findings == ()
        client = run(Client.connect(config, reactor=the_reactor()))
        self.peers.on_close(lambda: run(client.close()))
        return client


@pytest.fixture(scope="module")
def cluster(java_vm: Any, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Closed]:
    directory = tmp_path_factory.mktemp("closed")
    (recipe,) = [each for each in blocks("sh") if "bookie1.example.org" in each]
    script = recipe.replace("bookie1.example.org", "localhost")
    subprocess.run(["sh", "-euc", script], cwd=directory, check=True, capture_output=True)
    bookkeeper, zookeeper = blocks("text")
    server, client = zookeeper.split("Client {")
    (directory / "jaas.conf").write_text(f"{bookkeeper}Client {{{client}")
    (directory / "server").mkdir()
    (directory / "server" / "jaas.conf").write_text(server)
    told = (
        f"-Djava.security.auth.login.config={directory / 'jaas.conf'}",
        "-Dzookeeper.fips-mode=false",
    )
    with SaslZooKeeper(directory / "server", tick_ms=1500, fsync=False, heap_mb=192) as running:
        peers = Peers(running, java_vm, directory)
        uri = peers.metadata_uri(initialised=False)
        jaas = {"saslJaasConfigFile": directory / "jaas.conf", "zkEnableSecurity": "true"}
        write_conf(directory / "admin.conf", {"metadataServiceUri": uri, **jaas})
        bkctl("-c", directory / "admin.conf", "cluster", "init", "--yes")
        options = store_options(
            load(ClientConfig, parse_properties((directory / "admin.conf").read_text()))[0], uri
        )
        login = {"sasl_options": options["sasl_options"]}
        yield Closed(peers, uri, directory, login, (*FAST_JVM, *told))
        peers.close()


async def write(client: Client) -> LedgerId:
    writer = await client.create_ledger(ensemble_size=2, write_quorum=2, ack_quorum=2)
    await writer.add_many(ENTRIES)
    await writer.close()
    return writer.ledger_id


def test_either_kind_mends_what_the_others_bookies_hold(cluster: Closed) -> None:
    java, ours = cluster.java("java1"), cluster.ours("ours1")
    client = cluster.client()
    ledger_id = run(write(client))
    conf = cluster.client_conf
    read = bkctl("-c", conf, "ledger", "read", ledger_id, "--raw")
    assert read.out.encode() == b"".join(ENTRIES)
    for name in ("java1", "ours1"):
        # Of one bookie alone: it has every entry.
        shown = bkctl("-c", conf, "ledger", "read", ledger_id, "--raw", "--bookie", name)
        assert shown.out.encode() == b"".join(ENTRIES)
    told = load(ClientConfig, parse_properties(conf.read_text()))[0]
    assert exported(cluster.uri, told, ledger_id) == ENTRIES
    require_closed(cluster.uri)
    for path in ("/LAYOUT", "/cookies/java1", "/cookies/ours1"):
        assert acl_of(cluster.uri, path, **cluster.zk_login) == [("sasl", "bookkeeper")]

    def mended_by(kind: str, expected: set[str]) -> None:
        process = cluster.autorecovery(kind)

        def is_so() -> bool:
            return set(run(client.read_metadata(ledger_id)).value.all_bookies()) == expected

        until_child(process, is_so, timeout_s=HEALED_S)
        process.stop(20)

    cluster.ours("ours2")
    java.stop()
    mended_by("java", {"ours1", "ours2"})
    java = cluster.java("java2")
    ours.stop()
    mended_by("ours", {"java2", "ours2"})
    assert bkctl("-c", conf, "ledger", "read", ledger_id, "--raw").out == read.out


def is_listening(port: int) -> bool:
    with socket.socket() as sock:
        return sock.connect_ex(("127.0.0.1", port)) == 0


def test_http_of_a_java_bookie_is_asked_in_tls_too(cluster: Closed) -> None:
    authority, port = Authority(), free_port()
    store = cluster.directory / "http.p12"
    trust = cluster.directory / "http-trust.p12"
    store.write_bytes(authority.issue("localhost").pkcs12())
    trust.write_bytes(authority.pkcs12())
    bookie = cluster.java(
        "java3",
        httpServerEnabled="true",
        httpServerPort=port,
        httpServerHost="127.0.0.1",
        httpServerClass="org.apache.bookkeeper.http.vertx.VertxHttpServer",
        httpServerTlsEnable="true",
        httpServerKeyStorePath=store,
        httpServerKeyStorePassword=PASSWORD.decode(),
        httpServerTrustStorePath=trust,
        httpServerTrustStorePassword=PASSWORD.decode(),
    )
    until(partial(is_listening, port), bookie.log.read_text, timeout_s=HEALED_S)
    java3 = ["java3", "--http", f"https://localhost:{port}", "-o", "json"]
    stranger = bkctl("-c", cluster.client_conf, "bookie", "state", *java3, ok=False)
    assert stranger.status != 0
    assert "comes from an authority that is not trusted" in stranger.err
    password = cluster.directory / "password"
    password.write_bytes(PASSWORD)
    told = {
        "clientKeyStoreType": "PKCS12",
        "clientKeyStore": store,
        "clientKeyStorePasswordPath": password,
        "clientTrustStoreType": "PKCS12",
        "clientTrustStore": trust,
        "clientTrustStorePasswordPath": password,
    }
    options = [word for key, value in told.items() for word in ("-X", f"{key}={value}")]

    def asked(*words: str) -> str:
        return bkctl("-c", cluster.client_conf, *options, "bookie", *words, "--yes").out

    assert '"writable"' in asked("state", *java3)
    asked("readonly", *java3[:1], "on", *java3[1:])
    assert '"read-only"' in asked("state", *java3)
