from __future__ import annotations

import pytest

from shell.current_values import awaited, resolve
from tests.shell.toy_program import shelf


@pytest.mark.parametrize(
    ("words", "path", "rest"),
    [
        ("", "shelf", []),
        ("--loud -l latin", "shelf", ["--loud", "-l", "latin"]),
        ("book", "shelf book", []),
        ("--loud book read b1 --aloud", "shelf book read", ["b1", "--aloud"]),
        ("book nonsense x", "shelf book", ["nonsense", "x"]),
        ("nonsense", "shelf", ["nonsense"]),
        ("words book read", "shelf words", ["book", "read"]),
        ("book read --help", "shelf book read", ["--help"]),
        ("--version book", "shelf book", []),
    ],
)
def test_words_name_a_command_and_what_follows_is_its_own(
    words: str, path: str, rest: list[str], capsys: pytest.CaptureFixture[str]
) -> None:
    place = resolve(shelf, words.split())
    assert (place.ctx.command_path, place.rest) == (path, rest)
    assert place.is_lost == ("nonsense" in words)
    assert capsys.readouterr() == ("", "")


@pytest.mark.parametrize(
    ("words", "name"),
    [
        ("book read", "book_id"),
        ("book read b1", "pages"),
        ("book read b1 3", None),
        ("book read --aloud", "book_id"),
        ("book read --voice", "voice"),
        ("book read --voice low", "book_id"),
        ("book read b1 --to", "to"),
        ("book read -- --to", "pages"),
        ("book burn b1 b2", "book_ids"),
        ("book lend", "name"),
        ("book lend ann", "book_id"),
        ("how", None),
        ("-l", "language"),
        ("--loud", None),
    ],
)
def test_the_next_word_is_for_one_parameter(words: str, name: str | None) -> None:
    place = resolve(shelf, words.split())
    parameter = awaited(place.ctx, place.rest)
    assert (parameter and parameter.name) == name
