from __future__ import annotations

import asyncio
import threading
import time
from pathlib import Path

import pytest
from prompt_toolkit.completion import CompleteEvent
from prompt_toolkit.document import Document

from shell.builtin import commands
from shell.live_values import Live, LiveQuestions
from shell.shell import Shell
from shell.terminal.completer import TreeCompleter
from tests.shell.toy_program import Later, ToyProgram, make_shell

EVENT = CompleteEvent(completion_requested=True)


def _menu(text: str, shell: Shell | None = None) -> dict[str, str]:
    """Return what the line would become with each completion, and what is said about that."""
    shell = shell or make_shell()
    completer = TreeCompleter(shell)
    document = Document(text, len(text))
    found = list(completer.get_completions(document, EVENT))
    return {
        text[: len(text) + one.start_position] + one.text: one.display_meta_text for one in found
    }


def test_the_first_word_is_a_command_of_the_program_or_of_the_shell() -> None:
    assert _menu("")["book"] == "Single books."
    assert list(_menu("h")) == ["how", "help", "history"]
    assert _menu("he")["help"] == "Show the commands, or the help of one."
    assert "quit" not in _menu("")


def test_what_a_command_has_most_use_for_comes_first() -> None:
    shell = make_shell()
    _menu("book read ", shell)
    for command, order in (("read", ["b1", "b2", "b10"]), ("burn", ["b2", "b1", "b10"])):
        found = _menu(f"book {command} ", shell)
        assert [line.split()[-1] for line in found] == order


@pytest.mark.parametrize(
    ("text", "found"),
    [
        ("book r", ["book read"]),
        ("shelf book r", ["shelf book read"]),
        ("--loud book r", ["--loud book read"]),
        ("how; book r", ["how; book read"]),
        ("how\nbook r", ["how\nbook read"]),
        ("-l ", ["-l english", "-l latin"]),
        ("--language=l", ["--language=latin"]),
        ("--la", ["--language"]),
        ("book nonsense ", []),
        ("book read b1 --vo", ["book read b1 --voice"]),
        ("book read --voice ", ["book read --voice high", "book read --voice low"]),
        ("book read --voice=h", ["book read --voice=high"]),
        ("book read -- --v", []),
        ("book read b1 ", []),
        ("words x", []),
        ("help bo", ["help book"]),
        ("help book n", ["help book note"]),
        ("help shelf book n", ["help shelf book note"]),
        ("help book note ", []),
        ("set lan", ["set language"]),
        ("set language ", ["set language english", "set language latin"]),
        ("set loud o", ["set loud on", "set loud off"]),
        ("unset l", ["unset language", "unset loud"]),
        ("use ", ["use book", "use none", "use english", "use latin"]),
        ("! book r", []),
        ("how | book r", []),
        ("how # book r", []),
        ("how > file --f", ["how > file --file"]),
    ],
)
def test_what_fits_is_offered(text: str, found: list[str]) -> None:
    assert list(_menu(text)) == found


def test_options_are_offered_with_their_help_and_hidden_ones_are_not() -> None:
    assert _menu("book read --") == {
        "book read --aloud": "For all to hear.",
        "book read --voice": "",
        "book read --to": "Another one.",
        "book read --help": "Show this message and exit.",
    }
    assert "--secret" not in _menu("--")


@pytest.mark.parametrize(
    "text",
    [
        "book read ", "book burn b1 ", "book read --to ", "book read --to=", "use book ",
        "book lend ann ",
    ],
)  # fmt: skip
def test_values_that_are_alive_are_offered_where_their_type_stands(text: str) -> None:
    shell = make_shell()
    _menu(text, shell)
    assert _menu(text, shell) == {f"{text}b1": "new", f"{text}b2": "old", f"{text}b10": "torn"}
    assert list(_menu(f"{text}b1", shell)) == [f"{text}b1", f"{text}b10"]


def test_what_needs_quotes_gets_them_and_what_was_begun_with_quotes_is_replaced() -> None:
    shell = make_shell(ToyProgram({"b one": "", "b'2": ""}))
    _menu("book read ", shell)
    assert list(_menu("book read ", shell)) == ["book read 'b one'", "book read 'b'\\''2'"]
    assert list(_menu("book read 'b o", shell)) == ["book read 'b one'"]
    assert list(_menu('book read "b o', shell)) == ["book read 'b one'"]


def test_files_are_offered_for_redirections_and_for_what_takes_files(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "one file").touch()
    (tmp_path / "other").touch()
    assert list(_menu("how > ")) == ["how > 'one file'", "how > other"]
    assert list(_menu("copy < ot")) == ["copy < other"]
    assert list(_menu("how >> 'one")) == ["how >> 'one file'"]
    assert list(_menu(f"how --file {tmp_path}/ot")) == [f"how --file {tmp_path}/other"]
    assert list(_menu("how --file=ot")) == ["how --file=other"]
    (tmp_path / "a folder").mkdir()
    assert list(_menu("how --file a")) == ["how --file 'a folder/'"]


def test_values_are_asked_for_with_what_is_set() -> None:
    program = ToyProgram()
    shell = make_shell(program)
    shell.settings.set("language", "latin")
    _menu("book read ", shell)
    assert program.asked == [("book_id", "", ("--language", "latin"))]


def test_a_key_waits_for_nothing_that_hangs() -> None:
    shell = make_shell(later=Later())
    began_s = time.monotonic()
    assert _menu("book read ", shell) == {}
    assert time.monotonic() - began_s < 30


def _menu_later(shell: Shell, text: str, wait_s: float) -> list[str]:
    async def gather() -> list[str]:
        completer = TreeCompleter(shell, wait_s=wait_s)
        found = completer.get_completions_async(Document(text, len(text)), EVENT)
        return [one.text async for one in found]

    return asyncio.run(gather())


def test_a_menu_waits_for_values_that_come_soon() -> None:
    program = ToyProgram()
    may_answer = threading.Event()

    def start(work):
        threading.Thread(target=lambda: (may_answer.wait(60), work()), daemon=True).start()

    shell = Shell(program, own=commands, live=Live(program, LiveQuestions(start=start)))
    threading.Timer(0.05, may_answer.set).start()
    assert _menu_later(shell, "book read ", 60) == ["b1", "b2", "b10"]


def test_a_menu_does_not_wait_for_ever() -> None:
    shell = make_shell(later=Later())
    assert _menu_later(shell, "book read ", 0.01) == []


def test_values_that_come_after_the_wait_are_told_with_what_they_are_for() -> None:
    async def gather(told: list[Document]) -> None:
        shell = make_shell(later=(later := Later()))
        completer = TreeCompleter(shell, wait_s=0)
        completer.late = told.append
        line = Document("book read ")
        assert [one async for one in completer.get_completions_async(line, EVENT)] == []
        assert told == []
        later.run()
        await asyncio.sleep(0)
        assert told == [line]
        assert [one.text async for one in completer.get_completions_async(line, EVENT)] != []

    asyncio.run(gather([]))


def test_a_program_that_fails_in_the_background_costs_only_the_values() -> None:
    program = ToyProgram()
    program.broken = OSError("gone")
    shell = make_shell(program)
    assert _menu("book read ", shell) == _menu("book read ", shell) == {}
    assert _menu("book r", shell) == {"book read": "Read BOOK_ID."}
