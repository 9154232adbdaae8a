"""When a bookie's cookie may go.

A bookie without its cookie can come again under the same id with empty disks. It has forgotten its
fences then: the writer of a ledger that grew on it could confirm entries behind a recovery's back
(S10, #4812). So the cookie of a bookie that a ledger lists that is not closed stays.
"""

from __future__ import annotations

from collections.abc import Collection
from typing import ClassVar, Final

from bkclient.bounded import for_each
from bkclient.client import Client
from bkclient.errors import ClientError, IllegalOperationError, NoSuchLedgerError
from bkclient.metadata.api import CookieNotFoundError
from wire.ids import BookieId, LedgerId

READS_AT_ONCE: Final = 100

_SHOWN_MAX: Final = 10


class CookieNeededError(ClientError):
    """Ledgers that are not closed list the bookie: its cookie has to stay."""

    exit_status: ClassVar[int] = 7
    hint: ClassVar[str] = "recover or close these ledgers first"

    def __init__(self, ledgers: Collection[LedgerId]) -> None:
        self.ledgers = tuple(sorted(ledgers))
        shown = ", ".join(map(str, self.ledgers[:_SHOWN_MAX]))
        more = len(self.ledgers) - _SHOWN_MAX
        super().__init__(
            f"{len(self.ledgers)} ledgers that are not closed list the bookie: {shown}"
            + (f" and {more} more" if more > 0 else "")
        )


async def ledgers_that_need_cookies(
    client: Client, bookies: Collection[BookieId]
) -> tuple[LedgerId, ...]:
    """Return the ledgers that are not closed and list one of these bookies in any fragment.

    Raises:
        MetadataSerializationError: a ledger's metadata cannot be read; it may list anybody.
        MetadataStoreError: the store failed.
    """
    found: list[LedgerId] = []

    async def look(ledger_id: LedgerId) -> None:
        try:
            metadata = (await client.read_metadata(ledger_id)).value
        except NoSuchLedgerError:
            return
        if not metadata.is_closed and not metadata.all_bookies().isdisjoint(bookies):
            found.append(ledger_id)

    async for ids in client.store.ledger_ranges():
        await for_each(ids, look, READS_AT_ONCE)
    return tuple(sorted(found))


async def insist_gone(client: Client, bookies: Collection[BookieId]) -> None:
    """Raise ``IllegalOperationError`` where one of these bookies is registered."""
    registered = await client.store.writable_bookies() | await client.store.read_only_bookies()
    running = sorted(registered & frozenset(bookies))
    if running:
        raise IllegalOperationError(f"bookie {', '.join(running)} is running; stop it first")


async def delete_cookies(client: Client, bookies: Collection[BookieId]) -> tuple[BookieId, ...]:
    """Remove the cookies of bookies that are gone for good; return whose there were.

    Raises:
        IllegalOperationError: one of them is registered.
        CookieNeededError: ledgers still need one of them.
        MetadataVersionError: one was changed meanwhile.
        MetadataStoreError: the store failed.
    """
    await insist_gone(client, bookies)
    needed_by = await ledgers_that_need_cookies(client, bookies)
    if needed_by:
        raise CookieNeededError(needed_by)
    deleted = []
    for bookie_id in sorted(bookies):
        try:
            cookie = await client.store.read_cookie(bookie_id)
            await client.store.remove_cookie(bookie_id, cookie.version)
        except CookieNotFoundError:
            continue
        deleted.append(bookie_id)
    return tuple(deleted)
