"""Takes the entries of one ledger out of a bookie's logs and journals: no index, no metadata.

All of them are found first, then written in order: payloads into one file, and what is known of
each entry into another. An entry that is there more than once comes from where its digest is right,
else from the latest log. Nothing in the bookie's directories is changed, or need be whole.
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
from bookied.errors import CorruptError
from bookied.offline.entries_without_password import find_digest
from bookied.offline.journal_tail import JournalledLedger
from bookied.offline.repair.rescan import Rescan, Tell
from bookied.storage.entrylog import format as log_layout
from bookied.storage.entrylog import reader as logs
from bookied.storage.files.files import AppendFile, Files, ReadFile
from bookied.storage.files.open_files import OpenFiles
from bookied.storage.files.read_errors import read_before_loss
from wire.codes import ENTRY_HEADER_BYTES, DigestType
from wire.digest import Digester, digester, header
from wire.errors import DigestMismatchError

SAMPLES_MAX: Final = 100
"""Entries that are looked at to find the kind of digest."""

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
    """What came out of the files for one ledger.

    ``entries`` are in the payload file, ``refused`` ones (their digest is wrong, or it is unknown
    where their payload begins) only as whole packets in the list. ``unverified`` are those among
    ``entries`` whose digest cannot be checked: the password is not known, or there is none.
    """

    ledger_id: int
    entries: int
    refused: int
    unverified: int
    first: int | None
    last: int | None
    missing: int
    """Entries between 0 and the last that are nowhere."""
    payload_bytes: int
    digest: DigestType | None
    is_fenced: bool
    """A journal says so; an index may know more."""
    payload_path: Path | None
    list_path: Path | None
    damaged: list[CorruptError] = attrs.field(factory=list)


@attrs.frozen
class _Copy:
    """One entry as one file has it."""

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
    tell: Tell = lambda _bytes: None,
) -> SalvagedLedger:
    """Write the entries found of a ledger into ``out``, over what an earlier run wrote there.

    ``ledger-ID.entries`` has the payloads, each after its length (4 bytes, big-endian), in order of
    their entry ids; ``ledger-ID.jsonl`` has a line for each entry. With nothing found, nothing is
    written; with nothing right (the password is wrong), what an earlier run saved stays.

    Args:
        files: the disk.
        found: the bookie's roots.
        ledger_id: which.
        out: a directory; made if it is not there.
        password: of the ledger, to check the MAC digests; None if it is not known.
        digest: the kind of digest; None to find it out.
        tell: hears how far the search is.

    Raises:
        OSError: something cannot be read, or there is no space in ``out``.
    """
    search = _RecordSearch(files, found, ledger_id, Rescan(files, tell))
    search.run()
    try:
        return _write(search, ledger_id, out, password, digest)
    finally:
        search.close()


class _RecordSearch:
    """Where the entries of a ledger are: 16 bytes of memory for each."""

    def __init__(self, files: Files, found: Directories, ledger_id: int, rescan: Rescan) -> None:
        self.files, self._found, self.ledger_id = files, found, ledger_id
        self.rescan = rescan
        self.journalled = JournalledLedger()
        self._sources: list[Path] = []
        self._in_logs: dict[int, array[int]] = {}
        self._in_journals: dict[int, array[int]] = {}
        self._others: dict[int, list[int]] = {}
        """Places of more copies: older ones, and those that were found after damage."""
        self._open = OpenFiles(files, files_max=64)

    def run(self) -> None:
        """Go through all logs and journals."""
        by_id = sorted(
            (log_id, path)
            for directory in dict.fromkeys(self._found.ledger_dirs)
            for log_id, path in logs.list_logs(self.files, [directory]).items()
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
        """Return a place as a number, one more than the source's in front: none is 0."""
        if not self._sources or self._sources[-1] != path:
            self._sources.append(path)
        return len(self._sources) << _OFFSET_BITS | offset

    def search_damaged(self, is_right: Callable[[_Copy, int], bool]) -> None:
        """Search damaged files for more records of the ledger that ``is_right`` says are good.

        Damage hides where the next record begins, but a record has the id of its ledger.
        """
        damaged = dict.fromkeys(damage.path for damage in self.rescan.damaged)
        places = itertools.chain.from_iterable(self._all_places()) if damaged else ()
        known = {one for one in map(self._split, places) if one[0] in damaged}
        for path in damaged:
            with contextlib.suppress(FileNotFoundError), self._open.use(path) as file:
                for offset, entry_id in _heads(file, self.ledger_id):
                    if (path, offset) in known:
                        continue
                    if is_right(_Copy(path, offset, _read_packet(file, offset)), entry_id):
                        self._others.setdefault(entry_id, []).append(self._place(path, offset))

    def _all_places(self) -> Iterator[Iterable[int]]:
        yield from (page for pages in (self._in_logs, self._in_journals) for page in pages.values())
        yield from self._others.values()

    def _split(self, place: int) -> tuple[Path | None, int]:
        path = self._sources[(place >> _OFFSET_BITS) - 1] if place else None
        return path, place & (1 << _OFFSET_BITS) - 1

    def entry_ids(self) -> Iterator[int]:
        """Give all entries that were found, ascending."""
        others = {entry_id // _SLOTS for entry_id in self._others}
        for page_no in sorted({*self._in_logs, *self._in_journals, *others}):
            in_log = self._in_logs.get(page_no, _EMPTY)
            in_journal = self._in_journals.get(page_no, _EMPTY)
            for slot in range(_SLOTS):
                entry_id = page_no * _SLOTS + slot
                if in_log[slot] or in_journal[slot] or entry_id in self._others:
                    yield entry_id

    def copies(self, entry_id: int) -> Iterator[_Copy]:
        """Give the latest copy in the logs, then that in the journals, then all others."""
        pages = (self._in_logs, self._in_journals)
        latest = (one.get(entry_id // _SLOTS, _EMPTY)[entry_id % _SLOTS] for one in pages)
        for place in (*latest, *reversed(self._others.get(entry_id, ()))):
            path, offset = self._split(place)
            if path is not None:
                with self._open.use(path) as file:
                    yield _Copy(path, offset, _read_packet(file, offset))

    def close(self) -> None:
        """Release all files."""
        self._open.close()


def _read_packet(file: ReadFile, offset: int) -> bytes:
    (size,) = _LENGTH.unpack(file.read_at(offset, _LENGTH.size))
    return file.read_at(offset + _LENGTH.size, size)


def _heads(file: ReadFile, ledger_id: int) -> Iterator[tuple[int, int]]:
    """Give offset and entry id of all that may be records of a ledger."""
    size, at, wanted = file.size(), 0, struct.pack(">q", ledger_id)
    while at < size:
        data = read_before_loss(file, at, _CHUNK_BYTES, 0)
        found = data.find(wanted, _LENGTH.size)
        while 0 <= found <= len(data) - _IDS_BYTES:
            length, _, entry_id = log_layout.RECORD.unpack_from(data, found - _LENGTH.size)
            offset = at + found - _LENGTH.size
            if entry_id >= 0 and ENTRY_HEADER_BYTES <= length <= size - offset - _LENGTH.size:
                yield offset, entry_id
            found = data.find(wanted, found + 1)
        if len(data) == _CHUNK_BYTES:
            at += len(data) - log_layout.RECORD.size + 1
        else:  # At the end, or where the disk has lost a block.
            at += len(data) - (at + len(data)) % _BLOCK_BYTES + _BLOCK_BYTES


# The kind of digest -------------------------------------------------------------------------------


def _find_digest(search: _RecordSearch) -> DigestType | None:
    """Return the kind of digest that most of the first entries have; None if nothing tells.

    Each entry says how many bytes of payload the ledger has with it. What two neighbours differ in
    is the later one's payload; what is left of its packet is the digest.
    """
    sizes: Counter[int] = Counter()
    before = (-1, 0)
    for entry_id in itertools.islice(search.entry_ids(), SAMPLES_MAX):
        packet = next(search.copies(entry_id)).packet
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
    """Return which checksum is right for an entry without neighbours; None for neither."""
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
    """All entries were refused: what an earlier run saved is worth more."""


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
            tally.found(entry_id)
            copy, is_right = checker.best(search.copies(entry_id), entry_id)
            _write_entry(copy, entry_id, is_right, checker, (payload_file, list_file), tally)
        if not tally.entries and files.exists(payloads):
            raise _NothingRightError
    return payloads, listing


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


@contextlib.contextmanager
def _written(files: Files, path: Path) -> Iterator[_BufferedWriter]:
    """Give a file that takes the place of ``path`` once all is written to it."""
    partial = path.with_name(path.name + _PARTIAL)
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
    """Tells what entries hold and whether they are right, for one kind of digest."""

    def __init__(self, ledger_id: int, kind: DigestType | None, password: bytes | None) -> None:
        self._ledger_id = ledger_id
        self._digester: Digester | None = None
        self.can_check = kind in {DigestType.CRC32, DigestType.CRC32C} or (
            kind is DigestType.MAC and password is not None
        )
        if kind is not None:
            self._digester = digester(kind, password or b"")

    def best(self, copies: Iterator[_Copy], entry_id: int) -> tuple[_Copy, bool | None]:
        """Return a right copy, else the first; and whether it is right, None if unknown."""
        first, *rest = copies
        for copy in (first, *rest) if self.can_check else ():
            if self.is_right(copy, entry_id):
                return copy, True
        return first, False if self.can_check else None

    def is_right(self, copy: _Copy, entry_id: int) -> bool:
        """Whether the digest of a copy is right."""
        assert self._digester is not None
        try:
            self._digester.verify(self._ledger_id, entry_id, copy.packet)
        except DigestMismatchError:
            return False
        return True

    def payload(self, packet: bytes) -> bytes | None:
        """Return what is after head and digest; None if it is not known where that begins."""
        if self._digester is None:
            return None
        start = ENTRY_HEADER_BYTES + self._digester.size
        return packet[start:] if len(packet) >= start else None


class _BufferedWriter:
    """Writes in larger pieces."""

    def __init__(self, file: AppendFile) -> None:
        self._file, self._held, self._held_bytes = file, list[bytes](), 0

    def write(self, buffers: list[bytes]) -> None:
        """Take bytes; they are in the file after ``flush`` at the latest."""
        self._held += buffers
        self._held_bytes += sum(map(len, buffers))
        if self._held_bytes >= 1 << 20:
            self.flush()

    def flush(self) -> None:
        """Write out what is held back."""
        self._file.write(self._held)
        self._held, self._held_bytes = [], 0
