"""A cluster as a user starts it: ``bkctl local`` in a process of its own."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import attrs

from bkctl.commands.local.child_process import ChildProcess
from tests.support.child_processes import LINES_MAX, until_child

START_TIMEOUT_S = 200.0
BKCTL = [sys.executable, "-c", "import sys; from bkctl.__main__ import main; sys.exit(main())"]


@attrs.frozen
class Cluster:
    """A running cluster: where it lives, and the metadata service to give to commands."""

    directory: Path
    uri: str


@contextmanager
def local_cluster(directory: Path, bookies: int = 3, *options: str) -> Iterator[Cluster]:
    """Run a cluster; stop it with SIGTERM, whatever happens."""
    command = [*BKCTL, "local", str(bookies), "--dir", str(directory), *options]
    log = directory.with_suffix(".log")
    log.unlink(missing_ok=True)
    process = ChildProcess(command, log)
    try:
        until_child(
            process,
            lambda: "in another terminal" in process.log_tail(LINES_MAX),
            timeout_s=START_TIMEOUT_S,
        )
        env = (directory / "bkctl.env").read_text()
        yield Cluster(directory, env.split("BKCTL_SERVICE_URI=")[1].split()[0])
    finally:
        assert process.stop(90) == 0, process.log_tail(LINES_MAX)
