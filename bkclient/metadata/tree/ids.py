"""Ledger ids from sequential nodes.

BookKeeper 4.18.0, ZkLedgerIdGenerator and LongZkLedgerIdGenerator; metadata.md section 9.
"""

from __future__ import annotations

from functools import partial
from typing import Final

from twisted.internet.defer import Deferred
from twisted.logger import Logger

from bkclient.errors import ClientError, LedgerIdOverflowError
from bkclient.metadata import zk_paths
from bkclient.metadata.tree.nodes import (
    CreatedNode,
    NodeExistsError,
    NoNodeError,
    retry_until_answered,
    run_together,
)
from bkclient.metadata.tree.tree_part import TreePart
from bkclient.metadata.zk_paths import EPOCH_PREFIX, ID_PREFIX, SHORT_IDS_END, LedgerLayout
from wire.ids import LedgerId

log = Logger()

_EPOCHS_KEPT: Final = 3

_SKIPPED_MAX: Final = 50_000
"""The most short ids that are skipped one by one; for more, long ids begin."""

_FLAT_SKIPPED_MAX: Final = 1_000_000
"""The same limit for a layout without long ids: minutes of a ZooKeeper's time."""

_SKIPPED_AT_ONCE: Final = 256


class TreeLedgerIds(TreePart):
    """New ledger ids: 31-bit ids first, then 63-bit ids."""

    _short_ids_are_out = False
    _asked_in_session = 0
    """The session in which short ids were last checked; a restore may have used them up since."""

    _epochs: tuple[int, ...] = ()

    async def allocate_ledger_id(self) -> LedgerId:
        """Return an id that no earlier call returned and that no ledger with an allocated id has.

        Raises:
            LedgerIdOverflowError: the layout has only 31-bit ids, and they are used up.
        """
        return await self._allocate(await self._ledger_layout())

    async def _allocate(self, layout: LedgerLayout) -> LedgerId:
        if layout.long_ids and self._is_other_session():
            self._short_ids_are_out = await self._tree.stat(zk_paths.IDGEN_LONG) is not None
            self._asked_in_session = self._tree.session_id
        if not self._short_ids_are_out:
            ledger_id = await self._next_short(layout.id_parent)
            if layout.long_ids and self._is_other_session():
                return await self._allocate(layout)
            if ledger_id is not None:
                return LedgerId(ledger_id)
            if not layout.long_ids:
                raise LedgerIdOverflowError(f"{self._tree.uri}: all ledger ids are used up")
            await self._create_shared(zk_paths.IDGEN_LONG)
            self._short_ids_are_out = True
        return await self._next_long()

    def _is_other_session(self) -> bool:
        """Return whether the session of the last check has ended, or may have."""
        return not self._tree.session_id or self._tree.session_id != self._asked_in_session

    async def skip_ledger_ids(self, last: LedgerId, layout_name: str) -> None:
        """Make ``allocate_ledger_id`` return only ids above ``last``.

        The layout need not be stored yet: until then no client allocates ids. A tree's numbers
        cannot be set. A few ids are used up one by one; for more, long ids begin. Java's client
        also switches to long ids when the short ones are used up.

        Raises:
            LedgerIdOverflowError: a tree of this layout would need too many nodes.
        """
        layout = zk_paths.LAYOUTS[layout_name]
        if await self._tree.stat(zk_paths.IDGEN_LONG) is None:
            next_id = await self._allocate(layout)
            missing = min(last, SHORT_IDS_END - 1) - next_id
            if missing < 0:
                return
            if not layout.long_ids:
                fits = missing <= _FLAT_SKIPPED_MAX
            else:
                fits = missing <= _SKIPPED_MAX and last < SHORT_IDS_END
            if fits:
                for start in range(0, missing, _SKIPPED_AT_ONCE):
                    count = min(_SKIPPED_AT_ONCE, missing - start)
                    await run_together(self._allocate(layout) for _ in range(count))
                return
            if not layout.long_ids:
                raise LedgerIdOverflowError(
                    f"{self._tree.uri}: the next ledger id is {next_id + 1}. Layout {layout_name} "
                    f"reaches id {last + 1} only by {missing} nodes, made one by one; more than "
                    f"{_FLAT_SKIPPED_MAX} are refused"
                )
        await self._create_shared(zk_paths.IDGEN_LONG)
        self._short_ids_are_out = True
        await self._read_epochs()
        await self._begin_epoch(max(0, last >> 32, *self._epochs) + 1)

    async def _next_short(self, parent: str) -> int | None:
        path = f"{parent}/{ID_PREFIX}"
        return self._number_of(
            await retry_until_answered(
                lambda: self._tree.create_with_parents(path, ephemeral=True, sequence=True)
            )
        )

    def _number_of(self, made: CreatedNode) -> int | None:
        """Return the number of a sequential node, or ``None`` if it exceeds 31 bits."""
        self._in_background(made.path)
        number = zk_paths.sequence_of(made.path)
        return number if 0 <= number < SHORT_IDS_END else None

    async def _next_long(self) -> LedgerId:
        while True:
            if not self._epochs:
                await self._read_epochs()
            if not self._epochs:
                await self._begin_epoch(1)
                continue
            epoch = self._epochs[-1]
            path = f"{zk_paths.epoch(epoch)}/{ID_PREFIX}"
            try:
                number = self._number_of(
                    await retry_until_answered(
                        partial(self._tree.create, path, ephemeral=True, sequence=True)
                    )
                )
            except NoNodeError:
                # Deleted as an old epoch. If it were created again, it would return the same
                # numbers.
                self._epochs = ()
                continue
            if number is not None:
                return LedgerId(epoch << 32 | number)
            await self._begin_epoch(epoch + 1)

    async def _read_epochs(self) -> None:
        names = await self._tree.children(zk_paths.IDGEN_LONG)
        epochs = (name for name in names if zk_paths.is_numbered(name, EPOCH_PREFIX))
        numbers = sorted(map(zk_paths.sequence_of, epochs))
        for old in numbers[:-_EPOCHS_KEPT]:
            self._in_background(zk_paths.epoch(old), version=0)
        self._epochs = tuple(numbers[-_EPOCHS_KEPT:])

    async def _begin_epoch(self, number: int) -> None:
        await self._create_shared(zk_paths.epoch(number))
        self._epochs = ()

    async def _create_shared(self, path: str) -> None:
        try:
            await retry_until_answered(lambda: self._tree.create(path, open_to_all=True))
        except NodeExistsError:
            return

    def _in_background(self, path: str, version: int = -1) -> None:
        """Delete a used sequential node; no caller waits for it."""
        Deferred.fromCoroutine(self._drop(path, version)).addErrback(
            lambda failure: log.failure("{path} was not deleted", failure, path=path)
        )

    async def _drop(self, path: str, version: int) -> None:
        try:
            await self._tree.delete(path, version)
        except NoNodeError:
            return
        except ClientError as error:
            log.info("{path} stays for now: {error}", path=path, error=error)
