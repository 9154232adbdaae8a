"""Plain reads of entries in memory: one loop over all reads that arrived together.

A plain read has no flags, no trailing bytes, a ledger in memory and an entry in the write cache. A
plain read of the last entry needs an index without doubt. In V3 the frame must be encoded as the
known clients do. Ledgers that are not in memory are loaded together; reads of unknown ledgers are
refused. Any other read is left to the plain path, as is a read that must not overtake a disk read.
The same test as for adds compares the two paths.

A read that finds its entry on the disk is put aside: the lookup has started to fetch the entry. A
second lookup, after the other reads are answered, finds most of these entries in memory.
"""

from __future__ import annotations

import struct
from collections.abc import Callable, Iterable, Iterator, Sequence
from functools import partial
from itertools import islice
from typing import Final, NamedTuple, TypeVar

from bookied.stats.metrics import RequestStats
from bookied.storage.entrylog.reader import READ_NOW_BYTES_MAX, WantedEntry
from bookied.storage.index.ledger_pages import CachedLedger
from bookied.storage.ledger_storage.reads import NeedsDisk
from bookied.storage.ledger_storage.storage import LedgerStorage
from bookied.storage.storages import Storages
from wire.codes import STRIDE_MAX, V2_BY_RETURN_CODE, OpCode, ReturnCode
from wire.errors import BookKeeperError
from wire.frames import v3
from wire.frames.bulk_reads import PlainRequest, answer_v3, match_request_v3, refuse_v3
from wire.frames.entry_packets import Packets
from wire.frames.v2 import LENGTH, pack_header
from wire.ids import NO_ENTRY, LedgerId

_T = TypeVar("_T")

_HEADER: Final = pack_header(OpCode.READ_ENTRY)
_FIRST: Final = struct.pack(">i", _HEADER)
_V3_FIRST: Final = bytes((v3.FIRST_BYTE,))
_READ: Final = struct.Struct(">iiqq")
_READ_LENGTH: Final = _READ.size - LENGTH.size
_ANSWER: Final = struct.Struct(">iiiqq")
_ANSWER_LENGTH: Final = _ANSWER.size - LENGTH.size
_NO_LEDGER: Final = V2_BY_RETURN_CODE[ReturnCode.ENOLEDGER]


LOOKED_AHEAD: Final = 128
"""Reads that are searched for ledgers that are not in memory."""

RUN_MIN: Final = 4
"""Consecutive reads from which on entries are read as one piece of a log.

The distance of their ids is that of the first two: a reader of a ledger reads from its bookies in
turn.
"""


ASIDE_MAX: Final = 64
"""Reads that wait for a second lookup at most."""


COPIED_BYTES: Final = 256 * 1024
"""Bytes of answers that are copied from the page cache together, except for the last answer."""

SHEET_BYTES: Final = COPIED_BYTES + _ANSWER.size + 2 * READ_NOW_BYTES_MAX

_Stored = tuple[LedgerStorage, list[WantedEntry]]
"""A storage, and entries in its files that are read next."""


class AnswerLimits(NamedTuple):
    """The limits of one call: bytes, which may be exceeded by one answer, and reads."""

    size_bytes: int
    reads: int
    loads: int = 0
    """Ledgers and index pages that may be loaded into memory."""


class FastReadResult(NamedTuple):
    """The answers' frames in pieces, and the offset after the answered reads."""

    end: int
    answers: list[bytes]
    reads: int
    size_bytes: int
    loads: int
    refused: int = 0
    """Number of the reads that were of unknown ledgers."""
    left: bytes = b""
    """Frames of unanswered reads before ``end``, which the plain path handles before what
    follows.
    """


class _SecondLookup(NamedTuple):
    """A read that waits for a second lookup."""

    begin: int
    end: int
    storage: LedgerStorage
    state: CachedLedger
    entry_id: int
    answer: Callable[[bytes], Sequence[bytes]]
    """Returns the answer's frame with a packet, in pieces."""


class FastReads:
    """The decoder of the plain reads at the front of received bytes."""

    def __init__(self, storages: Storages, stats: RequestStats | None = None) -> None:
        self._storages, self._stats = storages, stats or RequestStats()
        self._sheet = memoryview(bytearray(SHEET_BYTES))

    def take(
        self, data: bytes, at: int, must_wait: Callable[[LedgerId], bool], most: AnswerLimits
    ) -> FastReadResult:
        """Answer the complete plain reads that begin at ``at``.

        Args:
            data: frames.
            at: the offset of the first read.
            must_wait: returns whether a read of a ledger would overtake another read.
            most: the limits of this call.
        """
        first = data[at + 4 : at + 8]
        if first == _FIRST:
            take = self._take_v2
        elif first[:1] == _V3_FIRST:
            take = self._take_v3
        else:
            return FastReadResult(at, [], 0, 0, 0)
        began_ns = self._stats.now_ns()
        taken = take(data, at, must_wait, most)
        if taken.refused:
            self._stats.reads_refused(taken.refused, began_ns)
        if taken.reads > taken.refused:
            self._stats.reads_answered(taken.reads - taken.refused, taken.size_bytes, began_ns)
        return taken

    def _load(self, reads: Iterator[tuple[int, int]], loads_max: int) -> int:
        """Load ledgers into memory that are read next; return how many."""
        absent = self._absent(reads, loads_max, _absent_ledger)
        return sum(storage.ledgers.look_up_many(some) for storage, some in absent.items())

    def _load_with_lacs(self, reads: Iterator[tuple[int, int]], loads_max: int) -> int:
        """Load ledgers that are read next into memory, with their LACs; return how many."""
        absent = self._absent(reads, loads_max, _absent_lac)
        return sum(storage.ledgers.look_up_lacs(some) for storage, some in absent.items())

    def _load_pages(self, reads: Iterator[tuple[int, int]], loads_max: int) -> int:
        """Load index pages into memory that are needed next; return how many."""
        absent = self._absent(reads, loads_max, _absent_page)
        return sum(storage.reads.load_pages(tuple(some)) for storage, some in absent.items())

    def _absent(
        self,
        reads: Iterator[tuple[int, int]],
        count_max: int,
        absent_of: Callable[[LedgerStorage, int, int], _T | None],
    ) -> dict[LedgerStorage, dict[_T, None]]:
        """Return the keys that these reads need and that are not in memory, by storage."""
        absent: dict[LedgerStorage, dict[_T, None]] = {}
        left = count_max
        for ledger_id, entry_id in islice(reads, LOOKED_AHEAD):
            storage = self._storages.of(ledger_id)
            needed = absent_of(storage, ledger_id, entry_id)
            if needed is None or needed in absent.setdefault(storage, {}):
                continue
            absent[storage][needed] = None
            left -= 1
            if not left:
                break
        return absent

    def _take_v2(
        self, data: bytes, at: int, must_wait: Callable[[LedgerId], bool], most: AnswerLimits
    ) -> FastReadResult:
        answers: list[bytes] = []
        begin, size_bytes, loads, refused, alone_until = at, 0, 0, 0, at
        aside: dict[int, _SecondLookup] = {}
        last_start = min(len(data), at + most.reads * _READ.size) - _READ.size
        read_of: int | None = None
        run = range(0)
        stored: list[_Stored] = []
        wanted: list[WantedEntry] = []
        storage_before: LedgerStorage | None = None
        unpack = _READ.unpack_from
        while at <= last_start and size_bytes < most.size_bytes:
            length, header, ledger_id, asked_id = unpack(data, at)
            if header != _HEADER or length != _READ_LENGTH:
                break
            if ledger_id in aside:  # Answers about one ledger are sent in order.
                break
            may_be_run = ledger_id == read_of and at >= alone_until
            if ledger_id != read_of:
                storage, read_of = self._storages.of(ledger_id), ledger_id
                if storage is not storage_before:
                    storage_before, hot, source = storage, storage.hot, storage.reads
                    wanted, until = [], source.until
            state = hot.get(ledger_id)
            if state is not None and not may_be_run and 0 <= asked_id <= state.last_entry:
                location = state.location(asked_id) or 0
                if 0 < location < until and not (state.limbo or must_wait(ledger_id)):
                    if not wanted:
                        stored.append((storage, wanted))
                    wanted.append((location, ledger_id, asked_id))
                    at += _READ.size
                    continue
            if stored:
                room_bytes = most.size_bytes - size_bytes
                end, late_bytes = self._answer_stored(at, stored, aside, answers, room_bytes)
                size_bytes += late_bytes
                stored, wanted = [], []
                if end < at or ledger_id in aside or size_bytes >= most.size_bytes:
                    at = end
                    break
            if state is None and storage.ledgers.is_absent(ledger_id):
                if must_wait(ledger_id):
                    break
                answers.append(
                    _ANSWER.pack(_ANSWER_LENGTH, _HEADER, _NO_LEDGER, ledger_id, asked_id)
                )
                refused += 1
                at += _READ.size
                continue
            if state is None and loads < most.loads:
                loads += self._load(_read_next_v2(data, at, last_start), most.loads - loads)
                state = hot.get(ledger_id)
            if state is None or state.limbo or must_wait(ledger_id):
                break
            if may_be_run:
                run = run or _run_v2(data, at, last_start)
                packets = _read_run(storage, state, run, most.size_bytes - size_bytes)
                for entry_id, packet in zip(run, packets, strict=False):
                    length = _ANSWER_LENGTH + len(packet)
                    answers += _ANSWER.pack(length, _HEADER, 0, ledger_id, entry_id), packet
                    size_bytes += len(packet)
                if len(packets) < RUN_MIN:
                    alone_until, run = at + len(run) * _READ.size, range(0)
                run = run[len(packets) :]
                if packets:
                    at += len(packets) * _READ.size
                    continue
            entry_id = asked_id
            if entry_id == NO_ENTRY:
                if state.doubt is not None:
                    break
                entry_id = state.last_entry
            try:
                found = source.read_memory(state, entry_id)
                if isinstance(found, NeedsDisk) and not found.location and loads < most.loads:
                    loads += self._load_pages(
                        _read_next_v2(data, at, last_start), most.loads - loads
                    )
                    found = source.read_memory(state, entry_id)
            except (BookKeeperError, OSError):
                break
            if isinstance(found, bytes):
                size_bytes += len(found)
                length = _ANSWER_LENGTH + len(found)
                answers += _ANSWER.pack(length, _HEADER, 0, ledger_id, asked_id), found
            elif found is not None and found.location and len(aside) < ASIDE_MAX:
                answer = partial(_answer_v2, ledger_id, asked_id)
                end = at + _READ.size
                aside[ledger_id] = _SecondLookup(at, end, storage, state, entry_id, answer)
            else:
                break
            at += _READ.size
        if stored:
            room_bytes = most.size_bytes - size_bytes
            at, late_bytes = self._answer_stored(at, stored, aside, answers, room_bytes)
            size_bytes += late_bytes
        left, late_bytes = _look_again(data, aside.values(), answers, most.size_bytes - size_bytes)
        reads = (at - begin) // _READ.size - len(left)
        size_bytes += late_bytes
        return FastReadResult(at, answers, reads, size_bytes, loads, refused, b"".join(left))

    def _answer_stored(
        self,
        end: int,
        stored: Sequence[_Stored],
        aside: dict[int, _SecondLookup],
        answers: list[bytes],
        bytes_max: int,
    ) -> tuple[int, int]:
        """Answer reads, up to ``end``, from the page cache together, or put them aside.

        Returns:
            The offset after the last read that was handled, and the bytes of the entries.
        """
        at = end - _READ.size * sum(len(wanted) for _, wanted in stored)
        sheet, place, bytes_max = self._sheet, 0, min(bytes_max, COPIED_BYTES)
        entry_bytes = 0
        for storage, wanted in stored:
            sizes = storage.reads.copy_now(wanted, sheet[place:], _ANSWER.size, bytes_max - place)
            for (_, ledger_id, entry_id), size in zip(wanted, sizes, strict=False):
                if ledger_id in aside or (not size and len(aside) == ASIDE_MAX):
                    break
                if size:
                    length = _ANSWER_LENGTH + size
                    _ANSWER.pack_into(sheet, place, length, _HEADER, 0, ledger_id, entry_id)
                    place += _ANSWER.size + size
                    entry_bytes += size
                else:
                    state, answer = storage.hot[ledger_id], partial(_answer_v2, ledger_id, entry_id)
                    aside[ledger_id] = _SecondLookup(
                        at, at + _READ.size, storage, state, entry_id, answer
                    )
                at += _READ.size
            else:
                if len(sizes) == len(wanted) and place < bytes_max:
                    continue
            break
        if place:
            answers.append(bytes(sheet[:place]))
        return at, entry_bytes

    def _take_v3(
        self, data: bytes, at: int, must_wait: Callable[[LedgerId], bool], most: AnswerLimits
    ) -> FastReadResult:
        answers: list[bytes] = []
        reads, size_bytes, loads, refused, alone_until, ledger = 0, 0, 0, 0, at, b""
        run, requests = range(0), list[PlainRequest]()
        aside: dict[int, _SecondLookup] = {}
        while size_bytes < most.size_bytes and reads < most.reads:
            asked = match_request_v3(data, at)
            if asked is None:
                break
            may_be_run = asked.ledger == ledger and at >= alone_until
            if asked.ledger != ledger:
                ledger, ledger_id = asked.ledger, LedgerId(asked.ledger_id)
                storage = self._storages.of(ledger_id)
            if ledger_id in aside:  # Answers about one ledger are sent in order.
                break
            state = storage.hot.get(ledger_id)
            if state is None and storage.ledgers.is_absent(ledger_id):
                if must_wait(ledger_id):
                    break
                answers.append(refuse_v3(asked, ReturnCode.ENOLEDGER))
                refused, reads, at = refused + 1, reads + 1, asked.end
                continue
            if (state is None or state.lac_is_unread) and loads < most.loads:
                loads += self._load_with_lacs(_read_next_v3(data, at), most.loads - loads)
                state = storage.hot.get(ledger_id)
            if state is None or state.limbo or state.lac_is_unread or must_wait(ledger_id):
                break
            entry_id = asked.entry_id
            if may_be_run:
                if not run:
                    run, requests = _run_v3(data, asked, most.reads - reads)
                packets = _read_run(storage, state, run, most.size_bytes - size_bytes)
                for one, packet in zip(requests, packets, strict=False):
                    answers += answer_v3(one, packet, state.lac)
                    size_bytes += len(packet)
                    at = one.end
                if len(packets) < RUN_MIN:
                    alone_until, run = requests[-1].end, range(0)
                run, requests = run[len(packets) :], requests[len(packets) :]
                if packets:
                    reads += len(packets)
                    continue
            if entry_id == NO_ENTRY:
                if state.doubt is not None:
                    break
                entry_id = state.last_entry
            try:
                found = storage.reads.read_memory(state, entry_id)
                if isinstance(found, NeedsDisk) and not found.location and loads < most.loads:
                    loads += self._load_pages(_read_next_v3(data, at), most.loads - loads)
                    found = storage.reads.read_memory(state, entry_id)
            except (BookKeeperError, OSError):
                break
            if isinstance(found, bytes):
                answers += answer_v3(asked, found, state.lac)
                size_bytes += len(found)
            elif found is not None and found.location and len(aside) < ASIDE_MAX:
                answer = partial(answer_v3, asked, max_lac=state.lac)
                aside[ledger_id] = _SecondLookup(at, asked.end, storage, state, entry_id, answer)
            else:
                break
            reads += 1
            at = asked.end
        left, late_bytes = _look_again(data, aside.values(), answers, most.size_bytes - size_bytes)
        reads, size_bytes = reads - len(left), size_bytes + late_bytes
        return FastReadResult(at, answers, reads, size_bytes, loads, refused, b"".join(left))


def _absent_ledger(storage: LedgerStorage, ledger_id: int, _entry_id: int) -> int | None:
    """Return the ledger if it is on disk and not in memory, else None."""
    is_here = ledger_id in storage.hot or storage.ledgers.is_absent(ledger_id)
    return None if is_here else ledger_id


def _absent_lac(storage: LedgerStorage, ledger_id: int, entry_id: int) -> int | None:
    """Return the ledger if it is on disk and it or its LAC is not in memory, else None."""
    state = storage.hot.get(ledger_id)
    if state is None:
        return _absent_ledger(storage, ledger_id, entry_id)
    return ledger_id if state.lac_is_unread else None


def _absent_page(storage: LedgerStorage, ledger_id: int, entry_id: int) -> tuple[int, int] | None:
    """Return the ledger and number of the entry's index page if it is only on disk, else None."""
    state = storage.hot.get(ledger_id)
    if state is None or not 0 <= entry_id <= state.last_entry:
        return None
    return (ledger_id, entry_id >> 10) if state.location(entry_id) is None else None


def _answer_v2(ledger_id: int, asked_id: int, packet: bytes) -> tuple[bytes, bytes]:
    length = _ANSWER_LENGTH + len(packet)
    return _ANSWER.pack(length, _HEADER, 0, ledger_id, asked_id), packet


def _look_again(
    data: bytes, aside: Iterable[_SecondLookup], answers: list[bytes], bytes_max: int
) -> tuple[list[bytes], int]:
    """Answer the reads put aside whose entries are in memory by now.

    Returns:
        The frames of the other reads, and the bytes of the entries.
    """
    left: list[bytes] = []
    size_bytes = 0
    for one in aside:
        packet = _second_look(one) if size_bytes < bytes_max else None
        if packet is None:
            left.append(data[one.begin : one.end])
        else:
            answers += one.answer(packet)
            size_bytes += len(packet)
    return left, size_bytes


def _second_look(aside: _SecondLookup) -> bytes | None:
    try:
        found = aside.storage.reads.read_memory(aside.state, aside.entry_id)
    except (BookKeeperError, OSError):
        return None
    return found if isinstance(found, bytes) else None


def _read_run(
    storage: LedgerStorage, state: CachedLedger, run: range, bytes_max: int
) -> list[bytes]:
    """Return the packets of a run that one lookup finds in memory, perhaps none."""
    if len(run) < RUN_MIN or run[0] < 0 or not 0 < run.step <= STRIDE_MAX:
        return []
    try:
        rows = storage.reads.read_rows(state, run[0], len(run), bytes_max, run.step)
    except (BookKeeperError, OSError):
        return []
    return [] if rows is None else list(Packets(b"".join(rows.pieces), rows.entries))


def _run_v2(data: bytes, at: int, last_start: int) -> range:
    """Return the entries of the run of plain reads that begins at ``at``."""
    length, header, ledger_id, first = _READ.unpack_from(data, at)
    start, unpack, size = at + _READ.size, _READ.unpack_from, _READ.size
    step = (unpack(data, start)[3] - first if start <= last_start else 0) or 1
    entry_id = first + step
    while start <= last_start and unpack(data, start) == (length, header, ledger_id, entry_id):
        start, entry_id = start + size, entry_id + step
    return range(first, entry_id, step)


def _run_v3(data: bytes, first: PlainRequest, reads_max: int) -> tuple[range, list[PlainRequest]]:
    """Return the entries of the run of plain reads that begins with ``first``, and the reads."""
    requests, entry_id, step = [first], first.entry_id, 1
    while (
        len(requests) < reads_max
        and (asked := match_request_v3(data, requests[-1].end)) is not None
        and asked.ledger == first.ledger
    ):
        if len(requests) == 1:
            step = asked.entry_id - entry_id or 1
        if asked.entry_id != entry_id + len(requests) * step:
            break
        requests.append(asked)
    return range(entry_id, entry_id + len(requests) * step, step), requests


def _read_next_v2(data: bytes, at: int, last_start: int) -> Iterator[tuple[int, int]]:
    """Yield (ledger id, entry id) of the consecutive plain reads that begin at ``at``."""
    for start in range(at, last_start + 1, _READ.size):
        length, header, ledger_id, entry_id = _READ.unpack_from(data, start)
        if header != _HEADER or length != _READ_LENGTH:
            return
        yield ledger_id, entry_id


def _read_next_v3(data: bytes, at: int) -> Iterator[tuple[int, int]]:
    """Yield (ledger id, entry id) of the consecutive plain reads that begin at ``at``."""
    while (asked := match_request_v3(data, at)) is not None:
        yield asked.ledger_id, asked.entry_id
        at = asked.end
