"""The limits that a bookie checks at its start: open files, threads and file size."""

from __future__ import annotations

import resource
import threading
from typing import Final

from twisted.logger import Logger

from bookied.config.bookie import BookieConfig
from bookied.errors import OpenFilesError, ThreadsError

log = Logger()

OPEN_FILES_MIN: Final = 128
"""The lowest limit with which a bookie works; see tests/live/bookied/test_few_descriptors.py."""

THREADS_MIN: Final = 48
"""Threads that a start needs: RocksDB opens files with 16, and aborts the process without them."""

_SMALL_STACK_BYTES: Final = 64 * 1024


def raise_open_files_limit() -> None:
    """Raise the limit on open files to the hard limit."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if soft != hard:
        resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))


def require_enough_open_files() -> None:
    """Refuse a limit with which a checkpoint, a stop or a client would fail later.

    Raises:
        OpenFilesError: the limit is too low.
    """
    allowed = resource.getrlimit(resource.RLIMIT_NOFILE)[0]
    if 0 <= allowed < OPEN_FILES_MIN:
        raise OpenFilesError(
            f"the process may open {allowed} files, and a bookie needs {OPEN_FILES_MIN}: raise "
            "`ulimit -n`, or LimitNOFILE of its unit"
        )


def require_enough_threads(config: BookieConfig) -> None:
    """Refuse a limit with which a thread could not start later.

    Raises:
        ThreadsError: the limit is too low.
    """
    may_end, started = threading.Event(), list[threading.Thread]()
    stack_bytes = threading.stack_size(_SMALL_STACK_BYTES)
    try:
        for _ in range(THREADS_MIN + config.read_threads):
            thread = threading.Thread(target=may_end.wait, daemon=True)
            thread.start()
            started.append(thread)
    except RuntimeError as error:
        raise ThreadsError from error
    finally:
        threading.stack_size(stack_bytes)
        may_end.set()
        for thread in started:
            thread.join()


def warn_of_small_files(config: BookieConfig) -> None:
    """Log a warning if a journal or an entry log can reach the limit on the file size."""
    allowed = resource.getrlimit(resource.RLIMIT_FSIZE)[0]
    needed = max(config.journal_bytes_max, config.log_bytes_max)
    if 0 <= allowed < needed:
        log.warn(
            "the process may write files of {allowed} bytes, and journals and entry logs reach "
            "{needed}: writes will fail. Raise `ulimit -f`, or LimitFSIZE of its unit; or lower "
            "journalMaxSizeMB and logSizeLimit",
            allowed=allowed,
            needed=needed,
        )
