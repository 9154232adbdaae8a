"""``bkctl debug bundle``: what is in the file, and that no secret is."""

from __future__ import annotations

import json
import subprocess
import tarfile
import time
from pathlib import Path

import pytest

from bkctl.commands.doctor.bundle import PARTS, mask
from bkctl.exit_status import ExitStatus
from tests.bkctl.support.cluster import local_cluster
from tests.bkctl.support.terminal import run_here


def bundle(directory: Path, *words: object) -> tuple[subprocess.CompletedProcess[str], Path]:
    out = directory / "bundle.tar.gz"
    return run_here("debug", "bundle", "--out", out, *words), out


def members(path: Path) -> dict[str, str]:
    with tarfile.open(path) as tar:
        files = {one.name: tar.extractfile(one) for one in tar.getmembers()}
        return {
            name.removeprefix("bkctl-debug/"): file.read().decode()
            for name, file in files.items()
            if file is not None
        }


SECRETS = (
    "hush-env",
    "hush-container",
    "hush-token",
    "hush-store",
    "hush-jaas",
    "hush-digest",
    "hush-log",
    "hush-option",
)


@pytest.mark.processes
def test_a_bundle_tells_of_the_cluster_and_has_no_secret(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("HUSH", "hush-env")
    monkeypatch.setenv("BK_tlsTrustStorePassword", "hush-container")
    jaas, digest, log = tmp_path / "jaas.conf", tmp_path / "digest", tmp_path / "bookied.log"
    jaas.write_text('Bookie { x.DigestLoginModule required user_admin="hush-jaas"; };\n')
    digest.write_text("admin:hush-digest\n")
    log.write_text(
        "".join(f"line {number}\n" for number in range(5000))
        + "Authorization: Bearer hush-log\npassword=hush-log\nsent hush-token and hush-jaas\n"
        + "hush-env, hush-store, hush-container\n"
        + "user admin with hush-digest\n"
    )
    with local_cluster(tmp_path / "bk", 1) as cluster:
        conf = tmp_path / "bk_server.conf"
        conf.write_text(
            f"metadataServiceUri={cluster.uri}\nhttpAdminToken : hush-\\\n  token\n"
            f"httpServerKeyStorePassword hush\\u002dstore\nsaslJaasConfigFile={jaas}\n"
            "tlsKeyStorePassword=${env:HUSH}\n"
            f"zkDigestAuthFile={digest}\njournalDirectories=/j\nledgerDirectories=/l\n"
        )
        done, out = bundle(
            tmp_path, "-c", conf, "--log", log, "--lines", 100, "--json",
            "-X", "httpServerTrustStorePassword=hush-option",
        )  # fmt: skip
    assert done.returncode == 0, done.stderr
    assert out.stat().st_mode & 0o777 == 0o600
    found = members(out)
    assert {*PARTS, "system.json", "log/0-bookied.log"} <= {*found}
    assert any(name.startswith("metrics/") for name in found)
    assert len(found["log/0-bookied.log"].splitlines()) == 100
    assert "line 4999" in found["log/0-bookied.log"]
    assert json.loads(found["bookies.json"])
    assert json.loads(found["cluster.json"])
    everything = "\n".join(found.values())
    assert [one for one in SECRETS if one in everything] == []
    assert [one for one in SECRETS if one in done.stdout + done.stderr] == []


@pytest.mark.processes
def test_a_part_that_fails_says_why_and_the_others_are_there(tmp_path: Path) -> None:
    done, out = bundle(tmp_path, "-u", f"sqlite://{tmp_path}/none.db", "--json")
    assert done.returncode == 0, done.stderr
    assert "cluster.json" in json.loads(done.stdout)["failed"]
    found = members(out)
    assert "none.db" in found["cluster.json"]
    assert "twisted" in found["system.json"].lower()


def test_a_bundle_replaces_no_file_and_follows_no_link(tmp_path: Path) -> None:
    (tmp_path / "kept").write_text("kept")
    (tmp_path / "bundle.tar.gz").symlink_to(tmp_path / "kept")
    for words in ((), ("--dry-run",)):
        done, _ = bundle(tmp_path, "-u", f"sqlite://{tmp_path}/none.db", *words)
        assert done.returncode == ExitStatus.CONFLICT
        assert "exists already" in done.stderr
    assert (tmp_path / "kept").read_text() == "kept"


@pytest.mark.parametrize(
    "text",
    [
        "passwd=xyzzy", 'password: "xyzzy"', "httpAdminToken = xyzzy", "'secret': 'xyzzy'",
        '{"client_password": "xyzzy"}', "Authorization: Bearer xyzzy", "basic xyzzy",
        "-----BEGIN PRIVATE KEY-----\nxyzzy\n-----END PRIVATE KEY-----",
    ],
)  # fmt: skip
def test_secrets_are_known_by_their_names_and_forms(text: str) -> None:
    assert b"xyzzy" not in mask(text.encode(), ())
    assert b"xyzzy" not in mask(b'a "quoted\\"xyzzy"', ('quoted"xyzzy',))
    assert mask(b"journalDirectories=/a, port: 3181", ()) == b"journalDirectories=/a, port: 3181"


@pytest.mark.parametrize(
    "line", ["a", "a.b-c_", "-----BEGIN PRIVATE KEY-----\n", 'password: "', "Bearer ", "a: "]
)
def test_masking_takes_time_in_proportion(line: str) -> None:
    began_s = time.process_time()
    mask((line * (100_000 // len(line))).encode(), ())
    assert time.process_time() - began_s < 10
    assert b"xyzzy" not in mask(f"{'a' * 1000}password=xyzzy".encode(), ())
