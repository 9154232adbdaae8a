"""A line that says what is waited for, on a terminal, once a wait takes longer than a second."""

from __future__ import annotations

import os
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from bkctl.host import Host
    from bkctl.options import Options

EVERY_S: Final = 1.0
_COLUMNS_DEFAULT: Final = 80
ERASE: Final = "\r\x1b[K"


@contextmanager
def waiting(options: Options, host: Host, what: str, *, every_s: float = EVERY_S) -> Iterator[bool]:
    """Show ``what`` and the seconds so far while the block runs; the line vanishes at the end.

    Nothing is shown where stderr is not a terminal, with --quiet, and off the main thread: a shell
    looks at the cluster in the background, behind its prompt. The block is given whether the line
    may be shown: what it writes to the terminal begins with ``ERASE`` then.
    """
    if not _shows(options, host):
        yield False
        return
    ended = threading.Event()
    shower = threading.Thread(target=_show, args=(host, what, ended, every_s), daemon=True)
    shower.start()
    try:
        yield True
    finally:
        ended.set()
        shower.join()


def _shows(options: Options, host: Host) -> bool:
    return (
        not options.quiet
        and options.progress == "auto"
        and host.environ.get("TERM", "dumb") != "dumb"
        and not host.environ.get("CI")
        and threading.current_thread() is threading.main_thread()
        and host.stderr.isatty()
    )


def _columns() -> int:
    try:
        return os.get_terminal_size().columns
    except OSError:
        return _COLUMNS_DEFAULT


def _show(host: Host, what: str, ended: threading.Event, every_s: float) -> None:
    count = 0
    while not ended.wait(every_s):
        count += 1
        text = f"{what} ({count * every_s:.0f} s)"[: _columns() - 1]
        print(f"{ERASE}{text}", end="", file=host.stderr, flush=True)
    if count:
        print(ERASE, end="", file=host.stderr, flush=True)
