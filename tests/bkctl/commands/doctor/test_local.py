"""The doctor on the bookie of this machine: the troubles that its directories and settings show.

The numbers are those of commands.md, section 7.
"""

from __future__ import annotations

import json
import os
import shutil
import time
from pathlib import Path
from typing import Any

import attrs
import pytest
from twisted.internet import threads

from bkclient.config.findings import Severity
from bkctl.commands.doctor.rules.local_bookie import local_findings
from bkctl.commands.doctor.survey_values import LocalSurvey
from bookied.directories.lock import DirectoryLocks
from bookied.directories.roots import CURRENT
from bookied.storage.journal.mark import LastMark, encode_mark
from tests.bkclient.metadata.values import info
from tests.bkctl.support.disk import snapshot
from tests.bkctl.support.stopped_bookie import Bookie, new_bookie
from wire.ids import BookieId
from wire.records.cookie import decode_cookie, encode_cookie


@pytest.fixture
def bookie(tmp_path: Path) -> Bookie:
    return new_bookie(tmp_path)


def findings(bookie: Bookie) -> dict[str, dict[str, Any]]:
    """Return what the doctor says of the bookie, by name; it must not change a file."""
    before = snapshot(bookie.base / "ledgers") | snapshot(bookie.base / "journal")
    result = bookie.run("doctor", "--json", ok=False)
    assert result.status in {0, 9, 10}, result
    after = snapshot(bookie.base / "ledgers") | snapshot(bookie.base / "journal")
    assert after == before, "a doctor only looks"
    found = json.loads(result.out)["findings"]
    return {one["name"]: one for one in found if one["name"].startswith("local-")}


def test_a_sound_bookie_that_is_stopped_is_noted_with_what_starts_it(bookie: Bookie) -> None:
    found = findings(bookie)
    temporary = {"local-setting"} if str(bookie.base).startswith("/tmp/") else set()
    assert set(found) == {"local-stopped", *temporary}
    assert found["local-stopped"]["fix"] == f"bookied --conf {bookie.base}/bk.conf"
    unasked = bookie.run("doctor", "--no-local", "--json", ok=False)
    assert "local-" not in unasked.out


def test_the_file_of_a_client_is_not_taken_for_a_bookie_s(bookie: Bookie) -> None:
    bookie.settings = {"metadataServiceUri": bookie.uri, "clientConnectTimeoutMillis": "5000"}
    assert not findings(bookie), "no bookie is asked for its address and directories"


def test_a_key_of_a_client_may_stand_in_the_settings_of_a_bookie(bookie: Bookie) -> None:
    bookie.settings["networkTopologyScriptFileName"] = "racks.sh"
    bookie.settings["networkTopologyScriptFile"] = "racks.sh"
    said = bookie.run("doctor", ok=False).out
    assert "networkTopologyScriptFile: unknown key" in said
    assert "networkTopologyScriptFileName: unknown key" not in said


def test_13_a_directory_that_lost_its_cookie_is_named(bookie: Bookie) -> None:
    path = bookie.base / "ledgers" / CURRENT / "VERSION"
    path.unlink()
    found = findings(bookie)["local-cookie-missing"]
    assert str(path) in found["what"]
    assert found["danger"] == "risk"


def test_13_salvage_is_named_before_a_format_of_an_emptied_bookie(bookie: Bookie) -> None:
    shutil.rmtree(bookie.base / "ledgers" / CURRENT)
    (bookie.base / "ledgers" / CURRENT).mkdir()
    emptied = findings(bookie)["local-cookie-missing"]["fix"]
    (bookie.base / "ledgers" / CURRENT).rmdir()
    missing = findings(bookie)["local-directory-missing"]["fix"]
    assert missing == emptied
    line = f"bkctl disk salvage LEDGER --out DIR -c {bookie.base}/bk.conf"
    assert missing.index(line) < missing.index("bkctl disk format --delete-cookie")


def test_13_a_bookie_that_has_lost_all_its_directories_is_not_started(bookie: Bookie) -> None:
    for root in ("journal", "ledgers"):
        shutil.rmtree(bookie.base / root / CURRENT)
        (bookie.base / root / CURRENT).mkdir()
    found = findings(bookie)
    assert "they were emptied" in found["local-cookies-missing"]["what"]
    assert "bkctl recover" in found["local-cookies-missing"]["fix"]
    assert "bookied" not in found["local-stopped"]["fix"]


def test_13_a_directory_that_is_not_mounted_is_named(bookie: Bookie) -> None:
    bookie.settings["ledgerDirectories"] += ",/nowhere/at/all"
    found = findings(bookie)
    assert found["local-directory-missing"]["examples"] == ["/nowhere/at/all"]
    assert "bkctl disk expand" in found["local-ledger-directories"]["fix"]


def test_13_a_cluster_that_was_formatted_is_told_by_its_id(bookie: Bookie) -> None:
    bookie.run("metaformat", "-n", "-f", "--no-backup")
    found = findings(bookie)
    fix = found["local-instance-id"]["fix"]
    assert fix.index("bkctl cluster restore FILE") < fix.index("bkctl disk format"), (
        "nothing is lost"
    )
    refused = bookie.run("disk", "format", "--yes", ok=False)
    assert (refused.status, "`bkctl cluster restore FILE`" in refused.err) == (4, True)


def test_13_a_cookie_that_the_cluster_has_lost_can_be_put_back(bookie: Bookie) -> None:
    bookie.run("cookie", "delete", bookie.old, "--yes")
    fix = findings(bookie)["local-cookie-not-stored"]["fix"]
    bookie.run(*fix.split()[1:])
    assert "local-cookie-not-stored" not in findings(bookie)


def test_14_settings_that_give_another_id_are_told_with_what_renames(bookie: Bookie) -> None:
    bookie.settings["bookieId"] = "bookie-one"
    fix = findings(bookie)["local-bookie-id"]["fix"]
    bookie.run(*fix.split()[1:-2], "--yes")
    assert "local-bookie-id" not in findings(bookie)


def test_15_a_stored_cookie_that_is_not_the_directories_can_be_mended(bookie: Bookie) -> None:
    async def another(store: Any) -> None:
        held = await store.read_cookie(bookie.old)
        other = attrs.evolve(decode_cookie(held.value), journal_dirs="/elsewhere")
        await store.write_cookie(bookie.old, encode_cookie(other), held.version)

    bookie.store(another)
    found = findings(bookie)["local-stored-journal-directories"]
    assert "/elsewhere" in found["what"]
    bookie.run(*found["fix"].split()[1:], "--yes")
    assert not [name for name in findings(bookie) if name.startswith("local-stored")]


def test_16_a_journal_that_the_mark_names_and_is_gone_is_told(bookie: Bookie) -> None:
    mark = bookie.base / "ledgers" / CURRENT / "lastMark"
    mark.write_bytes(encode_mark(LastMark(0x123, 512)))
    found = findings(bookie)["local-journal-missing"]
    assert "123.txn" in found["what"]
    assert "the bookie will not start" in found["what"]


def test_17_and_24_a_process_at_work_without_a_registration_is_told(bookie: Bookie) -> None:
    locks = DirectoryLocks()
    locks.take([bookie.base / "journal", bookie.base / "ledgers"])
    try:
        assert "is not registered" in findings(bookie)["local-not-registered"]["what"]
    finally:
        locks.release()


def test_a_bookie_that_runs_elsewhere_under_its_id_is_told(bookie: Bookie) -> None:
    async def registered(store: Any) -> dict[str, Any]:
        await store.register(bookie.old, info(bookie.old), read_only=False)
        return await threads.deferToThread(findings, bookie)

    assert "runs elsewhere" in bookie.store(registered)["local-runs-elsewhere"]["what"]


def test_the_file_of_a_bookie_on_another_host_is_no_risk(bookie: Bookie) -> None:
    async def registered(store: Any) -> dict[str, Any]:
        await store.register(bookie.old, info(bookie.old), read_only=False)
        return await threads.deferToThread(findings, bookie)

    bookie.settings["ledgerDirectories"] = "/nowhere/ledgers"
    bookie.settings["journalDirectories"] = "/nowhere/journal"
    found = bookie.store(registered)
    assert set(found) == {"local-on-another-host"}
    assert found["local-on-another-host"]["danger"] == "note"
    assert "local-directory-missing" in findings(bookie), "it has a cookie, and runs nowhere"
    bookie.settings["bookiePort"] = "1"
    assert set(findings(bookie)) == {"local-on-another-host"}


def test_23_another_storage_class_than_the_data_s_is_told(bookie: Bookie) -> None:
    (bookie.base / "ledgers" / CURRENT / "0" / "1").mkdir(parents=True)
    (bookie.base / "ledgers" / CURRENT / "0" / "1" / "a.idx").touch()
    bookie.settings["ledgerStorageClass"] = (
        "org.apache.bookkeeper.bookie.storage.ldb.DbLedgerStorage"
    )
    found = findings(bookie)["local-storage-kind"]
    assert "holds index files, which DbLedgerStorage does not read" in found["what"]


def test_settings_that_are_odd_or_refused_are_told(bookie: Bookie) -> None:
    bookie.settings["journalDirectorys"] = "/x"
    told = bookie.run("doctor", ok=False).out
    assert "journalDirectorys" in told
    assert "did you mean journalDirectory?" in told
    bookie.settings["journalMaxGroupWaitMSec"] = "soon"
    assert "soon" in findings(bookie)["local-setting-refused"]["what"]


def test_a_clock_that_went_back_is_seen_by_the_files(bookie: Bookie) -> None:
    ahead_s = time.time() + 3600
    os.utime(bookie.base / "ledgers" / CURRENT / "VERSION", (ahead_s, ahead_s))
    assert "in the future" in findings(bookie)["local-clock"]["what"]


def test_11_disks_are_told_when_they_fill_up_and_when_they_are_full() -> None:
    seen = LocalSurvey(
        conf="F",
        bookie_id=BookieId("b:1"),
        is_registered=True,
        is_at_work=True,
        disks={Path("/a"): 0.5, Path("/b"): 0.92, Path("/c"): 0.99},
    )
    found = local_findings(seen)
    assert [(one.severity, one.examples) for one in found] == [
        (Severity.TROUBLE, ("/b",)),
        (Severity.RISK, ("/c",)),
    ]
    assert found[1].message == "/c is full (99 % used)"
    assert found[1].fix == "bkctl disk usage -c F"
