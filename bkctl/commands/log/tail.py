"""The body of `log tail`, and the cursor of its option ``--cursor``."""

from __future__ import annotations

import shlex
from collections.abc import AsyncIterator, Iterator
from typing import Any, Final

from twisted.internet.defer import Deferred
from twisted.logger import Logger

from bkclient.client import Client
from bkclient.errors import ClientError
from bkclient.log import EARLIEST, LATEST, Cursors, LogManager, LogReader, Position
from bkclient.log.errors import LogTrimmedError
from bkclient.log.ledger_list import LedgerList
from bkctl.commands.ledger.read import choose_form, record_text
from bkctl.commands.load.bookie_loads import flush_each
from bkctl.commands.log.columns import LogEntry
from bkctl.errors import UsageError
from bkctl.session.session import Session

log = Logger()

COMMIT_AFTER_S: Final = 1.0
"""Seconds between the print of an entry and the move of the cursor behind the entry."""

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
    first = start or EARLIEST
    reader = session.call(
        lambda client: LogManager(client).open_reader(name, first, follow=follow, last=count)
    )
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
    return (
        LogEntry(position, payload, record_text(session, payload)) for position, payload in found
    )


class TailCursor:
    """The cursor of `--cursor`, which moves behind the printed entries. Made by ``open``."""

    def __init__(self, client: Client, cursors: Cursors, name: str, start: Position | None) -> None:
        self.name, self.start = name, start
        """The name, and the first entry that is not committed; None for a new cursor."""
        self._clock, self._cursors = client.cluster.clock, cursors
        self._reader: LogReader | None = None
        self._printed: Position | None = None
        self._committed = start
        self._timer: Any = None

    @classmethod
    async def open(cls, client: Client, log_name: str, name: str) -> TailCursor:
        """Read a cursor, which need not exist yet.

        Raises:
            IncorrectParameterError: the name is not valid for a cursor.
            NoSuchLogError: the log does not exist.
        """
        record = (await LedgerList(client, log_name).read()).record
        cursors = Cursors(client, log_name, log_id=record.log_id)
        return cls(client, cursors, name, await cursors.position(name))

    async def begin(self, _client: Client, reader: LogReader) -> None:
        """Store the start of a new cursor, unless the reader begins with the first entry."""
        if self.start is None and reader.next_position.index >= 0:
            await self._cursors.advance(self.name, reader.next_position)

    def printed(self, reader: LogReader) -> None:
        """Record that the reader's last entry was printed; the cursor moves soon."""
        self._reader, self._printed = reader, reader.position
        if self._timer is None:
            self._timer = self._clock.callLater(COMMIT_AFTER_S, self._due)

    def _due(self) -> None:
        self._timer = None
        Deferred.fromCoroutine(self._commit_later())

    async def _commit_later(self) -> None:
        try:
            await self._commit()
        except ClientError as error:  # The next commit retries.
            log.warn("cursor {name} was not moved: {error}", name=self.name, error=error)

    async def close(self, _client: Client) -> None:
        """Move the cursor behind all entries that were printed."""
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        await self._commit()

    async def _commit(self) -> None:
        at = self._printed
        if self._reader is None or at is None:
            return
        wanted = Position(at.index, at.entry_id + 1)
        if self._reader.position == at:  # If not, another entry is being printed.
            wanted = self._reader.next_position
        if wanted != self._committed:
            await self._cursors.advance(self.name, wanted)
            self._committed = wanted
