"""The lock files name every dependency once, by version and hash, and no host."""

from __future__ import annotations

import re
import sys
from pathlib import Path

import pytest
from packaging.requirements import Requirement
from packaging.version import Version

if sys.version_info >= (3, 11):
    import tomllib
else:
    import tomli as tomllib

ROOT = Path(__file__).parents[2]
RUNTIME, TEST = "requirements.lock", "requirements-test.lock"
"""The container is made with the first one, CI with the second one, which has all extras."""

locks = pytest.mark.parametrize("name", [RUNTIME, TEST])


def text_of(name: str) -> str:
    return (ROOT / name).read_text(encoding="utf-8")


def locked(name: str) -> dict[str, list[Version]]:
    found: dict[str, list[Version]] = {}
    lines = re.findall(r"^([A-Za-z0-9_.-]+)==([^ ;]+)", text_of(name), re.MULTILINE)
    for package, version in lines:
        found.setdefault(_plain(package), []).append(Version(version))
    return found


def _plain(name: str) -> str:
    return re.sub(r"[-_.]+", "-", name).lower()


def wanted(name: str) -> list[Requirement]:
    project = tomllib.loads(text_of("pyproject.toml"))["project"]
    extras = project["optional-dependencies"].values() if name == TEST else ()
    found = map(Requirement, [*project["dependencies"], *(one for some in extras for one in some)])
    return [one for one in found if _plain(one.name) != "bkctl"]


@locks
def test_every_dependency_is_locked_to_a_version_that_will_do(name: str) -> None:
    versions = locked(name)
    for one in wanted(name):
        assert versions[_plain(one.name)], one
        for version in versions[_plain(one.name)]:
            assert version in one.specifier, f"{one}: {name} has {version}"


@locks
def test_every_locked_version_has_hashes(name: str) -> None:
    blocks = re.split(r"^(?=[A-Za-z0-9])", text_of(name), flags=re.MULTILINE)
    without = [block[:40] for block in blocks if "==" in block and "--hash=sha256:" not in block]
    assert without == []


@locks
def test_the_lock_names_no_host_and_no_path(name: str) -> None:
    assert re.findall(r"https?:|file:|index-url|find-links|@ ", text_of(name)) == []
