"""Pages and help texts use plain words, and say one thing a sentence."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from bkctl.cli.root import cli
from tests.project.glossary import GLOSSARY
from tests.project.prose import (
    glossary_offences,
    help_texts,
    long_sentences,
    messages,
    question_openers,
    remarks,
    without_code,
)
from tests.project.references import ROOT, SPEC, python_files

DOCS = ROOT / "docs"
GENERATED = DOCS / "commands.md"
PAGES = [ROOT / "README.md", ROOT / "CHANGELOG.md", *sorted(DOCS.glob("*.md"))]
NOTES = [*sorted(SPEC.glob("*.md")), *sorted((ROOT / "tests").rglob("*.md"))]
PAGES_MAX = 12
LINES_MAX = 250


def _name(page: Path) -> str:
    return str(page.relative_to(ROOT))


@pytest.mark.parametrize("page", [*PAGES, *NOTES], ids=_name)
def test_a_page_has_no_word_of_the_glossary(page: Path) -> None:
    prose = without_code(page.read_text(encoding="utf-8"))
    assert not (found := list(glossary_offences(prose, _name(page)))), "\n".join(found)


@pytest.mark.parametrize("page", PAGES, ids=_name)
def test_a_page_has_no_long_sentence(page: Path) -> None:
    prose = without_code(page.read_text(encoding="utf-8"))
    assert not (found := list(long_sentences(prose, _name(page)))), "\n".join(found)


def test_help_has_no_word_of_the_glossary() -> None:
    texts = {text: where for where, text in help_texts(cli)}
    found = [one for text, where in texts.items() for one in glossary_offences(text, where)]
    assert not found, "\n".join(found)


def test_messages_have_no_word_of_the_glossary() -> None:
    modules = [path for path in python_files() if not path.is_relative_to(ROOT / "tests")]
    found = [
        one
        for path in modules
        for line, text in messages(path)
        for one in glossary_offences(text, f"{_name(path)}:{line}")
    ]
    assert not found, "\n".join(found)


def test_docstrings_and_comments_have_no_word_of_the_glossary() -> None:
    found = [
        one
        for path in python_files()
        if not path.is_relative_to(ROOT / "tests")
        for line, text in remarks(path)
        for one in glossary_offences(without_code(text), f"{_name(path)}:{line}")
    ]
    assert not found, "\n".join(found)


def test_docstrings_begin_with_a_noun_or_a_verb() -> None:
    own = (path for path in python_files() if not path.is_relative_to(ROOT / "tests"))
    found = [one for path in own for one in question_openers(path)]
    assert not found, "\n".join(found)


def test_a_question_word_is_found_where_a_docstring_begins(tmp_path: Path) -> None:
    module = tmp_path / "module.py"
    module.write_text(
        'class Some:\n    """A thing."""\n\n    ready: bool\n    """Whether it is."""\n\n'
        '    def ready_at(self):\n        """Whether it is."""\n\n'
        '    def name(self):\n        """What it is called."""\n'
    )
    assert [one.rpartition(": ")[2] for one in question_openers(module)] == [
        "Whether it is.",
        "What it is called.",
    ]


def test_a_reader_finds_a_page_and_the_end_of_it() -> None:
    pages = [page for page in DOCS.glob("*.md") if page != GENERATED]
    assert len(pages) < PAGES_MAX
    for page in pages:
        assert page.read_text(encoding="utf-8").count("\n") < LINES_MAX, page.name


@pytest.mark.parametrize(
    ("prose", "offence"),
    [
        ("It mends the ledger.", "'mends'"),
        ("until the ledger is\nwhole", "'is whole'"),
        ("the whole cluster", ""),
        ("the bookie under way", "'under way'"),
        ("no room on the disk", "'no room'"),
    ],
)
def test_the_glossary_finds_its_words_and_no_others(prose: str, offence: str) -> None:
    found = "\n".join(glossary_offences(prose, "page"))
    assert offence in found if offence else not found


def test_code_is_no_prose() -> None:
    assert not list(glossary_offences(without_code("`mend`\n```sh\nmend\n```\n"), "page"))
    assert list(long_sentences("word " * 41 + ".", "page"))
    assert not list(long_sentences("word " * 30 + ". " + "word " * 30, "page"))


def test_each_term_says_what_to_write_and_why() -> None:
    for term in GLOSSARY:
        re.compile(term.pattern)
        assert term.instead
        assert term.reason
