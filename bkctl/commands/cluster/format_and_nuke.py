"""`cluster format` and `cluster nuke`: show the loss, ask, and remove the metadata."""

from __future__ import annotations

import shlex
from collections.abc import Awaitable, Callable, Collection, Iterator
from pathlib import Path
from typing import Final, TypeVar

from bkclient.metadata.errors import NotInitializedError
from bkclient.metadata.tree.store import MetadataStore
from bkctl.commands.cluster.backup import backup
from bkctl.commands.cluster.metadata_contents import MetadataContents, read_contents
from bkctl.errors import ConflictError, UsageError
from bkctl.output.units import counted
from bkctl.output.views import Column, field, shown
from bkctl.session.safety_check_names import LEDGERS, LIVE_BOOKIES
from bkctl.session.safety_checks import Objection, refuse_unless_forced, while_registered
from bkctl.session.session import Session

T = TypeVar("T")

_CONTINUES: Final = "some of the metadata may be deleted already; the same command continues"

_URI: Final = Column("uri", "The metadata service.")


_WAS: Final = Column("was", "The state before the command.")


def _formatted(v: ClusterFormatted) -> str:
    if v.was is None:
        return f"created cluster {v.instance_id} at {v.uri}"
    said = (
        f"The cluster was formatted: {counted(v.ledgers, 'ledger')} deleted. "
        f"Its new instance id is {v.instance_id} (was {v.was}). "
        "To go on with it, run `bkctl bookieformat` on each bookie before its next start: "
        "this deletes the bookie's entries."
    )
    if v.backup is None:
        return said
    undo = ("bkctl", "-u", v.uri, "cluster", "restore", v.backup)
    return f"{said}\nTo undo instead, while no bookie runs: {shlex.join(undo)}"


_LEDGERS_GONE: Final = Column("ledgers", "Deleted ledgers.")


@shown("clusters", id="instance_id", sentence=_formatted)
class ClusterFormatted:
    """A formatted cluster; ``was`` is its former instance id.

    ``backup`` is the file with the old metadata, if one was written.
    """

    uri: str = field(_URI)
    instance_id: str = field("The new instance id.")
    was: str | None = field(_WAS)
    ledgers: int = field(_LEDGERS_GONE)
    backup: str | None = field("Backup file with the old metadata.", default=None)


def _removed(v: ClusterRemoved) -> str:
    if v.was is None:
        return f"there is no cluster at {v.uri}"
    return f"cluster {v.was} removed ({counted(v.ledgers, 'ledger')} gone)"


@shown("clusters", id="was", sentence=_removed)
class ClusterRemoved:
    """A removed cluster; ``was`` is None if there was no cluster."""

    uri: str = field(_URI)
    was: str | None = field(_WAS)
    ledgers: int = field(_LEDGERS_GONE)


def format_cluster(
    session: Session,
    *,
    force: Collection[str],
    backup_to: str | None,
    no_backup: bool,
    option: str = "--force",
) -> None:
    """Show the loss, ask, write a backup, and format the cluster's metadata.

    ``backup_to`` is the path of the backup; by default a new name in the working directory. With
    ``no_backup`` no backup is written.

    Raises:
        RefusedError: a safety check refuses, or the user did not confirm.
        ConflictError: the cluster is not the one that was shown.
        CommandError: the backup cannot be written; the cluster is unchanged.
    """
    found = session.cluster.with_store(read_contents)
    if found is not None:
        objections = (*while_registered(found.registered, LIVE_BOOKIES), *_ledgers(found))
        refuse_unless_forced(session, objections, force, option=option)
    if session.dry_run:
        if found is None:
            session.plan([f"make a cluster at {session.uri}"])
            return
        lost = [f"remove {line}" for line in found.lines()]
        first = ["write a backup of all metadata"] if not no_backup and found.has_layout else []
        session.plan([*first, *lost, "give the cluster a new instance id"])
        return
    if found is not None:
        _confirm(session, found, "Format the metadata of cluster")
    file = _kept(session, found, backup_to) if found is not None and not no_backup else None
    made = _changed(session, found, lambda store: store.format())
    was = found.instance_id if found else None
    lost_ledgers = found.ledgers if found else 0
    session.emit(ClusterFormatted(session.uri, made, was, lost_ledgers, file))


def _kept(session: Session, found: MetadataContents, backup_to: str | None) -> str | None:
    """Write all metadata to a file.

    Return its path, or None without a layout: it cannot be read.
    """
    if not found.has_layout:
        return None
    if backup_to == "-":
        raise UsageError("--backup -: this backup is written to a file only")
    session.failed = "nothing was formatted; --backup FILE names another file"
    name = f"bkctl-backup-{found.instance_id}-{int(session.host.clock_s())}.jsonl"
    file = Path(backup_to or name).absolute()
    earlier = sorted(file.parent.glob(f"bkctl-backup-{found.instance_id}-*.jsonl"))
    written = backup.write(session, file)
    session.failed = ""
    session.note(f"wrote a backup of all metadata to {written.file}")
    if earlier:
        session.warn(
            f"an earlier backup of this cluster is {earlier[0]}; if the format after it was "
            "interrupted, only that backup is complete"
        )
    return written.file


def metaformat(
    session: Session,
    *,
    non_interactive: bool,
    java_force: bool,
    override: Collection[str],
    backup_to: str | None,
    no_backup: bool,
) -> None:
    """Format a cluster as ``format_cluster`` does, with Java's options."""
    session.options.no_input |= non_interactive
    session.options.yes |= java_force
    format_cluster(
        session, force=override, backup_to=backup_to, no_backup=no_backup, option="--override"
    )


def _require_root(session: Session, root: str | None) -> None:
    """Refuse if ``root`` is given and the service URI has another root.

    Raises:
        ConflictError: the roots differ.
    """
    _, _, path = session.uri.partition("://")[2].partition("/")
    has = f"/{path}".rstrip("/")
    if root is not None and root.rstrip("/") != has:
        raise ConflictError(
            f"{session.uri} has the root {has}, not {root}",
            next_step="check -u and BKCTL_SERVICE_URI",
        )


def nuke(
    session: Session, *, instance_id: str | None, root: str | None, force: Collection[str]
) -> None:
    """Show the loss, ask unless the cluster's id is given, and remove the cluster.

    Raises:
        RefusedError: a safety check refuses, or the user did not confirm.
        ConflictError: the cluster is not the one that was named or shown.
        ClusterInUseError: the root has nodes that do not belong to the cluster.
    """
    _require_root(session, root)
    found = session.cluster.with_store(read_contents)
    if found is None:
        if not session.dry_run:  # An interrupted nuke may have left the root, without nodes.
            session.cluster.with_store(lambda store: store.nuke())
        session.emit(ClusterRemoved(session.uri, None, 0))
        return
    if instance_id is not None and instance_id != found.instance_id:
        raise ConflictError(
            f"this is the cluster {found.instance_id}, not {instance_id}",
            next_step="check -u and BKCTL_SERVICE_URI",
        )
    refuse_unless_forced(session, (*while_registered(found.registered), *_ledgers(found)), force)
    lost = [f"remove {line}" for line in found.lines()]
    if session.plans_only([*lost, f"remove the cluster {found.instance_id}"]):
        return
    if instance_id is None:
        _confirm(session, found, "Remove the cluster")
    _changed(session, found, lambda store: store.nuke())
    session.emit(ClusterRemoved(session.uri, found.instance_id, found.ledgers))


def _changed(
    session: Session,
    found: MetadataContents | None,
    change: Callable[[MetadataStore], Awaitable[T]],
) -> T:
    """Return the result of a change of all metadata, which a repeated command continues.

    Raises:
        ConflictError: another client changed the cluster since ``found``.
    """

    async def work(store: MetadataStore) -> T:
        await _require_same(store, found)
        session.resume = session.failed = _CONTINUES
        return await change(store)

    result = session.cluster.with_store(work)
    session.resume = session.failed = ""
    return result


async def _require_same(store: MetadataStore, shown: MetadataContents | None) -> None:
    """Check that the cluster was not created, formatted or removed since it was shown.

    Raises:
        ConflictError: another client changed it.
    """
    try:
        found = await store.instance_id()
    except NotInitializedError:
        found = None
    if found != (shown.instance_id if shown else None):
        raise ConflictError(
            "another process replaced the cluster; this command changed nothing",
            next_step="`bkctl cluster id` shows the cluster; run the command again",
        )


def _ledgers(found: MetadataContents) -> Iterator[Objection]:
    if found.ledgers:
        yield Objection(
            LEDGERS,
            f"{counted(found.ledgers, 'ledger')} would be lost: only this metadata "
            "lists their bookies",
            "`bkctl ledger list` shows them",
        )


def _confirm(session: Session, found: MetadataContents, what: str) -> None:
    session.confirm(
        [
            f"Of the metadata at {session.uri} this will be lost for good:",
            *(f"  {line}" for line in found.lines()),
        ],
        f"{what} {found.instance_id}?",
        proof=found.instance_id or session.uri,
    )
