"""The last requests to the metadata service of a process that ends."""

from __future__ import annotations

from collections.abc import Coroutine
from typing import Any, Final

from twisted.internet.defer import Deferred
from twisted.internet.defer import TimeoutError as TwistedTimeoutError
from twisted.logger import Logger

from bookied.service.dependencies import Dependencies
from wire.errors import BookKeeperError

METADATA_AT_STOP_S: Final = 5.0
"""Seconds that a stop waits for the metadata service."""

log = Logger()


async def finish_with_metadata(parts: Dependencies, words: Coroutine[Any, Any, None]) -> None:
    """Wait a few seconds for a request.

    If it is not answered, the end of the session has its effect.
    """
    try:
        await Deferred.fromCoroutine(words).addTimeout(METADATA_AT_STOP_S, parts.clock)
    except (BookKeeperError, TwistedTimeoutError) as error:
        log.warn("the metadata service could not be updated: {error!r}", error=error)
