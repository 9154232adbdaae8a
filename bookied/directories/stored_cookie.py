"""A bookie's cookie in the metadata store, for blocking code on the main thread."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Any

import attrs

from bkclient.metadata.errors import CookieNotFoundError
from bkclient.metadata.tree.store import MetadataStore
from bkclient.metadata.versions_and_watches import Versioned
from wire.ids import BookieId

Run = Callable[[Callable[[MetadataStore], Awaitable[Any]]], Any]
"""Runs a coroutine function of the store in the store's thread and returns its value; blocks."""


@attrs.frozen
class CookieInStore:
    """The stored cookie of one bookie; every method blocks.

    All raise ``MetadataStoreError`` if the store cannot be reached.
    """

    bookie_id: BookieId
    run: Run

    def read(self) -> Versioned[bytes] | None:
        """Return the cookie and its version; None if it is missing."""
        try:
            found: Versioned[bytes] = self.run(lambda store: store.read_cookie(self.bookie_id))
        except CookieNotFoundError:
            return None
        return found

    def write(self, cookie: bytes, version: int) -> None:
        """Create the cookie (``NEW``), or replace it if it still has that version."""
        self.run(lambda store: store.write_cookie(self.bookie_id, cookie, version))

    def remove(self, version: int) -> None:
        """Remove the cookie if it still has that version."""
        self.run(lambda store: store.remove_cookie(self.bookie_id, version))
