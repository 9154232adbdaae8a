"""Which transactions were committed or aborted, learned from the markers in the topic itself.

The broker that ends a transaction writes a marker behind its messages. A consumer receives nothing
of an aborted transaction, and nothing behind the first message of a transaction that has not ended.
Snapshots of the transaction buffer, which brokers keep in ``__transaction_buffer_snapshot`` topics,
save a broker from reading markers again; they say nothing that the markers do not say.

Agrees with Pulsar 4.0, TopicTransactionBuffer. No I/O here.
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
    """Markers in, outcomes out. Holds one small record for each transaction that has ended."""

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
            self._ended[txn] = TransactionOutcome.ABORTED

    def outcome(self, txn: Txn) -> TransactionOutcome:
        """Return how a transaction ended."""
        return self._ended.get(txn, TransactionOutcome.OPEN)
