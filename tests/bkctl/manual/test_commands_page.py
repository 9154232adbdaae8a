"""docs/commands.md: every command, every command of Java, and nothing stale."""

from __future__ import annotations

import re
import shlex

import pytest

from bkctl.commands.tool.compat import translate
from bkctl.commands.tool.java_command_table import ELSEWHERE, ROWS
from bkctl.manual.commands_page import commands, page
from bkctl.manual.generate import ROOT


def test_the_page_is_what_the_commands_say_now() -> None:
    written = (ROOT / "docs/commands.md").read_text(encoding="utf-8")
    assert written == page(), "stale: python -m bkctl.manual.generate"


def test_every_command_and_every_command_of_java_is_on_the_page() -> None:
    text = page()
    for path, _ in commands():
        assert re.search(rf"^\| `bkctl {re.escape(' '.join(path))}[ `]", text, re.MULTILINE), path
    for java in ROWS:
        assert f"\n| `{java}` | " in text
    for one in ELSEWHERE:
        assert f"\n| `{one.java}` | {one.instead} |\n" in text


def test_every_row_of_a_table_has_as_many_cells_as_its_head() -> None:
    cells = 0
    for line in page().splitlines():
        if not line.startswith("|"):
            cells = 0
            continue
        count = len(re.findall(r"(?<!\\)\|", line))
        assert cells in {0, count}, line
        cells = count


@pytest.mark.parametrize("name", ["updateledgers", "updatecookie", "activeledgers", "recover"])
def test_what_a_value_becomes_is_shown_and_not_the_value(name: str) -> None:
    (row,) = (line for line in page().splitlines() if line.startswith(f"| `{name}` |"))
    shown = {
        "updateledgers": "`-v` → `--verbose`",
        "updatecookie": "`-d` → `--yes`",
        "activeledgers": "`-t` → `--timeout SECONDS`",
        "recover": "`bkctl bookie recover ID ... [--to=DEST]`",
    }[name]
    assert shown in row


def test_the_example_in_the_introduction_is_true() -> None:
    java = re.search(r"`bkctl compat ([^`]+)`", page())
    assert java is not None
    assert translate(shlex.split(java[1]))[:3] == ["ledger", "read", "3"]
