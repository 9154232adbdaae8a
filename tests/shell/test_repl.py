"""Scripts and plain terminals, over a program that is not bkctl."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from shell.prompt import is_unfinished, prompt_parts
from shell.repl import is_plain, run, run_script
from tests.shell.toy_program import ToyProgram, make_shell

TIMEOUT_S = 120.0
TOY = [sys.executable, "-m", "tests.shell.toy_program"]


def _lines(text: str) -> list[str]:
    return text.splitlines(keepends=True)


# Scripts


def test_a_script_ends_with_0_when_all_went_well(capsys: pytest.CaptureFixture[str]) -> None:
    script = "# a comment\nwords a; words b\n\nwords 'c\nd' \\\n e\n"
    assert run_script(make_shell(), _lines(script)) == 0
    assert capsys.readouterr() == ("a\nb\nc\nd e\n", "")


def test_a_script_stops_at_the_first_failure_and_ends_with_its_status(
    capsys: pytest.CaptureFixture[str],
) -> None:
    assert run_script(make_shell(), _lines("words a\n\nfail 7; words b\nwords c\n")) == 7
    assert capsys.readouterr() == ("a\n", "shelf: stopped at line 3, with status 7\n")


@pytest.mark.parametrize("keep_going", [False, True])
def test_a_script_whose_output_nobody_reads_ends_without_a_word(
    capsys: pytest.CaptureFixture[str], *, keep_going: bool
) -> None:
    script = _lines("words a\nfail 141; words b\nwords c\n")
    assert run_script(make_shell(), script, keep_going=keep_going) == 141
    assert capsys.readouterr() == ("a\n", "")


def test_a_script_may_keep_going_and_ends_with_the_first_status_that_failed(
    capsys: pytest.CaptureFixture[str],
) -> None:
    script = _lines("fail 7; words a\nfail 8\nwords 'b\n'; words c &&\nwords d")
    assert run_script(make_shell(), script, keep_going=True) == 7
    out, err = capsys.readouterr()
    assert out == "a\nd\n"
    assert "line 3: the shell has no &&" in err


def test_a_line_that_cannot_be_run_is_wrong_usage(capsys: pytest.CaptureFixture[str]) -> None:
    for script, number in (("words a\nwords >", 2), ("words a\n\nwords 'b\nc\n", 3)):
        assert run_script(make_shell(), _lines(script)) == 2
        out, err = capsys.readouterr()
        assert out == "a\n"
        assert err.startswith(f"shelf: line {number}: ")


def test_a_script_may_leave_with_a_status(capsys: pytest.CaptureFixture[str]) -> None:
    assert run_script(make_shell(), _lines("words a\nexit 3\nwords b\n")) == 3
    assert run_script(make_shell(), _lines("exit; words b")) == 0
    assert capsys.readouterr().out == "a\n"


def test_a_command_that_was_told_to_end_ends_the_script_too() -> None:
    shell = make_shell()
    assert run_script(shell, _lines("fail 143\nbook read b1\n"), keep_going=True) == 143
    assert shell.program.obj == []


def test_each_line_is_run_before_the_next_is_read() -> None:
    shell = make_shell()

    def lines():
        yield "book read b1\n"
        assert shell.program.obj == [("read", "b1", None)]
        yield "book read \\\n"
        assert len(shell.program.obj) == 1
        yield "b2\n"
        assert len(shell.program.obj) == 2

    assert run_script(shell, lines()) == 0


def test_a_script_comes_as_text_or_from_a_file_and_the_program_is_closed(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "script").write_text("how\n")
    given = {"loud": ("--loud",)}
    for source in ({"text": "how"}, {"path": str(tmp_path / "script")}):
        program = ToyProgram()
        assert run(program, given, **source) == 0
        assert program.closed
    assert capsys.readouterr().out == "('english', True, ())\n" * 2


def test_a_script_that_is_not_there_is_the_callers_to_tell() -> None:
    program = ToyProgram()
    with pytest.raises(FileNotFoundError):
        run(program, path="/no/script")
    assert program.closed


@pytest.mark.parametrize("args", [[], ["-"]])
def test_stdin_is_a_script_that_commands_do_not_read(args: list[str]) -> None:
    script = b"copy\n!cat\ncopy | cat\nwords \xff on\nfail 5\nwords off\n"
    done = subprocess.run(
        [*TOY, *args], input=script, capture_output=True, timeout=TIMEOUT_S, check=False
    )
    assert (done.returncode, done.stdout) == (5, b"\xff on\n"), done.stderr
    assert done.stderr == b"shelf: stopped at line 5, with status 5\n"


def test_a_program_can_talk_with_a_shell_line_by_line() -> None:
    with subprocess.Popen(TOY, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as process:
        assert process.stdin is not None
        assert process.stdout is not None
        for word in (b"one", b"two"):
            process.stdin.write(b"words " + word + b"\n")
            process.stdin.flush()
            assert process.stdout.readline() == word + b"\n"
        process.stdin.close()
        assert process.wait(TIMEOUT_S) == 0


# What is typed


@pytest.mark.parametrize(
    ("text", "unfinished"),
    [("words", False), ("words 'a", True), ("words \\\n", True), ("words >", False), ("", False)],
)
def test_a_line_goes_on_while_it_is_not_whole(text: str, *, unfinished: bool) -> None:
    assert is_unfinished(text) == unfinished


def test_the_prompt_shows_where_what_is_in_use_and_trouble() -> None:
    program = ToyProgram()
    shell = make_shell(program)

    def shown(**how: bool) -> str:
        return "".join(part[1] for part in prompt_parts(shell, **how))

    assert shown() == "shelf> "
    assert shown() == "shelf attic> "
    shell.current.use("book", "b1")
    assert shown() == "shelf attic book:b1> "
    assert shown(narrow=True) == "shelf book:b1> "
    program.broken = OSError("gone")
    shell.live.questions.doubt()
    shown()
    assert shown() == "shelf attic book:b1!> "


def test_escape_codes_are_for_terminals_that_know_them(monkeypatch: pytest.MonkeyPatch) -> None:
    with Path(os.devnull).open("w") as null:
        monkeypatch.setattr(sys, "stdout", null)
        assert is_plain({"TERM": "xterm"})
    monkeypatch.setattr(sys, "stdout", type("Tty", (), {"isatty": lambda _: True})())
    assert not is_plain({"TERM": "xterm"})
    assert is_plain({"TERM": "dumb"})
    assert is_plain({})


def test_the_prompt_names_a_place_and_warns_of_it_in_words_and_in_colour() -> None:
    shell = make_shell()
    shell.settings.set("language", "latin")
    styles = {text: style for style, text in prompt_parts(shell)}
    assert styles[" latin (dead)"] == "class:prompt.alarm"
    assert " latin" in {text for _, text in prompt_parts(shell, narrow=True)}
    for _ in range(2):  # Nor does it change once the program's state is known.
        assert "".join(text for _, text in prompt_parts(shell)) == "shelf latin (dead)> "


def test_what_is_held_at_the_end_is_let_go_and_a_failure_of_that_is_one(
    capsys: pytest.CaptureFixture[str],
) -> None:
    for torn, text, status in ((set(), "how", 0), ({"b1"}, "how", 1), ({"b1"}, "fail 7", 7)):
        program = ToyProgram()
        program.open_resources, program.torn = ["b1"], torn
        assert run(program, text=text) == status
        assert (program.open_resources, program.closed) == ([], True)
        assert ("shelf: b1 torn" in capsys.readouterr().err) is bool(torn)
