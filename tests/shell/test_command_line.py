from __future__ import annotations

import itertools
import shlex

import pytest
from hypothesis import given
from hypothesis import strategies as st

from shell.command_line import (
    Line,
    LineError,
    TokenKind,
    UnfinishedError,
    parse,
    quoted,
    tokens,
    unquoted,
)


def _words(text: str) -> list[tuple[str, ...]]:
    return [line.words for line in parse(text)]


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("ledger read 42", [("ledger", "read", "42")]),
        ("a 'b  c' \"d e\" f\\ g", [("a", "b  c", "d e", "f g")]),
        ("a'b'\"c\"d", [("abcd",)]),
        ("'' \"\"", [("", "")]),
        (r"""'a\b' "a\b" "a\"b" "a\\b" a\\b""", [("a\\b", "a\\b", 'a"b', "a\\b", "a\\b")]),
        ("a; b ;c", [("a",), ("b",), ("c",)]),
        ("a\n\nb\r\nc", [("a",), ("b",), ("c",)]),
        ("a \\\n b", [("a", "b")]),
        ("ab\\\ncd", [("abcd",)]),
        ("a 'b\nc'", [("a", "b\nc")]),
        ("# all of it ' is \" a comment\na # and so ; is this", [("a",)]),
        ("a#b", [("a#b",)]),
        ("a '#' \\# b", [("a", "#", "#", "b")]),
        ("$HOME *.txt a&b `x`", [("$HOME", "*.txt", "a&b", "`x`")]),
        ("a\u00a0b", [("a", "b")]),
        ("", []),
        (" ;; \n ; ", []),
    ],
)
def test_words_are_what_a_posix_shell_would_take_them_for(text: str, words: list) -> None:
    assert _words(text) == words


@given(st.lists(st.text(min_size=1).filter(lambda text: "\0" not in text), min_size=1))
def test_a_quoted_word_is_that_word_again(words: list[str]) -> None:
    text = " ".join(map(quoted, words))
    assert _words(text) == [tuple(words)]
    assert [unquoted(quoted(word)) for word in words] == words


@given(st.text(alphabet="ab '\"\\", max_size=12))
def test_quotes_mean_what_shlex_takes_them_for(text: str) -> None:
    try:
        wanted = tuple(shlex.split(text))
    except ValueError:
        with pytest.raises(UnfinishedError):
            parse(text)
    else:
        assert _words(text) == ([wanted] if wanted else [])


@given(st.text(alphabet="ab|;<>&!#'\"\\ \n", max_size=16))
def test_any_text_is_parsed_or_refused_and_its_pieces_do_not_overlap(text: str) -> None:
    found = list(tokens(text))
    assert all(a.end <= b.start for a, b in itertools.pairwise(found))
    assert all(text[one.start : one.end] == one.text for one in found)
    try:
        parse(text)
    except LineError:
        return


@pytest.mark.parametrize(
    "text", ["a 'b", 'a "b', "a \\", "a \\\n", "x | jq '.a", "a\nb 'c", "!ls \\"]
)
def test_what_is_not_at_its_end_is_unfinished(text: str) -> None:
    with pytest.raises(UnfinishedError):
        parse(text)


def test_behind_a_bar_everything_up_to_the_end_of_the_line_is_the_systems() -> None:
    assert parse("read 42 | jq '.a;b' | wc -l; list") == [
        Line(1, ("read", "42"), pipe="jq '.a;b' | wc -l"),
        Line(1, ("list",)),
    ]


def test_a_line_that_begins_with_an_exclamation_mark_is_the_systems() -> None:
    assert parse("!ls | wc; pwd # all\nlist") == [
        Line(1, system="ls | wc; pwd # all"),
        Line(2, ("list",)),
    ]
    assert parse("a; !b") == [Line(1, ("a",)), Line(1, system="b")]
    assert parse("say hello!") == [Line(1, ("say", "hello!"))]


def test_redirections_may_stand_anywhere_in_the_line() -> None:
    assert parse("> 'a b' read <in 4") == [Line(1, ("read", "4"), read_from="in", write_to="a b")]
    assert parse("read>>x") == [Line(1, ("read",), write_to="x", append=True)]


def test_lines_know_their_number() -> None:
    assert [line.number for line in parse("a\n# no\n\nb 'x\ny'\nc \\\n d; e\nf")] == [1, 4, 6, 7, 8]


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("a && b", "no &&"),
        ("a || b", "no ||"),
        ("a >", "file is missing after >"),
        ("a > | b", "file is missing after >"),
        ("a |", "missing after |"),
        ("a | ; b", "missing after |"),
        ("| a", "command is missing"),
        ("> a", "command is missing"),
        ("a > b | c", "not to both"),
        ("!", "takes a command"),
    ],
)
def test_what_cannot_be_run_is_refused_with_the_reason(text: str, said: str) -> None:
    with pytest.raises(LineError, match=said.replace("|", r"\|")) as caught:
        parse(text)
    assert not isinstance(caught.value, UnfinishedError)


def test_pieces_of_a_text_have_their_marks() -> None:
    assert [(one.mark, one.text) for one in tokens("a 'b' | x # y\n# z\n'q")] == [
        (TokenKind.WORD, "a"),
        (TokenKind.WORD, "'b'"),
        (TokenKind.OPERATOR, "|"),
        (TokenKind.SYSTEM, " x # y"),
        (TokenKind.OPERATOR, "\n"),
        (TokenKind.COMMENT, "# z"),
        (TokenKind.OPERATOR, "\n"),
        (TokenKind.OPEN, "'q"),
    ]
