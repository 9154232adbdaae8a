"""Pulsar's metadata service URIs name the znodes that Pulsar's own driver would use."""

from __future__ import annotations

import pytest

from bkclient.config.client import ClientConfig
from bkclient.config.findings import ConfigError
from bkclient.config.properties import parse_properties
from bkclient.config.pulsar_uri import as_zookeeper_uri
from bkclient.config.settings import load
from bkclient.errors import IncorrectParameterError
from bkclient.metadata import open_metadata


@pytest.mark.parametrize(
    ("given", "meant"),
    [
        ("metadata-store:zk:h1:2181", "zk+hierarchical://h1:2181/ledgers"),
        ("metadata-store:zk:10.0.0.1:2181", "zk+hierarchical://10.0.0.1:2181/ledgers"),
        ("metadata-store:zk:h1:1,h2:2", "zk+hierarchical://h1:1;h2:2/ledgers"),
        ("metadata-store:zk:h1:1;h2:2/", "zk+hierarchical://h1:1;h2:2/ledgers"),
        # Pulsar's driver takes a path for a chroot, and appends its root to that.
        ("metadata-store:zk:h1/pulsar", "zk+hierarchical://h1/pulsar/ledgers"),
        ("metadata-store:zk:h1/ledgers", "zk+hierarchical://h1/ledgers/ledgers"),
        ("Metadata-Store:ZK:h1:2181", "zk+hierarchical://h1:2181/ledgers"),
        ("metadata-store:localhost:2181", "zk+hierarchical://localhost:2181/ledgers"),
        ("zk+null://h1/x", "zk+null://h1/x"),
        ("sqlite:///x.db", "sqlite:///x.db"),
    ],
)
def test_a_uri_of_pulsars_is_the_one_of_zookeeper(given: str, meant: str) -> None:
    assert as_zookeeper_uri(given) == meant
    text = "metadataServiceUri=" + given.replace(",", "\\,")
    assert load(ClientConfig, parse_properties(text))[0].service_uri == meant


@pytest.mark.parametrize(
    ("uri", "store"),
    [
        ("metadata-store:oxia://oxia-1:6648/broker", "Oxia"),
        ("metadata-store:oxia:oxia-1:6648/broker", "Oxia"),
        ("metadata-store:etcd:http://h:2379", "etcd"),
        ("metadata-store:rocksdb:///data/metadata", "a RocksDB file"),
        ("metadata-store:rocksdb:data", "a RocksDB file"),
        ("metadata-store:memory:local", "memory of one process"),
        ("metadata-store:consul://h", "consul"),
    ],
)
def test_another_store_of_pulsars_is_refused_by_its_name(uri: str, store: str) -> None:
    with pytest.raises(IncorrectParameterError, match=f"the metadata is in {store}, and only"):
        open_metadata(uri, reactor=object())
    with pytest.raises(ConfigError, match=f"keeps its metadata in {store}; only ZooKeeper is"):
        load(ClientConfig, parse_properties(f"metadataServiceUri={uri}"))


@pytest.mark.parametrize(
    "uri", ["metadata-store:zk:", "metadata-store:", "metadata-store:zk:h:port"]
)
def test_a_uri_of_pulsars_without_servers_is_a_bad_argument(uri: str) -> None:
    with pytest.raises(IncorrectParameterError, match="is no"):
        open_metadata(uri, reactor=object())


def test_a_path_that_looks_like_bookkeepers_root_is_warned_about() -> None:
    def warned(uri: str) -> list[str]:
        text = f"metadataServiceUri={uri}"
        return [found.message for found in load(ClientConfig, parse_properties(text))[1]]

    assert warned("metadata-store:zk:h1:2181") == []
    assert warned("metadata-store:zk:h1/pulsar") == []
    assert [text[:37] for text in warned("metadata-store:zk:h1/ledgers")] == [
        "has its ledgers at /ledgers/ledgers, "
    ]


def test_servers_beside_a_uri_of_pulsars_are_compared_with_its_own() -> None:
    text = "metadataServiceUri=metadata-store:zk:a:1;b:1\nzkServers=b:1,a:1"
    assert load(ClientConfig, parse_properties(text))[1] == ()
