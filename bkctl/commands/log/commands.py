"""``bkctl log``: endless sequences made of ledgers."""

from __future__ import annotations

import click

from bkctl.cli.command import SubGroup
from bkctl.cli.declarations import argument, flag, force, option
from bkctl.cli.ledger_options import COPIES, FORMS, FRAMING
from bkctl.cli.parameter_types import DURATION, LOG_NAME, POSITION, SIZE
from bkctl.exit_status import CHANGE_FAILURES, FAILURES, Effect, ExitStatus, Facility
from bkctl.session.safety_check_names import UNREAD

log = SubGroup(
    name="log",
    help="""Logs: endless sequences made of ledgers.

    A log is a list of ledgers; each begins where the previous ledger ended. A log has one writer
    at a time: an append takes over the log and fences the previous writer. Readers follow the log
    from ledger to ledger. `log trim` deletes old ledgers.

    A position is INDEX:ENTRY: the ledger's index in the log, counted from 0, and the entry id in
    that ledger.
    """,
    aliases={"info": "log show"},
)


log.command(
    "create",
    body="bkctl.commands.log.lifecycle:create",
    help="""Create a log called NAME, without entries.

    The limits at which a new ledger begins stay as they are: no command changes them later. `log
    trim` deletes complete ledgers: give --roll-after for a trim by age, and --roll-entries for a
    trim by number.
    """,
    params=(
        argument("name"),
        *COPIES,
        option(
            "--roll-size",
            type=SIZE,
            default="1GiB",
            help="Begin a new ledger at SIZE; 0 is never.",
        ),
        option(
            "--roll-entries",
            type=click.IntRange(0),
            default=0,
            help="Begin a new ledger after N entries or a few more; 0 is never.",
        ),
        option(
            "--roll-after",
            type=DURATION,
            default="0",
            help="Begin a new ledger after TIME; 0 is never.",
        ),
    ),
    effect=Effect.REVERSIBLE,
    examples="""
        bkctl log create events  # three bookies, two copies of each entry
        bkctl log create audit -W 3 --roll-size 256MiB --roll-after 1d
          # a new ledger each day, or after 256 MiB
    """,
    exits=(*FAILURES, ExitStatus.CONFLICT),
)

log.command(
    "append",
    body="bkctl.commands.log.append:append",
    help="""Append entries to the log NAME, one for each DATA; `-` reads stdin.

    Each run makes a new ledger. Use one run for many entries. The command takes over the log: the
    current writer fails at its next entry. If bookies fail and cannot be replaced, the command
    waits up to `logWriterPatienceSec` (60 s) for them.

    A writer that another writer fenced ends with status 7, or with 6 if its last entries may be in
    the log. After a writer was killed, `bkctl log append NAME - </dev/null` fences that writer,
    adds no entry, and prints where the log ends.
    """,
    params=(
        argument("name", type=LOG_NAME),
        argument("data", nargs=-1, metavar="[DATA... | -]"),
        option("--file", "path", metavar="FILE", help="Append the contents of FILE."),
        *FRAMING,
        flag("--seal", help="Seal the log: no entry can be appended later."),
    ),
    effect=Effect.FENCES,
    examples="""
        bkctl log append events 'first' 'second'  # two entries
        journalctl -f -o json | bkctl log append events -  # each line as it arrives, until Ctrl-C
        bkctl log append events --file today.log --seal  # seal the log after the last entry
    """,
    exits=(*CHANGE_FAILURES, ExitStatus.TERMINATED),
)

log.command(
    "tail",
    body="bkctl.commands.log.tail:tail",
    prints=("bkctl.commands.log.columns:LogEntry",),
    short_help="Print the entries of a log; with -f new entries as they arrive.",
    help="""Print the entries of the log NAME. The command fences no writer.

    With --cursor the next run continues after the last entry that this run printed. Each reader
    needs a cursor of its own. The cursor moves a second after an entry is printed, and at the end
    of the command: after `kill -9` the last entries may be printed again.

    Entries have no times. `log show` shows when each ledger was created: its entries are younger.
    """,
    params=(
        argument("name", type=LOG_NAME),
        option(
            "--from",
            "start",
            type=POSITION,
            metavar="INDEX:ENTRY|earliest|latest",
            help="First entry.  [default: earliest]",
        ),
        option("--before", type=POSITION, metavar="INDEX:ENTRY", help="End before this entry."),
        option("-n", "--count", type=click.IntRange(0), help="Begin N entries before the end."),
        option(
            "--cursor",
            metavar="CURSOR",
            help="Begin at this cursor, and move it. --from and --count apply only to a new "
            "cursor.",
        ),
        option(
            "-f/ ",
            "--follow/--exit-at-end",
            default=False,
            help="Print new entries until the log is sealed.",
        ),
        *FORMS,
    ),
    effect=Effect.READ,
    without=(Facility.WATCH,),
    examples="""
        bkctl log tail events  # all entries, from the first one kept
        bkctl log tail events -n 10 --follow  # the last ten entries, and new ones
        bkctl log tail events --from 3:120 -o jsonl  # from a position on, for programs
        bkctl log tail events --cursor etl  # the entries since the last run with this cursor
    """,
    exits=(*FAILURES, ExitStatus.NOT_FOUND),
)

log.command(
    "list",
    body="bkctl.commands.log.list_and_show:list_all",
    prints=("bkctl.commands.log.columns:LogSummary",),
    help="List the logs of the cluster, by name.",
    effect=Effect.READ,
    examples="""
        bkctl log list  # every log, by name
        bkctl log list -o json  # for programs
    """,
    exits=FAILURES,
)

log.command(
    "show",
    body="bkctl.commands.log.list_and_show:show",
    prints=("bkctl.commands.log.columns:LogLedgerRow",),
    help="Show the ledgers of the log NAME, and the limits at which a new ledger begins.",
    params=(argument("name", type=LOG_NAME),),
    effect=Effect.READ,
    examples="""
        bkctl log show events  # each ledger, its state and size
        bkctl log show events -o id  # only the ids, for a script
    """,
    exits=(*FAILURES, ExitStatus.NOT_FOUND),
)

log.command(
    "cursors",
    body="bkctl.commands.log.cursors:cursors",
    prints=("bkctl.commands.log.columns:CursorRow",),
    help="""List the cursors of the log or topic NAME, or all cursors, and how far each is behind.

    A cursor stores the position that a reader has committed, under a name. `log tail --cursor` and
    a Spark stream with the option `cursor` write the cursors of a log. A NAME with a slash is a
    topic.

    POSITION is the next entry that the reader reads. LEDGERS BEHIND counts the ledgers with entries
    that the reader has not read, the ledger of the position included.
    """,
    params=(
        argument("name", type=LOG_NAME, required=False),
        option(
            "--metrics",
            metavar="FILE",
            help="Also write FILE for the textfile collector of Prometheus' node exporter.",
        ),
    ),
    effect=Effect.READ,
    examples="""
        bkctl log cursors events  # each reader of the log, and how far it is behind
        bkctl log cursors --metrics /var/lib/node_exporter/bkctl.prom  # for Prometheus
    """,
    exits=(*FAILURES, ExitStatus.NOT_FOUND),
)

log.command(
    "delete-cursor",
    body="bkctl.commands.log.cursors:delete_cursor",
    help="""Delete CURSOR of the log or topic NAME. The reader is not affected.

    The reader stores the cursor again with its next commit.

    If the topic is partitioned, name a partition.
    """,
    params=(argument("name", type=LOG_NAME), argument("cursor")),
    effect=Effect.REVERSIBLE,
    examples="""
        bkctl log delete-cursor events etl  # the cursor of a reader that was removed
        bkctl log delete-cursor shop/eu/orders etl  # of a topic
    """,
    exits=(*FAILURES, ExitStatus.NOT_FOUND),
)

log.command(
    "trim",
    body="bkctl.commands.log.lifecycle:trim",
    help="""Delete the first ledgers of the log NAME, by position, age or number of entries.

    The command deletes only closed ledgers, each with all its entries, and never the last ledger.
    So some entries that you asked to delete may stay. --roll-size, --roll-entries and --roll-after
    of `log create` set when a running writer begins a new ledger. The command refuses to delete
    entries that a cursor of the log has not read: `bkctl log cursors NAME` shows the cursors.

    If the command is interrupted, `bkctl log sweep NAME` deletes the ledgers that are left.
    """,
    params=(
        argument("name", type=LOG_NAME),
        option(
            "--before",
            "before",
            type=POSITION,
            metavar="INDEX:ENTRY",
            help="The first entry to keep.",
        ),
        option(
            "--older-than",
            "age_s",
            type=DURATION,
            help="Delete ledgers whose entries are all older than TIME.",
        ),
        option("--keep-entries", type=click.IntRange(1), help="Keep the last N entries."),
        option("--keep-ledgers", type=click.IntRange(1), help="Keep the last N ledgers."),
        force(UNREAD),
    ),
    effect=Effect.LOSES_DATA,
    examples="""
        bkctl log trim events --before 7:0  # the first seven ledgers, if they are closed
        bkctl log trim events --before 7:0 --dry-run  # show which ledgers would be deleted
        bkctl log trim events --older-than 30d --yes  # from cron
        bkctl log trim events --keep-entries 1000000  # all but the last million entries
    """,
    exits=(*FAILURES, ExitStatus.NOT_FOUND, ExitStatus.REFUSED),
)

log.command(
    "sweep",
    body="bkctl.commands.log.lifecycle:sweep",
    help="""Delete ledgers that were made for the log NAME and are not part of it.

    Writers that crashed or lost a race, and interrupted trims and deletions, leave these ledgers
    behind. They contain no entry of the log. The log may be deleted already. The command reads the
    metadata of all ledgers of the cluster.
    """,
    params=(
        argument("name", type=LOG_NAME),
        option(
            "--older-than",
            "age_s",
            type=DURATION,
            default="1h",
            help="Keep ledgers younger than TIME.",
        ),
    ),
    effect=Effect.LOSES_DATA,
    examples="""
        bkctl log sweep events  # ledgers that are at least an hour old
        bkctl log sweep events --older-than 7d  # ledgers that are at least a week old
    """,
    exits=FAILURES,
)

log.command(
    "delete",
    body="bkctl.commands.log.lifecycle:delete",
    help="""Delete the log NAME, its ledgers and all their entries.

    If the command is interrupted, `bkctl log sweep NAME` deletes the ledgers that are left.
    """,
    params=(argument("name", type=LOG_NAME),),
    effect=Effect.LOSES_DATA,
    examples="""
        bkctl log delete events  # asks first
        bkctl log delete events --yes  # for scripts
    """,
    exits=(*FAILURES, ExitStatus.NOT_FOUND, ExitStatus.REFUSED),
)
