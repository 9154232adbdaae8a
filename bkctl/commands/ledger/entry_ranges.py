"""Reads of entries for the commands: ranges, chunks, and the end of a ledger that grows.

The metadata of a ledger that its last writer released contains the last confirmed entry. The
bookies may know a lower last add confirmed: they learn it only with the next add.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterator
from typing import TYPE_CHECKING, Final

import attrs
from twisted.internet.task import deferLater

from bkclient.admin import one_shot_adds
from bkclient.errors import ClientError, NoSuchEntryInLedgerError, NoSuchLedgerOnBookieError
from bkctl.errors import NothingFoundError

if TYPE_CHECKING:
    from bkclient.client import Client
    from bkclient.ledger.reader import LedgerReader
    from bkctl.session.session import Session
    from wire.digest import Entry
    from wire.ids import LedgerId

POLL_S: Final = 2.0
"""Seconds that a follower waits at the bookies before it reads the metadata again."""


@attrs.frozen
class Range:
    """Entries to read, both ends included; ``last`` below ``first`` means no entry.

    ``last`` is None if the read goes on after the confirmed entries, up to the first gap. ``size``
    is the payload of the entries in bytes; None if unknown.
    """

    first: int
    last: int | None
    size: int | None = None


async def open_ledger(
    client: Client, ledger_id: LedgerId, *, recover: bool = False, password: bytes | None = None
) -> LedgerReader:
    """Open a ledger for reading; without ``password``, with the password in its metadata."""
    return await client.open_ledger(ledger_id, recover=recover, password=password)


def confirmed_end(reader: LedgerReader) -> int:
    """Return the last entry that is known to be confirmed; -1 for none."""
    if not one_shot_adds.is_handed_over(reader.metadata):
        return reader.last_add_confirmed
    handed_over_last = one_shot_adds.read_handover(reader.ledger_id, reader.metadata).last
    return max(reader.last_add_confirmed, handed_over_last)


def note_open_end(session: Session, reader: LedgerReader) -> None:
    """Note, after the confirmed entries, that an open ledger may have more entries."""
    if reader.is_closed or one_shot_adds.is_handed_over(reader.metadata):
        return
    ledger_id = reader.ledger_id
    session.note(
        f"note: ledger {ledger_id} is open: entries that are not confirmed yet are not shown; "
        f"`bkctl ledger read {ledger_id} --unconfirmed` shows them"
    )


def range_of(
    reader: LedgerReader, first: int, last: int | None, *, unconfirmed: bool = False
) -> Range:
    """Return the range of entries to read.

    Raises:
        NothingFoundError: the ledger does not (yet) have these entries.
    """
    end = confirmed_end(reader)
    if unconfirmed and not reader.is_closed:
        return Range(first, last)
    asked = first if last is None else last
    if asked > end and (first or last is not None):
        raise NothingFoundError(
            f"there is no entry {asked}: "
            + (f"the last one is {end}" if end >= 0 else "none is confirmed"),
            next_step="without a range all entries are read"
            if reader.is_closed
            else "--unconfirmed reads beyond what is confirmed",
        )
    chosen = end if last is None else last
    whole = reader.is_closed and first == 0 and chosen == end
    return Range(first, chosen, reader.length if whole else None)


def entries(session: Session, reader: LedgerReader, wanted: Range) -> Iterator[Entry]:
    """Yield entries in order, with bounded memory."""
    if wanted.last is None:
        yield from _up_to_a_gap(session, reader, wanted.first)
        return
    yield from _between(session, reader, wanted.first, wanted.last)


def _between(session: Session, reader: LedgerReader, first: int, last: int) -> Iterator[Entry]:
    if first <= last:
        # Entries after the LAC: the user requested them, or the hand-over says that they are
        # confirmed.
        chunks = session.iterate(lambda _: reader.read_chunks(first, last, unconfirmed=True))
        for chunk in chunks:
            yield from chunk


def _up_to_a_gap(session: Session, reader: LedgerReader, first: int) -> Iterator[Entry]:
    """Yield the confirmed entries, then the entries after them that bookies have."""
    end = confirmed_end(reader)
    yield from _between(session, reader, first, end)
    entry_id = max(first, end + 1)
    while (entry := session.call(_entry_if_any, reader, entry_id)) is not None:
        yield entry
        entry_id += 1


async def _entry_if_any(_client: Client, reader: LedgerReader, entry_id: int) -> Entry | None:
    try:
        return await reader.read_entry(entry_id, unconfirmed=True)
    except (NoSuchEntryInLedgerError, NoSuchLedgerOnBookieError):
        return None


def tail(session: Session, reader: LedgerReader, count: int, *, follow: bool) -> Iterator[Entry]:
    """Yield the last ``count`` entries; with ``follow``, new entries until the ledger is closed."""
    first = max(0, confirmed_end(reader) + 1 - count)
    if follow:
        for chunk in session.iterate(_follow, reader, first):
            yield from chunk
    else:
        yield from entries(session, reader, Range(first, confirmed_end(reader)))


async def _follow(client: Client, reader: LedgerReader, first: int) -> AsyncIterator[list[Entry]]:
    """Yield entries as they are confirmed, until the ledger is closed and all entries were read."""
    while True:
        end = confirmed_end(reader)
        if end >= first:
            async for chunk in reader.read_chunks(first, end, unconfirmed=True):
                yield chunk
            first = end + 1
        elif reader.is_closed:
            return
        else:
            await _wait_for_more(client, reader, first - 1)


async def _wait_for_more(client: Client, reader: LedgerReader, previous: int) -> None:
    """Wait at the bookies for a higher LAC, at most ``POLL_S``; then read the metadata again."""
    try:
        await reader.poll_lac(previous, wait_s=POLL_S)
    except ClientError:
        # No bookie answers, or no entry has been written yet.
        await deferLater(client.cluster.clock, POLL_S)
    await reader.refresh()
