"""Connections between simulated processes: late, split, stalled, half-open, cut.

What a connection carries arrives in order; nothing is in order between connections. A connection
loses bytes only with itself. Each frame is decoded on its way, so that an oracle sees what is asked
and answered, and a scenario can hold or damage the one message it is about. How often connections
are cut and messages held is drawn in ``engine.plan``.
"""

from __future__ import annotations

import enum
import functools
from collections import deque
from collections.abc import Callable, Iterable
from random import Random
from typing import Any, Final

import attrs
from twisted.internet import error
from twisted.internet.defer import Deferred
from twisted.internet.protocol import Factory, Protocol
from twisted.python.failure import Failure

from bookied.errors import PortInUseError
from bookied.server.listener import BoundPort
from tests.sim.world.processes import Process, SimClock
from wire.codes import ProtocolVersion
from wire.frames import v2, v3
from wire.framing import FrameBuffer
from wire.messages import (
    AddRequest,
    BatchReadRequest,
    BatchReadResponse,
    ReadLacResponse,
    ReadRequest,
    ReadResponse,
    Request,
    Response,
)

PIPE_BYTES_MAX: Final = 64 * 1024
"""What a sender may have under way before it is told to wait."""


class Fate(enum.Enum):
    """What a policy has done with a message."""

    PASS = enum.auto()
    HOLD = enum.auto()
    """It and all behind it on its connection wait until ``Network.release``."""
    CUT = enum.auto()
    """The connection breaks instead."""
    DAMAGE = enum.auto()
    """A bit of it is flipped."""
    ROT = enum.auto()
    """A bit of the entry that it carries is flipped, as on a disk."""

    def __str__(self) -> str:
        return "" if self is Fate.PASS else f" ({self.name})"


@attrs.define(eq=False)
class Message:
    """One frame on its way."""

    client: str
    bookie: str
    request: Request
    protocol: ProtocolVersion
    response: Response | None = None
    """``None`` on the way to the bookie."""
    note: Any = None
    """What the oracle noted when the request arrived."""

    def with_answer(self, response: Response) -> Message:
        """Return the answer to it."""
        return Message(self.client, self.bookie, self.request, self.protocol, response, self.note)

    def __str__(self) -> str:
        if self.response is None:
            return f"{self.client} -> {self.bookie}: {_in_short(self.request)}"
        rc = self.response.rc.name
        return f"{self.bookie} -> {self.client}: {rc} to {_in_short(self.request)}"


def packets_of(message: Message) -> list[bytes]:
    """Return what an answer has that was packaged by a client, and has a digest."""
    answer = message.response
    if isinstance(answer, ReadLacResponse):
        return [packet for packet in (answer.last_entry, answer.lac_body) if packet]
    return list(entries_of(answer))


def _in_short(request: Request) -> str:
    kind = type(request).__name__.removesuffix("Request")
    ledger_id, entry_id = getattr(request, "ledger_id", ""), getattr(request, "entry_id", "")
    if isinstance(request, AddRequest):
        entry_id = request.entry_id
    flags = getattr(request, "flags", 0)
    return f"{kind} {ledger_id}/{entry_id}{' ' + str(flags) if flags else ''}"


class _End:
    """One end of a connection, and its transport."""

    def __init__(self, link: Link, process: Process, protocol: Protocol) -> None:
        self.link, self.process, self.protocol = link, process, protocol
        self.disconnecting = False
        self.is_open = True
        self.out: deque[tuple[float, bytes, Message | None]] = deque()
        self.out_bytes = 0
        self.swallowed = False
        self._written: list[bytes] = []
        self._is_departing = False
        self._producer: Any = None
        self._is_full = False
        self._reads = True
        self._unread: list[tuple[bytes, list[Message]]] = []
        self._frames = FrameBuffer()
        self._last_due_s = 0.0
        self.is_held = False

    # What the protocol calls

    def write(self, data: bytes) -> None:
        if not self.is_open or self.disconnecting:
            return
        self._written.append(bytes(data))
        if not self._is_departing:
            self._is_departing = True
            self.process.callLater(0, self._depart)

    def writeSequence(self, data: Iterable[bytes]) -> None:  # noqa: N802
        self.write(b"".join(data))

    def loseConnection(self) -> None:  # noqa: N802
        if self.is_open and not self.disconnecting:
            self.disconnecting = True
            self.process.callLater(0, self._finish)

    def abortConnection(self) -> None:  # noqa: N802
        if self.is_open:
            self.link.cut(keep_in_flight=False)

    def registerProducer(self, producer: Any, streaming: bool) -> None:  # noqa: FBT001, N802
        assert streaming
        self._producer = producer

    def unregisterProducer(self) -> None:  # noqa: N802
        self._producer = None

    def pauseProducing(self) -> None:
        self._reads = False

    def resumeProducing(self) -> None:
        self._reads = True
        self.process.callLater(0, self._take_unread)

    def getPeer(self) -> str:  # noqa: N802
        return self.link.other(self).process.name

    # On its way

    def _depart(self) -> None:
        self._is_departing = False
        if self.is_open:
            data, self._written = b"".join(self._written), []
            self._frames.receive_data(data)
            self.link.network.depart(self)

    def frames(self) -> Iterable[bytes]:
        """Give the whole frames that were written."""
        while (payload := self._frames.next_payload()) is not None:
            yield v2.LENGTH.pack(len(payload)) + payload

    def queue(self, frame: bytes, message: Message | None, delay_s: float) -> None:
        clock = self.link.network.clock
        due_s = self._last_due_s = max(self._last_due_s, clock.seconds() + delay_s)
        self.out.append((due_s, frame, message))
        self.out_bytes += len(frame)
        if self.out_bytes > PIPE_BYTES_MAX and not self._is_full and self._producer is not None:
            self._is_full = True
            self._producer.pauseProducing()
        if len(self.out) == 1:
            clock.callLater(due_s - clock.seconds(), self.link.network.arrive, self)

    def take_due(self, now_s: float) -> tuple[list[bytes], list[Message]]:
        frames, messages = [], []
        while self.out and self.out[0][0] <= now_s:
            _, frame, message = self.out.popleft()
            self.out_bytes -= len(frame)
            frames.append(frame)
            if message is not None:
                messages.append(message)
        if self._is_full and self.out_bytes <= PIPE_BYTES_MAX // 2:
            self._is_full = False
            self.process.run(self._resume_producer)
        return frames, messages

    def _resume_producer(self) -> None:
        if self._producer is not None and self.is_open:
            self._producer.resumeProducing()

    def _finish(self) -> None:
        """Let the other end have what was written, and then the end of it."""
        if self.is_open:
            self._depart()
            self.link.close_behind(self)

    # What comes in; in the process

    def receive(self, data: bytes, messages: list[Message]) -> None:
        if not self.is_open:
            return
        if not self._reads:
            self._unread.append((data, messages))
            return
        self.link.network.arrived(self, messages)
        self.protocol.dataReceived(data)

    def _take_unread(self) -> None:
        while self._reads and self._unread and self.is_open:
            self.receive(*self._unread.pop(0))

    def lose(self) -> None:
        if self.is_open:
            self.is_open = False
            self.link.network.trace(self.process.name, ": connection lost to ", self.getPeer())
            self.protocol.connectionLost(Failure(error.ConnectionLost()))


class Link:
    """One connection between a client's process and a bookie's."""

    def __init__(self, network: Network, client: Process, bookie: Process) -> None:
        self.network = network
        self.client_name, self.bookie_name = client.name, bookie.name
        self.is_cut = self.is_dead = self.is_forgotten = False
        self.asked: dict[Any, deque[Message]] = {}

    def join(self, client: _End, bookie: _End) -> None:
        self.client, self.bookie = client, bookie

    @property
    def ends(self) -> tuple[_End, _End]:
        return self.client, self.bookie

    def other(self, end: _End) -> _End:
        return self.bookie if end is self.client else self.client

    def cut(self, *, keep_in_flight: bool = True) -> None:
        """Break: some of what is on its way may still arrive, and each end hears when it does."""
        if self.is_cut:
            return
        self.is_cut = True
        network = self.network
        for end in self.ends:
            if not keep_in_flight:
                end.out.clear()
            while end.out and network.rng.random() < 0.5:
                end.out.pop()
            end.is_held = False
            network.clock.callLater(network.rng.uniform(0, 0.05), end.process.run, end.lose)
        network.forget(self)

    def close_behind(self, end: _End) -> None:
        """Close once the other end has all that this one wrote."""
        clock = self.network.clock
        wait_s = end.out[-1][0] - clock.seconds() if end.out else 0.0
        clock.callLater(max(0.0, wait_s) + 0.001, self.cut)

    def die(self, survivor: _End, *, silent: bool) -> None:
        """One process is gone; the other end hears of it, or does not."""
        self.other(survivor).is_open = False
        if not silent:
            self.cut()
        else:
            self.is_dead = True
            self.other(survivor).out.clear()
            survivor.out.clear()


@attrs.define(eq=False)
class Port:
    """A port that a simulated bookie has; a ``BoundPort``."""

    network: Network
    host: str
    process: Process
    port: int = 3181
    factory: Any = None

    def listen(self, factory: Factory) -> None:
        self.factory = factory

    async def close(self) -> None:
        self.factory = None
        self.network.ports.pop(self.host, None)


@attrs.frozen
class SimListener:
    """The one host of a bookie; a ``Listener``."""

    network: Network
    host: str
    process: Process

    def bind(self, host: str, port: int) -> BoundPort:
        if self.host in self.network.ports:
            raise PortInUseError(self.host)
        bound = self.network.ports[self.host] = Port(self.network, self.host, self.process)
        return bound  # type: ignore[return-value]


def passes(_message: Message) -> Fate:
    """The policy that lets everything through."""
    return Fate.PASS


class Network:
    """All connections. What happens to a message is decided by ``policy`` and ``delay_s``.

    ``sent`` is called with each request when it leaves a client, ``asked`` when it reaches a
    bookie, ``answered`` with each answer when it leaves one.
    """

    def __init__(self, clock: SimClock, rng: Random) -> None:
        self.clock, self.rng = clock, rng
        self.policy: Callable[[Message], Fate] = passes
        self.delay_s: Callable[[str, str], float] = lambda _sender, _receiver: 0.0005
        self.sent: Callable[[Message], None] = lambda _message: None
        self.asked: Callable[[Message], None] = lambda _message: None
        self.answered: Callable[[Message], None] = lambda _message: None
        self.trace: Callable[..., None] = lambda *_what: None
        self.ports: dict[str, Port] = {}
        self.down: set[str] = set()
        """Hosts without power: they do not even refuse."""
        self.links: list[Link] = []
        self._parted: set[tuple[str, str]] = set()

    # Making connections

    def connect_from(self, process: Process) -> Callable[..., Deferred[Any]]:
        """Return the ``Connect`` of a process."""

        def connect(
            host: str, port: int, make_protocol: Callable[[], Protocol], timeout_s: float
        ) -> Deferred[Any]:
            made: Deferred[Any] = Deferred()
            timer = process.callLater(timeout_s, self._time_out, made)
            there_s = self.delay_s(process.name, host)
            self.clock.callLater(there_s, self._knock, process, host, make_protocol, made, timer)
            return made

        return connect

    def _time_out(self, made: Deferred[Any]) -> None:
        if not made.called:
            made.errback(error.TimeoutError())

    def _knock(
        self, process: Process, host: str, make: Callable[[], Protocol], made: Any, timer: Any
    ) -> None:
        if host in self.down or self._is_parted(process.name, host):
            return  # The time-out says so.
        port = self.ports.get(host)
        back_s = self.delay_s(host, process.name)
        if port is None or port.factory is None or not port.process.is_alive:
            self.clock.callLater(back_s, process.run, self._refuse, made, timer)
            return
        port.process.run(self._accept, port, process, make, made, timer, back_s)

    def _refuse(self, made: Deferred[Any], timer: Any) -> None:
        if not made.called:
            timer.cancel()
            made.errback(error.ConnectionRefusedError())

    def _accept(
        self,
        port: Port,
        process: Process,
        make: Callable[[], Protocol],
        made: Any,
        timer: Any,
        back_s: float,
    ) -> None:
        protocol = None if port.factory is None else port.factory.buildProtocol(None)
        if protocol is None:
            self.clock.callLater(back_s, process.run, self._refuse, made, timer)
            return
        link = Link(self, process, port.process)
        bookie_end = _End(link, port.process, protocol)
        link.join(_End(link, process, Protocol()), bookie_end)
        self.links.append(link)
        protocol.makeConnection(bookie_end)
        self.clock.callLater(back_s, process.run, self._made, link, make, made, timer)
        if not process.is_alive:
            link.cut()

    def _made(self, link: Link, make: Callable[[], Protocol], made: Any, timer: Any) -> None:
        if made.called or link.is_cut or link.is_dead:
            link.cut()
            if not made.called:
                timer.cancel()
                made.errback(error.ConnectionLost())
            return
        timer.cancel()
        protocol = link.client.protocol = make()
        protocol.makeConnection(link.client)
        made.callback(protocol)

    def forget(self, link: Link) -> None:
        if link in self.links:
            self.links.remove(link)

    # Messages

    def depart(self, end: _End) -> None:
        """Send what an end has written; called in its process."""
        link, other = end.link, end.link.other(end)
        delay_s = self.delay_s(end.process.name, other.process.name)
        for frame in end.frames():
            if link.is_cut:
                return
            message = self._message(link, end, frame)
            if message is not None:
                tell = self.sent if message.response is None else self.answered
                tell(message)
            if link.is_forgotten:
                continue
            if link.is_dead:
                end.swallowed = True
                self._reset_if_up(link, end)
                continue
            fate = Fate.PASS
            if message is not None:
                fate = self.policy(message)
                self.trace(message, fate)
            if fate is Fate.CUT:
                link.cut()
                return
            if fate is Fate.DAMAGE:
                frame = self._damaged(frame, message)  # noqa: PLW2901
            elif fate is Fate.ROT and message is not None:
                frame = _rotten(frame, message.response)  # noqa: PLW2901
            end.is_held = end.is_held or fate is Fate.HOLD
            end.queue(frame, message, delay_s)

    def _message(self, link: Link, end: _End, frame: bytes) -> Message | None:
        payload = frame[4:]
        is_v3 = payload[0] == v3.FIRST_BYTE
        if end is link.client:
            received = (v3 if is_v3 else v2).decode_request(payload)
            version = received.reply_to.version
            message = Message(link.client_name, link.bookie_name, received.request, version)
            key = received.reply_to.txn_id if is_v3 else _place(received.request)
            link.asked.setdefault(key, deque()).append(message)
            return message
        answer = (v3 if is_v3 else v2).decode_response(payload)
        key = answer.txn_id if is_v3 else _place(answer.response)
        waiting = link.asked.get(key)
        if not waiting:
            return None
        asked = waiting.popleft()
        if not waiting:
            del link.asked[key]
        return asked.with_answer(answer.response)

    def _damaged(self, frame: bytes, message: Message | None) -> bytes:
        """Flip a bit of a packet, as a disk would: heads, LACs and digests are hit as well."""
        assert message is not None
        packet = self.rng.choice(packets_of(message))
        at = frame.index(packet) + self.rng.randrange(len(packet))
        return frame[:at] + bytes([frame[at] ^ 1 << self.rng.randrange(8)]) + frame[at + 1 :]

    def arrive(self, end: _End) -> None:
        """Hand over what is due of what ``end`` sent."""
        link, other = end.link, end.link.other(end)
        if not end.out or (end.is_held and not link.is_cut):
            return
        now_s = self.clock.seconds()
        if self._is_parted(link.client_name, link.bookie_name):
            return  # ``heal`` sends it again.
        frames, messages = end.take_due(now_s)
        if frames:
            data = b"".join(frames)
            at = self.rng.randrange(len(data)) if self.rng.random() < 0.05 else 0
            if at:
                other.process.run(other.receive, data[:at], messages)
                other.process.run(other.receive, data[at:], [])
            else:
                other.process.run(other.receive, data, messages)
        if end.out:
            self.clock.callLater(end.out[0][0] - now_s, self.arrive, end)

    def arrived(self, end: _End, messages: list[Message]) -> None:
        for message in messages:
            if end is end.link.bookie:
                self.asked(message)

    # Trouble

    def release(self) -> None:
        """Let go of what was held."""
        for link in list(self.links):
            for end in link.ends:
                if end.is_held:
                    end.is_held = False
                    self._again(end)

    def _again(self, end: _End) -> None:
        if end.out:
            due_s = max(end.out[0][0] - self.clock.seconds(), 0.0)
            self.clock.callLater(due_s, self.arrive, end)

    def part(self, one: str, other: str) -> None:
        """Let nothing pass between two; connections do not notice."""
        self._parted |= {(one, other), (other, one)}

    def heal(self) -> None:
        """Let everything pass again: what was on its way is sent once more, or its link is cut."""
        self._parted.clear()
        for link in list(self.links):
            if any(end.out for end in link.ends) and self.rng.random() < 0.3:
                link.cut()
                continue
            for end in link.ends:
                self._again(end)

    def _is_parted(self, one: str, other: str) -> bool:
        return (one, other) in self._parted

    def forget_links(self, name: str) -> None:
        """Let somebody's connections be half-open for good; whoever connects anew gets through.

        So it is behind a router that has forgotten them, or has been replaced.
        """
        for link in self.links_of(name):
            link.is_forgotten = True
            for end in link.ends:
                end.out.clear()

    def links_of(self, name: str) -> list[Link]:
        return [link for link in self.links if name in {link.client_name, link.bookie_name}]

    def process_gone(self, process: Process, *, silent: bool) -> None:
        """A process has ended; without power, nobody is told."""
        for link in list(self.links):
            for end in link.ends:
                if end.process is process and not link.is_dead:
                    link.die(link.other(end), silent=silent)

    def power_off(self, host: str) -> None:
        self.ports.pop(host, None)
        self.down.add(host)

    def power_on(self, host: str) -> None:
        """A host is there again: it resets the connections of its former life.

        Those of them that hear from the other end: for what it has sent, or to keep them alive.
        """
        self.down.discard(host)
        for link in list(self.links):
            if link.is_dead:
                for end in link.ends:
                    if end.swallowed or self.rng.random() < 0.5:
                        self._reset_if_up(link, end)

    def _reset_if_up(self, link: Link, end: _End) -> None:
        gone = link.other(end).process.name
        if gone not in self.down and end.is_open:
            self.clock.callLater(self.rng.uniform(0, 1.0), end.process.run, end.lose)
            self.forget(link)


def entries_of(response: Response | None) -> tuple[bytes, ...]:
    """Return the entries that an answer carries."""
    if isinstance(response, BatchReadResponse):
        return tuple(response.entries)
    entry = response.entry if isinstance(response, ReadResponse) else None
    return (entry,) if entry else ()


@functools.cache
def _kind(name: str) -> str:
    return name.removesuffix("Request").removesuffix("Response")


def _rotten(frame: bytes, response: Response | None) -> bytes:
    for packet in entries_of(response):
        frame = frame.replace(packet, packet[:-1] + bytes([packet[-1] ^ 1]))
    return frame


def _place(message: Request | Response) -> tuple[Any, ...]:
    """Return what a V2 answer has in common with its request."""
    kind = _kind(type(message).__name__)
    if isinstance(message, BatchReadRequest):
        return kind, message.request_id
    if isinstance(message, (AddRequest, ReadRequest)):
        return kind, message.ledger_id, message.entry_id
    named: Any = message
    if hasattr(message, "request_id"):
        return kind, named.request_id
    return kind, getattr(named, "ledger_id", -1), getattr(named, "entry_id", -1)
