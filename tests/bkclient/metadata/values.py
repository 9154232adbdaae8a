"""Values that the tests of the metadata drivers share, and a way to run them on a clock."""

from __future__ import annotations

from collections.abc import Coroutine
from typing import Any, TypeVar

import attrs
from twisted.internet.defer import Deferred
from twisted.internet.task import Clock
from twisted.python.failure import Failure

from wire.codes import DigestType, LedgerState
from wire.ids import BookieId, EntryId
from wire.ledger_metadata import Fragment, LedgerMetadata
from wire.records.bookie_service_info import BookieServiceInfo, Endpoint

T = TypeVar("T")

B1, B2, B3 = (BookieId(f"127.0.0.1:318{i}") for i in range(1, 4))


def metadata(**changes: Any) -> LedgerMetadata:
    """Return a new ledger's metadata."""
    new = LedgerMetadata(
        ensemble_size=2,
        write_quorum=2,
        ack_quorum=2,
        fragments=(Fragment(EntryId(0), (B1, B2)),),
        digest_type=DigestType.CRC32C,
        password=b"secret",
        custom={"application": b"contract"},
    )
    return attrs.evolve(new, **changes)


def closed(last: int = 9, length: int = 90) -> LedgerMetadata:
    return metadata(state=LedgerState.CLOSED, last_entry_id=EntryId(last), length=length)


def info(bookie_id: BookieId) -> BookieServiceInfo:
    host, _, port = bookie_id.partition(":")
    return BookieServiceInfo((Endpoint("bookie", int(port), host, "bookie-rpc"),))


def start(coroutine: Coroutine[Deferred[Any], Any, T]) -> Deferred[T]:
    """Start a coroutine without waiting for it."""
    return Deferred.fromCoroutine(coroutine)


def run(coroutine: Coroutine[Deferred[Any], Any, T], clock: Clock, *, step_s: float = 0.05) -> T:
    """Run a coroutine, and the clock for as long as it waits."""
    results: list[Any] = []
    start(coroutine).addBoth(results.append)
    for _ in range(20_000):
        if results:
            break
        clock.advance(step_s)
    assert results, "it waits for ever"
    result: T | Failure = results[0]
    if isinstance(result, Failure):
        raise result.value or AssertionError(result)
    return result
