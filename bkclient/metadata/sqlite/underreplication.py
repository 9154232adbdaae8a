"""Under-replicated ledgers and the auditor's election in a file."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable, Sequence
from functools import partial
from typing import Any, Final

from twisted.internet.defer import CancelledError, Deferred
from twisted.internet.task import deferLater
from twisted.logger import Logger

from bkclient.errors import ClientError
from bkclient.metadata import zk_paths
from bkclient.metadata.api import DamagedMark, HeldLock, Missing, Versioned, Watch
from bkclient.metadata.errors import AlreadySetError, MetadataUnavailableError
from bkclient.metadata.sqlite.database import Key
from bkclient.metadata.sqlite.rows import META, Rows
from bkclient.metadata.sqlite.session import FileSession
from bkclient.metadata.sqlite.store_part import LOCK, MARK, VOTE, SqliteOptions, SqlitePart, is_own
from bkclient.metadata.stored_values import IDS_AT_ONCE
from bkclient.metadata.tree.nodes import NodeExistsError, NoNodeError
from bkclient.metadata.tree.underreplication.branch import (
    check_path,
    encode_delay,
    name_in_lock,
    parse_delay,
    readable_mark,
    stored_check_time,
    stored_mark,
)
from bkclient.metadata.tree.underreplication.locks import OwnLock
from wire.errors import MetadataFormatError
from wire.ids import BookieId, LedgerId
from wire.records.underreplication import (
    REPAIR_LAYOUT,
    AuditorVote,
    LockData,
    UnderreplicatedMark,
    decode_lock,
    decode_vote,
    encode_check_time,
    encode_lock,
    encode_mark,
    encode_repair_layout,
    encode_vote,
)

log = Logger()

_MARKS_AT_ONCE: Final = 100
"""In one transaction: others write in between."""

_LOOK_S: Final = 0.25


class SqliteMarks(SqlitePart):
    """The part of ``UnderreplicationQueue`` that is about marks."""

    async def mark_underreplicated(
        self, ledger_id: LedgerId, missing: tuple[BookieId, ...]
    ) -> None:
        await self._write(lambda rows, _: self._mark(rows, ledger_id, missing))

    async def mark_all_underreplicated(
        self, marks: Sequence[Missing], damaged: DamagedMark
    ) -> None:
        for at in range(0, len(marks), _MARKS_AT_ONCE):
            some = partial(self._mark_each, marks[at : at + _MARKS_AT_ONCE])
            for ledger_id, error in await self._write(some):
                damaged(ledger_id, error)

    def _mark_each(
        self, marks: Sequence[Missing], rows: Rows, _session_id: int
    ) -> list[tuple[LedgerId, MetadataFormatError]]:
        """Mark ledgers; return those of which the mark cannot be read."""
        unreadable = []
        for ledger_id, missing in marks:
            try:
                self._mark(rows, ledger_id, missing)
            except MetadataFormatError as error:
                unreadable.append((ledger_id, error))
        return unreadable

    def _mark(self, rows: Rows, ledger_id: LedgerId, missing: tuple[BookieId, ...]) -> None:
        _prepare(rows)
        row = rows.get(MARK, ledger_id)
        old = UnderreplicatedMark(()) if row is None else stored_mark(ledger_id, row.value)
        added = tuple(bookie for bookie in dict.fromkeys(missing) if bookie not in old.replicas)
        is_newer = self._mark_times and (row is None or added)
        since_ms = rows.now_ms if is_newer else old.ctime_ms
        value = encode_mark(UnderreplicatedMark(old.replicas + added, since_ms))
        if row is None:
            rows.insert(MARK, ledger_id, value)
        elif added or rows.get(LOCK, ledger_id) is not None:
            # A repair in progress may have looked at these bookies before they were lost again.
            rows.update(MARK, ledger_id, value)

    async def underreplicated(self, ledger_id: LedgerId) -> UnderreplicatedMark | None:
        row = await self._read(lambda rows, _: rows.get(MARK, ledger_id))
        return None if row is None else stored_mark(ledger_id, row.value)

    async def list_underreplicated(
        self, damaged: DamagedMark | None = None
    ) -> AsyncIterator[tuple[LedgerId, UnderreplicatedMark]]:
        last: Key = -1

        def some(rows: Rows, _session_id: int) -> list[tuple[Key, bytes]]:
            keys = rows.keys_after(MARK, last, IDS_AT_ONCE // 10)
            return [(key, row.value) for key in keys if (row := rows.get(MARK, key)) is not None]

        while marks := await self._read(some):
            for key, value in marks:
                ledger_id = LedgerId(int(key))
                if (mark := readable_mark(ledger_id, value, damaged)) is not None:
                    yield ledger_id, mark
            last = marks[-1][0]


class SqliteRepair(SqliteMarks):
    """Implements ``UnderreplicationQueue``."""

    def __init__(self, uri: str, session: FileSession, options: SqliteOptions, **rest: Any) -> None:
        """See ``SqlitePart``."""
        super().__init__(uri, session, options, **rest)
        self._held: dict[LedgerId, OwnLock] = {}

    async def poll_underreplicated(self) -> LedgerId | None:
        fraction, value = self._chance.random(), encode_lock(LockData(self._lock_owner))

        def poll(rows: Rows, session_id: int) -> tuple[LedgerId, OwnLock] | None:
            found = rows.unlocked_mark(fraction)
            if found is None:
                return None
            rows.insert(LOCK, found[0], value, session_id)
            return LedgerId(found[0]), OwnLock(session_id, found[1].version)

        locked = await self._write(poll, needs_session=True)
        if locked is None:
            return None
        self._held[locked[0]] = locked[1]
        return locked[0]

    async def take_underreplicated(self, ledger_id: LedgerId) -> bool:
        value = encode_lock(LockData(self._lock_owner))

        def take(rows: Rows, session_id: int) -> OwnLock | None:
            mark = rows.get(MARK, ledger_id)
            if mark is None or rows.get(LOCK, ledger_id) is not None:
                return None
            rows.insert(LOCK, ledger_id, value, session_id)
            return OwnLock(session_id, mark.version)

        held = await self._write(take, needs_session=True)
        if held is not None:
            self._held[ledger_id] = held
        return held is not None

    async def watch_underreplicated(self, changed: Callable[[], None]) -> Watch:
        return await self._watch(changed, MARK, LOCK)

    async def acquire_lock(self, ledger_id: LedgerId) -> bool:
        value = encode_lock(LockData(self._lock_owner))

        def acquire(rows: Rows, session_id: int) -> int:
            _prepare(rows)
            rows.insert(LOCK, ledger_id, value, session_id)
            return session_id

        try:
            session_id = await self._write(acquire, needs_session=True)
        except NodeExistsError:
            return False
        self._held[ledger_id] = OwnLock(session_id, None)
        return True

    async def release_lock(self, ledger_id: LedgerId) -> None:
        await self._end_lock(ledger_id, repaired=False)

    async def mark_replicated(self, ledger_id: LedgerId) -> None:
        await self._end_lock(ledger_id, repaired=True)

    async def _end_lock(self, ledger_id: LedgerId, *, repaired: bool) -> None:
        """Delete this session's lock, even one whose creation it has not heard of."""
        held = self._held.get(ledger_id)
        if held is None and repaired:
            return

        def end(rows: Rows, session_id: int) -> None:
            if not is_own(rows, LOCK, ledger_id, session_id):
                return  # An expired session's lock is not ours any more, nor is its mark.
            mark = rows.get(MARK, ledger_id)
            if repaired and held and mark is not None and mark.version == held.mark_version:
                rows.delete(MARK, ledger_id)
            rows.delete(LOCK, ledger_id)

        await self._write(end)
        self._held.pop(ledger_id, None)

    async def lock_owner(self, ledger_id: LedgerId) -> str | None:
        row = await self._read(lambda rows, _: rows.get(LOCK, ledger_id))
        return None if row is None else decode_lock(row.value).bookie_id

    async def repair_locks(self) -> list[HeldLock]:
        rows = await self._read(lambda rows, _: rows.all(LOCK))
        return [
            HeldLock(LedgerId(int(key)), name_in_lock(row.value), row.ctime_ms)
            for key, row in rows.items()
        ]

    async def set_replication_enabled(self, *, enabled: bool, note: bytes = b"") -> None:
        await self._set_switch(
            zk_paths.REPLICATION_DISABLED, "re-replication", enabled=enabled, note=note
        )

    async def set_replication_note(self, note: bytes) -> None:
        try:
            await self._write(
                lambda rows, _: rows.update(META, zk_paths.REPLICATION_DISABLED, note)
            )
        except NoNodeError as error:
            raise AlreadySetError("re-replication is enabled") from error

    async def replication_note(self) -> bytes | None:
        row = await self._read(lambda rows, _: rows.get(META, zk_paths.REPLICATION_DISABLED))
        return None if row is None else row.value

    async def enable_replication_noted(self, note: bytes) -> bool:
        def enable(rows: Rows, _session_id: int) -> bool:
            row = rows.get(META, zk_paths.REPLICATION_DISABLED)
            if row is None or row.value != note:
                return False
            rows.delete(META, zk_paths.REPLICATION_DISABLED)
            return True

        return await self._write(enable)

    async def replication_enabled(self) -> bool:
        return not await self._has_meta(zk_paths.REPLICATION_DISABLED)

    async def watch_replication_enabled(self, changed: Callable[[], None]) -> Watch:
        return await self._watch(changed, META, key=zk_paths.REPLICATION_DISABLED)

    async def lost_bookie_recovery_delay(self) -> int | None:
        stored = await self.versioned_recovery_delay()
        return None if stored is None else stored.value

    async def versioned_recovery_delay(self) -> Versioned[int] | None:
        row = await self._read(lambda rows, _: rows.get(META, zk_paths.LOST_BOOKIE_DELAY))
        return None if row is None else Versioned(parse_delay(row.value), row.version)

    async def set_lost_bookie_recovery_delay(self, delay_s: int) -> None:
        await self._put_meta(zk_paths.LOST_BOOKIE_DELAY, encode_delay(delay_s))

    async def watch_lost_bookie_recovery_delay(self, changed: Callable[[], None]) -> Watch:
        return await self._watch(changed, META, key=zk_paths.LOST_BOOKIE_DELAY)

    async def check_time(self, check: str) -> int | None:
        path = check_path(check)
        row = await self._read(lambda rows, _: rows.get(META, path))
        return None if row is None else stored_check_time(check, row.value)

    async def set_check_time(self, check: str, time_ms: int) -> None:
        await self._put_meta(check_path(check), encode_check_time(time_ms))


class SqliteElection(SqlitePart):
    """Implements ``AuditorElection``: the lowest vote wins, the others wait for it to go."""

    async def elect(self, bookie_id: BookieId) -> None:
        """See ``AuditorElection``; goes on standing through outages and lost sessions."""
        value = encode_vote(AuditorVote(bookie_id))
        woken: Deferred[None] = Deferred()

        def wake() -> None:
            if woken in self._waiting:
                self._waiting.discard(woken)
                woken.callback(None)

        watch = await self._watch(wake, VOTE)
        listener = self.on_session(lambda _event: wake())
        try:
            while True:
                # Waiting begins before the look: what changes after it must not be missed.
                woken = Deferred()
                self._waiting.add(woken)
                if await self._stand(value):
                    return
                await woken
        except CancelledError:
            try:
                await self.resign()
            except ClientError as error:
                log.info("the vote stays until the session ends: {error}", error=error)
            raise
        finally:
            self._waiting.discard(woken)
            watch.cancel()
            listener.cancel()

    async def _stand(self, value: bytes) -> bool:
        """Vote if we have not, and return whether our vote is the lowest."""

        def stand(rows: Rows, session_id: int) -> bool:
            owners = [row.owner for row in rows.all(VOTE).values()]
            if session_id not in owners:
                rows.insert(VOTE, rows.sequences.take(VOTE), value, session_id)
                owners.append(session_id)
            if owners[0] == session_id:
                rows.put(META, zk_paths.ELECTION, value)
            elif rows.get(META, zk_paths.ELECTION) is None:
                rows.insert(META, zk_paths.ELECTION, b"")
            return owners[0] == session_id

        while True:
            try:
                return await self._write(stand, needs_session=True)
            except MetadataUnavailableError:
                await deferLater(self._reactor, _LOOK_S)

    async def resign(self) -> None:
        def withdraw(rows: Rows, session_id: int) -> None:
            for key, row in rows.all(VOTE).items():
                if row.owner == session_id:
                    rows.delete(VOTE, key)

        await self._write(withdraw)

    async def current_auditor(self) -> BookieId | None:
        votes = await self._read(lambda rows, _: list(rows.all(VOTE).values()))
        return decode_vote(votes[0].value).bookie_id if votes else None


def _prepare(rows: Rows) -> None:
    """Make the row that ZooKeeper's tree has once repairs have begun."""
    if rows.get(META, zk_paths.UNDERREPLICATION_LAYOUT) is None:
        rows.insert(META, zk_paths.UNDERREPLICATION_LAYOUT, encode_repair_layout(REPAIR_LAYOUT))
