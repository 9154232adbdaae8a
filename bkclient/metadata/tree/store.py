"""The complete store over a tree."""

from __future__ import annotations

from collections.abc import Callable

from bkclient.errors import ClientError
from bkclient.metadata import zk_paths
from bkclient.metadata.tree.bookies import TreeBookies, TreeCookies
from bkclient.metadata.tree.election import TreeElection
from bkclient.metadata.tree.ids import TreeLedgerIds
from bkclient.metadata.tree.init_and_format import TreeAdmin
from bkclient.metadata.tree.ledgers import TreeLedgers
from bkclient.metadata.tree.logs import TreeCursors, TreeLogs
from bkclient.metadata.tree.nodes import NodeExistsError, NoNodeError, retry_until_answered
from bkclient.metadata.tree.raw_nodes import TreeRaw, TreeSiblings
from bkclient.metadata.tree.underreplication.queue import TreeQueue
from bkclient.metadata.tree.underreplication.switches import TreeSwitches
from bkclient.metadata.versions_and_watches import SessionEvent, Watch


class MetadataStore(
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
    """A connection to one cluster's metadata: every part over one tree, and its session."""

    @property
    def uri(self) -> str:
        """The service URI, such as ``zk+hierarchical://host:port/ledgers``."""
        return self._tree.uri

    @property
    def session_id(self) -> int:
        """The id of the session that owns ephemeral nodes; 0 without a session."""
        return self._tree.session_id

    async def connect(self) -> None:
        """Connect; create the list of read-only bookies if only this node is missing.

        Raises:
            MetadataUnavailableError: the connection takes longer than the time-out.
        """
        await self._tree.connect()
        try:
            await self._restore_read_only_list()
        except ClientError:
            await self._tree.close()
            raise

    async def _restore_read_only_list(self) -> None:
        if await self._tree.stat(zk_paths.READ_ONLY) is None:
            try:
                await retry_until_answered(lambda: self._tree.create(zk_paths.READ_ONLY))
            except (NoNodeError, NodeExistsError):
                return  # There is no cluster yet, or another client has created the list.

    async def close(self) -> None:
        """End the session; its ephemeral nodes vanish."""
        await self._tree.close()

    def on_session(self, changed: Callable[[SessionEvent], None]) -> Watch:
        """Call ``changed`` on the reactor at each session event."""
        return self._tree.on_session(changed)
