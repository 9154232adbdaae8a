"""Whether another program has served a bookie's directories since ours did.

A Java bookie may lose fences over a crash, and even over a clean stop (storage.md section 17, D1 to
D3), and nothing in the directories tells so afterwards. So beside ``current`` of each journal
directory lies ``bookied.journal``, with the id of the last journal that ours has begun. A higher
one was begun by another bookie, as every bookie begins one at each start, unless it is in groups,
which no other bookie writes: then ours ended before it could put the id down. Once there was
another, the file says for good that fences are in doubt. A lower one alone says that journals were
lost (``held``).

    journal <id in hex>
    fences kept|in doubt
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
from bookied.storage.journal import groups
from bookied.storage.journal.reader import journal_ids

NAME: Final = "bookied.journal"

_CONTENT: Final = re.compile(r"journal ([0-9a-f]+)\nfences (kept|in doubt)\n")
_KEPT, _IN_DOUBT = "kept", "in doubt"

log = Logger()


@attrs.frozen
class Served:
    """What ours has left beside a journal directory's ``current``."""

    journal_id: int
    """The last journal it has begun there."""
    fences_in_doubt: bool


def encode_served(served: Served) -> bytes:
    """Return the file's content."""
    fences = _IN_DOUBT if served.fences_in_doubt else _KEPT
    return f"journal {served.journal_id:x}\nfences {fences}\n".encode()


def decode_served(data: bytes) -> Served | None:
    """Return what a file says; None if a bookie of ours did not write it."""
    found = _CONTENT.fullmatch(data.decode("utf-8", "replace"))
    if found is None:
        return None
    return Served(int(found[1], 16), found[2] == _IN_DOUBT)


def read_served(files: Files, root: Path) -> Served | None:
    """Return what ours has left in a journal directory's root; None if that says nothing. Blocks.

    Raises:
        OSError: it is there and cannot be read.
    """
    try:
        return decode_served(files.read(root / NAME))
    except FileNotFoundError:
        return None


def fences_are_in_doubt(files: Files, journal_roots: Iterable[Path]) -> bool:
    """Whether anybody else has served these directories at any time. Blocks.

    A file that is missing or damaged says nothing: with journals beside it, fences are in doubt.

    Raises:
        OSError: a directory cannot be read.
    """
    return any(_is_in_doubt(files, root) for root in journal_roots)


def _is_in_doubt(files: Files, root: Path) -> bool:
    ids = journal_ids(files, root / CURRENT)
    served = read_served(files, root)
    if served is None:
        return bool(ids)
    later = [number for number in ids if number > served.journal_id]
    return served.fences_in_doubt or not all(
        _is_in_groups(files, root / CURRENT / layout.file_name(number)) for number in later
    )


def _is_in_groups(files: Files, path: Path) -> bool:
    file = files.open_read(path)
    try:
        head = file.read_at(layout.HEADER_BYTES[layout.VERSION], groups.FILE_MARK_BYTES)
        return groups.parse_file_mark(head) is not None
    except groups.FileMarkDamagedError:
        return False
    finally:
        file.close()


def note_journal(files: Files, root: Path, served: Served) -> None:
    """Put down which journal was begun, once its name is durable. Blocks.

    Where that fails, or the process ends before, the next start finds fences in doubt: that costs
    some questions, and the other way round it would cost fences.
    """
    try:
        files.write_atomic(root / NAME, encode_served(served))
    except OSError as error:
        log.warn("{path} is not written: {error}", path=root / NAME, error=error)
