"""The body of `log tail`."""

from __future__ import annotations

import shlex
from collections.abc import AsyncIterator, Iterator

from bkclient.client import Client
from bkclient.log import EARLIEST, LATEST, LogManager, LogReader, Position
from bkclient.log.errors import LogTrimmedError
from bkctl.commands.ledger.columns import preview
from bkctl.commands.ledger.read import choose_form, payload_value
from bkctl.commands.load.bookie_loads import flush_each
from bkctl.commands.log.columns import LogEntry
from bkctl.commands.log.tail_cursor import TailCursor
from bkctl.errors import UsageError
from bkctl.session.session import Session

_RECORD_FORMS = frozenset({"json", "jsonl", "yaml", "csv", "table", "wide", "id"})


def tail(
    session: Session,
    *,
    name: str,
    start: Position | None,
    before: Position | None,
    count: int | None,
    cursor: str | None,
    follow: bool,
    form: str | None,
    delimiter: str | None,
    pattern: str | None,
) -> None:  # fmt: skip
    """Print the entries of the log NAME, and move the cursor. The writer is not affected."""
    session.about = f"log {name}"
    if start is not None and count is not None:
        raise UsageError("--from and --count both say where to begin", next_step="give one of them")
    if start is LATEST and not follow:
        raise UsageError("`--from latest` needs --follow: it shows only entries added from now on")
    if cursor is not None and session.options.output in {"table", "wide"}:
        raise UsageError(
            "--cursor: the rows of a table are not printed one by one", next_step="use -o jsonl"
        )
    kept = None if cursor is None else session.call(TailCursor.open, name, cursor)
    if kept is not None and kept.start is not None:
        start, count = kept.start, None
    reader = session.call(_opened, name, start or EARLIEST, follow=follow, last=count)
    if reader.begins_after is not None:
        session.warn(f"the entries begin after a loss: {reader.begins_after}")
    moved = None if session.dry_run else kept
    if moved is not None:
        session.call(moved.begin, reader)
    try:
        _print(
            session, session.iterate(_entries, reader, moved, before), (form, delimiter, pattern)
        )
    except LogTrimmedError:
        if kept is not None:
            line = shlex.join(["bkctl", "log", "delete-cursor", name, kept.name])
            session.failed = f"`{line}`; a new cursor begins with the first entry that is kept"
        raise
    finally:
        if moved is not None:
            session.call(moved.close)
    if reader.ended_open:
        session.note(
            f"note: the last ledger of log {name} is open: entries that are not confirmed yet are "
            "not shown; -f waits for them. Only if the writer is gone for good, "
            f"`bkctl log append {shlex.quote(name)} - </dev/null` closes the ledger: a writer that "
            "still runs is fenced and fails"
        )


async def _opened(
    client: Client, name: str, start: Position, *, follow: bool, last: int | None
) -> LogReader:
    return await LogManager(client).open_reader(name, start, follow=follow, last=last)


async def _entries(
    _client: Client, reader: LogReader, cursor: TailCursor | None, before: Position | None
) -> AsyncIterator[tuple[Position, bytes]]:
    async for position, payload in reader:
        if before is not None and position >= before:
            return
        yield position, payload
        if cursor is not None:  # The caller asks for the next entry, so this entry is printed.
            cursor.printed(reader)


def _print(
    session: Session,
    found: Iterator[tuple[Position, bytes]],
    form: tuple[str | None, str | None, str | None],
) -> None:
    """Print a log's entries in the requested form."""
    if session.options.output in _RECORD_FORMS:
        session.emit_all(flush_each(session, _records(session, found)), LogEntry)
        return
    shape = choose_form(session, *form, None, to_file=False)
    stream = session.host.stdout.buffer
    position: Position | None = None
    try:
        for position, payload in found:
            assert position.ledger_id is not None
            stream.write(shape(position.ledger_id, position.entry_id, payload))
            stream.flush()
    except KeyboardInterrupt:
        session.resume = "nothing was read" if position is None else f"read up to {position}"
        raise


def _records(session: Session, found: Iterator[tuple[Position, bytes]]) -> Iterator[LogEntry]:
    table = session.options.output in {"table", "wide"}
    for position, payload in found:
        text = preview(payload) if table else payload_value(payload, session.options.entry_format)
        yield LogEntry(position, payload, text)
