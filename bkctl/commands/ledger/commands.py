"""``bkctl ledger``: the commands that create, write, read, close and delete ledgers."""

from __future__ import annotations

import click

from bkctl.cli.command import SubGroup
from bkctl.cli.declarations import argument, flag, option
from bkctl.cli.ledger_options import (
    FORMS,
    FRAMING,
    FROM_FILE,
    LEDGER_CHECKS,
    NEW_LEDGER,
    PASSWORD_FILE,
    STATE,
)
from bkctl.cli.parameter_types import (
    BOOKIE_ID,
    DURATION,
    ENTRY_RANGE,
    KEY_VALUE,
    LEDGER_ID,
    LEDGER_IDS,
)
from bkctl.commands.ledger.replicas.commands import REPLICAS
from bkctl.exit_status import CHANGE_FAILURES, FAILURES, Effect, ExitStatus, Facility

ledger = SubGroup(
    name="ledger",
    help="""Ledgers: create, add, read, close, recover, delete.

    A ledger is a sequence of entries that only grows. A closed ledger never changes.
    """,
    commands=REPLICAS,
    order=("create", "add", "write", "read", "tail", "close", "list", "show"),
    aliases={
        "update-bookie": "bookie rename",
        "usage": "ledger list -o wide --sort-by stored:desc",
        "where": "ledger map",
    },
)

metadata = SubGroup(
    name="metadata",
    help="""Copy a ledger's metadata to a file, and back.

    The file has the bytes that the metadata service stores. Java's shell reads and writes the same
    format.
    """,
)
ledger.add_command(metadata)

ledger.command(
    "create",
    body="bkctl.commands.ledger.create:create",
    help="""Create an empty ledger and print its id.

    Any process may then add entries with `bkctl ledger add`, one process at a time, until the
    ledger is closed.

    The metadata keeps the password of a ledger, and commands take the password from there. A
    password keeps out only clients that cannot read the metadata.
    """,
    params=(*NEW_LEDGER,),
    effect=Effect.REVERSIBLE,
    examples="""
        bkctl ledger create  # three bookies, two copies of each entry; prints the id
        id=$(bkctl ledger create -E 3 -W 3 -A 2 --meta owner=me)  # keep the id for `ledger add`
        bkctl ledger create --digest mac --password-file pw
          # an HMAC for each entry, with a key made of the password
    """,
    exits=(*FAILURES, ExitStatus.CONFLICT),
    replaces="nothing in Java's tools; createLedger of its client",
)

ledger.command(
    "add",
    body="bkctl.commands.ledger.write:add",
    help="""Add entries to LEDGER_ID, one for each DATA; `-` reads stdin.

    The command works on ledgers that `bkctl ledger create` made. It can run again and again, one
    process at a time. `bkctl shell` keeps the ledger open until the shell ends. After an add that
    failed, `bkctl ledger recover` closes the ledger with every confirmed entry. Autorecovery closes
    an open ledger 30 seconds after one of its bookies is lost, unless an add has replaced that
    bookie.
    """,
    params=(
        argument("ledger_id", type=LEDGER_ID),
        argument("data", nargs=-1, metavar="[DATA... | -]"),
        option("--file", "path", metavar="FILE", help="Add the contents of FILE."),
        *FRAMING,
    ),
    effect=Effect.REVERSIBLE,
    examples="""
        bkctl ledger add 42 'first entry' 'second'  # two entries
        bkctl ledger add 42 --file events.log  # one entry a line
        journalctl -f -o json | bkctl ledger add 42 -  # each line as it arrives, until Ctrl-C
    """,
    exits=(*CHANGE_FAILURES, ExitStatus.TERMINATED),
    replaces="nothing in Java's tools; addEntry of its client",
)

ledger.command(
    "write",
    body="bkctl.commands.ledger.write:write",
    short_help="Create a ledger, fill it, close it.",
    help="""Create a ledger, add all of FILE or stdin, close it and print its id.

    `bkctl ledger read` then returns the same bytes. For input with --length-prefixed it needs the
    same option.
    """,
    params=(argument("path", metavar="[FILE | -]", default="-"), *NEW_LEDGER, *FRAMING),
    effect=Effect.REVERSIBLE,
    examples="""
        bkctl ledger write README.md  # one entry a line; prints the new ledger's id
        pg_dump app | bkctl ledger write - --chunks 1MiB  # bytes from a pipe
        bkctl ledger write -E 3 -W 3 -A 2 --meta day=monday events.log
          # three copies of each entry, with custom metadata
    """,
    exits=(*CHANGE_FAILURES, ExitStatus.TERMINATED),
)

ledger.command(
    "read",
    body="bkctl.commands.ledger.read:read",
    prints=("bkctl.commands.ledger.columns:EntryRecord",),
    help="""Print the payloads of LEDGER_ID's entries.

    The command reads an open ledger up to its last confirmed entry, and changes nothing without
    --recover. A ledger that `bkctl ledger write` made is printed as its original bytes. With
    --bookie the exit status is 8 if the bookie has no sound copy of an entry that it should have.
    `--bookie all` prints bookie, state, size and SHA-256 of each copy; the exit status is 10 unless
    all copies are sound and equal. `bkctl ledger tail` prints the last entries.
    """,
    params=(
        argument("ledger_id", type=LEDGER_ID),
        argument("entries", type=ENTRY_RANGE, required=False, metavar="[FIRST-LAST]"),
        option("--first", type=click.IntRange(0), help="Id of the first entry.  [default: 0]"),
        option(
            "--last",
            type=click.IntRange(0),
            help="Id of the last entry, not a count.  [default: the last confirmed]",
        ),
        flag("--unconfirmed", help="Read unconfirmed entries, too."),
        flag("--recover", help="Close the ledger first, which fences its writer."),
        option(
            "--bookie",
            type=BOOKIE_ID,
            metavar="ID|all",
            help="Only the copies of this bookie; `all` compares the copies of all bookies.",
        ),
        option("--out", metavar="FILE", help="Write to FILE; an existing file is replaced."),
        PASSWORD_FILE,
        *FORMS,
    ),
    effect=Effect.READ,
    without=(Facility.WATCH,),
    examples="""
        bkctl ledger read 42  # all entries, one a line; binary entries as a hexdump on a terminal
        bkctl ledger read 42 10-19 -o jsonl
          # JSON with payloads in base64; as text with --entry-format string
        bkctl ledger read 42 --length-prefixed --out 42.bin
          # copy all entries; `bkctl ledger write 42.bin --length-prefixed` makes a ledger of them
        bkctl ledger read 42 57 --bookie all
          # the copies of entry 57 side by side; their bytes with --hexdump
    """,
    exits=(*CHANGE_FAILURES, ExitStatus.PARTLY, ExitStatus.PROBLEMS),
    replaces="bookkeeper shell readledger -l ID [-fe N] [-le N] [-m] [-r] [-b BOOKIE]",
)

ledger.command(
    "tail",
    body="bkctl.commands.ledger.read:tail",
    prints=("bkctl.commands.ledger.columns:EntryRecord",),
    short_help="Print the last entries, and new entries as they are confirmed.",
    help="""\
    Print the last entries of LEDGER_ID; with --follow, new entries as they are confirmed.

    The command changes nothing and fences no writer.
    """,
    params=(
        argument("ledger_id", type=LEDGER_ID),
        option(
            "-n",
            "--count",
            type=click.IntRange(0),
            default=10,
            help="Begin N entries before the end.",
        ),
        option("--last", type=click.IntRange(0), hidden=True),
        option(
            "-f/ ",
            "--follow/--exit-at-end",
            default=False,
            help="Print new entries until the ledger is closed.",
        ),
        PASSWORD_FILE,
        *FORMS,
    ),
    effect=Effect.READ,
    without=(Facility.WATCH,),
    examples="""
        bkctl ledger tail 42  # the last ten entries
        bkctl ledger tail 42 -n 100 --follow
          # the last hundred, and new entries until the ledger is closed
        bkctl ledger tail 42 --follow -o jsonl | jq .entry_id  # for programs, entry by entry
    """,
    exits=(*FAILURES, ExitStatus.NOT_FOUND, ExitStatus.REFUSED),
)

ledger.command(
    "close",
    body="bkctl.commands.ledger.close:close",
    short_help="Close a ledger after the last entry of its writer.",
    help="""Close ledgers after the last entry of their writers; `-` reads ids from stdin.

    A ledger that `bkctl ledger create` made, or that `bkctl ledger add` released, is closed at
    once. Any other open ledger may have a writer. The command asks before it fences that writer.
    """,
    params=(argument("words", type=LEDGER_IDS, nargs=-1, required=True, metavar="LEDGER_ID..."),),
    effect=Effect.FENCES,
    examples="""
        bkctl ledger close 42  # no client can add any more; readers see the end
        bkctl ledger close 42 --yes  # fence a writer without a question
    """,
    exits=(*CHANGE_FAILURES, ExitStatus.PARTLY),
    replaces="nothing in Java's tools; close of its client",
)

ledger.command(
    "list",
    body="bkctl.commands.ledger.list_and_show:print_ledgers",
    prints=(
        "bkctl.commands.ledger.columns:LedgerSummary",
        "bkctl.commands.ledger.columns:LedgerTotal",
    ),
    help="""List ledgers in the order of their ids, as they are found.

    `bkctl autorecovery list` lists the ledgers that are marked as lacking replicas. --bookie with
    the id of a lost bookie lists all ledgers that lack its replica, marked or not. `--columns
    ledger_id,racks,racks_min` shows the ledgers' bookies in each rack, by the topology script of
    the settings.

    Metadata does not show whether an open ledger's writer still runs. `bkctl ledger tail LEDGER_ID
    -f -n 0` prints new entries, and only a writer makes them. `bkctl doctor --open-for 1d` names
    ledgers that have been open for longer and that no writer has released.
    """,
    params=(
        STATE,
        option(
            "--bookie",
            type=BOOKIE_ID,
            metavar="ID",
            help="Only ledgers with this bookie in a fragment.",
        ),
        option("--older-than", type=DURATION, help="Only ledgers older than TIME, such as 7d."),
        option(
            "--meta", type=KEY_VALUE, multiple=True, help="Only ledgers with this custom metadata."
        ),
        flag(
            "--one-rack",
            help="Only ledgers with an entry whose copies are all in one rack.",
        ),
        option("--after", type=LEDGER_ID, help="Only ledgers with an id above ID."),
        option("--limit", type=click.IntRange(1), help="At most N of these ledgers."),
        flag("--count", help="Print only the number of ledgers."),
        flag("--total", help="Print only the number of ledgers and the bytes of the closed ones."),
    ),
    effect=Effect.READ,
    examples="""
        bkctl ledger list --state open --older-than 1d
          # open ledgers that a writer may have left behind
        bkctl ledger list --sort-by stored:desc --limit 10 -o wide
          # the ten closed ledgers with the most bytes, copies counted
        bkctl ledger list --meta app=foo --filter 'length>10kB'
          # the ledgers of an application that are larger than 10 kB
        bkctl ledger list -o id --limit 100 --after 4711  # the next hundred ids, for a pipe
    """,
    exits=FAILURES,
    replaces="bookkeeper shell listledgers [-m] [-bookieid ID]",
)

ledger.command(
    "show",
    body="bkctl.commands.ledger.list_and_show:show",
    prints=("bkctl.commands.ledger.columns:LedgerDetails",),
    help="""\
    Show quorums, fragments, state and custom metadata of ledgers; `-` reads ids from stdin.
    """,
    params=(
        argument("ledger_ids", type=LEDGER_IDS, nargs=-1, required=True, metavar="LEDGER_ID..."),
    ),
    effect=Effect.READ,
    examples="""
        bkctl ledger show 42  # quorums, state, fragments and custom metadata
        bkctl ledger show 42 -o json | jq .fragments  # the same for programs
        bkctl ledger list -o id --state open | bkctl ledger show -  # ids from a pipe
    """,
    exits=(*FAILURES, ExitStatus.NOT_FOUND, ExitStatus.PARTLY),
    replaces="bookkeeper shell ledgermetadata -ledgerid ID",
)

fence = ledger.command(
    "fence",
    body="bkctl.commands.ledger.close:fence",
    short_help="Fence a ledger: its writer can add no more. The ledger is not closed.",
    help="""Fence ledgers: no writer can add any more. The ledgers are not closed.

    The command sets each ledger to in-recovery in the metadata, then fences the ledger on the
    bookies of its last fragment. It prints the bookies that answered. `-` reads ids from stdin.
    """,
    params=(argument("words", type=LEDGER_IDS, nargs=-1, required=True, metavar="LEDGER_ID..."),),
    effect=Effect.FENCES,
    examples="""
        bkctl ledger fence 42  # the writer can add no more; the ledger is not closed yet
        bkctl ledger fence 42 --dry-run  # show which bookies would fence it
    """,
    exits=(*CHANGE_FAILURES, ExitStatus.PARTLY),
)

recover = ledger.command(
    "recover",
    body="bkctl.commands.ledger.close:recover",
    short_help="Recover a ledger: fence its writer, find its last entry, close it.",
    help="""Find the last entry of each ledger and close the ledger there; `-` reads ids from stdin.

    The command fences the writer, reads on from the last entry known to be confirmed, completes the
    copies of each entry that it finds, and closes the ledger. You can interrupt the command and run
    it again at any time.
    """,
    params=(argument("words", type=LEDGER_IDS, nargs=-1, required=True, metavar="LEDGER_ID..."),),
    effect=Effect.FENCES,
    examples="""
        bkctl ledger recover 42  # close a ledger whose writer has died
        bkctl ledger recover 42 --yes --timeout 60  # the same from a script
        bkctl ledger list -o id --state in-recovery | bkctl ledger recover -
          # all recoveries that have not ended
    """,
    exits=(*CHANGE_FAILURES, ExitStatus.PARTLY),
    replaces="opening the ledger with Java's client",
)

ledger.command(
    "delete",
    body="bkctl.commands.ledger.delete:delete",
    help="""Delete ledgers for good; `-` reads ids from stdin.

    Bookies free the space at their next garbage collection. An open ledger is deleted only with
    --force open-ledgers, and a ledger of a log only with --force log-ledgers. `bkctl log trim` and
    `bkctl log delete` keep the log intact.
    """,
    params=(
        argument("words", type=LEDGER_IDS, nargs=-1, metavar="[LEDGER_ID...]"),
        FROM_FILE,
        option(
            "--force",
            type=LEDGER_CHECKS,
            multiple=True,
            help="Override a safety check by its name.",
        ),
    ),
    effect=Effect.LOSES_DATA,
    examples="""
        bkctl ledger delete 42  # shows what would be deleted, and asks
        bkctl ledger delete 42 43 --yes  # from a script
        bkctl ledger delete --from-file ids --dry-run  # show what would be deleted
        bkctl ledger list --meta app=etl -o id | bkctl ledger delete - --dry-run
          # shows the ledgers of one application
    """,
    exits=(*CHANGE_FAILURES, ExitStatus.PARTLY),
    replaces="bookkeeper shell deleteledger -ledgerid ID [-force]",
)

metadata.command(
    "dump",
    body="bkctl.commands.ledger.metadata_dump_and_restore:dump",
    help="""Write the stored metadata of LEDGER_ID to FILE; `-` is stdout.

    The file contains the ledger's password.
    """,
    params=(argument("ledger_id", type=LEDGER_ID), argument("path", metavar="FILE")),
    effect=Effect.READ,
    without=(Facility.WATCH,),
    examples="""
        bkctl ledger metadata dump 42 ledger-42  # keep the metadata for `restore`
        bkctl ledger metadata dump 42 - | xxd  # to stdout
    """,
    exits=(*FAILURES, ExitStatus.NOT_FOUND),
    replaces="bookkeeper shell ledgermetadata -ledgerid ID -dumptofile FILE",
)

metadata.command(
    "restore",
    body="bkctl.commands.ledger.metadata_dump_and_restore:restore",
    help="""Store the metadata in FILE as the metadata of LEDGER_ID; `-` reads stdin.

    Existing metadata is replaced only with --replace. The command shows each changed field, keeps
    the old metadata in a file, and refuses if another process changes the metadata meanwhile.
    Bookies delete the entries that the new metadata does not list. A deleted ledger gets the time
    of the restore as its creation time.
    """,
    params=(
        argument("ledger_id", type=LEDGER_ID),
        argument("path", metavar="FILE"),
        flag("--replace", help="Replace the stored metadata with this file's."),
        option(
            "--backup",
            metavar="FILE",
            help="File for the old metadata.  [default: FILE.before-VERSION]",
        ),
    ),
    effect=Effect.LOSES_DATA,
    examples="""
        bkctl ledger metadata restore 42 ledger-42  # if ledger 42 was deleted
        bkctl ledger metadata restore 42 ledger-42 --replace  # shows what changes, and asks
        bkctl ledger metadata restore 42 ledger-42 --replace --dry-run  # only shows it
    """,
    exits=CHANGE_FAILURES,
    replaces="bookkeeper shell ledgermetadata -ledgerid ID -restorefromfile FILE [-update]",
)
