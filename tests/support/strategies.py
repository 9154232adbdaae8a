"""Random values of every kind that travels or is stored."""

from __future__ import annotations

from hypothesis import strategies as st

from wire.codes import (
    STRIDE_MAX,
    AddFlag,
    BookieInfoFlag,
    DigestType,
    LedgerState,
    ReadFlag,
    ReturnCode,
)
from wire.frames.entry_packets import Packets
from wire.ids import BookieId, EntryId, LedgerId
from wire.ledger_metadata import Fragment, LedgerMetadata
from wire.messages import (
    AddRequest,
    AddResponse,
    AuthRequest,
    AuthResponse,
    BatchReadRequest,
    BatchReadResponse,
    BookieInfoRequest,
    BookieInfoResponse,
    ErrorResponse,
    ForceLedgerRequest,
    ForceLedgerResponse,
    ListEntriesRequest,
    ListEntriesResponse,
    ReadLacRequest,
    ReadLacResponse,
    ReadRequest,
    ReadResponse,
    StartTlsRequest,
    StartTlsResponse,
    WriteLacRequest,
    WriteLacResponse,
)
from wire.records.bookie_service_info import BookieServiceInfo, Endpoint
from wire.records.cookie import Cookie
from wire.records.underreplication import UnderreplicatedMark

i64 = st.integers(-(2**63), 2**63 - 1)
u63 = st.integers(0, 2**63 - 1)
i32 = st.integers(-(2**31), 2**31 - 1)
ledger_ids = u63.map(LedgerId)
entry_ids = u63.map(EntryId)
read_entry_ids = st.one_of(st.just(EntryId(-1)), entry_ids)
master_keys = st.binary(min_size=20, max_size=20)
packets = st.binary(min_size=24, max_size=300)
tokens = st.binary(max_size=60)
words = st.text(max_size=20)
return_codes = st.sampled_from(ReturnCode)
failures = st.sampled_from([rc for rc in ReturnCode if rc is not ReturnCode.EOK])
txn_ids = st.integers(0, 2**64 - 1)
digest_types = st.sampled_from(DigestType)


def _packet_ids(packet: bytes) -> tuple[LedgerId, EntryId]:
    return (
        LedgerId(int.from_bytes(packet[:8], "big", signed=True)),
        EntryId(int.from_bytes(packet[8:16], "big", signed=True)),
    )


@st.composite
def add_requests(draw, *, v2: bool = False) -> AddRequest:
    """V2 takes the ids from the packet and has no deferred sync."""
    packet = draw(packets)
    ids = _packet_ids(packet) if v2 else (draw(ledger_ids), draw(entry_ids))
    flags = draw(st.sampled_from([AddFlag(n) for n in range(4 if v2 else 8)]))
    return AddRequest(*ids, draw(master_keys), packet, flags)


def _read_flags(*, v2: bool) -> st.SearchStrategy[ReadFlag]:
    flags = [ReadFlag.NONE, ReadFlag.FENCE]
    if not v2:
        flags.append(ReadFlag.PIGGYBACK)
    return st.sampled_from([f | p for f in flags for p in (ReadFlag.NONE, ReadFlag.HIGH_PRIORITY)])


@st.composite
def read_requests(draw, *, v2: bool = False) -> ReadRequest:
    flags = draw(_read_flags(v2=v2))
    fences = bool(flags & ReadFlag.FENCE)
    key = draw(master_keys) if fences else None
    if v2:
        return ReadRequest(draw(i64.map(LedgerId)), draw(i64.map(EntryId)), flags, key)
    lac = draw(st.none() | i64)
    return ReadRequest(
        draw(ledger_ids), draw(read_entry_ids), flags, key, lac, draw(st.none() | u63)
    )


@st.composite
def batch_read_requests(draw) -> BatchReadRequest:
    flags = draw(_read_flags(v2=True))
    key = draw(master_keys) if flags & ReadFlag.FENCE else None
    return BatchReadRequest(
        draw(i64.map(LedgerId)),
        draw(i64.map(EntryId)),
        draw(i64),
        draw(i32),
        draw(i64),
        flags,
        key,
        draw(st.integers(1, STRIDE_MAX)),
    )


auth_requests = st.builds(AuthRequest, words, tokens)
v2_requests = st.one_of(
    add_requests(v2=True), read_requests(v2=True), batch_read_requests(), auth_requests
)
v3_requests = st.one_of(
    add_requests(),
    read_requests(),
    auth_requests,
    st.just(StartTlsRequest()),
    st.builds(WriteLacRequest, ledger_ids, i64, master_keys, tokens),
    st.builds(ReadLacRequest, ledger_ids),
    st.builds(ForceLedgerRequest, ledger_ids),
    st.builds(BookieInfoRequest, st.sampled_from([BookieInfoFlag(n) for n in range(4)])),
    st.builds(ListEntriesRequest, ledger_ids),
)

_i64_ids = (i64.map(LedgerId), i64.map(EntryId))
# Code 507 has no V2 number of its own: it leaves as EIO.
_v2_codes = st.sampled_from([rc for rc in ReturnCode if rc is not ReturnCode.EUNKNOWNLEDGERSTATE])
_v2_failures = st.sampled_from(
    [rc for rc in ReturnCode if rc not in (ReturnCode.EOK, ReturnCode.EUNKNOWNLEDGERSTATE)]
)
v2_responses = st.one_of(
    st.builds(AddResponse, _v2_codes, *_i64_ids),
    st.builds(ReadResponse, st.just(ReturnCode.EOK), *_i64_ids, tokens),
    st.builds(ReadResponse, _v2_failures, *_i64_ids),
    st.builds(
        BatchReadResponse,
        st.just(ReturnCode.EOK),
        *_i64_ids,
        i64,
        st.lists(tokens, max_size=4).map(Packets.join),
    ),
    st.builds(BatchReadResponse, _v2_failures, *_i64_ids, i64),
    st.builds(AuthResponse, st.just(ReturnCode.EOK), words, tokens),
)
_maybe_i64 = st.none() | i64
_maybe_bytes = st.none() | tokens
v3_responses = st.one_of(
    st.builds(AddResponse, return_codes, *_i64_ids),
    st.builds(ReadResponse, return_codes, *_i64_ids, _maybe_bytes, _maybe_i64, _maybe_i64),
    st.builds(AuthResponse, st.just(ReturnCode.EOK), words, tokens),
    st.builds(WriteLacResponse, return_codes, _i64_ids[0]),
    st.builds(ReadLacResponse, return_codes, _i64_ids[0], _maybe_bytes, _maybe_bytes),
    st.builds(BookieInfoResponse, return_codes, _maybe_i64, _maybe_i64),
    st.builds(StartTlsResponse, st.just(ReturnCode.EOK)),
    st.builds(ForceLedgerResponse, return_codes, _i64_ids[0]),
    st.builds(ListEntriesResponse, return_codes, _i64_ids[0], _maybe_bytes),
    st.builds(ErrorResponse, failures),
)

bookie_ids = st.builds(
    lambda host, port: BookieId(f"{host}:{port}"),
    st.text("abcxyz019.-_", min_size=1, max_size=12),
    st.integers(1, 65535),
)
custom_metadata = st.dictionaries(words, st.binary(max_size=20), max_size=4)


@st.composite
def ledger_metadata(draw, *, format_version: int = 3) -> LedgerMetadata:
    """Metadata that may be stored; format 1 has no password, custom metadata or ack quorum."""
    size = draw(st.integers(1, 5))
    write_quorum = draw(st.integers(1, size))
    firsts = [0, *sorted(draw(st.sets(st.integers(1, 1000), max_size=3)))]
    fragments = tuple(
        Fragment(
            EntryId(first),
            tuple(draw(st.lists(bookie_ids, min_size=size, max_size=size, unique=True))),
        )
        for first in firsts
    )
    state = draw(st.sampled_from(LedgerState))
    closed = state is LedgerState.CLOSED
    last = draw(st.integers(firsts[-1] - 1, 2**62)) if closed else None
    plain = format_version == 1
    ctime = None if plain else draw(st.none() | st.integers(0, 2**53))
    return LedgerMetadata(
        ensemble_size=size,
        write_quorum=write_quorum,
        ack_quorum=write_quorum if plain else draw(st.integers(1, write_quorum)),
        state=state,
        last_entry_id=None if last is None else EntryId(last),
        length=draw(u63) if closed else 0,
        fragments=fragments,
        digest_type=None if plain else draw(digest_types),
        password=None if plain else draw(st.binary(max_size=12)),
        ctime_ms=ctime,
        store_ctime=ctime is not None,
        custom={} if plain else draw(custom_metadata),
        creator_token=draw(u63) if format_version == 3 else 0,
        format_version=format_version,
    )


_dirs = st.lists(
    st.text(
        st.characters(exclude_characters="\t\n\r", exclude_categories=("Cs",)),
        min_size=1,
        max_size=9,
    )
)
cookies = st.builds(
    Cookie,
    st.text(min_size=1, max_size=20),
    st.text(max_size=20),
    _dirs.map(tuple),
    st.none() | _dirs.filter(bool).map(tuple),
    st.none() | st.text(min_size=1, max_size=20),
)
endpoints = st.builds(
    Endpoint,
    words,
    st.integers(0, 65535),
    words,
    words,
    st.lists(words, max_size=2).map(tuple),
    st.lists(words, max_size=2).map(tuple),
)
service_infos = st.builds(
    BookieServiceInfo,
    st.lists(endpoints, min_size=1, max_size=3).map(tuple),
    st.dictionaries(words, words, max_size=3),
)
marks = st.builds(UnderreplicatedMark, st.lists(bookie_ids, max_size=4).map(tuple), st.none() | u63)
