"""Reading entries for the commands: ranges, chunks as they come, the end that still grows."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, Any, Final

import attrs

from bkclient.errors import NoSuchEntryInLedgerError, NoSuchLedgerOnBookieError
from bkctl.errors import NothingFoundError

if TYPE_CHECKING:
    from bkclient.client import Client
    from bkclient.reader import LedgerReader
    from bkctl.session import Session
    from wire.digest import Entry
    from wire.ids import LedgerId

UNKNOWN_LAST: Final = 2**62
"""Reading unconfirmed entries goes on until there is none."""


@attrs.frozen
class Range:
    """Entries to read, both ends included; ``last`` below ``first`` is none at all."""

    first: int
    last: int
    size: int | None
    """Bytes of payload, where they are known."""


async def open_ledger(
    client: Client, ledger_id: LedgerId, *, recover: bool = False, password: bytes | None = None
) -> LedgerReader:
    """Open a ledger for reading; without a password with the one in its metadata."""
    return await client.open_ledger(ledger_id, recover=recover, password=password)


def range_of(
    reader: LedgerReader, first: int, last: int | None, *, unconfirmed: bool = False
) -> Range:
    """Return the entries to read.

    Raises:
        NothingFoundError: the ledger has no such entries (yet).
    """
    end = reader.last_add_confirmed
    if not unconfirmed or reader.is_closed:
        asked = first if last is None else last
        if asked > end and (first or last is not None):
            raise NothingFoundError(
                f"there is no entry {asked}: "
                + (f"the last one is {end}" if end >= 0 else "none is confirmed"),
                next_step=""
                if reader.is_closed
                else "--unconfirmed reads beyond what is confirmed",
            )
        chosen = end if last is None else last
    else:
        chosen = UNKNOWN_LAST if last is None else last
    whole = reader.is_closed and first == 0 and chosen == end
    return Range(first, chosen, reader.length if whole else None)


def entries(
    session: Session, reader: LedgerReader, wanted: Range, *, unconfirmed: bool = False
) -> Iterator[Entry]:
    """Yield entries in order, in bounded memory."""
    if wanted.last == UNKNOWN_LAST:
        yield from _unconfirmed(session, reader, wanted.first)
        return
    if wanted.last < wanted.first:
        return
    for chunk in session.iterate(_chunks, reader, wanted, unconfirmed=unconfirmed):
        yield from chunk


def _chunks(
    _client: Client, reader: LedgerReader, wanted: Range, *, unconfirmed: bool = False
) -> Any:
    return reader.read_chunks(wanted.first, wanted.last, unconfirmed=unconfirmed)


def _unconfirmed(session: Session, reader: LedgerReader, first: int) -> Iterator[Entry]:
    """Yield what is confirmed, then what bookies have beyond it, up to the first gap."""
    end = reader.last_add_confirmed
    if first <= end:
        for chunk in session.iterate(_chunks, reader, Range(first, end, None)):
            yield from chunk
    entry_id = max(first, end + 1)
    while (entry := session.call(_unconfirmed_entry, reader, entry_id)) is not None:
        yield entry
        entry_id += 1


async def _unconfirmed_entry(_client: Client, reader: LedgerReader, entry_id: int) -> Entry | None:
    try:
        return await reader.read_entry(entry_id, unconfirmed=True)
    except (NoSuchEntryInLedgerError, NoSuchLedgerOnBookieError):
        return None


def tail(session: Session, reader: LedgerReader, count: int, *, follow: bool) -> Iterator[Entry]:
    """Yield the last ``count`` entries, and with ``follow`` those to come until it is closed."""
    first = max(0, reader.last_add_confirmed + 1 - count)
    if follow:
        yield from session.iterate(_tail, reader, first)
    else:
        wanted = Range(first, reader.last_add_confirmed, None)
        yield from entries(session, reader, wanted)


def _tail(_client: Client, reader: LedgerReader, first: int) -> Any:
    return reader.tail(first)
