"""Settings files checked, explained, compared, and where each value in effect is from."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from bkclient.config.declaration import declared, is_secret_key
from bkctl.cli.root import cli
from bkctl.commands.settings.config_keys import CLASSES, NOTES, all_keys
from bkctl.exit_status import ExitStatus
from bookied.__main__ import main as bookied
from tests.bkctl.support.terminal import FakeHost

Run = Callable[..., tuple[int, Any, str]]

BAD = """\
metadataServiceUri=sqlite:///x.db
ledgerDirectory=/a
journalSyncData=no
journalWriteData=no
readTimeot=3
readTimeout=soon
numAddWorkerThreads=3
"""


@pytest.fixture
def run(tmp_path: Path) -> Run:
    def run(*args: str, environ: dict[str, str] | None = None) -> tuple[int, Any, str]:
        known = {"BKCTL_CONFIG": str(tmp_path / "config.toml"), **(environ or {})}
        host = FakeHost(environ=known)
        status = cli.run(["config", *args, "--json"], host)
        return status, json.loads(host.out.text or "null"), host.err.text

    return run


def _file(path: Path, text: str) -> str:
    path.write_text(text)
    return str(path)


# check -------------------------------------------------------------------------------------------


def test_a_check_names_what_bookied_would_the_worst_first(run: Run, tmp_path: Path) -> None:
    status, out, _ = run("check", _file(tmp_path / "a.conf", BAD))
    assert status == ExitStatus.PROBLEMS
    found = [(one["severity"], one["key"], one["kind"]) for one in out["findings"]]
    assert found == [
        ("error", "journalWriteData", "refused"),
        ("error", "readTimeout", "invalid"),
        ("warning", "journalSyncData", "risky"),
        ("warning", "ledgerDirectory", "unknown"),
        ("warning", "readTimeot", "unknown"),
        ("note", "numAddWorkerThreads", "ignored"),
    ]
    assert out["findings"][1]["origin"] == f"{tmp_path}/a.conf:6"
    assert "did you mean readTimeout?" in out["findings"][4]["message"]


def test_a_check_ends_by_what_it_found(run: Run, tmp_path: Path) -> None:
    good = "metadataServiceUri=sqlite:///x.db\njournalDirectory=/j\nledgerDirectories=/l\n"
    assert run("check", _file(tmp_path / "good.conf", good))[:2] == (
        0, {"schema": 1, "findings": []},
    )  # fmt: skip
    odd = _file(tmp_path / "odd.conf", good + "nosuchkeyatall=3\n")
    assert run("check", odd)[0] == ExitStatus.WARNINGS
    assert run("check", odd, "--strict")[0] == ExitStatus.PROBLEMS
    assert run("check", "-c", odd)[0] == ExitStatus.WARNINGS
    lonely = _file(tmp_path / "client.conf", "readTimeout=3\n")
    assert run("check", lonely)[0] == 0
    # A bookie must know its cluster.
    assert run("check", lonely, "--for", "bookie")[0] == ExitStatus.PROBLEMS
    assert "by a client" in run("check", lonely)[2]
    assert run("check", str(tmp_path / "none"))[0] == ExitStatus.NOT_FOUND


def test_a_check_opens_the_tls_files(run: Run, tmp_path: Path) -> None:
    conf = _file(
        tmp_path / "tls.conf",
        "metadataServiceUri=sqlite:///x.db\njournalDirectory=/j\nledgerDirectories=/l\n"
        "tlsProviderFactoryClass=TLSContextFactory\ntlsKeyStore=/no/such.p12\n"
        "tlsKeyStoreType=PKCS12\n",
    )
    status, out, _ = run("check", conf)
    assert status == ExitStatus.PROBLEMS
    (found,) = (one for one in out["findings"] if one["severity"] == "error")
    assert found["key"] == "tlsKeyStore"
    assert found["message"] == "cannot read /no/such.p12: No such file or directory"
    assert bookied(["--conf", conf, "--check-config"]) == status


# explain -----------------------------------------------------------------------------------------


def test_every_key_that_somebody_reads_is_explained() -> None:
    keys = all_keys()
    for side, cls in CLASSES.items():
        for one in declared(cls):
            key = one.spec.key
            assert keys[key].doc, key
            assert side in keys[key].read_by or keys[key].uses[0] == "honoured"
    assert all(info.doc.endswith((".", "?")) for info in keys.values())


def test_notes_are_about_keys_that_there_are() -> None:
    assert set(NOTES) <= set(all_keys())


@pytest.mark.parametrize(
    ("key", "uses"),
    [
        ("gcWaitTime", ["honoured"]),
        ("journalSyncData", ["honoured", "warned"]),
        ("metadataServiceUri", ["honoured", "refused"]),
        ("zkRetryBackoffStartMs", ["no effect"]),
        ("entryLogPerLedgerEnabled", ["honoured", "refused"]),
        ("journalDir", ["warned"]),
        ("dlog.anything", ["no effect"]),
    ],
)
def test_a_key_is_explained_with_what_is_done_with_it(run: Run, key: str, uses: list[str]) -> None:
    status, out, _ = run("explain", key)
    assert (status, out["uses"]) == (0, uses)


def test_an_explanation_says_where_javas_files_differ_and_what_was_meant(run: Run) -> None:
    found = run("explain", "gcWaitTime")[1]
    assert (found["default"], found["unit"], found["read_by"]) == ("600000", "ms", ["bookie"])
    assert "sample file sets 1000" in found["note"]
    assert run("explain", "journalDir")[1]["instead"] == "journalDirectories"
    assert run("explain", "readTimeout")[1]["read_by"] == ["client"]
    status, _, err = run("explain", "gcWaitTme")
    assert (status, "did you mean gcWaitTime?" in err) == (ExitStatus.NOT_FOUND, True)


def test_keys_are_explained_by_pattern_and_by_what_is_done_with_them(run: Run) -> None:
    found = run("explain", "minorCompaction*", "gcWaitTime")[1]["keys"]
    assert {"minorCompactionInterval", "minorCompactionThreshold", "gcWaitTime"} <= {
        one["key"] for one in found
    }
    refused = run("explain", "--use", "refused")[1]["keys"]
    assert all("refused" in one["uses"] for one in refused)
    assert len(run("explain")[1]["keys"]) == len(all_keys())


# diff --------------------------------------------------------------------------------------------


def test_only_what_differs_in_effect_is_a_difference(run: Run, tmp_path: Path) -> None:
    one = _file(
        tmp_path / "1", "journalSyncData=yes\ngcWaitTime=5\nledgerDirectories=/a,/b\nzz=1\n"
    )
    two = _file(
        tmp_path / "2", "ledgerDirectories=/a\nledgerDirectories=/b\ngcWaitTime=0x5\nyy=2\n"
    )
    found = run("diff", one, two)[1]["differences"]
    assert [(d["key"], d["first"], d["second"]) for d in found] == [
        ("zz", "1", None), ("yy", None, "2"),
    ]  # fmt: skip
    found = run("diff", one)[1]["differences"]
    assert [(d["key"], d["first"], d["default"]) for d in found if d["key"] == "gcWaitTime"] == [
        ("gcWaitTime", "5", "600000")
    ]
    assert run("diff", one, str(tmp_path / "none"))[0] == ExitStatus.NOT_FOUND


def test_a_backup_of_metadata_is_not_compared_as_settings(run: Run, tmp_path: Path) -> None:
    conf = _file(tmp_path / "conf", "gcWaitTime=5\n")
    backup = _file(tmp_path / "backup", '{"bkctl-backup": 1, "uri": "zk://zk1/ledgers"}\n')
    for files in ((backup, backup), (conf, backup), (backup,)):
        status, _, err = run("diff", *files)
        assert status == ExitStatus.USAGE
        assert "this is a metadata backup, not a settings file" in err
        assert "`bkctl cluster restore FILE --force root --dry-run` compares a backup" in err


def test_every_key_whose_name_says_so_is_a_secret() -> None:
    secrets = {key for key, info in all_keys().items() if info.secret}
    assert secrets == {key for key in all_keys() if is_secret_key(key)}
    assert {"httpAdminToken", "httpServerKeyStorePassword", "passwd"} <= secrets


def test_secrets_are_masked_where_they_differ(run: Run, tmp_path: Path) -> None:
    specs = [one.spec for cls in CLASSES.values() for one in declared(cls)]
    secret = next(spec.key for spec in specs if spec.secret)
    one, two = (_file(tmp_path / name, f"{secret}=word{name}\n") for name in "12")
    (found,) = run("diff", one, two)[1]["differences"]
    assert (found["first"], found["second"]) == ("********", "********")


@pytest.mark.parametrize(
    "key",
    ["zkPassword", "tlsKeyStorePasword", "tlsKeystorepasswd", "passphrase", "dbPwd", "adminTokn"],
)
def test_an_unknown_key_may_be_a_secret_that_is_misspelt(
    run: Run, tmp_path: Path, key: str
) -> None:
    (found,) = run("diff", _file(tmp_path / "1", f"{key}=hidden\n"))[1]["differences"]
    assert (found["key"], found["first"]) == (key, "********")


# show --------------------------------------------------------------------------------------------


def test_a_key_is_explained_with_its_value_in_a_file(run: Run, tmp_path: Path) -> None:
    conf = _file(
        tmp_path / "b.conf", "majorCompactionThreshold=0.7\nmetadataServiceUri=sqlite:///x\n"
    )
    words = ("show", "majorCompactionThreshold", "-c", conf)
    assert run(*words, "--for", "bookie")[1]["value"] == "0.7"
    assert run(*words)[1]["value"] == "0.7"
    unusable = _file(tmp_path / "bad.conf", "journalWriteData=no\n")
    status, found, err = run("show", "journalWriteData", "-c", unusable)
    assert (status, found["value"], "no values of the bookie" in err) == (0, None, True)


def test_a_part_of_an_older_name_also_finds_a_key(run: Run) -> None:
    keys = [one["key"] for one in run("show", "tls", "--keys")[1]["keys"]]
    assert {"tlsKeyStore", "clientKeyStore", "clientTrustStore"} < set(keys)
    assert len(keys) == len(set(keys))


def test_a_pattern_of_keys_ignores_case(run: Run) -> None:
    keys = {one["key"] for one in run("show", "*compaction*", "--keys")[1]["keys"]}
    assert {"majorCompactionThreshold", "minorCompactionInterval"} <= keys


def test_every_value_says_where_it_is_from(run: Run, tmp_path: Path) -> None:
    conf = _file(
        tmp_path / "bk.conf",
        "metadataServiceUri=sqlite:///f.db\nreadTimeout=1\naddEntryTimeoutSec=1\nthrottle=1\n",
    )
    (tmp_path / "config.toml").write_text(
        f'profile = "lab"\n[profiles.lab]\nconf = "{conf}"\n'
        "[profiles.lab.client]\nreadTimeout = 2\naddEntryTimeoutSec = 2\n"
    )
    (tmp_path / "config.toml").chmod(0o600)
    status, out, _ = run(
        "show", "--origin", "-X", "readTimeout=4", environ={"BK_addEntryTimeoutSec": "3"}
    )
    found = {one["key"]: (one["value"], one["origin"]) for one in out["settings"]}
    assert status == 0
    assert found == {
        "--profile": ("lab", "the default profile"),
        "--conf": (conf, "profile lab"),
        "--output": ("json", "--json"),
        "metadataServiceUri": ("sqlite:///f.db", f"{conf}:1"),
        "readTimeout": ("4", "-X"),
        "addEntryTimeoutSec": ("3", "BK_addEntryTimeoutSec"),
        "throttle": ("1", f"{conf}:4"),
    }
    everything = run("show", "--origin", "--all")[1]["settings"]
    assert {"key": "zkTimeout", "value": "10000", "origin": "default"} in everything
    of_flag = run("show", "--origin", "-u", "sqlite:///u.db")[1]["settings"]
    assert {"key": "metadataServiceUri", "value": "sqlite:///u.db", "origin": "--service-uri"} in (
        of_flag
    )
    assert "--profile" not in {one["key"] for one in of_flag}


def test_what_is_in_effect_is_a_settings_file_again(tmp_path: Path) -> None:
    conf = _file(tmp_path / "bk.conf", "metadataServiceUri: sqlite:///f.db\nbookiePort 4000\n")
    host = FakeHost()
    assert cli.run(["config", "show", "--for", "bookie", "-c", conf], host) == 0
    assert set(host.out.text.splitlines()) == {
        "bookiePort=4000", "metadataServiceUri=sqlite:///f.db",
    }  # fmt: skip


def test_a_profile_of_the_environment_is_shown_once(
    run: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("BKCTL_PROFILE", "lab")
    _file(tmp_path / "config.toml", '[profiles.lab]\nservice-uri = "sqlite:///lab.db"\n')
    out = run("show", "--origin", environ={"BKCTL_PROFILE": "lab"})[1]["settings"]
    assert [one["key"] for one in out].count("--profile") == 1


def test_settings_of_the_file_that_only_bookies_read_are_counted(tmp_path: Path) -> None:
    conf = _file(
        tmp_path / "b.conf", "metadataServiceUri=sqlite:///x\ngcWaitTime=7\nbookiePort=1\n"
    )
    host = FakeHost()
    assert cli.run(["config", "show", "-c", conf, "--for", "client"], host) == 0
    assert host.err.text == f"not shown: 2 keys of {conf}; see --for bookie\n"


URI = "metadataServiceUri=sqlite:///x\n"


def test_a_file_with_keys_of_a_bookie_is_shown_as_a_bookie_s(run: Run, tmp_path: Path) -> None:
    conf = _file(tmp_path / "b.conf", f"{URI}gcWaitTime=7\nbookiePort=1\nreadTimeout=3\n")
    host = FakeHost()
    assert cli.run(["config", "show", "-c", conf], host) == 0
    assert "bookiePort=1\n" in host.out.text
    assert "of a running bookie: `bkctl bookie config BOOKIE_ID`\n" in host.err.text
    other = _file(tmp_path / "c.conf", f"{URI}readTimeout=3\nbookiePort=1\n")
    assert "readTimeout" in str(run("show", "-c", other)[1])


def test_the_origin_of_one_key_is_shown(run: Run, tmp_path: Path) -> None:
    conf = _file(tmp_path / "b.conf", f"gcWaitTime=7\nbookiePort=1\n{URI}")
    told = run("show", "--origin", "gcWaitTime", "zkTimeout", "-c", conf)[1]["settings"]
    assert sorted((one["key"], one["value"], one["origin"]) for one in told) == [
        ("gcWaitTime", "7", f"{conf}:1"), ("zkTimeout", "10000", "default"),
    ]  # fmt: skip
