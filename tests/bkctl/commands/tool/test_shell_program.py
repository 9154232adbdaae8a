"""What the shell shows of a cluster whose metadata service comes and goes."""

from __future__ import annotations

from typing import Any

import pytest
from twisted.internet.defer import CancelledError, Deferred
from twisted.internet.task import Clock

from bkctl.commands.tool.shell_program import Connection, cluster_state
from bkctl.errors import CommandError
from tests.bkclient.metadata.values import run, start
from tests.support.memory_zookeeper import MemoryMetadata, MemoryZooKeeper


@pytest.fixture
def clock() -> Clock:
    return Clock()


@pytest.fixture
def store(clock: Clock) -> MemoryMetadata:
    store = MemoryZooKeeper.initialized(clock).metadata()
    run(store.connect(), clock)
    return store


async def _unanswered() -> Any:
    return await Deferred()


async def _error(asked: Deferred[Any]) -> str:
    try:
        await asked
    except (CommandError, CancelledError) as error:
        return str(error) or type(error).__name__
    return ""


LOST = "connection with the metadata service lost; trying again"


def test_a_loss_is_told_to_who_waits_for_an_answer(store: MemoryMetadata) -> None:
    waiting = start(_error(start(Connection(store).ask(_unanswered()))))
    assert not waiting.called
    store.session.suspend()
    assert waiting.result == LOST


def test_a_loss_is_told_that_the_question_itself_finds(store: MemoryMetadata) -> None:
    async def find() -> None:
        store.session.suspend()
        await store.session.until_connected()

    assert start(_error(start(Connection(store).ask(find())))).result == LOST


def test_a_loss_is_told_until_the_connection_is_back(store: MemoryMetadata, clock: Clock) -> None:
    connection = Connection(store)
    store.session.suspend()
    assert start(_error(start(connection.ask(cluster_state(store))))).result == LOST
    store.session.resume()
    assert run(connection.ask(cluster_state(store)), clock).text == "0 of 0 bookies writable"


def test_who_gives_up_is_not_told_of_a_loss(store: MemoryMetadata) -> None:
    asked = start(Connection(store).ask(_unanswered()))
    waiting = start(_error(asked))
    asked.cancel()
    assert waiting.result == CancelledError.__name__
