"""A log as a stream: each offset is the position of the next entry to read.

An offset is ``{"index": ledger's index in the log, "entry": entry id, "log_id": the log's id}``.
Logs and checkpoints of earlier versions have no id. The entries between two offsets never change,
so a repeated micro-batch has the same rows.
"""

from __future__ import annotations

import logging
from collections.abc import Iterator, Sequence
from types import ModuleType
from typing import TYPE_CHECKING, Any, Final

import attrs
from pyspark.sql.datasource import DataSourceStreamReader, InputPartition

from bkclient.log.cursors import Cursors
from bkclient.log.record import Position
from bkclient.metadata.errors import NoSuchLogError
from bkctl.commands.export.spark.log_extents import (
    LogPosition,
    log_extents,
    log_extents_between,
    log_start,
)
from bkctl.commands.export.spark.query import Query, TaskPartition, short_errors
from bkctl.commands.export.spark.source_options import LATEST, SourceOptionError
from wire.errors import BookKeeperError

if TYPE_CHECKING:
    import pyarrow as pa

    from bkclient.blocking import BlockingClient
    from bkclient.client import Client
    from bkctl.commands.export.task.partitions import LedgerExtent

log = logging.getLogger(__name__)

limits: ModuleType | None
try:  # PySpark 4.2 and newer.
    from pyspark.sql.streaming import datasource as _limits
    from pyspark.sql.streaming.datasource import SupportsTriggerAvailableNow

    limits = _limits
except ImportError:  # Older: the limits of the options, and no AvailableNow.
    limits = None

    class SupportsTriggerAvailableNow:  # type: ignore[no-redef]
        """A replacement for a class that this PySpark does not have."""


_ROWS_MAX: Final = 2**63 - 1


class FollowingReader(DataSourceStreamReader, SupportsTriggerAvailableNow):
    """The common base of the streams of logs and topics.

    The driver keeps one reader, with a client, for the life of a query; ``read`` runs in tasks.
    """

    def __init__(self, query: Query, cursor: str | None) -> None:
        options = query.options
        if options.ending is not None or options.ending_ms is not None:
            raise SourceOptionError("a stream has no endingPosition or endingTimestamp")
        self._query, self._cursor = query, cursor
        self._client: BlockingClient | None = None
        self._noted: dict[str, Any] | None = None
        """The offset that the cursor was moved to."""
        self._warned_of: dict[str, Any] | None = None
        """The offset of the last warning that the cursor could not be moved."""
        self._initial: dict[str, Any] | None = None
        """The begin of a query that begins at ``latest``, until its first micro-batch is found."""

    def __getstate__(self) -> dict[str, Any]:
        return {**self.__dict__, "_client": None}

    def _call(self, function: Any, *args: Any, **kwargs: Any) -> Any:
        with short_errors(self._query.uri):
            if self._client is None:
                self._client = self._query.client()
            return self._client.call(function, *args, **kwargs)

    def _begin_at(self, offset: dict[str, Any], *, is_available_now: bool) -> dict[str, Any]:
        """Return the begin of a new query, and note it if it is ``latest``.

        Raises:
            SourceOptionError: a query with ``availableNow`` would end without rows, and no option
                requests this.
        """
        options = self._query.options
        if options.starting_ms is None and options.starting in {None, LATEST}:
            if is_available_now:
                self._require_start("availableNow")
            self._initial = offset
        return offset

    def _require_start(self, trigger: str) -> None:
        if self._query.options.starting is None:
            raise SourceOptionError(
                f"a new query with {trigger} would read no rows, as streams start at latest: "
                "set startingPosition to earliest, or to latest to read only what is appended "
                "after this query"
            )

    def _is_first(self, begin: dict[str, Any], limit: Any) -> bool:
        """Return whether a micro-batch is the first of a query that begins at ``latest``.

        The first micro-batch has no rows. Spark writes only the ends of micro-batches to the
        checkpoint. If the query is killed in its first micro-batch, Spark asks for its begin again:
        rows in between would be lost.

        Raises:
            SourceOptionError: the query ends with this micro-batch (``once``), and no option
                requests this.
        """
        initial, self._initial = self._initial, None
        if begin != initial:
            return False
        if limits is not None and isinstance(limit, limits.ReadAllAvailable):
            self._require_start("once")
        return True

    def getDefaultReadLimit(self) -> Any:  # noqa: N802 -- Spark's name
        """Return the limit of a micro-batch that the options set.

        Never returns the limit "all available": with the trigger ``once`` Spark uses that limit
        whatever this method returns.
        """
        assert limits is not None, "only PySpark 4.2 and newer asks"
        options = self._query.options
        if options.entries_per_trigger_max is not None:
            return limits.ReadMaxRows(options.entries_per_trigger_max)
        if options.bytes_per_trigger_max is not None:
            return limits.ReadMaxBytes(options.bytes_per_trigger_max)
        return limits.ReadMaxRows(_ROWS_MAX)

    def _limits(self, limit: Any, *, is_known: bool) -> tuple[int | None, int | None]:
        """Return the largest numbers of entries and of bytes in a micro-batch."""
        # Spark passes the default limit, which names only one of the two, or no limit.
        if limits is not None:
            is_known = limit is not None and not isinstance(limit, limits.ReadAllAvailable)
        options = self._query.options
        if not is_known:
            return None, None
        return options.entries_per_trigger_max, options.bytes_per_trigger_max

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        """Yield the partition's rows as Arrow batches."""
        assert isinstance(partition, TaskPartition)
        yield from self._query.read(partition.ranges)

    def commit(self, end: dict[str, Any]) -> None:
        """Move the cursor to the end that Spark has committed.

        The query continues from its checkpoint. So a cursor that cannot be written does not end the
        query: the next commit writes it.
        """
        if self._cursor is None or end == self._noted:
            return
        try:
            self._call(self._advance, self._cursor, end)
        except BookKeeperError as error:
            if end != self._warned_of:  # Spark polls a hundred times a second.
                log.warning("cursor %s was not moved to %s: %s", self._cursor, end, error)
            self._warned_of = end
        else:
            self._noted = end

    def _note_start(self, start: dict[str, Any] | None) -> None:
        """Move the cursor to the start of the next micro-batch: the batch before is committed.

        Spark calls ``commit`` only with the next micro-batch, which may never come.
        """
        if start is not None:
            self.commit(start)

    async def _advance(self, client: Client, cursor: str, end: dict[str, Any]) -> None:
        """Move a cursor to an offset."""
        raise NotImplementedError

    def stop(self) -> None:
        """Close the client."""
        if self._client is not None:
            self._client.close()
            self._client = None


@attrs.frozen
class _PlannedPartitions:
    """The partitions between two offsets, which never change."""

    start: dict[str, Any]
    end: dict[str, Any]
    extents: Sequence[LedgerExtent]


class LogStreamReader(FollowingReader):
    """The reader of a log's stream, from ledger to ledger, up to the LAC of the last ledger."""

    def __init__(self, query: Query, cursor: str | None = None) -> None:
        if query.options.log is None:
            raise SourceOptionError(
                "a stream reads a log or topics: give the option log, topic or topicsPattern"
            )
        super().__init__(query, cursor)
        self._start: LogPosition | None = None
        self._stop_at: LogPosition | None = None
        self._has_nothing_new = False
        """Whether the log did not exist when ``availableNow`` asked for its end."""
        self._end_seen: dict[str, Any] | None = None
        """The log's end, if the last micro-batch reached it."""
        self._planned: _PlannedPartitions | None = None

    def initialOffset(self) -> dict[str, Any]:  # noqa: N802 -- Spark's name
        """Return the begin of a new query: ``startingPosition``, by default the log's end.

        Raises:
            SourceOptionError: see ``_begin_at``.
        """
        start: LogPosition = self._call(log_start, self._query.options, LATEST)
        self._start = start
        return self._begin_at(_to_offset(start), is_available_now=self._stop_at is not None)

    def latestOffset(  # noqa: N802 -- Spark's name
        self, start: dict[str, Any] | None = None, limit: Any = None
    ) -> dict[str, Any]:
        """Return the end of the next micro-batch, or ``start`` without new entries.

        PySpark before 4.2 passes neither ``start`` nor ``limit``: the end of the batch before and
        the options replace them.

        Raises:
            LogTrimmedError: unread entries were trimmed.
            LogDamagedError: the log was deleted and another one created, with ``failOnDataLoss``.
            NoSuchLogError: the log was deleted, with ``failOnDataLoss``.
        """
        self._note_start(start)
        if self._has_nothing_new and start is not None:
            return start
        begin = self._start if start is None else _to_position(start)
        if begin is None:  # An old PySpark, and a query that continues from a checkpoint.
            begin = self._call(log_start, _at_latest(self._query), LATEST)
        if self._is_first(_to_offset(begin), limit):
            return _to_offset(begin)
        entries_max, bytes_max = self._limits(limit, is_known=self._start is not None)
        extents, end = self._call(
            log_extents,
            self._query.options,
            begin,
            self._stop_at,
            entries_max=entries_max,
            bytes_max=bytes_max,
            end_is_confirmed=True,
        )
        found = _to_offset(end)
        self._planned = _PlannedPartitions(_to_offset(begin), found, extents)
        is_limited = entries_max is not None or bytes_max is not None or self._stop_at is not None
        self._end_seen = None if is_limited else found
        return found

    def prepareForTriggerAvailableNow(self) -> None:  # noqa: N802 -- Spark's name
        """Note the log's end: entries that are appended later belong to another query.

        Raises:
            NoSuchLogError: the log does not exist, with ``failOnDataLoss``.
        """
        self._stop_at = self._end()
        self._has_nothing_new = self._stop_at is None

    def reportLatestOffset(self) -> dict[str, Any] | None:  # noqa: N802 -- Spark's name
        """Return the log's end, for the query's progress.

        Spark calls this after ``latestOffset``.
        """
        if self._end_seen is not None:
            return self._end_seen
        end = self._end()
        return None if end is None else _to_offset(end)

    def _end(self) -> LogPosition | None:
        """Return the log's end; None if the log does not exist, without ``failOnDataLoss``."""
        end: LogPosition
        try:
            end = self._call(log_start, _at_latest(self._query), LATEST)
        except NoSuchLogError:
            if self._query.options.fail_on_data_loss:
                raise
            return None
        return end

    def partitions(self, start: dict[str, Any], end: dict[str, Any]) -> Sequence[InputPartition]:
        """Return the partitions of the entries from ``start`` on and before ``end``.

        Raises:
            LogTrimmedError, LogDamagedError: entries are missing, with ``failOnDataLoss``.
        """
        begin, stop = _to_position(start), _to_position(end)
        self._start = stop
        is_one_log = begin.log_id == stop.log_id or not (begin.log_id and stop.log_id)
        if is_one_log and begin >= stop:
            return []
        planned = self._planned
        if planned is not None and (planned.start, planned.end) == (start, end):
            return self._query.partitions(planned.extents)
        extents = self._call(log_extents_between, self._query.options, begin, stop)
        return self._query.partitions(extents)

    async def _advance(self, client: Client, cursor: str, end: dict[str, Any]) -> None:
        assert self._query.options.log is not None
        at = _to_position(end)
        cursors = Cursors(client, self._query.options.log, log_id=at.log_id)
        await cursors.advance(cursor, Position(at.index, at.entry))


def check_offset(offset: dict[str, Any], *keys: str) -> None:
    """Refuse an offset of a checkpoint without these keys.

    Raises:
        SourceOptionError: the checkpoint belongs to a query of another source.
    """
    if not all(key in offset for key in keys):
        raise SourceOptionError(
            f"the checkpoint is of a query that reads something else: its offset is {offset}. "
            "Use a new checkpoint"
        )


def _at_latest(query: Query) -> Any:
    return attrs.evolve(query.options, starting=LATEST, starting_ms=None, fail_on_data_loss=False)


def _to_offset(position: LogPosition) -> dict[str, Any]:
    known = {"log_id": position.log_id} if position.log_id else {}
    return {"index": position.index, "entry": position.entry, **known}


def _to_position(offset: dict[str, Any]) -> LogPosition:
    check_offset(offset, "index", "entry")
    return LogPosition(int(offset["index"]), int(offset["entry"]), offset.get("log_id", ""))
