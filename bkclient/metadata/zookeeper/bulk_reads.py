"""Bulk reads of very many nodes over their own session: kazoo has no pipelined reads.

``bkclient.metadata.zookeeper_reader`` has hundreds of requests in flight. It blocks, so it runs in
a thread of the reactor's pool, one group of answers after the other.
"""

from __future__ import annotations

import threading
from collections.abc import AsyncGenerator, Iterator, Sequence
from typing import Any

import attrs
from twisted.internet.threads import deferToThreadPool

from bkclient.errors import MetadataStoreError
from bkclient.metadata import zk_paths
from bkclient.metadata.errors import MetadataAccessError
from bkclient.metadata.tree.nodes import FoundValue, NodeValue
from bkclient.metadata.zk_uri import ZooKeeperUri
from bkclient.metadata.zookeeper_reader import frames
from bkclient.metadata.zookeeper_reader.read_session import ReadSession


@attrs.define(eq=False)
class BulkNodeReads:
    """Bulk reads of values; implements ``ManyValues``."""

    _uri: ZooKeeperUri
    _reactor: Any
    _timeout_s: float = attrs.field(alias="session_timeout_s")
    _auth_data: Sequence[tuple[str, str]] = ()

    async def __call__(self, paths: Sequence[str]) -> AsyncGenerator[list[FoundValue]]:
        """See ``ManyValues``.

        Raises:
            MetadataUnavailableError: no server answered within the session's time-out.
            MetadataStoreError: the server is not a ZooKeeper.
        """
        answers = _Answers(
            ReadSession(self._uri, timeout_s=self._timeout_s, auth_data=self._auth_data),
            self._uri,
            paths,
        )
        pool = self._reactor.getThreadPool()
        try:
            while some := await deferToThreadPool(self._reactor, pool, answers.more):
                yield some
        finally:
            pool.callInThread(answers.close)


class _Answers:
    """The values of one list of paths. Any thread may call, one at a time."""

    def __init__(self, session: ReadSession, uri: ZooKeeperUri, paths: Sequence[str]) -> None:
        self._session, self._uri = session, uri
        self._values = self._read(paths)
        self._lock = threading.Lock()

    def more(self) -> list[FoundValue]:
        """Return the next values, as many as have arrived; an empty list at the end."""
        with self._lock:
            return next(self._values, [])

    def close(self) -> None:
        """End the session, once no caller waits for an answer."""
        with self._lock:
            self._session.close()
            self._values = iter(())

    def _read(self, paths: Sequence[str]) -> Iterator[list[FoundValue]]:
        root = self._uri.root
        # The reads see every write that was complete before them, on any server.
        for _ in self._session.ask([frames.sync(root)]):
            pass
        asked = iter(paths)
        for answers in self._session.ask(frames.get_data(root + path) for path in paths):
            yield [self._value(next(asked), wrong, answer) for wrong, answer in answers]

    def _value(self, path: str, wrong: int, answer: bytes) -> FoundValue:
        if wrong == frames.NO_NODE:
            return None
        if wrong in {frames.NO_AUTH, frames.AUTH_FAILED}:
            return MetadataAccessError.denied(zk_paths.shown(self._uri.text + path))
        if wrong:
            raise MetadataStoreError(f"{self._uri.text}: ZooKeeper answers with error {wrong}")
        return NodeValue(*frames.data_of(answer))
