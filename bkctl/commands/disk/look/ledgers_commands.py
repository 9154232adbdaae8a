"""``bkctl disk ledger``, ``ledgers`` and ``index``: the ledgers that a bookie has on its disks."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import click

from bkctl.cli.params import ENTRY_RANGE, LEDGER_ID
from bkctl.commands.disk.commands import FAILURES, directory_options, disk
from bkctl.exit_status import Effect, ExitStatus

if TYPE_CHECKING:
    from bkctl.session.session import Session
    from wire.ids import LedgerId


def journal_option(function: Any) -> Any:
    """Add the option that leaves the journals aside."""
    return click.option(
        "--journal/--no-journal", "with_journal", default=True,
        help="Also what the next start takes from the journals.  [default: journal]",
    )(function)  # fmt: skip


@disk.command(
    "ledger",
    short_help="Print the locations of a ledger's entries, and their content.",
    effect=Effect.READ,
    examples=(
        ("bkctl disk ledger 42 -c bk_server.conf", "each entry: file, offset, size, digest"),
        ("bkctl disk ledger 42 10-19 --payload -c bk_server.conf", "with what they hold"),
        ("bkctl disk ledger 42 --payload -o jsonl -c bk_server.conf", "for programs, base64"),
    ),
    exits=(*FAILURES, ExitStatus.PROBLEMS),
    replaces="bookkeeper shell readledger -bookieid of this host, with the bookie stopped",
)
@click.argument("ledger_id", type=LEDGER_ID)
@click.argument("entries", type=ENTRY_RANGE, required=False, metavar="[FIRST-LAST]")
@click.option("--payload", is_flag=True, help="Show what the entries hold.")
@journal_option
@directory_options
@click.pass_obj
def ledger(
    session: Session,
    /,
    *,
    ledger_id: LedgerId,
    entries: tuple[int, int | None] | None,
    payload: bool,
    with_journal: bool,
    **dirs: tuple[str, ...],
) -> None:
    """Print the entries of LEDGER_ID that this bookie has, and where each of them is.

    An entry comes from where the next start would have it: from the journal what lies behind
    lastMark, the rest from the entry logs. Digests are checked where that needs no password.
    """
    from bkctl.commands.disk.look import ledgers as disk_ledgers
    from bkctl.commands.disk.look.records import Damage, PlacedRow

    session.about = f"ledger {ledger_id}"
    damage = Damage(session)
    rows = disk_ledgers.placed_rows(
        session, ledger_id, entries or (0, None), dirs, damage,
        payload=payload, with_journal=with_journal,
    )  # fmt: skip
    session.emit_all(rows, PlacedRow)
    damage.finish()


@disk.command(
    "ledgers",
    short_help="List the ledgers that a bookie has on its disks.",
    effect=Effect.READ,
    examples=(
        ("bkctl disk ledgers -c bk_server.conf", "id, fence, last entry of each"),
        ("bkctl disk ledgers --bytes -c bk_server.conf", "and what they take in the entry logs"),
        ("bkctl disk ledgers -o id -c bk_server.conf", "ids, to compare with `bkctl ledger list`"),
    ),
    exits=(*FAILURES, ExitStatus.PROBLEMS),
    replaces="bookkeeper shell listledgers, which lists the cluster's",
)
@click.option("--bytes", "with_bytes", is_flag=True, help="Add up what the entry logs hold.")
@journal_option
@directory_options
@click.pass_obj
def ledgers(
    session: Session, /, *, with_bytes: bool, with_journal: bool, **dirs: tuple[str, ...]
) -> None:
    """List the ledgers that this bookie has on its disks."""
    from bkctl.commands.disk.look import ledgers as disk_ledgers
    from bkctl.commands.disk.look.records import Damage

    damage = Damage(session)
    rows = disk_ledgers.ledger_rows(
        session, dirs, damage, with_bytes=with_bytes, with_journal=with_journal
    )
    kind = disk_ledgers.SizedLedgerRow if with_bytes else disk_ledgers.LedgerRow
    session.emit_all(rows, kind)
    damage.finish()


@disk.command(
    "index",
    short_help="Print a ledger's index.",
    effect=Effect.READ,
    examples=(
        ("bkctl disk index 42 -c bk_server.conf", "entry log and offset of every entry"),
        ("bkctl disk index 42 --meta -c bk_server.conf", "key, fence, explicit LAC, how many"),
        ("bkctl disk index 42 --holes -c bk_server.conf", "ranges of entries that are not here"),
    ),
    exits=(*FAILURES, ExitStatus.PROBLEMS),
    replaces="bookkeeper shell ledger [-meta] LEDGER_ID",
)
@click.argument("ledger_id", type=LEDGER_ID)
@click.option("--meta", is_flag=True, help="Print what is stored of the ledger itself instead.")
@click.option("--holes", is_flag=True, help="Print the ranges of missing entries instead.")
@directory_options
@click.pass_obj
def index(
    session: Session,
    /,
    *,
    ledger_id: LedgerId,
    meta: bool,
    holes: bool,
    **dirs: tuple[str, ...],
) -> None:
    """Print where the index says that the entries of LEDGER_ID are.

    A bookie holds a part of a ledger's entries only, where the ledger is striped over more bookies
    than copies are kept: holes are normal then.
    """
    from bkctl.commands.disk.look import ledgers as disk_ledgers
    from bkctl.errors import UsageError

    session.about = f"ledger {ledger_id}"
    if meta and holes:
        raise UsageError("--meta or --holes: only one of them can be")
    with disk_ledgers.open_index(session, ledger_id, dirs) as found:
        if meta:
            session.emit(disk_ledgers.meta(session, found))
        elif holes:
            session.emit_all(found.holes(), disk_ledgers.Hole)
        else:
            session.emit_all(found.places(), disk_ledgers.IndexRow)
