"""Every page, section and identifier that a comment, docstring or page refers to exists."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from tests.project.references import (
    PACKAGES,
    ROOT,
    SPEC,
    Text,
    identifiers,
    page_named,
    pages,
    prose_of,
    python_files,
    sections,
    unresolved,
)
from tests.sim.mutations import MUTATIONS

PAGES = list(pages())
_LINK = re.compile(r"\]\(([^)\s]+)\)")
_LABELLED = re.compile(r"\[[^\]]*\]\([^)]*\)")
_FENCE = re.compile(r"^```.*?^```", re.MULTILINE | re.DOTALL)
_FILE = re.compile(
    r"`([\w./-]+/[\w.-]+\.py|[a-z]\w+\.py|(?:docs|tests|bookied|bkclient|bkctl|wire)/[\w./-]*)`"
)
_ABROAD = re.compile(r"\.\./shared|(?<![\w.])/work/|\b(?:LAYOUT|STYLE|PROSE)\.md")


def test_comments_and_docstrings_refer_to_what_exists() -> None:
    missing = [
        one for path in python_files() for text in prose_of(path) for one in unresolved(text)
    ]
    assert not missing, "\n".join(missing)


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(ROOT)))
def test_a_page_refers_to_what_exists(page: Path) -> None:
    text = page.read_text(encoding="utf-8")
    missing = list(unresolved(Text(page, 1, _LABELLED.sub("", _FENCE.sub("", text)))))
    for target in _LINK.findall(text):
        if "://" in target:
            continue
        name, _, anchor = target.partition("#")
        other = (page.parent / name).resolve() if name else page
        if not other.exists():
            missing.append(f"{page.name}: {target} does not exist")
        elif anchor and anchor not in _anchors(other):
            missing.append(f"{page.name}: {target} has no such heading")
    assert not missing, "\n".join(missing)


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(ROOT)))
def test_a_page_names_files_that_exist(page: Path) -> None:
    folders = (ROOT, page.parent, *(ROOT / package for package in PACKAGES))
    text = _FENCE.sub("", page.read_text(encoding="utf-8"))
    named = set(_FILE.findall(text))
    modules = {path.name for path in python_files()}
    missing = [
        one for one in named - modules if not any((folder / one).exists() for folder in folders)
    ]
    assert not missing, f"{page.name} names {', '.join(missing)}"


def test_nothing_refers_to_a_place_outside_of_the_repository() -> None:
    found = [
        f"{path.relative_to(ROOT)}: {match[0]}"
        for path in [*python_files(), *PAGES]
        if path != Path(__file__)
        for match in _ABROAD.finditer(path.read_text(encoding="utf-8"))
    ]
    assert not found, "\n".join(found)


def test_the_rules_that_the_simulation_breaks_are_those_of_the_specifications() -> None:
    for name, mutation in MUTATIONS.items():
        page = SPEC / ("ledgers2logs.md" if mutation.rule.startswith("log ") else "client.md")
        numbers = re.findall(r"(?<![\w#.])\d+(?:\.\d+)?(?![\w.])", mutation.rule)
        assert sections(page) >= set(numbers), name
        assert identifiers() >= set(re.findall(r"\b[ISGHDL]\d+\b", mutation.rule)), name
        assert identifiers() >= set(mutation.breaks), name


def test_the_pages_define_what_their_lists_promise() -> None:
    wanted = {f"I{n}" for n in range(1, 24)} | {f"L{n}" for n in range(1, 6)}
    wanted |= {f"S{n}" for n in range(1, 43)} | {f"G{n}" for n in range(1, 9)}
    wanted |= {f"H{n}" for n in range(1, 13)} | {f"D{n}" for n in range(1, 13)}
    assert wanted == identifiers()
    assert {"3.6", "17"} <= sections(SPEC / "storage.md")
    assert {"13.1", "13.10"} <= sections(SPEC / "metadata.md")


@pytest.mark.parametrize(
    ("prose", "complaint"),
    [
        ("the rules of storage.md section 3.6 hold", ""),
        ("as storage.md 99 says", "storage.md has no section 99"),
        ("sections 15 and 99 (storage.md sections 15 and 99)", "of which page|no section 99"),
        ("see nowhere.md", "no page nowhere.md"),
        ("a reader sees it (I7)", ""),
        ("a reader sees it (I77)", "defines I77"),
        ("as section 4 says", "section 4' of which page"),
    ],
)
def test_what_does_not_exist_is_found(prose: str, complaint: str) -> None:
    found = "\n".join(unresolved(Text(ROOT / "wire" / "ids.py", 1, prose)))
    assert re.search(complaint, found) if complaint else not found


def test_a_bare_name_is_a_page_of_the_specifications() -> None:
    assert page_named("wire.md", ROOT / "bookied" / "reads.py") == SPEC / "wire.md"
    assert page_named("docs/spec/wire.md", ROOT / "README.md") == SPEC / "wire.md"


def _anchors(page: Path) -> set[str]:
    text = _FENCE.sub("", page.read_text(encoding="utf-8"))
    headings = re.findall(r"^#+ (.*)$", text, re.MULTILINE)
    return {re.sub(r"[^\w\- ]", "", one.lower()).replace(" ", "-") for one in headings}
