"""``--lock FILE``: one run at a time, for cron and scripts.

The lock is the kernel's, on the file, and ends with the process however that ends: a file that is
left over locks nobody out. What is written in it only says who holds it.
"""

from __future__ import annotations

import contextlib
import fcntl
import os
from collections.abc import Callable, Iterator
from typing import Final

from bkctl.errors import ConflictError, UsageError

LOOK_EVERY_S: Final = 0.2
"""How often a run that waits tries again."""

_WORDS_MAX: Final = 300


class LockedError(ConflictError):
    """Another run holds the lock; nothing was done."""

    hint = "wait for it with --lock-wait SECONDS"


@contextlib.contextmanager
def held(path: str, words: str, *, wait_s: float, sleep: Callable[[float], None]) -> Iterator[None]:
    """Hold a lock while the block runs; ``words`` tell others who does.

    Raises:
        LockedError: another one holds it, and still does after ``wait_s``.
        UsageError: there can be no such file.
    """
    try:
        number = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o644)
    except OSError as error:
        raise UsageError(f"--lock {path}: {error.strerror}") from error
    try:
        while not _taken(number):
            if wait_s <= 0:
                holder = os.pread(number, _WORDS_MAX, 0).decode("utf-8", "replace").strip()
                by = f" by {holder}" if holder else ""
                raise LockedError(f"{path} is locked{by}; nothing was done")
            sleep(min(LOOK_EVERY_S, wait_s))
            wait_s -= LOOK_EVERY_S
        os.ftruncate(number, 0)
        os.pwrite(number, f"process {os.getpid()}: {words}\n".encode(), 0)
        yield
    finally:
        os.close(number)


def _taken(number: int) -> bool:
    try:
        fcntl.flock(number, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    return True
