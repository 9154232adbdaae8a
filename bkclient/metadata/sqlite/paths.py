"""The rows of the file for the nodes of the tree, and the paths of rows."""

from __future__ import annotations

from typing import Final

from bkclient.metadata import zk_paths
from bkclient.metadata.sqlite.database import Key
from bkclient.metadata.sqlite.rows import META
from bkclient.metadata.zk_paths import LedgerLayout
from wire.ids import LedgerId

LEDGER: Final = "ledger"
COOKIE: Final = "cookie"
LOG: Final = "log"
CURSORS: Final = "cursors"
AVAILABLE: Final = "avail"
READ_ONLY: Final = "avail_ro"
MARK: Final = "mark"
LOCK: Final = "lock"
VOTE: Final = "vote"

KINDS_BELOW: Final = {
    zk_paths.AVAILABLE: AVAILABLE,
    zk_paths.READ_ONLY: READ_ONLY,
    zk_paths.COOKIES: COOKIE,
    zk_paths.LOGS: LOG,
    zk_paths.CURSORS: CURSORS,
    zk_paths.LOCKS: LOCK,
    zk_paths.ELECTION: VOTE,
}
"""Kinds of rows by the parent of their nodes."""

_BESIDE: Final = "beside"
"""The kind of other programs' nodes beside the root: a file has no such rows."""

_META: Final = frozenset({
    zk_paths.LAYOUT, zk_paths.INSTANCE_ID, zk_paths.DISABLE_HEALTH_CHECK,
    zk_paths.UNDERREPLICATION_LAYOUT, zk_paths.REPLICATION_DISABLED, zk_paths.LOST_BOOKIE_DELAY,
    zk_paths.ELECTION, *zk_paths.CHECK_TIMES.values(),
})  # fmt: skip


def row_of(path: str) -> tuple[str, Key] | None:
    """Return the row of a node; None for an inner node, which has no row."""
    above, _, name = path.rpartition("/")
    kind = KINDS_BELOW.get(above)
    if path.startswith(zk_paths.BESIDE):
        return _BESIDE, path
    if path in _META:
        return META, path
    if path in KINDS_BELOW:
        return None
    if kind == LOCK or path.startswith(f"{zk_paths.MARKS}/"):
        ledger_id = zk_paths.marked_ledger(name)
        return None if ledger_id is None else (kind or MARK, ledger_id)
    if kind == VOTE:
        return VOTE, zk_paths.sequence_of(name)
    if kind is not None:
        return kind, zk_paths.source_of_cursors(name) if kind == CURSORS else name
    for layout in (zk_paths.HIERARCHICAL, zk_paths.LONG, zk_paths.FLAT, zk_paths.LEGACY):
        ledger_id = layout.id_of(path)
        if ledger_id is not None:
            return LEDGER, ledger_id
    return None


def path_of(kind: str, key: Key, layout: LedgerLayout) -> str:
    """Return the path of a row's node."""
    if kind == LEDGER:
        return layout.path_of(LedgerId(int(key)))
    if kind == MARK:
        return zk_paths.mark(LedgerId(int(key)))
    return str(key) if kind == META else f"{_ABOVE[kind]}/{name_of(kind, key)}"


_ABOVE: Final = {kind: path for path, kind in KINDS_BELOW.items()}


def name_of(kind: str, key: Key) -> str:
    """Return the last part of the path of a row's node."""
    if kind == LOCK:
        return zk_paths.mark_name(LedgerId(int(key)))
    if kind == VOTE:
        return f"{zk_paths.VOTE_PREFIX}{int(key):010d}"
    return zk_paths.cursors(str(key)).rpartition("/")[2] if kind == CURSORS else str(key)
