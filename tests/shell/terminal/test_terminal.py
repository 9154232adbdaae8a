"""The shell on real terminals, over a program that is not bkctl."""

from __future__ import annotations

import signal
import sys
import termios
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.shell.screen import Terminal, terminal

pytestmark = pytest.mark.processes

TOY = [sys.executable, "-m", "tests.shell.toy_program"]
PROMPT = "shelf attic>"


@pytest.fixture
def shelf(tmp_path: Path) -> Iterator[Terminal]:
    with terminal(TOY, XDG_STATE_HOME=str(tmp_path)) as running:
        running.prompts("shelf>")
        yield running


def test_the_first_prompt_comes_with_a_greeting_and_a_bar(shelf: Terminal) -> None:
    lines = shelf.shows("3 books")
    assert lines[0] == "welcome to the shelf"
    assert lines[-1].strip() == "3 books"


def test_what_is_in_use_is_in_the_prompt(shelf: Terminal) -> None:
    shelf.enter("use book b1", "shelf attic book:b1>")
    assert "b1 all" in shelf.enter("book read", "shelf attic book:b1>")


def test_menus_come_while_typing_and_tab_takes_from_them(shelf: Terminal) -> None:
    shelf.type("boo")
    shelf.shows("Single books.")
    shelf.type("k read ")
    shelf.shows("new", "old", "torn")
    shelf.type("\t")
    shelf.shows("shelf> book read b1")
    shelf.type("\t")
    shelf.shows("shelf> book read b2")
    shelf.type("\r", "\r")
    assert "b2 all" in shelf.prompts(PROMPT)


def test_enter_on_something_chosen_takes_it_and_does_not_run_it(shelf: Terminal) -> None:
    shelf.type("book read b10 --voice ")
    shelf.shows("high", "low")
    shelf.type("\t\t")
    shelf.shows("--voice low")
    shelf.type("\r", "\r")
    assert "b10 all" in shelf.prompts(PROMPT)


def test_the_only_completion_of_an_open_menu_is_inserted_with_a_space(shelf: Terminal) -> None:
    shelf.type("words ", "book read")
    shelf.type("\x15", "book rea")
    shelf.shows("Read BOOK_ID.")
    shelf.type("\t")
    shelf.shows("shelf> book read")
    shelf.type("b10", "\r")
    assert "b10 all" in shelf.prompts(PROMPT)


def running_for_ever(directory: Path) -> str:
    """Return a command of the system that shows ``began`` and goes on.

    It is one process: a Ctrl-C that finds ``sh -c`` between two commands of a line, with the child
    forked and not yet what it shall be, dash forgets.
    """
    (directory / "endless").write_text("began\n")
    return f"!tail -n 1 -f {directory}/endless\r"


def test_ctrl_c_ends_the_command_and_keeps_the_shell(shelf: Terminal, tmp_path: Path) -> None:
    shelf.type(running_for_ever(tmp_path))
    shelf.shows("began")
    shelf.type("\x03")
    shelf.prompts(PROMPT)
    assert "still here" in shelf.enter("words still here", PROMPT)


def test_ctrl_d_leaves_and_the_terminal_is_as_before(shelf: Terminal) -> None:
    shelf.type("\x04")
    assert shelf.ended() == 0


def test_a_resize_is_followed(shelf: Terminal) -> None:
    shelf.shows("3 books")
    shelf.resize(40, 10)
    shelf.type("words 1")
    shelf.until(lambda lines: "shelf> words 1" in lines and lines[-1].strip() == "3 books")
    shelf.resize(100, 30)
    shelf.type("2")
    shelf.until(lambda lines: "shelf> words 12" in lines and lines[-1].strip() == "3 books")
    shelf.type("\r")
    assert "12" in shelf.prompts(PROMPT)


def test_a_narrow_and_low_terminal_will_do(tmp_path: Path) -> None:
    with terminal(TOY, columns=20, lines=4, XDG_STATE_HOME=str(tmp_path)) as shelf:
        shelf.prompts("shelf>")
        lines = shelf.enter("words on", "shelf>")
        assert "on" in lines
        shelf.type("book rea")
        shelf.shows("shelf> book rea")
        shelf.type("\t")
        shelf.shows("shelf> book read")


def test_output_without_a_newline_is_not_written_over(shelf: Terminal) -> None:
    lines = shelf.enter("!printf unended", PROMPT)
    assert any(line.startswith("unended") for line in lines)
    assert all(not line.startswith("%") for line in lines)


def test_a_dumb_terminal_gets_no_escape_codes(tmp_path: Path) -> None:
    with terminal(TOY, TERM="dumb", XDG_STATE_HOME=str(tmp_path)) as shelf:
        shelf.prompts("shelf>")
        shelf.type("words one 'two\r")
        shelf.prompts(">")
        shelf.type("three'\r")
        shelf.prompts(PROMPT)
        shelf.type(running_for_ever(tmp_path))
        shelf.shows("began")
        shelf.type("\x03")
        shelf.prompts(PROMPT)
        shelf.type("\x04")
        assert shelf.ended() == 0
        assert b"one two\r\nthree\r\n" in shelf.raw
        assert b"\x1b" not in shelf.raw


def test_the_bar_can_be_left_out(tmp_path: Path) -> None:
    with terminal([*TOY, "--no-bar"], XDG_STATE_HOME=str(tmp_path)) as shelf:
        shelf.prompts("shelf>")
        shelf.enter("words on", PROMPT)
        assert not any("3 books" in line for line in shelf.lines)


def test_history_outlives_the_shell(tmp_path: Path) -> None:
    with terminal(TOY, XDG_STATE_HOME=str(tmp_path)) as shelf:
        shelf.prompts("shelf>")
        shelf.enter("words kept", PROMPT)
        shelf.enter(" words private", PROMPT)
        shelf.type("\x04")
        assert shelf.ended() == 0
    assert "private" not in (tmp_path / "shelf" / "history").read_text()
    with terminal(TOY, XDG_STATE_HOME=str(tmp_path)) as shelf:
        shelf.prompts("shelf>")

        def is_back(lines: list[str]) -> bool:
            shelf.type("\x1b[A")  # The file is read in the background.
            return any(line.endswith("> words kept") for line in lines)

        shelf.until(is_back)


def _echoes(fd: int) -> bool:
    return bool(termios.tcgetattr(fd)[3] & termios.ECHO)


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGHUP])
def test_a_shell_that_is_told_to_end_leaves_the_terminal_in_order(
    shelf: Terminal, number: signal.Signals
) -> None:
    before = _echoes(shelf.process.child_fd)
    shelf.process.kill(number)
    assert shelf.ended() == 128 + number
    assert (before, _echoes(shelf.process.child_fd)) == (False, True)


def test_a_terminal_is_in_order_again_whatever_breaks_off() -> None:
    script = (
        "import tty; from shell.repl import kept_terminal\n"
        "with kept_terminal(0):\n    tty.setraw(0); print('raw', flush=True); input()\n"
        "    raise SystemExit(7)"
    )
    with terminal([sys.executable, "-c", script]) as broken:
        broken.shows("raw")
        before = _echoes(broken.process.child_fd)
        broken.type("\n")
        assert broken.ended() == 7
        assert (before, _echoes(broken.process.child_fd)) == (False, True)
