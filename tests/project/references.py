"""Finds what comments, docstrings and pages refer to: pages, sections, identifiers of rules."""

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

ROOT: Final = Path(__file__).parents[2]
SPEC: Final = ROOT / "docs" / "spec"
PACKAGES: Final = ("wire", "bkclient", "bookied", "bkctl", "shell", "tests")

_PAGE = re.compile(r"(?<![\w/.-])((?:\.{0,2}[\w-]+/|\.\./)*[\w-]+\.md)\b(?!/)")
_NUMBER = r"\d+(?:\.\d+)?"
_LIST = rf"{_NUMBER}(?:(?:, | and | to |, and ){_NUMBER})*"
_SECTION = re.compile(rf"[,:]? (?:its )?(?:sections? )?({_LIST})\b(?! (?:lines|pages))")
_SECTION_ALONE = re.compile(rf"\b[Ss]ections? ({_LIST})")
_IDENTIFIER = re.compile(r"(?<![\w'\"./-])([ISGHDL][1-9]\d?)\b(?![\w'\".(=/-]*\w)")
_HINT = re.compile(r"\.md|[Ss]ection|[ISGHDL][1-9]")
"""What a reference has; a module without it, as most are, is not parsed."""
_HEADING = re.compile(rf"^(?:#+ |\*\*)({_NUMBER})[.) ]", re.MULTILINE)
_DEFINED = re.compile(r"^(?:- |\| )(?:\*\*)?([ISGHDL]\d+)\b|\*\*([ISGHDL]\d+)\*\*", re.MULTILINE)


@attrs.frozen
class Text:
    """One comment, docstring or page, with the place where it begins."""

    path: Path
    line: int
    text: str

    @property
    def where(self) -> str:
        """Return the place as ``path:line``."""
        return f"{self.path.relative_to(ROOT)}:{self.line}"


def python_files() -> Iterator[Path]:
    """Yield every Python file of the project, generated protobuf code excepted."""
    for package in PACKAGES:
        for path in sorted((ROOT / package).rglob("*.py")):
            if not path.name.endswith("_pb2.py"):
                yield path


def pages() -> Iterator[Path]:
    """Yield every Markdown page of the project."""
    yield from sorted(ROOT.glob("*.md"))
    for folder in ("docs", *PACKAGES, "examples", "systemd"):
        yield from sorted((ROOT / folder).rglob("*.md"))


def prose_of(path: Path) -> list[Text]:
    """Return docstrings (those of attributes too) and blocks of comments of a module.

    These are all, or none where it refers to nothing.
    """
    source = path.read_text(encoding="utf-8")
    if not _HINT.search(source):
        return []
    found = [
        Text(path, node.lineno, _one_line(node.value.value))
        for node in ast.walk(ast.parse(source))
        if isinstance(node, ast.Expr)
        and isinstance(node.value, ast.Constant)
        and isinstance(node.value.value, str)
    ]
    return found + list(_comments(path, source))


def _comments(path: Path, source: str) -> Iterator[Text]:
    block: list[str] = []
    begin = last = 0
    for token in tokenize.generate_tokens(io.StringIO(source).readline):
        if token.type != tokenize.COMMENT:
            continue
        if block and token.start[0] != last + 1:
            yield Text(path, begin, _one_line(" ".join(block)))
            block = []
        begin = token.start[0] if not block else begin
        last = token.start[0]
        block.append(token.string.lstrip("# "))
    if block:
        yield Text(path, begin, _one_line(" ".join(block)))


def _one_line(text: str) -> str:
    return " ".join(text.split())


@cache
def sections(page: Path) -> frozenset[str]:
    """Return the numbers of a page's sections."""
    return frozenset(_HEADING.findall(page.read_text(encoding="utf-8")))


@cache
def identifiers() -> frozenset[str]:
    """Return the names of all invariants, scenarios, hazards and defects of docs/spec."""
    text = "\n".join(page.read_text(encoding="utf-8") for page in SPEC.glob("*.md"))
    return frozenset(one or other for one, other in _DEFINED.findall(text))


def page_named(name: str, mentioned_in: Path) -> Path | None:
    """Return the page that a name stands for, or None.

    A name is relative to the repository or to the page that mentions it, or a bare name of
    docs/spec.
    """
    for folder in (mentioned_in.parent, ROOT, SPEC):
        candidate = (folder / name).resolve()
        if candidate.is_file() and candidate.is_relative_to(ROOT):
            return candidate
    return None


def unresolved(text: Text) -> Iterator[str]:
    """Yield what one comment, docstring or page refers to and does not exist."""
    last: Path | None = None
    ends: set[int] = set()
    for match in _PAGE.finditer(text.text):
        page = page_named(match[1], text.path)
        if page is None:
            yield f"{text.where}: there is no page {match[1]}"
            continue
        if page.parent != SPEC:
            continue
        last = page
        if numbers := _SECTION.match(text.text, match.end()):
            ends.add(numbers.start(1))
            yield from _missing(text, page, numbers[1])
    if text.path.suffix == ".py":
        for match in _SECTION_ALONE.finditer(text.text):
            if match.start(1) in ends:
                continue
            if last is None:
                yield f"{text.where}: {match[0]!r} of which page?"
            else:
                yield from _missing(text, last, match[1])
    for name in _IDENTIFIER.findall(text.text):
        if name not in identifiers():
            yield f"{text.where}: no page of docs/spec defines {name}"


def _missing(text: Text, page: Path, numbers: str) -> Iterator[str]:
    for number in re.findall(_NUMBER, numbers):
        if number not in sections(page):
            yield f"{text.where}: {page.name} has no section {number}"
