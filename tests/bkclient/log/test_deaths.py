"""A log and its cursors, where the process that changes them may die at any request."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import suppress
from typing import Any

import attrs
import pytest

from bkclient.client import Client
from bkclient.log import EARLIEST, LogManager, LogOptions, Position
from bkclient.log.cursors import Cursors
from bkclient.log.errors import NoSuchCursorError
from bkclient.metadata.errors import NoSuchLogError
from tests.bkclient.scenarios.process_deaths import Death, Killed, Processes, deaths, steps_of
from wire.ids import LedgerId

ONE = LogOptions(ensemble_size=1, write_quorum=1, ack_quorum=1)
Work = Callable[["Readers"], Any]


class Readers(Processes):
    """The log ``events`` with two cursors, and processes that move them."""

    def __init__(self, death: Death | None = None) -> None:
        super().__init__(2)
        self.make_log(b"one", b"two", b"three")
        self.advance("etl", 0, 1)
        self.advance("audit", 0, 2)
        self.steps = 0
        self.death = None if death is None else attrs.evolve(death)

    def make_log(self, *payloads: bytes) -> None:
        async def make(client: Client) -> None:
            manager = LogManager(client)
            await manager.create("events", ONE)
            for payload in payloads:  # A ledger each.
                writer = await manager.open_writer("events")
                await writer.append(payload)
                await writer.close()

        with self.start() as process:
            process.call(make)

    def advance(self, name: str, index: int, entry: int) -> str:
        with self.start() as process:
            cursors = Cursors(process.client, "events")
            return str(process.run(cursors.advance, name, Position(index, entry)).position)

    def delete(self, name: str) -> None:
        with self.start() as process:
            process.run(Cursors(process.client, "events").delete, name)

    def delete_log(self) -> None:
        with self.start() as process:
            process.run(LogManager(process.client).delete, "events", force=True)

    def positions(self) -> dict[str, str]:
        with self.start() as process:
            found = process.run(Cursors(process.client, "events").list)
        return {one.name: str(one.position) for one in found}

    def read(self) -> list[bytes]:
        async def read(client: Client) -> list[bytes]:
            reader = await LogManager(client).open_reader("events", EARLIEST, follow=False)
            return [payload async for _position, payload in reader]

        with self.start() as process:
            payloads: list[bytes] = process.call(read)
        return payloads

    def trim(self) -> None:
        with self.start() as process:
            process.run(LogManager(process.client).trim, "events", Position(2, 0))

    def unlisted(self) -> set[LedgerId]:
        """Return the ledgers that no record lists."""

        async def look(client: Client) -> set[LedgerId]:
            listed: set[LedgerId] = set()
            with suppress(NoSuchLogError):
                info = await LogManager(client).info("events")
                listed = {one.ledger_id for one in info.ledgers}
            return {one async for one in client.list_ledgers()} - listed

        with self.start() as process:
            found: set[LedgerId] = process.call(look)
        return found


def advance(readers: Readers) -> None:
    readers.advance("etl", 0, 5)


def delete(readers: Readers) -> None:
    readers.delete("etl")


def delete_log(readers: Readers) -> None:
    readers.delete_log()


def trim(readers: Readers) -> None:
    readers.trim()


def dead(work: Work, death: Death) -> Readers:
    """Return what a process leaves that dies in its work."""
    readers = Readers(death)
    with pytest.raises(Killed):
        work(readers)
    readers.death = None
    return readers


def test_a_process_that_dies_as_it_moves_a_cursor_puts_none_back_later() -> None:
    for death in deaths(steps_of(Readers(), advance)):
        for entry, expected in ((3, {"0:3", "0:5"}), (7, {"0:7"})):
            readers = dead(advance, death)
            moved = readers.advance("etl", 0, entry)
            assert moved in expected
            assert readers.advance("audit", 0, 4) == "0:4"
            readers.wait()
            assert readers.positions() == {"audit": "0:4", "etl": moved}


def test_a_process_that_dies_as_it_deletes_a_cursor_does_not_delete_its_next_life() -> None:
    for death in deaths(steps_of(Readers(), delete)):
        readers = dead(delete, death)
        if "etl" in readers.positions():
            readers.delete("etl")
        else:
            with pytest.raises(NoSuchCursorError):
                readers.delete("etl")
        assert readers.advance("etl", 0, 0) == "0:0"
        readers.wait()
        assert readers.positions() == {"audit": "0:2", "etl": "0:0"}


def test_a_process_that_dies_as_it_deletes_a_log_harms_no_later_log_of_the_name() -> None:
    for death in deaths(steps_of(Readers(), delete_log)):
        readers = dead(delete_log, death)
        try:
            readers.delete_log()
        except NoSuchLogError:
            assert set(readers.positions().values()) <= {"0:1", "0:2"}
        readers.make_log(b"four")
        assert readers.advance("etl", 0, 1) == "0:1"
        readers.wait()
        assert readers.positions()["etl"] == "0:1"
        assert readers.read() == [b"four"]


def test_a_process_that_dies_as_it_trims_a_log_takes_nothing_that_is_listed() -> None:
    for death in deaths(steps_of(Readers(), trim)):
        readers = dead(trim, death)
        kept = readers.read()
        assert kept in ([b"one", b"two", b"three"], [b"three"]), death
        readers.trim()
        assert readers.read() == [b"three"]
        readers.wait()
        assert readers.read() == [b"three"]


@pytest.mark.parametrize(
    ("work", "expected"),
    [
        (advance, {"audit": "0:2", "etl": "0:5"}),
        (delete, {"audit": "0:2"}),
        (trim, {"audit": "0:2", "etl": "0:1"}),
        (delete_log, {}),
    ],
)
def test_one_lost_answer_changes_nothing(work: Work, expected: dict[str, str]) -> None:
    for death in deaths(steps_of(Readers(), work), is_fatal=False):
        readers = Readers(death)
        work(readers)
        assert readers.death is not None
        assert readers.death.left <= 0, death
        readers.death = None
        assert readers.unlisted() == set(), death
        assert readers.positions() == expected, death
        readers.wait()
        assert readers.positions() == expected, death
