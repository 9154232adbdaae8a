"""`cluster tree` and `cluster show`: the nodes of the metadata, decoded."""

from __future__ import annotations

import enum
from collections.abc import AsyncIterator, Iterator, Mapping, Sequence
from typing import Any, Final

import attrs

from bkclient.client import Client
from bkclient.log.record import LogRecord
from bkclient.metadata import zk_paths
from bkclient.metadata.errors import NotFoundError
from bkclient.metadata.versions_and_watches import StoredNode
from bkctl.commands.cluster.map import branches
from bkctl.commands.cluster.node_decoding import KnownNode, known
from bkctl.errors import NothingFoundError, UsageError
from bkctl.output.charts import Canvas
from bkctl.output.forms.value_text import safe
from bkctl.output.units import counted
from bkctl.output.views import NEVER, WIDE, Column, Kind, shown
from bkctl.session.session import Session
from bkctl.suggest import nearest
from wire.ledger_metadata import LedgerMetadata
from wire.records.bookie_service_info import BookieServiceInfo
from wire.records.cookie import Cookie
from wire.records.underreplication import UnderreplicatedMark

_SECRETS: Final = frozenset({"password"})
_HOLDS_SECRETS: Final = frozenset({"ledger", "log"})
_TEXT_MAX: Final = 60


def summary(node: MetadataNode) -> str:
    """Return a short description of a node."""
    what, value = node.known, node.known.value
    if what.problem:
        return f"{what.kind} that cannot be read: {what.problem}"
    if isinstance(value, LedgerMetadata):
        end = (
            f", {counted(value.last_entry_id + 1, 'entry')}"
            if value.last_entry_id is not None
            else ""
        )
        return f"ledger {what.ledger_id}: {value.state.word}{end}"
    if isinstance(value, Cookie):
        return f"cookie of {value.bookie_id}"
    if isinstance(value, BookieServiceInfo):
        return " ".join(f"{one.protocol} {one.host}:{one.port}" for one in value.endpoints)
    if isinstance(value, UnderreplicatedMark):
        lacking = " ".join(value.replicas) or "placement"
        return f"mark of ledger {what.ledger_id}: {lacking}"
    if isinstance(value, LogRecord):
        return f"log of {counted(len(value.ledgers), 'ledger')}"
    if value is not None:
        return f"{what.kind}: {_short(value)}"
    if what.kind == "unknown" and node.stored.value:
        return f"unknown: {_text(node.stored.value)[:_TEXT_MAX]}"
    return what.kind


def _decoded(v: MetadataNode) -> Any:
    """Return a node's decoded value; without passwords if its raw bytes are not shown."""
    value = plain(v.known.value, secrets=v.raw is not None)
    return value if value is None or isinstance(value, dict) else {"value": value}


def _decoded_cell(v: MetadataNode) -> str:
    return "\n".join(f"{key}: {value}" for key, value in (_decoded(v) or {}).items()) or "-"


@shown(
    "nodes",
    Column("path", "Path below the root."),
    Column("kind", "Kind of the node.", "known.kind"),
    Column("summary", "Short description of the node.", summary, rank=1),
    Column("version", "Number of changes to the node.", "stored.version", Kind.COUNT, rank=2),
    Column("children", "Number of direct children.", "stored.children", Kind.COUNT, rank=2),
    Column(
        "size", "Size of the node's value.", lambda v: len(v.stored.value), Kind.BYTES, rank=WIDE
    ),
    Column(
        "ephemeral",
        "Whether the node is removed at the end of its session.",
        "stored.is_ephemeral",
        Kind.FLAG,
        rank=WIDE,
    ),
    Column("decoded", "The decoded value.", _decoded, Kind.NESTED, rank=NEVER, cell=_decoded_cell),
    Column(
        "problem",
        "The error, if the value cannot be read.",
        lambda v: v.known.problem or None,
        rank=NEVER,
    ),
    Column(
        "value_b64",
        "The value in base64; absent if the value contains a password.",
        "raw",
        rank=NEVER,
        cell=lambda v: (v.raw or b"").decode(errors="backslashreplace"),
    ),
    kw_only=True,
)
class MetadataNode:
    """A node and its decoded value; ``raw`` is None if it would show a password."""

    stored: StoredNode
    known: KnownNode
    raw: bytes | None

    @property
    def path(self) -> str:
        return self.stored.path or "/"


def show_tree(session: Session, path: str, depth: int, limit: int) -> None:
    """Print a node and the nodes below it.

    Raises:
        NothingFoundError: the node does not exist.
    """
    top = normal(path)
    session.about = f"node {top or '/'}"
    found = session.iterate(nodes, top, depth, secrets=session.options.show_secrets)
    session.emitter.draw_all(
        _limited(session, found, limit),
        MetadataNode,
        lambda shown, canvas: drawing(shown, top, canvas),
    )


def _limited(session: Session, found: Iterator[MetadataNode], limit: int) -> Iterator[MetadataNode]:
    for number, node in enumerate(found):
        if number == limit:
            session.note(f"there is more than {limit} nodes: name a PATH, or raise --limit")
            return
        yield node


def show_node(session: Session, path: str) -> None:
    """Print one node.

    Raises:
        NothingFoundError: the node does not exist.
    """
    top = normal(path)
    session.about = f"node {top or '/'}"
    # Logs are beside the root, not below it, so the walk over the root yields them, too.
    found = session.iterate(nodes, top, 0, secrets=session.options.show_secrets)
    session.emit(next(one for one in found if one.stored.path == top))


def normal(path: str) -> str:
    """Return a path in the form of the store: from the root, without a slash at its end.

    Raises:
        UsageError: it contains ``.`` or ``..``.
    """
    if not {".", ".."}.isdisjoint(path.split("/")):
        raise UsageError(f"{path}: '.' and '..' are not valid names of nodes")
    path = path.rstrip("/")
    if not path or path.startswith(("/", *zk_paths.BESIDE_ROOT)):
        return path
    return f"/{path}"


async def nodes(
    client: Client, path: str, depth: int, *, secrets: bool
) -> AsyncIterator[MetadataNode]:
    """Yield a node and the nodes below it, parents first.

    Raises:
        NothingFoundError: the node does not exist.
    """
    layout = (await client.store.layout()).name
    try:
        async for some in client.store.nodes(path, depth=depth):
            for stored in some:
                what = (
                    KnownNode(kind="unknown", problem=stored.unreadable)
                    if stored.unreadable
                    else known(stored.path, stored.value, layout)
                )
                shown = secrets or what.kind not in _HOLDS_SECRETS
                yield MetadataNode(stored=stored, known=what, raw=stored.value if shown else None)
    except NotFoundError as error:
        raise await _missing(client, path) from error


async def _missing(client: Client, path: str) -> NothingFoundError:
    """Return the error for a missing node, with the path that was perhaps meant."""
    said = f"there is no node {path or '/'}"
    # The path as ZooKeeper's own tools print it: with the cluster's root in front.
    below = path
    while "/" in below[1:]:
        below = below[below.index("/", 1) :]
        if await _below(client, below) is not None:
            return NothingFoundError(
                f"{said}; did you mean {below}?", next_step="paths begin below the cluster's root"
            )
    above, known = path, await _below(client, path)
    while known is None and above:
        above = "" if zk_paths.is_top(above) else zk_paths.parent(above)
        known = await _below(client, above)
    missing = path.removeprefix(above).lstrip("/").partition("/")[0]
    if known and (near := nearest(missing, known)):
        said += f"; did you mean {known[near[0]]}?"
    return NothingFoundError(
        said, next_step=f"`bkctl cluster tree {above or '/'} --depth 1` shows the existing nodes"
    )


async def _below(client: Client, path: str) -> Mapping[str, str] | None:
    """Return the names and paths of the children of a node; None if the node does not exist."""
    try:
        found = [one.path async for some in client.store.nodes(path, depth=1) for one in some]
    except NotFoundError:
        return None
    return {one.rpartition("/")[2]: one for one in found if one != path}


# Decoded values ---------------------------------------------------------------------------------


def _short(value: Any) -> str:
    if attrs.has(type(value)):
        return ", ".join(f"{k} {v}" for k, v in attrs.asdict(value).items() if v is not None)
    return str(value)


def plain(value: Any, *, secrets: bool) -> Any:
    """Return a decoded value for machine forms, without passwords unless ``secrets``."""
    if attrs.has(type(value)):
        return {
            field.name: plain(getattr(value, field.name), secrets=secrets)
            for field in attrs.fields(type(value))
            if secrets or field.name not in _SECRETS
        }
    if isinstance(value, enum.Enum):
        return value.name
    if isinstance(value, bytes):
        return _text(value)
    if isinstance(value, Mapping):
        return {str(key): plain(inner, secrets=secrets) for key, inner in value.items()}
    if isinstance(value, (tuple, list, frozenset)):
        return [plain(inner, secrets=secrets) for inner in value]
    return value


def _text(value: bytes) -> str:
    return value.decode(errors="backslashreplace")


def drawing(found: Sequence[MetadataNode], top: str, canvas: Canvas) -> Iterator[str]:
    """Yield the lines of the tree below ``top``; deeper nodes are only counted."""
    shown = {node.stored.path for node in found}
    below: dict[str, Any] = {}
    levels: dict[str, dict[str, Any]] = {top: below}
    by_path = {node.stored.path: node for node in found}
    # No colour: long lines are cut, and an escape sequence must not be cut.
    canvas = attrs.evolve(canvas, color=False)
    yield canvas.fitted(f"{top or '/'}  {safe(summary(by_path[top]))}", canvas.width).rstrip()
    for node in sorted(found, key=lambda one: one.stored.path):
        path = node.stored.path
        if path == top:
            continue
        parent = "" if zk_paths.is_top(path) else zk_paths.parent(path)
        levels[path] = {}
        levels.setdefault(parent, {})[path] = levels[path]

    def leaf(path: str, child: Mapping[str, Any]) -> str:
        node = by_path[path]
        name = path if zk_paths.is_top(path) else path.rpartition("/")[2]
        hidden = node.stored.children - len([one for one in child if one in shown])
        more = f" ({hidden} below)" if hidden > 0 else ""
        return f"{safe(name)}{more}  {safe(summary(node))}"

    for line in branches(below, canvas, leaf):
        yield canvas.fitted(line, canvas.width).rstrip()
