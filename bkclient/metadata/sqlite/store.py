"""``MetadataStore`` on one SQLite file: the tree's store, with faster operations for a file."""

from __future__ import annotations

import random
import socket
import time
from collections.abc import AsyncIterator, Callable
from functools import partial
from pathlib import Path
from typing import Any

from bkclient.concurrency import wall_clock
from bkclient.errors import IncorrectParameterError
from bkclient.metadata import zk_paths
from bkclient.metadata.sqlite.database import Key
from bkclient.metadata.sqlite.init_and_format import SqliteAdmin
from bkclient.metadata.sqlite.paths import LEDGER, LOCK, LOG, MARK
from bkclient.metadata.sqlite.raw_nodes import SqliteRaw
from bkclient.metadata.sqlite.rows import Rows
from bkclient.metadata.sqlite.session import FileSession
from bkclient.metadata.sqlite.tree import SqliteTree
from bkclient.metadata.stored_values import IDS_AT_ONCE
from bkclient.metadata.tree.logs import TOMBSTONE, check_log_name, log_changed, no_log
from bkclient.metadata.tree.nodes import ATTEMPTS_MAX, Fired, NodeVersionError
from bkclient.metadata.tree.store import MetadataStore
from bkclient.metadata.tree.underreplication.repair_nodes import readable_mark
from bkclient.metadata.versions_and_watches import ANY, DamagedMark, Version, Watch
from wire.ids import LedgerId
from wire.records.underreplication import UnderreplicatedMark


class SqliteMetadata(SqliteAdmin, SqliteRaw, MetadataStore):
    """A store on a file. A session begins with the first step that needs one."""

    _tree: SqliteTree

    def __init__(self, tree: SqliteTree, *, registration_wait_s: float | None, **how: Any) -> None:
        """See ``TreePart``; a file's leases end without a server's ticks."""
        if registration_wait_s is None:
            registration_wait_s = tree.session_timeout_s * 1.5 + 1
        how["many_values"] = tree.values
        super().__init__(tree, registration_wait_s=registration_wait_s, **how)

    async def connect(self) -> None:
        await self._tree.connect()

    async def ledger_ranges(
        self, *, after: LedgerId | None = None
    ) -> AsyncIterator[tuple[LedgerId, ...]]:
        last = LedgerId(-1) if after is None else after

        def some(rows: Rows, _session_id: int) -> list[Key]:
            return rows.keys_after(LEDGER, last, IDS_AT_ONCE)

        while keys := await self._tree.read(some):
            ids = tuple(LedgerId(int(key)) for key in keys)
            yield ids
            last = ids[-1]

    async def allocate_ledger_id(self) -> LedgerId:
        await self._ledger_layout()
        return LedgerId(await self._tree.write(lambda rows, _: rows.sequences.take(LEDGER)))

    async def remove_log(self, name: str, version: Version = ANY) -> None:
        """See ``TreeLogs``; a file repeats no version, so a deleted log leaves no tombstone."""
        check_log_name(name)

        def remove(rows: Rows, _session_id: int) -> None:
            row = rows.get(LOG, name)
            if row is None or row.value == TOMBSTONE:
                raise no_log(name)
            rows.delete(LOG, name, version)

        try:
            await self._tree.write(remove)
        except NodeVersionError as error:
            raise log_changed(name, version) from error

    async def list_logs(self) -> list[str]:
        def names(rows: Rows, _session_id: int) -> list[str]:
            return sorted(str(key) for key, row in rows.all(LOG).items() if row.value != TOMBSTONE)

        return await self._tree.read(names)

    async def list_underreplicated(
        self, damaged: DamagedMark | None = None
    ) -> AsyncIterator[tuple[LedgerId, UnderreplicatedMark]]:
        last: Key = -1

        def some(rows: Rows, _session_id: int) -> list[tuple[Key, bytes]]:
            keys = rows.keys_after(MARK, last, IDS_AT_ONCE // 10)
            return [(key, row.value) for key in keys if (row := rows.get(MARK, key)) is not None]

        while marks := await self._tree.read(some):
            for key, value in marks:
                ledger_id = LedgerId(int(key))
                if (mark := readable_mark(ledger_id, value, damaged)) is not None:
                    yield ledger_id, mark
            last = marks[-1][0]

    async def poll_underreplicated(self) -> LedgerId | None:
        """Lock a mark after a random position, so that workers seldom collide.

        Return its ledger.
        """
        await self._prepare_repair()

        def unlocked(fraction: float, rows: Rows, _session_id: int) -> int | None:
            found = rows.unlocked_mark(fraction)
            return None if found is None else found[0]

        for _ in range(ATTEMPTS_MAX):
            # A write transaction, because it first deletes the locks of expired sessions.
            marked = await self._tree.write(partial(unlocked, self._chance.random()))
            if marked is None:
                return None
            ledger_id = LedgerId(marked)
            if await self._try_lock(zk_paths.mark(ledger_id)) is not None:
                if await self._mark_value(ledger_id) is not None:
                    return ledger_id
                await self.release_lock(ledger_id)  # Another worker has just repaired the ledger.
        return None

    async def watch_underreplicated(self, changed: Callable[[], None]) -> Watch:
        async def arm(fired: Fired) -> None:
            self._tree.watch(fired, (MARK, None), (LOCK, None))
            await self._tree.read(lambda _rows, _session_id: None)

        return await self._watch(arm, changed)


def parse_uri(uri: str) -> Path:
    """Return the file of ``sqlite:///absolute/path`` or ``sqlite:relative/path``.

    Raises:
        IncorrectParameterError: the URI has no file, or a host.
    """
    scheme, _, rest = uri.partition(":")
    if rest.startswith("//"):
        host, slash, path = rest[2:].partition("/")
        # Other programs write four slashes for an absolute path.
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
    """Return a store on a file, not yet connected; ``connect`` opens the file.

    Args:
        uri: as for ``parse_uri``.
        reactor: the reactor of all callbacks; also the wall clock.
        session_timeout_s: how long ephemeral rows outlive this process.
        chance: the random source of tokens and of the order of repairs.
        lock_owner: the name in our locks; by default the host's name.
        registration_wait_s: how long an older session may keep our bookie id.
        mark_times: True if marks of under-replicated ledgers have a creation time.
        busy_timeout_s: how long another process may keep the file locked.
        poll_interval_s: the interval of reads of other processes' changes, while a watch is set.
        monotonic_s: a clock that cannot be set, to check the wall clock.
    """
    session = FileSession(
        parse_uri(uri).absolute(),
        now_s=wall_clock(reactor),
        monotonic_s=monotonic_s,
        session_timeout_s=session_timeout_s,
        busy_timeout_s=busy_timeout_s,
    )
    tree = SqliteTree(
        uri,
        session,
        reactor=reactor,
        session_timeout_s=session_timeout_s,
        poll_interval_s=poll_interval_s,
    )
    return SqliteMetadata(
        tree,
        clock=reactor,
        chance=random.Random() if chance is None else chance,
        lock_owner=socket.gethostname() if lock_owner is None else lock_owner,
        registration_wait_s=registration_wait_s,
        mark_times=mark_times,
    )
