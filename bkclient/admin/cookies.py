"""The cookies of bookies, for operators, and the rule when a cookie must not be deleted.

A cookie ties a bookie's id to its directories. Without it the bookie does not start with its data,
and a new bookie may start under the same id, without entries and without fences. Then the writer of
a ledger whose last fragment lists the id could confirm entries after a recovery has closed the
ledger (S10, #4812). So a cookie is deleted only if no ledger that is not closed lists the bookie
(client.md 14).
"""

from __future__ import annotations

from collections.abc import Collection
from typing import ClassVar, Final

import attrs

from bkclient.admin.ledger_scan import walk
from bkclient.client import Client
from bkclient.errors import ClientError, IllegalOperationError
from bkclient.metadata.errors import CookieExistsError, CookieNotFoundError, MetadataAccessError
from bkclient.metadata.versions_and_watches import NEW, Versioned
from bkclient.quorum.fragments import is_only_copy
from wire.errors import FormatError
from wire.ids import BookieId, LedgerId
from wire.ledger_metadata import LedgerMetadata
from wire.records.cookie import Cookie, decode_cookie

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


@attrs.frozen
class StoredCookie:
    """The cookie of one bookie; ``cookie`` is None if it cannot be parsed."""

    bookie_id: BookieId
    stored: Versioned[bytes]
    cookie: Cookie | None
    problem: str = ""


@attrs.frozen(kw_only=True)
class DependentLedgers:
    """The ledgers that rely on one bookie, by the metadata."""

    bookie_id: BookieId
    registered: bool
    ledgers: int
    """The number of ledgers that list the bookie."""
    not_closed: tuple[LedgerId, ...]
    only_here: tuple[LedgerId, ...]
    """Ledgers with an entry that this bookie may have, and no bookie in service."""
    unreadable: tuple[LedgerId, ...]
    """Ledgers that may list the bookie, because their metadata cannot be read."""


async def read(client: Client, bookie_id: BookieId) -> StoredCookie:
    """Return a bookie's cookie.

    Raises:
        CookieNotFoundError: the bookie has no cookie.
    """
    stored = await client.store.read_cookie(bookie_id)
    try:
        return StoredCookie(bookie_id, stored, decode_cookie(stored.value))
    except FormatError as error:
        return StoredCookie(bookie_id, stored, None, str(error))


async def list_cookies(client: Client) -> list[StoredCookie]:
    """Return all cookies, by bookie id."""
    found = []
    for bookie_id in sorted(await client.store.known_bookies()):
        try:
            found.append(await read(client, bookie_id))
        except CookieNotFoundError:  # The cookie was removed after it was listed.
            continue
        except MetadataAccessError as error:
            found.append(StoredCookie(bookie_id, Versioned(b"", 0), None, str(error)))
    return found


# Ledgers that need cookies ----------------------------------------------------------------------


def needs_cookies(metadata: LedgerMetadata, bookies: Collection[BookieId]) -> bool:
    """Return whether a ledger is not closed and lists one of these bookies in any fragment."""
    return not metadata.is_closed and not metadata.all_bookies().isdisjoint(bookies)


async def ledgers_that_need_cookies(
    client: Client, bookies: Collection[BookieId]
) -> tuple[LedgerId, ...]:
    """Return the ledgers because of which the cookies of these bookies have to stay, ascending.

    Raises:
        MetadataSerializationError: a ledger's metadata cannot be read; it may list any bookie.
        MetadataStoreError: the store failed.
    """
    return tuple(
        [
            one.ledger_id
            async for one in walk(client.store)
            if needs_cookies(one.readable(), bookies)
        ]
    )


async def reliance_on(client: Client, bookie_id: BookieId) -> DependentLedgers:
    """Return the ledgers that rely on a bookie; walks over all ledgers."""
    store = client.store
    alive = await store.registered_bookies()
    ledgers = 0
    not_closed: list[LedgerId] = []
    only_here: list[LedgerId] = []
    unreadable: list[LedgerId] = []
    async for one in walk(store):
        metadata = one.metadata
        if metadata is None:
            unreadable.append(one.ledger_id)
        elif bookie_id in metadata.all_bookies():
            ledgers += 1
            if needs_cookies(metadata, (bookie_id,)):
                not_closed.append(one.ledger_id)
            if is_only_copy(metadata, bookie_id, alive):
                only_here.append(one.ledger_id)
    return DependentLedgers(
        bookie_id=bookie_id,
        registered=bookie_id in alive,
        ledgers=ledgers,
        not_closed=tuple(not_closed),
        only_here=tuple(only_here),
        unreadable=tuple(unreadable),
    )


# Deletion ----------------------------------------------------------------------------------------


async def require_gone(client: Client, bookies: Collection[BookieId]) -> None:
    """Raise ``IllegalOperationError`` if one of these bookies is registered."""
    registered = await client.store.registered_bookies()
    running = sorted(registered & frozenset(bookies))
    if running:
        raise IllegalOperationError(f"bookie {', '.join(running)} is running; stop it first")


async def delete_cookies(client: Client, bookies: Collection[BookieId]) -> tuple[BookieId, ...]:
    """Delete the cookies of bookies that are lost for good; return the bookies that had one.

    A bookie that registers at the same time keeps its cookie, or stops: the bookie reads its cookie
    after its registration, and this function reads the registration after the cookie is deleted.

    Raises:
        IllegalOperationError: a bookie is registered.
        CookieNeededError: ledgers still need a cookie.
        MetadataVersionError: a cookie was changed at the same time.
        MetadataStoreError: the store failed.
    """
    await require_gone(client, bookies)
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
        try:
            await require_gone(client, [bookie_id])
        except IllegalOperationError as error:
            await _restore(client, bookie_id, cookie.value, error)
        deleted.append(bookie_id)
    return tuple(deleted)


async def _restore(
    client: Client, bookie_id: BookieId, cookie: bytes, running: IllegalOperationError
) -> None:
    """Restore the cookie of a bookie that has registered, and raise ``running``.

    A cookie that exists by now is of a new bookie with that id, which has started without data.
    """
    try:
        await client.store.write_cookie(bookie_id, cookie, NEW)
    except CookieExistsError:
        return
    raise running
