"""Reading a file that may be a pipe, or a device without an end."""

from __future__ import annotations

import errno
import os
import select
import stat
from typing import Final

PIECE_BYTES: Final = 64 * 1024

WRITER_WAIT_S: Final = 2.0
"""How long a pipe may have no writer. A shell may start the writer after the reader."""


def read_at_most(path: str, bytes_max: int, writer_wait_s: float = WRITER_WAIT_S) -> bytes:
    """Return the content of a file, up to one byte more than ``bytes_max``.

    A pipe that a process has open for writing is read to its end, however long that takes.

    Raises:
        OSError: the file cannot be read, or is a pipe that no process writes to (``EPIPE``).
    """
    number = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_NOCTTY | os.O_CLOEXEC)
    try:
        is_pipe, data = stat.S_ISFIFO(os.fstat(number).st_mode), bytearray()
        poll, is_waited_for = select.poll(), False
        poll.register(number, select.POLLIN)
        while len(data) <= bytes_max:
            try:
                piece = os.read(number, min(PIECE_BYTES, bytes_max + 1 - len(data)))
            except BlockingIOError:
                is_waited_for = True  # There is a writer.
                poll.poll()
                continue
            if not piece and is_pipe and not (data or is_waited_for):
                if not poll.poll(writer_wait_s * 1000):
                    raise OSError(errno.EPIPE, "no process writes to this pipe", path)
                is_waited_for = True
                continue
            if not piece:
                break
            data += piece
        return bytes(data)
    finally:
        os.close(number)
