"""Kazoo adapted: answers on the reactor, few system calls, removable watches, checked answers.

Kazoo reads a frame of any length into memory, and its thread dies at an answer that it cannot
decode. So answers are checked before kazoo uses them; the connection is dropped after an answer
that no ZooKeeper sends. A list of a million names needs 16 MiB.
"""

from __future__ import annotations

import contextlib
import logging
import select
import socket
import ssl
import struct
import threading
import time
from collections import deque
from collections.abc import Callable, Sequence
from functools import partial, wraps
from typing import Any, ClassVar, Final

from kazoo import exceptions
from kazoo.client import KazooClient
from kazoo.exceptions import EXCEPTIONS
from kazoo.handlers.threading import SequentialThreadingHandler
from kazoo.protocol.connection import AUTH_XID, ConnectionDropped
from kazoo.protocol.serialization import Connect, GetChildren
from twisted.internet.interfaces import IReactorFromThreads
from twisted.logger import Logger

from bkclient.metadata.zookeeper_reader.frames import FRAME_BYTES_MAX
from wire.other_protocols import other_protocol

_MISREAD: Final = (struct.error, RuntimeError, LookupError, ValueError)
"""Errors that kazoo raises while decoding unexpected bytes."""

_ATTEMPTS: Final = 3
"""Attempts to connect in an existing session that fit into its time-out.

ZooKeeper 3.9.5 may neither answer nor close a connection that it accepted while it starts
(ZooKeeperServer.removeCnxn). Kazoo would wait for the session time-out, which ends the session.
"""

_COUNT: Final = struct.Struct(">i")
_NAME_BYTES_MIN: Final = 5
"""The fewest bytes of a name in a list: its length, and one character."""


def check_answers(client: KazooClient, strange: Callable[[str], object]) -> None:
    """Make a client check answers; ``strange`` is called with the defect, on kazoo's thread.

    The time-out applies to a complete frame, as in Java's client; kazoo restarts it with each byte.
    """
    connection = client._connection  # noqa: SLF001 -- kazoo has no hook for it
    read_socket, read_response = connection._read_socket, connection._read_response  # noqa: SLF001
    read_header, invoke = connection._read_header, connection._invoke  # noqa: SLF001
    asked_ms = client._session_timeout  # noqa: SLF001

    def dropped(what: str) -> ConnectionDropped:
        strange(what)
        return ConnectionDropped(what)

    def bounded(size: int, timeout_s: float) -> bytes:
        if not 0 <= size <= FRAME_BYTES_MAX:
            raise dropped(other_protocol(size) or f"a frame of {size} bytes")
        with connection._socket_error_handling():  # noqa: SLF001
            return _read(client, size, timeout_s)

    def invoked(timeout_s: float, request: Any, xid: int | None = None) -> Any:
        if isinstance(request, Connect) and request.session_id:
            timeout_s = min(timeout_s, asked_ms / 1000 / _ATTEMPTS)
        answer = invoke(timeout_s, request, xid)
        if not isinstance(request, Connect):
            return answer
        session, zxid = answer
        # Kazoo uses the server's session time-out as its time-out for answers.
        return session._replace(time_out=min(session.time_out, asked_ms)), zxid

    def understood(timeout_s: float) -> Any:
        try:
            return read_socket(timeout_s)
        except _MISREAD as error:
            raise dropped(f"an answer that cannot be read ({error})") from error

    def headed(timeout_s: float) -> Any:
        header, data, offset = read_header(timeout_s)
        # Kazoo would use an answer to a login for any request.
        if header.xid == AUTH_XID and client._pending:  # noqa: SLF001
            require_first(header.xid)
        return header, data, offset

    def require_first(xid: int) -> None:
        number = client._pending[0][2]  # noqa: SLF001
        if xid != number:
            raise dropped(f"an answer to request {xid} instead of {number}")

    def expected(header: Any, data: bytes, offset: int) -> Any:
        pending = client._pending  # noqa: SLF001
        if not pending:
            raise dropped("an answer to no request")
        require_first(header.xid)
        if header.err and header.err not in EXCEPTIONS:
            raise dropped(f"error {header.err}")
        if not header.err and isinstance(pending[0][0], GetChildren):
            (names,) = _COUNT.unpack_from(data, offset)
            if names * _NAME_BYTES_MIN > len(data) - offset:
                raise dropped(f"a list of {names} names in {len(data)} bytes")
        return read_response(header, data, offset)

    connection._read, connection._read_socket = bounded, understood  # noqa: SLF001
    connection._read_response, connection._invoke = expected, invoked  # noqa: SLF001
    connection._read_header = headed  # noqa: SLF001


def _read(client: KazooClient, size: int, timeout_s: float) -> bytes:
    """Read ``size`` bytes from the server, all within ``timeout_s``."""
    sock, parts = client._connection._socket, []  # noqa: SLF001
    until_s = time.monotonic() + timeout_s
    while size:
        wait_s = until_s - time.monotonic()
        is_late = wait_s <= 0
        if is_late or not (sock.pending() or client.handler.select([sock], [], [], wait_s)[0]):
            raise client.handler.timeout_exception("an answer is not complete in time")
        try:
            part = sock.recv(size)
        except (ssl.SSLWantReadError, ssl.SSLWantWriteError):
            continue
        if not part:
            raise ConnectionDropped("the server closed the connection")
        parts.append(part)
        size -= len(part)
    return b"".join(parts)


def cut_connection(client: KazooClient) -> None:
    """Shut down a client's connection, if it has one; its thread notices that."""
    sock = client._connection._socket  # noqa: SLF001
    with contextlib.suppress(AttributeError, OSError):
        sock.shutdown(socket.SHUT_RDWR)


log = Logger()

_NO_WATCHER: Final = -121
_READ_BYTES: Final = 1 << 16
_SEND_WAIT_S: Final = 10
"""Seconds that a server may accept no request before the connection counts as broken."""

_quiet = logging.getLogger(__name__)
_quiet.addHandler(logging.NullHandler())  # Otherwise Python would print kazoo's warnings.


def new_client(
    hosts: str,
    session_timeout_s: float,
    crossing: ReactorCalls,
    died: Callable[[Exception], object],
    strange: Callable[[str], object],
    **options: Any,
) -> KazooClient:
    """Return a client, not yet started, whose answers use ``crossing``.

    ``died`` is called with an exception that ended kazoo's thread; the client stops working then.
    ``strange`` is called, on kazoo's thread, after an answer that no ZooKeeper sends.
    """
    handler = _Handler(crossing, died)
    client = KazooClient(
        hosts=hosts,
        timeout=session_timeout_s,
        handler=handler,
        # The client must reconnect before the session expires, and never stops trying.
        connection_retry={"max_tries": -1, "delay": 0.05, "max_delay": 1.0},
        logger=_quiet,
        **options,
    )
    handler.client = client
    check_answers(client, strange)
    return client


def remove_watch(
    client: KazooClient, path: str, watcher: Callable[..., object], *, of_children: bool
) -> None:
    """Remove a watch from the server and from kazoo, which has no call for it."""
    kept = client._child_watchers if of_children else client._data_watchers  # noqa: SLF001
    answer = client.handler.async_result()
    # After the answer: one of our requests in flight may still set the watch.
    answer.rawlink(lambda _: kept.get(path, set()).discard(watcher))
    client._call(_RemoveWatches(path, of_children=of_children), answer)  # noqa: SLF001


class ReactorCalls:
    """A queue of calls from kazoo's threads to the reactor, in order.

    It replaces the queues of kazoo's thread handler, hence the name ``put``.
    """

    def __init__(self, reactor: IReactorFromThreads) -> None:
        self._reactor = reactor
        self._calls: deque[Callable[[], object]] = deque()
        self._lock = threading.Lock()
        self._scheduled = False

    def put(self, call: Callable[[], object]) -> None:
        """Run ``call`` on the reactor soon. Any thread may call this."""
        with self._lock:
            self._calls.append(call)
            if self._scheduled:
                return
            self._scheduled = True
        self._reactor.callFromThread(self._run)

    def _run(self) -> None:
        with self._lock:
            calls, self._calls, self._scheduled = self._calls, deque(), False
        for call in calls:
            try:
                call()
            except Exception:  # noqa: BLE001 - one callback's bug must not drop the others
                log.failure("a metadata callback failed")


class _Handler(SequentialThreadingHandler):  # type: ignore[misc]
    """Kazoo's handler with a crossing in place of its two worker threads.

    Kazoo checks before each read and write whether the socket is ready, with a new epoll each time:
    most of its work. Here sockets are read in large pieces, and most checks need no system call.
    """

    def __init__(self, crossing: ReactorCalls, died: Callable[[Exception], object]) -> None:
        super().__init__()
        self.callback_queue = self.completion_queue = crossing
        self._died = died
        self.client: Any = None

    def start(self) -> None:
        self._running = True

    def stop(self) -> None:
        """Do not stop: answers during the close must not run on kazoo's thread."""

    def spawn(self, func: Callable[..., object], *args: Any, **kwargs: Any) -> Any:
        """Start a thread and report its exception; kazoo would not notice the end of the thread."""

        @wraps(func)  # The thread's name comes from the function.
        def run() -> None:
            try:
                func(*args, **kwargs)
            except Exception as error:  # noqa: BLE001 - kazoo's loop ends by any
                self.callback_queue.put(partial(self._died, error))

        return super().spawn(run)

    def create_connection(self, *args: Any, **kwargs: Any) -> Any:
        made = super().create_connection(*args, **kwargs)
        return made if isinstance(made, ssl.SSLSocket) else _Socket(made)

    def select(
        self,
        readers: Sequence[Any],
        writers: Sequence[Any],
        _others: Sequence[Any],
        timeout_s: float | None = None,
    ) -> tuple[list[Any], list[Any], list[Any]]:
        """Return the sockets that are ready; writers always are, because ``_Socket`` waits."""
        if writers and all(isinstance(writer, _Socket) for writer in writers):
            return [], list(writers), []
        full = [r for r in readers if isinstance(r, _Socket) and r.pending()]
        if full:
            # The other socket wakes kazoo for a request; it is readable when the queue has
            # requests.
            others = [r for r in readers if r not in full] if self.client._queue else []  # noqa: SLF001
            return full + others, [], []
        poll = select.poll()
        by_number = {}
        for sockets, events in ((readers, select.POLLIN), (writers, select.POLLOUT)):
            for each in sockets:
                by_number[each.fileno()] = each
                poll.register(each, events)
        ready = poll.poll(None if timeout_s is None else max(timeout_s, 0) * 1000)
        found = [by_number[number] for number, _ in ready]
        return [r for r in readers if r in found], [w for w in writers if w in found], []


class _Socket:
    """A socket that reads ahead, and that waits while it cannot write."""

    def __init__(self, wrapped: socket.socket) -> None:
        self._wrapped = wrapped
        self._ahead = b""
        self._taken = 0

    def fileno(self) -> int:
        return self._wrapped.fileno()

    def pending(self) -> int:
        """Return the number of bytes that can be received without a system call."""
        return len(self._ahead) - self._taken

    def recv(self, size: int) -> bytes:
        """Return up to ``size`` bytes."""
        if not self.pending():
            self._ahead, self._taken = self._wrapped.recv(max(size, _READ_BYTES)), 0
        received = self._ahead[self._taken : self._taken + size]
        self._taken += len(received)
        return received

    def send(self, data: bytes) -> int:
        """Send some of ``data``; wait up to ``_SEND_WAIT_S`` while the socket is full."""
        try:
            return self._wrapped.send(data)
        except BlockingIOError:
            poll = select.poll()
            poll.register(self._wrapped, select.POLLOUT)
            poll.poll(_SEND_WAIT_S * 1000)
            return self._wrapped.send(data)

    def setblocking(self, flag: bool) -> None:  # noqa: FBT001 - as the socket's own.
        self._wrapped.setblocking(flag)

    def getpeername(self) -> Any:
        return self._wrapped.getpeername()

    def shutdown(self, how: int) -> None:
        self._wrapped.shutdown(how)

    def close(self) -> None:
        self._wrapped.close()


class _RemoveWatches:
    """A request that kazoo lacks (ZooKeeper 3.5, RemoveWatchesRequest)."""

    type: ClassVar[int] = 18

    def __init__(self, path: str, *, of_children: bool) -> None:
        self._path, self._of_children = path.encode(), of_children

    def serialize(self) -> bytes:
        """Return path and kind: 1 for children, 2 for the value."""
        kind = 1 if self._of_children else 2
        size = len(self._path)
        return struct.pack(f">i{size}si", size, self._path, kind)

    def deserialize(self, _data: bytes, _offset: int) -> bool:
        """Return True; the answer has no content."""
        return True


class NoWatcherError(exceptions.ZookeeperError):  # type: ignore[misc]
    """The watch to remove has fired already."""

    code = _NO_WATCHER


# Kazoo does not know this error; an unknown error would end its thread.
exceptions.EXCEPTIONS.setdefault(_NO_WATCHER, NoWatcherError)
