"""The cursor of `log tail --cursor`: the position at which the next run continues."""

from __future__ import annotations

from typing import Any, Final

from twisted.internet.defer import Deferred
from twisted.logger import Logger

from bkclient.client import Client
from bkclient.errors import ClientError
from bkclient.log import Cursors, LogReader, Position
from bkclient.log.ledger_list import LedgerList

log = Logger()

COMMIT_AFTER_S: Final = 1.0
"""Seconds between the print of an entry and the move of the cursor behind the entry."""


class TailCursor:
    """A cursor of a log that moves behind the printed entries. Made by ``open``."""

    def __init__(self, client: Client, cursors: Cursors, name: str, start: Position | None) -> None:
        self.name, self.start = name, start
        """The name, and the first entry that is not committed; None for a new cursor."""
        self._clock, self._cursors = client.cluster.clock, cursors
        self._reader: LogReader | None = None
        self._printed: Position | None = None
        self._committed = start
        self._timer: Any = None

    @classmethod
    async def open(cls, client: Client, log_name: str, name: str) -> TailCursor:
        """Read a cursor, which need not exist yet.

        Raises:
            IncorrectParameterError: the name is not valid for a cursor.
            NoSuchLogError: the log does not exist.
        """
        record = (await LedgerList(client, log_name).read()).record
        cursors = Cursors(client, log_name, log_id=record.log_id)
        return cls(client, cursors, name, await cursors.position(name))

    async def begin(self, _client: Client, reader: LogReader) -> None:
        """Store the start of a new cursor, unless the reader begins with the first entry."""
        if self.start is None and reader.next_position.index >= 0:
            await self._cursors.advance(self.name, reader.next_position)

    def printed(self, reader: LogReader) -> None:
        """Record that the reader's last entry was printed; the cursor moves soon."""
        self._reader, self._printed = reader, reader.position
        if self._timer is None:
            self._timer = self._clock.callLater(COMMIT_AFTER_S, self._due)

    def _due(self) -> None:
        self._timer = None
        Deferred.fromCoroutine(self._commit_later())

    async def _commit_later(self) -> None:
        try:
            await self._commit()
        except ClientError as error:  # The next commit retries.
            log.warn("cursor {name} was not moved: {error}", name=self.name, error=error)

    async def close(self, _client: Client) -> None:
        """Move the cursor behind all entries that were printed."""
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        await self._commit()

    async def _commit(self) -> None:
        at = self._printed
        if self._reader is None or at is None:
            return
        wanted = Position(at.index, at.entry_id + 1)
        if self._reader.position == at:  # If not, another entry is being printed.
            wanted = self._reader.next_position
        if wanted != self._committed:
            await self._cursors.advance(self.name, wanted)
            self._committed = wanted
