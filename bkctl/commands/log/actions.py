"""What the commands of logs do: the steps between parsed options and printed values."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from bkctl.commands.ledger.write import Arguments, Source, open_source
from bkctl.commands.log import cursors as log_cursors
from bkctl.commands.log import work as log_work
from bkctl.commands.log.columns import CursorRow, LogLedgerRow, LogSummary
from bkctl.errors import UsageError
from bkctl.exit_status import Effect
from bkctl.output.atomic_file import write_whole

if TYPE_CHECKING:
    from bkclient.log import Position
    from bkctl.session.session import Session


def create(session: Session, /, name: str, **wanted: Any) -> None:
    """Create a log called NAME, without entries."""
    options = log_work.options_of(session, **wanted)
    session.about = f"log {name}"
    if session.dry_run:
        session.plan([f"create log {name}"])
        return
    session.emit(session.call(log_work.create, name, options))


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
    """Append entries to the log NAME: each DATA is one, `-` reads stdin."""
    session.about = f"log {name}"
    from_stdin = tuple(data) == ("-",)
    if (path is not None) == bool(data):
        raise UsageError("DATA, --file FILE or - is needed, and only one of them")
    if session.dry_run:
        session.plan(log_work.plan_append(session, name, seal=seal))
        return
    if path is None and not from_stdin:
        source: Source = Arguments(data)
    else:
        source = open_source(session, None if from_stdin else path, framing, chunk_bytes)
    with source:
        session.emit(log_work.append(session, name, source, seal=seal))


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
    session.about = f"log {name}"
    log_work.tail(session, name, start, (form, delimiter, pattern), follow=follow)


def list_all(session: Session) -> None:
    """List the logs of the cluster, by name."""
    session.emit_all(session.call(log_work.summaries), LogSummary)


def show(session: Session, *, name: str) -> None:
    """Show the ledgers that the log NAME is made of."""
    session.about = f"log {name}"
    session.emit_all(session.call(log_work.ledgers, name), LogLedgerRow)


def cursors(session: Session, *, name: str | None, metrics: str | None) -> None:
    """List the cursors of the log or topic NAME, or all, and how far they are behind."""
    session.about = "cursors" if name is None else f"cursors of {name}"
    found: list[CursorRow] = session.call(log_cursors.rows, name)
    if metrics is not None:
        write_whole(metrics, log_cursors.metrics(found).encode())
    session.emit_all(found, CursorRow)


def delete_cursor(session: Session, *, name: str, cursor: str) -> None:
    """Delete a cursor of the log or topic NAME."""
    session.about = f"cursor {cursor} of {name}"
    if session.dry_run:
        session.plan([f"delete cursor {cursor} of {name}"])
        return
    session.emit(session.call(log_cursors.delete, name, cursor))


def trim(session: Session, *, name: str, before: Position) -> None:  # fmt: skip
    """Drop the ledgers of the log NAME that end before a position."""
    session.about = f"log {name}"
    steps = session.call(log_work.plan_trim, name, before)
    if session.dry_run or not steps:
        session.plan(steps or ["drop nothing: no closed ledger ends before it"])
        return
    session.confirm(steps, f"Trim log {name}?", effect=Effect.LOSES_DATA)
    session.emit(session.call(log_work.trim, name, before))


def sweep(session: Session, *, name: str, age_s: float) -> None:  # fmt: skip
    """Delete ledgers that were made for the log NAME and are not part of it."""
    session.about = f"log {name}"
    if session.dry_run:
        session.plan([f"delete ledgers of log {name} that it does not list"])
        return
    session.emit(session.call(log_work.sweep, name, age_s))


def delete(session: Session, *, name: str) -> None:
    """Delete the log NAME, its ledgers and all their entries."""
    session.about = f"log {name}"
    steps = session.call(log_work.plan_delete, name)
    if session.dry_run:
        session.plan(steps)
        return
    session.confirm(steps, f"Delete log {name}?", proof=name, effect=Effect.LOSES_DATA)
    session.emit(session.call(log_work.delete, name))
