"""README and CI say the same."""

from __future__ import annotations

import re
from pathlib import Path

ROOT = Path(__file__).parents[2]


def _shell_blocks() -> list[str]:
    return re.findall(r"```sh\n(.*?)```", (ROOT / "README.md").read_text(), re.DOTALL)


def test_ci_runs_the_test_command_of_the_readme() -> None:
    install, run = re.search(
        r"^python3 -m venv \.venv && (.*) && (\.venv/bin/pytest -n 2)$",
        _shell_blocks()[1],
        re.MULTILINE,
    ).groups()
    ci = (ROOT / ".ci/run").read_text()
    assert install.replace(".venv", '"$venv', 1).replace("/pip", '/pip"', 1) in ci
    assert '"$venv/bin/pytest" -n 2\n' in ci
    assert run == ".venv/bin/pytest -n 2"
