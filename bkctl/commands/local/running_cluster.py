"""``bkctl local status DIR`` and ``local stop DIR``: a cluster that another process runs."""

from __future__ import annotations

import os
import shlex
import signal
import time
from pathlib import Path
from typing import TYPE_CHECKING, Final

from bkctl.commands.local.columns import LocalBookie, LocalSummary, show
from bkctl.commands.local.directory import (
    CONF_FILE,
    ClusterRecord,
    bookie_directory,
    read_record,
    refuse_others_directory,
)
from bkctl.commands.local.metadata import HOST
from bkctl.errors import ConflictError, NothingFoundError
from bkctl.exit_status import ExitStatus
from bkctl.output.units import counted
from bookied.directories.lock import is_locked, lock_owner

if TYPE_CHECKING:
    from bkctl.session.session import Session

STOP_S_MAX: Final = 60.0
_POLL_S: Final = 0.05


def status(session: Session, directory: Path) -> None:
    """Print the bookies of the cluster in a directory, and whether each of them runs.

    Raises:
        NothingFoundError: the directory holds no cluster of ``bkctl local``.
        RefusedError: the directory is another user's.
    """
    found = read(directory)
    show(session, found)
    if runner(directory) is None:
        session.note(f"the cluster is stopped; to start it: {_start_line(directory)}")
        return
    for one in found.bookies:
        if one.state == "down":
            conf = shlex.quote(str(Path(one.log).with_name(CONF_FILE)))
            session.note(f"to start {one.bookie_id} again: bookied --conf {conf}")


def stop(session: Session, directory: Path) -> None:
    """Stop the cluster in a directory; return when its last process has ended.

    Raises:
        NothingFoundError: the directory holds no cluster of ``bkctl local``.
        RefusedError: the directory is another user's.
        ConflictError: bookies run there that `bkctl local` does not run, or it goes on.
    """
    found = read(directory)
    pid = runner(directory)
    if pid is None:
        _insist_stopped(found)
        session.note(f"no cluster runs in {directory}")
        return
    number = counted(sum(one.state == "up" for one in found.bookies), "bookie")
    if session.dry_run:
        session.plan([f"stop process {pid} with {number}"])
        return
    session.note(f"stopping {number} in {directory}")
    os.kill(pid, signal.SIGTERM)
    deadline_s = time.monotonic() + STOP_S_MAX
    while runner(directory) == pid:
        if time.monotonic() > deadline_s:
            raise ConflictError(
                f"process {pid} still runs after {STOP_S_MAX:.0f} s",
                next_step=f"kill -9 {pid} ends it and its bookies",
                status=ExitStatus.TIME_LIMIT,
            )
        time.sleep(_POLL_S)
    session.note("stopped")


def read(directory: Path) -> LocalSummary:
    """Return what a directory says about its cluster, and which of its bookies run now.

    Raises:
        NothingFoundError: the directory holds no cluster of ``bkctl local``.
        RefusedError: the directory is another user's.
    """
    refuse_others_directory(directory)
    known = _record(directory)
    bookies = (
        _bookie(directory.absolute(), number, port) for number, port in enumerate(known.ports, 1)
    )
    return LocalSummary(known.uri, str(directory.absolute()), tuple(bookies))


def runner(directory: Path) -> int | None:
    """Return the process that runs the cluster in a directory; None if it is stopped."""
    return lock_owner(directory) if is_locked(directory) else None


def _record(directory: Path) -> ClusterRecord:
    known = read_record(directory)
    if known is None:
        raise NothingFoundError(
            f"{directory} holds no cluster of `bkctl local`",
            next_step="name the directory that --dir named",
        )
    return known


def _bookie(directory: Path, number: int, port: int) -> LocalBookie:
    home = bookie_directory(directory, number)
    ledgers = home / "ledgers"
    runs = is_locked(ledgers)
    return LocalBookie(
        bookie_id=f"{HOST}:{port}",
        state="up" if runs else "down",
        pid=lock_owner(ledgers) if runs else None,
        directory=str(home),
        log=str(home / "bookie.log"),
    )


def _insist_stopped(found: LocalSummary) -> None:
    running = [bookie for bookie in found.bookies if bookie.state == "up"]
    if running:
        pids = " ".join(str(bookie.pid) for bookie in running)
        raise ConflictError(
            f"{counted(len(running), 'bookie')} in {found.directory} was started by hand",
            next_step=f"kill {pids}",
        )


def _start_line(directory: Path) -> str:
    known = _record(directory)
    words = ["bkctl", "local", str(len(known.ports)), "--dir", str(directory)]
    if known.elsewhere:
        words += ["--zk", known.elsewhere.partition("://")[2].partition("/")[0]]
    elif known.zookeeper_port:
        words.append("--zookeeper")
    return shlex.join(words)
