from __future__ import annotations

import pytest
from prompt_toolkit.document import Document

from shell.terminal.colours import TreeLexer
from tests.shell.toy_program import make_shell


def _styled(text: str) -> list[tuple[str, str]]:
    lexer = TreeLexer(make_shell())
    return [(style.removeprefix("class:"), token.text) for style, token in lexer.styled(text)]


@pytest.mark.parametrize(
    ("text", "styles"),
    [
        ("book read b1 --aloud", ["command", "command", "", "option"]),
        ("shelf book read", ["command"] * 3),
        ("use book b1", ["command", "command", ""]),
        ("--loud -l latin book", ["option", "option", "", "command"]),
        ("bok", ["unknown"]),
        ("book raed", ["command", "unknown"]),
        ("bo", [""]),
        ("how | wc 'x'; how", ["command", "operator", "system", "operator", "command"]),
        ("how > file # all", ["command", "operator", "", "comment"]),
        ("words 'a b' \"c", ["command", "quoted", "quoted"]),
        ("!ls", ["system"]),
    ],
)
def test_words_show_what_they_are(text: str, styles: list[str]) -> None:
    assert [style for style, _ in _styled(text)] == styles


@pytest.mark.parametrize("text", ["", "book  read\n\n x 'a\nb' \\\n c ", "words 'a", "a;\n#b\n"])
def test_no_character_is_lost_or_moved(text: str) -> None:
    get_line = TreeLexer(make_shell()).lex_document(Document(text))
    lines = ["".join(part[1] for part in get_line(n)) for n in range(text.count("\n") + 1)]
    assert "\n".join(lines) == text
