"""The removal of ledgers from a log: trim, delete, and sweep of unlisted ledgers."""

from __future__ import annotations

from collections.abc import AsyncIterator
from typing import Final

import attrs
from twisted.logger import Logger

from bkclient.client import Client
from bkclient.concurrency import wall_s
from bkclient.errors import (
    ClientError,
    IncorrectParameterError,
    MetadataVersionError,
    NoSuchLedgerError,
)
from bkclient.log.cursors import Cursor, Cursors
from bkclient.log.errors import LogError, LogInUseError
from bkclient.log.ledger_list import BATCH_KEY, CONFLICTS_MAX, LOG_KEY, SWEPT_KEY, LedgerList
from bkclient.log.ledger_list import SWEEP_AGE_S as BATCH_SWEEP_AGE_S
from bkclient.log.record import LogRecord, Position
from bkclient.metadata.errors import MetadataUnavailableError, NoSuchLogError
from wire.ids import LedgerId

log = Logger()

SWEEP_AGE_S: Final = 3600.0
"""The least age, in seconds, of a ledger that a sweep deletes."""


class LogRemoval:
    """Trims, deletes and sweeps a cluster's logs. Keeps no state except the client.

    A ledger is deleted only after the log's record has stopped listing it, by compare-and-swap: a
    crash in between leaves a ledger for the next sweep, and never a record that lists a missing
    ledger.
    """

    def __init__(self, client: Client) -> None:
        self._client = client

    async def trim(self, name: str, before: Position) -> Position:
        """Remove the ledgers that lie entirely before a position.

        Return the first remaining position.

        Only closed ledgers are removed, and never the last: the first remaining entry may be before
        ``before``.

        Raises:
            NoSuchLogError: the log does not exist, or ``before`` is a position of another log.
            MetadataVersionError: other clients change the record all the time.
        """
        ledgers = LedgerList(self._client, name)
        first: LogRecord | None = None
        dropped: set[LedgerId] = set()
        lost: MetadataUnavailableError | None = None
        for _ in range(CONFLICTS_MAX):
            known = await ledgers.read_patiently()
            first = first or known.record
            if not (
                known.record.is_of_log_of(first)
                and known.record.lists_at(before.index, before.ledger_id)
            ):
                raise ledgers.gone()
            index = await self._first_kept(known.record, before.index)
            if index > known.record.trimmed:
                gone = known.record.ledgers[: index - known.record.trimmed]
                dropped.update(one.ledger_id for one in gone)
                try:
                    known = await ledgers.write(known, known.record.trimmed_to(index))
                except MetadataVersionError:
                    continue
                except MetadataUnavailableError as error:
                    # The record shows whether the change was stored when it is read again.
                    lost = error
                    continue
            for ledger_id in sorted(dropped):
                if not known.record.lists(ledger_id):
                    await self._client.delete_ledger(ledger_id)
            return Position(index, 0)
        raise lost or MetadataVersionError(f"log {name} is changed by others all the time")

    async def _first_kept(self, record: LogRecord, wanted: int) -> int:
        index = record.trimmed
        while index < min(wanted, record.next_index - 1):
            try:
                metadata = (await self._client.read_metadata(record.ledger(index).ledger_id)).value
            except NoSuchLedgerError:
                index += 1
                continue
            if not metadata.is_closed:
                break
            index += 1
        return index

    async def delete(self, name: str, *, force: bool = False, log_id: str = "") -> int:
        """Delete a log and its ledgers; return their number. A writer is fenced.

        Raises:
            NoSuchLogError: the log does not exist, or its id is not ``log_id``.
            LogInUseError: the log has entries, and ``force`` is False.
        """
        ledgers = LedgerList(self._client, name)
        known = await ledgers.read()
        if not known.record.may_have_id(log_id):
            raise ledgers.gone()
        if not force and await self._has_entries(known.record):
            count = len(known.record.ledgers)
            raise LogInUseError(f"log {name} has {count} ledgers with entries")
        cursors = await self._cursors(name)
        await self._client.store.remove_log(name, known.version)
        await self._forget(name, cursors)
        for one in known.record.ledgers:
            await self._fence_and_delete(one.ledger_id, known.record.options.password)
        return len(known.record.ledgers)

    async def _cursors(self, name: str) -> tuple[Cursor, ...]:
        try:
            return await Cursors(self._client, name).list()
        except ClientError as error:
            log.warn("the cursors of log {name} are left: {error}", name=name, error=error)
            return ()

    async def _forget(self, name: str, cursors: tuple[Cursor, ...]) -> None:
        """Delete the cursors of a deleted log, but not those of another log with its name.

        A remaining cursor is replaced by the first reader of its name.
        """
        try:
            await Cursors(self._client, name).forget(cursors)
        except ClientError as error:
            log.warn("the cursors of log {name} are left: {error}", name=name, error=error)

    async def _has_entries(self, record: LogRecord) -> bool:
        """Return whether a ledger has entries, or is open, or lost."""
        for one in record.ledgers:
            try:
                metadata = (await self._client.read_metadata(one.ledger_id)).value
            except NoSuchLedgerError:
                return True
            if metadata.last_entry_id != -1:
                return True
        return False

    async def sweep(self, name: str, *, age_s: float = SWEEP_AGE_S) -> tuple[LedgerId, ...]:
        """Delete the log's ledgers that its record does not list; return them.

        Writers that lost a race or died in one leave unlisted ledgers, and so do interrupted trims.
        Ledgers younger than ``age_s`` stay; those of a batch stay for a day in any case. The log
        itself may be deleted already. A sweep reads the metadata of the complete cluster.

        A writer that has created a ledger and not listed it yet could list it after the sweep. So
        the record is first written again unchanged, which makes that writer's attempt fail. The
        ledgers of a batch are created before the record is read, so they are marked before that.
        """
        found = await self.unlisted(name, age_s=age_s)
        if not found:
            return ()
        for ledger_id in found:
            await self._mark(ledger_id)
        record = await self._rewritten(name)
        swept = []
        for ledger_id in found:
            if record is None or not record.lists(ledger_id):
                password = b"" if record is None else record.options.password
                await self._fence_and_delete(ledger_id, password)
                swept.append(ledger_id)
        return tuple(swept)

    async def unlisted(self, name: str, *, age_s: float) -> list[LedgerId]:
        """Return the ledgers that ``sweep`` would delete now."""
        before_ms = int((wall_s(self._client.cluster.clock) - age_s) * 1000)
        found = [one async for one in self._ledgers_of(name, before_ms)]
        record = await self._stored(name) if found else None
        return found if record is None else record.unlisted(found)

    async def _stored(self, name: str) -> LogRecord | None:
        try:
            return (await LedgerList(self._client, name).read_patiently()).record
        except NoSuchLogError:
            return None

    async def _mark(self, ledger_id: LedgerId) -> None:
        """Mark a ledger of a batch: a log that reads the mark does not list the ledger."""
        try:
            local = await self._client.local_metadata(ledger_id)
            if BATCH_KEY in local.value.custom:
                await self._client.cluster.updater.update(
                    ledger_id,
                    local,
                    lambda metadata: SWEPT_KEY not in metadata.custom,
                    lambda metadata: attrs.evolve(
                        metadata, custom={**metadata.custom, SWEPT_KEY: b""}
                    ),
                )
        except NoSuchLedgerError:
            return

    async def _rewritten(self, name: str) -> LogRecord | None:
        """Write the record unchanged; return None if the log does not exist."""
        ledgers = LedgerList(self._client, name)
        while True:
            try:
                known = await ledgers.read_patiently()
                return (await ledgers.write(known, known.record)).record
            except NoSuchLogError:
                return None
            except MetadataVersionError:
                continue

    async def _ledgers_of(self, name: str, before_ms: int) -> AsyncIterator[LedgerId]:
        batch_s = wall_s(self._client.cluster.clock) - BATCH_SWEEP_AGE_S
        batch_ms = min(before_ms, int(batch_s * 1000))
        async for ledger_id in self._client.list_ledgers():
            try:
                metadata = (await self._client.read_metadata(ledger_id)).value
            except NoSuchLedgerError:
                continue
            except ClientError as error:
                raise LogError(f"ledger {ledger_id} cannot be looked at: {error}") from error
            if metadata.custom.get(LOG_KEY) != name.encode() or metadata.ctime_ms is None:
                continue
            if metadata.ctime_ms <= (batch_ms if BATCH_KEY in metadata.custom else before_ms):
                yield ledger_id

    async def _fence_and_delete(self, ledger_id: LedgerId, password: bytes) -> None:
        """Delete a ledger; first fence its writer, if bookies can be reached."""
        try:
            reader = await self._client.open_ledger(ledger_id, password=password)
            reader.close()
        except NoSuchLedgerError:
            return
        except IncorrectParameterError:
            raise
        except ClientError as error:
            log.warn("ledger {id} is deleted unfenced: {error}", id=ledger_id, error=error)
        await self._client.delete_ledger(ledger_id)
