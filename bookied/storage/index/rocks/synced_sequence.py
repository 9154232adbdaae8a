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
FORMER_MAX: Final = 16
_NUMBER: Final = re.compile("[0-9]{1,20}")


class SyncedNote(NamedTuple):
    """The identity of a database, the number of its durable changes, and its predecessors."""

    identity: str
    changes: int
    former: tuple[str, ...] = ()


def note_path(database: Path) -> Path:
    """Return the path of a database's note."""
    return database.with_name(database.name + SUFFIX)


def encode_note(note: SyncedNote) -> bytes:
    """Return the file's content."""
    return "".join(f"{one}\n" for one in (f"{note.identity} {note.changes}", *note.former)).encode()


def decode_note(data: bytes) -> SyncedNote:
    """Return what a file says; a damaged first line says nothing of any database."""
    first, *former = data.decode("ascii", "replace").split("\n")
    identity, _, number = first.strip().rpartition(" ")
    changes = int(number) if _NUMBER.fullmatch(number) else 0
    return SyncedNote(identity, changes, tuple(one for one in former if one))


def former_of(data: bytes | None, identity: str) -> tuple[str, ...]:
    """Return the predecessors of the database with this identity, by the note before."""
    before = SyncedNote(identity, 0) if data is None else decode_note(data)
    known = dict.fromkeys((before.identity, *before.former))
    return tuple(one for one in known if one not in {"", identity})[:FORMER_MAX]


def check_note(data: bytes, found: SyncedNote, database: Path) -> None:
    """Check that a database has what its note says; a note of a later one calls it too old.

    Raises:
        DbRecordError: changes are lost.
    """
    note = decode_note(data)
    if found.identity in note.former:
        raise DbRecordError(
            database,
            None,
            "was replaced by another database, which has changes that this one lacks; "
            f"`bkctl disk rebuild-db --{database.name}` rebuilds it",
        )
    if note.identity != found.identity or note.changes <= found.changes:
        return
    number = note.changes
    raise DbRecordError(
        database,
        None,
        f"ends with change {found.changes}, and change {number} was durable: its write-ahead log "
        f"is damaged, or an older copy was put back; `bkctl disk rebuild-db --{database.name}` "
        "rebuilds it",
    )
