"""The small stored records: cookie, layout, registration, under-replicated mark, votes, lists.

Each agrees byte for byte with what BookKeeper 4.18.0 writes (Cookie, LedgerLayout,
BookieServiceInfoUtils, ZkLedgerUnderreplicationManager, ZkLedgerAuditorManager,
AvailabilityOfEntriesOfLedger).
"""

from __future__ import annotations

import re
import struct
from collections.abc import Iterable, Iterator, Mapping
from typing import Final

import attrs

from wire.errors import FormatError
from wire.frames import protobuf, text_form
from wire.ids import BookieId, EntryId
from wire.pb import data_formats_pb2 as pb

# Cookie ----------------------------------------------------------------------------------------

COOKIE_VERSION: Final = 5
_COOKIE_VERSION_MIN: Final = 3
_TEXT_COOKIE_VERSION: Final = 4
_LINES_OF_V3: Final = 4
_INTEGER: Final = re.compile(rb"[+-]?[0-9]{1,9}")


@attrs.frozen
class Cookie:
    """What ties a bookie's directories to its id and its cluster.

    ``journal_dirs`` are the journal directories joined with commas. Directories are the configured
    names. ``index_dirs`` is ``None`` where none are configured: then they are the ledger ones.
    """

    bookie_id: str
    journal_dirs: str
    ledger_dirs: tuple[str, ...]
    index_dirs: tuple[str, ...] | None = None
    instance_id: str | None = None
    layout_version: int = COOKIE_VERSION


@attrs.frozen
class CookieDifference:
    """One field in which two cookies differ: what is configured, and what was found."""

    field: str
    ours: str
    theirs: str


def encode_cookie(cookie: Cookie) -> bytes:
    """Write a cookie in the current version, whatever version it was read in."""
    message = pb.CookieFormat(
        bookieHost=cookie.bookie_id,
        journalDir=cookie.journal_dirs,
        ledgerDirs=_encode_dirs(cookie.ledger_dirs),
    )
    if cookie.instance_id is not None:
        message.instanceId = cookie.instance_id
    if cookie.index_dirs is not None:
        message.indexDirs = _encode_dirs(cookie.index_dirs)
    return b"%d\n" % COOKIE_VERSION + text_form.write(message)


def decode_cookie(data: bytes) -> Cookie:
    """Read a cookie of version 3 to 5. Java takes a higher version for 5; we cannot know.

    Raises:
        FormatError: empty, too old or too new, or a required field is missing.
    """
    first, _, body = data.partition(b"\n")
    if _INTEGER.fullmatch(first.strip()) is None:
        raise FormatError(f"cookie begins with {first[:40]!r}, not with its version")
    version = int(first)
    if version < _COOKIE_VERSION_MIN:
        raise FormatError(f"cookie of version {version} is too old to be read")
    if version > COOKIE_VERSION:
        raise FormatError(f"cookie of version {version} is of a newer release")
    if version < _TEXT_COOKIE_VERSION:
        return _decode_cookie_v3(body, version)
    message = text_form.parse(body, pb.CookieFormat())
    for name in ("bookieHost", "journalDir", "ledgerDirs"):
        if not message.HasField(name):
            raise FormatError(f"cookie has no {name}")
    return Cookie(
        bookie_id=message.bookieHost,
        journal_dirs=message.journalDir,
        ledger_dirs=_decode_dirs(message.ledgerDirs),
        index_dirs=_decode_dirs(message.indexDirs) if message.indexDirs else None,
        instance_id=message.instanceId or None,
        layout_version=version,
    )


def _decode_cookie_v3(body: bytes, version: int) -> Cookie:
    lines = body.decode("utf-8", "replace").replace("\r\n", "\n").split("\n")
    if len(lines) + 1 < _LINES_OF_V3:
        raise FormatError("cookie of version 3 has too few lines")
    return Cookie(lines[0], lines[1], _decode_dirs(lines[2]), layout_version=version)


def _encode_dirs(dirs: Iterable[str]) -> str:
    listed = list(dirs)
    return "\t".join((str(len(listed)), *listed))


def _decode_dirs(text: str) -> tuple[str, ...]:
    count, *dirs = text.split("\t")
    if count != str(len(dirs)):
        raise FormatError(f"cookie lists directories as {text!r}")
    return tuple(dirs)


def cookie_differences(
    ours: Cookie, theirs: Cookie, *, superset: bool = False
) -> list[CookieDifference]:
    """Return in what a stored cookie contradicts the configured one; none: it fits.

    With ``superset`` the configuration may name ledger and index directories that are new.
    """
    found = [
        _difference("bookie id", ours.bookie_id, theirs.bookie_id),
        _difference("journal directories", ours.journal_dirs, theirs.journal_dirs),
        _difference_of_dirs("ledger directories", ours.ledger_dirs, theirs.ledger_dirs, superset),
        _difference_of_dirs(
            "index directories",
            ours.index_dirs or ours.ledger_dirs,
            theirs.index_dirs or theirs.ledger_dirs,
            superset,
        ),
        _difference("instance id", ours.instance_id or "none", theirs.instance_id or "none"),
    ]
    return [difference for difference in found if difference is not None]


def _difference(field: str, ours: str, theirs: str) -> CookieDifference | None:
    return None if ours == theirs else CookieDifference(field, ours, theirs)


def _difference_of_dirs(
    field: str,
    ours: tuple[str, ...],
    theirs: tuple[str, ...],
    superset: bool,  # noqa: FBT001
) -> CookieDifference | None:
    if ours == theirs or (superset and set(ours) >= set(theirs)):
        return None
    return CookieDifference(field, ", ".join(ours), ", ".join(theirs))


# Layout ----------------------------------------------------------------------------------------

_FACTORY: Final = "org.apache.bookkeeper.meta.{}LedgerManagerFactory"
LAYOUT_FACTORIES: Final[dict[str, str]] = {
    "flat": _FACTORY.format("Flat"),
    "legacyhierarchical": _FACTORY.format("LegacyHierarchical"),
    "hierarchical": _FACTORY.format("Hierarchical"),
    "longhierarchical": _FACTORY.format("LongHierarchical"),
}
"""A layout's short name to the Java class that stands for it in the LAYOUT node."""

_LAYOUT_FORMATS: Final = (1, 2)
_LAYOUT: Final = re.compile(rb"(-?[0-9]{1,9})\n([^:\n]*):(-?[0-9]{1,9})(?:\n|\Z)")


@attrs.frozen
class Layout:
    """The LAYOUT node: which Java factory, and its manager version (always 1 so far)."""

    factory: str
    manager_version: int = 1


def encode_layout(layout: Layout) -> bytes:
    """Write the LAYOUT node in format 2."""
    return f"2\n{layout.factory}:{layout.manager_version}".encode()


def decode_layout(data: bytes) -> Layout:
    """Read the LAYOUT node; in format 1 the factory is a short name.

    Raises:
        FormatError: no layout that Java would read.
    """
    match = _LAYOUT.match(data)
    if match is None:
        raise FormatError(f"no ledger layout: {data[:80]!r}")
    layout_format, factory, version = match.groups()
    if int(layout_format) not in _LAYOUT_FORMATS:
        raise FormatError(f"ledger layout of format {int(layout_format)} is unknown")
    return Layout(factory.decode("utf-8", "replace"), int(version))


# Registration ----------------------------------------------------------------------------------

BOOKIE_RPC: Final = "bookie-rpc"
"""The protocol of the endpoint where a bookie serves entries."""

_PORT: Final = re.compile("[0-9]{1,5}")


@attrs.frozen
class Endpoint:
    """One address a bookie listens at."""

    id: str
    port: int
    host: str
    protocol: str
    auth: tuple[str, ...] = ()
    extensions: tuple[str, ...] = ()


@attrs.frozen
class BookieServiceInfo:
    """What a bookie publishes when it registers."""

    endpoints: tuple[Endpoint, ...] = ()
    properties: Mapping[str, str] = attrs.field(factory=dict, hash=False)

    def endpoint(self, protocol: str = BOOKIE_RPC) -> Endpoint | None:
        """Return the first endpoint of a protocol."""
        return next((e for e in self.endpoints if e.protocol == protocol), None)


def encode_service_info(info: BookieServiceInfo) -> bytes:
    """Write a registration; endpoints in order, properties sorted."""
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
    """Read a registration; an empty one means the ``host:port`` of the id itself.

    Raises:
        FormatError: no registration, or an empty one under an id that is no address.
    """
    if not data:
        return BookieServiceInfo((_endpoint_of_id(bookie_id),))
    message = protobuf.parse(pb.BookieServiceInfoFormat, data, FormatError)
    try:
        properties = {_text(key): _text(value) for key, value in message.properties.items()}
    except UnicodeDecodeError as error:  # A map's items are decoded when they are asked for.
        raise FormatError(f"bookie {bookie_id} registered a property that is no UTF-8") from error
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


# Repair ----------------------------------------------------------------------------------------


@attrs.frozen
class UnderreplicatedMark:
    """Which bookies' replicas a ledger lacks, and since when (ms), where that is recorded."""

    replicas: tuple[BookieId, ...] = ()
    ctime_ms: int | None = None


@attrs.frozen
class LockData:
    """Who repairs a ledger: a name for people, in Java a host's."""

    bookie_id: str


@attrs.frozen
class AuditorVote:
    """Who stands for election as auditor."""

    bookie_id: BookieId


@attrs.frozen
class RepairLayout:
    """The layout of the underreplication nodes."""

    type: str
    version: int


REPAIR_LAYOUT: Final = RepairLayout("BASIC", 1)
"""The only one there is."""


def encode_mark(mark: UnderreplicatedMark) -> bytes:
    """Write a mark as the auditor does."""
    message = pb.UnderreplicatedLedgerFormat(replica=list(mark.replicas))
    if mark.ctime_ms is not None:
        message.ctime = mark.ctime_ms
    return text_form.write(message)


def decode_mark(data: bytes) -> UnderreplicatedMark:
    """Read a mark; raise ``FormatError`` where the bytes hold no mark."""
    message = text_form.parse(data, pb.UnderreplicatedLedgerFormat())
    ctime_ms = message.ctime if message.HasField("ctime") else None
    return UnderreplicatedMark(tuple(BookieId(r) for r in message.replica), ctime_ms)


def encode_lock(lock: LockData) -> bytes:
    """Write who holds a repair lock."""
    return text_form.write(pb.LockDataFormat(bookieId=lock.bookie_id))


def decode_lock(data: bytes) -> LockData:
    """Read who holds a repair lock; raise ``FormatError`` where the bytes hold no lock."""
    return LockData(text_form.parse(data, pb.LockDataFormat()).bookieId)


def encode_vote(vote: AuditorVote) -> bytes:
    """Write a vote in the auditor election."""
    return text_form.write(pb.AuditorVoteFormat(bookieId=vote.bookie_id))


def decode_vote(data: bytes) -> AuditorVote:
    """Read a vote; raise ``FormatError`` where the bytes hold no vote."""
    return AuditorVote(BookieId(text_form.parse(data, pb.AuditorVoteFormat()).bookieId))


def encode_repair_layout(layout: RepairLayout) -> bytes:
    """Write the layout of the underreplication nodes."""
    return text_form.write(
        pb.LedgerRereplicationLayoutFormat(type=layout.type, version=layout.version)
    )


def decode_repair_layout(data: bytes) -> RepairLayout:
    """Read that layout; raise ``FormatError`` where the bytes hold no layout."""
    message = text_form.parse(data, pb.LedgerRereplicationLayoutFormat())
    if not message.IsInitialized():
        raise FormatError("the underreplication layout lacks its type or version")
    return RepairLayout(message.type, message.version)


def encode_check_time(time_ms: int) -> bytes:
    """Write when a check last ended; binary, unlike its neighbours."""
    return pb.CheckTimeFormat(checkCTime=time_ms).SerializeToString()


def decode_check_time(data: bytes) -> int | None:
    """Read when a check last ended, in ms; ``None`` where it says nothing."""
    message = protobuf.parse(pb.CheckTimeFormat, data, FormatError)
    return message.checkCTime if message.HasField("checkCTime") else None


# DbLedgerStorage -------------------------------------------------------------------------------


@attrs.frozen
class DbLedger:
    """A row of DbLedgerStorage's ``ledgers`` database (LedgerMetadataIndex)."""

    exists: bool
    fenced: bool
    master_key: bytes = attrs.field(repr=False)
    explicit_lac: bytes | None = None
    limbo: bool = False


def encode_db_ledger(ledger: DbLedger) -> bytes:
    """Write a ledger's row; fields 1 to 3 always."""
    message = pb.DbLedgerFormat(
        exists=ledger.exists, fenced=ledger.fenced, masterKey=ledger.master_key
    )
    if ledger.explicit_lac is not None:
        message.explicitLac = ledger.explicit_lac
    if ledger.limbo:
        message.limbo = True
    return message.SerializeToString()


def decode_db_ledger(data: bytes) -> DbLedger:
    """Read a ledger's row; raise ``FormatError`` where a required field is missing."""
    message = protobuf.parse(pb.DbLedgerFormat, data, FormatError)
    lac = message.explicitLac if message.HasField("explicitLac") else None
    return DbLedger(message.exists, message.fenced, message.masterKey, lac, message.limbo)


# Which entries a bookie holds ------------------------------------------------------------------

_LIST_HEADER: Final = struct.Struct(">ii56x")
_GROUP: Final = struct.Struct(">qqii")
_LIST_VERSION: Final = 0
_ENTRY_ID_MAX: Final = 2**63 - 1


def encode_entry_list(entry_ids: Iterable[int]) -> bytes:
    """Write ascending entry ids as runs, one group a run: Java's encoder finds no periods."""
    groups = [_GROUP.pack(first, first, size, 0) for first, size in _runs(entry_ids)]
    return _LIST_HEADER.pack(_LIST_VERSION, len(groups)) + b"".join(groups)


def _runs(entry_ids: Iterable[int]) -> Iterator[tuple[int, int]]:
    first, size = 0, 0
    for entry_id in entry_ids:
        if size and first <= entry_id < first + size:
            continue  # Twice the same: some storages list an entry once for each copy.
        if size and entry_id == first + size:
            size += 1
            continue
        if size:
            yield first, size
        first, size = entry_id, 1
    if size:
        yield first, size


@attrs.frozen
class EntryList:
    """Which entries a bookie holds, as groups of (first start, last start, size, period)."""

    groups: tuple[tuple[int, int, int, int], ...]

    def __contains__(self, entry_id: int) -> bool:
        for first, last, size, period in self.groups:
            if first <= entry_id < last + size:
                into = (entry_id - first) % period if period else entry_id - first
                if into < size:
                    return True
        return False

    @property
    def count(self) -> int:
        """How many entries the groups have, those in two groups counted twice.

        Not ``len()``: a peer can write a list longer than Python's longest.
        """
        return sum(
            size * ((last - first) // period + 1 if period else 1)
            for first, last, size, period in self.groups
        )

    def __iter__(self) -> Iterator[EntryId]:
        for first, last, size, period in self.groups:
            for start in range(first, last + 1, period or 1):
                yield from map(EntryId, range(start, start + size))
                if not period:
                    break


def decode_entry_list(data: bytes) -> EntryList:
    """Read what ``encode_entry_list`` or Java wrote; periods are honoured.

    Raises:
        FormatError: cut, of a newer version, or with groups that make no sense.
    """
    if len(data) < _LIST_HEADER.size:
        raise FormatError(f"entry list of {len(data)} bytes has no header")
    version, count = _LIST_HEADER.unpack_from(data)
    if version > _LIST_VERSION:
        raise FormatError(f"entry list of version {version} is unknown")
    if count < 0 or len(data) < _LIST_HEADER.size + count * _GROUP.size:
        raise FormatError(f"entry list of {len(data)} bytes cannot hold {count} groups")
    groups = tuple(
        _GROUP.unpack_from(data, _LIST_HEADER.size + k * _GROUP.size) for k in range(count)
    )
    for group in groups:
        if not _makes_sense(*group):
            raise FormatError(f"entry list holds the group {group}")
    return EntryList(groups)


def _makes_sense(first: int, last: int, size: int, period: int) -> bool:
    if not (0 <= first <= last <= _ENTRY_ID_MAX - size and size >= 1):
        return False
    if first == last:
        return period == 0
    return period >= size and (last - first) % period == 0
