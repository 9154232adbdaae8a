"""What the fields of the values are that say where a ledger's replicas are."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

import attrs

from bkclient.repair.replica_map import MappedFragment
from bkctl.commands.ledger.replicas.map import LedgerMap, LedgerPlace, verdict
from bkctl.commands.ledger.views import STATE_WORDS
from bkctl.output.emit import WIDE, Field, Kind, View

_LEDGER: Final = Field(
    "ledger_id", "The ledger.", lambda v: v.ledger_id, Kind.LEDGER_ID, header="LEDGER"
)


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


def _range(v: LedgerPlace) -> str:
    return f"{v.first}-{'' if v.last is None else v.last}"


LEDGER_MAP_VIEWS: Final[Mapping[type, View]] = {
    LedgerMap: View(
        "ledgers",
        (
            attrs.evolve(_LEDGER, get=lambda v: v.holdings.ledger_id),
            Field(
                "state",
                "open, in-recovery or closed.",
                lambda v: STATE_WORDS[v.holdings.metadata.state.name],
                Kind.STATE,
            ),
            Field("last_confirmed", "Its last entry.", lambda v: v.holdings.lac, Kind.COUNT),
            Field(
                "write_quorum",
                "Copies that each entry should have.",
                lambda v: v.holdings.metadata.write_quorum,
                Kind.COUNT,
            ),
            Field("whole", "Whether all are there.", lambda v: v.holdings.is_whole, Kind.FLAG),
            Field("verdict", "The same in words.", lambda v: verdict(v.holdings)),
            Field(
                "bookies",
                "Its bookies, and what they are registered as.",
                lambda v: dict(sorted(v.states.items())),
                Kind.NESTED,
            ),
            Field(
                "fragments",
                "Its fragments, and the health of each replica.",
                lambda v: [_fragment(one) for one in v.holdings.fragments],
                Kind.NESTED,
            ),
        ),
        "ledger_id",
    ),
    LedgerPlace: View(
        "places",
        (
            Field("bookie_id", "The bookie.", lambda v: v.bookie_id, header="BOOKIE"),
            Field("state", "writable, read-only, down or gone.", lambda v: v.state, Kind.STATE),
            Field(
                "first_entry",
                "First entry of the fragment.",
                lambda v: v.first,
                Kind.COUNT,
                header="ENTRIES",
                cell=_range,
            ),
            Field("last_entry", "Its last one, if known.", lambda v: v.last, Kind.COUNT, rank=WIDE),
            Field("index", "Place in the ensemble.", lambda v: v.index, Kind.COUNT, rank=1),
            Field("address", "Where it listens.", lambda v: v.address, rank=2),
            Field("rack", "Its network location.", lambda v: v.rack, rank=WIDE),
            Field("entry_id", "The entry asked for.", lambda v: v.entry_id, Kind.COUNT, rank=WIDE),
            attrs.evolve(_LEDGER, rank=WIDE),
        ),
        "bookie_id",
    ),
}
