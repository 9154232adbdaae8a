from __future__ import annotations

import csv
import io
import itertools
import json
import os
from collections.abc import Iterator
from pathlib import Path

import attrs
import pytest

from bkctl.bookies.bookie_columns import BookieSummary
from bkctl.cli.root import cli
from bkctl.commands.ledger.columns import EntryRecord, LedgerDetails, LedgerSummary
from bkctl.commands.ledger.create import LedgerCreated
from bkctl.commands.ledger.write import EntriesAdded
from bkctl.errors import UsageError
from bkctl.global_options import OUTPUTS, Options
from bkctl.output.emitter import Emitter
from tests.bkctl.support.terminal import FakeHost
from wire.codes import DigestType, LedgerState
from wire.ids import BookieId, EntryId, LedgerId
from wire.ledger_metadata import Fragment, LedgerMetadata

BOOKIES = tuple(BookieId(f"10.0.0.{n}:3181") for n in (1, 2, 3))
METADATA = LedgerMetadata(
    ensemble_size=3,
    write_quorum=2,
    ack_quorum=2,
    state=LedgerState.CLOSED,
    last_entry_id=EntryId(9),
    length=5000,
    fragments=(Fragment(EntryId(0), BOOKIES), Fragment(EntryId(4), BOOKIES[::-1])),
    digest_type=DigestType.CRC32C,
    password=b"secret",
    ctime_ms=1_700_000_000_042,
    custom={"owner": b"me", "evil": b"\x1b[2J"},
)
BIG = LedgerId(2**62 + 1)
LEDGERS = [LedgerSummary(LedgerId(7), METADATA), LedgerSummary(BIG, None)]


def _printed(values: object, *, tty: bool = False, **given: object) -> str:
    options = Options()
    for name, value in given.items():
        setattr(options, name, value)
    host = FakeHost(tty=tty, environ={"PAGER": ""})
    emitter = Emitter(options, host)
    if isinstance(values, list):
        emitter.many(values, type(values[0]))
    else:
        emitter.one(values)
    emitter.finish()
    return host.out.text


def test_json_has_every_field_ids_as_strings_and_plain_numbers() -> None:
    told = json.loads(_printed(LEDGERS, output="json"))
    assert told["schema"] == 1
    first, second = told["ledgers"]
    assert first == {
        "ledger_id": "7",
        "state": "closed",
        "last_entry": 9,
        "length": 5000,
        "stored": 10000,
        "ensemble_size": 3,
        "write_quorum": 2,
        "ack_quorum": 2,
        "digest": "crc32c",
        "created": "2023-11-14T22:13:20.042Z",
        "fragments": [
            {"first_entry": 0, "ensemble": list(BOOKIES)},
            {"first_entry": 4, "ensemble": list(BOOKIES[::-1])},
        ],
        "ensemble": list(BOOKIES[::-1]),
        "custom": {"owner": "me", "evil": "\x1b[2J"},
    }
    assert second["ledger_id"] == str(BIG)
    assert second["state"] is None


def test_columns_of_the_command_line_choose_the_fields_of_json() -> None:
    typed = {"columns": "id,custom.owner", "origins": {"columns": "--columns"}}
    first, second = json.loads(_printed(LEDGERS, output="json", **typed))["ledgers"]
    assert first == {"ledger_id": "7", "custom.owner": "me"}
    assert second == {"ledger_id": str(BIG), "custom.owner": None}
    of_profile = {**typed, "origins": {"columns": "profile p"}}
    (line, _) = _printed(LEDGERS, output="jsonl", **of_profile).splitlines()
    assert "state" in json.loads(line)


def test_json_lines_are_documents_of_their_own() -> None:
    lines = [json.loads(line) for line in _printed(LEDGERS, output="jsonl").splitlines()]
    assert [line["ledger_id"] for line in lines] == ["7", str(BIG)]
    assert all(line["schema"] == 1 for line in lines)


def test_csv_has_a_header_and_one_row_a_value() -> None:
    rows = list(csv.DictReader(io.StringIO(_printed(LEDGERS, output="csv"))))
    assert rows[0]["ledger_id"] == "7"
    assert rows[0]["length"] == "5000"
    assert rows[0]["ensemble"] == " ".join(BOOKIES[::-1])
    assert json.loads(rows[0]["custom"])["owner"] == "me"
    assert rows[1]["state"] == ""


def test_ids_are_one_a_line() -> None:
    assert _printed(LEDGERS, output="id") == f"7\n{BIG}\n"


def test_ids_are_shown_in_the_format_asked_for() -> None:
    assert _printed(LEDGERS[:1], output="id", ledger_id_format="hex") == "7\n"
    assert _printed(LEDGERS[1:], output="id", ledger_id_format="hex") == f"{BIG:x}\n"


def test_yaml_is_json_in_other_clothes() -> None:
    text = _printed(LEDGERS[:1], output="yaml")
    assert text.startswith('schema: 1\nledgers:\n- ledger_id: "7"\n  state: "closed"\n')
    assert '  - first_entry: 0\n      ensemble:\n        - "10.0.0.1:3181"\n' in text


def test_nothing_at_all_is_still_a_document() -> None:
    for output, expected in (
        ("json", '{"schema": 1, "ledgers": []}\n'),
        ("yaml", "schema: 1\nledgers: []\n"),
        ("jsonl", ""),
        ("id", ""),
    ):
        options = Options()
        options.output = output
        host = FakeHost()
        Emitter(options, host).many([], LedgerSummary)
        assert host.out.text == expected


def test_a_table_is_human_and_without_traps_for_the_terminal() -> None:
    text = _printed(LEDGERS, output="wide", utc=True)
    header, first, second = text.splitlines()
    assert header.split()[:3] == ["LEDGER", "STATE", "LAST"]
    assert "4.9 KiB" in first
    assert "2023-11-14 22:13:20Z" in first
    assert "\x1b" not in text
    assert r"\x1b[2J" in first
    assert second.split() == [str(BIG), *"-" * 13]


@pytest.mark.parametrize("output", ["csv", "id", "json", "jsonl", "yaml"])
def test_machine_forms_have_no_traps_for_a_terminal_either(output: str) -> None:
    bookies = [BookieSummary(BookieId("b\x1b[2J\u202e:3181"), "down")]
    assert not {"\x1b", "\u202e"} & set(_printed(bookies, tty=True, output=output))


def test_exact_tables_have_plain_numbers() -> None:
    assert "5000" in _printed(LEDGERS, exact=True).splitlines()[1].split()


def test_fields_are_named_as_in_json_or_as_on_the_screen() -> None:
    by_name = _printed(LEDGERS, columns="ledger_id,last_entry")
    assert _printed(LEDGERS, columns="LEDGER,Last Entry") == by_name
    for name in ("last_entry", "LAST ENTRY", "last-entry"):
        assert _printed(LEDGERS, sort_by=f"{name}:desc") == _printed(
            LEDGERS, sort_by="last_entry:desc"
        )
        assert _printed(LEDGERS, filters=(f"{name}>=0",)) == _printed(
            LEDGERS, filters=("last_entry>=0",)
        )


def test_columns_are_chosen_by_name_and_in_order() -> None:
    text = _printed(LEDGERS, columns="state,ledger_id", no_headers=True)
    assert text.splitlines()[0].split() == ["closed", "7"]
    assert _printed(LEDGERS, columns="digest", output="csv") == "digest\ncrc32c\n\n".replace(
        "\n\n", '\n""\n'
    )


def test_an_unknown_column_is_a_usage_error_that_names_the_others() -> None:
    with pytest.raises(UsageError, match="no field 'colour'") as caught:
        _printed(LEDGERS, columns="colour")
    assert "ledger_id" in caught.value.hint


def test_a_word_for_a_size_leads_to_the_sizes_of_the_view() -> None:
    bookies = [BookieSummary(BOOKIES[0], "down")]
    with pytest.raises(UsageError, match="no field 'bytes'; did you mean free or total"):
        _printed(bookies, columns="bytes")


def test_a_narrow_terminal_hides_columns_and_says_so_but_never_cuts_ids(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("COLUMNS", "40")
    monkeypatch.setenv("LINES", "24")
    host = FakeHost(tty=True, environ={"PAGER": "", "NO_COLOR": "1"})
    emitter = Emitter(Options(), host)
    emitter.many(LEDGERS, LedgerSummary)
    emitter.finish()
    lines = host.out.text.splitlines()
    assert all(len(line) <= 40 for line in lines)
    assert str(BIG) in lines[2]
    hidden = "no space for: length, e, qw, qa, digest, created; -o wide shows all, --columns some"
    assert hidden in " ".join(host.err.text.split())


def test_one_object_is_a_vertical_list() -> None:
    details = LedgerDetails(LedgerId(7), METADATA, version=3)
    lines = _printed(details).splitlines()
    assert lines[0].split() == ["ledger", "7"]
    assert any(line.split() == ["from", "4:", *BOOKIES[::-1]] for line in lines)
    assert lines[-1].split(maxsplit=1) == ["password", "set; --show-secrets prints it"]
    assert "secret" not in "".join(lines).replace("--show-secrets", "")


def test_sentences_are_printed_as_they_come() -> None:
    host = FakeHost(tty=False)
    lines: list[int] = []

    def without_end() -> Iterator[EntriesAdded]:
        for number in itertools.count():
            lines.append(host.out.text.count("\n"))
            if number == 2:
                raise KeyboardInterrupt
            yield EntriesAdded(LedgerId(7), EntryId(number), EntryId(number), 1, 40, 0.5)

    with pytest.raises(KeyboardInterrupt):
        Emitter(Options(), host).many(without_end(), EntriesAdded)
    assert lines == [0, 1, 2]


def test_an_outcome_is_a_sentence_for_people_and_fields_for_programs() -> None:
    added = EntriesAdded(LedgerId(7), EntryId(3), EntryId(5), 3, 120, 0.5)
    assert _printed(added) == "added 3 entries, 3 to 5, to ledger 7 (120 B in 500ms)\n"
    assert json.loads(_printed(added, output="json")) == {
        "schema": 1, "ledger_id": "7", "first": 3, "last": 5, "entries": 3, "size": 120,
        "seconds": 0.5,
    }  # fmt: skip


def test_a_created_ledger_is_its_id_alone() -> None:
    assert _printed(LedgerCreated(LedgerId(7), 3, 2, 2, BOOKIES)) == "7\n"


def test_payloads_are_base64_unless_a_format_was_asked_for() -> None:
    entry = EntryRecord(LedgerId(7), EntryId(0), b"\xff\0", -1)
    assert json.loads(_printed([entry], output="jsonl")) == {
        "schema": 1, "ledger_id": "7", "entry_id": 0, "size": 2, "last_add_confirmed": -1,
        "payload_b64": "/wA=", "ledger": "7", "entry": 0, "length": 2,
    }  # fmt: skip
    shown = attrs.evolve(entry, text="ff00")
    assert json.loads(_printed([shown], output="jsonl"))["payload"] == "ff00"


@pytest.mark.parametrize("output", OUTPUTS)
def test_every_form_prints_every_kind_of_row(output: str) -> None:
    bookie = BookieSummary(BOOKIES[0], "writable", "10.0.0.1:3181", 10, 20, {"a": "b"})
    assert BOOKIES[0] in _printed([bookie], output=output)


def test_states_are_coloured_on_a_terminal_only() -> None:
    bookie = BookieSummary(BOOKIES[0], "down")
    assert "\x1b[31mdown" in _printed([bookie], color="always")
    assert "\x1b" not in _printed([bookie])


# Pager -----------------------------------------------------------------------------------------


def _paged(monkeypatch: pytest.MonkeyPatch, pager: str, rows: int, *, term: str = "xterm") -> str:
    monkeypatch.setenv("LINES", "10")
    monkeypatch.setenv("COLUMNS", "80")
    host = FakeHost(tty=True, environ={"BKCTL_PAGER": pager, "TERM": term, "PATH": "/bin:/usr/bin"})
    emitter = Emitter(Options(), host)
    try:
        ledgers = (LedgerSummary(LedgerId(n), METADATA) for n in range(rows))
        emitter.many(ledgers, LedgerSummary)
    finally:
        emitter.finish()
    return host.out.text


def test_a_table_that_fills_the_screen_goes_to_the_pager(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    seen = tmp_path / "seen"
    assert _paged(monkeypatch, f"tee {seen}", 300) == ""
    lines = seen.read_text().splitlines()
    assert len(lines) == 301
    assert lines[-1].split()[0].endswith("299")


def test_a_short_table_and_a_dumb_terminal_need_no_pager(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    seen = tmp_path / "seen"
    assert len(_paged(monkeypatch, f"tee {seen}", 5).splitlines()) == 6
    assert len(_paged(monkeypatch, f"tee {seen}", 300, term="dumb").splitlines()) == 301
    assert len(_paged(monkeypatch, "", 300).splitlines()) == 301
    assert not seen.exists()


def test_leaving_the_pager_early_ends_the_list(monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(BrokenPipeError):
        _paged(monkeypatch, "true", 100_000)


def test_a_pager_that_is_left_early_leaves_stdout_as_it_was(
    capfd: pytest.CaptureFixture[str],
) -> None:
    host = FakeHost(tty=True, environ={"PAGER": "true"})
    assert cli.run(["config", "explain", "-o", "wide"], host) == 0
    os.write(1, b"still there")
    assert capfd.readouterr().out == "still there"
