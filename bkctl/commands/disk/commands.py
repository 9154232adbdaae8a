"""``bkctl disk``: look into a bookie's directories, check them, repair them.

The commands here work on files alone: those of a stopped bookie, ours or Java's. This module has
only what every one of them needs to be declared; each command is imported when it runs.
"""

from __future__ import annotations

from typing import Any, Final

import click

from bkctl.cli.command import SubGroup
from bkctl.exit_status import ExitStatus

FAILURES: Final = (ExitStatus.FAILED, ExitStatus.NOT_FOUND, ExitStatus.INTERRUPTED)
"""What every command that reads directories can exit with."""

disk = SubGroup(
    name="disk",
    short_help="A bookie's directories: look into them, check, repair.",
    help="""A bookie's directories: look into them, check them, repair them.

    They work on the files alone, of a stopped bookie, this one or Java's: neither the bookie nor
    the metadata service has to run. What only reads can also be used beside a running bookie.

    Directories are taken from the bookie's settings (-c FILE, as the bookie reads it), or are named
    with --journal-dir, --ledger-dir and --index-dir.
    """,
    lazy={
        "journal": (
            "bkctl.commands.disk.look.journals_commands:journal_",
            "Print the records of journals, or verify them.",
        ),
        "entrylog": (
            "bkctl.commands.disk.look.entry_logs_commands:entrylog",
            "Print the records of an entry log, or its bytes of each ledger.",
        ),
        "ledger": (
            "bkctl.commands.disk.look.ledgers_commands:ledger",
            "Print the locations of a ledger's entries, and their content.",
        ),
        "ledgers": (
            "bkctl.commands.disk.look.ledgers_commands:ledgers",
            "List the ledgers that a bookie has on its disks.",
        ),
        "index": (
            "bkctl.commands.disk.look.ledgers_commands:index",
            "Print a ledger's index.",
        ),
        "lastmark": (
            "bkctl.commands.disk.look.state:lastmark",
            "Print the position where the next start begins to replay.",
        ),
        "files": (
            "bkctl.commands.disk.look.state:files",
            "List a bookie's journals, entry logs and index files.",
        ),
        "usage": (
            "bkctl.commands.disk.look.state:usage",
            "Print the space that is used, and what compaction would free.",
        ),
        "check": (
            "bkctl.commands.disk.repair.check_commands:check",
            "Check cookies, marks, journals, entry logs and index.",
        ),
        "lock-status": (
            "bkctl.commands.disk.look.state:lock_status",
            "Show the process that uses a bookie's directories.",
        ),
        "flush": (
            "bkctl.commands.disk.repair.rebuild_commands:flush",
            "Replay the journals of a stopped bookie into its files.",
        ),
        "rebuild-index": (
            "bkctl.commands.disk.repair.rebuild_commands:rebuild_index",
            "Rebuild index files from entry logs and journals.",
        ),
        "rebuild-db": (
            "bkctl.commands.disk.repair.db_commands:rebuild_db",
            "Rebuild the databases of DbLedgerStorage.",
        ),
        "convert": (
            "bkctl.commands.disk.repair.db_commands:convert",
            "Move the index to DbLedgerStorage, or back to files.",
        ),
        "salvage": (
            "bkctl.commands.disk.repair.rebuild_commands:salvage",
            "Copy a ledger's entries out of logs and journals.",
        ),
        "upgrade": (
            "bkctl.commands.disk.repair.upgrade_commands:upgrade",
            "Upgrade directories of an old release, or roll back.",
        ),
        "init": (
            "bkctl.commands.disk.repair.format_commands:init",
            "Check that a new bookie can begin.",
        ),
        "expand": (
            "bkctl.commands.bookie.change_commands:expand_storage",
            "Add directories to a stopped bookie.",
        ),
        "format": (
            "bkctl.commands.disk.repair.format_commands:format_",
            "Remove all data of a stopped bookie.",
        ),
    },
)


def directory_options(function: Any) -> Any:
    """Add the options that name directories; the callback gets them as one ``Where``."""
    for option in reversed(
        (
            click.option(
                "--journal-dir", "journal_dirs", metavar="DIR", multiple=True,
                help="Journal directory; once for each, in the order of the settings.",
            ),
            click.option(
                "--ledger-dir", "ledger_dirs", metavar="DIR", multiple=True,
                help="Ledger directory, likewise.",
            ),
            click.option(
                "--index-dir", "index_dirs", metavar="DIR", multiple=True,
                help="Index directory, likewise.  [default: the ledger directories]",
            ),
        )
    ):  # fmt: skip
        function = option(function)
    return function
