"""``bkctl disk entrylog``: what an entry log holds, record by record or as a whole."""

from __future__ import annotations

from typing import TYPE_CHECKING

import click

from bkctl.cli.params import ENTRY_RANGE, LEDGER_ID
from bkctl.commands.disk.commands import FAILURES, directory_options, disk
from bkctl.commands.disk.params import ENTRY_LOG
from bkctl.exit_status import Effect, ExitStatus

if TYPE_CHECKING:
    from bkctl.commands.disk.params import FileRef
    from bkctl.session.session import Session


@disk.command(
    "entrylog",
    short_help="Print the records of an entry log, or its bytes of each ledger.",
    effect=Effect.READ,
    examples=(
        ("bkctl disk entrylog 26 -c bk_server.conf", "every entry in 1a.log"),
        ("bkctl disk entrylog 1a.log --ledger 42 --entry 0-9 -c bk_server.conf", "some of them"),
        ("bkctl disk entrylog 0x1a --summary -c bk_server.conf", "bytes by ledger, live and dead"),
        ("bkctl disk entrylog ./1a.log --payload -o jsonl", "any file, for programs"),
    ),
    exits=(*FAILURES, ExitStatus.PROBLEMS),
    replaces="bookkeeper shell readlog [-l ID] [-e ID] [-sp POS] [-ep POS] [-m] LOG_ID | FILE; "
    "readlogmetadata LOG_ID | FILE; activeledgers -l LOG_ID",
)
@click.argument("log", type=ENTRY_LOG)
@click.option("--ledger", "ledger_id", type=LEDGER_ID, metavar="ID", help="Only of this ledger.")
@click.option("--entry", "entries", type=ENTRY_RANGE, metavar="N | N-M", help="Only these entries.")
@click.option(
    "--start", type=click.IntRange(0), metavar="POS", default=0, help="Only from here on."
)
@click.option("--end", type=click.IntRange(0), metavar="POS", help="Only up to here.")
@click.option("--payload", is_flag=True, help="Check digests and show what entries hold.")
@click.option("--live", is_flag=True, help="Only entries that the index finds here.")
@click.option("--summary", is_flag=True, help="Print what the log holds of each ledger instead.")
@directory_options
@click.pass_obj
def entrylog(
    session: Session,
    /,
    *,
    log: FileRef,
    ledger_id: int | None,
    entries: tuple[int, int | None] | None,
    start: int,
    end: int | None,
    payload: bool,
    live: bool,
    summary: bool,
    **dirs: tuple[str, ...],
) -> None:
    """Print the records of the entry log LOG.

    LOG is an id (decimal, or 0x...), a file name (hexadecimal, as the bookie has it) or a path; a
    path needs no directories. --summary goes by the log's own ledgers map, where there is one, and
    by its records otherwise; with --live, entry by entry, as the index has them.
    """
    from bkctl.commands.disk.look import entry_logs
    from bkctl.commands.disk.look.records import Damage, LogRow

    damage = Damage(session)
    chosen = entry_logs.Chosen(ledger_id, entries, start, end)
    with entry_logs.find_log(session, log, dirs, live=live) as found:
        if summary:
            session.emit(entry_logs.contents(session, found, damage, live=live))
        else:
            rows = entry_logs.log_rows(session, found, chosen, damage, payload=payload, live=live)
            session.emit_all(rows, LogRow)
    damage.finish()
