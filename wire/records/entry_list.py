"""The answer to a request for the entries that a bookie has of a ledger.

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


def encode_entry_list(entry_ids: Iterable[int]) -> bytes:
    """Write ascending entry ids as runs, one group a run: Java's encoder finds no periods."""
    groups = [_GROUP.pack(first, first, size, 0) for first, size in _runs(entry_ids)]
    return _LIST_HEADER.pack(_LIST_VERSION, len(groups)) + b"".join(groups)


def _runs(entry_ids: Iterable[int]) -> Iterator[tuple[int, int]]:
    first, size = 0, 0
    for entry_id in entry_ids:
        if size and first <= entry_id < first + size:
            continue  # Twice the same: some storages list an entry once for each copy.
        if size and entry_id == first + size:
            size += 1
            continue
        if size:
            yield first, size
        first, size = entry_id, 1
    if size:
        yield first, size


@attrs.frozen
class EntryList:
    """Which entries a bookie holds, as groups of (first start, last start, size, period)."""

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
        """How many entries the groups have, those in two groups counted twice.

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
    """Read what ``encode_entry_list`` or Java wrote; periods are honoured.

    Raises:
        FormatError: cut, of a newer version, or with groups that make no sense.
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
