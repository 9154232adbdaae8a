"""Registrations and cookies in a file."""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

from twisted.internet.task import deferLater

from bkclient.metadata.api import ANY, NEW, Version, Versioned, Watch
from bkclient.metadata.errors import NotFoundError, RegistrationExistsError
from bkclient.metadata.sqlite.base import AVAILABLE, COOKIE, READ_ONLY, SqlitePart, delete_own
from bkclient.metadata.sqlite.rows import Rows
from bkclient.metadata.stored_values import decode_registration
from bkclient.metadata.tree.bookies import (
    check_bookie_id,
    cookie_errors,
    no_cookie,
    registration_bytes,
    valid_bookies,
)
from wire.ids import BookieId
from wire.records.service_info import BookieServiceInfo

_LOOK_S: Final = 0.25


class SqliteBookies(SqlitePart):
    """Implements ``BookieRegistry``."""

    async def register(
        self, bookie_id: BookieId, info: BookieServiceInfo, *, read_only: bool
    ) -> None:
        value = registration_bytes(bookie_id, info)
        wanted, other = (READ_ONLY, AVAILABLE) if read_only else (AVAILABLE, READ_ONLY)

        def announce(rows: Rows, session_id: int) -> bool:
            row = rows.get(wanted, bookie_id)
            if row is None:
                rows.insert(wanted, bookie_id, value, session_id)
            elif row.owner != session_id:
                return False
            delete_own(rows, other, bookie_id, session_id)
            return True

        deadline_s = self._reactor.seconds() + self._registration_wait_s
        while not await self._write(announce, needs_session=True):
            if self._reactor.seconds() >= deadline_s:
                raise RegistrationExistsError(
                    f"{bookie_id} is registered by another session, which has not ended within"
                    f" {self._registration_wait_s:g} s"
                )
            await deferLater(self._reactor, _LOOK_S)

    async def unregister(self, bookie_id: BookieId) -> None:
        def take_away(rows: Rows, session_id: int) -> None:
            for kind in (AVAILABLE, READ_ONLY):
                delete_own(rows, kind, bookie_id, session_id)

        await self._write(take_away)

    async def writable_bookies(self) -> frozenset[BookieId]:
        return await self._bookies(AVAILABLE)

    async def read_only_bookies(self) -> frozenset[BookieId]:
        def both(rows: Rows, _session_id: int) -> list[str]:
            writable = rows.all(AVAILABLE)
            return [str(key) for key in rows.all(READ_ONLY) if key not in writable]

        return frozenset(valid_bookies(READ_ONLY, await self._read(both)))

    async def known_bookies(self) -> frozenset[BookieId]:
        return await self._bookies(COOKIE)

    async def _bookies(self, kind: str) -> frozenset[BookieId]:
        keys = await self._read(lambda rows, _: [str(key) for key in rows.all(kind)])
        return frozenset(valid_bookies(kind, keys))

    async def service_info(self, bookie_id: BookieId) -> BookieServiceInfo:
        row = await self._read(
            lambda rows, _: rows.get(AVAILABLE, bookie_id) or rows.get(READ_ONLY, bookie_id)
        )
        if row is None:
            raise NotFoundError(f"bookie {bookie_id} is not registered")
        return decode_registration(bookie_id, row.value)

    async def watch_bookies(self, changed: Callable[[], None]) -> Watch:
        return await self._watch(changed, AVAILABLE, READ_ONLY)


class SqliteCookies(SqlitePart):
    """Implements ``CookieStore``."""

    async def read_cookie(self, bookie_id: BookieId) -> Versioned[bytes]:
        row = await self._read(lambda rows, _: rows.get(COOKIE, bookie_id))
        if row is None:
            raise no_cookie(bookie_id)
        return Versioned(row.value, row.version)

    async def write_cookie(self, bookie_id: BookieId, cookie: bytes, version: Version) -> Version:
        with cookie_errors(bookie_id, version):
            if version == NEW:
                check_bookie_id(bookie_id)
                return await self._write(lambda rows, _: rows.insert(COOKIE, bookie_id, cookie))
            return await self._write(
                lambda rows, _: rows.update(COOKIE, bookie_id, cookie, version)
            )

    async def remove_cookie(self, bookie_id: BookieId, version: Version = ANY) -> None:
        with cookie_errors(bookie_id, version):
            await self._write(lambda rows, _: rows.delete(COOKIE, bookie_id, version))
