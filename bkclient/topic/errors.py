"""What can go wrong with a Pulsar topic, and what it means for the caller."""

from __future__ import annotations

from typing import ClassVar

from bkclient.errors import ClientError
from wire.errors import FormatError


class TopicError(ClientError):
    """The topic could not be read."""


class NoSuchTopicError(TopicError):
    """The metadata service holds no topic of this name."""

    exit_status: ClassVar[int] = 3
    hint: ClassVar[str] = "`bkctl topic list` shows the topics"


class TopicNameError(TopicError):
    """The text is not the name of a persistent topic."""

    exit_status: ClassVar[int] = 2


class TopicTrimmedError(TopicError):
    """A ledger of the topic was deleted: its messages are gone."""

    exit_status: ClassVar[int] = 3
    hint: ClassVar[str] = "read from the earliest message that is left"


class OffloadedError(TopicError):
    """A ledger of the topic was moved to tiered storage and deleted from the bookies."""

    exit_status: ClassVar[int] = 3
    hint: ClassVar[str] = "only a broker can read offloaded ledgers"


class TopicFormatError(TopicError, FormatError):
    """Stored bytes of a topic do not have the form that Pulsar writes."""


class CodecMissingError(TopicError):
    """A library that these messages need is not installed."""

    hint: ClassVar[str] = "pip install 'bkctl[pulsar]'"
