"""``bkctl``, and ``python -m bkctl``: loads the command line, and runs it."""

from __future__ import annotations

import sys

# The module typing takes long to load: meanwhile a Ctrl-C would end with a traceback.
TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import NoReturn


def main() -> NoReturn:
    """Run the command line; a Ctrl-C that comes before a command can end in order is only told."""
    try:
        from bkctl.cli.root import main as run

        run()
    except KeyboardInterrupt:
        from bkctl.exit_status import ExitStatus

        sys.stderr.write("bkctl: interrupted\n")
        sys.exit(ExitStatus.INTERRUPTED)


if __name__ == "__main__":
    main()
