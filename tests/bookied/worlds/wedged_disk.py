"""A bookie on a disk that stops answering: while a given file is there, no sync returns.

python -m tests.bookied.worlds.wedged_disk FILE python -m bookied --conf bk.conf
"""

from __future__ import annotations

import os
import runpy
import sys
import time
from pathlib import Path

from tests.live.bookied.processes import BookieProcess, make_cluster, write_conf

WATCHDOG_S = 0.4


class Wedged:
    """A bookie whose disk can be told to hang."""

    def __init__(self, directory: Path, **settings: object) -> None:
        self._wedge = directory / "wedge"
        self._conf = write_conf(
            directory / "b1", make_cluster(directory / "metadata.db"), **settings
        )
        self.bookie = self.start()

    def start(self) -> BookieProcess:
        """Start it, anew as well."""
        runner = (sys.executable, "-m", "tests.bookied.worlds.wedged_disk", str(self._wedge))
        self.bookie = BookieProcess(
            self._conf, prefix=runner, WATCHDOG_USEC=str(round(WATCHDOG_S * 1e6))
        )
        return self.bookie.ready()

    def hang(self) -> None:
        """Have no sync return from now on."""
        self._wedge.touch()

    def end(self) -> None:
        """End the process, if it is there still."""
        if self.bookie.process.poll() is None:
            self.bookie.kill()

    def answer(self) -> None:
        """Have them return, those that wait as well."""
        self._wedge.unlink(missing_ok=True)


def main() -> None:
    flag, _python, _option, module, *arguments = sys.argv[1:]
    wedge, sync = Path(flag), os.fdatasync

    def sync_once_it_answers(fd: int) -> None:
        while wedge.exists():
            time.sleep(0.01)
        sync(fd)

    os.fdatasync = sync_once_it_answers
    sys.argv = [module, *arguments]
    runpy.run_module(module, run_name="__main__", alter_sys=True)


if __name__ == "__main__":
    main()
