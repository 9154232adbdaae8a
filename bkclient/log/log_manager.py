"""LogManager: creates, opens, lists, trims, sweeps and deletes the logs of a cluster."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

import attrs
from twisted.internet.defer import Deferred
from twisted.internet.task import deferLater
from twisted.logger import Logger

from bkclient.client import Client
from bkclient.concurrency import doubled_s
from bkclient.errors import MetadataVersionError, NoSuchLedgerError
from bkclient.ledger.writer import LedgerWriter
from bkclient.log.batch_append import BatchAppend
from bkclient.log.close_ledgers import close_ledgers
from bkclient.log.errors import (
    LogSealedError,
    NotLeaderError,
)
from bkclient.log.ledger_list import (
    KnownRecord,
    LedgerList,
)
from bkclient.log.reader import LogReader
from bkclient.log.record import EARLIEST, LogOptions, LogRecord, Position
from bkclient.log.trim_and_delete import SWEEP_AGE_S, LogRemoval
from bkclient.log.writer import LogWriter
from wire.codes import LedgerState
from wire.ids import LedgerId

log = Logger()

DUELS_MAX: Final = 8
"""Times that another client may take over the log during its opening."""


@attrs.frozen(kw_only=True)
class LedgerInfo:
    """One ledger of a log. ``state`` is None if its metadata is missing: its entries are lost."""

    index: int
    ledger_id: LedgerId
    created_ms: int
    state: LedgerState | None
    last_entry_id: int | None
    """None while the ledger is open."""
    length_bytes: int
    """The payload bytes in the metadata: 0 while the ledger is open."""


@attrs.frozen(kw_only=True)
class LogInfo:
    """The ledgers and settings of a log."""

    name: str
    log_id: str
    """The id of the log; differs for each log of the same name; empty if unknown."""
    options: LogOptions
    sealed: bool
    trimmed: int
    ledgers: tuple[LedgerInfo, ...]

    @property
    def length_bytes(self) -> int:
        """The payload bytes of the closed ledgers."""
        return sum(one.length_bytes for one in self.ledgers)

    @property
    def entries(self) -> int:
        """The number of entries of the closed ledgers."""
        lasts = [one.last_entry_id for one in self.ledgers]
        return sum(last + 1 for last in lasts if last is not None)


class LogManager:
    """The logs of a client's cluster. Keeps no state except the client."""

    def __init__(self, client: Client) -> None:
        self._client, self._removal = client, LogRemoval(client)
        self._batches = BatchAppend(client)

    async def create(self, name: str, options: LogOptions | None = None) -> None:
        """Create a log without entries.

        Raises:
            LogExistsError: a log of this name exists.
            IncorrectParameterError, QuorumError: an invalid name or invalid options.
        """
        options = options or LogOptions()
        options.check()
        log_id = f"{self._client.cluster.rng.getrandbits(64):016x}"
        record = LogRecord(options=options, log_id=log_id)
        await self._client.store.create_log(name, record.encode())

    async def list(self) -> list[str]:
        """Return the names of all logs, sorted."""
        return await self._client.store.list_logs()

    async def info(self, name: str) -> LogInfo:
        """Return the ledgers and settings of a log.

        Raises:
            NoSuchLogError: the log does not exist.
        """
        record = (await LedgerList(self._client, name).read()).record
        ledgers = [await self._ledger_info(record, index) for index in record.indexes()]
        return LogInfo(
            name=name,
            log_id=record.log_id,
            options=record.options,
            sealed=record.sealed,
            trimmed=record.trimmed,
            ledgers=tuple(ledgers),
        )

    async def _ledger_info(self, record: LogRecord, index: int) -> LedgerInfo:
        ledger = record.ledger(index)
        try:
            metadata = (await self._client.read_metadata(ledger.ledger_id)).value
        except NoSuchLedgerError:
            metadata = None
        return LedgerInfo(
            index=index,
            ledger_id=ledger.ledger_id,
            created_ms=ledger.created_ms,
            state=None if metadata is None else metadata.state,
            last_entry_id=None if metadata is None else metadata.last_entry_id,
            length_bytes=0 if metadata is None else metadata.length,
        )

    # Writing

    async def open_writer(self, name: str) -> LogWriter:
        """Return the log's only writer; fence any earlier writer.

        Raises:
            NoSuchLogError: the log does not exist.
            LogSealedError: the log is sealed.
            LogDamagedError: a listed ledger is missing.
            NotLeaderError: other writers took over the log again and again.
            ClientError: the last ledgers cannot be recovered, or no new ledger can be created.
        """
        ledgers, rng = LedgerList(self._client, name), self._client.cluster.rng
        for attempt in range(DUELS_MAX):
            known = await ledgers.read_patiently()
            if known.record.sealed:
                raise LogSealedError(f"log {name} was sealed")
            tail = await close_ledgers(self._client, name, known.record)
            try:
                known, writer = await self._take_over(ledgers, known)
            except (NotLeaderError, MetadataVersionError):
                await self._pause(rng.uniform(0.5, 1.0) * doubled_s(0.05, attempt, 2.0))
                continue
            return LogWriter(self._client, ledgers, known, writer, recovered_tail=tail)
        raise NotLeaderError(f"log {name}: {DUELS_MAX} times another writer was quicker")

    async def _take_over(
        self, ledgers: LedgerList, known: KnownRecord
    ) -> tuple[KnownRecord, LedgerWriter]:
        return await ledgers.append_ledger(known, known.record.last_ledger_id, tries=1)

    def _pause(self, seconds: float) -> Deferred[None]:
        return deferLater(self._client.cluster.clock, seconds, lambda: None)

    async def append_ledgers(
        self, name: str, ledger_ids: Sequence[LedgerId], *, stream: str, batch: int | None
    ) -> bool:
        """Append closed ledgers in one step; see ``BatchAppend.append``."""
        return await self._batches.append(name, ledger_ids, stream=stream, batch=batch)

    # Reading

    async def open_reader(
        self, name: str, start: Position = EARLIEST, *, follow: bool = True, last: int | None = None
    ) -> LogReader:
        """Return a reader of a log that begins at ``start``, or ``last`` entries before ``LATEST``.

        From ``LATEST`` the reader returns all entries confirmed after this call. A few entries
        confirmed just before may come first.

        Raises:
            NoSuchLogError: the log does not exist.
            ClientError: without ``follow``, the bookies do not report the position of ``LATEST``.
        """
        reader = LogReader(self._client, LedgerList(self._client, name), start, follow=follow)
        if last is None:
            await reader.begin()
        else:
            await reader.begin_before_end(last)
        return reader

    # Deleting

    async def trim(self, name: str, before: Position) -> Position:
        """Delete the ledgers that end before a position; see ``LogRemoval.trim``."""
        return await self._removal.trim(name, before)

    async def delete(self, name: str, *, force: bool = False, log_id: str = "") -> int:
        """Delete a log and its ledgers; see ``LogRemoval.delete``."""
        return await self._removal.delete(name, force=force, log_id=log_id)

    async def sweep(self, name: str, *, age_s: float = SWEEP_AGE_S) -> tuple[LedgerId, ...]:
        """Delete ledgers that a log does not list; see ``LogRemoval.sweep``."""
        return await self._removal.sweep(name, age_s=age_s)

    async def unlisted(self, name: str, *, age_s: float = SWEEP_AGE_S) -> Sequence[LedgerId]:
        """Return the ledgers that ``sweep`` would delete now."""
        return await self._removal.unlisted(name, age_s=age_s)
