"""A Spark that is quick to start: tests end before a JVM's optimising compiler pays."""

from __future__ import annotations

import subprocess
import venv
from pathlib import Path
from typing import Final

QUICK_JVM: Final = (
    "-XX:TieredStopAtLevel=1",
    "-XX:+UseSerialGC",
    "-XX:+UnlockDiagnosticVMOptions",
    "-XX:-BytecodeVerificationRemote",
)

QUICK: Final = {
    "spark.driver.extraJavaOptions": " ".join(QUICK_JVM),
    "spark.executor.extraJavaOptions": " ".join(QUICK_JVM),
    "spark.sql.shuffle.partitions": "2",
}
"""Options of a session: half the CPU for the first queries."""


def quick_in(directory: Path) -> dict[str, str]:
    """Return ``QUICK``, with a directory for the temporary files of the driver and executors."""
    options = " ".join((*QUICK_JVM, f"-Djava.io.tmpdir={directory}"))
    return QUICK | {f"spark.{one}.extraJavaOptions": options for one in ("driver", "executor")}


def bare_python(directory: Path) -> Path:
    """Make a Python in a directory that has no packages; return its program."""
    venv.create(directory / "bare", symlinks=True, with_pip=False)
    program = directory / "bare" / "bin" / "python3"
    for package in ("bkctl", "pyarrow", "pyspark"):
        found = subprocess.run(
            [program, "-c", f"import {package}"], check=False, capture_output=True, cwd=directory
        )
        assert found.returncode == 1, f"{program} has {package}"
    return program
