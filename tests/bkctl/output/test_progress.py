from __future__ import annotations

import io
import json
import sys

import pytest

from bkctl.global_options import Options
from bkctl.output.line_pace import LinePace
from bkctl.output.progress import Bar, JsonLines, Lines, Progress, make_progress
from tests.bkctl.support.terminal import FakeHost
from tests.support.waiting import until


class _Time:
    now_s = 100.0

    def __call__(self) -> float:
        return self.now_s


def _options(**given: object) -> Options:
    options = Options()
    for name, value in given.items():
        setattr(options, name, value)
    return options


@pytest.mark.parametrize(
    ("given", "tty", "environ", "kind"),
    [
        ({}, True, {}, Bar),
        ({}, False, {}, Lines),
        ({}, True, {"TERM": "dumb"}, Lines),
        ({}, True, {"CI": "true"}, Lines),
        ({"quiet": True}, True, {}, Progress),
        ({"progress": "none"}, True, {}, Progress),
        ({"progress": "lines"}, True, {}, Lines),
        ({"progress": "jsonl"}, True, {}, JsonLines),
    ],
)
def test_a_bar_is_for_terminals_alone(
    given: dict[str, object], environ: dict[str, str], kind: type, *, tty: bool
) -> None:
    host = FakeHost(tty=tty, environ=environ)
    assert type(make_progress(_options(**given), host, "x", total=1, unit="bytes")) is kind


def test_short_work_says_nothing_at_all() -> None:
    for tty in (False, True):
        host = FakeHost(tty=tty)
        with make_progress(_options(), host, "writing", total=100, unit="bytes") as progress:
            for done in range(100):
                progress.update(done)
        assert host.err.text == ""


def test_the_first_line_comes_after_two_seconds_the_others_more_and_more_rarely() -> None:
    out, now = io.StringIO(), _Time()
    with Lines(out, "writing", 1000, "bytes", now) as progress:
        for second in range(1, 101):
            now.now_s += 1
            progress.update(second * 2, items=second)
    assert out.getvalue().splitlines() == [
        "writing: 0%, 2 entries, 4 B, 2 B/s, 8m18s left",
        "writing: 1%, 6 entries, 12 B, 2 B/s, 8m14s left",
        "writing: 3%, 14 entries, 28 B, 2 B/s, 8m6s left",
        "writing: 6%, 30 entries, 60 B, 2 B/s, 7m50s left",
        "writing: 12%, 60 entries, 120 B, 2 B/s, 7m20s left",
        "writing: 18%, 90 entries, 180 B, 2 B/s, 6m50s left",
    ]


def test_a_line_comes_though_nothing_has_been_reported() -> None:
    host = FakeHost()
    with Lines(host.err, "moving", None, "bytes", pace=LinePace(0.001)) as progress:
        assert progress.is_open
        until(lambda: "moving (0 s)\n" in host.err.text, "the line")
    assert not progress.is_open


def test_the_share_and_the_time_left_follow_the_work_where_it_is_given() -> None:
    out, now = io.StringIO(), _Time()
    with Lines(out, "moving", 1000, "bytes", now) as progress:
        for second in range(1, 36):
            now.now_s += 1
            progress.update(920, items=second, work=(second * 10, 1000))
    last_line = out.getvalue().splitlines()[-1]
    assert last_line == "moving: 30%, 30 entries, 920 B, 0 B/s, 1m10s left"


def test_json_lines_end_with_the_whole() -> None:
    out, now = io.StringIO(), _Time()
    with JsonLines(out, "writing", 1000, "bytes", now) as progress:
        for _ in range(5):
            now.now_s += 0.5
            progress.update(500, items=7)
    *_, last = [json.loads(line) for line in out.getvalue().splitlines()]
    assert last == {
        "progress": "writing", "done": 500, "total": 1000, "unit": "bytes", "items": 7,
        "rate": 0.0 if last["rate"] == 0 else last["rate"], "elapsed_s": 2.5, "ended": True,
    }  # fmt: skip


def test_a_bar_draws_after_a_while_and_leaves_nothing() -> None:
    host, now = FakeHost(tty=True), _Time()
    with Bar(host.err, "writing", 1000, "bytes", now) as progress:
        progress.update(0)
        assert host.err.text == ""
        now.now_s += 1
        progress.update(500)
    assert "writing" in host.err.text
    assert host.err.text.rstrip().endswith("\x1b[2K") or "\x1b[?25h" in host.err.text


def test_a_bar_shows_though_nothing_has_been_reported() -> None:
    host = FakeHost(tty=True)
    with Bar(host.err, "exporting", None, "bytes", silent_s=0.0) as progress:
        assert progress.is_open
        until(lambda: "exporting" in host.err.text, "the bar")
    assert not progress.is_open


def test_results_in_a_file_or_a_pipe_go_there_though_a_bar_is_drawn(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    host, now = FakeHost(tty=True), _Time()
    monkeypatch.setattr("sys.stdout", io.StringIO())
    with Bar(host.err, "reading", 1000, "bytes", now) as progress:
        now.now_s += 2
        progress.update(1)
        print("a result")
        assert sys.stdout.getvalue() == "a result\n"  # type: ignore[attr-defined]
    assert "a result" not in host.err.text
