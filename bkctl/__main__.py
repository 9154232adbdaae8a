"""``bkctl``, and ``python -m bkctl``: loads the command line, and runs it."""

from __future__ import annotations

import sys
from typing import NoReturn


def main() -> NoReturn:
    """Run the command line; a Ctrl-C that comes while it is being loaded is only told."""
    try:
        from bkctl.cli import main as run
    except KeyboardInterrupt:
        from bkctl.exit_status import ExitStatus

        sys.stderr.write("bkctl: interrupted\n")
        sys.exit(ExitStatus.INTERRUPTED)
    run()


if __name__ == "__main__":
    main()
