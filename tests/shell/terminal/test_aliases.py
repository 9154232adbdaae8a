from __future__ import annotations

import pytest

from shell.line import LineError, parse
from shell.terminal.aliases import Aliases


def _aliases(**texts: str) -> Aliases:
    found = Aliases()
    for name, text in texts.items():
        found.define(name, text, ("book", "exit"))
    return found


@pytest.mark.parametrize(
    ("typed", "run"),
    [
        ("all --loud", "book list --new --loud"),
        ("all | wc", "book list --new | wc"),
        ("first", "book list | head -n 1"),
        ("first --loud", "book list --loud | head -n 1"),
        ("book all", "book all"),
        ("!all", "!all"),
        ("again", "again x"),
        ("saved", "book list > 'a file'"),
    ],
)
def test_a_first_word_stands_for_the_beginning_of_a_line_once(typed: str, run: str) -> None:
    found = _aliases(
        all="book list --new", first="book list | head -n 1", again="again x",
        saved="book list > 'a file'",
    )  # fmt: skip
    assert [found.expanded(line) for line in parse(typed)] == parse(run)


@pytest.mark.parametrize(
    ("name", "text"),
    [("book", "exit"), ("a b", "exit"), ("-x", "exit"), ("x", "a; b"), ("x", "!ls"), ("x", "'open"),
     ("x", "# nothing")],
)  # fmt: skip
def test_what_is_no_word_for_one_command_is_refused(name: str, text: str) -> None:
    with pytest.raises(LineError):
        _aliases(**{name: text})


def test_output_goes_one_way() -> None:
    (line,) = parse("first > file")
    with pytest.raises(LineError, match="says already where its output goes"):
        _aliases(first="book list | head").expanded(line)
