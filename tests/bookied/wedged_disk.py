"""A command on a disk that stops answering: while a given file is there, no sync returns.

python -m tests.bookied.wedged_disk FILE python -m bookied --conf bk.conf
"""

from __future__ import annotations

import os
import runpy
import sys
import time
from pathlib import Path


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
