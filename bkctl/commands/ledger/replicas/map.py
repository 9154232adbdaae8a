"""`ledger map`: the bookies of a ledger, and the drawing of fragments by bookies."""

from __future__ import annotations

import itertools
import string
from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, Final

import attrs

from bkclient.admin import cluster_operations
from bkclient.client import Client
from bkclient.quorum.distribution import write_set
from bkclient.replication import replica_map
from bkclient.replication.replica_map import Health, MappedFragment, ReplicaMap, ReplicaPlace
from bkctl.bookies import ask_bookies
from bkctl.bookies.bookie_columns import BookieSummary
from bkctl.commands.cluster.map import glyph
from bkctl.errors import NothingFoundError, ProblemsError
from bkctl.output.charts import Canvas
from bkctl.output.forms.text_width import display_width, wrapped
from bkctl.output.units import counted
from bkctl.output.views import BOOKIE, LEDGER, WIDE, Column, Kind, field, shown
from bkctl.session.session import Session
from bkctl.suggest import COMPARE
from wire.ids import BookieId, EntryId, LedgerId
from wire.ledger_metadata import Fragment, LedgerMetadata

_GLYPHS: Final = {
    Health.OK: ("●", "#", "lists all its entries"),
    Health.PARTLY: ("◐", "%", "some missing"),
    Health.MISSING: ("○", "o", "all missing"),
    Health.UNREACHABLE: ("✗", "x", "unreachable"),
    Health.UNKNOWN: ("?", "?", "unknown"),
    Health.EMPTY: ("∅", "0", "nothing to hold"),
}
_FAULTS: Final = {
    Health.PARTLY: "lacking some entries",
    Health.MISSING: "lacking all entries",
    Health.UNREACHABLE: "unreachable",
    Health.UNKNOWN: "unknown",
}
_COLORS: Final = {
    Health.OK: "ok", Health.PARTLY: "unknown", Health.MISSING: "missing",
    Health.UNREACHABLE: "unreachable", Health.UNKNOWN: "unknown", Health.EMPTY: "",
}  # fmt: skip
_CELL: Final = 3
_COPIES_WIDTH: Final = 8


def _fragment(one: MappedFragment) -> dict[str, Any]:
    return {
        "first_entry": one.first,
        "last_entry": one.last,
        "closed": one.is_closed,
        "copies": one.copies,
        "replicas": [
            {
                "bookie_id": place.bookie_id,
                "health": place.health.value,
                "expected": place.expected,
                "held": place.held,
                "why": place.why or None,
            }
            for place in one.places
        ],
    }


@shown(
    "ledgers",
    Column("ledger_id", "The ledger.", "replicas.ledger_id", Kind.LEDGER_ID, header="LEDGER"),
    Column("state", "open, in-recovery or closed.", "replicas.metadata.state.word", Kind.STATE),
    Column("last_confirmed", "The ledger's last confirmed entry.", "replicas.lac", Kind.COUNT),
    Column(
        "write_quorum",
        "Copies that each entry should have.",
        "replicas.metadata.write_quorum",
        Kind.COUNT,
    ),
    Column(
        "intact",
        "Whether each bookie lists all entries that it should store.",
        "replicas.is_intact",
        Kind.FLAG,
    ),
    Column("verdict", "The health of the replicas in words.", lambda v: verdict(v.replicas)),
    Column(
        "bookies",
        "The ledger's bookies, with their registered state.",
        lambda v: dict(sorted(v.states.items())),
        Kind.NESTED,
    ),
    Column(
        "fragments",
        "The ledger's fragments, with the health of each replica.",
        lambda v: [_fragment(one) for one in v.replicas.fragments],
        Kind.NESTED,
    ),
    kw_only=True,
)
class LedgerMap:
    """The replicas of a ledger, and the registered state of its bookies."""

    replicas: ReplicaMap
    states: Mapping[BookieId, str]

    @property
    def bookies(self) -> list[BookieId]:
        return sorted(self.replicas.metadata.all_bookies())


def _place_range(v: LedgerPlace) -> str:
    return f"{v.first}-{'' if v.last is None else v.last}"


@shown("places", attrs.evolve(LEDGER, rank=WIDE), kw_only=True)
class LedgerPlace:
    """A bookie of a ledger or of one entry, and its index in the ensemble.

    ``last`` is None if the fragment may still grow.
    """

    bookie_id: BookieId = field(BOOKIE)
    state: str = field("writable, read-only, down or gone.")
    first: EntryId = field(
        "First entry of the fragment.", name="first_entry", header="FRAGMENT", cell=_place_range
    )
    last: EntryId | None = field(
        "Last entry of the fragment, if known.", name="last_entry", rank=WIDE
    )
    index: int = field("Index in the ensemble.", rank=1)
    address: str | None = field("Address that the bookie listens on.", rank=2, default=None)
    rack: str | None = field("Network location of the bookie.", rank=WIDE, default=None)
    entry_id: EntryId | None = field("The entry asked for.", rank=WIDE, default=None)
    ledger_id: LedgerId


# Map --------------------------------------------------------------------------------------------


def show_map(
    session: Session, ledger_id: LedgerId, entry_id: EntryId | None, *, fail_if_any: bool
) -> None:
    """Print the map of a ledger, or the bookies of one entry.

    Raises:
        ProblemsError: a replica is not known to be intact, and ``fail_if_any``.
        NothingFoundError: the ledger has no such entry.
    """
    session.about = f"ledger {ledger_id}"
    if entry_id is not None:
        session.emit_all(session.call(places, ledger_id, entry_id), LedgerPlace)
        session.finish()
        if session.options.is_for_people:
            session.note(f"`bkctl {COMPARE.format(ledger_id, entry_id)}` reads these copies")
        return
    found = session.call(_map, ledger_id)
    session.emitter.draw(found, lambda canvas: drawing(found, canvas))
    if fail_if_any and not found.replicas.is_intact:
        session.finish()
        raise ProblemsError(verdict(found.replicas))


async def _map(client: Client, ledger_id: LedgerId) -> LedgerMap:
    found = await replica_map.map_replicas(client, ledger_id)
    bookies = await cluster_operations.list_bookies(client)
    states = {one.bookie_id: one.state.value for one in bookies}
    return LedgerMap(
        replicas=found,
        states={bookie: states.get(bookie, "gone") for bookie in found.metadata.all_bookies()},
    )


def verdict(found: ReplicaMap) -> str:
    """Return a short sentence about the health of a ledger's replicas."""
    if found.is_intact:
        return f"every bookie lists its entries; `bkctl ledger verify {found.ledger_id}` reads them"
    lost = [one for one in found.fragments if one.copies == 0]
    if lost:
        return _loss(lost)
    healths = [place.health for fragment in found.fragments for place in fragment.places]
    bad = ", ".join(
        f"{healths.count(health)} {words}" for health, words in _FAULTS.items() if health in healths
    )
    return f"{bad} of {counted(len(healths), 'replica')} of fragments"


def _loss(lost: Sequence[MappedFragment]) -> str:
    """Return a sentence about the entries without a copy in these fragments."""
    entries = 0
    for one in lost:
        if one.last is None or any(place.health is not Health.MISSING for place in one.places):
            fragments = counted(len(lost), "fragment")
            return f"some entries of {fragments} have no copy on a bookie that answers"
        entries += one.last - one.first + 1
    return f"no bookie has a copy of {counted(entries, 'entry')}"


def drawing(found: LedgerMap, canvas: Canvas) -> Iterator[str]:
    """Yield the lines of the map: the ledger, its bookies, and a cell for each replica."""
    names = dict(zip(found.bookies, labels(), strict=False))
    yield from _title(found.replicas, canvas)
    yield from _legend_of_bookies(found, names, canvas)
    yield ""
    yield from _cells(found, names, canvas)
    shown = {p.health for fragment in found.replicas.fragments for p in fragment.places}
    signs = [
        f"{_sign(health, canvas)} {words}"
        for health, (*_, words) in _GLYPHS.items()
        if health in shown
    ]
    signs.append(f"{canvas.pick('·', '.')} not its bookie")
    metadata = found.replicas.metadata
    if metadata.write_quorum < metadata.ensemble_size:
        signs.append("COPIES: of the entry with the fewest")
    yield from _wrapped(signs, canvas.width)


def labels() -> Iterator[str]:
    """Yield ``A`` to ``Z``, then ``AA``, ``AB`` and so on."""
    for size in itertools.count(1):
        yield from map("".join, itertools.product(string.ascii_uppercase, repeat=size))


def _title(found: ReplicaMap, canvas: Canvas) -> Iterator[str]:
    m = found.metadata
    entries = found.lac + 1 if found.lac is not None else None
    many = "entries not known" if entries is None else counted(entries, "entry")
    if entries and not m.is_closed:
        many = f"{many} confirmed, perhaps more"
    sizes = f"{m.ensemble_size}/{m.write_quorum}/{m.ack_quorum}"
    about = f"{m.state.word}, {many}, {sizes}"
    for line in wrapped(f"ledger {found.ledger_id}: {about}", canvas.width):
        yield canvas.bold(line)
    for line in wrapped(verdict(found), canvas.width):
        yield canvas.state(line, "ok" if found.is_intact else "missing")


def _legend_of_bookies(
    found: LedgerMap, names: Mapping[BookieId, str], canvas: Canvas
) -> Iterator[str]:
    places: dict[BookieId, list[ReplicaPlace]] = defaultdict(list)
    for fragment in found.replicas.fragments:
        for place in fragment.places:
            places[place.bookie_id].append(place)
    widest = max(map(display_width, names), default=0)
    short = max(map(len, names.values()), default=1)
    for bookie, name in names.items():
        state = _state_seen(found.states.get(bookie, ""), places[bookie])
        sign = canvas.state(glyph(state, canvas), state)
        lead = f"{name:{short}} "
        line = f"{bookie:{widest}}  {state:11}"
        replicas = _places_of(places[bookie])
        space = canvas.width - len(lead) - 2
        if display_width(line) + 2 + display_width(replicas) <= space:
            yield f"{lead}{sign} {line}  {replicas}".rstrip()
            continue
        yield f"{lead}{sign} {canvas.fitted(line, space).rstrip()}"
        if replicas:
            yield f"{'':{len(lead) + 2}}{canvas.fitted(replicas, space).rstrip()}"


def _state_seen(registered: str, places: Sequence[ReplicaPlace]) -> str:
    """Return a bookie's registered state, or that a registered bookie did not answer."""
    is_silent = any(place.health is Health.UNREACHABLE for place in places)
    return "unreachable" if is_silent and registered in {"writable", "read-only"} else registered


def _places_of(places: Sequence[ReplicaPlace]) -> str:
    """Return the listed and the expected entries of a bookie, or why they are unknown."""
    expected = sum(place.expected or 0 for place in places)
    if all(place.held is not None for place in places):
        stored = sum(min(place.held or 0, place.expected or 0) for place in places)
        return f"{stored} of {counted(expected, 'entry')}"
    return next((place.why for place in places if place.why), "")


def _cells(found: LedgerMap, names: Mapping[BookieId, str], canvas: Canvas) -> Iterator[str]:
    """Yield fragments as rows and bookies as columns, in blocks if one row is too wide."""
    ranges = {one.first: _range(one) for one in found.replicas.fragments}
    widest = max(*map(len, ranges.values()), len("ENTRIES"))
    cell = max(_CELL, *(len(name) + 2 for name in names.values()))
    at_once = max(1, (canvas.width - widest - _COPIES_WIDTH) // cell)
    bookies = list(names)
    for start in range(0, len(bookies), at_once):
        some = bookies[start : start + at_once]
        heads = "".join(f"{names[bookie]:>{cell}}" for bookie in some)
        yield canvas.bold(f"{'ENTRIES':{widest}}{heads}{'COPIES':>{_COPIES_WIDTH}}")
        for fragment in found.replicas.fragments:
            places = {place.bookie_id: place.health for place in fragment.places}
            row = "".join(_cell(places.get(bookie), cell, canvas) for bookie in some)
            copies = f"{_copies(fragment, found.replicas.metadata):>{_COPIES_WIDTH}}"
            yield f"{ranges[fragment.first]:{widest}}{row}{copies}"
        yield ""


def _range(fragment: MappedFragment) -> str:
    if fragment.last is None:
        return f"{fragment.first}-?"
    if fragment.last < fragment.first:
        return f"{fragment.first}-"
    return f"{fragment.first}-{fragment.last}"


def _sign(health: Health, canvas: Canvas) -> str:
    unicode, plain, _ = _GLYPHS[health]
    return canvas.state(canvas.pick(unicode, plain), _COLORS[health])


def _cell(health: Health | None, width: int, canvas: Canvas) -> str:
    fill = " " * (width - 1)
    return fill + (canvas.dim(canvas.pick("·", ".")) if health is None else _sign(health, canvas))


def _copies(fragment: MappedFragment, metadata: LedgerMetadata) -> str:
    """Return intact replicas / write quorum, for the entry with the fewest replicas."""
    if fragment.last is not None and fragment.last < fragment.first:
        return "-"
    return f"{'?' if fragment.copies is None else fragment.copies}/{metadata.write_quorum}"


def _wrapped(parts: Sequence[str], width: int) -> Iterator[str]:
    line = ""
    for part in parts:
        longer = f"{line}   {part}" if line else part
        if line and display_width(longer) > width:
            yield line
            longer = part
        line = longer
    yield line


# Bookies of an entry ----------------------------------------------------------------------------


async def places(client: Client, ledger_id: LedgerId, entry_id: EntryId) -> list[LedgerPlace]:
    """Return the bookies of an entry's write set, in its order.

    Raises:
        NothingFoundError: the ledger has no such entry.
    """
    metadata = (await client.read_metadata(ledger_id)).value
    known = {one.bookie_id: one for one in await ask_bookies.bookies(client, None, ask=False)}
    end = metadata.last_entry_id
    if end is not None and entry_id > end:
        raise NothingFoundError(
            f"there is no entry {entry_id}: the ledger is closed, and its last entry is {end}"
        )
    fragment = metadata.fragment_of(entry_id)
    return [
        _place(ledger_id, metadata, fragment, index, known.get(fragment.ensemble[index]), entry_id)
        for index in write_set(entry_id, len(fragment.ensemble), metadata.write_quorum)
    ]


def _place(
    ledger_id: LedgerId,
    metadata: LedgerMetadata,
    fragment: Fragment,
    index: int,
    bookie: BookieSummary | None,
    entry_id: EntryId,
) -> LedgerPlace:
    return LedgerPlace(
        ledger_id=ledger_id,
        first=fragment.first_entry_id,
        last=_last(metadata, fragment),
        index=index,
        bookie_id=fragment.ensemble[index],
        entry_id=entry_id,
        state="gone" if bookie is None else bookie.state,
        rack=None if bookie is None else bookie.rack,
        address=None if bookie is None else bookie.address,
    )


def _last(metadata: LedgerMetadata, fragment: Fragment) -> EntryId | None:
    following = metadata.fragments.index(fragment) + 1
    if following < len(metadata.fragments):
        return EntryId(metadata.fragments[following].first_entry_id - 1)
    return metadata.last_entry_id
