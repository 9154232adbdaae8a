"""lastMark: the position in a journal where replay starts.

Agrees with Journal.LastLogMark (4.18.0).

    offset  size  field
    0          8  journal id
    8          8  offset in that journal
    16         4  CRC32C of the 16 bytes before it; only bookied writes it, Java reads 16 bytes

Everything before the mark is durable in entry logs and indexes. Each ledger directory has a copy,
named ``lastMark``, or ``lastMark.<n>`` for the n-th of several journal directories; the highest
counts.
"""

from __future__ import annotations

import re
import struct
from collections.abc import Iterable
from pathlib import Path
from typing import Final, NamedTuple

from crc32c import crc32c
from twisted.logger import Logger

from bookied.errors import NO_SPACE, LastMarkError
from bookied.storage.files.files import Files
from bookied.storage.files.read_errors import lost_is_damaged

log = Logger()

_MARK: Final = struct.Struct(">qq")
_CRC: Final = struct.Struct(">I")


class LastMark(NamedTuple):
    """A position in the journals of one directory; ordered by id, then offset."""

    journal_id: int
    offset: int


START: Final = LastMark(0, 0)
"""The position before every journal: nothing is known to be durable."""


MARK_NAME: Final = re.compile(r"lastMark(\.[0-9]+)?")
"""The names of mark files."""


def file_name(journal: int, journals: int) -> str:
    """Return the mark's file name for the ``journal``-th of ``journals`` directories."""
    return "lastMark" if journals == 1 else f"lastMark.{journal}"


def encode_mark(mark: LastMark) -> bytes:
    """Return the bytes of a mark file."""
    assert mark >= START, mark
    data = _MARK.pack(*mark)
    return data + _CRC.pack(crc32c(data))


def decode_mark(data: bytes, path: Path) -> LastMark:
    """Return the mark in a file's bytes.

    Raises:
        LastMarkError: the file is too short, damaged, or has a negative number. Java's has no
            checksum.
    """
    if len(data) < _MARK.size:
        raise LastMarkError(path, None, f"{len(data)} bytes; expected {_MARK.size}")
    crc = data[_MARK.size : _MARK.size + _CRC.size]
    if len(crc) == _CRC.size and _CRC.unpack(crc)[0] != crc32c(data[: _MARK.size]):
        raise LastMarkError(path, _MARK.size, "wrong checksum")
    mark = LastMark(*_MARK.unpack_from(data))
    if mark.journal_id < 0 or mark.offset < 0:
        raise LastMarkError(path, 0, f"negative number in {tuple(mark)}")
    return mark


def read_mark(files: Files, directories: Iterable[Path], name: str) -> LastMark:
    """Return the highest mark of the ledger directories; bad copies are logged and ignored.

    Args:
        files: the disk.
        directories: the ``current`` directory of each ledger directory.
        name: of the mark file, see ``file_name``.
    """
    highest = START
    for directory in directories:
        path = directory / name
        try:
            with lost_is_damaged(path, LastMarkError):
                highest = max(highest, decode_mark(files.read(path), path))
        except FileNotFoundError:
            continue
        except LastMarkError as error:
            log.warn("ignoring a damaged mark: {error}", error=error)
    return highest


def write_mark(files: Files, directories: Iterable[Path], name: str, mark: LastMark) -> None:
    """Write a mark durably to each directory, never over a higher mark.

    A full directory is skipped if another has the mark: the highest counts.

    Raises:
        OSError: the mark could not be written.
    """
    refused: OSError | None = None
    has_one = False
    for directory in directories:
        try:
            _write_mark(files, directory, name, mark)
        except OSError as error:
            if error.errno not in NO_SPACE:
                raise
            log.warn("no space for {name} in {path}", name=name, path=directory)
            refused = OSError(error.errno, error.strerror, str(directory / name))
        else:
            has_one = True
    if refused is not None and not has_one:
        raise refused


def lower_mark(files: Files, directories: Iterable[Path], name: str, mark: LastMark) -> None:
    """Write a mark durably over each higher one, which would skip the records after ``mark``.

    Raises:
        OSError: the mark could not be written.
    """
    for directory in directories:
        if read_mark(files, [directory], name) > mark:
            files.write_atomic(directory / name, encode_mark(mark))


def _write_mark(files: Files, directory: Path, name: str, mark: LastMark) -> None:
    found = read_mark(files, [directory], name)
    if found < mark:
        files.write_atomic(directory / name, encode_mark(mark))
    elif found == mark:
        # The writer may have failed, or been killed, before the file's name was durable.
        files.sync_dir(directory)
