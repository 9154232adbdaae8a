"""The file of the history: readable only by its owner, bounded, and without secrets."""

from __future__ import annotations

import contextlib
import os
from collections.abc import Mapping
from pathlib import Path
from typing import Final
from urllib.parse import quote

from prompt_toolkit.history import FileHistory, History, InMemoryHistory

from shell.secret import is_private

SIZE_BYTES_MAX: Final = 1024 * 1024
"""A longer file loses its older half when the shell starts."""


def history_path(program: str, environ: Mapping[str, str], place: str = "") -> Path | None:
    """Return the path of a program's history in the user's state directory (XDG).

    Each place of commands has a file of its own. None for a user without a home directory.
    """
    state = environ.get("XDG_STATE_HOME", "")
    # By the XDG rules, a path that is not absolute counts as not set.
    if not state.startswith("/"):
        state = os.path.expanduser("~/.local/state")  # noqa: PTH111 -- that one raises without a home
    if not state.startswith("/"):
        return None
    return Path(state) / program / (f"history-{quote(place, safe='')}" if place else "history")


class KeptHistory(FileHistory):
    """A history that does not store private lines, and continues without the disk."""

    def store_string(self, string: str) -> None:
        if not is_private(string):
            with contextlib.suppress(OSError):
                super().store_string(string)


def open_history(path: Path | None) -> History:
    """Open or create a history file that only its owner can read; without a path, use memory."""
    if path is None:
        return InMemoryHistory()
    try:
        path.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
        os.close(os.open(path, os.O_RDWR | os.O_CREAT | os.O_APPEND, 0o600))
        path.chmod(0o600)
        _shorten(path)
    except OSError:
        return InMemoryHistory()
    return KeptHistory(str(path))


def _shorten(path: Path) -> None:
    """Drop the older half of a file that is too long, at the border of an entry."""
    if path.stat().st_size <= SIZE_BYTES_MAX:
        return
    data = path.read_bytes()[-SIZE_BYTES_MAX // 2 :]
    kept = data[data.find(b"\n# ") + 1 :]
    beside = path.with_name(f"{path.name}.{os.getpid()}")
    with open(os.open(beside, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600), "wb") as file:  # noqa: PTH123
        file.write(kept)
    beside.replace(path)
