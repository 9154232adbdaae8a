"""Paths of nodes in ZooKeeper, below the cluster's root, and paths of ledger ids.

Paths begin with ``/`` and are relative to the root. Agrees with BookKeeper 4.18.0:
FlatLedgerManager, LegacyHierarchicalLedgerManager, LongHierarchicalLedgerManager,
HierarchicalLedgerManager, ZkLedgerUnderreplicationManager, BookKeeperConstants.
"""

from __future__ import annotations

import itertools
import re
from collections.abc import Iterable
from typing import Final
from urllib.parse import quote, unquote

import attrs

from bkclient.errors import IncorrectParameterError
from wire.ids import BookieId, LedgerId

LAYOUT: Final = "/LAYOUT"
INSTANCE_ID: Final = "/INSTANCEID"
AVAILABLE: Final = "/available"
READ_ONLY_NAME: Final = "readonly"
READ_ONLY: Final = f"{AVAILABLE}/{READ_ONLY_NAME}"
COOKIES: Final = "/cookies"
ID_PREFIX: Final = "ID-"
IDGEN: Final = "/idgen"
IDGEN_LONG: Final = "/idgen-long"
EPOCH_PREFIX: Final = "HOB-"  # "high order bits"
DISABLE_HEALTH_CHECK: Final = "/disableHealthCheck"

LOGS: Final = ".logs"
"""Our own nodes: the records of logs made of ledgers.

They are beside the root (``/ledgers.logs`` for the root ``/ledgers``), because Java treats all
nodes below the root as its own.
"""

CURSORS: Final = ".cursors"
"""Our own nodes, beside the root like ``LOGS``: the positions of readers of logs and topics."""

BESIDE_ROOT: Final = (LOGS, CURSORS)

BESIDE: Final = "../"
"""The prefix of paths below the root's parent instead of the root."""

UNDERREPLICATION: Final = "/underreplication"
UNDERREPLICATION_LAYOUT: Final = f"{UNDERREPLICATION}/LAYOUT"
MARKS: Final = f"{UNDERREPLICATION}/ledgers"
LOCKS: Final = f"{UNDERREPLICATION}/locks"
REPLICATION_DISABLED: Final = f"{UNDERREPLICATION}/disable"
LOST_BOOKIE_DELAY: Final = f"{UNDERREPLICATION}/lostBookieRecoveryDelay"
ELECTION: Final = f"{UNDERREPLICATION}/auditorelection"
VOTE_PREFIX: Final = "V_"
CHECK_TIMES: Final = {
    "all-ledgers": f"{UNDERREPLICATION}/checkallledgersctime",
    "placement": f"{UNDERREPLICATION}/placementpolicycheckctime",
    "replicas": f"{UNDERREPLICATION}/replicascheckctime",
}

_SHOWN_CHARS_MAX: Final = 200

SHORT_IDS_END: Final = 2**31 - 1
"""The first id too large for a ZooKeeper sequence number; ids from here on are "long"."""

MARK_PREFIX: Final = "urL"
MARK_DEPTH: Final = 4
"""The number of levels of hexadecimal names between ``MARKS`` and a mark."""

OURS: Final = frozenset({DISABLE_HEALTH_CHECK})
"""Children of the root that Java also creates, but does not count as special."""

_SIXTEEN_DIGITS: Final = re.compile("[0-9a-f]{16}")
_MARK: Final = re.compile(r"urL(\d+)")
_SPECIAL: Final = frozenset(
    path[1:]
    for path in (AVAILABLE, COOKIES, LAYOUT, INSTANCE_ID, UNDERREPLICATION, IDGEN, IDGEN_LONG)
)


@attrs.frozen
class Digits:
    """One form of an id in paths: its zero-padded decimal digits, split into levels.

    ``cuts`` is the number of digits of each level. The last level is the leaf's, with an ``L`` in
    front; the leaf gets the extra digits of a longer id.
    """

    cuts: tuple[int, ...]
    digits_max: int = 19
    _length: int = attrs.field(init=False, eq=False, repr=False)
    _parts: tuple[tuple[int, int | None], ...] = attrs.field(init=False, eq=False, repr=False)

    @_length.default
    def _sum_of_cuts(self) -> int:
        return sum(self.cuts)

    @_parts.default
    def _from_cuts(self) -> tuple[tuple[int, int | None], ...]:
        starts = [0, *itertools.accumulate(self.cuts[:-1])]
        return tuple(zip(starts, [*starts[1:], None], strict=True))

    @property
    def depth(self) -> int:
        """The number of levels of inner nodes."""
        return len(self.cuts) - 1

    def path_of(self, ledger_id: LedgerId) -> str:
        """Return the path of the ledger's node.

        Raises:
            IncorrectParameterError: the id is negative or has too many digits.
        """
        digits = f"{ledger_id:0{self._length}d}"
        if ledger_id < 0 or len(digits) > self.digits_max:
            raise IncorrectParameterError(
                f"this cluster's layout has no path for ledger {ledger_id}"
            )
        *names, leaf = [digits[start:end] for start, end in self._parts]
        return "/".join(("", *names, f"L{leaf}"))

    def id_of(self, path: str) -> LedgerId | None:
        """Return the ledger id of a path, or ``None`` if it is not a ledger's path."""
        *names, leaf = path.split("/")
        digits = "".join(names) + leaf[1:]
        if not (digits.isascii() and digits.isdigit()) or len(digits) > self.digits_max:
            return None
        ledger_id = LedgerId(int(digits))
        return ledger_id if self.path_of(ledger_id) == path else None

    def is_inner(self, name: str, level: int) -> bool:
        """Return whether an inner node at ``level`` (0 is below the root) may have this name."""
        return name.isascii() and name.isdigit() and len(name) == self.cuts[level]

    def inner_among(
        self, names: tuple[str, ...], children: Iterable[str], after: int
    ) -> list[tuple[str, ...]]:
        """Return the inner nodes below ``names`` that may have ids above ``after``, ascending."""
        below = [(*names, name) for name in sorted(children) if self.is_inner(name, len(names))]
        return [inner for inner in below if self.last_below(inner) > after]

    def last_below(self, names: tuple[str, ...]) -> int:
        """Return the highest id that can be below the inner node with these names."""
        digits_below = sum(self.cuts[len(names) :])
        return int("".join(names) + "9" * digits_below)


@attrs.frozen
class LedgerLayout:
    """The paths of ledger ids in one layout. ``name`` is the layout's name in the URI.

    ``spellings`` are in ascending order of their ids: ids below ``SHORT_IDS_END`` use the first,
    all others the last.
    """

    name: str
    spellings: tuple[Digits, ...]
    prunes: bool
    """True if empty parents are deleted with a ledger."""
    long_ids: bool
    """True if ids may exceed 31 bits."""

    def path_of(self, ledger_id: LedgerId) -> str:
        """Return the path of the ledger's node.

        Raises:
            IncorrectParameterError: this layout has no path for the id.
        """
        return self._spelling_of(ledger_id).path_of(ledger_id)

    def id_of(self, path: str) -> LedgerId | None:
        """Return the ledger id of a path; ``None`` if it is not a ledger's path in this layout."""
        for spelling in self.spellings:
            ledger_id = spelling.id_of(path)
            if ledger_id is not None and self.path_of(ledger_id) == path:
                return ledger_id
        return None

    def ledgers_among(
        self, spelling: Digits, leaf: tuple[str, ...], names: Iterable[str], after: int
    ) -> tuple[list[LedgerId], list[str]]:
        """Split the children ``names`` of the node with path ``leaf`` into ledgers and other nodes.

        Returns the ids above ``after``, ascending, and the paths of other nodes.
        """
        start, size = int("".join(leaf) or 0) * 10 ** spelling.cuts[-1], spelling.cuts[-1] + 1
        path = "".join(f"/{name}" for name in leaf)
        found, strange = [], []
        for name in names:
            ledger_id: int | None
            if len(name) == size and name[0] == "L" and name[1:].isdigit() and name.isascii():
                ledger_id = start + int(name[1:])
                if self._spelling_of(ledger_id) is not spelling:
                    ledger_id = None
            else:
                ledger_id = self.id_of(f"{path}/{name}")
            if ledger_id is None:
                if path or not (is_special(name) or f"/{name}" in OURS):
                    strange.append(f"{path}/{name}")
            elif ledger_id > after:
                found.append(LedgerId(ledger_id))
        found.sort()
        return found, strange

    def _spelling_of(self, ledger_id: int) -> Digits:
        return self.spellings[0 if ledger_id < SHORT_IDS_END else -1]

    def is_ledger_parent(self, name: str) -> bool:
        """Return whether a child of the root with this name is a ledger or has ledgers below."""
        return any(
            spelling.is_inner(name, 0)
            if spelling.depth
            else re.fullmatch(r"L\d{10,19}", name, re.ASCII) is not None
            for spelling in self.spellings
        )

    @property
    def id_parent(self) -> str:
        """The parent of the sequential nodes that yield short ids; the root is ``""``."""
        return "" if self.name == "flat" else IDGEN


_SHORT: Final = Digits((2, 4, 4), digits_max=10)
_LONG: Final = Digits((3, 4, 4, 4, 4))

FLAT: Final = LedgerLayout("flat", (Digits((10,)),), prunes=False, long_ids=False)
LEGACY: Final = LedgerLayout("legacyhierarchical", (_SHORT,), prunes=False, long_ids=False)
LONG: Final = LedgerLayout("longhierarchical", (_LONG,), prunes=True, long_ids=True)
HIERARCHICAL: Final = LedgerLayout("hierarchical", (_SHORT, _LONG), prunes=True, long_ids=True)

LAYOUTS: Final = {layout.name: layout for layout in (FLAT, LEGACY, LONG, HIERARCHICAL)}


def is_special(name: str) -> bool:
    """Return whether a child of the root is the cluster's own, as Java's isSpecialZnode."""
    return name in _SPECIAL or name.startswith(ID_PREFIX)


def is_id_node(name: str) -> bool:
    """Return whether a child of the root is used to create ledger ids."""
    return name in {IDGEN[1:], IDGEN_LONG[1:]} or name.startswith(ID_PREFIX)


def registration(bookie_id: BookieId, *, read_only: bool) -> str:
    """Return the path of a bookie's registration."""
    return f"{READ_ONLY if read_only else AVAILABLE}/{bookie_id}"


def cookie(bookie_id: BookieId) -> str:
    """Return the path of a bookie's cookie."""
    return f"{COOKIES}/{bookie_id}"


def mark(ledger_id: LedgerId) -> str:
    """Return the path of a ledger's under-replication mark."""
    digits = f"{ledger_id:016x}"
    levels = "/".join(digits[i : i + 4] for i in range(0, 16, 4))
    return f"{MARKS}/{levels}/{mark_name(ledger_id)}"


def mark_name(ledger_id: LedgerId) -> str:
    """Return the name of a ledger's mark and lock."""
    return f"{MARK_PREFIX}{ledger_id:010d}"


def marked_ledger(path: str) -> LedgerId | None:
    """Return the ledger id of a mark's or lock's path or name, or ``None``."""
    found = _MARK.fullmatch(path.rpartition("/")[2])
    return LedgerId(int(found[1])) if found else None


def ledger_of_mark_parent(path: str) -> LedgerId | None:
    """Return the ledger id of a mark's parent, from the path's hexadecimal digits, or ``None``."""
    digits = "".join(path.split("/")[-MARK_DEPTH:])
    return LedgerId(int(digits, 16)) if _SIXTEEN_DIGITS.fullmatch(digits) else None


def lock(ledger_id: LedgerId) -> str:
    """Return the path of the lock of a ledger under repair."""
    return f"{LOCKS}/{mark_name(ledger_id)}"


def epoch(number: int) -> str:
    """Return the path of the node whose children yield the ids from ``number`` times 2**32 on."""
    return f"{IDGEN_LONG}/{EPOCH_PREFIX}{number:010d}"


def is_numbered(name: str, prefix: str) -> bool:
    """Return whether a name is ``prefix`` and a number appended by ZooKeeper."""
    return re.fullmatch(rf"{prefix}-?[0-9]{{1,10}}", name) is not None


def sequence_of(name: str) -> int:
    """Return the number that ZooKeeper appended to a sequential node's name; may be negative.

    The name is what follows the prefix and its hyphen or underscore.
    """
    for prefix in (ID_PREFIX, EPOCH_PREFIX, VOTE_PREFIX):
        tail = name.rpartition("/")[2]
        if tail.startswith(prefix):
            return int(tail[len(prefix) :])
    raise ValueError(f"{name!r} has no sequence number")


def shown(path: str) -> str:
    """Return a path shortened for messages: ZooKeeper allows very long names."""
    return path if len(path) <= _SHOWN_CHARS_MAX else f"{path[:_SHOWN_CHARS_MAX]}..."


def parent(path: str) -> str:
    """Return the path one level up; the root is ``""``."""
    return path.rpartition("/")[0]


def is_top(path: str) -> bool:
    """Return whether a node has no parent among the cluster's nodes."""
    return path in {"", *BESIDE_ROOT} or (path.startswith(BESIDE) and path.count("/") == 1)


def beside(path: str) -> str:
    """Return the path of another program's node ``/name/...`` beside the root."""
    return f"{BESIDE}{path.removeprefix('/')}"


def log(name: str) -> str:
    """Return the path of a log's record."""
    return f"{LOGS}/{name}"


def cursors(source: str) -> str:
    """Return the path of the cursors of a log or topic."""
    return f"{CURSORS}/{quote(source, safe='')}"


def source_of_cursors(name: str) -> str:
    """Return the log or topic of a cursor path's last part."""
    return unquote(name)
