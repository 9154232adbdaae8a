"""Reading entries for the commands: ranges, chunks as they come, the end that still grows.

A ledger that was handed over says in its metadata where it is confirmed to, which may be further
than its bookies have heard: its last writer told them with the last add, not after it.
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
"""How long a follower waits at the bookies before it looks at the metadata again."""


@attrs.frozen
class Range:
    """Entries to read, both ends included; ``last`` below ``first`` means no entry.

    ``last`` is None where reading goes on beyond what is confirmed, up to the first gap. ``size``
    is their payload in bytes, where that is known.
    """

    first: int
    last: int | None
    size: int | None = None


async def open_ledger(
    client: Client, ledger_id: LedgerId, *, recover: bool = False, password: bytes | None = None
) -> LedgerReader:
    """Open a ledger for reading; without a password with the one in its metadata."""
    return await client.open_ledger(ledger_id, recover=recover, password=password)


def confirmed_end(reader: LedgerReader) -> int:
    """Return the last entry that is confirmed, as far as anybody has told; -1 for none."""
    if not one_shot_adds.is_handed_over(reader.metadata):
        return reader.last_add_confirmed
    handed_over_last = one_shot_adds.read_handover(reader.ledger_id, reader.metadata).last
    return max(reader.last_add_confirmed, handed_over_last)


def note_open_end(session: Session, reader: LedgerReader) -> None:
    """Say, after entries up to the confirmed end, that an open ledger may have more of them."""
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
    """Return the entries to read.

    Raises:
        NothingFoundError: the ledger has no such entries (yet).
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
    """Yield entries in order, in bounded memory."""
    if wanted.last is None:
        yield from _up_to_a_gap(session, reader, wanted.first)
        return
    yield from _between(session, reader, wanted.first, wanted.last)


def _between(session: Session, reader: LedgerReader, first: int, last: int) -> Iterator[Entry]:
    if first <= last:
        # What lies beyond the LAC here was asked for, or the hand-over says that it is confirmed.
        chunks = session.iterate(lambda _: reader.read_chunks(first, last, unconfirmed=True))
        for chunk in chunks:
            yield from chunk


def _up_to_a_gap(session: Session, reader: LedgerReader, first: int) -> Iterator[Entry]:
    """Yield what is confirmed, then what bookies have beyond it."""
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
    """Yield the last ``count`` entries, and with ``follow`` those to come until it is closed."""
    first = max(0, confirmed_end(reader) + 1 - count)
    if follow:
        for chunk in session.iterate(_follow, reader, first):
            yield from chunk
    else:
        yield from entries(session, reader, Range(first, confirmed_end(reader)))


async def _follow(client: Client, reader: LedgerReader, first: int) -> AsyncIterator[list[Entry]]:
    """Yield entries as they are confirmed, until the ledger is closed and all of it was read."""
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
    """Wait at the bookies for a higher LAC, for a while; then see what the metadata says."""
    try:
        await reader.poll_lac(previous, wait_s=POLL_S)
    except ClientError:
        # No bookie answers now, or nothing has been written yet.
        await deferLater(client.cluster.clock, POLL_S)
    await reader.refresh()
