"""``bkctl ledger map`` and ``ledger where``: on which bookies a ledger's entries are."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

import click

from bkctl.cli.command import Command
from bkctl.cli.params import LEDGER_ID
from bkctl.exit_status import Effect, ExitStatus

if TYPE_CHECKING:
    from bkctl.session.session import Session
    from wire.ids import EntryId, LedgerId

LAZY: Final = {
    "map": (
        "bkctl.commands.ledger.replicas.map_commands:map_",
        "Draw the bookies of each fragment, and which replicas are intact.",
    ),
    "where": (
        "bkctl.commands.ledger.replicas.map_commands:where",
        "Show which bookies a ledger, or one entry, is on, and how those are.",
    ),
}
"""For the group they hang in."""

_FAILURES: Final = (
    ExitStatus.FAILED, ExitStatus.NOT_FOUND, ExitStatus.UNREACHABLE, ExitStatus.TIME_LIMIT,
)  # fmt: skip


@click.command(
    "map",
    cls=Command,
    effect=Effect.READ,
    examples=(
        ("bkctl ledger map 42", "fragments by bookies, with the health of each replica"),
        ("bkctl ledger map 42 --fail-if-any", "status 10 if any replica is not whole"),
        ("bkctl ledger map 42 -o json", "with the numbers of entries, for programs"),
    ),
    exits=(*_FAILURES, ExitStatus.PROBLEMS),
    replaces="bookkeeper shell ledgermetadata -ledgerid ID, with readledger -bookie on each bookie",
)
@click.argument("ledger_id", type=LEDGER_ID)
@click.option(
    "--fail-if-any", is_flag=True, help="End with status 10 unless all replicas are intact."
)
@click.pass_obj
def map_(session: Session, ledger_id: LedgerId, *, fail_if_any: bool) -> None:
    """Draw the bookies of each fragment, and which replicas are intact.

    Each bookie says itself which entries it holds; no entry is read unless it cannot say. Of an
    open ledger entries up to the last confirmed one count. Nobody is fenced.
    """
    from bkctl.commands.ledger.replicas import map as ledger_map_work

    ledger_map_work.show_map(session, ledger_id, fail_if_any=fail_if_any)


@click.command(
    "where",
    cls=Command,
    effect=Effect.READ,
    examples=(
        ("bkctl ledger where 42", "every fragment and its bookies"),
        ("bkctl ledger where 42 1000", "the bookies that hold entry 1000, in order"),
        ("bkctl ledger where 42 1000 -o id", "only their ids"),
    ),
    exits=_FAILURES,
    replaces="bookkeeper shell ledgermetadata -ledgerid ID",
)
@click.argument("ledger_id", type=LEDGER_ID)
@click.argument("entry_id", type=click.IntRange(0), metavar="[ENTRY]", required=False)
@click.pass_obj
def where(session: Session, ledger_id: LedgerId, entry_id: EntryId | None) -> None:
    """Show which bookies a ledger, or one entry, is on, and how those are.

    With ENTRY it is the entry's write set in its order: the first is asked first. Only metadata is
    read; `ledger map` asks the bookies.
    """
    from bkctl.commands.ledger.replicas import map as ledger_map_work

    ledger_map_work.show_places(session, ledger_id, entry_id)
