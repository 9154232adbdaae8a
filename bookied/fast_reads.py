"""Plain V2 reads of entries in memory: one loop over all that came together.

A plain read has no flags, no trailing bytes, a ledger in memory and an entry in the write cache.
Any other is left to the plain path, as is a read that must not overtake one that waits for the
disk. The same test as for adds compares the two paths.
"""

from __future__ import annotations

import struct
from collections.abc import Callable
from typing import Final

from bookied.storages import Storages
from wire.codes import OpCode
from wire.errors import BookKeeperError
from wire.ids import NO_ENTRY, LedgerId
from wire.v2 import LENGTH, pack_header

_HEADER: Final = pack_header(OpCode.READ_ENTRY)
_FIRST: Final = struct.pack(">i", _HEADER)
_READ: Final = struct.Struct(">iiqq")
_READ_LENGTH: Final = _READ.size - LENGTH.size
_ANSWER: Final = struct.Struct(">iiiqq")
_ANSWER_LENGTH: Final = _ANSWER.size - LENGTH.size


class FastReads:
    """Takes plain reads off the front of what a connection received."""

    def __init__(self, storages: Storages) -> None:
        self._storages = storages

    def take(
        self, data: bytes, at: int, must_wait: Callable[[LedgerId], bool], size_bytes_max: int
    ) -> tuple[int, list[bytes]]:
        """Answer the whole plain reads that begin at ``at``.

        Args:
            data: frames.
            at: where to begin.
            must_wait: whether a read of this ledger would overtake another.
            size_bytes_max: stop soon after so many bytes of answers.

        Returns:
            Where they end, and the answers' frames in pieces.
        """
        answers: list[bytes] = []
        size_bytes, last_start = 0, len(data) - _READ.size
        if data[at + 4 : at + 8] != _FIRST:
            return at, answers
        read_of: int | None = None
        while at <= last_start and size_bytes < size_bytes_max:
            length, header, ledger_id, asked_id = _READ.unpack_from(data, at)
            if header != _HEADER or length != _READ_LENGTH:
                break
            if ledger_id != read_of:
                storage, read_of = self._storages.of(ledger_id), ledger_id
                hot, read_memory = storage.hot, storage.read_memory
            state = hot.get(ledger_id)
            if state is None or must_wait(ledger_id):
                break
            entry_id = state.last_entry if asked_id == NO_ENTRY else asked_id
            try:
                packet = read_memory(state, entry_id)
            except (BookKeeperError, OSError):
                break
            if not isinstance(packet, bytes):
                break
            length = _ANSWER_LENGTH + len(packet)
            answers += _ANSWER.pack(length, _HEADER, 0, ledger_id, asked_id), packet
            size_bytes += length
            at += _READ.size
        return at, answers
