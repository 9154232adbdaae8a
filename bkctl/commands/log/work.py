"""What ``bkctl log`` does: on ``bkclient.log``, as values."""

from __future__ import annotations

import time
from collections.abc import AsyncIterator, Iterator, Sequence
from typing import TYPE_CHECKING, Any

from bkclient.client import Client
from bkclient.errors import ClientError
from bkclient.log import LATEST, LogManager, LogOptions, Position
from bkctl.commands.ledger.entry import preview
from bkctl.commands.ledger.read import choose_form, payload_value
from bkctl.commands.log.columns import LogAppended, LogChanged, LogEntry, LogLedgerRow, LogSummary
from bkctl.errors import UsageError
from bkctl.output.units import counted, human_bytes
from wire.codes import DigestType

if TYPE_CHECKING:
    from twisted.internet.defer import Deferred

    from bkclient.log import LogWriter
    from bkctl.commands.ledger.write import Source
    from bkctl.session.session import Session

_RECORD_FORMS = frozenset({"json", "jsonl", "yaml", "csv", "table", "wide", "id"})


def options_of(
    session: Session,
    *,
    ensemble_size: int,
    write_quorum: int,
    ack_quorum: int,
    digest: str,
    password_file: str | None,
    roll_size: int,
    roll_entries: int,
    roll_after: float,
) -> LogOptions:
    """Return the options of a new log.

    Raises:
        QuorumError: invalid quorums.
    """
    options = LogOptions(
        ensemble_size=ensemble_size,
        write_quorum=write_quorum,
        ack_quorum=ack_quorum,
        digest_type=DigestType[digest.upper()],
        password=session.questions.password(password_file) if password_file else b"",
        roll_bytes=roll_size,
        roll_entries=roll_entries,
        roll_s=roll_after,
    )
    options.check()
    return options


async def create(client: Client, name: str, options: LogOptions) -> LogChanged:
    """Create a log."""
    await LogManager(client).create(name, options)
    return LogChanged(name, "created")


async def summaries(client: Client) -> list[LogSummary]:
    """Return the summary of each log; a damaged one is marked as damaged."""
    manager, found = LogManager(client), []
    for name in await manager.list():
        try:
            info = await manager.info(name)
        except ClientError as error:
            found.append(LogSummary(name, str(error), None, None, None, None))
            continue
        state = "sealed" if info.sealed else "open"
        entries, length = info.entries, info.length_bytes
        found.append(LogSummary(name, state, info.trimmed, len(info.ledgers), entries, length))
    return found


async def ledgers(client: Client, name: str) -> list[LogLedgerRow]:
    """Return a log's ledgers."""
    info = await LogManager(client).info(name)
    return [LogLedgerRow(info=one) for one in info.ledgers]


async def _removed_by_trim(client: Client, name: str, before: Position) -> list[Any]:
    info = await LogManager(client).info(name)
    going = []
    for one in info.ledgers[:-1]:
        is_closed = one.state is None or one.last_entry_id is not None
        if one.index >= before.index or not is_closed:
            break
        going.append(one)
    return going


async def plan_trim(client: Client, name: str, before: Position) -> list[str]:
    """Return what a trim would delete, as sentences; nothing where there is nothing."""
    going = await _removed_by_trim(client, name, before)
    return [
        f"delete ledger {one.ledger_id}, {one.index} of the log: "
        f"{counted((one.last_entry_id or 0) + 1, 'entry')}, {human_bytes(one.length_bytes)}"
        for one in going
    ]


async def trim(client: Client, name: str, before: Position) -> LogChanged:
    """Trim a log."""
    kept = await LogManager(client).trim(name, before)
    return LogChanged(name, "trimmed", first=str(kept))


async def sweep(client: Client, name: str, age_s: float) -> LogChanged:
    """Delete what a log does not list."""
    swept = await LogManager(client).sweep(name, age_s=age_s)
    return LogChanged(name, "swept", ledgers=tuple(swept))


async def plan_delete(client: Client, name: str) -> list[str]:
    """Return what deleting a log takes along, as sentences."""
    info = await LogManager(client).info(name)
    open_ones = sum(one.last_entry_id is None and one.state is not None for one in info.ledgers)
    more = f", and what is in {open_ones} open ones" if open_ones else ""
    what = f"{counted(info.entries, 'entry')}, {human_bytes(info.length_bytes)}{more}"
    return [f"delete log {name} with {counted(len(info.ledgers), 'ledger')}: {what}"]


async def delete(client: Client, name: str) -> LogChanged:
    """Delete a log and its ledgers."""
    manager = LogManager(client)
    gone = tuple(one.ledger_id for one in (await manager.info(name)).ledgers)
    await manager.delete(name, force=True)
    return LogChanged(name, "deleted", ledgers=gone)


# Appending -------------------------------------------------------------------------------------


def plan_append(session: Session, name: str, *, seal: bool) -> list[str]:
    """Return what appending would do, as sentences."""
    info = session.call(lambda client: LogManager(client).info(name))
    steps = [
        f"fence ledger {one.ledger_id}" for one in info.ledgers[-2:] if one.last_entry_id is None
    ]
    steps += [f"begin ledger {info.trimmed + len(info.ledgers)} of log {name}", "append to it"]
    return [*steps, *(["seal the log"] if seal else [])]


class _Feed:
    """Gives entries to a log's writer; lives on the reactor's thread."""

    def __init__(self, writer: LogWriter) -> None:
        self.writer = writer
        self.first: Position | None = None
        self.last: Position | None = None
        self._error: BaseException | None = None

    async def push(self, payloads: Sequence[bytes]) -> None:
        for payload in payloads:
            self._raise()
            await self.writer.room()
            appended: Deferred[Position] = self.writer.append(payload)
            appended.addCallbacks(self._appended, self._failed)

    async def drain(self) -> None:
        await self.writer.drain()
        self._raise()

    def _appended(self, position: Position) -> None:
        self.first = self.first or position
        self.last = position

    def _failed(self, failure: Any) -> None:
        self._error = self._error or failure.value

    def _raise(self) -> None:
        if self._error is not None:
            raise self._error


def append(session: Session, name: str, source: Source, *, seal: bool) -> LogAppended:
    """Append what a source has; return where it went."""
    began_s = time.monotonic()
    entries = size = 0
    with session.interrupts.stopping() as stop:
        writer = session.call(_open_writer, name)
        feed = _Feed(writer)
        with session.progress(f"appending to log {name}", total=source.size) as progress:
            for payloads in source.batches(stop):
                session.call(_push, feed, payloads)
                entries += len(payloads)
                size += sum(map(len, payloads))
                progress.update(source.position, entries)
            session.call(_drain, feed)
        session.call(_close, writer, seal=seal and stop.reason is None)
        if stop.reason is not None:
            session.resume = (
                f"{counted(entries, 'entry')} appended to log {name}, and its ledger closed"
            )
            raise stop.reason
    return LogAppended(
        name=name,
        first=None if feed.first is None else str(feed.first),
        last=None if feed.last is None else str(feed.last),
        entries=entries,
        size=size,
        seconds=time.monotonic() - began_s,
        sealed=seal,
    )


async def _open_writer(client: Client, name: str) -> LogWriter:
    return await LogManager(client).open_writer(name)


async def _push(_client: Client, feed: _Feed, payloads: Sequence[bytes]) -> None:
    await feed.push(payloads)


async def _drain(_client: Client, feed: _Feed) -> None:
    await feed.drain()


async def _close(_client: Client, writer: LogWriter, *, seal: bool) -> None:
    await writer.close(seal=seal)


# Reading ---------------------------------------------------------------------------------------


async def _entries(
    client: Client, name: str, start: Position, *, follow: bool
) -> AsyncIterator[tuple[Position, bytes]]:
    reader = await LogManager(client).open_reader(name, start, follow=follow)
    async for position, payload in reader:
        yield position, payload


def tail(
    session: Session,
    name: str,
    start: Position,
    form: tuple[str | None, str | None, str | None],
    *,
    follow: bool,
) -> None:
    """Print a log's entries in the form that was asked for."""
    if start is LATEST and not follow:
        raise UsageError("--from latest prints nothing that is there: add --follow")
    found = session.iterate(_entries, name, start, follow=follow)
    if session.options.output in _RECORD_FORMS:
        session.emit_all(_records(session, found), LogEntry)
        return
    shape = choose_form(session, *form, None, to_file=False)
    stream = session.host.stdout.buffer
    for position, payload in found:
        assert position.ledger_id is not None
        stream.write(shape(position.ledger_id, position.entry_id, payload))
        stream.flush()


def _records(session: Session, found: Iterator[tuple[Position, bytes]]) -> Iterator[LogEntry]:
    table = session.options.output in {"table", "wide"}
    for position, payload in found:
        text = preview(payload) if table else payload_value(payload, session.options.entry_format)
        yield LogEntry(position, payload, text)
