"""``bkctl ledger map``, ``verify`` and ``orphans``: the copies of entries."""

from __future__ import annotations

from typing import Final

import click

from bkctl.cli.command import Command
from bkctl.cli.ledger_options import FAILURES, ShareType
from bkctl.cli.params import DURATION, LEDGER_ID, LEDGER_IDS, RATE, argument, option
from bkctl.exit_status import Effect, ExitStatus

REPLICAS: Final = (
    Command(
        "map",
        body="bkctl.commands.ledger.replicas.map:show_map",
        short_help="Draw the bookies of each fragment, and which replicas are intact.",
        help="""Draw the bookies of each fragment, and which replicas are intact.

    Each bookie says itself which entries it holds; no entry is read unless it cannot say. Of an
    open ledger entries up to the last confirmed one count. Nobody is fenced.

    With ENTRY it is the entry's write set in its order: the first is asked first. Then only
    metadata is read.
    """,
        params=(
            argument("ledger_id", type=LEDGER_ID),
            argument("entry_id", type=click.IntRange(0), metavar="[ENTRY]", required=False),
            option(
                "--fail-if-any",
                is_flag=True,
                help="End with status 10 unless all replicas are intact.",
            ),
        ),
        effect=Effect.READ,
        examples=(
            ("bkctl ledger map 42", "fragments by bookies, with the health of each replica"),
            ("bkctl ledger map 42 --fail-if-any", "status 10 if any replica is not whole"),
            ("bkctl ledger map 42 -o json", "with the numbers of entries, for programs"),
            ("bkctl ledger map 42 1000 -o id", "the bookies that hold entry 1000, in order"),
        ),
        exits=(*FAILURES, ExitStatus.PROBLEMS),
        replaces="bookkeeper shell ledgermetadata -ledgerid ID, with readledger -bookie",
    ),
    Command(
        "verify",
        body="bkctl.commands.ledger.replicas.check:verify",
        short_help="Read and compare every copy of every entry.",
        help="""Read every copy of every entry, and name those that are missing, damaged or another.

    Nothing is changed, and no writer is fenced: of a ledger that is open it is what is confirmed.
    Ends with 10 if any copy is bad, or could not be read. `bkctl autorecovery audit --check
    all-ledgers` has what is missing copied anew.
    """,
        params=(
            argument("given", type=LEDGER_IDS, nargs=-1, metavar="LEDGER_ID..."),
            option("--all", "everything", is_flag=True, help="All ledgers of the cluster."),
            option(
                "--sample",
                "share",
                type=ShareType(),
                default="100%",
                show_default=True,
                metavar="SHARE",
                help="Only so many entries; both ends in any case.",
            ),
            option(
                "--rate",
                "bytes_per_s",
                type=RATE,
                metavar="SIZE",
                help="Bytes read a second from all bookies, at most.  [default: no limit]",
            ),
            option("--from-file", metavar="FILE", help="Ledger ids from FILE as well; - is stdin."),
        ),
        effect=Effect.READ,
        examples=(
            ("bkctl ledger verify 42", "each copy, on each bookie that should have one"),
            (
                "bkctl ledger verify --all --sample 5%",
                "some entries of all ledgers, for a nightly job",
            ),
            ("bkctl ledger verify --all --rate 20MB/s", "all entries, at a pace that spares disks"),
            ("bkctl ledger list -o id | bkctl ledger verify - -o jsonl", "ids from a pipe"),
        ),
        exits=(*FAILURES, ExitStatus.NOT_FOUND, ExitStatus.PROBLEMS, ExitStatus.INTERRUPTED),
        replaces="nothing in Java's tools, whose checks read samples and compare nothing",
    ),
    Command(
        "orphans",
        body="bkctl.commands.ledger.replicas.check:orphans",
        short_help="List ledgers that the application does not name.",
        help="""\
    List ledgers that the application does not name, with what they say about their owner.

    Ledgers of `bkctl log` are in use, whatever the list says. Nothing is deleted here. Make the
    list of ids after writers have told of their new ledgers, and mind --older-than: a ledger that
    is younger than the list is in use too.
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
                show_default=True,
                metavar="TIME",
                help="Ignore ledgers younger than this; the list may be that old.",
            ),
        ),
        effect=Effect.READ,
        examples=(
            ("bkctl ledger orphans --keep-file ids", "what is not in ids, one id a line"),
            ("list-my-ledgers | bkctl ledger orphans --keep-file -", "asked of the application"),
            (
                "bkctl ledger orphans --keep-file ids -o id | bkctl ledger delete -",
                "and away with them; asks first",
            ),
        ),
        exits=(*FAILURES, ExitStatus.NOT_FOUND),
        replaces="nothing in Java's tools",
    ),
)
