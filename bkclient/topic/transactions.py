"""The transactions of a topic: which messages are of one that was aborted, or has not ended.

A transaction ends with a marker that the broker writes behind its messages. A consumer receives
nothing of an aborted transaction, and nothing after the first message of one that has not ended:
messages of aborted ones are dropped, and reading ends before the first message of one that has not
ended. Where reading begins after the first message of one like that, a broker would hold back
more. Snapshots of the transaction buffer, which brokers keep in ``__transaction_buffer_snapshot``
topics, save a broker from reading markers again; they say nothing that the markers do not say.

Agrees with Pulsar 4.0, TopicTransactionBuffer.
"""

from __future__ import annotations

import enum

from bkclient.topic.entry import TXN_ABORT, TXN_COMMIT, StoredMessage, Txn


class TransactionOutcome(enum.Enum):
    """How a transaction ended, as far as the markers that were seen say."""

    OPEN = enum.auto()
    COMMITTED = enum.auto()
    ABORTED = enum.auto()


class Transactions:
    """Markers in, outcomes out.

    Holds one small record for each transaction whose marker was seen ahead of reading, and, as a
    broker does, for each that was aborted.
    """

    def __init__(self) -> None:
        self._ended: dict[Txn, TransactionOutcome] = {}

    def see(self, stored: StoredMessage) -> None:
        """Note what a marker says; anything else changes nothing."""
        txn = stored.txn
        if txn is None or not stored.is_marker:
            return
        if stored.metadata.markerType == TXN_COMMIT:
            self._ended[txn] = TransactionOutcome.COMMITTED
        elif stored.metadata.markerType == TXN_ABORT:
            self.abort(txn)

    def abort(self, txn: Txn) -> None:
        """Note that a transaction was aborted."""
        self._ended[txn] = TransactionOutcome.ABORTED

    def come_to(self, stored: StoredMessage) -> None:
        """Note a marker that reading has come to: no more of what was committed follows."""
        self.see(stored)
        if stored.txn is not None and self.outcome(stored.txn) is TransactionOutcome.COMMITTED:
            del self._ended[stored.txn]

    def outcome(self, txn: Txn) -> TransactionOutcome:
        """Return how a transaction ended."""
        return self._ended.get(txn, TransactionOutcome.OPEN)
