"""``bkctl ledger metadata``: a ledger's metadata to a file, and back."""

from __future__ import annotations

from typing import TYPE_CHECKING

import click

from bkctl.cli.command import SubGroup
from bkctl.cli.params import LEDGER_ID
from bkctl.exit_status import Effect, ExitStatus

if TYPE_CHECKING:
    from bkctl.session.session import Session
    from wire.ids import LedgerId

_FAILURES = (ExitStatus.FAILED, ExitStatus.UNREACHABLE, ExitStatus.TIME_LIMIT)

metadata = SubGroup(
    name="metadata",
    short_help="A ledger's metadata to a file, and back.",
    help="""A ledger's metadata to a file, and back.

    The file has the bytes that the metadata service stores; Java's shell reads and writes the same.
    """,
)


@metadata.command(
    "dump",
    short_help="Write a ledger's metadata to a file.",
    effect=Effect.READ,
    watch=False,
    examples=(
        ("bkctl ledger metadata dump 42 ledger-42", "to be restored one day"),
        ("bkctl ledger metadata dump 42 - | xxd", "to stdout"),
    ),
    exits=(*_FAILURES, ExitStatus.NOT_FOUND),
    replaces="bookkeeper shell ledgermetadata -ledgerid ID -dumptofile FILE",
)
@click.argument("ledger_id", type=LEDGER_ID)
@click.argument("path", metavar="FILE")
@click.pass_obj
def dump(session: Session, ledger_id: LedgerId, path: str) -> None:
    """Write the metadata of LEDGER_ID to FILE, or to stdout for `-`, as it is stored.

    The ledger's password is in it.
    """
    from bkctl.commands.ledger import metadata as ledger_metadata_work

    ledger_metadata_work.dump(session, ledger_id, path)


@metadata.command(
    "restore",
    short_help="Store a ledger's metadata from a file.",
    effect=Effect.LOSES_DATA,
    examples=(
        ("bkctl ledger metadata restore 42 ledger-42", "where there is no ledger 42 any more"),
        ("bkctl ledger metadata restore 42 ledger-42 --replace", "shows what changes, and asks"),
        ("bkctl ledger metadata restore 42 ledger-42 --replace --dry-run", "only shows it"),
    ),
    exits=(*_FAILURES, ExitStatus.NOT_FOUND, ExitStatus.REFUSED, ExitStatus.CONFLICT),
    replaces="bookkeeper shell ledgermetadata -ledgerid ID -restorefromfile FILE [-update]",
)
@click.argument("ledger_id", type=LEDGER_ID)
@click.argument("path", metavar="FILE")
@click.option("--replace", is_flag=True, help="Replace the stored metadata with this file's.")
@click.option("--backup", metavar="FILE",
              help="Where to keep what is replaced.  [default: FILE.before-VERSION]")  # fmt: skip
@click.pass_obj
def restore(
    session: Session, ledger_id: LedgerId, path: str, *, replace: bool, backup: str | None
) -> None:
    """Store the metadata in FILE, or of stdin for `-`, as that of LEDGER_ID.

    Existing metadata is replaced only with --replace: it shows field by field what changes,
    keeps the old metadata in a file, and is refused if anybody changes it meanwhile. Entries that
    the new metadata does not lead to are deleted by the bookies that hold them.
    """
    from bkctl.commands.ledger import metadata as ledger_metadata_work

    ledger_metadata_work.restore(session, ledger_id, path, replace=replace, backup=backup)
