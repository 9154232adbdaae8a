"""Why the operator's wish is not granted."""

from __future__ import annotations

from wire.errors import BookKeeperError


class NotServingError(BookKeeperError):
    """The bookie has not started yet, or stops."""


class TooMuchError(BookKeeperError):
    """The answer would take too much of the bookie's memory."""


class ChangeRefusedError(BookKeeperError):
    """The settings of the bookie forbid it."""
