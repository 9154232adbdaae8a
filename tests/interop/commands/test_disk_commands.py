"""``bkctl disk`` and the Java shell on the same directories say the same, whoever wrote them."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from tests.bkctl.support.disk import run
from tests.interop.peers.java_shell import ShellResult, java_shell
from tests.interop.peers.our_bookie import our_bookie
from tests.interop.peers.peers import JavaBookie, JavaVM, Peers

SMALL_LOGS = {"logSizeLimit": 20_000, "journalMaxBackups": 20}
INTERLEAVED = "org.apache.bookkeeper.bookie.InterleavedLedgerStorage"
SMALL_DB = {
    "ledgerStorageClass": "org.apache.bookkeeper.bookie.storage.ldb.DbLedgerStorage",
    "dbStorage_writeCacheMaxSizeMb": 16,
    "dbStorage_readAheadCacheMaxSizeMb": 16,
}
PAYLOADS = [b"x" * size for size in (1, 20, 300, 2_000)] * 10


def make_java(peers: Peers, uri: str, **conf: object) -> JavaBookie:
    return peers.java_bookie(uri, **conf)


def make_ours(peers: Peers, uri: str, **conf: object) -> JavaBookie:
    return our_bookie(peers, uri, **conf)


@pytest.fixture(scope="module", params=["java", "ours", "java-killed", "ours-killed", "java-db"])
def bookie(request: pytest.FixtureRequest, module_peers: Peers) -> JavaBookie:
    """A stopped bookie that has had some ledgers, a fence and an explicit LAC."""
    uri = module_peers.metadata_uri()
    make: Callable[..., JavaBookie] = make_java if request.param.startswith("java") else make_ours
    # Sorted storage rotates with its memtable only: too late for a test.
    storage: dict[str, object] = {"ledgerStorageClass": INTERLEAVED}
    if request.param.endswith("killed"):
        storage = {"flushInterval": 3_600_000}  # Not killed in the middle of one.
    elif request.param.endswith("db"):
        storage = SMALL_DB
    bookie = make(module_peers, uri, **SMALL_LOGS, **storage)
    client = module_peers.java_client(uri)
    for digest in ("CRC32C", "CRC32", "MAC"):
        ledger = client.create_ledger(1, 1, 1, digest=digest, password=b"secret")
        ledger.add_many(PAYLOADS)
        ledger.close()
    left_open = client.create_ledger(1, 1, 1, digest="CRC32C", password=b"")
    left_open.add_many([b"one", b"two"])
    client.open_ledger(left_open.ledger_id, digest="CRC32C", password=b"")  # Fences it.
    check_beside(bookie, "Java bookie" if request.param.startswith("java") else "bookied")
    if request.param.endswith("killed"):
        bookie.kill()
    else:
        bookie.stop()
    return bookie


def check_beside(bookie: JavaBookie, program: str) -> None:
    """See that a running bookie is noticed, and that its directories can be read beside it."""
    used = run("lock-status", "-c", bookie.conf_path, "-o", "jsonl", sees_processes=True).rows
    assert {one["state"] for one in used} == {"in use"}
    assert {(w["program"], w["pid"]) for one in used for w in one["workers"]} == {
        (program, bookie.pid)
    }
    found = run("check", "--deep", "-c", bookie.conf_path, "-o", "jsonl", sees_processes=True)
    assert f"in use by {program} (process {bookie.pid})" in found.err


def rows(bookie: JavaBookie, *words: object) -> list[dict[str, Any]]:
    return run(*words, "-c", bookie.conf_path, "-o", "jsonl").rows


def shell(vm: JavaVM, bookie: JavaBookie, *words: object) -> ShellResult:
    result = java_shell(vm, bookie.conf_path, *words)
    assert result.returncode == 0, result.stderr
    return result


def positions(result: ShellResult) -> list[tuple[int, int, int, int]]:
    """Return ledger, entry, position and size of every record that the shell has printed."""
    heads = [e.attributes for e in result.events if "position" in e.attributes]
    return [
        (int(a["ledgerId"]), int(a["entryId"]), int(a["position"]), int(a["entrySize"]))
        for a in heads
    ]


def test_journals_hold_the_same_records(java_vm: JavaVM, bookie: JavaBookie) -> None:
    meta = {"ledger key": -0x1000, "fence": -0x2000, "explicit LAC": -0x8000}
    for journal in rows(bookie, "files", "--journal"):
        found = rows(bookie, "journal", journal["name"])
        theirs = positions(shell(java_vm, bookie, "readjournal", journal["id"]))
        assert [
            (int(r["ledger"]), meta.get(r["kind"], r["entry"]), r["offset"]) for r in found
        ] == [head[:3] for head in theirs]


def test_entry_logs_hold_the_same_records_and_ledgers(java_vm: JavaVM, bookie: JavaBookie) -> None:
    logs = [one for one in rows(bookie, "files", "--entrylog") if one["size"]]
    with_map = 0
    for log in logs[:3]:
        found = rows(bookie, "entrylog", log["name"])
        theirs = positions(shell(java_vm, bookie, "readlog", log["id"]))
        assert [(int(r["ledger"]), r["entry"], r["offset"]) for r in found] == [
            head[:3] for head in theirs
        ]
        summary = run("entrylog", log["id"], "--summary", "-c", bookie.conf_path, "--json").json
        metadata = shell(java_vm, bookie, "readlogmetadata", f"{log['id']:x}")
        stated = [
            (e.attributes["ledgerId"], int(e.attributes["size"]))
            for e in metadata.events
            if {"ledgerId", "size"} <= set(e.attributes)
        ]
        assert sorted((one["ledger"], one["bytes"]) for one in summary["ledgers"]) == sorted(stated)
        assert metadata.attribute("totalSize") == [str(summary["data_bytes"])]
        with_map += summary["ledgers_map"] == "intact"
    assert with_map or not logs or len(logs) == 1, "nothing was rotated"


def test_the_mark_is_the_same(java_vm: JavaVM, bookie: JavaBookie) -> None:
    found = rows(bookie, "lastmark", "--check")
    events = shell(java_vm, bookie, "lastmark").events
    told = [event.message for event in events if "LastLogMark" in event.message]
    if not found:  # Java tells 0 where there is no mark.
        assert "Journal Id - 0(0.txn), Pos - 0" in told[0]
        return
    (row,) = found
    wanted = f"Journal Id - {row['journal_id']}({row['journal_file']}), Pos - {row['offset']}"
    assert wanted in told[0]


@pytest.mark.parametrize(
    ("option", "flag"), [("--journal", "-txn"), ("--entrylog", "-log"), ("--index", "-idx")]
)
def test_the_files_are_the_same(
    java_vm: JavaVM, bookie: JavaBookie, option: str, flag: str
) -> None:
    listed = rows(bookie, "files", option)
    found = {str(Path(one["path"]).resolve()) for one in listed if one["kind"] != "database"}
    theirs = shell(java_vm, bookie, "listfilesondisc", flag).attribute("canonicalPath")
    databases = {"ledgers", "locations"}  # Java takes their logs for entry logs.
    assert found == {path for path in theirs if Path(path).parent.name not in databases}


def test_both_find_the_directories_consistent(java_vm: JavaVM, bookie: JavaBookie) -> None:
    for words in (["check"], ["check", "--deep"]):
        found = rows(bookie, *words)
        assert [one for one in found if one["severity"] == "problem"] == []
    assert shell(java_vm, bookie, "localconsistencycheck").returncode == 0


def test_every_entry_that_was_acknowledged_is_found_on_the_disk(bookie: JavaBookie) -> None:
    ledgers = rows(bookie, "ledgers")
    assert [one["last_entry"] for one in ledgers] == [len(PAYLOADS) - 1] * 3 + [1]
    assert [one["fenced"] for one in ledgers][3]
    for one in ledgers:
        found = rows(bookie, "ledger", one["ledger_id"], "--payload")
        assert [row["entry"] for row in found] == list(range(one["last_entry"] + 1))


def test_both_find_an_entry_that_leads_elsewhere(java_vm: JavaVM, bookie: JavaBookie) -> None:
    """Last: it damages the directories."""
    files = [one for one in rows(bookie, "files", "--index") if one["kind"] == "index"]
    if not files:
        return  # Killed before there were any, or RocksDB: other tests damage those.
    ledger_id = files[0]["id"]
    slots = rows(bookie, "index", ledger_id)
    path = Path(files[0]["path"])
    data = bytearray(path.read_bytes())
    data[1024:1032] = data[1032:1040]
    path.write_bytes(data)
    found = run("check", "-c", bookie.conf_path, "-o", "jsonl", ok=False)
    bad = [one for one in found.rows if one["entry"] is not None]
    assert [(one["kind"], one["ledger"], one["entry"]) for one in bad] == [
        ("wrong-entry", str(ledger_id), slots[0]["entry"])
    ]
    theirs = java_shell(java_vm, bookie.conf_path, "localconsistencycheck")
    assert theirs.returncode == 1
    told = [e.attributes for e in theirs.events if "entryId" in e.attributes]
    assert (str(ledger_id), str(slots[0]["entry"])) in {
        (one["ledgerId"], one["entryId"]) for one in told
    }
