"""What programs may import: a list that changes only on purpose."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

import pytest

import bkclient
import wire

ROOT = Path(__file__).parents[2]
IMPORT = re.compile(r"^from (bkclient|wire)(?:\.\S+)? import (.+)$", re.MULTILINE)
NAMES = Path(__file__).with_name("public_names.txt").read_text(encoding="utf-8").split()


def test_the_doors_are_the_list() -> None:
    assert [
        f"{room.__name__}.{name}" for room in (bkclient, wire) for name in room.__all__
    ] == NAMES


@pytest.mark.parametrize("name", NAMES)
def test_each_name_opens(name: str) -> None:
    room, _, name = name.partition(".")
    assert getattr(sys.modules[room], name).__module__.startswith(("bkclient.", "wire.", "enum"))


def test_a_name_behind_no_door_is_refused() -> None:
    with pytest.raises(AttributeError, match="bkclient"):
        _ = bkclient.Nothing


def test_snippets_of_the_pages_go_through_the_doors() -> None:
    for page in ("README.md", "docs/library.md"):
        text = (ROOT / page).read_text(encoding="utf-8")
        for room, names in IMPORT.findall(text):
            for name in names.split(", "):
                assert f"{room}.{name}" in NAMES, (page, name)


@pytest.mark.parametrize("rooms", ["bkclient, wire", "pyspark_bookkeeper"])
def test_a_room_loads_nothing_before_it_is_asked(rooms: str) -> None:
    """Every Python worker of Spark imports all modules that are named ``pyspark_*``."""
    code = f"import sys, {rooms}; sys.exit(bool({{'twisted', 'crc32c'}} & sys.modules.keys()))"
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0
