"""``bkctl topic export``: the messages of a topic as rows of a Parquet file."""

from __future__ import annotations

import contextlib
import os
import shlex
from collections.abc import Iterable
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from bkctl.commands.topic.columns import TopicExported
from bkctl.commands.topic.peek import message_id, messages
from bkctl.errors import ConflictError, NothingFoundError, UsageError

if TYPE_CHECKING:
    from bkclient.topic.messages import TopicMessage
    from bkctl.session.session import Session

ROWS_AT_ONCE: Final = 10_000
BYTES_AT_ONCE: Final = 64 << 20
"""A row group is written when it has so many rows, or so many bytes of values."""


def export(
    session: Session, *, name: str, path: str | None, start: str | None, end: str | None
) -> None:
    """Write the messages of TOPIC to FILE, one row each, in Parquet.

    Raises:
        ConflictError: the file exists.
        NothingFoundError: it cannot be written.
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
    if Path(path).exists():
        raise ConflictError(f"{path} exists", next_step="give another file")
    if session.dry_run:
        session.plan([f"write the messages of topic {name} to {path}"])
        return
    part, schema = Path(f"{path}.part"), arrow_schema()
    found = session.iterate(messages, name, message_id(start), message_id(end))
    count = 0
    try:
        with contextlib.closing(found), pyarrow.parquet.ParquetWriter(part, schema) as writer:
            for group in row_groups(found):
                writer.write_table(table_of(group, schema))
                count += len(group)
        size = part.stat().st_size
        os.link(part, path)  # Unlike a rename, it replaces nothing.
    except FileExistsError as error:
        raise ConflictError(f"{path} exists", next_step="give another file") from error
    except OSError as error:
        raise NothingFoundError(f"{path}: {error.strerror or error}") from error
    finally:
        part.unlink(missing_ok=True)
    session.emit(TopicExported(topic=name, path=path, messages=count, size=size))


def row_groups(found: Iterable[list[TopicMessage]]) -> Iterable[list[TopicMessage]]:
    """Yield the messages in pieces that fit into memory."""
    group: list[TopicMessage] = []
    held = 0
    for some in found:
        for message in some:
            group.append(message)
            held += len(message.value or b"")
            if len(group) >= ROWS_AT_ONCE or held >= BYTES_AT_ONCE:
                yield group
                group, held = [], 0
    if group:
        yield group


def arrow_schema() -> Any:
    """Return the columns: the fields of ``TopicMessage`` but ``decoded``."""
    import pyarrow as pa

    time = pa.timestamp("ms", tz="UTC")
    return pa.schema([
        pa.field("ledger_id", pa.int64(), nullable=False),
        pa.field("entry_id", pa.int64(), nullable=False),
        pa.field("batch_index", pa.int32(), nullable=False),
        pa.field("topic", pa.string(), nullable=False),
        pa.field("partition", pa.int32(), nullable=False),
        pa.field("key", pa.binary()),
        pa.field("ordering_key", pa.binary()),
        pa.field("value", pa.binary()),
        pa.field("properties", pa.map_(pa.string(), pa.string()), nullable=False),
        pa.field("publish_time", time, nullable=False),
        pa.field("event_time", time),
        pa.field("broker_time", time),
        pa.field("index", pa.int64()),
        pa.field("sequence_id", pa.int64(), nullable=False),
        pa.field("producer", pa.string(), nullable=False),
        pa.field("schema_version", pa.binary()),
        pa.field("replicated_from", pa.string()),
        pa.field("encrypted", pa.bool_(), nullable=False),
    ])  # fmt: skip


def table_of(group: list[TopicMessage], schema: Any) -> Any:
    """Return messages as a table."""
    import pyarrow as pa

    columns = [pa.array(column_of(group, field.name), field.type) for field in schema]
    return pa.Table.from_arrays(columns, schema=schema)


def column_of(group: list[TopicMessage], name: str) -> list[Any]:
    """Return a column of messages; times in ms since 1970."""
    if name == "properties":
        return [list(one.properties.items()) for one in group]
    attribute = f"{name}_ms" if name.endswith("_time") else name
    return [getattr(one, attribute) for one in group]
