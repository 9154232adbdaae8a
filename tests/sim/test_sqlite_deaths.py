"""The SQLite driver's process dies at every statement; the next one finds all or nothing."""

from __future__ import annotations

import itertools
import shutil
import sqlite3
from collections.abc import Awaitable, Callable
from contextlib import closing, suppress
from pathlib import Path
from random import Random
from typing import Any

import pytest
from twisted.internet.defer import Deferred

from bkclient.errors import ClientError
from bkclient.metadata.errors import NotFoundError
from bkclient.metadata.versions_and_watches import NEW
from tests.bkclient.metadata.values import B1, B2, closed, info, metadata
from tests.sim.world.processes import Process, SimClock
from tests.sim.world.sqlite_cluster import SimSqlite, SqliteCluster
from wire.ids import LedgerId

L1, L2 = LedgerId(1), LedgerId(2)
SESSION_S = 10.0
Act = Callable[[Any], Awaitable[object]]


class Stage:
    """One file, and processes that open it."""

    def __init__(self, image: Path | None = None, *, at_s: float = 0.0) -> None:
        self.clock = SimClock()
        self.wait(at_s)
        self.cluster = SqliteCluster(self.clock)
        if image is None:
            self.run(self.open().initialize())
        else:
            for name in (self.cluster.path.name, f"{self.cluster.path.name}-wal"):
                if (image / name).exists():
                    shutil.copy(image / name, self.cluster.path.parent)

    def open(self, **options: Any) -> SimSqlite:
        store = self.cluster.metadata(
            chance=Random(0),
            clock=Process(self.clock, "process"),
            session_timeout_s=SESSION_S,
            **options,
        )
        self.run(store.connect())
        return store

    def wait(self, for_s: float) -> None:
        end_s = self.clock.seconds() + for_s
        while self.clock.step(end_s):
            pass

    def run(self, work: Any) -> Any:
        results: list[Any] = []
        Deferred.fromCoroutine(work).addBoth(results.append)
        while not results:
            assert self.clock.step(self.clock.seconds() + 100.0), "it waits for ever"
        if isinstance(results[0], BaseException) or hasattr(results[0], "raiseException"):
            results[0].raiseException()
        return results[0]


def rows_of(directory: Path) -> frozenset[tuple[Any, ...]]:
    """Return all rows that another process sees, but those of sessions."""
    with closing(sqlite3.connect(directory / "metadata.sqlite")) as connection:
        nodes = connection.execute("SELECT kind, key, value, version, owner FROM node").fetchall()
        names = connection.execute("SELECT name, next FROM seq").fetchall()
    return frozenset([*nodes, *names])


def names_of(rows: frozenset[tuple[Any, ...]]) -> set[Any]:
    return {row[:2] for row in rows if len(row) > 2}


def images_of(stage: Stage, act: Act, directory: Path) -> list[Path]:
    """Let a process do something; return what its death before each statement leaves."""
    store = stage.open()
    images: list[Path] = []

    def keep(_statement: str) -> None:
        image = directory / str(len(images))
        shutil.copytree(stage.cluster.path.parent, image)
        images.append(image)

    database = store.file_session._database
    assert database is not None
    database._connection.set_trace_callback(keep)
    stage.run(act(store))
    database._connection.set_trace_callback(None)
    keep("the answer is lost")
    return images


async def nothing(_store: Any) -> None:
    """Prepare nothing."""


async def created(store: Any) -> None:
    await store.create_ledger(L1, metadata())


async def create(store: Any) -> None:
    await store.create_ledger(L2, metadata())


async def write(store: Any) -> None:
    await store.write_ledger(L1, closed(), 0)


async def remove(store: Any) -> None:
    await store.remove_ledger(L1)


async def allocate(store: Any) -> None:
    await store.allocate_ledger_id()


async def register(store: Any) -> None:
    await store.register(B1, info(B1), read_only=False)


async def write_cookie(store: Any) -> None:
    await store.write_cookie(B1, b"cookie", NEW)


async def mark(store: Any) -> None:
    await store.mark_underreplicated(L1, (B1, B2))


async def marked(store: Any) -> None:
    await created(store)
    await mark(store)


async def repair(store: Any) -> None:
    if await store.poll_underreplicated() is not None:
        await store.mark_replicated(L1)


async def create_log(store: Any) -> None:
    await store.create_log("events", b"record")


async def logged(store: Any) -> None:
    await create_log(store)


async def write_log(store: Any) -> None:
    await store.write_log("events", b"another", (await store.read_log("events")).version)


async def remove_log(store: Any) -> None:
    await store.remove_log("events")


async def move_cursors(store: Any) -> None:
    found = await store.read_cursors("events")
    await store.write_cursors("events", b"{}", found.version)


async def format_all(store: Any) -> None:
    await store.format()


async def nuke(store: Any) -> None:
    await store.nuke()


@pytest.mark.parametrize(
    ("prepare", "act", "transactions"),
    [
        (nothing, create, 1),
        (created, write, 1),
        (created, remove, 1),
        (nothing, allocate, 1),
        (nothing, register, 1),
        (nothing, write_cookie, 1),
        (created, mark, 2),
        (marked, repair, 3),
        (nothing, create_log, 1),
        (logged, write_log, 1),
        (logged, remove_log, 1),
        (nothing, move_cursors, 1),
        (marked, format_all, 1),
        (marked, nuke, 1),
    ],
    ids=lambda one: one.__name__ if callable(one) else "",
)
def test_a_death_at_any_statement_leaves_all_or_nothing(
    prepare: Act, act: Act, transactions: int, tmp_path: Path
) -> None:
    stage = Stage()
    stage.run(prepare(stage.open()))
    images = images_of(stage, act, tmp_path)
    states = [rows_of(image) for image in images]
    assert len(states) > 3
    assert states[0] != states[-1]
    changes = sum(one != other for one, other in itertools.pairwise(states))
    assert changes == len(set(states)) - 1 == transactions
    # What the next process does, when the lease of the dead one is over, comes to the same.
    for image in images:
        again = Stage(image, at_s=10 * SESSION_S)
        with suppress(ClientError):
            again.run(act(again.open()))
        assert names_of(rows_of(again.cluster.path.parent)) == names_of(states[-1]), act


def test_nothing_of_a_session_that_is_over_is_seen_before_it_is_removed() -> None:
    stage = Stage()
    dead, other = stage.open(), stage.open()
    stage.run(mark(dead))
    stage.run(dead.register(B1, info(B1), read_only=False))
    stage.run(dead.take_underreplicated(L1))
    assert stage.run(other.service_info(B1))
    dead.process.kill()
    stage.wait(2 * SESSION_S)
    there = {row[0] for row in rows_of(stage.cluster.path.parent) if row[-1]}
    assert {"avail", "lock"} <= there
    with pytest.raises(NotFoundError):
        stage.run(other.service_info(B1))
    assert stage.run(other.writable_bookies()) == frozenset()
    assert stage.run(other.lock_owner(L1)) is None
    assert stage.run(other.repair_locks()) == []
    assert stage.run(other.take_underreplicated(L1))
