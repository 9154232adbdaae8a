"""An answer that needs the disk, as a value.

The rules run on the reactor and never wait for a disk. If they need the disk, they answer with a
``DiskRead``. The caller runs ``fetch`` in a thread (or at once, in a simulation) and then
``answer`` on the reactor, which may return another ``DiskRead``.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Union

import attrs
from twisted.logger import Logger

from bookied.errors import return_code
from bookied.storage.entrylog.entry_rows import EntryRows
from wire.codes import ReturnCode
from wire.errors import BookieError, BookKeeperError
from wire.ids import LedgerId
from wire.messages import Response

log = Logger()


@attrs.define(eq=False)
class DiskRead:
    """A disk read, and the functions that make the answer of its result.

    ``fetch_blocking`` may run in any thread and uses only files. If it is None, the answer needs no
    disk, and other clients have their turn first. ``then`` gets its result; if it raised,
    ``failed`` gets the return code. Both run on the reactor. Answers about one ledger are sent in
    the order of the requests, hence ``ledger_id``.
    """

    ledger_id: LedgerId
    fetch_blocking: Callable[[], Any] | None
    then: Callable[[Any], Answer]
    failed: Callable[[ReturnCode], Response]
    held_bytes: int = 0
    """Bytes of the answer that are in memory already."""
    is_long: bool = False
    """Whether the fetch uses the interpreter for milliseconds: these fetches run one at a time."""
    _value: Any = attrs.field(init=False, default=None)
    _error: Exception | None = attrs.field(init=False, default=None)

    def fetch(self) -> int:
        """Run ``fetch_blocking``, in any thread; return roughly the number of bytes read."""
        if self.fetch_blocking is None:
            return 0
        try:
            self._value = self.fetch_blocking()
        except (BookKeeperError, OSError) as error:
            self._error = error
        return _size_bytes(self._value)

    def answer(self) -> Answer:
        """Return the answer; call this on the reactor, after ``fetch``."""
        if self._error is not None:
            return self.failed(refusal_code(self._error, self.ledger_id))
        try:
            return self.then(self._value)
        except (BookKeeperError, OSError) as error:
            return self.failed(refusal_code(error, self.ledger_id))


Answer = Union[Response, DiskRead]


def refusal_code(error: Exception, ledger_id: LedgerId) -> ReturnCode:
    """Return the return code of an error; log the error unless it is an ordinary refusal."""
    if not isinstance(error, BookieError):
        log.error(
            "ledger {ledger_id}: {error_class}: {error}",
            ledger_id=ledger_id,
            error_class=type(error).__name__,
            error=error,
        )
    return return_code(error)


def _size_bytes(value: object) -> int:
    if isinstance(value, bytes):
        return len(value)
    return value.size_bytes if isinstance(value, EntryRows) else 0
