"""What ours leaves beside a journal directory: its last journal, and which fences may be lost.

A Java bookie may lose fences over a crash, and even over a clean stop (storage.md section 17, D1 to
D3), and nothing in the directories tells so afterwards. So beside ``current`` of each journal
directory lies ``bookied.journal``, with the id of the last journal that ours has begun. A higher
one was begun by another bookie, as every bookie begins one at each start, unless it is in groups,
which no other bookie writes: then ours ended before it could put the id down. Once there was
another, the file says for good that fences are in doubt. A lower one alone says that journals were
lost (``emptied_directories``).

A bookie that begins anew may have had a predecessor under its id that clients have fenced. So it
puts down the highest ledger that there is before it has a cookie: fences are in doubt up to there.

    journal <id in hex>|none
    fences kept|in doubt|in doubt to <id in hex>
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from pathlib import Path
from typing import Final

import attrs
from twisted.logger import Logger

from bookied.directories.roots import CURRENT
from bookied.storage.files.files import Files
from bookied.storage.journal import format as layout
from bookied.storage.journal import group_format
from bookied.storage.journal.reader import journal_ids

NAME: Final = "bookied.journal"

NO_JOURNAL: Final = -1
"""None has been begun yet."""

NO_LEDGER: Final = -1
ALL_LEDGERS: Final = 2**63 - 1

_CONTENT: Final = re.compile(
    r"journal (?:none|([0-9a-f]{1,16}))\nfences (kept|in doubt|in doubt to ([0-9a-f]{1,16}))\n"
)
_KEPT, _IN_DOUBT = "kept", "in doubt"

log = Logger()


@attrs.frozen
class LastJournalNote:
    """What ours has left beside a journal directory's ``current``."""

    journal_id: int
    """The last journal it has begun there, or ``NO_JOURNAL``."""
    in_doubt_to: int
    """Fences up to this ledger may be lost; from ``NO_LEDGER`` to ``ALL_LEDGERS``."""


def encode_note(served: LastJournalNote) -> bytes:
    """Return the file's content."""
    last, doubt = served.in_doubt_to, f"{_IN_DOUBT} to {served.in_doubt_to:x}"
    fences = {NO_LEDGER: _KEPT, ALL_LEDGERS: _IN_DOUBT}.get(last, doubt)
    journal = "none" if served.journal_id == NO_JOURNAL else f"{served.journal_id:x}"
    return f"journal {journal}\nfences {fences}\n".encode()


def decode_note(data: bytes) -> LastJournalNote | None:
    """Return what a file says; None if a bookie of ours did not write it."""
    found = _CONTENT.fullmatch(data.decode("utf-8", "replace"))
    if found is None:
        return None
    journal_id = NO_JOURNAL if found[1] is None else int(found[1], 16)
    if found[3] is not None:
        return LastJournalNote(journal_id, min(int(found[3], 16), ALL_LEDGERS))
    return LastJournalNote(journal_id, NO_LEDGER if found[2] == _KEPT else ALL_LEDGERS)


def read_note(files: Files, root: Path) -> LastJournalNote | None:
    """Return what ours has left in a journal directory's root; None if that says nothing. Blocks.

    Raises:
        OSError: it is there and cannot be read.
    """
    try:
        return decode_note(files.read(root / NAME))
    except FileNotFoundError:
        return None


def fences_in_doubt_to(files: Files, journal_roots: Iterable[Path]) -> int:
    """Return up to which ledger fences may have been lost. Blocks.

    A file that is missing or damaged says nothing: with journals beside it, all are in doubt.

    Raises:
        OSError: a directory cannot be read.
    """
    return max(_in_doubt_to(files, root) for root in journal_roots)


def _in_doubt_to(files: Files, root: Path) -> int:
    ids = journal_ids(files, root / CURRENT)
    served = read_note(files, root)
    if served is None:
        return ALL_LEDGERS if ids else NO_LEDGER
    later = [number for number in ids if number > served.journal_id]
    if all(_is_in_groups(files, root / CURRENT / layout.file_name(number)) for number in later):
        return served.in_doubt_to
    return ALL_LEDGERS


def note_doubt(files: Files, journal_roots: Iterable[Path], ledger_id: int) -> None:
    """Put down that fences up to this ledger may be lost, durably. Blocks.

    Raises:
        OSError: it cannot be: then the bookie must not begin.
    """
    for root in journal_roots:
        last = max(ledger_id, _in_doubt_to(files, root))
        served = read_note(files, root) or LastJournalNote(NO_JOURNAL, last)
        files.write_atomic(root / NAME, encode_note(attrs.evolve(served, in_doubt_to=last)))


def _is_in_groups(files: Files, path: Path) -> bool:
    file = files.open_read(path)
    try:
        head = file.read_at(layout.HEADER_BYTES[layout.VERSION], group_format.FILE_MARK_BYTES)
        return group_format.parse_file_mark(head) is not None
    except group_format.FileMarkDamagedError:
        return False
    finally:
        file.close()


def note_journal(files: Files, root: Path, served: LastJournalNote) -> None:
    """Put down which journal was begun, once its name is durable. Blocks.

    Where that fails, or the process ends before, the next start finds fences in doubt: that costs
    some questions, and the other way round it would cost fences.
    """
    try:
        files.write_atomic(root / NAME, encode_note(served))
    except OSError as error:
        log.warn("{path} is not written: {error}", path=root / NAME, error=error)
