"""The note beside a journal directory: its last journal, and the ledgers whose fences may be lost.

A Java bookie can lose fences in a crash, and even in a clean stop (storage.md section 17, D1 to
D3), and the directories do not show it afterwards. So ``bookied.journal`` lies beside ``current``
of each journal directory, with the id of the last journal that bookied has begun. Every bookie
begins a journal at each start. So a journal with a higher id was begun by another bookie, unless
the journal consists of groups, which only bookied writes: then bookied ended before it could note
the id. After another bookie has used the directory, the file says for ever that fences are in
doubt. Only lower ids mean that journals were lost (``emptied_directories``).

A new bookie may have a predecessor with the same id, in which clients have fenced ledgers. So the
bookie notes the highest existing ledger before it has a cookie: fences are in doubt up to that
ledger.

    journal <id in hex>|none
    fences kept|in doubt|in doubt to <id in hex>
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from contextlib import closing, suppress
from pathlib import Path
from typing import Final

import attrs
from twisted.logger import Logger

from bookied.directories.roots import CURRENT
from bookied.storage.files.files import Files, read_if_there
from bookied.storage.journal import format as layout
from bookied.storage.journal import group_format
from bookied.storage.journal.reader import journal_ids

NAME: Final = "bookied.journal"

NO_JOURNAL: Final = -1
"""The journal id before bookied has begun a journal."""

NO_LEDGER: Final = -1
ALL_LEDGERS: Final = 2**63 - 1

_CONTENT: Final = re.compile(
    r"journal (?:none|([0-9a-f]{1,16}))\nfences (kept|in doubt|in doubt to ([0-9a-f]{1,16}))\n"
)
_KEPT, _IN_DOUBT = "kept", "in doubt"

log = Logger()


@attrs.frozen
class LastJournalNote:
    """The note of bookied beside a journal directory's ``current``."""

    journal_id: int
    """The last journal that bookied has begun, or ``NO_JOURNAL``."""
    in_doubt_to: int
    """Fences of ledgers up to this id may be lost; from ``NO_LEDGER`` to ``ALL_LEDGERS``."""


def encode_note(served: LastJournalNote) -> bytes:
    """Return the file's content."""
    last, doubt = served.in_doubt_to, f"{_IN_DOUBT} to {served.in_doubt_to:x}"
    fences = {NO_LEDGER: _KEPT, ALL_LEDGERS: _IN_DOUBT}.get(last, doubt)
    journal = "none" if served.journal_id == NO_JOURNAL else f"{served.journal_id:x}"
    return f"journal {journal}\nfences {fences}\n".encode()


def decode_note(data: bytes) -> LastJournalNote | None:
    """Return the note in a file; None if bookied did not write the file."""
    found = _CONTENT.fullmatch(data.decode("utf-8", "replace"))
    if found is None:
        return None
    journal_id = NO_JOURNAL if found[1] is None else int(found[1], 16)
    if found[3] is not None:
        return LastJournalNote(journal_id, min(int(found[3], 16), ALL_LEDGERS))
    return LastJournalNote(journal_id, NO_LEDGER if found[2] == _KEPT else ALL_LEDGERS)


def read_note(files: Files, root: Path) -> LastJournalNote | None:
    """Return the note of a journal directory's root; None if it is missing or invalid. Blocks.

    Raises:
        OSError: the file exists and cannot be read.
    """
    data = read_if_there(files, root / NAME)
    return None if data is None else decode_note(data)


def fences_in_doubt_to(files: Files, journal_roots: Iterable[Path]) -> int:
    """Return the highest ledger id whose fence may have been lost. Blocks.

    If the note is missing or damaged and journals exist, all fences are in doubt.

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
    """Note durably that fences up to this ledger may be lost. Blocks.

    Raises:
        OSError: the note cannot be written; then the bookie must not start.
    """
    for root in journal_roots:
        last = max(ledger_id, _in_doubt_to(files, root))
        served = read_note(files, root) or LastJournalNote(NO_JOURNAL, last)
        files.write_atomic(root / NAME, encode_note(attrs.evolve(served, in_doubt_to=last)))


def _is_in_groups(files: Files, path: Path) -> bool:
    with closing(files.open_read(path)) as file, suppress(group_format.FileMarkDamagedError):
        head = file.read_at(layout.HEADER_BYTES[layout.VERSION], group_format.FILE_MARK_BYTES)
        return group_format.parse_file_mark(head) is not None
    return False


def note_journal(files: Files, root: Path, served: LastJournalNote) -> None:
    """Note the begun journal, after its name is durable. Blocks.

    If this fails, or the process ends before, the next start finds fences in doubt. That costs some
    requests. The opposite order could lose fences.
    """
    try:
        files.write_atomic(root / NAME, encode_note(served))
    except OSError as error:
        log.warn("{path} is not written: {error}", path=root / NAME, error=error)
