from __future__ import annotations

import io
import os
import pty
from types import SimpleNamespace
from typing import Any, cast

import pytest
from twisted.internet.defer import Deferred
from twisted.internet.task import Clock

from bkclient.errors import WriteFailedError
from bkctl.commands.ledger.input_cutting import Framing, cutter
from bkctl.commands.ledger.write import ArgumentSource, EntryFeed, EntryPump, StreamSource
from bkctl.errors import Interrupted
from bkctl.exit_status import ExitStatus
from bkctl.output.progress import Progress
from bkctl.session.interrupt import Stop
from tests.bkclient.replication_world import TRIPLE, open_writer
from tests.bkclient.worlds import Fate, World, is_add, when
from tests.bkctl.support.world import run_in
from wire.ids import LedgerId
from wire.messages import Request


def _result(work: Any) -> Any:
    """Return what a coroutine gives that never has to wait."""
    outcome: list[Any] = []
    Deferred.fromCoroutine(work).addBoth(outcome.append)
    assert outcome, "it waits"
    return outcome[0]


class _Session:
    def progress(self, what: str, *, total: int | None) -> str:
        return f"a bar for {what}"


class _Writer:
    """Takes a batch when told to, in bulk: ids are given after the batch was consumed."""

    def __init__(self) -> None:
        self.clock = Clock()
        self.last_add_pushed = -1
        self.added: list[bytes] = []
        self.waiting: list[tuple[list[bytes], Deferred[int]]] = []
        self._room: list[Deferred[None]] = []

    def add_many(self, payloads: Any) -> Deferred[int]:
        done: Deferred[int] = Deferred()
        self.waiting.append((list(payloads), done))
        return done

    async def wait_for_space(self) -> None:
        room: Deferred[None] = Deferred()
        self._room.append(room)
        await room

    async def drain(self) -> int:
        return self.last_add_pushed

    def take(self) -> None:
        for payloads, _ in self.waiting:
            self.added += payloads
            self.last_add_pushed += len(payloads)
        self.waiting = []
        self.wake()

    def wake(self) -> None:
        rooms, self._room = self._room, []
        for room in rooms:
            room.callback(None)
        self.clock.advance(0)


def test_what_is_typed_has_no_bar() -> None:
    by = cutter(Framing.LINES, entry_bytes_max=100)
    session: Any = _Session()
    controller, terminal = pty.openpty()
    with os.fdopen(controller, "wb"), os.fdopen(terminal, "rb") as keyboard:
        typed = StreamSource(keyboard, "-", Framing.LINES, by, b"")
        assert type(typed.progress(session, "writing")) is Progress
    piped = StreamSource(io.BytesIO(), "-", Framing.LINES, by, b"")
    assert piped.progress(session, "writing") == "a bar for writing"


def test_a_batch_is_given_only_when_the_one_before_has_its_ids() -> None:
    writer: Any = _Writer()
    feed = EntryFeed(writer)
    _result(feed.push([b"a", b"b"]))
    second = Deferred.fromCoroutine(feed.push([b"c"]))
    assert len(writer.waiting) == 1
    writer.wake()
    assert len(writer.waiting) == 1, "there is room, but no ids have been given"
    writer.take()
    assert second.called
    drained = Deferred.fromCoroutine(feed.drain())
    writer.take()
    assert drained.called
    assert writer.added == [b"a", b"b", b"c"]


def test_a_failed_add_is_raised_by_the_next_call() -> None:
    writer: Any = _Writer()
    feed = EntryFeed(writer)
    _result(feed.push([b"a"]))
    waiting: list[Any] = []
    Deferred.fromCoroutine(feed.push([b"b"])).addBoth(waiting.append)
    writer.waiting[0][1].errback(WriteFailedError("a bookie failed"))
    writer.wake()
    assert isinstance(waiting[0].value, WriteFailedError)
    assert isinstance(_result(feed.drain()).value, WriteFailedError)


def test_a_failure_after_the_time_limit_ends_as_the_time_limit_does() -> None:
    session: Any = SimpleNamespace(resume="", failed="", progress=lambda *_, **__: Progress())
    session.run = _fails
    writer = SimpleNamespace(ledger_id=7, last_add_pushed=-1, is_writable=True)
    pump = EntryPump(session, writer, _Silent(), "writing")
    stop = Stop()
    with pytest.raises(WriteFailedError):
        pump.run(stop)
    stop.ask(Interrupted("time limit reached", ExitStatus.TIME_LIMIT))
    with pytest.raises(Interrupted, match="time limit reached"):
        pump.run(stop)
    assert session.resume == (
        "a bookie failed; `bkctl ledger recover 7` closes it, if it is open, and shows its last "
        "entry"
    )


def _fails(*_: object) -> None:
    raise WriteFailedError("a bookie failed")


class _Silent(ArgumentSource):
    """A source without entries."""

    def __init__(self) -> None:
        super().__init__(cast("Any", None), [])


def test_a_failed_write_waits_for_the_close_of_its_ledger_and_names_its_end() -> None:
    world = World(3)
    for bookie in [*world.bookies.values()][:2]:
        bookie.policy = when(is_add, Fate.LOSE)
    failed = run_in(world, "ledger", "write", "-", "-W", 3, typed="a\n", ok=False)
    assert "ledger 0 is closed with 0 entries" in failed.err
    assert "bkctl ledger recover" not in failed.err
    assert "could not be closed" not in failed.err


# Ledgers with an id of the user's choice ---------------------------------------------------------


def _deleted_ledger(world: World) -> LedgerId:
    """Return the id of a ledger that was fenced and deleted; bookies still have its fence."""
    writer = open_writer(world, world.client(), 2, **TRIPLE)
    world.run(world.client().open_ledger(writer.ledger_id, recover=True)).close()
    world.run(world.client().delete_ledger(writer.ledger_id))
    return writer.ledger_id


def test_a_ledger_that_old_fences_make_useless_is_deleted_again() -> None:
    world = World(3)
    old = _deleted_ledger(world)
    words = ("ledger", "write", "-", "-W", 3, "--ledger-id", old)
    refused = run_in(world, *words, typed="a\n", ok=False)
    assert refused.status == ExitStatus.CONFLICT
    assert f"bookies still fence ledger {old}, which was deleted; no entry was added" in refused.err
    assert "leave out --ledger-id" in refused.err
    assert "bkctl ledger recover" not in refused.err
    assert run_in(world, "ledger", "list", "-o", "id").out == ""


def test_a_new_ledger_that_another_client_recovers_is_kept_and_the_error_names_delete() -> None:
    world = World(3)
    old = _deleted_ledger(world)
    recovers: list[object] = []

    def recovered_meanwhile(request: Request) -> Fate:
        if is_add(request) and not recovers:
            recovers.append(world.start(world.client().open_ledger(old, recover=True)))
        return Fate.SERVE

    for bookie in world.bookies.values():
        bookie.policy = recovered_meanwhile
    words = ("ledger", "write", "-", "-W", 3, "--ledger-id", old)
    refused = run_in(world, *words, typed="a\n", ok=False)
    assert f"`bkctl ledger delete {old} --force open-ledgers` deletes it" in refused.err
    assert run_in(world, "ledger", "list", "-o", "id").out == f"{old}\n"


# How a ledger is read again ----------------------------------------------------------------------


def test_a_copy_made_with_lengths_is_read_as_the_original() -> None:
    world = World(3)
    original = run_in(world, "ledger", "write", "-", "-o", "id", typed="a\nbc\n").id
    prefixed = run_in(world, "ledger", "read", original, "--length-prefixed").out
    assert prefixed == "\0\0\0\1a\0\0\0\2bc"
    words = ("ledger", "write", "-", "--length-prefixed", "-o", "id")
    copy = run_in(world, *words, typed=prefixed).id
    assert run_in(world, "ledger", "read", copy).out == "a\nbc\n"
    assert run_in(world, "ledger", "read", copy, "--length-prefixed").out == prefixed


def test_a_framing_in_the_custom_metadata_that_is_given_counts() -> None:
    world = World(3)
    given = ("--meta", "bkctl.framing=chunks", "-o", "id")
    ledger_id = run_in(world, "ledger", "write", "-", *given, typed="a\nbc\n").id
    assert run_in(world, "ledger", "read", ledger_id).out == "abc"
