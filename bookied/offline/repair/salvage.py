"""The salvage of one ledger's entries from logs and journals, without index and metadata.

All entries are found first. Then they are written in order: payloads into one file, the other data
of each entry into another. Of several copies of an entry, one with a right digest is used, else the
one in the latest log. The bookie's directories are not changed and may be damaged.
"""

from __future__ import annotations

import base64
import contextlib
import itertools
import json
import struct
from array import array
from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import Any, Final

import attrs

from bookied.directories.roots import Directories
from bookied.errors import CorruptError, EntryLogRecordError
from bookied.offline.entries_without_password import find_digest
from bookied.offline.journal_tail import JournalledLedger
from bookied.offline.repair.rescan import Progress, Rescan
from bookied.storage.entrylog import format as log_layout
from bookied.storage.entrylog.entry_rows import RECORD_BYTES_MAX
from bookied.storage.entrylog.log_list import list_logs
from bookied.storage.files.files import AppendFile, Files, ReadFile
from bookied.storage.files.open_files import OpenFiles
from bookied.storage.files.read_errors import lost_is_damaged, read_before_loss
from wire.codes import ENTRY_HEADER_BYTES, DigestType
from wire.digest import Digester, digester, header
from wire.errors import DigestMismatchError

SAMPLES_MAX: Final = 100
"""Entries that are read to find the kind of digest."""

_OF_SIZE: Final = {
    4: DigestType.CRC32C,
    8: DigestType.CRC32,
    20: DigestType.MAC,
    0: DigestType.DUMMY,
}
_LENGTH: Final = struct.Struct(">I")
_SLOTS: Final = 1024
_EMPTY: Final = array("q", bytes(8 * _SLOTS))
_OFFSET_BITS: Final = 40
_PARTIAL: Final = ".partial"
_CHUNK_BYTES: Final = 1 << 20
_BLOCK_BYTES: Final = 4096
_IDS_BYTES: Final = 16


@attrs.frozen
class SalvagedLedger:
    """The result for one ledger.

    ``entries`` are in the payload file. ``refused`` entries are only in the list, as complete
    packets: their digest is wrong, or the offset of their payload is unknown. ``unverified`` are
    those of ``entries`` whose digest cannot be checked: the password is unknown, or there is no
    digest.
    """

    ledger_id: int
    entries: int
    refused: int
    unverified: int
    first: int | None
    last: int | None
    missing: int
    """Entries between 0 and the last that were not found."""
    payload_bytes: int
    digest: DigestType | None
    is_fenced: bool
    """Whether a journal has a fence; a fence in an index is not included."""
    payload_path: Path | None
    list_path: Path | None
    damaged: list[CorruptError] = attrs.field(factory=list)


@attrs.frozen
class _Copy:
    """One copy of an entry."""

    path: Path
    offset: int
    packet: bytes


def salvage(
    files: Files,
    found: Directories,
    ledger_id: int,
    out: Path,
    *,
    password: bytes | None = None,
    digest: DigestType | None = None,
    progress: Progress = lambda _bytes: None,
) -> SalvagedLedger:
    """Write the entries found of a ledger into ``out``, over those of an earlier run.

    ``ledger-ID.entries`` has the payloads in entry order, each after its length (4 bytes,
    big-endian). ``ledger-ID.jsonl`` has a line for each entry. If no entry is found, nothing is
    written. If no digest is right (the password is wrong), the files of an earlier run are kept.
    They are also kept if they have an entry that this run did not save, such as those of a run on
    another bookie.

    Args:
        files: the disk.
        found: the bookie's roots.
        ledger_id: the ledger.
        out: a directory, created if missing.
        password: the ledger's password, to check MAC digests; None if unknown.
        digest: the kind of digest; None to detect it.
        progress: gets the progress of the search.

    Raises:
        OSError: a file cannot be read, or there is no space in ``out``.
        EarlierEntriesError: the files of an earlier run have more entries.
    """
    search = _RecordSearch(files, found, ledger_id, Rescan(files, progress))
    search.run()
    with contextlib.closing(search):
        return _write(search, ledger_id, out, password, digest)


class _RecordSearch:
    """The places of a ledger's entries: 16 bytes of memory for each entry."""

    def __init__(self, files: Files, found: Directories, ledger_id: int, rescan: Rescan) -> None:
        self.files, self._found, self.ledger_id = files, found, ledger_id
        self.rescan = rescan
        self.journalled = JournalledLedger()
        self._sources: list[Path] = []
        self._in_logs: dict[int, array[int]] = {}
        self._in_journals: dict[int, array[int]] = {}
        self._others: dict[int, list[int]] = {}
        """Places of further copies: older ones, and copies found after damage."""
        self._open = OpenFiles(files, files_max=64)

    def run(self) -> None:
        """Read all logs and journals."""
        by_id = sorted(
            (log_id, path)
            for directory in dict.fromkeys(self._found.ledger_dirs)
            for log_id, path in list_logs(self.files, [directory]).items()
        )
        for log_id, path in by_id:
            for record in self.rescan.log(log_id, path):
                if record.ledger_id == self.ledger_id and record.entry_id >= 0:
                    _log_id, body_at = log_layout.split_location(record.location)
                    self._put(self._in_logs, record.entry_id, path, body_at - 4)
        for directory in self._found.journal_dirs:
            for path, entry in self.rescan.journal_records(directory):
                if entry.ledger_id == self.ledger_id:
                    if entry.entry_id >= 0:
                        self._put(self._in_journals, entry.entry_id, path, entry.offset)
                    else:
                        self.journalled.take(entry)

    def _put(self, pages: dict[int, array[int]], entry_id: int, path: Path, offset: int) -> None:
        page = pages.get(entry_id // _SLOTS)
        if page is None:
            page = pages[entry_id // _SLOTS] = _EMPTY[:]
        if older := page[entry_id % _SLOTS]:
            self._others.setdefault(entry_id, []).append(older)
        page[entry_id % _SLOTS] = self._place(path, offset)

    def _place(self, path: Path, offset: int) -> int:
        """Return a place as a number: the source's number, from 1 on, and the offset.

        0 means none.
        """
        if not self._sources or self._sources[-1] != path:
            self._sources.append(path)
        return len(self._sources) << _OFFSET_BITS | offset

    def search_damaged(self, is_right: Callable[[_Copy, int], bool]) -> None:
        """Search damaged files for further records of the ledger that ``is_right`` accepts.

        Damage hides the start of the next record, but a record contains the id of its ledger.
        """
        damaged = dict.fromkeys(damage.path for damage in self.rescan.damaged)
        places = itertools.chain.from_iterable(self._all_places()) if damaged else ()
        known = {one for one in map(self._split, places) if one[0] in damaged}
        for path in damaged:
            for offset, entry_id in self._heads(path):
                if (path, offset) in known:
                    continue
                with contextlib.suppress(CorruptError):
                    if is_right(self._copy(path, offset), entry_id):
                        self._others.setdefault(entry_id, []).append(self._place(path, offset))

    def _heads(self, path: Path) -> Iterator[tuple[int, int]]:
        """Yield offset and entry id of possible records in a file, if the disk opens it."""
        lost = lost_is_damaged(path, EntryLogRecordError)
        with (
            contextlib.suppress(CorruptError, FileNotFoundError),
            lost,
            self._open.use(path) as file,
        ):
            yield from _heads(file, self.ledger_id)

    def _copy(self, path: Path, offset: int) -> _Copy:
        """Return the copy at a place.

        Raises:
            EntryLogRecordError: the disk has lost it.
        """
        with lost_is_damaged(path, EntryLogRecordError, offset), self._open.use(path) as file:
            return _Copy(path, offset, _read_packet(file, offset))

    def _all_places(self) -> Iterator[Iterable[int]]:
        yield from (page for pages in (self._in_logs, self._in_journals) for page in pages.values())
        yield from self._others.values()

    def _split(self, place: int) -> tuple[Path | None, int]:
        path = self._sources[(place >> _OFFSET_BITS) - 1] if place else None
        return path, place & (1 << _OFFSET_BITS) - 1

    def entry_ids(self) -> Iterator[int]:
        """Yield the ids of all entries that were found, ascending."""
        others = {entry_id // _SLOTS for entry_id in self._others}
        for page_no in sorted({*self._in_logs, *self._in_journals, *others}):
            in_log = self._in_logs.get(page_no, _EMPTY)
            in_journal = self._in_journals.get(page_no, _EMPTY)
            for slot in range(_SLOTS):
                entry_id = page_no * _SLOTS + slot
                if in_log[slot] or in_journal[slot] or entry_id in self._others:
                    yield entry_id

    def copies(self, entry_id: int) -> Iterator[_Copy]:
        """Yield the latest copy in the logs, then the one in the journals, then all others.

        What the disk has lost since it was found is left out.
        """
        pages = (self._in_logs, self._in_journals)
        latest = (one.get(entry_id // _SLOTS, _EMPTY)[entry_id % _SLOTS] for one in pages)
        for place in (*latest, *reversed(self._others.get(entry_id, ()))):
            path, offset = self._split(place)
            copy = None
            with self.rescan.noting_damage():
                copy = None if path is None else self._copy(path, offset)
            if copy is not None:
                yield copy

    def close(self) -> None:
        """Close all files."""
        self._open.close()


def _read_packet(file: ReadFile, offset: int) -> bytes:
    (size,) = _LENGTH.unpack(file.read_at(offset, _LENGTH.size))
    return file.read_at(offset + _LENGTH.size, size)


def _heads(file: ReadFile, ledger_id: int) -> Iterator[tuple[int, int]]:
    """Yield (offset, entry id) of all possible records of a ledger."""
    size, at, wanted = file.size(), 0, struct.pack(">q", ledger_id)
    while at < size:
        data = read_before_loss(file, at, _CHUNK_BYTES, 0)
        found = data.find(wanted, _LENGTH.size)
        while 0 <= found <= len(data) - _IDS_BYTES:
            length, _, entry_id = log_layout.RECORD.unpack_from(data, found - _LENGTH.size)
            offset = at + found - _LENGTH.size
            if entry_id >= 0 and ENTRY_HEADER_BYTES <= length <= min(
                size - offset, RECORD_BYTES_MAX
            ):
                yield offset, entry_id
            found = data.find(wanted, found + 1)
        if len(data) == _CHUNK_BYTES:
            at += len(data) - log_layout.RECORD.size + 1
        else:  # At the end, or before a block that the disk has lost.
            at += len(data) - (at + len(data)) % _BLOCK_BYTES + _BLOCK_BYTES


# The kind of digest -------------------------------------------------------------------------------


def _find_digest(search: _RecordSearch) -> DigestType | None:
    """Return the digest of most of the first entries; None if it cannot be determined.

    Each packet has the ledger's length up to and including its entry. The difference between two
    neighbours is the later one's payload size; the rest of its packet is the digest.
    """
    sizes: Counter[int] = Counter()
    before = (-1, 0)
    for entry_id in itertools.islice(search.entry_ids(), SAMPLES_MAX):
        copy = next(search.copies(entry_id), None)
        packet = b"" if copy is None else copy.packet
        if len(packet) < ENTRY_HEADER_BYTES:
            continue
        length = header(packet).length
        if before[0] == entry_id - 1:
            sizes[len(packet) - ENTRY_HEADER_BYTES - (length - before[1])] += 1
        before = (entry_id, length)
    for size, _ in sizes.most_common():
        if size in _OF_SIZE:
            return _OF_SIZE[size]
    return _by_trying(search)


def _by_trying(search: _RecordSearch) -> DigestType | None:
    """Return the checksum that an entry without neighbours matches; None if there is none."""
    for entry_id in itertools.islice(search.entry_ids(), SAMPLES_MAX):
        for copy in search.copies(entry_id):
            if (kind := find_digest(copy.packet)) is not None:
                return kind
    return None


# Writing ------------------------------------------------------------------------------------------


@attrs.define
class _SalvageCounts:
    entries: int = 0
    refused: int = 0
    unverified: int = 0
    payload_bytes: int = 0
    first: int | None = None
    last: int | None = None

    def found(self, entry_id: int) -> None:
        self.first = entry_id if self.first is None else self.first
        self.last = entry_id


class _NothingRightError(Exception):
    """All entries were refused, so the files of an earlier run must be kept."""


class EarlierEntriesError(Exception):
    """The files of an earlier run have an entry that this run did not save; they are kept."""

    def __init__(self, entry_id: int) -> None:
        super().__init__(f"an earlier run has saved entry {entry_id}")
        self.entry_id = entry_id


def _write(
    search: _RecordSearch,
    ledger_id: int,
    out: Path,
    password: bytes | None,
    digest: DigestType | None,
) -> SalvagedLedger:
    kind = digest or _find_digest(search)
    tally = _SalvageCounts()
    paths: tuple[Path | None, Path | None] = (None, None)
    if kind is None:
        search.search_damaged(lambda copy, _entry_id: find_digest(copy.packet) is not None)
        kind = _find_digest(search)
    checker = _Checker(ledger_id, kind, password)
    if checker.can_check:
        search.search_damaged(checker.is_right)
    if next(search.entry_ids(), None) is not None:
        with contextlib.suppress(_NothingRightError):
            paths = _write_files(search, ledger_id, out, checker, tally)
    found = tally.entries + tally.refused
    return SalvagedLedger(
        ledger_id=ledger_id,
        **attrs.asdict(tally),
        missing=0 if tally.last is None else tally.last + 1 - found,
        digest=kind,
        is_fenced=search.journalled.is_fenced,
        payload_path=paths[0],
        list_path=paths[1],
        damaged=search.rescan.damaged,
    )


def _write_files(
    search: _RecordSearch, ledger_id: int, out: Path, checker: _Checker, tally: _SalvageCounts
) -> tuple[Path, Path]:
    files = search.files
    files.mkdirs(out)
    files.sync_dir(out.parent)
    payloads, listing = out / f"ledger-{ledger_id}.entries", out / f"ledger-{ledger_id}.jsonl"
    with _written(files, payloads) as payload_file, _written(files, listing) as list_file:
        for entry_id in search.entry_ids():
            best = checker.best(search.copies(entry_id), entry_id)
            if best is None:
                continue
            tally.found(entry_id)
            copy, is_right = best
            _write_entry(copy, entry_id, is_right, checker, (payload_file, list_file), tally)
        if not tally.entries and files.exists(payloads):
            raise _NothingRightError
        list_file.flush()
        lost = _first_lacking(_saved(files, listing), _saved(files, _partial(listing)))
        if lost is not None:
            raise EarlierEntriesError(lost)
    return payloads, listing


def _saved(files: Files, listing: Path) -> Iterator[int]:
    """Yield the ids of the entries that a list names as saved, in order."""
    if not files.exists(listing):
        return
    with contextlib.closing(files.open_read(listing)) as file:
        at, rest, size = 0, b"", file.size()
        while at < size:
            chunk = file.read_at(at, min(_CHUNK_BYTES, size - at))
            at += len(chunk)
            *lines, rest = (rest + chunk).split(b"\n")
            rows = map(json.loads, lines)
            yield from (row["entry"] for row in rows if "length" in row)


def _first_lacking(wanted: Iterable[int], present: Iterator[int]) -> int | None:
    """Return the first number that a second ordered sequence lacks; None if it has all."""
    last = -1
    for one in wanted:
        while last < one:
            last = next(present, one + 1)
        if last != one:
            return one
    return None


def _write_entry(
    copy: _Copy,
    entry_id: int,
    is_right: bool | None,  # noqa: FBT001  # one of three answers
    checker: _Checker,
    outputs: tuple[_BufferedWriter, _BufferedWriter],
    tally: _SalvageCounts,
) -> None:
    payload = None if is_right is False else checker.payload(copy.packet)
    line: dict[str, Any] = {
        "entry": entry_id,
        "verified": is_right,
        "file": str(copy.path),
        "offset": copy.offset,
    }
    if len(copy.packet) >= ENTRY_HEADER_BYTES:
        head = header(copy.packet)
        line |= {"last_add_confirmed": head.lac, "ledger_length": head.length}
    if payload is None:
        tally.refused += 1
        line["packet_b64"] = base64.b64encode(copy.packet).decode("ascii")
    else:
        tally.entries += 1
        tally.unverified += is_right is None
        tally.payload_bytes += len(payload)
        line["length"] = len(payload)
        outputs[0].write([_LENGTH.pack(len(payload)), payload])
    outputs[1].write([json.dumps(line).encode() + b"\n"])


def _partial(path: Path) -> Path:
    """Return the file that is written before it replaces ``path``."""
    return path.with_name(path.name + _PARTIAL)


@contextlib.contextmanager
def _written(files: Files, path: Path) -> Iterator[_BufferedWriter]:
    """Yield a file that replaces ``path`` once the block has ended without an error."""
    partial = _partial(path)
    if files.exists(partial):
        files.remove(partial)
    file = files.open_append(partial)
    try:
        buffered = _BufferedWriter(file)
        yield buffered
        buffered.flush()
        file.sync()
    except BaseException:
        file.close()
        with contextlib.suppress(OSError):
            files.remove(partial)
        raise
    file.close()
    files.rename(partial, path)
    files.sync_dir(path.parent)


class _Checker:
    """The reader and verifier of entries with one kind of digest."""

    def __init__(self, ledger_id: int, kind: DigestType | None, password: bytes | None) -> None:
        self._ledger_id = ledger_id
        self._digester: Digester | None = None
        self.can_check = kind in {DigestType.CRC32, DigestType.CRC32C} or (
            kind is DigestType.MAC and password is not None
        )
        if kind is not None:
            self._digester = digester(kind, password or b"")

    def best(self, copies: Iterator[_Copy], entry_id: int) -> tuple[_Copy, bool | None] | None:
        """Return a right copy, else the first one; and whether it is right, None if unknown."""
        first = next(copies, None)
        if first is None:
            return None
        for copy in itertools.chain((first,), copies) if self.can_check else ():
            if self.is_right(copy, entry_id):
                return copy, True
        return first, False if self.can_check else None

    def is_right(self, copy: _Copy, entry_id: int) -> bool:
        """Return whether the digest of a copy is right."""
        assert self._digester is not None
        try:
            self._digester.verify(self._ledger_id, entry_id, copy.packet)
        except DigestMismatchError:
            return False
        return True

    def payload(self, packet: bytes) -> bytes | None:
        """Return the payload of a packet; None if its offset is unknown."""
        if self._digester is None:
            return None
        start = ENTRY_HEADER_BYTES + self._digester.size
        return packet[start:] if len(packet) >= start else None


class _BufferedWriter:
    """A writer that joins small writes."""

    def __init__(self, file: AppendFile) -> None:
        self._file, self._buffers, self._buffered_bytes = file, list[bytes](), 0

    def write(self, buffers: list[bytes]) -> None:
        """Buffer bytes; ``flush`` writes them at the latest."""
        self._buffers += buffers
        self._buffered_bytes += sum(map(len, buffers))
        if self._buffered_bytes >= 1 << 20:
            self.flush()

    def flush(self) -> None:
        """Write the buffered bytes."""
        self._file.write(self._buffers)
        self._buffers, self._buffered_bytes = [], 0
