"""Settings files that BookKeeper and Pulsar ship: they start a bookie as they are."""

from __future__ import annotations

from pathlib import Path

import pytest

from bkclient.config.findings import ConfigError, FindingKind, Findings, Severity
from bkclient.config.properties import parse_properties
from bookied.config.bookie import BookieConfig, load_bookie_config

VECTORS = Path(__file__).parents[1] / "vectors"
SHIPPED = ("bk_server_keys.txt", "bk_server_keys_of_releases.txt", "pulsar_bookkeeper_keys.txt")
REFUSED = {
    "sortedLedgerStorageEnabled=ture": "is not a boolean",
    "skipListSizeLimit=67108864L": "is not a whole number",
    "tlsProviderFactoryClass=org.apache.bookkeeper.tls.TLSContextFactory": "TLS needs the bookie's",
    "extraServerComponents=org.apache.bookkeeper.stream.server.StreamStorageLifecycleComponent": (
        "are Java classes; remove the key"
    ),
}
"""Lines of sample files, commented out there, and why they stop a start.

Java cannot read the first two, and needs the key for the third. The last is its table service.
"""


def lines_of(name: str) -> list[str]:
    return [line for line in (VECTORS / name).read_text().splitlines() if "=" in line]


def loaded(lines: list[str]) -> tuple[BookieConfig, Findings]:
    return load_bookie_config(parse_properties("\n".join(lines)))


@pytest.mark.parametrize("name", SHIPPED)
def test_what_a_shipped_file_sets_starts_a_bookie(name: str) -> None:
    found, findings = loaded([line for line in lines_of(name) if not line.startswith("#")])
    assert found.service_uri == "zk+hierarchical://localhost:2181/ledgers"
    assert FindingKind.UNKNOWN not in {one.kind for one in findings}


@pytest.mark.parametrize(
    ("name", "line"),
    [(name, line[1:]) for name in SHIPPED for line in lines_of(name) if line.startswith("#")],
)
def test_a_key_that_a_shipped_file_mentions_starts_a_bookie_or_is_named(
    name: str, line: str
) -> None:
    key = line.partition("=")[0]
    others = [one for one in lines_of(name) if not one.lstrip("#").startswith(f"{key}=")]
    text = [*(one for one in others if not one.startswith("#")), line]
    try:
        _, findings = loaded(text)
    except ConfigError as refused:
        findings = refused.findings
    errors = [str(one) for one in findings if one.severity is Severity.ERROR]
    assert FindingKind.UNKNOWN not in {one.kind for one in findings}
    if line in REFUSED:
        assert len(errors) == 1
        assert REFUSED[line] in errors[0]
    else:
        assert errors == []


def test_pulsars_own_limits_mean_the_defaults() -> None:
    found, _ = loaded(
        [line for line in lines_of("pulsar_bookkeeper_keys.txt") if not line.startswith("#")]
    )
    assert found.db_write_cache_mb is None
    assert found.rocks_block_cache_bytes is None
    assert (found.open_files_max, found.index_pages_max) == (0, 0)


def test_null_is_a_key_that_is_not_set() -> None:
    found, findings = loaded(
        [
            *("metadataServiceUri=null", "zkServers=a:1,b:2", "tlsKeyStore=null"),
            *("tlsTrustStoreType=null", "bookieAuthProviderFactoryClass=null"),
            *("journalDirectories=/j", "ledgerDirectories=/l"),
        ]
    )
    assert found.service_uri == "zk+hierarchical://a:1;b:2/ledgers"
    assert found.tls_key_store == ""
    assert findings == ()


def test_null_without_servers_names_no_metadata_service() -> None:
    with pytest.raises(ConfigError, match="metadataServiceUri: is not set"):
        loaded(["metadataServiceUri=null"])
