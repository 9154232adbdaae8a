"""Break modules at every place, one at a time, and see whether their tests notice.

    pip install cosmic-ray
    python -m tests.mutants bkclient/quorum --tests tests/bkclient/quorum --workers 2

The modules are changed in copies, never here. Survivors are printed as the line that was changed.
Those that ``judged.toml`` names, with the reason why they do no harm, are only counted. Ends with
status 1 if there are others.
"""

from __future__ import annotations

import argparse
import os
import shutil
import sqlite3
import subprocess
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Final

import attrs

if sys.version_info >= (3, 11):
    import tomllib
else:
    import tomli as tomllib

ROOT: Final = Path(__file__).parents[2]
JUDGED: Final = Path(__file__).with_name("judged.toml")
LEFT_OUT: Final = (
    # Most of them are type errors, or the same in an annotation.
    "core/ReplaceBinaryOperator_(?!Add_Sub|Sub_Add|LShift_RShift|Mul_Add|BitAnd_BitOr).*",
    "core/ReplaceComparisonOperator_(?!Is_|IsNot_).*_(Is|IsNot)$",
    "core/ReplaceComparisonOperator_Is_(?!IsNot$).*",
    "core/ReplaceComparisonOperator_IsNot_(?!Is$).*",
    # The opposite is noticed wherever one of these is.
    "core/ReplaceComparisonOperator_(Eq|NotEq)_(Lt|LtE|Gt|GtE)$",
    "core/ReplaceComparisonOperator_(Lt|LtE|Gt|GtE)_(Eq|NotEq)$",
    "core/ReplaceUnaryOperator_(?!Delete_Not).*",
    "core/RemoveDecorator",
)
"""Kinds of changes that tell nothing about tests."""


@attrs.frozen
class Mutant:
    """A line that was changed: what stood there, and what stands there then."""

    module: str
    line: int
    was: str
    becomes: str

    def is_like(self, judged: dict[str, str]) -> bool:
        """Whether an entry of ``judged.toml`` means this one."""
        named = (judged["module"], judged["was"], judged.get("becomes", self.becomes))
        return (self.module, self.was, self.becomes) == named


@attrs.frozen
class Outcome:
    """How many mutants of a module were noticed, and which were not."""

    noticed: int
    survivors: tuple[Mutant, ...]


def main(arguments: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("modules", nargs="+", help="files, or directories with all files in them")
    parser.add_argument("--tests", nargs="+", required=True, help="what has to notice")
    parser.add_argument("--workers", type=int, default=1)
    asked = parser.parse_args(arguments)
    program = Path(sys.executable).with_name("cosmic-ray")
    if not program.exists():
        parser.error("cosmic-ray is not installed; pip install cosmic-ray")
    modules = [one for name in asked.modules for one in files_of(name)]
    test_command = [sys.executable, "-m", "pytest", "-qx", "-p", "no:cacheprovider", *asked.tests]
    with tempfile.TemporaryDirectory(prefix="mutants-") as scratch:
        began = time.monotonic()
        if subprocess.run(test_command, cwd=copy(Path(scratch, "whole")), check=False).returncode:
            parser.error("the tests fail without any change")
        timeout_s = 10 + 5 * (time.monotonic() - began)
        run = Run(program, test_command, timeout_s, Path(scratch))
        with ThreadPoolExecutor(asked.workers) as pool:
            outcomes = list(pool.map(run.of, modules))
    return report(outcomes)


def files_of(name: str) -> list[str]:
    path = ROOT / name
    found = sorted(path.rglob("*.py")) if path.is_dir() else [path]
    return [one.relative_to(ROOT).as_posix() for one in found if one.stat().st_size > 200]


def copy(target: Path) -> Path:
    """Copy what git tracks."""
    listed = subprocess.run(
        ["git", "ls-files", "-z"], cwd=ROOT, capture_output=True, check=True
    ).stdout
    for name in filter(None, listed.decode().split("\0")):
        (target / name).parent.mkdir(parents=True, exist_ok=True)
        shutil.copy2(ROOT / name, target / name, follow_symlinks=False)
    return target


@attrs.frozen
class Run:
    """A run of cosmic-ray over modules, each in a copy of the tree."""

    program: Path
    test_command: Sequence[str]
    timeout_s: float
    scratch: Path

    def of(self, module: str) -> Outcome:
        """Try all mutants of a module."""
        tree = copy(self.scratch / module.replace("/", "."))
        config, session = tree / "mutants.toml", tree / "mutants.sqlite"
        config.write_text(self._config(module))
        # Compiled code of one mutant would stand for the next one of the same second and size.
        nothing_compiled = {"PYTHONDONTWRITEBYTECODE": "1", "PYTHONPYCACHEPREFIX": os.devnull}
        environment = {**os.environ, **nothing_compiled}
        for name, *words in (
            ("cosmic-ray", "init", config, session),
            ("cr-filter-operators", session, config),
            ("cosmic-ray", "exec", config, session),
        ):
            command = [str(self.program.with_name(name)), *map(str, words)]
            # It changes the files below its working directory.
            subprocess.run(
                command, cwd=tree, env=environment, check=True, stdout=subprocess.DEVNULL
            )
        outcome = read(session)
        shutil.rmtree(tree)
        print(f"{module}: {outcome.noticed} noticed, {len(outcome.survivors)} not", flush=True)
        return outcome

    def _config(self, module: str) -> str:
        left_out = "".join(f"  '{one}',\n" for one in LEFT_OUT)
        return (
            f"[cosmic-ray]\nmodule-path = '{module}'\ntimeout = {self.timeout_s:.0f}\n"
            f"test-command = '{' '.join(self.test_command)}'\n"
            "[cosmic-ray.distributor]\nname = 'local'\n"
            f"[cosmic-ray.filters.operators-filter]\nexclude-operators = [\n{left_out}]\n"
        )


def read(session: Path) -> Outcome:
    """Read what came of a session."""
    query = (
        "select module_path, start_pos_row, test_outcome, diff from work_results "
        "join mutation_specs using (job_id) where worker_outcome != 'SKIPPED' order by 1, 2"
    )
    connection = sqlite3.connect(session)
    try:
        rows = connection.execute(query).fetchall()
    finally:
        connection.close()
    survivors = tuple(
        Mutant(module, line, _lines(diff, "-"), _lines(diff, "+"))
        for module, line, outcome, diff in rows
        if outcome == "SURVIVED"
    )
    return Outcome(len(rows) - len(survivors), survivors)


def _lines(diff: str, sign: str) -> str:
    marked = [one for one in diff.splitlines() if one.startswith(sign)]
    return "\n".join(one[1:].strip() for one in marked if not one.startswith(sign * 3))


def report(outcomes: Sequence[Outcome]) -> int:
    """Print survivors; return the status."""
    judged = tomllib.loads(JUDGED.read_text(encoding="utf-8"))["lines"]
    survivors = [mutant for outcome in outcomes for mutant in outcome.survivors]
    harmless = [one for one in survivors if any(one.is_like(other) for other in judged)]
    left = [one for one in survivors if one not in harmless]
    for mutant in left:
        print(f"\n{mutant.module}:{mutant.line}\n- {mutant.was}\n+ {mutant.becomes}")
    noticed = sum(outcome.noticed for outcome in outcomes)
    counts = Counter(noticed=noticed, harmless=len(harmless), survived=len(left))
    print("\n" + ", ".join(f"{count} {name}" for name, count in counts.items()))
    return 1 if left else 0


if __name__ == "__main__":
    sys.exit(main())
