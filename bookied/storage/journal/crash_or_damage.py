"""Rules that separate crashes from damage in a directory's journals: storage.md section 3.

The rules are about several journals. ``reader`` finds torn and damaged records in one journal,
``group_reader`` in a journal with groups.

A crash tears the last journal, after everything that was acknowledged. A crash never makes a gap
between journals, a torn journal that another follows, complete groups after the position where
reading stopped, or a mark where no record begins. To continue then would treat acknowledged entries
as never written, and clients would take that as proof.
"""

from __future__ import annotations

import struct
from collections.abc import Iterator
from contextlib import closing, suppress
from itertools import islice, pairwise
from pathlib import Path
from typing import Final

from twisted.logger import Logger

from bookied.errors import CorruptError, JournalMissingError, JournalRecordError
from bookied.storage.files.files import Files
from bookied.storage.journal import format as layout
from bookied.storage.journal.group_format import BLOCK_BYTES
from bookied.storage.journal.mark import START, LastMark
from bookied.storage.journal.reader import CHUNK_BYTES, JournalScan, journal_ids, open_scan

log = Logger()

BEHIND_END_MAX: Final = 4
"""Bytes of the zero length that ended a replay: Java's mark after the replay is behind it."""

OWN_RECORDS: Final = 16
"""The first records of a journal: at least one must be of a ledger of the directory."""

_PADDING: Final = layout.LENGTH.pack(layout.PADDING_MARK)
_RECORD: Final = struct.Struct(">iqq")


def journals_to_replay(
    files: Files, directory: Path, mark: LastMark, *, may_be_missing: bool = False
) -> list[int]:
    """Return the journals from the mark's on, ascending; with ``may_be_missing`` the existing ones.

    Raises:
        JournalMissingError: the journal that the mark names, or a later one, is missing.
    """
    ids = [number for number in journal_ids(files, directory) if number >= mark.journal_id]
    if may_be_missing:
        return ids
    if mark.journal_id > 0 and ids[:1] != [mark.journal_id]:
        path = directory / layout.file_name(mark.journal_id)
        raise JournalMissingError(path, None, "lastMark names this journal, but it is missing")
    for before, after in pairwise(ids):
        if after != before + 1:
            path = directory / layout.file_name(before + 1)
            message = f"missing between {layout.file_name(before)} and {layout.file_name(after)}"
            raise JournalMissingError(path, None, message)
    return ids


def require_own_journals(
    files: Files, directory: Path, mark: LastMark, number: int, count: int
) -> None:
    """Check that journals from the mark on have records of the ledgers of their directory.

    Journals of another directory may have the same ids. Their mark could skip records.

    Args:
        files: the disk.
        directory: the journal directory.
        mark: of the directory.
        number: the index of the directory among the bookie's journal directories.
        count: the number of journal directories.

    Raises:
        JournalMissingError: the first records of a journal are of ledgers of other directories.
    """
    for journal_id in journal_ids(files, directory):
        path, first = directory / layout.file_name(journal_id), list[int]()
        if journal_id >= mark.journal_id and count > 1:
            # Replay reports a journal that cannot be read.
            with suppress(CorruptError), closing(open_scan(files, path)) as scan:
                first += (record.ledger_id for record in islice(scan, OWN_RECORDS))
        if first and not any(ledger_id % count == number for ledger_id in first):
            message = (
                f"holds the ledgers of journal directory {first[0] % count + 1} of {count}, and is "
                f"in directory {number + 1}: were directories exchanged or copied?"
            )
            raise JournalMissingError(path, None, message)


def has_begin(files: Files, path: Path) -> bool:
    """Return whether a journal begins with the magic, as all do since version 2."""
    with closing(files.open_read(path)) as file:
        return file.read_at(0, len(layout.MAGIC)) == layout.MAGIC


def trusted_mark(
    files: Files, directory: Path, mark: LastMark, *, may_be_cut: bool = False
) -> LastMark:
    """Return where replay starts: at the mark, or at ``START`` if no record can end at the mark.

    Replaying records twice is harmless; records that a wrong mark skips are lost.

    Raises:
        JournalRecordError: the journal ends before its mark, unless it ``may_be_cut``.
    """
    path = directory / layout.file_name(mark.journal_id)
    try:
        if mark.offset == 0 or not files.exists(path) or is_boundary(files, path, mark.offset):
            return mark
    except JournalRecordError:
        if not may_be_cut:
            raise
    log.warn(
        "lastMark is at {offset} of {path}, where no record begins: all journals are replayed",
        offset=mark.offset,
        path=path,
    )
    return START


def is_boundary(files: Files, path: Path, offset: int) -> bool:
    """Return whether a mark can be at ``offset``: a record ends or begins there.

    The journal is read from its start only if nothing can be read at the mark.

    Raises:
        JournalRecordError: the journal was synced up to the mark, and ends before it. Records after
            the mark are lost as well.
    """
    if offset == files.size(path) or _reads_on(files, path, offset):
        return True
    with closing(open_scan(files, path)) as scan:
        try:
            for record in scan:
                if record.offset >= offset:
                    return True
                if offset < record.offset + layout.LENGTH.size + len(record.body):
                    return False
        except CorruptError:
            return True  # An unreadable record proves nothing against the mark.
    if offset <= scan.end + BEHIND_END_MAX:
        return True
    # Only bookied or a replay writes the mark of a journal in groups: the mark is right.
    if scan.has_groups and (offset > scan.size or not scan.is_torn):
        message = f"ends here, and lastMark is at {offset}: it was cut, or is an older copy"
        raise JournalRecordError(path, scan.end, message)
    return False


def _reads_on(files: Files, path: Path, offset: int) -> bool:
    try:
        scan = open_scan(files, path, offset)
    except CorruptError:
        return True  # Replay reports the damage.
    with closing(scan), suppress(CorruptError):
        return next(iter(scan), None) is not None
    return False


def blank_ends(files: Files, directory: Path, mark: LastMark) -> list[Path]:
    """Return the newest journals that have only zeros: a crash interrupted their creation.

    The journal that the mark names is never among them: it must exist.
    """
    found = []
    for number in reversed(journal_ids(files, directory)):
        with closing(open_scan(files, directory / layout.file_name(number))) as scan:
            if number <= mark.journal_id or not scan.is_blank:
                break
        found.append(scan.path)
    return found


def check_end(scan: JournalScan, *, is_last: bool, has_mark: bool) -> None:
    """Check that a journal, read to its end, ends as a crash or a close leaves it.

    Args:
        scan: after iterating.
        is_last: whether no other journal follows it.
        has_mark: whether the mark names this journal.

    Raises:
        JournalRecordError: the journal was complete once, and is damaged.
    """
    if scan.end == scan.start and not is_last:
        if has_mark and (not scan.is_torn or _is_within_group(scan, scan.start)):
            return  # An earlier start has replayed this journal up to the tear.
        if scan.is_blank:  # After a crash the next start removes an empty journal.
            raise JournalRecordError(scan.path, 0, "is empty, and a later journal follows it")
    if not scan.is_torn and scan.residue() is None:
        return
    if not is_last:
        raise JournalRecordError(scan.path, scan.end, "ends here, and a later journal follows it")
    if scan.version >= layout.PADDING_SINCE and not scan.has_groups:
        for later in _groups_behind(scan):
            message = f"damaged, and the records after it, at {later}, are intact"
            raise JournalRecordError(scan.path, scan.end, message)


def _is_within_group(scan: JournalScan, mark: int) -> bool:
    """Return whether only Java sets a mark here: where it stopped reading a torn group."""
    return scan.has_groups and mark % BLOCK_BYTES != 0


def _groups_behind(scan: JournalScan) -> Iterator[int]:
    """Yield where groups begin in a file without checksums: after padding, with a record.

    At most one group is written before the group in front of it is on disk.
    """
    at: int | None = scan.end
    while at is not None and (at := scan.next_data(at)) is not None and at < scan.size:
        data = scan.read_at(at, CHUNK_BYTES)
        found = data.find(_PADDING)
        while found >= 0:
            begin = _end_of_padding(scan, at + found)
            if begin is not None and _is_record(scan, begin):
                yield begin
            found = data.find(_PADDING, found + 1)
        at += CHUNK_BYTES - len(_PADDING) + 1


def _end_of_padding(scan: JournalScan, at: int) -> int | None:
    """Return where the group after the padding at ``at`` begins; None if there is no padding."""
    head = scan.read_at(at, 2 * layout.LENGTH.size)
    if len(head) < 2 * layout.LENGTH.size:
        return None
    length = int(layout.LENGTH.unpack_from(head, layout.LENGTH.size)[0])
    end = at + len(head) + length
    if length < 0 or end % layout.SECTOR or end > scan.size:
        return None
    return None if scan.read_at(at + len(head), length).strip(b"\0") else end


def _is_record(scan: JournalScan, at: int) -> bool:
    head = scan.read_at(at, _RECORD.size)
    if len(head) < _RECORD.size:
        return False
    length, ledger_id, entry_id = _RECORD.unpack(head)
    is_entry = entry_id >= 0 and length >= layout.ENTRY_BYTES_MIN
    is_known = is_entry or (entry_id in layout.SINCE and length >= layout.BODY_BYTES_MIN)
    return bool(is_known and ledger_id >= 0 and at + layout.LENGTH.size + length <= scan.size)
