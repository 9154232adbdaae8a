"""The steps of the Dockerfile, without Docker: its scripts run, and it copies what they need."""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
DOCKERFILE = (ROOT / "Dockerfile").read_text(encoding="utf-8")


def shell(*words: object, **environ: str) -> str:
    command = ["sh", *map(str, words)]
    done = subprocess.run(
        command,
        check=False,
        capture_output=True,
        text=True,
        timeout=900,
        env={**os.environ, **environ},
    )
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


def sent(directory: Path) -> Path:
    """Copy what ``.dockerignore`` lets through, as docker sends it."""
    lines = (ROOT / ".dockerignore").read_text(encoding="utf-8").split()
    assert lines[0] == "*"
    source = directory / "src"
    source.mkdir()
    for name in (line[1:] for line in lines if line.startswith("!")):
        path = ROOT / name
        if path.is_dir():
            ignored = shutil.ignore_patterns("__pycache__")
            shutil.copytree(path, source / name, ignore=ignored)
        else:
            shutil.copy(path, source / name)
    return source


@pytest.mark.processes
def test_what_is_sent_installs_by_the_lock_and_runs(tmp_path: Path) -> None:
    target = tmp_path / "bkctl"
    # Few of the modules are imported, so each is compiled when it is.
    told = shell(ROOT / "container/install.sh", sent(tmp_path), target, PIP_COMPILE="0")
    assert told.startswith("No broken requirements found.\nbkctl 0.")
    for page in ("share/man/man8/bookied.8", "share/man/man1/bkctl.1"):
        assert (target / page).exists()


def test_the_user_of_the_image_is_made_once(tmp_path: Path) -> None:
    (tmp_path / "etc").mkdir()
    for name in ("group", "passwd"):
        (tmp_path / "etc" / name).write_text("root:x:0:\n")
    for _ in range(2):
        shell(ROOT / "container/user.sh", ROOT=str(tmp_path))
    (user,) = (tmp_path / "etc/passwd").read_text().splitlines()[1:]
    assert user == "bookkeeper:x:10000:10000::/var/lib/bookkeeper:/usr/sbin/nologin"
    assert (tmp_path / "var/lib/bookkeeper").stat().st_mode & 0o777 == 0o750


def test_the_dockerfile_runs_these_scripts_and_bookied_as_no_root() -> None:
    scripts = re.findall(r"RUN sh \S*/(\w+\.sh)", DOCKERFILE)
    assert scripts == ["install.sh", "user.sh"]
    (user,) = re.findall(r"^USER (.*)$", DOCKERFILE, re.MULTILINE)
    assert user == "bookkeeper"
    (entry,) = re.findall(r"^ENTRYPOINT (.*)$", DOCKERFILE, re.MULTILINE)
    assert json.loads(entry) == ["bookied"]
    assert DOCKERFILE.index("USER ") > DOCKERFILE.rindex("RUN ")
