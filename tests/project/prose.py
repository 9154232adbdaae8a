"""Checks prose: words of the glossary, and the length of sentences."""

from __future__ import annotations

import ast
import io
import re
import tokenize
from collections.abc import Iterator
from functools import cache
from pathlib import Path
from typing import Final

import attrs
import click

from tests.project.glossary import GLOSSARY

WORDS_MAX: Final = 40
"""Of one sentence. Most should have fewer than twenty."""

_TERMS = [(re.compile(term.pattern.replace(" ", r"\s+"), re.IGNORECASE), term) for term in GLOSSARY]
_FENCED = re.compile(r"^```.*?^```", re.MULTILINE | re.DOTALL)
_CODE = re.compile(r"`[^`\n]*`")
_TARGET = re.compile(r"\]\([^)]*\)")
_PARAGRAPH = re.compile(r"\n\s*\n|\n(?=\s*(?:[-*] |\d+\. |#|\|))")
_SENTENCE_END = re.compile(r"(?<=[.!?:])\s+|;\s+")


def without_code(markdown: str) -> str:
    """Return a page with its code and link targets blanked out; lines keep their numbers."""
    text = _FENCED.sub(lambda match: "\n" * match[0].count("\n"), markdown)
    return _TARGET.sub("]", _CODE.sub("code", text))


def glossary_offences(prose: str, where: str) -> Iterator[str]:
    """Yield each use of a word of the glossary, with what to write instead."""
    for pattern, term in _TERMS:
        for match in pattern.finditer(prose):
            line = prose.count("\n", 0, match.start()) + 1
            used = " ".join(match[0].split())
            yield f"{where}:{line}: {used!r}: write {term.instead} ({term.reason})"


def long_sentences(prose: str, where: str) -> Iterator[str]:
    """Yield each sentence with more than ``WORDS_MAX`` words; tables have none."""
    for paragraph in _PARAGRAPH.split(prose):
        if paragraph.lstrip().startswith("|"):
            continue
        for sentence in _SENTENCE_END.split(paragraph):
            count = len(sentence.split())
            if count > WORDS_MAX:
                yield f"{where}: {count} words: {' '.join(sentence.split())[:80]}…"


@attrs.frozen
class Docstring:
    """A string that is a statement: of a module, class or function, or behind a field."""

    line: int
    text: str
    is_of_named: bool
    """Whether it stands first in a module, class or function."""


@cache
def _strings(path: Path) -> tuple[list[Docstring], list[tuple[int, str]]]:
    """Return the docstrings of a module, and (line, text) of each other string with a blank."""
    nodes = list(ast.walk(ast.parse(path.read_text(encoding="utf-8"))))
    named = (ast.Module, ast.ClassDef, ast.FunctionDef, ast.AsyncFunctionDef)
    first = {id(node.body[0]) for node in nodes if isinstance(node, named) and node.body}
    statements = {id(node.value): node for node in nodes if isinstance(node, ast.Expr)}
    docstrings, others = [], []
    for node in nodes:
        if isinstance(node, ast.Constant) and isinstance(node.value, str):
            if statement := statements.get(id(node)):
                docstrings.append(Docstring(node.lineno, node.value, id(statement) in first))
            elif " " in node.value:
                others.append((node.lineno, node.value))
    return docstrings, others


def remarks(path: Path) -> Iterator[tuple[int, str]]:
    """Yield (line, text) for each docstring and each comment of a module."""
    docstrings, _ = _strings(path)
    yield from ((one.line, one.text) for one in docstrings)
    source = path.read_text(encoding="utf-8")
    for token in tokenize.generate_tokens(io.StringIO(source).readline):
        if token.type == tokenize.COMMENT:
            yield token.start[0], token.string


_QUESTION = re.compile(r"(What|How|Who|Where|When|Why|Which|Tells?|Gives?)\b")


def question_openers(path: Path) -> Iterator[str]:
    """Yield each docstring that begins with a question word instead of its noun or verb.

    "Whether" may begin that of a field only: a function returns whether, a class has a name.
    """
    docstrings, _ = _strings(path)
    for one in docstrings:
        text = one.text.strip()
        if _QUESTION.match(text) or (one.is_of_named and text.startswith("Whether ")):
            yield f"{path}:{one.line}: {text[:70]}"


def messages(path: Path) -> list[tuple[int, str]]:
    """Return (line, text) for each string of a module that has a blank; docstrings excepted."""
    return _strings(path)[1]


def help_texts(
    command: click.Command, path: tuple[str, ...] = ("bkctl",)
) -> Iterator[tuple[str, str]]:
    """Yield (where, text) for the help of a command, its options, and all below it."""
    name = " ".join(path)
    for text in (command.help, command.short_help, command.epilog):
        if text:
            yield name, text
    for parameter in command.params:
        text = getattr(parameter, "help", None)
        if text:
            yield f"{name} {parameter.name}", text
    for words, purpose in getattr(command, "examples", ()):
        yield f"{name}: {words}", purpose
    if isinstance(command, click.Group):
        with click.Context(command) as context:
            for child in command.list_commands(context):
                below = command.get_command(context, child)
                if below is not None:
                    yield from help_texts(below, (*path, child))
