"""The messages that a query of Pulsar topics reads: entries of each topic between two positions.

A position is a message id without an index in the batch. A topic ends at the last position before
which everything is complete: see ``bkclient.topic.readable_end``.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Final

import attrs
from twisted.internet.task import deferLater

from bkclient.admin import cluster_operations
from bkclient.client import Client
from bkclient.errors import NoSuchLedgerError
from bkclient.topic.managed_ledger import MessageId, TopicLedger, TopicLedgers
from bkclient.topic.names import NoSuchTopicError, OffloadedError, TopicName, TopicTrimmedError
from bkclient.topic.positions import end_of, position_at
from bkclient.topic.readable_end import Frontier
from bkclient.topic.topics_in_metadata import topic_ledgers, topics_of
from bkctl.commands.export.spark.log_extents import STALE_PAUSE_S, STALE_READS
from bkctl.commands.export.spark.source_options import (
    PositionOption,
    SourceOptionError,
    SourceOptions,
)
from bkctl.commands.export.task.partitions import CLOSED, LedgerExtent
from wire.ids import EntryId, LedgerId

Positions = dict[TopicName, MessageId]
"""For each topic or partition, the first entry to read, or the first entry after a range."""

NOTHING: Final = MessageId(-1, 0)
"""The position in a topic without ledgers."""

_UNLIMITED: Final = 2**63 - 1

_OR_SKIP: Final = "(failOnDataLoss=false continues without it)"


async def asked_topics(client: Client, options: SourceOptions) -> list[TopicName]:
    """Return the topics that a query names, with each partition as a topic.

    Raises:
        NoSuchTopicError: with ``failOnDataLoss``, the topic does not exist, or no topic matches.
    """
    pattern = options.topics_pattern
    if pattern is not None:
        topics = await topics_of(client, pattern, is_pattern=True)
        if not topics and options.fail_on_data_loss:
            raise NoSuchTopicError(
                f"no topic matches {pattern}; it must match complete names, such as "
                "persistent://public/default/events, and leaves out Pulsar's system topics"
            )
        return topics
    assert options.topic is not None
    return await topics_of(client, options.topic)


async def batch_extents(client: Client, options: SourceOptions, now_ms: int) -> list[LedgerExtent]:
    """Return the extents that a batch query reads, topic by topic.

    Raises:
        NoSuchTopicError: as ``asked_topics``.
        TopicTrimmedError: messages from ``startingPosition`` on were deleted.
        SourceOptionError: a position was set for several partitions, or, with ``failOnDataLoss``,
            is after the end.
    """
    extents = []
    for topic in _one_if_position(await asked_topics(client, options), options):
        start = await start_of(client, topic, options, PositionOption("earliest"), now_ms)
        frontier = Frontier(topic)
        end = await _end_of(client, topic, frontier, options, now_ms)
        if start < end:
            seen = frontier.seen
            extents += await extents_between(client, topic, options, start, end, looks_to=seen)
    return extents


async def start_of(
    client: Client, topic: TopicName, options: SourceOptions, default: PositionOption, now_ms: int
) -> MessageId:
    """Return the position at which a query begins to read a topic; ``NOTHING`` without ledgers.

    Raises:
        SourceOptionError: ``startingPosition`` is after the end, with ``failOnDataLoss``.
        OffloadedError: messages since ``startingTimestamp`` are in tiered storage only.
    """
    where = options.starting or default
    if where.word is None:
        start = MessageId(where.index, where.entry)
        if options.fail_on_data_loss and start > (end := await end_of(client, topic)):
            raise _past_end(topic, "startingPosition", start, end, "reads on from there")
        return start
    first = await first_of(client, topic)
    if first == NOTHING:
        return first
    if options.starting_ms is not None:
        return await _since(client, topic, options.starting_ms)
    return await Frontier(topic).end(client, now_ms) if where.word == "latest" else first


async def _since(client: Client, topic: TopicName, time_ms: int) -> MessageId:
    """Return the position of the first entry that was published at a time or later."""
    start = await position_at(client, topic, time_ms)
    for ledger in (await topic_ledgers(client, topic)).ledgers:
        if ledger.is_deleted and ledger.ledger_id < start.ledger_id and ledger.closed_ms >= time_ms:
            raise OffloadedError.of(topic, ledger.ledger_id, ledger.offloaded_to)
    return start


async def first_of(client: Client, topic: TopicName) -> MessageId:
    """Return the position of the first existing entry."""
    ledgers = (await topic_ledgers(client, topic)).ledgers
    return MessageId(ledgers[0].ledger_id, 0) if ledgers else NOTHING


async def _end_of(
    client: Client, topic: TopicName, frontier: Frontier, options: SourceOptions, now_ms: int
) -> MessageId:
    end, _ = await confirmed_end(client, topic, frontier, options, now_ms)
    if options.ending_ms is not None:
        end = min(end, await position_at(client, topic, options.ending_ms))
    if options.ending is not None and options.ending.word is None:
        asked = MessageId(options.ending.index, options.ending.entry)
        requires_end = (
            options.fail_on_data_loss and options.include_open and options.ending_ms is None
        )
        if requires_end and asked > end:
            raise _past_end(topic, "endingPosition", asked, end, "reads up to there")
        end = min(end, asked)
    return end


def _past_end(
    topic: TopicName, option: str, asked: MessageId, end: MessageId, otherwise: str
) -> SourceOptionError:
    return SourceOptionError(
        f"{topic}: {option} {asked.ledger_id}:{asked.entry_id} is past the end "
        f"{end.ledger_id}:{end.entry_id} of what can be read (failOnDataLoss=false {otherwise})"
    )


async def confirmed_end(
    client: Client, topic: TopicName, frontier: Frontier, options: SourceOptions, now_ms: int
) -> tuple[MessageId, TopicLedgers]:
    """Return the position up to which a topic is readable now, and its ledgers read just before."""
    listed = await topic_ledgers(client, topic)
    if not listed.ledgers:
        return NOTHING, listed
    oldest = MessageId(listed.ledgers[0].ledger_id, 0)
    end = await frontier.end(client, now_ms, oldest)
    if not options.include_open:
        end = min(end, newest_begin(listed))
    return end, listed


def newest_begin(listed: TopicLedgers) -> MessageId:
    """Return the position at which the newest ledger begins."""
    return MessageId(listed.ledgers[-1].ledger_id, 0)


def ledger_after(
    listed: TopicLedgers, at: MessageId, newest_version: int | None
) -> MessageId | None:
    """Return the begin of the next ledger, if ``at`` is surely after the last entry of its ledger.

    ``newest_version`` is the version of a list in which the ledger of ``at`` was the newest. A
    starting broker replaces a newest ledger without entries in one write. For a ledger with entries
    two writes are needed: the first adds the next ledger, a later one removes this ledger.
    """
    later = [one.ledger_id for one in listed.ledgers if one.ledger_id > at.ledger_id]
    own = [one for one in listed.ledgers if one.ledger_id == at.ledger_id]
    if own:
        has_ended = own[0].entries == at.entry_id > 0
    else:
        is_next = newest_version is not None and listed.version == newest_version + 1
        has_ended = at.entry_id == 0 and is_next
    return MessageId(later[0], 0) if later and has_ended else None


def _one_if_position(topics: Sequence[TopicName], options: SourceOptions) -> Sequence[TopicName]:
    """Return the topics, if the positions of the options can belong to them.

    Raises:
        SourceOptionError: the query has several partitions, but a message id belongs to one.
    """
    for name, where in (("startingPosition", options.starting), ("endingPosition", options.ending)):
        if where is not None and where.word is None and len(topics) > 1:
            raise SourceOptionError(
                f"{name} is a position of one partition, and there are {len(topics)}: "
                f"name one, such as {topics[0]}, or use a timestamp"
            )
    return topics


async def starts_of(
    client: Client, options: SourceOptions, default: PositionOption, now_ms: int
) -> Positions:
    """Return the begin of a stream in each topic; topics without ledgers are added later."""
    topics = _one_if_position(await asked_topics(client, options), options)
    found = {one: await start_of(client, one, options, default, now_ms) for one in topics}
    return {topic: at for topic, at in found.items() if at != NOTHING}


async def extents_between(
    client: Client,
    topic: TopicName,
    options: SourceOptions,
    start: MessageId,
    end: MessageId,
    *,
    looks_to: MessageId | None = None,
) -> list[LedgerExtent]:
    """Return the entries of a topic from ``start`` on and before ``end``, ledger by ledger.

    ``looks_to`` is the end of the search for other chunks of messages that begin in this range.

    Raises:
        TopicTrimmedError: a ledger of the range was deleted, with ``failOnDataLoss``.
        SourceOptionError: a position is past the end of its ledger, with ``failOnDataLoss``.
        OffloadedError: a ledger of the range is in tiered storage only.
    """
    try:
        ledgers = await _ledgers_to(client, topic, end)
    except NoSuchTopicError as error:
        if options.fail_on_data_loss:
            raise TopicTrimmedError(f"{topic}: the topic was deleted {_OR_SKIP}") from error
        return []
    if options.fail_on_data_loss:
        _check_untrimmed(topic, ledgers, start, end)
    extents: list[LedgerExtent] = []
    for ledger in ledgers:
        if start.ledger_id <= ledger.ledger_id <= end.ledger_id:
            has_end = ledger is not ledgers[-1] and ledger.entries > 0
            if has_end and options.fail_on_data_loss:
                _check_in_ledger(topic, ledger, start, end)
            extent = await _extent(client, topic, options, ledger, has_end=has_end)
            if extent is not None:
                extents += _part(extent, start, end, looks_to, has_end=has_end)
    return extents


async def _ledgers_to(client: Client, topic: TopicName, end: MessageId) -> Sequence[TopicLedger]:
    """Return the ledgers of a topic, including all existing ledgers before ``end``."""
    for _ in range(STALE_READS):
        ledgers = (await topic_ledgers(client, topic)).ledgers
        if not end.entry_id or (ledgers and ledgers[-1].ledger_id >= end.ledger_id):
            break
        # A server of the metadata service may lag behind the server that the position is from.
        await deferLater(client.cluster.clock, STALE_PAUSE_S)
    return ledgers


def _check_untrimmed(
    topic: TopicName, ledgers: Sequence[TopicLedger], start: MessageId, end: MessageId
) -> None:
    """Refuse positions whose ledgers are not listed any more: Pulsar deletes the oldest first.

    A starting broker also removes an empty last ledger; then older ledgers are still listed.
    """
    listed = {one.ledger_id for one in ledgers}
    first = ledgers[0].ledger_id if ledgers else None
    was_empty = start.entry_id == 0 and first is not None and first < start.ledger_id
    for at, has_entries in ((start, not was_empty), (end, end.entry_id > 0)):
        if at.ledger_id >= 0 and at.ledger_id not in listed and has_entries:
            begins = "it is empty" if first is None else f"it begins with {first}:0"
            unless = "" if at.entry_id else ", unless the ledger was empty"
            raise TopicTrimmedError(
                f"{topic}: ledger {at.ledger_id} was deleted, so messages from {start} on may be "
                f"lost{unless}; {begins} {_OR_SKIP}"
            )


def _check_in_ledger(
    topic: TopicName, ledger: TopicLedger, start: MessageId, end: MessageId
) -> None:
    """Refuse positions that a closed ledger never had."""
    behind = MessageId(ledger.ledger_id, ledger.entries)
    for at in (start, end):
        if at.ledger_id == ledger.ledger_id and at > behind:
            raise SourceOptionError(
                f"{topic}: position {at.ledger_id}:{at.entry_id} is past the end "
                f"{behind.ledger_id}:{behind.entry_id} of its ledger {_OR_SKIP}"
            )


async def _extent(
    client: Client, topic: TopicName, options: SourceOptions, ledger: TopicLedger, *, has_end: bool
) -> LedgerExtent | None:
    """Return the readable extent of a ledger; None for a missing ledger without ``failOnDataLoss``.

    ``has_end``: the topic's list has the number of its entries, which Pulsar stores at closing.
    """
    if ledger.is_deleted:
        raise OffloadedError.of(topic, ledger.ledger_id, ledger.offloaded_to)
    last, length = EntryId(ledger.entries - 1), ledger.size_bytes
    if not has_end:
        try:
            last, length = await cluster_operations.confirmed_end(client, ledger.ledger_id)
        except NoSuchLedgerError as error:
            if options.fail_on_data_loss:
                raise TopicTrimmedError(
                    f"{topic}: ledger {ledger.ledger_id} is gone {_OR_SKIP}"
                ) from error
            return None
    return LedgerExtent(ledger.ledger_id, last, length, CLOSED, "", log=str(topic))


def _part(
    extent: LedgerExtent,
    start: MessageId,
    end: MessageId,
    looks_to: MessageId | None,
    *,
    has_end: bool,
) -> Iterator[LedgerExtent]:
    """Yield the part of a ledger between two positions, if any."""
    first = start.entry_id if start.ledger_id == extent.ledger_id else 0
    last = int(extent.last_entry_id)
    if end.ledger_id == extent.ledger_id:
        # These entries were confirmed when ``end`` was determined, even if the LAC is lower now.
        last = min(last, end.entry_id - 1) if has_end else end.entry_id - 1
    if first <= last:
        seen = looks_to and (LedgerId(looks_to.ledger_id), EntryId(looks_to.entry_id))
        yield attrs.evolve(extent.sliced(first, last), looks_to=seen)


def limited(
    behind: Mapping[TopicName, Sequence[LedgerExtent]],
    ends: Positions,
    first: TopicName | None,
    entries_max: int | None,
    bytes_max: int | None,
) -> Positions:
    """Return where a micro-batch stops in each topic; the limits are for all topics together.

    Topics get even shares, and what others leave of theirs. ``first`` gets an entry whatever the
    limits are. Sizes are taken from the average entry of each ledger.
    """
    sizes = {topic: sum(one.entries for one in extents) for topic, extents in behind.items()}
    entries_left = _UNLIMITED if entries_max is None else entries_max
    bytes_left = _UNLIMITED if bytes_max is None else bytes_max
    kept = 0 if first is None else _average(behind[first][0])
    bytes_left = max(0, bytes_left - kept)
    entries_left -= first is not None
    stops: Positions = {}
    for number, topic in enumerate(sorted(behind, key=lambda one: (sizes[one], one))):
        shares = len(behind) - number
        of_first = int(topic == first)
        stops[topic], entries, size = _stop_within(
            behind[topic],
            ends[topic],
            entries_left // shares + of_first,
            bytes_left // shares + of_first * kept,
        )
        entries_left -= entries - of_first
        bytes_left -= size - of_first * kept
    return stops


def _stop_within(
    extents: Sequence[LedgerExtent], end: MessageId, entries_max: int, bytes_max: int
) -> tuple[MessageId, int, int]:
    """Return the position to stop at within extents, and the entries and bytes before it."""
    entries = size = 0
    for extent in extents:
        average = _average(extent)
        room = min(extent.entries, entries_max - entries, (bytes_max - size) // average)
        entries, size = entries + room, size + room * average
        if room < extent.entries:
            return MessageId(extent.ledger_id, extent.first_entry_id + room), entries, size
    return end, entries, size


def _average(extent: LedgerExtent) -> int:
    return max(1, -(-extent.length // extent.entries))


def by_name(positions: Positions) -> dict[str, str]:
    """Return positions as JSON, for an offset."""
    return {str(topic): f"{at.ledger_id}:{at.entry_id}" for topic, at in sorted(positions.items())}


def from_names(found: Mapping[str, str]) -> Positions:
    """Return the positions from JSON that ``by_name`` wrote."""
    from bkclient.topic.names import parse_topic

    positions = {}
    for name, at in found.items():
        ledger_id, _, entry_id = at.partition(":")
        positions[parse_topic(name)] = MessageId(int(ledger_id), int(entry_id))
    return positions
