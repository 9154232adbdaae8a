"""`top`, `bookie slow` and `bookie plot`: figures, rates, the screen and its keys."""

from __future__ import annotations

import io
import json
import os
import time
from collections.abc import Callable, Iterator
from concurrent.futures import Future
from typing import Any

import attrs
import pytest

from bkclient.errors import BookieUnavailableError
from bkctl.bookies.bookie_columns import BookieSummary
from bkctl.bookies.http import bookie_metrics
from bkctl.bookies.http.admin_client import HttpAddress
from bkctl.bookies.load_rates import LoadFigures, Rates, figures, rates
from bkctl.cli.root import cli
from bkctl.commands.load import bookie_loads as top_work
from bkctl.commands.load import bookie_plot, top_screen
from bkctl.commands.load.bookie_loads import (
    BookieLoad,
    ClusterLoad,
    LoadSampler,
    known_latencies,
    outliers,
)
from bkctl.commands.load.top_screen import ORDERS, TopState
from bkctl.environment_and_streams import Host
from bkctl.errors import CommandError
from bkctl.output.charts import Canvas
from bkctl.session.session import Session
from tests.bkclient.worlds import World
from tests.bkctl.support.drawings import WIDTHS, check_drawing
from tests.bkctl.support.terminal import FakeHost
from tests.bkctl.support.world import WorldClient, WorldHost, run_in
from wire.ids import BookieId

JAVA_PAGE = """\
# TYPE bookkeeper_server_ADD_ENTRY_REQUEST summary
bookkeeper_server_ADD_ENTRY_REQUEST{success="false",quantile="0.99"} NaN
bookkeeper_server_ADD_ENTRY_REQUEST_count{success="false"} 3
bookkeeper_server_ADD_ENTRY_REQUEST{success="true",quantile="0.5"} 0.5
bookkeeper_server_ADD_ENTRY_REQUEST{success="true",quantile="0.99"} 7.25
bookkeeper_server_ADD_ENTRY_REQUEST_count{success="true"} 1000
bookkeeper_server_ADD_ENTRY_REQUEST_sum{success="true"} 700.0
bookkeeper_server_READ_ENTRY_REQUEST{success="true",quantile="0.99"} NaN
bookkeeper_server_READ_ENTRY_REQUEST_count{success="true"} 0
bookie_journal_JOURNAL_SYNC{success="true",quantile="0.99", journalIndex="0"} 4.0
bookie_journal_JOURNAL_SYNC{success="true",quantile="0.99", journalIndex="1"} 9.0
bookie_journal_JOURNAL_QUEUE_SIZE{journalIndex="0"} 2
bookie_journal_JOURNAL_QUEUE_SIZE{journalIndex="1"} 5
bookie_WRITE_BYTES 4096
bookie_READ_BYTES 0
bookie_ledger_dir_data_a_usage 41.5
bookie_ledger_dir_data_b_usage 77.0
bookie_SERVER_STATUS 1
process_start_time_seconds 1.7e9
"""


def told(text: str) -> LoadFigures:
    return figures(map(bookie_metrics.parse_sample, samples(text)))


def samples(text: str) -> list[str]:
    return [line for line in text.splitlines() if not line.startswith("#")]


class TestFigures:
    def test_a_java_page_is_read(self) -> None:
        assert told(JAVA_PAGE) == LoadFigures(
            adds=1000, reads=0, failures=3, added_bytes=4096, read_bytes=0,
            add_p50_ms=0.5, add_p99_ms=7.25, sync_p99_ms=9.0, journal_queue=7, disk_used=77.0,
            started_s=1.7e9, version="Java",
        )  # fmt: skip

    def test_a_page_of_ours_tells_its_release(self) -> None:
        page = JAVA_PAGE + 'bookied_info{version="0.1.0",bookieId="b1"} 1\n'
        assert told(page).version == "bookied 0.1.0"

    def test_a_page_of_ours_tells_of_when_and_of_how_many_requests_latencies_are(self) -> None:
        page = JAVA_PAGE + (
            "bookied_latency_window_age_seconds 12.3\n"
            'bookied_latency_requests{operation="ADD_ENTRY",window="last"} 40\n'
            'bookied_latency_requests{operation="ADD_ENTRY",window="current"} 7\n'
            'bookied_latency_requests{operation="READ_ENTRY",window="last"} 1\n'
        )
        one = told(page)
        assert (one.window_age_s, one.latency_adds, one.latency_reads) == (12.3, 40, 1)
        later = attrs.evolve(one, window_age_s=47.0)
        assert top_work.latency_window([one, later, told(JAVA_PAGE)]) == (
            "latencies are of 80 adds and 2 reads in the minute that ended 12 to 47 s ago"
        )
        first = told(page.replace('"last"} 40', '"last"} 0').replace('"last"} 1', '"last"} 0'))
        assert (first.latency_adds, first.latency_reads) == (7, 0)
        assert (
            top_work.latency_window([first])
            == "latencies are of 7 adds and 0 reads in the last 12 s"
        )
        assert top_work.latency_window([first, one]) == (
            "latencies are of 47 adds and 1 read in the last 72 s"
        )
        assert top_work.latency_window([told(JAVA_PAGE)]) == ""

    def test_a_disk_that_java_has_not_looked_at_is_not_known(self) -> None:
        assert told("bookie_ledger_dir_data_usage 0.0\n").disk_used is None

    def test_of_a_page_without_them_nothing_is_known(self) -> None:
        assert told("") == LoadFigures()

    def test_rates_are_what_grew_and_none_over_a_restart(self) -> None:
        before, now = (
            LoadFigures(adds=100, reads=10),
            LoadFigures(adds=300, reads=10, added_bytes=8),
        )
        assert rates(before, now, 2.0) == Rates(
            adds_s=100.0, reads_s=0.0, failures_s=0.0, added_bytes_s=4.0, read_bytes_s=0.0
        )
        assert rates(now, before, 2.0) == rates(None, now, 2.0) == rates(before, now, 0) == Rates()


def bookie(number: int, **more: Any) -> BookieSummary:
    one = BookieSummary(BookieId(f"b{number}"), "writable", f"h{number}:1", 30, 100)
    return attrs.evolve(one, http=("h", number), **more)


class TestSamples:
    def sampler(
        self, found: list[BookieSummary], ask: Callable[[tuple[str, int]], LoadFigures], **more: Any
    ) -> LoadSampler:
        seconds = iter(range(1000))

        def clock() -> float:
            return float(next(seconds))

        return LoadSampler(
            lambda: found, ask, lambda: 4, instance_id="i", clock=(clock, lambda: 1.5), **more
        )

    def test_two_looks_make_rates_each_over_its_own_time(self) -> None:
        counts = iter([100, 400])
        found = self.sampler([bookie(1)], lambda _: LoadFigures(adds=next(counts)))
        assert found.sample().bookies[0].rates == Rates()
        load = found.sample()
        assert load.bookies[0].rates.adds_s == 150.0  # Two ticks of the clock lie in between.
        assert (load.time_ms, load.underreplicated) == (1500, 4)

    def test_one_that_does_not_tell_says_why_and_keeps_its_disk(self) -> None:
        def silent(_: object) -> LoadFigures:
            raise BookieUnavailableError("no HTTP at h:1: refused")

        one = self.sampler([bookie(1)], silent).sample().bookies[0]
        assert one.error == "no HTTP at h:1: refused"
        assert one.disk_used == pytest.approx(70.0)

    def test_one_that_is_registered_and_does_not_answer_is_silent(self) -> None:
        hung = attrs.evolve(bookie(1), unreachable="did not answer in 5 s")
        down = attrs.evolve(hung, state="down")
        loads = self.sampler([hung, down, bookie(2)], lambda _: LoadFigures()).sample().bookies
        assert [one.is_silent for one in loads] == [True, False, False]

    def test_one_without_an_address_is_asked_at_the_port_that_is_given(self) -> None:
        asked: list[object] = []

        def ask(address: tuple[str, int]) -> LoadFigures:
            asked.append(address)
            return LoadFigures()

        found = [attrs.evolve(bookie(1), http=None), BookieSummary(BookieId("b2"), "down")]
        load = self.sampler(found, ask).sample()
        assert [one.error for one in load.bookies] == ["it has published no HTTP server", ""]
        self.sampler(found, ask, stats_port=8000).sample()
        assert asked == [HttpAddress("h1", 8000)]


def load(count: int = 3) -> ClusterLoad:
    known = (
        BookieLoad(
            bookie=BookieSummary(BookieId("bk-01.example.org:3181"), "writable"),
            rates=Rates(
                adds_s=1234.5, reads_s=20.0, failures_s=0.0, added_bytes_s=5e6, read_bytes_s=1e3
            ),
            figures=LoadFigures(
                add_p50_ms=0.42, add_p99_ms=17.3, read_p50_ms=0.1, read_p99_ms=2.0,
                sync_p99_ms=9.0, journal_queue=12, disk_used=81.0,
            ),
        ),
        BookieLoad(
            bookie=BookieSummary(BookieId("bk-02.example.org:3181"), "read-only"),
            rates=Rates(adds_s=0.0, reads_s=40.0, failures_s=1.0, added_bytes_s=0, read_bytes_s=0),
            figures=LoadFigures(add_p99_ms=3.0, journal_queue=0, disk_used=97.0),
        ),
        BookieLoad(bookie=BookieSummary(BookieId("bk-03.example.org:3181"), "down")),
    )  # fmt: skip
    more = tuple(
        BookieLoad(bookie=BookieSummary(BookieId(f"more-{n:03d}:3181"), "writable"))
        for n in range(count)
    )
    return ClusterLoad(
        time_ms=1_790_000_000_000,
        over_s=2.0,
        instance_id="e5189144-9ced-4bce-b0b1-dfb5550c906e",
        bookies=(*known, *more)[:count],
        underreplicated=2,
    )


@pytest.fixture
def in_utc() -> Iterator[None]:
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("TZ", "UTC")
        time.tzset()
        yield
    time.tzset()


class TestScreen:
    def test_a_key_that_came_before_the_screen_is_taken(self) -> None:
        main, inner = os.openpty()
        with os.fdopen(main, "wb", 0) as keyboard, os.fdopen(inner) as stdin:
            host = Host(stdin=stdin, stdout=io.StringIO())
            keyboard.write(b"q")
            with top_screen.Screen(host) as screen:
                assert screen.key(10.0) == "q"

    @pytest.mark.parametrize("width", [40, *WIDTHS])
    @pytest.mark.parametrize("unicode", [True, False])
    @pytest.mark.usefixtures("in_utc")
    def test_a_look_is_drawn_with_its_history(self, width: int, unicode: bool) -> None:  # noqa: FBT001
        history = [
            attrs.evolve(
                load(),
                bookies=(
                    attrs.evolve(
                        load().bookies[0],
                        rates=Rates(adds_s=100.0 * (n % 7), reads_s=n),
                        figures=LoadFigures(add_p99_ms=n / 10),
                    ),
                ),
            )
            for n in range(30)
        ]
        lines = top_screen.drawing(load(), Canvas(width, unicode), history=history)
        check_drawing("top" if unicode else "top-ascii", lines, width)

    @pytest.mark.parametrize("height", [12, 24, 60])
    def test_the_screen_has_exactly_the_lines_of_the_terminal(self, height: int) -> None:
        state = TopState(2.0)
        assert len(state.lines(Canvas(80), height)) == height
        state.history.append(load(40))
        lines = state.lines(Canvas(80), height)
        assert len(lines) == height
        assert lines[-1].startswith("q quit   s sort: id   p pause   every 2 s")
        if height < 40:
            assert any(line.endswith("more)") for line in lines)

    def test_a_minute_without_adds_is_no_missing_figure(self) -> None:
        figures = LoadFigures(journal_queue=0)
        idle = attrs.evolve(load(1).bookies[0], figures=figures, rates=Rates(adds_s=0))
        silent = attrs.evolve(idle, figures=LoadFigures())
        begun = attrs.evolve(idle, rates=Rates(adds_s=7))
        none = ["no adds", "no reads", "no syncs"]
        for one, expected in ((idle, none), (silent, []), (begun, ["no reads", "soon"])):
            shown = [*top_screen.drawing(attrs.evolve(load(1), bookies=(one,)), Canvas(200))]
            row = next(line for line in shown if line.startswith("bk-01"))
            assert [words for words in (*none, "soon") if words in row] == expected

    def test_the_screen_says_why_a_bookie_tells_nothing_where_there_is_room(self) -> None:
        state = TopState(2.0)
        silent = attrs.evolve(load(1).bookies[0], error="it has published no HTTP server")
        state.history.append(attrs.evolve(load(1), bookies=(silent,)))
        assert f"{silent.bookie_id}: {silent.error}" in state.lines(Canvas(80), 24)
        assert not any(str(silent.error) in line for line in state.lines(Canvas(80), 11))

    def test_keys_sort_pause_and_leave(self) -> None:
        state = TopState(2.0)
        state.history.append(load())
        assert state.press("s")
        assert "sort: adds/s" in state.lines(Canvas(80), 24)[-1]
        assert state.press("p")
        assert state.lines(Canvas(80), 24)[-1].endswith("paused")
        assert state.press("p")
        assert state.press("x")
        assert not state.press("q")
        for _ in ORDERS[1:]:
            state.press("s")
        assert state.order == 0

    def test_the_highest_comes_first_and_what_is_not_known_last(self) -> None:
        firsts = {"adds/s": "bk-01", "reads/s": "bk-02", "read p99": "bk-01", "disk": "bk-02"}
        for name, first in firsts.items():
            (order,) = (one for one in ORDERS if one.name == name)
            ids = [one.bookie_id for one in order.sorted(load().bookies)]
            assert ids[0].startswith(first), order.name
            assert ids[-1].startswith("bk-03")

    def test_news_that_do_not_come_are_told_and_the_last_ones_stay(self) -> None:
        state = TopState(2.0)
        failed: Future[ClusterLoad] = Future()
        failed.set_exception(CommandError("the metadata service is away"))
        state.history.append(load())
        state.take(failed)
        lines = state.lines(Canvas(100), 24)
        assert lines[-1].endswith("no answer: the metadata service is away")
        assert any("bk-01" in line for line in lines)
        fine: Future[ClusterLoad] = Future()
        fine.set_result(load())
        state.take(fine)
        assert state.error == ""

    def test_there_is_no_screen_without_a_terminal_or_on_a_dumb_one(self) -> None:
        assert top_screen.has_screen(FakeHost(tty=True, environ={"TERM": "xterm"}))
        assert not top_screen.has_screen(FakeHost(tty=True, environ={"TERM": "dumb"}))
        assert not top_screen.has_screen(FakeHost(environ={"TERM": "xterm"}))

    def test_a_look_is_one_line_where_there_is_no_screen(self) -> None:
        assert top_work.load_line(load()) == (
            "adds 1.2k/s p50 0.42 ms p99 17.3 ms  reads 60/s p99 2.00 ms"
            "  queue 12  disk 97 %  under-replicated 2  writable 1 of 3"
        )


class TestCommands:
    def test_looks_come_at_their_intervals_and_the_first_is_not_shown(self) -> None:
        slept: list[float] = []
        numbers = iter(range(10))
        found = top_work.sample_every(lambda: next(numbers), 2.0, slept.append)
        assert [next(found), next(found)] == [1, 2]
        assert all(0 < seconds <= 4.0 for seconds in slept)

    def test_each_value_is_out_before_the_next_is_waited_for(self) -> None:
        host = FakeHost()
        session: Session = attrs.make_class("S", ["host"])(host)  # type: ignore[assignment]
        seen: list[str] = []

        def values() -> Any:
            yield 1
            seen.append(host.out.text)
            yield 2

        for value in top_work.flush_each(session, values()):
            host.stdout.write(f"{value} ")
        assert seen == ["1 "]

    def test_once_prints_one_screen_or_one_object(self) -> None:
        world = World(3)
        drawn = run_in(world, "top", "--once", "-i", "0.01").out
        assert "3 bookies: 3 writable" in drawn
        assert "b2: it has published no HTTP server" in drawn
        shown = run_in(world, "bookie", "top", "--once", "-i", "0.01", "-o", "jsonl")
        one = json.loads(shown.out)
        assert (one["writable"], one["adds_s"], one["disk_used"]) == (3, None, 60.0)
        assert [b["bookie_id"] for b in one["bookies"]] == ["b1", "b2", "b3"]

    def test_bookies_are_in_the_order_of_a_field(self) -> None:
        one, two, three = load().bookies
        assert top_work.sort_loads([one, two, three], "adds_s:desc") == (one, two, three)
        assert top_work.sort_loads([one, two, three], "adds_s") == (two, one, three)
        assert top_work.sort_loads([one, two, three], "add_p99_ms:desc") == (one, two, three)
        assert top_work.sort_loads([three, two, one], None) == (three, two, one)
        assert top_work.sort_loads([two, three, one], "state,bookie_id:desc") == (three, two, one)

    @pytest.mark.parametrize("name", ["add_p99", "time"])
    def test_a_field_that_no_bookie_has_is_refused(self, name: str) -> None:
        once = ("top", "--once", "-i", "0.01", "--sort-by")
        refused = run_in(World(3), *once, f"{name}:desc", ok=False)
        assert (refused.status, f"--sort-by: no field '{name}'" in refused.err) == (2, True)

    def test_sorted_bookies_are_printed_at_each_reading(self) -> None:
        host = WorldHost(World(3), "", tty=False)
        host._connect = _Interrupted(host.world).connected
        where = ("-u", "sqlite:///not/opened.db")
        top = ("top", "-i", "0.01", "--sort-by", "bookie_id:desc", "-o", "jsonl")
        assert cli.run([*where, *top], host) == 130
        first, *_ = host.out.data.decode().splitlines()
        assert [one["bookie_id"] for one in json.loads(first)["bookies"]] == ["b3", "b2", "b1"]

    def test_slow_needs_some_to_compare(self) -> None:
        said = run_in(World(3), "bookie", "slow", ok=False)
        assert said.status == 1
        assert "a comparison needs 3" in said.err

    def test_slow_with_a_silent_bookie_does_not_blame_the_settings(self) -> None:
        error = top_work.too_few(2, [BookieId("b3")])
        assert str(error) == "only 2 bookies reported metrics; a comparison needs 3"
        assert error.hint == "if the process of b3 hangs, restart it"
        assert "httpServerEnabled" in top_work.too_few(2, []).hint

    def test_plot_needs_a_bookie_that_can_be_asked(self) -> None:
        world = World(1)
        assert run_in(world, "bookie", "plot", "b9", "adds", ok=False).status == 3
        said = run_in(world, "bookie", "plot", "b1", "adds", ok=False)
        assert (said.status, "published no HTTP server" in said.err) == (3, True)
        assert run_in(world, "bookie", "plot", "b1", "adds", "--for", "0.5", ok=False).status == 2


class _Interrupted(WorldClient):
    """A client that is interrupted after some calls."""

    calls_left = 20

    def connected(self, *_: object) -> WorldClient:
        return self

    def call(self, function: Callable[..., Any], *args: Any, **kwargs: Any) -> Any:
        self.calls_left -= 1
        if self.calls_left < 0:
            raise KeyboardInterrupt
        return super().call(function, *args, **kwargs)


class TestSlow:
    def of(self, **values: float | None) -> dict[BookieId, LoadFigures]:
        return {BookieId(name): LoadFigures(add_p99_ms=value) for name, value in values.items()}

    def test_who_is_far_above_the_median_is_named_the_worst_first(self) -> None:
        found = outliers(self.of(a=10.0, b=12.0, c=11.0, d=40.0, e=90.0), 2.0)
        assert [(one.bookie_id, one.metric) for one in found] == [
            ("e", "add-p99"),
            ("d", "add-p99"),
        ]
        assert found[0].times == pytest.approx(7.5)
        assert found[0].requests is None
        counted = {bookie: attrs.evolve(one, latency_adds=3)
                   for bookie, one in self.of(a=1.0, b=1.0, c=9.0).items()}  # fmt: skip
        assert [one.requests for one in outliers(counted, 2.0)] == [3]

    def test_a_process_that_pauses_is_named_and_the_load_of_the_machine_is_not(self) -> None:
        def of(*pauses_ms: float | None) -> dict[BookieId, LoadFigures]:
            return {
                BookieId(f"b{n}"): LoadFigures(pause_p99_ms=one) for n, one in enumerate(pauses_ms)
            }

        (found,) = outliers(of(3.0, 900.0, 5.0, None), 2.0)
        assert (found.bookie_id, found.metric, found.value_ms) == ("b1", "pause-p99", 900.0)
        assert not outliers(of(3.0, 90.0, 5.0), 2.0)
        line = 'bookied_event_loop_lag_ms{success="true",quantile="0.99"} 812.5'
        assert figures([bookie_metrics.parse_sample(line)]).pause_p99_ms == 812.5

    def test_less_than_a_millisecond_is_not_slow(self) -> None:
        assert not outliers(self.of(a=0.1, b=0.1, c=0.9), 2.0)

    def test_latencies_that_no_bookie_has_are_not_compared(self) -> None:
        assert known_latencies(self.of(a=None, b=None)) == []
        assert known_latencies(self.of(a=None, b=1.0)) == ["add-p99 1.00 ms to 1.00 ms (b)"]
        assert known_latencies(self.of(a=3.0, b=1.0)) == ["add-p99 1.00 ms to 3.00 ms (a)"]

    def test_two_are_too_few_to_compare(self) -> None:
        assert not outliers(self.of(a=1.0, b=50.0, c=None), 2.0)


class TestPlot:
    def points(self, values: list[float | None], *, grows: bool) -> list[float | None]:
        seconds, source = [0.0], iter(values)

        def sleep(s: float) -> None:
            seconds[0] += s

        found = bookie_plot.points(
            BookieId("b1"), "x", lambda: next(source), len(values) - 1.0, 1.0, grows=grows,
            clock=(lambda: seconds[0], lambda: 0.0), sleep=sleep,
        )  # fmt: skip
        return [point.value for point in found]

    def test_what_grows_is_drawn_as_its_rate_with_a_gap_at_a_restart(self) -> None:
        assert self.points([10, 30, 60, 5, 15, None, 9, 10], grows=True) == [
            20, 30, None, 10, None, None, 1,
        ]  # fmt: skip

    def test_what_does_not_grow_is_drawn_as_it_is(self) -> None:
        assert self.points([10, 30, None, 5], grows=False) == [10, 30, None, 5]

    def test_a_word_or_any_metric_can_be_asked_for(self) -> None:
        assert bookie_plot.curve("adds").grows
        assert not bookie_plot.curve("add-p99").grows
        assert bookie_plot.curve("bookie_gc_MAJOR_COMPACTION_TOTAL_count").grows
        assert bookie_plot.curve("adds").label(1500.0) == "1.5k/s"

    @pytest.mark.parametrize("width", WIDTHS)
    def test_the_curve_has_a_title_and_a_scale(self, width: int) -> None:
        seen = [
            bookie_plot.PlotPoint(
                time_ms=n * 1000, bookie_id=BookieId("b1"), metric="adds", value=float(n * n)
            )
            for n in range(60)
        ]
        lines = bookie_plot.drawing(seen, bookie_plot.curve("adds").label, Canvas(width), 8)
        check_drawing("plot", lines, width)
