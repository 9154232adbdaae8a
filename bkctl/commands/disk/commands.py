"""``bkctl disk``: look into a bookie's directories, check them, repair them.

The commands of this group only need the files of a stopped bookie, bookied's or Java's.
"""

from __future__ import annotations

from bkctl.cli.command import SubGroup
from bkctl.commands.disk.inspect.commands import LOOKS
from bkctl.commands.disk.repair.commands import REPAIRS

disk = SubGroup(
    name="disk",
    short_help="A bookie's directories: look into them, check, repair.",
    help="""A bookie's directories: look into them, check them, repair them.

    The bookie may be bookied or Java's. Commands that only read also work while the bookie runs;
    all other commands need a stopped bookie. Only `init`, `expand`, `format` and `upgrade` need
    the metadata service.

    The bookie's settings file (-c FILE) names the directories. DIR names them without a settings
    file: a ledger directory, or a directory with the ledger and journal directories of one bookie.
    --journal-dir, --ledger-dir and --index-dir name each directory by itself.

    Autorecovery copies the entries of a stopped bookie to others; `bkctl autorecovery disable --for
    30m` before a short stop prevents that.
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
