"""`bookie list`. If metadata alone is enough, no bookie is asked.

The columns are the fields of ``bkctl.bookies.bookie_columns.BookieSummary``.
"""

from __future__ import annotations

from operator import attrgetter
from typing import Final

from bkctl.bookies.bookie_columns import BookieSummary, listed_bookies
from bkctl.session.session import Session

_ORDER: Final = attrgetter("bookie_id")
"""The sort key of the rows."""


def print_bookies(session: Session, *, state: str, ask: bool) -> None:
    """Print the bookies in a state; with ``ask``, also their free space."""
    wanted = None if state == "all" else state
    ids_only = session.options.ids_only
    if ids_only or (not ask and not session.config.topology_script):
        found = listed_bookies(session, wanted)
    else:
        from bkctl.bookies import ask_bookies

        found = (
            ask_bookies.asked_bookies(session, wanted)
            if ask
            else session.call(ask_bookies.bookies, wanted, ask=False)
        )
        if ask and ask_bookies.reads_figures(session):
            found = ask_bookies.with_figures(session, found)
    found.sort(key=_ORDER)
    session.emit_all(found, BookieSummary)
    silent = [one for one in found if one.unreachable]
    if silent:
        session.finish()  # Print the table before the warnings.
    for one in silent:
        how = "refuses this client" if one.refuses else "is registered and does not answer"
        session.warn(f"{one.bookie_id} {how}: {one.unreachable}")
