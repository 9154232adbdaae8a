"""The transactions of a topic, and their outcomes.

The broker writes a marker after the messages of a transaction, which ends it. Like a consumer, the
reader drops messages of aborted transactions, and ends before the first message of an open
transaction. A broker would end even earlier if the read begins after an open transaction's first
message. Brokers store snapshots of the transaction buffer in ``__transaction_buffer_snapshot``
topics to avoid reading markers again; the snapshots contain nothing beyond the markers.

Agrees with Pulsar 4.0, TopicTransactionBuffer.
"""

from __future__ import annotations

import enum

from bkclient.topic.entry import TXN_ABORT, TXN_COMMIT, StoredMessage, Txn


class TransactionOutcome(enum.Enum):
    """The outcome of a transaction, according to the markers so far."""

    OPEN = enum.auto()
    COMMITTED = enum.auto()
    ABORTED = enum.auto()


class Transactions:
    """The outcomes of transactions, from their markers.

    Keeps a small record of each aborted transaction, as a broker does, and of each transaction
    whose marker was read ahead.
    """

    def __init__(self) -> None:
        self._ended: dict[Txn, TransactionOutcome] = {}

    def see(self, stored: StoredMessage) -> None:
        """Record the outcome if ``stored`` is a marker; ignore anything else."""
        txn = stored.txn
        if txn is None or not stored.is_marker:
            return
        if stored.metadata.markerType == TXN_COMMIT:
            self._ended[txn] = TransactionOutcome.COMMITTED
        elif stored.metadata.markerType == TXN_ABORT:
            self.abort(txn)

    def abort(self, txn: Txn) -> None:
        """Record that a transaction was aborted."""
        self._ended[txn] = TransactionOutcome.ABORTED

    def come_to(self, stored: StoredMessage) -> None:
        """Record a marker in read order: no more messages of a committed transaction follow."""
        self.see(stored)
        if stored.txn is not None and self.outcome(stored.txn) is TransactionOutcome.COMMITTED:
            del self._ended[stored.txn]

    def outcome(self, txn: Txn) -> TransactionOutcome:
        """Return the outcome of a transaction."""
        return self._ended.get(txn, TransactionOutcome.OPEN)
