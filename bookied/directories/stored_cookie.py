"""One bookie's cookie in the metadata store, as blocking code on the main thread sees it."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Any

import attrs

from bkclient.metadata.api import CookieStore, Versioned
from bkclient.metadata.errors import CookieNotFoundError
from wire.ids import BookieId

Run = Callable[[Callable[[CookieStore], Awaitable[Any]]], Any]
"""Calls a function of the store where that lives, awaits what it gives, returns that; blocks."""


@attrs.frozen
class CookieInStore:
    """The cookie that the store keeps for one bookie; every method blocks.

    All raise ``MetadataStoreError`` where the store cannot be asked.
    """

    bookie_id: BookieId
    run: Run

    def read(self) -> Versioned[bytes] | None:
        """Return the cookie and its version; None where there is none."""
        try:
            held: Versioned[bytes] = self.run(lambda store: store.read_cookie(self.bookie_id))
        except CookieNotFoundError:
            return None
        return held

    def write(self, cookie: bytes, version: int) -> None:
        """Create (``NEW``) or replace it, if it has that version still."""
        self.run(lambda store: store.write_cookie(self.bookie_id, cookie, version))

    def remove(self, version: int) -> None:
        """Remove it, if it has that version still."""
        self.run(lambda store: store.remove_cookie(self.bookie_id, version))
