"""Cookies as an operator handles them, and what makes it unsafe to take one away.

A cookie ties a bookie's id to its directories. Without it the bookie does not start on what it
holds, and a new one may begin under the same id: one that has no entries and has forgotten every
fence. So a cookie goes only when no ledger that is not closed lists the bookie (client.md 14).
"""

from __future__ import annotations

import attrs

from bkclient.client import Client
from bkclient.copies import is_only_copy
from bkclient.metadata.api import CookieNotFoundError, Versioned
from bkclient.walk import walk
from wire.errors import FormatError
from wire.ids import BookieId, LedgerId
from wire.records import Cookie, decode_cookie


@attrs.frozen
class StoredCookie:
    """The cookie of one bookie; ``cookie`` is None where the bytes are none that we can read."""

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
    """Nobody knows whether these list it."""


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
    return found


async def reliance_on(client: Client, bookie_id: BookieId) -> Reliance:
    """Return what the cluster has on a bookie; walks over all ledgers."""
    store = client.store
    alive = await store.writable_bookies() | await store.read_only_bookies()
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
            if not metadata.is_closed:
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
