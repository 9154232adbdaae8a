"""What stores hold, from bytes to values: what every reader of them agrees on."""

from __future__ import annotations

import enum
from collections.abc import Set as AbstractSet
from functools import lru_cache
from typing import Final

import attrs

from bkclient.errors import MetadataSerializationError
from bkclient.metadata import zk_paths
from bkclient.metadata.api import LayoutInfo, StoredLedger, Version, Versioned
from bkclient.metadata.errors import IncompatibleLayoutError, NotFoundError, NotInitializedError
from wire.errors import FormatError, MetadataFormatError
from wire.ids import BookieId, LedgerId
from wire.ledger_metadata import LedgerMetadata, decode_metadata
from wire.records.layout import LAYOUT_FACTORIES, decode_layout
from wire.records.service_info import BookieServiceInfo, decode_service_info

IDS_AT_ONCE: Final = 10_000
"""How many ids of ledgers are given at a time."""

INSTANCE_ID_BYTES_MAX: Final = 200


def decode_stored(ledger_id: LedgerId, value: bytes, ctime_ms: int) -> LedgerMetadata:
    """Decode metadata from the store; raise ``MetadataSerializationError`` naming the ledger."""
    try:
        return decode_metadata(value, ctime_ms=ctime_ms)
    except MetadataFormatError as error:
        raise not_readable(ledger_id, error) from error


def not_readable(ledger_id: LedgerId, why: Exception) -> MetadataSerializationError:
    """Return the error for metadata that is damaged, or may not be read."""
    return MetadataSerializationError(f"ledger {ledger_id}: {why}")


def as_stored(ledger_id: LedgerId, value: bytes, ctime_ms: int, version: Version) -> StoredLedger:
    """Return a ledger as the store has it, readable or not."""
    try:
        metadata = decode_stored(ledger_id, value, ctime_ms)
    except MetadataSerializationError as error:
        return StoredLedger(ledger_id, None, error)
    return StoredLedger(ledger_id, Versioned(metadata, version))


def decode_registration(bookie_id: BookieId, value: bytes) -> BookieServiceInfo:
    """Decode a registration; one that is damaged counts as none."""
    try:
        return decode_service_info(value, bookie_id)
    except FormatError as error:
        raise NotFoundError(f"bookie {bookie_id} is registered in a wrong way: {error}") from error


def decode_instance_id(node: str, stored: bytes) -> str:
    """Return the id of a cluster, which ``node`` holds; Java and ours write a UUID.

    Raises:
        FormatError: it is empty, too long, or not printable text.
    """
    text = stored.decode(errors="replace")
    if not 0 < len(stored) <= INSTANCE_ID_BYTES_MAX or not text.isprintable() or "\ufffd" in text:
        said = f"{len(stored)} bytes, {text[:36]!r}"
        raise FormatError(f"{node} holds {said}, not the id of a cluster")
    return text


@lru_cache(maxsize=4)
def known_layout(stored: bytes) -> LayoutInfo:
    """Decode a stored layout.

    Raises:
        FormatError: it is damaged.
        IncompatibleLayoutError: it is not one we know.
    """
    try:
        factory = decode_layout(stored).factory
    except FormatError as error:
        raise FormatError(f"{zk_paths.LAYOUT} cannot be read: {error}") from error
    for name, known in LAYOUT_FACTORIES.items():
        # By the last part: the class may have been moved into another package (shading).
        if factory.rpartition(".")[2] in {known.rpartition(".")[2], name}:
            return LayoutInfo(name, factory)
    raise IncompatibleLayoutError(f"unknown layout {factory}")


def layout_in_force(uri: str, stored: LayoutInfo | None, wanted: str | None) -> LayoutInfo:
    """Return the layout of a cluster, where that is the one ``wanted``, or none was.

    Raises:
        NotInitializedError: there is none.
        IncompatibleLayoutError: it is another one.
    """
    if stored is None:
        raise NotInitializedError(f"{uri}: no layout: there is no cluster here")
    if wanted not in {None, stored.name}:
        raise IncompatibleLayoutError(
            f"{uri}: this cluster's layout is {stored.name}, not {wanted}"
        )
    return stored


class BookieState(enum.Enum):
    """What a bookie is registered as."""

    WRITABLE = "writable"
    READ_ONLY = "read-only"
    DOWN = "down"
    """It has a cookie, but is not registered."""


@attrs.frozen
class BookieStatus:
    """One bookie of the cluster; ``info`` says where it listens.

    It is ``None`` when the bookie is down, or registered with what cannot be read.
    """

    bookie_id: BookieId
    state: BookieState
    info: BookieServiceInfo | None = None


def bookie_states(
    writable: AbstractSet[BookieId], read_only: AbstractSet[BookieId], known: AbstractSet[BookieId]
) -> dict[BookieId, BookieState]:
    """Return the state of every bookie, by id; ``known`` are those with a cookie.

    Who is registered both ways is on its way from one to the other, and counts as writable.
    """
    found = dict.fromkeys(sorted(writable | read_only | known), BookieState.DOWN)
    found.update(dict.fromkeys(read_only, BookieState.READ_ONLY))
    found.update(dict.fromkeys(writable, BookieState.WRITABLE))
    return found
