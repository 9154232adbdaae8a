"""The list of a log's ledgers, and how it changes: by compare-and-swap, and never otherwise.

Batches of ledgers that a log takes at once: written by many, listed by one compare-and-swap.

Each ledger of a batch says in its custom metadata which batch of which stream it is. So a batch
that is offered again, by a writer that does not know whether it was taken, is taken once.
"""

from __future__ import annotations

from collections.abc import Callable
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
from bkclient.metadata.api import Version
from bkclient.metadata.errors import MetadataUnavailableError, NoSuchLogError
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
    """A record and the version it was read or written at."""

    record: LogRecord
    version: Version


class LedgerList:
    """The list of one log. Asks and changes the metadata; keeps nothing."""

    def __init__(self, client: Client, name: str) -> None:
        self._client, self.name = client, name

    async def read(self) -> KnownRecord:
        """Return the record.

        Raises:
            NoSuchLogError: there is no such log.
            LogDamagedError: it cannot be understood.
        """
        stored = await self._client.store.read_log(self.name)
        return KnownRecord(decode_record(self.name, stored.value), stored.version)

    async def read_patiently(self) -> KnownRecord:
        """Return the record, also where the metadata service is away for a moment."""
        pause_s = 0.1
        for _ in range(READS_MAX - 1):
            try:
                return await self.read()
            except MetadataUnavailableError:
                await deferLater(self._client.cluster.clock, pause_s)
                pause_s *= 2
        return await self.read()

    def gone(self) -> NoSuchLogError:
        """Return the error for a log in whose place is another one of its name."""
        return NoSuchLogError(f"log {self.name} was deleted, and another was created")

    async def write(self, known: KnownRecord, record: LogRecord) -> KnownRecord:
        """Replace the record that is known.

        Raises:
            MetadataVersionError: it is not that any more.
            MetadataUnavailableError: the outcome is unknown.
        """
        version = await self._client.store.write_log(self.name, record.encode(), known.version)
        return KnownRecord(record, version)

    async def update(self, changed: Callable[[LogRecord], LogRecord | None]) -> KnownRecord:
        """Change the record, whatever it is by now; ``None`` leaves it as it is.

        ``changed`` must give the same for a record that has the change already, for an answer may
        get lost after it was made.

        Raises:
            MetadataVersionError: others change it all the time.
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
        """List a new ledger after ``after``, which was the last one; return its writer.

        A ledger is made for each attempt: one that others could have seen unlisted, and swept, is
        never listed later.

        Raises:
            NotLeaderError: another client has listed one.
            ClientError: no ledger could be made, or the list could not be changed.
        """
        for _ in range(tries):
            if known.record.is_full:  # Others may have trimmed it since.
                known = await self._read_as_last(after)
                known.record.insist_on_room()  # Each append to a full log comes here.
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
            # It may yet be listed, so it stays; a sweep makes sure that it is not.
            raise

    async def _discard(self, writer: LedgerWriter) -> None:
        writer.abandon()
        try:
            await self._client.delete_ledger(writer.ledger_id)
        except ClientError as error:
            log.warn("ledger {id} is left to be swept: {error}", id=writer.ledger_id, error=error)


STREAM_KEY: Final = "bkctl.stream"
"""The custom metadata of a batch's ledgers: which stream of batches it belongs to."""

BATCH_KEY: Final = "bkctl.batch"
"""The number of the batch in its stream, ascending, in decimal."""

OFFER_AGE_S: Final = 12 * 3600.0
"""How old a ledger may be when its batch is taken."""

SWEEP_AGE_S: Final = 2 * OFFER_AGE_S
"""Younger ledgers of a batch are not swept: the batch may yet be taken."""

SWEPT_KEY: Final = "bkctl.swept"
"""The custom metadata of a batch's ledger that a sweep deletes: no log lists it from then on.

The ages above compare clocks of several hosts. They only keep a sweep from ending live batches.
"""


async def create_log_ledger(
    client: Client, name: str, options: LogOptions, **custom: bytes
) -> LedgerWriter:
    """Create a ledger for a log, as its options say; ``custom`` goes into its metadata.

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
    """Return which batch of a stream a ledger is, by its custom metadata; None for any other."""
    if not custom or custom.get(STREAM_KEY) != stream.encode():
        return None
    number = custom.get(BATCH_KEY, b"")
    return int(number) if number.isdigit() and len(number) <= _BATCH_DIGITS_MAX else None


async def last_batch(client: Client, record: LogRecord, stream: str) -> LastBatch | None:
    """Return the last batch of a stream that a log has taken; None where it has none.

    The record has it, unless many other streams wrote since, or an earlier release did. Then the
    ledgers say it, which are looked at from the end; trimmed ones are not there any more.
    """
    for batch in record.batches:
        if batch.stream == stream:
            return batch
    for ledger in reversed(record.ledgers):
        try:
            metadata = (await client.read_metadata(ledger.ledger_id)).value
        except NoSuchLedgerError:
            continue
        found = batch_of(dict(metadata.custom), stream)
        if found is not None:
            return LastBatch(stream, found)
    return None


def entries_in(metadata: LedgerMetadata) -> int:
    """Return how many entries a closed ledger has."""
    return 0 if metadata.last_entry_id is None else metadata.last_entry_id + 1


async def is_settled(client: Client, record: LogRecord) -> bool:
    """Return whether the last ledger came with a batch: then all ledgers are closed for good."""
    last: LedgerId | None = record.last_ledger_id
    if last is None:
        return True
    metadata = (await client.read_metadata(last)).value
    return metadata.is_closed and BATCH_KEY in metadata.custom
