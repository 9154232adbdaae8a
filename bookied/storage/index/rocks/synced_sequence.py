"""A note, beside a database, of the number of its durable changes.

RocksDB opens a database with a damaged write-ahead log as if the log ended before the damage, and
an old backup as it is. Both lack locations of entries before ``lastMark``, and a bookie would
answer "no such entry" for them. So before a mark moves, the number of the last synced change is
written beside the database, with the database's identity: a new database counts from 0.

    <identity> <number>
"""

from __future__ import annotations

import re
from pathlib import Path
from typing import Final, NamedTuple

from bookied.errors import DbRecordError

SUFFIX: Final = ".synced"
"""The suffix of the note's name, after the name of the database."""
_NUMBER: Final = re.compile("[0-9]{1,20}")


class SyncedNote(NamedTuple):
    """The identity of a database, and the number of its durable changes."""

    identity: str
    changes: int


def note_path(database: Path) -> Path:
    """Return the path of a database's note."""
    return database.with_name(database.name + SUFFIX)


def encode_note(note: SyncedNote) -> bytes:
    """Return the file's content."""
    return f"{note.identity} {note.changes}\n".encode()


def check_note(data: bytes, found: SyncedNote, database: Path) -> None:
    """Check that a database has the changes in its note; a note of another database is ignored.

    Raises:
        DbRecordError: changes are lost.
    """
    identity, _, number = data.decode("ascii", "replace").strip().rpartition(" ")
    if identity != found.identity or not _NUMBER.fullmatch(number) or int(number) <= found.changes:
        return
    raise DbRecordError(
        database,
        None,
        f"ends with change {found.changes}, and change {number} was durable: its write-ahead log "
        f"is damaged, or an older copy was put back; `bkctl disk rebuild-db --{database.name}` "
        "rebuilds it",
    )
