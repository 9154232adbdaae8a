"""All bookies, each asked for its disks, its rack and its version.

Functions whose first argument is a ``client`` are coroutines for the reactor's thread, called with
``Session.call``. The others block.
"""

from __future__ import annotations

import time
from collections.abc import Collection, Mapping, Sequence
from typing import TYPE_CHECKING, Final

from bkclient.admin import cluster_operations
from bkclient.admin.cluster_operations import ANSWERS_WITHIN_S
from bkclient.errors import ClientUnauthorizedError, LoginCutOffError
from bkclient.metadata.stored_values import BookieStatus
from bkclient.metadata.tree.nodes import run_together
from bkclient.placement.rack import DEFAULT_RACK
from bkctl.bookies import load_rates
from bkctl.bookies.bookie_columns import BookieSummary, summary_of
from bkctl.bookies.http.addresses import http_address
from bkctl.errors import error_message
from bkctl.output.views import evolve
from wire.errors import BookKeeperError

if TYPE_CHECKING:
    from bkclient.client import Client
    from bkctl.session.session import Session
    from wire.ids import BookieId


FIGURES_TIMEOUT_S: Final = 3.0
"""Seconds for one bookie's metrics if they are only an addition."""


def asked_bookies(
    session: Session, wanted: str | None, *, with_racks: bool = True
) -> list[BookieSummary]:
    """Return the bookies in a state (``None``: all), by id, with their free space; blocks."""
    with session.waiting_for_bookies():
        within_s = session.answers_within_s
        return session.call(bookies, wanted, ask=True, within_s=within_s, with_racks=with_racks)


async def bookies(
    client: Client,
    wanted: str | None,
    *,
    ask: bool,
    within_s: float = ANSWERS_WITHIN_S,
    with_racks: bool = True,
) -> list[BookieSummary]:
    """Return the bookies in a state (``None``: all), by id; ``ask`` requests their free space."""
    bookies = await cluster_operations.list_bookies(client)
    found = [one for one in bookies if wanted in {None, one.state.value}]
    racks = await racks_of(client, found) if with_racks else {}
    return await run_together(
        ask_bookie(client, one, racks.get(one.bookie_id), ask=ask, within_s=within_s)
        for one in found
    )


async def ask_bookie(
    client: Client,
    one: BookieStatus,
    rack: str | None = None,
    *,
    ask: bool = True,
    within_s: float = ANSWERS_WITHIN_S,
) -> BookieSummary:
    """Return the summary of one bookie; ``unreachable`` without an answer ``within_s``."""
    found = evolve(summary_of(one), rack=rack)
    if one.info is None:
        return found
    found = evolve(found, http=http_address(one.info, client.config))
    if not ask:
        return found
    try:
        disks = await cluster_operations.bookie_info(client, one.bookie_id, within_s)
    except BookKeeperError as error:
        # The state is from the metadata; the sizes stay unknown.
        refuses = isinstance(error, (ClientUnauthorizedError, LoginCutOffError))
        return evolve(found, unreachable=error_message(error), refuses=refuses)
    return evolve(found, free=disks.free_bytes, total=disks.total_bytes)


async def racks_of(client: Client, bookies: Collection[BookieStatus]) -> Mapping[BookieId, str]:
    """Return the racks of bookies; empty without a configured topology script.

    The rack of a bookie that is down is that of the address in its id, as in Java.
    """
    topology = client.cluster.topology if client.has_topology_script else None
    if topology is None:
        return {}
    await topology.learn([one.bookie_id for one in bookies])
    found = {one: topology.rack_of(one.bookie_id) for one in bookies}
    return {
        one.bookie_id: rack
        for one, rack in found.items()
        if one.info is not None or rack != DEFAULT_RACK
    }


def reads_figures(session: Session) -> bool:
    """Return whether an option needs values that only metrics have; a plain table does not."""
    options = session.options
    if options.filters or options.sort_by or options.columns or options.until:
        return True
    return options.output not in {None, "table", "id"}


def figures_of(
    session: Session, found: Sequence[BookieSummary]
) -> list[load_rates.LoadFigures | BookKeeperError | None]:
    """Return the figures from the bookies' metrics; blocks.

    Unreachable bookies are not asked again.
    """
    within_s = min(FIGURES_TIMEOUT_S, session.answers_within_s)
    with session.waiting_for_bookies():
        return load_rates.ask_all(
            [None if one.unreachable else one.http for one in found], within_s
        )


def with_figures(session: Session, found: Sequence[BookieSummary]) -> list[BookieSummary]:
    """Return bookies with the values that only their metrics report; blocks."""
    now_s = time.time()
    answers = figures_of(session, found)
    return [
        evolve(
            one,
            version=figures.version,
            uptime_s=None if figures.started_s is None else max(0.0, now_s - figures.started_s),
        )
        if isinstance(figures, load_rates.LoadFigures)
        else one
        for one, figures in zip(found, answers, strict=True)
    ]
