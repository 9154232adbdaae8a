"""Topics, their ledgers and messages: values and their columns."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

from bkctl.output.units import counted, human_bytes
from bkctl.output.views import PAYLOAD, WIDE, Column, Kind, field, shown

if TYPE_CHECKING:
    from bkclient.topic.managed_ledger import TopicLedger
    from bkclient.topic.messages import TopicMessage
    from bkclient.topic.schema_decoding import TopicSchema
    from bkclient.topic.topics_in_metadata import TopicPart


_TOPIC: Final = Column("topic", "The topic, or the partition.")


@shown("topics", id="topic")
class TopicSummary:
    """One topic or partition. ``problem`` is the error if it cannot be read.

    The rest is None then.
    """

    topic: str = field(_TOPIC)
    ledgers: int | None = field("Number of the topic's ledgers.")
    entries: int | None = field("Number of entries in the topic's closed ledgers.")
    size: int | None = field("Size of the topic's closed ledgers.", kind=Kind.BYTES)
    problem: str | None = field(
        "The error, if the topic's metadata cannot be read.", rank=1, default=None
    )


def _cursors(details: TopicDetails) -> list[dict[str, Any]]:
    return [
        {
            "name": one.name,
            "acknowledged": None if one.mark_deleted is None else str(one.mark_deleted),
        }
        for one in details.part.cursors
    ]


@shown(
    "topics",
    Column("topic", "The topic, or the partition.", lambda v: str(v.part.topic)),
    Column(
        "ledgers",
        "Number of the topic's ledgers.",
        lambda v: len(v.part.ledgers.ledgers),
        Kind.COUNT,
    ),
    Column(
        "entries", "Number of entries in the topic's closed ledgers.", "part.entries", Kind.COUNT
    ),
    Column("size", "Size of the topic's closed ledgers.", "part.size_bytes"),
    Column(
        "terminated",
        "The topic's last message, if the topic was terminated.",
        lambda v: v.part.ledgers.terminated_at and str(v.part.ledgers.terminated_at),
        rank=1,
    ),
    Column(
        "schema",
        "Type and version of the topic's schema.",
        lambda v: v.schema and f"{v.schema.type} {v.schema.version}",
        rank=1,
    ),
    Column(
        "subscriptions",
        "Each subscription, with the last message up to which all are acknowledged, if known.",
        _cursors,
        cell=lambda v: " ".join(one.name for one in v.part.cursors) or "-",
    ),
)
class TopicDetails:
    """One topic or partition, with its data in the metadata service."""

    part: TopicPart
    schema: TopicSchema | None


def _state(row: TopicLedgerRow) -> str:
    if row.ledger.is_deleted:
        return "offloaded"
    return "current" if row.is_last else "closed"


@shown(
    "ledgers",
    Column("ledger_id", "The ledger.", "ledger.ledger_id", Kind.LEDGER_ID, header="LEDGER"),
    Column("state", "current, closed or offloaded.", _state, Kind.STATE),
    Column(
        "entries", "Number of entries, once the ledger is closed.", "ledger.entries", Kind.COUNT
    ),
    Column("size", "Size, once the ledger is closed.", "ledger.size_bytes"),
    Column(
        "closed",
        "Time at which the broker closed the ledger.",
        lambda v: v.ledger.closed_ms or None,
        Kind.TIME_MS,
        rank=1,
    ),
    Column(
        "offloaded_to",
        "Driver of the tiered storage that has a copy of the ledger.",
        lambda v: v.ledger.offloaded_to or None,
        rank=1,
    ),
    Column("topic", "The topic, or the partition.", rank=2),
)
class TopicLedgerRow:
    """One ledger of a topic; a broker may write to the ledger with ``is_last``."""

    topic: str
    ledger: TopicLedger
    is_last: bool


def _key(row: TopicMessageRow) -> str | None:
    key = row.message.key
    return None if key is None else key.decode(errors="backslashreplace")


@shown(
    "messages",
    Column(
        "message_id",
        "The message id, LEDGER:ENTRY[:INDEX].",
        lambda v: str(v.message.message_id),
    ),
    Column("topic", "The topic, or the partition.", "message.topic", rank=WIDE),
    Column("key", "The message's key.", _key),
    Column("published", "Publish time, set by the producer.", "message.publish_time_ms"),
    Column("event_time", "Event time, set by the producer.", "message.event_time_ms", rank=WIDE),
    Column(
        "properties",
        "The message's properties.",
        "message.properties",
        Kind.NESTED,
        rank=2,
        cell=lambda v: (
            " ".join(f"{key}={text}" for key, text in v.message.properties.items()) or "-"
        ),
    ),
    Column("producer", "The producer.", "message.producer", rank=WIDE),
    Column(
        "sequence_id",
        "Sequence number, set by the producer.",
        "message.sequence_id",
        Kind.COUNT,
        rank=WIDE,
    ),
    Column(
        "encrypted", "Whether the value is encrypted.", "message.encrypted", Kind.FLAG, rank=WIDE
    ),
    Column(
        "null",
        "Whether the message is a tombstone.",
        lambda v: v.message.value is None,
        Kind.FLAG,
        rank=WIDE,
    ),
    *PAYLOAD,
    nothing="no confirmed messages",
)
class TopicMessageRow:
    """One message; ``text`` as in ``EntryRecord``."""

    message: TopicMessage
    text: Any

    @property
    def payload(self) -> bytes | None:
        """The value; None for a tombstone."""
        return self.message.value


def _exported_sentence(done: TopicExported) -> str:
    what = f"{counted(done.messages, 'message')} of {done.topic}"
    return f"wrote {what} to {done.path} ({human_bytes(done.size)})"


@shown("exports", kw_only=True, id="path", sentence=_exported_sentence)
class TopicExported:
    """The result of one ``topic export``."""

    topic: str = field(_TOPIC)
    path: str = field("The file.")
    messages: int = field("Number of messages in the file.")
    size: int = field("Size of the file.", kind=Kind.BYTES)
