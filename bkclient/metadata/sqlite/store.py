"""``MetadataStore`` on one SQLite file: ledgers, registrations, cookies, logs and cursors."""

from __future__ import annotations

import contextlib
import random
import socket
import time
from collections.abc import AsyncGenerator, AsyncIterator, Callable, Sequence
from functools import partial
from pathlib import Path
from typing import Any, Final

from twisted.internet.task import deferLater

from bkclient.concurrency import wall_clock
from bkclient.errors import IncorrectParameterError, LedgerExistsError, NoSuchLedgerError
from bkclient.metadata.api import ANY, NEW, StoredLedger, Version, Versioned, Watch
from bkclient.metadata.errors import NotFoundError, RegistrationExistsError
from bkclient.metadata.sqlite.database import Key
from bkclient.metadata.sqlite.init_and_format import SqliteAdmin, stored_layout
from bkclient.metadata.sqlite.raw_nodes import SqliteRaw, SqliteSiblings
from bkclient.metadata.sqlite.rows import NodeRow, Rows
from bkclient.metadata.sqlite.session import FileSession
from bkclient.metadata.sqlite.store_part import (
    AVAILABLE,
    COOKIE,
    CURSORS,
    LEDGER,
    LOG,
    READ_ONLY,
    SqliteOptions,
    SqlitePart,
    delete_own,
)
from bkclient.metadata.sqlite.underreplication import SqliteElection, SqliteRepair
from bkclient.metadata.stored_values import (
    IDS_AT_ONCE,
    as_stored,
    decode_registration,
    decode_stored,
)
from bkclient.metadata.tree.bookies import (
    check_bookie_id,
    cookie_errors,
    no_cookie,
    registration_bytes,
    valid_bookies,
)
from bkclient.metadata.tree.ledgers import check_new_id, ledger_errors, with_token
from bkclient.metadata.tree.logs import (
    check_log_name,
    cursors_changed,
    log_changed,
    log_exists,
    no_log,
)
from bkclient.metadata.tree.nodes import NodeExistsError, NodeVersionError, NoNodeError
from wire.errors import MetadataFormatError
from wire.ids import BookieId, LedgerId
from wire.ledger_metadata import LedgerMetadata, decode_metadata, encode_for_write
from wire.records.service_info import BookieServiceInfo

_LEDGERS_AT_ONCE: Final = 200
_SKIPPED_END: Final = 2**62
"""Ids from here on are not generated in any lifetime, so they are not skipped either."""


class SqliteLedgers(SqlitePart):
    """Implements ``LedgerStore`` and ``LedgerIds``."""

    async def create_ledger(
        self, ledger_id: LedgerId, metadata: LedgerMetadata, *, is_allocated: bool = False
    ) -> Version:
        """See ``LedgerStore``; an id that was chosen is not generated afterwards."""
        check_new_id(ledger_id)
        metadata = with_token(metadata, self._chance.randrange(1, 2**63 - 1))
        value = encode_for_write(metadata)

        def create(rows: Rows, _session_id: int) -> Version:
            stored = rows.get(LEDGER, ledger_id)
            if stored is None:
                stored_layout(rows)
                if not is_allocated and ledger_id < _SKIPPED_END:
                    rows.sequences.skip_to(LEDGER, ledger_id + 1)
                return rows.insert(LEDGER, ledger_id, value)
            if not _same_creator(stored.value, metadata.creator_token):
                raise LedgerExistsError(f"ledger {ledger_id} exists")
            return stored.version

        return await self._write(create)

    async def read_ledger(self, ledger_id: LedgerId) -> Versioned[LedgerMetadata]:
        row = await self._read(lambda rows, _: rows.get(LEDGER, ledger_id))
        if row is None:
            raise NoSuchLedgerError.of(ledger_id)
        return Versioned(decode_stored(ledger_id, row.value, row.ctime_ms), row.version)

    async def read_ledgers(self, ids: Sequence[LedgerId]) -> AsyncGenerator[list[StoredLedger]]:
        for at in range(0, len(ids), _LEDGERS_AT_ONCE):
            some_ids = ids[at : at + _LEDGERS_AT_ONCE]

            some_rows = await self._read(partial(_rows_of, some_ids))
            yield [
                as_stored(ledger_id, row.value, row.ctime_ms, row.version)
                for ledger_id, row in zip(some_ids, some_rows, strict=True)
                if row is not None
            ]

    async def write_ledger(
        self, ledger_id: LedgerId, metadata: LedgerMetadata, version: Version
    ) -> Version:
        value = encode_for_write(metadata)
        with ledger_errors(ledger_id, version):
            return await self._write(lambda rows, _: rows.update(LEDGER, ledger_id, value, version))

    async def remove_ledger(self, ledger_id: LedgerId, version: Version = ANY) -> None:
        may_be_gone = (NoNodeError,) if version == ANY else ()
        with ledger_errors(ledger_id, version), contextlib.suppress(*may_be_gone):
            await self._write(lambda rows, _: rows.delete(LEDGER, ledger_id, version))

    async def ledger_ranges(
        self, *, after: LedgerId | None = None
    ) -> AsyncIterator[tuple[LedgerId, ...]]:
        last = LedgerId(-1) if after is None else after

        def some(rows: Rows, _session_id: int) -> list[Key]:
            return rows.keys_after(LEDGER, last, IDS_AT_ONCE)

        while keys := await self._read(some):
            ids = tuple(LedgerId(int(key)) for key in keys)
            yield ids
            last = ids[-1]

    async def watch_ledger(self, ledger_id: LedgerId, changed: Callable[[], None]) -> Watch:
        return await self._watch(changed, LEDGER, key=ledger_id)

    async def allocate_ledger_id(self) -> LedgerId:
        def take(rows: Rows, _session_id: int) -> int:
            stored_layout(rows)
            return rows.sequences.take(LEDGER)

        return LedgerId(await self._write(take))


def _rows_of(ids: Sequence[LedgerId], rows: Rows, _session_id: int) -> list[NodeRow | None]:
    return [rows.get(LEDGER, ledger_id) for ledger_id in ids]


def _same_creator(value: bytes, token: int) -> bool:
    """Return whether stored metadata is of the same creation: then this is a retry of it."""
    try:
        return token != 0 and decode_metadata(value).creator_token == token
    except MetadataFormatError:
        return False


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


class SqliteLogs(SqlitePart):
    """Implements ``LogStore``."""

    async def create_log(self, name: str, record: bytes) -> Version:
        check_log_name(name)
        try:
            return await self._write(lambda rows, _: rows.insert(LOG, name, record))
        except NodeExistsError as error:
            raise log_exists(name) from error

    async def read_log(self, name: str) -> Versioned[bytes]:
        check_log_name(name)
        row = await self._read(lambda rows, _: rows.get(LOG, name))
        if row is None:
            raise no_log(name)
        return Versioned(row.value, row.version)

    async def write_log(self, name: str, record: bytes, version: Version) -> Version:
        try:
            return await self._write(lambda rows, _: rows.update(LOG, name, record, version))
        except NoNodeError as error:
            raise no_log(name) from error
        except NodeVersionError as error:
            raise log_changed(name, version) from error

    async def remove_log(self, name: str, version: Version = ANY) -> None:
        check_log_name(name)
        try:
            await self._write(lambda rows, _: rows.delete(LOG, name, version))
        except NoNodeError as error:
            raise no_log(name) from error
        except NodeVersionError as error:
            raise log_changed(name, version) from error

    async def list_logs(self) -> list[str]:
        return await self._read(lambda rows, _: sorted(str(key) for key in rows.all(LOG)))

    async def watch_log(self, name: str, changed: Callable[[], None]) -> Watch:
        return await self._watch(changed, LOG, key=name)


class SqliteCursors(SqlitePart):
    """Implements ``CursorStore``."""

    async def read_cursors(self, source: str) -> Versioned[bytes]:
        row = await self._read(lambda rows, _: rows.get(CURSORS, source))
        return Versioned(b"", NEW) if row is None else Versioned(row.value, row.version)

    async def write_cursors(self, source: str, value: bytes, version: Version) -> Version:
        try:
            if version == NEW:
                return await self._write(lambda rows, _: rows.insert(CURSORS, source, value))
            return await self._write(lambda rows, _: rows.update(CURSORS, source, value, version))
        except (NodeExistsError, NoNodeError, NodeVersionError) as error:
            raise cursors_changed(source) from error

    async def list_cursors(self) -> list[str]:
        return await self._read(lambda rows, _: sorted(str(key) for key in rows.all(CURSORS)))


class SqliteMetadata(
    SqliteLedgers,
    SqliteBookies,
    SqliteCookies,
    SqliteLogs,
    SqliteCursors,
    SqliteAdmin,
    SqliteRaw,
    SqliteSiblings,
    SqliteRepair,
    SqliteElection,
):
    """Implements ``MetadataStore``. A session begins with the first thing that needs one."""


def parse_uri(uri: str) -> Path:
    """Return the file: ``sqlite:///absolute/path`` or ``sqlite:relative/path``.

    Raises:
        IncorrectParameterError: it names no file, or a host.
    """
    scheme, _, rest = uri.partition(":")
    if rest.startswith("//"):
        host, slash, path = rest[2:].partition("/")
        # Four slashes in all are how others write the same.
        rest = slash + path.lstrip("/") if host in {"", "localhost"} else ""
    if scheme.lower() != "sqlite" or not rest.strip("/") or rest.endswith("/"):
        raise IncorrectParameterError(
            f"{uri!r} names no file: sqlite:///absolute/path or sqlite:relative/path"
        )
    return Path(rest)


def open_sqlite(
    uri: str,
    *,
    reactor: Any,
    session_timeout_s: float,
    chance: random.Random | None = None,
    lock_owner: str | None = None,
    registration_wait_s: float | None = None,
    mark_times: bool = True,
    busy_timeout_s: float = 10.0,
    poll_interval_s: float = 0.2,
    monotonic_s: Callable[[], float] = time.monotonic,
) -> SqliteMetadata:
    """Return a store on a file, not yet connected; nothing is opened before ``connect``.

    Args:
        uri: as for ``parse_uri``.
        reactor: where everything is called back; also the wall clock.
        session_timeout_s: how long what this process owns outlives it.
        chance: the source of tokens and of the order of repairs.
        lock_owner: what locks say of us; the host's name by default.
        registration_wait_s: how long an older session may keep our bookie id.
        mark_times: whether the marks of under-replicated ledgers hold their time.
        busy_timeout_s: how long another process may hold the file locked.
        poll_interval_s: how often other processes' changes are read, while a watch is set.
        monotonic_s: a clock that cannot be set, to check the wall clock by.
    """
    path = parse_uri(uri).absolute()
    return SqliteMetadata(
        uri,
        FileSession(
            path,
            now_s=wall_clock(reactor),
            monotonic_s=monotonic_s,
            session_timeout_s=session_timeout_s,
            busy_timeout_s=busy_timeout_s,
        ),
        SqliteOptions(
            session_timeout_s=session_timeout_s,
            chance=random.Random() if chance is None else chance,
            lock_owner=socket.gethostname() if lock_owner is None else lock_owner,
            registration_wait_s=(
                session_timeout_s * 1.5 + 1 if registration_wait_s is None else registration_wait_s
            ),
            mark_times=mark_times,
            poll_interval_s=poll_interval_s,
        ),
        reactor=reactor,
    )
