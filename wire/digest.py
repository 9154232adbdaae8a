"""Entry packets, LAC packets, and the digests that protect them.

An add sends an entry packet, the bookie stores it, and a read returns it:

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

import functools
import hashlib
import hmac
import struct
import zlib
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any, Final, NamedTuple, Protocol

import attrs

from wire.codes import ENTRY_HEADER_BYTES, LAC_HEADER_BYTES, DigestType
from wire.errors import DigestMismatchError, LocalProtocolError
from wire.frames.entry_packets import LENGTH, Packets, even_size
from wire.ids import EntryId, LedgerId

ENTRY_HEADER: Final = struct.Struct(">qqqq")
"""Ledger id, entry id, last add confirmed, length."""

LAC_HEADER: Final = struct.Struct(">qq")
"""Ledger id, last add confirmed."""

_U32: Final = struct.Struct(">I")
_U64: Final = struct.Struct(">Q")


@functools.lru_cache(64)
def master_key(password: bytes) -> bytes:
    """Return the 20-byte key that adds and fencing reads carry (MacDigestManager.genDigest)."""
    return hashlib.sha1(b"ledger" + password, usedforsecurity=False).digest()


def mac_key(password: bytes) -> bytes:
    """Return the 20-byte key of the HMAC digest; it is never sent."""
    return hashlib.sha1(b"mac" + password, usedforsecurity=False).digest()


@attrs.frozen
class EntryHeader:
    """The first 32 bytes of an entry packet; not verified."""

    ledger_id: LedgerId
    entry_id: EntryId
    lac: EntryId
    length: int


@attrs.define
class Entry:
    """A verified entry. ``length`` counts the ledger's payload bytes up to and including it.

    Treat an entry as immutable. The class is not frozen: building a frozen entry takes five times
    as long, a fifth of a client's time for each entry of a batch.
    """

    ledger_id: LedgerId
    entry_id: EntryId
    lac: EntryId
    length: int
    payload: bytes


class VerifiedEntries(NamedTuple):
    """Verified entries of one ledger, in order, as two lists of the same length.

    This form costs least for an entry. ``wire.entry_batch`` makes one buffer of it.
    """

    headers: list[bytes]
    """The headers, 32 bytes each, as ``ENTRY_HEADER`` packs them."""

    payloads: list[bytes]

    @classmethod
    def of(cls, entries: Sequence[Entry]) -> VerifiedEntries:
        """Return the headers and payloads of ``entries``."""
        headers = [ENTRY_HEADER.pack(e.ledger_id, e.entry_id, e.lac, e.length) for e in entries]
        return cls(headers, [entry.payload for entry in entries])

    def entries(self) -> list[Entry]:
        """Return an object for each entry."""
        fields: Iterator[Any] = iter(_all_fields(self.headers))
        return list(map(Entry, fields, fields, fields, fields, self.payloads))


VerifiedById = dict[int, tuple[bytes, bytes]]
"""Header and payload of verified entries of one ledger, by entry id; see ``VerifiedEntries``."""


def _all_fields(headers: Sequence[bytes]) -> tuple[int, ...]:
    """Return the four fields of each header, one header after the other."""
    return struct.unpack(f">{4 * len(headers)}q", b"".join(headers))


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
    """Bytes of the digest in a packet."""

    digest_type: DigestType

    def package(
        self, ledger_id: int, entry_id: int, lac: int, length: int, payload: bytes
    ) -> bytes:
        """Return the entry packet; ``length`` includes this payload."""
        ...

    def verify(self, ledger_id: int, entry_id: int | None, packet: bytes) -> Entry:
        """Return the entry in ``packet``.

        With ``entry_id`` ``None``, of any id (read of the last entry).

        Raises:
            DigestMismatchError: the packet is too short, or has a wrong digest, ledger or entry id.
        """
        ...

    def verify_run(self, ledger_id: int, ids: range, packets: Packets) -> VerifiedEntries:
        """Return the entries with these ids, in order, up to the first that ``verify`` refuses."""
        ...

    def verify_many(self, ledger_id: int, packets: Mapping[int, bytes]) -> VerifiedById:
        """Return the entries that ``verify`` accepts; ``packets`` maps entry ids to packets."""
        ...

    def package_lac(self, ledger_id: int, lac: int) -> bytes:
        """Return a LAC packet: ledger id, LAC, digest over those 16 bytes."""
        ...

    def verify_lac(self, ledger_id: int, packet: bytes) -> EntryId:
        """Return the LAC in a LAC packet.

        Raises:
            DigestMismatchError: the packet is too short, or has a wrong digest or ledger id.
        """
        ...


class _Digester:
    """The digester of one digest type.

    Args:
        digest_type: the digest type.
        size: bytes of its field.
        compute: returns the digest field of an entry's header and payload.
        compute_all: returns the digest fields of many entries, joined; by default ``compute`` does.
    """

    def __init__(
        self,
        digest_type: DigestType,
        size: int,
        compute: Callable[[bytes, bytes], bytes],
        compute_all: Callable[[Sequence[bytes], Sequence[bytes]], bytes] | None = None,
    ) -> None:
        self.digest_type = digest_type
        self.size = size
        self._compute = compute
        self._compute_all = compute_all or self._compute_each
        self._payload_at = ENTRY_HEADER_BYTES + size

    def _compute_each(self, headers: Sequence[bytes], payloads: Sequence[bytes]) -> bytes:
        return b"".join(map(self._compute, headers, payloads))

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
            asked = "the last entry" if entry_id is None else f"entry {entry_id}"
            raise DigestMismatchError(
                f"asked for {asked} of ledger {ledger_id}, "
                f"got entry {found_entry} of ledger {found_ledger}"
            )
        return Entry(
            LedgerId(found_ledger), EntryId(found_entry), EntryId(lac), length, bytes(payload)
        )

    def verify_run(self, ledger_id: int, ids: range, packets: Packets) -> VerifiedEntries:
        sized, payload_at = packets.sized, self._payload_at
        spans = _spans(packets, payload_at)[: len(ids)]
        headers = [sized[at : at + ENTRY_HEADER_BYTES] for at, _ in spans]
        payloads = [sized[at + payload_at : end] for at, end in spans]
        digests = [sized[at + ENTRY_HEADER_BYTES : at + payload_at] for at, _ in spans]
        wanted = tuple(ids[: len(spans)])
        if not self._are_good(ledger_id, wanted, headers, digests, payloads):
            good = self._count_good(ledger_id, wanted, [sized[at:end] for at, end in spans])
            del headers[good:], payloads[good:]
        return VerifiedEntries(headers, payloads)

    def verify_many(self, ledger_id: int, packets: Mapping[int, bytes]) -> VerifiedById:
        payload_at = self._payload_at
        long = {one: packet for one, packet in packets.items() if len(packet) >= payload_at}
        headers = [packet[:ENTRY_HEADER_BYTES] for packet in long.values()]
        payloads = [packet[payload_at:] for packet in long.values()]
        digests = [packet[ENTRY_HEADER_BYTES:payload_at] for packet in long.values()]
        found = dict(zip(long, zip(headers, payloads, strict=True), strict=True))
        if not self._are_good(ledger_id, tuple(long), headers, digests, payloads):
            for entry_id, packet in long.items():
                if not self._count_good(ledger_id, (entry_id,), (packet,)):
                    del found[entry_id]
        return found

    def _are_good(
        self,
        ledger_id: int,
        ids: tuple[int, ...],
        headers: Sequence[bytes],
        digests: Sequence[bytes],
        payloads: Sequence[bytes],
    ) -> bool:
        """Return whether ``verify`` would accept all of these entries; none is too short."""
        fields = _all_fields(headers)
        return (
            b"".join(digests) == self._compute_all(headers, payloads)
            and fields[1::4] == ids
            and fields[0::4].count(ledger_id) == len(ids)
        )

    def _count_good(self, ledger_id: int, ids: Sequence[int], packets: Sequence[bytes]) -> int:
        """Return the number of valid packets before the first invalid one."""
        for count, (entry_id, packet) in enumerate(zip(ids, packets, strict=True)):
            try:
                self.verify(ledger_id, entry_id, packet)
            except DigestMismatchError:
                return count
        return len(packets)

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


@functools.lru_cache(64)  # Ledgers with the same type and password often follow each other.
def digester(digest_type: DigestType, password: bytes) -> Digester:
    """Return the digester for a ledger's digest type and password."""
    if digest_type is DigestType.CRC32C:
        # Its import reads package metadata, which delays the start of commands that need no digest.
        from crc32c import crc32c

        return _checksum(digest_type, _U32, crc32c)
    if digest_type is DigestType.CRC32:
        return _checksum(digest_type, _U64, zlib.crc32)
    if digest_type is DigestType.MAC:
        return _Digester(digest_type, 20, _hmac_sha1(mac_key(password)))
    if digest_type is DigestType.DUMMY:
        return _Digester(digest_type, 0, lambda _head, _payload: b"")
    raise LocalProtocolError(f"no digest type {digest_type!r}")


def _checksum(digest_type: DigestType, field: struct.Struct, crc: _Crc) -> _Digester:
    """Return the digester of a checksum; for many entries it runs no line of Python for each."""

    def compute(head: bytes, payload: bytes) -> bytes:
        return field.pack(crc(payload, crc(head)))

    def compute_all(headers: Sequence[bytes], payloads: Sequence[bytes]) -> bytes:
        many = struct.Struct(f">{len(payloads)}{field.format[-1]}")
        return many.pack(*map(crc, payloads, map(crc, headers)))

    return _Digester(digest_type, field.size, compute, compute_all)


class _Crc(Protocol):
    """A checksum function that continues from the value of the bytes before."""

    def __call__(self, data: bytes, value: int = 0, /) -> int: ...


def _hmac_sha1(key: bytes) -> Callable[[bytes, bytes], bytes]:
    keyed = hmac.new(key, digestmod=hashlib.sha1)

    def compute(head: bytes, payload: bytes) -> bytes:
        mac = keyed.copy()
        mac.update(head)
        mac.update(payload)
        return mac.digest()

    return compute


def _spans(packets: Packets, bytes_min: int) -> list[tuple[int, int]]:
    """Return the begin and end of each packet, up to the first that is too short."""
    sized, length_at = packets.sized, LENGTH.unpack_from
    if (size := even_size(sized)) is not None:
        step = LENGTH.size + size
        begins = range(LENGTH.size, len(sized), step)
        ends = range(step, len(sized) + 1, step)
        return list(zip(begins, ends, strict=True)) if size >= bytes_min else []
    spans: list[tuple[int, int]] = []
    at = 0
    for _ in range(packets.count):
        begin = at + LENGTH.size
        at = begin + length_at(sized, at)[0]
        if at - begin < bytes_min:
            break
        spans.append((begin, at))
    return spans
