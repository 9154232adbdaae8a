"""Commands that only look, on a ZooKeeper in memory; without it nothing here needs a reactor."""

from __future__ import annotations

import attrs

from bkclient.metadata import zk_paths
from bkclient.metadata.zk_uri import parse_uri
from bkclient.metadata.zookeeper_reader.read_session import ReadSession
from bkclient.metadata.zookeeper_reader.reader import ZooKeeperReader
from tests.bkclient.metadata.zookeeper_reader.memory_server import Server
from tests.bkctl.support.terminal import FakeHost
from wire.codes import DigestType, LedgerState
from wire.ids import BookieId, EntryId
from wire.ledger_metadata import Fragment, LedgerMetadata, encode_metadata
from wire.records.bookie_service_info import (
    BOOKIE_RPC,
    BookieServiceInfo,
    Endpoint,
    encode_service_info,
)
from wire.records.layout import LAYOUT_FACTORIES, Layout, encode_layout

URI = "zk+hierarchical://host:1/ledgers"
NAMES = tuple(BookieId(f"bookie-{number}:3181") for number in range(4))


class MetadataReaderHost(FakeHost):
    """A host whose cluster is on a server in memory, and which has no client to give."""

    def __init__(self, server: Server, *, tty: bool = False) -> None:
        super().__init__(tty=tty, environ={"PAGER": ""})
        self.server = server

    def metadata_reader(self, uri: str, _config: object) -> ZooKeeperReader:
        parsed = parse_uri(uri)
        session = ReadSession(parsed, timeout_s=10, connect=self.server.connect)
        return ZooKeeperReader(session, parsed)

    def client(self, uri: str, config: object) -> object:  # type: ignore[override]
        raise AssertionError(f"no client is needed for {uri} with {config}")


def cluster(ledgers: int = 3) -> Server:
    """Return a server with ledgers from 1 on, every third of them open, and four bookies.

    One bookie takes adds, one is read-only, two are down.
    """
    nodes = {
        "": b"",
        zk_paths.LAYOUT: encode_layout(Layout(LAYOUT_FACTORIES["hierarchical"])),
        zk_paths.AVAILABLE: b"",
        zk_paths.READ_ONLY: b"",
        zk_paths.registration(NAMES[0], read_only=False): _info(NAMES[0]),
        zk_paths.registration(NAMES[1], read_only=True): _info(NAMES[1]),
        zk_paths.COOKIES: b"",
        **{zk_paths.cookie(name): b"" for name in NAMES},
    }
    for number in range(1, ledgers + 1):
        path = f"/{number:010d}"
        path = f"/{path[1:3]}/{path[3:7]}/L{path[7:]}"
        nodes |= {path[:3]: b"", path[:8]: b"", path: encode_metadata(_metadata(number))}
    return Server.of("/ledgers", nodes)


def _info(name: BookieId) -> bytes:
    host, _, port = name.partition(":")
    return encode_service_info(
        BookieServiceInfo((Endpoint(id="bookie", port=int(port), host=host, protocol=BOOKIE_RPC),))
    )


def _metadata(number: int) -> LedgerMetadata:
    found = LedgerMetadata(
        ensemble_size=2,
        write_quorum=2,
        ack_quorum=2,
        fragments=(Fragment(EntryId(0), (NAMES[number % 4], NAMES[(number + 1) % 4])),),
        digest_type=DigestType.CRC32C,
        password=b"",
        custom={"job": b"%d" % (number % 2)},
    )
    if number % 3 == 0:
        return found
    return attrs.evolve(
        found, state=LedgerState.CLOSED, last_entry_id=EntryId(number), length=number * 1000
    )
