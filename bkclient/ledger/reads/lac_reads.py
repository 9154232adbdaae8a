"""Reads of a ledger's LAC from its bookies, and long polls for a higher LAC.

Agrees with BookKeeper 4.18.0, PendingReadLacOp, ReadLastConfirmedOp and
ReadLastConfirmedAndEntryOp.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final

from twisted.internet.defer import Deferred
from twisted.python.failure import Failure

from bkclient.errors import ClientError
from bkclient.ledger.reads.replica_read import LedgerReads, ReadRun, as_client_error
from bkclient.quorum.read_rules import (
    AnyLac,
    KnownLac,
    LacQuorum,
    LongPoll,
    LongPollAnswer,
    Speculation,
)
from wire.codes import ReadFlag
from wire.digest import Entry
from wire.ids import NO_ENTRY, BookieId
from wire.ledger_metadata import Fragment, LedgerMetadata
from wire.messages import ReadLacRequest, ReadRequest, Response

POLL_MARGIN_S: Final = 1.0
"""Seconds by which a bookie must answer a long poll before the client's time-out."""


class LacReads:
    """Reads of one ledger's LAC, and long polls for a higher LAC."""

    def __init__(self, reads: LedgerReads) -> None:
        self._reads = reads
        config = reads.pool.config
        self._speculation = Speculation(
            config.speculative_lac_first_timeout_ms / 1000,
            config.speculative_lac_timeout_max_ms / 1000,
            config.speculative_lac_backoff,
        )

    def quorum(self, metadata: LedgerMetadata) -> Deferred[int]:
        """Read the LAC from the complete ensemble, with V3's READ_LAC, for explicit LACs, too."""
        return self._ask(
            metadata,
            LacQuorum(metadata.ensemble_size, metadata.write_quorum, metadata.ack_quorum),
        )

    def any(self, metadata: LedgerMetadata, known_lac: int) -> Deferred[int]:
        """Read a LAC above the known one from the first bookie that has it; else the known one."""
        return self._ask(metadata, AnyLac(metadata.ensemble_size, known_lac))

    def _ask(self, metadata: LedgerMetadata, rule: LacQuorum | AnyLac) -> Deferred[int]:
        request = ReadLacRequest(self._reads.ledger_id)
        answered = ask_all(
            metadata.last_fragment,
            lambda bookie: self._reads.pool.send(bookie, request),
            self._reads.verifier.lac,
            rule,
        )
        return answered.addCallback(lambda known: known.lac)

    def poll(
        self, metadata: LedgerMetadata, previous_lac: int, wait_s: float
    ) -> Deferred[LongPollAnswer[Entry]]:
        """Wait at bookies until the LAC is above ``previous_lac``.

        The answer has the next entry.
        """
        reads = self._reads
        request = ReadRequest(
            reads.ledger_id,
            NO_ENTRY,
            ReadFlag.PIGGYBACK,
            previous_lac=previous_lac,
            timeout_ms=int(wait_s * 1000),
        )
        ensemble = metadata.last_fragment.ensemble
        run = ReadRun(
            reads,
            ("LAC beyond", previous_lac),
            LongPoll[Entry](reads.order.of_ensemble(ensemble), metadata.ack_quorum, previous_lac),
            ensemble,
            lambda bookie: reads.pool.send(bookie, request, timeout_s=wait_s + POLL_MARGIN_S),
            lambda bookie, response: reads.verifier.poll(bookie, response, previous_lac),
            self._speculation.waits(),
        )
        return run.start()


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
