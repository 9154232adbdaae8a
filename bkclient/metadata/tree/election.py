"""The auditor's election in a tree. BookKeeper 4.18.0, ZkLedgerAuditorManager; metadata.md 12.1."""

from __future__ import annotations

from typing import Final

from twisted.internet.defer import CancelledError, Deferred
from twisted.internet.task import deferLater
from twisted.logger import Logger

from bkclient.errors import ClientError
from bkclient.metadata import zk_paths
from bkclient.metadata.errors import MetadataUnavailableError
from bkclient.metadata.tree.nodes import NoNodeError, retry_until_answered
from bkclient.metadata.tree.tree_part import TreePart
from wire.ids import BookieId
from wire.records.underreplication import AuditorVote, decode_vote, encode_vote

log = Logger()

RETRY_S: Final = 0.2


class TreeElection(TreePart):
    """The election of the auditor: the lowest vote wins.

    Each candidate watches the next lower vote.
    """

    _vote: str | None = None

    async def elect(self, bookie_id: BookieId) -> None:
        """Return when this bookie is elected; continue after outages and lost sessions.

        Cancelling the Deferred withdraws the vote.
        """
        value = encode_vote(AuditorVote(bookie_id))
        try:
            while not await self._stand(value):
                pass
        except CancelledError:
            try:
                await self.resign()
            except ClientError as error:
                log.info("the vote stays until the session ends: {error}", error=error)
            raise

    async def _stand(self, value: bytes) -> bool:
        """Vote; return True if elected, or False when the next attempt may succeed."""
        try:
            await self._tree.make_path(zk_paths.ELECTION)
            vote = await self._own_vote(value)
            before = [v for v in await self._votes() if _rank(v) < _rank(vote)]
            if before:
                await self._until_gone(before[-1])
                return False
            await retry_until_answered(lambda: self._tree.set(zk_paths.ELECTION, value))
            # The bookie is elected only if its vote still exists: the session may have ended.
            return await self._tree.is_own(vote)
        except (MetadataUnavailableError, NoNodeError):
            await self._tree.until_connected()
            # Operations may fail even while connected: pause before each attempt.
            await deferLater(self._clock, RETRY_S)
            return False

    async def _own_vote(self, value: bytes) -> str:
        if self._vote is not None and await self._tree.is_own(self._vote):
            return self._vote
        vote = await self._vote_in_tree()
        if vote is None:
            prefix = f"{zk_paths.ELECTION}/{zk_paths.VOTE_PREFIX}"
            made = await self._tree.create_with_parents(
                prefix, value, ephemeral=True, sequence=True
            )
            vote = made.path
        self._vote = vote
        return vote

    async def _vote_in_tree(self) -> str | None:
        """Return this session's vote, even if the answer to its creation was lost."""
        for vote in await self._votes():
            if await self._tree.is_own(vote):
                return vote
        return None

    async def _votes(self) -> list[str]:
        """Return the paths of all votes, the lowest first."""
        names = await self._tree.children_if_there(zk_paths.ELECTION)
        votes = (name for name in names if zk_paths.is_numbered(name, zk_paths.VOTE_PREFIX))
        return sorted((f"{zk_paths.ELECTION}/{name}" for name in votes), key=_rank)

    async def _until_gone(self, vote: str) -> None:
        """Wait until a watch on a vote fires for any reason."""
        fired: Deferred[None] = Deferred()

        def fire() -> None:
            if not fired.called:
                fired.callback(None)

        try:
            if await self._tree.stat(vote, fire) is not None:
                await fired
        finally:
            self._tree.forget(fire)

    async def resign(self) -> None:
        """Withdraw from the election, so that another candidate can be elected."""
        self._vote = None
        vote = await self._vote_in_tree()
        if vote is not None:
            await self._tree.delete_if_there(vote)

    async def current_auditor(self) -> BookieId | None:
        """Return the elected auditor, which has the lowest vote; None without votes."""
        for vote in await self._votes():
            node = await self._tree.get_if_there(vote)
            if node is not None:
                return decode_vote(node.value).bookie_id
        return None


def _rank(vote: str) -> int:
    return zk_paths.sequence_of(vote)
