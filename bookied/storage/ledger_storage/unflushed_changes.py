"""What has come into memory since the last checkpoint began."""

from __future__ import annotations


class UnflushedChanges:
    """What a checkpoint would have to do. Adding sets it, a checkpoint that begins resets it."""

    __slots__ = ("any", "entry_bytes")

    def __init__(self) -> None:
        self.any = False
        """Whether anything was added or changed."""
        self.entry_bytes = 0
        """How many bytes of entries were added."""

    def reset(self) -> None:
        """Begin anew: a checkpoint takes the changes so far."""
        self.any, self.entry_bytes = False, 0
