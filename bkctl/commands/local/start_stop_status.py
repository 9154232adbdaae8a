"""``bkctl local start``, ``stop`` and ``status``: a cluster that another process runs.

That process stays the parent of its bookies. A stop sends SIGTERM to it, or to one bookie. A start
writes a request to the bookie's directory, which that process polls.
"""

from __future__ import annotations

import contextlib
import os
import shlex
import signal
import time
from collections.abc import Callable
from pathlib import Path
from typing import Final

from bkctl.commands.local.bookie_process import LocalStartError, printed_reason, with_conf
from bkctl.commands.local.columns import LocalBookie, LocalSummary, show
from bkctl.commands.local.directory import (
    CONF_FILE,
    START_REQUEST,
    ClusterRecord,
    bookie_directory,
    bookie_id_in,
    holds_cluster,
    host_of,
    how_to_grow,
    is_decommissioned,
    is_removed,
    locked_root,
    make_own,
    read_record,
    refuse_others_directory,
    refuse_started_by_hand,
    write_private,
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
        NothingFoundError: the directory has no cluster of ``bkctl local``.
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
        if one.state == "decommissioned":
            line = shlex.join(["rm", "-r", one.directory])
            session.note(f"to remove {one.bookie_id} from the cluster: {line}")
        if one.state == "down":
            line = shlex.join(["bkctl", "local", "start", str(directory), one.bookie_id])
            session.note(f"to start {one.bookie_id} again: {line}")


def stop(session: Session, directory: Path) -> None:
    """Stop the cluster in a directory; return when its last process has ended.

    Raises:
        NothingFoundError: the directory has no cluster of ``bkctl local``.
        RefusedError: the directory is another user's.
        ConflictError: bookies run that `bkctl local` did not start, or the process does not end.
    """
    found = read(directory)
    if not is_locked(directory):
        _refuse_started_by_hand(found)
        session.note(f"no cluster runs in {directory}")
        return
    pid = require_owner(directory)
    if session.plans_only([f"stop process {pid} with its bookies"]):
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
    """Return the directories of this user's clusters with a running bookie, from /proc."""
    found = set()
    for process in Path("/proc").glob("[0-9]*"):
        with contextlib.suppress(OSError):  # The process has ended meanwhile, or is another user's.
            conf = (process / "cmdline").read_bytes().partition(b"\0--conf\0")[2]
            file = Path(os.fsdecode(conf.partition(b"\0")[0]))
            directory = file.parent.parent
            is_own = process.stat().st_uid == os.geteuid()
            if is_own and file.name == CONF_FILE and holds_cluster(directory):
                found.add(directory)
    return sorted(found)


def runs(pid: int) -> bool:
    """Return whether a process runs; a zombie does not."""
    try:
        os.kill(pid, 0)
        stat = Path(f"/proc/{pid}/stat").read_text(encoding="utf-8", errors="replace")
    except ProcessLookupError:
        return False
    except OSError:
        return True  # There is no /proc.
    return not stat.rpartition(")")[2].lstrip().startswith("Z")


def wait_until(is_done: Callable[[], bool], otherwise: str, next_step: str) -> None:
    """Wait until another process has done its part.

    Raises:
        ConflictError: the wait took longer than a minute; the message begins with ``otherwise``.
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
    """Return the cluster of a directory, and which of its bookies run.

    ``cookies`` are the bookies with a cookie: other bookies may have been decommissioned.

    Raises:
        NothingFoundError: the directory has no cluster of ``bkctl local``.
        RefusedError: the directory is another user's.
    """
    refuse_others_directory(directory)
    known = _record(directory)
    bookies = (
        _bookie(directory.absolute(), number, f"{host_of(number, known.racks)}:{port}", cookies)
        for number, port in known.numbered.items()
    )
    present = (
        one for one in bookies if not is_removed(Path(one.directory), one.bookie_id, cookies or ())
    )
    return LocalSummary(known.uri, str(directory.absolute()), tuple(present))


def require_owner(root: Path) -> int:
    """Return the process that has locked a directory.

    Raises:
        ConflictError: the process cannot be determined.
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
    """Return the bookies with a cookie; None if there are none, or the metadata does not answer."""
    refuse_others_directory(directory)
    known = _record(directory)
    if not is_locked(directory) and not known.uri.startswith("sqlite:"):
        return None  # The cluster's ZooKeeper may have stopped with it.
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
    """Return whether a bookie counts as decommissioned if it has no cookie."""
    is_out = is_decommissioned(Path(one.directory), one.bookie_id, ())
    return one.state == "down" and is_out


def _refuse_started_by_hand(found: LocalSummary) -> None:
    homes = (Path(one.directory) for one in found.bookies)
    refuse_started_by_hand(Path(found.directory), homes)


def start_line(directory: Path) -> str:
    """Return the command line that starts the cluster in a directory again."""
    known = _record(directory)
    words = ["bkctl", "local", str(len(known.numbered)), "--dir", str(directory)]
    if known.elsewhere:
        words += ["--zk", known.elsewhere.partition("://")[2].partition("/")[0]]
    elif known.zookeeper_port:
        words.append("--zookeeper")
    words.append("--background")
    return shlex.join(words)


def start_bookies(session: Session, directory: Path, bookie_id: str | None) -> None:
    """Start a bookie, or all that are down; return when they are registered.

    The registration of a killed bookie lasts for a while; the start waits for its end.

    Raises:
        NothingFoundError: the directory has no cluster, or the cluster has no such bookie.
        ConflictError: the cluster is stopped, or the bookie is not registered in time.
        LocalStartError: the bookie did not start; the message has its reason.
    """
    found = read(directory, cookies_of(directory) if bookie_id is None else None)
    if not is_locked(directory):
        raise ConflictError(
            f"the cluster in {directory} is stopped",
            next_step=f"to start it: {start_line(directory)}",
        )
    wanted = [one for one in found.bookies if one.state == "down"]
    if bookie_id is not None:
        wanted = [_named(directory, found.bookies, bookie_id, f"; {how_to_grow(directory)}")]
        if wanted[0].state == "up":
            session.note(f"bookie {bookie_id} runs already, as process {wanted[0].pid}")
            return
    if session.plans_only(f"start bookie {one.bookie_id}" for one in wanted):
        return
    if not wanted:
        session.note(f"no bookie of the cluster is down; {how_to_grow(directory)}")
    for one in wanted:
        _start_bookie(session, found.uri, one)


def add_bookies(
    session: Session, directory: Path, bookies: int, racks: int | None, port_base: int | None
) -> bool:
    """Add bookies to a running cluster up to a number; return whether it had fewer.

    Their ports begin with ``port_base``; without it they are free ones. Return False, too, if the
    cluster has another number of ``racks``.

    Raises:
        LocalStartError: a new bookie did not start; the message has its reason.
    """
    if not holds_cluster(directory):
        return False
    refuse_others_directory(directory)
    known = read_record(directory)
    if known is None or bookies <= len(known.numbered) or not is_locked(directory):
        return False
    if racks not in {None, known.racks}:
        return False
    had = len(known.numbered)
    numbers = range(len(known.ports) + 1, len(known.ports) + 1 + bookies - had)
    if session.plans_only([f"start {counted(len(numbers), 'bookie')} more in {directory}"]):
        return True
    for number in numbers:
        home = bookie_directory(directory, number)
        make_own(home)
        write_private(home / START_REQUEST, str(port_base or ""))
    owner = require_owner(directory)
    wait_until(
        lambda: len(read(directory).bookies) >= bookies,
        f"process {owner}, which runs the cluster, adds no bookie",
        "a cluster that an older bkctl started has to be stopped and started for that",
    )
    with ClusterMetadata(lambda: known.uri) as metadata:
        for one in read(directory).bookies[had:]:
            _await_registered(session, metadata, one)
            session.note(f"started bookie {one.bookie_id}; its log is {one.log}")
    return True


def _await_registered(
    session: Session, metadata: ClusterMetadata, one: LocalBookie, written: int = 0
) -> None:
    """Wait until a bookie is registered; raise the reason in its log after ``written`` bytes."""
    bookie_id, log = one.bookie_id, Path(one.log)

    def is_registered() -> bool:
        if (reason := printed_reason(log, written)) is not None:
            why = with_conf(reason, Path(one.directory) / CONF_FILE)
            raise LocalStartError(
                f"bookie {bookie_id} did not start: {why}", next_step=f"its log is {log}"
            )
        return bookie_id in metadata.writable()

    with session.messages.waiting(f"waiting for bookie {bookie_id} to register"):
        wait_until(is_registered, f"{bookie_id} is not registered", f"its log is {log}")


def _start_bookie(session: Session, uri: str, one: LocalBookie) -> None:
    """Request the start of one bookie, and wait until it is registered."""
    bookie_id, log = one.bookie_id, Path(one.log)
    written = log.stat().st_size if log.exists() else 0
    request = Path(one.directory) / START_REQUEST
    with ClusterMetadata(lambda: uri) as metadata:
        with session.messages.waiting("waiting until the registration of the last start has ended"):
            wait_until(
                lambda: bookie_id not in metadata.writable(),
                f"{bookie_id} is still registered",
                "another process may have registered it",
            )
        # If the directory was deleted, the bookie reports the missing files.
        make_own(request.parent)
        write_private(request, "")
        try:
            _await_registered(session, metadata, one, written)
        finally:
            request.unlink(missing_ok=True)
    session.note(f"started bookie {bookie_id}; its log is {one.log}")


def stop_bookie(
    session: Session, directory: Path, bookie_id: str, *, starts_again: bool = False
) -> None:
    """Stop one bookie; return when its process has ended.

    Raises:
        NothingFoundError: the directory has no cluster, or the cluster has no such bookie.
        ConflictError: the bookie's process does not end.
    """
    found = read(directory)
    one = _named(directory, found.bookies, bookie_id)
    if one.state != "up":
        session.note(f"bookie {bookie_id} does not run")
        return
    home = Path(one.directory)
    pid = require_owner(locked_root(home) or home / "ledgers") if one.pid is None else one.pid
    if session.plans_only([f"stop process {pid}, bookie {bookie_id}"]):
        return
    prevent = _how_to_prevent_repair(found.uri)
    if starts_again and prevent:
        session.note(f"autorecovery may mark and copy its ledgers during the restart; {prevent}")
    (home / START_REQUEST).unlink(missing_ok=True)
    with contextlib.suppress(ProcessLookupError):
        os.kill(pid, signal.SIGTERM)
    with session.messages.waiting(f"waiting for process {pid} to end"):
        wait_until(lambda: not runs(pid), f"process {pid} still runs", f"its log is {one.log}")
    if starts_again:
        return
    line = shlex.join(["bkctl", "local", "start", str(directory), bookie_id])
    session.note(f"stopped bookie {bookie_id}; to start it: {line}")
    if prevent:
        session.note(
            f"autorecovery copies its ledgers, if any, to other bookies from now on; {prevent}"
        )


def _how_to_prevent_repair(uri: str) -> str:
    """Return how to pause autorecovery; "" if it is disabled."""
    with contextlib.suppress(BookKeeperError), ClusterMetadata(lambda: uri) as metadata:
        if not metadata.is_repaired():
            return ""
    words = ("bkctl", "-u", uri, "autorecovery", "disable", "--for", "30m")
    return f"to prevent that: {shlex.join(words)}"


def _named(
    directory: Path, bookies: tuple[LocalBookie, ...], bookie_id: str, otherwise: str = ""
) -> LocalBookie:
    for one in bookies:
        if one.bookie_id == bookie_id:
            return one
    raise NothingFoundError(
        f"the cluster in {directory} has no bookie {bookie_id}",
        next_step=f"its bookies are {', '.join(one.bookie_id for one in bookies)}{otherwise}",
    )
