"""A session that only reads, on a server that goes away as tests want it to."""

from __future__ import annotations

import errno
import itertools
import socket
import struct
from collections.abc import Iterator
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from twisted.internet.task import Clock

from bkclient.errors import MetadataStoreError
from bkclient.metadata.errors import MetadataAccessError, MetadataUnavailableError
from bkclient.metadata.zk_uri import parse_uri
from bkclient.metadata.zookeeper_reader.frames import (
    FRAME_BYTES_MAX,
    GET_CHILDREN,
    GET_DATA,
    MULTI_READ,
    NO_AUTH,
    NO_NODE,
    SYNC,
    Body,
    data_of,
    get_children,
    get_data,
    sync,
)
from bkclient.metadata.zookeeper_reader.read_session import AT_ONCE, ReadSession
from tests.bkclient.metadata.zookeeper_reader.memory_server import Connection, Server

URI = "zk+null://one:1;two:2/ledgers"


def nodes(count: int) -> dict[str, bytes]:
    return {f"/n{number}": b"%d" % number for number in range(count)}


def session(server: Server, uri: str = URI, **options: Any) -> ReadSession:
    """Return a session whose time passes while it waits."""
    clock = Clock()
    time = {"clock": clock.seconds, "sleep": clock.advance}
    more: dict[str, Any] = {"timeout_s": 10.0, "connect": server.connect, **time, **options}
    return ReadSession(parse_uri(uri), **more)


def values(found: ReadSession, bodies: Any) -> list[bytes]:
    return [data_of(answer)[0] for some in found.ask(bodies) for _, answer in some]


@given(
    count=st.integers(0, AT_ONCE + 100),
    pieces=st.integers(7, 2000),
    cuts=st.lists(st.integers(0, 60) | st.integers(0, 500), max_size=3),
    multi_reads=st.booleans(),
)
def test_each_question_is_answered_once_and_in_order_however_connections_break(
    count: int,
    pieces: int,
    cuts: list[int],
    multi_reads: bool,  # noqa: FBT001
) -> None:
    server = Server(nodes(count), cuts=cuts, pieces=pieces, multi_reads=multi_reads)
    asked = [get_data(f"/n{number}") for number in range(count)]
    assert values(session(server), asked) == [b"%d" % number for number in range(count)]


def test_no_more_is_on_its_way_than_the_server_takes_and_questions_are_taken_late() -> None:
    server, taken = Server(nodes(3000)), []

    def bodies() -> Iterator[Body]:
        for number in range(3000):
            taken.append(number)
            yield get_data(f"/n{number}")

    answered = session(server).ask(bodies())
    next(answered)
    assert len(taken) <= 2 * AT_ONCE
    assert sum(map(len, answered)) > 2000
    assert len(taken) == 3000
    assert server.at_once_max <= AT_ONCE


def test_values_are_asked_for_in_groups_and_other_questions_alone() -> None:
    server = Server(nodes(40))
    assert len(values(session(server), map(get_data, nodes(40)))) == 40
    assert server.requests == [MULTI_READ] * 3
    server.requests.clear()
    list(session(server).ask([sync("/n0"), get_data("/n0"), get_children("/n0"), get_data("/n1")]))
    assert server.requests == [SYNC, GET_DATA, GET_CHILDREN, GET_DATA]


def test_a_server_before_zookeeper_3_6_is_asked_for_each_value_alone() -> None:
    server = Server(nodes(40), multi_reads=False)
    assert len(values(session(server), map(get_data, nodes(40)))) == 40
    assert len(server.connections) == 2
    assert server.requests == [MULTI_READ] * 3 + [GET_DATA] * 40


def test_a_group_whose_values_are_too_large_together_is_asked_for_one_by_one() -> None:
    server = Server(nodes(20), strange=struct.pack(">i", FRAME_BYTES_MAX + 1) + bytes(20))

    def connect(address: Any, timeout_s: float) -> Any:
        if server.connections:
            server.strange = b""
        return server.connect(address, timeout_s)

    found = session(server, connect=connect)
    assert len(values(found, map(get_data, nodes(20)))) == 20
    assert server.requests == [GET_DATA] * 20


def test_what_is_wrong_with_one_node_of_a_group_is_its_own_answer() -> None:
    server = Server({"/a": b"1", "/c": b"3", "/d": b"4"}, wrong={"/c": NO_AUTH})
    (answers,) = session(server).ask(map(get_data, ["/a", "/b", "/c", "/d"]))
    assert server.requests == [MULTI_READ]
    assert [wrong for wrong, _ in answers] == [0, NO_NODE, NO_AUTH, 0]
    assert data_of(answers[3][1])[0] == b"4"


def test_after_a_break_the_next_server_is_asked_what_was_not_answered_and_must_know_as_much() -> (
    None
):
    server = Server(nodes(100), cuts=[5])
    assert len(values(session(server), map(get_data, nodes(100)))) == 100
    assert server.hosts == [(b"one", 1), (b"two", 2)]
    # The first connection served its greeting and four groups of sixteen.
    assert server.greeted == [0, 104]
    assert [path for _, path in server.asked[100:]] == [f"/n{number}" for number in range(64, 100)]


def test_a_server_that_gives_no_session_is_not_the_last_word() -> None:
    server = Server(nodes(1), sessions=False)
    with pytest.raises(MetadataUnavailableError, match=r"one:1;two:2/ledgers: no ZooKeeper"):
        values(session(server), [get_data("/n0")])
    assert set(server.hosts) == {(b"one", 1), (b"two", 2)}
    tries = iter([False] * 3)

    def connect(address: Any, timeout_s: float) -> Any:
        server.sessions = next(tries, True)
        return server.connect(address, timeout_s)

    assert values(session(server, connect=connect), [get_data("/n0")]) == [b"0"]


def test_a_host_that_is_not_there_is_left_for_the_next() -> None:
    server = Server(nodes(1))

    def connect(address: Any, timeout_s: float) -> Any:
        if address[0] == b"one":
            raise ConnectionRefusedError
        return server.connect(address, timeout_s)

    assert values(session(server, connect=connect), [get_data("/n0")]) == [b"0"]
    assert server.hosts == [(b"two", 2)]


def test_servers_that_all_refuse_or_are_unknown_are_named_at_once() -> None:
    clock = Clock()

    def connect(address: Any, _timeout_s: float) -> Any:
        if address[0] == b"one":
            raise ConnectionRefusedError(errno.ECONNREFUSED, "Connection refused")
        raise socket.gaierror(socket.EAI_NONAME, "Name or service not known")

    found = session(Server({}), connect=connect, clock=clock.seconds, sleep=clock.advance)
    with pytest.raises(MetadataUnavailableError) as raised:
        values(found, [get_data("/n0")])
    assert str(raised.value) == (
        f"{URI}: one:1: Connection refused; two:2: Name or service not known"
    )
    assert clock.seconds() < 1


def test_a_server_that_answered_once_and_then_refuses_is_waited_for() -> None:
    server, refusals = Server(nodes(100), cuts=[5]), []

    def connect(address: Any, timeout_s: float) -> Any:
        if server.connections and len(refusals) < 3:
            refusals.append(address)
            raise ConnectionRefusedError(errno.ECONNREFUSED, "Connection refused")
        return server.connect(address, timeout_s)

    assert len(values(session(server, connect=connect), map(get_data, nodes(100)))) == 100
    assert len(refusals) == 3


def test_a_server_that_stays_silent_is_named_with_the_last_error() -> None:
    clock = Clock()

    def connect(_address: Any, timeout_s: float) -> Any:
        clock.advance(timeout_s)
        raise TimeoutError

    found = session(Server({}), connect=connect, clock=clock.seconds, sleep=clock.advance)
    with pytest.raises(MetadataUnavailableError, match=r"within 10 s \((one:1|two:2): no answer\)"):
        values(found, [get_data("/n0")])


def test_a_host_that_says_nothing_leaves_the_others_their_part_of_the_time() -> None:
    server, clock = Server(nodes(1)), Clock()

    def connect(address: Any, timeout_s: float) -> Any:
        if address[0] != b"three":
            clock.advance(timeout_s)
            raise TimeoutError
        return server.connect(address, timeout_s)

    uri = "zk+null://one:1;two:2;three:3/ledgers"
    found = session(server, uri, connect=connect, clock=clock.seconds, sleep=clock.advance)
    assert values(found, [get_data("/n0")]) == [b"0"]
    assert clock.seconds() < 10


PING = struct.pack(">iiqi", 16, -2, 0, 0)


@pytest.mark.parametrize(
    ("greets", "sent"),
    [
        pytest.param(True, PING, id="pings"),
        pytest.param(True, struct.pack(">i", 1 << 20), id="a long answer"),
        pytest.param(False, struct.pack(">i", 1 << 20), id="a long greeting"),
    ],
)
def test_a_server_that_sends_bytes_and_never_an_answer_is_given_up(
    greets: bool,  # noqa: FBT001
    sent: bytes,
) -> None:
    server, clock = Server(nodes(1)), Clock()
    drips = itertools.chain([sent], itertools.repeat(PING if sent is PING else b"x"))

    def connect(address: Any, timeout_s: float) -> Any:
        connection = server.connect(address, timeout_s)
        greeting, is_greeted = connection.recv, [not greets]

        def drip(size: int) -> bytes:
            if not is_greeted[0]:
                found = greeting(size)
                is_greeted[0] = len(connection._answers) == 0
                return bytes(found)
            clock.advance(1)
            return next(drips)[:size]

        connection.recv = drip
        return connection

    found = session(server, connect=connect, clock=clock.seconds, sleep=clock.advance)
    with pytest.raises(MetadataUnavailableError):
        values(found, [get_data("/n0")])
    assert clock.seconds() < 60


def test_connections_that_break_again_and_again_without_an_answer_are_given_up() -> None:
    server = Server(nodes(1), cuts=[1] * 100)
    with pytest.raises(MetadataUnavailableError, match="broke repeatedly"):
        values(session(server), [get_data("/n0")])
    assert len(server.connections) == 8


def test_a_node_for_which_the_server_always_ends_the_connection_is_named() -> None:
    # After the greeting and three groups of sixteen, then after another greeting and four nodes.
    server = Server(nodes(100), cuts=[4, 5] + [1] * 100)
    with pytest.raises(MetadataUnavailableError, match=r"while reading /n52; .* jute\.maxbuffer"):
        values(session(server), map(get_data, nodes(100)))


def test_an_answer_now_and_then_is_enough_to_go_on() -> None:
    server = Server(nodes(100), cuts=[2] * 99)
    assert len(values(session(server), map(get_data, nodes(100)))) == 100


def test_who_we_are_is_said_on_each_connection() -> None:
    server = Server(nodes(3), cuts=[2])
    found = session(server, auth_data=[("digest", "user:password")])
    assert len(values(found, map(get_data, nodes(3)))) == 3
    assert server.credentials == [b"\0\0\0\x06digest\0\0\0\x0duser:password"] * 2


def test_a_refusal_of_who_we_are_ends_it() -> None:
    server = Server(nodes(1), refused_auth=True)
    with pytest.raises(MetadataAccessError, match="the credentials were refused"):
        values(session(server, auth_data=[("digest", "x:y")]), [get_data("/n0")])


@pytest.mark.parametrize("size", [-1, 3, 1 << 30])
def test_what_is_no_zookeeper_is_told_from_one(size: int) -> None:
    server = Server(nodes(1), strange=struct.pack(">i", size) + bytes(20))
    with pytest.raises(MetadataStoreError, match=f"not a ZooKeeper: a frame of {size} bytes"):
        values(session(server), [get_data("/n0")])
    assert server.connections[-1].closed


def test_an_http_server_is_named() -> None:
    server = Server(nodes(1), strange=b"HTTP/1.1 400 Bad Request\r\n\r\n")
    with pytest.raises(MetadataStoreError, match="not a ZooKeeper: an HTTP response"):
        values(session(server), [get_data("/n0")])


@pytest.mark.parametrize("xids", [(0,), (2,), (1, 1), (1, 2)])
def test_an_answer_that_is_not_the_one_due_is_refused(xids: tuple[int, ...]) -> None:
    answers = b"".join(struct.pack(">iiqi", 16, xid, 1, 0) for xid in xids)
    server = Server(nodes(1), strange=answers)
    with pytest.raises(MetadataStoreError, match="answer to no request"):
        list(session(server).ask([get_data("/n0")]))
    assert server.connections[-1].closed


def test_what_a_server_says_unasked_is_no_answer() -> None:
    server = Server(nodes(2), unasked=struct.pack(">iiqi", 16, -1, -1, 0))
    assert values(session(server), map(get_data, nodes(2))) == [b"0", b"1"]
    assert server.connections[0].closed is False


def test_an_interruption_while_connecting_leaves_no_half_a_connection() -> None:
    server = Server(nodes(1))
    interrupted = iter([True])

    class Interrupting(Connection):
        def recv(self, size: int) -> bytes:
            if next(interrupted, False):
                raise KeyboardInterrupt
            return super().recv(size)

    def connect(_address: Any, _timeout_s: float) -> Any:
        server.connections.append(Interrupting(server, None))
        return server.connections[-1]

    found = session(server, connect=connect)
    with pytest.raises(KeyboardInterrupt):
        values(found, [get_data("/n0")])
    assert server.connections[0].closed
    assert values(found, [get_data("/n0")]) == [b"0"]


def test_whoever_stops_listening_gets_a_new_connection_for_the_next_question() -> None:
    server = Server(nodes(500), pieces=64)
    found = session(server)
    answered = found.ask(map(get_data, nodes(500)))
    next(answered)
    answered.close()  # type: ignore[attr-defined]
    assert server.connections[0].closed
    assert values(found, [get_data("/n7")]) == [b"7"]


def test_closing_ends_the_session_and_waits_for_nobody() -> None:
    server = Server(nodes(1))
    found = session(server)
    found.close()
    assert not server.connections
    values(found, [get_data("/n0")])
    found.close()
    assert server.connections[0].ended
    assert server.connections[0].closed


def test_addresses_are_those_of_the_uri_beginning_anywhere() -> None:
    server = Server(nodes(1))
    found = session(server, "zk+null://a.example:1;[::1]:2;c:3/ledgers", first_host=4)
    values(found, [get_data("/n0")])
    assert server.hosts == [(b"::1", 2)]
