"""A stage for one scenario: real bookies and clients, and a hand on every message."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final, TypedDict

from twisted.internet.defer import Deferred

from bkclient.ledger.reader import LedgerReader
from bkclient.ledger.writer import LedgerWriter
from tests.sim.world.bookie import SimBookie
from tests.sim.world.cluster import SimClient, SimCluster
from tests.sim.world.network import Fate, Message
from wire.codes import AddFlag, ReadFlag
from wire.messages import AddRequest, ReadRequest

Test = Callable[[Message], bool]


class Quorums(TypedDict):
    """The size of an ensemble and its quorums, as options of a ledger or a log."""

    ensemble_size: int
    write_quorum: int
    ack_quorum: int


TRIPLE: Final[Quorums] = {"ensemble_size": 3, "write_quorum": 3, "ack_quorum": 2}


class Scene:
    """A cluster in which messages go as ``when`` says; the oracle watches all along."""

    def __init__(self, bookies: int, **settings: Any) -> None:
        self.world = SimCluster("scene", bookies, **settings)
        self.world.until_serving()
        self.oracle = self.world.oracle
        self._rules: list[tuple[Test, Fate]] = []
        self.world.network.policy = self._judge

    def _judge(self, message: Message) -> Fate:
        for number, (test, fate) in enumerate(self._rules):
            if test(message):
                if fate is Fate.CUT:
                    del self._rules[number]  # Connections are cut once, not for ever.
                return fate
        return Fate.PASS

    def when(self, test: Test, fate: Fate) -> None:
        """Let this happen to messages that pass the test, from now on."""
        self._rules.append((test, fate))

    def seen(self, test: Test) -> list[Message]:
        """Return the messages that pass the test and meet no rule before, as they are sent."""
        seen: list[Message] = []

        def note(message: Message) -> bool:
            if test(message):
                seen.append(message)
            return False

        self.when(note, Fate.PASS)
        return seen

    def release(self) -> None:
        """Let everything go its way again, what was held included."""
        self._rules.clear()
        self.world.network.release()

    def client(self, name: str, **settings: Any) -> SimClient:
        client = self.world.client(name, **settings)
        self.world.drive(0.1)
        return client

    def writer(self, client: SimClient, **options: Any) -> LedgerWriter:
        create = client.client.create_ledger(**{**TRIPLE, **options})
        writer = self.world.run(client.begin(create))
        self.oracle.ledger(writer.ledger_id).is_deferred = bool(options.get("deferred_sync"))
        return writer

    def members(self, writer: LedgerWriter) -> list[SimBookie]:
        return [self.world[name] for name in writer.metadata.last_fragment.ensemble]

    def add(self, writer: LedgerWriter, payload: bytes = b"entry") -> list[Any]:
        """Add an entry; what comes of it, its id or an error, will be in the list."""
        ledger_id, entry_id = writer.ledger_id, writer.last_add_pushed + 1
        self.oracle.sending(ledger_id, entry_id, payload)
        return self._outcome(ledger_id, writer.add(payload))

    def add_at(self, writer: LedgerWriter, entry_id: Any, payload: bytes = b"entry") -> list[Any]:
        self.oracle.sending(writer.ledger_id, entry_id, payload)
        return self._outcome(writer.ledger_id, writer.add_at(entry_id, payload))

    def _outcome(self, ledger_id: int, added: Deferred[Any]) -> list[Any]:
        outcome: list[Any] = []

        def confirmed(entry_id: int) -> None:
            outcome.append(entry_id)
            self.oracle.acked(ledger_id, entry_id)

        added.addCallbacks(confirmed, lambda failure: outcome.append(failure.value))
        return outcome

    def opening(self, client: SimClient, writer: LedgerWriter) -> list[Any]:
        """Open with recovery; the reader, or why not, will be in the list."""
        outcome: list[Any] = []
        opening = client.begin(client.client.open_ledger(writer.ledger_id))

        def opened(reader: LedgerReader) -> None:
            outcome.append(reader)
            self.oracle.opened(writer.ledger_id, reader.last_add_confirmed)

        opening.addCallbacks(opened, lambda failure: outcome.append(failure.value))
        return outcome

    def open(self, client: SimClient, writer: LedgerWriter, limit_s: float = 60.0) -> LedgerReader:
        """Open with recovery, and compare the ledger with all that was told of it."""
        outcome = self.opening(client, writer)
        self.world.drive(limit_s, lambda: outcome)
        if isinstance(outcome[0], BaseException):
            raise outcome[0]
        reader: LedgerReader = outcome[0]
        self.finish(client, reader)
        return reader

    def finish(self, client: SimClient, reader: LedgerReader) -> None:
        async def everything() -> list[tuple[int, bytes]]:
            return [(entry.entry_id, entry.payload) async for entry in reader.read()]

        found = self.world.run(client.begin(everything()))
        self.oracle.finish(reader.ledger_id, found, reader.last_add_confirmed)
        self.oracle.raise_broken()

    def drive(self, for_s: float) -> None:
        self.world.drive(for_s)


# Tests of messages


def add(message: Message) -> bool:
    """An add of a writer, on its way to the bookie."""
    return message.response is None and _is_add(message, recovers=False)


def add_answer(message: Message) -> bool:
    return message.response is not None and _is_add(message, recovers=False)


def recovery_add(message: Message) -> bool:
    return message.response is None and _is_add(message, recovers=True)


def _is_add(message: Message, *, recovers: bool) -> bool:
    request = message.request
    return isinstance(request, AddRequest) and bool(request.flags & AddFlag.RECOVERY) is recovers


def fence(message: Message) -> bool:
    """The fencing read that a recovery begins with."""
    return message.response is None and _fences(message) and not _is_read(message)


def fence_answer(message: Message) -> bool:
    return message.response is not None and _fences(message) and not _is_read(message)


def recovery_read_answer(message: Message) -> bool:
    return message.response is not None and _fences(message) and _is_read(message)


def _fences(message: Message) -> bool:
    request = message.request
    return isinstance(request, ReadRequest) and bool(request.flags & ReadFlag.FENCE)


def _is_read(message: Message) -> bool:
    return isinstance(message.request, ReadRequest) and message.request.entry_id >= 0


def at(bookie: SimBookie, *tests: Test) -> Test:
    """What passes one of the tests, at this bookie."""
    return lambda message: message.bookie == bookie.name and any(test(message) for test in tests)


def of(client: SimClient, test: Test) -> Test:
    """What passes the test, and is this client's."""
    return lambda message: message.client == client.name and test(message)
