"""The pictures of README and docs are there, are used, and show commands that exist.

The script that draws them keeps what is on a terminal: its texts, their order, and their colours.
"""

from __future__ import annotations

import html
import re
import xml.etree.ElementTree as ET
from importlib import metadata
from pathlib import Path

import click
import pytest

from bkctl.cli.root import cli
from tests.shell.screen import terminal
from tests.support.pictures import PICTURES, PICTURES_DIR, ROOT, Picture, drawn, shown

PAGES = [ROOT / "README.md", *sorted((ROOT / "docs").glob("*.md"))]


def _stored(picture: Picture) -> str:
    return _texts((PICTURES_DIR / f"{picture.name}.svg").read_text())


def _texts(svg: str) -> str:
    """Return the text in a picture without its blanks, which are places and no text."""
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
    stored = _stored(picture)
    for text in (picture.title, *picture.commands):
        assert "".join(text.split()) in stored, "run: python -m tests.support.pictures"


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


@pytest.mark.processes
def test_a_picture_is_drawn_with_each_command_above_what_it_prints() -> None:
    commands = ("bkctl --version", "bkctl no-such-command")
    picture = Picture(name="x", title="A title", commands=commands, columns=80)
    texts = _texts(drawn(picture, {"LC_ALL": "C.UTF-8"}))
    version, refused = metadata.version("bkctl"), "bkctl: no such command"
    wanted = ("A title", "$ bkctl --version", version, "$ bkctl no-such-command", refused)
    places = [texts.index("".join(text.split())) for text in wanted]
    assert places == sorted(places)


@pytest.mark.processes
@pytest.mark.parametrize(
    ("codes", "style"),
    [
        ("1;31", "bold red"),
        ("33", "yellow"),
        ("93", "bright_yellow"),
        ("38;5;208", "#ff8700"),
        ("4;7", "reverse underline"),
    ],
)
def test_a_screen_keeps_its_colours(codes: str, style: str) -> None:
    text = f"\x1b[{codes}mmarked\x1b[0m plain\n\n"
    with terminal(["printf", text], columns=40, lines=5) as screen:
        assert screen.ended() == 0
        (line,) = shown(screen)
    assert line.plain == "marked plain"
    styles = {line.plain[span.start : span.end]: str(span.style) for span in line.spans}
    assert set(style.split()) <= set(styles["marked"].split())
    assert set(style.split()).isdisjoint(styles.get(" plain", "").split())
