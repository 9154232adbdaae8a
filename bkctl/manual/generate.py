"""Write the files made from the click tree and the settings: ``python -m bkctl.manual.generate``.

With ``--check`` nothing is written; stale files are named, and the status is 1. ``man/`` and
``completions/`` contain nothing else: the page of a removed command is deleted. In ``docs/`` it
writes the list of commands and the schema of their output, and it writes all of ``monitoring/``.
"""

from __future__ import annotations

import re
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Final

from bkctl.cli.completion.scripts import FILES, SCRIPTS
from bkctl.cli.root import cli
from bkctl.manual.man_pages import PageFooter, pages

ROOT: Final = Path(__file__).parents[2]
DIRECTORIES: Final = ("completions", "man")

RELEASED: Final = "2026-11-22"
"""The date in the manual pages: that of the version in pyproject.toml."""


def edition() -> PageFooter:
    """Return the version of the generated files."""
    found = re.search(r'^version = "(.*)"$', (ROOT / "pyproject.toml").read_text(), re.MULTILINE)
    assert found is not None
    return PageFooter(RELEASED, found[1])


def generated() -> dict[str, str]:
    """Return the content of every generated file by its path below ``ROOT``."""
    from bkctl.manual.commands_page import page
    from bkctl.manual.man_daemon import daemon_pages
    from bkctl.manual.output_schema import schema_text
    from bookied.admin.monitoring.dashboard import alert_rules, grafana

    made = edition()
    manual = {**pages(cli, made), **daemon_pages(made)}
    return {
        **{f"man/{name}": text for name, text in sorted(manual.items())},
        **{f"completions/{FILES[shell]}": text for shell, text in SCRIPTS.items()},
        "docs/commands.md": page(),
        "docs/output.schema.json": schema_text(),
        "monitoring/bookied-dashboard.json": grafana(),
        "monitoring/bookied-alerts.yml": alert_rules(),
    }


def stale(wanted: Mapping[str, str], root: Path = ROOT) -> list[str]:
    """Return the files that are missing, changed or no longer generated."""
    found = {
        str(path.relative_to(root))
        for directory in DIRECTORIES
        for path in (root / directory).glob("*")
    }
    return sorted(name for name in {*found, *wanted} if _content(root / name) != wanted.get(name))


def _content(path: Path) -> str | None:
    return path.read_text(encoding="utf-8") if path.exists() else None


def write(wanted: Mapping[str, str], root: Path = ROOT) -> list[str]:
    """Write or delete files as needed; return the changed files."""
    changed = stale(wanted, root)
    for name in changed:
        path = root / name
        if name in wanted:
            path.parent.mkdir(exist_ok=True)
            path.write_text(wanted[name], encoding="utf-8")
        else:
            path.unlink()
    return changed


def main(arguments: Sequence[str]) -> int:
    """Write the files, or with ``--check`` name the stale ones."""
    wanted = generated()
    checking = "--check" in arguments
    names = stale(wanted) if checking else write(wanted)
    sys.stdout.writelines(f"{name}\n" for name in names)
    return 1 if checking and names else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
