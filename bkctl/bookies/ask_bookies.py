"""All bookies, each asked for its disks, its rack and its version.

Functions whose first argument is a ``client`` are coroutines for the reactor's thread, given to
``Session.call``. Others block.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from typing import TYPE_CHECKING, Final

import attrs

from bkclient.admin import operations
from bkclient.metadata.tree.nodes import together
from bkclient.placement.rack import DEFAULT_RACK
from bkctl.bookies import load_rates, summary
from bkctl.bookies.admin_api import http_address
from bkctl.bookies.summary import BookieSummary
from bkctl.errors import error_message
from wire.errors import BookKeeperError

if TYPE_CHECKING:
    from bkclient.client import Client
    from wire.ids import BookieId


FIGURES_TIMEOUT_S: Final = 3.0
"""How long one bookie's metrics may take where they are only an addition."""


async def bookies(client: Client, wanted: str | None, *, ask: bool) -> list[BookieSummary]:
    """Return the bookies in a state (``None``: all), by id; ``ask`` them for their free space."""
    found = [
        one for one in await operations.list_bookies(client) if wanted in {None, one.state.value}
    ]
    racks = await racks_of(client, found)
    return await together(
        ask_bookie(client, one, racks.get(one.bookie_id), ask=ask) for one in found
    )


async def ask_bookie(
    client: Client, one: operations.BookieStatus, rack: str | None = None, *, ask: bool = True
) -> BookieSummary:
    """Return what is shown of one bookie."""
    found = attrs.evolve(summary.summary(one), rack=rack)
    if one.info is None:
        return found
    found = attrs.evolve(found, http=http_address(one.info, client.config))
    if not ask:
        return found
    try:
        disks = await operations.bookie_info(client, one.bookie_id)
    except BookKeeperError as error:
        # The state is what metadata says; the sizes stay unknown.
        return attrs.evolve(found, unreachable=error_message(error))
    return attrs.evolve(found, free=disks.free_bytes, total=disks.total_bytes)


async def racks_of(
    client: Client, bookies: Collection[operations.BookieStatus]
) -> Mapping[BookieId, str]:
    """Return where bookies are in the network; nothing where no topology script is configured.

    One that is down is where the address that its id consists of is, as in Java.
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


def with_figures(found: Sequence[BookieSummary], *, now_s: float) -> list[BookieSummary]:
    """Return bookies with what only their metrics tell, where they can be asked; blocks."""
    answers = load_rates.ask_all([one.http for one in found], FIGURES_TIMEOUT_S)
    return [
        attrs.evolve(
            one,
            version=figures.version,
            uptime_s=None if figures.started_s is None else max(0.0, now_s - figures.started_s),
        )
        if isinstance(figures, load_rates.LoadFigures)
        else one
        for one, figures in zip(found, answers, strict=True)
    ]
