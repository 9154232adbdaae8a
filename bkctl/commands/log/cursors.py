"""The cursors of logs and topics, and the lag of their readers."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Final

import attrs

from bkclient.admin import cluster_operations
from bkclient.client import Client
from bkclient.concurrency import for_each
from bkclient.errors import ClientError, NoSuchLedgerError
from bkclient.log.cursors import Cursor, Cursors
from bkclient.log.ledger_list import LedgerList
from bkclient.topic.names import parse_topic
from bkclient.topic.topics_in_metadata import parts_of, topic_ledgers
from bkctl.commands.log.columns import CursorDeleted, CursorRow
from bkctl.output.atomic_file import write_atomically
from bkctl.output.units import counted
from bkctl.output.views import evolve
from bkctl.session.session import Session
from wire.ids import LedgerId

READS_AT_ONCE: Final = 64


@attrs.frozen
class _PartCursors:
    """One ledger of a log or topic: its index and its number of entries, None if unknown.

    In a topic the index is the ledger id.
    """

    index: int
    entries: int | None


def cursors(session: Session, *, name: str | None, metrics: str | None) -> None:
    """List the cursors of the log or topic NAME, or all cursors, and how far each is behind."""
    session.about = "cursors" if name is None else f"cursors of {name}"
    found = session.call(rows, name)
    if metrics is not None:
        count = counted(len(found), "cursor")
        if session.plans_only([f"write the metrics of {count} to {metrics}"]):
            return
        write_atomically(metrics, gauges(found).encode())
    session.emit_all(found, CursorRow)


def delete_cursor(session: Session, *, name: str, cursor: str) -> None:
    """Delete a cursor of the log or topic NAME."""
    session.about = f"cursor {cursor} of {name}"
    if session.plans_only([f"delete cursor {cursor} of {name}"]):
        return
    session.emit(session.call(_delete, name, cursor))


async def rows(client: Client, name: str | None) -> list[CursorRow]:
    """Return the cursors of a log or topic, or all cursors.

    Raises:
        NoSuchLogError, NoSuchTopicError: the log or topic does not exist.
    """
    if name is None:
        sources = await client.store.list_cursors()
    else:
        sources = await sources_of(client, name)
    found: list[CursorRow] = []
    for source in sources:
        cursors = await Cursors(client, source).list()
        if cursors:
            parts = await _parts(client, source, cursors, must_exist=name is not None)
            found += [_row(source, cursor, parts) for cursor in cursors]
    return found


async def sources_of(client: Client, name: str) -> list[str]:
    """Return the log NAME or, if the name has a slash, each partition of the topic.

    Raises:
        NoSuchLogError, NoSuchTopicError: the log or topic does not exist.
    """
    if "/" in name:
        return [str(part) for part in await parts_of(client, parse_topic(name))]
    await LedgerList(client, name).read()
    return [name]


async def _delete(client: Client, name: str, cursor: str) -> CursorDeleted:
    """Delete a cursor of a log, or of one partition of a topic.

    Raises:
        NoSuchCursorError: no cursor has this name.
    """
    source = str(parse_topic(name)) if "/" in name else name
    cursors = Cursors(client, source)
    return CursorDeleted(source, cursor, str((await cursors.delete(cursor)).position))


async def _parts(
    client: Client, source: str, cursors: Sequence[Cursor], *, must_exist: bool
) -> list[_PartCursors] | None:
    """Return the ledgers of a log or topic; None if it no longer exists and need not exist.

    The number of entries may be None in ledgers before the first cursor.
    """
    first = min(cursor.position.index for cursor in cursors)
    try:
        if "/" in source:
            return await _of_topic(client, source, first)
        return await _of_log(client, source, first)
    except ClientError:
        if must_exist:
            raise
        return None


async def _of_topic(client: Client, source: str, first: int) -> list[_PartCursors]:
    ledgers = (await topic_ledgers(client, parse_topic(source))).ledgers
    parts: list[_PartCursors] = []
    for ledger in ledgers:
        is_open = ledger is ledgers[-1] or not ledger.entries
        entries: int | None = ledger.entries
        if is_open and ledger.ledger_id >= first:
            entries = await _confirmed(client, ledger.ledger_id)
        parts.append(_PartCursors(ledger.ledger_id, entries))
    return parts


async def _of_log(client: Client, source: str, first: int) -> list[_PartCursors]:
    record = (await LedgerList(client, source).read()).record
    ledgers = dict(enumerate(record.ledgers, record.trimmed))
    found: dict[int, int | None] = dict.fromkeys(ledgers)

    async def measure(index: int) -> None:
        found[index] = await _entries(client, ledgers[index].ledger_id)

    await for_each([index for index in ledgers if index >= first], measure, READS_AT_ONCE)
    return [_PartCursors(index, entries) for index, entries in found.items()]


async def _entries(client: Client, ledger_id: LedgerId) -> int | None:
    """Return the number of readable entries of a ledger; None if it cannot be determined."""
    try:
        metadata = (await client.read_metadata(ledger_id)).value
    except NoSuchLedgerError:
        return None
    if metadata.is_closed:
        return 0 if metadata.last_entry_id is None else metadata.last_entry_id + 1
    return await _confirmed(client, ledger_id)


async def _confirmed(client: Client, ledger_id: LedgerId) -> int | None:
    try:
        last, _ = await cluster_operations.confirmed_end(client, ledger_id)
    except ClientError:
        return None
    return last + 1


def _row(source: str, cursor: Cursor, parts: Sequence[_PartCursors] | None) -> CursorRow:
    at = cursor.position
    row = CursorRow(source=source, name=cursor.name, position=str(at), updated_ms=cursor.updated_ms)
    if parts is None:
        return row
    left = [_left_of(part, at.index, at.entry_id) for part in parts if part.index >= at.index]
    known = [entries for entries in left if entries is not None]
    is_gone = bool(parts) and at.index < parts[0].index
    return evolve(
        row,
        entries_behind=sum(known) if len(known) == len(left) else None,
        ledgers_behind=sum(entries != 0 for entries in left),
        # A topic's cursor stays in a ledger that was read to its end: a loss is not certain.
        is_trimmed=None if is_gone and "/" in source else is_gone,
    )


def _left_of(part: _PartCursors, index: int, entry_id: int) -> int | None:
    """Return the number of a ledger's entries from a position on; None if it is unknown."""
    if part.entries is None:
        return None
    return part.entries if part.index > index else max(0, part.entries - entry_id)


# Prometheus ------------------------------------------------------------------------------------

METRICS: Final = (
    (
        "bkctl_cursor_lag_entries",
        "Entries between a cursor and the last add confirmed.",
        lambda row: row.entries_behind,
    ),
    (
        "bkctl_cursor_lag_ledgers",
        "Ledgers that have entries behind a cursor.",
        lambda row: row.ledgers_behind,
    ),
    (
        "bkctl_cursor_updated_timestamp_seconds",
        "When a cursor was last moved, in seconds since 1970.",
        lambda row: None if row.updated_ms is None else row.updated_ms / 1000,
    ),
    (
        "bkctl_cursor_trimmed",
        "1 if entries behind a cursor were trimmed.",
        lambda row: None if row.is_trimmed is None else int(row.is_trimmed),
    ),
)
"""The gauges of a cursor: name, meaning, and value of a row; None is omitted."""


def gauges(found: Iterable[CursorRow]) -> str:
    """Return the cursors as gauges in Prometheus' text format, for its textfile collector."""
    lines: list[str] = []
    kept = list(found)
    for name, doc, value_of in METRICS:
        lines += [f"# HELP {name} {doc}", f"# TYPE {name} gauge"]
        for row in kept:
            value = value_of(row)
            if value is not None:
                labels = f"source={_label(row.source)},cursor={_label(row.name)}"
                lines.append(f"{name}{{{labels}}} {value}")
    return "\n".join(lines) + "\n"


def _label(text: str) -> str:
    """Return a label's value, quoted for Prometheus' text format."""
    escaped = text.replace("\\", r"\\").replace('"', r"\"").replace("\n", r"\n")
    return f'"{escaped}"'
