"""Named cursors of logs and topics."""

from __future__ import annotations

from collections.abc import Coroutine
from typing import Any

import pytest
from twisted.internet.task import deferLater

from bkclient.errors import IncorrectParameterError
from bkclient.log import LogManager, LogOptions, Position
from bkclient.log.cursors import (
    CURSORS_MAX,
    Cursor,
    Cursors,
    check_cursor_name,
    decode_cursors,
    encode_cursors,
)
from bkclient.log.errors import LogDamagedError, NoSuchCursorError
from bkclient.log.ledger_list import LedgerList
from bkclient.metadata import zk_paths
from bkclient.metadata.errors import NoSuchLogError
from bkclient.metadata.tree.nodes import run_together
from tests.bkclient.worlds import World
from tests.support.memory_zookeeper import Fault, TreeOperation

TOPIC = "persistent://shop/eu/orders"
ONE = LogOptions(ensemble_size=1, write_quorum=1, ack_quorum=1)


class Readers:
    """Readers of the log ``events``, and of a topic."""

    def __init__(self) -> None:
        self.world = World(1)
        self.client = self.world.client()
        self.manager = LogManager(self.client)
        self.world.run(self.manager.create("events", ONE))

    def run(self, coroutine: Coroutine[Any, Any, Any]) -> Any:
        return self.world.run(coroutine)

    def cursors(self, source: str = "events") -> Cursors:
        return Cursors(self.client, source)

    def advance(self, index: int, entry: int, *, name: str = "etl", source: str = "events") -> str:
        moved = self.run(self.cursors(source).advance(name, Position(index, entry)))
        return str(moved.position)

    def positions(self, source: str = "events") -> dict[str, str]:
        found = self.run(self.cursors(source).list())
        return {one.name: str(one.position) for one in found}

    def append_ledger(self) -> None:
        async def append() -> None:
            writer = await self.manager.open_writer("events")
            await writer.append(b"entry")
            await writer.close()

        self.run(append())


def test_a_cursor_goes_forward_and_never_back() -> None:
    readers = Readers()
    assert readers.positions() == {}
    assert readers.advance(0, 5) == "0:5"
    assert readers.advance(0, 3) == "0:5"
    assert readers.advance(1, 0) == "1:0"
    assert readers.advance(0, 9, name="audit") == "0:9"
    assert readers.positions() == {"audit": "0:9", "etl": "1:0"}


def test_cursors_of_topics_have_ledgers_as_indexes() -> None:
    readers = Readers()
    assert readers.advance(71, 5, source=TOPIC) == "71:5"
    assert readers.advance(70, 9, source=TOPIC) == "71:5"
    assert readers.positions(TOPIC) == {"etl": "71:5"}
    assert readers.positions() == {}


def test_a_deleted_cursor_can_begin_anew() -> None:
    readers = Readers()
    readers.advance(3, 0)
    readers.run(readers.cursors().delete("etl"))
    assert readers.positions() == {}
    with pytest.raises(NoSuchCursorError, match="events has no cursor etl"):
        readers.run(readers.cursors().delete("etl"))
    assert readers.advance(1, 0) == "1:0"


def test_a_deleted_log_takes_its_cursors_along() -> None:
    readers = Readers()
    readers.advance(3, 0)
    readers.run(readers.manager.delete("events", force=True))
    readers.run(readers.manager.create("events", ONE))
    assert readers.positions() == {}


def test_a_deletion_keeps_the_cursors_of_a_log_that_is_made_again_at_that_moment() -> None:
    readers = Readers()
    readers.append_ledger()
    readers.advance(0, 1)
    readers.advance(0, 1, name="audit")
    other = readers.world.client()
    deleting: set[int] = set()

    def delay_s(operation: TreeOperation) -> float:
        is_of_log = operation.name == "set" and operation.path == zk_paths.log("events")
        if is_of_log and not deleting:  # The creation is a set, too.
            deleting.add(operation.session_id)
        is_late = operation.session_id in deleting and operation.path.startswith(".cursors/")
        return 20.0 if is_late else 0.01

    async def made_again() -> None:
        while not deleting:
            await deferLater(readers.world.clock, 0.01, lambda: None)
        await deferLater(readers.world.clock, 0.1, lambda: None)
        await LogManager(other).create("events", ONE)
        await Cursors(other, "events").advance("etl", Position(0, 0))

    async def both() -> None:
        readers.world.metadata.delay_s = delay_s
        await run_together([readers.manager.delete("events", force=True), made_again()])

    readers.run(both())
    assert readers.positions() == {"etl": "0:0"}


def test_a_cursor_of_an_earlier_log_of_the_name_does_not_hold_the_new_one_back() -> None:
    readers = Readers()
    readers.append_ledger()
    assert readers.advance(0, 7) == "0:7"
    stored = readers.run(readers.client.store.read_cursors("events"))
    readers.run(readers.manager.delete("events", force=True))
    readers.run(readers.manager.create("events", ONE))
    # As where the process ended before it deleted the cursors.
    emptied = readers.run(readers.client.store.read_cursors("events"))
    readers.run(readers.client.store.write_cursors("events", stored.value, emptied.version))
    readers.append_ledger()
    assert readers.advance(0, 1) == "0:1"


def test_a_cursor_behind_the_last_ledger_of_a_deleted_log_skips_nothing_of_the_new_one() -> None:
    """It has no ledger's id, for that ledger is not listed yet."""
    readers = Readers()
    readers.append_ledger()
    assert readers.advance(1, 0) == "1:0"
    readers.world.metadata.faults = lambda operation: (
        Fault.REQUEST_LOST
        if operation.writes and operation.path.startswith(".cursors/")
        else Fault.NONE
    )
    readers.run(readers.manager.delete("events", force=True))
    readers.world.metadata.faults = lambda _operation: Fault.NONE
    assert readers.positions() == {"etl": "1:0"}
    readers.run(readers.manager.create("events", ONE))
    readers.append_ledger()
    assert readers.run(readers.cursors().position("etl")) is None
    assert readers.advance(0, 1) == "0:1"


def test_a_cursor_of_an_earlier_release_does_not_say_of_which_log_it_is() -> None:
    stored = b'{"v":1,"cursors":{"etl":{"at":"1:0","ledger":null,"ms":7}}}'
    assert decode_cursors("events", stored) == {"etl": Cursor("etl", Position(1, 0), 7)}


def test_a_position_in_a_deleted_log_does_not_move_a_cursor_of_the_new_one() -> None:
    readers = Readers()

    async def log_id() -> str:
        return (await LedgerList(readers.client, "events").read()).record.log_id

    of_old_log = Cursors(readers.client, "events", log_id=readers.run(log_id()))
    readers.append_ledger()
    assert str(readers.run(of_old_log.advance("etl", Position(0, 1))).position) == "0:1"
    readers.run(readers.manager.delete("events", force=True))
    readers.run(readers.manager.create("events", ONE))
    with pytest.raises(NoSuchLogError, match="events was deleted, and another"):
        readers.run(of_old_log.advance("etl", Position(0, 1)))
    assert readers.positions() == {}
    of_new_log = Cursors(readers.client, "events", log_id=readers.run(log_id()))
    assert str(readers.run(of_new_log.advance("etl", Position(0, 0))).position) == "0:0"


@pytest.mark.parametrize("fault", [Fault.REQUEST_LOST, Fault.ANSWER_LOST])
def test_a_write_whose_answer_is_lost_is_done_once(fault: Fault) -> None:
    readers = Readers()
    readers.advance(0, 1)
    hits: list[str] = []

    def faults(operation: TreeOperation) -> Fault:
        if operation.name == "set" and operation.path.startswith(".cursors/") and not hits:
            hits.append(operation.path)
            return fault
        return Fault.NONE

    readers.world.metadata.faults = faults
    assert readers.advance(0, 4) == "0:4"
    hits.clear()
    readers.run(readers.cursors().delete("etl"))
    assert len(hits) == 1
    assert readers.positions() == {}


def test_two_at_once_both_move_their_cursors() -> None:
    readers = Readers()
    readers.advance(0, 1, name="first")
    other = Cursors(readers.world.client(), "events")
    versions: list[str] = []

    def delay_s(operation: TreeOperation) -> float:
        if operation.name == "set":
            versions.append(operation.path)
        return 0.01

    async def both() -> None:
        readers.world.metadata.delay_s = delay_s
        await run_together(
            cursors.advance(name, Position(0, 2))
            for name, cursors in (("etl", readers.cursors()), ("audit", other))
        )

    readers.run(both())
    assert len(versions) == 3, "one of the two found that the other had been quicker"
    assert readers.positions() == {"audit": "0:2", "etl": "0:2", "first": "0:1"}


@pytest.mark.parametrize("name", ["", ".", ".etl", "a/b", "a b", "é", "x" * 201, "a\n"])
def test_bad_names_are_refused(name: str) -> None:
    with pytest.raises(IncorrectParameterError, match="cannot be the name of a cursor"):
        check_cursor_name(name)


def test_there_is_a_limit_to_cursors() -> None:
    readers = Readers()
    full = {f"c{n}": Cursor(f"c{n}", Position(0, n), 0) for n in range(CURSORS_MAX)}
    readers.run(readers.client.store.write_cursors("events", encode_cursors(full), -2))
    with pytest.raises(IncorrectParameterError, match="1000 cursors"):
        readers.advance(0, 1, name="another")
    assert readers.advance(0, 1000, name="c1") == "0:1000"


@pytest.mark.parametrize(
    "stored",
    [
        b"{",
        b"[]",
        b'{"v":2,"cursors":{}}',
        b'{"v":1,"cursors":{"a":{"at":"x","ledger":null,"ms":1}}}',
        b'{"v":1,"cursors":{"/":{"at":"0:1","ledger":null,"ms":1}}}',
        b'{"v":1,"cursors":{"a":{"at":"0:1"}}}',
        b'{"v":1,"cursors":[1]}',
    ],
)
def test_what_is_damaged_is_named(stored: bytes) -> None:
    with pytest.raises(LogDamagedError, match="cursors of events"):
        decode_cursors("events", stored)


def test_the_most_cursors_fit_into_a_node() -> None:
    name = "x" * 196
    full = {
        f"{name}{n:04}": Cursor(f"{name}{n:04}", Position(2**62, 2**62, 2**62), 2**45)
        for n in range(CURSORS_MAX)
    }
    stored = encode_cursors(full)
    assert len(stored) < 1024 * 1024
    assert decode_cursors("events", stored) == full
