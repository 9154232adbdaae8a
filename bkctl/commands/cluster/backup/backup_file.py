"""The file format of a backup of metadata.

It is JSON lines: a head, one node a line with parents before children, and an end with the number
of nodes and the SHA-256 of every byte before it. The end shows whether the file is complete.
"""

from __future__ import annotations

import base64
import hashlib
import json
from collections import Counter
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from pathlib import Path
from types import MappingProxyType
from typing import Any, BinaryIO, Final

import attrs

from bkclient.metadata import zk_paths
from bkclient.metadata.versions_and_watches import StoredNode
from bkctl.commands.cluster.node_decoding import KnownNode, known
from bkctl.errors import CommandError
from bkctl.output.units import counted, rfc3339
from bkctl.output.views import Column, Kind
from bkctl.session.safety_checks import some_names
from wire.ids import LedgerId

FORMAT: Final = "bkctl-backup"
FORMAT_VERSION: Final = 1
_NODES_AT_ONCE: Final = 500
_NUMBER_MAX: Final = 2**63 - 1
_COUNTED_IDS_END: Final = 1 << 62
"""The first id that only users choose: no counter gets there, and few ids are left after it."""

_KINDS: Final = ("ledger", "cookie", "mark", "log")
_NO_IDS: Final[Mapping[str, Collection[object]]] = MappingProxyType({})


@attrs.frozen(kw_only=True)
class BackupInfo:
    """The cluster of a backup, and the counts of its nodes.

    Times are milliseconds since the epoch.
    """

    uri: str
    instance_id: str | None
    layout: str
    time_ms: int
    nodes: int = 0
    kinds: Mapping[str, int] = attrs.field(factory=dict)
    """The number of ledgers, cookies, marks and logs."""
    highest_ledger: LedgerId | None = None
    """The highest ledger id that a counter generated."""

    def lines(self, ids: Mapping[str, Collection[object]] = _NO_IDS) -> list[str]:
        """Return the counts as texts; ``ids`` are the ids of some kinds."""
        return [
            counted(self.kinds[kind], kind)
            + (f" ({some_names(ids[kind])})" if ids.get(kind) else "")
            for kind in _KINDS
            if self.kinds.get(kind)
        ]


def _of_info(name: str, doc: str, kind: Kind = Kind.TEXT) -> Column:
    return Column(name, doc, f"info.{name}", kind)


def _number(name: str) -> Column:
    return Column(
        f"{name}s", f"Number of {name}s.", lambda v: v.info.kinds.get(name, 0), Kind.COUNT
    )


INFO_COLUMNS: Final = (
    _of_info("instance_id", "The cluster's id."),
    _of_info("layout", "Layout of the metadata."),
    _of_info("nodes", "Number of nodes.", Kind.COUNT),
    *map(_number, ("ledger", "cookie", "mark", "log")),
    Column("time", "Time of the backup.", "info.time_ms"),
)


class BackupDamagedError(CommandError):
    """The file is not a complete backup."""


@attrs.define
class BackupCounts:
    """The counts of the nodes of a backup."""

    info: BackupInfo
    nodes: int = 0
    kinds: Counter[str] = attrs.field(factory=Counter)
    highest: LedgerId | None = None

    def add(self, path: str) -> KnownNode:
        """Count one node; return its decoded path."""
        self.nodes += 1
        found = known(path, b"", self.info.layout)
        if found.kind in _KINDS:
            self.kinds[found.kind] += 1
        ledger_id = found.ledger_id if found.kind == "ledger" else None
        if ledger_id is not None and ledger_id < _COUNTED_IDS_END:
            self.highest = max(self.highest or ledger_id, ledger_id)
        return found

    def result(self) -> BackupInfo:
        """Return the info with the counts."""
        return attrs.evolve(
            self.info, nodes=self.nodes, kinds=dict(self.kinds), highest_ledger=self.highest
        )


def write_nodes(
    stream: BinaryIO,
    info: BackupInfo,
    found: Iterator[Sequence[StoredNode]],
    report: Callable[[int], object] = lambda _: None,
) -> BackupInfo:
    """Write a backup; return its summary. ``report`` is called with the number of nodes."""
    digest, tally = hashlib.sha256(), BackupCounts(info)

    def put(line: Mapping[str, Any]) -> None:
        data = json.dumps(line).encode() + b"\n"
        digest.update(data)
        stream.write(data)

    put(_head_line(info))
    for some in found:
        for node in some:
            put(_node_line(node))
            tally.add(node.path)
        report(tally.nodes)
    put({"end": True, "nodes": tally.nodes, "sha256": digest.hexdigest()})
    return tally.result()


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


def read(file: Path) -> BackupInfo:
    """Read a complete backup, and check it; return its summary.

    Raises:
        BackupDamagedError: the file is not a backup, or not complete.
        OSError: the file cannot be read.
    """
    digest = hashlib.sha256()
    with file.open("rb") as stream:
        line = stream.readline()
        tally = BackupCounts(_head(line))
        for number, following in enumerate(stream, 2):
            digest.update(line)
            line = following
            if b'"end"' in line and _is_end(line, tally.nodes, digest.hexdigest()):
                if stream.read(1):
                    raise BackupDamagedError(f"line {number} is its end, and more follows")
                return tally.result()
            tally.add(_node(line, number).path)
    raise BackupDamagedError("its end is missing: the file is truncated")


def stored_nodes(file: Path, only: Collection[str] = ()) -> Iterator[list[StoredNode]]:
    """Yield the nodes of a checked backup, some at a time, in its order.

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


def is_backup(file: Path) -> bool:
    """Return whether a file starts like a backup; False if it cannot be read."""
    start = f'{{"{FORMAT}":'.encode()
    try:
        with file.open("rb") as stream:
            return stream.read(len(start)) == start
    except OSError:
        return False


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
        raise BackupDamagedError(
            f"the backup has version {version}; this bkctl reads version {FORMAT_VERSION}"
        )
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
    """Return a time or a version that the drivers can store."""
    if type(found) is not int or not 0 <= found <= _NUMBER_MAX:
        raise ValueError("not a whole number of 63 bits")
    return found


def _path(found: Mapping[str, object]) -> str:
    path = _text(found["path"])
    top, *names = path.split("/")
    if top not in {"", *zk_paths.BESIDE_ROOT} or {"", ".", ".."} & set(names) or "\0" in path:
        raise ValueError("not the path of a node")
    return path


def _is_end(line: bytes, nodes: int, digest: str) -> bool:
    """Return whether a line is the end.

    Raise ``BackupDamagedError`` for an end that does not match.
    """
    try:
        found = json.loads(line)
        if not found.get("end"):
            return False
        fits = (_whole(found["nodes"]), found["sha256"]) == (nodes, digest)
    except (ValueError, KeyError, TypeError, AttributeError, RecursionError) as error:
        raise BackupDamagedError("its last line is damaged") from error
    if not fits:
        raise BackupDamagedError("its checksum does not match: the file was changed or damaged")
    return True
