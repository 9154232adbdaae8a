"""The blocking client over real sockets, and the reactor thread it starts."""

from __future__ import annotations

import contextlib
import signal
import socket
import subprocess
import sys
import threading
import time
from collections.abc import AsyncIterator, Iterator
from pathlib import Path
from typing import Any

import pytest
from twisted.internet.defer import CancelledError, Deferred
from twisted.internet.protocol import Factory, Protocol
from twisted.internet.task import deferLater

from bkclient.admin import cluster_operations, one_shot_adds
from bkclient.blocking import BlockingClient, _stop, call_in_reactor, reactor_in_thread, with_store
from bkclient.client import Client
from bkclient.config.client import ClientConfig
from bkclient.errors import (
    IllegalOperationError,
    IncorrectParameterError,
    MetadataStoreError,
    NoSuchEntryInLedgerError,
    NoSuchLedgerError,
    ReadFailedError,
)
from bkclient.ledger.creation import NewLedger
from bkclient.log import EARLIEST, LogManager, LogOptions
from bkclient.metadata import open_metadata
from bkclient.metadata.errors import MetadataUnavailableError, NotInitializedError
from tests.bkclient.worlds import FakeBookie
from tests.support.reactor import call, run, the_reactor
from wire.codes import ProtocolVersion
from wire.framing import ServerConnection
from wire.ids import BookieId, LedgerId
from wire.messages import NEED_DATA, ReceivedRequest
from wire.records.bookie_service_info import BookieServiceInfo, Endpoint

TRIPLE = {"ensemble_size": 3, "write_quorum": 3, "ack_quorum": 2}


class RealWorld:
    """What a fake bookie needs of its world, on the real reactor."""

    def __init__(self) -> None:
        self.clock = the_reactor()

    def on_stored(self, *_what: object) -> None:
        """Nobody watches here."""


class Served(Protocol):
    """The bookie's end of a TCP connection; stands in for ``FakeLink``."""

    def __init__(self, bookie: FakeBookie) -> None:
        self._bookie, self._connection = bookie, ServerConnection()

    def dataReceived(self, data: bytes) -> None:
        self._connection.receive_data(data)
        while (event := self._connection.next_event()) is not NEED_DATA:
            assert isinstance(event, ReceivedRequest)
            self._bookie.received(self, event)  # type: ignore[arg-type]

    def to_client(self, frame: bytes) -> None:
        self.transport.write(frame)  # type: ignore[union-attr]

    def cut(self) -> None:
        self.transport.abortConnection()  # type: ignore[union-attr]


@pytest.fixture(scope="module")
def uri(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """A cluster of three bookies on real sockets, with its metadata in a file."""
    uri = f"sqlite://{tmp_path_factory.mktemp('cluster')}/metadata.db"
    with_store(uri, cluster_operations.init_cluster)
    store = open_metadata(uri, reactor=the_reactor())
    run(store.connect())
    ports = [call(_listen, number) for number in range(3)]
    for port in ports:
        run(_register(store, port.getHost().port))
    yield uri
    run(store.close())
    for port in ports:
        call(port.stopListening)


def _listen(number: int) -> Any:
    bookie = FakeBookie(RealWorld(), BookieId(f"real{number}"))  # type: ignore[arg-type]
    factory = Factory.forProtocol(lambda: Served(bookie))  # type: ignore[arg-type]
    factory.noisy = False
    return the_reactor().listenTCP(0, factory, interface="127.0.0.1")


async def _register(store: Any, port: int) -> None:
    bookie_id = BookieId(f"127.0.0.1:{port}")
    endpoint = Endpoint(id="bookie", port=port, host="127.0.0.1", protocol="bookie-rpc")
    await store.register(bookie_id, BookieServiceInfo((endpoint,)), read_only=False)


@pytest.mark.parametrize("protocol", list(ProtocolVersion), ids=lambda p: p.name)
def test_a_ledger_there_and_back(uri: str, protocol: ProtocolVersion) -> None:
    payloads = [b"entry %d" % number for number in range(500)]
    with BlockingClient(uri, protocol=protocol) as client:
        ledger_id, last = client.write_ledger(payloads, **TRIPLE)
        assert last == 499
        assert [entry.payload for entry in client.iter_entries(ledger_id)] == payloads
        assert [e.entry_id for e in client.iter_entries(ledger_id, 7, 9)] == [7, 8, 9]
        assert b"".join(b.payloads for b in client.iter_batches(ledger_id)) == b"".join(payloads)
        assert [list(b.entry_ids) for b in client.iter_batches(ledger_id, 7, 9)] == [[7, 8, 9]]
        assert client.read_entry(ledger_id, 3).payload == b"entry 3"
        assert ledger_id in list(client.ledgers())
        metadata = client.call(cluster_operations.read_metadata, ledger_id).value
        assert metadata.length == sum(map(len, payloads))


def test_an_iteration_may_end_early(uri: str) -> None:
    with BlockingClient(uri) as client:
        ledger_id, _ = client.write_ledger([b"x" * 100] * 1000, **TRIPLE)
        for entry in client.iter_entries(ledger_id):
            if entry.entry_id == 10:
                break
        assert client.read_entry(ledger_id, 999).entry_id == 999


@pytest.mark.parametrize("bad", ["payloads that end with an error", "a payload that is too large"])
def test_a_ledger_that_cannot_be_written_completely_does_not_stay_open(uri: str, bad: str) -> None:
    def payloads() -> Iterator[bytes]:
        yield from [b"1", b"2"]
        if bad == "a payload that is too large":
            yield bytes(10 << 20)
        raise ValueError(bad)

    with BlockingClient(uri) as client:
        before = set(client.ledgers())
        with pytest.raises((ValueError, IncorrectParameterError)):
            client.write_ledger(payloads(), **TRIPLE)
        (ledger_id,) = set(client.ledgers()) - before
        assert client.call(cluster_operations.read_metadata, ledger_id).value.is_closed


def test_errors_come_out_as_they_are(uri: str) -> None:
    with BlockingClient(uri) as client:
        with pytest.raises(NoSuchLedgerError):
            list(client.iter_entries(123456))
        writer = client.call(one_shot_adds.create_handed_over, NewLedger(**TRIPLE))
        ledger_id = writer[0]
        with pytest.raises(ReadFailedError):
            client.read_entry(ledger_id, 0)
        client.call(cluster_operations.recover_ledger, ledger_id)
        with pytest.raises(NoSuchEntryInLedgerError):
            client.read_entry(ledger_id, 0)


def test_writers_can_be_held_between_calls(uri: str) -> None:
    with BlockingClient(uri) as client:
        ledger_id, _ = client.call(one_shot_adds.create_handed_over, NewLedger(**TRIPLE))
        writer = client.call(one_shot_adds.claim_ledger, ledger_id)
        assert client.run(writer.add, b"one") == 0
        assert client.run(writer.add_many, [b"two", b"three"]) == 2
        client.run(one_shot_adds.release_ledger, writer)
        reader = client.run(client.client.open_ledger, ledger_id, recover=True)
        assert client.run(reader.read_entry, 2).payload == b"three"


def test_connecting_to_nothing_says_so(tmp_path: Path) -> None:
    with pytest.raises(NotInitializedError):
        BlockingClient(f"sqlite://{tmp_path}/nothing.db")
    with pytest.raises(IncorrectParameterError):
        BlockingClient("gopher://x")
    with pytest.raises(IncorrectParameterError):
        BlockingClient()
    assert issubclass(NotInitializedError, MetadataStoreError)


def test_a_refused_port_is_named_at_once() -> None:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))  # Bound, and not listening: connections are refused.
        where = f"127.0.0.1:{taken.getsockname()[1]}"
        began_s = time.monotonic()
        with pytest.raises(MetadataUnavailableError, match=f"{where}: Connection refused"):
            BlockingClient(f"zk+hierarchical://{where}/ledgers")
        with pytest.raises(MetadataUnavailableError, match=f"{where}: Connection refused"):
            with_store(f"zk+hierarchical://{where}/ledgers", lambda store: store.layout())
        assert time.monotonic() - began_s < ClientConfig().zk_timeout_ms / 1000


def test_a_call_from_the_reactor_thread_is_refused() -> None:
    def from_there() -> Any:
        try:
            reactor_in_thread()
        except IllegalOperationError as error:
            return error
        return None

    assert isinstance(call(from_there), IllegalOperationError)


def test_an_interruption_cancels_the_work_and_waits_for_its_end() -> None:
    """Ctrl-C while waiting: here it is raised by the wait itself."""
    reactor = reactor_in_thread()
    ended: list[str] = []
    started = threading.Event()

    async def endless() -> None:
        try:
            started.set()
            await Deferred()
        finally:
            ended.append("safely")

    class Interrupted(BaseException):
        pass

    waits = threading.Event.wait

    class Impatient(threading.Event):
        def wait(self, timeout: float | None = None) -> bool:
            if timeout is None:
                waits(started, 60)
                raise Interrupted
            return waits(self, timeout)

    with pytest.raises(Interrupted):
        call_in_reactor(reactor, endless, done=Impatient())
    assert ended == ["safely"]


def test_an_interruption_comes_out_as_it_is_though_the_iteration_does_not_end(uri: str) -> None:
    ends: Deferred[None] = Deferred()

    async def stubborn(_client: Client) -> AsyncIterator[int]:
        with contextlib.suppress(CancelledError):
            await Deferred()
        await ends
        yield 1

    class Interruption(BaseException):
        pass

    def interrupt(*_: object) -> None:
        raise Interruption

    before = signal.signal(signal.SIGALRM, interrupt)
    try:
        with BlockingClient(uri) as client:
            signal.setitimer(signal.ITIMER_REAL, 0.2)
            with pytest.raises(Interruption):
                next(client.iterate(stubborn))
    finally:
        signal.signal(signal.SIGALRM, before)
        the_reactor().callFromThread(ends.callback, None)


def test_a_log_is_written_and_read_without_a_reactor_of_its_own(uri: str) -> None:
    """As in docs/library.md."""
    with BlockingClient(uri) as client:
        logs = LogManager(client.client)
        client.run(logs.create, "blocking", LogOptions(roll_entries=2, ensemble_size=3))
        writer = client.run(logs.open_writer, "blocking")
        written = [(client.run(writer.append, b"%d" % n), b"%d" % n) for n in range(5)]
        client.run(writer.close)
        found = client.iterate(lambda _: logs.open_reader("blocking", EARLIEST, follow=False))
        assert list(found) == written


@pytest.mark.processes
def test_a_script_needs_no_reactor_of_its_own_and_ends(uri: str) -> None:
    script = f"""
import sys
from bkclient.blocking import BlockingClient
client = BlockingClient({uri!r})
ledger_id, last = client.write_ledger([b"from a script"], ensemble_size=3)
print(client.read_entry(ledger_id, last).payload.decode())
"""
    done = subprocess.run(
        [sys.executable, "-c", script], capture_output=True, text=True, timeout=120, check=False
    )
    assert (done.stdout, done.returncode) == ("from a script\n", 0), done.stderr


SCRIPTS = {
    "the process ends in an iteration": (
        """
entries = client.iter_entries(ledger_id)
print(next(entries).payload.decode())
""",
        "entry 0",
    ),
    "payloads come from the client itself": (
        """
try:
    client.write_ledger((e.payload for e in client.iter_entries(ledger_id)), ensemble_size=3)
except IllegalOperationError as error:
    print(error)
""",
        "the blocking client cannot be used in the reactor's thread",
    ),
    "the collector ends an iteration in the reactor's thread": (
        """
entries = client.iter_entries(ledger_id)
next(entries)
client.run(entries.close)
print(client.read_entry(ledger_id, 1).payload.decode())
""",
        "entry 1",
    ),
    "a fork uses the client of its parent": (
        """
def in_fork():
    client.read_entry(ledger_id, 1)
print(fork(in_fork))
""",
        "the blocking client cannot be used after a fork",
    ),
    "a fork makes a client of its own": (
        """
print(fork(lambda: BlockingClient(client.uri)))
""",
        "the blocking client cannot be used after a fork",
    ),
    "a fork ends an iteration of its parent": (
        """
entries = client.iter_entries(ledger_id)
next(entries)
print(fork(entries.close))
""",
        "it returned",
    ),
}

_FORK = """
import multiprocessing
from bkclient.errors import IllegalOperationError

def fork(work):
    said = multiprocessing.get_context("fork").SimpleQueue()
    def run():
        try:
            work()
        except IllegalOperationError as error:
            said.put(str(error))
        else:
            said.put("it returned")
    child = multiprocessing.get_context("fork").Process(target=run)
    child.start()
    child.join()
    return said.get()
"""


@pytest.mark.processes
@pytest.mark.parametrize(("script", "says"), SCRIPTS.values(), ids=SCRIPTS)
def test_nothing_waits_for_a_reactor_that_cannot_answer(uri: str, script: str, says: str) -> None:
    with BlockingClient(uri) as client:
        ledger_id, _ = client.write_ledger([b"entry %d" % n for n in range(1000)], **TRIPLE)
    before = f"""
from bkclient.blocking import BlockingClient
{_FORK}
client, ledger_id = BlockingClient({uri!r}), {ledger_id}
client.uri = {uri!r}
"""
    done = subprocess.run(
        [sys.executable, "-W", "ignore", "-c", before + script],
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )
    assert (done.stdout[: len(says)], done.returncode) == (says, 0), done.stderr
    assert not done.stderr


def test_ids_are_plain_numbers_for_callers(uri: str) -> None:
    with BlockingClient(uri) as client:
        ledger_id, _ = client.write_ledger([b"x"], ledger_id=LedgerId(4711), **TRIPLE)
        assert ledger_id == 4711
        assert [e.payload for e in client.iter_entries(4711)] == [b"x"]
        assert list(client.ledgers(after=4710)) == [4711]


def test_a_signal_that_came_to_another_thread_ends_the_wait() -> None:
    """As when a stopped process goes on: the kernel gives it to whichever thread runs first."""
    reactor = reactor_in_thread()
    ended: list[str] = []

    class Interrupted(BaseException):
        pass

    def heard(*_: object) -> None:
        raise Interrupted

    async def work() -> None:
        await deferLater(reactor, 1)  # Until the other waits.
        signal.pthread_kill(threading.get_ident(), signal.SIGUSR1)
        await deferLater(reactor, 30)
        ended.append("by itself")

    before = signal.signal(signal.SIGUSR1, heard)
    try:
        with pytest.raises(Interrupted):
            call_in_reactor(reactor, work)
    finally:
        signal.signal(signal.SIGUSR1, before)
    assert ended == []


class _EndsLater:
    """A reactor and its thread, which is still at work when Ctrl-C is pressed."""

    running = True

    def callFromThread(self, work: Any) -> None:  # noqa: N802
        work()

    def stop(self) -> None:
        self.running = False

    def join(self, _timeout_s: float) -> None:
        raise KeyboardInterrupt


def test_ctrl_c_while_the_process_ends_is_no_error() -> None:
    ending: Any = _EndsLater()
    _stop(ending, ending)
    assert not ending.running
