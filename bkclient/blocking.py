"""BlockingClient: the same client for callers that block: scripts, commands, Spark tasks.

    with BlockingClient("sqlite:///cluster.db") as client:
        for entry in client.iter_entries(7):
            print(entry.payload)
        metadata = client.call(admin.read_metadata, 7)

The reactor runs in a daemon thread of its own, one for the process, started at the first use. If a
reactor already runs in another thread, that reactor is used. This module and ``__main__`` modules
are the only ones that import the reactor.
"""

from __future__ import annotations

import atexit
import contextlib
import os
import threading
from collections.abc import (
    AsyncGenerator,
    AsyncIterable,
    AsyncIterator,
    Awaitable,
    Callable,
    Iterator,
)
from contextlib import aclosing
from typing import TYPE_CHECKING, Any, Concatenate, Final, ParamSpec, TypeVar

from twisted.internet.defer import Deferred
from twisted.python.failure import Failure
from twisted.python.threadable import isInIOThread

from bkclient.client import Client
from bkclient.concurrency import use_steady_clock
from bkclient.config.client import ClientConfig
from bkclient.connection.name_lookup import NameLookup
from bkclient.errors import ClientError, IllegalOperationError
from bkclient.metadata import open_metadata
from bkclient.metadata.tree.store import MetadataStore
from bkclient.metadata.zookeeper_reader.reachability import require_reachable
from wire.codes import ProtocolVersion
from wire.digest import Entry
from wire.ids import EntryId, LedgerId

if TYPE_CHECKING:
    from bkclient.ledger.reader import LedgerReader
    from wire.entry_batch import EntryBatch

P = ParamSpec("P")
T = TypeVar("T")

START_TIMEOUT_S: Final = 30.0
CANCEL_TIMEOUT_S: Final = 5.0
"""Seconds that an interrupted call may take to end safely."""
HEED_S: Final = 0.5
"""Seconds after which the waiting thread notices a signal that another thread received."""

_starting: Final = threading.Lock()
_used_in: Final = set[int]()
"""The process with the reactor's thread; a forked process inherits this set, but not the thread."""


def reactor_in_thread() -> Any:
    """Return the reactor, running in another thread; start it if needed.

    Raises:
        IllegalOperationError: called from the reactor's own thread, which must not block; or the
            reactor is of the process that this process was forked from, or has stopped.
    """
    from twisted.internet import reactor

    the_reactor: Any = reactor
    if _used_in:
        _require_usable(the_reactor)
    with _starting:
        if not the_reactor.running:
            _start(the_reactor)
        _used_in.add(os.getpid())
    _require_usable(the_reactor)
    return the_reactor


def _require_usable(reactor: Any) -> None:
    """Refuse to wait for a reactor if the wait would never end.

    Raises:
        IllegalOperationError: see ``reactor_in_thread``.
    """
    why = _why_unusable(reactor)
    if why is not None:
        raise IllegalOperationError(f"the blocking client cannot be used {why}")


def _why_unusable(reactor: Any) -> str | None:
    if os.getpid() not in _used_in:
        return (
            "after a fork: its thread runs in the parent process only; start this process with"
            " spawn, or use the client first in this process"
        )
    if not reactor.running:
        return "any more: the reactor has stopped, as at the end of the process"
    return "in the reactor's thread" if isInIOThread() else None


def _start(reactor: Any) -> None:
    use_steady_clock(reactor)
    reactor.installNameResolver(NameLookup(reactor))
    running = threading.Event()
    reactor.callWhenRunning(running.set)
    thread = threading.Thread(
        target=reactor.run,
        kwargs={"installSignalHandlers": False},
        name="bkclient-reactor",
        daemon=True,
    )
    thread.start()
    if not running.wait(START_TIMEOUT_S):
        raise IllegalOperationError("the reactor does not start")
    atexit.register(_stop, reactor, thread)


def _stop(reactor: Any, thread: threading.Thread) -> None:
    """End the reactor before the interpreter unloads its modules."""
    if reactor.running:
        reactor.callFromThread(reactor.stop)
        with contextlib.suppress(KeyboardInterrupt):  # Ctrl-C ends this wait, without a traceback.
            thread.join(CANCEL_TIMEOUT_S)


def call_in_reactor(
    reactor: Any, work: Callable[[], Any], *, done: threading.Event | None = None
) -> Any:
    """Run ``work`` in the reactor's thread; wait for its result.

    An interruption (Ctrl-C) cancels the work, waits briefly until the work has ended safely, and is
    raised again. ``done`` is the event to wait for, by default a new one.

    Raises:
        IllegalOperationError: the wait would never end; see ``reactor_in_thread``.
        Exception: any error of the work.
    """
    _require_usable(reactor)
    done = _InterruptibleEvent() if done is None else done
    outcome: list[Any] = []
    running: list[Deferred[Any]] = []

    def begin() -> None:
        deferred = Deferred.fromCoroutine(_awaited(work))
        running.append(deferred)
        deferred.addBoth(finish)

    def cancel() -> None:
        running[0].cancel()

    def finish(result: Any) -> None:
        outcome.append(result)
        done.set()

    reactor.callFromThread(begin)
    try:
        done.wait()
    except BaseException:
        reactor.callFromThread(cancel)
        done.wait(CANCEL_TIMEOUT_S)
        raise
    (result,) = outcome
    if isinstance(result, Failure):
        result.raiseException()
    return result


class _InterruptibleEvent(threading.Event):
    """An event whose wait wakes up at intervals if it has no time limit.

    Python runs a signal's handler in the main thread, but the signal does not end the main thread's
    wait if the kernel has delivered it to another thread.
    """

    def wait(self, timeout: float | None = None) -> bool:
        if timeout is not None:
            return super().wait(timeout)
        while not super().wait(HEED_S):
            pass
        return True


async def _awaited(work: Callable[[], Any]) -> Any:
    result = work()
    return await result if hasattr(result, "__await__") else result


class BlockingClient:
    """A ``Client`` for one thread at a time that may block.

    Args:
        uri: the metadata service.
        config: settings; by default Java's.
        protocol: by default V2, whatever ``useV2WireProtocol`` says. Every bookie serves both on
            one port, and V2 costs a fraction. The V2 client sends over V3 what V2 lacks.
        rest: as for ``Client.connect``.

    Raises:
        MetadataStoreError: the metadata service cannot be reached, or holds no cluster.
    """

    def __init__(
        self,
        uri: str | None = None,
        *,
        config: ClientConfig | None = None,
        protocol: ProtocolVersion = ProtocolVersion.V2,
        **rest: Any,
    ) -> None:
        self._reactor = reactor_in_thread()
        config = ClientConfig() if config is None else config
        where: Any = config if uri is None else uri
        require_reachable((config.service_uri if uri is None else uri) or "")
        self.client: Client = self._run(
            lambda: Client.connect(
                where, reactor=self._reactor, config=config, protocol=protocol, **rest
            )
        )
        self._closed = False

    def __enter__(self) -> BlockingClient:  # noqa: PYI034 - typing.Self needs Python 3.11.
        return self

    def __exit__(self, *_error: object) -> None:
        self.close()

    def close(self) -> None:
        """Close the client; the reactor continues for other clients."""
        if not self._closed:
            self._closed = True
            self._run(self.client.close)

    def _run(self, work: Callable[[], Any]) -> Any:
        return call_in_reactor(self._reactor, work)

    def call(
        self,
        function: Callable[Concatenate[Client, P], Awaitable[T]],
        *args: P.args,
        **kwargs: P.kwargs,
    ) -> T:
        """Return ``await function(client, *args, **kwargs)``, run in the reactor's thread.

        Raises:
            Exception: whatever the function raises.
        """
        result: T = self._run(lambda: function(self.client, *args, **kwargs))
        return result

    def run(self, function: Callable[..., Any], *args: Any, **kwargs: Any) -> Any:
        """Return ``await function(*args, **kwargs)``: for methods of writers and readers."""
        return self._run(lambda: function(*args, **kwargs))

    def iterate(
        self, make: Callable[[Client], AsyncIterable[T] | Awaitable[AsyncIterable[T]]]
    ) -> Iterator[T]:
        """Yield the values that ``make(client)``, or its awaited result, yields.

        Ending the iteration early closes the async iterator.
        """
        values = aiter(self._run(lambda: make(self.client)))
        try:
            while True:
                try:
                    value = self._run(lambda: anext(values))
                except StopAsyncIteration:
                    return
                yield value
        finally:
            # After an interruption the iterator may still run: it ends itself, and cannot be
            # closed.
            if hasattr(values, "aclose") and not getattr(values, "ag_running", False):
                self._end(values.aclose)

    def _end(self, close: Callable[[], Any]) -> None:
        """Close an async iterator; without a wait if the wait would never end.

        The garbage collector may end an iteration: in any thread, and when the process ends.
        """
        if _why_unusable(self._reactor) is None:
            self._run(close)
        elif isInIOThread():
            self._reactor.callFromThread(Deferred.fromCoroutine, _awaited(close))

    def iter_entries(
        self,
        ledger_id: int,
        first: int = 0,
        last: int | None = None,
        *,
        password: bytes | None = None,
        recover: bool = False,
    ) -> Iterator[Entry]:
        """Yield the entries ``first`` to ``last`` in order, reading ahead in bounded memory.

        Both are included. By default the call fences no writer and yields all confirmed entries.

        Raises:
            NoSuchLedgerError: there is no such ledger.
            ReadFailedError: ``last`` is not confirmed.
            ClientError: an entry cannot be read; those before it have been yielded.
        """
        for entries in self._of_reader(
            ledger_id, lambda reader: reader.read_chunks(first, last), password, recover=recover
        ):
            yield from entries

    def iter_batches(
        self,
        ledger_id: int,
        first: int = 0,
        last: int | None = None,
        *,
        password: bytes | None = None,
        recover: bool = False,
    ) -> Iterator[EntryBatch]:
        """Yield the entries of ``iter_entries`` as batches, each in one buffer.

        No object is made for an entry: this is the fast way into Arrow, a file or a pipe.

        Raises:
            NoSuchLedgerError: there is no such ledger.
            ReadFailedError: ``last`` is not confirmed.
            ClientError: an entry cannot be read; those before it have been yielded.
        """
        return self._of_reader(
            ledger_id, lambda reader: reader.read_batches(first, last), password, recover=recover
        )

    def _of_reader(
        self,
        ledger_id: int,
        read: Callable[[LedgerReader], AsyncGenerator[T, None]],
        password: bytes | None,
        *,
        recover: bool,
    ) -> Iterator[T]:
        async def values(client: Client) -> AsyncIterator[T]:
            with contextlib.closing(
                await client.open_ledger(LedgerId(ledger_id), password=password, recover=recover)
            ) as reader:
                async with aclosing(read(reader)) as found:
                    async for value in found:
                        yield value

        return self.iterate(values)

    def read_entry(self, ledger_id: int, entry_id: int) -> Entry:
        """Return one confirmed entry."""
        (entry,) = self.iter_entries(ledger_id, entry_id, entry_id)
        return entry

    def ledgers(self, *, after: int | None = None) -> Iterator[LedgerId]:
        """Yield the ids of all ledgers, ascending."""
        start = None if after is None else LedgerId(after)
        for ids in self.iterate(lambda client: client.store.ledger_ranges(after=start)):
            yield from ids

    def write_ledger(self, payloads: Any, **options: Any) -> tuple[LedgerId, EntryId]:
        """Create a ledger, add ``payloads``, close it; return its id and last entry.

        ``options`` are those of ``Client.create_ledger``. ``payloads`` is consumed in the
        reactor's thread, so it must not block: it cannot read from a blocking client. After an
        error the ledger is closed with the entries confirmed so far.
        """
        return self.call(_write_ledger, payloads, options)


async def _write_ledger(
    client: Client, payloads: Any, options: dict[str, Any]
) -> tuple[LedgerId, EntryId]:
    writer = await client.create_ledger(**options)
    try:
        await writer.add_many(payloads)
    except BaseException:
        with contextlib.suppress(ClientError):
            await writer.close()
        raise
    await writer.close()
    return writer.ledger_id, writer.last_add_confirmed


def with_store(uri: str, function: Callable[[MetadataStore], Awaitable[T]], **options: Any) -> T:
    """Connect to a metadata service, return ``await function(store)``, close the connection.

    For work before a cluster exists: ``with_store(uri, admin.init_cluster)``.

    Raises:
        MetadataUnavailableError: the service cannot be reached.
        Exception: whatever the function raises.
    """
    require_reachable(uri)
    reactor = reactor_in_thread()

    async def work() -> T:
        store = open_metadata(uri, reactor=reactor, **options)
        await store.connect()
        try:
            return await function(store)
        finally:
            await store.close()

    result: T = call_in_reactor(reactor, work)
    return result
