"""Programs of the system that tests drive: mandoc, zsh, fish, systemd-analyze.

Where one is not installed its tests are skipped and say so. In CI, which installs them, that is a
failure, but for those that ``.ci/run`` found no way to install and named in BKCTL_CI_WITHOUT.
"""

from __future__ import annotations

import os
import shutil

import pytest


def program(name: str) -> str:
    """Return the path of a program; skip the test, or fail it, where there is none."""
    found = shutil.which(name)
    if found is not None:
        return found
    excused = name in os.environ.get("BKCTL_CI_WITHOUT", "").split()
    if os.environ.get("CI") == "true" and not excused:
        pytest.fail(f"{name} is missing in CI", pytrace=False)
    pytest.skip(f"{name} is not installed")
