"""A bookie on a clock that the test sets: no reactor, threads or sockets, as simulations run it."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from bookied.config.bookie import StorageClass
from bookied.errors import DamagedError
from bookied.state.bookie_state import State
from bookied.storage.ledger_storage.storage import LedgerStorage
from tests.bkclient.metadata.values import closed
from tests.bookied.worlds.clock_world import World, started
from tests.bookied.worlds.fakes import done
from tests.bookied.worlds.served_bookie import KEY, packet
from wire.codes import AddFlag, ReturnCode
from wire.frames import v2
from wire.ids import EntryId, LedgerId
from wire.messages import AddRequest

ACKNOWLEDGED = v2.ADD_RESPONSE.pack(24, v2.ADD_HEADER, ReturnCode.EOK, 7, 0)


@pytest.fixture
def world(tmp_path: Path) -> Iterator[World]:
    with started(tmp_path) as found:
        yield found


def add(entry_id: int, flags: AddFlag = AddFlag.NONE) -> bytes:
    request = AddRequest(LedgerId(7), EntryId(entry_id), KEY, packet(7, entry_id), flags)
    return v2.encode_request(request)


def test_a_bookie_needs_neither_threads_nor_a_reactor(tmp_path: Path) -> None:
    before = threading.active_count()
    world = World(tmp_path)
    done(world.service.start())
    transport = world.connect()
    world.connection.dataReceived(add(0))
    assert transport.value() == b"", "nothing is acknowledged before the journal has it"
    world.step()
    assert transport.value() == ACKNOWLEDGED
    assert threading.active_count() == before
    world.run_for(20)
    world.stop()
    assert world.service.state.now is State.STOPPED
    assert world.listener.bound.factory is None


def test_a_lost_session_is_made_good_while_adds_go_on(world: World) -> None:
    transport = world.connect()
    world.store.session.suspend()
    world.run_for(30)
    world.connection.dataReceived(add(0))
    world.step()
    assert transport.value() == ACKNOWLEDGED
    world.store.session.resume()
    world.run_for(15)
    assert "/available/b1" in world.cluster._nodes
    assert world.failures == []


@pytest.mark.parametrize("kind", [StorageClass.SORTED, StorageClass.DB])
def test_a_start_that_is_to_check_refuses_what_the_index_cannot_find(
    tmp_path: Path, kind: StorageClass
) -> None:
    first = World(tmp_path, storage_class=kind)
    done(first.service.start())
    again = partial(World, tmp_path, first.cluster, storage_class=kind)
    first.connect()
    for entry_id in range(3):
        first.connection.dataReceived(add(entry_id))
    first.step()
    first.stop()
    sound = again(consistency_check_at_start=True)
    done(sound.service.start())
    assert sound.service.state.now is State.WRITABLE
    sound.stop()
    (log,) = (path for path in (tmp_path / "ledgers/current").glob("*.log") if path.stat().st_size)
    log.unlink()
    with pytest.raises(DamagedError, match=r"3 of 3 entries failed.*`bkctl disk check --repair-"):
        done(again(consistency_check_at_start=True).service.start())
    last = again()
    done(last.service.start())
    last.stop()


def test_the_scrubber_runs_beside_the_bookie_and_counts_what_it_finds(tmp_path: Path) -> None:
    world = World(tmp_path, scrub_interval_s=60)
    done(world.service.start())
    world.connect()
    world.connection.dataReceived(add(0))
    world.step()
    world.run_for(200)
    assert world.service.engine is not None
    counters = world.service.engine.scrubber.counters
    assert counters.passes > 0
    assert (counters.entries, counters.detected_errors) == (counters.passes, 0)
    for log in (tmp_path / "ledgers/current").glob("*.log"):
        log.unlink()
        world.service.engine.storages.of(7)._reader.forget(int(log.stem, 16))
    world.run_for(200)
    assert counters.detected_errors > 0
    assert world.service.state.now is State.WRITABLE
    assert "local check" in world.service.dump()
    world.stop()


def collected(world: World) -> Any:
    """Ask for a collection; return what the one collector says of it."""
    asked = world.service.background.collect_garbage()
    assert asked is not None
    found: list[Any] = []
    asked.addCallback(found.extend)
    world.run_for(5)
    (status,) = found
    return status


@pytest.mark.parametrize("kind", [StorageClass.SORTED, StorageClass.DB])
def test_a_ledger_that_the_metadata_lacks_is_collected_when_asked_for(
    tmp_path: Path, kind: StorageClass
) -> None:
    world = World(tmp_path, storage_class=kind)
    assert world.service.background.collect_garbage() is None
    done(world.service.start())
    world.connect()
    world.connection.dataReceived(add(0))
    world.step()
    assert world.service.engine is not None
    storage = world.service.engine.storages.of(7)
    assert storage.ledgers.ids() == [7]
    status = collected(world)
    assert (status.last_error, status.ledgers_dropped) == (None, 1)
    assert storage.ledgers.ids() == []
    assert "garbage collection 0" in world.service.dump()
    world.stop()


def test_rounds_come_by_themselves_and_an_outage_deletes_nothing(tmp_path: Path) -> None:
    world = World(tmp_path, gc_wait_ms=10_000)
    done(world.service.start())
    world.connect()
    world.connection.dataReceived(add(0))
    world.step()
    assert world.service.engine is not None
    storage = world.service.engine.storages.of(7)
    world.store.session.suspend()
    world.run_for(60)
    assert storage.ledgers.ids() == [7]
    world.store.session.resume()
    world.run_for(60)
    assert storage.ledgers.ids() == []
    assert world.failures == []
    world.stop()


def test_a_bookie_stops_while_the_collector_waits_for_the_metadata(tmp_path: Path) -> None:
    world = World(tmp_path, gc_wait_ms=1000)
    done(world.service.start())
    world.store.session.suspend()
    world.run_for(5)
    assert world.service.background.collectors is not None
    assert any(status.is_running for status in world.service.background.collectors.statuses())
    world.stop()
    assert world.service.state.now is State.STOPPED


def fenced_with_an_entry(world: World) -> LedgerStorage:
    """Add entry 0 to ledger 7 and fence that; return its storage."""
    world.connect()
    world.connection.dataReceived(add(0))
    assert world.service.engine is not None
    storage = world.service.engine.storages.of(7)
    state = storage.ledgers.lookup(7)
    assert state is not None
    storage.ledgers.set_fenced(state)
    world.step()
    return storage


def test_a_fenced_ledger_that_was_deleted_takes_nothing_after_a_restart(tmp_path: Path) -> None:
    world = World(tmp_path)
    done(world.service.start())
    fenced_with_an_entry(world)
    assert collected(world).ledgers_dropped == 1
    world.stop()
    again = World(tmp_path, world.cluster)
    done(again.service.start())
    transport = again.connect()
    again.connection.dataReceived(add(1))
    again.step()
    answer = v2.decode_response(transport.value()[4:])
    assert answer.response.rc is ReturnCode.EFENCED
    again.stop()


def test_a_fenced_ledger_dropped_for_its_excess_can_be_copied_here_after_a_restart(
    tmp_path: Path,
) -> None:
    world = World(tmp_path, gc_wait_ms=1000, over_replicated_wait_ms=2000)
    done(world.service.start())
    # It is at other bookies, who have closed it.
    done(world.store.create_ledger(LedgerId(7), closed()))
    storage = fenced_with_an_entry(world)
    world.run_for(20)
    assert storage.ledgers.ids() == []
    world.stop()
    again = World(tmp_path, world.cluster)
    done(again.service.start())
    transport = again.connect()
    for entry_id, flags in ((0, AddFlag.NONE), (0, AddFlag.RECOVERY), (1, AddFlag.NONE)):
        again.connection.dataReceived(add(entry_id, flags))
        again.step()
    answers = [v2.decode_response(one[4:]).response.rc for one in frames(transport.value())]
    assert answers == [ReturnCode.EFENCED, ReturnCode.EOK, ReturnCode.EFENCED]
    again.stop()


def frames(data: bytes) -> list[bytes]:
    """Cut answers to adds, which are all of one size."""
    size = v2.ADD_RESPONSE.size
    return [data[at : at + size] for at in range(0, len(data), size)]
