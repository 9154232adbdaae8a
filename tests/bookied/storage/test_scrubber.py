"""The check of a running bookie's index: it finds what is wrong, at its rate, and nothing else."""

from __future__ import annotations

import errno
import random
from array import array
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import attrs
import pytest
from twisted.internet.defer import Deferred, maybeDeferred
from twisted.internet.task import Clock

from bookied.errors import MissingLogError
from bookied.storage.entrylog.format import file_name as log_name
from bookied.storage.entrylog.format import split_location
from bookied.storage.index.file_names import relative_path
from bookied.storage.index.format import HEADER_BYTES
from bookied.storage.scrubber import TOLD_MAX, Scrubber, ScrubResult
from tests.bookied.storage.test_storage_golden import JavaBookie, open_copy
from tests.bookied.worlds.gc_world import GcWorld
from tests.bookied.worlds.golden import WITH_LEDGERS, expected


class FakeStorage:
    """Ledgers whose entries are all at location ``1000 + entry id``; some of them are bad."""

    def __init__(self, ledgers: dict[int, int]) -> None:
        self.ledgers = self.reads = self
        self.sizes = ledgers
        self.bad: set[tuple[int, int]] = set()
        self.gone: dict[int, int] = {}  # How often a ledger's file is not found.
        self.broken: OSError | None = None
        self.checked: list[tuple[int, int]] = []

    def ids(self) -> list[int]:
        return list(self.sizes)

    def stored_pages(self, ledger_id: int) -> Iterator[tuple[int, array[int]]]:
        if self.gone.get(ledger_id):
            self.gone[ledger_id] -= 1
            raise FileNotFoundError(2, "gone", f"{ledger_id}.idx")
        for first in range(0, self.sizes.get(ledger_id, 0), 1024):
            count = min(1024, self.sizes[ledger_id] - first)
            page = [1000 + first + slot for slot in range(count)] + [0] * (1024 - count)
            yield first // 1024, array("q", page)

    def check_disk(self, location: int, ledger_id: int, entry_id: int) -> None:
        assert location == 1000 + entry_id
        if self.broken is not None:
            raise self.broken
        self.checked.append((ledger_id, entry_id))
        if (ledger_id, entry_id) in self.bad:
            raise MissingLogError("0.log", None, "no such log")


@attrs.define
class World:
    storage: FakeStorage
    clock: Clock = attrs.field(factory=Clock)
    goes: int = 0
    interval_s: float = 0
    rate: float = 0

    def blocking(self, function: Callable[[], Any]) -> Deferred[Any]:
        self.goes += 1
        return maybeDeferred(function)

    def scrubber(self) -> Scrubber:
        return Scrubber(
            self.clock,
            [self.storage],
            run_blocking=self.blocking,
            interval_s=self.interval_s,
            rate=self.rate,
            rng=random.Random(1),
        )


def once(scrubber: Scrubber) -> ScrubResult:
    results: list[ScrubResult] = []
    Deferred.fromCoroutine(scrubber.scrub_once()).addCallback(results.append)
    assert results, "it waits"
    return results[0]


def test_a_pass_looks_at_every_entry_of_every_ledger() -> None:
    world = World(FakeStorage({1: 3, 2: 2500, 3: 0}))
    scrubber = world.scrubber()
    result = once(scrubber)
    assert (result.entries, result.count) == (2503, 0)
    assert world.storage.checked == [(1, n) for n in range(3)] + [(2, n) for n in range(2500)]
    assert scrubber.counters.entries == 2503


def test_what_is_wrong_is_counted_and_the_first_are_kept() -> None:
    world = World(FakeStorage({1: 500}))
    world.storage.bad = {(1, n) for n in range(100, 300)}
    scrubber = world.scrubber()
    result = once(scrubber)
    assert (result.entries, result.count, len(result.found)) == (500, 200, TOLD_MAX)
    assert (result.found[0].ledger_id, result.found[0].entry_id) == (1, 100)
    assert scrubber.counters.detected_errors == 200


def test_a_rate_bounds_the_entries_of_a_second() -> None:
    world = World(FakeStorage({1: 250}), rate=100)
    results: list[ScrubResult] = []
    Deferred.fromCoroutine(world.scrubber().scrub_once()).addCallback(results.append)
    seen = [len(world.storage.checked)]
    for _ in range(3):
        world.clock.advance(1)
        seen.append(len(world.storage.checked))
    assert seen[:3] == [100, 200, 250]
    assert results[0].entries == 250


def test_a_rate_below_one_waits_longer() -> None:
    world = World(FakeStorage({1: 2}), rate=0.5)
    Deferred.fromCoroutine(world.scrubber().scrub_once())
    world.clock.advance(1.9)
    assert len(world.storage.checked) == 1
    world.clock.advance(0.2)
    assert len(world.storage.checked) == 2


def test_passes_come_every_interval_more_or_less() -> None:
    world = World(FakeStorage({1: 1}), interval_s=100)
    scrubber = world.scrubber()
    scrubber.start()
    assert world.storage.checked == []
    world.clock.advance(49)
    assert scrubber.counters.passes == 0
    for _ in range(60):
        world.clock.advance(50)
    assert 20 <= scrubber.counters.passes <= 40


def test_without_an_interval_there_are_no_passes() -> None:
    world = World(FakeStorage({1: 1}))
    world.scrubber().start()
    assert world.clock.getDelayedCalls() == []


def test_stopping_ends_the_wait_and_begins_nothing() -> None:
    world = World(FakeStorage({1: 1000}), interval_s=10, rate=10)
    scrubber = world.scrubber()
    scrubber.start()
    world.clock.advance(20)
    seen = len(world.storage.checked)
    assert 0 < seen < 1000
    stopped: list[None] = []
    Deferred.fromCoroutine(scrubber.stop()).addCallback(stopped.append)
    assert stopped == [None]
    world.clock.advance(1000)
    assert len(world.storage.checked) == seen
    assert world.clock.getDelayedCalls() == []


def test_a_ledger_that_is_deleted_meanwhile_is_no_inconsistency() -> None:
    world = World(FakeStorage({1: 1, 2: 1}))
    world.storage.gone = {1: 1}
    assert once(world.scrubber()).count == 0
    world.storage.gone = {1: 2}
    result = once(world.scrubber())
    assert [(one.ledger_id, one.entry_id) for one in result.found] == [(1, -1)]
    assert "the index file is gone" in str(result.found[0].error)


def test_a_file_that_cannot_be_opened_ends_the_pass_and_not_the_scrubber() -> None:
    world = World(FakeStorage({1: 5}), interval_s=10)
    world.storage.broken = OSError(errno.EMFILE, "Too many open files")
    scrubber = world.scrubber()
    scrubber.start()
    world.clock.advance(15)
    assert (scrubber.counters.detected_fatal_errors, scrubber.counters.passes) == (1, 0)
    world.storage.broken = None
    world.clock.advance(15)
    assert scrubber.counters.passes == 1


@pytest.mark.parametrize("where", ["log", "index", "file"])
def test_what_the_disk_has_lost_is_found_and_the_rest_looked_at(where: str) -> None:
    bookie = GcWorld(1)
    for entry_id in range(12):
        for ledger_id in (0, 1, 2):
            bookie.add(ledger_id, entry_id, 1500)
            while bookie.journals[0].step():
                pass
    bookie.stop()
    bookie.start()
    world = World(FakeStorage({}))

    def scrubber() -> Scrubber:
        return Scrubber(
            world.clock, bookie.storages, run_blocking=world.blocking, interval_s=0, rate=0
        )

    assert (once(scrubber()).entries, once(scrubber()).count) == (36, 0)
    pages = {one: next(bookie.storages.of(one).reads.stored_pages(one))[1] for one in range(3)}
    log_id, offset = split_location(pages[1][3])
    log = Path("/l0/current") / log_name(log_id)
    entries, found = 36, [(1, 3)]
    if where == "log":
        bookie.files.unreadable[log] = {offset}
    elif where == "index":
        entries, found = 25, [(1, -1)]
        bookie.files.unreadable[log.parent / relative_path(1)] = {HEADER_BYTES}
    else:
        bookie.stop()
        bookie.start()  # No log is open yet.
        bookie.files.unopenable.add(log)
        heads = [(ledger_id, one) for ledger_id in range(3) for one in range(12)]
        found = [(one, n) for one, n in heads if split_location(pages[one][n])[0] == log_id]
        assert 0 < len(found) < entries
    result = once(scrubber())
    assert result.entries == entries
    assert [(one.ledger_id, one.entry_id) for one in result.found] == found
    assert "cannot be read" in str(result.found[0].error)


# Real storages -----------------------------------------------------------------------------------


def scrubbed(bookie: JavaBookie) -> ScrubResult:
    world = World(FakeStorage({}))
    return once(
        Scrubber(world.clock, [bookie.storage], run_blocking=world.blocking, interval_s=0, rate=0)
    )


@pytest.mark.parametrize("name", WITH_LEDGERS)
def test_what_java_left_passes_after_a_start(tmp_path: Path, name: str) -> None:
    bookie = open_copy(tmp_path, name)
    result = scrubbed(bookie)
    wanted = sum(len(one["entries"]) for one in expected(name)["ledgers"].values())
    assert (result.entries, result.count) == (wanted, 0)
    bookie.stop()


def test_a_log_that_is_gone_is_found(tmp_path: Path) -> None:
    bookie = open_copy(tmp_path, "sorted/clean")
    (bookie.ledgers[0] / "0.log").unlink()
    result = scrubbed(bookie)
    assert result.count == result.entries > 0
    assert all(isinstance(one.error, MissingLogError) for one in result.found)
    bookie.stop()


def test_an_entry_that_was_moved_is_looked_for_where_it_is_now(tmp_path: Path) -> None:
    bookie = open_copy(tmp_path, "sorted/clean")
    storage = bookie.storage
    page = next(storage.reads.stored_pages(0))[1]
    storage.reads.check_disk(page[1], 0, 1)
    storage.reads.check_disk(page[0], 0, 1)  # The index has it elsewhere by now: there it is.
    (bookie.ledgers[0] / "0.log").unlink()
    storage._reader.forget(0)
    with pytest.raises(MissingLogError):
        storage.reads.check_disk(page[0], 0, 1)
    bookie.stop()
