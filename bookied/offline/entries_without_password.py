"""Digests of stored entries, for tools without a password and without metadata.

Only a ledger's metadata names its digest. CRC32C and CRC32 need no key, so an entry's own bytes
show whether it has one of them. HMAC and no digest cannot be distinguished.
"""

from __future__ import annotations

import functools

from wire.codes import ENTRY_HEADER_BYTES, DigestType
from wire.digest import Digester, digester, header
from wire.errors import DigestMismatchError

_SELF_EVIDENT = (DigestType.CRC32C, DigestType.CRC32)


@functools.cache
def _digester(digest: DigestType) -> Digester:
    return digester(digest, b"")


def find_digest(packet: bytes) -> DigestType | None:
    """Return the checksum that matches an entry's bytes; None if the digest differs or is wrong."""
    if len(packet) < ENTRY_HEADER_BYTES:
        return None
    head = header(packet)
    for digest in _SELF_EVIDENT:
        try:
            _digester(digest).verify(head.ledger_id, head.entry_id, packet)
        except DigestMismatchError:
            continue
        return digest
    return None


def payload_of(packet: bytes, digest: DigestType) -> bytes:
    """Return the payload after a digest of this kind; not verified."""
    return packet[ENTRY_HEADER_BYTES + _digester(digest).size :]
