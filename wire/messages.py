"""Requests and responses as values, the same for V2 and V3.

A request names what is wanted; a ``ReplyTo`` remembers how it was asked, so that the answer goes
back in the same coding. Agrees with BookKeeper 4.18.0, BookieProtocol and BookkeeperProtocol.
"""

from __future__ import annotations

import enum
from typing import Final, Union

import attrs

from wire.codes import AddFlag, BookieInfoFlag, Operation, ProtocolVersion, ReadFlag, ReturnCode
from wire.frames.entry_packets import NO_PACKETS, Packets
from wire.ids import NO_ENTRY, EntryId, LedgerId


class Signal(enum.Enum):
    """What a connection says when it has no whole message."""

    NEED_DATA = enum.auto()


NEED_DATA: Final = Signal.NEED_DATA

_NO_LEDGER: Final = LedgerId(0)


# Requests --------------------------------------------------------------------------------------


@attrs.frozen
class AddRequest:
    """Ask a bookie to store one entry.

    ``entry`` is an entry packet (ledger id, entry id, LAC, length, digest, payload); its first 16
    bytes decide what is stored. ``ledger_id`` and ``entry_id`` are what the answer echoes.
    """

    ledger_id: LedgerId
    entry_id: EntryId
    master_key: bytes = attrs.field(repr=False)
    entry: bytes
    flags: AddFlag = AddFlag.NONE


@attrs.frozen
class ReadRequest:
    """Ask for one entry; ``NO_ENTRY`` (-1) asks for the one with the highest id.

    ``master_key`` goes with ``ReadFlag.FENCE``. ``previous_lac`` (V3) makes it a long poll that
    waits up to ``timeout_ms`` for the LAC to pass it.
    """

    ledger_id: LedgerId
    entry_id: EntryId
    flags: ReadFlag = ReadFlag.NONE
    master_key: bytes | None = attrs.field(default=None, repr=False)
    previous_lac: int | None = None
    timeout_ms: int | None = None


@attrs.frozen
class BatchReadRequest:
    """Ask for entries from ``entry_id`` on, up to ``max_count`` (0: no limit) and ``max_bytes``.

    V2 only. ``request_id`` is echoed and is what the answer is matched by.

    ``stride`` asks for entries ``entry_id``, ``entry_id + stride``, ... only: a stripe of a ledger.
    A bookie that does not know strides, as Java's, ignores it and answers without.
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
"""The plugin a bookie answers with that has none, or wants no more; it means success."""


@attrs.frozen
class AuthRequest:
    """One token of an authentication exchange; ``payload`` is opaque to the protocol."""

    plugin: str
    payload: bytes = attrs.field(repr=False)


@attrs.frozen
class StartTlsRequest:
    """Ask to go on in TLS (V3 only)."""


@attrs.frozen
class WriteLacRequest:
    """Store an explicit LAC (V3 only). ``body`` is a LAC packet: ledger id, LAC, digest."""

    ledger_id: LedgerId
    lac: int
    master_key: bytes = attrs.field(repr=False)
    body: bytes


@attrs.frozen
class ReadLacRequest:
    """Ask for the explicit LAC and the last entry (V3 only)."""

    ledger_id: LedgerId


@attrs.frozen
class ForceLedgerRequest:
    """Ask for everything journalled so far to be on disk (V3 only)."""

    ledger_id: LedgerId


@attrs.frozen
class BookieInfoRequest:
    """Ask for disk sizes (V3 only)."""

    requested: BookieInfoFlag


@attrs.frozen
class ListEntriesRequest:
    """Ask which entries of a ledger the bookie holds (V3 only)."""

    ledger_id: LedgerId


@attrs.frozen
class BadRequest:
    """A request that parses but must be refused with ``rc`` rather than by closing.

    Examples: a header version the bookie does not speak, a V3 operation it does not offer, an add
    whose entry packet is too short. ``ReplyTo`` says how to refuse.
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
    """How a request was asked, and so how its answer must be coded.

    ``header_version`` is the V2 header's version (0, 1 or 2) or the V3 header's. ``txn_id`` is
    V3's and is echoed; in V2 it is 0. ``operation`` is what is echoed.
    """

    version: ProtocolVersion
    operation: Operation
    header_version: int
    txn_id: int = 0
    priority: int = 0


@attrs.frozen
class ReceivedRequest:
    """A request as it came in, with what its answer needs."""

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
    """The answer to a ``ReadRequest``; ``entry`` is the packet, ``None`` where there is none.

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
    """Whether TLS may begin."""

    rc: ReturnCode


@attrs.frozen
class WriteLacResponse:
    """The answer to a ``WriteLacRequest``."""

    rc: ReturnCode
    ledger_id: LedgerId


@attrs.frozen
class ReadLacResponse:
    """The last explicit LAC packet and the last entry packet, where there is one."""

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
    """Sizes in bytes, summed over the ledger directories; ``None`` where not asked for."""

    rc: ReturnCode
    total_bytes: int | None = None
    free_bytes: int | None = None


@attrs.frozen
class ListEntriesResponse:
    """The encoded list of entries held (``wire.records.entry_list.decode_entry_list``)."""

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
