"""TreeMarks: the marks of under-replicated ledgers."""

from __future__ import annotations

from collections.abc import AsyncGenerator, AsyncIterator, Awaitable, Callable, Sequence
from contextlib import aclosing
from functools import partial
from typing import Final

import attrs

from bkclient.concurrency import for_each, wall_ms
from bkclient.errors import MetadataStoreError
from bkclient.metadata import zk_paths
from bkclient.metadata.errors import MetadataAccessError
from bkclient.metadata.tree.nodes import (
    AnswerLostError,
    FoundValue,
    NodeExistsError,
    NodeVersionError,
    NoNodeError,
    NotEmptyError,
    Stat,
    Tree,
    retry_until_answered,
    run_together,
)
from bkclient.metadata.tree.underreplication.repair_nodes import (
    READS_AT_ONCE,
    RepairPart,
    readable_mark,
    stored_mark,
)
from bkclient.metadata.versions_and_watches import DamagedMark, Missing
from wire.errors import FormatError, MetadataFormatError
from wire.ids import BookieId, LedgerId
from wire.records.underreplication import UnderreplicatedMark, decode_mark, encode_mark

LOOKED_AT: Final = 1000
"""Marks that are read, and then written, before the next."""

TOGETHER: Final = 100
"""Marks in one write, which has two nodes for each and some 20 KB."""

AT_ONCE: Final = 4
"""Writes in flight. Single marks are written ``AT_ONCE * TOGETHER`` at a time."""


@attrs.define(eq=False)
class ManyMarks:
    """The marking of many ledgers for ``mark_all_underreplicated``."""

    _tree: Tree
    _values: Callable[[Sequence[str]], AsyncGenerator[list[FoundValue]]]
    _mark_one: Callable[[LedgerId, tuple[BookieId, ...]], Awaitable[None]]
    _now_ms: Callable[[], int | None]
    _damaged: DamagedMark
    _made: set[str] = attrs.field(factory=set, init=False)

    async def mark(self, marks: Sequence[Missing]) -> None:
        """Mark the ledgers; the call may be repeated."""
        for at in range(0, len(marks), LOOKED_AT):
            new, changed = await self._look(marks[at : at + LOOKED_AT])
            groups = [new[i : i + TOGETHER] for i in range(0, len(new), TOGETHER)]
            await for_each(groups, self._create, AT_ONCE)
            await for_each(changed, self._one, AT_ONCE * TOGETHER)

    async def _look(self, marks: Sequence[Missing]) -> tuple[list[Missing], list[Missing]]:
        """Return the ledgers without a mark, and those whose mark may need a change."""
        # The locks before the marks: a repair that ends between the reads deletes its mark.
        locked = set(await self._tree.children_if_there(zk_paths.LOCKS, fresh=True))
        new, changed, at = [], [], 0
        paths = [zk_paths.mark(ledger_id) for ledger_id, _ in marks]
        async with aclosing(self._values(paths)) as values:
            async for some in values:
                for value in some:
                    mark = marks[at]
                    at += 1
                    if value is None:
                        new.append(mark)
                    elif (
                        isinstance(value, MetadataAccessError)
                        or zk_paths.mark_name(mark[0]) in locked
                        or _lacks(value.value, mark[1])
                    ):
                        changed.append(mark)
        return new, changed

    async def _create(self, marks: Sequence[Missing]) -> None:
        """Create marks and their parents in one write; one by one if any of them exists already."""
        nodes: list[tuple[str, bytes]] = []
        for ledger_id, missing in marks:
            path = zk_paths.mark(ledger_id)
            above = zk_paths.parent(path)
            await self._make(zk_paths.parent(above))
            mark = UnderreplicatedMark(tuple(dict.fromkeys(missing)), self._now_ms())
            nodes += (above, b""), (path, encode_mark(mark))
        try:
            await self._tree.create_together(nodes)
        except MetadataStoreError:
            await for_each(marks, self._one, TOGETHER)

    async def _make(self, path: str) -> None:
        if path not in self._made:
            await self._tree.make_path(path)
            self._made.add(path)

    async def _one(self, mark: Missing) -> None:
        try:
            await self._mark_one(*mark)
        except (MetadataFormatError, MetadataAccessError) as error:
            self._damaged(mark[0], error)


def _lacks(value: bytes, missing: Sequence[BookieId]) -> bool:
    """Return whether a mark lacks one of these bookies, or cannot be read."""
    try:
        return not set(missing) <= set(decode_mark(value).replicas)
    except FormatError:
        return True


class TreeMarks(RepairPart):
    """The marks of under-replicated ledgers."""

    def _mark_ms(self) -> int | None:
        """Return the time of new marks, or None if marks have no time."""
        return wall_ms(self._clock) if self._mark_times else None

    async def mark_underreplicated(
        self, ledger_id: LedgerId, missing: tuple[BookieId, ...]
    ) -> None:
        """Create the mark or add ``missing`` to it.

        During a repair the mark always gets a new version, so that it outlives the repair. Java
        does not change the mark, and loses it (4.18.0).
        """
        await self._prepare_repair()
        path = zk_paths.mark(ledger_id)
        while True:
            value = encode_mark(UnderreplicatedMark(tuple(dict.fromkeys(missing)), self._mark_ms()))
            try:
                await retry_until_answered(partial(self._tree.create_with_parents, path, value))
            except NodeExistsError:
                if await self._extend_mark(ledger_id, missing):
                    return
            else:
                return

    async def mark_all_underreplicated(
        self, marks: Sequence[Missing], damaged: DamagedMark
    ) -> None:
        """Mark very many ledgers, each as ``mark_underreplicated`` does.

        ``damaged`` is called for ledgers with an unreadable mark, which is not changed.
        """
        await self._prepare_repair()
        mark_one = self.mark_underreplicated
        many = ManyMarks(self._tree, self._values, mark_one, self._mark_ms, damaged)
        await many.mark(marks)

    async def _extend_mark(self, ledger_id: LedgerId, missing: tuple[BookieId, ...]) -> bool:
        """Add missing bookies to a mark; return ``False`` if another client changed the mark."""
        path = zk_paths.mark(ledger_id)
        try:
            # The lock before the mark: a repair that ends between the reads deletes its mark.
            is_locked = await self._tree.stat(zk_paths.lock(ledger_id)) is not None
            node = await self._tree.get(path)
            mark = stored_mark(ledger_id, node.value)
            added = tuple(b for b in dict.fromkeys(missing) if b not in mark.replicas)
            # A repair in progress may have checked these bookies before they were lost again.
            if added or is_locked:
                now_ms = self._mark_ms()
                mark = attrs.evolve(
                    mark,
                    replicas=mark.replicas + added,
                    ctime_ms=now_ms if added and now_ms is not None else mark.ctime_ms,
                )
                await self._tree.set(path, encode_mark(mark), node.stat.version)
        except (NoNodeError, NodeVersionError, AnswerLostError):
            return False
        return True

    async def underreplicated(self, ledger_id: LedgerId) -> UnderreplicatedMark | None:
        """Return the mark of a ledger; None if the ledger is not marked."""
        value = await self._mark_value(ledger_id)
        return None if value is None else stored_mark(ledger_id, value)

    async def list_underreplicated(
        self, damaged: DamagedMark | None = None
    ) -> AsyncIterator[tuple[LedgerId, UnderreplicatedMark]]:
        """Yield all marks, ascending; ``damaged`` is called for unreadable marks.

        Raises:
            MetadataFormatError: a mark cannot be read, and ``damaged`` is None.
        """
        level = [zk_paths.MARKS]
        for _ in range(zk_paths.MARK_DEPTH):
            level = [child for some in await self._each(self._below, level) for child in some]
        # The levels contain the ledger's id, so the mark can be read without listing the last
        # level.
        ids = [i for i in map(zk_paths.ledger_of_mark_parent, level) if i is not None]
        for start in range(0, len(ids), READS_AT_ONCE):
            some_ids = ids[start : start + READS_AT_ONCE]
            values = await run_together(map(self._found, some_ids))
            for ledger_id, value in zip(some_ids, values, strict=True):
                mark = None if value is None else readable_mark(ledger_id, value, damaged)
                if mark is not None:
                    yield ledger_id, mark

    async def _found(self, ledger_id: LedgerId) -> bytes | MetadataAccessError | None:
        try:
            return await self._mark_value(ledger_id)
        except MetadataAccessError as error:
            return error

    async def _mark_value(self, ledger_id: LedgerId) -> bytes | None:
        node = await self._tree.get_if_there(zk_paths.mark(ledger_id))
        return None if node is None else node.value

    async def _delete_mark(self, ledger_id: LedgerId, mark: Stat) -> None:
        """Delete a mark and parents that are empty now, unless the mark was renewed."""
        path = zk_paths.mark(ledger_id)

        async def look_and_delete() -> None:
            stat = await self._tree.stat(path)
            if stat is not None and stat.created != mark.created:
                raise NodeVersionError(f"{path} was created again")
            await self._tree.delete(path, mark.version)

        try:
            try:
                await self._tree.delete(path, mark.version)
            except AnswerLostError:
                await retry_until_answered(look_and_delete)
        except NodeVersionError:
            return
        except NoNodeError:
            pass
        for _ in range(zk_paths.MARK_DEPTH):
            path = zk_paths.parent(path)
            try:
                await self._tree.delete_if_there(path)
            except NotEmptyError:
                return
