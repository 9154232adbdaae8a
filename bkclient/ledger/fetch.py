"""Reading entries and LACs from bookies: the rules of ``read`` run over the pool.

Agrees with BookKeeper 4.18.0, PendingReadOp, BatchedReadOp, PendingReadLacOp, ReadLastConfirmedOp
and ReadLastConfirmedAndEntryOp.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from typing import Any, Final, TypeVar, Union

from twisted.internet.defer import Deferred, FirstError, gatherResults
from twisted.logger import Logger
from twisted.python.failure import Failure

from bkclient.concurrency import Alarms, RateLimit
from bkclient.connection.bookie_health import TroubleBook
from bkclient.connection.bulk_read import BulkAnswer
from bkclient.connection.channel import BookieChannel
from bkclient.connection.pool import BookiePool
from bkclient.errors import (
    ClientDigestMismatchError,
    ClientError,
    InterruptedOperationError,
    ReadFailedError,
    RequestTimeoutError,
    refusal,
)
from bkclient.ledger.replica_read import ReadRun, as_client_error
from bkclient.placement.policy import Placement, least_loaded_first
from bkclient.quorum.distribution import write_set
from bkclient.quorum.read import (
    AnyLac,
    KnownLac,
    LacQuorum,
    LongPoll,
    Polled,
    ReplicaRead,
    Speculation,
)
from wire.codes import ReadFlag, ReturnCode
from wire.digest import Digester, Entry, VerifiedEntries
from wire.errors import DigestMismatchError
from wire.frames.reads import PlainRead
from wire.ids import NO_ENTRY, BookieId, EntryId, LedgerId
from wire.ledger_metadata import Fragment, LedgerMetadata
from wire.messages import (
    BatchReadRequest,
    BatchReadResponse,
    ReadLacRequest,
    ReadLacResponse,
    ReadRequest,
    ReadResponse,
    Response,
)

log = Logger()
T = TypeVar("T")

POLL_MARGIN_S: Final = 1.0
"""How much sooner than our own time-out a bookie must answer a long poll."""


class EntryFetcher:
    """Reads one ledger's entries from bookies.

    Args:
        saw_lac: called with a bookie's highest known LAC when it comes with an entry.
        sticky: the place in the ensemble whose bookie is asked first for every entry, where each
            has all of them, until it fails; ``None`` spreads reads over the bookies.
        rate: how many reads may go a second; ``turn`` waits for it.
    """

    def __init__(
        self,
        pool: BookiePool,
        ledger_id: LedgerId,
        digester: Digester,
        placement: Placement,
        troubles: TroubleBook,
        saw_lac: Callable[[int], None] = lambda _lac: None,
        sticky: int | None = None,
        rate: RateLimit | None = None,
    ) -> None:
        self._pool, self._ledger_id, self._digester = pool, ledger_id, digester
        self._placement, self._troubles = placement, troubles
        self.saw_lac = saw_lac
        self._sticky, self._rate = sticky, rate
        config = pool.config
        self._alarms: Alarms[ReadRun[Any]] = Alarms(pool.clock, lambda run: run.waited())
        self._speculation = Speculation(
            config.speculative_first_ms / 1000,
            config.speculative_max_ms / 1000,
            config.speculative_read_backoff,
        )
        self._lac_speculation = Speculation(
            config.speculative_lac_first_timeout_ms / 1000,
            config.speculative_lac_timeout_max_ms / 1000,
            config.speculative_lac_backoff,
        )
        self.can_batch = config.batch_reads
        """Whether bookies are asked for several entries at once; off after one did not know how."""

    def close(self) -> None:
        """Stop timers."""
        self._alarms.stop()

    async def turn(self, reads: int = 1) -> None:
        """Wait until reads may go, where their rate is limited."""
        if self._rate is not None:
            await self._rate.turn(reads)

    # Entries

    def entry(self, metadata: LedgerMetadata, entry_id: EntryId) -> Deferred[Entry]:
        """Read one entry from whoever has it.

        Raises (through the Deferred):
            ClientError: nobody gave it; the text names ledger, entry and the last bookie.
        """
        request = ReadRequest(self._ledger_id, entry_id)
        return self._replica_read(
            metadata,
            entry_id,
            lambda bookie: self._pool.send(bookie, request),
            lambda bookie, response: self.verified(bookie, response, entry_id),
        )

    async def entries(self, metadata: LedgerMetadata, ids: range) -> VerifiedEntries:
        """Read entries of one fragment, all at once: in bulk, and by themselves what needs it.

        Raises:
            ClientError: as for ``entry``.
        """
        fragment = metadata.fragment_of(ids[0])
        by_bookie: dict[BookieId, list[int]] = {}
        for entry_id in ids:
            index = self._order(metadata, fragment.ensemble, entry_id)[0]
            by_bookie.setdefault(fragment.ensemble[index], []).append(entry_id)
        bulks = [
            self._bulk(bookie, entries, fragment.ensemble) for bookie, entries in by_bookie.items()
        ]
        found: dict[int, Entry] = {}
        for entries in await gatherResults(bulks, consumeErrors=True):
            found.update(entries)
        missing = [entry_id for entry_id in ids if entry_id not in found]
        singly = [self.entry(metadata, EntryId(entry_id)) for entry_id in missing]
        for entry in await gather(singly):
            found[entry.entry_id] = entry
        return VerifiedEntries.of([found[entry_id] for entry_id in ids])

    def _bulk(
        self, bookie: BookieId, entries: list[int], ensemble: Sequence[BookieId]
    ) -> Deferred[dict[int, Entry]]:
        """Read what one bookie has of these; never fails, but may come back with nothing."""
        config = self._pool.config
        wait_s = float(config.read_timeout_s)
        if self._speculation.first_s > 0:
            wait_s = min(wait_s, self._speculation.first_s)
        channel = self._pool.channel(bookie, self._ledger_id)
        channel.addTimeout(wait_s, self._pool.clock, partial(self._not_connected, bookie))
        answers = channel.addCallback(BookieChannel.read_many, self._ledger_id, entries, wait_s)
        return answers.addCallbacks(
            self._verified_bulk,
            self._no_bulk,
            callbackArgs=(bookie, ensemble, len(entries)),
            errbackArgs=(bookie, ensemble),
        )

    @staticmethod
    def _not_connected(bookie: BookieId, _failure: Failure, timeout_s: float) -> None:
        raise RequestTimeoutError(f"no connection with bookie {bookie} in {timeout_s:g} s")

    def _verified_bulk(
        self,
        answers: dict[int, BulkAnswer],
        bookie: BookieId,
        ensemble: Sequence[BookieId],
        asked: int,
    ) -> dict[int, Entry]:
        if len(answers) < asked:
            self._troubles.slow(bookie)
        verify, ledger_id, lac = self._digester.verify, self._ledger_id, -1
        found: dict[int, Entry] = {}
        for entry_id, answer in answers.items():
            if not isinstance(answer, PlainRead):
                continue
            try:
                found[entry_id] = verify(ledger_id, entry_id, answer.packet)
            except DigestMismatchError:
                continue
            if answer.max_lac is not None and answer.max_lac > lac:
                lac = answer.max_lac
        self.saw_lac(lac)
        if len(found) < asked:
            self._leave(bookie, ensemble)
        return found

    def _no_bulk(
        self, failure: Failure, bookie: BookieId, ensemble: Sequence[BookieId]
    ) -> dict[int, Entry]:
        if not isinstance(as_client_error(failure), InterruptedOperationError):
            self._troubles.failed(bookie)
            self._leave(bookie, ensemble)
        return {}

    def knows_stripes(self, metadata: LedgerMetadata, entry_id: int) -> bool:
        """Return whether the bookie that is asked first may know strides; not so Java's."""
        ensemble = metadata.fragment_of(entry_id).ensemble
        first = ensemble[self._order(metadata, ensemble, entry_id)[0]]
        return first not in self._pool.without_stripes

    def batch(
        self, metadata: LedgerMetadata, ids: range, bytes_max: int
    ) -> Deferred[VerifiedEntries]:
        """Read these entries of one fragment from one bookie (BP-62); at least one, maybe not all.

        Needs V2, and ids that have the same write set: steps of the ensemble size, or any where
        that is the write quorum. A bookie that does not know strides gives one entry.
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
        order = self._order(metadata, ensemble, entry_id)
        if self._sticky is not None:
            accept, send = self._unsticking(accept, ensemble), self._left(send, ensemble)
        run = ReadRun(
            ("entry", entry_id, self._ledger_id),
            ReplicaRead[T](order),
            ensemble,
            send,
            accept,
            self._alarms,
            self._speculation.waits(),
            self._troubles,
        )
        return run.start()

    def _unsticking(
        self, accept: Callable[[BookieId, Response], T], ensemble: Sequence[BookieId]
    ) -> Callable[[BookieId, Response], T]:
        """Return ``accept``, but an answer that is not the entry moves reads to the next bookie."""

        def accepted(bookie: BookieId, response: Response) -> T:
            try:
                return accept(bookie, response)
            except ClientError:
                self._leave(bookie, ensemble)
                raise

        return accepted

    def _left(
        self, send: Callable[[BookieId], Deferred[Any]], ensemble: Sequence[BookieId]
    ) -> Callable[[BookieId], Deferred[Any]]:
        """Return ``send``, but without an answer reads move to the next bookie."""

        def failed(failure: Failure, bookie: BookieId) -> Failure:
            self._leave(bookie, ensemble)
            return failure

        return lambda bookie: send(bookie).addErrback(failed, bookie)

    def _leave(self, bookie: BookieId, ensemble: Sequence[BookieId]) -> None:
        """Ask the next bookie first from now on, if it was this one."""
        if self._sticky is not None and ensemble[self._sticky % len(ensemble)] == bookie:
            self._sticky += 1

    def _order(
        self, metadata: LedgerMetadata, ensemble: Sequence[BookieId], entry_id: int
    ) -> Sequence[int]:
        """Return whom to ask, best first."""
        first = entry_id
        if self._sticky is not None and metadata.ensemble_size == metadata.write_quorum:
            first = EntryId(self._sticky)
        order: Sequence[int] = write_set(first, metadata.ensemble_size, metadata.write_quorum)
        config = self._pool.config
        if not config.reorder_reads:
            return order
        if config.reorder_pending_threshold > 0:
            order = least_loaded_first(
                order,
                lambda index: self._pool.pending(ensemble[index]),
                config.reorder_pending_threshold,
            )
        if self._troubles.any_lately or self._placement.prefers_near:
            return self._placement.read_order(order, tuple(ensemble), self._troubles.level)
        return order

    def verified(self, bookie: BookieId, response: Response, entry_id: EntryId | None) -> Entry:
        """Return the entry in an answer; ``entry_id`` ``None`` accepts any.

        Raises:
            ClientError: a refusal, or bytes that fail their digest.
        """
        assert isinstance(response, ReadResponse) or response.rc is not ReturnCode.EOK
        packet = getattr(response, "entry", None)
        if response.rc is not ReturnCode.EOK:
            raise refusal(response.rc, ReadFailedError, self._what(bookie, entry_id))
        if packet is None:
            raise ReadFailedError(f"{self._what(bookie, entry_id)}: an answer without the entry")
        max_lac = getattr(response, "max_lac", None)
        entry = self._verify(bookie, packet, entry_id)
        if max_lac is not None:
            self.saw_lac(max_lac)
        return entry

    def _verify(self, bookie: BookieId, packet: bytes, entry_id: EntryId | None) -> Entry:
        try:
            return self._digester.verify(self._ledger_id, entry_id, packet)
        except DigestMismatchError as error:
            raise ClientDigestMismatchError(f"{self._what(bookie, entry_id)}: {error}") from error

    def _verified_batch(self, bookie: BookieId, response: Response, ids: range) -> VerifiedEntries:
        """Take the verified beginning of a batch; a bad first entry is for another bookie."""
        first = EntryId(ids[0])
        if response.rc is not ReturnCode.EOK:
            raise refusal(response.rc, ReadFailedError, self._what(bookie, first))
        assert isinstance(response, BatchReadResponse)
        if response.stride != ids.step:
            self._pool.without_stripes.add(bookie)
            ids = ids[:1]  # What follows it in the answer was not asked for.
        found = self._digester.verify_run(self._ledger_id, ids, response.entries)
        if not found.payloads:
            bad = next(iter(response.entries), None)
            if bad is None:
                raise ReadFailedError(f"{self._what(bookie, first)}: an empty batch")
            return VerifiedEntries.of([self._verify(bookie, bad, first)])  # Says what is wrong.
        return found

    def _what(self, bookie: BookieId, entry_id: EntryId | None) -> str:
        if entry_id is None:
            return f"bookie {bookie}, last entry of ledger {self._ledger_id}"
        return f"bookie {bookie}"

    # The last add confirmed

    def lac(self, metadata: LedgerMetadata) -> Deferred[int]:
        """Read the LAC from the whole ensemble; V3's READ_LAC, which explicit LACs are in too."""
        return self._ask_lac(
            metadata,
            LacQuorum(metadata.ensemble_size, metadata.write_quorum, metadata.ack_quorum),
        )

    def any_lac(self, metadata: LedgerMetadata, known_lac: int) -> Deferred[int]:
        """Read a LAC above the known one from whoever says so first; the known one if nobody."""
        return self._ask_lac(metadata, AnyLac(metadata.ensemble_size, known_lac))

    def _ask_lac(self, metadata: LedgerMetadata, rule: LacQuorum | AnyLac) -> Deferred[int]:
        request = ReadLacRequest(self._ledger_id)
        answered = ask_all(
            metadata.last_fragment,
            lambda bookie: self._pool.send(bookie, request),
            self._known_lac,
            rule,
        )
        return answered.addCallback(lambda known: known.lac)

    def _known_lac(self, bookie: BookieId, response: Response) -> KnownLac | None:
        if response.rc is not ReturnCode.EOK:
            raise refusal(response.rc, ReadFailedError, f"bookie {bookie}, LAC")
        assert isinstance(response, ReadLacResponse)
        known: list[int] = []
        if response.last_entry is not None:
            known.append(self._verify(bookie, response.last_entry, None).lac)
        if response.lac_body is not None:
            known.append(self._verify_lac(bookie, response.lac_body))
        return KnownLac(max(known)) if known else None

    def _verify_lac(self, bookie: BookieId, packet: bytes) -> int:
        try:
            return self._digester.verify_lac(self._ledger_id, packet)
        except DigestMismatchError as error:
            text = f"bookie {bookie}, LAC of ledger {self._ledger_id}: {error}"
            raise ClientDigestMismatchError(text) from error

    def poll(
        self, metadata: LedgerMetadata, previous_lac: int, wait_s: float
    ) -> Deferred[Polled[Entry]]:
        """Wait at bookies until the LAC passes ``previous_lac``; the next entry comes along."""
        request = ReadRequest(
            self._ledger_id,
            NO_ENTRY,
            ReadFlag.PIGGYBACK,
            previous_lac=previous_lac,
            timeout_ms=int(wait_s * 1000),
        )
        fragment = metadata.last_fragment
        order = self._placement.read_order(
            range(metadata.ensemble_size), fragment.ensemble, self._troubles.level
        )
        run = ReadRun(
            ("LAC beyond", previous_lac, self._ledger_id),
            LongPoll[Entry](order, metadata.ack_quorum, previous_lac),
            fragment.ensemble,
            lambda bookie: self._pool.send(bookie, request, timeout_s=wait_s + POLL_MARGIN_S),
            lambda bookie, response: self._polled(bookie, response, previous_lac),
            self._alarms,
            self._lac_speculation.waits(),
            self._troubles,
        )
        return run.start()

    def _polled(self, bookie: BookieId, response: Response, previous_lac: int) -> Polled[Entry]:
        if response.rc is not ReturnCode.EOK:
            raise refusal(response.rc, ReadFailedError, f"bookie {bookie}, long poll")
        assert isinstance(response, ReadResponse)
        lac = previous_lac if response.max_lac is None else response.max_lac
        if response.entry is None or response.entry_id != previous_lac + 1:
            return Polled(lac)
        entry = self._verify(bookie, response.entry, EntryId(previous_lac + 1))
        return Polled(max(lac, entry.lac), entry)


async def gather(reads: Sequence[Deferred[T]]) -> list[T]:
    """Wait for all; raise the first error as it is."""
    try:
        return await gatherResults(reads, consumeErrors=True)
    except FirstError as error:
        raise as_client_error(error.subFailure) from None


Outcome = Union[KnownLac, ClientError]


def ask_all(
    fragment: Fragment,
    send: Callable[[BookieId], Deferred[Any]],
    accept: Callable[[BookieId, Response], KnownLac | None],
    quorum: LacQuorum | AnyLac,
) -> Deferred[KnownLac]:
    """Ask every member of an ensemble; fire as soon as the quorum has its result."""
    result: Deferred[KnownLac] = Deferred()

    def see() -> None:
        outcome = quorum.result
        if outcome is None or result.called:
            return
        if isinstance(outcome, ClientError):
            result.errback(outcome)
        else:
            result.callback(outcome)

    def answered(response: Response, index: int) -> None:
        try:
            quorum.answered(index, accept(fragment.ensemble[index], response))
        except ClientError as error:
            quorum.failed(index, error)
        see()

    def failed(failure: Failure, index: int) -> None:
        quorum.failed(index, as_client_error(failure))
        see()

    for index, bookie in enumerate(fragment.ensemble):
        send(bookie).addCallbacks(answered, failed, callbackArgs=(index,), errbackArgs=(index,))
    return result


def stamped(digester: Digester, ledger_id: LedgerId, packet: bytes) -> KnownLac:
    """Return the LAC and length stamped in a bookie's last entry.

    Raises:
        ClientDigestMismatchError: the bytes do not match; that is no answer at all.
    """
    try:
        entry = digester.verify(ledger_id, None, packet)
    except DigestMismatchError as error:
        raise ClientDigestMismatchError(str(error)) from error

    return KnownLac(entry.lac, entry.length)
