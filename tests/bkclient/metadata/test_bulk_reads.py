"""Very many nodes at once: what a follower that lags behind may answer."""

from __future__ import annotations

from bkclient.metadata.errors import MetadataAccessError
from bkclient.metadata.tree.nodes import NodeValue
from bkclient.metadata.zk_uri import parse_uri
from bkclient.metadata.zookeeper.bulk_reads import _Answers
from bkclient.metadata.zookeeper_reader.read_session import ReadSession
from tests.bkclient.metadata.zookeeper_reader.memory_server import (
    CTIME_MS,
    GET_DATA,
    NO_AUTH,
    SYNC,
    Server,
)


def test_a_server_that_lags_catches_up_before_the_first_value_is_read() -> None:
    server = Server.of("/ledgers", {"/a": b"old"})

    def catch_up(operation: int, _path: str) -> None:
        if operation == SYNC:
            server.nodes["/ledgers/a"] = b"new"

    server.before = catch_up
    uri = parse_uri("zk+null://one:1/ledgers")
    session = ReadSession(uri, timeout_s=10.0, connect=server.connect)
    answers = _Answers(session, uri, ["/a", "/b"])
    assert answers.more() == [NodeValue(b"new", CTIME_MS, 3), None]
    assert answers.more() == []
    assert server.asked == [(SYNC, "/ledgers"), (GET_DATA, "/ledgers/a"), (GET_DATA, "/ledgers/b")]


def test_a_value_that_may_not_be_read_is_not_taken_for_a_deleted_one() -> None:
    nodes = {"/a": b"secret", "/b": b"open"}
    server = Server.of("/ledgers", nodes)
    server.wrong["/ledgers/a"] = NO_AUTH
    uri = parse_uri("zk+null://one:1/ledgers")
    answers = _Answers(ReadSession(uri, timeout_s=10.0, connect=server.connect), uri, list(nodes))
    denied, found = answers.more()
    assert isinstance(denied, MetadataAccessError)
    assert found == NodeValue(b"open", CTIME_MS, 3)
