"""``bkctl topic export``: the messages of a topic as rows of a Parquet file."""

from __future__ import annotations

import contextlib
import os
import shlex
from pathlib import Path
from typing import TYPE_CHECKING, Final

from bkctl.commands.topic.arrow_columns import record_batches
from bkctl.commands.topic.arrow_schema import topic_schema
from bkctl.commands.topic.columns import TopicExported
from bkctl.commands.topic.peek import columns, message_id
from bkctl.errors import ConflictError, NothingFoundError, UsageError

if TYPE_CHECKING:
    from bkctl.session.session import Session

ROWS_AT_ONCE: Final = 10_000
BYTES_AT_ONCE: Final = 64 << 20
"""A row group is written when it has so many rows, or so many bytes of payload."""


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
    part, schema = Path(f"{path}.part"), topic_schema(time_unit="ms")
    found = session.iterate(columns, name, message_id(start), message_id(end))
    count = 0
    try:
        with contextlib.closing(found), pyarrow.parquet.ParquetWriter(part, schema) as writer:
            for batch in record_batches(
                found, schema, rows_at_once=ROWS_AT_ONCE, bytes_at_once=BYTES_AT_ONCE
            ):
                writer.write_batch(batch)
                count += len(batch)
        size = part.stat().st_size
        os.link(part, path)  # Unlike a rename, it replaces nothing.
    except FileExistsError as error:
        raise ConflictError(f"{path} exists", next_step="give another file") from error
    except OSError as error:
        raise NothingFoundError(f"{path}: {error.strerror or error}") from error
    finally:
        part.unlink(missing_ok=True)
    session.emit(TopicExported(topic=name, path=path, messages=count, size=size))
