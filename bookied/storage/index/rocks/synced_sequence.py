"""How many changes of a database are durable, in a file beside it.

RocksDB opens a database whose write-ahead log is damaged as if the log ended before the damage, and
one that was put back from a backup as it is. Both lack locations of entries before ``lastMark``,
and a bookie would answer "no such entry" for these. So before a mark moves, the number of the last
change that was synced is put down beside the database, with the database's identity: one that was
made anew counts from 0.

    <identity> <number>
"""

from __future__ import annotations

import re
from pathlib import Path
from typing import Final, NamedTuple

from bookied.errors import DbRecordError

SUFFIX: Final = ".synced"
"""After the name of the database."""
_NUMBER: Final = re.compile("[0-9]{1,20}")


class SyncedNote(NamedTuple):
    """That a database with an identity has had so many changes, durably."""

    identity: str
    changes: int


def note_path(database: Path) -> Path:
    """Return where the note of a database is."""
    return database.with_name(database.name + SUFFIX)


def encode_note(note: SyncedNote) -> bytes:
    """Return the file's content."""
    return f"{note.identity} {note.changes}\n".encode()


def check_note(data: bytes, found: SyncedNote, database: Path) -> None:
    """Insist that a database has what its note says; a note of another one says nothing.

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
