"""What bkctl adds to its shell, without a cluster."""

from __future__ import annotations

import json
import re
import signal
import subprocess
import sys
from functools import partial
from pathlib import Path
from typing import Any

import click
import pytest

from bkclient.metadata.versions_and_watches import NEW
from bkctl.cli.root import cli
from bkctl.commands.ledger.commands import ledger
from bkctl.commands.settings.profile_file import with_profile
from bkctl.commands.tool.completion_ids import SPACE_WAIT_S
from bkctl.commands.tool.shell import (
    BUILT_IN,
    ENTRY_POINT_GROUP,
    find_shell,
    preferences,
    write_first,
)
from bkctl.commands.tool.shell_program import ClusterState, ShellHost, ShellProgram
from bkctl.errors import CommandError, Interrupted, UsageError
from bkctl.exit_status import ExitStatus
from bkctl.global_options import Options, as_words, options_of
from bkctl.session.interrupt import ECHO_S, Interrupts
from bkctl.session.profiles import Profile, parse_profiles, read_profiles
from shell import program as shell_program
from shell.repl import run as run_shell
from tests.bkclient.worlds import Fate, World, when
from tests.bkctl.support.terminal import Stream
from tests.bkctl.support.world import WorldClient
from wire.ids import BookieId
from wire.messages import BookieInfoRequest
from wire.records.cookie import Cookie, encode_cookie

ROOT = Path(__file__).parents[4]


def test_the_shell_is_found_by_the_entry_point_that_the_project_declares() -> None:
    declared = (ROOT / "pyproject.toml").read_text()
    assert f'[project.entry-points."{ENTRY_POINT_GROUP}"]\nshell = "{BUILT_IN}"\n' in declared
    assert find_shell() is run_shell


def test_a_script_does_not_load_what_a_prompt_needs() -> None:
    code = (
        "import sys; from bkctl.cli.root import cli\n"
        "status = cli.run(['shell', '-c', 'help ledger'])\n"
        "sys.exit(any(name in sys.modules for name in ('prompt_toolkit', 'twisted')) or status)"
    )
    done = subprocess.run([sys.executable, "-c", code], check=False, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    assert "Usage: bkctl ledger" in done.stdout


@pytest.mark.parametrize(
    "words",
    [
        [],
        ["-u", "sqlite:///a,b", "-o", "json", "--timeout", "7"],
        ["--json", "-vv", "-q", "-y"],
        ["-X", "a=1", "-X", "b= 2", "-c", "/etc/some.conf"],
    ],
)
def test_options_as_words_are_those_options_again(words: list[str]) -> None:
    def parsed(words: list[str]) -> dict[str, object]:
        ctx = cli.make_context("bkctl", words, resilient_parsing=True)
        return {**vars(options_of(ctx)), "origins": None}

    options = options_of(cli.make_context("bkctl", list(words), resilient_parsing=True))
    again = [word for found in as_words(options).values() for word in found]
    assert parsed(again) == parsed(list(words))


def test_only_what_differs_from_the_defaults_becomes_words() -> None:
    assert as_words(Options()) == {}


def test_options_given_to_the_shell_hold_for_its_commands(
    capsys: pytest.CaptureFixture[str],
) -> None:
    for line in (["--json", "shell", "-c"], ["shell", "--json", "-e"]):
        status = cli.run([*line, "ledger show 7 -u sqlite:///nowhere/at/all.db"])
        assert status == ExitStatus.UNREACHABLE
        assert '"object": "ledger 7"' in capsys.readouterr().err


def test_a_time_limit_is_one_for_each_command_and_none_for_the_shell() -> None:
    before = signal.getitimer(signal.ITIMER_REAL)
    assert cli.run(["--timeout", "0.3", "shell", "-c", "!sleep 0.5"]) == 0
    assert signal.getitimer(signal.ITIMER_REAL) == before


def test_a_shell_in_the_shell_is_refused(capsys: pytest.CaptureFixture[str]) -> None:
    assert cli.run(["shell", "-c", "shell"]) == ExitStatus.USAGE
    assert "this is the shell" in capsys.readouterr().err


def test_a_script_comes_from_one_place(capsys: pytest.CaptureFixture[str]) -> None:
    assert cli.run(["shell", "-c", "help", "file"]) == ExitStatus.USAGE
    assert "not both" in capsys.readouterr().err


def test_what_loses_data_is_not_filled_in() -> None:
    program = ShellProgram(cli, ShellHost(environ={}))
    ctx = click.Context(ledger)
    allowed = {name: ledger.get_command(ctx, name) for name in ("show", "read", "fence", "delete")}
    assert {name for name, command in allowed.items() if program.may_fill(command)} == {
        "show", "read", "fence",
    }  # fmt: skip


def test_the_program_has_all_that_the_shell_asks_for() -> None:
    program = ShellProgram(cli, ShellHost(environ={}))
    wanted = {name for name in vars(shell_program.Program) if not name.startswith("_")}
    assert {"tree", "obj", "kinds", "live", "candidates", "status"} <= wanted
    assert all(hasattr(program, name) for name in wanted)
    state = ClusterState("6128d6e6-1", 2, 1, 1, 0, autorecovery=True)
    assert all(hasattr(state, name) for name in ("label", "text", "problem"))


def test_the_greeting_says_which_cluster_or_how_to_name_one() -> None:
    host = ShellHost(environ={})
    uri = "sqlite:///some/where.db"
    assert ShellProgram(cli, host, ["-u", uri]).greeting == f"bkctl on {uri}"
    assert "set service-uri" in ShellProgram(cli, host).greeting


def test_the_state_is_a_line_and_autorecovery_that_is_off_is_trouble() -> None:
    state = ClusterState("6128d6e6-1234", 2, 1, 1, 0, autorecovery=True)
    assert (state.label, state.problem) == ("6128d6e6", "")
    assert state.text == "2 of 4 bookies writable, 1 read-only, 1 down"
    state = ClusterState(None, 3, 0, 0, 100, autorecovery=False)
    assert (state.label, state.problem) == ("", "autorecovery is off")
    assert state.text == "3 of 3 bookies writable, 100+ ledgers under-replicated"


def test_no_cluster_is_no_reason_to_hang_or_to_end() -> None:
    program = ShellProgram(cli, ShellHost(environ={}))
    with pytest.raises(CommandError, match="no cluster is named"):
        program.status(())


def test_a_second_signal_ends_the_command_and_not_the_shell() -> None:
    host = ShellHost(stderr=Stream())
    seen: list[int] = []

    def interrupted_twice() -> None:
        times_s = iter([100.0, 100.1 + ECHO_S])
        clock = partial(next, times_s)
        with Interrupts(at_once=host.leave, clock=clock) as interrupts, interrupts.stopping():
            interrupts.last_words = "ledger 7 is open"
            signal.raise_signal(signal.SIGINT)
            seen.append(1)
            signal.raise_signal(signal.SIGINT)
            seen.append(2)

    with pytest.raises(Interrupted, match="ended at once"):
        interrupted_twice()
    assert seen == [1]
    assert host.stderr.text == "bkctl: ledger 7 is open\n"


def test_completions_of_a_group_import_none_of_its_commands() -> None:
    code = (
        "import sys, click; from bkctl.cli.root import cli\n"
        "found = cli.shell_complete(click.Context(cli), 'led')\n"
        "assert [(one.value, one.help[:8]) for one in found] == [('ledger', 'Ledgers:')], found\n"
        "sys.exit('bkctl.commands.ledger.commands' in sys.modules)"
    )
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0


# The user's file


def _likes(path: Path, text: str) -> dict[str, object]:
    path.write_text(text)
    return preferences({"BKCTL_CONFIG": str(path)})


def test_the_users_file_says_how_the_shell_is_to_be(tmp_path: Path) -> None:
    path = tmp_path / "config.toml"
    assert _likes(path, '[profiles.lab]\nservice-uri = "sqlite:///x"\n') == {}
    text = "[shell]\nkeys = 'vi'\nbar = false\ntiming = true\nbell = 30\n"
    assert _likes(path, text) == {
        "vi": True, "bar": False, "timing_s": 0.0, "bell_s": 30.0,
    }  # fmt: skip
    assert _likes(path, "[shell]\ntiming = false\nkeys = 'emacs'\n") == {
        "timing_s": None, "vi": False,
    }  # fmt: skip


@pytest.mark.parametrize(
    ("line", "told"),
    [
        ("keys = 'nano'", "shell.keys is emacs or vi"),
        ("timing = -1", "shell.timing is true, false or seconds"),
        ("bar = 1", "shell.bar is true or false"),
        ("audit = true", "shell.audit is a file, or syslog"),
        ("aliases = {a = 'b'}", "shell.aliases: unknown"),
        ("timings = 1", "shell.timings: unknown; did you mean timing?"),
    ],
)
def test_what_cannot_be_is_told_with_the_file(tmp_path: Path, line: str, told: str) -> None:
    path = tmp_path / "config.toml"
    with pytest.raises(UsageError) as caught:
        _likes(path, f"[shell]\n{line}\n")
    assert str(caught.value) == f"{path}: {told}"


def test_the_first_file_is_comments_alone_and_each_of_them_can_be_said(tmp_path: Path) -> None:
    environ = {"BKCTL_CONFIG": str(tmp_path / "new" / "config.toml")}
    path = write_first(environ)
    assert path is not None
    assert path.stat().st_mode & 0o777 == 0o600
    file = read_profiles(environ)
    assert (file.default, file.profiles, file.shell) == (None, {}, {})
    assert write_first(environ) is None
    said = [line[2:] for line in file.text.splitlines() if re.match(r"# (\[|[a-z-]+ = )", line)]
    toml = "\n".join(re.sub(r"  +[a-z].*", "", line) for line in said)
    found = parse_profiles(toml.replace("NAME", "lab"), path)
    assert (found.default, list(found.profiles)) == ("lab", ["lab"])
    path.write_text(toml)
    said = {"vi", "bar", "timing_s", "bell_s", "audit"}
    assert set(preferences(environ)) == said


def test_a_home_that_cannot_be_written_to_is_no_reason_to_fail(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    assert write_first({"BKCTL_CONFIG": str(tmp_path / "file" / "config.toml")}) is None
    assert write_first({}) is None


def test_profiles_are_changed_beside_what_is_said_of_the_shell(tmp_path: Path) -> None:
    path = tmp_path / "config.toml"
    environ = {"BKCTL_CONFIG": str(path)}
    path.write_text("[shell]\nbar = false  # mine\n")
    text = with_profile(read_profiles(environ), Profile(name="lab", service_uri="sqlite:///x"))
    path.write_text(text)
    assert "bar = false  # mine" in text
    assert (list(read_profiles(environ).profiles), preferences(environ)) == (
        ["lab"],
        {"bar": False},
    )


def test_a_profile_in_use_is_where_commands_go_whatever_was_said_before(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    path = tmp_path / "config.toml"
    path.write_text('[profiles.lab]\nservice-uri = "sqlite:///lab.db"\n')
    monkeypatch.setenv("BKCTL_CONFIG", str(path))
    monkeypatch.setenv("BKCTL_SERVICE_URI", "sqlite:///variable.db")
    monkeypatch.setenv("BKCTL_CONF", str(tmp_path / "none.conf"))
    for flags in ([], ["-u", "sqlite:///flag.db"]):
        assert cli.run([*flags, "shell", "-c", "use lab; config show -o json"]) == 0
        settings = json.loads(capsys.readouterr().out)["settings"]
        assert {one["key"]: one["value"] for one in settings}["metadataServiceUri"] == (
            "sqlite:///lab.db"
        )


# What is offered


def test_bookies_are_offered_with_their_space_and_a_silent_one_delays_nobody() -> None:
    world = World(3)
    cookie = encode_cookie(Cookie("b2", "/j", ("/l",), None, "i"))
    world.run(world.client().store.write_cookie(BookieId("b2"), cookie, NEW))
    world.kill("b2")
    world["b3"].policy = when(lambda one: isinstance(one, BookieInfoRequest), Fate.LOSE)
    client: Any = WorldClient(world)
    host = ShellHost(environ={}, connect=lambda _uri, _config: client)
    program = ShellProgram(cli, host)
    began_s = world.clock.seconds()
    found, whole = program.candidates("bookie_id", "", ["-u", "sqlite:///x"])
    assert world.clock.seconds() - began_s < 2 * SPACE_WAIT_S
    assert (found, whole) == (
        [("b1", "writable, 400 B free"), ("b2", "down"), ("b3", "writable, does not answer")], True,
    )  # fmt: skip
    retire = click.Command("decommission")
    assert [one[0] for one in program.ordered(retire, found)] == ["b2", "b1", "b3"]
    assert program.ordered(click.Command("show"), found) == found


def test_ledgers_that_are_not_closed_come_first_where_they_are_to_be() -> None:
    program = ShellProgram(cli, ShellHost(environ={}))
    found = [("9", "closed, 1 B"), ("8", "in-recovery"), ("7", ""), ("6", "open, made today")]
    for name, order in (("close", "6897"), ("fence", "6987"), ("read", "9876")):
        offered = program.ordered(click.Command(name), found)
        assert "".join(one[0] for one in offered) == order
