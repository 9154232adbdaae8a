"""The last words to the metadata service of a process that ends."""

from __future__ import annotations

from collections.abc import Coroutine
from typing import Any, Final

from twisted.internet.defer import Deferred
from twisted.internet.defer import TimeoutError as TwistedTimeoutError
from twisted.logger import Logger

from bookied.service.dependencies import Dependencies
from wire.errors import BookKeeperError

METADATA_AT_STOP_S: Final = 5.0
"""How long the metadata service may take to hear that a process stops."""

log = Logger()


async def finish_with_metadata(parts: Dependencies, words: Coroutine[Any, Any, None]) -> None:
    """Wait a little for the metadata service; what it does not hear, the session's end says."""
    try:
        await Deferred.fromCoroutine(words).addTimeout(METADATA_AT_STOP_S, parts.clock)
    except (BookKeeperError, TwistedTimeoutError) as error:
        log.warn("the metadata service could not be updated: {error!r}", error=error)
