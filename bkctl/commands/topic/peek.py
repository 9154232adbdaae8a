"""The bodies of `topic peek` and `topic export`."""

from __future__ import annotations

import contextlib
import re
import shlex
import sys
from collections.abc import AsyncIterator, Iterator
from contextlib import aclosing, closing
from itertools import islice
from typing import Any, Final

from bkclient.client import Client
from bkclient.topic.managed_ledger import MessageId
from bkclient.topic.messages import EntryMessages, TopicMessage
from bkclient.topic.names import TopicName, parse_topic
from bkclient.topic.positions import end_of
from bkclient.topic.reader import TopicReader
from bkclient.topic.schema_decoding import Decoder
from bkclient.topic.topics_in_metadata import parts_of
from bkctl.commands.ledger.columns import preview
from bkctl.commands.ledger.read import payload_value
from bkctl.commands.topic.arrow_columns import plain, record_batches
from bkctl.commands.topic.arrow_schema import DECODED, TOPIC_COLUMNS, topic_schema
from bkctl.commands.topic.columns import TopicExported, TopicMessageRow
from bkctl.errors import NothingFoundError, UsageError
from bkctl.output.atomic_file import making_file, require_new
from bkctl.session.session import Session

_FOR_PROGRAMS: Final = frozenset({"json", "jsonl", "yaml", "csv"})


_ID: Final = re.compile(r"(\d{1,18}):(\d{1,18})(?::(\d{1,9}))?")


def peek(session: Session, *, name: str, start: str | None, count: int, decode: str | None) -> None:
    """Print messages of TOPIC as a consumer receives them."""
    session.about = f"topic {name}"
    session.emit_all(_rows(session, name, start, count, decode), TopicMessageRow)


def message_id(text: str | None) -> MessageId | None:
    """Return the message id that a user typed.

    Raises:
        UsageError: the text is not a message id.
    """
    if text is None:
        return None
    found = _ID.fullmatch(text)
    if found is None:
        raise UsageError(f"{text!r} is not a message id", next_step="give LEDGER:ENTRY[:INDEX]")
    return MessageId(int(found[1]), int(found[2]), -1 if found[3] is None else int(found[3]))


async def columns(
    client: Client,
    name: str,
    start: MessageId | None = None,
    end: MessageId | None = None,
    decode: str | None = None,
    *,
    complete: bool = False,
    held_back: list[str] | None = None,
) -> AsyncIterator[list[EntryMessages]]:
    """Yield the messages of a topic between two ids, in groups: see ``read_columns``.

    ``held_back`` receives a sentence for each partition that a pending transaction ends early.

    Raises:
        TopicTrimmedError: with ``complete``, messages from ``start`` on were deleted.
        NothingFoundError: with ``complete``, ``end`` is past the last readable message.
    """
    parts = await parts_of(client, parse_topic(name))
    if len(parts) > 1 and (start or end) is not None:
        raise UsageError(
            f"{name} has {len(parts)} partitions: a message id belongs to one of them",
            next_step=f"name one: {parts[0]}",
        )
    for part in parts:
        decoder = Decoder(client, part, decode, json_as_text=complete) if decode else None
        reader = TopicReader(
            client, part, start=start, end=end, decoder=decoder, fail_on_trimmed=complete
        )
        if complete and end is not None:
            await _check_end(client, part, end)
        async with aclosing(reader.read_columns()) as found:
            async for some in found:
                yield some
        if held_back is not None and reader.held_back_at is not None:
            held_back.append(
                f"{part}: read up to message {reader.held_back_at}, "
                "the first of a transaction that has not ended"
            )


async def _check_end(client: Client, part: TopicName, end: MessageId) -> None:
    known = await end_of(client, part)
    if (end.ledger_id, end.entry_id + (end.batch_index > 0)) > known[:2]:
        raise NothingFoundError(
            f"{part}: message {end} is past the end {known} of what can be read",
            next_step="give an earlier message id, or leave out --to",
        )


def _rows(
    session: Session, name: str, start: str | None, count: int, decode: str | None
) -> Iterator[TopicMessageRow]:
    """Yield the first messages from an id on, as rows."""
    is_table = session.options.output not in _FOR_PROGRAMS
    with closing(session.iterate(columns, name, message_id(start), None, decode)) as found:
        messages = (message for some in found for one in some for message in one.messages())
        for message in islice(messages, min(count, sys.maxsize)):
            yield TopicMessageRow(message, _text(session, message, decode, is_table=is_table))


def _text(session: Session, message: TopicMessage, decode: str | None, *, is_table: bool) -> Any:
    if message.value is None:
        return None
    if decode is not None and not message.encrypted:
        return plain(message.decoded)
    if is_table:
        return preview(message.value)
    return payload_value(message.value, session.options.entry_format)


ROWS_AT_ONCE: Final = 10_000
BYTES_AT_ONCE: Final = 64 << 20
"""A row group is written at this number of rows, or of bytes of payload."""


def export(
    session: Session,
    *,
    name: str,
    path: str | None,
    start: str | None,
    end: str | None,
    decode: str | None,
) -> None:
    """Write the messages of TOPIC to FILE, one row each, in Parquet.

    Raises:
        ConflictError: the file exists.
        NothingFoundError: FILE cannot be written, or ``end`` is past the end of the topic.
        TopicTrimmedError: messages from ``start`` on were deleted.
        UsageError: FILE is missing, or the library that writes Parquet is not installed.
    """
    if path is None:
        line = shlex.join(["bkctl", "topic", "export", name, end or f"{name}.parquet"])
        given = "; --to takes the message id where the export ends" if end else ""
        raise UsageError(f"missing argument 'FILE'{given}", next_step=f"for example: `{line}`")
    try:
        import pyarrow.parquet
    except ImportError as error:
        raise UsageError(
            "exporting needs pyarrow", next_step="pip install 'bkctl[spark,pulsar]'"
        ) from error
    session.about = f"topic {name}"
    require_new(path)
    if session.plans_only([f"write the messages of topic {name} to {path}"]):
        return
    names = (*TOPIC_COLUMNS, DECODED) if decode else TOPIC_COLUMNS
    schema = topic_schema(names, time_unit="ms")
    held_back: list[str] = []
    limits = message_id(start), message_id(end)
    found = session.iterate(columns, name, *limits, decode, complete=True, held_back=held_back)
    count = 0
    with making_file(path) as file, contextlib.closing(found):
        with pyarrow.parquet.ParquetWriter(file, schema) as writer:
            for batch in record_batches(
                found, schema, rows_at_once=ROWS_AT_ONCE, bytes_at_once=BYTES_AT_ONCE
            ):
                writer.write_batch(batch)
                count += len(batch)
        size = file.tell()
    session.emit(TopicExported(topic=name, path=path, messages=count, size=size))
    for where in held_back:
        session.warn(where)
