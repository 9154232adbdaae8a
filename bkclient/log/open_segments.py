"""Segments: the one or two ledgers of a log that its writer has open, and when a log rolls."""

from __future__ import annotations

import attrs
from twisted.logger import Logger

from bkclient.client import Client
from bkclient.errors import ClientError
from bkclient.ledger.writer import LedgerWriter
from bkclient.log.append_queue import DEPOSED, Segment, not_appended
from bkclient.log.errors import NotLeaderError
from bkclient.log.ledger_list import KnownRecord, LedgerList
from bkclient.log.record import LogRecord
from bkclient.metadata.errors import MetadataUnavailableError

log = Logger()


class Segments:
    """The ledger that takes appends, and until it is closed the one before.

    It changes the log's list of ledgers only by compare-and-swap. The caller makes sure that one
    change at a time is in progress.
    """

    def __init__(
        self, client: Client, ledgers: LedgerList, known: KnownRecord, writer: LedgerWriter
    ) -> None:
        self._client, self._ledgers, self._known = client, ledgers, known
        self.current = self._segment(known.record, writer)
        """The ledger that takes appends."""
        self.current.is_settled = True
        self.previous: Segment | None = None
        """The ledger before, while it is being closed."""
        self._abandoned_by: ClientError | None = None

    @property
    def name(self) -> str:
        """The name of the log."""
        return self._ledgers.name

    @property
    def record(self) -> LogRecord:
        """The log's record as last written or read."""
        return self._known.record

    @property
    def open(self) -> list[Segment]:
        """The ledgers that are open, the older one first."""
        return [one for one in (self.previous, self.current) if one is not None]

    def _segment(self, record: LogRecord, writer: LedgerWriter) -> Segment:
        return Segment(record.next_index - 1, writer, self._client.cluster.clock.seconds())

    # Rolling

    def is_roll_due(self) -> bool:
        """Return whether the current ledger has reached a limit of bytes, entries or time."""
        options, current = self.record.options, self.current
        age_s = self._client.cluster.clock.seconds() - current.opened_s
        return (
            0 < options.roll_bytes <= current.writer.length
            or 0 < options.roll_entries <= current.writer.last_add_pushed + 1
            or 0 < options.roll_s <= age_s
        )

    async def begin_next(self) -> None:
        """List a new ledger, and let the next appends go there.

        Raises:
            ClientError: as for ``LedgerList.append_ledger``.
        """
        following = await self._list_following()
        self.previous, self.current = self.current, following

    async def _list_following(self) -> Segment:
        """List a new ledger after the current one; return it."""
        self._known, writer = await self._ledgers.append_ledger(self._known, self.current.ledger_id)
        if self._abandoned_by is not None:  # The next writer recovers it.
            writer.abandon()
            raise not_appended(self._abandoned_by)
        return self._segment(self._known.record, writer)

    async def close_previous(self) -> None:
        """Close the ledger before, behind its last entry.

        Raises:
            NotLeaderError: another client closed it somewhere else.
            ClientError: an add failed, or the ledger could not be closed.
        """
        previous = self.previous
        assert previous is not None
        expected = previous.writer.last_add_pushed
        await previous.writer.drain()
        metadata = await previous.writer.close()
        if metadata.last_entry_id != expected:
            raise NotLeaderError(f"ledger {previous.ledger_id} was closed by another writer")
        self.previous = None

    # Repair

    async def confirm_leading(self) -> None:
        """Read the log's record; go on only if the current ledger is still its last one.

        Raises:
            NotLeaderError: another writer listed a ledger, or sealed the log.
        """
        found = await self._ledgers.read_patiently()
        if found.record.last_ledger_id != self.current.ledger_id or found.record.sealed:
            raise self._taken_over()
        self._known = found

    async def end_of(self, segment: Segment) -> int:
        """Fix where a ledger ends; return its last entry.

        The last ledger is closed where it is confirmed: what is not goes into the next, and no
        bookie has to answer for that. Where another ledger follows already, its entries may be
        stored, and nothing can go before them any more: there recovery looks for every entry.
        """
        if segment is self.current:
            try:
                metadata = await segment.writer.close()
            except MetadataUnavailableError:
                raise
            except ClientError as error:
                log.info("ledger {id}: {error}", id=segment.ledger_id, error=error)
            else:
                assert metadata.last_entry_id is not None
                return metadata.last_entry_id
        return await self._recovered_end(segment)

    async def _recovered_end(self, segment: Segment) -> int:
        """Recover a ledger; return its last entry."""
        segment.writer.abandon()
        options = self.record.options
        reader = await self._client.open_ledger(segment.ledger_id, password=options.password)
        reader.close()
        return reader.last_add_confirmed

    async def start_over(self) -> None:
        """Go on in a new ledger; where those before it end is fixed."""
        following = await self._list_following()
        self.previous, self.current = None, following
        following.is_settled = True

    # The end

    async def close_current(self) -> None:
        """Close the ledger that took appends.

        Raises:
            NotLeaderError: another writer took the log over.
        """
        try:
            await self.current.writer.close()
        except DEPOSED as error:
            raise self._taken_over() from error

    async def seal(self) -> None:
        """End the log for good.

        Raises:
            NotLeaderError: another writer took the log over.
        """
        ours = self.current.ledger_id
        known = await self._ledgers.update(
            lambda r: attrs.evolve(r, sealed=True) if r.last_ledger_id == ours else None
        )
        if known.record.last_ledger_id != ours:
            raise self._taken_over()

    def _taken_over(self) -> NotLeaderError:
        return NotLeaderError(f"log {self.name} was taken over by another writer")

    def abandon(self, error: ClientError) -> None:
        """Leave the ledgers as they are, for recovery; no new ledger is begun."""
        self._abandoned_by = error
        for segment in self.open:
            segment.writer.abandon()
