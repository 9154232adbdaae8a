"""The one or two ledgers of a log that its writer has open, and the rule when a log rolls."""

from __future__ import annotations

from typing import Final

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

FRAGMENTS_MAX: Final = 100
"""Fragments of a ledger after which a log rolls: with thousands of ensemble changes the metadata of
the ledger would become too large for ZooKeeper, and the ledger could not even be closed.
"""


class Segments:
    """The ledger that accepts appends, and until it is closed the previous one.

    The log's list of ledgers changes only by compare-and-swap. The caller makes one change at a
    time.
    """

    def __init__(
        self, client: Client, ledgers: LedgerList, known: KnownRecord, writer: LedgerWriter
    ) -> None:
        self._client, self._ledgers, self._known = client, ledgers, known
        self.current = self._segment(known.record, writer)
        """The ledger that accepts appends."""
        self.current.is_settled = True
        self.previous: Segment | None = None
        """The previous ledger, while it is being closed."""
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
        """The open ledgers, the older one first."""
        return [one for one in (self.previous, self.current) if one is not None]

    def _segment(self, record: LogRecord, writer: LedgerWriter) -> Segment:
        return Segment(record.next_index - 1, writer, self._client.cluster.clock.seconds())

    # Rolling

    def is_roll_due(self) -> bool:
        """Return whether the current ledger has reached a limit.

        There are limits of bytes, entries, time and fragments.
        """
        options, current = self.record.options, self.current
        age_s = self._client.cluster.clock.seconds() - current.opened_s
        return (
            0 < options.roll_bytes <= current.writer.length
            or 0 < options.roll_entries <= current.writer.last_add_pushed + 1
            or 0 < options.roll_s <= age_s
            or len(current.writer.metadata.fragments) > FRAGMENTS_MAX
        )

    async def begin_next(self) -> None:
        """List a new ledger, which the next appends go to.

        Raises:
            ClientError: as for ``LedgerList.append_ledger``.
        """
        following = await self._list_following()
        self.previous, self.current = self.current, following

    async def _list_following(self) -> Segment:
        """List a new ledger after the current one; return it."""
        self._known, writer = await self._ledgers.append_ledger(self._known, self.current.ledger_id)
        if self._abandoned_by is not None:  # The next writer recovers the ledger.
            writer.abandon()
            raise not_appended(self._abandoned_by)
        return self._segment(self._known.record, writer)

    async def close_previous(self) -> None:
        """Close the previous ledger after its last entry.

        Raises:
            NotLeaderError: another client closed it at another entry.
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
        """Read the log's record; return if the current ledger is still its last one.

        Raises:
            NotLeaderError: another writer listed a ledger, or sealed the log.
        """
        found = await self._ledgers.read_patiently()
        if found.record.last_ledger_id != self.current.ledger_id or found.record.sealed:
            raise self._taken_over()
        self._known = found

    async def end_of(self, segment: Segment) -> int:
        """Fix the end of a ledger; return its last entry.

        The last ledger is closed at its LAC: unconfirmed entries go into the next ledger, and no
        bookie has to answer. If another ledger follows already, entries after the LAC may be
        stored, and nothing can be inserted before them: then recovery searches for every entry.
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

    def forget_previous(self, segment: Segment) -> None:
        """Forget the previous ledger, whose end is fixed: a trim may delete it from now on."""
        if segment is self.previous:
            self.previous = None

    async def start_over(self) -> None:
        """Continue in a new ledger; the ends of the earlier ones are fixed."""
        self.current = following = await self._list_following()
        following.is_settled = True

    # The end

    async def close_current(self) -> None:
        """Close the current ledger.

        Raises:
            NotLeaderError: another writer took over the log.
        """
        try:
            await self.current.writer.close()
        except DEPOSED as error:
            raise self._taken_over() from error

    async def seal(self) -> None:
        """Seal the log.

        Raises:
            NotLeaderError: another writer took over the log.
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
        """Leave the ledgers to recovery; no new ledger begins."""
        self._abandoned_by = error
        for segment in self.open:
            segment.writer.abandon()
