"""Cookies as an operator handles them, and what makes it unsafe to take one away.

A cookie ties a bookie's id to its directories. Without it the bookie does not start on what it
holds, and a new one may begin under the same id: one that has no entries and has forgotten every
fence. The writer of a ledger that grew on it could confirm entries behind a recovery's back then
(S10, #4812). So a cookie goes only when no ledger that is not closed lists the bookie (client.md
14).
"""

from __future__ import annotations

from collections.abc import Collection
from typing import ClassVar, Final

import attrs

from bkclient.admin.ledger_scan import walk
from bkclient.client import Client
from bkclient.errors import ClientError, IllegalOperationError
from bkclient.metadata.api import NEW, Versioned, registered_bookies
from bkclient.metadata.errors import CookieExistsError, CookieNotFoundError, MetadataAccessError
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
    """The cookie of one bookie; ``cookie`` is None where the bytes cannot be read."""

    bookie_id: BookieId
    stored: Versioned[bytes]
    cookie: Cookie | None
    problem: str = ""


@attrs.frozen(kw_only=True)
class Reliance:
    """What the cluster has on one bookie, by its metadata."""

    bookie_id: BookieId
    registered: bool
    ledgers: int
    """How many list the bookie anywhere."""
    not_closed: tuple[LedgerId, ...]
    only_here: tuple[LedgerId, ...]
    """Of these no bookie in service has a copy of some entry that this one may have."""
    unreadable: tuple[LedgerId, ...]
    """Whether these ledgers list it is unknown."""


async def read(client: Client, bookie_id: BookieId) -> StoredCookie:
    """Return a bookie's cookie.

    Raises:
        CookieNotFoundError: it has none.
    """
    stored = await client.store.read_cookie(bookie_id)
    try:
        return StoredCookie(bookie_id, stored, decode_cookie(stored.value))
    except FormatError as error:
        return StoredCookie(bookie_id, stored, None, str(error))


async def list_cookies(client: Client) -> list[StoredCookie]:
    """Return the cookie of every bookie that has one, by id."""
    found = []
    for bookie_id in sorted(await client.store.known_bookies()):
        try:
            found.append(await read(client, bookie_id))
        except CookieNotFoundError:  # Removed meanwhile.
            continue
        except MetadataAccessError as error:
            found.append(StoredCookie(bookie_id, Versioned(b"", 0), None, str(error)))
    return found


# What needs them --------------------------------------------------------------------------------


def needs_cookies(metadata: LedgerMetadata, bookies: Collection[BookieId]) -> bool:
    """Tell whether a ledger is not closed and lists one of these bookies in any fragment."""
    return not metadata.is_closed and not metadata.all_bookies().isdisjoint(bookies)


async def ledgers_that_need_cookies(
    client: Client, bookies: Collection[BookieId]
) -> tuple[LedgerId, ...]:
    """Return the ledgers for which the cookies of these bookies have to stay, ascending.

    Raises:
        MetadataSerializationError: a ledger's metadata cannot be read; it may list anybody.
        MetadataStoreError: the store failed.
    """
    return tuple(
        [
            one.ledger_id
            async for one in walk(client.store)
            if needs_cookies(one.readable(), bookies)
        ]
    )


async def reliance_on(client: Client, bookie_id: BookieId) -> Reliance:
    """Return what the cluster has on a bookie; walks over all ledgers."""
    store = client.store
    alive = await registered_bookies(store)
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
    return Reliance(
        bookie_id=bookie_id,
        registered=bookie_id in alive,
        ledgers=ledgers,
        not_closed=tuple(not_closed),
        only_here=tuple(only_here),
        unreadable=tuple(unreadable),
    )


# Taking them away --------------------------------------------------------------------------------


async def insist_gone(client: Client, bookies: Collection[BookieId]) -> None:
    """Raise ``IllegalOperationError`` where one of these bookies is registered."""
    registered = await registered_bookies(client.store)
    running = sorted(registered & frozenset(bookies))
    if running:
        raise IllegalOperationError(f"bookie {', '.join(running)} is running; stop it first")


async def delete_cookies(client: Client, bookies: Collection[BookieId]) -> tuple[BookieId, ...]:
    """Remove the cookies of bookies that are gone for good; return whose there were.

    A bookie that registers meanwhile keeps its cookie, or finds none and stops: it looks for the
    cookie once it is registered, and here the registration is looked for once the cookie is gone.

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
        try:
            await insist_gone(client, [bookie_id])
        except IllegalOperationError as error:
            await _restore(client, bookie_id, cookie.value, error)
        deleted.append(bookie_id)
    return tuple(deleted)


async def _restore(
    client: Client, bookie_id: BookieId, cookie: bytes, running: IllegalOperationError
) -> None:
    """Give a bookie that has registered its cookie back, and raise ``running``.

    A cookie that exists by now is of a new bookie with that id, which has begun without data.
    """
    try:
        await client.store.write_cookie(bookie_id, cookie, NEW)
    except CookieExistsError:
        return
    raise running
