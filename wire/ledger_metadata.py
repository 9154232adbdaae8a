"""A ledger's metadata, and its three stored forms.

====== ======================================================================
format body after ``BookieMetadataFormatVersion TAB version LF``
====== ======================================================================
1      lines of text: quorums, length, fragments; no password, no ack quorum
2      LedgerMetadataFormat in protobuf's text form
3      its length as a varint, then LedgerMetadataFormat in binary
====== ======================================================================

Agrees with BookKeeper 4.18.0, LedgerMetadataSerDe, LedgerMetadataImpl and LedgerMetadataBuilder.
"""

from __future__ import annotations

import re
from bisect import bisect_right
from collections.abc import Mapping
from operator import attrgetter
from typing import Any, Final

import attrs

from wire.codes import DigestType, LedgerState
from wire.errors import FormatError, MetadataFormatError
from wire.frames import protobuf
from wire.frames.varint import encode_varint
from wire.ids import NO_ENTRY, BookieId, EntryId, is_valid_bookie_id
from wire.pb import data_formats_pb2 as pb
from wire.records import protobuf_text

NEWEST_FORMAT: Final = 3
_MAGIC: Final = b"BookieMetadataFormatVersion\t"
_NEWEST_HEAD: Final = _MAGIC + b"%d\n" % NEWEST_FORMAT
_VERSION_DIGITS_MAX: Final = 9
_IN_RECOVERY_ENTRY: Final = -102
"""The last entry that format 1 stores for a ledger in recovery."""

_CLOSED_LINE: Final = "CLOSED"
_NUMBER: Final = re.compile("[+-]?[0-9]{1,19}")
_LINE_END: Final = re.compile("\r\n|\r|\n")
_QUORUM_LINES: Final = 3

ENSEMBLE_SIZE_MAX: Final = 1000
"""Java has no limit. Write sets, coverage and placement take time and memory for each member."""

_SHOWN_CHARS_MAX: Final = 64


_FIRST_ENTRY: Final = attrgetter("first_entry_id")


@attrs.frozen
class Fragment:
    """The entries from ``first_entry_id`` up to the next fragment, and the bookies with them."""

    first_entry_id: EntryId
    ensemble: tuple[BookieId, ...]


def _frozen_dict(value: Mapping[str, bytes]) -> dict[str, bytes]:
    return dict(value)


@attrs.frozen(kw_only=True)
class LedgerMetadata:
    """The stored metadata of one ledger.

    ``last_entry_id`` is ``None`` unless the ledger is closed, and -1 for a closed empty ledger.
    ``length`` is in payload bytes, and 0 unless the ledger is closed. ``digest_type`` and
    ``password`` are both set or both ``None`` (format 1). ``ctime_ms`` is written only with
    ``store_ctime``; otherwise it is the store's creation time. With ``creator_token`` a creator
    recognises its own ledger; any rewrite removes it.
    """

    ensemble_size: int
    write_quorum: int
    ack_quorum: int
    state: LedgerState = LedgerState.OPEN
    last_entry_id: EntryId | None = None
    length: int = 0
    fragments: tuple[Fragment, ...]
    digest_type: DigestType | None = None
    password: bytes | None = attrs.field(default=None, repr=False)
    ctime_ms: int | None = None
    store_ctime: bool = False
    custom: Mapping[str, bytes] = attrs.field(factory=dict, converter=_frozen_dict, hash=False)
    creator_token: int = 0
    format_version: int = NEWEST_FORMAT

    @property
    def is_closed(self) -> bool:
        return self.state is LedgerState.CLOSED

    @property
    def last_fragment(self) -> Fragment:
        """The fragment that grows while the ledger is open."""
        return self.fragments[-1]

    @property
    def ensemble(self) -> tuple[BookieId, ...]:
        """The bookies of the last fragment."""
        return self.last_fragment.ensemble

    def fragment_of(self, entry_id: int) -> Fragment:
        """Return the fragment of the entry, which may not be written yet."""
        return self.fragments[max(0, self._number_after(entry_id) - 1)]

    def fragment_end(self, entry_id: int) -> int | None:
        """Return the last entry of the fragment of ``entry_id``; ``None`` for the last fragment."""
        following = self._number_after(entry_id)
        if following == len(self.fragments):
            return None
        return self.fragments[following].first_entry_id - 1

    def _number_after(self, entry_id: int) -> int:
        return bisect_right(self.fragments, entry_id, key=_FIRST_ENTRY)

    def all_bookies(self) -> frozenset[BookieId]:
        """Return every bookie of every fragment."""
        return frozenset(bookie for fragment in self.fragments for bookie in fragment.ensemble)


# Rules -----------------------------------------------------------------------------------------


def _check(metadata: LedgerMetadata) -> LedgerMetadata:
    """Check the rules of Java's reader; return the metadata."""
    m = metadata
    if not 1 <= m.ensemble_size <= ENSEMBLE_SIZE_MAX:
        size = f"ensemble size {m.ensemble_size}; must be 1 to {ENSEMBLE_SIZE_MAX}"
        raise MetadataFormatError(f"ledger metadata: {size}")
    _require(m.ensemble_size >= m.write_quorum, "write quorum above ensemble size")
    _require(m.write_quorum >= m.ack_quorum, "ack quorum above write quorum")
    _require(bool(m.fragments), "no fragment")
    _require(m.is_closed == (m.last_entry_id is not None), "last entry without CLOSED, or without")
    _require((m.digest_type is None) == (m.password is None), "digest type without password")
    before = None
    for fragment in m.fragments:
        if len(fragment.ensemble) != m.ensemble_size:
            raise MetadataFormatError("ledger metadata: fragment of another size than E")
        if before is not None and fragment.first_entry_id <= before:
            raise MetadataFormatError("ledger metadata: fragments do not ascend by entry")
        before = fragment.first_entry_id
        for bookie in fragment.ensemble:
            if not is_valid_bookie_id(bookie):
                shown = repr(bookie[:_SHOWN_CHARS_MAX])
                raise MetadataFormatError(f"ledger metadata: {shown} is not a valid bookie id")
    return m


def encode_for_write(metadata: LedgerMetadata) -> bytes:
    """Return the bytes to store; refuse metadata that a Java peer could not read or rewrite.

    Raises:
        MetadataFormatError: names the broken rule.
    """
    m = _check(metadata)
    _require(m.ack_quorum >= 1, "ack quorum below 1")
    _require(m.fragments[0].first_entry_id == 0, "first fragment does not start at entry 0")
    _require(m.length >= 0, "negative length")
    _require(m.last_entry_id is None or m.last_entry_id >= NO_ENTRY, "last entry below -1")
    for fragment in m.fragments:
        _require(
            len(set(fragment.ensemble)) == len(fragment.ensemble), "a bookie twice in an ensemble"
        )
    if m.last_entry_id is not None:
        last_first = m.last_fragment.first_entry_id
        _require(last_first <= m.last_entry_id + 1, "last fragment starts beyond the end")
    _require(1 <= m.format_version <= NEWEST_FORMAT, f"format {m.format_version}")
    if m.format_version == 1:
        _require(m.ack_quorum == m.write_quorum, "format 1 cannot hold an ack quorum of its own")
    else:  # Java cannot rewrite this ledger without them.
        _require(m.password is not None, "no password and digest type")
    return encode_metadata(metadata)


def _require(holds: bool, rule: str) -> None:  # noqa: FBT001 -- reads as a sentence
    if not holds:
        raise MetadataFormatError(f"ledger metadata: {rule}")


# Bytes -----------------------------------------------------------------------------------------


def encode_metadata(metadata: LedgerMetadata) -> bytes:
    """Return the metadata in its ``format_version``.

    Raises:
        MetadataFormatError: the format does not exist, or a value does not fit its field.
    """
    version = metadata.format_version
    try:
        if version == 1:
            body = _encode_v1(metadata)
        elif version == 2:  # noqa: PLR2004 -- the format's number
            body = protobuf_text.write(_message(metadata))
        elif version == NEWEST_FORMAT:
            body = _encode_v3(metadata)
        else:
            raise MetadataFormatError(f"ledger metadata: format {version} is unknown")
    except ValueError as error:  # A number is out of range, or a key is not text.
        raise MetadataFormatError(f"ledger metadata: {error}") from error
    return _MAGIC + b"%d\n" % version + body


def decode_metadata(data: bytes, *, ctime_ms: int | None = None) -> LedgerMetadata:
    """Parse metadata of any format.

    ``ctime_ms``, the store's creation time, replaces a missing one.

    Raises:
        MetadataFormatError: the bytes are invalid, or break a rule of Java's reader.
    """
    version, body = _split_version(data)
    try:
        if version == 1:
            found = _decode_v1(body)
        elif version == 2:  # noqa: PLR2004 -- the format's number
            found = _from_message(protobuf_text.parse(body, pb.LedgerMetadataFormat()), 2, ctime_ms)
        else:
            found = _from_message(_decode_v3(body), NEWEST_FORMAT, ctime_ms)
        return _check(found)
    except MetadataFormatError:
        raise
    except (FormatError, ValueError) as error:
        raise MetadataFormatError(f"ledger metadata: {error}") from error


def _split_version(data: bytes) -> tuple[int, bytes]:
    if data.startswith(_NEWEST_HEAD):  # The usual format.
        return NEWEST_FORMAT, data[len(_NEWEST_HEAD) :]
    end = data.find(b"\n", len(_MAGIC), len(_MAGIC) + _VERSION_DIGITS_MAX + 1)
    digits = data[len(_MAGIC) : end]
    if not data.startswith(_MAGIC) or end < 0 or not digits.isdigit():
        raise MetadataFormatError("ledger metadata: no format version at the start")
    version = int(digits)
    if not 1 <= version <= NEWEST_FORMAT:
        raise MetadataFormatError(f"ledger metadata: format {version} is unknown")
    return version, data[end + 1 :]


def _encode_v3(metadata: LedgerMetadata) -> bytes:
    message = _message(metadata)
    message.cToken = metadata.creator_token
    binary = message.SerializeToString()
    return encode_varint(len(binary)) + binary


def _decode_v3(body: bytes) -> pb.LedgerMetadataFormat:
    size = shift = at = 0
    while True:
        if at >= len(body) or shift >= 32:  # noqa: PLR2004
            raise MetadataFormatError("ledger metadata: length of the message is cut or too long")
        byte = body[at]
        size |= (byte & 0x7F) << shift
        at, shift = at + 1, shift + 7
        if byte < 0x80:  # noqa: PLR2004 -- the last byte of a varint
            break
    if not 0 < size <= len(body) - at:
        raise MetadataFormatError(f"ledger metadata: message of {size} bytes in {len(body) - at}")
    return protobuf.parse(pb.LedgerMetadataFormat, body[at : at + size], MetadataFormatError)


def _message(metadata: LedgerMetadata) -> pb.LedgerMetadataFormat:
    m = metadata
    message = pb.LedgerMetadataFormat(
        quorumSize=m.write_quorum,
        ensembleSize=m.ensemble_size,
        length=m.length,
        lastEntryId=NO_ENTRY if m.last_entry_id is None else m.last_entry_id,
        state=int(m.state),
        ackQuorumSize=m.ack_quorum,
    )
    for fragment in m.fragments:
        message.segment.add(
            ensembleMember=list(fragment.ensemble), firstEntryId=fragment.first_entry_id
        )
    if m.password is not None and m.digest_type is not None:
        message.digestType = int(m.digest_type)
        message.password = m.password
    if m.store_ctime and m.ctime_ms is not None:
        message.ctime = m.ctime_ms
    for key, value in m.custom.items():
        message.customMetadata.add(key=key, value=value)
    return message


def _from_message(
    message: pb.LedgerMetadataFormat, version: int, ctime_ms: int | None
) -> LedgerMetadata:
    for name in ("state", "quorumSize", "ensembleSize"):
        if not message.HasField(name):
            raise MetadataFormatError(f"ledger metadata: {name} is missing")
    state = _STATES.get(message.state) or LedgerState(message.state)
    closed = state is LedgerState.CLOSED
    _require(not closed or message.HasField("length"), "length is missing")
    has_password = message.HasField("password")
    _require(not has_password or message.HasField("digestType"), "password without digest type")
    ack_quorum = message.ackQuorumSize if message.HasField("ackQuorumSize") else message.quorumSize
    stored_ctime = message.HasField("ctime")
    return LedgerMetadata(
        ensemble_size=message.ensembleSize,
        write_quorum=message.quorumSize,
        ack_quorum=ack_quorum,
        state=state,
        # Java reads a missing one as 0 here, not as empty.
        last_entry_id=EntryId(message.lastEntryId) if closed else None,
        length=message.length if closed else 0,
        # A slice: an iterator over a repeated field takes three times as long.
        fragments=tuple([_fragment(segment) for segment in message.segment[:]]),
        digest_type=_DIGESTS.get(message.digestType) or DigestType(message.digestType)
        if has_password
        else None,
        password=message.password if has_password else None,
        ctime_ms=message.ctime if stored_ctime else ctime_ms,
        store_ctime=stored_ctime,
        custom={_text(pair.key): pair.value for pair in message.customMetadata[:]},
        creator_token=message.cToken,
        format_version=version,
    )


def _fragment(segment: pb.LedgerMetadataFormat.Segment) -> Fragment:
    if not segment.HasField("firstEntryId"):
        raise MetadataFormatError("ledger metadata: a first entry is missing")
    first_entry_id: Any = segment.firstEntryId
    ensemble: Any = tuple(segment.ensembleMember[:])
    for bookie in ensemble:
        if not isinstance(bookie, str):
            _text(bookie)
    return Fragment(first_entry_id, ensemble)


_STATES: Final = {int(state): state for state in LedgerState}
_DIGESTS: Final = {int(digest): digest for digest in DigestType}


def _text(value: str | bytes) -> str:
    return protobuf.text(value, MetadataFormatError)


def _encode_v1(metadata: LedgerMetadata) -> bytes:
    m = metadata
    lines = [f"{m.write_quorum}\n{m.ensemble_size}\n{m.length}\n"]
    lines += ["\t".join((str(f.first_entry_id), *f.ensemble)) + "\n" for f in m.fragments]
    if m.state is LedgerState.CLOSED:
        lines.append(f"{m.last_entry_id}\t{_CLOSED_LINE}")
    elif m.state is LedgerState.IN_RECOVERY:
        lines.append(f"{_IN_RECOVERY_ENTRY}\t{_CLOSED_LINE}")
    return "".join(lines).encode()


def _decode_v1(body: bytes) -> LedgerMetadata:
    lines = _LINE_END.split(body.decode())
    if lines and not lines[-1]:
        lines.pop()
    _require(len(lines) > _QUORUM_LINES, "too few lines")
    write_quorum, ensemble_size, length = map(_number, lines[:_QUORUM_LINES])
    fragments, state, last = [], LedgerState.OPEN, None
    for line in lines[_QUORUM_LINES:]:
        first, *rest = line.split("\t")
        if rest == [_CLOSED_LINE]:
            recovering = _number(first) == _IN_RECOVERY_ENTRY
            state = LedgerState.IN_RECOVERY if recovering else LedgerState.CLOSED
            last = None if recovering else EntryId(_number(first))
            break
        fragments.append(Fragment(EntryId(_number(first)), tuple(map(BookieId, rest))))
    return LedgerMetadata(
        ensemble_size=ensemble_size,
        write_quorum=write_quorum,
        ack_quorum=write_quorum,
        state=state,
        last_entry_id=last,
        length=length if last is not None else 0,
        fragments=tuple(fragments),
        ctime_ms=None,
        format_version=1,
    )


def _number(text: str) -> int:
    # int() also accepts spaces, underscores and the digits of other scripts.
    shown = repr(text[:_SHOWN_CHARS_MAX])
    _require(_NUMBER.fullmatch(text) is not None, f"{shown} is not a number")
    return int(text)
