"""The bytes of a journal, some of which its disk may have lost."""

from __future__ import annotations

from pathlib import Path
from typing import Final

import attrs

from bookied.errors import JournalRecordError
from bookied.storage.files.files import ReadFile
from bookied.storage.files.unreadable import lost_is_damaged, read_before_loss

LARGE_READ_BYTES: Final = 1024 * 1024
"""Who reads so much at once reads on."""

AHEAD_BYTES: Final = 8 * 1024 * 1024
"""So far ahead of a large read, as much is brought into memory: the disk works meanwhile."""


@attrs.frozen
class JournalBytes:
    """A journal file of which the disk may have lost a part: that is damage like any other."""

    file: ReadFile
    path: Path

    def read_at(self, offset: int, size: int, least: int | None = None) -> bytes:
        """Return up to ``size`` bytes: fewer at the end of the file, or where the disk lost some.

        Args:
            offset: where they begin.
            size: how many.
            least: no fewer in front of what is lost; by default all.

        Raises:
            JournalRecordError: those cannot be read.
        """
        if size >= LARGE_READ_BYTES:
            self.file.read_ahead(offset + AHEAD_BYTES, size)
        with lost_is_damaged(self.path, JournalRecordError, offset):
            return read_before_loss(self.file, offset, size, size if least is None else least)

    def next_data(self, offset: int) -> int | None:
        """Return where data follows at or behind ``offset``, as ``ReadFile`` does."""
        return self.file.next_data(offset)
