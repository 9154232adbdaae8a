"""The ledger, bookie and log ids that completion offers, each with a short description."""

from __future__ import annotations

from collections import deque
from typing import TYPE_CHECKING, Final

from bkctl.ledger_ids import format_ledger_id
from bkctl.output.units import human_bytes, human_time
from wire.errors import BookKeeperError

if TYPE_CHECKING:
    from bkclient.client import Client
    from bkclient.metadata.stored_values import BookieStatus
    from bkctl.commands.ledger.columns import LedgerSummary
    from wire.ids import LedgerId

Candidates = tuple[list[tuple[str, str]], bool]
"""Ids with their descriptions; and whether the list is complete."""

LEDGERS_MAX: Final = 500
"""Maximum of ledger ids that are offered: the newest."""

WALK_MAX: Final = 500_000
"""Maximum of ledger ids that are read to find the newest."""

DESCRIBED_MAX: Final = 50
"""Maximum of ledgers whose metadata is read for a description."""

SPACE_WAIT_S: Final = 1.0
"""Seconds to wait for a bookie's free space."""


async def ledgers(client: Client, prefix: str, form: str) -> Candidates:
    """Return the newest ledgers whose ids begin with ``prefix``, and whether these are all."""
    from bkctl.commands.ledger.list_and_show import summaries

    newest: deque[LedgerId] = deque(maxlen=LEDGERS_MAX)
    seen = matching = 0
    async for ids in client.store.ledger_ranges():
        found = [i for i in ids if not prefix or format_ledger_id(i, form).startswith(prefix)]
        newest.extend(found)
        seen, matching = seen + len(ids), matching + len(found)
        if seen >= WALK_MAX:
            break
    order = list(reversed(newest))
    about = {one.ledger_id: _about(one) for one in await summaries(client, order[:DESCRIBED_MAX])}
    whole = matching == len(newest) and seen < WALK_MAX
    return [(format_ledger_id(i, form), about.get(i, "")) for i in order], whole


def _about(ledger: LedgerSummary) -> str:

    metadata = ledger.metadata
    if metadata is None:
        return "metadata cannot be read"
    state = metadata.state.word
    size = f", {human_bytes(metadata.length)}" if metadata.is_closed else ""
    made = f", made {human_time(metadata.ctime_ms, utc=False)}" if metadata.ctime_ms else ""
    return f"{state}{size}{made}"


async def bookies(client: Client) -> Candidates:
    """Return all bookies, with their state and free space."""
    from bkclient.admin import cluster_operations
    from bkclient.metadata.tree.nodes import run_together

    found = await cluster_operations.list_bookies(client)
    spaces = await run_together(_space(client, one) for one in found)
    return [
        (one.bookie_id, f"{one.state.value}{space}")
        for one, space in zip(found, spaces, strict=True)
    ], True


async def _space(client: Client, one: BookieStatus) -> str:
    """Return a bookie's free space as text, or ", does not answer".

    Empty for a bookie that is down.
    """
    from bkclient.admin import cluster_operations
    from bkclient.metadata.stored_values import BookieState

    if one.state is BookieState.DOWN:
        return ""
    try:
        disks = await cluster_operations.bookie_info(client, one.bookie_id, SPACE_WAIT_S)
    except BookKeeperError:
        return ", does not answer"
    return f", {human_bytes(disks.free_bytes)} free"


async def logs(client: Client) -> Candidates:
    """Return the names of all logs."""
    return [(name, "") for name in sorted(await client.store.list_logs())], True
