"""Nodes of ZooKeeper that are for their makers only: with Java's peers by SASL, or by digest."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from kazoo.exceptions import NoAuthError

from bkclient.blocking import with_store
from bkclient.client import Client
from bkclient.config.client import ClientConfig
from bkclient.config.properties import parse_properties
from bkclient.config.settings import load
from bkclient.metadata.errors import MetadataAccessError
from bkclient.metadata.store_settings import store_options
from bkclient.metadata.tree.store import MetadataStore
from bkctl.commands.local.java import Java
from bkctl.commands.local.zookeeper import ZooKeeperProcess
from tests.interop.peers.java_client import PATIENT
from tests.interop.peers.jvm import FAST_JVM
from tests.interop.peers.our_bookie import our_bookie
from tests.interop.peers.peers import Peers, ledgers_root, zookeeper_client
from tests.support.reactor import run, the_reactor

JAAS = """
Server {{
    org.apache.zookeeper.server.auth.DigestLoginModule required
    user_bookkeeper="{password}";
}};
Client {{
    org.apache.zookeeper.server.auth.DigestLoginModule required
    username="bookkeeper"
    password="{password}";
}};
"""
ENTRIES = [b"entry %d" % i for i in range(50)]
ONE = {"ensemble_size": 1, "write_quorum": 1, "ack_quorum": 1}


def config(uri: str, **settings: object) -> ClientConfig:
    given = {**PATIENT, "metadataServiceUri": uri, "zkEnableSecurity": "true", **settings}
    lines = "".join(f"{key}={value}\n" for key, value in given.items())
    return load(ClientConfig, parse_properties(lines))[0]


def make_cluster(uri: str, settings: ClientConfig) -> None:
    async def initialized(store: MetadataStore) -> None:
        await store.initialize()

    with_store(uri, initialized, **store_options(settings, uri))


def connected(peers: Peers, settings: ClientConfig) -> Client:
    client = run(Client.connect(settings, reactor=the_reactor()))
    peers.on_close(lambda: run(client.close()))
    return client


async def written(client: Client) -> Any:
    writer = await client.create_ledger(**ONE)
    await writer.add_many(ENTRIES)
    await writer.close()
    return writer.ledger_id


async def read(client: Client, ledger_id: Any) -> list[bytes]:
    reader = await client.open_ledger(ledger_id)
    found = [entry.payload async for entry in reader.read()]
    reader.close()
    return found


def exported(uri: str, settings: ClientConfig, ledger_id: Any) -> list[bytes]:
    """Return what the tasks of an export read, without Spark: it only carries their reader."""
    cloudpickle = pytest.importorskip("pyspark.cloudpickle")
    from bkctl.commands.export.spark.datasource import LedgerSourceReader, Query
    from bkctl.commands.export.spark.source_options import parse_options

    options = parse_options({"ledgers": str(ledger_id)})
    query = Query(options, ("payload",), frozenset(), uri, settings)
    reader = cloudpickle.loads(cloudpickle.dumps(LedgerSourceReader(query)))
    batches = [batch for part in reader.partitions() for batch in reader.read(part)]
    return [payload for batch in batches for payload in batch.column("payload").to_pylist()]


def acl_of(uri: str, path: str, **login: Any) -> list[tuple[str, str]]:
    with zookeeper_client(uri, **login) as zk:
        acls, _ = zk.get_acls(f"{ledgers_root(uri)}{path}")
        return [(acl.id.scheme, acl.id.id) for acl in acls]


def require_closed(uri: str) -> None:
    with zookeeper_client(uri) as zk, pytest.raises(NoAuthError):
        zk.get(f"{ledgers_root(uri)}/LAYOUT")


def test_a_cluster_of_ours_is_closed_by_digest(peers: Peers, tmp_path: Path) -> None:
    uri = peers.metadata_uri(initialised=False)
    path = tmp_path / "digest"
    path.write_text("bookie:secret\n")
    settings = config(uri, zkDigestAuthFile=path)
    make_cluster(uri, settings)
    login = {"auth_data": [("digest", "bookie:secret")]}
    our_bookie(peers, uri, zk_login=login, zkEnableSecurity="true", zkDigestAuthFile=path)
    client = connected(peers, settings)
    ledger_id = run(written(client))
    assert run(read(client, ledger_id)) == ENTRIES
    assert exported(uri, settings, ledger_id) == ENTRIES
    require_closed(uri)
    stranger = tmp_path / "stranger"
    stranger.write_text("stranger:secret")
    with pytest.raises(MetadataAccessError, match="access denied by the ACL"):
        connected(peers, config(uri, zkDigestAuthFile=stranger))


class SaslZooKeeper(ZooKeeperProcess):
    """A server that knows the users of the JAAS file beside it."""

    def start(self, timeout_s: float = 60.0) -> None:
        super().start(timeout_s)

    def _command(self, java: Java, jars: Path) -> list[str]:
        program, *rest = super()._command(java, jars)
        provider = "org.apache.zookeeper.server.auth.SASLAuthenticationProvider"
        return [
            program,
            f"-Djava.security.auth.login.config={self.directory / 'jaas.conf'}",
            f"-Dzookeeper.authProvider.1={provider}",
            *rest,
        ]


@pytest.fixture
def sasl_peers(java_vm: Any, jars: Any, tmp_path: Path) -> Iterator[Peers]:
    """Peers on a ZooKeeper of their own, with a JVM whose clients log in there."""
    directory = tmp_path / "zookeeper"
    directory.mkdir()
    (directory / "jaas.conf").write_text(JAAS.format(password="a password"))
    with SaslZooKeeper(directory, tick_ms=1500, fsync=False, heap_mb=192) as server:
        stage = Peers(server, java_vm, tmp_path)
        told = f"-Djava.security.auth.login.config={directory / 'jaas.conf'}"
        # ZooKeeper's own client leaves DIGEST-MD5 out unless it is told so.
        stage.vm = stage.java_vm(jvm_options=(*FAST_JVM, told, "-Dzookeeper.fips-mode=false"))
        yield stage
        stage.close()


def test_a_cluster_is_shared_with_javas_peers_by_sasl(sasl_peers: Peers) -> None:
    peers, jaas = sasl_peers, sasl_peers.zookeeper.directory / "jaas.conf"
    uri = peers.metadata_uri(initialised=False)
    vm = peers.vm
    configuration = vm.bookkeeper.conf.ServerConfiguration()
    configuration.setMetadataServiceUri(uri)
    configuration.setZkEnableSecurity(True)
    assert vm.call(vm.bookkeeper.client.BookKeeperAdmin.initNewCluster, configuration)
    options = store_options(config(uri, saslJaasConfigFile=jaas), uri)
    login = {"sasl_options": options["sasl_options"]}
    assert acl_of(uri, "/LAYOUT", **login) == [("sasl", "bookkeeper")]

    bookie = our_bookie(
        peers,
        uri,
        zk_login=login,
        zkEnableSecurity="true",
        saslJaasConfigFile=jaas,
    )
    client = connected(peers, config(uri, saslJaasConfigFile=jaas))
    java = peers.java_client(uri, zkEnableSecurity="true")
    ours = run(written(client))
    assert java.open_ledger(ours).read(0, len(ENTRIES) - 1) == ENTRIES
    ledger = java.create_ledger(1, 1, 1)
    ledger.add_many(ENTRIES)
    ledger.close()
    assert run(read(client, ledger.ledger_id)) == ENTRIES
    assert acl_of(uri, f"/cookies/{bookie.bookie_id}", **login) == [("sasl", "bookkeeper")]
    require_closed(uri)


def test_a_wrong_password_for_zookeeper_is_not_taken(sasl_peers: Peers) -> None:
    peers, jaas = sasl_peers, sasl_peers.zookeeper.directory / "jaas.conf"
    uri = peers.metadata_uri(initialised=False)
    make_cluster(uri, config(uri, saslJaasConfigFile=jaas))
    wrong = jaas.with_name("wrong.conf")
    wrong.write_text(JAAS.format(password="another"))
    with pytest.raises(MetadataAccessError):
        connected(peers, config(uri, saslJaasConfigFile=wrong, zkTimeout=20_000))
