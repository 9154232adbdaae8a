"""Records of autorecovery: marks, locks, votes, its layout, and the times of its checks.

Agrees byte for byte with BookKeeper 4.18.0,
ZkLedgerUnderreplicationManager and ZkLedgerAuditorManager.
"""

from __future__ import annotations

from typing import Final

import attrs

from wire.errors import FormatError
from wire.frames import protobuf
from wire.ids import BookieId
from wire.pb import data_formats_pb2 as pb
from wire.records import protobuf_text


@attrs.frozen
class UnderreplicatedMark:
    """The bookies whose replicas a ledger lacks, and the time of the mark (ms), if recorded."""

    replicas: tuple[BookieId, ...] = ()
    ctime_ms: int | None = None


@attrs.frozen
class LockData:
    """The owner of a repair lock: a name for people, in Java a host's."""

    bookie_id: str


@attrs.frozen
class AuditorVote:
    """A bookie that stands for election as auditor."""

    bookie_id: BookieId


@attrs.frozen
class RepairLayout:
    """The layout of the underreplication nodes."""

    type: str
    version: int


REPAIR_LAYOUT: Final = RepairLayout("BASIC", 1)
"""The only existing layout."""


def encode_mark(mark: UnderreplicatedMark) -> bytes:
    """Return a mark in the form that the auditor writes."""
    message = pb.UnderreplicatedLedgerFormat(replica=list(mark.replicas))
    if mark.ctime_ms is not None:
        message.ctime = mark.ctime_ms
    return protobuf_text.write(message)


def decode_mark(data: bytes) -> UnderreplicatedMark:
    """Parse a mark; raise ``FormatError`` if the bytes are invalid."""
    message = protobuf_text.parse(data, pb.UnderreplicatedLedgerFormat())
    ctime_ms = message.ctime if message.HasField("ctime") else None
    return UnderreplicatedMark(tuple(BookieId(r) for r in message.replica), ctime_ms)


def encode_lock(lock: LockData) -> bytes:
    """Return the bytes of a repair lock."""
    return protobuf_text.write(pb.LockDataFormat(bookieId=lock.bookie_id))


def decode_lock(data: bytes) -> LockData:
    """Parse a repair lock; raise ``FormatError`` if the bytes are invalid."""
    return LockData(protobuf_text.parse(data, pb.LockDataFormat()).bookieId)


def encode_vote(vote: AuditorVote) -> bytes:
    """Return the bytes of a vote in the auditor election."""
    return protobuf_text.write(pb.AuditorVoteFormat(bookieId=vote.bookie_id))


def decode_vote(data: bytes) -> AuditorVote:
    """Parse a vote; raise ``FormatError`` if the bytes are invalid."""
    return AuditorVote(BookieId(protobuf_text.parse(data, pb.AuditorVoteFormat()).bookieId))


def encode_repair_layout(layout: RepairLayout) -> bytes:
    """Return the layout of the underreplication nodes."""
    return protobuf_text.write(
        pb.LedgerRereplicationLayoutFormat(type=layout.type, version=layout.version)
    )


def decode_repair_layout(data: bytes) -> RepairLayout:
    """Parse that layout; raise ``FormatError`` if the bytes are invalid."""
    message = protobuf_text.parse(data, pb.LedgerRereplicationLayoutFormat())
    if not message.IsInitialized():
        raise FormatError("the underreplication layout lacks its type or version")
    return RepairLayout(message.type, message.version)


def encode_check_time(time_ms: int) -> bytes:
    """Return the end of a check as bytes; binary, unlike the other records."""
    return pb.CheckTimeFormat(checkCTime=time_ms).SerializeToString()


def decode_check_time(data: bytes) -> int | None:
    """Return the end of a check in ms; ``None`` if the bytes have none."""
    message = protobuf.parse(pb.CheckTimeFormat, data, FormatError)
    return message.checkCTime if message.HasField("checkCTime") else None
