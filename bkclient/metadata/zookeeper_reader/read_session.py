"""A read-only session with ZooKeeper, on the caller's thread: no reactor, no threads."""

from __future__ import annotations

import contextlib
import itertools
import socket
import time
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Final

from bkclient.errors import MetadataStoreError
from bkclient.metadata import zk_paths
from bkclient.metadata.errors import MetadataAccessError, MetadataUnavailableError
from bkclient.metadata.zk_uri import ZooKeeperUri
from bkclient.metadata.zookeeper_reader import frames
from bkclient.metadata.zookeeper_reader.frames import HEADER, LENGTH, Answer, Body
from bkclient.metadata.zookeeper_reader.reachability import (
    Address,
    address_of,
    connect,
    final_error,
    named,
    words_of,
)
from wire.other_protocols import other_protocol

AT_ONCE: Final = 800
"""Requests in flight; a server stops reading at a thousand requests."""

TOGETHER: Final = 16
"""Values in one request: a tenth of the server's time per value, and still a small answer."""

_TRIES_MAX: Final = 8
"""The most broken connections without an answer before the session fails."""

_READ_BYTES: Final = 1 << 15
_PAUSE_S: Final = 0.05
_PAUSE_S_MAX: Final = 1.0

Connect = Callable[[Address, float], socket.socket]


class ReadSession:
    """A session that sends requests and returns the answers in the order of the requests.

    All requests are idempotent. After a broken connection the session connects to the next server
    and repeats the unanswered requests. A server that knows less than the previous one refuses the
    session, so reads never go back in time. If a caller waits long between two answers, the session
    may expire, which counts as a broken connection.
    """

    def __init__(
        self,
        uri: ZooKeeperUri,
        *,
        timeout_s: float,
        auth_data: Sequence[tuple[str, str]] = (),
        first_host: int = 0,
        connect: Connect = connect,
        clock: Callable[[], float] = time.monotonic,
        sleep: Callable[[float], object] = time.sleep,
    ) -> None:
        """Create without a connection.

        ``first_host`` selects the first server, to spread the load.
        """
        hosts = [address_of(host) for host in uri.hosts.split(",")]
        self._servers = frozenset(hosts)
        first = first_host % len(hosts)
        self._hosts = itertools.cycle(hosts[first:] + hosts[:first])
        # A silent server must not use up the time for all servers.
        self._host_s_max = timeout_s / len(hosts)
        self._uri, self._timeout_s, self._auth_data = uri, timeout_s, auth_data
        self._connect, self._clock, self._sleep = connect, clock, sleep
        self._socket: socket.socket | None = None
        self._chunks: list[bytes] = []
        self._missing = LENGTH.size
        self._xid = self._due = 1
        self._sizes: deque[int] = deque()
        """The number of bodies in each request in flight."""
        self._asks_together = True
        self._last_zxid = 0
        self._has_answered = False

    def ask(self, bodies: Iterable[Body]) -> Iterator[list[Answer]]:
        """Yield the answers, in groups as they arrive.

        ``bodies`` are consumed as answers arrive, with at most ``AT_ONCE`` in flight. Values are
        requested in groups. After a broken connection, which a group may have caused, each node is
        requested singly. An early end of the iteration closes the connection; the next request
        opens another one.

        Raises:
            MetadataUnavailableError: no server answered within the session's time-out.
            MetadataAccessError: the credentials were refused.
            MetadataStoreError: the server is not a ZooKeeper.
        """
        waiting = iter(bodies)
        flying: deque[Body] = deque()
        tries, since_s = 0, self._clock()
        try:
            while True:
                try:
                    if not self._send_more(waiting, flying):
                        return
                    answers = self._receive()
                except (OSError, EOFError) as error:
                    self._drop()
                    self._asks_together = False
                    tries += 1
                    if tries >= _TRIES_MAX or self._clock() > since_s + 2 * self._timeout_s:
                        raise self._breaks_at(flying) from error
                    continue
                if not answers:
                    if self._clock() > since_s + 2 * self._timeout_s:
                        raise self._unavailable("the server sends bytes, but not a complete answer")
                    continue
                for _ in answers:
                    flying.popleft()
                # Before the yield, so that the server works in parallel with the caller.
                self._send_ahead(waiting, flying)
                yield answers
                tries, since_s = 0, self._clock()
        finally:
            if flying:
                self._drop()

    def _send_more(self, waiting: Iterator[Body], flying: deque[Body]) -> bool:
        """Send more requests in large pieces; return whether any are in flight."""
        more: list[Body] = []
        if self._socket is None:
            self._open()
            self._due = self._xid
            self._sizes.clear()
            more = list(flying)
        if len(flying) <= AT_ONCE // 2:
            new = list(itertools.islice(waiting, AT_ONCE - len(flying)))
            flying.extend(new)
            more += new
        if more:
            groups = self._groups(more)
            requests = [frames.get_together(g) if len(g) > 1 else g[0] for g in groups]
            assert self._socket is not None
            self._socket.sendall(frames.requests(self._xid, requests))
            self._xid += len(groups)
            self._sizes.extend(map(len, groups))
        return bool(flying)

    def _groups(self, bodies: Iterable[Body]) -> list[list[Body]]:
        groups: list[list[Body]] = []
        size = 0  # The size of the last group, if it can take another body.
        for body in bodies:
            is_value = body[0] == frames.GET_DATA
            if is_value and 0 < size < TOGETHER:
                groups[-1].append(body)
                size += 1
            else:
                groups.append([body])
                size = int(is_value and self._asks_together)
        return groups

    def _send_ahead(self, waiting: Iterator[Body], flying: deque[Body]) -> None:
        try:
            self._send_more(waiting, flying)
        except OSError:
            self._drop()  # The error appears with the next answer.

    def _receive(self) -> list[Answer]:
        """Wait for bytes; return the complete answers."""
        assert self._socket is not None
        data = self._socket.recv(_READ_BYTES)
        if not data:
            raise EOFError
        self._chunks.append(data)
        self._missing -= len(data)
        if self._missing > 0:
            return []
        buffer, at = b"".join(self._chunks), 0
        answers: list[Answer] = []
        missing = LENGTH.size
        while len(buffer) - at >= LENGTH.size:
            size = LENGTH.unpack_from(buffer, at)[0]
            if size > frames.FRAME_BYTES_MAX and self._sizes and self._sizes[0] > 1:
                raise EOFError  # The values of a group are too large together: read each singly.
            end = at + LENGTH.size + self._checked(size, HEADER.size)
            if end > len(buffer):
                missing = end - at
                break
            xid, zxid, wrong = HEADER.unpack_from(buffer, at + LENGTH.size)
            payload = buffer[at + LENGTH.size + HEADER.size : end]
            at = end
            if xid == frames.AUTH_XID:
                self._check_auth(wrong)
            elif xid not in frames.UNASKED_XIDS:
                # Answers are matched by order alone, so the number must be the expected one.
                if not xid == self._due < self._xid:
                    raise self._strange("an answer to no request")
                self._due += 1
                self._last_zxid = max(zxid, self._last_zxid)
                size = self._sizes.popleft()
                if size == 1:
                    answers.append((wrong, payload))
                elif wrong:
                    # The server is too old, or single requests return a better error.
                    raise EOFError
                else:
                    answers += frames.answers_together(payload, size)
        self._chunks, self._missing = [buffer[at:]], missing - (len(buffer) - at)
        return answers

    # Connections

    def _open(self) -> None:
        """Connect to any of the servers.

        Raises:
            MetadataUnavailableError: no server starts a session in time, or none can be reached.
        """
        deadline_s, pause_s = self._clock() + self._timeout_s, _PAUSE_S
        final: dict[Address, str] = {}
        while True:
            left_s = deadline_s - self._clock()
            host = next(self._hosts)
            try:
                self._greet(host, max(min(left_s, self._host_s_max), _PAUSE_S))
            except (OSError, EOFError) as error:
                self._drop()
                self._note_final(final, host, error)
                if self._clock() + pause_s > deadline_s:
                    why = f" ({named({host: words_of(error)})})"
                    raise MetadataUnavailableError.no_answer(
                        self._uri.text, self._timeout_s, why
                    ) from error
                self._sleep(pause_s)
                pause_s = min(2 * pause_s, _PAUSE_S_MAX)
            except BaseException:
                self._drop()
                raise
            else:
                return

    def _note_final(self, final: dict[Address, str], host: Address, error: Exception) -> None:
        """Record that a server cannot be reached; fail if this holds for every server.

        If a server has answered before, it may be restarting: do not fail.
        """
        words = final_error(error)
        if words is None:
            final.pop(host, None)
            return
        final[host] = words
        if not self._has_answered and final.keys() >= self._servers:
            raise self._unavailable(named(final)) from error

    def _greet(self, host: Address, timeout_s: float) -> None:
        self._socket = self._connect(host, timeout_s)
        # Requests are small, and the session waits for each answer.
        self._socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self._socket.sendall(frames.greeting(self._last_zxid, int(self._timeout_s * 1000)))
        size = self._checked(LENGTH.unpack(self._exactly(LENGTH.size))[0], 1)
        if frames.timeout_of(self._exactly(size)) <= 0:
            raise EOFError
        self._has_answered = True
        self._socket.settimeout(self._timeout_s)
        self._chunks, self._missing = [], LENGTH.size
        for scheme, credential in self._auth_data:
            self._socket.sendall(frames.auth(scheme, credential))

    def _exactly(self, size: int) -> bytes:
        assert self._socket is not None
        received, deadline_s = b"", self._clock() + self._timeout_s
        while len(received) < size:
            if self._clock() > deadline_s:
                raise TimeoutError
            more = self._socket.recv(size - len(received))
            if not more:
                raise EOFError
            received += more
        return received

    def close(self) -> None:
        """End the session, without waiting for the server's confirmation."""
        if self._socket is not None:
            with contextlib.suppress(OSError):
                self._socket.sendall(frames.requests(self._xid, [(frames.CLOSE, b"")]))
        self._drop()

    def _drop(self) -> None:
        if self._socket is not None:
            self._socket.close()
        self._socket = None

    # Errors

    def _checked(self, size: int, size_min: int) -> int:
        if not size_min <= size <= frames.FRAME_BYTES_MAX:
            raise self._strange(other_protocol(size) or f"a frame of {size} bytes")
        return size

    def _check_auth(self, wrong: int) -> None:
        if wrong:
            raise MetadataAccessError(f"{self._uri.text}: the credentials were refused ({wrong})")

    def _strange(self, what: str) -> MetadataStoreError:
        self._drop()
        return MetadataStoreError(f"{self._uri.text}: the server is not a ZooKeeper: {what}")

    def _breaks_at(self, flying: deque[Body]) -> MetadataUnavailableError:
        """Return an error with the first node whose request was not answered."""
        why = "the connection broke repeatedly"
        if flying:
            path = zk_paths.shown(frames.path_of(flying[0]))
            why += f" while reading {path}; the node may be larger than jute.maxbuffer"
        return self._unavailable(why)

    def _unavailable(self, why: str) -> MetadataUnavailableError:
        return MetadataUnavailableError(f"{self._uri.text}: {why}")
