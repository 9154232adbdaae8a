"""`ledger verify`, `orphans`, `metadata`, `read --bookie`, ids from files: a world in memory."""

from __future__ import annotations

import base64
import hashlib
import json
import re
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import attrs
import pytest

from bkclient.metadata import zk_paths
from bkclient.metadata.errors import MetadataUnavailableError
from bkclient.quorum.distribution import write_set
from bkctl.commands.ledger.list_and_show import writer_text
from bkctl.commands.ledger.metadata_dump_and_restore import differences
from bkctl.exit_status import ExitStatus
from tests.bkclient.replication_world import STRIPED, TRIPLE, closed_ledger, member, open_writer
from tests.bkclient.worlds import Fate, Ruling, World
from tests.bkctl.support.world import run_in
from tests.support.memory_zookeeper import Fault, TreeOperation
from wire.codes import ReturnCode
from wire.ids import BookieId, LedgerId
from wire.ledger_metadata import encode_metadata
from wire.messages import ReadRequest, ReadResponse, Request


@pytest.fixture
def world() -> World:
    return World(3)


def instance_id(world: World) -> str:
    return str(world.run(world.client().store.instance_id()))


def failing(entry_id: int) -> Callable[[Request], Ruling]:
    """Return a policy: the disk returns an error for one entry."""

    def policy(request: Request) -> Ruling:
        if isinstance(request, ReadRequest) and request.entry_id == entry_id:
            return ReadResponse(ReturnCode.EIO, request.ledger_id, request.entry_id)
        return Fate.SERVE

    return policy


# Who writes ------------------------------------------------------------------------------------


def test_what_is_known_of_the_writer_of_an_open_ledger_is_said(world: World) -> None:
    writer = open_writer(world, world.client(), 1, **TRIPLE)
    unnamed = "BookKeeper does not record who writes; custom metadata may name the writer. New"
    shown = run_in(world, "ledger", "show", writer.ledger_id)
    assert unnamed in shown.err
    assert f": bkctl ledger tail {writer.ledger_id} -f -n 0\n" in shown.err
    asked = run_in(world, "ledger", "recover", writer.ledger_id, typed="n\n", tty=True, ok=False)
    assert unnamed in asked.err
    world.run(writer.close())
    assert "writer" not in run_in(world, "ledger", "show", writer.ledger_id).err
    made = run_in(world, "ledger", "create", "-o", "id").out.strip()
    said = run_in(world, "ledger", "show", made).err
    assert said == f"Ledger {made} has no writer now: no `bkctl ledger add` runs on it\n"
    metadata = world.stored(LedgerId(int(made)))
    for key, said in (
        ("bkctl.writer", "The writer is a `bkctl ledger add`, which runs or has failed"),
        ("bkctl.log", "The writer appends to log events"),
    ):
        held = attrs.evolve(metadata, custom={key: b"events"})
        assert said in writer_text(LedgerId(int(made)), held)


# Verify ----------------------------------------------------------------------------------------


def test_a_sound_ledger_is_told_in_a_line(world: World) -> None:
    ledger_id = closed_ledger(world, world.client(), 10, **STRIPED)
    said = run_in(world, "ledger", "verify", ledger_id).out
    assert said == f"ledger {ledger_id}: 10 entries, 20 copies, 140 B of copies: all sound\n"


def test_bad_copies_are_named_and_the_status_says_so(world: World) -> None:
    client = world.client()
    first, second = (closed_ledger(world, client, 10, **TRIPLE) for _ in range(2))
    there = member(world, second, 1)
    for entry_id in (2, 3, 9):
        del there.ledgers[second].entries[entry_id]
    found = run_in(world, "ledger", "verify", first, second, ok=False)
    assert found.status == ExitStatus.PROBLEMS
    assert found.out.splitlines()[1:] == [
        f"ledger {second}: 10 entries, 27 of 30 copies, 189 B of copies: not all sound",
        f"  {there.bookie_id}  missing 3: entries 2-3, 9",
    ]
    assert "1 ledger of 2 with missing, damaged, wrong or unreadable copies" in found.err
    assert f"`bkctl bookie recover {there.bookie_id} --ledger {second} --to " in found.err
    told = run_in(world, "ledger", "verify", "--all", "--json", ok=False).json["ledgers"]
    assert [one["sound"] for one in told] == [True, False]
    (bad,) = told[1]["bad"]
    assert {k: bad[k] for k in ("bookie_id", "flaw", "count", "entries")} == {
        "bookie_id": there.bookie_id, "flaw": "missing", "count": 3, "entries": ["2-3", "9"],
    }  # fmt: skip
    assert run_in(world, "ledger", "verify", "--all", "-o", "id", ok=False).out == (
        f"{first}\n{second}\n"
    )


def test_a_named_ledger_that_does_not_exist_stops_no_other(world: World) -> None:
    ledger_id = closed_ledger(world, world.client(), 10, **STRIPED)
    found = run_in(world, "ledger", "verify", 999, ledger_id, ok=False)
    assert found.status == ExitStatus.PARTLY
    assert found.out == f"ledger {ledger_id}: 10 entries, 20 copies, 140 B of copies: all sound\n"
    assert "no such ledger: 999" in found.err
    for given, typed in ((("999",), ""), (("998", "999"), ""), (("-",), "999\n"), (("-",), "")):
        nothing = run_in(world, "ledger", "verify", *given, typed=typed, ok=False)
        assert (nothing.status, nothing.out) == (ExitStatus.NOT_FOUND, "")
    assert "the list of ids is empty" in nothing.err


def test_all_ledgers_in_a_state_are_verified(world: World) -> None:
    closed = closed_ledger(world, world.client(), 10, **STRIPED)
    opened = open_writer(world, world.client(), 1, **TRIPLE).ledger_id
    for state, its in (("closed", closed), ("open", opened)):
        found = run_in(world, "ledger", "verify", "--all", "--state", state, "-o", "id")
        assert found.out == f"{its}\n"
    assert not run_in(world, "ledger", "verify", "--all", "--state", "in-recovery").out
    for given in ((closed,), (closed, "--all"), ("--all", "--from-file", "ids")):
        refused = run_in(world, "ledger", "verify", *given, "--state", "closed", ok=False)
        assert refused.status == ExitStatus.USAGE
        assert "add --all" in refused.err


def test_no_ledger_at_all_is_said(world: World) -> None:
    told = run_in(world, "ledger", "verify", "--all")
    assert (told.out, told.err.startswith("0 ledgers, 0 entries")) == ("", True)


def test_how_much_is_left_of_several_ledgers_is_not_guessed(world: World) -> None:
    ids = [closed_ledger(world, world.client(), 10, **STRIPED) for _ in range(2)]
    for words, totals in ((["--all"], {None}), (ids, {None}), (ids[:1], {None, 10})):
        said = run_in(world, "ledger", "verify", *words, "--progress", "jsonl").err
        told = [json.loads(line) for line in said.splitlines() if line.startswith("{")]
        assert {one["total"] for one in told} <= totals
        assert told


def test_a_sample_reads_less_than_all(world: World) -> None:
    ledger_id = closed_ledger(world, world.client(), 400, **TRIPLE)
    found = run_in(world, "ledger", "verify", ledger_id, "--sample", "5%", "--json").json
    (one,) = found["ledgers"]
    assert 10 < one["entries"] < 40
    said = run_in(world, "ledger", "verify", ledger_id, "--sample", "5%").out
    assert re.search(r": \d+ of 400 entries, \d+ copies, .* all sound\n", said)
    for share in ("0%", "101%", "many", "1"):
        refused = run_in(world, "ledger", "verify", ledger_id, "--sample", share, ok=False)
        assert refused.status == ExitStatus.USAGE


def test_entries_without_a_copy_are_counted_and_the_remedy_is_not_an_audit(world: World) -> None:
    client = world.client()
    ledger_id, intact = (closed_ledger(world, client, 10, **TRIPLE) for _ in range(2))
    for bookie in world.bookies.values():
        del bookie.ledgers[ledger_id].entries[4]
    found = run_in(world, "ledger", "verify", ledger_id, intact, ok=False)
    assert "  no bookie returned a copy of 1 entry\n" in found.out
    assert "2 ledgers, 20 entries, 1 of them without a readable copy" in found.err
    assert "wrong or unreadable copies; 1 has entries without a readable copy" in found.err
    assert f"`bkctl disk salvage {ledger_id} --out DIR BOOKIE_DIR...`" in found.err
    only = ("-o", "id", "--filter", "entries_lost>0")
    lost = run_in(world, "ledger", "verify", "--all", *only, ok=False)
    assert lost.out == f"{ledger_id}\n"


def test_beside_a_lost_entry_the_line_that_repairs_the_others_is_named(world: World) -> None:
    ledger_id = closed_ledger(world, world.client(), 10, **TRIPLE)
    for bookie in world.bookies.values():
        del bookie.ledgers[ledger_id].entries[4]
    bad = member(world, ledger_id, 1)
    del bad.ledgers[ledger_id].entries[5]
    line = f"bookie recover {bad.bookie_id} --ledger {ledger_id} --to {bad.bookie_id}"
    found = run_in(world, "ledger", "verify", ledger_id, ok=False)
    assert f"`bkctl {line}` writes entries that have another copy again" in found.err
    assert f"`bkctl disk salvage {ledger_id} --out DIR BOOKIE_DIR...`" in found.err
    ended = run_in(world, *line.split(), "--yes", ok=False)
    assert ended.status == ExitStatus.PARTLY
    assert "wrote 1 entry of 1 ledger again" in ended.out
    assert "entry 4" in ended.err
    assert 5 in bad.ledgers[ledger_id].entries


def test_the_remedy_for_a_bookie_that_is_down_is_to_start_it(world: World) -> None:
    ledger_id = closed_ledger(world, world.client(), 10, **TRIPLE)
    down = member(world, ledger_id, 1)
    world.kill(down.bookie_id)
    found = run_in(world, "ledger", "verify", ledger_id, ok=False)
    assert found.status == ExitStatus.PROBLEMS
    assert f"start {down.bookie_id} again if its process has ended" in found.err
    assert "readable copy" not in found.err


def test_the_remedy_for_a_bookie_that_refuses_the_client_is_a_login(world: World) -> None:
    ledger_id = closed_ledger(world, world.client(), 10, **TRIPLE)

    def refuse(request: Request) -> Ruling:
        if isinstance(request, ReadRequest):
            return ReadResponse(ReturnCode.EUA, request.ledger_id, request.entry_id)
        return Fate.SERVE

    member(world, ledger_id, 1).policy = refuse
    found = run_in(world, "ledger", "verify", ledger_id, ok=False)
    assert found.status == ExitStatus.PROBLEMS
    assert "a bookie refuses this client: put the client's login or TLS settings" in found.err
    assert "again if" not in found.err


def test_a_bookie_that_answers_with_an_error_is_not_to_be_started(world: World) -> None:
    ledger_id = closed_ledger(world, world.client(), 10, **TRIPLE)
    broken = member(world, ledger_id, 1)
    broken.policy = failing(5)
    found = run_in(world, "ledger", "verify", ledger_id, ok=False)
    assert f"  {broken.bookie_id}  unreadable 1: entry 5 (EIO)\n" in found.out
    assert f"start {broken.bookie_id}" not in found.err
    assert f"`bkctl bookie recover {broken.bookie_id} --ledger {ledger_id} --to " in found.err


def test_the_remedy_for_a_damaged_copy_repairs_the_ledger() -> None:
    world = World(4)
    ledger_id = closed_ledger(world, world.client(), 10, **TRIPLE)
    damaged = member(world, ledger_id, 1)
    packet = damaged.ledgers[ledger_id].entries[5]
    damaged.ledgers[ledger_id].entries[5] = packet[:-1] + bytes([packet[-1] ^ 1])
    found = run_in(world, "ledger", "verify", ledger_id, ok=False)
    assert f"  {damaged.bookie_id}  damaged 1: entry 5\n" in found.out
    (line,) = re.findall(r"`bkctl ([^`]+) --to [^`]+` writes", found.err)
    run_in(world, *line.split(), "--yes")
    assert damaged.bookie_id not in world.stored(ledger_id).ensemble
    assert "all sound" in run_in(world, "ledger", "verify", ledger_id).out


def test_where_each_bookie_has_a_copy_a_damaged_one_is_written_again_in_place(
    world: World,
) -> None:
    ledger_id, intact = (closed_ledger(world, world.client(), 10, **TRIPLE) for _ in range(2))
    damaged = member(world, ledger_id, 1)
    entries = damaged.ledgers[ledger_id].entries
    entries[5] = entries[5][:-1] + bytes([entries[5][-1] ^ 1])
    del entries[7], entries[8]
    found = run_in(world, "ledger", "verify", ledger_id, ok=False)
    (line,) = re.findall(r"`bkctl ([^`]+)` writes", found.err)
    words = line.split()
    nowhere = run_in(world, *words[:-2], "--yes", ok=False)
    assert nowhere.status == ExitStatus.PARTLY
    assert f"on the same bookie: {' '.join(words[-2:])}" in nowhere.err
    plan = run_in(world, *words, "--dry-run").out
    bad = f"ledger {ledger_id}, 3 entries: 5, 7-8"
    assert plan == f"would write again on {damaged.bookie_id}: {bad}\n"
    before = world.stored(ledger_id)
    said = run_in(world, *words, typed="y\n", tty=True)
    assert bad in said.err
    assert said.out == f"wrote 3 entries of 1 ledger again on {damaged.bookie_id}: 21 B\n"
    assert world.stored(ledger_id) == before
    assert "all sound" in run_in(world, "ledger", "verify", ledger_id).out
    again = run_in(world, *words)
    assert again.out.startswith("wrote 0 entries of 0 ledgers")
    assert "all sound" in run_in(world, "ledger", "verify", intact).out


def test_ledgers_that_cannot_be_written_again_in_place_keep_no_other_from_it(world: World) -> None:
    lost, good, unread = (closed_ledger(world, world.client(), 4, **TRIPLE) for _ in range(3))
    for index in range(3):
        del member(world, lost, index).ledgers[lost].entries[2]
    damaged = member(world, good, 0)
    del damaged.ledgers[good].entries[1]
    path = zk_paths.LAYOUTS["hierarchical"].path_of(unread)
    world.metadata.set(path, b"no metadata")
    ended = run_in(
        world, "recover", damaged.bookie_id, "--to", damaged.bookie_id, "--yes", ok=False
    )
    assert ended.status == ExitStatus.PARTLY
    assert ended.out.startswith("wrote 1 entry of 1 ledger again")
    assert f"2 ledgers not repaired completely: {lost}, {unread}" in ended.err
    assert f"entry 2 of ledger {lost}: " in ended.err
    assert f"ledger {unread}: " in ended.err
    assert "all sound" in run_in(world, "ledger", "verify", good).out


def test_only_one_bookie_can_be_written_again_in_place(world: World) -> None:
    ledger_id = closed_ledger(world, world.client(), 10, **TRIPLE)
    for more in (("b2",), ("--delete-cookie",)):
        words = ("bookie", "recover", "b1", "--ledger", ledger_id, "--to", "b1", "--yes")
        assert run_in(world, *words, *more, ok=False).status in {
            ExitStatus.USAGE,
            ExitStatus.REFUSED,
        }
    down = member(world, ledger_id, 1)
    down.policy = lambda _request: Fate.HOLD
    words = ("bookie", "recover", down.bookie_id, "--to", down.bookie_id, "--yes")
    silent = run_in(world, *words, ok=False)
    assert (silent.status, "does not answer" in silent.err) == (ExitStatus.NOT_FOUND, True)


def test_ids_come_from_the_line_a_file_or_stdin(world: World, tmp_path: Path) -> None:
    client = world.client()
    ids = [str(closed_ledger(world, client, 2, **TRIPLE)) for _ in range(3)]
    file = tmp_path / "ids"
    file.write_text(f"# of today\n{ids[1]} {ids[2]}  # two\n\n")
    for words, typed in (
        ((ids[0], "--from-file", file), ""),
        ((ids[0], "--from-file", "-"), f"{ids[1]}\n{ids[2]}\n"),
        (("-",), " ".join(ids)),
        (("--all",), ""),
    ):
        found = run_in(world, "ledger", "verify", *words, "-o", "id", typed=typed).out
        assert found.split() == ids
    for wrong in ((), ("--all", ids[0])):
        assert run_in(world, "ledger", "verify", *wrong, ok=False).status == ExitStatus.USAGE
    file.write_text("1\nx1\n")
    refused = run_in(world, "ledger", "verify", "--from-file", file, ok=False)
    assert refused.status == ExitStatus.USAGE
    assert "ids, line 2: 'x1' is not a ledger id" in refused.err
    file.write_bytes(b"\x7fELF\xd0 1\n")
    binary = run_in(world, "ledger", "verify", "--from-file", file, ok=False)
    assert (binary.status, "is not a ledger id" in binary.err) == (ExitStatus.USAGE, True)
    missing = run_in(world, "ledger", "verify", "--from-file", tmp_path / "no", ok=False)
    assert missing.status == ExitStatus.NOT_FOUND


def test_stored_metadata_is_not_written_to_a_terminal(world: World) -> None:
    refused = run_in(world, "ledger", "metadata", "dump", 3, "-", tty=True, ok=False)
    assert (refused.status, refused.out) == (ExitStatus.REFUSED, "")
    assert "`bkctl ledger show 3 -o json` shows it as text" in " ".join(refused.err.split())


def test_a_ledger_that_is_not_there_is_not_found(world: World) -> None:
    for words in (("verify", 99), ("metadata", "dump", 99, "-"), ("read", 99, "--bookie", "a:1")):
        missing = run_in(world, "ledger", *words, "--json", ok=False)
        assert missing.status == ExitStatus.NOT_FOUND, words


# One bookie's copies ---------------------------------------------------------------------------


def test_the_copies_of_one_bookie_are_read_to_the_last(world: World) -> None:
    ledger_id = closed_ledger(world, world.client(), 9, **STRIPED)
    there = member(world, ledger_id, 0)
    read = ("ledger", "read", ledger_id, "--bookie", there.bookie_id)
    assert run_in(world, *read, "-o", "id").out.split() == ["0", "2", "3", "5", "6", "8"]
    assert run_in(world, *read, "3-6").out == "entry 3\nentry 5\nentry 6\n"
    elsewhere = run_in(world, *read, "1", ok=False)
    assert (elsewhere.status, elsewhere.out) == (ExitStatus.PARTLY, "")
    assert f"{there.bookie_id} has none of these entries: they belong on other" in elsewhere.err
    del there.ledgers[ledger_id].entries[8]
    found = run_in(world, *read, "-o", "id", ok=False)
    assert found.out.split() == ["0", "2", "3", "5", "6"]
    assert found.status == ExitStatus.PARTLY
    assert f"{there.bookie_id} has no sound copy of 1 entry: 8" in found.err


def test_entries_around_one_that_a_bookie_cannot_read_are_printed(world: World) -> None:
    ledger_id = closed_ledger(world, world.client(), 9, **TRIPLE)
    broken = member(world, ledger_id, 1)
    broken.policy = failing(5)
    read = ("ledger", "read", ledger_id, "--bookie", broken.bookie_id, "4-6")
    found = run_in(world, *read, ok=False)
    assert found.out == "entry 4\nentry 6\n"
    assert found.status == ExitStatus.PARTLY
    assert f"{broken.bookie_id} has no sound copy of 1 entry: 5 (" in found.err
    assert "EIO" in found.err


def test_a_bookie_that_no_fragment_lists_is_asked_all_the_same() -> None:
    world = World(4)
    ledger_id = closed_ledger(world, world.client(), 3, **TRIPLE)
    (spare,) = set(world.bookies) - set(world.stored(ledger_id).ensemble)
    read = ("ledger", "read", ledger_id, "--bookie", spare)
    nothing = run_in(world, *read, ok=False)
    assert (nothing.status, nothing.out) == (ExitStatus.PARTLY, "")
    assert f"{spare} has none of these entries: no fragment of ledger {ledger_id}" in nothing.err
    world.bookies[spare].ledgers[ledger_id] = member(world, ledger_id, 0).ledgers[ledger_id]
    found = run_in(world, *read)
    assert found.out == "entry 0\nentry 1\nentry 2\n"
    assert f"no fragment lists {spare}" in found.err


# All copies of an entry -------------------------------------------------------------------------


def test_the_copies_of_an_entry_are_shown_side_by_side() -> None:
    world = World(4)
    ledger_id = closed_ledger(world, world.client(), 9, **TRIPLE)
    compare = ("ledger", "read", ledger_id, "5", "--bookie", "all")
    sound = run_in(world, *compare)
    assert "3 copies of 1 entry: equal on all bookies" in sound.err
    rows = sound.out.splitlines()[1:]
    assert [row.split()[1:3] for row in rows] == [
        [bookie, "intact"] for bookie in sorted_as_read(world, ledger_id, 5)
    ]
    assert {row.split()[-1] for row in rows} == {hashlib.sha256(b"entry 5").hexdigest()[:16]}
    whole, cut, lost = (member(world, ledger_id, index) for index in range(3))
    packet = whole.ledgers[ledger_id].entries[5]
    cut.ledgers[ledger_id].entries[5] = packet[:-1] + b"!"
    del lost.ledgers[ledger_id].entries[5]
    found = run_in(world, *compare, "--json", ok=False)
    assert found.status == ExitStatus.PROBLEMS
    copies = {one["bookie_id"]: one for one in found.json["copies"]}
    assert [
        (copies[one.bookie_id]["copy"], copies[one.bookie_id]["digest"])
        for one in (whole, cut, lost)
    ] == [("intact", "ok"), ("damaged", "wrong"), ("missing", None)]
    bytes_of_damaged = base64.b64decode(copies[cut.bookie_id]["payload_b64"])
    assert bytes_of_damaged == b"entry !"
    assert "unreadable: 2 of 3" in found.err
    dumped = run_in(world, *compare, "--hexdump", ok=False).out
    assert f"{cut.bookie_id}: damaged (" in dumped
    assert "|entry !|" in dumped
    assert f"{lost.bookie_id}: missing (" in dumped


def sorted_as_read(world: World, ledger_id: LedgerId, entry_id: int) -> list[BookieId]:
    ensemble = world.stored(ledger_id).ensemble
    return [ensemble[index] for index in write_set(entry_id, len(ensemble), 3)]


def test_a_copy_that_is_another_entry_of_a_valid_digest_differs(world: World) -> None:
    client = world.client()
    ledger_id, other = (closed_ledger(world, client, 3, **TRIPLE) for _ in range(2))
    there = member(world, ledger_id, 1)
    digester = world.client().keys_of(ledger_id, world.stored(ledger_id)).digester
    there.ledgers[ledger_id].entries[1] = digester.package(ledger_id, 1, 0, 14, b"ENTRY 1")
    found = run_in(world, "ledger", "read", ledger_id, "--bookie", "all", "--json", ok=False)
    differing = [one for one in found.json["copies"] if one["copy"] != "intact"]
    assert [(one["bookie_id"], one["entry_id"], one["copy"]) for one in differing] == [
        (there.bookie_id, 1, "differing")
    ]
    assert "2 of 3 readable copies differ from this copy" in differing[0]["why"]
    assert len(found.json["copies"]) == 9
    assert run_in(world, "ledger", "read", other, "--bookie", "all").status == 0


def test_a_bookie_that_is_down_leaves_the_other_copies_to_be_compared(world: World) -> None:
    ledger_id = closed_ledger(world, world.client(), 3, **TRIPLE)
    down = member(world, ledger_id, 1)
    world.kill(down.bookie_id)
    found = run_in(world, "ledger", "read", ledger_id, "1", "--bookie", "all", "--json", ok=False)
    assert found.status == ExitStatus.PROBLEMS
    words = {one["bookie_id"]: one["copy"] for one in found.json["copies"]}
    assert words.pop(down.bookie_id) == "unreadable"
    assert set(words.values()) == {"intact"}


def test_the_names_that_people_try_lead_to_the_copies_of_an_entry(world: World) -> None:
    ledger_id = closed_ledger(world, world.client(), 9, **TRIPLE)
    line = f"bkctl ledger read {ledger_id} 57 --bookie all`"
    verified = run_in(world, "ledger", "verify", ledger_id, 57, ok=False)
    assert f"for an entry: `{line}" in verified.err
    del member(world, ledger_id, 1).ledgers[ledger_id].entries[5]
    bad = run_in(world, "ledger", "verify", ledger_id, 57, ok=False)
    assert bad.status == ExitStatus.PROBLEMS
    assert f"no such ledger: 57; for an entry: `{line}" in bad.err
    mapped = run_in(world, "ledger", "map", ledger_id, "--entry", 5)
    assert f"`bkctl ledger read {ledger_id} 5 --bookie all` reads these copies" in mapped.err
    for word in ("--compare", "--all-bookies"):
        assert run_in(world, "ledger", "read", ledger_id, "3", word).status == 0
    refused = run_in(world, "ledger", "read", ledger_id, "--bookie", "all", "--raw", ok=False)
    assert (refused.status, "with --hexdump" in refused.err) == (ExitStatus.USAGE, True)


# Orphans ---------------------------------------------------------------------------------------


def test_orphans_are_what_neither_the_file_nor_a_log_names(world: World, tmp_path: Path) -> None:
    client = world.client()
    day_ms = 86_400_000
    made = int(time.time() * 1000) - 2 * day_ms
    ids = [closed_ledger(world, client, 2, **TRIPLE) for _ in range(4)]
    for number, age_days in ((0, 0), (1, 0), (2, 0), (3, 2)):
        now = world.run(client.read_metadata(ids[number]))
        custom = {"component": b"managed-ledger", "application": b"pulsar", "pulsar/x": b"t"}
        changed = attrs.evolve(
            now.value, ctime_ms=made + (0 if number < 3 else age_days * day_ms), store_ctime=True,
            custom=custom if number == 1 else {},
        )  # fmt: skip
        world.run(client.store.write_ledger(ids[number], changed, now.version))
    keep = tmp_path / "keep"
    keep.write_text(f"{ids[0]}\n777\n")
    found = run_in(world, "ledger", "orphans", "--keep-file", keep)
    assert run_in(world, "ledger", "orphans", "--keep-file", keep, "-o", "id").out.split() == [
        str(ids[1]), str(ids[2]),
    ]  # fmt: skip
    assert "application=pulsar component=managed-ledger pulsar/x=t" in found.out
    assert "1 ledger that" in found.err
    piped = run_in(world, "ledger", "orphans", "--keep-file", "-", "-o", "id", typed="\n")
    assert "all ledgers count as orphans" in piped.err
    every = ("ledger", "orphans", "--keep-file", keep, "--older-than", "0", "-o", "id")
    assert str(ids[3]) in run_in(world, *every).out.split()


def test_the_ledgers_of_a_log_are_no_orphans(world: World, tmp_path: Path) -> None:
    run_in(world, "log", "create", "events", "-E3", "-W3", "-A2")
    run_in(world, "log", "append", "events", "a")
    (one,) = run_in(world, "ledger", "list", "-o", "id").out.split()
    keep = tmp_path / "keep"
    keep.write_text("")
    every = ("ledger", "orphans", "--keep-file", keep, "--older-than", "0", "-o", "id")
    assert run_in(world, *every).out == "", one


def test_other_names_of_a_ledgers_fields_are_taken(world: World) -> None:
    small, large = (closed_ledger(world, world.client(), count, **TRIPLE) for count in (1, 9))
    for field in ("size", "bytes", "length"):
        words = ("ledger", "list", "--sort-by", f"{field}:desc", "-o", "id")
        assert run_in(world, *words).out.split() == [str(large), str(small)]
    for field in ("replicas", "copies", "qw"):
        for filtered, count in ((f"{field}<3", "0\n"), (f"{field}=3", "2\n")):
            words = ("ledger", "list", "--filter", filtered, "--count")
            assert run_in(world, *words).out == count


# Delete ----------------------------------------------------------------------------------------


def test_ledgers_to_delete_may_stand_in_a_file(world: World, tmp_path: Path) -> None:
    ids = [closed_ledger(world, world.client(), 1, **TRIPLE) for _ in range(2)]
    file = tmp_path / "ids"
    file.write_text(f"{ids[0]}\n{ids[1]}\n")
    run_in(world, "ledger", "delete", "--from-file", file, "--yes")
    assert run_in(world, "ledger", "list", "--count").out == "0\n"
    assert run_in(world, "ledger", "delete", "--yes", ok=False).status == ExitStatus.USAGE


# Metadata --------------------------------------------------------------------------------------


def test_metadata_goes_to_a_file_and_back(world: World, tmp_path: Path) -> None:
    ledger_id = closed_ledger(world, world.client(), 3, **TRIPLE)
    file = tmp_path / "m"
    dump, restore = (("ledger", "metadata", word, ledger_id) for word in ("dump", "restore"))
    said = run_in(world, *dump, file).out
    assert said == f"metadata of ledger {ledger_id}, version 1, in {file}\n"
    before = world.stored(ledger_id)
    assert file.read_bytes() == encode_metadata(before)
    assert file.stat().st_mode & 0o777 == 0o600
    assert run_in(world, *dump, "-").out.encode("utf-8", "surrogateescape") == file.read_bytes()
    run_in(world, "ledger", "delete", ledger_id, "--yes")
    assert run_in(world, *restore, file, "--dry-run").out.startswith("would create ledger")
    assert "created" in run_in(world, *restore, file).out
    # Who creates a ledger's metadata puts a token of its own there, as Java does.
    token = world.stored(ledger_id).creator_token
    assert world.stored(ledger_id) == attrs.evolve(before, creator_token=token)
    assert run_in(world, "ledger", "read", ledger_id).out == "entry 0\nentry 1\nentry 2\n"
    again = run_in(world, *restore, file, "--json").json
    assert again["how"] == "unchanged"


def test_metadata_is_replaced_only_when_asked_and_what_was_there_is_kept(
    world: World, tmp_path: Path
) -> None:
    client = world.client()
    ledger_id = closed_ledger(world, client, 3, **TRIPLE)
    file = tmp_path / "m"
    restore = ("ledger", "metadata", "restore", ledger_id, file)
    run_in(world, "ledger", "metadata", "dump", ledger_id, file)
    now = world.run(client.read_metadata(ledger_id))
    (fragment,) = now.value.fragments
    other = (BookieId("gone:1"), *fragment.ensemble[1:])
    changed = attrs.evolve(
        now.value, fragments=(attrs.evolve(fragment, ensemble=other),), custom={"a": b"b"}
    )
    version = world.run(client.store.write_ledger(ledger_id, changed, now.version))
    refused = run_in(world, *restore, ok=False)
    assert refused.status == ExitStatus.CONFLICT
    assert "differs in custom, fragment from entry 0" in refused.err.replace(
        "fragment from entry 0, custom", "custom, fragment from entry 0"
    )
    plan = run_in(world, *restore, "--replace", "--dry-run").out
    assert "would change the custom: a=b becomes none\n" in plan
    assert f"gone:1, {fragment.ensemble[1]}" in plan
    unasked = run_in(world, *restore, "--replace", ok=False)
    assert unasked.status == ExitStatus.REFUSED
    asked = run_in(world, *restore, "--replace", typed=f"{instance_id(world)}\n", tty=True)
    assert f"version {version + 1}; the old metadata is in {file}.before-{version}" in asked.out
    kept = Path(f"{file}.before-{version}")
    assert kept.read_bytes() == encode_metadata(world.run(_stored_value(changed)))
    assert world.stored(ledger_id).ensemble == fragment.ensemble


async def _stored_value(value: Any) -> Any:
    return value


def test_a_backup_is_never_written_over(world: World, tmp_path: Path) -> None:
    client = world.client()
    ledger_id = closed_ledger(world, client, 3, **TRIPLE)
    file, backup = tmp_path / "m", tmp_path / "kept"
    run_in(world, "ledger", "metadata", "dump", ledger_id, file)
    now = world.run(client.read_metadata(ledger_id))
    changed = attrs.evolve(now.value, custom={"a": b"b"})
    world.run(client.store.write_ledger(ledger_id, changed, now.version))
    backup.write_text("mine")
    refused = run_in(world, "ledger", "metadata", "restore", ledger_id, file, "--replace", "--yes",
                     "--backup", backup, ok=False)  # fmt: skip
    assert refused.status == ExitStatus.CONFLICT
    assert backup.read_text() == "mine"
    assert world.stored(ledger_id).custom == {"a": b"b"}


def test_what_is_no_metadata_is_refused(world: World, tmp_path: Path) -> None:
    file = tmp_path / "m"
    file.write_text("no metadata")
    refused = run_in(world, "ledger", "metadata", "restore", 5, file, ok=False)
    assert refused.status == ExitStatus.REFUSED
    missing = run_in(world, "ledger", "metadata", "restore", 5, tmp_path / "none", ok=False)
    assert missing.status == ExitStatus.NOT_FOUND


def test_differences_never_show_a_password(world: World) -> None:
    writer = open_writer(world, world.client(), 0, **TRIPLE)
    old = world.stored(writer.ledger_id)
    new = attrs.evolve(old, password=b"secret", ack_quorum=1)
    changes = {one.field: (one.old, one.new) for one in differences(old, new)}
    assert changes == {"ack_quorum": ("2", "1"), "password": ("one", "another")}
    assert LedgerId(writer.ledger_id) == writer.ledger_id


# Many ids --------------------------------------------------------------------------------------


def test_many_ledgers_are_closed_recovered_and_fenced_by_their_ids(world: World) -> None:
    client = world.client()
    ids = [open_writer(world, client, 2, **TRIPLE).ledger_id for _ in range(4)]
    typed = "".join(f"{one}\n" for one in ids[:2])
    planned = run_in(world, "ledger", "recover", "-", "--dry-run", typed=typed).out.splitlines()
    assert planned == [f"would fence, recover and close ledger {one} (open)" for one in ids[:2]]
    asked = run_in(world, "ledger", "recover", "-", typed=typed, ok=False)
    assert (asked.status, asked.err.count("Recover and close")) == (ExitStatus.REFUSED, 1)
    assert asked.err.endswith("ledger recover - --yes\n")
    done = run_in(world, "ledger", "recover", "-", "--yes", "--json", typed=typed).json["ledgers"]
    assert [(one["ledger_id"], one["last_entry"]) for one in done] == [
        (str(one), 1) for one in ids[:2]
    ]
    fenced = run_in(world, "ledger", "fence", ids[2], ids[3], "--yes").out
    assert fenced.count("no writer can add") == 2
    assert run_in(world, "ledger", "close", *ids, "--yes").out.count("\n") == 4
    assert {world.stored(one).is_closed for one in ids} == {True}


def test_what_fails_for_one_of_many_is_told_and_the_others_are_done(world: World) -> None:
    there = open_writer(world, world.client(), 1, **TRIPLE).ledger_id
    partly = run_in(world, "ledger", "recover", 99, there, "--yes", ok=False)
    assert partly.status == ExitStatus.PARTLY
    assert partly.err.count("ledger 99: ") == 1
    assert "1 failed: ledger 99\n" in partly.err
    assert world.stored(there).is_closed
    assert run_in(world, "ledger", "recover", 99, ok=False).status == ExitStatus.NOT_FOUND
    assert run_in(world, "ledger", "recover", "-", typed="").out == ""


def test_without_the_metadata_service_the_rest_of_many_is_not_tried(world: World) -> None:
    ids = [closed_ledger(world, world.client(), 1) for _ in range(5)]
    tried: list[str] = []

    def away(operation: TreeOperation) -> Fault:
        if operation.name == "delete" and "/L" in operation.path:
            tried.append(operation.path)
            if len(tried) > 2:
                raise MetadataUnavailableError("no connection within 10 s")
        return Fault.NONE

    world.metadata.faults = away
    ended = run_in(world, "ledger", "delete", *ids, "--yes", ok=False)
    assert ended.status == ExitStatus.UNREACHABLE
    assert ended.out.count("deleted") == 2
    assert f"ledger {ids[2]}: no connection within 10 s; the ledgers that follow" in ended.err
    assert len(tried) == 3


def test_bookie_ids_come_from_stdin_too(world: World) -> None:
    first, second = sorted(world.bookies)[:2]
    shown = run_in(world, "bookie", "info", "-", "-o", "id", typed=f"{first} {second}\n").out
    assert shown.split() == [first, second]
    for words in (("bookie", "info", "-"), ("bookie", "recover", "-")):
        assert run_in(world, *words, ok=False).status == ExitStatus.NOT_FOUND
