"""Writers that a shell keeps, on a cluster in memory."""

from __future__ import annotations

from typing import Any

import pytest

from bkclient.admin.one_shot_adds import is_handed_over
from bkctl.cli.root import cli
from bkctl.commands.tool.shell_program import ShellHost, ShellProgram
from bkctl.session.shell_writers import ShellWriters
from shell.repl import run
from tests.bkclient.worlds import World
from tests.bkctl.support.world import WorldClient
from wire.codes import LedgerState
from wire.ids import LedgerId
from wire.ledger_metadata import LedgerMetadata

URI = "sqlite:///not/opened.db"


class Script:
    """Runs scripts of the shell, each one with a shell of its own, and looks at what they leave."""

    def __init__(self, world: World, capsys: pytest.CaptureFixture[str]) -> None:
        self.world, self._capsys = world, capsys
        self.client: Any = WorldClient(world)

    def __call__(self, *lines: str) -> tuple[int, str, str]:
        host = ShellHost(environ={"PAGER": ""}, connect=lambda _uri, _config: self.client)
        given = {"service-uri": ("-u", URI)}
        status = run(ShellProgram(cli, host, ["-u", URI]), given, text="\n".join(lines))
        return (status, *self._capsys.readouterr())

    def metadata(self, ledger_id: int = 0) -> LedgerMetadata:
        stored = self.world.run(self.client.client.read_metadata(LedgerId(ledger_id)))
        metadata: LedgerMetadata = getattr(stored, "value", stored)
        return metadata

    @property
    def versions(self) -> int:
        return int(self.world.run(self.client.client.store.read_ledger(LedgerId(0))).version)


@pytest.fixture
def script(capsys: pytest.CaptureFixture[str]) -> Script:
    return Script(World(3), capsys)


def test_many_adds_take_the_ledger_once_and_hand_it_back_at_the_end(script: Script) -> None:
    assert script("ledger create")[0] == 0
    before = script.versions
    status, _, err = script("ledger add 0 a", "ledger add 0 b c", "ledger add 0 d")
    assert (status, err) == (0, "")
    assert is_handed_over(script.metadata())
    assert script.versions - before == 2
    assert script("ledger read 0")[1] == "a\nb\nc\nd\n"
    assert script("ledger add 0 e", "ledger read 0")[1].endswith("d\ne\n")


def test_what_is_added_is_read_at_once_while_the_ledger_is_held(script: Script) -> None:
    status, out, _ = script("ledger create", "ledger add 0 a b", "ledger read 0", "ledger tail 0")
    assert (status, out.split()[-4:]) == (0, ["a", "b", "a", "b"])


def test_a_ledger_that_is_held_is_closed_without_fencing_anybody(script: Script) -> None:
    status, out, err = script("ledger create", "ledger add 0 a", "ledger close 0")
    assert (status, err) == (0, "")
    assert "ledger 0 closed" in out
    assert (script.metadata().state, script.metadata().last_entry_id) == (LedgerState.CLOSED, 0)
    assert script("ledger create", "ledger add 1 a", "ledger close 1", "ledger add 1 b")[0] == 7


def test_the_ledger_that_was_just_made_is_meant_by_a_sign(script: Script) -> None:
    status, out, _ = script("ledger create", "ledger add _ a b", "ledger close _", "ledger read _")
    assert (status, out.split()[-2:]) == (0, ["a", "b"])


def test_a_dry_run_knows_what_is_held(script: Script) -> None:
    status, out, _ = script(
        "ledger create", "ledger add 0 a", "ledger add 0 b --dry-run", "ledger close 0 --dry-run"
    )
    assert status == 0
    assert "add to ledger 0, which this shell writes to" in out
    assert "close ledger 0, which this shell writes to" in out


def test_a_writer_that_was_fenced_is_held_no_more_and_that_is_told(script: Script) -> None:
    status, _, err = script(
        "ledger create", "ledger add 0 a", "ledger recover 0 -y", "ledger add 0 b"
    )
    assert (status, "BK-" in err) == (7, True)
    assert script.metadata().last_entry_id == 0


def test_a_ledger_that_cannot_be_handed_back_is_a_failure_at_the_end(script: Script) -> None:
    closed = script("ledger create", "ledger add 0 a", "ledger recover 0 -y")
    assert (closed[0], closed[2]) == (0, "")
    delete = "ledger delete _ -y --force open-ledgers"
    deleted = script("ledger create", "ledger add _ a", delete)
    assert (deleted[0], "no longer writes" in deleted[2]) == (0, False)
    status, _, err = script("ledger create", "ledger add _ a", "ledger fence _ -y")
    assert status == 1
    assert "bkctl: ledger 2 was not released: " in err
    assert "`bkctl ledger recover 2` closes it" in err


def test_commands_outside_a_shell_keep_nothing() -> None:
    writers = ShellWriters()
    assert writers.get(URI, LedgerId(0)) is None
    assert list(writers) == []
    assert writers.release(lambda _text, _failed: pytest.fail("nothing is held"))
