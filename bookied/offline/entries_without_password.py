"""Entries as they are stored, looked at by a tool that has no password and no metadata.

Which digest a ledger has is in its metadata only. CRC32C and CRC32 need no key, so that an entry
says by its own bytes if it has one of them; HMAC and no digest at all cannot be told apart.
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
    """Return the digest that an entry's bytes fit; None if it has another one, or is damaged."""
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
    """Return what lies behind a digest of this kind; not verified."""
    return packet[ENTRY_HEADER_BYTES + _digester(digest).size :]
