"""What a command imports, seen in a process of its own."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Mapping, Sequence


def run_without(names: Sequence[str], script: str, environ: Mapping[str, str] | None = None) -> str:
    """Run a script that sets ``status``; see that it ends with that and has imported none of these.

    Returns what it printed.
    """
    code = (
        f"import sys\n{script}\n"
        f"found = sorted(name for name in {tuple(names)!r} if name in sys.modules)\n"
        "sys.exit(f'imported: {found}' if found else status)"
    )
    done = subprocess.run(
        [sys.executable, "-c", code], check=False, capture_output=True, text=True, env=environ
    )
    assert done.returncode == 0, done.stderr
    return done.stdout
