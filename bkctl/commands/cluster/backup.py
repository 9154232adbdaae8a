"""What `cluster backup` and `cluster restore` do: all metadata into a file, and back.

The file is JSON lines: a head, a node a line with parents before children, and an end with how many
there were and the SHA-256 of every byte before it. So a file that was cut is noticed.
"""

from __future__ import annotations

import base64
import contextlib
import hashlib
import json
import os
import tempfile
import time
from collections import Counter
from collections.abc import AsyncIterator, Callable, Collection, Iterator, Mapping, Sequence
from functools import partial
from pathlib import Path
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, BinaryIO, Final

import attrs

from bkclient.blocking import with_store
from bkclient.concurrency import wall_s
from bkclient.metadata import zk_paths
from bkclient.metadata.api import NotFoundError, NotInitializedError, StoredNode
from bkclient.metadata.store_settings import store_options
from bkclient.repair.verify import lost_ledgers
from bkctl.commands.cluster.known_nodes import KnownNode, known
from bkctl.commands.cluster.removal.metadata_contents import MetadataContents, read_contents
from bkctl.errors import (
    CommandError,
    ConflictError,
    NothingFoundError,
    PartlyDoneError,
    RefusedError,
)
from bkctl.output.units import counted, human_bytes, human_duration, rfc3339
from bkctl.output.views import Column, Kind, column, shown
from bkctl.session.safety import Objection, named, refuse_unless_forced
from bkctl.session.safety_names import ROOT
from wire.ids import BookieId, LedgerId

if TYPE_CHECKING:
    from bkclient.client import Client
    from bkclient.metadata.api import MetadataStore
    from bkctl.output.progress import Progress
    from bkctl.session.session import Session

FORMAT: Final = "bkctl-backup"
FORMAT_VERSION: Final = 1

IDS_SPARED: Final = 1000
"""Ids behind the highest in a backup that are not given again: of ledgers deleted before it."""

_NEW_CTIMES: Final = (
    "ZooKeeper gives each restored node a new creation time: for --older-than, ledgers whose"
    " metadata has none are as old as this restore"
)
_ALL: Final = (
    "All missing nodes are added, also ledgers that were deleted on purpose and cookies of"
    " decommissioned bookies."
)
_NODES_AT_ONCE: Final = 500
_HEAD_BYTES_MAX: Final = 1 << 16
_NUMBER_MAX: Final = 2**63 - 1
_COUNTED_IDS_END: Final = 1 << 62
"""Ids from here on were chosen by users: no counter gets there, and few ids are left behind."""
_KINDS: Final = ("ledger", "cookie", "mark", "log")
_NO_IDS: Final[Mapping[str, Collection[object]]] = MappingProxyType({})


@attrs.frozen(kw_only=True)
class BackupInfo:
    """What a backup is of, and what it has. Times are milliseconds since the epoch."""

    uri: str
    instance_id: str | None
    layout: str
    time_ms: int
    nodes: int = 0
    kinds: Mapping[str, int] = attrs.field(factory=dict)
    """How many ledgers, cookies, marks and logs."""
    highest_ledger: LedgerId | None = None
    """Of the ids that a counter gives."""

    def lines(self, ids: Mapping[str, Collection[object]] = _NO_IDS) -> list[str]:
        """Return what it has, for people; ``ids`` are those of some kinds."""
        return [
            counted(self.kinds[kind], kind) + (f" ({named(ids[kind])})" if ids.get(kind) else "")
            for kind in _KINDS
            if self.kinds.get(kind)
        ]


def _written(v: BackupWritten) -> str:
    has = ", ".join(v.info.lines()) or "no ledger"
    return (
        f"wrote {counted(v.info.nodes, 'node')} ({has}) to {v.file}:"
        f" {human_bytes(v.file_bytes)} in {human_duration(v.seconds)}"
    )


def _of_info(name: str, doc: str, kind: Kind = Kind.TEXT) -> Column:
    return column(name, doc, f"info.{name}", kind)


def _number(name: str) -> Column:
    return column(f"{name}s", f"How many {name}s.", lambda v: v.info.kinds.get(name, 0), Kind.COUNT)


_INFO: Final = (
    _of_info("instance_id", "The cluster's id."),
    _of_info("layout", "Layout of the metadata."),
    _of_info("nodes", "How many nodes.", Kind.COUNT),
    *map(_number, ("ledger", "cookie", "mark", "log")),
    column("time", "When it was backed up.", "info.time_ms", Kind.TIME_MS),
)


@shown(
    "backups",
    column("file", "Where it is."),
    column("file_bytes", "How large.", kind=Kind.BYTES),
    column("seconds", "How long it took.", kind=Kind.SECONDS),
    *_INFO,
    sentence=_written,
)
@attrs.frozen(kw_only=True)
class BackupWritten:
    """A file that holds a cluster's metadata."""

    file: str
    info: BackupInfo
    file_bytes: int
    seconds: float


@attrs.frozen
class _Missing:
    """What a root lacks of a backup."""

    nodes: int
    lines: tuple[str, ...]
    """How many of each kind; of ledgers and cookies also which ones."""
    ledger_ids: tuple[LedgerId, ...]

    @property
    def text(self) -> str:
        """What it is, for people."""
        kinds = ", ".join(self.lines)
        return f"{counted(self.nodes, 'node')}{': ' if kinds else ''}{kinds}"


def _restored(v: ClusterRestored) -> str:
    has = ", ".join(v.info.lines()) or "no ledger"
    if v.added is None:
        return f"restored cluster {v.info.instance_id} to {v.uri}: {has}"
    return f"added {v.added.text} to {v.uri}{_staying(v.existing)}"


def _staying(nodes: int) -> str:
    if not nodes:
        return ""
    return f"; {counted(nodes, 'node')} {'exists and stays' if nodes == 1 else 'exist and stay'}"


@shown(
    "clusters",
    column("uri", "The metadata service."),
    *_INFO,
    column("kept", "Nodes that were there with another value, and stay."),
    column("added", "Nodes that were missing.", "added_nodes", Kind.COUNT),
    id="instance_id",
    sentence=_restored,
)
@attrs.frozen(kw_only=True)
class ClusterRestored:
    """A cluster whose metadata is back. ``kept`` nodes were there with another value, and stay."""

    uri: str
    info: BackupInfo
    kept: tuple[str, ...] = ()
    added: _Missing | None = None
    """What the root lacked; None for a root that was empty."""

    @property
    def added_nodes(self) -> int:
        return self.info.nodes if self.added is None else self.added.nodes

    @property
    def existing(self) -> int:
        return self.info.nodes - self.added_nodes


class BackupDamagedError(CommandError):
    """The file is not a complete backup."""


@attrs.define
class _BackupCounts:
    """What the nodes of a backup come to."""

    info: BackupInfo
    nodes: int = 0
    kinds: Counter[str] = attrs.field(factory=Counter)
    highest: LedgerId | None = None

    def add(self, path: str) -> KnownNode:
        """Count one node; return what it is."""
        self.nodes += 1
        found = known(path, b"", self.info.layout)
        if found.kind in _KINDS:
            self.kinds[found.kind] += 1
        ledger_id = found.ledger_id if found.kind == "ledger" else None
        if ledger_id is not None and ledger_id < _COUNTED_IDS_END:
            self.highest = max(self.highest or ledger_id, ledger_id)
        return found

    def result(self) -> BackupInfo:
        """Return the info with all that was counted."""
        return attrs.evolve(
            self.info, nodes=self.nodes, kinds=dict(self.kinds), highest_ledger=self.highest
        )


# Backup -----------------------------------------------------------------------------------------


def backup(session: Session, file: Path) -> None:
    """Write everything that lasts to a file, and print what was written; `-` is stdout.

    Raises:
        RefusedError: stdout is a terminal; see ``write`` for what else is raised.
    """
    to_stdout = str(file) == "-"
    if to_stdout and session.host.stdout.isatty():
        raise RefusedError(
            "the backup contains ledger passwords; it is not shown on a terminal",
            next_step="give a file, or a pipe",
        )
    if not to_stdout:
        _insist_replaceable(file)
    if session.dry_run:
        session.plan([f"write all metadata of {session.uri} to {'stdout' if to_stdout else file}"])
    elif to_stdout:
        stream = session.host.stdout.buffer
        _write_nodes(stream, session.call(_about), session.iterate(_lasting))
        stream.flush()
    else:
        session.emit(write(session, file))


def write(session: Session, file: Path) -> BackupWritten:
    """Write everything that lasts to a file; return what was written.

    Raises:
        RefusedError: the file exists, and is not a backup.
        NothingFoundError: its directory is missing.
        CommandError: it cannot be written.
    """
    _insist_replaceable(file)
    began_s = time.monotonic()
    info: BackupInfo = session.call(_about)
    found = session.iterate(_lasting)
    with session.progress("backing up", unit="nodes") as progress:
        try:
            info, size = _write(file, info, found, progress)
        except OSError as error:
            raise CommandError(f"{file}: {error.strerror or error}") from error
    return BackupWritten(
        file=str(file), info=info, file_bytes=size, seconds=time.monotonic() - began_s
    )


def _insist_replaceable(file: Path) -> None:
    if not file.parent.is_dir():
        raise NothingFoundError(
            f"{file.parent}: no such directory", next_step="create it, or give another file"
        )
    if not file.exists():
        return
    try:
        with file.open("rb") as stream:
            _head(stream.readline(_HEAD_BYTES_MAX))
    except (BackupDamagedError, OSError) as error:
        raise RefusedError(
            f"{file} exists, and is not a backup", next_step="choose another name"
        ) from error


async def _about(client: Client) -> BackupInfo:
    store = client.store
    return BackupInfo(
        uri=store.uri,
        instance_id=await store.instance_id(),
        layout=(await store.layout()).name,
        time_ms=int(wall_s(client.cluster.clock) * 1000),
    )


async def _lasting(client: Client) -> AsyncIterator[tuple[StoredNode, ...]]:
    """Yield the nodes that no session owns, but for what makes ids and for the root itself."""
    async for some in client.store.nodes():
        yield tuple(node for node in some if _lasts(node))


def _lasts(node: StoredNode) -> bool:
    name = node.path.rpartition("/")[2]
    return not node.is_ephemeral and bool(node.path) and not name.startswith(zk_paths.ID_PREFIX)


def _write(
    file: Path, info: BackupInfo, found: Iterator[Sequence[StoredNode]], progress: Progress
) -> tuple[BackupInfo, int]:
    """Write beside the file, sync, and rename; return what was written, and its bytes."""
    directory = file.resolve().parent
    fd, name = tempfile.mkstemp(prefix=f".{file.name}.", dir=directory)  # Its owner's alone.
    try:
        with os.fdopen(fd, "wb") as stream:
            info = _write_nodes(stream, info, found, progress.update)
            stream.flush()
            os.fsync(stream.fileno())
            size = stream.tell()
        Path(name).replace(file)
        _sync(directory)
    except BaseException:
        Path(name).unlink(missing_ok=True)
        raise
    return info, size


def _write_nodes(
    stream: BinaryIO,
    info: BackupInfo,
    found: Iterator[Sequence[StoredNode]],
    tell: Callable[[int], object] = lambda _: None,
) -> BackupInfo:
    """Write a backup; return what was written. ``tell`` is called with the number of nodes."""
    digest, tally = hashlib.sha256(), _BackupCounts(info)

    def put(line: Mapping[str, Any]) -> None:
        data = json.dumps(line).encode() + b"\n"
        digest.update(data)
        stream.write(data)

    put(_head_line(info))
    for some in found:
        for node in some:
            put(_node_line(node))
            tally.add(node.path)
        tell(tally.nodes)
    put({"end": True, "nodes": tally.nodes, "sha256": digest.hexdigest()})
    return tally.result()


def _sync(directory: Path) -> None:
    fd = os.open(directory, os.O_RDONLY)
    try:
        os.fsync(fd)
    finally:
        os.close(fd)


def _head_line(info: BackupInfo) -> dict[str, Any]:
    return {
        FORMAT: FORMAT_VERSION,
        "uri": info.uri,
        "instance_id": info.instance_id,
        "layout": info.layout,
        "time": rfc3339(info.time_ms),
        "time_ms": info.time_ms,
    }


def _node_line(node: StoredNode) -> dict[str, Any]:
    line: dict[str, Any] = {"path": node.path, "version": node.version}
    if node.ctime_ms:
        line["ctime_ms"] = node.ctime_ms
    if node.value:
        line["value_b64"] = base64.b64encode(node.value).decode()
    return line


# The file ---------------------------------------------------------------------------------------


def _head(line: bytes) -> BackupInfo:
    try:
        head = json.loads(line)
        version = head[FORMAT]
        info = BackupInfo(
            uri=_text(head["uri"]),
            instance_id=None if head["instance_id"] is None else _text(head["instance_id"]),
            layout=_text(head["layout"]),
            time_ms=_whole(head["time_ms"]),
        )
    except (ValueError, KeyError, TypeError, RecursionError) as error:
        raise BackupDamagedError("it does not begin as a backup") from error
    if version != FORMAT_VERSION:
        raise BackupDamagedError(f"it is a backup of version {version}; known is {FORMAT_VERSION}")
    if info.layout not in zk_paths.LAYOUTS:
        raise BackupDamagedError(f"its layout {info.layout} is unknown")
    return info


def _node(line: bytes, number: int) -> StoredNode:
    try:
        found = json.loads(line)
        value = base64.b64decode(_text(found.get("value_b64", "")), validate=True)
        ctime_ms = _whole(found.get("ctime_ms", 0))
        return StoredNode(_path(found), value, _whole(found["version"]), ctime_ms=ctime_ms)
    except (ValueError, KeyError, TypeError, AttributeError, RecursionError) as error:
        raise BackupDamagedError(f"line {number} is not a node of a backup") from error


def _text(found: object) -> str:
    if not isinstance(found, str):
        raise TypeError("not a text")
    return found


def _whole(found: object) -> int:
    """Return a time or a version, as the drivers can store it."""
    if type(found) is not int or not 0 <= found <= _NUMBER_MAX:
        raise ValueError("not a whole number of 63 bits")
    return found


def _path(found: Mapping[str, object]) -> str:
    path = _text(found["path"])
    top, *names = path.split("/")
    if top not in {"", *zk_paths.BESIDE_ROOT} or {"", ".", ".."} & set(names) or "\0" in path:
        raise ValueError("not the path of a node")
    return path


def read(file: Path) -> BackupInfo:
    """Read a backup through; return what it has.

    Raises:
        BackupDamagedError: the file is not a backup, or not complete.
        OSError: it cannot be read.
    """
    digest = hashlib.sha256()
    with file.open("rb") as stream:
        line = stream.readline()
        tally = _BackupCounts(_head(line))
        for number, following in enumerate(stream, 2):
            digest.update(line)
            line = following
            if b'"end"' in line and _is_end(line, tally.nodes, digest.hexdigest()):
                if stream.read(1):
                    raise BackupDamagedError(f"line {number} is its end, and more follows")
                return tally.result()
            tally.add(_node(line, number).path)
    raise BackupDamagedError("its end is missing: it was cut")


def _is_end(line: bytes, nodes: int, digest: str) -> bool:
    """Return whether a line is the end; raise ``BackupDamagedError`` for one that does not fit."""
    try:
        found = json.loads(line)
        if not found.get("end"):
            return False
        fits = (_whole(found["nodes"]), found["sha256"]) == (nodes, digest)
    except (ValueError, KeyError, TypeError, AttributeError, RecursionError) as error:
        raise BackupDamagedError("its last line is damaged") from error
    if not fits:
        raise BackupDamagedError("its checksum does not fit: it was changed, or damaged")
    return True


def stored_nodes(file: Path, only: Collection[str] = ()) -> Iterator[list[StoredNode]]:
    """Yield the nodes of a backup that was read through, some at a time, in its order.

    ``only``: the paths to yield; all if empty.
    """
    with file.open("rb") as stream:
        stream.readline()
        some: list[StoredNode] = []
        for number, line in enumerate(stream, 2):
            if b'"end"' in line and json.loads(line).get("end"):
                break
            node = _node(line, number)
            if only and node.path not in only:
                continue
            some.append(node)
            if len(some) == _NODES_AT_ONCE:
                yield some
                some = []
        if some:
            yield some


# Restore ----------------------------------------------------------------------------------------


@attrs.frozen
class _RestoreTarget:
    """What is where a backup is to go: whether there is anything, and of which cluster."""

    nodes: int
    instance_id: str | None


def restore(
    session: Session, file: Path, force: Sequence[str], ledger_ids: Sequence[LedgerId]
) -> None:
    """Check a backup, ask, and restore it; with ``ledger_ids`` only the metadata of these ledgers.

    Raises:
        NothingFoundError: there is no such file, or a ledger is not in the backup.
        BackupDamagedError: the file is not a complete backup.
        RefusedError: the root is not empty, or the user did not confirm.
        ConflictError: there is another cluster, which is not empty, or none for single ledgers.
        PartlyDoneError: the entries of restored ledgers are gone.
    """
    session.about = str(file)
    try:
        info = read(file)
    except FileNotFoundError as error:
        raise NothingFoundError(
            "No such file or directory",
            next_step="give a file that `bkctl cluster backup FILE` has written",
        ) from error
    only = _paths_of(ledger_ids, info)
    if only:
        info = _part_of(file, info, only, ledger_ids)
    session.about = ""
    target: _RestoreTarget = _with_store(session, _target)
    if only:
        _insist_same_cluster(session, target, info)
    replaced = _empty_other(session, target, info)
    if replaced is None and not only:
        refuse_unless_forced(session, _objections(session, target), force)
    has = ", ".join(info.lines()) or "no ledger"
    existing = partial(_existing, only=only)
    missing = None
    if replaced is None and target.nodes:
        missing = _missing(file, info, _with_store(session, existing), only)
    gone = [] if replaced is None else [f"remove the empty cluster {replaced}"]
    if session.dry_run:
        nodes = counted(info.nodes, "node")
        session.plan(
            [*gone, f"restore {nodes} of cluster {info.instance_id}: {has}"]
            if missing is None
            else [f"add {missing.text}{_staying(info.nodes - missing.nodes)}"]
        )
        return
    session.confirm(
        [
            f"The backup of {rfc3339(info.time_ms)} has {has}.",
            *(f"First: {one}." for one in gone),
            *([] if missing is None else [f"Missing: {missing.text}; existing nodes stay."]),
            *([] if missing is None or only else [_ALL]),
        ],
        f"Restore cluster {info.instance_id} to {session.uri}?"
        if not only
        else f"Restore {has} to {session.uri}?",
    )
    if replaced is not None:
        _with_store(session, lambda store: _remove_empty(store, replaced))
    if missing is not None:  # As it is after the answer
        missing = _missing(file, info, _with_store(session, existing), only)
    # The layout comes last: what breaks off is not a cluster, and can be gone on with.
    session.resume = session.failed = (
        "the same command continues" if only else "`--force root` continues with the existing nodes"
    )
    with session.progress("restoring", total=info.nodes, unit="nodes") as progress:
        kept: list[str] = _with_store(
            session, lambda store: _put(store, file, info, progress, only)
        )
    session.resume = session.failed = ""
    session.emit(ClusterRestored(uri=session.uri, info=info, kept=tuple(kept), added=missing))
    if not session.uri.startswith("sqlite:"):
        session.note(_NEW_CTIMES)
    if kept:
        verb = "differs and stays as it is" if len(kept) == 1 else "differ and stay as they are"
        session.warn(f"{counted(len(kept), 'node')} {verb}: {named(kept)}")
    _look_for_entries(session, missing or _missing(file, info, ()))


def _paths_of(ledger_ids: Sequence[LedgerId], info: BackupInfo) -> frozenset[str]:
    """Return the paths of the metadata of ledgers, with the parents of each."""
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
    tally, absent = _BackupCounts(info), set(ledger_ids)
    for some in stored_nodes(file, only):
        for node in some:
            found = tally.add(node.path)
            absent -= {found.ledger_id}
    if absent:
        raise NothingFoundError(
            f"the backup does not have {counted(len(absent), 'ledger')}: {named(sorted(absent))}",
            next_step=f"it is of {rfc3339(info.time_ms)}; an older or newer one may have it",
        )
    return tally.result()


def _insist_same_cluster(session: Session, target: _RestoreTarget, info: BackupInfo) -> None:
    """Refuse single ledgers where their cluster is not.

    Raises:
        ConflictError: there is no cluster, or another one.
    """
    if target.instance_id != info.instance_id:
        raise ConflictError(
            f"{session.uri} has no cluster"
            if target.instance_id is None
            else f"{session.uri} is the cluster {target.instance_id}; the backup is of "
            f"{info.instance_id}",
            next_step="--ledger adds to the cluster of the backup; without it all is restored",
        )


def _look_for_entries(session: Session, restored: _Missing) -> None:
    """Look for restored ledgers that bookies in service have deleted meanwhile.

    Raises:
        PartlyDoneError: there are some.
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
            f"{named(sorted(away))}. These ledgers were not checked; `bkctl ledger verify --all` "
            "reads all entries"
        )
    if lost:
        raise PartlyDoneError(
            f"{counted(len(lost), 'restored ledger')} without entries: {named(lost)}. No bookie has"
            " the first or last entry: bookies delete the entries of a deleted ledger",
            next_step=f"`bkctl ledger verify {lost[0]}` reads all entries",
        )


def _empty_other(session: Session, target: _RestoreTarget, info: BackupInfo) -> str | None:
    """Return the id of another cluster that is empty, as one just formatted is; None without one.

    Raises:
        ConflictError: there is another cluster, and it holds something.
    """
    if target.instance_id in {None, info.instance_id}:
        return None
    found: MetadataContents | None = _with_store(session, read_contents)
    if found is None or not found.is_empty:
        raise ConflictError(
            f"{session.uri} is the cluster {target.instance_id}, which is not empty; the backup is"
            f" of {info.instance_id}",
            next_step="restore into another root",
        )
    return target.instance_id


async def _remove_empty(store: MetadataStore, instance_id: str) -> None:
    """Remove the cluster, if it is still the one that was shown, and empty.

    Raises:
        ConflictError: it is another one now, or holds something.
    """
    found = await read_contents(store)
    if found is None or found.instance_id != instance_id or not found.is_empty:
        raise ConflictError("the cluster has changed a moment ago; nothing was changed here")
    await store.nuke()


def _objections(session: Session, target: _RestoreTarget) -> Iterator[Objection]:
    if target.nodes:
        yield Objection(
            ROOT,
            f"{session.uri} is not empty: it has {counted(target.nodes, 'node')} at its top",
            "--force root adds the missing nodes and keeps all others",
        )


async def _existing(store: MetadataStore, only: Collection[str]) -> set[str]:
    """Return the paths of existing nodes; of those in ``only``, unless it is empty."""
    if not only:
        return {node.path async for some in store.nodes() for node in some}
    found: set[str] = set()
    for path in only:
        with contextlib.suppress(NotFoundError):
            found |= {node.path async for some in store.nodes(path, depth=0) for node in some}
    return found


def _missing(
    file: Path, info: BackupInfo, existing: Collection[str], only: Collection[str] = ()
) -> _Missing:
    """Return what a backup, or the part with the paths ``only``, has beyond existing paths."""
    tally = _BackupCounts(info)
    ledger_ids: list[LedgerId] = []
    cookies: list[BookieId] = []
    for some in stored_nodes(file, only):
        for node in some:
            if node.path not in existing:
                found = tally.add(node.path)
                if found.kind == "ledger" and found.ledger_id is not None:
                    ledger_ids.append(found.ledger_id)
                elif found.kind == "cookie" and found.bookie_id is not None:
                    cookies.append(found.bookie_id)
    lines = tally.result().lines({"ledger": ledger_ids, "cookie": cookies})
    return _Missing(tally.nodes, tuple(lines), tuple(ledger_ids))


def _with_store(session: Session, work: Any) -> Any:
    return with_store(session.uri, work, **store_options(session.config, session.uri))


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


async def _put(
    store: MetadataStore,
    file: Path,
    info: BackupInfo,
    progress: Progress,
    only: Collection[str],
) -> list[str]:
    """Make the nodes; the layout last, so that half of it is not a cluster that gives out ids."""
    kept: list[str] = []
    last: list[StoredNode] = []
    done = 0
    for some in stored_nodes(file, only):
        now = [node for node in some if node.path != zk_paths.LAYOUT]
        last += [node for node in some if node.path == zk_paths.LAYOUT]
        kept += await store.add_nodes(now, info.layout)
        done += len(some)
        progress.update(done)
    if info.highest_ledger is not None:
        await store.skip_ledger_ids(LedgerId(info.highest_ledger + IDS_SPARED), info.layout)
    return kept + await store.add_nodes(last, info.layout)
