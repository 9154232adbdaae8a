"""A server that greets as a ZooKeeper does, and then sends what no ZooKeeper sends, or slowly."""

from __future__ import annotations

import contextlib
import socket
import struct
import threading
import time
from collections.abc import Callable, Iterator

import pytest

from bkclient.errors import MetadataStoreError
from bkclient.metadata import open_metadata
from bkclient.metadata.zk_uri import parse_uri
from bkclient.metadata.zookeeper.zookeeper_tree import KazooTree
from tests.support.reactor import call, run, the_reactor
from tests.support.waiting import sessions, until, until_sessions_are_closed

FLOOD_BYTES_MAX = 512 << 20
TAKEN_BYTES_MAX = 64 << 20
SESSION_S, END_S = 1.0, 30.0
BYTE_EVERY_S = 0.05


def welcome(session_ms: int) -> bytes:
    """Return the greeting of a server that claims so long a session."""
    session = struct.pack(">iiiq", 37, 0, session_ms, 0x1234)
    return session + struct.pack(">i16s?", 16, b"p" * 16, False)


WELCOME = welcome(10_000)
NO_NODE = -101
LOGIN = -4
"""The number of the answer to a login."""
CONNECT_REQUESTS = 2
"""What a store asks before it is connected."""
STAT = bytes(68)


def framed(body: bytes) -> bytes:
    return struct.pack(">i", len(body)) + body


def header(xid: int, wrong: int = 0) -> bytes:
    return struct.pack(">iqi", xid, 1, wrong)


class Strange:
    """The server. ``answer`` gets the number of each request.

    ``floods`` has it go on for ever, and ``trickles`` too, with a byte at a time.
    """

    def __init__(
        self, answer: Callable[[int], bytes], *, floods: bool, trickles: bool, welcome: bytes
    ) -> None:
        self._answer, self._floods, self._welcome = answer, floods, welcome
        self._trickles = trickles
        self.flood_bytes = self.clients = self.requests = 0
        self._socket = socket.create_server(("127.0.0.1", 0))
        self.uri = f"zk+hierarchical://127.0.0.1:{self._socket.getsockname()[1]}/ledgers"
        threading.Thread(target=self._run, daemon=True).start()

    def close(self) -> None:
        self._socket.close()

    def _run(self) -> None:
        with contextlib.suppress(OSError):
            while True:
                client, _ = self._socket.accept()
                threading.Thread(target=self._serve, args=(client,), daemon=True).start()

    def _serve(self, client: socket.socket) -> None:
        self.clients += 1
        try:
            self._talk(client)
        finally:
            self.clients -= 1

    def _talk(self, client: socket.socket) -> None:
        with contextlib.suppress(OSError, struct.error), client, client.makefile("rb") as asked:
            asked.read(struct.unpack(">i", asked.read(4))[0])
            client.sendall(self._welcome)
            while True:
                request = asked.read(struct.unpack(">i", asked.read(4))[0])
                xid, operation = struct.unpack_from(">ii", request)
                if operation == 11:  # A ping.
                    client.sendall(framed(header(-2)))
                    continue
                self.requests += 1
                client.sendall(self._answer(xid))
                while self._trickles:
                    client.sendall(b"\0")
                    time.sleep(BYTE_EVERY_S)
                sent_bytes = 0
                while self._floods and sent_bytes < FLOOD_BYTES_MAX:
                    client.sendall(bytes(1 << 16))
                    sent_bytes += 1 << 16
                    self.flood_bytes = max(self.flood_bytes, sent_bytes)


@contextlib.contextmanager
def strange(
    answer: Callable[[int], bytes],
    *,
    floods: bool = False,
    trickles: bool = False,
    welcome: bytes = WELCOME,
) -> Iterator[Strange]:
    server = Strange(answer, floods=floods, trickles=trickles, welcome=welcome)
    try:
        yield server
    finally:
        server.close()


def failure(uri: str, session_timeout_s: float = 10.0) -> str:
    """Return how a question fails."""
    store = call(
        lambda: open_metadata(uri, reactor=the_reactor(), session_timeout_s=session_timeout_s)
    )
    try:
        with pytest.raises(MetadataStoreError) as caught:
            run(_ask(store))
    finally:
        run(store.close())
    return str(caught.value)


async def _ask(store: object) -> None:
    await store.connect()  # type: ignore[attr-defined]
    await store.instance_id()  # type: ignore[attr-defined]


@pytest.mark.parametrize(
    ("answer", "said"),
    [
        (lambda _: struct.pack(">i", -1), "a frame of -1 bytes"),
        (lambda _: b"HTTP/1.1 400 Bad Request\r\n\r\n", "an HTTP response"),
        (lambda _: framed(b"ab"), "cannot be read"),
        (lambda xid: framed(header(xid + 7)), "an answer to request"),
        (lambda _: framed(header(LOGIN)), f"an answer to request {LOGIN} instead of"),
        (lambda xid: framed(header(xid, -9999)), "error -9999"),
        (lambda xid: framed(header(xid) + struct.pack(">i", 1 << 30) + STAT), "requires a buffer"),
        (lambda _: framed(header(-1) + struct.pack(">ii", 99, 3)), "cannot be read"),
    ],
    ids=["negative", "HTTP", "short", "number", "login", "error", "value", "event"],
)
def test_an_answer_that_no_zookeeper_gives_is_named(
    answer: Callable[[int], bytes], said: str
) -> None:
    with strange(answer) as server:
        found = failure(server.uri)
    assert "the server is not a ZooKeeper" in found
    assert said in found


def test_a_frame_of_2_gib_is_not_taken() -> None:
    with strange(lambda xid: struct.pack(">i", 2**31 - 16) + header(xid), floods=True) as server:
        assert f"a frame of {2**31 - 16} bytes" in failure(server.uri)
        assert server.flood_bytes < TAKEN_BYTES_MAX


def test_a_greeting_that_no_zookeeper_gives_is_named() -> None:
    with strange(lambda _: b"", welcome=struct.pack(">i", 2**31 - 16)) as server:
        found = failure(server.uri, session_timeout_s=1.0)
    assert "no ZooKeeper answered within 1 s; the server is not a ZooKeeper: a frame of" in found


@pytest.mark.parametrize(
    ("answer", "trickles", "session_ms"),
    [
        (b"", False, 10_000),
        (b"\0\0", False, 2**31 - 1),
        (struct.pack(">i", 60_000_000), True, 10_000),
    ],
    ids=["nothing", "half a length", "byte by byte"],
)
def test_an_answer_that_never_ends_ends_by_the_session_that_was_asked_for(
    answer: bytes, *, trickles: bool, session_ms: int
) -> None:
    began_s = time.monotonic()
    with strange(lambda _: answer, trickles=trickles, welcome=welcome(session_ms)) as server:
        assert server.uri in failure(server.uri, SESSION_S)
    assert time.monotonic() - began_s < END_S


def test_a_session_whose_end_is_not_answered_is_dropped() -> None:
    def answer(xid: int) -> bytes:
        return framed(header(xid, NO_NODE)) if xid <= CONNECT_REQUESTS else b""

    with strange(answer) as server:
        store = call(
            lambda: open_metadata(server.uri, reactor=the_reactor(), session_timeout_s=SESSION_S)
        )
        run(store.connect())
        began_s = time.monotonic()
        run(store.close())
        assert time.monotonic() - began_s < END_S
        until(lambda: server.clients == 0, "the connection is still open")


@contextlib.contextmanager
def connected_tree(uri: str) -> Iterator[KazooTree]:
    tree = call(
        lambda: KazooTree(parse_uri(uri), reactor=the_reactor(), session_timeout_s=SESSION_S)
    )
    run(tree.connect())
    try:
        yield tree
    finally:
        run(tree.close())


def test_a_session_is_seen_until_it_is_closed() -> None:
    """What sees that tests leave none knows its thread by the name."""
    until_sessions_are_closed()  # Other tests' servers are silent: a close takes kazoo its time.
    with strange(lambda _: b"") as server, connected_tree(server.uri):
        assert len(sessions()) == 1
    until_sessions_are_closed()


def test_a_question_is_asked_again_for_two_session_timeouts_and_no_longer() -> None:
    claimed = struct.pack(">i", 60_000_000)
    with strange(lambda _: claimed, trickles=True) as server, connected_tree(server.uri) as tree:
        asked = server.requests
        with pytest.raises(MetadataStoreError, match="/L7"):
            run(tree.get("/L7"))
        assert server.requests - asked <= 3


def test_a_list_of_more_names_than_its_bytes_can_hold_is_not_read() -> None:
    names = struct.pack(">i", 1 << 22) + bytes(1 << 24)
    expected = f"a list of {1 << 22} names in .* bytes"
    with (
        strange(lambda xid: framed(header(xid) + names)) as server,
        connected_tree(server.uri) as tree,
        pytest.raises(MetadataStoreError, match=expected),
    ):
        run(tree.children("/available"))


def hang_up(_xid: int) -> bytes:
    raise ConnectionAbortedError


@pytest.mark.parametrize("way", ["set", "create", "create_together"])
def test_a_write_for_which_the_server_ends_the_connection_names_node_and_size(
    way: str,
) -> None:
    with strange(hang_up) as server, connected_tree(server.uri) as tree:

        async def write(value: bytes) -> None:
            if way == "create_together":
                await tree.create_together([("/L6", b""), ("/L7", value)])
            else:
                await getattr(tree, way)("/L7", value)

        with pytest.raises(MetadataStoreError, match=r"/L7: .* 2097152 bytes .*jute\.maxbuffer"):
            run(write(bytes(2 << 20)))
        with pytest.raises(MetadataStoreError) as small:
            run(write(b"small"))
        assert "jute" not in str(small.value)
