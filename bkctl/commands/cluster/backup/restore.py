"""`cluster restore`: the metadata of a backup is written to a root."""

from __future__ import annotations

import contextlib
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Final

import attrs

from bkclient.metadata import zk_paths
from bkclient.metadata.errors import NotFoundError, NotInitializedError
from bkclient.metadata.tree.logs import TOMBSTONE
from bkclient.metadata.versions_and_watches import StoredNode
from bkclient.replication.ledger_verification import lost_ledgers
from bkctl.commands.cluster.backup import backup_file
from bkctl.commands.cluster.backup.backup_file import BackupCounts, BackupInfo
from bkctl.commands.cluster.metadata_contents import read_contents
from bkctl.commands.cluster.node_decoding import known
from bkctl.errors import ConflictError, NothingFoundError, PartlyDoneError
from bkctl.output.units import counted, human_time
from bkctl.output.views import Column, shown
from bkctl.session.safety_check_names import ROOT
from bkctl.session.safety_checks import Objection, refuse_unless_forced, some_names
from wire.ids import BookieId, LedgerId

if TYPE_CHECKING:
    from bkclient.metadata.tree.store import MetadataStore
    from bkctl.output.progress import Progress
    from bkctl.session.session import Session

IDS_SPARED: Final = 1000
"""Ids after a backup's highest id that are not generated again: later ledgers may have used them.

Only if the counter of the ids was lost: a counter above that id is still correct.
"""

_REMOVED_LOG: Final = hash(TOMBSTONE)

_NEW_CTIMES: Final = (
    "ZooKeeper gives each restored node a new creation time. For ledgers without a creation time "
    "in their metadata, `bkctl ledger list --older-than` therefore counts from this restore"
)

_NEWER: Final = (
    "ledgers that are newer than the backup {have} no metadata, and bookies delete their entries "
    "after a start, by garbage collection. Before a bookie starts, `bkctl disk ledgers -o id "
    "-c FILE` lists its ledgers, and `bkctl disk salvage LEDGER --out DIR BOOKIE_DIR...` saves the "
    "entries that several bookies have"
)

_ALL: Final = (
    "All missing nodes are added, also ledgers that were deleted on purpose and cookies of"
    " decommissioned bookies."
)


@attrs.frozen(kw_only=True)
class _MissingNodes:
    """The nodes of a backup that a root lacks."""

    nodes: int
    lines: tuple[str, ...]
    """The number of nodes of each kind; for ledgers and cookies also their ids."""
    ledger_ids: tuple[LedgerId, ...]
    existing: int
    """The number of nodes of the backup that exist in the root."""
    existing_lines: tuple[str, ...]
    """The number of existing nodes of each kind."""
    differing: tuple[str, ...]
    """The paths of existing nodes whose value differs from the backup."""
    newer: tuple[LedgerId, ...]
    """The ledgers of the root that the backup lacks, in a restore of all nodes."""

    @property
    def text(self) -> str:
        """The missing nodes, as a text to print."""
        kinds = ", ".join(self.lines)
        return f"{counted(self.nodes, 'node')}{': ' if kinds else ''}{kinds}"

    @property
    def staying(self) -> str:
        """The existing nodes, which are not changed, as the end of a sentence."""
        text = ""
        if self.existing:
            stay = "exists and stays" if self.existing == 1 else "exist and stay"
            kinds = ", ".join(self.existing_lines)
            text = f"; {counted(self.existing, 'node')} {stay}: {kinds}"
        if self.newer:
            stay = (
                "is not in the backup and stays"
                if len(self.newer) == 1
                else ("are not in the backup and stay")
            )
            text += f"; {counted(len(self.newer), 'ledger')} {stay}: {some_names(self.newer)}"
        return text


def _kept(paths: Collection[str]) -> str:
    """Return a sentence about existing nodes whose value differs."""
    verb = "differs and stays as it is" if len(paths) == 1 else "differ and stay as they are"
    return f"{counted(len(paths), 'node')} {verb}: {some_names(paths)}"


def _restored(v: ClusterRestored) -> str:
    has = ", ".join(v.info.lines()) or "no ledger"
    if v.added is None:
        return f"restored cluster {v.info.instance_id} to {v.uri}: {has}"
    return f"added {v.added.text} to {v.uri}{v.added.staying}"


@shown(
    "clusters",
    Column("uri", "The metadata service."),
    *backup_file.INFO_COLUMNS,
    Column("kept", "Nodes that exist with another value and were not changed."),
    Column("added", "Nodes that were missing.", "added_nodes"),
    kw_only=True,
    id="instance_id",
    sentence=_restored,
)
class ClusterRestored:
    """A cluster with restored metadata.

    ``kept`` nodes existed with another value and were not changed.
    """

    uri: str
    info: BackupInfo
    kept: tuple[str, ...] = ()
    added: _MissingNodes | None = None
    """The added nodes; None if the root was empty."""

    @property
    def added_nodes(self) -> int:
        return self.info.nodes if self.added is None else self.added.nodes


@attrs.frozen
class _RestoreTarget:
    """The root that a backup is restored to: the number of its nodes, and its cluster."""

    nodes: int
    instance_id: str | None


def restore(
    session: Session, file: Path, force: Sequence[str], ledger_ids: Sequence[LedgerId]
) -> None:
    """Check a backup, ask, and restore it; with ``ledger_ids`` only the metadata of these ledgers.

    Raises:
        NothingFoundError: the file does not exist, or a ledger is not in the backup.
        BackupDamagedError: the file is not a complete backup.
        RefusedError: the root is not empty, or the user did not confirm.
        ConflictError: the root has another cluster that is not empty, or, for single ledgers, none.
        PartlyDoneError: the entries of restored ledgers were deleted.
    """
    session.about = str(file)
    plan = _planned(session, file, force, ledger_ids)
    if session.dry_run:
        if plan.missing is None:
            session.warn(_NEWER.format(have="will have"))
        elif plan.missing.differing:
            session.warn(_kept(plan.missing.differing))
        session.plan(plan.steps())
        return
    if plan.missing is not None and not plan.missing.nodes:
        differing = plan.missing.differing
        session.emit(
            ClusterRestored(uri=session.uri, info=plan.info, kept=differing, added=plan.missing)
        )
        if differing:
            session.warn(_kept(differing))
        return
    session.confirm(plan.text(utc=session.options.utc), f"Restore {plan.what} to {session.uri}?")
    restored, kept, reserved = _carry_out(session, file, plan)
    missing = plan.missing and restored
    session.emit(ClusterRestored(uri=session.uri, info=plan.info, kept=tuple(kept), added=missing))
    if reserved is not None:
        session.note(f"note: ledger ids up to {reserved} are reserved; new ledgers get higher ids")
    if not session.uri.startswith("sqlite:"):
        session.note(_NEW_CTIMES)
    if plan.missing is None:
        session.warn(_NEWER.format(have="have"))
    if kept:
        session.warn(_kept(kept))
    _look_for_entries(session, restored)


@attrs.frozen(kw_only=True)
class _RestorePlan:
    """The planned restore; ``only`` are the paths of single ledgers, empty for all nodes."""

    info: BackupInfo
    only: Collection[str]
    replaced: str | None
    """The instance id of the empty cluster that is removed first."""
    missing: _MissingNodes | None
    """The nodes that the root lacks; None if the root is empty."""

    @property
    def has(self) -> str:
        return ", ".join(self.info.lines()) or "no ledger"

    @property
    def what(self) -> str:
        return self.has if self.only else f"cluster {self.info.instance_id}"

    @property
    def _first(self) -> list[str]:
        return [] if self.replaced is None else [f"remove the empty cluster {self.replaced}"]

    def steps(self) -> list[str]:
        """Return the steps that a dry run prints."""
        if self.missing is not None:
            return [f"add {self.missing.text}{self.missing.staying}"]
        nodes = counted(self.info.nodes, "node")
        return [*self._first, f"restore {nodes} of cluster {self.info.instance_id}: {self.has}"]

    def text(self, *, utc: bool) -> Iterator[str]:
        """Yield the lines before the question."""
        made = human_time(self.info.time_ms, utc=utc)
        if self.only:
            yield f"Chosen from the backup of {made}: {self.has}."
        else:
            yield f"The backup of {made} has {self.has}."
        yield from (f"First: {one}." for one in self._first)
        if self.missing is not None:
            yield f"Missing: {self.missing.text}{self.missing.staying}."
            if self.missing.differing:
                yield f"{_kept(self.missing.differing)}."
            if not self.only:
                yield _ALL


def _planned(
    session: Session, file: Path, force: Sequence[str], ledger_ids: Sequence[LedgerId]
) -> _RestorePlan:
    if file.exists() and not (file.is_file() or file.is_dir()):
        raise NothingFoundError(
            "not a regular file: a restore reads its file more than once",
            next_step="copy the backup to a file",
        )
    try:
        info = backup_file.read(file)
    except FileNotFoundError as error:
        raise NothingFoundError(
            "No such file or directory",
            next_step="give a file that `bkctl cluster backup FILE` has written",
        ) from error
    only = _paths_of(ledger_ids, info)
    if only:
        info = _part_of(file, info, only, ledger_ids)
    session.about = ""
    target = session.cluster.with_store(_target)
    if only:
        _require_same_cluster(session, target, info)
    replaced, missing = _empty_other(session, target, info), None
    if replaced is None:
        if not only:
            refuse_unless_forced(session, _objections(session, target), force)
        if target.nodes:
            missing = _missing_now(session, file, info, only)
    return _RestorePlan(info=info, only=only, replaced=replaced, missing=missing)


def _missing_now(
    session: Session, file: Path, info: BackupInfo, only: Collection[str]
) -> _MissingNodes:
    existing = session.cluster.with_store(partial(_existing, only=only))
    return _missing(file, info, existing, only)


def _carry_out(
    session: Session, file: Path, plan: _RestorePlan
) -> tuple[_MissingNodes, list[str], LedgerId | None]:
    """Restore; return the restored nodes, the unchanged nodes, and the last reserved id."""
    if plan.replaced is not None:
        session.cluster.with_store(partial(_remove_empty, instance_id=plan.replaced))
    restored = (
        _missing(file, plan.info, {})
        if plan.missing is None
        # Read again: the root may have changed during the question.
        else _missing_now(session, file, plan.info, plan.only)
    )
    # The layout is written last: an interrupted restore is not yet a cluster, and can be continued.
    session.resume = session.failed = (
        "the same command continues"
        if plan.only
        else "`--force root` continues with the existing nodes"
    )
    with session.progress("restoring", total=plan.info.nodes, unit="nodes") as progress:
        kept, reserved = session.cluster.with_store(
            lambda store: _put(store, file, plan.info, progress, plan.only, restored.ledger_ids)
        )
    session.resume = session.failed = ""
    # The election's value names the auditor at the time of the backup. A SQLite file does not
    # compare it.
    return restored, [path for path in kept if path != zk_paths.ELECTION], reserved


def _paths_of(ledger_ids: Sequence[LedgerId], info: BackupInfo) -> frozenset[str]:
    """Return the paths of the metadata of ledgers, and all their parents."""
    paths: set[str] = set()
    for ledger_id in ledger_ids:
        path = zk_paths.LAYOUTS[info.layout].path_of(ledger_id)
        while path:
            paths.add(path)
            path = zk_paths.parent(path)
    return frozenset(paths)


def _part_of(
    file: Path, info: BackupInfo, only: Collection[str], ledger_ids: Sequence[LedgerId]
) -> BackupInfo:
    """Return the info of a part of a backup.

    Raises:
        NothingFoundError: a ledger is not in the backup.
    """
    tally, absent = BackupCounts(info), set(ledger_ids)
    for some in backup_file.stored_nodes(file, only):
        for node in some:
            found = tally.add(node.path)
            absent -= {found.ledger_id}
    if absent:
        raise NothingFoundError(
            f"the backup does not have {counted(len(absent), 'ledger')}: "
            f"{some_names(sorted(absent))}",
            next_step="an older or newer backup may have it",
        )
    return tally.result()


def _require_same_cluster(session: Session, target: _RestoreTarget, info: BackupInfo) -> None:
    """Refuse to restore single ledgers into a root without their cluster.

    Raises:
        ConflictError: the root has no cluster, or another cluster.
    """
    layout = session.cluster.with_store(_layout)
    if (target.instance_id, layout) != (info.instance_id, info.layout):
        raise ConflictError(
            f"{session.uri} has no cluster"
            if layout is None
            else f"{session.uri} is the cluster {target.instance_id}; the backup is of "
            f"{info.instance_id}",
            next_step="--ledger adds to the cluster of the backup; without it all is restored",
        )


def _look_for_entries(session: Session, restored: _MissingNodes) -> None:
    """Check whether bookies in service have deleted the entries of restored ledgers.

    Raises:
        PartlyDoneError: restored ledgers without entries were found.
    """
    lost: list[LedgerId] = []
    away: set[BookieId] = set()
    total = len(restored.ledger_ids)
    with session.progress("looking for entries", total=total, unit="ledgers") as progress:
        for step in session.iterate(lost_ledgers, restored.ledger_ids):
            lost += step.lost
            away |= step.away
            progress.update(step.looked_at)
    if away:
        session.warn(
            f"restored ledgers list {counted(len(away), 'bookie')} not in service: "
            f"{some_names(sorted(away))}. These ledgers were not checked; "
            "`bkctl ledger verify --all` "
            "reads all entries"
        )
    if lost:
        raise PartlyDoneError(
            f"{counted(len(lost), 'restored ledger')} without entries: "
            f"{some_names(lost)}. No bookie has"
            " the first or last entry: bookies delete the entries of a deleted ledger",
            next_step=f"`bkctl ledger verify {lost[0]}` reads all entries",
        )


def _empty_other(session: Session, target: _RestoreTarget, info: BackupInfo) -> str | None:
    """Return the id of another, empty cluster in the root (it was just formatted).

    None if the root has no other cluster.

    Raises:
        ConflictError: the root has another cluster that is not empty.
    """
    if target.instance_id in {None, info.instance_id}:
        return None
    found = session.cluster.with_store(read_contents)
    if found is None or not found.is_empty:
        is_used = found is not None and attrs.evolve(found, registered=()).is_empty
        why = "has registered bookies" if is_used else "is not empty"
        raise ConflictError(
            f"{session.uri} is the cluster {target.instance_id}, which {why}; the backup is of "
            f"{info.instance_id}",
            next_step="stop the bookies, and run the command again"
            if is_used
            else "restore into another root",
        )
    return target.instance_id


async def _remove_empty(store: MetadataStore, instance_id: str) -> None:
    """Remove the cluster if it is unchanged and empty.

    Raises:
        ConflictError: the root has another cluster, or the cluster is not empty.
    """
    found = await read_contents(store)
    if found is None or found.instance_id != instance_id or not found.is_empty:
        raise ConflictError(
            "another process changed the cluster a moment ago; this command changed nothing"
        )
    # A writer from before the format may still run, and must not overwrite its restored log.
    await store.nuke(keep_versions=True)


def _objections(session: Session, target: _RestoreTarget) -> Iterator[Objection]:
    if target.nodes:
        yield Objection(
            ROOT,
            f"{session.uri} is not empty: its root has {counted(target.nodes, 'node')}",
            "--force root adds the missing nodes and keeps all others",
        )


async def _existing(store: MetadataStore, only: Collection[str]) -> dict[str, int]:
    """Return the hash of each existing node's value; only of the paths ``only``, unless empty.

    The values themselves need several times the memory in a large cluster.
    """
    found: dict[str, int] = {}
    for path in only or ("",):
        with contextlib.suppress(NotFoundError):
            async for some in store.nodes(path, depth=0 if only else None):
                found |= {node.path: hash(node.value) for node in some}
    return found


def _missing(
    file: Path, info: BackupInfo, existing: Mapping[str, int], only: Collection[str] = ()
) -> _MissingNodes:
    """Return the nodes of a backup that do not exist; only of the paths ``only``, unless empty."""
    tally, staying = BackupCounts(info), BackupCounts(info)
    ledger_ids: list[LedgerId] = []
    cookies: list[BookieId] = []
    differing: list[str] = []
    others = set[str]() if only else set(existing)
    for some in backup_file.stored_nodes(file, only):
        for node in some:
            others.discard(node.path)
            if node.path in existing:
                staying.add(node.path)
                if node.path != zk_paths.ELECTION and existing[node.path] not in {
                    hash(node.value),
                    _REMOVED_LOG,  # ``add_nodes`` replaces this value.
                }:
                    differing.append(node.path)
            else:
                found = tally.add(node.path)
                if found.kind == "ledger" and found.ledger_id is not None:
                    ledger_ids.append(found.ledger_id)
                elif found.kind == "cookie" and found.bookie_id is not None:
                    cookies.append(found.bookie_id)
    lines = tally.result().lines({"ledger": ledger_ids, "cookie": cookies})
    kinds = staying.result().lines()
    if rest := staying.nodes - staying.kinds.total():
        of = "parents of ledgers" if only else "others"
        kinds.append(f"{rest} {of}" if kinds else of)
    return _MissingNodes(
        nodes=tally.nodes,
        lines=tuple(lines),
        ledger_ids=tuple(ledger_ids),
        existing=staying.nodes,
        existing_lines=tuple(kinds),
        differing=tuple(differing),
        newer=tuple(sorted(_ledgers_of(others, info))),
    )


def _ledgers_of(paths: Iterable[str], info: BackupInfo) -> Iterator[LedgerId]:
    """Yield the ledgers whose metadata is at one of these paths."""
    for path in paths:
        found = known(path, b"", info.layout)
        if found.kind == "ledger" and found.ledger_id is not None:
            yield found.ledger_id


async def _target(store: MetadataStore) -> _RestoreTarget:
    try:
        (root,) = [
            node async for some in store.nodes("", depth=0) for node in some if not node.path
        ]
    except NotFoundError:
        return _RestoreTarget(0, None)
    try:
        instance_id = await store.instance_id()
    except NotInitializedError:
        instance_id = None
    return _RestoreTarget(root.children, instance_id)


async def _layout(store: MetadataStore) -> str | None:
    """Return the layout's name; None without a layout, as after an interrupted restore."""
    try:
        return (await store.layout()).name
    except NotInitializedError:
        return None


async def _put(
    store: MetadataStore,
    file: Path,
    info: BackupInfo,
    progress: Progress,
    only: Collection[str],
    missing: Collection[LedgerId],
) -> tuple[list[str], LedgerId | None]:
    """Create the nodes; return the unchanged nodes, and the last reserved id.

    The layout is written last: a partly restored root is then not a cluster that generates ids. A
    cluster with a layout generates them already: ids are reserved before its ``missing`` ledgers
    are added.
    """
    kept: list[str] = []
    last: list[StoredNode] = []
    done, reserved = 0, None
    is_cluster = await _layout(store) is not None
    if is_cluster and missing:
        reserved = await _reserve_ids(store, info, is_cluster=True)
    for some in backup_file.stored_nodes(file, only):
        now = [node for node in some if node.path != zk_paths.LAYOUT]
        last += [node for node in some if node.path == zk_paths.LAYOUT]
        kept += await store.add_nodes(now, info.layout)
        done += len(some)
        progress.update(done)
    if not is_cluster:
        reserved = await _reserve_ids(store, info, is_cluster=False)
    return kept + await store.add_nodes(last, info.layout), reserved


async def _reserve_ids(
    store: MetadataStore, info: BackupInfo, *, is_cluster: bool
) -> LedgerId | None:
    """Return the last reserved id; None if the counter is above the backup's ids."""
    highest = info.highest_ledger
    if highest is None or (is_cluster and await store.allocate_ledger_id() > highest):
        return None
    reserved = LedgerId(highest + IDS_SPARED)
    await store.skip_ledger_ids(reserved, info.layout)
    return reserved
