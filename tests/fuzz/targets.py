"""Each decoder that takes bytes from a peer, a disk, the metadata service or an operator's file."""

from __future__ import annotations

import base64
import zlib
from collections.abc import Callable, Iterable, Iterator
from itertools import islice
from pathlib import Path
from typing import Any, Final

from twisted.internet.task import Clock

from bkclient.config.findings import ConfigError
from bkclient.config.properties import PropertiesError, parse_properties
from bkclient.errors import IncorrectParameterError, SecurityError
from bkclient.ledger.handover_state import NotHandedOverError, decode_handover
from bkclient.log.errors import LogDamagedError
from bkclient.log.record import decode_record
from bkclient.metadata.sqlite.store import parse_uri as parse_sqlite_uri
from bkclient.metadata.tree.underreplication.repair_nodes import parse_delay
from bkclient.metadata.zk_uri import parse_uri as parse_zookeeper_uri
from bkclient.metadata.zookeeper_reader import frames
from bookied.admin.http.requests_and_replies import BadHttpRequestError, HttpRequest, number
from bookied.config.bookie import load_bookie_config
from bookied.directories.last_journal_note import decode_note
from bookied.directories.status_file import decode_status
from bookied.errors import CorruptError
from bookied.server.rules.deleted_ledgers import FencedDeletions
from bookied.storage.entrylog import format as log_format
from bookied.storage.entrylog.scan import open_scan as open_log
from bookied.storage.entrylog.scan import read_ledgers_map
from bookied.storage.index.index_files.reads import read_index, read_pages
from bookied.storage.index.rocks import format as rocks_format
from bookied.storage.journal import format as journal_format
from bookied.storage.journal import group_format
from bookied.storage.journal import mark as journal_mark
from bookied.storage.journal.group_format import group_head
from bookied.storage.journal.reader import open_scan as open_journal
from tests.bookied.worlds.golden import DIRECTORY
from tests.fuzz import entry_life, security
from tests.fuzz.bookie import FuzzedBookie, FuzzedGuardedBookie, FuzzedTlsBookie, pieces
from tests.fuzz.fuzzer import MEMORY_BYTES, SLOW_S, Target
from tests.wire.vectors import load
from wire.codes import ProtocolVersion
from wire.errors import FormatError, RemoteProtocolError
from wire.frames import bulk_adds, bulk_reads, v2, v3
from wire.frames.varint import decode_varint
from wire.framing import ClientConnection, ServerConnection
from wire.ids import BookieId, LedgerId
from wire.ledger_metadata import decode_metadata
from wire.messages import NEED_DATA
from wire.records.bookie_service_info import decode_service_info
from wire.records.cookie import decode_cookie
from wire.records.entry_list import decode_entry_list
from wire.records.layout import decode_layout
from wire.records.underreplication import (
    decode_check_time,
    decode_lock,
    decode_mark,
    decode_repair_layout,
    decode_vote,
)
from wire.sasl_digest_md5 import AuthenticationError

EVENTS_MAX: Final = 10_000


# What decoders read from --------------------------------------------------------------------------


class MemoryFile:
    """A file of given bytes."""

    def __init__(self, data: bytes) -> None:
        self._data = data

    def read_at(self, offset: int, size: int) -> bytes:
        return self._data[offset : offset + size]

    def read_now(self, offset: int, buffer: bytearray | memoryview) -> int:
        found = self.read_at(offset, len(buffer))
        buffer[: len(found)] = found
        return len(found)

    def read_ahead(self, offset: int, size: int) -> None:
        pass

    def size(self) -> int:
        return len(self._data)

    def next_data(self, offset: int) -> int | None:
        return offset if offset < len(self._data) else None

    def close(self) -> None:
        pass


class OneFile:
    """A disk on which every file has the same bytes."""

    def __init__(self, data: bytes) -> None:
        self._data = data

    def open_read(self, _path: Path) -> MemoryFile:
        return MemoryFile(self._data)


def _on_disk(read: Callable[[Any, Path], object], name: str) -> Callable[[bytes], object]:
    return lambda data: read(OneFile(data), Path(name))


def _all(items: Iterable[object]) -> None:
    for _ in items:
        pass


def _scan_journal(files: Any, path: Path) -> None:
    scan = open_journal(files, path)
    _all(scan)
    scan.residue()


def _scan_log(files: Any, path: Path) -> None:
    scan = open_log(files, path)
    _all(scan)
    scan.require_complete()


def _read_index(data: bytes) -> None:
    file: Any = MemoryFile(data)
    read_index(file, Path("7.idx"))
    _all(read_pages(file))


def _events(connection: Any, data: bytes) -> None:
    for piece in pieces(data):
        connection.receive_data(piece)
        _all(islice(iter(connection.next_event, NEED_DATA), EVENTS_MAX))


def _entry_list(data: bytes) -> None:
    # A peer may claim any number of entries; only what is asked for may cost anything.
    found = decode_entry_list(data)
    assert found.count >= len(list(islice(found, 100)))


def _file_mark(data: bytes) -> None:
    group_format.parse_file_mark(data[: group_format.FILE_MARK_BYTES])


def _group_head(data: bytes) -> None:
    head = group_format.parse_group_head(data, int.from_bytes(data[16:24], "big", signed=True))
    if head is not None:
        group_format.is_complete([data], head, 0)


def _deletions(data: bytes) -> None:
    """Read rows whose checksum is right, as well as bytes as they are."""
    for stored in (data, data + zlib.crc32(data).to_bytes(4, "big")):
        FencedDeletions(Clock()).restore(stored)


def _text(decode: Callable[[str], object]) -> Callable[[bytes], object]:
    return lambda data: decode(data.decode("utf-8", "surrogateescape"))


def _settings(data: bytes) -> None:
    text = data.decode("utf-8", "replace")
    load_bookie_config(parse_properties(text))


# Where to begin -----------------------------------------------------------------------------------


def _strings(value: Any) -> Iterator[bytes]:
    if isinstance(value, dict):
        for one in value.values():
            yield from _strings(one)
    elif isinstance(value, list):
        for one in value:
            yield from _strings(one)
    elif isinstance(value, str):
        try:
            yield bytes.fromhex(value)
        except ValueError:
            try:
                yield base64.b64decode(value, validate=True)
            except ValueError:
                yield value.encode()


def _golden(name: str) -> tuple[bytes, ...]:
    return tuple({one: None for one in _strings(load(name)) if len(one) <= 4096})


def _golden_files(pattern: str) -> tuple[bytes, ...]:
    found = (path.read_bytes() for path in sorted(DIRECTORY.rglob(pattern)) if path.is_file())
    return tuple({data.rstrip(b"\0")[: 32 * 1024]: None for data in found})


_FRAMES: Final = _golden("wire.json")
_PAYLOADS: Final = tuple(frame[4:] for frame in _FRAMES)
_STREAMS: Final = tuple(b"\1" + frame for frame in _FRAMES)
_STORED: Final = _golden("metadata.json")
_SETTINGS: Final = (
    b"metadataServiceUri=sqlite:///x\njournalDirectories=/j\nledgerDirectories=/l\n",
    b"bookiePort : 3181\n# a\nzkTimeout=${sys:user.name}\na\\u0041 b\\\n  c\n",
    b"indexDirectories=a,b\\,c\nserverFrameTimeoutMs=5\njournalMaxGroupWaitMSec=2\n",
    b"isThrottleByBytes=yes\nmajorCompactionThreshold=0.8\n",
)
_JSON: Final = (b'{"v":1,"last":5,"length":7}', b'{"isForceGC":true}')
_ZOOKEEPER_NAMES: Final = bytes(19) + b"\1\0\0\0\4name"
_RECORD: Final = (
    (
        b'{"v":1,"ledgers":[[1,2],[3,4]],"trimmed":0,"sealed":false,"options":{"ensemble_size":3,'
        b'"write_quorum":3,"ack_quorum":2,"digest_type":"CRC32C","password":"cHc=","roll_bytes":1,'
        b'"roll_entries":1,"roll_s":1.5}}'
    ),
)
_P: Final = Path("file")
_B: Final = BookieId("b1:3181")


def _deletions_seeds() -> tuple[bytes, ...]:
    kept = FencedDeletions(Clock())
    seeds = []
    for ledger_id in range(3):
        kept.remember(LedgerId(ledger_id))
        seeds += [kept.encode(), kept.encode()[:-4]]
    return tuple(seeds)


def _journal_seeds() -> tuple[bytes, ...]:
    start = group_format.file_start(6, 5, 4096)
    record = journal_format.entry_record(bytes(24) + b"x")
    head = group_head([record], generation=5, offset=len(start), synced=0, alignment=4096)
    return (*_golden_files("*.txn"), start, start + head + record)


_SERVED: Final = b"journal 1f\nfences kept\n", b"journal none\nfences in doubt to 2a\n"
_DELETIONS: Final = _deletions_seeds()


def _target(
    name: str,
    decode: Callable[[bytes], object],
    errors: type[Exception] | tuple[type[Exception], ...] = (),
    seeds: tuple[bytes, ...] = (b"",),
    memory_bytes: int = MEMORY_BYTES,
    slow_s: float = SLOW_S,
) -> Target:
    named = errors if isinstance(errors, tuple) else (errors,)
    return Target(
        name=name,
        decode=decode,
        errors=named,
        seeds=seeds,
        memory_bytes=memory_bytes,
        slow_s=slow_s,
    )


_ROCKSDB_BYTES: Final = 4 << 30
"""RocksDB's threads take 72 MiB of addresses each, and little memory."""

_LIFE_S: Final = 5.0
"""The whole life of a bookie takes up to 1.2 s, with two starts and all its files."""


_ALL: Final = (
    _target("wire-v2-request", v2.decode_request, RemoteProtocolError, _PAYLOADS),
    _target("wire-v2-response", v2.decode_response, RemoteProtocolError, _PAYLOADS),
    _target("wire-v3-request", v3.decode_request, RemoteProtocolError, _PAYLOADS),
    _target("wire-v3-response", v3.decode_response, RemoteProtocolError, _PAYLOADS),
    _target(
        "wire-server", lambda d: _events(ServerConnection(4096), d), RemoteProtocolError, _STREAMS
    ),
    *(
        _target(
            f"wire-client-{version.name.lower()}",
            lambda d, version=version: _events(ClientConnection(version, 4096), d),
            RemoteProtocolError,
            _STREAMS,
        )
        for version in ProtocolVersion
    ),
    _target("bookie", FuzzedBookie().take, (), _STREAMS),
    _target("bookie-auth", FuzzedGuardedBookie().take, (), (*security.LOGINS, *_STREAMS)),
    _target("life-files", entry_life.live(db=False), (), tuple(entry_life.seeds()), slow_s=_LIFE_S),
    _target(
        "life-db", entry_life.live(db=True), (), tuple(entry_life.seeds()), _ROCKSDB_BYTES, _LIFE_S
    ),
    _target("bookie-tls", FuzzedTlsBookie().take, (), security.UPGRADES),
    _target("digest-md5-challenge", security.challenge, AuthenticationError, security.CHALLENGES),
    _target("digest-md5-response", security.response, AuthenticationError, security.RESPONSES),
    _target("digest-md5-proof", security.proof, AuthenticationError, security.PROOFS),
    _target("jaas", _text(security.jaas), SecurityError, security.JAAS),
    _target("acks-v2", lambda d: bulk_adds.take_acks_v2(bytearray(d)), (), _FRAMES),
    _target("acks-v3", lambda d: bulk_adds.take_acks_v3(bytearray(d)), (), _FRAMES),
    _target("plain-request-v3", lambda d: bulk_reads.match_request_v3(d, 0), (), _FRAMES),
    _target(
        "plain-reads-v2", lambda d: bulk_reads.take_reads_v2(bytearray(d), len(d)), (), _FRAMES
    ),
    _target("varint", decode_varint, FormatError, (b"\x01", b"\xff" * 10)),
    _target("ledger-metadata", decode_metadata, FormatError, _STORED),
    _target("cookie", decode_cookie, FormatError, _STORED),
    _target("layout", decode_layout, FormatError, _STORED),
    _target("service-info", lambda d: decode_service_info(d, _B), FormatError, _STORED),
    _target("mark", decode_mark, FormatError, _STORED),
    _target("lock", decode_lock, FormatError, _STORED),
    _target("vote", decode_vote, FormatError, _STORED),
    _target("repair-layout", decode_repair_layout, FormatError, _STORED),
    _target("check-time", decode_check_time, FormatError, _STORED),
    _target("delay", parse_delay, FormatError, (b"60",)),
    _target("entry-list", _entry_list, FormatError, (*_PAYLOADS, *_STORED)),
    _target("handover", lambda d: decode_handover(LedgerId(7), d), NotHandedOverError, _JSON),
    _target("log-record", lambda d: decode_record("log", d), LogDamagedError, _RECORD),
    _target("last-mark", lambda d: journal_mark.decode_mark(d, _P), CorruptError, (b"\0" * 16,)),
    _target("journal", _on_disk(_scan_journal, "1.txn"), CorruptError, _journal_seeds()),
    _target("file-mark", _file_mark, group_format.FileMarkDamagedError, (b"\0" * 64,)),
    _target("group-head", _group_head, (), (b"\0" * 64,)),
    _target("entry-log", _on_disk(_scan_log, "1.log"), CorruptError, _golden_files("*.log")),
    _target(
        "ledgers-map", _on_disk(read_ledgers_map, "1.log"), CorruptError, _golden_files("*.log")
    ),
    _target(
        "log-header", lambda d: log_format.decode_header(d, _P), CorruptError, (b"BKLO\0\0\0\1",)
    ),
    _target("index-file", _read_index, CorruptError, _golden_files("*.idx")),
    _target("db-ledger-key", lambda d: rocks_format.decode_ledger_key(d, _P), CorruptError),
    _target("db-location-key", lambda d: rocks_format.decode_location_key(d, _P), CorruptError),
    _target("db-number", lambda d: rocks_format.decode_number(d, b"k", _P), CorruptError),
    _target("db-value", lambda d: rocks_format.decode_ledger(d, b"k", _P), CorruptError, _STORED),
    _target("status", lambda d: decode_status(d, _P), CorruptError, (b"1,READ_ONLY,5,true\n",)),
    _target(
        "served",
        decode_note,
        (),
        _SERVED,
    ),
    _target("deletions", _deletions, (), _DELETIONS),
    _target("http-body", lambda d: HttpRequest(body=d).object, BadHttpRequestError, _JSON),
    _target("http-number", _text(lambda text: number(text, "n")), BadHttpRequestError, (b"5",)),
    _target("settings", _settings, (PropertiesError, ConfigError), _SETTINGS),
    _target(
        "uri-zookeeper", _text(parse_zookeeper_uri), IncorrectParameterError, (b"zk+null://h:1/r",)
    ),
    _target("zookeeper-value", frames.data_of, FormatError, (bytes(100),)),
    _target("zookeeper-names", frames.names_of, FormatError, (_ZOOKEEPER_NAMES,)),
    _target("uri-sqlite", _text(parse_sqlite_uri), IncorrectParameterError, (b"sqlite:///x",)),
)

TARGETS: Final = {target.name: target for target in _ALL}
