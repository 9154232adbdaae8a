"""`cluster map`: a drawing of the racks, their bookies, and the space on their disks."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any, Final

import attrs

from bkclient.admin import cluster_operations
from bkclient.admin.ledger_scan import walk
from bkclient.client import Client
from bkctl.bookies import ask_bookies
from bkctl.bookies.bookie_columns import BookieSummary
from bkctl.bookies.rack_losses import LedgerSample, RackLosses
from bkctl.commands.bookie.details import space
from bkctl.output.charts import Canvas
from bkctl.output.forms.text_width import display_width, wrapped
from bkctl.output.units import counted, free_of, human_bytes
from bkctl.output.views import Column, Kind, field, shown
from bkctl.session.session import Session

_BAR_MIN, _BAR_MAX = 8, 40
_PERCENT_WIDTH: Final = 6
_FREE_WIDTH: Final = 16
_STATE_WIDTH: Final = 11
_NAMED_MAX: Final = 5
"""Ledgers that a box names, at most."""
_REPORT_EVERY: Final = 1000
"""Ledgers between two progress reports."""


@attrs.frozen
class Rack:
    """Bookies at one location; the name is empty if unknown."""

    name: str
    bookies: tuple[BookieSummary, ...]
    ledgers_only_here: LedgerSample | None = None
    """Ledgers with entries that have all copies in this rack; None if not counted."""

    def machine(self) -> dict[str, Any]:
        """Return the rack as a value for machine forms."""
        only = self.ledgers_only_here
        return {
            "rack": self.name or None,
            "ledgers_only_here": None if only is None else only.count,
            "examples": [] if only is None else list(map(str, only.first)),
            "bookies": [
                {
                    "bookie_id": one.bookie_id,
                    "state": one.state,
                    "free": one.free,
                    "total": one.total,
                    "unreachable": one.unreachable or None,
                }
                for one in self.bookies
            ],
        }


@shown(
    "clusters",
    Column(
        "racks",
        "The racks, and the bookies in each.",
        lambda v: [rack.machine() for rack in v.racks],
        Kind.NESTED,
        cell=lambda v: "\n".join(
            f"{rack.name or '-'}: {' '.join(one.bookie_id for one in rack.bookies)}"
            for rack in v.racks
        ),
        after="instance_id",
    ),
    kw_only=True,
)
class ClusterMap:
    """All bookies in their racks. Disks that bookies of a host share count once."""

    instance_id: str | None = field("The cluster's id.")
    racks: tuple[Rack, ...]
    free: int | None = field(
        "Free space on all disks; a shared disk counts once.", kind=Kind.BYTES, default=None
    )
    total: int | None = field(
        "Size of all disks; a shared disk counts once.",
        kind=Kind.BYTES,
        cell=lambda v: free_of(v.free, v.total) or "-",
        default=None,
    )

    @property
    def bookies(self) -> list[BookieSummary]:
        return [one for rack in self.racks for one in rack.bookies]


# Racks and bookies ------------------------------------------------------------------------------


def draw(session: Session, *, ask: bool) -> None:
    """Print the map."""
    with (
        session.waiting_for_bookies(),
        session.progress("looking at ledgers", unit="ledgers") as progress,
    ):
        within_s = session.answers_within_s
        found = session.call(read_map, progress.update, ask=ask, within_s=within_s)
    session.emitter.draw(found, lambda canvas: drawing(found, canvas))
    if not any(rack.name for rack in found.racks):
        session.note(
            "no racks are known: the settings name no script (`bkctl explain rack`); "
            "-X networkTopologyScriptFileName=FILE names one"
        )


async def read_map(
    client: Client,
    report: Callable[[int], None],
    *,
    ask: bool,
    within_s: float = cluster_operations.ANSWERS_WITHIN_S,
) -> ClusterMap:
    """Return all bookies in their racks.

    With ``ask``, bookies are asked for their space. If there are several racks, a walk over all
    ledgers counts those that would lose entries with each rack.
    """
    found = await ask_bookies.bookies(client, None, ask=ask, within_s=within_s)
    losses = RackLosses.of(found) if ask else RackLosses()
    if losses.by_rack:
        await _count(client, losses, report)
    in_racks: dict[str, list[BookieSummary]] = defaultdict(list)
    for one in found:
        in_racks[one.rack or ""].append(one)
    with_disks = [one for one in found if one.total is not None]
    free, total = space(with_disks) if with_disks else (None, None)
    return ClusterMap(
        instance_id=(await cluster_operations.read_identity(client)).instance_id,
        # Bookies without a known rack come last.
        racks=tuple(
            Rack(name, tuple(bookies), losses.by_rack.get(name))
            for name, bookies in sorted(in_racks.items(), key=lambda one: (not one[0], one[0]))
        ),
        free=free,
        total=total,
    )


async def _count(client: Client, losses: RackLosses, report: Callable[[int], None]) -> None:
    looked_at = 0
    async for ledger in walk(client.store):
        looked_at += 1
        if ledger.metadata is not None:
            losses.add(ledger.ledger_id, ledger.metadata)
        if looked_at % _REPORT_EVERY == 0:
            report(looked_at)


# Drawings ---------------------------------------------------------------------------------------


def glyph(state: str, canvas: Canvas) -> str:
    """Return the sign for a bookie's state. The state's word is beside it or in a legend."""
    signs = {
        "writable": ("●", "+"), "read-only": ("◐", "-"), "down": ("✗", "x"),
        "unreachable": ("✗", "x"),
    }  # fmt: skip
    return canvas.pick(*signs.get(state, ("?", "?")))


def drawing(found: ClusterMap, canvas: Canvas) -> Iterator[str]:
    """Yield the lines of the map."""
    states = [one.state for one in found.bookies]
    kinds = ", ".join(
        f"{states.count(state)} {state}" for state in ("writable", "read-only", "down")
        if state in states
    )  # fmt: skip
    many = counted(len(states), "bookie")
    yield canvas.bold(f"cluster {found.instance_id or '-'}")
    yield f"{many}: {kinds}" if kinds else many
    names = max((display_width(one.bookie_id) for one in found.bookies), default=0)
    for rack in found.racks:
        unknown = "bookies" if len(found.racks) == 1 else "no rack known"
        rows = [*_rows(rack.bookies, names, canvas)]
        if rack.ledgers_only_here is not None:
            rows += _loss(rack.ledgers_only_here, canvas)
        yield from box(rack.name or unknown, rows, canvas)
    if found.total is not None:
        yield f"together {free_of(found.free, found.total)}"


def box(title: str, rows: Sequence[str], canvas: Canvas) -> Iterator[str]:
    """Yield rows in a box with a title. Each row is four columns narrower than the canvas."""
    line, side = canvas.pick("─", "-"), canvas.pick("│", "|")
    corners = canvas.pick("┌┐└┘", "++++")
    title = canvas.fitted(title, min(display_width(title), canvas.width - 6))
    head = f"{corners[0]}{line} {canvas.bold(title)} "
    rest = canvas.width - display_width(title) - 5
    yield f"{head}{line * rest}{corners[1]}"
    yield from (f"{side} {row} {side}" for row in rows)
    yield f"{corners[2]}{line * (canvas.width - 2)}{corners[3]}"


def _loss(only: LedgerSample, canvas: Canvas) -> Iterator[str]:
    """Yield the lines about the ledgers that a rack's loss would damage."""
    room = canvas.width - 4
    ids = ", ".join(map(str, only.first[:_NAMED_MAX]))
    more = ", ..." if only.count > _NAMED_MAX else ""
    what = f"{counted(only.count, 'ledger')} with entries in this rack alone"
    for line in wrapped(f"{what}: {ids}{more}" if ids else what, room):
        yield canvas.state(canvas.fitted(line, room), "unreachable" if ids else "")


def _rows(bookies: Sequence[BookieSummary], names: int, canvas: Canvas) -> Iterator[str]:
    """Yield a line for each bookie; ``names`` is the width of the widest id."""
    room = canvas.width - 4
    names = min(names, room - 2 - 1 - _STATE_WIDTH - 1 - _PERCENT_WIDTH)
    left = room - 2 - names - 1 - _STATE_WIDTH - 1 - _PERCENT_WIDTH - 1
    with_free = left >= _BAR_MIN + _FREE_WIDTH
    bar = min(_BAR_MAX, left - _FREE_WIDTH if with_free else left)
    for one in bookies:
        name = canvas.fitted(one.bookie_id, names)
        state = canvas.state(f"{glyph(one.state_seen, canvas)} ", one.state_seen)
        word = canvas.state(canvas.fitted(one.state_seen, _STATE_WIDTH), one.state_seen)
        text, width = _disks(one, bar, canvas, with_free=with_free)
        fill = " " * (room - 2 - names - 1 - _STATE_WIDTH - 1 - width)
        yield f"{state}{name} {word} {text}{fill}"


def _disks(one: BookieSummary, bar: int, canvas: Canvas, *, with_free: bool) -> tuple[str, int]:
    """Return the drawing of a bookie's disks, and its width."""
    room = _PERCENT_WIDTH + 1 + max(bar, 0) + (_FREE_WIDTH if with_free else 0)
    if one.free is None or not one.total:
        words = one.unreachable or ("" if one.state == "down" else "not asked")
        words = canvas.fitted(words, room).rstrip()
        return canvas.state(words, "unreachable"), display_width(words)
    share = 1 - one.free / one.total
    percent = f"{100 * share:.0f} %".rjust(_PERCENT_WIDTH)
    if bar < _BAR_MIN:
        return percent, _PERCENT_WIDTH
    free = f"{human_bytes(one.free)} free".rjust(_FREE_WIDTH) if with_free else ""
    return f"{canvas.bar(share, bar)} {percent}{free}", bar + 1 + _PERCENT_WIDTH + len(free)


def branches(node: Mapping[str, Any], canvas: Canvas, leaf: Any, lead: str = "") -> Iterator[str]:
    """Yield the lines below one node of a tree; ``leaf`` returns the text for a child."""
    tee, last, bar = (
        canvas.pick("├─ ", "|- "), canvas.pick("└─ ", "`- "), canvas.pick("│  ", "|  ")
    )  # fmt: skip
    for n, (name, child) in enumerate(node.items(), 1):
        at_end = n == len(node)
        yield f"{lead}{last if at_end else tee}{leaf(name, child)}"
        if isinstance(child, dict):
            yield from branches(child, canvas, leaf, lead + ("   " if at_end else bar))
