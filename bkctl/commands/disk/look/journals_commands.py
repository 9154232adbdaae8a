"""``bkctl disk journal``: what the journals hold, record by record, or whether they are whole."""

from __future__ import annotations

from typing import TYPE_CHECKING

import click

from bkctl.cli.params import LEDGER_ID
from bkctl.commands.disk.commands import FAILURES, directory_options, disk
from bkctl.commands.disk.params import JOURNAL
from bkctl.exit_status import Effect, ExitStatus

if TYPE_CHECKING:
    from bkctl.commands.disk.params import FileRef
    from bkctl.session.session import Session


@disk.command(
    "journal",
    short_help="Print the records of journals, or verify them.",
    effect=Effect.READ,
    examples=(
        ("bkctl disk journal -c bk_server.conf", "all journals, oldest first"),
        ("bkctl disk journal 1a1fc678c87.txn --ledger 42 -c bk_server.conf", "of one ledger"),
        ("bkctl disk journal ./1a1fc678c87.txn --payload", "any file, with what entries hold"),
        ("bkctl disk journal --verify -c bk_server.conf", "are they whole, and to where"),
    ),
    exits=(*FAILURES, ExitStatus.PROBLEMS),
    replaces="bookkeeper shell readjournal [-dir DIR] [-msg] JOURNAL_ID | FILE",
)
@click.argument("journal", type=JOURNAL, required=False, metavar="[FILE|ID]")
@click.option("--dir", "directory", metavar="DIR", help="Only this journal directory.")
@click.option("--ledger", "ledger_id", type=LEDGER_ID, metavar="ID", help="Only of this ledger.")
@click.option(
    "--from", "offset", type=click.IntRange(0), metavar="POS", default=0,
    help="Begin here, where a record begins; in the first journal.",
)  # fmt: skip
@click.option("--payload", is_flag=True, help="Check digests and show what entries hold.")
@click.option("--verify", is_flag=True, help="Print one line a journal: is it intact?")
@directory_options
@click.pass_obj
def journal_(
    session: Session,
    /,
    *,
    journal: FileRef | None,
    directory: str | None,
    ledger_id: int | None,
    offset: int,
    payload: bool,
    verify: bool,
    **dirs: tuple[str, ...],
) -> None:
    """Print the records of a journal, or of all journals.

    A journal is named by its id (decimal, or 0x...), by its file name, or by a path; a path needs
    no directories. What the bookie would refuse to replay is told, and the next journal is read.
    """
    from bkctl.commands.disk.look import journals
    from bkctl.commands.disk.look.records import Damage, JournalRow
    from bookied.offline.journals import JournalVerdict

    paths = journals.find_journals(session, journal, directory, dirs)
    damage = Damage(session)
    if verify:
        session.emit_all(journals.verdicts(session, paths, damage), JournalVerdict)
    else:
        rows = journals.journal_rows(session, paths, offset, ledger_id, damage, payload=payload)
        session.emit_all(rows, JournalRow)
    damage.finish()
