"""``bkctl disk`` on the golden directories: what Java wrote is what is printed."""

from __future__ import annotations

import base64
import itertools
import os
import re
import shutil
import subprocess
import sys
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest

from bkctl.cli.root import cli
from bkctl.commands.ledger.columns import preview
from bkctl.exit_status import ExitStatus
from bkctl.global_options import OUTPUTS
from bookied.directories.lock import DirectoryLocks
from bookied.storage.journal.format import entry_record, header
from tests.bkctl.support.disk import SYNTHETIC, copy_of, dirs, run, snapshot
from tests.bkctl.support.terminal import FakeHost
from tests.bookied.worlds.golden import CRASHED, DIRECTORY, WITH_LEDGERS, expected, sha256
from wire.codes import DigestType
from wire.digest import digester

KINDS = {"ENTRY": "entry", "LEDGER_KEY": "ledger key", "EXPLICIT_LAC": "explicit LAC",
         "FENCE": "fence", "LEDGER_FENCE": "fence"}  # fmt: skip
INDEXED = [*WITH_LEDGERS, "db/clean", "db/crash"]
ALL = [*INDEXED, *CRASHED]
COMMANDS = (
    ["journal"], ["journal", "--payload"], ["journal", "--verify"], ["entrylog", "0"],
    ["entrylog", "0x0", "--payload"], ["entrylog", "0.log", "--summary"],
    ["entrylog", "0", "--live"], ["entrylog", "0", "--live", "--summary"], ["ledger", "1"],
    ["ledger", "0", "--payload"], ["ledgers"], ["ledgers", "--bytes"], ["index", "1"],
    ["index", "1", "--meta"], ["index", "1", "--holes"], ["lastmark"], ["lastmark", "--check"],
    ["files"], ["usage"], ["usage", "--directories"], ["check"], ["check", "--deep"],
    ["check", "--repair-plan"], ["lock-status"],
)  # fmt: skip
EXPECTED_STATUSES = {ExitStatus.DONE, ExitStatus.NOT_FOUND, ExitStatus.PROBLEMS}


def ids(words: object) -> str:
    return " ".join(words) if isinstance(words, list) else str(words)


# All of them -------------------------------------------------------------------------------------


@pytest.mark.parametrize("words", COMMANDS, ids=ids)
@pytest.mark.parametrize("name", ALL)
def test_every_command_prints_every_golden_directory_and_changes_nothing(
    name: str, words: list[str]
) -> None:
    before = snapshot(DIRECTORY / name)
    for output in ("table", "jsonl"):
        found = run(*words, *dirs(name), "-o", output, ok=False)
        assert found.status in EXPECTED_STATUSES, found
        assert "this is a bug" not in found.err
    assert snapshot(DIRECTORY / name) == before


@pytest.mark.parametrize("output", OUTPUTS)
@pytest.mark.parametrize("words", COMMANDS, ids=ids)
def test_every_command_has_every_form(words: list[str], output: str) -> None:
    found = run(*words, *dirs("sorted/clean"), "-o", output)
    assert found.out or words[0] == "check" or words[-1] == "--holes"


@pytest.mark.parametrize(
    "command", ["check", "files", "lastmark", "ledgers", "lock-status", "usage"]
)
def test_a_directory_is_an_argument_or_an_option(command: str, tmp_path: Path) -> None:
    options = copy_of("sorted/clean", tmp_path)
    bookie = tmp_path / "bookie"
    by_option = run(command, *options, "-o", "jsonl")
    assert by_option.out or command == "check"
    assert run(command, bookie, "-o", "jsonl").out == by_option.out
    refused = run(command, bookie, *options, ok=False)
    assert (refused.status, "give either DIR" in refused.err) == (ExitStatus.USAGE, True)


@pytest.mark.parametrize(
    ("name", "words"),
    [
        ("sorted/crash", ["flush"]),
        ("sorted/clean", ["convert", "--to", "db"]),
        ("db/clean", ["rebuild-db", "--ledgers", "--locations"]),
    ],
    ids=ids,
)
def test_a_directory_that_a_command_changes_is_an_argument_or_an_option(
    name: str, words: list[str], tmp_path: Path
) -> None:
    found = []
    for side in ("option", "argument"):
        options = copy_of(name, tmp_path / side)
        given = options if side == "option" else [tmp_path / side / "bookie"]
        said = run(*words, *given, "--yes", "-o", "jsonl")
        files = "\n".join(snapshot(tmp_path / side))
        told = said.out.replace(str(tmp_path / side), "")
        found.append([re.sub(r"[0-9T-]{8,}", "TIME", text) for text in (told, files)])
    by_option, by_argument = found
    assert by_option == by_argument
    assert by_option[0]


# Journals ----------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", ALL)
def test_journals_are_printed_record_by_record(name: str) -> None:
    wanted = expected(name)["journals"]
    rows = run("journal", *dirs(name), "-o", "jsonl", "--payload").rows
    by_file = {file: list(found) for file, found in itertools.groupby(rows, lambda r: r["file"])}
    for file, facts in wanted.items():
        found = by_file.get(file, [])
        assert [(r["offset"], r["kind"], int(r["ledger"])) for r in found] == [
            (one["offset"], KINDS[one["type"]], one["ledgerId"]) for one in facts["records"]
        ]
        for row, one in zip(found, facts["records"], strict=True):
            if one["type"] == "ENTRY":
                assert (row["entry"], row["last_add_confirmed"]) == (one["entryId"], one["lac"])


def test_records_of_one_ledger_from_a_place_on_can_be_chosen() -> None:
    name = "1a1fc678c2b.txn"
    all_of = run("journal", name, *dirs("sorted/clean"), "-o", "jsonl").rows
    chosen = run(
        "journal", "0x1a1fc678c2b", *dirs("sorted/clean"), "--ledger", 1, "--from", 3116,
        "-o", "jsonl",
    ).rows  # fmt: skip
    assert chosen == [r for r in all_of if r["ledger"] == "1" and r["offset"] >= 3116]
    path = DIRECTORY / "sorted/clean/journal/current" / name
    assert run("journal", path, "-o", "jsonl").rows == all_of
    assert run("journal", 1795236006955, *dirs("sorted/clean"), "-o", "jsonl").rows == all_of


def test_a_master_key_is_shown_only_when_asked_for() -> None:
    hidden = run("journal", *dirs("sorted/clean")).out
    key = expected("sorted/clean")["ledgers"]["0"]["masterKey"]
    assert key not in hidden
    assert "key of 20 bytes" in hidden
    assert key in run("journal", *dirs("sorted/clean"), "--show-secrets", "-o", "jsonl").out
    meta = ("index", 0, "--meta", *dirs("sorted/clean"))
    assert key not in run(*meta).out
    assert key in run(*meta, "--show-secrets").out


@pytest.mark.processes
def test_a_file_with_secrets_is_for_its_user_alone(tmp_path: Path) -> None:
    path = tmp_path / "out"
    for secrets, mode in ((False, 0o644), (True, 0o600)):
        words = ["disk", "index", "0", "--meta", *map(str, dirs("sorted/clean"))]
        command = [sys.executable, "-m", "bkctl", *words, *["--show-secrets"] * secrets]
        with path.open("w") as file:
            path.chmod(0o644)
            subprocess.run(command, check=True, stdout=file, timeout=120)
        assert path.stat().st_mode & 0o777 == mode
    assert expected("sorted/clean")["ledgers"]["0"]["masterKey"] in path.read_text()


OUTCOMES = {
    "101": ("intact", 2, 597), "102": ("intact", 1, 561), "103": ("torn tail", 1, 553),
    "104": ("torn tail", 1, 553), "105": ("damaged", 1, 553), "106": ("damaged", 1, 553),
    "107": ("damaged", 1, 49), "108": ("torn tail", 1, 553), "109": ("damaged", 1, 553),
    "10a": ("damaged", 0, 0), "10b": ("damaged", 0, 0), "10c": ("intact", 2, 82),
    "10d": ("intact", 1, 49), "10e": ("intact", 2, 93), "10f": ("intact", 2, 1065),
    "110": ("intact", 0, 0), "111": ("intact", 0, 512), "112": ("intact", 0, 512),
    "113": ("damaged", 0, 0), "114": ("residue", 1, 553), "115": ("torn tail", 1, 553),
}  # fmt: skip


@pytest.mark.parametrize("number", OUTCOMES)
def test_every_synthetic_journal_is_judged(number: str) -> None:
    path = SYNTHETIC / f"{number}.txn"
    found = run("journal", path, "--verify", "-o", "jsonl", ok=False)
    (row,) = found.rows
    state, records, end = OUTCOMES[number]
    assert (row["state"], row["records"], row["end"]) == (state, records, end)
    assert found.status == (ExitStatus.PROBLEMS if state == "damaged" else ExitStatus.DONE)
    listed = run("journal", path, "-o", "jsonl", ok=False)
    assert len(listed.rows) == records
    assert listed.status == found.status
    if state == "damaged":
        assert str(path) in listed.err
        assert "bkctl disk check --deep" in listed.err


def test_damage_in_one_journal_does_not_hide_the_next(tmp_path: Path) -> None:
    words = copy_of("sorted/clean", tmp_path)
    directory = tmp_path / "bookie/journal/current"
    (directory / "1.txn").write_bytes((SYNTHETIC / "105.txn").read_bytes())
    found = run("journal", *words, "-o", "jsonl", ok=False)
    assert found.status == ExitStatus.PROBLEMS
    assert {row["file"] for row in found.rows} == {"1.txn", "1a1fc678c2b.txn"}
    assert f"{directory / '1.txn'} at offset 553: negative length -5" in found.err


# Entry logs --------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", ALL)
def test_entry_logs_are_printed_record_by_record(name: str) -> None:
    for file, facts in expected(name)["entryLogs"].items():
        rows = run("entrylog", file, *dirs(name), "-o", "jsonl").rows
        if isinstance(facts.get("entries"), int):  # Only their number is stated.
            assert len(rows) == facts["entries"]
            continue
        assert [(r["offset"], int(r["ledger"]), r["entry"], r["size"]) for r in rows] == [
            (one["recordOffset"], one["ledgerId"], one["entryId"], one["storedLen"])
            for one in facts.get("entries", [])
        ]


def test_a_summary_goes_by_the_map_and_agrees_with_the_records() -> None:
    wanted = expected("interleaved/rotated")["entryLogs"]
    for file, facts in wanted.items():
        told = run("entrylog", file, *dirs("interleaved/rotated"), "--summary", "--json").json
        stated = {one["ledger"]: one["bytes"] for one in told["ledgers"]}
        if facts.get("ledgersMap"):
            assert told["ledgers_map"] == "intact"
            assert stated == facts["ledgersMap"]
        live = run("entrylog", file, *dirs("interleaved/rotated"), "--summary", "--live", "--json")
        counted = {one["ledger"]: one["bytes"] for one in live.json["ledgers"]}
        assert counted == stated
        assert live.json["live_bytes"] <= live.json["data_bytes"]


def test_a_log_can_be_named_both_ways_and_a_wrong_name_gets_a_hint(
    capsys: pytest.CaptureFixture[str],
) -> None:
    rows = run("entrylog", 1, *dirs("interleaved/rotated"), "-o", "jsonl").out
    for name in ("0x1", "1.log", DIRECTORY / "interleaved/rotated/ledgers/current/1.log"):
        assert run("entrylog", name, *dirs("interleaved/rotated"), "-o", "jsonl").out == rows
    wrong = run("entrylog", "1a", *dirs("interleaved/rotated"), ok=False)
    assert wrong.status == ExitStatus.USAGE
    assert "hexadecimal is written 0x1a or 1a.log" in capsys.readouterr().err
    missing = run("entrylog", 26, *dirs("interleaved/rotated"), ok=False)
    assert missing.status == ExitStatus.NOT_FOUND
    assert "there is no entry log 26 (0x1a), 1a.log" in missing.err
    assert "bkctl disk files --entrylog" in missing.err


@pytest.mark.parametrize("which", [0, -1])
def test_an_entry_that_fails_its_ledgers_digest_is_damaged(tmp_path: Path, which: int) -> None:
    places = copy_of("interleaved/rotated", tmp_path)
    words = ("entrylog", 0, *places, "--payload", "-o", "jsonl")
    known = [row for row in run(*words).rows if row["digest"] in {"crc32c", "crc32"}]
    ledger = known[0]["ledger_id"]
    row = [one for one in known if one["ledger_id"] == ledger][which]
    with Path(row["path"]).open("r+b") as file:
        file.seek(row["offset"] + 4 + row["size"] - 1)
        last = file.read(1)[0]
        file.seek(-1, 1)
        file.write(bytes([last ^ 1]))
    found = run(*words, "--ledger", ledger, "--entry", row["entry_id"], ok=False)
    assert found.status == ExitStatus.PROBLEMS
    assert [one["digest"] for one in found.rows] == ["wrong"]
    assert "digest, which other entries of the ledger pass" in found.err
    steps = run("check", "--deep", "--repair-plan", *places, ok=False).out
    assert f"--ledger {ledger} --to BOOKIE" in steps


@pytest.mark.parametrize("which", [0, -1])
def test_an_entry_of_a_ledger_that_fails_the_digest_of_the_others_is_damaged(
    tmp_path: Path, which: int
) -> None:
    words = ("ledger", 41, *copy_of("interleaved/rotated", tmp_path), "-o", "jsonl")
    row = [one for one in run(*words).rows if one["digest"] == "crc32c"][which]
    with Path(row["path"]).open("r+b") as file:
        file.seek(row["offset"] + 4 + row["size"] - 1)
        last = file.read(1)[0]
        file.seek(-1, 1)
        file.write(bytes([last ^ 1]))
    found = run(*words, ok=False)
    assert found.status == ExitStatus.PROBLEMS
    assert [one["digest"] for one in found.rows].count("wrong") == 1
    assert f"ledger 41 entry {row['entry_id']} fails its CRC32C digest" in found.err


@pytest.mark.parametrize(
    ("payload", "shown"),
    [
        (b"caf\xc3\xa9", "café"),
        (b"\x00\xff\x1b[2J", "0x00ff1b5b324a"),
        (b"\x1b]0;x", "0x1b5d303b78"),
    ],
)
def test_a_payload_that_is_not_text_is_shown_in_hexadecimal(payload: bytes, shown: str) -> None:
    assert preview(payload) == shown


def test_records_of_a_log_can_be_chosen_by_ledger_entry_and_place() -> None:
    words = ("entrylog", 0, *dirs("interleaved/rotated"), "-o", "jsonl")
    rows = run(*words).rows
    assert run(*words, "--ledger", 40, "--entry", "1-2").rows == [
        r for r in rows if r["ledger"] == "40" and r["entry"] in {1, 2}
    ]
    assert run(*words, "--start", 1424, "--end", 1600).rows == [
        r for r in rows if 1424 <= r["offset"] <= 1600
    ]
    # Ledger 40's entry 3 was written twice, and the index finds one of the two.
    live = run(*words, "--live").rows
    assert len([r for r in live if (r["ledger"], r["entry"]) == ("40", 3)]) < 2


def test_a_log_written_past_the_page_cache_is_read_over_its_padding() -> None:
    path = DIRECTORY / "db/direct-io/0.log"
    facts = expected("db/direct-io")
    rows = run("entrylog", path, "-o", "jsonl").rows
    told = run("entrylog", path, "--summary", "--json").json
    assert rows
    assert {row["ledger"] for row in rows} == {one["ledger"] for one in told["ledgers"]}
    assert told["ledgers_map"] == "intact", facts
    sizes: dict[str, int] = {}
    for row in rows:
        sizes[row["ledger"]] = sizes.get(row["ledger"], 0) + row["size"] + 4
    assert sizes == {one["ledger"]: one["bytes"] for one in told["ledgers"]}


# Ledgers -----------------------------------------------------------------------------------------


def ledgers_in_journals(name: str) -> dict[int, set[int]]:
    found: dict[int, set[int]] = {}
    for facts in expected(name)["journals"].values():
        for one in facts["records"]:
            entries = found.setdefault(one["ledgerId"], set())
            if one["type"] == "ENTRY":
                entries.add(one["entryId"])
    return found


@pytest.mark.parametrize(
    "words", [("ledger", 40), ("ledger", 40, "0-1"), ("index", 40), ("entrylog", 0), ("journal",)]
)
def test_directories_are_named_as_an_argument_too(words: tuple[object, ...]) -> None:
    name = "interleaved/rotated"
    by_option = run(*words, *dirs(name), "-o", "jsonl").out
    assert run(*words, DIRECTORY / name, "-o", "jsonl").out == by_option
    assert by_option


@pytest.mark.parametrize("name", INDEXED)
def test_ledgers_are_listed_as_the_index_has_them(name: str) -> None:
    wanted = expected(name)["ledgers"]
    rows = run("ledgers", *dirs(name), "-o", "jsonl").rows
    assert {row["ledger_id"] for row in rows} == set(wanted)
    for row in rows:
        facts = wanted[row["ledger_id"]]
        assert row["fenced"] == facts["fenced"]
        assert row["last_entry"] == max(one["entryId"] for one in facts["entries"])
        lac = facts["explicitLac"]
        assert row["explicit_lac"] == (lac["lac"] if lac else None)
        assert row["has_key"]


@pytest.mark.parametrize("name", CRASHED)
def test_after_a_crash_ledgers_come_from_the_journals(name: str) -> None:
    wanted = ledgers_in_journals(name)
    rows = run("ledgers", *dirs(name), "-o", "jsonl").rows
    assert {int(row["ledger_id"]): row["source"] for row in rows} == dict.fromkeys(
        wanted, "journal"
    )
    assert {int(r["ledger_id"]): r["last_entry"] for r in rows} == {
        ledger_id: max(entries, default=-1) for ledger_id, entries in wanted.items()
    }
    assert run("ledgers", "--no-journal", *dirs(name), "-o", "jsonl").rows == []


@pytest.mark.parametrize("name", ALL)
def test_the_entries_of_a_ledger_are_found_with_what_they_hold(name: str) -> None:
    ledgers: dict[str, Any] = expected(name).get("ledgers") or {}
    crashed = ledgers_in_journals(name)
    for ledger_id in ledgers or crashed:
        rows = run("ledger", ledger_id, *dirs(name), "--payload", "-o", "jsonl").rows
        if name in CRASHED:
            assert {row["entry"] for row in rows} == crashed[int(ledger_id)]
            assert {row["source"] for row in rows} == {"journal"}
            continue
        facts = {one["entryId"]: one for one in ledgers[ledger_id]["entries"]}
        assert [row["entry"] for row in rows] == sorted(facts)
        for row in rows:
            one = facts[row["entry"]]
            assert row["last_add_confirmed"] == one["lac"]
            payload = base64.b64decode(row["payload_b64"])
            digest_sizes = (0, 20) if row["digest"] == "unknown" else (0,)
            assert one["payloadSha256"] in [sha256(payload[size:]) for size in digest_sizes]


def test_a_range_of_entries_can_be_asked_for() -> None:
    words = ("ledger", 0, "1-2", *dirs("sorted/clean"), "-o", "id")
    assert run(*words).out.split() == ["1", "2"]
    missing = run("ledger", 0, "7-", *dirs("sorted/clean"), ok=False)
    assert missing.status == ExitStatus.NOT_FOUND
    assert "no entry from 7" in missing.err


def test_the_index_says_where_entries_are_and_which_are_missing(tmp_path: Path) -> None:
    facts = expected("sorted/clean")["ledgers"]["0"]["entries"]
    rows = run("index", 0, *dirs("sorted/clean"), "-o", "jsonl").rows
    assert [(r["entry"], int(r["location"], 16)) for r in rows] == [
        (one["entryId"], one["location"]["value"]) for one in facts
    ]
    words = copy_of("sorted/clean", tmp_path)
    path = tmp_path / "bookie/ledgers/current/0/0/0.idx"
    data = bytearray(path.read_bytes())
    data[1024 + 8 : 1024 + 24] = bytes(16)
    path.write_bytes(data)
    (hole,) = run("index", 0, "--holes", *words, "-o", "jsonl").rows
    assert (hole["first"], hole["last"], hole["entries"]) == (1, 2, 2)
    missing = run("index", 77, *words, ok=False)
    assert missing.status == ExitStatus.NOT_FOUND
    assert "has no ledger 77 (0x4d); `bkctl disk ledger 77` looks into the journals" in missing.err


def test_a_rebuilt_database_says_which_ledgers_have_no_key(tmp_path: Path) -> None:
    (tmp_path / "current/locations").mkdir(parents=True)
    shutil.copytree(DIRECTORY / "db/rebuilt-ledgers-index/ledgers", tmp_path / "current/ledgers")
    found = run("ledgers", "--ledger-dir", tmp_path, "-o", "jsonl", ok=False)
    assert found.status == ExitStatus.PROBLEMS
    assert f"{tmp_path}/current/locations: there is no such database" in found.err
    assert found.rows
    assert {(row["fenced"], row["has_key"]) for row in found.rows} == {(True, False)}


def test_a_damaged_database_is_told_and_the_rest_is_looked_at(tmp_path: Path) -> None:
    words = copy_of("db/clean", tmp_path)
    for path in (tmp_path / "bookie/ledgers/current/locations").glob("*.sst"):
        path.write_bytes(b"X" * path.stat().st_size)
    found = run("check", *words, "-o", "jsonl", ok=False)
    assert found.status == ExitStatus.PROBLEMS
    assert "this is a bug" not in found.err
    assert {row["kind"] for row in found.rows if row["severity"] == "problem"} == {"db-record"}
    for command in (["index", 0], ["ledger", 0], ["ledgers"], ["usage"]):
        assert "this is a bug" not in run(*command, *words, ok=False).err
    assert run("journal", *words).status == 0


def test_a_damaged_index_names_file_and_offset(tmp_path: Path) -> None:
    words = copy_of("sorted/clean", tmp_path)
    path = tmp_path / "bookie/ledgers/current/0/0/0.idx"
    path.write_bytes(b"XXXX" + path.read_bytes()[4:])
    for command in (["index", 0], ["ledger", 0], ["ledgers"]):
        found = run(*command, *words, ok=False)
        assert found.status == ExitStatus.PROBLEMS
        assert f"{path} at offset 0: b'XXXX'; expected b'BKLE'" in found.err
    listed = {row["ledger_id"]: row for row in run("ledgers", *words, "-o", "jsonl", ok=False).rows}
    assert (listed["0"]["source"], listed["0"]["last_entry"]) == ("damaged", None)
    assert listed["2"]["last_entry"] == 3


# Marks, files, usage -----------------------------------------------------------------------------


@pytest.mark.parametrize("name", ALL)
def test_the_mark_is_printed_and_can_be_checked(name: str) -> None:
    wanted = expected(name)["lastMark"]
    (row,) = run("lastmark", "--check", *dirs(name), "-o", "jsonl").rows
    assert (row["journal_id"], row["offset"]) == (wanted["logFileId"], wanted["offset"])
    assert row["journal_file"] == f"{wanted['logFileId']:x}.txn"
    assert row["counts"]


def test_a_mark_whose_journal_is_gone_fails_the_check(tmp_path: Path) -> None:
    words = copy_of("sorted/clean", tmp_path)
    (tmp_path / "bookie/journal/current/1a1fc678c2b.txn").unlink()
    assert run("lastmark", *words).status == 0
    found = run("lastmark", "--check", *words, ok=False)
    assert found.status == ExitStatus.PROBLEMS
    assert "the bookie will not start; mount the disk, or put back the old files" in found.err


def test_a_table_cuts_payloads_and_o_wide_does_not(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COLUMNS", "80")
    words = ("ledger", 0, *dirs("sorted/clean"), "--payload")
    rows = run(*words, "-o", "jsonl").rows
    data = max((base64.b64decode(row["payload_b64"]) for row in rows), key=len)
    assert len(data) > 20
    wide, cut = run(*words, "-o", "wide", tty=True).out, run(*words, tty=True).out
    assert preview(data, None) in wide
    assert preview(data, 20) in cut
    assert preview(data, None) not in cut


def test_files_are_listed_with_their_ids() -> None:
    rows = run("files", *dirs("sorted/clean"), "-o", "jsonl").rows
    found = {(row["kind"], row["name"], row["id"], row["id_hex"]) for row in rows}
    assert {
        ("journal", "1a1fc678c2b.txn", 0x1A1FC678C2B, "0x1a1fc678c2b"),
        ("entry log", "0.log", 0, "0x0"),
        ("index", "1cbe991a14.idx", 123456789012, "0x1cbe991a14"),
    } <= found
    for option, kind in (("journal", "journal"), ("entrylog", "entry log"), ("index", "index")):
        chosen = run("files", f"--{option}", *dirs("sorted/clean"), "-o", "jsonl").rows
        assert chosen == [row for row in rows if row["kind"] == kind]


def test_usage_tells_live_from_dead_and_what_each_threshold_frees(tmp_path: Path) -> None:
    words = copy_of("interleaved/rotated", tmp_path)
    before = {row["log"]: row for row in run("usage", *words, "-o", "jsonl").rows}
    assert all(row["dead_bytes"] == 0 for row in before.values())
    assert "--existing asks the cluster" in run("usage", *words).err
    uri = f"sqlite://{tmp_path}/metadata.db"
    with closing(FakeHost()) as host:
        assert cli.run(["cluster", "init", "-u", uri], host) == 0
    none = run("usage", *words, "--existing", "-u", uri, "-o", "jsonl")
    assert all(row["live_bytes"] == 0 for row in none.rows)
    assert "0 B live" in none.err
    (tmp_path / "bookie/ledgers/current/0/29/29.idx").unlink()
    found = run("usage", *words, "-o", "jsonl")
    ledgers_map = expected("interleaved/rotated")["entryLogs"]["0.log"]["ledgersMap"]
    first = next(row for row in found.rows if row["log"] == "0.log")
    assert first["dead_bytes"] == ledgers_map["41"]
    assert first["live_bytes"] == sum(ledgers_map.values()) - ledgers_map["41"]
    dead = [row["dead_bytes"] for row in found.rows]
    assert dead == sorted(dead, reverse=True)
    assert "a minor compaction (below 20% live)" in found.err
    conf = tmp_path / "bk_server.conf"
    conf.write_text("minorCompactionThreshold=0.45\nmajorCompactionThreshold=nonsense\n")
    told = run("usage", *words, "-c", conf).err
    assert "(below 45% live)" in told
    assert "(below 80%)" in told
    assert "is not counted" not in told
    locks = DirectoryLocks()
    locks.take([tmp_path / "bookie/ledgers"])
    try:
        beside = run("usage", *words)
    finally:
        locks.release()
    assert "log 5 is not counted there: the bookie still writes it. `bkctl bookie gc`" in beside.err
    rows = run("usage", "--directories", *words, "-o", "jsonl").rows
    assert [row["directory"].rsplit("/", 1)[1] for row in rows] == ["journal", "ledgers"]
    assert rows[0]["journals"] > 0
    assert rows[1]["logs"] > 0


def test_the_ledgers_that_use_most_space_come_first(tmp_path: Path) -> None:
    words = copy_of("interleaved/rotated", tmp_path)
    (tmp_path / "bookie/ledgers/current/0/29/29.idx").unlink()
    logs = run("usage", *words, "-o", "jsonl").rows
    rows = run("usage", "--ledgers", *words, "-o", "jsonl").rows
    sizes = [row["size"] for row in rows]
    assert sizes == sorted(sizes, reverse=True)
    assert sum(sizes) == sum(row["live_bytes"] + row["dead_bytes"] for row in logs)
    assert [row["ledger_id"] for row in rows if not row["live"]] == ["41"]
    assert max(row["logs"] for row in rows) > 1
    assert "live, " in run("usage", "--ledgers", *words).err


def test_directories_that_are_no_bookies_are_told_from_missing_ones(tmp_path: Path) -> None:
    missing = run("files", "--ledger-dir", tmp_path / "none", ok=False)
    assert missing.status == ExitStatus.NOT_FOUND
    assert "no such directory" in missing.err
    empty = run("files", "--ledger-dir", tmp_path, ok=False)
    assert empty.status == ExitStatus.NOT_FOUND
    assert "has no directory current" in empty.err
    assert "is this the right place?" in empty.err
    (tmp_path / "whole" / "current").mkdir(parents=True)
    some = ("--ledger-dir", tmp_path / "whole", "--ledger-dir", tmp_path / "lost")
    (tmp_path / "lost").mkdir()
    lost = run("check", *some, ok=False)
    assert lost.status == ExitStatus.NOT_FOUND
    assert "is its disk mounted?" in lost.err
    for name in ("whole/current", "whole", "lost"):
        (tmp_path / name).rmdir()
    (tmp_path / "bookie.log").touch()
    (tmp_path / "ledgers" / "current").mkdir(parents=True)
    above = run("files", "--ledger-dir", tmp_path, ok=False).err
    assert f"did you mean {tmp_path / 'ledgers'}?" in above
    (tmp_path / "0.log").touch()
    assert "bkctl disk upgrade" in run("files", "--ledger-dir", tmp_path, ok=False).err


# Beside a running bookie, and large ones ---------------------------------------------------------


def test_beside_a_running_bookie_everything_is_shown_with_a_note(tmp_path: Path) -> None:
    words = copy_of("sorted/clean", tmp_path)
    locks = DirectoryLocks()
    locks.take([tmp_path / "bookie/ledgers"])
    try:
        for command in (["ledgers"], ["check"], ["journal"], ["files"]):
            found = run(*command, *words, sees_processes=True)
            assert f"(process {os.getpid()})" in found.err
            assert "shown as it is on disk at this moment" in found.err
        assert run("ledgers", *words, "-q").err == ""
    finally:
        locks.release()
    assert "in use by" not in run("ledgers", *words).err


def test_a_large_journal_is_printed_in_bounded_memory_and_can_be_cut_off(tmp_path: Path) -> None:
    path = tmp_path / "1.txn"
    record = entry_record(digester(DigestType.CRC32C, b"").package(7, 0, -1, 60_000, b"x" * 60_000))
    with path.open("wb") as file:
        file.write(header(6))
        for _ in range(2000):
            file.write(record)
    script = (
        "import sys; from pathlib import Path; from bkctl.cli.root import cli\n"
        f"status = cli.run(['disk', 'journal', {str(path)!r}, '--payload', '-o', 'id'])\n"
        # Not ru_maxrss: that begins with the size of the process it was forked from.
        "peak = Path('/proc/self/status').read_text().partition('VmHWM:')[2].split()[0]\n"
        "print(int(peak) // 1024, file=sys.stderr)\n"
        "sys.exit(status)"
    )
    done = subprocess.run(
        [sys.executable, "-c", script], capture_output=True, text=True, check=True
    )
    assert len(done.stdout.split()) == 2000
    assert int(done.stderr.split()[-1]) < 100, "MiB, of a journal of 115"
    command = [sys.executable, "-m", "bkctl", "disk", "journal", str(path), "-o", "id"]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE) as process:
        assert process.stdout is not None
        assert process.stdout.readline() == b"512\n"
        process.stdout.close()
        assert process.stderr is not None
        assert (process.stderr.read(), process.wait()) == (b"", ExitStatus.OUTPUT_CLOSED)
