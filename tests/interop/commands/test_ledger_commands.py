"""Our ledger commands, and Java's by their own names, next to Java's shell on one Java cluster."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import attrs
import pytest

from bkctl.exit_status import ExitStatus
from tests.bkctl.support.runner import Result
from tests.interop.peers.both_shells import bkctl
from tests.interop.peers.java_shell import ShellResult, java_shell
from tests.interop.peers.peers import (
    JavaBookie,
    Peers,
    ledgers_root,
    zookeeper_client,
)
from wire.ids import BookieId
from wire.ledger_metadata import decode_metadata, encode_metadata

ENTRIES = [b"entry %d" % number for number in range(12)]


@attrs.frozen
class Stage:
    """A cluster of Java bookies, and a ledger that Java's client wrote."""

    peers: Peers
    uri: str
    bookies: list[JavaBookie]
    ledger_id: int

    def ours(self, *words: object, typed: str = "", ok: bool = True) -> Result:
        return bkctl("-u", self.uri, *words, typed=typed, ok=ok)

    def compat(self, *java: object) -> Result:
        """Run a Java command line as ours, with the settings of a bookie of this cluster."""
        return bkctl("compat", "-conf", self.bookies[0].conf_path, *java)

    def java(self, *words: object) -> ShellResult:
        """Run the same in Java's shell."""
        done = java_shell(self.peers.vm, self.bookies[0].conf_path, *words)
        assert done.returncode == 0, (words, done.stderr)
        return done

    def node(self, ledger_id: int) -> bytes:
        """Return what ZooKeeper stores of a ledger."""
        digits = f"{ledger_id:010d}"
        path = f"{ledgers_root(self.uri)}/{digits[:2]}/{digits[2:6]}/L{digits[6:]}"
        with zookeeper_client(self.uri) as zk:
            value, _ = zk.get(path)
            return bytes(value)


def text_of(done: ShellResult) -> str:
    """Return all that Java's shell logged and printed, values included."""
    events = (f"{event.message} {dict(event.attributes)}" for event in done.events)
    return "\n".join([*events, done.printed])


@pytest.fixture(scope="module")
def stage(module_peers: Peers) -> Stage:
    uri = module_peers.metadata_uri()
    bookies = module_peers.java_bookies(3, uri)
    client = module_peers.java_client(uri)
    ledger = client.create_ledger(3, 2, 2, custom={"application": b"interop"})
    ledger.add_many(ENTRIES)
    ledger.close()
    return Stage(module_peers, uri, bookies, client.list_ledgers()[0])


def test_every_copy_on_java_bookies_is_found_and_one_that_is_not_there_is_named(
    stage: Stage, tmp_path: Path
) -> None:
    ledger_id = stage.ledger_id
    (sound,) = stage.ours("ledger", "verify", ledger_id, "--json").json["ledgers"]
    assert (sound["sound"], sound["entries"], sound["copies"]) == (True, 12, 24)
    file = tmp_path / "m"
    stage.ours("ledger", "metadata", "dump", ledger_id, file)
    metadata = decode_metadata(file.read_bytes())
    (fragment,) = metadata.fragments
    turned = (*fragment.ensemble[1:], fragment.ensemble[0])
    wrong = attrs.evolve(metadata, fragments=(attrs.evolve(fragment, ensemble=turned),))
    (tmp_path / "wrong").write_bytes(encode_metadata(wrong))
    restore = ("ledger", "metadata", "restore", ledger_id)
    stage.ours(*restore, tmp_path / "wrong", "--replace", "--yes")
    found = stage.ours("ledger", "verify", ledger_id, "--json", ok=False)
    assert found.status == ExitStatus.PROBLEMS
    (told,) = found.json["ledgers"]
    # Each bookie keeps two of three entries, and one of these is still looked for there.
    assert {one["flaw"] for one in told["bad"]} == {"missing"}
    assert sum(one["count"] for one in told["bad"]) == 12
    stage.ours(*restore, file, "--replace", "--yes")
    assert stage.ours("ledger", "verify", ledger_id).out.endswith("all sound\n")


def test_metadata_in_a_file_is_what_java_writes_and_reads(stage: Stage, tmp_path: Path) -> None:
    ledger_id = stage.ledger_id
    ours, java = tmp_path / "ours", tmp_path / "java"
    stage.ours("ledger", "metadata", "dump", ledger_id, ours)
    stage.java("ledgermetadata", "-ledgerid", ledger_id, "-dumptofile", java)
    assert ours.read_bytes() == java.read_bytes() == stage.node(ledger_id)
    for restore in (
        lambda: stage.java("ledgermetadata", "-ledgerid", 4711, "-restorefromfile", ours),
        lambda: stage.ours("ledger", "metadata", "restore", 4711, java),
    ):
        restore()
        found = decode_metadata(stage.node(4711))
        token = found.creator_token
        expected = attrs.evolve(decode_metadata(java.read_bytes()), creator_token=token)
        assert found == expected
        stage.ours("ledger", "delete", 4711, "--yes")


def test_one_bookies_copies_are_those_java_reads_and_the_last(stage: Stage) -> None:
    ledger_id = stage.ledger_id
    bookie = stage.bookies[0].bookie_id
    held = stage.ours("ledger", "read", ledger_id, "--bookie", bookie, "-o", "id").out.split()
    last = int(held[-1])
    read = ("-l", ledger_id, "-fe", 0, "-le", last, "-b", bookie, "-m")
    told = text_of(java_shell(stage.peers.vm, stage.bookies[0].conf_path, "readledger", *read))
    for entry_id in held[:-1]:
        assert re.search(rf"entry {entry_id}\b", told)
    # Java leaves the last one out.
    assert not re.search(rf"entry {last}\b", told)
    same = stage.compat("readledger", *read)
    assert same.out.splitlines() == [f"entry {entry_id}" for entry_id in held]
    assert f"bkctl ledger read {ledger_id} --first 0 --last {last} --bookie {bookie}" in same.err


@pytest.mark.parametrize(
    "java",
    [
        ("listledgers",),
        ("listledgers", "-m"),
        ("listbookies", "-rw"),
        ("listbookies", "-a"),
        ("ledgermetadata", "-l", "LEDGER"),
        ("readledger", "-l", "LEDGER", "-fe", "3", "-le", "5", "-m"),
        ("whatisinstanceid",),
        ("bookieinfo",),
        ("endpointinfo", "-b", "BOOKIE"),
        ("lastmark",),
        ("listfilesondisc", "-txn"),
    ],
    ids="_".join,
)
def test_a_java_command_gives_the_facts_that_java_gives(
    stage: Stage, java: tuple[str, ...]
) -> None:
    named = {"LEDGER": str(stage.ledger_id), "BOOKIE": stage.bookies[1].bookie_id}
    words = [named.get(word, word) for word in java]
    theirs, ours = text_of(stage.java(*words)), stage.compat(*words).out
    for fact in facts(java, stage):
        assert re.search(fact, theirs), (fact, theirs)
        assert re.search(fact, ours), (fact, ours)


def facts(java: tuple[str, ...], stage: Stage) -> list[str]:
    """Return what both have to say."""
    bookies = [re.escape(bookie.bookie_id) for bookie in stage.bookies]
    instance = stage.ours("cluster", "instance-id").out.strip()
    journals = stage.bookies[0].journal_directory / "current"
    known: dict[str, Any] = {
        "listledgers": [rf"\b{stage.ledger_id}\b"],
        "listbookies": bookies,
        "ledgermetadata": [*bookies, r"(?i)closed", r"\b11\b"],
        "readledger": ["entry 3", "entry 4", "entry 5"],
        "whatisinstanceid": [instance],
        "bookieinfo": bookies,
        "endpointinfo": [bookies[1], "bookie-rpc"],
        "lastmark": [r"\d+"],
        "listfilesondisc": [re.escape(path.name) for path in journals.glob("*.txn")],
    }
    found: list[str] = known[java[0]]
    assert found
    return found


def test_writing_and_reading_are_measured_on_java_bookies(stage: Stage) -> None:
    small = ("-n", 200, "--warm-up", 20, "--size", 100, "--json")
    before = stage.ours("ledger", "list", "-o", "id").out
    for words in (("write",), ("read",), ("read", "--random")):
        found = stage.ours("bench", *words, *small).json
        assert found["entries"] == 200
        assert 0 < found["mean"] <= found["worst"]
    assert stage.ours("ledger", "list", "-o", "id").out == before


def test_a_ledger_of_a_bookie_that_is_gone_is_told_without_waiting_for_each_entry(
    stage: Stage,
) -> None:
    victim = stage.bookies[2]
    victim.stop()
    try:
        found = stage.ours("ledger", "verify", stage.ledger_id, "--json", ok=False)
    finally:
        victim.start()
    (told,) = found.json["ledgers"]
    (bad,) = told["bad"]
    assert (BookieId(bad["bookie_id"]), bad["flaw"]) == (victim.bookie_id, "unreadable")
    assert bad["count"] == 8


def test_java_commands_about_files_tell_of_a_stopped_bookie_what_java_tells(stage: Stage) -> None:
    stopped = stage.bookies[1]
    ledger_id = stage.ledger_id
    stopped.stop()
    try:
        for java in (("readjournal", newest(stopped)), ("readlog", "0", "-l", ledger_id)):
            theirs = java_shell(stage.peers.vm, stopped.conf_path, *java)
            ours = bkctl("compat", "-conf", stopped.conf_path, *java, "--output", "jsonl").out
            records = map(json.loads, ours.splitlines())
            found = {one["entry"] for one in records if one["ledger"] == str(ledger_id)}
            told = {
                int(event.attributes["entryId"])
                for event in theirs.events
                if event.attributes.get("ledgerId") == str(ledger_id)
                and (event.attributes.get("entryId") or "").isdigit()
            }
            assert told
            assert found - {None} == told, java
        for java, expected in (
            (("readlogmetadata", "0"), [rf"\b{ledger_id}\b"]),
            (("ledger", ledger_id), [rf"\b{entry}\b" for entry in held_by(stage, stopped)]),
            (("activeledgers", "-l", "0", "-t", "5000"), [rf"\b{ledger_id}\b"]),
            (("lastmark",), [r"\d+"]),
        ):
            theirs = java_shell(stage.peers.vm, stopped.conf_path, *java)
            ours = bkctl("compat", "-conf", stopped.conf_path, *java).out
            for fact in expected:
                assert re.search(fact, text_of(theirs)), (java, fact, text_of(theirs))
                assert re.search(fact, ours), (java, fact, ours)
    finally:
        stopped.start()


def held_by(stage: Stage, bookie: JavaBookie) -> list[int]:
    """Return the entries that a bookie should have."""
    metadata = decode_metadata(stage.node(stage.ledger_id))
    index = metadata.ensemble.index(BookieId(bookie.bookie_id))
    return [entry for entry in range(len(ENTRIES)) if index in {entry % 3, (entry + 1) % 3}]


def newest(bookie: JavaBookie) -> str:
    """Return the name of the journal that a bookie wrote last."""
    return max(path.name for path in (bookie.journal_directory / "current").glob("*.txn"))
