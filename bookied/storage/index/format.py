"""Index files of Interleaved and Sorted storage as bytes. Agrees with FileInfo (4.18.0).

One file a ledger, with the name that ``file_names`` gives. Integers are big-endian and signed.

    offset  size  field
    0          4  "BKLE"
    4          4  version: 0 or 1
    8          4  length k of the master key
    12         k  master key
    12+k       4  state bits; bit 0: fenced
    16+k       4  length n of the explicit LAC packet, 0 for none   (version 1)
    20+k       n  explicit LAC packet                               (version 1)
    ...           zeros up to 1024
    1024     8 e  locations: that of entry e at 1024 + 8 e; 0 for none

The locations are full pages of 8192 bytes: Java loses the locations in a partial last page.
"""

from __future__ import annotations

import struct
import sys
from array import array
from pathlib import Path
from typing import Final

import attrs

from bookied.errors import IndexFormatError, IndexTruncatedError

MAGIC: Final = b"BKLE"
VERSION: Final = 1
HEADER_BYTES: Final = 1024
PAGE_BYTES: Final = 8192
SLOT_BYTES: Final = 8
PAGE_SLOTS: Final = PAGE_BYTES // SLOT_BYTES
FENCED: Final = 1
LAC_BYTES_MIN: Final = 16
ENTRY_ID_MAX: Final = 2**40
"""A higher id would need an offset that no file system supports; its entry is refused."""

VARIABLE_BYTES_MAX: Final = 1004
"""The most bytes of master key and explicit LAC together."""

_ZEROS: Final = bytes(PAGE_BYTES)
_HEAD: Final = struct.Struct(">4sii")
_I32: Final = struct.Struct(">i")
SLOT: Final = struct.Struct(">q")


@attrs.frozen
class IndexHeader:
    """The stored state of a ledger, except its locations."""

    master_key: bytes = attrs.field(repr=False)
    state_bits: int = 0
    explicit_lac: bytes | None = None
    version: int = VERSION
    limbo: bool = False
    """Whether acknowledged entries may be missing; index files do not store the flag."""

    @property
    def is_fenced(self) -> bool:
        """True if ordinary adds are refused."""
        return bool(self.state_bits & FENCED)

    def encode(self) -> bytes:
        """Return the complete header, 1024 bytes; version 0 cannot store an explicit LAC."""
        lac = self.explicit_lac or b""
        assert len(self.master_key) + len(lac) <= VARIABLE_BYTES_MAX
        head = _HEAD.pack(MAGIC, self.version, len(self.master_key)) + self.master_key
        head += _I32.pack(self.state_bits)
        if self.version >= 1:
            head += _I32.pack(len(lac)) + lac
        return head.ljust(HEADER_BYTES, b"\0")


def decode_header(data: bytes, path: Path) -> IndexHeader:
    """Return the header in the first 1024 bytes of an index file.

    Raises:
        IndexTruncatedError: there are fewer bytes.
        IndexFormatError: the bytes are not a header of version 0 or 1.
    """
    if len(data) < HEADER_BYTES:
        raise IndexTruncatedError(path, len(data), f"the header has {HEADER_BYTES} bytes")
    magic, version, key_length = _HEAD.unpack_from(data)
    if magic != MAGIC:
        raise IndexFormatError(path, 0, f"{magic!r}; expected {MAGIC!r}")
    if not 0 <= version <= VERSION:
        raise IndexFormatError(path, 4, f"version {version}; expected 0 or 1")
    at = _HEAD.size + key_length
    if key_length < 0 or at + 4 > HEADER_BYTES:
        raise IndexFormatError(path, 8, f"master key of {key_length} bytes")
    key, bits = data[_HEAD.size : at], _I32.unpack_from(data, at)[0]
    lac = _decode_lac(data, at + 4, path) if version >= 1 else None
    return IndexHeader(key, bits, lac, version)


def lac_offset(header: IndexHeader) -> int:
    """Return the offset of the explicit LAC in a file with a header of version 1."""
    return _HEAD.size + len(header.master_key) + 2 * _I32.size


def _decode_lac(data: bytes, at: int, path: Path) -> bytes | None:
    if at + 4 > HEADER_BYTES:
        raise IndexFormatError(path, at, "no space for the explicit LAC")
    length = _I32.unpack_from(data, at)[0]
    if length == 0:
        return None
    if length < LAC_BYTES_MIN or at + 4 + length > HEADER_BYTES:
        raise IndexFormatError(path, at, f"explicit LAC of {length} bytes")
    return data[at + 4 : at + 4 + length]


def decode_native(native: bytes) -> array[int]:
    """Return the locations of a page from the array's own ``tobytes``."""
    return array("q", native)


def decode_page(data: bytes) -> array[int]:
    """Return the 1024 locations of a page; missing bytes read as 0, no location."""
    page = array("q", data.ljust(PAGE_BYTES, b"\0"))
    if sys.byteorder == "little":
        page.byteswap()
    return page


def used_slots(page: array[int]) -> int:
    """Return the number of slots up to the last that has a location."""
    data, size = page.tobytes(), page.itemsize
    low, high = 0, len(page)  # All slots from ``high`` on are 0. Slots below may be 0, too.
    while low < high:
        middle = (low + high) // 2
        if data[middle * size : high * size] == _ZEROS[: (high - middle) * size]:
            high = middle
        else:
            low = middle + 1
    return high


def encode_page(native: bytes) -> bytes:
    """Return a page in the format of the file; ``native`` is the array's ``tobytes``."""
    page = array("q", native)
    if sys.byteorder == "little":
        page.byteswap()
    return page.tobytes()


def has_place(entry_id: int) -> bool:
    """Return whether an index file has a slot for an entry id; the id may be damaged."""
    return 0 <= entry_id <= ENTRY_ID_MAX


def page_offset(page_no: int) -> int:
    """Return the offset of a page in the file."""
    return HEADER_BYTES + PAGE_BYTES * page_no
