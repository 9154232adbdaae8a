"""What tests drive that is not ours: programs of the system, and peers that Java runs.

Where one is missing its tests are skipped and say so. In CI, which has them, that is a failure, but
for programs that ``.ci/run`` found no way to install and named in BKCTL_CI_WITHOUT.
"""

from __future__ import annotations

import os
import shutil

import pytest

from bkctl.commands.local.java import JavaNotFoundError, SparkNotFoundError, find_java, pyspark_jars


def program(name: str) -> str:
    """Return the path of a program; skip the test, or fail it, where there is none."""
    found = shutil.which(name)
    if found is not None:
        return found
    excused = name in os.environ.get("BKCTL_CI_WITHOUT", "").split()
    if os.environ.get("CI") == "true" and not excused:
        pytest.fail(f"{name} is missing in CI", pytrace=False)
    pytest.skip(f"{name} is not installed")


def missing(reason: Exception) -> None:
    """Skip the test, visibly; in CI fail it, for there a skip would hide that nothing ran."""
    if os.environ.get("CI") == "true":
        pytest.fail(f"a peer is missing in CI: {reason}", pytrace=False)
    pytest.skip(str(reason))


def require_zookeeper() -> None:
    """Skip the test, or fail it, where no ZooKeeper server can be run."""
    try:
        find_java()
        pyspark_jars()
    except (JavaNotFoundError, SparkNotFoundError) as error:
        missing(error)
