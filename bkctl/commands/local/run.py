"""`bkctl local`: runs a cluster of bookies on this machine until Ctrl-C."""

from __future__ import annotations

import contextlib
import json
import os
import select
import shlex
import subprocess
import sys
import time
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import IO, TYPE_CHECKING, Any, Final, NoReturn

import click

from bkctl.errors import CommandError, Interrupted, NothingFoundError, PartlyDoneError, UsageError
from bkctl.exit_status import ExitStatus
from bkctl.output.units import counted
from wire.errors import BookKeeperError

if TYPE_CHECKING:
    from bkctl.commands.local.cluster import LocalCluster
    from bkctl.commands.local.metadata import ClusterMetadata
    from bkctl.session.session import Session

DETACHED: Final = "BKCTL_LOCAL_DETACHED"
"""The environment variable that marks a cluster in the background."""

SETTINGS: Final = "BKCTL_LOCAL_SETTINGS"
"""The environment variable with the bookies' settings as JSON; only its user can read it."""

_POLL_EVERY_S: Final = 0.5
_READ_BYTES: Final = 1 << 16


CONFIG_DIR: Final = "LOCALBOOKIES_CONFIG_DIR"
"""The environment variable for the directory of bookie settings (Java's `-localbookie`)."""

DAEMONS: Final = {"autoRecoveryDaemonEnabled": "true", "httpServerEnabled": "true",
                  "statsProviderClass":
                  "org.apache.bookkeeper.stats.prometheus.PrometheusMetricsProvider"}  # fmt: skip
"""Settings for the daemons in each bookie, so that every command has something to show."""


def local(
    session: Session,
    /,
    *,
    bookies: int | str,
    where: str | None,
    bookie_id: str | None,
    zookeeper: bool,
    zookeeper_at: str | None,
    everything: bool,
    directory: str | None,
    port_base: int | None,
    keep: bool,
    **more: Any,
) -> None:
    """Run a cluster of N bookies on this machine until Ctrl-C, or one ZooKeeper server."""
    if isinstance(bookies, str) and bookies != "zookeeper":
        of_new = {
            "--set": more["settings"], "--racks": more["racks"], "--background": more["background"],
            "--zookeeper": zookeeper, "--zk": zookeeper_at, "--all": everything,
            "--port-base": port_base, "--keep": keep,
        }  # fmt: skip
        if given := [option for option, value in of_new.items() if value]:
            raise click.UsageError(f"`local {bookies}` takes no {given[0]}: it is for `local N`")
        _start_stop_or_status(session, bookies, directory, where, bookie_id)
        return
    _refuse_bookie_id(str(bookies), bookie_id)
    directory = directory or where
    if not isinstance(bookies, int):
        from bkctl.commands.local import zookeeper as local_zookeeper

        local_zookeeper.run(session, directory, port_base, keep=keep)
        return
    if zookeeper and zookeeper_at:
        raise click.UsageError(
            "--zookeeper starts a ZooKeeper, --zk names a running one: give only one of them"
        )
    _local(
        session,
        bookies,
        zookeeper=zookeeper or (everything and not zookeeper_at),
        uri=f"zk+hierarchical://{zookeeper_at}/ledgers" if zookeeper_at else "",
        directory=directory,
        port_base=port_base,
        keep=keep,
        **more,
    )


def _start_stop_or_status(
    session: Session, word: str, directory: str | None, where: str | None, bookie_id: str | None
) -> None:
    """Run the command ``word`` on an existing cluster, or on one of its bookies.

    ``where`` is the cluster's directory, or the bookie's id if the directory is already known.
    """
    from bkctl.commands.local import start_stop_status
    from bkctl.commands.local.directory import directory_in_use

    known = directory or directory_in_use(session.host.environ)
    one_known = None if word == "status" else known
    if bookie_id is None and where is not None and _is_bookie_id(where, one_known):
        where, bookie_id = None, where
    found = directory or where or known
    if found is None:
        here = ", ".join(map(str, start_stop_status.running_directories()))
        raise click.UsageError(
            f"`local {word}` needs DIR, as --dir named it, or `. DIR/bkctl.env` before it; "
            f"clusters that run here: {here or 'none'}"
        )
    if word == "start":
        start_stop_status.start_bookies(session, Path(found), bookie_id)
    elif word == "restart":
        _restart(session, Path(found), bookie_id)
    elif word == "stop" and bookie_id is not None:
        start_stop_status.stop_bookie(session, Path(found), bookie_id)
    else:
        _refuse_bookie_id(word, bookie_id)
        act = start_stop_status.stop if word == "stop" else start_stop_status.status
        act(session, Path(found))


def _restart(session: Session, directory: Path, bookie_id: str | None) -> None:
    """Stop and start a bookie, or the cluster, which then runs in the background."""
    from bkctl.commands.local import start_stop_status

    line = start_stop_status.start_line(directory)
    if session.dry_run:
        what = "the cluster" if bookie_id is None else f"bookie {bookie_id}"
        session.plan([f"stop {what} in {directory}", f"start {what} again"])
    elif bookie_id is None:
        start_stop_status.stop(session, directory)
        _start_in_background(session, directory, {}, shlex.split(line)[1:])
    else:
        start_stop_status.stop_bookie(session, directory, bookie_id, starts_again=True)
        start_stop_status.start_bookies(session, directory, bookie_id)


def _is_bookie_id(text: str, directory: str | None) -> bool:
    """Return whether a word can only be a bookie's id: DIR may be left out if it is known."""
    if Path(text).exists():
        return False
    return text.rpartition(":")[2].isdecimal() or (directory is not None and "/" not in text)


def _refuse_bookie_id(word: str, bookie_id: str | None) -> None:
    if bookie_id is not None:
        raise click.UsageError(f"`local {word}` takes no BOOKIE_ID")


def _local(
    session: Session,
    bookies: int,
    *,
    zookeeper: bool,
    directory: str | None,
    keep: bool,
    port_base: int | None,
    racks: int | None,
    settings: tuple[tuple[str, str], ...],
    background: bool,
    uri: str = "",
) -> None:
    from bkctl.commands.local import start_stop_status
    from bkctl.commands.local.cluster import LocalCluster

    if background and directory is None:
        raise UsageError("--background needs --dir DIR, to know where it is")
    is_plain = not (zookeeper or uri or settings)
    if (
        is_plain
        and directory
        and start_stop_status.add_bookies(session, Path(directory), bookies, racks, port_base)
    ):
        if not session.dry_run:
            start_stop_status.status(session, Path(directory))
        return
    place = directory or "a temporary directory"
    if session.plans_only([f"start {counted(bookies, 'bookie')} in {place}"]):
        return
    given = {
        **json.loads(session.host.environ.get(SETTINGS, "{}")),
        **_without_secrets_shown(session, settings),
    }
    if background:
        _start_in_background(session, Path(str(directory)), given, session.options.args)
        return
    cluster = LocalCluster(
        Path(directory) if directory else None,
        bookies,
        zookeeper=zookeeper,
        uri=uri,
        port_base=port_base or 0,
        racks=racks,
        settings=given,
        defaults=DAEMONS,
    )
    try:
        with running(session, cluster) as metadata:
            if config_dir := session.host.environ.get(CONFIG_DIR):
                cluster.write_configs(Path(config_dir))
            _run_until_stopped(session, cluster, metadata)
    finally:
        if not keep:
            cluster.directory.remove()
        elif cluster.directory.is_temporary:
            session.note(f"kept in {cluster.directory.path}")


def _without_secrets_shown(
    session: Session, settings: tuple[tuple[str, str], ...]
) -> dict[str, str]:
    """Return the settings with secrets read from files; warn of secrets in the command line.

    Raises:
        NothingFoundError: a file cannot be read.
    """
    from bkclient.config.declaration import is_secret_key

    found = dict(settings)
    for key, text in found.items():
        if not is_secret_key(key):
            continue
        if not text.startswith("@"):
            session.warn(f"others see {key} in the list of processes; use --set {key}=@FILE")
            continue
        try:
            found[key] = Path(text[1:]).read_text(encoding="utf-8").strip()
        except (OSError, ValueError) as error:
            raise NothingFoundError(f"--set {key}={text}: cannot read {text[1:]}") from error
    return found


def without_settings(arguments: Iterable[str]) -> list[str]:
    """Return a command line without ``--set`` and its values, which may be secrets."""
    words, kept = iter(arguments), []
    for word in words:
        if word == "--set":
            next(words, None)
        elif not word.startswith("--set="):
            kept.append(word)
    return kept


@contextlib.contextmanager
def running(session: Session, cluster: LocalCluster) -> Iterator[ClusterMetadata]:
    """Run a cluster for the time of the block; yield its metadata.

    Raises:
        LocalStartError: no bookie or not all required processes started; all are stopped again.
    """
    from bkctl.commands.local.directory import former_id
    from bkctl.commands.local.metadata import ClusterMetadata

    homes = [Path(one.directory) for one in cluster.states()]
    with cluster, ClusterMetadata(lambda: cluster.uri) as watched:
        with session.messages.waiting("waiting for the bookies to register"):
            failed = cluster.start(
                watched.writable,
                watched.known,
                lambda: watched.initialize(former_id(homes)),
                session.note,
            )
        for error in failed:
            session.warn(str(error))
        yield watched


def _run_until_stopped(session: Session, cluster: LocalCluster, metadata: ClusterMetadata) -> None:
    """Show the cluster and watch it; Ctrl-C or SIGTERM is its normal end."""
    try:
        _show(session, cluster)
        if DETACHED in session.host.environ:
            _detach()
        _watch(session, cluster, metadata)
    except Interrupted as reason:
        session.note("stopping")
        if reason.exit_status == ExitStatus.TIME_LIMIT:
            raise


def _show(session: Session, cluster: LocalCluster) -> None:
    """Print the bookies and the next commands."""
    from bkctl.commands.local.columns import LocalSummary, show

    found = LocalSummary(cluster.uri, str(cluster.directory.path), tuple(cluster.states()))
    show(session, found)
    if session.options.is_for_people:
        out = session.host.stdout
        out.write(f"\nmetadata service: {cluster.uri}\n")
        out.write(f"to select it in a shell: . {shlex.quote(str(cluster.directory.env_file))}\n")
        out.flush()
    if session.options.is_for_people and DETACHED not in session.host.environ:
        session.note("\nthen, in another terminal: bkctl ledger write FILE; Ctrl-C here stops all")


def _watch(session: Session, cluster: LocalCluster, metadata: ClusterMetadata) -> NoReturn:
    """Report bookies that end and start requested ones, until the process is stopped.

    Raises:
        ZooKeeperEndedError: the ZooKeeper has ended; the cluster cannot work without it.
    """
    from bkctl.commands.local.zookeeper import ZooKeeperEndedError

    while True:
        time.sleep(_POLL_EVERY_S)
        try:
            cluster.require_zookeeper()
        except ZooKeeperEndedError as error:
            session.warn(f"{error}; stopping the bookies")  # Warn first: the stop may take a while.
            raise
        cluster.start_requested(session.warn)
        with contextlib.suppress(BookKeeperError):  # The metadata may answer the next time.
            cluster.drop_removed(metadata.known)
        for bookie_id, status, log in cluster.newly_ended():
            start = shlex.join(["bkctl", "local", "start", str(cluster.directory.path), bookie_id])
            if status == 0:
                session.note(f"bookie {bookie_id} was stopped")
            else:
                session.warn(f"bookie {bookie_id} ended with {status}; its log is {log}")
            session.note(f"to start it again: {start}")
            if all(one.state != "up" for one in cluster.states()):
                session.warn("no bookie is left; the metadata stays until Ctrl-C")


# In the background -----------------------------------------------------------------------------


def _start_in_background(
    session: Session, directory: Path, settings: dict[str, str], arguments: Iterable[str]
) -> None:
    """Run `bkctl ARGUMENTS` without --background; return when it reports that all bookies run."""
    from bkctl.commands.local.child_process import last_lines
    from bkctl.commands.local.directory import (
        BACKGROUND_LOG,
        make_own,
        refuse_foreign,
        refuse_others_directory,
    )
    from bkctl.commands.local.start_stop_status import cookies_of, read

    refuse_others_directory(directory)
    refuse_foreign(directory)
    make_own(directory)
    log = directory / BACKGROUND_LOG
    session.note(f"starting the cluster in {directory}")
    written = log.stat().st_size if log.exists() else 0
    words = (word for word in arguments if word != "--background")
    child = _detached(without_settings(words), log, settings)
    assert child.stdout is not None
    with child.stdout as stdout, session.messages.waiting("waiting for the cluster to start"):
        shown = _output(stdout, log, written, session.note)
    if not shown:
        said = "".join(last_lines(log, 1)).removeprefix("bkctl: ") or "the cluster ended"
        raise CommandError(said, status=child.wait())
    session.host.stdout.write(shown.decode())
    stop = shlex.join(["bkctl", "local", "stop", str(directory)])
    session.note(f"\nrunning in the background as process {child.pid}; to stop it: {stop}")
    down = [one for one in read(directory, cookies_of(directory)).bookies if one.state == "down"]
    if down:
        start = shlex.join(["bkctl", "local", "start", str(directory), down[0].bookie_id])
        raise PartlyDoneError(
            f"{counted(len(down), 'bookie')} did not start: "
            f"{', '.join(one.bookie_id for one in down)}",
            next_step=f"the reason is in {log}; to start a bookie again: {start}",
        )


def _detached(arguments: list[str], log: Path, settings: dict[str, str]) -> subprocess.Popen[bytes]:
    """Start bkctl in its own session; its stderr goes to the log."""
    environment = {
        **os.environ,
        DETACHED: "1",
        SETTINGS: json.dumps(settings),
        "BKCTL_PROGRESS": "none",  # This process shows the progress.
        "PYTHONPATH": os.pathsep.join(path for path in sys.path if path),
    }
    with log.open("ab") as errors:
        return subprocess.Popen(
            [sys.executable, "-m", "bkctl", *arguments],
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=errors,
            start_new_session=True,
            env=environment,
        )


def _output(stdout: IO[bytes], log: Path, written: int, report: Callable[[str], None]) -> bytes:
    """Return the child's stdout up to the end of its table: see ``_detach``.

    Meanwhile ``report`` is called with each step, but no error, that the child logs after
    ``written`` bytes.
    """
    found = b""
    with log.open("rb") as steps:
        steps.seek(written)
        while True:
            ready, _, _ = select.select([stdout], [], [], _POLL_EVERY_S)
            while (line := steps.readline()).endswith(b"\n"):
                if not line.startswith(b"bkctl: "):
                    report(line.decode(errors="replace").rstrip())
            steps.seek(-len(line), os.SEEK_CUR)  # The child has not finished writing this line.
            if ready:
                some = os.read(stdout.fileno(), _READ_BYTES)
                if not some:
                    return found
                found += some


def _detach() -> None:
    """Close stdout: the process that waits for the background start sees that all bookies run."""
    sys.stdout.flush()
    null = os.open(os.devnull, os.O_WRONLY)
    os.dup2(null, 1)
    os.close(null)
