"""A bookie's settings: an unmodified Java file loads, and says honestly what it does not do."""

from __future__ import annotations

from pathlib import Path

import pytest

from bkclient.config.declaration import declared
from bkclient.config.findings import ConfigError, FindingKind, Severity
from bkclient.config.properties import parse_properties
from bkclient.config.settings import non_default_settings
from bookied.config.admin import PROMETHEUS
from bookied.config.auth import SASL_BOOKIE
from bookied.config.bookie import BookieConfig, StorageClass, load_bookie_config

KEYS = Path(__file__).parents[1] / "vectors" / "bk_server_keys.txt"
URI = "metadataServiceUri=sqlite:///m.db\n"


def config(text: str) -> BookieConfig:
    return load_bookie_config(parse_properties(URI + text, source="bk.conf"))[0]


def refusal(text: str) -> ConfigError:
    with pytest.raises(ConfigError) as caught:
        load_bookie_config(parse_properties(text, source="bk.conf"))
    return caught.value


def test_the_unmodified_java_file_loads_and_warns_of_its_directories_only() -> None:
    loaded, findings = load_bookie_config(parse_properties(KEYS.read_text()))
    warned = [found.key for found in findings if found.severity is Severity.WARNING]
    assert warned == ["journalDirectories", "ledgerDirectories"]
    assert loaded.service_uri == "zk+hierarchical://localhost:2181/ledgers"
    assert loaded.journal_directories == ("/tmp/bk-txn",)
    assert non_default_settings(loaded) == (
        ("metadataServiceUri", "zk+hierarchical://localhost:2181/ledgers"),
        ("zkServers", "localhost:2181"),
        ("journalDirectories", "/tmp/bk-txn"),
        ("httpServerHost", "0.0.0.0"),
        ("statsProviderClass", f"org.apache.bookkeeper.stats.prometheus.{PROMETHEUS}"),
    )


def test_every_key_that_java_names_is_known() -> None:
    names = [line.lstrip("#").partition("=")[0] for line in KEYS.read_text().splitlines()[2:]]
    assert len(names) > 300
    with pytest.raises(ConfigError) as caught:  # Empty numbers are refused.
        load_bookie_config(parse_properties("\n".join(f"{name}=" for name in names)))
    kinds = {found.kind for found in caught.value.findings}
    assert FindingKind.INVALID in kinds
    assert FindingKind.UNKNOWN not in kinds


def test_no_key_is_declared_twice() -> None:
    keys = [key for one in declared(BookieConfig) for key in (one.spec.key, *one.spec.aliases)]
    assert len(keys) == len(set(keys))


@pytest.mark.parametrize(
    ("text", "directories"),
    [
        ("", ("/tmp/bk-txn",)),
        ("journalDirectory=/a,/b", ("/a",)),
        ("journalDirectories=/a,/b", ("/a", "/b")),
        ("journalDirectories=/a\njournalDirectory=/b", ("/a",)),
        ("journalDirectories=\njournalDirectory=/b", ("/b",)),
    ],
)
def test_the_newer_journal_key_wins_unless_it_is_empty(text, directories) -> None:
    assert config(text).journal_directories == directories


def test_index_directories_are_the_ledger_directories_unless_set() -> None:
    assert config("ledgerDirectories=/a").index_directories == ("/a",)
    assert config("ledgerDirectories=/a\nindexDirectories=/i").index_directories == ("/i",)


@pytest.mark.parametrize(
    ("text", "kind"),
    [
        ("", StorageClass.SORTED),
        ("sortedLedgerStorageEnabled=false", StorageClass.INTERLEAVED),
        ("ledgerStorageClass=org.example.InterleavedLedgerStorage", StorageClass.INTERLEAVED),
        (
            "ledgerStorageClass=org.apache.bookkeeper.bookie.storage.ldb.DbLedgerStorage",
            StorageClass.DB,
        ),
        ("ledgerStorageClass=org.apache.bookkeeper.bookie.DbLedgerStorage", StorageClass.DB),
    ],
)
def test_the_storage_class_is_known_by_its_simple_name(text: str, kind: StorageClass) -> None:
    assert config(text).storage_class is kind


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("bookiePort=0", "bk.conf:2: bookiePort: is 0, which only allowEphemeralPorts"),
        ("ledgerDirectories=", "leaves the bookie no directory"),
        (
            "ledgerStorageClass=x.DbLedgerStorage\nledgerDirectories=/a,/b\nindexDirectories=/i",
            "indexDirectories: are 1 for 2 ledgerDirectories, and DbLedgerStorage has one for each",
        ),
        ("ledgerStorageClass=x.Mine", "'x.Mine' is not a ledger storage; set one of"),
        ("logSizeLimit=1073741825", "is out of range; allowed: 2048 to 1073741824"),
        (
            "journalWriteData=no",
            "'false' would lose acknowledged entries in any crash; allowed: true",
        ),
        ("journalAlignmentSize=1000", "must be a multiple of 512"),
        ("journalAlignmentSize=2097152\njournalPreAllocSizeMB=1", "is larger than"),
        ("journalFormatVersionToWrite=3\nfileInfoFormatVersionToWrite=0", "4 to 6"),
        ("journalFormatVersionToWrite=5", "6 goes with fileInfoFormatVersionToWrite 1"),
        ("minorCompactionInterval=1", "is shorter than gcWaitTime"),
        ("majorCompactionInterval=3600", "minorCompactionInterval: is not below majorCompaction"),
        ("majorCompactionThreshold=0.1", "minorCompactionThreshold: is not below majorCompaction"),
        ("majorCompactionThreshold=1.1", "majorCompactionThreshold: is above 1"),
        (
            "diskUsageLwmThreshold=0.99",
            "diskUsageLwmThreshold: 0.99 is above diskUsageThreshold=0.95",
        ),
        ("diskUsageThreshold=0.5", "diskUsageWarnThreshold: 0.9 is above diskUsageThreshold=0.5"),
        ("entryLogPerLedgerEnabled=true", "is not offered"),
        ("extraServerComponents=a.B", "'a.B' are Java classes; remove the key"),
        ("bookieAuthProviderFactoryClass=a.B", "'a.B' is not offered; SASLBookieAuthProvider"),
        ("bookieAuthProviderFactoryClass=BookieAuthZFactory", "authorizedRoles: is empty"),
        (
            "bookieAuthProviderFactoryClass=BookieAuthZFactory\nauthorizedRoles=a",
            "BookieAuthZFactory needs TLS with tlsClientAuthentication=true",
        ),
        ("saslJaasClientAllowedIds=(", "is not a regular expression"),
        ("tlsProviderFactoryClass=a.B", "'a.B' is not offered; TLSContextFactory is"),
        ("tlsProviderFactoryClass=TLSContextFactory", "tlsKeyStore: is not set"),
        (
            "tlsProviderFactoryClass=TLSContextFactory\ntlsKeyStoreType=PEM\ntlsKeyStore=k",
            "tlsCertificatePath: is not set",
        ),
        (
            "tlsProviderFactoryClass=TLSContextFactory\ntlsKeyStore=k\ntlsClientAuthentication=true",
            "tlsTrustStore: is not set",
        ),
        ("tlsEnabledProtocols=TLSv1.1", "names no version of TLS that is safe"),
        ("tlsEnabledCipherSuites=TLS_X", "names TLS_X, which is not a known cipher suite"),
        ("dataIntegrityChecking=true", "needs ledgerStorageClass"),
        ("dataIntegrityStampMissingCookies=true", "needs dataIntegrityChecking=true"),
        ("permittedStartupUsers=nobody-we-know", "may not start it (nobody-we-know)"),
        ("serverWriteBufferLowWaterMark=600000", "is above serverWriteBufferHighWaterMark"),
    ],
)
def test_what_cannot_be_provided_is_refused(text: str, message: str) -> None:
    assert message in str(refusal(URI + text))


@pytest.mark.usefixtures("nameless")
def test_a_user_without_a_name_is_none_of_those_who_may_start_it() -> None:
    assert "user ? may not start it (bk)" in str(refusal(URI + "permittedStartupUsers=bk"))


def test_no_metadata_service_is_refused() -> None:
    assert "metadataServiceUri: is not set" in str(refusal("bookiePort=3181"))


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("journalSyncData=false", "acknowledged entries are lost when the machine fails"),
        ("skipReplayJournalInvalidRecord=true", "are lost in silence"),
        ("journalDir=/j", "no version of BookKeeper reads this spelling"),
        ("majorCompactionThreshold=1.0", "rewrites every log again"),
        ("httpServerEnabled=true\nhttpServerHost=0.0.0.0", "is not a loopback address"),
        (
            "statsProviderClass=PrometheusMetricsProvider\nprometheusStatsHttpAddress=::",
            "is not a loopback address",
        ),
        (
            "httpServerEnabled=true\nhttpAdminAllowUnauthenticatedWrites=true",
            "lets every client that reaches the port change the bookie",
        ),
        ("statsProviderClass=org.x.Codahale", "is not offered; PrometheusMetricsProvider is"),
        (
            f"autoRecoveryDaemonEnabled=true\nbookieAuthProviderFactoryClass={SASL_BOOKIE}",
            "is set without clientAuthProviderFactoryClass",
        ),
        ("indexDirectories=/tmp/i", "/tmp/i may be emptied by the system"),
    ],
)
def test_risky_values_are_warned_about(text: str, message: str) -> None:
    safe = URI + "journalDirectories=/j\nledgerDirectories=/l\n"
    _, findings = load_bookie_config(parse_properties(safe + text, source="bk.conf"))
    (warning,) = [str(found) for found in findings if found.severity is Severity.WARNING]
    assert warning.startswith(f"bk.conf:{len(f'{safe}{text}'.splitlines())}: ")
    assert message in warning


def test_extra_components_may_be_ignored_when_told_so() -> None:
    text = "extraServerComponents=a.B\nignoreExtraServerComponentsStartupFailures=true"
    assert config(text).extra_components == ("a.B",)


def test_client_keys_may_stand_in_a_bookies_file() -> None:
    text = URI + "journalDirectories=/j\nledgerDirectories=/l\nthrottle=1\nclientTrustStore=x"
    assert load_bookie_config(parse_properties(text))[1] == ()


@pytest.mark.parametrize(
    "login",
    [
        "clientAuthProviderFactoryClass=SASLClientProviderFactory\nautoRecoveryDaemonEnabled=true",
        "autoRecoveryDaemonEnabled=false",
    ],
)
def test_a_bookie_that_can_log_in_or_repairs_nothing_is_not_warned_about(login: str) -> None:
    text = URI + "journalDirectories=/j\nledgerDirectories=/l\n"
    text += f"bookieAuthProviderFactoryClass={SASL_BOOKIE}\n{login}"
    assert load_bookie_config(parse_properties(text))[1] == ()


def test_sizes_are_given_in_bytes() -> None:
    loaded = config("journalMaxSizeMB=3\njournalPreAllocSizeMB=2\njournalMaxMemorySizeMb=5")
    assert loaded.journal_bytes_max == 3 << 20
    assert loaded.journal_prealloc_bytes == 2 << 20
    assert loaded.journal_queue_bytes_max == 5 << 20
