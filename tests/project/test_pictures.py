"""The pictures of README and docs are there, are used, and show commands that exist."""

from __future__ import annotations

import html
import re
import xml.etree.ElementTree as ET
from pathlib import Path

import click
import pytest

from bkctl.cli.root import cli
from tests.support.pictures import PICTURES, PICTURES_DIR, ROOT, Picture

PAGES = [ROOT / "README.md", *sorted((ROOT / "docs").glob("*.md"))]


def _shown(picture: Picture) -> str:
    """Return the text in a picture without its blanks, which are places and no text."""
    svg = (PICTURES_DIR / f"{picture.name}.svg").read_text()
    texts = re.findall(r"<text[^>]*>([^<]*)</text>", svg)
    return "".join(html.unescape("".join(texts)).split())


def _used() -> set[Path]:
    """Return the pictures that pages name."""
    return {
        (page.parent / name).resolve()
        for page in PAGES
        for name in re.findall(r"!\[[^\]]+\]\(([^)]+\.(?:svg|png))\)", page.read_text())
    }


def test_every_picture_is_there_and_used_and_no_other() -> None:
    wanted = {PICTURES_DIR / f"{picture.name}.svg" for picture in PICTURES}
    wanted.add(PICTURES_DIR / "soak.png")  # By python -m tests.soak --plot.
    assert set(PICTURES_DIR.iterdir()) == wanted, "run: python -m tests.support.pictures"
    assert _used() == wanted


@pytest.mark.parametrize("picture", PICTURES, ids=lambda picture: picture.name)
def test_a_picture_shows_its_title_and_its_commands(picture: Picture) -> None:
    ET.parse(PICTURES_DIR / f"{picture.name}.svg")
    shown = _shown(picture)
    for text in (picture.title, *picture.commands):
        assert "".join(text.split()) in shown, "run: python -m tests.support.pictures"


@pytest.mark.parametrize("picture", PICTURES, ids=lambda picture: picture.name)
def test_the_commands_of_a_picture_exist(picture: Picture) -> None:
    for line in picture.commands:
        command: click.Command = cli
        for word in line.removeprefix("bkctl ").split():
            if isinstance(command, click.Group):
                found = command.get_command(click.Context(command), word)
                assert found is not None, line
                command = found
        assert not isinstance(command, click.Group), line
