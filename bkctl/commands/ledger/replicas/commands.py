"""``bkctl ledger map``, ``verify`` and ``orphans``: the copies of entries."""

from __future__ import annotations

from typing import Final

import click

from bkctl.cli.command import Command
from bkctl.cli.declarations import argument, flag, option
from bkctl.cli.ledger_options import FROM_FILE
from bkctl.cli.parameter_types import DURATION, LEDGER_ID, LEDGER_IDS, LEDGER_STATE, RATE, SHARE
from bkctl.exit_status import FAILURES, Effect, ExitStatus

REPLICAS: Final = (
    Command(
        "map",
        body="bkctl.commands.ledger.replicas.map:show_map",
        prints=("LedgerMap", "LedgerPlace"),
        help="""Draw the bookies of each fragment, and which of them list all its entries.

    Each bookie reports which entries it holds. The command reads entries only from bookies that
    cannot report them; `ledger verify` reads and checks all. In an open ledger only confirmed
    entries count. No writer is fenced.

    With ENTRY the command reads only metadata, and prints the bookies that hold the entry, in the
    order of reading.
    """,
        params=(
            argument("ledger_id", type=LEDGER_ID),
            argument("entry_id", type=click.IntRange(0), metavar="[ENTRY]", required=False),
            flag("--fail-if-any", help="End with status 10 unless every bookie lists its entries."),
        ),
        effect=Effect.READ,
        examples="""
            bkctl ledger map 42  # fragments by bookies, with the health of each replica
            bkctl ledger map 42 --fail-if-any  # status 10 unless all entries are listed
            bkctl ledger map 42 -o json  # numbers of entries, for programs
            bkctl ledger map 42 1000 -o id  # the bookies that hold entry 1000, in order
        """,
        exits=(*FAILURES, ExitStatus.PROBLEMS),
        replaces="bookkeeper shell ledgermetadata -ledgerid ID, with readledger -bookie",
    ),
    Command(
        "verify",
        body="bkctl.commands.ledger.replicas.verify:verify",
        prints=("bkclient.replication.ledger_verification:LedgerVerification",),
        help="""Read every copy of every entry, and report missing, damaged and wrong copies.

    The command changes nothing and fences no writer. In an open ledger it reads the confirmed
    entries. The exit status is 10 if any copy is missing, damaged, wrong or unreadable, even if the
    entry has a sound copy elsewhere. `entries_lost` in JSON is the number of entries without any
    readable copy, as in `bkctl ledger verify --all -o id --filter 'entries_lost>0'`.
    """,
        params=(
            argument("words", type=LEDGER_IDS, nargs=-1, metavar="[LEDGER_ID...]"),
            flag("--all", "everything", help="All ledgers of the cluster."),
            option(
                "--state",
                type=LEDGER_STATE,
                help="With --all: only ledgers in this state.",
            ),
            option(
                "--sample",
                "share",
                type=SHARE,
                default="100%",
                help="Share of the entries to read, such as 5%; the first and the last entry of a "
                "fragment are always read.",
            ),
            option(
                "--rate",
                "bytes_per_s",
                type=RATE,
                help="Bytes read a second from all bookies, at most.  [default: no limit]",
            ),
            FROM_FILE,
        ),
        effect=Effect.READ,
        examples="""
            bkctl ledger verify 42  # each copy of each entry
            bkctl ledger verify --all --state closed --sample 5%
              # some entries of all closed ledgers, for a nightly job
            bkctl ledger verify --all --rate 20MB/s  # all entries, at a pace that spares disks
            bkctl ledger list -o id | bkctl ledger verify - -o jsonl  # ids from a pipe
        """,
        exits=(*FAILURES, ExitStatus.NOT_FOUND, ExitStatus.PARTLY, ExitStatus.PROBLEMS),
        replaces="nothing in Java's tools: their checks read samples and compare nothing",
    ),
    Command(
        "orphans",
        body="bkctl.commands.ledger.replicas.orphans:orphans",
        prints=("Orphan",),
        help="""\
    List orphans: ledgers that are missing from the application's list of ids.

    Ledgers of `bkctl log` are always in use. The command deletes nothing. First let every writer
    store its new ledger ids in the application; then make the list. Ledgers younger than
    --older-than are not reported. Set --older-than to more than the age of your list.
    """,
        params=(
            option(
                "--keep-file",
                metavar="FILE",
                required=True,
                help="Ids of the ledgers that are in use; - is stdin.",
            ),
            option(
                "--older-than",
                type=DURATION,
                default="1d",
                help="Do not report ledgers younger than this.",
            ),
        ),
        effect=Effect.READ,
        examples="""
            bkctl ledger orphans --keep-file ids
              # ledgers that are not in the file ids, which has one id a line
            list-my-ledgers | bkctl ledger orphans --keep-file -  # ids from the application
            bkctl ledger orphans --keep-file ids -o id > orphans
              # into a file; `ledger delete --from-file orphans --dry-run` checks it
        """,
        exits=(*FAILURES, ExitStatus.NOT_FOUND),
    ),
)
