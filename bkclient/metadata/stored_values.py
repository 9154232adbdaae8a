"""Decoders of stored values, shared by all readers of a store."""

from __future__ import annotations

import enum
from collections.abc import Set as AbstractSet
from functools import lru_cache
from typing import Final

import attrs

from bkclient.errors import MetadataSerializationError
from bkclient.metadata import zk_paths
from bkclient.metadata.errors import IncompatibleLayoutError, NotFoundError, NotInitializedError
from bkclient.metadata.versions_and_watches import LayoutInfo, StoredLedger, Version, Versioned
from wire.errors import FormatError, MetadataFormatError
from wire.ids import BookieId, LedgerId
from wire.ledger_metadata import LedgerMetadata, decode_metadata
from wire.records.bookie_service_info import BookieServiceInfo, decode_service_info
from wire.records.layout import LAYOUT_FACTORIES, decode_layout

IDS_AT_ONCE: Final = 10_000
"""Ledger ids in one chunk of a listing."""

INSTANCE_ID_BYTES_MAX: Final = 200


def decode_stored(ledger_id: LedgerId, value: bytes, ctime_ms: int) -> LedgerMetadata:
    """Decode metadata from the store; raise ``MetadataSerializationError`` naming the ledger."""
    try:
        return decode_metadata(value, ctime_ms=ctime_ms)
    except MetadataFormatError as error:
        raise not_readable(ledger_id, error) from error


def not_readable(ledger_id: LedgerId, why: Exception) -> MetadataSerializationError:
    """Return the error of metadata that is damaged or unreadable."""
    return MetadataSerializationError(f"ledger {ledger_id}: {why}")


def as_stored(ledger_id: LedgerId, value: bytes, ctime_ms: int, version: Version) -> StoredLedger:
    """Return a stored ledger, readable or not."""
    try:
        metadata = decode_stored(ledger_id, value, ctime_ms)
    except MetadataSerializationError as error:
        return StoredLedger(ledger_id, None, error)
    return StoredLedger(ledger_id, Versioned(metadata, version))


def decode_registration(bookie_id: BookieId, value: bytes) -> BookieServiceInfo:
    """Decode a registration; raise ``NotFoundError`` for a damaged registration."""
    try:
        return decode_service_info(value, bookie_id)
    except FormatError as error:
        raise NotFoundError(f"bookie {bookie_id} has a damaged registration: {error}") from error


def decode_instance_id(node: str, stored: bytes) -> str:
    """Return the cluster's instance id from ``node``; Java and bookied write a UUID.

    Raises:
        FormatError: the value is empty, too long, or not printable text.
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
        FormatError: the layout is damaged.
        IncompatibleLayoutError: the layout is unknown.
    """
    try:
        factory = decode_layout(stored).factory
    except FormatError as error:
        raise FormatError(f"{zk_paths.LAYOUT} cannot be read: {error}") from error
    for name, known in LAYOUT_FACTORIES.items():
        # Compare the class name only: shading may have moved the class to another package.
        if factory.rpartition(".")[2] in {known.rpartition(".")[2], name}:
            return LayoutInfo(name, factory)
    raise IncompatibleLayoutError(f"unknown layout {factory}")


def layout_in_force(uri: str, stored: LayoutInfo | None, wanted: str | None) -> LayoutInfo:
    """Return the cluster's layout if it is the ``wanted`` one, or if ``wanted`` is None.

    Raises:
        NotInitializedError: the cluster has no layout.
        IncompatibleLayoutError: the cluster has another layout.
    """
    if stored is None:
        raise NotInitializedError(f"{uri}: no layout: there is no cluster here")
    if wanted not in {None, stored.name}:
        raise IncompatibleLayoutError(
            f"{uri}: this cluster's layout is {stored.name}, not {wanted}"
        )
    return stored


class BookieState(enum.Enum):
    """The registration of a bookie."""

    WRITABLE = "writable"
    READ_ONLY = "read-only"
    DOWN = "down"
    """The bookie has a cookie, but is not registered."""


@attrs.frozen
class BookieStatus:
    """One bookie of the cluster; ``info`` has its addresses.

    ``info`` is ``None`` if the bookie is down or its registration cannot be read.
    """

    bookie_id: BookieId
    state: BookieState
    info: BookieServiceInfo | None = None


def bookie_states(
    writable: AbstractSet[BookieId], read_only: AbstractSet[BookieId], known: AbstractSet[BookieId]
) -> dict[BookieId, BookieState]:
    """Return the state of every bookie, by id; ``known`` are the bookies with a cookie.

    A bookie with both registrations is changing its state, and counts as writable.
    """
    found = dict.fromkeys(sorted(writable | read_only | known), BookieState.DOWN)
    found.update(dict.fromkeys(read_only, BookieState.READ_ONLY))
    found.update(dict.fromkeys(writable, BookieState.WRITABLE))
    return found
