"""Entry packets, LAC packets, and the digests that protect them.

An entry packet is what travels in an add, is stored, and comes back in a read:

====== ==== =====================================================================
offset size field
====== ==== =====================================================================
0      8    ledger id
8      8    entry id
16     8    last add confirmed known to the writer when it sent the entry; -1: none
24     8    length: payload bytes of the ledger up to and including this entry
32     m    digest over the 32 header bytes and the payload
32+m   rest payload, may be empty
====== ==== =====================================================================

Agrees with BookKeeper 4.18.0, DigestManager and its subclasses, and MacDigestManager.
"""

from __future__ import annotations

import hashlib
import hmac
import struct
import zlib
from collections.abc import Callable
from typing import Final, Protocol

import attrs

from wire.codes import ENTRY_HEADER_BYTES, LAC_HEADER_BYTES, DigestType
from wire.errors import DigestMismatchError, LocalProtocolError
from wire.ids import EntryId, LedgerId
from wire.packets import LENGTH, Packets

ENTRY_HEADER: Final = struct.Struct(">qqqq")
"""Ledger id, entry id, last add confirmed, length."""

LAC_HEADER: Final = struct.Struct(">qq")
"""Ledger id, last add confirmed."""

_SIZED_HEADER: Final = struct.Struct(">iqqqq")
"""The same behind the packet's length."""

_U32: Final = struct.Struct(">I")
_U64: Final = struct.Struct(">Q")


def master_key(password: bytes) -> bytes:
    """Return the 20-byte key that adds and fencing reads carry (MacDigestManager.genDigest)."""
    return hashlib.sha1(b"ledger" + password, usedforsecurity=False).digest()


def mac_key(password: bytes) -> bytes:
    """Return the 20-byte key of the HMAC digest; it is never sent."""
    return hashlib.sha1(b"mac" + password, usedforsecurity=False).digest()


@attrs.frozen
class EntryHeader:
    """The first 32 bytes of an entry packet; nobody has verified them."""

    ledger_id: LedgerId
    entry_id: EntryId
    lac: EntryId
    length: int


@attrs.define
class Entry:
    """A verified entry. ``length`` counts the ledger's payload bytes up to and including it.

    Nobody changes one. It is not frozen since that makes it five times as dear to build, which is
    a fifth of what a client spends on an entry of a batch.
    """

    ledger_id: LedgerId
    entry_id: EntryId
    lac: EntryId
    length: int
    payload: bytes


def header(packet: bytes) -> EntryHeader:
    """Read the header of an entry packet without verifying it.

    Raises:
        DigestMismatchError: the packet is shorter than a header.
    """
    if len(packet) < ENTRY_HEADER_BYTES:
        raise DigestMismatchError(f"entry packet of {len(packet)} bytes is shorter than its header")
    ledger_id, entry_id, lac, length = ENTRY_HEADER.unpack_from(packet)
    return EntryHeader(LedgerId(ledger_id), EntryId(entry_id), EntryId(lac), length)


class Digester(Protocol):
    """Packages and verifies the entries of one ledger password and digest type."""

    size: int
    """Bytes of digest in a packet."""

    digest_type: DigestType

    def package(
        self, ledger_id: int, entry_id: int, lac: int, length: int, payload: bytes
    ) -> bytes:
        """Return the entry packet; ``length`` includes this payload."""
        ...

    def verify(self, ledger_id: int, entry_id: int | None, packet: bytes) -> Entry:
        """Return the entry in ``packet``; ``entry_id`` ``None`` accepts any (read of the last).

        Raises:
            DigestMismatchError: too short, wrong digest, other ledger or other entry.
        """
        ...

    def verify_run(self, ledger_id: int, first: int, packets: Packets) -> list[Entry]:
        """Return entries with ids from ``first`` on, up to the first that ``verify`` refuses."""
        ...

    def package_lac(self, ledger_id: int, lac: int) -> bytes:
        """Return a LAC packet: ledger id, LAC, digest over those 16 bytes."""
        ...

    def verify_lac(self, ledger_id: int, packet: bytes) -> EntryId:
        """Return the LAC in a LAC packet.

        Raises:
            DigestMismatchError: too short, wrong digest or other ledger.
        """
        ...


class _Digester:
    """One digest: ``compute`` gives the digest field of the bytes that it covers."""

    def __init__(
        self, digest_type: DigestType, size: int, compute: Callable[[bytes, bytes], bytes]
    ) -> None:
        self.digest_type = digest_type
        self.size = size
        self._compute = compute
        self._payload_at = ENTRY_HEADER_BYTES + size

    def package(
        self, ledger_id: int, entry_id: int, lac: int, length: int, payload: bytes
    ) -> bytes:
        try:
            head = ENTRY_HEADER.pack(ledger_id, entry_id, lac, length)
        except struct.error as error:
            raise LocalProtocolError(f"entry {entry_id} of ledger {ledger_id}: {error}") from error
        return b"".join((head, self._compute(head, payload), payload))

    def verify(self, ledger_id: int, entry_id: int | None, packet: bytes) -> Entry:
        start = self._payload_at
        if len(packet) < start:
            raise DigestMismatchError(
                f"entry packet of {len(packet)} bytes; {self.digest_type.name} needs {start}"
            )
        head, payload = packet[:ENTRY_HEADER_BYTES], packet[start:]
        if self._compute(head, payload) != packet[ENTRY_HEADER_BYTES:start]:
            raise DigestMismatchError(f"entry fails its {self.digest_type.name} digest")
        found_ledger, found_entry, lac, length = ENTRY_HEADER.unpack(head)
        if found_ledger != ledger_id or (entry_id is not None and found_entry != entry_id):
            raise DigestMismatchError(
                f"asked for entry {entry_id} of ledger {ledger_id}, "
                f"got entry {found_entry} of ledger {found_ledger}"
            )
        return Entry(
            LedgerId(found_ledger), EntryId(found_entry), EntryId(lac), length, bytes(payload)
        )

    def verify_run(self, ledger_id: int, first: int, packets: Packets) -> list[Entry]:
        entries: list[Entry] = []
        sized, compute, unpack = packets.sized, self._compute, _SIZED_HEADER.unpack_from
        length_bytes, head_bytes = LENGTH.size, _SIZED_HEADER.size
        payload_at = length_bytes + self._payload_at
        at = 0
        for wanted in range(first, first + packets.count):
            start = at + payload_at
            if start > len(sized):
                break
            size, found_ledger, entry_id, lac, length = unpack(sized, at)
            head_at, digest_at = at + length_bytes, at + head_bytes
            end = head_at + size
            payload = sized[start:end]
            if (
                compute(sized[head_at:digest_at], payload) != sized[digest_at:start]
                or start > end
                or entry_id != wanted
                or found_ledger != ledger_id
            ):
                break
            entries.append(Entry(found_ledger, entry_id, lac, length, payload))
            at = end
        return entries

    def package_lac(self, ledger_id: int, lac: int) -> bytes:
        try:
            head = LAC_HEADER.pack(ledger_id, lac)
        except struct.error as error:
            raise LocalProtocolError(f"LAC {lac} of ledger {ledger_id}: {error}") from error
        return head + self._compute(head, b"")

    def verify_lac(self, ledger_id: int, packet: bytes) -> EntryId:
        end = LAC_HEADER_BYTES + self.size
        if len(packet) < end:
            raise DigestMismatchError(f"LAC packet of {len(packet)} bytes; expected {end}")
        head = packet[:LAC_HEADER_BYTES]
        if self._compute(head, b"") != packet[LAC_HEADER_BYTES:end]:
            raise DigestMismatchError(f"LAC packet fails its {self.digest_type.name} digest")
        found_ledger, lac = LAC_HEADER.unpack(head)
        if found_ledger != ledger_id:
            raise DigestMismatchError(f"LAC packet of ledger {found_ledger}, not {ledger_id}")
        return EntryId(lac)


def digester(digest_type: DigestType, password: bytes) -> Digester:
    """Return the digester for a ledger's digest type and password."""
    if digest_type is DigestType.CRC32C:
        return _Digester(digest_type, 4, _crc32c())
    if digest_type is DigestType.CRC32:
        return _Digester(digest_type, 8, _crc32)
    if digest_type is DigestType.MAC:
        return _Digester(digest_type, 20, _hmac_sha1(mac_key(password)))
    if digest_type is DigestType.DUMMY:
        return _Digester(digest_type, 0, lambda _head, _payload: b"")
    raise LocalProtocolError(f"no digest type {digest_type!r}")


def _crc32(head: bytes, payload: bytes) -> bytes:
    return _U64.pack(zlib.crc32(payload, zlib.crc32(head)))


def _crc32c() -> Callable[[bytes, bytes], bytes]:
    # Its import reads package metadata: dear at the start of a command that needs no digest.
    from crc32c import crc32c

    def compute(head: bytes, payload: bytes) -> bytes:
        return _U32.pack(crc32c(payload, crc32c(head)))

    return compute


def _hmac_sha1(key: bytes) -> Callable[[bytes, bytes], bytes]:
    keyed = hmac.new(key, digestmod=hashlib.sha1)

    def compute(head: bytes, payload: bytes) -> bytes:
        mac = keyed.copy()
        mac.update(head)
        mac.update(payload)
        return mac.digest()

    return compute
