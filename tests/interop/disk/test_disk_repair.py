"""The commands that change a stopped bookie's directories, on a real Java bookie's data.

Java's client writes ledgers of every kind to a Java bookie. Then its directories are taken apart
and mended by our commands, and bookies of both kinds have to serve all of it.
"""

from __future__ import annotations

import json
import shutil
from pathlib import Path
from typing import Any, Final

import pytest

from tests.interop.disk.test_storage_handover import INTERLEAVED, SORTED, Handover
from tests.interop.peers import both_shells
from tests.interop.peers.java_shell import java_shell
from tests.interop.peers.our_bookie import OurBookie
from tests.interop.peers.peers import JavaBookie, Peers, ledgers_root, zookeeper_client

DB: Final[dict[str, Any]] = SORTED | {
    "ledgerStorageClass": "org.apache.bookkeeper.bookie.storage.ldb.DbLedgerStorage",
    "dbStorage_writeCacheMaxSizeMb": 16,
    "dbStorage_readAheadCacheMaxSizeMb": 8,
    "dbStorage_rocksDB_blockCacheSize": 8 << 20,
}


def bkctl(handover: Handover, *words: object, status: int = 0) -> str:
    """Run a command on the stopped bookie's settings; return what it prints."""
    done = both_shells.bkctl(*words, "-c", handover.bookie.conf_path, ok=False)
    assert done.status == status, done
    return done.out + done.err


def written_by_java(peers: Peers, conf: dict[str, Any], directories: int = 1) -> Handover:
    """Return the directories of a Java bookie that has stopped with ledgers of every kind."""
    handover = Handover(peers, conf, is_wide=False)
    if directories > 1:
        names = [str(handover.directory / f"ledger{n}") for n in range(directories)]
        handover.conf |= {"ledgerDirectories": ",".join(names)}
    handover.start(JavaBookie)
    write_with_explicit_lacs(handover)
    handover.end("stopped")
    return handover


def write_with_explicit_lacs(handover: Handover) -> None:
    """Write ledgers, some with an explicit LAC, and then entries: without any behind it Java's
    DbLedgerStorage forgets an explicit LAC over a clean stop (storage.md D2)."""
    handover.write(explicit_lacs=True)
    handover.write(explicit_lacs=False)


def roots(handover: Handover) -> list[Path]:
    return sorted(path.parent for path in handover.directory.glob("*/current"))


def read_by(handover: Handover, kind: type[JavaBookie], **conf: Any) -> None:
    """Let a bookie start on the directories, read everything, and stop it."""
    handover.conf |= conf
    handover.start(kind)
    handover.check()
    handover.end("stopped")


def delete_cookie(handover: Handover) -> None:
    with zookeeper_client(handover.uri) as zk:
        zk.delete(f"{ledgers_root(handover.uri)}/cookies/{handover.bookie.bookie_id}")


def has_cookie(handover: Handover) -> bool:
    with zookeeper_client(handover.uri) as zk:
        path = f"{ledgers_root(handover.uri)}/cookies/{handover.bookie.bookie_id}"
        return zk.exists(path) is not None


# Upgrade ------------------------------------------------------------------------------------------


@pytest.mark.parametrize("version", [1, 2])
def test_an_old_layout_is_upgraded_and_serves_under_both(peers: Peers, version: int) -> None:
    handover = written_by_java(peers, INTERLEAVED)
    for root in roots(handover):
        for path in (root / "current").iterdir():
            if path.name == "VERSION":
                path.unlink()
            else:
                path.rename(root / path.name)
        (root / "current").rmdir()
        if version > 1:
            (root / "VERSION").write_text("2\n")
    delete_cookie(handover)

    refused = OurBookie(handover.uri, handover.directory, handover.port, **handover.conf)
    refused.spawn()
    assert refused.wait(120) == 7
    assert "bkctl upgrade --upgrade" in refused.log.read_text()

    assert "old" in bkctl(handover, "upgrade", "--check", status=10)
    bkctl(handover, "upgrade", "--upgrade")
    bkctl(handover, "upgrade", "--finalize", "--yes", status=4)
    read_by(handover, OurBookie)
    read_by(handover, JavaBookie)
    bkctl(handover, "upgrade", "--finalize", "--yes")
    for root in roots(handover):
        names = {path.name for path in root.iterdir()}
        noted = {"bookied.journal", "bookied.held", "bookied.path"}
        assert names <= {"current", "bookied.lock", *noted}
    read_by(handover, JavaBookie)
    bkctl(handover, "upgrade", "--rollback", "--yes", status=4)
    read_by(handover, OurBookie)


# Index files --------------------------------------------------------------------------------------


@pytest.mark.parametrize("conf", [SORTED, INTERLEAVED], ids=["sorted", "interleaved"])
def test_deleted_indexes_are_rebuilt_and_java_reads_all(peers: Peers, conf: dict[str, Any]) -> None:
    handover = written_by_java(peers, conf)
    deleted = list(handover.directory.rglob("*.idx"))
    assert len(deleted) == len(handover.written)
    for path in deleted:
        path.unlink()
    told = bkctl(handover, "disk", "rebuild-index", "--all", "--json")
    rebuilt = {int(row["ledger_id"]): row for row in json.loads(told)["ledgers"]}
    for one in handover.written:
        row = rebuilt[one.ledger_id]
        assert (row["entries"], row["written"]) == (len(one.entries), True)
        assert row["key_from"] == "journal" or row["key_from"] == "metadata"
    handover.start(JavaBookie)
    handover.check()
    handover.check_fences()
    handover.end("stopped")


# Databases ----------------------------------------------------------------------------------------


@pytest.mark.parametrize("directories", [1, 2])
def test_java_reads_all_after_each_way_of_a_conversion(peers: Peers, directories: int) -> None:
    handover = written_by_java(peers, INTERLEAVED, directories)
    bkctl(handover, "disk", "convert", "--to", "db")
    assert list(handover.directory.rglob("*.idx")) == []
    read_by(handover, JavaBookie, **DB)
    read_by(handover, OurBookie)
    bkctl(handover, "disk", "convert", "--to", "interleaved")
    read_by(handover, JavaBookie, ledgerStorageClass=INTERLEAVED["ledgerStorageClass"])
    handover.start(OurBookie)
    handover.check()
    handover.check_fences()
    handover.end("stopped")


def test_databases_of_java_are_rebuilt_as_they_were(peers: Peers) -> None:
    handover = written_by_java(peers, DB, directories=2)
    for root in handover.directory.glob("ledger*/current"):
        shutil.rmtree(root / "locations")
    bkctl(handover, "disk", "rebuild-db", "--locations")
    handover.start(JavaBookie)
    handover.check()
    write_with_explicit_lacs(handover)
    handover.end("stopped")
    for root in handover.directory.glob("ledger*/current"):
        shutil.rmtree(root / "ledgers")
    told = bkctl(handover, "disk", "rebuild-db", "--ledgers", "-o", "jsonl")
    rows = [json.loads(line) for line in told.splitlines() if line.startswith("{")]
    assert sum(row["ledgers"] for row in rows) == len(handover.written)
    assert [row["keyless"] for row in rows] == [[], []]
    for one in handover.written:
        one.lac = None  # Only the databases had it where Java has removed the journal since.
    handover.start(JavaBookie)
    handover.check()
    handover.check_fences()
    handover.end("stopped")


# Format and flush ---------------------------------------------------------------------------------


def tree(directory: Path) -> list[str]:
    return sorted(
        str(path.relative_to(directory))
        for path in directory.rglob("*")
        if path.name not in {"bookied.lock", "shell"}
        and path.relative_to(directory).parts[0] in {"journal", "ledgers"}
    )


@pytest.mark.parametrize("delete", [False, True])
def test_a_format_leaves_what_java_s_leaves(peers: Peers, *, delete: bool) -> None:
    by_java = written_by_java(peers, SORTED)
    by_us = written_by_java(peers, SORTED)
    options = ["-deleteCookie"] if delete else []
    words = ("bookieformat", "-nonInteractive", "-force", *options)
    done = java_shell(peers.vm, by_java.bookie.conf_path, *words)
    assert done.returncode == 0, done.stderr
    bkctl(by_us, *words, "--override", "only-copies")
    assert tree(by_us.directory) == tree(by_java.directory) == ["journal", "ledgers"]
    assert has_cookie(by_us) is has_cookie(by_java) is not delete


def test_a_fence_survives_our_crash_and_java_s_replay(peers: Peers) -> None:
    """A journal tail without an entry is what Java's replay loses (storage.md, D2 and D3)."""
    handover = Handover(peers, INTERLEAVED, is_wide=False)
    handover.start(OurBookie)
    handover.write(explicit_lacs=True)
    handover.take_over(OurBookie, "stopped")
    for one in [one for one in handover.written if not one.is_closed]:
        handover.client.fence(one.ledger_id, digest=one.digest, password=one.password)
    handover.end("killed")
    bkctl(handover, "disk", "flush")
    handover.start(JavaBookie)
    handover.end("stopped")
    told = bkctl(handover, "disk", "ledgers", "--json")
    fenced = {int(row["ledger_id"]): row["fenced"] for row in json.loads(told)["ledgers"]}
    assert all(fenced[one.ledger_id] for one in handover.written if not one.is_closed)


def test_a_running_java_bookie_is_left_alone(peers: Peers) -> None:
    handover = Handover(peers, SORTED, is_wide=False)
    handover.start(JavaBookie)
    for words in (
        ["disk", "format", "--yes"],
        ["disk", "flush"],
        ["disk", "rebuild-index", "--all"],
        ["disk", "convert", "--to", "db"],
        ["upgrade", "--upgrade"],
    ):
        assert "stop" in bkctl(handover, *words, status=4)
    # Nor by port or registration alone, where its process cannot be seen.
    told = bkctl(handover, "disk", "format", "--yes", "--force", "registered", status=4)
    assert "in use" in told or "is taken" in told
    handover.end("stopped")
