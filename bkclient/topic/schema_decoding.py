"""Schemas of topics, which Pulsar stores in ledgers, and decoders of values by them.

A node names the entry of the newest schema, and the entries of earlier versions. A message has the
version of its schema as 8 bytes.

Agrees with Pulsar 4.0, BookkeeperSchemaStorage and SchemaRegistryServiceImpl.
"""

from __future__ import annotations

import base64
import contextlib
import io
import json
from collections.abc import Callable, Sequence
from typing import Any, Final

import attrs

from bkclient.client import Client
from bkclient.errors import IncorrectParameterError
from bkclient.metadata.errors import NotFoundError
from bkclient.topic.managed_ledger import MessageId
from bkclient.topic.messages import TopicMessage
from bkclient.topic.names import CodecMissingError, TopicError, TopicFormatError, TopicName
from wire.frames import protobuf
from wire.ids import LedgerId
from wire.pb import pulsar_pb2 as pb

TYPES: Final = (
    "NONE", "NONE", "STRING", "JSON", "PROTOBUF", "AVRO", "BOOLEAN", "INT8", "INT16", "INT32",
    "INT64", "FLOAT", "DOUBLE", "DATE", "TIME", "TIMESTAMP", "KEYVALUE", "INSTANT", "LOCALDATE",
    "LOCALTIME", "LOCALDATETIME", "PROTOBUFNATIVE",
)  # fmt: skip
"""The names of schema types, by stored number."""


def json_text(value: bytes) -> str:
    """Return JSON as text, unchanged: numbers keep their digits, and strings their quotes.

    Raises:
        ValueError: the value is not JSON.
    """
    json.loads(value)
    return value.decode(json.detect_encoding(value))


_PLAIN: Final[dict[str, Callable[[bytes], Any]]] = {
    "string": lambda value: value.decode(),
    "json": json.loads,
}
_VERSION_BYTES: Final = 8
_STEPS_MAX: Final = 1000
"""The most entries that are read to find an early version."""


@attrs.frozen(kw_only=True)
class TopicSchema:
    """One version of a topic's schema.

    ``definition`` is Avro's JSON for JSON, AVRO and PROTOBUF schemas; see ``protobuf_reader`` for
    PROTOBUFNATIVE.
    """

    version: int
    type: str
    definition: bytes
    time_ms: int
    properties: dict[str, str]
    is_deleted: bool


async def read_schema(
    client: Client, topic: TopicName, version: int | None = None
) -> TopicSchema | None:
    """Return a version of a topic's schema, by default the newest; None if it does not exist.

    Raises:
        TopicFormatError: stored bytes are not in Pulsar's form.
        ClientError: the entry with the schema cannot be read.
    """
    try:
        value = (await client.store.read_sibling(topic.schema_path)).value
    except NotFoundError:
        return None
    locator = protobuf.parse(pb.SchemaLocator, value, TopicFormatError)
    index: Sequence[pb.SchemaIndexEntry] = [locator.info, *locator.index]
    for _ in range(_STEPS_MAX):
        wanted = index[0].version if version is None else version
        for one in index:
            if one.version == wanted:
                return _schema(wanted, await _entry(client, one))
        oldest = min(index, key=lambda one: one.version)
        if oldest.version < wanted:
            return None
        index = list((await _entry(client, oldest)).index)
        if not index or min(one.version for one in index) >= oldest.version:
            return None
    return None


async def _entry(client: Client, where: pb.SchemaIndexEntry) -> pb.SchemaEntry:
    place = MessageId(where.position.ledgerId, where.position.entryId)
    with contextlib.closing(
        await client.open_ledger(LedgerId(place.ledger_id), recover=False)
    ) as reader:
        # The broker closes the ledger after its only entry, or died before the close.
        entry = await reader.read_entry(place.entry_id, unconfirmed=not reader.is_closed)
    return protobuf.parse(pb.SchemaEntry, entry.payload, TopicFormatError)


def _schema(version: int, entry: pb.SchemaEntry) -> TopicSchema:
    info = protobuf.parse(pb.SchemaInfo, entry.schemaData, TopicFormatError)
    return TopicSchema(
        version=version,
        type=TYPES[info.type] if 0 <= info.type < len(TYPES) else str(info.type),
        definition=info.schema,
        time_ms=info.timestamp,
        properties={one.key: one.value for one in info.props},
        is_deleted=info.deleted,
    )


class Decoder:
    """A decoder of ``KINDS``; ``avro`` and ``protobuf`` use the topic's schema.

    With ``json_as_text``, a ``json`` value is checked and stays text.

    Raises:
        IncorrectParameterError: the kind is unknown.
    """

    KINDS: Final = ("string", "json", "avro", "protobuf")

    def __init__(
        self, client: Client, topic: TopicName, kind: str, *, json_as_text: bool = False
    ) -> None:
        if kind not in self.KINDS:
            raise IncorrectParameterError(f"{kind!r} is not one of {', '.join(self.KINDS)}")
        self._client, self._topic, self._kind = client, topic, kind
        self._plain = json_text if json_as_text and kind == "json" else _PLAIN.get(kind)
        self._by_version: dict[bytes | None, Callable[[bytes], Any]] = {}

    async def decoded(self, message: TopicMessage) -> TopicMessage:
        """Return a message with ``decoded`` set; a null or encrypted value stays None.

        Raises:
            TopicFormatError: the value cannot be decoded.
            TopicError: the topic has no schema of this kind and version.
            CodecMissingError: the kind is Avro, and fastavro is not installed.
        """
        if message.value is None or message.encrypted:
            return message
        decode = self._plain or await self._by_schema(message.schema_version)
        try:
            return attrs.evolve(message, decoded=decode(message.value))
        except Exception as error:  # fastavro raises any Python exception
            raise TopicFormatError(
                f"{self._topic}: message {message.message_id} cannot be decoded as {self._kind}: "
                f"{error!r}"
            ) from error

    async def _by_schema(self, version: bytes | None) -> Callable[[bytes], Any]:
        if version not in self._by_version:
            number = (
                int.from_bytes(version, "big", signed=True)
                if version is not None and len(version) == _VERSION_BYTES
                else None
            )
            schema = await read_schema(self._client, self._topic, number)
            if schema is None and number is None:
                raise TopicError(
                    f"{self._topic}: the message has no schema: decode it as string or json"
                )
            wanted, reader = _READERS[self._kind]
            if schema is None or schema.type != wanted:
                found = "none" if schema is None else f"a schema of type {schema.type}"
                if self._kind == "protobuf" and schema is not None and schema.type == "PROTOBUF":
                    found += ", which has no descriptors: parse the value with your own class"
                raise TopicError(f"{self._topic}: no {wanted} schema {number}: there is {found}")
            self._by_version[version] = reader(schema.definition)
        return self._by_version[version]


def avro_reader(definition: bytes) -> Callable[[bytes], Any]:
    """Return a decoder of values that were written with an Avro schema.

    Raises:
        TopicFormatError: the definition is not an Avro schema.
        CodecMissingError: the library fastavro is not installed.
    """
    try:
        import fastavro
    except ImportError as error:
        raise CodecMissingError("Avro values need the library fastavro") from error
    try:
        schema = fastavro.parse_schema(json.loads(definition))
    except Exception as error:
        raise TopicFormatError(f"no Avro schema: {error!r}") from error

    def decode(value: bytes) -> Any:
        stream = io.BytesIO(value)
        found = fastavro.schemaless_reader(stream, schema, None)
        if left := len(value) - stream.tell():
            raise ValueError(f"{left} bytes are left: it was written by another schema")
        return found

    return decode


def protobuf_reader(definition: bytes) -> Callable[[bytes], Any]:
    """Return a decoder of values of a PROTOBUFNATIVE schema, to the JSON mapping of Protobuf.

    The definition is JSON: the message's full name, and a Base64 set of files in any order. Agrees
    with Pulsar 4.0, ProtobufNativeSchemaUtils.

    Raises:
        TopicFormatError: the definition has no usable message.
    """
    from google.protobuf import (
        descriptor_database,
        descriptor_pb2,
        descriptor_pool,
        json_format,
        message_factory,
    )

    try:
        stored = json.loads(definition)
        files = descriptor_pb2.FileDescriptorSet.FromString(
            base64.b64decode(stored["fileDescriptorSet"])
        )
        database = descriptor_database.DescriptorDatabase()
        for file in files.file:
            database.Add(file)
        pool = descriptor_pool.DescriptorPool(database)
        kind = message_factory.GetMessageClass(
            pool.FindMessageTypeByName(stored["rootMessageTypeName"])
        )
    except Exception as error:  # the library raises any Python exception
        raise TopicFormatError(f"no Protobuf schema: {error!r}") from error

    def decode(value: bytes) -> Any:
        return json_format.MessageToDict(
            kind.FromString(value),
            always_print_fields_with_no_presence=True,
            preserving_proto_field_name=True,
            descriptor_pool=pool,
        )

    return decode


_READERS: Final = {"avro": ("AVRO", avro_reader), "protobuf": ("PROTOBUFNATIVE", protobuf_reader)}
"""The schema type and the reader for each kind that needs a schema."""
