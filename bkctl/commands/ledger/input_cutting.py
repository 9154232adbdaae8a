"""The cutting of a file or a pipe into entries, for `ledger write` and `add`.

A cutter does no I/O: it accepts the bytes that were read and returns complete entries.
``entry_output`` joins the entries with the same framing.
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
    """A way to cut a stream of bytes into entries."""

    LINES = "lines"
    """One entry a line, without its newline."""
    LENGTH_PREFIXED = "length-prefixed"
    """The length of each entry, 4 bytes big-endian, precedes the entry."""
    WHOLE = "whole"
    """The complete input is one entry."""
    CHUNKS = "chunks"
    """Entries of one size; only the last is shorter."""


class FramingError(CommandError):
    """The input cannot be split into entries as requested."""

    exit_status = ExitStatus.USAGE


class Cutter(Protocol):
    """A cutter of one stream into entries."""

    def feed(self, data: bytes) -> list[bytes]:
        """Accept the next bytes; return the entries that are now complete.

        Raises:
            FramingError: an entry would be too large.
        """
        ...

    def end(self) -> list[bytes]:
        """Return the last entries, after the end of the stream.

        Raises:
            FramingError: the stream ends within an entry.
        """
        ...


def cutter(framing: Framing, *, entry_bytes_max: int, chunk_bytes: int = CHUNK_BYTES) -> Cutter:
    """Return a cutter that refuses entries above ``entry_bytes_max``."""
    if framing is Framing.LINES:
        return _Lines(entry_bytes_max)
    if framing is Framing.LENGTH_PREFIXED:
        return _LengthPrefixed(entry_bytes_max)
    if framing is Framing.WHOLE:
        return _WholeInput(entry_bytes_max)
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


class _WholeInput:
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
    """Return whether the beginning of a file is binary: it contains a NUL byte."""
    return b"\0" in data
