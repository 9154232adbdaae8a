"""The ledgers that a query or an export chooses: by id, log, topic or metadata."""

from __future__ import annotations

import datetime as dt
import re
from collections.abc import Collection, Mapping
from typing import TYPE_CHECKING

import attrs

from bkctl.ledger_ids import LEDGER_ID_MAX
from bkctl.suggest import did_you_mean
from wire.codes import LedgerState

if TYPE_CHECKING:
    from bkclient.client import Client
    from bkclient.topic.managed_ledger import TopicLedger
    from wire.ids import LedgerId
    from wire.ledger_metadata import LedgerMetadata

IdRange = tuple[int, int]
"""The first and last ledger id of a range, both included."""


@attrs.frozen(kw_only=True)
class LedgerChoice:
    """A choice of ledgers; ``None`` and ``()`` are not a condition. Times are in ms since 1970.

    ``ranges``, ``log`` and ``topic`` name ledgers, and exclude each other; the other fields are
    conditions on the metadata. A log or topic chooses the ledgers that it lists now. A range
    chooses its existing ledgers; a range of one id, and a ledger that a log lists, must exist.
    """

    ranges: tuple[IdRange, ...] | None = None
    log: str | None = None
    topic: str | None = None
    state: LedgerState | None = None
    created_after_ms: int | None = None
    created_before_ms: int | None = None
    meta: tuple[tuple[str, bytes], ...] = ()

    @property
    def is_everything(self) -> bool:
        """True if the choice has no condition."""
        return self == LedgerChoice()

    def holds(self, metadata: LedgerMetadata) -> bool:
        """Return whether a ledger's metadata meets the conditions.

        The case of a key is ignored, because Spark converts options to lower case.
        """
        if self.state is not None and metadata.state is not self.state:
            return False
        return self._is_of_time(metadata.ctime_ms) and self._has_values(metadata.custom)

    def _is_of_time(self, made_ms: int | None) -> bool:
        after, before = self.created_after_ms, self.created_before_ms
        if after is None and before is None:
            return True
        if made_ms is None:
            return False
        return (after is None or made_ms >= after) and (before is None or made_ms < before)

    def _has_values(self, custom: Mapping[str, bytes]) -> bool:
        pairs = {(key.lower(), value) for key, value in custom.items()} if self.meta else set()
        return all((key.lower(), value) in pairs for key, value in self.meta)

    def _spans(self) -> list[str]:
        return [str(a) if a == b else f"{a}-{b}" for a, b in self.ranges or ()]

    def nothing_found(self) -> str:
        """Return the message for ranges without any chosen ledger."""
        only = self != LedgerChoice(ranges=self.ranges)
        rest = " matches the other options" if only else ""
        return f"no ledger in {', '.join(self._spans())}{rest}"

    def words(self) -> list[str]:
        """Return the words of the command line that choose the same ledgers."""
        options = {
            "--log": self.log,
            "--topic": self.topic,
            "--state": None if self.state is None else self.state.word,
            "--created-after": _iso(self.created_after_ms),
            "--created-before": _iso(self.created_before_ms),
        }
        words = self._spans()
        for option, value in options.items():
            words += [] if value is None else [option, value]
        for key, stored in self.meta:
            words += ["--meta", f"{key}={stored.decode(errors='surrogateescape')}"]
        return words

    async def find(self, client: Client) -> tuple[list[LedgerId], list[LedgerId]]:
        """Return the ledgers that must exist, and others that exist.

        ``holds`` then checks their metadata.

        Raises:
            NoSuchLogError, NoSuchTopicError: the log or topic does not exist.
        """
        if self.log is not None:
            from bkclient.log.ledger_list import LedgerList

            record = (await LedgerList(client, self.log).read_patiently()).record
            return [one.ledger_id for one in record.ledgers], []
        if self.topic is not None:
            ledgers = await _of_topic(client, self.topic)
            return [one.ledger_id for one in ledgers if not one.is_deleted], []
        ranges = ((-1, LEDGER_ID_MAX),) if self.ranges is None else joined(self.ranges)
        named = [_id(first) for first, last in ranges if first == last]
        listed: list[LedgerId] = []
        for first, last in ranges:
            if first < last:
                async for number in client.list_ledgers(after=_id(first - 1)):
                    if number > last:
                        break
                    listed.append(number)
        return named, listed

    async def offloaded(self, client: Client) -> list[TopicLedger]:
        """Return the topic's ledgers that are only in tiered storage: ``find`` omits them.

        Only the time of closing is known of their metadata.

        Raises:
            NoSuchTopicError: the topic does not exist.
        """
        if self.topic is None or self.state not in {None, LedgerState.CLOSED}:
            return []
        since_ms = self.created_after_ms or 0
        ledgers = await _of_topic(client, self.topic)
        return [one for one in ledgers if one.is_deleted and one.closed_ms >= since_ms]

    async def still_names(self, client: Client, gone: Collection[LedgerId]) -> Collection[LedgerId]:
        """Return the ledgers of ``gone`` that must still exist.

        Raises:
            NoSuchLogError, NoSuchTopicError: the log or topic does not exist any more.
        """
        if self.log is None and self.topic is None:
            return gone
        named, _ = await self.find(client)
        return set(named).intersection(gone)


def _iso(ms: int | None) -> str | None:
    if ms is None:
        return None
    since = dt.datetime(1970, 1, 1, tzinfo=dt.timezone.utc)
    return (since + dt.timedelta(milliseconds=ms)).isoformat()


def _id(number: int) -> LedgerId:
    from wire.ids import LedgerId

    return LedgerId(number)


async def _of_topic(client: Client, topic: str) -> list[TopicLedger]:
    """Return the ledgers of all partitions of a topic."""
    from bkclient.topic.names import parse_topic
    from bkclient.topic.topics_in_metadata import parts_of, topic_ledgers

    found: list[TopicLedger] = []
    for part in await parts_of(client, parse_topic(topic)):
        found += (await topic_ledgers(client, part)).ledgers
    return found


def joined(ranges: tuple[IdRange, ...]) -> list[IdRange]:
    """Return the ids as ascending ranges that do not overlap."""
    found: list[IdRange] = []
    for first, last in sorted(ranges):
        if found and first <= found[-1][1]:
            found[-1] = (found[-1][0], max(last, found[-1][1]))
        else:
            found.append((first, last))
    return found


# Values ----------------------------------------------------------------------------------------


def parse_ledgers(value: str) -> tuple[IdRange, ...]:
    """Return the ranges in a list such as ``1-100,205``.

    Raises:
        ValueError: the text is not a list of ids and ranges.
    """
    ranges: list[IdRange] = []
    for word in value.split(","):
        match = re.fullmatch(r"(\d{1,19})(?:-(\d{1,19}))?", word.strip())
        if match is None:
            raise ValueError(f"{word.strip()!r} is not a ledger id or a range such as 1-100")
        first, last = int(match[1]), int(match[2] or match[1])
        if not first <= last <= LEDGER_ID_MAX:
            raise ValueError(f"{word.strip()!r} is not a range of ledger ids, the lower first")
        ranges.append((first, last))
    return tuple(ranges)


def parse_state(value: str) -> LedgerState:
    """Return the state that a word names.

    Raises:
        ValueError: the word is not a state.
    """
    try:
        return LedgerState.of_word(value.strip())
    except KeyError:
        words = [state.word for state in LedgerState]
        raise ValueError(f"is not one of {', '.join(words)}{did_you_mean(value, words)}") from None
