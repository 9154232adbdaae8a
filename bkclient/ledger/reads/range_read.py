"""Reads of a range of entries: several chunks ahead, in order, in bounded memory."""

from __future__ import annotations

from collections import deque
from collections.abc import AsyncGenerator
from typing import Final

from twisted.internet.defer import Deferred

from bkclient.errors import BookieUnavailableError, ClientError, IncorrectParameterError
from bkclient.ledger.cluster import Cluster
from bkclient.ledger.reads.entry_fetcher import EntryFetcher, gather
from bkclient.metadata.ledger_metadata_updates import LocalMetadata
from wire.codes import STRIDE_MAX
from wire.digest import VerifiedEntries
from wire.ids import EntryId
from wire.ledger_metadata import LedgerMetadata

CHUNK_BYTES: Final = 512 * 1024
"""The intended size of a chunk; with CHUNKS_AHEAD it bounds the memory of a range read."""

STRIPES_MAX: Final = 4
"""The factor by which a chunk of a striped ledger may be larger."""

CHUNKS_AHEAD: Final = 4
CHUNK_ENTRIES_FIRST: Final = 8
"""Entries requested while their size is unknown: at most these many frames."""

CHUNK_ENTRIES_MAX: Final = 1000

SINGLY_MAX: Final = 100
"""Entries requested singly in parallel: all may be larger than those before."""


class ChunkSizer:
    """The number of entries to request together, from the sizes so far.

    Args:
        is_one: True if one request may ask for all entries of the ledger.
    """

    def __init__(self, *, is_one: bool = False) -> None:
        self.entries = CHUNK_ENTRIES_MAX if is_one else CHUNK_ENTRIES_FIRST

    def learn(self, payloads: list[bytes]) -> None:
        """Note the sizes of a chunk; the number grows slowly and shrinks at once."""
        average = max(1, sum(map(len, payloads)) // len(payloads))
        wanted = max(1, min(CHUNK_ENTRIES_MAX, CHUNK_BYTES // (average + 64)))
        self.entries = min(wanted, self.entries * 8)


async def read_range(
    cluster: Cluster, fetcher: EntryFetcher, local: LocalMetadata, first: int, last: int
) -> AsyncGenerator[VerifiedEntries, None]:
    """Yield the entries in chunks, in order. Cancelling or closing stops the reads ahead.

    Raises:
        IncorrectParameterError: the range is invalid.
        ClientError: an entry cannot be read; those before it have been yielded.
    """
    if not 0 <= first <= last:
        raise IncorrectParameterError(
            f"entries {first} to {last} are not a range; the first must not be above the last"
        )
    ahead: deque[tuple[range, Deferred[VerifiedEntries]]] = deque()
    fits = local.value.is_closed and local.value.length <= CHUNK_BYTES
    sizer, following = ChunkSizer(is_one=fits and fetcher.can_batch), first
    try:
        while ahead or following <= last:
            while following <= last and len(ahead) < CHUNKS_AHEAD:
                wanted = sizer.entries * _requests_a_chunk(fetcher, local.value)
                end = _chunk_end(local.value, following, last, wanted)
                ids = range(following, end + 1)
                ahead.append((ids, _fetch(cluster, fetcher, local, ids)))
                following = end + 1
            ids, chunk = ahead.popleft()
            try:
                entries = await chunk
            except ClientError:
                # Yield the entries before the unreadable one; read singly, it may succeed after
                # all.
                for entry_id in ids:
                    await fetcher.turn()
                    entry = await fetcher.entry(local.value, EntryId(entry_id))
                    yield VerifiedEntries.of([entry])
            else:
                sizer.learn(entries.payloads)
                if rest := ids[len(entries.payloads) :]:
                    ahead.appendleft((rest, _fetch(cluster, fetcher, local, rest)))
                yield entries
    finally:
        for _, chunk in ahead:
            chunk.addErrback(lambda _failure: None)
            chunk.cancel()


def _requests_a_chunk(fetcher: EntryFetcher, metadata: LedgerMetadata) -> int:
    """Return the requests of ``CHUNK_BYTES`` that make a chunk: one for each write set."""
    is_striped = metadata.write_quorum < metadata.ensemble_size and fetcher.can_batch
    return min(metadata.ensemble_size, STRIPES_MAX) if is_striped else 1


def _chunk_end(metadata: LedgerMetadata, first: int, last: int, entries: int) -> int:
    """Return the last entry of a chunk, which does not extend beyond its fragment."""
    end, fragment_end = min(last, first + entries - 1), metadata.fragment_end(first)
    return end if fragment_end is None else min(end, fragment_end)


def _fetch(
    cluster: Cluster, fetcher: EntryFetcher, local: LocalMetadata, ids: range
) -> Deferred[VerifiedEntries]:
    """Request a chunk; at least its first entry arrives, and not all if they are large."""
    is_striped = local.value.write_quorum < local.value.ensemble_size <= STRIDE_MAX
    fetch = _fetch_striped if is_striped and fetcher.can_batch else _fetch_stripe
    return Deferred.fromCoroutine(fetch(cluster, fetcher, local, ids))


async def _fetch_striped(
    cluster: Cluster, fetcher: EntryFetcher, local: LocalMetadata, ids: range
) -> VerifiedEntries:
    """Request the entries of each write set separately, in parallel, and merge them in order."""
    stride, end = local.value.ensemble_size, len(ids)
    stripes = [ids[start::stride] for start in range(min(stride, len(ids)))]
    found = VerifiedEntries([b""] * len(ids), [b""] * len(ids))
    fetches = [
        Deferred.fromCoroutine(_fetch_stripe(cluster, fetcher, local, stripe)) for stripe in stripes
    ]
    for start, some in enumerate(await gather(fetches)):
        stop = start + stride * len(some.payloads)
        found.headers[start:stop:stride] = some.headers
        found.payloads[start:stop:stride] = some.payloads
        end = min(end, stop)
    return VerifiedEntries(found.headers[:end], found.payloads[:end])


async def _fetch_stripe(
    cluster: Cluster, fetcher: EntryFetcher, local: LocalMetadata, ids: range
) -> VerifiedEntries:
    """Request entries of the same bookies together, and again those that did not fit."""
    found, size = VerifiedEntries([], []), 0
    bytes_max = min(2 * CHUNK_BYTES, cluster.config.frame_bytes_max)
    while size < CHUNK_BYTES and (rest := ids[len(found.payloads) :]):
        if len(rest) == 1 or not _may_batch(fetcher, local.value, rest):
            more = await _fetch_singly(fetcher, local, rest)
        else:
            await fetcher.turn()
            try:
                more = await fetcher.batch(local.value, rest, bytes_max)
            except BookieUnavailableError:
                # An old bookie closes the connection on an unknown request.
                fetcher.can_batch = False
                continue
            except ClientError:
                # Request each: this names the missing entry, or finds it on another bookie.
                more = await _fetch_singly(fetcher, local, rest)
        found.headers.extend(more.headers)
        found.payloads.extend(more.payloads)
        size += sum(map(len, more.payloads))
    return found


async def _fetch_singly(fetcher: EntryFetcher, local: LocalMetadata, ids: range) -> VerifiedEntries:
    some = ids[:SINGLY_MAX]
    await fetcher.turn(len(some))
    return await fetcher.entries(local.value, some)


def _may_batch(fetcher: EntryFetcher, metadata: LedgerMetadata, ids: range) -> bool:
    if not fetcher.can_batch or metadata.write_quorum == metadata.ensemble_size:
        return fetcher.can_batch
    return ids.step == metadata.ensemble_size and fetcher.knows_stripes(metadata, ids[0])
