"""What ``-vv`` tells: operations on the metadata, and requests over HTTP."""

from __future__ import annotations

import re
from typing import Any

import pytest

from bkclient.errors import BookieUnavailableError
from bkctl.bookies.http.admin_client import AdminClient, HttpAddress, as_curl
from bkctl.cli.root import cli
from tests.bkclient.replication_world import closed_ledger, open_writer
from tests.bkclient.worlds import World
from tests.bkctl.commands.bookie.test_bookie import written
from tests.bkctl.support.world import WorldClient, WorldHost, run_in


def _traced(text: str) -> list[str]:
    return [line for line in text.splitlines() if line.startswith("metadata: ")]


def test_operations_on_the_metadata_are_told_with_their_times() -> None:
    world = World(3)
    written(world)
    told = _traced(run_in(world, "ledger", "show", "0", "-vv").err)
    assert re.fullmatch(r"metadata: replication_note\(\) \d+\.\d ms", told[0])
    assert re.fullmatch(r"metadata: read_ledger\(0\) \d+\.\d ms", told[1])
    told = _traced(run_in(world, "ledger", "list", "-vv").err)
    assert any(re.fullmatch(r"metadata: ledger_ranges\(\) .* ms: 1 answers", one) for one in told)
    told = _traced(run_in(world, "ledger", "show", "9", "-vv", ok=False).err)
    assert re.fullmatch(r"metadata: read_ledger\(9\) .* ms: \w+Error", told[1])


def test_no_password_is_told(tmp_path) -> None:
    password = tmp_path / "password"
    password.write_text("hush")
    said = run_in(World(3), "ledger", "create", "--password-file", password, "-vv").err
    assert _traced(said)
    assert "hush" not in said


def test_nothing_is_told_with_less_or_after_the_command() -> None:
    world = World(3)
    written(world)
    assert not _traced(run_in(world, "ledger", "show", "0", "-v").err)
    assert _traced(run_in(world, "ledger", "show", "0", "-vv").err)
    assert not _traced(run_in(world, "ledger", "show", "0").err)


@pytest.mark.parametrize("words", [["create"], ["show", "0"], ["list"]], ids=" ".join)
def test_the_metadata_is_not_read_once_the_answer_is_printed(words: list[str]) -> None:
    class Watched(WorldClient):
        def call(self, function: Any, *args: Any, **kwargs: Any) -> Any:
            printed.append(host.out.text)
            return super().call(function, *args, **kwargs)

    world, printed = World(3), list[str]()
    written(world)
    host = WorldHost(world, "", tty=False)
    client: Any = Watched(world)
    host._connect = lambda _uri, _config: client
    assert cli.run(["-u", "sqlite:///not/opened.db", "ledger", *words], host) == 0
    assert host.out.text
    assert set(printed) == {""}


def _asked(text: str) -> list[str]:
    lines = [line for line in text.splitlines() if line.startswith("bookie ")]
    return [re.sub(r" \d+\.\d ms: ", " MS ", line) for line in lines]


def test_requests_to_bookies_are_told_with_their_answers() -> None:
    world = World(3)
    single = {"ensemble_size": 1, "write_quorum": 1, "ack_quorum": 1}
    ledger_id = closed_ledger(world, world.client(), 4, **single)
    (bookie,) = world.stored(ledger_id).ensemble
    told = _asked(run_in(world, "ledger", "read", ledger_id, "--first", 2, "--last", 2, "-vv").err)
    assert told == [f"bookie {bookie}: read_entry({ledger_id}, 2) MS EOK"]
    assert _asked(run_in(world, "ledger", "read", ledger_id, "-v").err) == []
    world.bookies[bookie].ledgers[ledger_id].entries.pop(2)
    lost = _asked(run_in(world, "ledger", "read", ledger_id, "--first", 2, "-vv", ok=False).err)
    assert any(line.endswith("MS ENOENTRY") or "1 ENOENTRY" in line for line in lost), lost


def test_what_goes_out_together_is_one_line_unless_every_entry_is_wanted() -> None:
    world = World(3)
    ledger_id = closed_ledger(world, world.client(), 100)
    told = _asked(run_in(world, "ledger", "verify", ledger_id, "-vv").err)
    assert 0 < len(told) < 20
    assert all(line.endswith(" EOK") for line in told), told
    each = _asked(run_in(world, "ledger", "verify", ledger_id, "-vvv").err)
    assert len(each) >= 100
    assert any(f"read_entry({ledger_id}, 57) MS EOK" in line for line in each)


def test_a_batch_read_is_one_line_with_how_many_entries_it_gave() -> None:
    world = World(3)
    ledger_id = closed_ledger(world, world.client(), 100)
    told = _asked(run_in(world, "ledger", "read", ledger_id, "-vv").err)
    given = [re.search(r"batch_read_entry\(0, .* MS EOK, (\d+) entries$", line) for line in told]
    assert 0 < len(given) < 20
    assert sum(int(found[1]) for found in given) == 100


def test_adds_are_told_by_batch_once_they_are_answered() -> None:
    world = World(3)
    options = ("-E", 1, "-W", 1, "-A", 1, "-o", "id")
    typed = "".join(f"{number}\n" for number in range(50))
    said = run_in(world, "ledger", "write", "-", *options, "-vv", typed=typed)
    told = [line for line in _asked(said.err) if "add_entry" in line]
    assert 0 < len(told) < 10
    assert f"add_entry({said.id}, " in told[0]
    assert told[-1].endswith(" EOK")
    each = _asked(run_in(world, "ledger", "write", "-", *options, "-vvv", typed=typed).err)
    assert sum("add_entry" in line for line in each) == 50


def test_a_fencing_read_says_so() -> None:
    world = World(3)
    writer = open_writer(world, world.client(), 3)
    told = _asked(run_in(world, "ledger", "recover", writer.ledger_id, "--yes", "-vv").err)
    assert any("FENCE" in line for line in told), told


def test_requests_over_http_are_told_as_commands_without_the_token() -> None:
    told: list[str] = []
    admin = AdminClient("127.0.0.1", 1, token="hush", trace=told.append, timeout_s=5)
    with pytest.raises(BookieUnavailableError):
        admin.request("PUT", "/api/v2/bookie/mode", {"read_only": True})
    (asked,) = told
    assert asked == (
        "curl -X PUT -H 'Authorization: Bearer ***' --data '{\"read_only\": true}' "
        "http://127.0.0.1:1/api/v2/bookie/mode"
    )
    plain = as_curl("GET", HttpAddress("::1", 80), "/metrics", None, with_token=False)
    assert plain == "curl 'http://[::1]:80/metrics'"
