"""What topics, their ledgers and their messages look like."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, Final

import attrs

from bkctl.output.emit import WIDE, Field, Kind, View
from bkctl.output.units import counted, human_bytes
from bkctl.output.views import PAYLOAD

if TYPE_CHECKING:
    from bkclient.topic.lookup import TopicPart
    from bkclient.topic.managed_ledger import TopicLedger
    from bkclient.topic.messages import TopicMessage
    from bkclient.topic.schema import TopicSchema


@attrs.frozen
class TopicSummary:
    """One topic or partition. ``problem`` says why it cannot be read; the rest is None then."""

    topic: str
    ledgers: int | None
    entries: int | None
    size: int | None
    problem: str | None = None


@attrs.frozen
class TopicDetails:
    """One topic or partition, with all that the metadata service knows about it."""

    part: TopicPart
    schema: TopicSchema | None


@attrs.frozen
class TopicLedgerRow:
    """One ledger of a topic; ``is_last`` is the one that a broker may write to."""

    topic: str
    ledger: TopicLedger
    is_last: bool


@attrs.frozen
class TopicMessageRow:
    """One message; ``text`` as in ``EntryRecord``."""

    message: TopicMessage
    text: Any

    @property
    def payload(self) -> bytes | None:
        """The value; None for a tombstone."""
        return self.message.value


@attrs.frozen(kw_only=True)
class TopicExported:
    """What one ``topic export`` wrote."""

    topic: str
    path: str
    messages: int
    size: int


def _state(row: TopicLedgerRow) -> str:
    if row.ledger.is_deleted:
        return "offloaded"
    return "current" if row.is_last else "closed"


def _cursors(details: TopicDetails) -> list[dict[str, Any]]:
    return [
        {
            "name": one.name,
            "acknowledged": None if one.mark_deleted is None else str(one.mark_deleted),
        }
        for one in details.part.cursors
    ]


def _key(row: TopicMessageRow) -> str | None:
    key = row.message.key
    return None if key is None else key.decode(errors="backslashreplace")


def _exported_sentence(done: TopicExported) -> str:
    what = f"{counted(done.messages, 'message')} of {done.topic}"
    return f"wrote {what} to {done.path} ({human_bytes(done.size)})"


_TOPIC: Final = Field("topic", "The topic, or the partition.", lambda v: v.topic)

TOPIC_VIEWS: Final[Mapping[type, View]] = {
    TopicSummary: View(
        "topics",
        (
            _TOPIC,
            Field("ledgers", "Number of its ledgers.", lambda v: v.ledgers, Kind.COUNT),
            Field("entries", "Entries of its closed ledgers.", lambda v: v.entries, Kind.COUNT),
            Field("size", "Bytes of its closed ledgers.", lambda v: v.size, Kind.BYTES),
            Field("problem", "Why its metadata cannot be read.", lambda v: v.problem, rank=1),
        ),
        "topic",
    ),
    TopicDetails: View(
        "topics",
        (
            Field("topic", "The topic, or the partition.", lambda v: str(v.part.topic)),
            Field(
                "ledgers",
                "Number of its ledgers.",
                lambda v: len(v.part.ledgers.ledgers),
                Kind.COUNT,
            ),
            Field(
                "entries", "Entries of its closed ledgers.", lambda v: v.part.entries, Kind.COUNT
            ),
            Field("size", "Bytes of its closed ledgers.", lambda v: v.part.size_bytes, Kind.BYTES),
            Field(
                "terminated",
                "Its last message, if the topic takes no more.",
                lambda v: v.part.ledgers.terminated_at and str(v.part.ledgers.terminated_at),
                rank=1,
            ),
            Field(
                "schema",
                "Type and version of its schema.",
                lambda v: v.schema and f"{v.schema.type} {v.schema.version}",
                rank=1,
            ),
            Field(
                "subscriptions",
                "Each with the message up to which all is acknowledged, where that is in the "
                "metadata.",
                _cursors,
                Kind.NESTED,
                cell=lambda v: " ".join(one.name for one in v.part.cursors) or "-",
            ),
        ),
        "topic",
    ),
    TopicLedgerRow: View(
        "ledgers",
        (
            Field("ledger_id", "The ledger.", lambda v: v.ledger.ledger_id, Kind.LEDGER_ID),
            Field("state", "current, closed or offloaded.", _state, Kind.STATE),
            Field("entries", "Entries, once closed.", lambda v: v.ledger.entries, Kind.COUNT),
            Field("size", "Bytes, once closed.", lambda v: v.ledger.size_bytes, Kind.BYTES),
            Field(
                "closed",
                "When the broker closed it.",
                lambda v: v.ledger.closed_ms or None,
                Kind.TIME_MS,
                rank=1,
            ),
            Field("topic", "The topic, or the partition.", lambda v: v.topic, rank=2),
        ),
        "ledger_id",
    ),
    TopicMessageRow: View(
        "messages",
        (
            Field(
                "message_id",
                "LEDGER:ENTRY, or with the index in a batch.",
                lambda v: str(v.message.message_id),
            ),
            Field("topic", "The topic, or the partition.", lambda v: v.message.topic, rank=WIDE),
            Field("key", "The key.", _key),
            Field(
                "published",
                "When the producer sent it.",
                lambda v: v.message.publish_time_ms,
                Kind.TIME_MS,
            ),
            Field(
                "event_time",
                "The time that the producer gave it.",
                lambda v: v.message.event_time_ms,
                Kind.TIME_MS,
                rank=WIDE,
            ),
            Field(
                "properties",
                "The properties.",
                lambda v: v.message.properties,
                Kind.NESTED,
                rank=2,
                cell=lambda v: (
                    " ".join(f"{key}={text}" for key, text in v.message.properties.items()) or "-"
                ),
            ),
            Field("producer", "The producer.", lambda v: v.message.producer, rank=WIDE),
            Field(
                "sequence_id",
                "The producer's number of the message.",
                lambda v: v.message.sequence_id,
                Kind.COUNT,
                rank=WIDE,
            ),
            Field(
                "encrypted",
                "Whether the value is encrypted.",
                lambda v: v.message.encrypted,
                Kind.FLAG,
                rank=WIDE,
            ),
            Field(
                "null",
                "Whether the message is a tombstone.",
                lambda v: v.message.value is None,
                Kind.FLAG,
                rank=WIDE,
            ),
            *PAYLOAD,
        ),
        "message_id",
    ),
    TopicExported: View(
        "exports",
        (
            _TOPIC,
            Field("path", "The file.", lambda v: v.path),
            Field("messages", "Messages in it.", lambda v: v.messages, Kind.COUNT),
            Field("size", "Bytes of the file.", lambda v: v.size, Kind.BYTES),
        ),
        "path",
        sentence=_exported_sentence,
    ),
}
