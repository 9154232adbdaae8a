"""`bkctl bench`: what is counted, and that nothing is left behind."""

from __future__ import annotations

import signal
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from twisted.internet.defer import Deferred, succeed

from bkctl.commands.load.bench import UPDATE_EVERY_S, BenchLoad, measured
from bkctl.exit_status import ExitStatus
from tests.bkclient.replication_world import TRIPLE, closed_ledger, open_writer
from tests.bkclient.worlds import Fate, World
from tests.bkctl.support.world import run_in
from wire.messages import AddRequest, BatchReadRequest, ReadRequest, Request

SMALL = ("-n", 50, "--warm-up", 10, "--size", 100, "--window", 8)


# Figures ---------------------------------------------------------------------------------------


def test_percentiles_are_latencies_that_were_seen() -> None:
    found = measured("x", [n / 1000 for n in range(1000, 0, -1)], entries=1000, size=5, seconds=2)
    assert (found.p50, found.p90, found.p99, found.p999, found.worst) == (
        0.5, 0.9, 0.99, 0.999, 1.0,
    )  # fmt: skip
    assert found.mean == pytest.approx(0.5005)
    assert (found.entries_per_s, found.bytes_per_s) == (500, 2.5)


def test_nothing_measured_is_all_zeros() -> None:
    found = measured("x", [], entries=0, size=0, seconds=0)
    assert (found.p50, found.worst, found.mean, found.entries_per_s) == (None, 0, 0, 0)


def test_a_percentile_of_too_few_latencies_is_not_known() -> None:
    known = {}
    for count in (1, 2, 9, 10, 99, 100, 999, 1000):
        found = measured("x", [0.5] * count, entries=count, size=1, seconds=1)
        known[count] = [name for name in ("p50", "p90", "p99", "p999") if getattr(found, name)]
    assert known == {
        1: [], 2: ["p50"], 9: ["p50"], 10: ["p50", "p90"], 99: ["p50", "p90"],
        100: ["p50", "p90", "p99"], 999: ["p50", "p90", "p99"],
        1000: ["p50", "p90", "p99", "p999"],
    }  # fmt: skip


def test_a_threshold_of_a_percentile_that_is_not_known_fails() -> None:
    words = ("bench", "read", "-n", 50, "--warm-up", 0, "--size", 100)
    limits = ("--fail-if", "p99>10m", "--fail-if", "p99!=0ms")
    refused = run_in(World(3), *words, *limits, ok=False)
    assert refused.status == ExitStatus.PROBLEMS
    assert "too few for p99: 1 request, each of a chunk of entries; --random times entries" in (
        refused.err
    )
    assert "p99 is not known (p99>10m)" in refused.err
    assert refused.err.count("p99 is not known") == len(limits) / 2, "each is said once"


class FakeServer:
    """Answers requests when it is told to."""

    def __init__(self) -> None:
        self.now_s = 0.0
        self.waiting: list[Deferred[None]] = []

    def send(self, _number: int) -> Deferred[None]:
        self.waiting.append(Deferred())
        return self.waiting[-1]

    def answer(self, after_s: float) -> None:
        self.now_s += after_s
        self.waiting.pop(0).callback(None)


def driven(load: BenchLoad, turn: Callable[[], object]) -> list[int]:
    """Run a load to its end; ``turn`` is what happens while it sleeps."""
    told: list[int] = []

    def sleep(_seconds: float) -> Deferred[Any]:
        turn()
        return succeed(None)

    async def run() -> None:
        told.extend([done async for done in load.run(sleep)])

    outcome: list[Any] = []
    Deferred.fromCoroutine(run()).addBoth(outcome.append)
    (result,) = outcome
    if result is not None:
        result.raiseException()
    return told


def test_a_load_keeps_its_window_full_and_leaves_the_warm_up_out() -> None:
    server = FakeServer()
    load = BenchLoad(lambda: server.now_s, server.send, entries=3, warm_up=2, window=2)
    seen: list[int] = []

    def turn() -> None:
        seen.append(len(server.waiting))
        server.answer(1.0)

    assert driven(load, turn) == [1, 2, 3, 4, 5]
    assert seen == [2, 1, 2, 2, 1]
    assert list(load.latencies_s) == [1.0, 2.0, 2.0]
    assert load.elapsed_s == 3.0


def test_what_is_counted_is_sent_within_the_time_that_is_measured() -> None:
    server = FakeServer()
    load = BenchLoad(lambda: server.now_s, server.send, entries=3, warm_up=1, window=9)

    def turn() -> None:
        server.now_s += 5.0
        for _ in range(len(server.waiting)):
            server.answer(0.0)

    driven(load, turn)
    assert list(load.latencies_s) == [5.0, 5.0, 5.0]
    assert load.elapsed_s == 5.0


def test_a_load_ends_with_its_first_error_and_sends_no_more() -> None:
    server = FakeServer()
    load = BenchLoad(lambda: server.now_s, server.send, entries=9, warm_up=0, window=2)

    def turn() -> None:
        server.waiting.pop(0).errback(ZeroDivisionError())

    with pytest.raises(ZeroDivisionError):
        driven(load, turn)
    assert server.waiting == []


@pytest.mark.parametrize(("warm_up", "measured"), [(0, 2), (9, 0)])
def test_a_load_that_is_stopped_waits_for_what_is_in_flight(warm_up: int, measured: int) -> None:
    server = FakeServer()
    load = BenchLoad(lambda: server.now_s, server.send, entries=9, warm_up=warm_up, window=2)

    def turn() -> None:
        load.stop()
        server.answer(1.0)

    driven(load, turn)
    assert (len(load.latencies_s), server.waiting) == (measured, [])


# Commands --------------------------------------------------------------------------------------


def ledgers(world: World) -> list[str]:
    return run_in(world, "ledger", "list", "-o", "id").out.split()


def test_writing_is_measured_and_its_ledger_deleted() -> None:
    world = World(3)
    found = run_in(world, "bench", "write", *SMALL, "--json").json
    assert {k: found[k] for k in ("what", "entries", "size", "requests")} == {
        "what": "write", "entries": 50, "size": 5000, "requests": 50,
    }  # fmt: skip
    assert found["p50"] <= found["p90"] <= found["worst"]
    assert "ledger_id" not in found
    assert ledgers(world) == []
    kept = run_in(world, "bench", "write", *SMALL, "--keep", "--json").json
    assert ledgers(world) == [kept["ledger_id"]]
    shown = run_in(world, "ledger", "show", kept["ledger_id"], "--json").json
    assert (shown["last_entry"], shown["state"]) == (59, "closed")
    kept_id = run_in(world, "bench", "write", *SMALL, "--keep", "-o", "id").out
    assert ledgers(world) == [kept["ledger_id"], kept_id.strip()]
    assert run_in(world, "bench", "write", *SMALL, "-o", "id").out == ""


@pytest.mark.parametrize(
    ("limits", "status"),
    [((), ExitStatus.INTERRUPTED), (("--fail-if", "entries>1"), ExitStatus.PROBLEMS)],
)
def test_an_interrupted_run_prints_its_figures_and_judges_them(
    limits: tuple[str, ...], status: ExitStatus
) -> None:
    world = World(3)
    adds: list[Request] = []

    def release() -> None:
        for bookie in world.bookies.values():
            bookie.policy = lambda _request: Fate.SERVE
            bookie.release()

    def interrupting(request: Request) -> Fate:
        if not isinstance(request, AddRequest):
            return Fate.SERVE
        adds.append(request)
        if len(adds) == 300:
            signal.raise_signal(signal.SIGINT)
            world.clock.callLater(10 * UPDATE_EVERY_S, release)
        return Fate.SERVE if len(adds) < 300 else Fate.HOLD

    for bookie in world.bookies.values():
        bookie.policy = interrupting
    words = ("bench", "write", "-n", 1000, *SMALL[2:], *limits, "--json")
    found = run_in(world, *words, ok=False)
    assert found.status == status
    assert 30 < found.json["entries"] < 200
    assert found.json["size"] == 100 * found.json["entries"]
    assert ledgers(world) == []


@pytest.mark.parametrize("how", [(), ("--random",)])
@pytest.mark.parametrize("is_made", [False, True])
def test_an_interrupted_read_prints_its_figures(how: tuple[str, ...], *, is_made: bool) -> None:
    world = World(3)
    world.delay_s = lambda: 0.001
    given = [] if is_made else [closed_ledger(world, world.client(), 20, **TRIPLE)]
    reads: list[Request] = []

    def interrupting(request: Request) -> Fate:
        if isinstance(request, ReadRequest | BatchReadRequest):
            reads.append(request)
            if len(reads) == 50:
                signal.raise_signal(signal.SIGINT)
        return Fate.SERVE

    for bookie in world.bookies.values():
        bookie.policy = interrupting
    words = ("bench", "read", *given, *how, "--for", "1h", *SMALL, "--json")
    found = run_in(world, *words, ok=False)
    assert found.status == ExitStatus.INTERRUPTED
    assert found.json["requests"] > 10
    assert ledgers(world) == list(map(str, given))


@pytest.mark.parametrize("words", [("write",), ("read",), ("read", "--random")])
def test_a_run_for_a_time_takes_that_time(words: tuple[str, ...]) -> None:
    world = World(3)
    world.delay_s = lambda: 0.001
    found = run_in(world, "bench", *words, *SMALL, "--for", "300ms", "--json").json
    assert 0.3 <= found["seconds"] < 0.4
    assert found["entries"] > 100
    assert (found["entry_size"], found["size"]) == (100, 100 * found["entries"])


def test_a_journal_is_measured_for_a_time(tmp_path: Path) -> None:
    words = ("bench", "journal", "--dir", tmp_path, *SMALL, "--for", "100ms", "--json")
    found = run_in(World(1), *words).json
    assert found["seconds"] >= 0.1
    assert (found["requests"], found["window"]) == (found["entries"], 8)


def test_a_failed_run_leaves_no_ledger_behind() -> None:
    world = World(3)
    for bookie in world.bookies.values():
        bookie.policy = lambda request: Fate.LOSE if isinstance(request, AddRequest) else Fate.SERVE
    failed = run_in(world, "bench", "write", *SMALL, ok=False)
    assert failed.status != 0
    assert ledgers(world) == []


@pytest.mark.parametrize("how", [(), ("--random",)])
def test_reading_is_measured_on_a_ledger_that_is_there_or_made(how: tuple[str, ...]) -> None:
    world = World(3)
    ledger_id = closed_ledger(world, world.client(), 20, **TRIPLE)
    found = run_in(world, "bench", "read", ledger_id, *how, *SMALL, "--json").json
    assert (found["ledger_id"], found["entries"]) == (str(ledger_id), 50)
    assert found["requests"] >= 1
    made = run_in(world, "bench", "read", *how, *SMALL, "--json").json
    assert made["size"] == 5000
    assert ledgers(world) == [str(ledger_id)]


def test_an_empty_ledger_cannot_be_read_for_a_measurement() -> None:
    world = World(3)
    writer = open_writer(world, world.client(), 0, **TRIPLE)
    refused = run_in(world, "bench", "read", writer.ledger_id, ok=False)
    assert refused.status == ExitStatus.USAGE


@pytest.mark.parametrize("how", [(), ("--no-sync",), ("--group-wait", "1")])
def test_a_journal_of_its_own_is_measured_and_removed(how: tuple[str, ...], tmp_path: Path) -> None:
    (tmp_path / "mine").write_text("stays")
    found = run_in(World(1), "bench", "journal", "--dir", tmp_path, *SMALL, *how, "--json").json
    assert (found["entries"], found["requests"], found["size"]) == (50, 50, 5000)
    assert [path.name for path in tmp_path.iterdir()] == ["mine"]


def test_a_directory_that_is_not_there_is_not_found(tmp_path: Path) -> None:
    gone = run_in(World(1), "bench", "journal", "--dir", tmp_path / "no", ok=False)
    assert gone.status == ExitStatus.NOT_FOUND


@pytest.mark.parametrize("what", ["write", "read", "journal"])
def test_a_threshold_that_is_broken_is_status_10_and_nothing_stays(
    what: str, tmp_path: Path
) -> None:
    world = World(3)
    words = ("bench", what, *SMALL, *(("--dir", tmp_path) if what == "journal" else ()))
    run_in(world, *words, "--fail-if", "worst>10m", "--fail-if", "entries<50")
    slow = run_in(world, *words, "--fail-if", "worst>=0ms", "--json", ok=False)
    assert slow.status == ExitStatus.PROBLEMS
    assert slow.json["entries"] == 50
    assert "worst is " in slow.err
    assert "(worst>=0ms)" in slow.err
    assert ledgers(world) == []
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("text", ["p98>50ms", "p99", "p99>fast", "p99>50MiB", "p99>50", "p99=50ms"])
def test_a_threshold_that_says_nothing_is_refused_before_anything_is_written(text: str) -> None:
    world = World(3)
    refused = run_in(world, "bench", "write", *SMALL, "--fail-if", text, ok=False)
    assert refused.status == ExitStatus.USAGE
    assert "entries" not in refused.out
    assert not any(bookie.ledgers for bookie in world.bookies.values())


def test_an_equality_with_a_measured_number_names_the_comparisons_to_use() -> None:
    refused = run_in(World(1), "bench", "write", *SMALL, "--fail-if", "entries/s=9", ok=False)
    assert "write 'entries_per_s>9' to fail above the limit, or 'entries_per_s<9'" in refused.err


def test_a_threshold_names_a_field_as_the_table_does() -> None:
    told = run_in(World(3), "bench", "write", *SMALL, "--fail-if", "entries/s>=0", ok=False)
    assert told.status == ExitStatus.PROBLEMS
    assert "entries_per_s is" in told.err


def test_dry_runs_measure_nothing(tmp_path: Path) -> None:
    world = World(3)
    for words in (("write",), ("read",), ("journal", "--dir", tmp_path)):
        assert run_in(world, "bench", *words, "--dry-run").out.startswith("would "), words
    assert ledgers(world) == []
    assert list(tmp_path.iterdir()) == []
