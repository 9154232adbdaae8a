"""How `ledger write` and `add` cut a file or a pipe into entries.

Cutting does no I/O: a cutter is fed what was read and gives complete entries. What was cut with a
framing, ``entry_output`` gives back with the same.
"""

from __future__ import annotations

import enum
import struct
from typing import Final, Protocol

from bkctl.errors import CommandError
from bkctl.exit_status import ExitStatus
from bkctl.output.units import human_bytes

LENGTH: Final = struct.Struct(">I")
CHUNK_BYTES: Final = 1024 * 1024


class Framing(enum.Enum):
    """How a stream of bytes is cut into entries."""

    LINES = "lines"
    """One entry a line, without its newline."""
    LENGTH_PREFIXED = "length-prefixed"
    """The length of each entry, 4 bytes big-endian, precedes the entry."""
    WHOLE = "whole"
    """All of it is one entry."""
    CHUNKS = "chunks"
    """Entries of one size, the last one shorter."""


class FramingError(CommandError):
    """The input cannot be split into entries as requested."""

    exit_status = ExitStatus.USAGE


class Cutter(Protocol):
    """Cuts a stream into entries."""

    def feed(self, data: bytes) -> list[bytes]:
        """Take what comes next; return the entries that are complete by now.

        Raises:
            FramingError: an entry would be too large.
        """
        ...

    def end(self) -> list[bytes]:
        """Return what is left at the end.

        Raises:
            FramingError: the stream ends within an entry.
        """
        ...


def cutter(framing: Framing, *, entry_bytes_max: int, chunk_bytes: int = CHUNK_BYTES) -> Cutter:
    """Return a cutter; entries above ``entry_bytes_max`` are refused."""
    if framing is Framing.LINES:
        return _Lines(entry_bytes_max)
    if framing is Framing.LENGTH_PREFIXED:
        return _LengthPrefixed(entry_bytes_max)
    if framing is Framing.WHOLE:
        return _Whole(entry_bytes_max)
    if chunk_bytes > entry_bytes_max or chunk_bytes < 1:
        raise FramingError(
            f"chunks of {human_bytes(chunk_bytes)}: entries hold 1 to {entry_bytes_max} bytes"
        )
    return _Chunks(chunk_bytes)


class _Lines:
    def __init__(self, entry_bytes_max: int) -> None:
        self._max = entry_bytes_max
        self._rest = b""
        self.count = 0

    def feed(self, data: bytes) -> list[bytes]:
        size = len(self._rest) + len(data)
        *lines, self._rest = (self._rest + data).split(b"\n")
        self.count += len(lines)
        if size > self._max and any(len(line) > self._max for line in (*lines, self._rest)):
            raise FramingError(
                f"a line near line {self.count} is longer than an entry can be ({self._max} bytes)",
                next_step="cut it with --chunks 1MiB",
            )
        return lines

    def end(self) -> list[bytes]:
        rest, self._rest = self._rest, b""
        return [rest] if rest else []


class _LengthPrefixed:
    def __init__(self, entry_bytes_max: int) -> None:
        self._max = entry_bytes_max
        self._buffer = bytearray()
        self._position = 0

    def feed(self, data: bytes) -> list[bytes]:
        self._buffer += data
        entries, at = [], 0
        while len(self._buffer) - at >= LENGTH.size:
            (size,) = LENGTH.unpack_from(self._buffer, at)
            if size > self._max:
                raise FramingError(
                    f"byte {self._position + at}: an entry of {size} bytes, "
                    f"at most {self._max} are possible"
                )
            if len(self._buffer) - at - LENGTH.size < size:
                break
            at += LENGTH.size + size
            entries.append(bytes(self._buffer[at - size : at]))
        del self._buffer[:at]
        self._position += at
        return entries

    def end(self) -> list[bytes]:
        if self._buffer:
            raise FramingError(f"the input ends within the entry at byte {self._position}")
        return []


class _Whole:
    def __init__(self, entry_bytes_max: int) -> None:
        self._max = entry_bytes_max
        self._buffer = bytearray()

    def feed(self, data: bytes) -> list[bytes]:
        self._buffer += data
        if len(self._buffer) > self._max:
            raise FramingError(
                f"the input is longer than an entry can be ({self._max} bytes)",
                next_step="cut it with --chunks 1MiB or --lines instead of --whole",
            )
        return []

    def end(self) -> list[bytes]:
        return [bytes(self._buffer)]


class _Chunks:
    def __init__(self, chunk_bytes: int) -> None:
        self._size = chunk_bytes
        self._buffer = b""

    def feed(self, data: bytes) -> list[bytes]:
        data = self._buffer + data
        whole = len(data) - len(data) % self._size
        self._buffer = data[whole:]
        return [data[at : at + self._size] for at in range(0, whole, self._size)]

    def end(self) -> list[bytes]:
        rest, self._buffer = self._buffer, b""
        return [rest] if rest else []


def looks_binary(data: bytes) -> bool:
    """Tell whether a beginning of a file is not text: it has a NUL byte."""
    return b"\0" in data
