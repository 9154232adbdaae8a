"""The list of the entries that a bookie has of a ledger.

Agrees byte for byte with BookKeeper 4.18.0, AvailabilityOfEntriesOfLedger.
"""

from __future__ import annotations

import struct
from collections.abc import Iterable, Iterator
from typing import Final

import attrs

from wire.errors import FormatError
from wire.ids import EntryId

_LIST_HEADER: Final = struct.Struct(">ii56x")
_GROUP: Final = struct.Struct(">qqii")
_LIST_VERSION: Final = 0
_ENTRY_ID_MAX: Final = 2**63 - 1
_PERIOD_MAX: Final = 2**31 - 1


GROUPS_MAX: Final = 200_000
"""Groups that fit into an answer: 24 bytes each, in a frame of 5 MiB."""

PERIOD_RUNS_MIN: Final = 1000
"""Runs of one size and distance that become one group, in lists that would not fit."""


def encode_entry_runs(runs: Iterable[tuple[int, int]]) -> bytes:
    """Return the list of these runs; see ``EntryListWriter``.

    Raises:
        FormatError: as ``EntryListWriter.take``.
    """
    writer = EntryListWriter()
    writer.take(runs)
    return writer.encode()


class EntryListWriter:
    """An encoder of ascending runs of entries, each with its first id and count.

    Each run is one group, as Java's encoder finds no periods. A list with more than ``GROUPS_MAX``
    runs has groups with periods, which Java's decoder reads. Each bookie of a striped ledger has
    such runs.
    """

    def __init__(self) -> None:
        self._plain: list[bytes] = []
        self._series: list[tuple[int, int, int, int]] = []
        self._now = 0, 0, 0, 0
        """The series of the last run."""
        self._groups = 0
        self._open = 0, 0
        """The last run, which the next run may continue."""

    def take(self, runs: Iterable[tuple[int, int]]) -> None:
        """Append runs.

        Raises:
            FormatError: there are too many groups in any form.
        """
        open_first, open_size = self._open
        for start, run_size in runs:
            if open_size and start == open_first + open_size:
                open_size += run_size
                continue
            if open_size:
                self._end_run(open_first, open_size)
            open_first, open_size = start, run_size
        self._open = open_first, open_size

    def _end_run(self, start: int, run_size: int) -> None:
        if len(self._plain) <= GROUPS_MAX:
            self._plain.append(_GROUP.pack(start, start, run_size, 0))
        first, last, size, period = self._now
        distance = start - last
        if run_size == size and (not period or distance == period) and distance <= _PERIOD_MAX:
            self._now = first, start, size, distance
            return
        if size:
            self._series.append(self._now)
            self._groups += _groups_of(first, last, period)
            _require_short(self._groups)
        self._now = start, start, run_size, 0

    def encode(self) -> bytes:
        """Return the list; no run may follow.

        Raises:
            FormatError: as ``take``.
        """
        if self._open[1]:
            self._end_run(*self._open)
        plain = self._plain
        if len(plain) > GROUPS_MAX:
            plain = [group for one in (*self._series, self._now) for group in _short(*one)]
            _require_short(len(plain))
        return _LIST_HEADER.pack(_LIST_VERSION, len(plain)) + b"".join(plain)


def _short(first: int, last: int, size: int, period: int) -> Iterator[bytes]:
    """Yield a series of runs as one group, or as a group for each run if there are few."""
    if not period or _groups_of(first, last, period) == 1:
        yield _GROUP.pack(first, last, size, period)
        return
    for start in range(first, last + 1, period):
        yield _GROUP.pack(start, start, size, 0)


def _require_short(groups: int) -> None:
    if groups > GROUPS_MAX:
        raise FormatError(f"a list of more than {GROUPS_MAX} groups of entries")


def _groups_of(first: int, last: int, period: int) -> int:
    """Return the number of groups of a series of runs in a list that must be short."""
    runs = (last - first) // period + 1 if period else 1
    return 1 if runs >= PERIOD_RUNS_MIN else runs


@attrs.frozen
class EntryList:
    """The entries that a bookie has, as groups of (first start, last start, size, period)."""

    groups: tuple[tuple[int, int, int, int], ...]

    def __contains__(self, entry_id: int) -> bool:
        for first, last, size, period in self.groups:
            if first <= entry_id < last + size:
                into = (entry_id - first) % period if period else entry_id - first
                if into < size:
                    return True
        return False

    @property
    def count(self) -> int:
        """The number of entries in the groups; an entry in two groups counts twice.

        Not ``len()``: a peer can write a list longer than Python's longest.
        """
        return sum(
            size * ((last - first) // period + 1 if period else 1)
            for first, last, size, period in self.groups
        )

    def __iter__(self) -> Iterator[EntryId]:
        for first, last, size, period in self.groups:
            for start in range(first, last + 1, period or 1):
                yield from map(EntryId, range(start, start + size))
                if not period:
                    break


def decode_entry_list(data: bytes) -> EntryList:
    """Parse a list of ``encode_entry_runs`` or of Java, with periods.

    Raises:
        FormatError: cut, of a newer version, or with invalid groups.
    """
    if len(data) < _LIST_HEADER.size:
        raise FormatError(f"entry list of {len(data)} bytes has no header")
    version, count = _LIST_HEADER.unpack_from(data)
    if version > _LIST_VERSION:
        raise FormatError(f"entry list of version {version} is unknown")
    if count < 0 or len(data) < _LIST_HEADER.size + count * _GROUP.size:
        raise FormatError(f"entry list of {len(data)} bytes cannot hold {count} groups")
    groups = tuple(
        _GROUP.unpack_from(data, _LIST_HEADER.size + k * _GROUP.size) for k in range(count)
    )
    for group in groups:
        if not _makes_sense(*group):
            raise FormatError(f"entry list holds the group {group}")
    return EntryList(groups)


def _makes_sense(first: int, last: int, size: int, period: int) -> bool:
    if not (0 <= first <= last <= _ENTRY_ID_MAX - size and size >= 1):
        return False
    if first == last:
        return period == 0
    return period >= size and (last - first) % period == 0
