"""``bkctl local status DIR`` and ``local stop DIR``: a cluster that another process runs."""

from __future__ import annotations

import contextlib
import os
import shlex
import signal
import time
from collections.abc import Callable
from pathlib import Path
from typing import Final

from bkctl.commands.local.columns import LocalBookie, LocalSummary, show
from bkctl.commands.local.directory import (
    CONF_FILE,
    ClusterRecord,
    bookie_directory,
    bookie_id_in,
    holds_cluster,
    host_of,
    is_decommissioned,
    locked_root,
    read_record,
    refuse_others_directory,
    refuse_started_by_hand,
)
from bkctl.commands.local.metadata import ClusterMetadata
from bkctl.errors import ConflictError, NothingFoundError
from bkctl.exit_status import ExitStatus
from bkctl.output.units import counted
from bkctl.session.session import Session
from bookied.directories.lock import LOCK, is_locked, lock_owner
from wire.errors import BookKeeperError

_WAIT_S_MAX: Final = 60.0
_POLL_S: Final = 0.05


def status(session: Session, directory: Path) -> None:
    """Print the bookies of the cluster in a directory, and whether each of them runs.

    Raises:
        NothingFoundError: the directory holds no cluster of ``bkctl local``.
        RefusedError: the directory is another user's.
    """
    with session.messages.waiting("waiting for the metadata"):
        cookies = cookies_of(directory)
    found = read(directory, cookies)
    show(session, found)
    if cookies is None and any(map(_may_be_out, found.bookies)):
        session.note(
            "the metadata does not answer, or has no cookies: a bookie that is shown as down may "
            "have been decommissioned"
        )
    if not is_locked(directory):
        by_hand = [one for one in found.bookies if one.state == "up"]
        pids = " ".join(str(one.pid) for one in by_hand if one.pid is not None)
        first = f"first kill {pids}, " if pids else ""
        runs = f"; {counted(len(by_hand), 'bookie')} started by hand still up" if by_hand else ""
        start = f"to start it: {first}{'then ' if first else ''}{start_line(directory)}"
        session.note(f"the cluster is stopped{runs}; {start}")
        return
    for one in found.bookies:
        if one.state == "down":
            line = shlex.join(["bkctl", "local", "start", str(directory), one.bookie_id])
            session.note(f"to start {one.bookie_id} again: {line}")


def stop(session: Session, directory: Path) -> None:
    """Stop the cluster in a directory; return when its last process has ended.

    Raises:
        NothingFoundError: the directory holds no cluster of ``bkctl local``.
        RefusedError: the directory is another user's.
        ConflictError: bookies run there that `bkctl local` does not run, or it goes on.
    """
    found = read(directory)
    if not is_locked(directory):
        _refuse_started_by_hand(found)
        session.note(f"no cluster runs in {directory}")
        return
    pid = insist_owner(directory)
    if session.dry_run:
        session.plan([f"stop process {pid} with its bookies"])
        return
    session.note(f"stopping the cluster in {directory}")
    with contextlib.suppress(ProcessLookupError):
        os.kill(pid, signal.SIGTERM)
    with session.messages.waiting(f"waiting for process {pid} to end"):
        wait_until(
            lambda: not runs(pid),
            f"process {pid} still runs",
            next_step=f"kill -9 {pid} ends it and its bookies",
        )
    _refuse_started_by_hand(found)
    session.note("stopped")


def running_directories() -> list[Path]:
    """Return the directories of the clusters of this user with a bookie that runs, by /proc."""
    found = set()
    for process in Path("/proc").glob("[0-9]*"):
        with contextlib.suppress(OSError):  # It has ended meanwhile, or is another user's.
            conf = (process / "cmdline").read_bytes().partition(b"\0--conf\0")[2]
            file = Path(os.fsdecode(conf.partition(b"\0")[0]))
            directory = file.parent.parent
            is_own = process.stat().st_uid == os.geteuid()
            if is_own and file.name == CONF_FILE and holds_cluster(directory):
                found.add(directory)
    return sorted(found)


def runs(pid: int) -> bool:
    """Return whether a process runs; one that has ended may wait for its parent."""
    try:
        os.kill(pid, 0)
        stat = Path(f"/proc/{pid}/stat").read_text(encoding="utf-8", errors="replace")
    except ProcessLookupError:
        return False
    except OSError:
        return True  # Without /proc.
    return not stat.rpartition(")")[2].lstrip().startswith("Z")


def wait_until(is_done: Callable[[], bool], otherwise: str, next_step: str) -> None:
    """Wait for what another process does.

    Raises:
        ConflictError: it is not done after a minute; the message begins with ``otherwise``.
    """
    deadline_s = time.monotonic() + _WAIT_S_MAX
    while not is_done():
        if time.monotonic() > deadline_s:
            raise ConflictError(
                f"{otherwise} after {_WAIT_S_MAX:.0f} s",
                next_step=next_step,
                status=ExitStatus.TIME_LIMIT,
            )
        time.sleep(_POLL_S)


def read(directory: Path, cookies: frozenset[str] | None = None) -> LocalSummary:
    """Return what a directory says about its cluster, and which of its bookies run now.

    ``cookies`` are the bookies that have one: another one may have been decommissioned.

    Raises:
        NothingFoundError: the directory holds no cluster of ``bkctl local``.
        RefusedError: the directory is another user's.
    """
    refuse_others_directory(directory)
    known = _record(directory)
    bookies = (
        _bookie(directory.absolute(), number, f"{host_of(number, known.racks)}:{port}", cookies)
        for number, port in enumerate(known.ports, 1)
    )
    return LocalSummary(known.uri, str(directory.absolute()), tuple(bookies))


def insist_owner(root: Path) -> int:
    """Return the process that has locked a root.

    Raises:
        ConflictError: it cannot be determined.
    """
    pid = lock_owner(root)
    if pid is None:
        raise ConflictError(
            f"{root} is locked, and the process cannot be determined",
            next_step=f"to see the process: fuser -v {shlex.quote(str(root / LOCK))}",
        )
    return pid


def _record(directory: Path) -> ClusterRecord:
    known = read_record(directory)
    if known is None:
        raise NothingFoundError(
            f"{directory} holds no cluster of `bkctl local`",
            next_step="name the directory that --dir named",
        )
    return known


def cookies_of(directory: Path) -> frozenset[str] | None:
    """Return the bookies that have a cookie; None where there is none or no metadata now."""
    refuse_others_directory(directory)
    known = _record(directory)
    if not is_locked(directory) and not known.uri.startswith("sqlite:"):
        return None  # Its ZooKeeper may have stopped with it.
    with contextlib.suppress(BookKeeperError), ClusterMetadata(lambda: known.uri) as metadata:
        return metadata.known() or None
    return None


def _bookie(
    directory: Path, number: int, before_start: str, cookies: frozenset[str] | None
) -> LocalBookie:
    home = bookie_directory(directory, number)
    locked = locked_root(home)
    bookie_id = bookie_id_in(home, before_start)
    is_out = cookies is not None and is_decommissioned(home, bookie_id, cookies)
    return LocalBookie(
        bookie_id=bookie_id,
        state="up" if locked else "decommissioned" if is_out else "down",
        pid=None if locked is None else lock_owner(locked),
        directory=str(home),
        log=str(home / "bookie.log"),
    )


def _may_be_out(one: LocalBookie) -> bool:
    """Return whether a bookie would be decommissioned if it had no cookie."""
    is_out = is_decommissioned(Path(one.directory), one.bookie_id, ())
    return one.state == "down" and is_out


def _refuse_started_by_hand(found: LocalSummary) -> None:
    homes = (Path(one.directory) for one in found.bookies)
    refuse_started_by_hand(Path(found.directory), homes)


def start_line(directory: Path) -> str:
    """Return the command line that starts the cluster in a directory again."""
    known = _record(directory)
    words = ["bkctl", "local", str(len(known.ports)), "--dir", str(directory)]
    if known.elsewhere:
        words += ["--zk", known.elsewhere.partition("://")[2].partition("/")[0]]
    elif known.zookeeper_port:
        words.append("--zookeeper")
    words.append("--background")
    return shlex.join(words)
