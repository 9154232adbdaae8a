"""Colours of the typed text: commands, options, quotes, and unknown words."""

from __future__ import annotations

from collections.abc import Callable, Iterator

import click
from prompt_toolkit.document import Document
from prompt_toolkit.formatted_text import StyleAndTextTuples
from prompt_toolkit.lexers import Lexer

from shell.command_line import Token, TokenKind, tokens, unquoted
from shell.shell import Shell

_CLASS = {TokenKind.OPERATOR: "operator", TokenKind.SYSTEM: "system", TokenKind.COMMENT: "comment"}


class TreeLexer(Lexer):
    """A lexer that styles words by the click tree as command, option, quoted or unknown."""

    def __init__(self, shell: Shell) -> None:
        self._shell = shell

    def lex_document(self, document: Document) -> Callable[[int], StyleAndTextTuples]:
        lines = split_lines(document.text, self.styled(document.text))
        return lambda number: lines[number] if number < len(lines) else []

    def styled(self, text: str) -> Iterator[tuple[str, Token]]:
        """Yield each piece of the text with its style."""
        place: click.Command | None = None
        begins, value = True, False
        for token in tokens(text):
            if token.mark in _CLASS:
                begins = token.mark is TokenKind.OPERATOR and token.text in {";", "\n"}
                value = token.mark is TokenKind.OPERATOR and not begins
                yield f"class:{_CLASS[token.mark]}", token
                continue
            place = self._shell.program.tree if begins else place
            if isinstance(place, click.Group) and not value and not token.text.startswith("-"):
                style, place = self._command(place, unquoted(token.text), first=begins)
            else:
                style = _argument(token)
            begins, value = False, _awaits_value(place, token)
            yield style, token

    def _command(
        self, group: click.Group, word: str, *, first: bool
    ) -> tuple[str, click.Command | None]:
        shell = self._shell
        if first and word == shell.name:
            return "class:command", group
        own = shell.own.commands.get(word) if first else None
        if own is not None:
            return "class:command", own
        ctx = click.Context(group, obj=shell.program.obj)
        names = group.list_commands(ctx)
        if word in names:
            return "class:command", group.get_command(ctx, word)
        known = [*names, *shell.own.commands] if first else names
        begun = any(name.startswith(word) for name in known)
        return ("" if begun else "class:unknown"), None


def _awaits_value(command: click.Command | None, token: Token) -> bool:
    """Return whether a word is an option of a group with a value in the next word."""
    return isinstance(command, click.Group) and any(
        token.text in option.opts and not option.is_flag and not option.count
        for option in command.params
        if isinstance(option, click.Option)
    )


def _argument(token: Token) -> str:
    if token.text.startswith("-"):
        return "class:option"
    return "class:quoted" if token.text[:1] in {"'", '"'} else ""


def split_lines(text: str, styled: Iterator[tuple[str, Token]]) -> list[StyleAndTextTuples]:
    """Return the text's lines as styled pieces, with unstyled text between the pieces."""
    lines: list[StyleAndTextTuples] = [[]]
    at = 0
    pieces = [*((style, token.start, token.end) for style, token in styled), ("", len(text), 0)]
    for style, start, end in pieces:
        _add(lines, "", text[at:start])
        _add(lines, style, text[start:end])
        at = max(at, end)
    return lines


def _add(lines: list[StyleAndTextTuples], style: str, text: str) -> None:
    for number, part in enumerate(text.split("\n")):
        if number:
            lines.append([])
        if part:
            lines[-1].append((style, part))
