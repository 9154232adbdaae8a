"""Reads of entries from bookies, one by one, in batches and in bulk; ``lac_reads`` reads the LAC.

The rules are ``quorum.read_rules``. Agrees with BookKeeper 4.18.0, PendingReadOp and
BatchedReadOp.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from typing import Any, TypeVar

from twisted.internet.defer import CancelledError, Deferred, FirstError, gatherResults
from twisted.python.failure import Failure

from bkclient.concurrency import RateLimit
from bkclient.connection.channel import BookieChannel
from bkclient.connection.requests import BulkAnswer
from bkclient.errors import ClientError, InterruptedOperationError, RequestTimeoutError
from bkclient.ledger.reads.lac_reads import LacReads
from bkclient.ledger.reads.replica_read import LedgerReads, ReadRun, as_client_error
from bkclient.quorum.read_rules import ReplicaRead, Speculation
from wire.codes import ProtocolVersion, ReturnCode
from wire.digest import Entry, VerifiedById, VerifiedEntries
from wire.ids import BookieId, EntryId
from wire.ledger_metadata import LedgerMetadata
from wire.messages import BatchReadRequest, BatchReadResponse, ReadRequest, Response


class BulkReads:
    """Bulk reads of one ledger; an error of a bookie only means fewer entries."""

    def __init__(self, reads: LedgerReads, *, wait_s: float) -> None:
        self._reads, self._wait_s = reads, wait_s

    def read(
        self, bookie: BookieId, entries: list[int], ensemble: Sequence[BookieId]
    ) -> Deferred[VerifiedById]:
        """Read these entries from one bookie; fire with the intact ones."""
        wait_s, ledger_id, pool = self._wait_s, self._reads.ledger_id, self._reads.pool
        channel = pool.channel(bookie, ledger_id, ProtocolVersion.V2)
        channel.addTimeout(wait_s, pool.clock, partial(self._not_connected, bookie))
        answers = channel.addCallback(BookieChannel.read_many, ledger_id, entries, wait_s)
        return answers.addCallbacks(
            self._answered,
            self._failed,
            callbackArgs=(bookie, ensemble, len(entries)),
            errbackArgs=(bookie, ensemble),
        )

    @staticmethod
    def _not_connected(bookie: BookieId, _failure: Failure, timeout_s: float) -> None:
        raise RequestTimeoutError(f"no connection with bookie {bookie} in {timeout_s:g} s")

    def _answered(
        self,
        answers: dict[int, BulkAnswer],
        bookie: BookieId,
        ensemble: Sequence[BookieId],
        asked: int,
    ) -> VerifiedById:
        if len(answers) < asked:
            self._reads.health.slow(bookie)
        found = self._reads.verifier.bulk(answers)
        if len(found) < asked:
            self._reads.order.leave(bookie, ensemble)
        return found

    def _failed(
        self, failure: Failure, bookie: BookieId, ensemble: Sequence[BookieId]
    ) -> VerifiedById:
        if isinstance(failure.value, CancelledError):
            # Without this a cancelled reader would continue, entry by entry.
            raise failure.value
        if not isinstance(as_client_error(failure), InterruptedOperationError):
            self._reads.health.failed(bookie)
            self._reads.order.leave(bookie, ensemble)
        return {}


T = TypeVar("T")


class EntryFetcher:
    """Reads of one ledger's entries from bookies; ``turn`` waits for the ``rate`` limit."""

    def __init__(self, reads: LedgerReads, rate: RateLimit | None = None) -> None:
        self._reads, self._rate = reads, rate
        self._pool, self._ledger_id, self._order = reads.pool, reads.ledger_id, reads.order
        config = reads.pool.config
        self._speculation = Speculation(
            config.speculative_first_ms / 1000,
            config.speculative_max_ms / 1000,
            config.speculative_read_backoff,
        )
        self.verifier = reads.verifier
        self.lacs = LacReads(reads)
        self._bulks = BulkReads(reads, wait_s=self._bulk_wait_s())
        self.can_batch = config.batch_reads
        """True if bookies are asked for several entries together.

        False after one did not support it.
        """

    def _bulk_wait_s(self) -> float:
        """Return the seconds that a bulk read waits before its entries are read one by one."""
        wait_s, first_s = float(self._pool.config.read_timeout_s), self._speculation.first_s
        return min(wait_s, first_s) if first_s > 0 else wait_s

    def follow_lac(self, on_lac: Callable[[int], None]) -> None:
        """Call ``on_lac`` with the LACs in answers from now on."""
        self.verifier.on_lac = on_lac

    def close(self) -> None:
        """Stop timers."""
        self._reads.alarms.stop()

    async def turn(self, reads: int = 1) -> None:
        """Wait until the rate limit allows ``reads`` more."""
        if self._rate is not None:
            await self._rate.turn(reads)

    # Entries

    def entry(self, metadata: LedgerMetadata, entry_id: EntryId) -> Deferred[Entry]:
        """Read one entry from the first bookie of its write set that returns it.

        Raises (through the Deferred):
            ClientError: no bookie returned it; the text names ledger, entry and the last bookie.
        """
        request = ReadRequest(self._ledger_id, entry_id)
        return self._replica_read(
            metadata,
            entry_id,
            lambda bookie: self._pool.send(bookie, request),
            lambda bookie, response: self.verifier.entry(bookie, response, entry_id),
        )

    async def entries(self, metadata: LedgerMetadata, ids: Sequence[int]) -> VerifiedEntries:
        """Read entries of one fragment in parallel: in bulk, and singly where that fails.

        The result has the order of ``ids``, which need not be consecutive.

        Raises:
            ClientError: as for ``entry``.
        """
        if len(ids) == 1:
            return VerifiedEntries.of([await self.entry(metadata, EntryId(ids[0]))])
        fragment = metadata.fragment_of(ids[0])
        by_bookie: dict[BookieId, list[int]] = {}
        for entry_id in ids:
            index = self._order.of_entry(metadata, fragment.ensemble, entry_id)[0]
            by_bookie.setdefault(fragment.ensemble[index], []).append(entry_id)
        bulks = [
            self._bulks.read(bookie, entries, fragment.ensemble)
            for bookie, entries in by_bookie.items()
        ]
        found: VerifiedById = {}
        for some in await gather(bulks):
            found.update(some)
        missing = [entry_id for entry_id in ids if entry_id not in found]
        singly = [self.entry(metadata, EntryId(entry_id)) for entry_id in missing]
        one_by_one = VerifiedEntries.of(await gather(singly))
        found.update(zip(missing, zip(*one_by_one, strict=True), strict=True))
        ordered = [found[entry_id] for entry_id in ids]
        return VerifiedEntries([header for header, _ in ordered], [one for _, one in ordered])

    def knows_stripes(self, metadata: LedgerMetadata, entry_id: int) -> bool:
        """Return whether the first bookie to ask may support strides; Java's does not."""
        ensemble = metadata.fragment_of(entry_id).ensemble
        first = ensemble[self._order.of_entry(metadata, ensemble, entry_id)[0]]
        return first not in self._pool.without_stripes

    def batch(
        self, metadata: LedgerMetadata, ids: range, bytes_max: int
    ) -> Deferred[VerifiedEntries]:
        """Read these entries of one fragment from one bookie (BP-62); at least one, maybe not all.

        Needs V2, and ids with the same write set: steps of the ensemble size, or any ids if the
        write quorum is as large. A bookie without strides returns one entry.
        """
        first = EntryId(ids[0])
        return self._replica_read(
            metadata,
            first,
            lambda bookie: self._pool.send(
                bookie,
                BatchReadRequest(
                    self._ledger_id,
                    first,
                    self._pool.next_txn_id(),
                    len(ids),
                    bytes_max,
                    stride=ids.step,
                ),
            ),
            lambda bookie, response: self._verified_batch(bookie, response, ids),
        )

    def _replica_read(
        self,
        metadata: LedgerMetadata,
        entry_id: EntryId,
        send: Callable[[BookieId], Deferred[Any]],
        accept: Callable[[BookieId, Response], T],
    ) -> Deferred[T]:
        ensemble = metadata.fragment_of(entry_id).ensemble
        order = self._order.of_entry(metadata, ensemble, entry_id)
        if self._order.is_sticky:
            accept, send = self._unsticking(accept, ensemble), self._left(send, ensemble)
        run = ReadRun(
            self._reads,
            ("entry", entry_id),
            ReplicaRead[T](order),
            ensemble,
            send,
            accept,
            self._speculation.waits(),
        )
        return run.start()

    def _unsticking(
        self, accept: Callable[[BookieId, Response], T], ensemble: Sequence[BookieId]
    ) -> Callable[[BookieId, Response], T]:
        """Return ``accept``; an answer without the entry moves later reads to the next bookie."""

        def accepted(bookie: BookieId, response: Response) -> T:
            try:
                return accept(bookie, response)
            except ClientError:
                self._order.leave(bookie, ensemble)
                raise

        return accepted

    def _left(
        self, send: Callable[[BookieId], Deferred[Any]], ensemble: Sequence[BookieId]
    ) -> Callable[[BookieId], Deferred[Any]]:
        """Return ``send``; a request without an answer moves later reads to the next bookie."""

        def failed(failure: Failure, bookie: BookieId) -> Failure:
            self._order.leave(bookie, ensemble)
            return failure

        return lambda bookie: send(bookie).addErrback(failed, bookie)

    def _verified_batch(self, bookie: BookieId, response: Response, ids: range) -> VerifiedEntries:
        if (
            isinstance(response, BatchReadResponse)
            and response.rc is ReturnCode.EOK
            and response.stride != ids.step
        ):
            self._pool.without_stripes.add(bookie)
        return self.verifier.batch(bookie, response, ids)


async def gather(reads: Sequence[Deferred[T]]) -> list[T]:
    """Wait for all; raise the first error unchanged. Its cancellation cancels all."""
    try:
        return await gatherResults(reads, consumeErrors=True)
    except FirstError as error:
        if isinstance(error.subFailure.value, CancelledError):
            raise error.subFailure.value from None
        raise as_client_error(error.subFailure) from None
