"""``bkctl disk``: the commands that only read directories."""

from __future__ import annotations

from typing import Final

import click

from bkctl.cli.command import Command
from bkctl.cli.declarations import BOOKIE_DIRECTORIES, DIRECTORIES, argument, flag, option
from bkctl.cli.parameter_types import ENTRY_RANGE, LEDGER_ID
from bkctl.commands.disk.parameter_types import ENTRY_LOG, FAILURES, JOURNAL, RANGE_OR_DIRECTORY
from bkctl.exit_status import Effect, ExitStatus

_WITH_JOURNAL: Final = option(
    "--journal/--no-journal",
    "with_journal",
    default=True,
    help="Include entries that the next start would read from the journals.  [default: journal]",
)

LOOKS: Final = (
    Command(
        "lastmark",
        body="bkctl.commands.disk.inspect.journals:lastmark",
        short_help="Print the position where the next start begins to replay.",
        help="""\
    Print the marks. Entries before a mark are in the entry logs and the index. The next start
    replays the journals from the mark on.
    """,
        params=(
            flag("--check", help="Also check that the journals of the mark exist."),
            *BOOKIE_DIRECTORIES,
        ),
        effect=Effect.READ,
        examples="""
            bkctl disk lastmark -c bk_server.conf  # every copy, and which of them is used
            bkctl disk lastmark --check -c bk_server.conf
              # status 10 if the bookie could not start from the mark
        """,
        exits=(*FAILURES, ExitStatus.PROBLEMS),
        replaces="bookkeeper shell lastmark",
    ),
    Command(
        "files",
        body="bkctl.commands.disk.inspect.files:files",
        help="""List a bookie's files, with their ids in decimal and hexadecimal.
    """,
        params=(
            flag("--journal", help="Only journals."),
            flag("--entrylog", help="Only entry logs."),
            flag("--index", help="Only index files and databases."),
            *BOOKIE_DIRECTORIES,
        ),
        effect=Effect.READ,
        examples="""
            bkctl disk files -c bk_server.conf  # all files
            bkctl disk files --journal -c bk_server.conf  # the journals
            bkctl disk files --entrylog -o csv -c bk_server.conf
              # the entry logs, for a spreadsheet
        """,
        exits=FAILURES,
        replaces="bookkeeper shell listfilesondisc -txn | -log | -idx",
    ),
    Command(
        "usage",
        body="bkctl.commands.disk.inspect.usage:usage",
        short_help="Print the space that is used, and what compaction would free.",
        help="""Print the live bytes of each entry log, or the bytes of each ledger in all logs.

    Live bytes belong to ledgers in this bookie's index. A deleted ledger counts as live until the
    next garbage collection; with --existing the command asks the cluster which ledgers exist.

    The next collection deletes a log without live bytes. A compaction rewrites a log below its
    threshold. The last lines say how much a collection and a compaction would free.
    """,
        params=(
            flag("--directories", help="Print the free and used space of each directory instead."),
            flag("--existing", help="Count deleted ledgers as dead."),
            flag(
                "--ledgers",
                "by_ledger",
                help="Print the bytes of each ledger instead, the largest first.",
            ),
            *BOOKIE_DIRECTORIES,
        ),
        effect=Effect.READ,
        examples="""
            bkctl disk usage -c bk_server.conf  # entry logs, those with most to free first
            bkctl disk usage --directories -c bk_server.conf
              # free and used space of each directory
            bkctl disk usage --existing -c bk_server.conf  # what the next collection would find
            bkctl disk usage --ledgers -c bk_server.conf
              # which ledgers use the space of this bookie
        """,
        exits=(*FAILURES, ExitStatus.UNREACHABLE, ExitStatus.PROBLEMS),
        replaces="nothing in Java's tools; activeledgers for one log at a time",
    ),
    Command(
        "lock-status",
        body="bkctl.commands.disk.inspect.files:lock_status",
        help="""Show the process that uses a bookie's directories.

    bookied locks each directory while it runs. A Java bookie locks no directory. The command finds
    a Java bookie by its open files, which only the bookie's user and root can see, and by the file
    DIRTY.
    """,
        params=(
            flag("--fail-if-any", help="Exit with 10 if a directory is in use."),
            *BOOKIE_DIRECTORIES,
        ),
        effect=Effect.READ,
        examples="""
            bkctl disk lock-status -c bk_server.conf  # each directory, and the process that uses it
            bkctl disk lock-status -c bk_server.conf --fail-if-any
              # status 10 if a bookie uses one of them, for scripts
        """,
        exits=(ExitStatus.PROBLEMS,),
        replaces="nothing in Java's tools: they do not look whether a bookie runs",
    ),
    Command(
        "journal",
        body="bkctl.commands.disk.inspect.journals:journal",
        short_help="Print the records of journals, or verify them.",
        help="""Print the records of a journal, or of all journals.

    Name a journal by its id (decimal, or 0x...), its file name or its path. A path needs no
    settings file. The command reports records that the bookie would refuse to replay, and continues
    with the next journal.
    """,
        params=(
            argument("journal", type=JOURNAL, required=False, metavar="[FILE|ID]"),
            option("--dir", "directory", metavar="DIR", help="Only this journal directory."),
            option("--ledger", "ledger_id", type=LEDGER_ID, help="Only this ledger."),
            option(
                "--from",
                "offset",
                type=click.IntRange(0),
                metavar="POS",
                default=0,
                show_default=False,
                help="Begin with the record at this offset of the first journal.",
            ),
            flag("--payload", help="Check digests and show payloads; -o wide does not cut them."),
            flag("--verify", help="Print for each journal whether it is intact."),
            *BOOKIE_DIRECTORIES,
        ),
        effect=Effect.READ,
        examples="""
            bkctl disk journal -c bk_server.conf  # all journals, oldest first
            bkctl disk journal 1a1fc678c87.txn --ledger 42 -c bk_server.conf  # of one ledger
            bkctl disk journal ./1a1fc678c87.txn --payload  # any file, with payloads
            bkctl disk journal --verify -c bk_server.conf
              # whether each journal is intact, and up to which offset
        """,
        exits=(*FAILURES, ExitStatus.PROBLEMS),
        replaces="bookkeeper shell readjournal [-dir DIR] [-msg] JOURNAL_ID | FILE",
    ),
    Command(
        "entrylog",
        body="bkctl.commands.disk.inspect.entry_logs:entrylog",
        short_help="Print the records of an entry log, or the bytes of each ledger in it.",
        help="""Print the records of the entry log LOG.

    LOG is an id (decimal, or 0x...), a file name (hexadecimal) or a path. A path needs no settings
    file. --summary reads the log's ledgers map, or its records if the map is missing. With --live
    it counts the entries that the index finds in this log.
    """,
        params=(
            argument("log", type=ENTRY_LOG),
            option("--ledger", "ledger_id", type=LEDGER_ID, help="Only this ledger."),
            option(
                "--entry",
                "entries",
                type=ENTRY_RANGE,
                metavar="N | N-M",
                help="Only these entries.",
            ),
            option(
                "--start",
                type=click.IntRange(0),
                metavar="POS",
                default=0,
                show_default=False,
                help="Only records from this offset on.",
            ),
            option(
                "--end",
                type=click.IntRange(0),
                metavar="POS",
                help="Only records up to this offset.",
            ),
            flag("--payload", help="Check digests and show payloads; -o wide does not cut them."),
            flag("--live", help="Only entries that the index finds here."),
            flag("--summary", help="Print the bytes of each ledger instead."),
            *BOOKIE_DIRECTORIES,
        ),
        effect=Effect.READ,
        examples="""
            bkctl disk entrylog 26 -c bk_server.conf  # every entry in 1a.log
            bkctl disk entrylog 1a.log --ledger 42 --entry 0-9 -c bk_server.conf
              # ten entries of one ledger
            bkctl disk entrylog 0x1a --summary -c bk_server.conf  # bytes by ledger, live and dead
            bkctl disk entrylog ./1a.log --payload -o jsonl  # any file, for programs
        """,
        exits=(*FAILURES, ExitStatus.PROBLEMS),
        replaces="bookkeeper shell readlog [-l ID] [-e ID] [-sp POS] [-ep POS] [-m] LOG_ID | FILE; "
        "readlogmetadata LOG_ID | FILE; activeledgers -l LOG_ID",
    ),
    Command(
        "ledger",
        body="bkctl.commands.disk.inspect.ledgers:ledger",
        help="""Print the entries of LEDGER_ID that this bookie has, and where each of them is.

    Entries newer than lastMark are read from the journals, all others from the entry logs, as at
    the next start. Digests are checked if that needs no password.
    """,
        params=(
            argument("ledger_id", type=LEDGER_ID),
            argument(
                "range_and_dirs",
                type=RANGE_OR_DIRECTORY,
                nargs=-1,
                metavar="[FIRST-LAST] [DIR...]",
            ),
            flag("--payload", help="Show payloads; -o wide does not cut them."),
            _WITH_JOURNAL,
            *DIRECTORIES,
        ),
        effect=Effect.READ,
        examples="""
            bkctl disk ledger 42 -c bk_server.conf  # each entry: file, offset, size, digest
            bkctl disk ledger 42 10-19 --payload -c bk_server.conf  # with payloads
            bkctl disk ledger 42 --payload -o jsonl -c bk_server.conf  # for programs, base64
        """,
        exits=(*FAILURES, ExitStatus.PROBLEMS),
        replaces="bookkeeper shell readledger -bookieid of this host, with the bookie stopped",
    ),
    Command(
        "ledgers",
        body="bkctl.commands.disk.inspect.ledgers:ledgers",
        help="""List the ledgers that this bookie has on its disks.
    """,
        params=(
            flag("--bytes", "with_bytes", help="Add the bytes of each ledger in the entry logs."),
            _WITH_JOURNAL,
            *BOOKIE_DIRECTORIES,
        ),
        effect=Effect.READ,
        examples="""
            bkctl disk ledgers -c bk_server.conf  # id, fence, last entry of each
            bkctl disk ledgers --bytes -c bk_server.conf  # and their bytes in the entry logs
            bkctl disk ledgers -o id -c bk_server.conf  # ids, to compare with `bkctl ledger list`
        """,
        exits=(*FAILURES, ExitStatus.PROBLEMS),
        replaces="bookkeeper shell listledgers, which lists the cluster's",
    ),
    Command(
        "index",
        body="bkctl.commands.disk.inspect.ledgers:index",
        short_help="Print a ledger's index.",
        help="""Print where the entries of LEDGER_ID are, according to the index.

    If the ensemble is larger than the write quorum, a bookie holds only some of a ledger's entries.
    Holes are normal then.
    """,
        params=(
            argument("ledger_id", type=LEDGER_ID),
            flag("--meta", help="Print the ledger's key, fence and explicit LAC instead."),
            flag("--holes", help="Print the ranges of missing entries instead."),
            *BOOKIE_DIRECTORIES,
        ),
        effect=Effect.READ,
        examples="""
            bkctl disk index 42 -c bk_server.conf  # entry log and offset of every entry
            bkctl disk index 42 --meta -c bk_server.conf
              # key, fence, explicit LAC, number of entries
            bkctl disk index 42 --holes -c bk_server.conf  # ranges of missing entries
        """,
        exits=(*FAILURES, ExitStatus.PROBLEMS),
        replaces="bookkeeper shell ledger [-meta] LEDGER_ID",
    ),
)
"""The commands for the group ``bkctl disk``."""
