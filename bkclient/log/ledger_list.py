"""The list of a log's ledgers, changed only by compare-and-swap, and batches of ledgers.

A log accepts a batch of ledgers as a whole: many processes write the ledgers, and one
compare-and-swap lists them.

The custom metadata of each ledger of a batch has the stream and the number of the batch. So a batch
that is offered again, by a writer that does not know whether it was accepted, is listed once.
"""

from __future__ import annotations

from collections.abc import Callable
from contextlib import aclosing
from typing import Final

import attrs
from twisted.internet.task import deferLater
from twisted.logger import Logger

from bkclient.client import Client
from bkclient.concurrency import wall_ms
from bkclient.errors import ClientError, MetadataVersionError, NoSuchLedgerError
from bkclient.ledger.writer import LedgerWriter
from bkclient.log.errors import NotLeaderError
from bkclient.log.record import LastBatch, LogOptions, LogRecord, decode_record
from bkclient.metadata.errors import MetadataUnavailableError, NoSuchLogError
from bkclient.metadata.versions_and_watches import Version
from wire.ids import LedgerId
from wire.ledger_metadata import LedgerMetadata

log = Logger()

LOG_KEY: Final = "bkctl.log"
"""The custom metadata of a log's ledgers: the log's name."""

_BATCH_DIGITS_MAX: Final = 19
CONFLICTS_MAX: Final = 10
READS_MAX: Final = 6


@attrs.frozen
class KnownRecord:
    """A record and the version at which it was read or written."""

    record: LogRecord
    version: Version


class LedgerList:
    """The list of one log. It reads and changes the metadata, and keeps no state."""

    def __init__(self, client: Client, name: str) -> None:
        self._client, self.name = client, name

    async def read(self) -> KnownRecord:
        """Return the record.

        Raises:
            NoSuchLogError: the log does not exist.
            LogDamagedError: the record is invalid.
        """
        stored = await self._client.store.read_log(self.name)
        return KnownRecord(decode_record(self.name, stored.value), stored.version)

    async def read_patiently(self) -> KnownRecord:
        """Return the record; retry while the metadata service is briefly unreachable."""
        pause_s = 0.1
        for _ in range(READS_MAX - 1):
            try:
                return await self.read()
            except MetadataUnavailableError:
                await deferLater(self._client.cluster.clock, pause_s)
                pause_s *= 2
        return await self.read()

    def gone(self) -> NoSuchLogError:
        """Return the error for a log that was replaced by another one of its name."""
        return NoSuchLogError(f"log {self.name} was deleted, and another was created")

    async def write(self, known: KnownRecord, record: LogRecord) -> KnownRecord:
        """Replace the known record.

        Raises:
            MetadataVersionError: the record was changed.
            MetadataUnavailableError: the outcome is unknown.
        """
        version = await self._client.store.write_log(self.name, record.encode(), known.version)
        return KnownRecord(record, version)

    async def update(self, changed: Callable[[LogRecord], LogRecord | None]) -> KnownRecord:
        """Change the present record; ``None`` leaves it unchanged.

        ``changed`` must return the same for a record that has the change already, because an answer
        may be lost after the change.

        Raises:
            MetadataVersionError: other clients change the record all the time.
        """
        for _ in range(CONFLICTS_MAX):
            known = await self.read_patiently()
            record = changed(known.record)
            if record is None or record == known.record:
                return known
            try:
                return await self.write(known, record)
            except (MetadataVersionError, MetadataUnavailableError):
                continue
        raise MetadataVersionError(f"log {self.name} is changed by others all the time")

    async def append_ledger(
        self, known: KnownRecord, after: LedgerId | None, *, tries: int = CONFLICTS_MAX
    ) -> tuple[KnownRecord, LedgerWriter]:
        """List a new ledger after ``after``, the last one; return its writer.

        Each attempt creates a ledger: an unlisted ledger that another client could have swept is
        never listed later.

        Raises:
            NotLeaderError: another client has listed a ledger.
            ClientError: no ledger could be created, or the list could not be changed.
        """
        for _ in range(tries):
            if known.record.is_full:  # Another client may have trimmed the log since.
                known = await self._read_as_last(after)
                known.record.require_room()  # Each append to a full log reaches this line.
            writer = await create_log_ledger(self._client, self.name, known.record.options)
            try:
                return await self._list(known, writer), writer
            except MetadataVersionError:
                await self._discard(writer)
            except BaseException:
                writer.abandon()
                raise
            known = await self._read_as_last(after)
        raise NotLeaderError(f"log {self.name} is changed by others all the time")

    async def _read_as_last(self, after: LedgerId | None) -> KnownRecord:
        """Return the record, if ``after`` is still its last ledger."""
        known = await self.read_patiently()
        if known.record.last_ledger_id != after or known.record.sealed:
            raise NotLeaderError(f"log {self.name} was taken over by another writer")
        return known

    async def _list(self, known: KnownRecord, writer: LedgerWriter) -> KnownRecord:
        now_ms = wall_ms(self._client.cluster.clock)
        try:
            return await self.write(known, known.record.appended(writer.ledger_id, now_ms))
        except MetadataUnavailableError:
            found = await self.read_patiently()
            if found.record.last_ledger_id == writer.ledger_id:
                return found
            # The ledger may yet be listed, so it stays; a sweep prevents that before it deletes.
            raise

    async def _discard(self, writer: LedgerWriter) -> None:
        writer.abandon()
        try:
            await self._client.delete_ledger(writer.ledger_id)
        except ClientError as error:
            log.warn("ledger {id} is left to be swept: {error}", id=writer.ledger_id, error=error)


STREAM_KEY: Final = "bkctl.stream"
"""The custom metadata of a batch's ledgers: the stream of batches."""

BATCH_KEY: Final = "bkctl.batch"
"""The number of the batch in its stream, ascending, in decimal."""

OFFER_AGE_S: Final = 12 * 3600.0
"""The greatest age of a ledger when its batch is accepted."""

SWEEP_AGE_S: Final = 2 * OFFER_AGE_S
"""Younger ledgers of a batch are not swept: the batch may yet be accepted."""

SWEPT_KEY: Final = "bkctl.swept"
"""The custom metadata of a batch's ledger that a sweep deletes: no log lists it from then on.

The ages above compare the clocks of several hosts. They only protect live batches from a sweep.
"""


async def create_log_ledger(
    client: Client, name: str, options: LogOptions, **custom: bytes
) -> LedgerWriter:
    """Create a ledger for a log with its options; ``custom`` becomes custom metadata.

    Raises:
        ClientError: as ``Client.create_ledger``.
    """
    return await client.create_ledger(
        ensemble_size=options.ensemble_size,
        write_quorum=options.write_quorum,
        ack_quorum=options.ack_quorum,
        digest_type=options.digest_type,
        password=options.password,
        custom={"application": b"bkctl", LOG_KEY: name.encode(), **custom},
    )


def batch_of(custom: dict[str, bytes] | None, stream: str) -> int | None:
    """Return the batch of a stream to which a ledger belongs, by its custom metadata; else None."""
    if not custom or custom.get(STREAM_KEY) != stream.encode():
        return None
    number = custom.get(BATCH_KEY, b"")
    return int(number) if number.isdigit() and len(number) <= _BATCH_DIGITS_MAX else None


async def last_batch(client: Client, record: LogRecord, stream: str) -> LastBatch | None:
    """Return the last batch of a stream that a log has accepted; None if there is none.

    The record has it, unless many other streams, or an earlier release, wrote since. Then the
    custom metadata of the ledgers has it, read from the last ledger on; trimmed ledgers do not
    exist any more.
    """
    for batch in record.batches:
        if batch.stream == stream:
            return batch
    newest_first = [ledger.ledger_id for ledger in reversed(record.ledgers)]
    async with aclosing(client.store.read_ledgers(newest_first)) as ledgers:
        async for some in ledgers:
            for ledger in some:
                number = batch_of(dict(ledger.readable().custom), stream)
                if number is not None:
                    return LastBatch(stream, number)
    return None


def entries_in(metadata: LedgerMetadata) -> int:
    """Return the number of entries of a closed ledger."""
    return 0 if metadata.last_entry_id is None else metadata.last_entry_id + 1


async def is_settled(client: Client, record: LogRecord) -> bool:
    """Return whether the last ledger came with a batch: then all ledgers are closed."""
    last: LedgerId | None = record.last_ledger_id
    if last is None:
        return True
    try:
        metadata = (await client.read_metadata(last)).value
    except NoSuchLedgerError:
        return False  # The ledger is lost, or the log has grown and was trimmed.
    return metadata.is_closed and BATCH_KEY in metadata.custom
