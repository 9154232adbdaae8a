"""Completion with Tab after ``bkctl``: answers from the click tree for a shell's script.

Commands, options and choices are from the tree; only the modules that the line names are imported.
Parameters of type ``LiveType`` offer the existing ids. After any error the answer is empty: no
message could be shown.
"""

from __future__ import annotations

import contextlib
import os
import sys
from collections.abc import Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Final

from bkctl.cli.completion.scripts import BREAKS, LINE, VARIABLE

if TYPE_CHECKING:
    import click
    from click.shell_completion import CompletionItem

_CURSOR: Final = "\1"
_KINDS: Final = {"file": "files", "dir": "dirs"}
_HELP_CHARS_MAX: Final = 76


def answer(tree: click.Group, environ: Mapping[str, str]) -> int:
    """Print the completions of the line in the environment; return the exit status."""
    lines: list[str] = []
    with contextlib.suppress(Exception):
        lines += reply(tree, environ[VARIABLE], environ.get(LINE, ""), environ.get(BREAKS, ""))
    sys.stdout.write("".join(f"{line}\n" for line in lines))
    sys.stdout.flush()
    return os.EX_OK


def reply(tree: click.Group, shell: str, line: str, breaks: str = "") -> Iterator[str]:
    """Yield the lines of the answer for a shell's script."""
    words, word = split(line)
    items = candidates(tree, words, word)
    special = next((_KINDS[item.type] for item in items if item.type in _KINDS), None)
    yield special or "values"
    if special is None:
        form = _FORMS.get(shell, _bash)
        for item in items:
            yield form(item, word, line, breaks)


def split(line: str) -> tuple[list[str], str]:
    """Return the complete words before the cursor, without the program, and the word at it."""
    from click.shell_completion import split_arg_string

    *words, last = split_arg_string(line + _CURSOR)
    return words[1:], last.removesuffix(_CURSOR)


def candidates(tree: click.Group, words: Sequence[str], word: str) -> list[CompletionItem]:
    """Return the completions of ``word``, as complete words."""
    from click.shell_completion import CompletionItem, ShellComplete

    engine = ShellComplete(tree, {}, tree.name or "", VARIABLE)
    items = engine.get_completions(list(words), word)
    option, equals, _ = word.partition("=")
    if not (option.startswith("--") and equals):
        return items
    return [
        CompletionItem(f"{option}={item.value}", item.type, item.help)
        for item in items
        if not str(item.value).startswith("-")
    ]


def _bash(item: CompletionItem, word: str, line: str, breaks: str) -> str:
    """Return the text for bash's own last word, which may be a part of ``word``."""
    value = str(item.value)
    quoted = not line.endswith(word) or line[: len(line) - len(word)].endswith(("'", '"'))
    if quoted:
        return value
    kept = max((word.rfind(one) + 1 for one in breaks if one in ":="), default=0)
    return _shell_quoted(value[kept:])


def _shell_quoted(text: str) -> str:
    from shlex import quote

    return quote(text) if any(c in " \t'\"\\$&;|<>()*?[]`!#~" for c in text) else text


def _zsh(item: CompletionItem, _word: str, _line: str, _breaks: str) -> str:
    value = str(item.value).replace("\\", "\\\\").replace(":", "\\:")
    return f"{value}:{_about(item)}" if item.help else value


def _fish(item: CompletionItem, _word: str, _line: str, _breaks: str) -> str:
    return f"{item.value}\t{_about(item)}" if item.help else str(item.value)


def _about(item: CompletionItem) -> str:
    text = " ".join((item.help or "").split())
    return text if len(text) <= _HELP_CHARS_MAX else f"{text[: _HELP_CHARS_MAX - 3]}..."


_FORMS: Final = {"bash": _bash, "zsh": _zsh, "fish": _fish}
