"""The registration of a bookie: its endpoints and properties.

``bkclient.connection.pool`` chooses the endpoint that a client connects to.

Agrees byte for byte with BookKeeper 4.18.0, BookieServiceInfoUtils.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Final

import attrs

from wire.errors import FormatError
from wire.frames import protobuf
from wire.ids import BookieId
from wire.pb import data_formats_pb2 as pb

BOOKIE_RPC: Final = "bookie-rpc"
"""The protocol of the endpoint for entries."""

_PORT: Final = re.compile("[0-9]{1,5}")


@attrs.frozen
class Endpoint:
    """One address on which a bookie listens."""

    id: str
    port: int
    host: str
    protocol: str
    auth: tuple[str, ...] = ()
    extensions: tuple[str, ...] = ()


@attrs.frozen
class BookieServiceInfo:
    """The information that a bookie publishes when it registers."""

    endpoints: tuple[Endpoint, ...] = ()
    properties: Mapping[str, str] = attrs.field(factory=dict, hash=False)

    def endpoint(self, protocol: str = BOOKIE_RPC) -> Endpoint | None:
        """Return the first endpoint of a protocol."""
        return next((e for e in self.endpoints if e.protocol == protocol), None)


def encode_service_info(info: BookieServiceInfo) -> bytes:
    """Return a registration; endpoints in order, properties sorted."""
    message = pb.BookieServiceInfoFormat()
    for e in info.endpoints:
        message.endpoints.add(
            id=e.id,
            port=e.port,
            host=e.host,
            protocol=e.protocol,
            auth=list(e.auth),
            extensions=list(e.extensions),
        )
    for key, value in info.properties.items():
        message.properties[key] = value
    return message.SerializeToString(deterministic=True)


def decode_service_info(data: bytes, bookie_id: BookieId) -> BookieServiceInfo:
    """Parse a registration; an empty one means the ``host:port`` of the id itself.

    Raises:
        FormatError: invalid, or empty under an id that is not an address.
    """
    if not data:
        return BookieServiceInfo((_endpoint_of_id(bookie_id),))
    message = protobuf.parse(pb.BookieServiceInfoFormat, data, FormatError)
    try:
        properties = {_text(key): _text(value) for key, value in message.properties.items()}
    except UnicodeDecodeError as error:  # A map's items are decoded at their first use.
        raise FormatError(f"bookie {bookie_id} registered a property that is not UTF-8") from error
    return BookieServiceInfo(tuple(map(_endpoint, message.endpoints)), properties)


def _endpoint(endpoint: pb.BookieServiceInfoFormat.Endpoint) -> Endpoint:
    return Endpoint(
        _text(endpoint.id),
        endpoint.port,
        _text(endpoint.host),
        _text(endpoint.protocol),
        tuple(map(_text, endpoint.auth)),
        tuple(map(_text, endpoint.extensions)),
    )


def _text(value: str | bytes) -> str:
    return protobuf.text(value, FormatError)


def _endpoint_of_id(bookie_id: BookieId) -> Endpoint:
    host, _, port = bookie_id.partition(":")
    if not host or _PORT.fullmatch(port) is None:
        raise FormatError(f"bookie {bookie_id} registered without an address")
    return Endpoint(bookie_id, int(port), host, BOOKIE_RPC)
