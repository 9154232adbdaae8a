"""``bkctl disk``: look into a bookie's directories, check them, repair them.

The commands here work on files alone: those of a stopped bookie, ours or Java's.
"""

from __future__ import annotations

from bkctl.cli.command import SubGroup
from bkctl.commands.disk.inspect.commands import LOOKS
from bkctl.commands.disk.repair.commands import REPAIRS

disk = SubGroup(
    name="disk",
    short_help="A bookie's directories: look into them, check, repair.",
    help="""A bookie's directories: look into them, check them, repair them.

    The commands need only the files of a stopped bookie: bookied, or Java's. Neither the bookie nor
    the metadata service has to run. Commands that only read can be used beside a running bookie,
    too.

    Directories are taken from the bookie's settings (-c FILE, as the bookie reads it), or are named
    as DIR, or with --journal-dir, --ledger-dir and --index-dir.
    """,
    commands=(*LOOKS, *REPAIRS),
    order=(
        "journal",
        "entrylog",
        "ledger",
        "ledgers",
        "index",
        "lastmark",
        "files",
        "usage",
        "check",
        "lock-status",
        "flush",
        "rebuild-index",
        "rebuild-db",
        "convert",
        "salvage",
        "upgrade",
        "init",
        "expand",
        "format",
    ),
)
