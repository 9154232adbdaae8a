"""Requests and responses as values, the same for V2 and V3.

A ``ReplyTo`` has the encoding of a request, so that the answer gets the same encoding. Agrees with
BookKeeper 4.18.0, BookieProtocol and BookkeeperProtocol.
"""

from __future__ import annotations

import enum
from typing import Final, Union

import attrs

from wire.codes import AddFlag, BookieInfoFlag, Operation, ProtocolVersion, ReadFlag, ReturnCode
from wire.frames.entry_packets import NO_PACKETS, Packets
from wire.ids import NO_ENTRY, EntryId, LedgerId


class Signal(enum.Enum):
    """The result of a connection without a complete message."""

    NEED_DATA = enum.auto()


NEED_DATA: Final = Signal.NEED_DATA

_NO_LEDGER: Final = LedgerId(0)


# Requests --------------------------------------------------------------------------------------


@attrs.frozen
class AddRequest:
    """A request to store one entry.

    ``entry`` is an entry packet (ledger id, entry id, LAC, length, digest, payload); the bookie
    stores it under the ids in its first 16 bytes. The answer echoes ``ledger_id`` and ``entry_id``.
    """

    ledger_id: LedgerId
    entry_id: EntryId
    master_key: bytes = attrs.field(repr=False)
    entry: bytes
    flags: AddFlag = AddFlag.NONE


@attrs.frozen
class ReadRequest:
    """A request for one entry; ``NO_ENTRY`` (-1) means the entry with the highest id.

    ``master_key`` is needed with ``ReadFlag.FENCE``. ``previous_lac`` (V3) makes the read a long
    poll that waits up to ``timeout_ms`` until the LAC is higher.
    """

    ledger_id: LedgerId
    entry_id: EntryId
    flags: ReadFlag = ReadFlag.NONE
    master_key: bytes | None = attrs.field(default=None, repr=False)
    previous_lac: int | None = None
    timeout_ms: int | None = None


@attrs.frozen
class BatchReadRequest:
    """A request for entries from ``entry_id`` on: at most ``max_count`` (0: any) and ``max_bytes``.

    V2 only. The answer echoes ``request_id`` and is matched by it.

    ``stride`` asks only for the entries ``entry_id``, ``entry_id + stride``, ...: a stripe of a
    ledger. A bookie without strides, such as Java's, ignores it and answers with consecutive
    entries.
    """

    ledger_id: LedgerId
    entry_id: EntryId
    request_id: int
    max_count: int
    max_bytes: int
    flags: ReadFlag = ReadFlag.NONE
    master_key: bytes | None = attrs.field(default=None, repr=False)
    stride: int = 1


SASL: Final = "sasl"
"""The plugin of SASL's mechanisms."""

AUTH_DISABLED: Final = "AuthDisabledPlugin"
"""The plugin in the answer of a bookie without authentication; it means success."""


@attrs.frozen
class AuthRequest:
    """One token of an authentication; ``payload`` is opaque to the protocol."""

    plugin: str
    payload: bytes = attrs.field(repr=False)


@attrs.frozen
class StartTlsRequest:
    """A request to start TLS (V3 only)."""


@attrs.frozen
class WriteLacRequest:
    """A request to store an explicit LAC (V3 only).

    ``body`` is a LAC packet: ledger id, LAC, digest.
    """

    ledger_id: LedgerId
    lac: int
    master_key: bytes = attrs.field(repr=False)
    body: bytes


@attrs.frozen
class ReadLacRequest:
    """A request for the explicit LAC and the last entry (V3 only)."""

    ledger_id: LedgerId


@attrs.frozen
class ForceLedgerRequest:
    """A request to sync everything that was journalled so far (V3 only)."""

    ledger_id: LedgerId


@attrs.frozen
class BookieInfoRequest:
    """A request for the sizes of the disks (V3 only)."""

    requested: BookieInfoFlag


@attrs.frozen
class ListEntriesRequest:
    """A request for the ids of a ledger's entries on the bookie (V3 only)."""

    ledger_id: LedgerId


@attrs.frozen
class BadRequest:
    """A request that is refused with ``rc``, without closing the connection.

    Examples: an unknown header version, an unsupported V3 operation, an add with an entry packet
    that is too short. ``ReplyTo`` has the encoding of the refusal.
    """

    rc: ReturnCode
    reason: str
    ledger_id: LedgerId = _NO_LEDGER
    entry_id: EntryId = NO_ENTRY


Request = Union[
    AddRequest,
    ReadRequest,
    BatchReadRequest,
    AuthRequest,
    StartTlsRequest,
    WriteLacRequest,
    ReadLacRequest,
    ForceLedgerRequest,
    BookieInfoRequest,
    ListEntriesRequest,
    BadRequest,
]


@attrs.frozen
class ReplyTo:
    """The encoding of a request, for its answer.

    ``header_version`` is the V2 header's version (0, 1 or 2) or the V3 header's. ``txn_id`` is V3's
    and is echoed; in V2 it is 0. ``operation`` is echoed.
    """

    version: ProtocolVersion
    operation: Operation
    header_version: int
    txn_id: int = 0
    priority: int = 0


@attrs.frozen
class ReceivedRequest:
    """A received request, with the encoding for its answer."""

    request: Request
    reply_to: ReplyTo


# Responses -------------------------------------------------------------------------------------


@attrs.frozen
class AddResponse:
    """The answer to an ``AddRequest``."""

    rc: ReturnCode
    ledger_id: LedgerId
    entry_id: EntryId


@attrs.frozen
class ReadResponse:
    """The answer to a ``ReadRequest``; ``entry`` is the packet, ``None`` without one.

    ``max_lac`` and ``lac_update_ms`` (milliseconds since the epoch) exist in V3 only.
    """

    rc: ReturnCode
    ledger_id: LedgerId
    entry_id: EntryId
    entry: bytes | None = None
    max_lac: int | None = None
    lac_update_ms: int | None = None


@attrs.frozen
class BatchReadResponse:
    """The answer to a ``BatchReadRequest``: packets from ``entry_id`` on, ``stride`` ids apart."""

    rc: ReturnCode
    ledger_id: LedgerId
    entry_id: EntryId
    request_id: int
    entries: Packets = NO_PACKETS
    stride: int = 1


@attrs.frozen
class AuthResponse:
    """The bookie's next token. ``rc`` exists in V3 only (V2 closes the connection instead)."""

    rc: ReturnCode
    plugin: str
    payload: bytes = attrs.field(repr=False)


@attrs.frozen
class StartTlsResponse:
    """The answer to a ``StartTlsRequest``."""

    rc: ReturnCode


@attrs.frozen
class WriteLacResponse:
    """The answer to a ``WriteLacRequest``."""

    rc: ReturnCode
    ledger_id: LedgerId


@attrs.frozen
class ReadLacResponse:
    """The last explicit LAC packet and the last entry packet, if they exist."""

    rc: ReturnCode
    ledger_id: LedgerId
    lac_body: bytes | None = None
    last_entry: bytes | None = None


@attrs.frozen
class ForceLedgerResponse:
    """The answer to a ``ForceLedgerRequest``."""

    rc: ReturnCode
    ledger_id: LedgerId


@attrs.frozen
class BookieInfoResponse:
    """Sizes in bytes, summed over the ledger directories; ``None`` if not requested."""

    rc: ReturnCode
    total_bytes: int | None = None
    free_bytes: int | None = None


@attrs.frozen
class ListEntriesResponse:
    """The encoded list of the bookie's entries (``wire.records.entry_list.decode_entry_list``)."""

    rc: ReturnCode
    ledger_id: LedgerId
    availability: bytes | None = None


@attrs.frozen
class ErrorResponse:
    """A V3 answer with a status and no inner response (bad request, not authenticated)."""

    rc: ReturnCode


Response = Union[
    AddResponse,
    ReadResponse,
    BatchReadResponse,
    AuthResponse,
    StartTlsResponse,
    WriteLacResponse,
    ReadLacResponse,
    ForceLedgerResponse,
    BookieInfoResponse,
    ListEntriesResponse,
    ErrorResponse,
]


@attrs.frozen
class Answer:
    """A response as it came in.

    V3 answers are matched by ``(txn_id, operation)``. In V2 ``txn_id`` is 0 and they are matched
    by what they echo: ledger id, entry id and operation; a batch read by its request id.
    """

    response: Response
    operation: Operation
    txn_id: int
