"""Names of topics, and the paths of their nodes in Pulsar's metadata store.

Agrees with Pulsar 4.0, TopicName, NamespaceName and Codec. Names with a cluster
(``persistent://tenant/cluster/namespace/topic``) are Pulsar 1's; old clusters still have them.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import ClassVar, Final
from urllib.parse import quote_plus, unquote_plus

import attrs

from bkclient.errors import ClientError
from wire.errors import FormatError


class TopicError(ClientError):
    """The topic could not be read."""


class NoSuchTopicError(TopicError):
    """The metadata service has no topic of this name."""

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

    @classmethod
    def of(cls, topic: object, ledger_id: int, storage: str) -> OffloadedError:
        """Return the error for a ledger of a topic; ``storage`` is the driver, or ""."""
        where = storage or "tiered storage"
        return cls(
            f"ledger {ledger_id} of {topic} is offloaded to {where} and deleted from the bookies"
        )


class TopicFormatError(TopicError, FormatError):
    """Stored bytes of a topic do not have the form that Pulsar writes."""


class CodecMissingError(TopicError):
    """A library that the messages need is not installed."""

    hint: ClassVar[str] = "pip install 'bkctl[pulsar]'"


MANAGED_LEDGERS: Final = "/managed-ledgers"
PARTITIONED_TOPICS: Final = "/admin/partitioned-topics"
SCHEMAS: Final = "/schemas"

NO_PARTITION: Final = -1

_OF_MANAGED_LEDGER: Final = "pulsar/managed-ledger"
_OF_COMPACTED_TOPIC: Final = "pulsar/compactedTopic"

_BROKERS_OWN: Final = frozenset({
    "__change_events", "__transaction_buffer_snapshot", "__transaction_buffer_snapshot_indexes",
    "__transaction_buffer_snapshot_segments",
})  # fmt: skip
_COORDINATORS_OWN: Final = (
    "pulsar/system/transaction_coordinator_assign", "pulsar/system/__transaction_log_",
)  # fmt: skip
_PENDING_ACKS: Final = "__transaction_pending_ack"

_DOMAIN: Final = "persistent"
_SCHEME: Final = f"{_DOMAIN}://"
_NO_NAME: Final = re.compile("[\0\ud800-\udfff]")
_PARTITION: Final = re.compile(r"(?P<topic>.+)-partition-(?P<number>0|[1-9][0-9]{0,8})", re.DOTALL)
_MANAGED_LEDGER: Final = re.compile(
    rf"(?P<namespace>[^/]+/[^/]+(?:/[^/]+)?)/{_DOMAIN}/(?P<topic>[^/]+)"
)


@attrs.frozen(order=True)
class TopicName:
    """The name of a persistent topic or of one partition.

    ``namespace`` is ``tenant/namespace``, or ``tenant/cluster/namespace``. ``local`` is the last
    part, not URL-encoded.
    """

    namespace: str
    local: str

    def __str__(self) -> str:
        return f"{_SCHEME}{self.namespace}/{self.local}"

    @property
    def partition(self) -> int:
        """The number of the partition; ``NO_PARTITION`` for a topic name without one."""
        found = _PARTITION.fullmatch(self.local)
        return NO_PARTITION if found is None else int(found["number"])

    @property
    def is_system(self) -> bool:
        """True if brokers store their own state in the topic, some of it not as messages.

        Agrees with Pulsar 4.0, SystemTopicNames.
        """
        whole = self.partitioned
        return (
            whole.local in _BROKERS_OWN
            or whole.local.endswith(_PENDING_ACKS)
            or f"{whole.namespace}/{whole.local}".startswith(_COORDINATORS_OWN)
        )

    @property
    def partitioned(self) -> TopicName:
        """The partitioned topic of this partition.

        The name itself if it has no partition number.
        """
        found = _PARTITION.fullmatch(self.local)
        return self if found is None else attrs.evolve(self, local=found["topic"])

    def partition_of(self, number: int) -> TopicName:
        """Return the name of a partition."""
        return attrs.evolve(self, local=f"{self.local}-partition-{number}")

    @property
    def managed_ledger(self) -> str:
        """The name of the topic's managed ledger, also stored in the metadata of its ledgers."""
        return f"{self.namespace}/{_DOMAIN}/{encode(self.local)}"

    @property
    def managed_ledger_path(self) -> str:
        """The path of the node with the list of ledgers; subscriptions are its children."""
        return f"{MANAGED_LEDGERS}/{self.managed_ledger}"

    @property
    def partitions_path(self) -> str:
        """The path of the node with the number of partitions; only partitioned topics have it."""
        return f"{PARTITIONED_TOPICS}/{self.managed_ledger}"

    @property
    def schema_path(self) -> str:
        """The path of the node with the schema's position; partitions share the topic's schema."""
        return f"{SCHEMAS}/{self.namespace}/{encode(self.partitioned.local)}"


def parse_topic(text: str) -> TopicName:
    """Parse a topic name; a short name is in ``public/default``, as in Pulsar.

    Raises:
        TopicNameError: the text cannot be the name of a persistent topic.
    """
    rest = text.removeprefix(_SCHEME)
    if "://" in rest:
        raise TopicNameError(f"{text!r} is not a persistent topic: only these are in ledgers")
    parts = rest.split("/", 3)
    if rest == text and len(parts) == 1:
        parts = ["public", "default", *parts]
    least = 3
    if len(parts) < least or not all(parts) or _NO_NAME.search(text):
        raise TopicNameError(f"{text!r} is not a topic: persistent://TENANT/NAMESPACE/TOPIC")
    return TopicName("/".join(parts[:-1]), parts[-1])


def topic_of_managed_ledger(name: str) -> TopicName | None:
    """Return the topic of a managed ledger (``tenant/ns/persistent/topic``); None for others."""
    found = _MANAGED_LEDGER.fullmatch(name)
    return None if found is None else TopicName(found["namespace"], decode(found["topic"]))


def topic_of_ledger(custom: Mapping[str, bytes]) -> TopicName | None:
    """Return the topic in a ledger's custom metadata; None for ledgers of other applications.

    The ledger may have messages, the position of a subscription, or the compacted topic. Agrees
    with Pulsar 4.0, LedgerMetadataUtils.
    """
    if custom.get("application") != b"pulsar":
        return None
    try:
        if _OF_MANAGED_LEDGER in custom:
            return topic_of_managed_ledger(custom[_OF_MANAGED_LEDGER].decode())
        if _OF_COMPACTED_TOPIC in custom:
            return parse_topic(custom[_OF_COMPACTED_TOPIC].decode())
    except (UnicodeDecodeError, TopicNameError):
        return None
    return None


def encode(local: str) -> str:
    """Return a topic's last part encoded for paths, as by Java's URLEncoder."""
    return quote_plus(local, safe="*").replace("~", "%7E")


def decode(encoded: str) -> str:
    """Return a topic's last part, decoded from a path."""
    return unquote_plus(encoded, errors="replace")
