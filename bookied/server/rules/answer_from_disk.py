"""An answer that cannot be given without the disk, as a value.

The rules run on the reactor and never wait for a disk. Where they would have to, they answer with
a ``DiskRead``: the caller runs ``fetch`` in a thread (or at once, in a simulation) and then
``answer`` back on the reactor. An answer may again be a ``DiskRead``.
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
    """What to fetch, and what becomes of it.

    ``fetch_blocking`` may run in any thread and touches nothing but files; without it the answer
    needs no disk, and other clients have their turn first. ``then`` gets its value, ``failed`` the
    return code if it raised; both run on the reactor. Answers about one ledger are given in the
    order asked, hence ``ledger_id``.
    """

    ledger_id: LedgerId
    fetch_blocking: Callable[[], Any] | None
    then: Callable[[Any], Answer]
    failed: Callable[[ReturnCode], Response]
    held_bytes: int = 0
    """So much of the answer is in memory already."""
    is_long: bool = False
    """Whether it takes the interpreter for milliseconds: one of these is fetched at a time."""
    _value: Any = attrs.field(init=False, default=None)
    _error: Exception | None = attrs.field(init=False, default=None)

    def fetch(self) -> int:
        """Do the blocking part, in any thread; return a rough count of the bytes it brought."""
        if self.fetch_blocking is None:
            return 0
        try:
            self._value = self.fetch_blocking()
        except (BookKeeperError, OSError) as error:
            self._error = error
        return _size_bytes(self._value)

    def answer(self) -> Answer:
        """Make the answer of what was fetched; call it on the reactor, once ``fetch`` is done."""
        if self._error is not None:
            return self.failed(refusal_code(self._error, self.ledger_id))
        try:
            return self.then(self._value)
        except (BookKeeperError, OSError) as error:
            return self.failed(refusal_code(error, self.ledger_id))


Answer = Union[Response, DiskRead]


def refusal_code(error: Exception, ledger_id: LedgerId) -> ReturnCode:
    """Return what to answer the client; anything but a plain refusal is logged."""
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
