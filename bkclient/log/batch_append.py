"""Appends of batches: closed ledgers that a log takes in one step, each batch of a stream once."""

from __future__ import annotations

from collections.abc import Sequence

from bkclient.client import Client
from bkclient.concurrency import wall_ms, wall_s
from bkclient.errors import MetadataVersionError
from bkclient.log.close_ledgers import close_ledgers
from bkclient.log.errors import (
    AppendUnknownError,
    DifferentBatchError,
    EarlierBatchError,
    LogError,
    LogSealedError,
)
from bkclient.log.ledger_list import (
    CONFLICTS_MAX,
    OFFER_AGE_S,
    SWEPT_KEY,
    LedgerList,
    entries_in,
    is_settled,
    last_batch,
)
from bkclient.log.record import LastBatch, LogRecord
from bkclient.metadata.errors import MetadataUnavailableError
from wire.ids import LedgerId


class BatchAppend:
    """Appends closed ledgers to a cluster's logs. Keeps no state except the client."""

    def __init__(self, client: Client) -> None:
        self._client = client

    async def append(
        self, name: str, ledger_ids: Sequence[LedgerId], *, stream: str, batch: int | None
    ) -> bool:
        """Append closed ledgers in one step; return False if the log has them already.

        The ledgers have ``STREAM_KEY`` and ``BATCH_KEY`` of ``ledger_list`` as metadata. If the log
        has this batch of the stream, or a later one, the ledgers are deleted. A writer of the log
        is fenced. ``None`` is a batch that no other process offers. For a batch without ledgers the
        log stores the number.

        Raises:
            EarlierBatchError: the log has a later batch of the stream.
            DifferentBatchError: the log has this batch with another number of entries.
            NoSuchLogError: the log does not exist.
            LogSealedError: the log is sealed.
            LogError: a ledger is too old, so that it may have been swept.
            AppendUnknownError: an answer was lost, and the log was trimmed since, or deleted and
                created again.
            ClientError: the last ledgers cannot be recovered, or the list cannot be changed.
        """
        ledgers = LedgerList(self._client, name)
        unknown: LogRecord | None = None
        for _ in range(CONFLICTS_MAX):
            known = await ledgers.read_patiently()
            if any(known.record.lists(ledger_id) for ledger_id in ledger_ids):
                return True  # An earlier attempt of this call, whose answer was lost.
            if known.record.sealed:
                raise LogSealedError(f"log {name} was sealed")
            last = None if batch is None else await last_batch(self._client, known.record, stream)
            if batch is not None and last is not None and last.number >= batch:
                error = await self._mismatch(name, last, batch, ledger_ids)
                for ledger_id in ledger_ids:
                    await self._client.delete_ledger(ledger_id)
                if error is not None:
                    raise error
                return False
            if unknown is not None and (
                known.record.trimmed > unknown.next_index or not known.record.is_of_log_of(unknown)
            ):
                raise AppendUnknownError(
                    f"the ledgers sent to log {name} may have been listed, and trimmed or deleted"
                    " since"
                )
            entries = await self._check_kept(name, ledger_ids)
            if ledger_ids and not await is_settled(self._client, known.record):
                await close_ledgers(self._client, name, known.record)
            record = self._with_all(known.record, ledger_ids)
            if batch is not None:
                record = record.with_batch(LastBatch(stream, batch, entries))
            try:
                await ledgers.write(known, record)
            except MetadataVersionError:
                continue
            except MetadataUnavailableError:
                unknown = unknown or known.record
                continue
            return True
        raise MetadataVersionError(f"log {name} is changed by others all the time")

    async def _mismatch(
        self, name: str, last: LastBatch, batch: int, ledger_ids: Sequence[LedgerId]
    ) -> LogError | None:
        """Return how a batch differs from the last one of its stream; None for a repeat."""
        if last.number > batch:
            return EarlierBatchError(
                f"log {name} has batch {last.number} of this stream, and this is batch {batch}"
            )
        found = [(await self._client.read_metadata(one)).value for one in ledger_ids]
        offered = sum(map(entries_in, found))
        if last.entries in (None, offered):
            return None
        return DifferentBatchError(
            f"log {name} has batch {batch} of this stream with another number of entries: "
            f"{last.entries}, and not {offered}"
        )

    def _with_all(self, record: LogRecord, ledger_ids: Sequence[LedgerId]) -> LogRecord:
        now_ms = wall_ms(self._client.cluster.clock)
        for ledger_id in ledger_ids:
            record = record.appended(ledger_id, now_ms)
        return record

    async def _check_kept(self, name: str, ledger_ids: Sequence[LedgerId]) -> int:
        """Return the number of entries of ledgers.

        Refuse ledgers that a sweep deletes, or may soon.

        The record was read before. A sweep that marks a ledger later writes the record again.
        """
        entries = 0
        oldest_ms = int((wall_s(self._client.cluster.clock) - OFFER_AGE_S) * 1000)
        for ledger_id in ledger_ids:
            metadata = (await self._client.read_metadata(ledger_id)).value
            if metadata.ctime_ms is None or metadata.ctime_ms < oldest_ms:
                raise LogError(f"ledger {ledger_id} is too old to be listed in log {name}")
            if SWEPT_KEY in metadata.custom:
                raise LogError(f"a sweep of log {name} deletes ledger {ledger_id}")
            entries += entries_in(metadata)
        return entries
