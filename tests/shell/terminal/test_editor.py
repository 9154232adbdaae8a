"""The prompt with a keyboard and a screen that are none."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace

import pytest
from prompt_toolkit.buffer import Buffer, CompletionState
from prompt_toolkit.document import Document
from prompt_toolkit.input import create_pipe_input
from prompt_toolkit.output import DummyOutput

from shell.shell import Shell
from shell.terminal.editor import OLD_S, bar_text, draw_anew, offer_late, run_prompt
from tests.shell.toy_program import Later, ToyProgram, make_shell

PASTED = "\x1b[200~{}\x1b[201~"


@pytest.fixture
def typed(tmp_path: Path) -> Callable[..., int]:
    """Give a function that runs a shell on what is typed; its history is kept over calls."""

    def type_(shell: Shell, *keys: str, vi: bool = False) -> int:
        with create_pipe_input() as keyboard:
            for key in keys:
                keyboard.send_text(key)
            return run_prompt(
                shell,
                vi=vi,
                bar=True,
                environ={"XDG_STATE_HOME": str(tmp_path)},
                keyboard=keyboard,
                screen=DummyOutput(),
            )

    return type_


Type = Callable[..., int]


def test_lines_are_run_until_ctrl_d(typed: Type) -> None:
    shell = make_shell()
    assert typed(shell, "book read b1\r", "book read b2\r", "\x04") == 0
    assert shell.program.obj == [("read", "b1", None), ("read", "b2", None)]


def test_exit_leaves_with_its_status_and_a_failure_does_not_leave(typed: Type) -> None:
    assert typed(make_shell(), "fail 3\r", "nonsense\r", "a && b\r", "exit 4\r") == 4


def test_ctrl_c_throws_a_line_away_and_keeps_the_shell(typed: Type) -> None:
    shell = make_shell()
    typed(shell, "book read b1\x03", "book read b2\r", "\x04")
    assert shell.program.obj == [("read", "b2", None)]


def test_enter_goes_on_on_a_new_line_while_quotes_are_open(typed: Type) -> None:
    shell = make_shell()
    typed(shell, "book note b1 'two\r", "lines'\r", "\x04")
    assert shell.program.obj == [("note", "b1", ("two\nlines",))]


def test_many_lines_can_be_pasted_and_are_run_in_their_order(typed: Type) -> None:
    shell = make_shell()
    typed(shell, PASTED.format("book read b1\r\nbook note b3 'x\ny'"), "\r", "\x04")
    assert shell.program.obj == [("read", "b1", None), ("note", "b3", ("x\ny",))]


def test_what_is_pasted_stops_at_the_first_failure(typed: Type) -> None:
    shell = make_shell()
    typed(shell, PASTED.format("book read b1\nfail 1\nbook read b2"), "\r", "\x04")
    assert shell.program.obj == [("read", "b1", None)]


def test_a_paste_runs_nothing_before_enter(typed: Type) -> None:
    shell = make_shell()
    typed(shell, PASTED.format("book burn b1\n"), "\x03", "\x04")
    assert shell.program.obj == []


def test_a_tab_inserts_the_only_completion_although_no_menu_is_open_yet(typed: Type) -> None:
    shell = make_shell()
    typed(shell, "boo\tre\tb1\r", "book read b2\t\r", "\x04")
    assert shell.program.obj == [("read", "b1", None), ("read", "b2", None)]


def test_a_tab_goes_on_into_the_only_directory(
    typed: Type, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "folder" / "deeper").mkdir(parents=True)
    (tmp_path / "folder" / "deeper" / "file").touch()
    typed(make_shell(), f"words > {tmp_path}/fo\t\t\t\r", "history\r", "\x04")
    assert f"words > {tmp_path}/folder/deeper/file" in capsys.readouterr().out


def test_a_tab_before_a_space_inserts_no_second_one(
    typed: Type, capsys: pytest.CaptureFixture[str]
) -> None:
    to_the_begin, right = "\x01", "\x06"
    typed(make_shell(), f"boo read b1{to_the_begin}{right * 3}\t\r", "history\r", "\x04")
    assert "book read b1" in capsys.readouterr().out.splitlines()


def test_history_is_searched_over_runs(typed: Type) -> None:
    typed(make_shell(), "book read b1\r", "words something else\r", "\x04")
    shell = make_shell()
    typed(shell, "\x12read", "\r", "\r", "\x04")
    assert shell.program.obj == [("read", "b1", None)]


def test_the_history_command_knows_what_was_typed(
    typed: Type, capsys: pytest.CaptureFixture[str]
) -> None:
    typed(make_shell(), "words one\r", "history\r", "\x04")
    assert capsys.readouterr().out == "one\nwords one\nhistory\n"


def test_vi_keys_can_be_had(typed: Type) -> None:
    shell = make_shell()
    typed(shell, "book read b2\x1b", "r1", "\r", "\x04", vi=True)
    assert shell.program.obj == [("read", "b1", None)]


def _bar(shell: Shell, columns: int = 60) -> str:
    bar_text(shell, columns)
    return "".join(part[1] for part in bar_text(shell, columns))


def test_the_bar_shows_the_state_and_what_was_set() -> None:
    shell = make_shell()
    shell.settings.set("language", "latin")
    assert _bar(shell).strip() == "3 books  --language latin"
    assert len(_bar(shell)) == 60


def test_the_bar_is_cut_where_there_is_no_room() -> None:
    assert _bar(make_shell(), 5) == " 3 bo"


def test_the_bar_tells_trouble_first_and_how_old_the_rest_is() -> None:
    program, later = ToyProgram(), Later()
    shell = make_shell(program, later)
    assert _bar(shell).strip() == "..."
    later.run()
    program.broken = OSError("gone")
    later.now_s += OLD_S
    bar_text(shell, 60)
    later.run()
    assert _bar(shell).strip() == f"gone  3 books  {OLD_S:.0f} s ago"


def test_what_was_typed_in_one_place_is_not_offered_in_another(typed: Type, tmp_path: Path) -> None:
    shell = make_shell()
    typed(shell, "words here\r", "use latin\r", "words there\r", "history\r", "\x04")
    assert shell.history == ["words there", "history"]
    kept = {one.name: one.read_text() for one in (tmp_path / "shelf").iterdir()}
    assert {name: "words here" in text for name, text in kept.items()} == {
        "history": True, "history-latin": False,
    }  # fmt: skip


class _Offering(Buffer):
    offered = 0

    def start_completion(self, *_: object, **__: object) -> None:
        self.offered += 1


def test_values_that_come_late_are_offered_where_nothing_has_happened_meanwhile() -> None:
    line = Document("book read ")
    buffer = _Offering(document=line)
    offer_late(buffer, line)
    assert buffer.offered == 1
    offer_late(buffer, Document("book "))
    buffer.complete_state = CompletionState(line)
    offer_late(buffer, line)
    assert buffer.offered == 1


def test_an_answer_is_drawn_where_the_prompt_runs_and_not_where_it_is_heard() -> None:
    loop = asyncio.new_event_loop()
    drawn: list[object] = []
    app = SimpleNamespace(loop=loop, invalidate=lambda: drawn.append(asyncio.get_running_loop()))
    draw_anew(app)
    assert drawn == []
    loop.call_soon(loop.stop)
    loop.run_forever()
    assert drawn == [loop]
    loop.close()
    for app.loop in (loop, None):  # The prompt has ended before the answer came.
        draw_anew(app)
    assert drawn == [loop]
