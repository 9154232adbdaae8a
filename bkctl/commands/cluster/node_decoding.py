"""The decoding of a cluster's metadata nodes: their kinds by path, and their values."""

from __future__ import annotations

from typing import Any, Final

import attrs

from bkclient.log.cursors import decode_cursors
from bkclient.log.record import decode_record
from bkclient.metadata import zk_paths
from bkclient.metadata.stored_values import decode_instance_id
from bkclient.metadata.tree.underreplication.repair_nodes import parse_delay
from bkclient.metadata.zk_paths import LAYOUTS
from wire.errors import BookKeeperError
from wire.ids import BookieId, LedgerId
from wire.ledger_metadata import decode_metadata
from wire.records import underreplication
from wire.records.bookie_service_info import decode_service_info
from wire.records.cookie import decode_cookie
from wire.records.layout import decode_layout

_INNER: Final = {
    "": "root",
    zk_paths.AVAILABLE: "writable bookies",
    zk_paths.READ_ONLY: "read-only bookies",
    zk_paths.COOKIES: "cookies",
    zk_paths.IDGEN: "ledger ids",
    zk_paths.IDGEN_LONG: "long ledger ids",
    zk_paths.UNDERREPLICATION: "autorecovery",
    zk_paths.MARKS: "marks",
    zk_paths.LOCKS: "locks",
    zk_paths.LOGS: "logs",
    zk_paths.CURSORS: "cursors",
}
_SWITCHES: Final = {
    zk_paths.REPLICATION_DISABLED: "autorecovery is disabled",
    zk_paths.DISABLE_HEALTH_CHECK: "the health check is disabled",
}


@attrs.frozen(kw_only=True)
class KnownNode:
    """The kind of a node, and its decoded value: a record, a text, a number, or None.

    ``problem`` is the reason that a value cannot be decoded.
    """

    kind: str
    value: Any = None
    ledger_id: LedgerId | None = None
    bookie_id: BookieId | None = None
    problem: str = ""


def known(path: str, value: bytes, layout: str) -> KnownNode:
    """Return a decoded node; its kind is ``unknown`` if it does not belong to a cluster."""
    found = _place(path, layout)
    try:
        return attrs.evolve(found, value=_decoded(found, path, value))
    except (BookKeeperError, UnicodeDecodeError) as error:
        return attrs.evolve(found, problem=str(error))


def _place(path: str, layout: str) -> KnownNode:
    """Return the kind of a node, from its path alone."""
    parent, name = zk_paths.parent(path), path.rpartition("/")[2]
    if path in _INNER:
        return KnownNode(kind=_INNER[path])
    if path in _SWITCHES:
        return KnownNode(kind="switch")
    if path in _NAMED:
        return KnownNode(kind=_NAMED[path])
    if parent in {zk_paths.AVAILABLE, zk_paths.READ_ONLY}:
        return KnownNode(kind="registration", bookie_id=BookieId(name))
    if parent == zk_paths.COOKIES:
        return KnownNode(kind="cookie", bookie_id=BookieId(name))
    if parent == zk_paths.LOGS:
        return KnownNode(kind="log")
    if parent == zk_paths.CURSORS:
        return KnownNode(kind="cursor list")
    if parent == zk_paths.LOCKS:
        return KnownNode(kind="lock", ledger_id=zk_paths.marked_ledger(name))
    if parent == zk_paths.ELECTION:
        return KnownNode(kind="vote")
    if path.startswith(f"{zk_paths.MARKS}/"):
        ledger_id = zk_paths.marked_ledger(name)
        return KnownNode(kind="marks" if ledger_id is None else "mark", ledger_id=ledger_id)
    if path.startswith((f"{zk_paths.IDGEN}/", f"{zk_paths.IDGEN_LONG}/")):
        return KnownNode(kind="ledger id maker")
    ledger_id = LAYOUTS[layout].id_of(path)
    if ledger_id is not None:
        return KnownNode(kind="ledger", ledger_id=ledger_id)
    if LAYOUTS[layout].is_ledger_parent(path.split("/")[1] if path.startswith("/") else path):
        return KnownNode(kind="ledgers")
    return KnownNode(kind="unknown")


_NAMED: Final = {
    zk_paths.LAYOUT: "layout",
    zk_paths.INSTANCE_ID: "instance id",
    zk_paths.UNDERREPLICATION_LAYOUT: "autorecovery layout",
    zk_paths.LOST_BOOKIE_DELAY: "recovery delay",
    zk_paths.ELECTION: "auditor election",
    **dict.fromkeys(zk_paths.CHECK_TIMES.values(), "check time"),
}


def _decoded(found: KnownNode, path: str, value: bytes) -> Any:
    name = path.rpartition("/")[2]
    decoders: dict[str, Any] = {
        "ledger": lambda: decode_metadata(value),
        "registration": lambda: decode_service_info(value, BookieId(name)),
        "cookie": lambda: decode_cookie(value),
        "mark": lambda: underreplication.decode_mark(value),
        "lock": lambda: underreplication.decode_lock(value),
        "vote": lambda: underreplication.decode_vote(value),
        "auditor election": lambda: underreplication.decode_vote(value) if value else None,
        "layout": lambda: decode_layout(value),
        "autorecovery layout": lambda: underreplication.decode_repair_layout(value),
        "recovery delay": lambda: parse_delay(value),
        "check time": lambda: underreplication.decode_check_time(value),
        "instance id": lambda: decode_instance_id(path, value),
        "switch": lambda: _SWITCHES[path],
        "log": lambda: decode_record(name, value),
        "cursor list": lambda: decode_cursors(zk_paths.source_of_cursors(name), value),
    }
    decode = decoders.get(found.kind)
    return None if decode is None else decode()
