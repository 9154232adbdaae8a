"""Completions from the click tree, and live values from the program."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncGenerator, Callable, Iterable, Sequence
from concurrent.futures import Future
from typing import Any, Final

import attrs
import click
from prompt_toolkit.completion import CompleteEvent, Completer, Completion, PathCompleter
from prompt_toolkit.document import Document

from shell.command_line import Token, TokenKind, quoted, tokens, unquoted
from shell.current_values import CommandPlace, awaited, named, options, resolve
from shell.shell import Shell

WAIT_S: Final = 3.0
"""Seconds that a menu waits for values; keys never wait."""

OLD_WAIT_S: Final = 0.3
"""Seconds that a menu waits if old values are known."""

_FILES: Final = ("FILE", "DIR", "PATH")


@attrs.frozen
class CursorWords:
    """The words before the cursor, and the word that ends at the cursor."""

    words: tuple[str, ...]
    word: str
    typed_chars: int
    """The characters of that word in the text, with its quotes."""
    redirects: bool = False
    """True if the word is the file of a redirection."""


def asked_at(text: str) -> CursorWords | None:
    """Return the words before the cursor; None if the shell completes nothing there."""
    pieces: list[Token] = []
    for token in tokens(text):
        if token.mark in {TokenKind.SYSTEM, TokenKind.COMMENT}:
            if token.end == len(text):
                return None
        elif token.mark is TokenKind.OPERATOR and token.text in {";", "\n"}:
            pieces = []
        else:
            pieces.append(token)
    last = pieces.pop() if pieces and pieces[-1].end == len(text) else None
    if last is not None and last.mark is TokenKind.OPERATOR:
        pieces.append(last)
        last = None
    if pieces and pieces[-1].text == "|":
        return None
    files = {n for n, one in enumerate(pieces, start=1) if one.mark is TokenKind.OPERATOR}
    words = (one for n, one in enumerate(pieces) if one.mark is TokenKind.WORD and n not in files)
    return CursorWords(
        tuple(unquoted(one.text) for one in words),
        "" if last is None else unquoted(last.text),
        0 if last is None else len(last.text),
        bool(pieces) and pieces[-1].text in {"<", ">", ">>"},
    )


async def _arrival(coming: Future[Any], wait_s: float) -> bool:
    """Wait for an answer, at most ``wait_s``; return whether it has arrived."""
    arrived = asyncio.Event()
    _on_arrival(coming, arrived.set)
    with contextlib.suppress(asyncio.TimeoutError):
        await asyncio.wait_for(arrived.wait(), wait_s)
    return arrived.is_set()


def _on_arrival(coming: Future[Any], call: Callable[[], object]) -> None:
    """Have the event loop call ``call`` when the answer arrives."""
    loop = asyncio.get_running_loop()

    def on_done(_: Future[Any]) -> None:
        with contextlib.suppress(RuntimeError):  # The prompt and its loop may have ended.
            loop.call_soon_threadsafe(call)

    coming.add_done_callback(on_done)


class TreeCompleter(Completer):
    """A completer for the text before the cursor. A key never waits for values.

    ``late`` is called in the loop when values arrive that no menu waits for.
    """

    def __init__(self, shell: Shell, *, wait_s: float = WAIT_S) -> None:
        self._shell, self._wait_s = shell, wait_s
        self.late: Callable[[Document], None] = lambda _: None
        self._paths = PathCompleter(expanduser=False)

    def get_completions(
        self, document: Document, complete_event: CompleteEvent
    ) -> Iterable[Completion]:
        """Yield the completions that are known now."""
        found, _ = self._look(document, complete_event)
        return found

    def sole(self, document: Document) -> Completion | None:
        """Return the only completion, if it is known and adds text."""
        found, coming = self._look(document, CompleteEvent(completion_requested=True))
        if len(found) != 1 or coming is not None:
            return None
        typed = document.text_before_cursor[document.cursor_position + found[0].start_position :]
        return None if typed == found[0].text else found[0]

    async def get_completions_async(
        self, document: Document, complete_event: CompleteEvent
    ) -> AsyncGenerator[Completion, None]:
        found, coming = self._look(document, complete_event)
        if coming is not None:
            wait_s = min(self._wait_s, OLD_WAIT_S) if found else self._wait_s
            if not await _arrival(coming, wait_s) and not found:
                _on_arrival(coming, lambda: self.late(document))
            found, _ = self._look(document, complete_event)
        for completion in found:
            yield completion

    def _look(
        self, document: Document, event: CompleteEvent
    ) -> tuple[list[Completion], Future[Any] | None]:
        asked = asked_at(document.text_before_cursor)
        if asked is None:
            return [], None
        if asked.redirects:
            files = self._files(asked.word, event)
            return [_moved(one, asked.typed_chars) for one in files], None
        try:
            return self._of_tree(asked, event)
        except click.ClickException:  # Invalid words are reported when the line runs.
            return [], None

    def _of_tree(
        self, asked: CursorWords, event: CompleteEvent
    ) -> tuple[list[Completion], Future[Any] | None]:
        shell, words = self._shell, asked.words
        if not words and not asked.word.startswith("-"):
            own = click.Context(shell.own, obj=shell)
            return [*_menu(shell.root(), asked), *_menu(own, asked)], None
        if words[:1] == ("help",):
            place = self._resolved(shell.without_name(words[1:]))
            return ([] if place.is_lost else _menu(place.ctx, asked)), None
        return self._of_command(words, asked, event)

    def _resolved(self, words: Sequence[str]) -> CommandPlace:
        shell = self._shell
        if words and words[0] in shell.own.commands:
            return resolve(shell.own, words, shell)
        given = [*shell.settings.words, *shell.without_name(words)]
        return resolve(shell.program.tree, given, shell.program.obj)

    def _of_command(
        self, words: Sequence[str], asked: CursorWords, event: CompleteEvent
    ) -> tuple[list[Completion], Future[Any] | None]:
        place = self._resolved(words)
        if place.is_lost:
            return [], None
        ctx, rest = place.ctx, place.rest
        word, skip = asked.word, 0
        if word.startswith("-") and "--" not in rest:
            option, equals, value = word.partition("=")
            if not equals:
                return _menu(ctx, asked), None
            rest, word, skip = [*rest, option], value, len(option) + 1
        parameter = awaited(ctx, rest)
        if parameter is None:
            return _menu(ctx, asked), None
        found, coming = self._values(ctx, parameter, word, event)
        typed = asked.typed_chars - skip
        return [_moved(one, typed) for one in found], coming

    def _values(
        self, ctx: click.Context, parameter: click.Parameter, word: str, event: CompleteEvent
    ) -> tuple[list[Completion], Future[Any] | None]:
        shell = self._shell
        if parameter.type.name in shell.program.live:
            values, coming = shell.live.candidates(parameter.type.name, word, shell.settings.words)
            found = shell.program.ordered(ctx.command, values)
            return [_completion(value, about, 0) for value, about in found], coming
        items = parameter.shell_complete(ctx, word)
        if _names_files(parameter) or any(item.type in {"file", "dir"} for item in items):
            return self._files(word, event), None
        return [_completion(item.value, item.help or "", 0) for item in items], None

    def _files(self, word: str, event: CompleteEvent) -> list[Completion]:
        """Return files whose paths begin with ``word``; directories end with a slash."""
        found = self._paths.get_completions(Document(word, len(word)), event)
        return [
            Completion(quoted(f"{word}{one.text}{_slash(one)}"), 0, display=one.display)
            for one in found
        ]


def _slash(file: Completion) -> str:
    return "/" if file.display_text.endswith("/") else ""


def _menu(ctx: click.Context, asked: CursorWords) -> list[Completion]:
    """Return the commands of a group, or the options of a command if the word begins one."""
    word = asked.word
    if word.startswith("-"):
        found = {
            name: option.help or ""
            for option in options(ctx)
            if not option.hidden
            for name in named(option)
            if name.startswith(word) and (name.startswith("--") or word == "-")
        }
        return [_completion(name, about, asked.typed_chars) for name, about in found.items()]
    if not isinstance(ctx.command, click.Group):
        return []
    items = ctx.command.shell_complete(ctx, word)
    return [_completion(item.value, item.help or "", asked.typed_chars) for item in items]


def _completion(value: str, about: str, typed_chars: int) -> Completion:
    return Completion(quoted(value), -typed_chars, display=value, display_meta=about)


def _moved(completion: Completion, typed_chars: int) -> Completion:
    """Return a completion that replaces ``typed_chars`` of the text."""
    return Completion(
        completion.text, -typed_chars, display=completion.display,
        display_meta=completion.display_meta,
    )  # fmt: skip


def _names_files(parameter: click.Parameter) -> bool:
    if isinstance(parameter.type, (click.Path, click.File)):
        return True
    metavar = (parameter.metavar or "").upper()
    return any(word in metavar.replace("[", " ").replace("]", " ").split() for word in _FILES)
