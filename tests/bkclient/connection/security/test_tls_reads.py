"""TLS records of a bookie: those of one read reach the channel together, and are not many."""

from __future__ import annotations

from pathlib import Path

from twisted.internet.protocol import Protocol
from twisted.internet.task import Clock

from bkclient.config.client import ClientConfig
from bkclient.config.settings import load
from bkclient.connection.channel import BookieChannel
from bkclient.connection.security.tls_contexts import TlsContexts
from bookied.config.bookie import load_bookie_config
from tests.bookied.worlds.secured_link import AUTHORITY, BOOKIE, CLIENT, conf
from tests.support.certificates import bookie_keys, client_keys, write_pem
from tests.support.tls_link import Link
from wire.ids import BookieId

BYTES = 5000


class HeardChannel(BookieChannel):
    """Keeps how many bytes each call brought."""

    def __init__(self, clock: Clock) -> None:
        super().__init__(clock, BookieId("bookie.example:3181"))
        self.sizes: list[int] = []

    def dataReceived(self, data: bytes) -> None:
        self.sizes.append(len(data))
        super().dataReceived(data)


class InTls:
    """A channel in TLS, and a bookie that sends what it is told to."""

    def __init__(self, directory: Path) -> None:
        clock = Clock()
        bookie = {"metadataServiceUri": "sqlite:///m.db"}
        bookie |= bookie_keys(write_pem(directory / "bookie", BOOKIE, AUTHORITY))
        client = client_keys(write_pem(directory / "client", CLIENT, AUTHORITY))
        config: ClientConfig = load(ClientConfig, conf(client))[0]
        bookie_tls = load_bookie_config(conf(bookie))[0].tls
        assert bookie_tls is not None
        assert config.tls is not None
        self.channel = HeardChannel(clock)
        self.link = Link(self.channel, Protocol(), clock)
        self.clock = clock
        self.link.server.startTLS(TlsContexts(bookie_tls, clock, is_client=False).end())
        end = TlsContexts(config.tls, clock, is_client=True).end("bookie.example")
        greeted: list[None] = []
        self.channel.start_tls(end).addCallback(greeted.append)
        self.link.settle()
        assert greeted

    def send(self, data: bytes, *, record_bytes: int) -> None:
        for at in range(0, len(data), record_bytes):
            self.link.server.write(data[at : at + record_bytes])
            self.clock.advance(0)  # What is written in one turn is one record.
        self.link.settle()


def test_records_of_a_byte_each_are_few_calls_and_each_turn_has_few_records(
    tmp_path: Path,
) -> None:
    in_tls = InTls(tmp_path)
    in_tls.send((2 * BYTES).to_bytes(4, "big") + bytes(BYTES - 4), record_bytes=1)
    assert sum(in_tls.channel.sizes) == BYTES
    assert len(in_tls.channel.sizes) < BYTES / 50
    assert max(in_tls.channel.sizes) <= 512
    assert in_tls.channel.lost is None


def test_large_records_are_read_many_at_a_time(tmp_path: Path) -> None:
    in_tls, size = InTls(tmp_path), 1024 * 1024
    in_tls.send((2 * size).to_bytes(4, "big") + bytes(size - 4), record_bytes=16 * 1024)
    assert sum(in_tls.channel.sizes) == size
    assert max(in_tls.channel.sizes) > 48 * 1024
