"""Logs over bookies and a metadata service in memory."""

from __future__ import annotations

from typing import Any

import attrs
import pytest
from twisted.internet.defer import CancelledError, Deferred
from twisted.logger import LogLevel, capturedLogs, formatEvent

from bkclient.client import Client
from bkclient.errors import ClientClosedError, ClientError, IncorrectParameterError
from bkclient.log import (
    EARLIEST,
    LATEST,
    LogManager,
    LogOptions,
    LogReader,
    LogWriter,
    Position,
)
from bkclient.log.errors import (
    AppendUnknownError,
    LogDamagedError,
    LogInUseError,
    LogSealedError,
    LogTrimmedError,
    LogUnwritableError,
    LogWriterClosedError,
    NotLeaderError,
)
from bkclient.log.ledger_list import LOG_KEY, LedgerList
from bkclient.log.open_segments import FRAGMENTS_MAX
from bkclient.log.record import LEDGERS_MAX, LogLedger, LogRecord
from bkclient.metadata import zk_paths
from bkclient.metadata.errors import LogExistsError, NoSuchLogError
from tests.bkclient.worlds import Fate, Running, World, is_add, when
from tests.support.memory_zookeeper import Fault, TreeOperation
from wire.codes import LedgerState
from wire.ids import BookieId, LedgerId

TRIPLE = LogOptions(ensemble_size=3, write_quorum=3, ack_quorum=2)


async def _await(deferred: Any) -> Any:
    return await deferred


async def _list_of(found: Any) -> list[Any]:
    return [one async for one in found]


def logs(world: World, seed: int = 0, **settings: Any) -> LogManager:
    return LogManager(world.client(seed=seed, **settings))


def opened(world: World, manager: LogManager, options: LogOptions = TRIPLE) -> LogWriter:
    """Create the log ``events`` and open it."""
    world.run(manager.create("events", options))
    return world.run(manager.open_writer("events"))


def append(world: World, writer: LogWriter, *payloads: bytes) -> list[Position]:
    appends = [writer.append(payload) for payload in payloads]
    return [world.run(_await(one)) for one in appends]


def writer_ensemble(world: World, writer: LogWriter) -> list[BookieId]:
    """Return the bookies of the last ledger's last fragment."""
    ledger_id = writer.record.last_ledger_id
    assert ledger_id is not None
    return list(world.run(world.client().read_metadata(ledger_id)).value.ensemble)


def all_of(world: World, manager: LogManager, start: Position = EARLIEST) -> list[bytes]:
    async def scenario() -> list[bytes]:
        reader = await manager.open_reader("events", start, follow=False)
        return [payload async for _position, payload in reader]

    return world.run(scenario())


def numbered(first: int, last: int) -> list[bytes]:
    return [b"%d" % number for number in range(first, last + 1)]


def outcome_of(append: Any) -> list[Any]:
    """Return a list that will hold what becomes of an append."""
    outcome: list[Any] = []
    append.addCallbacks(outcome.append, lambda failure: outcome.append(failure.value))
    return outcome


def following(world: World, reader: LogReader) -> tuple[Running, list[bytes]]:
    """Let a reader follow the log; return its run, and a list that will hold what it gives."""
    seen: list[bytes] = []

    async def follow() -> None:
        async for _position, payload in reader:
            seen.append(payload)

    return world.start(follow()), seen


def followed(world: World, reader: LogReader) -> list[bytes]:
    return following(world, reader)[1]


def held(world: World) -> None:
    for bookie in world.bookies.values():
        bookie.policy = when(is_add, Fate.HOLD)


def released(world: World) -> None:
    for bookie in world.bookies.values():
        bookie.policy = lambda _request: Fate.SERVE
        bookie.release()


def late_write(world: World, by_s: float) -> list[TreeOperation]:
    """Let the next write of a log's record take so long; return it, once it has begun."""
    late: list[TreeOperation] = []

    def delay_s(operation: TreeOperation) -> float:
        if operation.name == "set" and operation.path.startswith(".logs/") and not late:
            late.append(operation)
            return by_s
        return 0.0

    world.metadata.delay_s = delay_s
    return late


def in_repair(world: World, writer: LogWriter) -> list[Any]:
    """Append two entries, the second to a ledger that fails, and without bookies for the next."""
    append(world, writer, b"0")
    world.kill("b3")
    outcome = outcome_of(writer.append(b"1"))
    world.settle(2)
    assert not outcome
    return outcome


class TestAppending:
    def test_what_is_appended_is_read_in_order_with_its_positions(self) -> None:
        world = World(3)
        manager = logs(world)
        writer = opened(world, manager)
        positions = append(world, writer, *numbered(0, 9))
        assert positions == [Position(0, number) for number in range(10)]
        world.run(writer.close())
        assert all_of(world, manager) == numbered(0, 9)
        assert all_of(world, manager, Position(0, 7)) == numbered(7, 9)

    def test_a_roll_changes_the_ledger_and_not_the_order(self) -> None:
        world = World(3)
        manager = logs(world)
        writer = opened(world, manager)
        first = append(world, writer, *numbered(0, 4))
        world.run(writer.roll())
        second = append(world, writer, *numbered(5, 9))
        assert [position.index for position in first + second] == [0] * 5 + [1] * 5
        world.run(writer.close())
        assert all_of(world, manager) == numbered(0, 9)
        states = [one.state for one in world.run(manager.info("events")).ledgers]
        assert states == [LedgerState.CLOSED, LedgerState.CLOSED]

    def test_entries_of_the_next_ledger_wait_until_the_one_before_is_closed(self) -> None:
        world = World(3)
        manager = logs(world)
        writer = opened(world, manager)
        append(world, writer, b"0")
        for bookie in world.bookies.values():
            bookie.policy = when(lambda r: is_add(r) and r.entry[32:].endswith(b"slow"), Fate.HOLD)
        slow = writer.append(b"slow")
        rolling = world.start(writer.roll())
        world.settle(0.5)
        late = writer.append(b"late")
        world.settle(0.5)
        assert writer.record.next_index == 2
        assert not slow.called
        assert not late.called
        for bookie in world.bookies.values():
            bookie.policy = lambda _request: Fate.SERVE
            bookie.release()
        rolling.finish()
        assert world.run(_await(slow)) == Position(0, 1)
        assert world.run(_await(late)) == Position(1, 0)

    @pytest.mark.parametrize(
        "limits", [{"roll_entries": 10}, {"roll_bytes": 10}, {"roll_s": 5.0}], ids=str
    )
    def test_it_rolls_by_itself(self, limits: dict[str, Any]) -> None:
        world = World(3)
        manager = logs(world)
        options = LogOptions(ensemble_size=3, write_quorum=3, ack_quorum=2, **limits)
        writer = opened(world, manager, options)
        for number in range(40):
            append(world, writer, b"%d" % (number % 10))
            world.settle(0.5)
        world.run(writer.close())
        assert 3 <= writer.record.next_index <= 6
        assert all_of(world, manager) == [b"%d" % (number % 10) for number in range(40)]

    @pytest.mark.parametrize(("entries", "ledgers"), [(25, [9, 9, 4]), (20, [9, 9])])
    def test_where_room_is_awaited_each_ledger_is_full_and_none_is_empty(
        self, entries: int, ledgers: list[int]
    ) -> None:
        world = World(3)
        manager = logs(world)
        writer = opened(world, manager, attrs.evolve(TRIPLE, roll_entries=10))

        async def append_all() -> None:
            for payload in numbered(1, entries):
                await writer.wait_for_space()
                writer.append(payload)

        world.run(append_all())
        world.run(writer.close())
        assert [one.last_entry_id for one in world.run(manager.info("events")).ledgers] == ledgers
        assert all_of(world, manager) == numbered(1, entries)

    def test_a_ledger_whose_bookies_were_replaced_often_is_the_last_no_longer(self) -> None:
        """Its metadata grow with each: some day no store would take them, not even its close."""
        world = World(5)
        manager = logs(world)
        writer = opened(world, manager)
        for number in range(FRAGMENTS_MAX + 20):
            append(world, writer, b"%d" % number)
            bookie_id = writer_ensemble(world, writer)[0]
            world.kill(bookie_id)
            world.settle(1)
            append(world, writer, b"%d'" % number)
            world.restart(bookie_id)
            world.settle(1)
        world.run(writer.close())
        found = world.run(manager.info("events")).ledgers
        fragments = [
            len(world.run(world.client().read_metadata(one.ledger_id)).value.fragments)
            for one in found
        ]
        assert len(found) == 2
        assert max(fragments) <= FRAGMENTS_MAX + 1

    def test_there_is_room_where_no_next_ledger_can_be_created(self) -> None:
        world = World(3)
        manager = logs(world)
        writer = opened(world, manager, attrs.evolve(TRIPLE, roll_entries=2))
        append(world, writer, b"0", b"1")
        world.unregister("b3")
        for payload in (b"2", b"3"):
            world.run(writer.wait_for_space())
            append(world, writer, payload)
        assert writer.record.next_index == 1
        world.restart("b3")
        world.run(writer.wait_for_space())
        assert append(world, writer, b"4", b"5") == [Position(1, 0), Position(1, 1)]
        world.metadata.delay_s = lambda _operation: 0.1
        world.run(writer.wait_for_space())
        assert append(world, writer, b"6") == [Position(2, 0)]
        world.run(writer.close())
        assert all_of(world, manager) == numbered(0, 6)

    def test_there_is_room_while_the_next_try_to_create_a_ledger_waits(self) -> None:
        world = World(3)
        writer = opened(world, logs(world), attrs.evolve(TRIPLE, roll_entries=2))
        append(world, writer, b"0", b"1")
        world.unregister("b3")
        world.run(writer.wait_for_space())
        world.restart("b3")
        world.metadata.delay_s = lambda _operation: 1000.0
        world.run(writer.wait_for_space())
        assert append(world, writer, b"2") == [Position(0, 2)]

    def test_an_entry_that_is_too_large_is_refused_and_the_rest_goes_on(self) -> None:
        world = World(3)
        writer = opened(world, logs(world))
        append(world, writer, b"0")
        too_large = writer.append(bytes(6 * 1024 * 1024))
        with pytest.raises(Exception, match="largest that fits"):
            world.run(_await(too_large))
        assert append(world, writer, b"1") == [Position(0, 1)]

    def test_a_closed_writer_takes_nothing(self) -> None:
        world = World(3)
        manager = logs(world)
        writer = opened(world, manager)
        append(world, writer, b"0")
        world.run(writer.close())
        with pytest.raises(LogWriterClosedError):
            world.run(_await(writer.append(b"1")))
        assert all_of(world, manager) == [b"0"]

    def test_closing_waits_for_what_is_pending(self) -> None:
        world = World(3)
        manager = logs(world)
        writer = opened(world, manager)
        adds = [writer.append(payload) for payload in numbered(0, 9)]
        world.run(writer.close())
        assert [world.run(_await(add)).entry_id for add in adds] == list(range(10))
        assert all_of(world, manager) == numbered(0, 9)

    def test_what_comes_after_the_call_to_close_is_refused_and_told(self) -> None:
        world = World(3)
        manager = logs(world)
        writer = opened(world, manager)
        held(world)
        before = outcome_of(writer.append(b"before"))
        closing = world.start(writer.close())
        after = outcome_of(writer.append(b"after"))
        world.settle(0.1)
        released(world)
        closing.finish()
        assert before == [Position(0, 0)]
        assert isinstance(after[0], LogWriterClosedError)
        assert all_of(world, manager) == [b"before"]

    def test_closing_waits_for_others_where_the_last_was_cancelled(self) -> None:
        world = World(3)
        manager = logs(world)
        writer = opened(world, manager)
        held(world)
        first, last = outcome_of(writer.append(b"0")), writer.append(b"1")
        cancelled = outcome_of(last)
        last.cancel()
        closing = world.start(writer.close())
        world.settle(0.1)
        released(world)
        closing.finish()
        assert first == [Position(0, 0)]
        assert isinstance(cancelled[0], CancelledError)
        assert all_of(world, manager) == [b"0", b"1"]

    def test_who_hears_of_one_entry_may_end_the_writer(self) -> None:
        world = World(3)
        writer = opened(world, logs(world))
        held(world)
        appends = [writer.append(payload) for payload in numbered(0, 2)]
        appends[0].addCallback(lambda _position: writer.abandon())
        outcomes = [outcome_of(append) for append in appends[1:]]
        world.settle(0.1)
        released(world)
        world.settle(1)
        assert [type(outcome[0]) for outcome in outcomes] == [AppendUnknownError] * 2


class TestLeading:
    def test_a_new_writer_ends_the_old_one(self) -> None:
        world = World(3)
        manager = logs(world)
        old = opened(world, manager)
        append(world, old, *numbered(0, 2))
        new = world.run(logs(world, 1).open_writer("events"))
        assert new.recovered_tail == Position(0, 2)
        lost: list[object] = []
        old.on_lost = lost.append
        with pytest.raises(AppendUnknownError):
            world.run(_await(old.append(b"of the old one")))
        assert len(lost) == 1
        with pytest.raises(NotLeaderError):
            world.run(_await(old.append(b"again")))
        append(world, new, *numbered(3, 5))
        world.run(new.close())
        assert all_of(world, manager) == numbered(0, 5)

    def test_an_old_writer_that_rolls_is_deposed(self) -> None:
        world = World(3)
        manager = logs(world)
        old = opened(world, manager)
        append(world, old, b"0")
        new = world.run(logs(world, 1).open_writer("events"))
        with pytest.raises(NotLeaderError):
            world.run(old.roll())
        with pytest.raises(NotLeaderError):
            world.run(_await(old.append(b"x")))
        append(world, new, b"1")
        info = world.run(manager.info("events"))
        assert len(info.ledgers) == 2
        assert world.run(manager.sweep("events", age_s=0)) == ()

    def test_two_that_open_at_once_end_with_one_writer(self) -> None:
        world = World(3)
        managers = [logs(world, seed) for seed in range(2)]
        world.run(managers[0].create("events", TRIPLE))
        world.delay_s = lambda: world.rng.uniform(0, 0.02)
        both = [world.start(manager.open_writer("events")) for manager in managers]
        writers = [one.finish() for one in both]
        outcomes = []
        for writer in writers:
            try:
                outcomes.append(world.run(_await(writer.append(b"x"))))
            except (AppendUnknownError, NotLeaderError):
                outcomes.append(None)
        assert sum(one is not None for one in outcomes) == 1
        world.run(writers[0 if outcomes[0] is not None else 1].close())
        assert all_of(world, managers[0]) == [b"x"]

    def test_a_lost_answer_to_the_listing_is_found_out(self) -> None:
        world = World(3)
        manager = logs(world)
        writer = opened(world, manager)
        append(world, writer, b"0")
        hits: list[TreeOperation] = []

        def judge(operation: TreeOperation) -> Fault:
            if operation.name == "set" and operation.path.startswith(".logs/") and not hits:
                hits.append(operation)
                return Fault.ANSWER_LOST
            return Fault.NONE

        world.metadata.faults = judge
        world.run(writer.roll())
        assert len(hits) == 1
        append(world, writer, b"1")
        world.run(writer.close())
        assert all_of(world, manager) == [b"0", b"1"]
        assert len(world.run(manager.info("events")).ledgers) == 2

    def test_trimming_does_not_depose_the_writer(self) -> None:
        world = World(3)
        manager = logs(world)
        writer = opened(world, manager)
        for number in range(3):
            append(world, writer, b"%d" % number)
            world.run(writer.roll())
        assert world.run(logs(world, 1).trim("events", Position(2, 0))) == Position(2, 0)
        append(world, writer, b"3")
        world.run(writer.roll())
        append(world, writer, b"4")
        world.run(writer.close())
        assert all_of(world, manager) == [b"2", b"3", b"4"]

    def test_a_trim_during_a_roll_keeps_the_ledger_that_still_grows(self) -> None:
        world = World(3)
        manager = logs(world)
        writer = opened(world, manager)
        append(world, writer, b"0")
        held(world)
        slow = writer.append(b"slow")
        rolling = world.start(writer.roll())
        world.settle(0.5)
        assert writer.record.next_index == 2
        assert world.run(logs(world, 1).trim("events", Position(1, 0))) == Position(0, 0)
        released(world)
        rolling.finish()
        assert world.run(_await(slow)) == Position(0, 1)
        world.run(writer.close())
        assert all_of(world, manager) == [b"0", b"slow"]

    def test_a_trim_during_a_repair_does_not_end_it(self) -> None:
        """It may take the ledger before the last one, whose end the first attempt has fixed."""
        world = World(3)
        manager = logs(world, delay_ensemble_change=True)
        writer = opened(world, manager)
        append(world, writer, b"0")
        for bookie in world.bookies.values():
            bookie.policy = when(is_add, Fate.LOSE)
        slow = writer.append(b"slow")
        rolling = world.start(writer.roll())
        world.settle(0.5)
        assert writer.record.next_index == 2
        next_one = writer.append(b"next")
        world.kill("b3")
        world.settle(15)
        assert (rolling.done, writer.is_repairing) == (True, True)
        assert world.run(logs(world, 1).trim("events", Position(9, 0))) == Position(1, 0)
        released(world)
        world.restart("b3")
        appended = [world.run(_await(one)) for one in (slow, next_one, writer.append(b"last"))]
        assert appended == [Position(2, 0), Position(2, 1), Position(2, 2)]
        world.run(writer.close())
        assert all_of(world, manager) == [b"slow", b"next", b"last"]

    def test_a_trim_whose_answer_is_lost_deletes_all_it_took_although_the_log_grows(self) -> None:
        world = World(3)
        manager = logs(world)
        writer = opened(world, manager)
        for number in range(2):
            append(world, writer, b"%d" % number)
            world.run(writer.roll())
        lost: list[TreeOperation] = []

        def judge(operation: TreeOperation) -> Fault:
            if lost or operation.name != "set" or not operation.path.startswith(".logs/"):
                return Fault.NONE
            lost.append(operation)
            return Fault.ANSWER_LOST

        world.metadata.faults = judge
        world.metadata.delay_s = lambda one: 9.0 if lost and one.name == "get" else 0.0
        trim = world.start(logs(world, 1).trim("events", Position(9, 0)))
        world.settle(1)
        world.metadata.delay_s = lambda _operation: 0.0
        append(world, writer, b"2")
        world.run(writer.roll())
        world.run(writer.close())
        world.settle(10)
        assert (bool(lost), trim.result) == (True, Position(3, 0))
        listed = {one.ledger_id for one in world.run(manager.info("events")).ledgers}
        kept = world.run(_list_of(world.client().list_ledgers()))
        assert set(kept) == listed

    def test_who_lives_through_the_loss_of_the_metadata_does_not_list_over_the_next_writer(
        self,
    ) -> None:
        """Versions of a restored record begin at 0, as those of the record that was lost."""
        world = World(3)
        first, second = logs(world, 1), logs(world, 2)
        world.run(first.create("events", TRIPLE))
        backup = world.metadata.get(zk_paths.log("events")).value
        writer = world.run(first.open_writer("events"))
        append(world, writer, *numbered(0, 3))
        world.metadata.delete(zk_paths.log("events"))
        world.metadata.create(zk_paths.log("events"), backup)
        following = world.run(second.open_writer("events"))
        append(world, following, *numbered(4, 6))
        with pytest.raises(NotLeaderError):
            world.run(writer.roll())
        append(world, following, *numbered(7, 8))
        world.run(following.close())
        assert all_of(world, second) == numbered(4, 8)


class TestFailingBookies:
    def test_what_was_not_stored_goes_into_a_new_ledger_in_order(self) -> None:
        world = World(3)
        manager = logs(world, add_timeout_s=1)
        writer = opened(world, manager)
        append(world, writer, *numbered(0, 2))
        # Nobody can replace them, and no quorum is left: the ledger can take nothing more.
        for name in ("b1", "b2"):
            world[name].policy = when(is_add, Fate.LOSE)
        with capturedLogs() as events:
            adds = [writer.append(payload) for payload in numbered(3, 6)]
            world.settle(1.0)
            for bookie in world.bookies.values():
                bookie.policy = lambda _request: Fate.SERVE
            world.settle()
        said = [formatEvent(one) for one in events if one["log_level"] >= LogLevel.warn]
        (line,) = [one for one in said if "going on in a new ledger" in one]
        assert line.startswith("log events: no bookie can replace ")
        assert "not confirmed" not in "".join(said)
        assert "takes no more entries" not in "".join(said)
        positions = [world.run(_await(add)) for add in adds]
        assert positions == sorted(positions)
        append(world, writer, *numbered(7, 8))
        world.run(writer.close())
        assert all_of(world, manager) == numbered(0, 8)
        assert writer.record.next_index > 1

    def test_what_is_appended_when_a_roll_ends_with_a_repair_is_not_forgotten(self) -> None:
        world = World(3)
        manager = logs(world, add_timeout_s=1)
        writer = opened(world, manager)
        for name in ("b1", "b2"):
            world[name].policy = when(is_add, Fate.LOSE)
        first = writer.append(b"0")
        later: list[Deferred[Position]] = []

        async def roll() -> None:
            await writer.roll()
            later.append(writer.append(b"1"))

        world.metadata.delay_s = lambda _operation: 0.5  # The repair begins, and takes its time.
        for _ in range(100):
            world.settle(0.1)
            if writer.is_repairing:
                break
        assert writer.is_repairing
        for bookie in world.bookies.values():
            bookie.policy = lambda _request: Fate.SERVE
        rolling = world.start(roll())
        world.settle(20)
        assert rolling.done
        assert [world.run(_await(add)) for add in (first, *later)]
        world.run(writer.close())
        assert all_of(world, manager) == [b"0", b"1"]

    def test_what_turns_out_to_be_stored_is_not_appended_twice(self) -> None:
        world = World(3)
        world.metadata.delay_s = lambda _operation: 0.01
        manager = logs(world, add_timeout_s=1)
        writer = opened(world, manager)
        append(world, writer, b"0")
        for name in ("b1", "b2"):
            world[name].policy = when(is_add, Fate.LOSE_ANSWER)
        stored = writer.append(b"1")
        rolling = world.start(writer.roll())
        world.settle(0.5)
        following = writer.append(b"2")
        world.settle(0.5)
        released(world)
        rolling.finish()
        assert world.run(_await(stored)) == Position(0, 1)
        assert world.run(_await(following)) == Position(2, 0)
        world.run(writer.close())
        assert all_of(world, manager) == [b"0", b"1", b"2"]

    def test_a_log_ends_rather_than_go_on_behind_what_is_missing(self) -> None:
        world = World(3)
        manager = logs(world, add_timeout_s=1)
        writer = opened(world, manager)
        append(world, writer, b"0")
        for bookie in world.bookies.values():
            bookie.policy = when(lambda r: is_add(r) and r.entry.endswith(b"lost"), Fate.LOSE)
        missing = outcome_of(writer.append(b"lost"))
        rolling = world.start(writer.roll())
        world.settle(0.2)
        following = [writer.append(b"1"), writer.append(b"tells the LAC")]
        outcomes = [missing, *map(outcome_of, following)]
        rolling.finish()
        world.settle(5)
        assert all(isinstance(outcome[0], AppendUnknownError) for outcome in outcomes)
        with pytest.raises(LogUnwritableError):
            world.run(_await(writer.append(b"late")))
        assert all_of(world, manager) == [b"0", b"1", b"tells the LAC"]

    def test_a_ledger_is_closed_where_it_is_confirmed_though_bookies_are_missing(self) -> None:
        world = World(3)
        manager = logs(world)
        writer = opened(world, manager)
        in_repair(world, writer)
        (ledger,) = world.run(manager.info("events")).ledgers
        assert (ledger.state, ledger.last_entry_id) == (LedgerState.CLOSED, 0)
        assert all_of(world, logs(world, 1)) == [b"0"]

    def test_a_repair_ends_where_another_writer_has_taken_over_meanwhile(self) -> None:
        world = World(3)
        client = world.client(add_timeout_s=1)
        writer = opened(world, LogManager(client))
        append(world, writer, b"0")
        cut_off = client.store.session_id
        world.metadata.faults = lambda operation: (
            Fault.REQUEST_LOST if operation.session_id == cut_off else Fault.NONE
        )
        for bookie in world.bookies.values():
            bookie.policy = when(is_add, Fate.LOSE)
        pending = outcome_of(writer.append(b"1"))
        world.settle(1.5)
        assert writer.is_repairing
        released(world)
        other = logs(world, 1)
        following = world.run(other.open_writer("events"))
        world.metadata.faults = lambda _operation: Fault.NONE
        world.settle(10)
        assert isinstance(pending[0], AppendUnknownError)
        with pytest.raises(NotLeaderError):
            world.run(_await(writer.append(b"2")))
        append(world, following, b"3")
        assert (
            following.record.last_ledger_id == world.run(other.info("events")).ledgers[-1].ledger_id
        )
        world.run(following.close())
        assert all_of(world, other) == [b"0", b"3"]

    def test_with_too_few_bookies_for_good_what_was_sent_is_known_not_to_be_there(self) -> None:
        world = World(3)
        manager = logs(world, add_timeout_s=1, read_timeout_s=1)
        writer = opened(world, manager)
        append(world, writer, b"0")
        for name in ("b1", "b2"):
            world.kill(name)
        with pytest.raises(LogUnwritableError, match="not appended"):
            world.run(_await(writer.append(b"1")))
        for name in ("b1", "b2"):
            world.restart(name)
        assert all_of(world, manager) == [b"0"]

    def test_without_bookies_or_metadata_for_good_the_outcome_is_unknown(self) -> None:
        world = World(3)
        writer = opened(world, logs(world, add_timeout_s=1))
        append(world, writer, b"0")
        world.metadata.faults = lambda _operation: Fault.REQUEST_LOST
        for name in ("b1", "b2"):
            world.kill(name, unregister=False)
        with pytest.raises(AppendUnknownError):
            world.run(_await(writer.append(b"1")))

    @pytest.mark.parametrize("is_known", [True, False], ids=["unregistered", "registered"])
    def test_a_bookie_that_is_away_for_a_while_is_waited_for(self, *, is_known: bool) -> None:
        world = World(3)
        manager = logs(world, add_timeout_s=1)
        writer = opened(world, manager)
        append(world, writer, b"0")
        world.kill("b3", unregister=is_known)
        outcomes = [outcome_of(writer.append(b"1"))]
        world.settle(20)
        outcomes.append(outcome_of(writer.append(b"2")))
        world.settle(20)
        assert writer.record.next_index < 30
        world.restart("b3")
        world.settle(5)
        outcomes.append(outcome_of(writer.append(b"3")))
        world.run(writer.close())
        assert all(isinstance(outcome[0], Position) for outcome in outcomes)
        assert all_of(world, manager) == numbered(0, 3)

    def test_a_writer_whose_patience_ends_says_what_is_not_in_the_log(self) -> None:
        world = World(3)
        manager = logs(world, add_timeout_s=1, log_retry_s=7)
        writer = opened(world, manager)
        lost: list[ClientError] = []
        writer.on_lost = lost.append
        append(world, writer, b"0")
        for bookie in world.bookies.values():
            bookie.policy = when(is_add, Fate.LOSE)
        sent = outcome_of(writer.append(b"sent"))
        world.settle(0.5)
        world.kill("b3")
        world.settle(0.2)
        queued = outcome_of(writer.append(b"queued"))
        world.settle(6)
        assert not lost
        world.settle(4)
        for error in (sent[0], queued[0], lost[0], world.failure(writer.append(b"late"))):
            assert isinstance(error, LogUnwritableError)
            assert "3 bookies are needed, 2 can be used" in str(error)
        assert len(lost) == 1
        world.restart("b3")
        released(world)
        again = world.run(manager.open_writer("events"))
        append(world, again, b"1")
        world.run(again.close())
        assert all_of(world, manager) == [b"0", b"1"]

    def test_the_metadata_may_be_away_while_a_log_is_repaired(self) -> None:
        world = World(3)
        manager = logs(world, add_timeout_s=1)
        writer = opened(world, manager)
        append(world, writer, b"0")
        for name in ("b1", "b2"):
            world[name].policy = when(is_add, Fate.LOSE)
        outcome = outcome_of(writer.append(b"1"))
        world.settle(0.9)
        world.metadata.faults = lambda _operation: Fault.REQUEST_LOST
        world.settle(20)
        released(world)
        world.metadata.faults = lambda _operation: Fault.NONE
        world.run(writer.close())
        assert isinstance(outcome[0], Position)
        assert all_of(world, manager) == [b"0", b"1"]

    def test_who_is_abandoned_in_a_repair_lets_go_of_the_ledger_that_it_makes(self) -> None:
        world = World(3)
        writer = opened(world, logs(world, explicit_lac_interval_ms=100))
        in_repair(world, writer)
        listing: list[TreeOperation] = []

        def delay_s(operation: TreeOperation) -> float:
            if operation.name == "set" and operation.path == zk_paths.log("events"):
                listing.append(operation)
                return 5.0
            return 0.0

        world.metadata.delay_s = delay_s
        world.restart("b3")
        world.settle(4)
        assert listing
        writer.abandon()
        world.settle(30)
        assert writer.record.next_index == 2
        assert world.clock.getDelayedCalls() == []

    def test_closing_waits_for_a_repair_and_leaves_nothing_open(self) -> None:
        world = World(3)
        manager = logs(world, add_timeout_s=1)
        writer = opened(world, manager)
        add = in_repair(world, writer)
        closing = world.start(writer.close())
        world.settle(0.1)
        world.restart("b3")
        closing.finish()
        assert add == [Position(1, 0)]
        states = [one.state for one in world.run(manager.info("events")).ledgers]
        assert states == [LedgerState.CLOSED, LedgerState.CLOSED]

    def test_an_entry_that_is_too_large_is_refused_during_a_repair_too(self) -> None:
        world = World(3)
        manager = logs(world, add_timeout_s=1)
        writer = opened(world, manager)
        in_repair(world, writer)
        too_large = outcome_of(writer.append(bytes(6 * 1024 * 1024)))
        after = writer.append(b"2")
        world.restart("b3")
        assert world.run(_await(after)) == Position(1, 1)
        assert isinstance(too_large[0], IncorrectParameterError)
        world.run(writer.close())
        assert all_of(world, manager) == [b"0", b"1", b"2"]

    def test_who_appends_again_as_soon_as_an_entry_was_too_large_is_not_forgotten(self) -> None:
        world = World(3)
        manager = logs(world, add_timeout_s=1)
        writer = opened(world, manager)
        in_repair(world, writer)

        async def smaller_at_last() -> list[Position]:
            with pytest.raises(IncorrectParameterError):
                await writer.append(bytes(6 * 1024 * 1024))
            with pytest.raises(IncorrectParameterError):
                await writer.append(bytes(6 * 1024 * 1024))
            return [await writer.append(b"3")]

        appending = world.start(smaller_at_last())
        between = writer.append(b"2")
        world.restart("b3")
        assert world.run(_await(between)) == Position(1, 1)
        assert appending.finish() == [Position(1, 2)]
        world.run(writer.close())
        assert all_of(world, manager) == [b"0", b"1", b"2", b"3"]


class TestReading:
    def test_a_reader_that_follows_sees_each_entry_once_over_rolls(self) -> None:
        world = World(3)
        manager = logs(world)
        writer = opened(world, manager)
        seen = followed(world, world.run(logs(world, 5).open_reader("events")))
        for number in range(30):
            append(world, writer, b"%d" % number)
            if number % 7 == 6:
                world.run(writer.roll())
            world.settle(0.1)
        world.run(writer.close())
        world.settle(5)
        assert seen == numbered(0, 29)

    def test_a_reader_ends_where_the_log_was_sealed(self) -> None:
        world = World(3)
        manager = logs(world)
        writer = opened(world, manager)

        async def follow() -> list[bytes]:
            reader = await manager.open_reader("events")
            return [payload async for _position, payload in reader]

        reading = world.start(follow())
        append(world, writer, *numbered(0, 3))
        world.run(writer.close(seal=True))
        assert reading.finish() == numbered(0, 3)
        with pytest.raises(LogSealedError):
            world.run(manager.open_writer("events"))

    def test_a_reader_that_goes_on_later_does_not_go_on_in_another_log_of_the_name(self) -> None:
        world = World(3)
        manager = logs(world)
        writer = opened(world, manager)
        positions = append(world, writer, *numbered(0, 2))
        world.run(writer.close())
        reader = world.run(manager.open_reader("events", follow=False))
        assert [payload for _, payload in world.run(_list_of(reader))] == numbered(0, 2)
        world.run(manager.delete("events", force=True))
        writer = opened(world, manager)
        append(world, writer, *numbered(3, 9))
        world.run(writer.close())
        for go_on in (
            lambda: _list_of(reader),
            lambda: reader.wait_for(Position(0, 5)),
            lambda: manager.open_reader("events", positions[1]),
        ):
            with pytest.raises(NoSuchLogError, match="another was created"):
                world.run(go_on())

    def test_latest_begins_behind_what_is_confirmed(self) -> None:
        world = World(3)
        manager = logs(world)
        writer = opened(world, manager)
        append(world, writer, *numbered(0, 4))
        append(world, writer, b"tells the LAC")
        seen = followed(world, world.run(manager.open_reader("events", LATEST)))
        world.settle(1)
        append(world, writer, b"new")
        world.run(writer.close())
        world.settle(5)
        assert seen[-1:] == [b"new"]
        assert b"4" not in seen

    @pytest.mark.parametrize("count", [0, 1, 2, 3, 7, 8, 9, 2**70])
    def test_it_begins_so_many_entries_before_the_end(self, count: int) -> None:
        world = World(3)
        manager = logs(world)
        writer = opened(world, manager)
        append(world, writer, *numbered(0, 4))
        world.run(writer.roll())
        append(world, writer, *numbered(5, 5))
        world.run(writer.roll())
        append(world, writer, *numbered(6, 7))
        world.run(writer.close())

        async def last() -> list[bytes]:
            reader = await manager.open_reader("events", follow=False, last=count)
            return [payload async for _position, payload in reader]

        assert world.run(last()) == numbered(0, 7)[max(0, 8 - count) :]

    def test_it_begins_behind_a_ledger_that_is_gone(self) -> None:
        world = World(3)
        manager = logs(world)
        writer = opened(world, manager)
        for number in range(3):
            append(world, writer, *numbered(number, number))
            world.run(writer.roll())
        client = world.client()
        world.run(client.delete_ledger(world.run(manager.info("events")).ledgers[1].ledger_id))

        async def last() -> list[bytes]:
            reader = await manager.open_reader("events", follow=False, last=3)
            return [payload async for _position, payload in reader]

        assert world.run(last()) == numbered(2, 2)

    def test_latest_during_a_roll_misses_nothing_of_the_ledger_that_ends(self) -> None:
        world = World(3)
        manager = logs(world)
        writer = opened(world, manager)
        append(world, writer, b"before")
        held(world)
        slow = outcome_of(writer.append(b"slow"))
        rolling = world.start(writer.roll())
        world.settle(0.1)
        late = outcome_of(writer.append(b"late"))
        reader = world.run(logs(world, 5).open_reader("events", LATEST))
        seen = followed(world, reader)
        world.settle(1)
        assert not slow
        assert not late
        released(world)
        rolling.finish()
        world.run(writer.close())
        world.settle(5)
        assert slow == [Position(0, 1)]
        assert late == [Position(1, 0)]
        assert seen[-2:] == [b"slow", b"late"]

    def test_latest_is_where_the_log_ends_when_the_reader_opens(self) -> None:
        world = World(3)
        manager = logs(world)
        writer = opened(world, manager)
        append(world, writer, b"before")
        reader = world.run(logs(world, 5).open_reader("events", LATEST))
        append(world, writer, b"1", b"2")
        world.run(writer.roll())
        append(world, writer, b"3")
        world.run(writer.close())
        seen = followed(world, reader)
        world.settle(5)
        assert seen[-3:] == [b"1", b"2", b"3"]

    def test_latest_is_looked_for_again_where_its_ledger_is_trimmed_meanwhile(self) -> None:
        world = World(3)
        manager = logs(world)
        writer = opened(world, manager)
        append(world, writer, b"0")
        path = zk_paths.LAYOUTS["hierarchical"].path_of(LedgerId(0))
        world.metadata.delay_s = lambda operation: 5.0 if operation.path == path else 0.0
        opening = world.start(logs(world, 5).open_reader("events", LATEST))
        world.settle(0.1)
        world.metadata.delay_s = lambda _operation: 0.0
        world.run(writer.roll())
        append(world, writer, b"1")
        world.run(manager.trim("events", Position(1, 0)))
        seen = followed(world, opening.finish())
        append(world, writer, b"2")
        world.run(writer.close())
        world.settle(5)
        assert seen[-1:] == [b"2"]

    def test_an_entry_is_waited_for(self) -> None:
        world = World(3)
        manager = logs(world)
        writer = opened(world, manager)

        async def wait() -> bool:
            reader = await manager.open_reader("events")
            await reader.wait_for(Position(1, 1))
            return True

        waiting = world.start(wait())
        append(world, writer, b"0")
        world.run(writer.roll())
        append(world, writer, b"1")
        world.settle(5)
        assert not waiting.done
        append(world, writer, b"2", b"3")
        world.run(writer.close())
        assert waiting.finish()

    def test_what_was_trimmed_is_said_to_be(self) -> None:
        world = World(3)
        manager = logs(world)
        writer = opened(world, manager)
        for number in range(3):
            append(world, writer, b"%d" % number)
            world.run(writer.roll())
        world.run(manager.trim("events", Position(1, 0)))
        with pytest.raises(LogTrimmedError, match="the first entry kept is 1:0"):
            all_of(world, manager, Position(0, 0))
        assert all_of(world, manager) == [b"1", b"2"]

    def test_what_is_trimmed_while_it_is_read_is_said_to_be(self) -> None:
        world = World(3)
        manager = logs(world)
        writer = opened(world, manager)
        more_than_is_read_ahead = [bytes(200_000) for _ in range(40)]
        append(world, writer, *more_than_is_read_ahead)
        world.run(writer.roll())

        async def read_and_trim() -> None:
            async for position, _payload in await manager.open_reader("events"):
                if position == Position(0, 3):
                    await manager.trim("events", Position(1, 0))
                    for bookie in world.bookies.values():
                        bookie.ledgers.clear()

        with pytest.raises(LogTrimmedError, match="ledger 0 was trimmed"):
            world.run(read_and_trim())

    @pytest.mark.parametrize("begins_s", [0.0, 9.9])
    def test_a_reader_waits_for_the_metadata_service_before_the_next_ledger(
        self, begins_s: float
    ) -> None:
        world = World(3)
        manager = logs(world)
        writer = opened(world, manager)
        append(world, writer, b"0")
        world.run(writer.close())
        client = world.client(seed=5)
        reading, seen = following(world, world.run(LogManager(client).open_reader("events")))
        world.settle(2 + begins_s)
        client.store.session.suspend()
        world.settle(60)
        writer = world.run(manager.open_writer("events"))
        append(world, writer, b"1")
        world.run(writer.close())
        world.settle(60)
        assert (seen, reading.done) == ([b"0"], False)
        client.store.session.resume()
        world.settle(20)
        assert seen == [b"0", b"1"]

    def test_a_reader_that_waits_for_the_next_ledger_ends_with_its_client(self) -> None:
        world = World(3)
        manager = logs(world)
        writer = opened(world, manager)
        append(world, writer, b"0")
        world.run(writer.close())
        client = world.client(seed=5)
        reading, seen = following(world, world.run(LogManager(client).open_reader("events")))
        world.settle(2)
        assert (seen, reading.done) == ([b"0"], False)
        world.run(client.close())
        world.run(client.store.close())
        with pytest.raises(ClientClosedError):
            reading.finish()

    def test_a_ledger_that_is_gone_is_no_end_of_the_log(self) -> None:
        world = World(3)
        manager = logs(world)
        writer = opened(world, manager)
        (position,) = append(world, writer, b"0")
        world.run(writer.roll())
        append(world, writer, b"1")
        world.run(writer.close())
        client: Client = world.client()
        assert position.ledger_id is not None
        world.run(client.delete_ledger(position.ledger_id))
        with pytest.raises(LogDamagedError, match="its entries are lost"):
            all_of(world, manager)
        with pytest.raises(LogDamagedError):
            world.run(manager.open_writer("events"))
        assert all_of(world, manager, Position(1, 0)) == [b"1"]


def trimmed_during(world: World, reading: LedgerId, work: Any) -> Any:
    """Trim the log while ``work`` reads a ledger's metadata; return what becomes of the work."""
    late: list[TreeOperation] = []

    def delay_s(operation: TreeOperation) -> float:
        is_it = operation.name == "get" and operation.path.endswith(f"/L{reading:04}")
        if is_it and not late:
            late.append(operation)
            return 6.0
        return 0.0

    world.metadata.delay_s = delay_s
    working = world.start(work)
    world.settle(1)
    assert late
    world.run(logs(world, 1).trim("events", Position(9, 0)))
    return working.finish()


class TestTakingAway:
    def test_a_trim_while_a_writer_opens_the_log_is_no_loss(self) -> None:
        world = World(3)
        manager = logs(world)
        writer = opened(world, manager)
        for number in range(3):
            append(world, writer, b"%d" % number)
            world.run(writer.roll())
        world.run(writer.close())
        writer = trimmed_during(world, LedgerId(1), logs(world, 2).open_writer("events"))
        append(world, writer, b"3")
        world.run(writer.close())
        assert all_of(world, manager) == [b"3"]

    def test_only_whole_closed_ledgers_go_and_never_the_last(self) -> None:
        world = World(3)
        manager = logs(world)
        writer = opened(world, manager)
        for number in range(3):
            append(world, writer, b"%d" % number)
            world.run(writer.roll())
        before = world.run(manager.info("events")).ledgers
        assert world.run(manager.trim("events", Position(99, 0))) == Position(3, 0)
        after = world.run(manager.info("events"))
        assert [one.index for one in after.ledgers] == [3]
        client = world.client()

        async def left() -> list[LedgerId]:
            return [ledger_id async for ledger_id in client.list_ledgers()]

        assert world.run(left()) == [before[3].ledger_id]

    def test_what_no_record_lists_is_swept_when_it_is_old_enough(self) -> None:
        world = World(3)
        manager = logs(world)
        writer = opened(world, manager)
        append(world, writer, b"0")
        client = world.client()
        orphan = world.run(client.create_ledger(custom={LOG_KEY: b"events"}))
        other = world.run(client.create_ledger(custom={LOG_KEY: b"another"}))
        world.settle(10)
        assert world.run(manager.sweep("events", age_s=60)) == ()
        world.settle(60)
        assert world.run(manager.sweep("events", age_s=60)) == (orphan.ledger_id,)
        assert not world.run(client.is_closed(other.ledger_id))
        append(world, writer, b"1")
        world.run(writer.roll())
        append(world, writer, b"2")
        world.run(writer.close())
        assert all_of(world, manager) == [b"0", b"1", b"2"]

    def test_a_ledger_that_was_swept_before_it_was_listed_is_never_listed(self) -> None:
        world = World(3)
        manager = logs(world)
        writer = opened(world, manager)
        append(world, writer, b"0")
        late = late_write(world, 5.0)
        rolling = world.start(writer.roll())
        world.settle(1)
        assert len(late) == 1
        assert len(world.run(logs(world, 1).sweep("events", age_s=0))) == 1
        rolling.finish()
        append(world, writer, b"1")
        world.run(writer.close())
        assert all_of(world, manager) == [b"0", b"1"]

    def test_a_log_with_entries_is_deleted_only_by_force(self) -> None:
        world = World(3)
        manager = logs(world)
        writer = opened(world, manager)
        append(world, writer, b"0")
        with pytest.raises(LogInUseError):
            world.run(manager.delete("events"))
        assert world.run(manager.delete("events", force=True)) == 1
        assert world.run(manager.list()) == []
        with pytest.raises((AppendUnknownError, NotLeaderError)):
            world.run(_await(writer.append(b"1")))

    def test_the_writer_of_a_deleted_log_writes_nothing_to_the_next_of_its_name(self) -> None:
        world = World(3)
        old, new = logs(world), logs(world, 1)
        stale = opened(world, old, attrs.evolve(TRIPLE, roll_entries=2))
        append(world, stale, b"old")
        world.run(new.delete("events", force=True))
        writer = opened(world, new)
        append(world, writer, b"0", b"1", b"2")
        for payload in (b"stale 1", b"stale 2", b"stale 3"):
            with pytest.raises((AppendUnknownError, NotLeaderError, LogUnwritableError)):
                world.run(_await(stale.append(payload)))
        append(world, writer, b"3")
        world.run(new.sweep("events", age_s=0))
        world.run(writer.close())
        assert all_of(world, new) == [b"0", b"1", b"2", b"3"]

    def test_a_roll_under_way_does_not_list_a_ledger_in_the_next_log_of_the_name(self) -> None:
        world = World(3)
        old, new = logs(world), logs(world, 1)
        stale = opened(world, old)
        append(world, stale, b"old")
        late_write(world, 20.0)
        rolling = world.start(stale.roll())
        world.settle(1)
        world.run(new.delete("events", force=True))
        writer = opened(world, new)
        append(world, writer, b"0", b"1", b"2")
        world.settle(30)
        assert rolling.done
        append(world, writer, b"3")
        world.run(writer.close())
        assert all_of(world, new) == [b"0", b"1", b"2", b"3"]

    def test_a_trim_for_a_deleted_log_trims_nothing_of_the_next_of_its_name(self) -> None:
        world = World(3)
        manager, other = logs(world), logs(world, 1)
        writer = opened(world, manager)
        for payload in (b"0", b"1"):
            append(world, writer, payload)
            world.run(writer.roll())
        late_write(world, 20.0)
        trimming = world.start(manager.trim("events", Position(2, 0)))
        world.settle(1)
        world.run(other.delete("events", force=True))
        again = opened(world, other)
        for payload in (b"2", b"3", b"4"):
            append(world, again, payload)
            world.run(again.roll())
        with pytest.raises(NoSuchLogError):
            trimming.finish()
        world.run(again.close())
        assert all_of(world, other) == [b"2", b"3", b"4"]

    def test_a_reader_of_a_deleted_log_reads_nothing_of_the_next_of_its_name(self) -> None:
        world = World(3)
        manager, other = logs(world), logs(world, 1)
        writer = opened(world, manager)
        append(world, writer, b"0")
        reading, seen = following(world, world.run(manager.open_reader("events")))
        world.settle(5)
        world.run(writer.close())
        world.settle(5)
        world.run(other.delete("events", force=True))
        again = opened(world, other)
        for payload in (b"1", b"2", b"3"):
            append(world, again, payload)
            world.run(again.roll())
        with pytest.raises(NoSuchLogError):
            reading.finish()
        assert seen == [b"0"]

    @pytest.mark.parametrize("is_trimmed", [False, True], ids=["empty", "trimmed"])
    def test_a_reader_that_meets_the_next_log_without_ledgers_in_common_knows_it(
        self, is_trimmed
    ) -> None:
        world = World(3)
        manager, other = logs(world), logs(world, 1)
        writer = opened(world, manager)
        append(world, writer, b"0")
        reading, seen = following(world, world.run(manager.open_reader("events")))
        world.settle(5)
        world.run(writer.close())
        world.settle(5)
        store: Any = manager._client.store
        late: list[TreeOperation] = []

        def delay_s(operation: TreeOperation) -> float:
            is_readers = operation.session_id == store.session.session_id
            if is_readers and operation.name == "get" and not late:
                late.append(operation)
                return 40.0
            return 0.0

        world.metadata.delay_s = delay_s
        world.run(other.delete("events", force=True))
        world.settle(1)
        assert late
        world.run(other.create("events", TRIPLE))
        if is_trimmed:
            again = world.run(other.open_writer("events"))
            append(world, again, b"1")
            world.run(again.roll())
            world.run(other.trim("events", Position(1, 0)))
        world.settle(50)
        if not is_trimmed:
            again = world.run(other.open_writer("events"))
            append(world, again, b"1")
            world.run(again.roll())
        append(world, again, b"2")
        world.settle(5)
        with pytest.raises(NoSuchLogError):
            reading.finish()
        assert seen == [b"0"]

    def test_names_are_taken_once_and_missing_ones_told(self) -> None:
        world = World(3)
        manager = logs(world)
        world.run(manager.create("events"))
        with pytest.raises(LogExistsError):
            world.run(manager.create("events"))
        for touch in (manager.open_writer, manager.open_reader, manager.info):
            with pytest.raises(NoSuchLogError):
                world.run(touch("nothing"))


def test_a_full_log_gets_no_ledger_before_it_was_trimmed() -> None:
    world = World(3)
    client = world.client()
    listed = tuple(LogLedger(LedgerId(10**6 + index), 0) for index in range(LEDGERS_MAX))
    full = LogRecord(options=TRIPLE, ledgers=listed)
    version = world.run(client.store.create_log("events", full.encode()))
    ledgers, last = LedgerList(client, "events"), full.last_ledger_id
    known = world.run(ledgers.read())
    with pytest.raises(IncorrectParameterError, match="trim the log"):
        world.run(ledgers.append_ledger(known, last))
    assert world.run(_list_of(client.list_ledgers())) == [], "none is left behind"
    world.run(client.store.write_log("events", full.trimmed_to(1).encode(), version))
    after, writer = world.run(ledgers.append_ledger(known, last))
    assert after.record.next_index == LEDGERS_MAX + 1
    assert after.record.last_ledger_id == writer.ledger_id


def test_a_log_that_was_sealed_meanwhile_gets_no_ledger() -> None:
    world = World(3)
    manager = logs(world)
    writer = opened(world, manager)
    client = world.client(seed=1)
    ledgers = LedgerList(client, "events")
    known = world.run(ledgers.read())
    world.run(writer.close(seal=True))
    before = world.run(_list_of(client.list_ledgers()))
    with pytest.raises(NotLeaderError, match="taken over"):
        world.run(ledgers.append_ledger(known, known.record.last_ledger_id))
    assert world.run(_list_of(client.list_ledgers())) == before, "none is left behind"
    assert world.run(ledgers.read()).record.sealed
