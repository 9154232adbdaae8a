"""Kazoo as we need it: its answers on the reactor, few system calls, and watches to take away.

Answers that no ZooKeeper gives: the connection is dropped before kazoo acts on them.

Kazoo reads a frame of any length into memory, and its thread ends at an answer that it does not
understand. What a server sends is checked here first. A list of a million names needs 16 MiB.
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
"""What kazoo raises where bytes are not what it takes them for."""

_COUNT: Final = struct.Struct(">i")
_NAME_BYTES_MIN: Final = 5
"""Of a name in a list: its length, and one character."""


def check_answers(client: KazooClient, strange: Callable[[str], object]) -> None:
    """Have a client check what servers send; ``strange`` hears what is wrong, on kazoo's thread.

    A time-out holds for a whole frame, as in Java's client; kazoo begins it anew with each byte.
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
        answer = invoke(timeout_s, request, xid)
        if not isinstance(request, Connect):
            return answer
        session, zxid = answer
        # Kazoo waits for answers as long as the server says that sessions last.
        return session._replace(time_out=min(session.time_out, asked_ms)), zxid

    def understood(timeout_s: float) -> Any:
        try:
            return read_socket(timeout_s)
        except _MISREAD as error:
            raise dropped(f"an answer that cannot be read ({error})") from error

    def headed(timeout_s: float) -> Any:
        header, data, offset = read_header(timeout_s)
        # Kazoo takes an answer to a login for that to any request.
        if header.xid == AUTH_XID and client._pending:  # noqa: SLF001
            insist_first(header.xid)
        return header, data, offset

    def insist_first(xid: int) -> None:
        number = client._pending[0][2]  # noqa: SLF001
        if xid != number:
            raise dropped(f"an answer to request {xid} instead of {number}")

    def expected(header: Any, data: bytes, offset: int) -> Any:
        pending = client._pending  # noqa: SLF001
        if not pending:
            raise dropped("an answer to no request")
        insist_first(header.xid)
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
    """Read so many bytes from the server, all of them within ``timeout_s``."""
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
    """End a client's connection at once, if it has one; its thread notices that."""
    sock = client._connection._socket  # noqa: SLF001
    with contextlib.suppress(AttributeError, OSError):
        sock.shutdown(socket.SHUT_RDWR)


log = Logger()

_NO_WATCHER: Final = -121
_READ_BYTES: Final = 1 << 16
_SEND_WAIT_S: Final = 10
"""How long a server may refuse to take a request before the connection counts as broken."""

_quiet = logging.getLogger(__name__)
_quiet.addHandler(logging.NullHandler())  # Or Python would print what kazoo warns of.


def new_client(
    hosts: str,
    session_timeout_s: float,
    crossing: Crossing,
    died: Callable[[Exception], object],
    strange: Callable[[str], object],
    **options: Any,
) -> KazooClient:
    """Return a client, not yet started, whose answers come over ``crossing``.

    ``died`` hears of an exception that ended kazoo's thread: the client does nothing any more.
    ``strange`` hears, on kazoo's thread, what a server sent that no ZooKeeper sends.
    """
    handler = _Handler(crossing, died)
    client = KazooClient(
        hosts=hosts,
        timeout=session_timeout_s,
        handler=handler,
        # It must be back before the session expires, and never gives up by itself.
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
    """Take a watch away from the server and from kazoo, which has no call for it."""
    kept = client._child_watchers if of_children else client._data_watchers  # noqa: SLF001
    answer = client.handler.async_result()
    # After the answer: a request of ours that is on its way may still set it.
    answer.rawlink(lambda _: kept.get(path, set()).discard(watcher))
    client._call(_RemoveWatches(path, of_children=of_children), answer)  # noqa: SLF001


class Crossing:
    """Calls from kazoo's threads, run on the reactor in the order they were made.

    It stands in for the queues of kazoo's thread handler, hence ``put``.
    """

    def __init__(self, reactor: IReactorFromThreads) -> None:
        self._reactor = reactor
        self._calls: deque[Callable[[], object]] = deque()
        self._lock = threading.Lock()
        self._scheduled = False

    def put(self, call: Callable[[], object]) -> None:
        """Run ``call`` on the reactor soon. Any thread may say so."""
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
    """Kazoo's handler with a crossing in the place of its two worker threads.

    Kazoo asks before each read and write whether it may, with a new epoll each time: most of its
    work. Its sockets here are read in large pieces, and most questions need no system call.
    """

    def __init__(self, crossing: Crossing, died: Callable[[Exception], object]) -> None:
        super().__init__()
        self.callback_queue = self.completion_queue = crossing
        self._died = died
        self.client: Any = None

    def start(self) -> None:
        self._running = True

    def stop(self) -> None:
        """Go on: what is answered while closing must not run on kazoo's thread."""

    def spawn(self, func: Callable[..., object], *args: Any, **kwargs: Any) -> Any:
        """Start a thread; kazoo itself would not notice that it ended by an exception."""

        @wraps(func)  # The thread is called after it.
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
        """Tell which sockets are ready; a write is, since ``_Socket`` waits itself."""
        if writers and all(isinstance(writer, _Socket) for writer in writers):
            return [], list(writers), []
        full = [r for r in readers if isinstance(r, _Socket) and r.pending()]
        if full:
            # The other one is what wakes kazoo for a request: it has some when the queue has.
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
    """A socket that reads ahead, and waits where it cannot write."""

    def __init__(self, wrapped: socket.socket) -> None:
        self._wrapped = wrapped
        self._ahead = b""
        self._taken = 0

    def fileno(self) -> int:
        return self._wrapped.fileno()

    def pending(self) -> int:
        """Return how many bytes can be received without asking the system."""
        return len(self._ahead) - self._taken

    def recv(self, size: int) -> bytes:
        """Return up to ``size`` bytes."""
        if not self.pending():
            self._ahead, self._taken = self._wrapped.recv(max(size, _READ_BYTES)), 0
        received = self._ahead[self._taken : self._taken + size]
        self._taken += len(received)
        return received

    def send(self, data: bytes) -> int:
        """Send some of ``data``; wait, as long as the socket's time-out, until any can go."""
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
    """The request that kazoo lacks (ZooKeeper 3.5, RemoveWatchesRequest)."""

    type: ClassVar[int] = 18

    def __init__(self, path: str, *, of_children: bool) -> None:
        self._path, self._of_children = path.encode(), of_children

    def serialize(self) -> bytes:
        """Return path and kind: 1 for children, 2 for the value."""
        kind = 1 if self._of_children else 2
        size = len(self._path)
        return struct.pack(f">i{size}si", size, self._path, kind)

    def deserialize(self, _data: bytes, _offset: int) -> bool:
        """The answer says nothing."""
        return True


class NoWatcherError(exceptions.ZookeeperError):  # type: ignore[misc]
    """The watch to be removed has fired already."""

    code = _NO_WATCHER


# Kazoo does not know this error; an unknown one would end its thread.
exceptions.EXCEPTIONS.setdefault(_NO_WATCHER, NoWatcherError)
