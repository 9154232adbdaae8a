"""The whole store over a tree."""

from __future__ import annotations

import random
from collections.abc import Callable

from twisted.internet.interfaces import IReactorTime

from bkclient.errors import ClientError
from bkclient.metadata import zk_paths
from bkclient.metadata.api import SessionEvent, Watch
from bkclient.metadata.tree.admin import TreeAdmin, TreeRaw, TreeSiblings
from bkclient.metadata.tree.bookies import TreeBookies, TreeCookies
from bkclient.metadata.tree.election import TreeElection
from bkclient.metadata.tree.ids import TreeLedgerIds
from bkclient.metadata.tree.ledgers import TreeLedgers
from bkclient.metadata.tree.logs import TreeCursors, TreeLogs
from bkclient.metadata.tree.nodes import (
    ManyValues,
    NodeExistsError,
    NoNodeError,
    Tree,
    insist,
)
from bkclient.metadata.tree.underreplication.queue import TreeQueue
from bkclient.metadata.tree.underreplication.switches import TreeSwitches


class TreeMetadata(
    TreeLedgers,
    TreeLedgerIds,
    TreeBookies,
    TreeCookies,
    TreeLogs,
    TreeCursors,
    TreeAdmin,
    TreeRaw,
    TreeSiblings,
    TreeSwitches,
    TreeQueue,
    TreeElection,
):
    """Implements ``MetadataStore`` over any tree."""

    def __init__(
        self,
        tree: Tree,
        *,
        clock: IReactorTime,
        chance: random.Random,
        layout: str | None = None,
        lock_owner: str = "localhost",
        registration_wait_s: float | None = None,
        mark_times: bool = True,
        many_values: ManyValues | None = None,
    ) -> None:
        """See ``TreePart`` for what is not said here.

        ``registration_wait_s`` is longer than the session time-out by default, since a server
        ends sessions at its own ticks only: Java waits exactly as long and sometimes in vain.
        """
        super().__init__(
            tree,
            clock=clock,
            chance=chance,
            layout=layout,
            lock_owner=lock_owner,
            mark_times=mark_times,
            many_values=many_values,
            registration_wait_s=(
                tree.session_timeout_s + _TICKS_S
                if registration_wait_s is None
                else registration_wait_s
            ),
        )

    @property
    def uri(self) -> str:
        """Where this store is."""
        return self._tree.uri

    @property
    def session_id(self) -> int:
        """The session that owns what is ephemeral; 0 while there is none."""
        return self._tree.session_id

    async def connect(self) -> None:
        """See ``MetadataStore``; makes the list of read-only bookies where only that lacks."""
        await self._tree.connect()
        try:
            await self._restore_read_only_list()
        except ClientError:
            await self._tree.close()
            raise

    async def _restore_read_only_list(self) -> None:
        if await self._tree.stat(zk_paths.READ_ONLY) is None:
            try:
                await insist(lambda: self._tree.create(zk_paths.READ_ONLY))
            except (NoNodeError, NodeExistsError):
                return  # There is no cluster yet, or another client was faster.

    async def close(self) -> None:
        await self._tree.close()

    def on_session(self, changed: Callable[[SessionEvent], None]) -> Watch:
        return self._tree.on_session(changed)


_TICKS_S = 6.0
