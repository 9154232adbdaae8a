"""The ledger, bookie and cluster commands on a real cluster of three bookies.

Commands run in this process, through the tree as it is; where a process of its own matters (pipes,
signals, memory), ``test_processes``.
"""

from __future__ import annotations

import base64
import csv
import io
import json
from collections.abc import Iterator
from pathlib import Path

import pytest

from bkctl.exit_status import ExitStatus
from tests.bkctl.support.cluster import Cluster, local_cluster
from tests.bkctl.support.runner import Result, Run, runner

pytestmark = pytest.mark.processes


@pytest.fixture(scope="module")
def cluster(tmp_path_factory) -> Iterator[Cluster]:
    with local_cluster(tmp_path_factory.mktemp("commands") / "bk") as running:
        yield running


@pytest.fixture(scope="module")
def run(cluster: Cluster) -> Iterator[Run]:
    with runner(cluster) as running:
        yield running


def _raw(result: Result) -> bytes:
    return result.out.encode("utf-8", "surrogateescape")


# Create, add, close ----------------------------------------------------------------------------


def test_a_ledger_is_created_added_to_by_turns_and_closed(run: Run) -> None:
    ledger = run("ledger", "create", "--meta", "owner=me").id
    said = run("ledger", "add", ledger, "first", "second").out
    assert said.startswith(f"added 2 entries, 0 to 1, to ledger {ledger} (11 B")
    assert "bkctl.writer" not in run("ledger", "show", ledger).out
    assert "bkctl.writer" in run("ledger", "show", ledger, "--json").json["custom"]
    added = run("ledger", "add", ledger, "third", "--json").json
    assert {k: added[k] for k in ("ledger_id", "first", "last", "entries", "size")} == {
        "ledger_id": ledger, "first": 2, "last": 2, "entries": 1, "size": 5,
    }  # fmt: skip
    assert run("ledger", "read", ledger).out == "first\nsecond\nthird\n"
    listed = run("ledger", "list").out.splitlines()
    assert [row.split()[:3] for row in listed if row.startswith(f"{ledger} ")] == [
        [ledger, "open", "2"]
    ], "the add has released it"
    assert run("ledger", "show", ledger, "--json").json["last_entry"] is None
    assert run("ledger", "close", ledger).out == f"ledger {ledger} closed: 3 entries, 16 B\n"
    assert "was closed before" in run("ledger", "close", ledger).out
    shown = run("ledger", "show", ledger, "--json").json
    assert (shown["state"], shown["last_entry"], shown["length"]) == ("closed", 2, 16)
    assert shown["custom"]["owner"] == "me"


def test_a_closed_ledger_takes_no_entries(run: Run) -> None:
    ledger = run("ledger", "create").id
    run("ledger", "close", ledger)
    refused = run("ledger", "add", ledger, "late", "--json", ok=False)
    assert refused.status == ExitStatus.CONFLICT
    assert refused.error["object"] == f"ledger {ledger}"
    assert refused.out == ""


QUORUMS = ("ensemble_size", "write_quorum", "ack_quorum")


def test_quorums_digest_and_id_are_as_asked(run: Run) -> None:
    made = run(
        "ledger", "create", "-E", 3, "-W", 3, "-A", 2, "--digest", "mac", "--ledger-id", 777_001,
        "--json",
    ).json  # fmt: skip
    assert made["ledger_id"] == "777001"
    shown = run("ledger", "show", 777_001, "--json").json
    assert [shown[key] for key in QUORUMS] == [3, 3, 2]
    assert shown["digest"] == "mac"
    taken = run("ledger", "create", "--ledger-id", 777_001, ok=False)
    assert taken.status == ExitStatus.CONFLICT


def test_an_id_that_may_have_existed_is_warned_of(run: Run) -> None:
    used = run("ledger", "create").id
    run("ledger", "close", used)
    run("ledger", "delete", used, "--yes")
    warned = run("ledger", "create", "--ledger-id", used)
    assert f"ledger {used} may have existed" in warned.err
    assert "may have existed" not in run("ledger", "create", "--ledger-id", 888_001).err


def test_the_small_letters_of_javas_shell_are_taken_and_not_shown(
    run: Run, capfd: pytest.CaptureFixture[str]
) -> None:
    ledger = run("ledger", "create", "-e", 3, "-w3", "-a", 1).id
    assert run("ledger", "create", "--ensemble", 3, "--qw", 3, "--qa", 1).id
    shown = run("ledger", "show", ledger, "--json").json
    assert [shown[f"{one}"] for one in ("ensemble_size", "write_quorum", "ack_quorum")] == [3, 3, 1]
    run("ledger", "create", "--help")
    help_text = capfd.readouterr().out
    assert "-E, --ensemble-size" in help_text
    assert " -e" not in help_text


def test_quorums_that_do_not_fit_are_wrong_usage(run: Run) -> None:
    refused = run("ledger", "create", "-E", 2, "-W", 3, ok=False)
    assert refused.status == ExitStatus.USAGE
    assert "-W 3 is more than -E 2" in refused.err
    assert "give -E 3 or more, or -W 2 or less" in refused.err
    refused = run("ledger", "create", "-E", 3, "-W", 2, "-A", 3, ok=False)
    assert refused.status == ExitStatus.USAGE
    assert "-A 3 is more than -W 2" in refused.err
    assert "give -A 2 or less" in refused.err


def test_too_few_bookies_are_unreachable_with_a_way_out(run: Run) -> None:
    refused = run("ledger", "create", "-E", 5, "--json", ok=False)
    assert refused.status == ExitStatus.UNREACHABLE
    assert "smaller ensemble" in refused.error["hint"]


def test_a_dry_run_changes_nothing(run: Run) -> None:
    ledger = run("ledger", "create").id
    before = run("ledger", "show", ledger, "--json").out
    count = run("ledger", "list", "--count").out
    for args in (
        ("create",),
        ("add", ledger, "x"),
        ("write", __file__),
        ("close", ledger),
        ("fence", ledger),
        ("recover", ledger),
        ("delete", ledger, "--force", "open-ledgers"),
    ):
        planned = run("ledger", *args, "--dry-run").out
        assert planned.startswith("would "), args
        assert json.loads(run("ledger", *args, "--dry-run", "--json").out)["would"]
    assert run("ledger", "show", ledger, "--json").out == before
    assert run("ledger", "list", "--count").out == count


def test_custom_metadata_may_be_any_bytes(run: Run) -> None:
    odd = ("--meta", "key=\udcff\n")
    assert run("ledger", "create", *odd, "--dry-run").out.endswith("key=\\xff\\x0a\n")
    shown = run("ledger", "show", run("ledger", "create", *odd).id, "--json").json
    assert shown["custom"]["key"] == "\\xff\n"


def test_adding_needs_exactly_one_source(run: Run, tmp_path: Path) -> None:
    ledger = run("ledger", "create").id
    file = tmp_path / "f"
    file.write_text("a\n")
    for args in ((), ("x", "--file", file)):
        assert run("ledger", "add", ledger, *args, ok=False).status == ExitStatus.USAGE
    missing = run("ledger", "add", ledger, "--file", tmp_path / "none", ok=False)
    assert missing.status == ExitStatus.NOT_FOUND
    assert "none: No such file or directory; give the path of a file" in missing.err
    # None of that has cost the ledger its hand-over.
    run("ledger", "add", ledger, "--file", file)
    run("ledger", "add", ledger, "-", typed="b\nc\n")
    assert run("ledger", "read", ledger).out == "a\nb\nc\n"


def test_the_name_of_a_file_is_an_entry_and_that_is_told(run: Run, tmp_path: Path) -> None:
    (tmp_path / "a b").write_text("lines\n")
    ledger = run("ledger", "create").id
    added = run("ledger", "add", ledger, "one", tmp_path / "a b")
    assert f"for the file's lines: --file '{tmp_path}/a b'" in added.err
    assert run("ledger", "read", ledger, "--lines").out == f"one\n{tmp_path}/a b\n"


def test_adding_nothing_is_no_error(run: Run) -> None:
    ledger = run("ledger", "create").id
    assert run("ledger", "add", ledger, "-").out == f"nothing to add to ledger {ledger}\n"
    run("ledger", "add", ledger, "x")


# Write and read --------------------------------------------------------------------------------

BINARY = bytes(range(256)) * 3000


@pytest.mark.parametrize(
    ("data", "options", "entries"),
    [
        (b"one\ntwo\n\nthree\n", [], 4),
        (b"one\ntwo\n", ["--lines"], 2),
        (BINARY, [], 1),
        (BINARY, ["--chunks", "64k"], 12),
        (b"no newline\0", ["--whole"], 1),
        (b"", [], 0),
    ],
)
def test_what_was_written_is_read_as_the_same_bytes(
    run: Run, tmp_path: Path, data: bytes, options: list[str], entries: int
) -> None:
    file = tmp_path / "in"
    file.write_bytes(data)
    for source, typed in ((file, b""), ("-", data)):
        ledger = run("ledger", "write", source, *options, typed=typed).id
        assert run("ledger", "show", ledger, "--json").json["last_entry"] == entries - 1
        assert _raw(run("ledger", "read", ledger)) == data
        out = tmp_path / "out"
        run("ledger", "read", ledger, "--out", out)
        assert out.read_bytes() == data
        assert list(tmp_path.glob("*.part")) == []


def test_a_missing_last_newline_is_told(run: Run) -> None:
    written = run("ledger", "write", "-", typed=b"a\nb")
    assert "the last line has no newline" in written.err
    assert f"ledger {written.id} is open; it gets the entries of the pipe" in written.err
    assert run("ledger", "read", written.id).out == "a\nb\n"


def test_binary_input_is_cut_into_chunks_and_that_is_told(run: Run) -> None:
    assert "cut into chunks" in run("ledger", "write", "-", typed=BINARY).err
    assert run("ledger", "write", "-", "-q", typed=BINARY).err == ""


def test_a_line_that_is_too_long_leaves_a_closable_ledger_and_says_how(run: Run) -> None:
    refused = run("ledger", "write", "-", "--lines", typed=b"x" * 6_000_000, ok=False)
    assert refused.status == ExitStatus.USAGE
    assert "longer than an entry can be" in refused.err
    ledger = refused.err.split("bkctl ledger recover ")[1].split("`")[0]
    assert run("ledger", "recover", ledger, "--yes").out.startswith(f"ledger {ledger} recovered")


@pytest.mark.parametrize("piped", [True, False])
def test_an_input_too_large_for_one_entry_is_refused_before_anything_is_made(
    run: Run, tmp_path: Path, *, piped: bool
) -> None:
    data = b"x" * 6_000_000
    file = tmp_path / "large"
    file.write_bytes(data)
    ledger, count = run("ledger", "create").id, run("ledger", "list", "--count").out
    listed = run("ledger", "list", "--columns", "ledger,last_entry").out.splitlines()
    assert [ledger, "not", "closed"] in [line.split() for line in listed]
    source = "-" if piped else file
    typed = data if piped else b""
    for words in (
        ("write", source),
        ("write", source, "--dry-run"),
        ("add", ledger, *(["-"] if piped else ["--file", file])),
    ):
        refused = run("ledger", *words, "--whole", "--json", typed=typed, ok=False)
        assert refused.status == ExitStatus.USAGE
        assert "longer than an entry can be" in refused.err
        assert "--chunks 1MiB" in refused.error["hint"]
    assert run("ledger", "list", "--count").out == count
    run("ledger", "add", ledger, "still handed over")
    shown = run("ledger", "show", ledger, "--json").json
    assert (shown["last_entry"], shown["confirmed_entry"] >= 0) == (None, True)
    rows = run("ledger", "list", "--json").json["ledgers"]
    (listed,) = (row for row in rows if row["ledger_id"] == ledger)
    assert listed["confirmed_entry"] == shown["confirmed_entry"]


def test_a_column_that_is_asked_for_is_shown_also_if_it_is_empty(run: Run, ten: str) -> None:
    assert run("ledger", "show", ten, "--columns", "confirmed_entry").out == "confirmed entry  -\n"


@pytest.fixture(scope="module")
def ten(run: Run) -> str:
    return run("ledger", "write", "-", typed="".join(f"entry {n}\n" for n in range(10))).id


def test_parts_of_a_ledger_can_be_read(run: Run, ten: str) -> None:
    assert run("ledger", "read", ten, "3").out == "entry 3\n"
    assert run("ledger", "read", ten, "3-4").out == "entry 3\nentry 4\n"
    assert run("ledger", "read", ten, "8-").out == "entry 8\nentry 9\n"
    assert run("ledger", "read", ten, "--first", 9).out == "entry 9\n"
    assert run("ledger", "read", ten, "--last", 0).out == "entry 0\n"
    assert f"`bkctl ledger tail {ten} -n 3`" in run("ledger", "read", ten, "--last", 3).err
    assert f"`bkctl ledger read {ten} 0-2` prints" in run("ledger", "read", ten, "--first", 3).err
    for meant in (("--last", 9), ("--first", 0, "--last", 3), ("0-3",)):
        assert run("ledger", "read", ten, *meant).err == ""
    for option in ("-n", "--last"):
        assert run("ledger", "tail", ten, option, 2).out == "entry 8\nentry 9\n"
    assert run("ledger", "tail", ten, "--last", 1, "--follow").out == "entry 9\n"


@pytest.mark.parametrize("args", [["10"], ["5-10"], ["--first", "10"], ["--last", "99"]])
def test_what_is_not_there_is_not_found(run: Run, ten: str, args: list[str]) -> None:
    missing = run("ledger", "read", ten, *args, ok=False)
    assert (missing.status, missing.out) == (ExitStatus.NOT_FOUND, "")
    assert "the last one is 9" in missing.err


def test_payloads_come_in_the_form_asked_for(run: Run, ten: str) -> None:
    read = ("ledger", "read", ten, "0-1")
    assert run(*read, "--raw").out == "entry 0entry 1"
    assert run(*read, "--delimiter", r"\0").out == "entry 0\0entry 1\0"
    assert run(*read, "--format", r"%l/%e %n:%s\n").out == (
        f"{ten}/0 7:entry 0\n{ten}/1 7:entry 1\n"
    )
    assert run(*read, "--hexdump").out.startswith(f"ledger {ten} entry 0: 7 bytes\n00000000  65 6e")
    assert _raw(run(*read, "--length-prefixed")) == b"\0\0\0\7entry 0\0\0\0\7entry 1"
    assert (
        run(*read, "--entry-format", "hex").out == b"entry 0".hex() + "\n" + b"entry 1".hex() + "\n"
    )
    assert run(*read, "--raw", "--delimiter", "x", ok=False).status == ExitStatus.USAGE


def test_records_go_to_a_file_as_they_go_to_stdout(run: Run, ten: str, tmp_path: Path) -> None:
    out = tmp_path / "out"
    for form in ("jsonl", "csv", "json"):
        assert run("ledger", "read", ten, "0-1", "-o", form, "--out", out).out == ""
        assert out.read_text() == run("ledger", "read", ten, "0-1", "-o", form).out


def test_entries_are_records_for_programs(run: Run, ten: str) -> None:
    read = ("ledger", "read", ten, "0-1")
    first, second = map(json.loads, run(*read, "-o", "jsonl").out.splitlines())
    assert first == {
        "schema": 1, "ledger_id": ten, "entry_id": 0, "size": 7, "last_add_confirmed": -1,
        "payload_b64": base64.b64encode(b"entry 0").decode(),
        "ledger": ten, "entry": 0, "length": 7,  # Older names.
    }  # fmt: skip
    assert second["entry"] == 1
    assert run(*read, "--json").json["entries"][1]["entry"] == 1
    text = run(*read, "-o", "jsonl", "--entry-format", "string").out.splitlines()
    assert json.loads(text[0])["payload"] == "entry 0"
    rows = list(csv.DictReader(io.StringIO(run(*read, "-o", "csv").out)))
    assert [row["entry_id"] for row in rows] == ["0", "1"]
    for name in ("size", "length"):
        lines = run(*read, "-o", "csv", "--columns", name, "--filter", f"{name}>6").out.split()
        assert lines == [name, "7", "7"]
    assert run(*read, "-o", "id").out == "0\n1\n"
    assert "entry 1" in run(*read, "-o", "table").out
    assert run(*read, "-o", "yaml").out.startswith("schema: 1\nentries:\n- ledger_id:")


def test_binary_never_reaches_a_terminal_unless_it_is_asked_for(run: Run) -> None:
    ledger = run("ledger", "write", "-", "--whole", typed=b"\x1b[2Jevil\n").id
    assert "\x1b" not in run("ledger", "read", ledger, tty=True).out
    assert "00000000  1b 5b" in run("ledger", "read", ledger, tty=True).out
    raw = run("ledger", "read", ledger, "--raw", tty=True)
    assert raw.out == "\x1b[2Jevil\n"
    assert "--raw ends no entry with a newline; --lines does" in raw.err


def test_a_password_is_needed_only_by_who_gives_a_wrong_one(
    run: Run, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    right, wrong = tmp_path / "right", tmp_path / "wrong"
    right.write_text("secret\n")
    wrong.write_text("guess\n")
    ledger = run("ledger", "create", "--password-file", right).id
    run("ledger", "add", ledger, "x")
    assert run("ledger", "read", ledger, "--password-file", right).out == "x\n"
    refused = run("ledger", "read", ledger, "--password-file", wrong, ok=False)
    assert refused.status == ExitStatus.REFUSED
    assert "leave the password out to use the one in the metadata" in refused.err
    assert run("ledger", "show", ledger, "--json").json["password"] is None
    assert "set; --show-secrets prints it" in run("ledger", "show", ledger).out
    assert "c2VjcmV0 (base64)" in run("ledger", "show", ledger, "--show-secrets").out
    run("ledger", "add", ledger, "y", "--password-file", right, ok=False)
    assert "the password is in the ledger's metadata" in capsys.readouterr().err
    run("ledger", "read", ledger, "--password", "secret", ok=False)
    assert "the password is in the ledger's metadata" in capsys.readouterr().err
    run("ledger", "create", "--password", "secret", ok=False)
    assert "use --password-file FILE" in capsys.readouterr().err
    plain = run("ledger", "create").id
    assert "set;" not in run("ledger", "show", plain).out
    shown = run("ledger", "show", ledger, "--json", "--show-secrets").json
    assert base64.b64decode(shown["password"]) == b"secret"


# List and show ---------------------------------------------------------------------------------


def test_ledgers_are_listed_by_id_and_can_be_filtered(run: Run) -> None:
    mark = ("--meta", "batch=list-test")
    ids = [run("ledger", "create", *mark).id for _ in range(4)]
    run("ledger", "close", ids[0])
    listed = run("ledger", "list", *mark, "--json").json["ledgers"]
    assert [one["ledger_id"] for one in listed] == sorted(ids, key=int)
    assert run("ledger", "list", *mark, "--state", "closed", "-o", "id").out == f"{ids[0]}\n"
    assert run("ledger", "list", *mark, "--count").out == "4\n"
    assert run("ledger", "list", *mark, "--limit", 2, "-o", "id").out.split() == ids[:2]
    assert run("ledger", "list", *mark, "--after", ids[1], "-o", "id").out.split() == ids[2:]
    assert run("ledger", "list", *mark, "--older-than", "1d", "-o", "id").out == ""
    bookie = listed[0]["ensemble"][0]
    assert ids[0] in run("ledger", "list", *mark, "--bookie", bookie, "-o", "id").out.split()
    assert run("ledger", "list", "--bookie", "10.9.9.9:1", "-o", "id").out == ""
    hexadecimal = run("ledger", "list", *mark, "-o", "id", "--ledger-id-format", "hex").out
    assert [int(word, 16) for word in hexadecimal.split()] == [int(i) for i in ids]


def test_a_total_adds_up_the_bytes_of_the_closed_ledgers_that_are_picked(run: Run) -> None:
    listing = ("ledger", "list", "--meta", "batch=total-test")
    ids = [run("ledger", "create", "--meta", "batch=total-test").id for _ in range(3)]
    for size, ledger in enumerate(ids, 1):
        run("ledger", "add", ledger, "x" * size)
    for ledger in ids[1:]:
        run("ledger", "close", ledger)
    said = run(*listing, "--total").out
    assert said == "3 ledgers; the 2 closed ones have 5 B, 10 B with all copies\n"
    assert run(*listing, "--sum", "length").out == said
    for given, (count, closed, length) in {"length>2": (1, 1, 3), "state=open": (1, 0, 0)}.items():
        found = run(*listing, "--total", "--filter", given, "--json").json
        assert (found["count"], found["closed"], found["length"]) == (count, closed, length)
    said = run(*listing, "--total", "--filter", "length>2").out
    assert said == "1 ledger; the closed one has 3 B, 6 B with all copies\n"
    assert run("ledger", "list", "--total", "-o", "id").out == run("ledger", "list", "--count").out


def test_a_limit_counts_what_is_left_after_filters_and_in_the_order_asked_for(run: Run) -> None:
    listing = ("ledger", "list", "--meta", "batch=limit-test")
    ids = [run("ledger", "create", "--meta", "batch=limit-test").id for _ in range(4)]
    for size, ledger in enumerate(ids, 1):
        run("ledger", "add", ledger, "x" * size)
        run("ledger", "close", ledger)
    largest = run(*listing, "--sort-by", "length:desc", "--limit", 2, "-o", "id").out
    assert largest.split() == ids[:1:-1]
    kept = ("--filter", "length>2")
    assert run(*listing, *kept, "--limit", 1, "-o", "id").out.split() == [ids[2]]
    assert run(*listing, *kept, "--limit", 3, "-o", "id").out.split() == ids[2:]
    assert run(*listing, *kept, "--count").out == "2\n"
    assert run(*listing, "--sort-by", "length", "--count").out == "4\n"
    assert run("ledger", "list", *kept, "--count").out != "0\n"
    assert ids[3] in run("ledger", "list", "--filter", "length=4", "-o", "id").out.split()


def test_shown_ledgers_may_come_from_a_pipe(run: Run, ten: str) -> None:
    many = run("ledger", "show", "-", "--json", typed=f"{ten}\n{ten}\n").json["ledgers"]
    assert [one["ledger_id"] for one in many] == [ten, ten]
    assert run("ledger", "show", ten).out.splitlines()[0].split() == ["ledger", ten]


def test_a_ledger_that_is_not_there_is_not_found(run: Run) -> None:
    for command in ("show", "read", "close", "fence", "recover", "delete", "tail"):
        missing = run("ledger", command, 123_456_789, "--yes", "--json", ok=False)
        assert missing.status == ExitStatus.NOT_FOUND, command
        assert missing.error["object"] == "ledger 123456789"
        assert missing.error["name"] == "BK-NO-SUCH-LEDGER"
    assert run("ledger", "add", 123_456_789, "x", ok=False).status == ExitStatus.NOT_FOUND


# Fence, recover, delete ------------------------------------------------------------------------


def test_fencing_says_who_answered_and_recovery_closes(run: Run) -> None:
    ledger = run("ledger", "create").id
    run("ledger", "add", ledger, "a", "b")
    refused = run("ledger", "fence", ledger, ok=False)
    assert refused.status == ExitStatus.REFUSED
    assert "bkctl -u sqlite://" in refused.err
    assert refused.err.endswith("--yes\n")
    fenced = run("ledger", "fence", ledger, "--yes", "--json").json
    assert fenced["covered"] is True
    assert len(fenced["answered"]) == 3
    assert run("ledger", "add", ledger, "late", ok=False).status == ExitStatus.CONFLICT
    # It has lost its writer already, so that nobody needs to be asked.
    closed = run("ledger", "recover", ledger, "--json").json
    assert (closed["how"], closed["last_entry"], closed["length"]) == ("recovered and closed", 1, 2)
    again = run("ledger", "recover", ledger).out
    assert again == (
        f"ledger {ledger} was closed before: 2 entries, 2 B; `bkctl ledger verify {ledger}` checks "
        "its entries\n"
    )
    assert run("ledger", "fence", ledger, "--yes", ok=False).status == ExitStatus.CONFLICT


def test_the_plain_words_work_at_the_top(run: Run) -> None:
    ledger = run("ledger", "create").id
    assert "no writer can add" in run("fence", ledger, "--yes").out
    assert "recovered and closed" in run("recover", ledger).out


def test_reading_with_recovery_asks_before_it_fences(run: Run) -> None:
    ledger = run("ledger", "create").id
    run("ledger", "add", ledger, "a")
    assert run("ledger", "read", ledger, "--recover", ok=False).status == ExitStatus.REFUSED
    assert run("ledger", "show", ledger, "--json").json["state"] == "open"
    assert run("ledger", "read", ledger, "--recover", "--yes").out == "a\n"
    assert run("ledger", "show", ledger, "--json").json["state"] == "closed"


def test_deleting_shows_what_goes_and_wants_the_ledgers_id(run: Run) -> None:
    ledger = run("ledger", "write", "-", "--meta", "owner=me", typed="a\nb\n").id
    no = run("ledger", "delete", ledger, typed="yes\n", tty=True, ok=False)
    assert no.status == ExitStatus.REFUSED
    assert f"ledger {ledger}: 2 entries, 2 B" in no.err
    assert "owner=me" in no.err
    assert f"To confirm, type {ledger}" in no.err
    assert run("ledger", "show", ledger).status == 0
    yes = run("ledger", "delete", ledger, typed=f"{ledger}\n", tty=True)
    assert yes.out == f"ledger {ledger} deleted\n"
    assert run("ledger", "show", ledger, ok=False).status == ExitStatus.NOT_FOUND


@pytest.mark.parametrize("options", [(), ("-o", "json")])
def test_one_ledger_that_cannot_be_shown_hides_no_other(run: Run, options: tuple[str, ...]) -> None:
    first, last = (run("ledger", "write", "-", typed="a\n").id for _ in range(2))
    for words, typed in (((first, "777777", last), ""), (("-",), f"{first}\n777777\n{last}\n")):
        shown = run("ledger", "show", *words, *options, typed=typed, ok=False)
        assert shown.status == ExitStatus.PARTLY
        assert first in shown.out
        assert last in shown.out
        assert "ledger 777777" in shown.err


def test_deleting_several_ledgers_wants_the_instance_id(run: Run) -> None:
    instance = run("cluster", "info", "--json").json["instance_id"]
    ids = [run("ledger", "write", "-", typed="a\n").id for _ in range(2)]
    no = run("ledger", "delete", *ids, typed=f"{ids[0]}\n", tty=True, ok=False)
    assert no.status == ExitStatus.REFUSED
    assert f"To confirm, type {instance}" in no.err
    assert run("ledger", "delete", *ids, typed=f"{instance}\n", tty=True).status == 0


def test_several_are_summed_up_and_none_is_no_error(run: Run) -> None:
    ids = [run("ledger", "write", "-", typed="abc\nde\n").id for _ in range(2)]
    plan = run("ledger", "delete", *ids, "--dry-run").out
    assert plan.splitlines()[-1].split(maxsplit=1)[1] == "delete 2 ledgers in all, 4 entries, 10 B"
    assert "bkctl." not in plan
    open_one = run("ledger", "create").id
    refused = run("ledger", "delete", ids[0], open_one, ids[1], "--dry-run", ok=False)
    assert refused.status == ExitStatus.REFUSED
    assert [f"ledger {one}: " in refused.out for one in (*ids, open_one)] == [True] * 3
    assert f"ledger {open_one} is not closed" in refused.err
    kept = ", ".join((ids[0], open_one, ids[1]))
    assert f"; none of these ledgers was deleted: {kept}" in refused.err
    none = run("ledger", "delete", "-", "--yes", typed="")
    assert (none.out, none.err) == ("", "no ledger to delete\n")


def test_without_a_terminal_nothing_is_deleted(run: Run) -> None:
    ledger = run("ledger", "write", "-", typed="a\n").id
    refused = run("ledger", "delete", ledger, "--json", ok=False)
    assert refused.status == ExitStatus.REFUSED
    assert refused.error["hint"].endswith(f"ledger delete {ledger} --json --yes")
    assert run("ledger", "show", ledger).status == 0
    assert run("ledger", "delete", ledger, "--yes", "-o", "id").out == f"{ledger}\n"


def test_an_open_ledger_is_deleted_only_by_force(run: Run) -> None:
    ledger = run("ledger", "create").id
    refused = run("ledger", "delete", ledger, "--yes", ok=False)
    assert refused.status == ExitStatus.REFUSED
    assert "--force open-ledgers" in refused.err
    older_name = "open-ledger"
    forced = run("ledger", "delete", ledger, "--yes", "--force", older_name)
    assert "overridden: open-ledgers" in forced.err


def test_many_are_deleted_and_those_that_are_gone_are_named(run: Run) -> None:
    first, last = (run("ledger", "write", "-", typed="a\n").id for _ in range(2))
    words = ("ledger", "delete", first, "123456789", last)
    plan = run(*words, "--dry-run")
    assert "123456789" in plan.err
    done = run(*words, "--yes", ok=False)
    assert done.status == ExitStatus.PARTLY
    assert done.out == f"ledger {first} deleted\nledger {last} deleted\n"
    assert done.err.splitlines()[-1].startswith("bkctl: 1 ledger did not exist before: 123456789")
    gone = run(*words, "--yes", ok=False)
    assert (gone.status, gone.out) == (ExitStatus.NOT_FOUND, "")


def test_ids_from_stdin_leave_no_answer_to_read(run: Run) -> None:
    ids = [run("ledger", "write", "-", typed="a\n").id for _ in range(2)]
    refused = run("ledger", "delete", "-", typed="\n".join(ids), ok=False).err.splitlines()[-1]
    assert refused.startswith(
        "bkctl: the answer cannot come from stdin, which is read for ids: Del"
    )
    assert "... | bkctl " in refused
    deleted = run("ledger", "delete", "-", "--yes", "--json", typed="\n".join(ids)).json
    assert [one["ledger_id"] for one in deleted["ledgers"]] == ids


# Bookies and the cluster -----------------------------------------------------------------------


def test_bookies_are_listed_with_their_state_and_space(run: Run) -> None:
    found = run("bookie", "list", "--json").json["bookies"]
    assert [one["state"] for one in found] == ["writable"] * 3
    assert all(one["free"] <= one["total"] and one["address"] == one["bookie_id"] for one in found)
    assert len(run("bookie", "list", "--state", "rw", "-o", "id").out.split()) == 3
    assert run("bookie", "list", "--state", "down", "-o", "id").out == ""
    assert run("bookie", "list", "--no-ask", "--json").json["bookies"][0]["free"] is None


def test_the_cluster_is_told_in_a_few_words(run: Run, cluster: Cluster) -> None:
    told = run("cluster", "info", "--ledgers", "--json").json
    assert told["uri"] == cluster.uri
    assert (told["writable"], told["read_only"], told["down"]) == (3, 0, 0)
    assert told["ledgers"] == int(run("ledger", "list", "--count").out)


def test_a_cluster_is_made_once(run: Run, tmp_path: Path) -> None:
    uri = f"sqlite://{tmp_path}/metadata.db"
    made = run("cluster", "init", "-u", uri, "--json").json
    assert run("cluster", "info", "-u", uri, "--json").json["instance_id"] == made["instance_id"]
    again = run("cluster", "init", "-u", uri, ok=False)
    assert again.status == ExitStatus.CONFLICT
    assert run("bookie", "list", "-u", uri).err == "no bookies\n"


@pytest.mark.parametrize("output", ["table", "wide", "json", "jsonl", "yaml", "csv", "id"])
def test_every_form_is_printed_by_every_command_that_prints_values(
    run: Run, ten: str, output: str
) -> None:
    for args in (
        ("ledger", "list"), ("ledger", "show", ten), ("ledger", "close", ten),
        ("ledger", "recover", ten), ("bookie", "list"), ("cluster", "info"),
    ):  # fmt: skip
        assert run(*args, "-o", output).out, args


def test_a_key_of_the_custom_metadata_is_a_field_of_its_own(run: Run) -> None:
    made = [run("ledger", "create", "--meta", f"App={app}").id for app in ("b", "a", "b")]
    only = ("--columns", "id,custom.App", "--filter", "custom.App~")
    listed = run("ledger", "list", *only, "--sort-by", "custom.App:desc", "-o", "csv").out
    rows = [f"{made[0]},b", f"{made[2]},b", f"{made[1]},a"]
    assert listed.splitlines() == ["ledger_id,custom.App", *rows]
    shown = run("ledger", "list", "--columns", "custom.App", "--filter", "custom.App=a").out
    assert shown.split() == ["APP", "a"]
    refused = run("ledger", "list", "--columns", "state.x", ok=False)
    assert refused.status == ExitStatus.USAGE
    assert "or custom.KEY" in refused.err
