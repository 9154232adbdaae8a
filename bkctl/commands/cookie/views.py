"""What the fields are of what `cookie verify` and `cookie repair` find."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from bkctl.commands.cookie.stopped_bookie import CookieProblem, CookiesRepaired
from bkctl.output.emit import Field, Kind, View


def _repaired(v: CookiesRepaired) -> str:
    if not v.places:
        return f"every cookie of {v.bookie_id} is as it should be"
    return f"the cookie of {v.bookie_id} is at {', '.join(v.places)} again"


COOKIE_LOCAL_VIEWS: Final[Mapping[type, View]] = {
    CookieProblem: View(
        "problems",
        (
            Field("place", "The metadata service, or a VERSION file.", lambda v: v.place),
            Field("field", "What differs.", lambda v: v.field),
            Field("configured", "As the settings have it.", lambda v: v.configured),
            Field("found", "As it is there.", lambda v: v.found),
        ),
        "place",
    ),
    CookiesRepaired: View(
        "repairs",
        (
            Field("bookie_id", "The bookie.", lambda v: v.bookie_id, header="BOOKIE"),
            Field("places", "Where it was written.", lambda v: list(v.places), Kind.NESTED),
        ),
        "bookie_id",
        sentence=_repaired,
    ),
}
