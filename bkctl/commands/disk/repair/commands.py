"""``bkctl disk``: the commands that check and change directories.

``upgrade`` and ``bookieformat`` are also commands of ``bkctl`` itself, the second with Java's
options.
"""

from __future__ import annotations

from typing import Final

import click

from bkctl.cli.command import Command
from bkctl.cli.declarations import (
    BOOKIE_DIRECTORIES,
    DIRECTORIES,
    argument,
    flag,
    force,
    java_answers,
    option,
)
from bkctl.cli.parameter_types import LEDGER_ID, LEDGER_IDS
from bkctl.commands.disk.parameter_types import FAILURES
from bkctl.exit_status import Effect, ExitStatus, Facility
from bkctl.session.safety_check_names import ONLY_COPIES, REGISTERED

_CHANGES: Final = (*FAILURES, ExitStatus.REFUSED)
_ENDS: Final = (
    ExitStatus.FAILED,
    ExitStatus.REFUSED,
    ExitStatus.UNREACHABLE,
    ExitStatus.INTERRUPTED,
)

_FORCE: Final = option(
    "--force",
    type=click.Choice((REGISTERED, ONLY_COPIES, "metadata")),
    multiple=True,
    help="Override a safety check: `registered` if the bookie seems to run; `only-copies` if it "
    "may have the only copies of entries; `metadata` to ignore the metadata service.",
)

upgrade = Command(
    "upgrade",
    body="bkctl.commands.disk.repair.upgrade:upgrade_or_back",
    help="""Convert a stopped bookie's directories from the layout of an old release, or back.

    The old data stays where it is until --finalize: journals and entry logs are shared by hard
    links, files that are rewritten are copied. A crash at any step leaves the old or the new layout
    intact; the same command then continues.
    """,
    params=(
        flag(
            "--upgrade",
            "upgrade_",
            help="Make `current/` from data of layout 1 or 2, or complete the cookie of 3 or 4.",
        ),
        flag(
            "--rollback",
            "rollback_",
            help="Remove `current/` if the data of layout 1 or 2 still exists.",
        ),
        flag(
            "--finalize",
            "finalize_",
            help="Remove the data of layout 1 or 2, once a bookie has started since the upgrade.",
        ),
        flag("--check", "check_", help="Show the layout of each directory."),
        force("empty-directory"),
    ),
    effect=Effect.LOSES_DATA,
    examples="""
        bkctl disk upgrade --check -c bk_server.conf  # which layout each directory has
        bkctl disk upgrade --upgrade -c bk_server.conf  # upgrade; the old data stays beside the new
        bkctl disk upgrade --rollback -c bk_server.conf  # back to the old data
        bkctl disk upgrade --finalize -c bk_server.conf  # delete the old data, after a good start
    """,
    exits=(
        ExitStatus.FAILED,
        ExitStatus.NOT_FOUND,
        ExitStatus.REFUSED,
        ExitStatus.UNREACHABLE,
        ExitStatus.CONFLICT,
        ExitStatus.PROBLEMS,
    ),
    replaces="bookkeeper upgrade --upgrade | --rollback | --finalize",
)

bookieformat = Command(
    "bookieformat",
    body="bkctl.commands.disk.repair.format:bookieformat",
    short_help="Short for `disk format`, with Java's options.",
    help="""Remove all data of a stopped bookie: `disk format` with Java's options.

    Unlike Java's command, it asks if any directory has data, refuses a running bookie, and with -d
    deletes the stored cookie after the data.
    """,
    params=(
        *java_answers("data"),
        flag(
            "-d",
            "-deleteCookie",
            "--delete-cookie",
            "--deletecookie",
            "delete_cookie",
            help="Delete the stored cookie at the end.",
        ),
        option(
            "--override",
            type=click.Choice([ONLY_COPIES]),
            multiple=True,
            help="Override a safety check by its name, as --force of `disk format`.",
        ),
    ),
    effect=Effect.LOSES_DATA,
    examples="""
        bkctl bookieformat -c bk_server.conf
          # shows what would be deleted, and asks for the bookie's id
        bkctl bookieformat -c bk_server.conf -nonInteractive -force  # from a script
        bkctl bookieformat -c bk_server.conf -n -f -d  # the same, and delete the stored cookie
    """,
    exits=_ENDS,
    replaces="bookkeeper shell bookieformat [-nonInteractive] [-force] [-deleteCookie]",
)

REPAIRS: Final = (
    upgrade,
    Command(
        "check",
        body="bkctl.commands.disk.repair.check:check",
        short_help="Check cookies, marks, journals, entry logs and index.",
        help="""Check a bookie's directories, and change nothing.

    The findings are notes, warnings and problems. A crash leaves notes, and the next start repairs
    them. A warning loses no data. A problem means that data is lost or that the bookie cannot
    start. The exit status is 10 for problems, and 9 for warnings alone.

    If the settings or -u name the bookie's cluster, the command also reads the metadata of each
    ledger with a finding. Missing entries are only a note if the ledger was deleted, or if
    autorecovery has moved it to other bookies.
    """,
        params=(
            flag("--deep", help="Read everything: each record, each entry, digests."),
            flag("--repair-plan", help="Print the repair commands instead of the findings."),
            flag("--db", help="Only read the RocksDB indexes."),
            *BOOKIE_DIRECTORIES,
        ),
        effect=Effect.READ,
        examples="""
            bkctl disk check -c bk_server.conf  # the header of each entry that the index lists
            bkctl disk check /data/bookie  # the directories of one bookie, without its settings
            bkctl disk check --deep -c bk_server.conf  # every byte, and digests
            bkctl disk check --repair-plan -c bk_server.conf  # which commands would help
        """,
        exits=(*FAILURES, ExitStatus.WARNINGS, ExitStatus.PROBLEMS),
        replaces="bookkeeper shell localconsistencycheck; check-db-ledgers-index",
    ),
    Command(
        "rebuild-index",
        body="bkctl.commands.disk.repair.rebuild_index:rebuild_index",
        short_help="Rebuild index files from entry logs and journals.",
        help="""Rebuild the index files of Interleaved or Sorted storage; `-` reads ids from stdin.

    On this bookie the ledger becomes fenced, because the new index may lack entries. The new index
    has every entry that can be read from the entry logs, and the master key and explicit LAC from
    journals or the old index. Index records that point into unreadable logs are kept. The old index
    stays until the new one is on disk.
    """,
        params=(
            argument("ledger_ids", type=LEDGER_IDS, nargs=-1, metavar="[LEDGER_ID...]"),
            flag("--all", "all_ledgers", help="All ledgers that are found."),
            option(
                "--password-file",
                metavar="FILE",
                help="Password of ledgers whose key is in no journal and no index.",
            ),
            *DIRECTORIES,
        ),
        effect=Effect.REVERSIBLE,
        examples="""
            bkctl disk rebuild-index 42 43 -c bk_server.conf  # two ledgers whose index is damaged
            bkctl disk rebuild-index --all --dry-run -c bk_server.conf  # what would be written
            bkctl disk rebuild-index 42 --password-file FILE -c bk_server.conf
              # if the ledger's key is in no journal and no index
        """,
        exits=(*_CHANGES, ExitStatus.UNREACHABLE, ExitStatus.CONFLICT, ExitStatus.PARTLY),
        replaces="bookkeeper shell regenerate-interleaved-storage-index-file -l ID -password P",
    ),
    Command(
        "salvage",
        body="bkctl.commands.disk.repair.salvage:salvage_ledger",
        help="""Copy the entries of a ledger out of logs and journals, without index or metadata.

    The command writes two files to the --out directory. ledger-ID.entries has each payload after
    its length (4 bytes). ledger-ID.jsonl has a line for each entry with its place, and the packet
    (header, digest and payload) if its digest is wrong. Entries that this bookie never had are
    missing. DIR may name directories of several bookies: then the command joins their entries. An
    earlier run's files with entries that this run lacks are not replaced.
    """,
        params=(
            argument("ledger_id", type=LEDGER_ID),
            option(
                "--out",
                metavar="DIR",
                required=True,
                help="Directory to write to; created if missing.",
            ),
            option(
                "--password-file", metavar="FILE", help="The ledger's password, to check its MACs."
            ),
            option(
                "--digest",
                type=click.Choice(["crc32c", "crc32", "mac", "dummy"]),
                help="The kind of digest.  [default: by the entries]",
            ),
            *BOOKIE_DIRECTORIES,
        ),
        effect=Effect.READ,
        without=(Facility.WATCH,),
        examples="""
            bkctl disk salvage 42 --out saved -c bk_server.conf  # into saved/ledger-42.entries
            bkctl ledger write --length-prefixed saved/ledger-42.entries
              # from there into a new ledger
            bkctl disk salvage 42 --out saved --ledger-dir /data/l1  # from one directory's logs
            bkctl disk salvage 42 --out saved copy-of-b1 copy-of-b2
              # the entries of two bookies, in one file
        """,
        exits=(*FAILURES, ExitStatus.CONFLICT, ExitStatus.PARTLY),
    ),
    Command(
        "flush",
        body="bkctl.commands.disk.repair.flush:flush_journals",
        help="""Replay the journals of a stopped bookie into its entry logs and indexes.

    Afterwards the directories are as after a clean stop: marks at the ends of the journals, every
    key, fence and explicit LAC in the index. Run the command after a crash of bookied, before a
    Java bookie starts there. Java's replay forgets fences that are only in a journal.
    """,
        params=BOOKIE_DIRECTORIES,
        effect=Effect.REVERSIBLE,
        examples="""
            bkctl disk flush -c bk_server.conf  # after a crash, before a Java bookie takes over
            bkctl disk flush -c bk_server.conf --json  # what was replayed, for programs
        """,
        exits=(*_CHANGES, ExitStatus.CONFLICT),
    ),
    Command(
        "rebuild-db",
        body="bkctl.commands.disk.repair.rebuild_index:rebuild_db",
        help="""Rebuild the databases of DbLedgerStorage, in RocksDB, from entry logs and journals.

    The new database is written beside the old one and replaces it when it is complete; the old one
    stays as a backup. Deleted ledgers whose entries are still in a log exist again until the next
    garbage collection.
    """,
        params=(
            flag("--locations", help="Rebuild locations of entries of existing ledgers."),
            flag(
                "--ledgers",
                help="Rebuild the list of ledgers from journals and logs; all are fenced.",
            ),
            option(
                "--password-file",
                metavar="FILE",
                help="Password of ledgers whose key is in no journal and no database.",
            ),
            *BOOKIE_DIRECTORIES,
        ),
        effect=Effect.REVERSIBLE,
        examples="""
            bkctl disk rebuild-db --locations -c bk_server.conf
              # the locations of entries, from the logs
            bkctl disk rebuild-db --ledgers -c bk_server.conf
              # the list of ledgers, from journals and logs
            bkctl disk rebuild-db --ledgers --locations --dry-run -c bk_server.conf
              # only shows what would be written
        """,
        exits=(*_CHANGES, ExitStatus.UNREACHABLE, ExitStatus.CONFLICT, ExitStatus.PARTLY),
        replaces="bookkeeper shell rebuild-db-ledger-locations-index; "
        "bookkeeper shell rebuild-db-ledgers-index",
    ),
    Command(
        "convert",
        body="bkctl.commands.disk.repair.convert:convert",
        short_help="Move the index to DbLedgerStorage, or back to files.",
        help="""\
    Move a stopped bookie's index to another kind of storage; entry logs stay as they are.

    The journals are replayed first. Master keys, fence marks and explicit LACs are kept. The old
    index is deleted when the new one is on disk (databases are renamed to .backup). After an
    interruption, run the command again. Before the bookie starts, set ledgerStorageClass to the new
    kind of storage.
    """,
        params=(
            option(
                "--to",
                type=click.Choice(["db", "interleaved"]),
                required=True,
                help="db: DbLedgerStorage; interleaved: index files, of Interleaved and "
                "SortedLedgerStorage.",
            ),
            *BOOKIE_DIRECTORIES,
        ),
        effect=Effect.REVERSIBLE,
        examples="""
            bkctl disk convert --to db -c bk_server.conf  # from index files to RocksDB
            bkctl disk convert --to interleaved -c bk_server.conf  # and back
            bkctl disk convert --to db --dry-run -c bk_server.conf  # only shows the steps
        """,
        exits=(*_CHANGES, ExitStatus.CONFLICT),
        replaces="bookkeeper shell convert-to-db-storage; "
        "bookkeeper shell convert-to-interleaved-storage",
    ),
    Command(
        "format",
        body="bkctl.commands.disk.repair.format:format_bookie",
        help="""Remove all data of a stopped bookie: journals, entry logs, indexes, cookies.

    The command empties all directories of the settings. After a crash in the middle no bookie
    starts there; run the command again. With --delete-cookie the stored cookie is deleted last.
    Without it, a bookie refuses to start on the empty directories. The command refuses to delete
    what may be the only copies of entries, in the journals too: `disk salvage` saves them.
    """,
        params=(
            flag(
                "--delete-cookie",
                help="Delete the stored cookie at the end, so that a new bookie can start.",
            ),
            _FORCE,
        ),
        effect=Effect.LOSES_DATA,
        examples="""
            bkctl disk format -c bk_server.conf
              # shows what would be deleted, and asks for the bookie's id
            bkctl disk format -c bk_server.conf --dry-run  # only shows it
            bkctl disk format -c bk_server.conf --delete-cookie --yes  # from a script, for good
        """,
        exits=_ENDS,
        replaces="bookkeeper shell bookieformat [-nonInteractive] [-force] [-deleteCookie]",
    ),
    Command(
        "init",
        body="bkctl.commands.disk.repair.format:init_bookie",
        help="""Check that a new bookie can begin: empty directories, no cookie, not registered.

    Without --write the command writes nothing. A new bookie makes its directories and cookie itself
    when it first starts; --write does so now.
    """,
        params=(flag("--write", help="Make the directories and the cookie."),),
        effect=Effect.REVERSIBLE,
        examples="""
            bkctl disk init -c bk_server.conf  # checks only
            bkctl disk init -c bk_server.conf --write  # makes the directories and the cookie too
        """,
        exits=_ENDS,
        replaces="bookkeeper shell initbookie",
    ),
    Command(
        "expand",
        body="bkctl.commands.bookie.rename:expand_storage",
        help="""Add new ledger and index directories of the settings to a stopped bookie.

    The new directories must be empty and never used. Not for DbLedgerStorage: it places ledgers by
    ledger id modulo the number of directories.
    """,
        effect=Effect.REVERSIBLE,
        examples="""
            bkctl disk expand -c bk_server.conf  # after directories were added there
            bkctl disk expand --dry-run -c bk_server.conf  # only shows the new directories
        """,
        exits=(*_ENDS[:-1], ExitStatus.NOT_FOUND, ExitStatus.CONFLICT),
        replaces="bookkeeper shell updatecookie -expandstorage",
    ),
)
"""The commands for the group ``bkctl disk``."""
