"""Typed text as lines to run: words, redirections, and parts for the system's shell.

Words are quoted as in a POSIX shell, ``;`` and newlines separate lines, ``#`` begins a comment, and
a backslash at the end continues the line. Nothing is expanded: no variables, no file patterns.
After the first ``|`` of a line the rest belongs to the system's shell, as does a line that begins
with ``!``. No I/O.
"""

from __future__ import annotations

import enum
import re
from collections.abc import Iterator
from typing import Final

import attrs


class LineError(ValueError):
    """The typed text cannot be run."""


class UnfinishedError(LineError):
    """The typed text ends within quotes or with a backslash: more text must follow."""


class TokenKind(enum.Enum):
    """A kind of piece of the text."""

    WORD = "word"
    OPERATOR = "operator"
    SYSTEM = "text for the system's shell"
    COMMENT = "comment"
    OPEN = "word whose quotes are not closed, or a line that goes on"


@attrs.frozen
class Token:
    """A piece of the text without white space; ``end`` is the offset after it."""

    mark: TokenKind
    text: str
    start: int
    line_number: int

    @property
    def end(self) -> int:
        return self.start + len(self.text)


@attrs.frozen
class Line:
    """One line to run, in the shell's program or (``system``) in the system's shell."""

    number: int
    """The line number of its first word in the text, from 1."""
    words: tuple[str, ...] = ()
    pipe: str = ""
    """The system's command that reads the output."""
    read_from: str | None = None
    write_to: str | None = None
    append: bool = False
    system: str = ""


_SPACE: Final = re.compile(r"(?:[^\S\n]|\\\n)+")
_OPERATOR: Final = re.compile(r"\|\||&&|>>|[|;<>\n]")
_COMMENT: Final = re.compile(r"#[^\n]*")
_PIECE: Final = re.compile(
    r"""'(?P<single>[^']*)' | "(?P<double>(?:[^"\\]|\\.)*)" | \\(?P<escaped>.)
      | (?P<plain>[^\s|;<>&'"\\]+ | &(?!&))""",
    re.VERBOSE | re.DOTALL,
)
_SYSTEM_LINE: Final = re.compile(r"(?:[^\n\\]|\\.)*", re.DOTALL)
_SYSTEM_PART: Final = re.compile(
    r"""(?:[^\n;'"\\] | '[^']*' | "(?:[^"\\]|\\.)*" | \\.)*""", re.VERBOSE | re.DOTALL
)
_IN_DOUBLE: Final = re.compile(r'\\(["\\$`\n])')


def tokens(text: str) -> Iterator[Token]:
    """Yield the pieces of a text; an ``OPEN`` one is the last."""
    at, number, begins = 0, 1, True
    while at < len(text):
        mark, end = _next(text, at, begins=begins)
        piece = text[at:end]
        if mark is not None:
            yield Token(mark, piece, at, number)
            begins = mark is TokenKind.OPERATOR and piece in {";", "\n"}
            if mark is TokenKind.OPERATOR and piece == "|":
                tail = _SYSTEM_PART.match(text, end)
                assert tail is not None, "it matches nothing at all too"
                if tail[0]:
                    yield Token(TokenKind.SYSTEM, tail[0], end, number)
                piece, end = text[at : tail.end()], tail.end()
        number += piece.count("\n")
        at = end


def _next(text: str, at: int, *, begins: bool) -> tuple[TokenKind | None, int]:
    if space := _SPACE.match(text, at):
        goes_on = space.end() == len(text) and space[0].endswith("\\\n")
        return TokenKind.OPEN if goes_on else None, space.end()
    if begins and text[at] == "!":
        line = _SYSTEM_LINE.match(text, at + 1)
        assert line is not None, "it matches nothing at all too"
        return TokenKind.SYSTEM, line.end()
    if operator := _OPERATOR.match(text, at):
        return TokenKind.OPERATOR, operator.end()
    if comment := _COMMENT.match(text, at):
        return TokenKind.COMMENT, comment.end()
    end = at
    while piece := _PIECE.match(text, end):
        end = piece.end()
    if end < len(text) and text[end] in "'\"\\":
        return TokenKind.OPEN, len(text)
    return TokenKind.WORD, end


def unquoted(word: str) -> str:
    """Return the value of a word; open quotes extend to its end."""
    parts: list[str] = []
    at = 0
    while at < len(word):
        piece = _PIECE.match(word, at)
        if piece is None:
            parts.append(word[at + 1 :])
            break
        parts.append(_value(piece))
        at = piece.end()
    return "".join(parts)


def _value(piece: re.Match[str]) -> str:
    if piece["double"] is not None:
        return _IN_DOUBLE.sub(lambda found: found[1].replace("\n", ""), piece["double"])
    if piece["escaped"] is not None:
        return piece["escaped"].replace("\n", "")
    return piece["single"] or piece["plain"] or ""


def quoted(text: str) -> str:
    """Return a word whose value is ``text``."""
    if text and re.fullmatch(r"[^\s|;<>&'\"\\#!]+", text):
        return text
    return "'" + text.replace("'", "'\\''") + "'"


def parse(text: str) -> list[Line]:
    """Return the lines of a text, without comments and empty lines.

    Raises:
        UnfinishedError: the text ends within quotes or with a backslash.
        LineError: a redirection without a file, or an unknown operator.
    """
    lines: list[Line] = []
    pieces: list[Token] = []
    for token in tokens(text):
        if token.mark is TokenKind.OPEN:
            raise UnfinishedError("quotes that are not closed, or a backslash at the end")
        if token.mark is TokenKind.OPERATOR and token.text in {";", "\n"}:
            lines += _lines(pieces)
            pieces = []
        elif token.mark is not TokenKind.COMMENT:
            pieces.append(token)
    return lines + _lines(pieces)


def _lines(pieces: list[Token]) -> list[Line]:
    """Return the line of these pieces, if there are any."""
    if not pieces:
        return []
    number = pieces[0].line_number
    if pieces[0].mark is TokenKind.SYSTEM:
        command = pieces[0].text.removeprefix("!").strip()
        if not command:
            raise LineError("! takes a command of the system: !ls")
        return [Line(number, system=command)]
    line = Line(number)
    rest = list(pieces)
    while rest:
        line = _with(line, rest.pop(0), rest)
    if not line.words:
        raise LineError("a command is missing")
    if line.pipe and line.write_to is not None:
        raise LineError("output goes to a file or to a command, not to both")
    return [line]


def _with(line: Line, token: Token, rest: list[Token]) -> Line:
    """Return ``line`` with one more piece; remove its words from ``rest``."""
    if token.mark is TokenKind.WORD:
        return attrs.evolve(line, words=(*line.words, unquoted(token.text)))
    if token.text == "|":
        command = rest.pop(0).text.strip() if rest else ""
        if not command or command.startswith("|"):
            raise LineError("a command of the system is missing after |")
        return attrs.evolve(line, pipe=command)
    if token.text not in {"<", ">", ">>"}:
        raise LineError(f"the shell has no {token.text}; put it in quotes if it is text")
    if not rest or rest[0].mark is not TokenKind.WORD:
        raise LineError(f"a file is missing after {token.text}")
    file = unquoted(rest.pop(0).text)
    if token.text == "<":
        return attrs.evolve(line, read_from=file)
    return attrs.evolve(line, write_to=file, append=token.text == ">>")
