"""``bkctl log``: endless sequences made of ledgers. Options and arguments only."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import click

from bkctl.cli.command import SubGroup
from bkctl.cli.params import DURATION, LOG_NAME, POSITION, SIZE
from bkctl.commands.ledger.commands import FAILURES, copies_options
from bkctl.commands.ledger.read import form_options
from bkctl.commands.ledger.write import framing_options
from bkctl.exit_status import Effect, ExitStatus

if TYPE_CHECKING:
    from bkclient.log import Position
    from bkctl.session.session import Session

log = SubGroup(
    name="log",
    short_help="Logs: endless sequences made of ledgers.",
    help="""Logs: endless sequences made of ledgers.

    A log is a list of ledgers; each begins where the ledger before ended. A log has one writer at
    a time: an append takes the log over and fences the writer before. Readers follow the log from
    ledger to ledger. Old ledgers are trimmed.

    A position is INDEX:ENTRY: the ledger's index in the log, counted from 0, and the entry id in
    that ledger.
    """,
    order=("create", "append", "tail", "list", "info", "trim", "sweep", "delete"),
)


@log.command(
    "create",
    short_help="Create a log without entries.",
    effect=Effect.REVERSIBLE,
    examples=(
        ("bkctl log create events", "three bookies, two copies of each entry"),
        ("bkctl log create audit -W 3 --roll-size 256MiB --roll-after 1d", "ledgers of a day"),
    ),
    exits=(*FAILURES, ExitStatus.CONFLICT),
    replaces="nothing in Java's tools",
)
@click.argument("name")
@copies_options
@click.option(
    "--roll-size",
    type=SIZE,
    metavar="SIZE",
    default="1GiB",
    show_default=True,
    help="Begin a new ledger at this size; 0 for never.",
)
@click.option(
    "--roll-entries",
    type=click.IntRange(0),
    metavar="N",
    default=0,
    show_default=True,
    help="Or after so many entries; 0 for never.",
)
@click.option(
    "--roll-after",
    type=DURATION,
    metavar="TIME",
    default="0",
    show_default=True,
    help="Or after so long; 0 for never.",
)
@click.pass_obj  # fmt: skip
def create(session: Session, /, name: str, **wanted: Any) -> None:
    """Create a log called NAME, without entries."""
    from bkctl.commands.log import work as log_work

    options = log_work.options_of(session, **wanted)
    session.about = f"log {name}"
    if session.dry_run:
        session.plan([f"create log {name}"])
        return
    session.emit(session.call(log_work.create, name, options))


@log.command(
    "append",
    short_help="Append entries to a log.",
    effect=Effect.FENCES,
    examples=(
        ("bkctl log append events 'first' 'second'", "two entries"),
        ("journalctl -f -o json | bkctl log append events -", "as they come, until Ctrl-C"),
        ("bkctl log append events --file today.log --seal", "and then the log is complete"),
    ),
    exits=(
        *FAILURES, ExitStatus.NOT_FOUND, ExitStatus.REFUSED, ExitStatus.CONFLICT,
        ExitStatus.INTERRUPTED, ExitStatus.TERMINATED,
    ),
    replaces="nothing in Java's tools",
)  # fmt: skip
@click.argument("name", type=LOG_NAME)
@click.argument("data", nargs=-1, metavar="[DATA... | -]")
@click.option("--file", "path", metavar="FILE", help="Append what is in FILE.")
@framing_options
@click.option("--seal", is_flag=True, help="Seal the log: no entry can be appended later.")
@click.pass_obj
def append(
    session: Session,
    *,
    name: str,
    data: Sequence[str],
    path: str | None,
    framing: str | None,
    chunk_bytes: int | None,
    seal: bool,
) -> None:
    """Append entries to the log NAME: each DATA is one, `-` reads stdin.

    This takes the log over: its current writer fails at its next entry. If bookies fail and cannot
    be replaced, it waits for them, for `logWriterPatienceSec` (60 s).
    """
    from bkctl.commands.ledger.write import Arguments, Source, open_source
    from bkctl.commands.log import work as log_work
    from bkctl.errors import UsageError

    session.about = f"log {name}"
    from_stdin = tuple(data) == ("-",)
    if (path is not None) == bool(data):
        raise UsageError("nothing to append, or two things", next_step="give DATA, --file or -")
    if session.dry_run:
        session.plan(log_work.plan_append(session, name, seal=seal))
        return
    if path is None and not from_stdin:
        source: Source = Arguments(data)
    else:
        source = open_source(session, None if from_stdin else path, framing, chunk_bytes)
    with source:
        session.emit(log_work.append(session, name, source, seal=seal))


@log.command(
    "tail",
    short_help="Print the entries of a log, and new entries as they arrive.",
    effect=Effect.READ,
    watch=False,
    examples=(
        ("bkctl log tail events", "all of it, from the first entry kept"),
        ("bkctl log tail events --from latest --follow", "only what comes from now on"),
        ("bkctl log tail events --from 3:120 -o jsonl", "from a position on, for programs"),
    ),
    exits=(*FAILURES, ExitStatus.NOT_FOUND, ExitStatus.INTERRUPTED),
    replaces="nothing in Java's tools",
)
@click.argument("name", type=LOG_NAME)
@click.option(
    "--from",
    "start",
    type=POSITION,
    metavar="INDEX:ENTRY|earliest|latest",
    default="earliest",
    show_default=True,
    help="Where to begin.",
)
@click.option(
    "--follow/--exit-at-end", default=False, help="Print new entries until the log is sealed."
)
@form_options
@click.pass_obj
def tail(
    session: Session,
    *,
    name: str,
    start: Position,
    follow: bool,
    form: str | None,
    delimiter: str | None,
    pattern: str | None,
) -> None:  # fmt: skip
    """Print the entries of the log NAME. Nothing is changed: a writer does not notice."""
    from bkctl.commands.log import work as log_work

    session.about = f"log {name}"
    log_work.tail(session, name, start, (form, delimiter, pattern), follow=follow)


@log.command(
    "list",
    short_help="List the logs of the cluster.",
    effect=Effect.READ,
    examples=(("bkctl log list", "every log, by name"), ("bkctl log list -o json", "for programs")),
    exits=FAILURES,
    replaces="nothing in Java's tools",
)
@click.pass_obj
def list_(session: Session) -> None:
    """List the logs of the cluster, by name."""
    from bkctl.commands.log import work as log_work
    from bkctl.commands.log.views import LogSummary

    session.emit_all(session.call(log_work.summaries), LogSummary)


@log.command(
    "info",
    short_help="Show the ledgers of a log.",
    effect=Effect.READ,
    examples=(
        ("bkctl log info events", "each ledger, its state and size"),
        ("bkctl log info events -o id", "only the ids, for a script"),
    ),
    exits=(*FAILURES, ExitStatus.NOT_FOUND),
    replaces="nothing in Java's tools",
)
@click.argument("name", type=LOG_NAME)
@click.pass_obj
def info(session: Session, *, name: str) -> None:
    """Show the ledgers that the log NAME is made of."""
    from bkctl.commands.log import work as log_work
    from bkctl.commands.log.views import LogLedgerRow

    session.about = f"log {name}"
    session.emit_all(session.call(log_work.ledgers, name), LogLedgerRow)


@log.command(
    "trim",
    short_help="Delete the beginning of a log.",
    effect=Effect.LOSES_DATA,
    examples=(
        ("bkctl log trim events --before 7:0", "the first seven ledgers, if they are closed"),
        ("bkctl log trim events --before 7:0 --dry-run", "say what would go"),
    ),
    exits=(*FAILURES, ExitStatus.NOT_FOUND, ExitStatus.REFUSED),
    replaces="nothing in Java's tools",
)
@click.argument("name", type=LOG_NAME)
@click.option(
    "--before",
    "before",
    type=POSITION,
    metavar="INDEX:ENTRY",
    required=True,
    help="The first entry to keep.",
)
@click.pass_obj
def trim(session: Session, *, name: str, before: Position) -> None:  # fmt: skip
    """Drop the ledgers of the log NAME that end before a position.

    Only complete, closed ledgers are dropped, never the last: the kept part may begin earlier.
    """
    from bkctl.commands.log import work as log_work

    session.about = f"log {name}"
    steps = session.call(log_work.plan_trim, name, before)
    if session.dry_run or not steps:
        session.plan(steps or ["drop nothing: no closed ledger ends before it"])
        return
    session.confirm(steps, f"Trim log {name}?", effect=Effect.LOSES_DATA)
    session.emit(session.call(log_work.trim, name, before))


@log.command(
    "sweep",
    short_help="Delete ledgers that were made for a log and are not in it.",
    effect=Effect.LOSES_DATA,
    examples=(
        ("bkctl log sweep events", "what writers that died left behind, an hour old"),
        ("bkctl log sweep events --older-than 7d", "only what is a week old"),
    ),
    exits=FAILURES,
    replaces="nothing in Java's tools",
)
@click.argument("name", type=LOG_NAME)
@click.option(
    "--older-than",
    "age_s",
    type=DURATION,
    metavar="TIME",
    default="1h",
    show_default=True,
    help="Leave younger ones alone.",
)
@click.pass_obj
def sweep(session: Session, *, name: str, age_s: float) -> None:  # fmt: skip
    """Delete ledgers that were made for the log NAME and are not part of it.

    Writers that lost a race or died leave such, and trims that were cut short. They hold nothing
    that is in the log; all the cluster's ledgers are looked through.
    """
    from bkctl.commands.log import work as log_work

    session.about = f"log {name}"
    if session.dry_run:
        session.plan([f"delete ledgers of log {name} that it does not list"])
        return
    session.emit(session.call(log_work.sweep, name, age_s))


@log.command(
    "delete",
    short_help="Delete a log with all its entries.",
    effect=Effect.LOSES_DATA,
    examples=(
        ("bkctl log delete events", "asks first"),
        ("bkctl log delete events --yes", "for scripts"),
    ),
    exits=(*FAILURES, ExitStatus.NOT_FOUND, ExitStatus.REFUSED),
    replaces="nothing in Java's tools",
)
@click.argument("name", type=LOG_NAME)
@click.pass_obj
def delete(session: Session, *, name: str) -> None:
    """Delete the log NAME, its ledgers and all their entries."""
    from bkctl.commands.log import work as log_work

    session.about = f"log {name}"
    steps = session.call(log_work.plan_delete, name)
    if session.dry_run:
        session.plan(steps)
        return
    session.confirm(steps, f"Delete log {name}?", proof=name, effect=Effect.LOSES_DATA)
    session.emit(session.call(log_work.delete, name))
