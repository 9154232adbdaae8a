"""Pulsar topics as a stream: an offset has a position for each topic.

An offset is ``{"topics": POSITIONS, "new": POSITIONS, "seen": POSITIONS, "newest": VERSIONS,
"waits": TIMES, "cluster": ID}``, and ``POSITIONS`` is ``{name: "LEDGER:ENTRY"}``. ``topics`` has
the first unread entry of each topic. ``new`` has the begin of this micro-batch in topics that are
new or whose ledger has ended. ``seen`` has the end of the search for other chunks of the messages.
So a repeated micro-batch has the same rows, although the topic has grown. ``VERSIONS`` has the
version of the list of ledgers for each topic that is read up to the beginning of its newest ledger.
``TIMES`` has each topic whose first unread entry waits: null for a transaction, else the time since
which it waits for its other chunks, in ms since 1970. ``ID`` is compared, because another cluster
may have other ledgers with the same ids. Checkpoints of earlier versions lack ``seen`` (the topic's
end is used), ``newest``, ``waits`` and ``cluster``.
"""

from __future__ import annotations

import time
from collections.abc import Sequence
from typing import Any, Final

from pyspark.sql.datasource import InputPartition

from bkclient.client import Client
from bkclient.concurrency import for_each
from bkclient.log.cursors import Cursors
from bkclient.log.record import Position
from bkclient.topic.managed_ledger import TopicLedgers
from bkclient.topic.names import NoSuchTopicError, TopicName, TopicTrimmedError
from bkclient.topic.readable_end import Frontier
from bkctl.commands.export.spark.log_stream import FollowingReader, check_offset
from bkctl.commands.export.spark.query import Query
from bkctl.commands.export.spark.source_options import LATEST, SourceOptionError
from bkctl.commands.export.spark.topic_extents import (
    NOTHING,
    Positions,
    asked_topics,
    by_name,
    confirmed_end,
    extents_between,
    first_of,
    from_names,
    ledger_after,
    limited,
    newest_begin,
    starts_of,
)
from bkctl.commands.export.task.partitions import LedgerExtent

Offset = dict[str, Any]

CURSORS_AT_ONCE: Final = 64


class TopicStreamReader(FollowingReader):
    """The reader of a stream of topics and partitions.

    It reads topics made later from their begin.
    """

    def __init__(self, query: Query, cursor: str | None = None) -> None:
        super().__init__(query, cursor)
        self._start: Offset | None = None
        self._is_available_now = False
        self._stop_at: Positions | None = None
        """The ends of the topics at the first poll, with ``availableNow``."""
        self._ends_seen: Positions | None = None
        """The readable ends of the topics at the last poll."""
        self._listed: dict[TopicName, TopicLedgers] = {}
        self._frontiers: dict[TopicName, Frontier] = {}
        self._first: TopicName | None = None
        """The topic that got the first entry of the last micro-batch."""
        self._committed: Positions = {}
        """The positions of the cursors, as far as this reader has moved them."""
        self._cluster_id: str | None = None

    def initialOffset(self) -> Offset:  # noqa: N802 -- Spark's name
        """Return the begin of a new query: by default the end of all topics.

        Raises:
            SourceOptionError: see ``_begin_at``.
        """
        self._start = self._begin()
        return self._begin_at(self._start, is_available_now=self._is_available_now)

    def _begin(self) -> Offset:
        offset = _offset(self._call(starts_of, self._query.options, LATEST, _now_ms()))
        return {**offset, "cluster": self._cluster()}

    def _cluster(self) -> str | None:
        if self._cluster_id is None:
            self._cluster_id = self._call(lambda client: client.store.instance_id())
        return self._cluster_id

    def _check(self, offset: Offset) -> None:
        """Refuse the offset of another source's checkpoint.

        Raises:
            SourceOptionError: the offset belongs to a log, or to another cluster.
        """
        check_offset(offset, "topics", "new")
        cluster = offset.get("cluster")
        if cluster not in {None, self._cluster()}:
            raise SourceOptionError(
                f"the checkpoint is of cluster {cluster}, and this is cluster {self._cluster()}: "
                "positions of topics are of one cluster. Use a new checkpoint"
            )

    def latestOffset(self, start: Offset | None = None, limit: Any = None) -> Offset:  # noqa: N802
        """Return the end of the next micro-batch, or ``start`` without new messages.

        PySpark before 4.2 passes neither ``start`` nor ``limit``: the end of the batch before and
        the options replace them.

        Raises:
            TopicTrimmedError: unread messages were deleted.
        """
        if start is not None:
            self._check(start)
        self._note_start(start)
        entries_max, bytes_max = self._limits(limit, is_known=self._start is not None)
        # An old PySpark, and a query that continues from a checkpoint: the result is the topics'
        # ends.
        begin = start or self._start or self._begin()
        if self._is_first(begin, limit):
            return begin
        found: Offset = self._call(self._next, begin, entries_max, bytes_max)
        return found if found is begin else {**found, "cluster": self._cluster()}

    async def _next(
        self, client: Client, begin: Offset, entries_max: int | None, bytes_max: int | None
    ) -> Offset:
        before, newest = from_names(begin["topics"]), begin.get("newest", {})
        waits = begin.get("waits", {})
        for topic, begun in before.items():
            if str(topic) in waits:
                frontier = Frontier(topic, follows=True, waits=(begun, waits[str(topic)]))
                self._frontiers.setdefault(topic, frontier)
        ends = await self._ends(client)
        self._check_still_there(before, ends)
        new: Positions = {}
        after: Positions = {}
        seen: Positions = {}
        behind: dict[TopicName, list[LedgerExtent]] = {}
        for topic, end in sorted(ends.items()):
            at = before.get(topic)
            if at is None:
                at = new[topic] = await first_of(client, topic)
            elif moved := ledger_after(self._listed[topic], at, newest.get(str(topic))):
                at = new[topic] = moved
            after[topic] = at
            if at >= end:
                continue
            if (looked_to := self._frontiers[topic].seen) is not None:
                seen[topic] = looked_to
            behind[topic] = await extents_between(client, topic, self._query.options, at, end)
        self._first = _following(self._first, [one for one in behind if behind[one]])
        after |= limited(behind, ends, self._first, entries_max, bytes_max)
        found = _offset(after, new, seen)
        found["newest"] = {
            str(topic): self._listed[topic].version
            for topic, at in after.items()
            if at == newest_begin(self._listed[topic])
        }
        found["waits"] = {}
        for topic, at in after.items():
            first = self._frontiers[topic].first_waiting
            if first is not None and first[0] == at:
                found["waits"][str(topic)] = first[1]
        is_same = after == before and found["newest"] == newest and found["waits"] == waits
        return begin if is_same else found

    async def _ends(self, client: Client) -> Positions:
        """Return the readable end of each topic; topics without ledgers are omitted."""
        if self._stop_at is not None:
            return self._stop_at
        ends = await self._ends_now(client)
        if self._is_available_now:
            self._stop_at = ends
        else:
            self._ends_seen = ends
        return ends

    async def _ends_now(self, client: Client) -> Positions:
        ends: Positions = {}
        try:
            topics = await asked_topics(client, self._query.options)
        except NoSuchTopicError:
            return ends
        for topic in topics:
            frontier = self._frontiers.setdefault(topic, Frontier(topic, follows=True))
            try:
                end, listed = await confirmed_end(
                    client, topic, frontier, self._query.options, _now_ms()
                )
            except NoSuchTopicError:
                continue  # The topic was deleted after it was listed.
            if end != NOTHING:
                ends[topic], self._listed[topic] = end, listed
        return ends

    def _check_still_there(self, before: Positions, ends: Positions) -> None:
        gone = sorted(set(before) - set(ends))
        if gone and self._query.options.fail_on_data_loss:
            raise TopicTrimmedError(
                f"{gone[0]} was deleted, has no ledger any more, or is not asked for any more: "
                f"messages from {before[gone[0]]} on may be lost (failOnDataLoss=false continues "
                "without it)"
            )

    def prepareForTriggerAvailableNow(self) -> None:  # noqa: N802 -- Spark's name
        """Let the first poll note the topics' ends: later messages belong to another query.

        The ends depend on the offset of the checkpoint, which only the poll knows.
        """
        self._is_available_now = True

    def reportLatestOffset(self) -> Offset | None:  # noqa: N802 -- Spark's name
        """Return the topics' ends, for the query's progress.

        Spark calls this after ``latestOffset``.
        """
        ends = self._ends_seen
        return _offset(self._call(self._ends_now) if ends is None else ends)

    def partitions(self, start: Offset, end: Offset) -> Sequence[InputPartition]:
        """Return the partitions of the messages from ``start`` on and before ``end``.

        Raises:
            TopicTrimmedError: messages are missing, with ``failOnDataLoss``.
        """
        self._check(start)
        self._check(end)
        self._start = end
        extents: list[LedgerExtent] = self._call(self._between, start, end)
        return self._query.partitions(extents)

    async def _between(self, client: Client, start: Offset, end: Offset) -> list[LedgerExtent]:
        begin = from_names({**start["topics"], **end["new"]})
        seen = from_names(end.get("seen", {}))
        extents: list[LedgerExtent] = []
        for topic, stop in from_names(end["topics"]).items():
            at = begin.get(topic)
            if at is None:  # PySpark before 4.2, and a topic made while no query ran.
                at = await first_of(client, topic)
            if at < stop:
                extents += await extents_between(
                    client, topic, self._query.options, at, stop, looks_to=seen.get(topic)
                )
        return extents

    async def _advance(self, client: Client, cursor: str, end: Offset) -> None:
        ends = from_names(end["topics"])
        moved = [topic for topic, at in ends.items() if self._committed.get(topic) != at]

        async def advance(topic: TopicName) -> None:
            at = ends[topic]
            await Cursors(client, str(topic)).advance(cursor, Position(at.ledger_id, at.entry_id))
            self._committed[topic] = at

        await for_each(moved, advance, CURSORS_AT_ONCE)


def _following(first: TopicName | None, topics: Sequence[TopicName]) -> TopicName | None:
    """Return the topic whose turn it is after ``first``, so that none waits for ever."""
    later = [topic for topic in topics if first is not None and topic > first]
    return min(later or topics, default=None)


def _offset(
    positions: Positions, new: Positions | None = None, seen: Positions | None = None
) -> Offset:
    return {"topics": by_name(positions), "new": by_name(new or {}), "seen": by_name(seen or {})}


def _now_ms() -> int:
    return time.time_ns() // 1_000_000
