"""``bkctl local start`` and ``stop`` with a BOOKIE_ID, and more bookies for a cluster that runs.

The process that runs the cluster stays the parent of its bookies. A stop sends SIGTERM to the
bookie. A start leaves a request in the bookie's directory, which that process polls.
"""

from __future__ import annotations

import contextlib
import os
import shlex
import signal
from pathlib import Path

from bkctl.commands.local.bookie_process import LocalStartError, printed_reason, with_conf
from bkctl.commands.local.columns import LocalBookie
from bkctl.commands.local.directory import (
    CONF_FILE,
    START_REQUEST,
    bookie_directory,
    holds_cluster,
    how_to_grow,
    locked_root,
    make_own,
    read_record,
    refuse_others_directory,
    write_private,
)
from bkctl.commands.local.metadata import ClusterMetadata
from bkctl.commands.local.status_and_stop import (
    cookies_of,
    insist_owner,
    read,
    runs,
    start_line,
    wait_until,
)
from bkctl.errors import ConflictError, NothingFoundError
from bkctl.output.units import counted
from bkctl.session.session import Session
from bookied.directories.lock import is_locked
from wire.errors import BookKeeperError


def start(session: Session, directory: Path, bookie_id: str | None) -> None:
    """Start a bookie, or all that are down; return when it is registered.

    The registration of a bookie that was killed lasts for a while; the start waits for its end.

    Raises:
        NothingFoundError: the directory holds no cluster, or the cluster has no such bookie.
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
        wanted = [_bookie(directory, found.bookies, bookie_id, f"; {how_to_grow(directory)}")]
        if wanted[0].state == "up":
            session.note(f"bookie {bookie_id} runs already, as process {wanted[0].pid}")
            return
    if session.dry_run:
        session.plan(f"start bookie {one.bookie_id}" for one in wanted)
        return
    if not wanted:
        session.note(f"no bookie of the cluster is down; {how_to_grow(directory)}")
    for one in wanted:
        _start(session, found.uri, one)


def add(session: Session, directory: Path, bookies: int, racks: int | None) -> bool:
    """Add bookies to a cluster that runs, so that it has so many; return whether it has fewer.

    Return False, too, if the cluster has another number of ``racks`` than is asked for.

    Raises:
        LocalStartError: a new bookie did not start; the message has its reason.
    """
    if not holds_cluster(directory):
        return False
    refuse_others_directory(directory)
    known = read_record(directory)
    if known is None or bookies <= len(known.ports) or not is_locked(directory):
        return False
    if racks not in {None, known.racks}:
        return False
    numbers = range(len(known.ports) + 1, bookies + 1)
    if session.dry_run:
        session.plan([f"start {counted(len(numbers), 'bookie')} more in {directory}"])
        return True
    for number in numbers:
        home = bookie_directory(directory, number)
        make_own(home)
        write_private(home / START_REQUEST, "")
    owner = insist_owner(directory)
    wait_until(
        lambda: len(read(directory).bookies) >= bookies,
        f"process {owner}, which runs the cluster, adds no bookie",
        "a cluster that an older bkctl started has to be stopped and started for that",
    )
    with ClusterMetadata(lambda: known.uri) as metadata:
        for one in read(directory).bookies[len(known.ports) :]:
            _wait(session, metadata, one)
            session.note(f"started bookie {one.bookie_id}; its log is {one.log}")
    return True


def _wait(session: Session, metadata: ClusterMetadata, one: LocalBookie, written: int = 0) -> None:
    """Wait until a bookie is registered; its log has the reason, after ``written``, if not."""
    bookie_id, log = one.bookie_id, Path(one.log)

    def is_registered() -> bool:
        if (reason := printed_reason(log, written)) is not None:
            told = with_conf(reason, Path(one.directory) / CONF_FILE)
            raise LocalStartError(
                f"bookie {bookie_id} did not start: {told}", next_step=f"its log is {log}"
            )
        return bookie_id in metadata.writable()

    with session.messages.waiting(f"waiting for bookie {bookie_id} to register"):
        wait_until(is_registered, f"{bookie_id} is not registered", f"its log is {log}")


def _start(session: Session, uri: str, one: LocalBookie) -> None:
    """Ask the process of the cluster for one bookie, and wait until it is registered."""
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
        write_private(request, "")
        try:
            _wait(session, metadata, one, written)
        finally:
            request.unlink(missing_ok=True)
    session.note(f"started bookie {bookie_id}; its log is {one.log}")


def stop(session: Session, directory: Path, bookie_id: str) -> None:
    """Stop one bookie; return when its process has ended.

    Raises:
        NothingFoundError: the directory holds no cluster, or the cluster has no such bookie.
        ConflictError: the bookie goes on.
    """
    found = read(directory)
    one = _bookie(directory, found.bookies, bookie_id)
    if one.state != "up":
        session.note(f"bookie {bookie_id} does not run")
        return
    home = Path(one.directory)
    pid = insist_owner(locked_root(home) or home / "ledgers") if one.pid is None else one.pid
    if session.dry_run:
        session.plan([f"stop process {pid}, bookie {bookie_id}"])
        return
    with contextlib.suppress(ProcessLookupError):
        os.kill(pid, signal.SIGTERM)
    with session.messages.waiting(f"waiting for process {pid} to end"):
        wait_until(lambda: not runs(pid), f"process {pid} still runs", f"its log is {one.log}")
    line = shlex.join(["bkctl", "local", "start", str(directory), bookie_id])
    session.note(f"stopped bookie {bookie_id}; to start it: {line}")
    if _is_repaired(found.uri):
        words = ("bkctl", "-u", found.uri, "autorecovery", "disable", "--for", "30m")
        session.note(
            "autorecovery copies its ledgers, if any, to other bookies from now on; "
            f"to prevent that: {shlex.join(words)}"
        )


def _is_repaired(uri: str) -> bool:
    """Return whether autorecovery is enabled, as it is where the metadata cannot be read."""
    with contextlib.suppress(BookKeeperError), ClusterMetadata(lambda: uri) as metadata:
        return metadata.is_repaired()
    return True


def _bookie(
    directory: Path, bookies: tuple[LocalBookie, ...], bookie_id: str, otherwise: str = ""
) -> LocalBookie:
    for one in bookies:
        if one.bookie_id == bookie_id:
            return one
    raise NothingFoundError(
        f"the cluster in {directory} has no bookie {bookie_id}",
        next_step=f"its bookies are {', '.join(one.bookie_id for one in bookies)}{otherwise}",
    )
