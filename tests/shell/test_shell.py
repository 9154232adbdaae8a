"""Lines run by a shell over a program that is not bkctl."""

from __future__ import annotations

import contextlib
import io
import os
import sys
from pathlib import Path
from typing import Any

import pytest

from shell.builtin import commands
from shell.command_line import parse
from shell.settings import Preferences
from shell.shell import Shell
from tests.shell.toy_program import ToyProgram, make_shell


def _run(shell: Shell, text: str) -> list[int]:
    return [shell.run(line) for line in parse(text)]


class Printed:
    """What a line prints and returns, on a shell that goes on from one to the next."""

    def __init__(self, capfd: pytest.CaptureFixture[str]) -> None:
        self.program = ToyProgram()
        self.shell = make_shell(self.program)
        self._capfd = capfd

    def __call__(self, text: str) -> tuple[list[int], str, str]:
        status = _run(self.shell, text)
        sys.stdout.flush()
        out, err = self._capfd.readouterr()
        return status, out, err


@pytest.fixture
def run(capfd: pytest.CaptureFixture[str]) -> Printed:
    return Printed(capfd)


def test_commands_are_run_without_the_programs_name_and_with_it(run: Printed) -> None:
    assert run("words a 'b c'") == ([0], "a b c\n", "")
    assert run("shelf words a") == ([0], "a\n", "")


def test_every_command_gets_the_same_object(run: Printed) -> None:
    run("book read b1; book note b1 x")
    assert run.program.obj == [("read", "b1", None), ("note", "b1", ("x",))]


def test_statuses_are_those_of_the_commands(run: Printed) -> None:
    assert run("fail 0; fail 7; how")[0] == [0, 7, 0]
    assert run("nonsense")[0] == [2]
    assert run("book read xyz")[0] == [2]


def test_an_interrupted_command_is_the_end_of_that_command_only(run: Printed) -> None:
    status, out, _ = run("interrupted; words on")
    assert (status[0] != 0, status[1], out) == (True, 0, "on\n")


def test_a_bug_of_a_command_does_not_end_the_shell(run: Printed) -> None:
    status, out, err = run("broken; words on")
    assert (status, out) == ([1, 0], "on\n")
    assert "ZeroDivisionError" in err


# Context


def test_what_is_in_use_fills_in_and_can_be_changed_and_forgotten(run: Printed) -> None:
    run("use book b1; book read; use book b2; book read; book read 3-4; use none; book read")
    assert run.program.obj == [("read", "b1", None), ("read", "b2", None), ("read", "b2", "3-4")]
    run("use book b3; use book")
    assert run("use") == ([0], "", "")
    run("use book b3")
    assert run("use") == ([0], "book b3\n", "")


def test_a_place_can_be_used_by_its_name_and_what_was_in_use_elsewhere_is_not(run: Printed) -> None:
    run("use book b1; use latin")
    assert run("how; use") == ([0, 0], "('latin', False, ())\n", "")
    assert "latin" in run("help use")[1]
    assert run("use greek")[0] == [2]


def test_what_said_otherwise_where_commands_go_is_forgotten_for_good() -> None:
    shell = Shell(ToyProgram(), {"loud": ("--loud",)}, own=commands)
    _run(shell, "use latin; unset")
    assert shell.settings.words == []


def test_only_what_can_be_used_is_taken(run: Printed) -> None:
    assert run("use book xyz")[0] == [2]
    status, _, err = run("use cheese x")
    assert status == [2]
    takes = "it takes book, none, or the name of a language; `help use` shows how\n"
    assert err == f"shelf: use: unknown 'cheese'; {takes}"
    assert run("use")[1] == ""


def test_messages_on_a_terminal_are_broken_between_words(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    class Terminal(io.StringIO):
        def isatty(self) -> bool:
            return True

    monkeypatch.setenv("COLUMNS", "40")
    with contextlib.redirect_stderr(Terminal()) as err:
        _run(make_shell(), "use cheese x")
    assert err.getvalue().splitlines() == [
        "shelf: use: unknown 'cheese'; it takes",
        "book, none, or the name of a language;",
        "`help use` shows how",
    ]


def test_what_must_be_named_is_not_filled_in_but_for_a_dot(run: Printed) -> None:
    status, _, err = run("use book b1; book burn")
    assert status == [0, 2]
    assert ". stands for b1 here: book burn .\n" in err
    assert run.program.obj == []
    run("book burn .")
    assert run.program.obj == [("burn", ("b1",))]


def test_what_was_printed_last_is_meant_by_a_sign_where_it_could_stand(run: Printed) -> None:
    run.program.last["book_id"] = "b9"
    run("book read _ 3-4; book note _ _; book burn _; use book b1; book lend ann _")
    assert run.program.obj == [
        ("read", "b9", "3-4"), ("note", "b9", ("_",)), ("burn", ("b9",)), ("lend", "ann", "b9"),
    ]  # fmt: skip
    assert run("words _")[1] == "_\n"
    run.program.last.clear()
    assert run("book read _")[0] == [2]


def test_after_wrong_usage_it_is_said_how_to_name_what_is_in_use(run: Printed) -> None:
    _, _, err = run("use book b1; book note 'hello you'")
    assert err.endswith(". stands for b1 here: book note . 'hello you'\n")
    assert ". stands" not in run("book note --nonsense")[2]
    assert ". stands" not in run("use none; book note hello")[2]


# Settings


def test_what_is_set_holds_for_all_commands_until_it_is_unset(run: Printed) -> None:
    assert run("set language latin; set loud; how")[1] == "('latin', True, ())\n"
    assert run("set") == ([0], "--language latin --loud\n", "")
    assert run("-l english how")[1] == "('english', True, ())\n"
    assert run("unset loud; how")[1] == "('latin', False, ())\n"
    assert run("unset; how")[1] == "('english', False, ())\n"


def test_what_cannot_be_set_is_refused(run: Printed) -> None:
    assert run("set language greek; set nonsense 1; unset nonsense")[0] == [2, 2, 2]
    assert run("how")[1] == "('english', False, ())\n"


# Help


def test_help_is_the_commands_own(run: Printed) -> None:
    _, wanted, _ = run("book read --help")
    assert "Usage: shelf book read [OPTIONS] BOOK_ID [PAGES]" in wanted
    assert run("help book read") == ([0], wanted, "")
    assert run("help shelf book read") == ([0], wanted, "")
    assert run("help nonsense")[0] == [2]


def test_help_alone_lists_the_commands_of_both(run: Printed) -> None:
    status, out, _ = run("help")
    assert status == [0]
    assert out.index("Single books.") < out.index("Of the shell:") < out.index("Leave the shell")
    assert "quit" not in out


def test_the_shells_own_commands_have_help_too(run: Printed) -> None:
    for words, told in (
        ("use", "`use book ID`"),
        ("set", "`set output json`"),
        ("history", "TEXT"),
    ):
        status, out, _ = run(f"help {words}")
        assert status == [0]
        assert out.startswith(f"Usage: {words} ")
        assert told in out


# Times


@pytest.mark.parametrize(
    ("how", "seconds", "told"),
    [("on", 0.004, "(0.00 s)\n"), ("off", 900, ""), ("2.5", 2.4, ""), ("2.5", 2.5, "(2.50 s)\n"),
     ("1", 75.3, "(75 s)\n")],
)  # fmt: skip
def test_times_are_told_as_somebody_likes_it(
    run: Printed, how: str, seconds: float, told: str
) -> None:
    assert run(f"timing {how}")[0] == [0]
    run.shell.took(seconds)
    assert run("")[2] == told


def test_how_times_are_told_can_be_asked_and_not_be_anything(run: Printed) -> None:
    assert run("timing")[1] == "from 10 s on\n"
    assert run("timing off; timing")[1] == "off\n"
    for wrong in ("sometimes", "-1", "inf", "nan"):
        assert run(f"timing -- {wrong}")[0] == [2]


def test_the_bell_rings_after_what_took_long(capfd: pytest.CaptureFixture[str]) -> None:
    shell = Shell(ToyProgram(), own=commands, prefer=Preferences(timing_s=None, bell_s=30))
    shell.took(29)
    assert capfd.readouterr().err == ""
    shell.took(30)
    assert capfd.readouterr().err == "\a"


# Streams


def test_output_goes_to_commands_of_the_system(run: Printed) -> None:
    assert run("words c b | tr cb xy | rev") == ([0], "y x\n", "")
    assert run("words a | exit 3")[0] == [3]
    assert run("fail 4 | cat")[0] == [4]
    assert run("words a | kill -9 $$")[0] == [128 + 9]
    assert run("words on")[1] == "on\n"


def test_a_reader_that_has_seen_enough_is_no_error(run: Printed) -> None:
    many = "x" * 200_000
    assert run(f"words {many} | head -c 1; words on") == ([0, 0], "xon\n", "")


def test_output_goes_to_files_and_input_comes_from_them(run: Printed, tmp_path: Path) -> None:
    file = tmp_path / "a file"
    assert run(f"words one > '{file}'; words two >> '{file}'") == ([0, 0], "", "")
    assert file.read_text() == "one\ntwo\n"
    assert run(f"copy < '{file}'") == ([0], "one\ntwo\n", "")
    assert run(f"copy < '{file}' | rev")[1] == "eno\nowt\n"
    run(f"words three > '{file}'")
    assert file.read_text() == "three\n"


def test_a_file_that_cannot_be_opened_stops_the_command(run: Printed, tmp_path: Path) -> None:
    status, _, err = run(f"book note b1 x > {tmp_path}/no/file")
    assert status == [1]
    assert err == f"shelf: {tmp_path}/no/file: No such file or directory\n"
    assert run.program.obj == []


def test_a_full_disk_is_an_error(run: Printed) -> None:
    status, _, err = run("words a > /dev/full")
    assert status == [1]
    assert "No space left on device" in err


def test_bytes_that_are_no_text_go_through_a_pipe_unchanged(run: Printed, tmp_path: Path) -> None:
    text = os.fsdecode(b"\xff\xfe")
    run(f"words {text} | cat > {tmp_path}/bytes")
    assert (tmp_path / "bytes").read_bytes() == b"\xff\xfe\n"


def test_the_system_can_be_asked_directly(run: Printed) -> None:
    assert run("!echo $((6 * 7)) | cat") == ([0], "42\n", "")
    assert run("!exit 5")[0] == [5]


# What is held


def test_what_is_held_is_let_go_before_commands_go_elsewhere(run: Printed) -> None:
    run.program.open_resources = ["b1", "b2"]
    assert run("use latin") == ([0], "", "")
    assert run.program.open_resources == []


def test_what_is_held_stays_where_commands_go_already(run: Printed) -> None:
    run("use latin")
    run.program.open_resources, run.shell.is_typed = ["b1"], True
    assert run("use latin") == ([0], "", "")
    assert run.program.open_resources == ["b1"]


def test_who_types_hears_what_became_of_it_and_a_script_only_of_failures(run: Printed) -> None:
    for is_typed, told in ((True, "b2 put back\n"), (False, "")):
        run.program.open_resources, run.program.torn = ["b1", "b2"], {"b1"}
        run.shell.is_typed = is_typed
        assert not run.shell.release()
        assert run("")[2] == f"{told}shelf: b1 torn\n"


# Leaving


@pytest.mark.parametrize(("text", "status"), [("exit", 0), ("exit 9", 9), ("quit", 0)])
def test_leaving_is_asked_for_with_a_status(run: Printed, text: str, status: int) -> None:
    run(text)
    assert run.shell.leaving == status


def test_history_shows_what_was_typed(run: Printed) -> None:
    run.shell.history = [f"line {n}" for n in range(30)]
    assert run("history")[1].splitlines() == [f"line {n}" for n in range(10, 30)]
    assert run("history -n 2 9")[1] == "line 19\nline 29\n"


def test_refresh_asks_again(run: Printed) -> None:
    shell: Any = run.shell
    shell.live.candidates("book_id", "", ())
    run("refresh")
    shell.live.candidates("book_id", "", ())
    assert len(run.program.asked) == 2


def test_the_programs_own_command_is_reached_by_the_programs_name(run: Printed) -> None:
    assert run("shelf help")[0] == [2]
    assert run("shelf")[1].startswith("Usage: shelf [OPTIONS] COMMAND")
