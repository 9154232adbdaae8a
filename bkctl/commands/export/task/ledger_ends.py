"""The extents of ledgers: their metadata, read in batches, and the ends of open ledgers."""

from __future__ import annotations

import contextlib
from collections.abc import (
    AsyncIterator,
    Awaitable,
    Callable,
    Collection,
    Container,
    Iterable,
    Iterator,
    Mapping,
    Sequence,
)
from typing import Any, Final

from bkclient.admin import cluster_operations
from bkclient.client import Client
from bkclient.concurrency import for_each
from bkclient.errors import IncorrectParameterError, NoSuchLedgerError
from bkclient.log.errors import LogDamagedError
from bkclient.log.ledger_list import BATCH_KEY, LOG_KEY, LedgerList
from bkclient.metadata.errors import MetadataUnavailableError, NoSuchLogError
from bkclient.metadata.stored_values import IDS_AT_ONCE
from bkclient.metadata.versions_and_watches import StoredLedger
from bkclient.topic.names import OffloadedError
from bkctl.commands.export.task.ledger_selection import LedgerChoice
from bkctl.commands.export.task.partitions import LedgerExtent, planned_ctime_ms
from wire.errors import BookKeeperError
from wire.ids import NO_ENTRY, EntryId, LedgerId
from wire.ledger_metadata import LedgerMetadata

READS_AT_ONCE: Final = 64
"""The number of open ledgers whose bookies are asked for the end at a time."""

RECOVERIES_AT_ONCE: Final = 8


async def chosen_extents(
    client: Client,
    choice: LedgerChoice,
    done: Container[int] = (),
    *,
    may_be_gone: bool = False,
    **how: Any,
) -> list[LedgerExtent]:
    """Return the extents of the ledgers of a choice; ledgers in ``done`` may be missing.

    ``how`` is passed to ``read_extents``. A ledger of a log or topic that a trim deleted in the
    meantime is omitted.

    Raises:
        NoSuchLedgerError: a ledger that is named by its id, or still listed, is missing, unless
            ``may_be_gone``.
        NoSuchLogError, NoSuchTopicError: the log or topic does not exist.
        BookKeeperError: as ``read_extents``.
    """

    async def lost(gone: Collection[LedgerId]) -> Collection[LedgerId]:
        unknown = [one for one in gone if one not in done]
        return () if may_be_gone else await choice.still_names(client, unknown)

    how = {"chosen": choice.holds, **how}
    named, listed = await choice.find(client)
    extents = await read_extents(client, named, lost=lost, **how)
    return extents + await read_extents(client, listed, lost=_none, only_committed=True, **how)


async def check_offloaded(
    client: Client, choice: LedgerChoice, done: Container[int], unreadable: dict[int, str] | None
) -> None:
    """Check that bookies have all ledgers of the choice's topic, except those in ``done``.

    Raises:
        OffloadedError: a ledger is only in tiered storage; with ``unreadable`` it is noted there.
    """
    for ledger in await choice.offloaded(client):
        if ledger.ledger_id not in done:
            with _noted(ledger.ledger_id, unreadable):
                error = OffloadedError.of(choice.topic, ledger.ledger_id, ledger.offloaded_to)
                raise OffloadedError(f"{error} (--created-after leaves out older ledgers)")


async def _all(gone: Collection[LedgerId]) -> Collection[LedgerId]:
    return gone


async def _none(_gone: Collection[LedgerId]) -> Collection[LedgerId]:
    return ()


async def read_extents(
    client: Client,
    ledger_ids: Iterable[int],
    *,
    recover: bool = False,
    chosen: Callable[[LedgerMetadata], bool] = lambda _metadata: True,
    lost: Callable[[Collection[LedgerId]], Awaitable[Collection[LedgerId]]] = _all,
    only_committed: bool = False,
    unchanged: Callable[[LedgerExtent], bool] = lambda _extent: False,
    unreadable: dict[int, str] | None = None,
) -> list[LedgerExtent]:
    """Return the extent of each ledger once, in the order of ``ledger_ids``.

    A closed ledger ends at its last entry, an open ledger at its LAC. With ``recover``, open
    ledgers are recovered first, which fences their writers; no ledger is recovered if one is
    missing. Ledgers are omitted if ``chosen`` rejects their metadata. ``lost`` returns the missing
    ledgers that should exist; other missing ledgers are omitted. With ``only_committed``, a sink's
    ledgers are omitted unless their log lists them: their write failed, or has not ended. Extents
    that are ``unchanged`` are omitted: a million take much memory.

    With ``unreadable``, a ledger whose metadata, log or end cannot be read is omitted, too, and
    noted there with the reason.

    Raises:
        NoSuchLedgerError: a ledger is missing.
        MetadataUnavailableError: the metadata service does not answer.
        LogDamagedError: the log of a sink cannot be read, with ``only_committed``.
        ClientError: the end of an open ledger cannot be determined.
    """
    wanted = [LedgerId(number) for number in dict.fromkeys(ledger_ids)]
    found: dict[LedgerId, LedgerExtent] = {}
    still_open: dict[LedgerId, LedgerMetadata] = {}
    of_batches: dict[str, list[LedgerId]] = {}

    def keep(extent: LedgerExtent) -> None:
        if not unchanged(extent):
            found[extent.ledger_id] = extent

    async def look(some: Sequence[LedgerId]) -> None:
        gone = dict.fromkeys(some)
        async for one in stored_ledgers(client, some):
            del gone[one.ledger_id]
            with _noted(one.ledger_id, unreadable):
                metadata = one.readable()
                if only_committed and BATCH_KEY in metadata.custom:
                    of_batches.setdefault(_log_of(metadata) or "", []).append(one.ledger_id)
                if chosen(metadata) and metadata.is_closed:
                    keep(_closed_extent(one.ledger_id, metadata))
                elif chosen(metadata):
                    still_open[one.ledger_id] = metadata
        await check_gone(gone)

    async def check_gone(gone: Collection[LedgerId]) -> None:
        for ledger_id in await lost(gone) if gone else ():
            with _noted(ledger_id, unreadable):
                raise NoSuchLedgerError.of(ledger_id)

    for at in range(0, len(wanted), IDS_AT_ONCE):
        await look(wanted[at : at + IDS_AT_ONCE])
    for ledger_id in await _uncommitted(client, of_batches, unreadable):
        found.pop(ledger_id, None)
        still_open.pop(ledger_id, None)
    if recover:
        await _recover(client, still_open)

    async def measure(ledger_id: LedgerId) -> None:
        with _noted(ledger_id, unreadable):
            try:
                keep(await extent_of(client, ledger_id, still_open[ledger_id]))
            except NoSuchLedgerError:
                await check_gone([ledger_id])

    await for_each(list(still_open), measure, READS_AT_ONCE)
    return [found[ledger_id] for ledger_id in wanted if ledger_id in found]


async def _uncommitted(
    client: Client, of_batches: Mapping[str, Sequence[LedgerId]], unreadable: dict[int, str] | None
) -> list[LedgerId]:
    """Return the ledgers of batches that their logs do not list; ``of_batches`` has them by log.

    With ``unreadable``, ledgers whose log cannot be read are included, and noted there.
    """
    left: list[LedgerId] = []
    for name, ledger_ids in of_batches.items():
        listed: frozenset[LedgerId] = frozenset()
        try:
            record = (await LedgerList(client, name).read_patiently()).record
            listed = frozenset(one.ledger_id for one in record.ledgers)
        except (NoSuchLogError, IncorrectParameterError):
            pass
        except LogDamagedError as error:
            if unreadable is None:
                raise
            unreadable |= dict.fromkeys(ledger_ids, _reason(error))
        left += [one for one in ledger_ids if one not in listed]
    return left


async def stored_ledgers(client: Client, ids: Sequence[LedgerId]) -> AsyncIterator[StoredLedger]:
    """Yield the existing ledgers of ``ids``, in this order, with reads in parallel."""
    async with contextlib.aclosing(client.store.read_ledgers(ids)) as found:
        async for some in found:
            for one in some:
                yield one


@contextlib.contextmanager
def _noted(ledger_id: LedgerId, unreadable: dict[int, str] | None) -> Iterator[None]:
    """Note an error of a ledger in ``unreadable``.

    Raise it without ``unreadable``, or if the store failed.
    """
    try:
        yield
    except BookKeeperError as error:
        if unreadable is None or isinstance(error, MetadataUnavailableError):
            raise
        unreadable[ledger_id] = _reason(error)


def _reason(error: BookKeeperError) -> str:
    return f"{error} ({type(error).__name__})"


async def _recover(client: Client, metadata: dict[LedgerId, LedgerMetadata]) -> None:
    async def close(ledger_id: LedgerId) -> None:
        metadata[ledger_id] = await cluster_operations.recover_ledger(client, ledger_id)

    await for_each(list(metadata), close, RECOVERIES_AT_ONCE)


async def extent_of(client: Client, ledger_id: LedgerId, metadata: LedgerMetadata) -> LedgerExtent:
    """Return the extent of a ledger with this metadata.

    Raises:
        ClientError: the end of an open ledger cannot be determined.
    """
    if metadata.is_closed:
        return _closed_extent(ledger_id, metadata)
    end, length = await cluster_operations.confirmed_end(client, ledger_id)
    return _extent(ledger_id, metadata, end, length)


def _closed_extent(ledger_id: LedgerId, metadata: LedgerMetadata) -> LedgerExtent:
    last = metadata.last_entry_id
    end = EntryId(NO_ENTRY if last is None else last)
    return _extent(ledger_id, metadata, end, metadata.length)


def _extent(
    ledger_id: LedgerId, metadata: LedgerMetadata, end: EntryId, length: int
) -> LedgerExtent:
    return LedgerExtent(
        ledger_id,
        end,
        length,
        metadata.state.name,
        metadata.digest_type.name if metadata.digest_type else "unknown",
        planned_ctime_ms(metadata.ctime_ms),
        _log_of(metadata),
    )


def _log_of(metadata: LedgerMetadata) -> str | None:
    log = metadata.custom.get(LOG_KEY)
    return None if log is None else log.decode(errors="replace")
