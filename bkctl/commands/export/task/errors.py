"""How a task tells the driver what went wrong, across whatever runs the task."""

from __future__ import annotations

import json
import socket
from typing import Final

from wire.errors import BookKeeperError

FAILURE_MARK: Final = "BKCTL-EXPORT-FAILURE "
"""Before the JSON in which a task reports a failure: Spark passes on text only."""


class TaskError(BookKeeperError):
    """A task failed; the driver reads the details from the text."""

    def __init__(self, where: str, cause: BaseException) -> None:
        failure = {"where": where, "error": type(cause).__name__, "message": str(cause)}
        self.sentence = _sentence(failure)
        """The same for a person."""
        super().__init__(f"{FAILURE_MARK}{json.dumps(failure)}")


def failure_in(text: str) -> str | None:
    """Return what a task reported, as one sentence; None where no task reported anything."""
    at = text.find(FAILURE_MARK)
    if at < 0:
        return None
    try:
        failure, _ = json.JSONDecoder().raw_decode(text[at + len(FAILURE_MARK) :])
        return _sentence(failure)
    except (ValueError, TypeError, KeyError):
        return None  # The text was cut off.


def _sentence(failure: dict[str, str]) -> str:
    where = f"{failure['where']}: " if failure["where"] else ""
    return f"{where}{failure['message']} ({failure['error']})"


def host() -> str:
    """Return the name of this host, for messages."""
    return socket.gethostname()
