"""``bkctl``, and ``python -m bkctl``: loads and runs the command line."""

from __future__ import annotations

import sys

# The module typing loads slowly; a Ctrl-C meanwhile would end with a traceback.
TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import NoReturn


def main() -> NoReturn:
    """Run the command line; a Ctrl-C before a command can end in order is only reported."""
    try:
        from bkctl.cli.root import main as run

        run()
    except KeyboardInterrupt:
        from bkctl.exit_status import ExitStatus

        sys.stderr.write("bkctl: interrupted\n")
        sys.exit(ExitStatus.INTERRUPTED)


if __name__ == "__main__":
    main()
