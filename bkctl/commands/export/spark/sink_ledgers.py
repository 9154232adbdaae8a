"""The ledgers of a sink: tasks write them, the driver lists them in the log or deletes them."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from wire.ids import LedgerId

if TYPE_CHECKING:
    from bkclient.client import Client
    from bkclient.ledger.writer import LedgerWriter
    from bkclient.log.record import LogOptions


class TaskWriter:
    """Writes the entries of one task, rolling as the log's options say."""

    def __init__(self, client: Client, log: str, stream: str, batch: int) -> None:
        self._client, self._log, self._stream, self._batch = client, log, stream, batch
        self._options: LogOptions | None = None
        self._writer: LedgerWriter | None = None
        self._closed: list[LedgerId] = []

    async def add(self, payloads: list[bytes]) -> None:
        """Write entries, and wait until they are confirmed."""
        if self._options is None:
            self._options = await log_options(self._client, self._log)
        if self._writer is None:
            self._writer = await self._create(self._options)
        await self._writer.add_many(payloads)
        if 0 < self._options.roll_bytes <= self._writer.length:
            await self._close(self._writer)

    async def finish(self) -> tuple[LedgerId, ...]:
        """Close the last ledger; return all, in the order of their entries."""
        if self._writer is not None:
            await self._close(self._writer)
        return tuple(self._closed)

    async def _create(self, options: LogOptions) -> LedgerWriter:
        from bkclient.log.batches import BATCH_KEY, STREAM_KEY
        from bkclient.log.ledger_list import LOG_KEY

        return await self._client.create_ledger(
            ensemble_size=options.ensemble_size,
            write_quorum=options.write_quorum,
            ack_quorum=options.ack_quorum,
            digest_type=options.digest_type,
            password=options.password,
            custom={
                "application": b"bkctl",
                LOG_KEY: self._log.encode(),
                STREAM_KEY: self._stream.encode(),
                BATCH_KEY: str(self._batch).encode(),
            },
        )

    async def _close(self, writer: LedgerWriter) -> None:
        await writer.close()
        self._closed.append(writer.ledger_id)
        self._writer = None


async def log_options(client: Client, log: str) -> LogOptions:
    """Return how ledgers of a log are written.

    Raises:
        NoSuchLogError: there is no such log.
    """
    from bkclient.log.ledger_list import LedgerList

    return (await LedgerList(client, log).read_patiently()).record.options


async def list_in_log(
    client: Client, log: str, ledger_ids: Sequence[LedgerId], *, stream: str, batch: int | None
) -> None:
    """List the ledgers of a batch in the log; see ``LogManager.append_ledgers``."""
    from bkclient.log import LogManager

    await LogManager(client).append_ledgers(log, ledger_ids, stream=stream, batch=batch)


async def delete_ledgers(client: Client, ledger_ids: Sequence[LedgerId]) -> None:
    """Delete ledgers that no log has."""
    for ledger_id in ledger_ids:
        await client.delete_ledger(ledger_id)
