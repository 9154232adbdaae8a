"""Marks of very many ledgers: those without one get theirs together, the others one by one."""

from __future__ import annotations

from collections.abc import AsyncGenerator, Awaitable, Callable, Sequence
from contextlib import aclosing
from typing import Final, Protocol

from bkclient.concurrency import for_each
from bkclient.errors import MetadataStoreError
from bkclient.metadata import zk_paths
from bkclient.metadata.api import DamagedMark, Missing
from bkclient.metadata.tree.nodes import NodeValue, Tree, make_path
from wire.errors import FormatError, MetadataFormatError
from wire.ids import BookieId, LedgerId
from wire.records.repair_marks import UnderreplicatedMark, decode_mark, encode_mark

LOOKED_AT: Final = 1000
"""Marks that are looked at, and then made, before the next."""

TOGETHER: Final = 100
"""Marks in one write; it has two nodes for each, and some 20 KB."""

AT_ONCE: Final = 4
"""Writes on their way; of marks that are written one by one, as many for each in a write."""


class MarkOne(Protocol):
    """Marks a ledger whatever is there."""

    def __call__(self, ledger_id: LedgerId, missing: tuple[BookieId, ...]) -> Awaitable[None]: ...


class ManyMarks:
    """Marks ledgers as ``UnderreplicationQueue.mark_all_underreplicated`` says."""

    def __init__(
        self,
        tree: Tree,
        values: Callable[[Sequence[str]], AsyncGenerator[list[NodeValue | None]]],
        mark_one: MarkOne,
        now_ms: Callable[[], int | None],
        damaged: DamagedMark,
    ) -> None:
        self._tree, self._values, self._mark_one = tree, values, mark_one
        self._now_ms, self._damaged = now_ms, damaged
        self._made: set[str] = set()

    async def mark(self, marks: Sequence[Missing]) -> None:
        """Mark the ledgers; may be repeated at will."""
        for at in range(0, len(marks), LOOKED_AT):
            new, changed = await self._look(marks[at : at + LOOKED_AT])
            groups = [new[i : i + TOGETHER] for i in range(0, len(new), TOGETHER)]
            await for_each(groups, self._create, AT_ONCE)
            await for_each(changed, self._one, AT_ONCE * TOGETHER)

    async def _look(self, marks: Sequence[Missing]) -> tuple[list[Missing], list[Missing]]:
        """Return those that have no mark, and those of which the mark may have to change."""
        # The locks before the marks: a repair that ends between the two takes the mark along.
        locked = set(await self._tree.children(zk_paths.LOCKS, fresh=True))
        new, changed, at = [], [], 0
        paths = [zk_paths.mark(ledger_id) for ledger_id, _ in marks]
        async with aclosing(self._values(paths)) as values:
            async for some in values:
                for value in some:
                    mark = marks[at]
                    at += 1
                    if value is None:
                        new.append(mark)
                    elif zk_paths.mark_name(mark[0]) in locked or _lacks(value.value, mark[1]):
                        changed.append(mark)
        return new, changed

    async def _create(self, marks: Sequence[Missing]) -> None:
        """Make marks with the node above each; one by one where any is there by now."""
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
            await make_path(self._tree, path)
            self._made.add(path)

    async def _one(self, mark: Missing) -> None:
        try:
            await self._mark_one(*mark)
        except MetadataFormatError as error:
            self._damaged(mark[0], error)


def _lacks(value: bytes, missing: Sequence[BookieId]) -> bool:
    """Whether a mark does not name all of these bookies, or cannot be read."""
    try:
        return not set(missing) <= set(decode_mark(value).replicas)
    except FormatError:
        return True
