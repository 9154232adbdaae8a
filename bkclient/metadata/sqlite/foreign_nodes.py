"""A SQLite file holds one cluster and nothing of another program."""

from __future__ import annotations

from bkclient.metadata.api import NotFoundError, Versioned
from bkclient.metadata.sqlite.base import SqlitePart


class SqliteSiblings(SqlitePart):
    """Implements ``SiblingNodes``."""

    async def read_sibling(self, path: str) -> Versioned[bytes]:
        """See ``SiblingNodes``."""
        raise NotFoundError(f"{self._uri}: there is no node {path}")

    async def sibling_names(self, path: str) -> list[str]:
        """See ``SiblingNodes``."""
        raise NotFoundError(f"{self._uri}: there is no node {path}")
