"""Under-replicated ledgers in a tree: marks, locks, switches and times.

BookKeeper 4.18.0, ZkLedgerUnderreplicationManager; metadata.md section 11.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Awaitable, Callable, Coroutine, Sequence
from functools import partial
from typing import Any, Final, TypeVar

import attrs
from twisted.internet.defer import Deferred

from bkclient.errors import IncorrectParameterError
from bkclient.metadata import zk_paths
from bkclient.metadata.api import (
    AlreadySetError,
    DamagedMark,
    HeldLock,
    IncompatibleLayoutError,
    MetadataUnavailableError,
    Missing,
    Version,
    Versioned,
    Watch,
)
from bkclient.metadata.tree.base import TreePart
from bkclient.metadata.tree.marks import ManyMarks
from bkclient.metadata.tree.nodes import (
    ATTEMPTS_MAX,
    AnswerLostError,
    BadVersionError,
    Fired,
    NodeExistsError,
    NoNodeError,
    NotEmptyError,
    StandingWatch,
    Tree,
    children_or_birth,
    create_with_parents,
    delete_if_there,
    insist,
    make_path,
    together,
)
from wire.errors import FormatError, MetadataFormatError
from wire.ids import BookieId, LedgerId
from wire.records.repair_marks import (
    REPAIR_LAYOUT,
    LockData,
    UnderreplicatedMark,
    decode_check_time,
    decode_lock,
    decode_mark,
    decode_repair_layout,
    encode_check_time,
    encode_lock,
    encode_mark,
    encode_repair_layout,
)

T = TypeVar("T")


def stored_mark(ledger_id: LedgerId, value: bytes) -> UnderreplicatedMark:
    """Return a ledger's mark.

    Raises:
        MetadataFormatError: it cannot be read.
    """
    try:
        return decode_mark(value)
    except FormatError as error:
        raise MetadataFormatError(f"the mark of ledger {ledger_id}: {error}") from error


def readable_mark(
    ledger_id: LedgerId, value: bytes, damaged: DamagedMark | None
) -> UnderreplicatedMark | None:
    """Return a ledger's mark, or tell ``damaged`` that it cannot be read.

    Raises:
        MetadataFormatError: it cannot be read, and there is nobody to tell.
    """
    try:
        return stored_mark(ledger_id, value)
    except MetadataFormatError as error:
        if damaged is None:
            raise
        damaged(ledger_id, error)
        return None


_READS_AT_ONCE: Final = 256
_WALK_PAUSE_S: Final = 1.0
"""How long the watch on the queue rests between two walks over its nodes."""


@attrs.frozen
class _Held:
    """A lock we hold. ``mark_version`` is ``None`` where no mark was looked for."""

    session_id: int
    mark_version: Version | None


class TreeRepair(TreePart):
    """Implements ``UnderreplicationQueue``."""

    def __init__(self, tree: Tree, **rest: Any) -> None:
        """See ``TreePart``."""
        super().__init__(tree, **rest)
        self._held: dict[LedgerId, _Held] = {}
        self._locking: set[LedgerId] = set()
        self._prepared = False
        self._queue_watches: set[StandingWatch] = set()

    async def _prepare(self) -> None:
        """Make the nodes that Java makes when it opens its manager, once a connection."""
        if self._prepared:
            return
        await make_path(self._tree, zk_paths.UNDERREPLICATION)
        try:
            await insist(
                lambda: self._tree.create(
                    zk_paths.UNDERREPLICATION_LAYOUT, encode_repair_layout(REPAIR_LAYOUT)
                )
            )
        except NodeExistsError:
            await self._check_repair_layout()
        for path in (zk_paths.MARKS, zk_paths.LOCKS):
            await make_path(self._tree, path)
        self._prepared = True

    async def _check_repair_layout(self) -> None:
        node = await self._tree.get(zk_paths.UNDERREPLICATION_LAYOUT)
        try:
            fits = decode_repair_layout(node.value) == REPAIR_LAYOUT
        except FormatError:
            fits = False
        if not fits:
            raise IncompatibleLayoutError(
                f"{self._tree.uri}: under-replicated ledgers are kept in a form we do not know"
            )

    # Marks

    async def mark_underreplicated(
        self, ledger_id: LedgerId, missing: tuple[BookieId, ...]
    ) -> None:
        """See ``UnderreplicationQueue``; may be repeated at will."""
        await self._prepare()
        path = zk_paths.mark(ledger_id)
        while True:
            value = encode_mark(UnderreplicatedMark(tuple(dict.fromkeys(missing)), self._mark_ms()))
            try:
                await insist(partial(create_with_parents, self._tree, path, value))
            except NodeExistsError:
                if await self._add_to_mark(ledger_id, missing):
                    return
            else:
                return

    async def mark_all_underreplicated(
        self, marks: Sequence[Missing], damaged: DamagedMark
    ) -> None:
        """See ``UnderreplicationQueue``; may be repeated at will."""
        await self._prepare()
        one = self.mark_underreplicated
        await ManyMarks(self._tree, self._values, one, self._mark_ms, damaged).mark(marks)

    async def _add_to_mark(self, ledger_id: LedgerId, missing: tuple[BookieId, ...]) -> bool:
        """Add to a mark what it lacks; return ``False`` when it changed or went meanwhile."""
        path = zk_paths.mark(ledger_id)
        try:
            # The lock before the mark: the repair that ends between the two takes the mark along.
            is_locked = await self._tree.stat(zk_paths.lock(ledger_id)) is not None
            node = await self._tree.get(path)
            mark = stored_mark(ledger_id, node.value)
            added = tuple(b for b in dict.fromkeys(missing) if b not in mark.replicas)
            # A repair in progress may have looked at these bookies before they were lost again.
            if added or is_locked:
                mark = attrs.evolve(
                    mark,
                    replicas=mark.replicas + added,
                    ctime_ms=self._mark_ms() if self._mark_times else mark.ctime_ms,
                )
                await self._tree.set(path, encode_mark(mark), node.stat.version)
        except (NoNodeError, BadVersionError, AnswerLostError):
            return False
        return True

    def _mark_ms(self) -> int | None:
        return self._now_ms() if self._mark_times else None

    async def underreplicated(self, ledger_id: LedgerId) -> UnderreplicatedMark | None:
        """See ``UnderreplicationQueue``."""
        value = await self._mark_value(ledger_id)
        return None if value is None else stored_mark(ledger_id, value)

    async def list_underreplicated(
        self, damaged: DamagedMark | None = None
    ) -> AsyncIterator[tuple[LedgerId, UnderreplicatedMark]]:
        """See ``UnderreplicationQueue``; ascending, and many reads at a time."""
        level = [zk_paths.MARKS]
        for _ in range(zk_paths.MARK_DEPTH):
            level = [child for some in await self._each(self._below, level) for child in some]
        # The levels spell the ledger's id, so its mark can be read without listing the last one.
        ids = [i for i in map(zk_paths.ledger_of_mark_parent, level) if i is not None]
        for start in range(0, len(ids), _READS_AT_ONCE):
            some_ids = ids[start : start + _READS_AT_ONCE]
            values = await together(map(self._mark_value, some_ids))
            for ledger_id, value in zip(some_ids, values, strict=True):
                mark = None if value is None else readable_mark(ledger_id, value, damaged)
                if mark is not None:
                    yield ledger_id, mark

    async def _mark_value(self, ledger_id: LedgerId) -> bytes | None:
        try:
            return (await self._tree.get(zk_paths.mark(ledger_id))).value
        except NoNodeError:
            return None

    async def _each(
        self, read: Callable[[str], Coroutine[Deferred[Any], Any, T]], paths: list[str]
    ) -> list[T]:
        """Read many paths, not too many at a time."""
        found: list[T] = []
        for start in range(0, len(paths), _READS_AT_ONCE):
            found += await together(map(read, paths[start : start + _READS_AT_ONCE]))
        return found

    async def _below(self, path: str, fired: Fired | None = None) -> list[str]:
        try:
            names = await self._tree.children(path, fired)
        except NoNodeError:
            return []
        return sorted(f"{path}/{name}" for name in names)

    async def poll_underreplicated(self) -> LedgerId | None:
        """See ``UnderreplicationQueue``: a random descent, so that workers seldom collide."""
        await self._prepare()
        return await self._poll_below(zk_paths.MARKS, zk_paths.MARK_DEPTH)

    async def _poll_below(self, path: str, depth: int) -> LedgerId | None:
        paths = await self._below(path)
        self._chance.shuffle(paths)
        if depth == 0 and not paths:
            await self._watch_birth(path)
        for below in paths:
            found = await (self._poll_below(below, depth - 1) if depth else self._try_lock(below))
            if found is not None:
                return found
        return None

    async def _try_lock(self, path: str) -> LedgerId | None:
        ledger_id = zk_paths.marked_ledger(path)
        if ledger_id is None or ledger_id in self._held_now():
            return None
        lock = await self._tree.stat(zk_paths.lock(ledger_id))
        if lock is not None and lock.owner != self._tree.session_id:
            return None
        # The version first: a mark renewed after it was read must outlive our repair.
        stat = await self._tree.stat(path)
        if stat is None or not await self._lock(ledger_id, stat.version):
            return None
        return ledger_id

    # Locks

    def _held_now(self) -> dict[LedgerId, _Held]:
        """Return the locks of this session, and forget those of an expired one."""
        session_id = self._tree.session_id
        self._held = {i: held for i, held in self._held.items() if held.session_id == session_id}
        return self._held

    async def take_underreplicated(self, ledger_id: LedgerId) -> bool:
        """See ``UnderreplicationQueue``."""
        await self._prepare()
        return await self._try_lock(zk_paths.mark(ledger_id)) is not None

    async def acquire_lock(self, ledger_id: LedgerId) -> bool:
        """See ``UnderreplicationQueue``."""
        await self._prepare()
        return await self._lock(ledger_id, None)

    async def _lock(self, ledger_id: LedgerId, mark_version: Version | None) -> bool:
        if ledger_id in self._held_now() or ledger_id in self._locking:
            return False
        self._locking.add(ledger_id)
        try:
            return await self._make_lock(ledger_id, mark_version)
        finally:
            self._locking.discard(ledger_id)

    async def _make_lock(self, ledger_id: LedgerId, mark_version: Version | None) -> bool:
        value, path = encode_lock(LockData(self._lock_owner)), zk_paths.lock(ledger_id)
        for _ in range(ATTEMPTS_MAX):
            session_id = self._tree.session_id
            try:
                await create_with_parents(self._tree, path, value, ephemeral=True)
            except AnswerLostError:
                continue
            except NodeExistsError:
                # It may be one we made, just now or in an outage, whose answer was lost. Nobody
                # else would ever take it away while this session lives.
                if not await self._is_ours(path):
                    return False
            if session_id != self._tree.session_id:
                continue
            self._held[ledger_id] = _Held(session_id, mark_version)
            return True
        raise MetadataUnavailableError(f"{self._tree.uri}: too many answers lost")

    async def _is_ours(self, path: str) -> bool:
        stat = await self._tree.stat(path)
        return stat is not None and stat.owner == self._tree.session_id

    async def release_lock(self, ledger_id: LedgerId) -> None:
        """See ``UnderreplicationQueue``; a lock that this session does not hold stays.

        One that it made and never heard of goes too.
        """
        if ledger_id in self._locking:
            return
        if await self._is_ours(zk_paths.lock(ledger_id)):
            await delete_if_there(self._tree, zk_paths.lock(ledger_id))
        self._held.pop(ledger_id, None)

    async def mark_replicated(self, ledger_id: LedgerId) -> None:
        """See ``UnderreplicationQueue``; without a lock that still holds the mark stays."""
        held = self._held_now().get(ledger_id)
        if held is None:
            return
        if held.mark_version is not None and await self._is_ours(zk_paths.lock(ledger_id)):
            await self._delete_mark(zk_paths.mark(ledger_id), held.mark_version)
        await self.release_lock(ledger_id)

    async def _delete_mark(self, path: str, version: Version) -> None:
        """Delete a mark and the levels above that got empty, unless it was renewed."""
        try:
            await insist(lambda: self._tree.delete(path, version))
        except BadVersionError:
            return
        except NoNodeError:
            pass
        for _ in range(zk_paths.MARK_DEPTH):
            path = zk_paths.parent(path)
            try:
                await delete_if_there(self._tree, path)
            except NotEmptyError:
                return

    async def lock_owner(self, ledger_id: LedgerId) -> str | None:
        """See ``UnderreplicationQueue``."""
        try:
            return decode_lock((await self._tree.get(zk_paths.lock(ledger_id))).value).bookie_id
        except NoNodeError:
            return None

    async def held_locks(self) -> list[HeldLock]:
        """See ``UnderreplicationQueue``."""
        locks = await self._each(self._held_lock, await self._below(zk_paths.LOCKS))
        return sorted((lock for lock in locks if lock is not None), key=lambda one: one.ledger_id)

    async def _held_lock(self, path: str) -> HeldLock | None:
        ledger_id = zk_paths.marked_ledger(path)
        try:
            node = await self._tree.get(path)
        except NoNodeError:
            return None
        if ledger_id is None:
            return None
        return HeldLock(ledger_id, name_in_lock(node.value), node.stat.ctime_ms)

    # Waiting for work

    async def watch_underreplicated(self, changed: Callable[[], None]) -> Watch:
        """See ``UnderreplicationQueue``; watches all levels but the last, and the locks.

        Setting it means to list all of them, so where much changes it calls once a second.
        """
        walked_s = -_WALK_PAUSE_S

        async def arm(fired: Fired) -> None:
            nonlocal walked_s
            await self._pause(walked_s + _WALK_PAUSE_S - self._clock.seconds())
            walked_s = self._clock.seconds()
            await self._prepare()
            await children_or_birth(self._tree, zk_paths.LOCKS, fired)
            level = [zk_paths.MARKS]
            for _ in range(zk_paths.MARK_DEPTH):
                listed = await self._each(lambda path: self._below(path, fired), level)
                level = [child for some in listed for child in some]

        watch = _QueueWatch(self._tree, arm, changed, self._queue_watches)
        self._queue_watches.add(watch)
        await watch.start()
        return watch

    async def _pause(self, seconds: float) -> None:
        if seconds > 0:
            rested: Deferred[None] = Deferred()
            self._clock.callLater(seconds, rested.callback, None)
            await rested

    async def _watch_birth(self, leaf: str) -> None:
        """Wake the watches when a mark appears here: its parent came a moment earlier."""
        for watch in tuple(self._queue_watches):
            if await self._below(leaf, watch.fire):
                watch.fire()

    # Switches, delay and times

    async def set_replication_enabled(self, *, enabled: bool, note: bytes = b"") -> None:
        """See ``UnderreplicationQueue``."""
        await self._prepare()
        try:
            if enabled:
                await self._tree.delete(zk_paths.REPLICATION_DISABLED)
            else:
                await self._tree.create(zk_paths.REPLICATION_DISABLED, note)
        except NoNodeError as error:
            raise AlreadySetError("re-replication is enabled already") from error
        except NodeExistsError as error:
            raise AlreadySetError("re-replication is disabled already") from error

    async def enable_replication_noted(self, note: bytes) -> bool:
        """See ``UnderreplicationQueue``."""
        try:
            node = await self._tree.get(zk_paths.REPLICATION_DISABLED)
            if node.value != note:
                return False
            await self._tree.delete(zk_paths.REPLICATION_DISABLED, node.stat.version)
        except (NoNodeError, BadVersionError):
            return False
        return True

    async def replication_enabled(self) -> bool:
        """See ``UnderreplicationQueue``."""
        return await self._tree.stat(zk_paths.REPLICATION_DISABLED) is None

    async def set_replication_note(self, note: bytes) -> None:
        """See ``UnderreplicationQueue``."""
        try:
            await insist(lambda: self._tree.set(zk_paths.REPLICATION_DISABLED, note))
        except NoNodeError as error:
            raise AlreadySetError("re-replication is enabled") from error

    async def replication_note(self) -> bytes | None:
        """See ``UnderreplicationQueue``."""
        try:
            return (await self._tree.get(zk_paths.REPLICATION_DISABLED)).value
        except NoNodeError:
            return None

    async def watch_replication_enabled(self, changed: Callable[[], None]) -> Watch:
        """See ``UnderreplicationQueue``."""
        return await self._watch(zk_paths.REPLICATION_DISABLED, changed)

    async def lost_bookie_recovery_delay(self) -> int | None:
        """See ``UnderreplicationQueue``."""
        stored = await self.versioned_recovery_delay()
        return None if stored is None else stored.value

    async def versioned_recovery_delay(self) -> Versioned[int] | None:
        """See ``UnderreplicationQueue``."""
        try:
            node = await self._tree.get(zk_paths.LOST_BOOKIE_DELAY)
        except NoNodeError:
            return None
        return Versioned(parse_delay(node.value), node.stat.version)

    async def set_lost_bookie_recovery_delay(self, delay_s: int) -> None:
        """See ``UnderreplicationQueue``."""
        await self._prepare()
        await self._put(zk_paths.LOST_BOOKIE_DELAY, encode_delay(delay_s), open_to_all=True)

    async def watch_lost_bookie_recovery_delay(self, changed: Callable[[], None]) -> Watch:
        """See ``UnderreplicationQueue``; also when the same value is written again."""
        return await self._watch(zk_paths.LOST_BOOKIE_DELAY, changed)

    async def check_time(self, check: str) -> int | None:
        """See ``UnderreplicationQueue``."""
        try:
            return decode_check_time((await self._tree.get(check_path(check))).value)
        except NoNodeError:
            return None

    async def set_check_time(self, check: str, time_ms: int) -> None:
        """See ``UnderreplicationQueue``."""
        path = check_path(check)
        await self._prepare()
        await self._put(path, encode_check_time(time_ms))

    async def _put(self, path: str, value: bytes, *, open_to_all: bool = False) -> None:
        """Set a node, or make it where there is none."""
        while True:
            try:
                await insist(lambda: self._tree.set(path, value))
            except NoNodeError:
                pass
            else:
                return
            try:
                await insist(lambda: self._tree.create(path, value, open_to_all=open_to_all))
            except NodeExistsError:
                continue
            else:
                return

    async def _watch(self, path: str, changed: Callable[[], None]) -> Watch:
        return await StandingWatch(
            self._tree, lambda fired: self._tree.stat(path, fired), changed
        ).start()


class _QueueWatch(StandingWatch):
    """One of several watches on the queue; polls can set it on more nodes."""

    def __init__(
        self,
        tree: Tree,
        arm: Callable[[Fired], Awaitable[object]],
        changed: Callable[[], None],
        among: set[StandingWatch],
    ) -> None:
        super().__init__(tree, arm, changed)
        self._among = among

    def cancel(self) -> None:
        super().cancel()
        self._among.discard(self)


def name_in_lock(value: bytes) -> str:
    """Return who holds a lock; empty where its value says nothing."""
    try:
        return decode_lock(value).bookie_id
    except FormatError:
        return ""


def check_path(check: str) -> str:
    """Return where the end of a check is noted; raise ``IncorrectParameterError``."""
    try:
        return zk_paths.CHECK_TIMES[check]
    except KeyError as error:
        raise IncorrectParameterError(
            f"no check {check!r}; there are {', '.join(zk_paths.CHECK_TIMES)}"
        ) from error


def encode_delay(delay_s: int) -> bytes:
    """Return the stored form of the delay before a lost bookie's ledgers are repaired."""
    if delay_s < 0:
        raise IncorrectParameterError(f"the delay must be 0 s or more, not {delay_s}")
    return str(delay_s).encode()


def parse_delay(value: bytes) -> int:
    """Return the stored delay in seconds; raise ``MetadataFormatError`` for anything else."""
    try:
        return int(value.decode("ascii"))
    except ValueError as error:
        raise MetadataFormatError(f"lostBookieRecoveryDelay is {value[:40]!r}") from error
