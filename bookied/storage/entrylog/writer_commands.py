"""What the reactor passes to the writer of an entry log, in order."""

from __future__ import annotations

import attrs


@attrs.frozen
class OpenLog:
    """Begin a log."""

    log_id: int
    turn: int
    """How often the ids had started over."""
    size_bytes: int = 0


@attrs.frozen
class WriteRecords:
    """Append records to the log that was begun last."""

    log_id: int
    offset: int
    """Where in the log it begins."""
    blobs: list[bytes]
    counted: dict[int, int]
    """Bytes by ledger of those blobs that came with a count."""
    uncounted: list[bytes]
    size_bytes: int

    @property
    def end(self) -> int:
        """Where in the log it ends."""
        return self.offset + self.size_bytes


@attrs.frozen
class CloseLog:
    """End the log that was begun last, with its map."""

    size_bytes: int = 0


Command = OpenLog | WriteRecords | CloseLog
