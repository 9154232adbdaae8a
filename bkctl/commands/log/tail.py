"""The entries of a log are read: `log tail`."""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterator

from bkclient.client import Client
from bkclient.log import EARLIEST, LATEST, LogManager, LogReader, Position
from bkctl.commands.ledger.columns import preview
from bkctl.commands.ledger.read import choose_form, payload_value
from bkctl.commands.log.columns import LogEntry
from bkctl.errors import UsageError
from bkctl.session.session import Session

_RECORD_FORMS = frozenset({"json", "jsonl", "yaml", "csv", "table", "wide", "id"})


def tail(
    session: Session,
    *,
    name: str,
    start: Position | None,
    count: int | None,
    follow: bool,
    form: str | None,
    delimiter: str | None,
    pattern: str | None,
) -> None:  # fmt: skip
    """Print the entries of the log NAME. Nothing is changed: a writer does not notice."""
    session.about = f"log {name}"
    if start is not None and count is not None:
        raise UsageError("--from and --count both say where to begin", next_step="give one of them")
    if start is LATEST and not follow:
        raise UsageError("`--from latest` needs --follow: it shows only entries added from now on")
    reader = session.call(_opened, name, start or EARLIEST, follow=follow, last=count)
    if reader.begins_after is not None:
        session.warn(f"the entries begin after a loss: {reader.begins_after}")
    found = session.iterate(_entries, reader)
    _print(session, found, (form, delimiter, pattern))
    if reader.ended_open:
        session.note(
            f"note: the last ledger of log {name} is open: entries that are not confirmed yet are "
            f"not shown; if its writer is gone, `bkctl log append {name} - </dev/null` closes it"
        )


async def _opened(
    client: Client, name: str, start: Position, *, follow: bool, last: int | None
) -> LogReader:
    return await LogManager(client).open_reader(name, start, follow=follow, last=last)


async def _entries(_client: Client, reader: LogReader) -> AsyncIterator[tuple[Position, bytes]]:
    async for position, payload in reader:
        yield position, payload


def _print(
    session: Session,
    found: Iterator[tuple[Position, bytes]],
    form: tuple[str | None, str | None, str | None],
) -> None:
    """Print a log's entries in the form that was asked for."""
    if session.options.output in _RECORD_FORMS:
        session.emit_all(_records(session, found), LogEntry)
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
