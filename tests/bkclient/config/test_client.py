"""Client settings by Java's keys."""

from __future__ import annotations

import pytest

from bkclient.config.client import ClientConfig
from bkclient.config.declaration import declared
from bkclient.config.findings import ConfigError, Severity
from bkclient.config.properties import parse_properties
from bkclient.config.settings import load
from wire.codes import DigestType


def config(text: str) -> ClientConfig:
    return load(ClientConfig, parse_properties(text))[0]


@pytest.mark.parametrize(
    ("text", "uri"),
    [
        ("", None),
        ("metadataServiceUri=sqlite:///x.db", "sqlite:///x.db"),
        ("metadataServiceUri=\nzkServers=h:1", "zk+hierarchical://h:1/ledgers"),
        ("zkServers=a:1,b:2\nzkLedgersRootPath=/bk", "zk+hierarchical://a:1;b:2/bk"),
        ("zkServers=a:1\nledgerManagerType=flat", "zk+flat://a:1/ledgers"),
        (
            "zkServers=a:1\nledgerManagerType=flat\n"  # noqa: ISC004
            "ledgerManagerFactoryClass=org.example.LongHierarchicalLedgerManagerFactory",
            "zk+longhierarchical://a:1/ledgers",
        ),
        ("metadataServiceUri=zk://c:3/x\nzkServers=a:1", "zk://c:3/x"),
    ],
)
def test_the_metadata_service_is_given_by_uri_or_by_the_old_keys(text, uri) -> None:
    assert config(text).service_uri == uri


@pytest.mark.parametrize(
    "text",
    [
        "metadataServiceUri=etcd:http://h:1/x",
        "metadataServiceUri=zk+ms://h:1/x",
        "ledgerManagerType=ms",
        "ledgerManagerFactoryClass=org.example.Mine",
        "clientAuthProviderFactoryClass=org.example.Mine",
    ],
)
def test_what_is_not_served_is_refused(text: str) -> None:
    with pytest.raises(ConfigError, match=text.partition("=")[0]):
        config(text)


def test_zk_servers_beside_a_uri_with_other_hosts_are_warned_about() -> None:
    _, findings = load(
        ClientConfig,
        parse_properties("metadataServiceUri=zk://b:1/x\nzkServers=a:1", source="f"),
    )
    assert [(found.severity, str(found.origin)) for found in findings] == [
        (Severity.WARNING, "f:2")
    ]


def test_zk_servers_that_agree_with_the_uri_are_fine() -> None:
    text = "metadataServiceUri=zk://b:1;a:1/x\nzkServers=a:1,b:1"
    assert load(ClientConfig, parse_properties(text))[1] == ()


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("addEntryQuorumTimeoutSec=5", "is 5, and readTimeout 5: "),
        ("addEntryQuorumTimeoutSec=3\naddEntryTimeoutSec=8", "is 3, and addEntryTimeoutSec 8: "),
        ("addEntryQuorumTimeoutSec=6", None),
        ("addEntryQuorumTimeoutSec=3\naddEntryTimeoutSec=2", None),
        ("addEntryQuorumTimeoutSec=-1", None),
    ],
)
def test_an_add_quorum_time_out_in_which_nobody_is_replaced_is_warned_about(
    text: str, said: str | None
) -> None:
    findings = load(ClientConfig, parse_properties(text))[1]
    assert [(f.severity, f.key) for f in findings] == (
        [] if said is None else [(Severity.WARNING, "addEntryQuorumTimeoutSec")]
    )
    assert said is None or said in findings[0].message


def test_time_outs_fall_back_to_the_read_time_out() -> None:
    assert (config("").add_timeout_s, config("").read_timeout_s) == (5, 5)
    both = config("readTimeout=7\naddEntryTimeoutSec=9")
    assert (both.add_timeout_s, both.read_timeout_s) == (9, 7)


def test_speculation_falls_back_to_its_base() -> None:
    base = config("speculativeReadTimeout=100")
    assert (base.speculative_first_ms, base.speculative_max_ms) == (100, 100)
    off = config("speculativeReadTimeout=0")
    assert off.speculative_first_ms == 0


def test_the_digest_type_is_read_by_name() -> None:
    assert config("digestType=CRC32C").digest_type is DigestType.CRC32C
    with pytest.raises(ConfigError, match="digestType: 'MD5' is not one of the allowed values"):
        config("digestType=MD5")


def test_no_key_is_declared_twice() -> None:
    keys = [key for one in declared(ClientConfig) for key in (one.spec.key, *one.spec.aliases)]
    assert len(keys) == len(set(keys))
