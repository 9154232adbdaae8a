"""The daemon's log lines."""

from __future__ import annotations

import io
import json
import re
import threading
from pathlib import Path
from typing import cast

from twisted.logger import ILogObserver, LogLevel
from twisted.python.failure import Failure

from bookied.process.log_output import (
    REPEAT_S,
    REPEATS_MAX,
    TEXT_CHARS_MAX,
    TRACEBACK_CHARS_MAX,
    LineObserver,
    Logging,
    RepeatLimiter,
    json_line,
    text_line,
)


def event(message: str = "ledger {ledger_id} fenced", **fields):
    return {
        "log_time": 1_700_000_000.25,
        "log_level": LogLevel.info,
        "log_namespace": "bookied.server.rules.request_rules",
        "log_format": message,
        "log_source": None,
        **fields,
    }


def test_a_text_line_is_in_the_order_of_javas() -> None:
    line = text_line(event(ledger_id=5, journal_id=1))
    assert re.fullmatch(
        r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d,250 - INFO  "
        r"\[MainThread:bookied\.server\.rules\.request_rules\] - "
        r"ledger 5 fenced \{journalId=1\}\n",
        line,
    )


def test_a_message_with_line_ends_stays_on_one_line() -> None:
    assert "a\\nb" in text_line(event("{x}", x="a\nb"))
    assert text_line(event("{x}", x="a\nb")).count("\n") == 1


def test_what_a_peer_sends_can_neither_begin_a_line_nor_drive_a_terminal() -> None:
    forged = "x\n2023-11-14 - FATAL - \x1b[31mforged\r"
    line = text_line(event("from {peer}", peer=forged, path=forged))
    assert line.count("\n") == 1
    assert line.rstrip("\n").isprintable()
    assert "\\x1b[31mforged\\r" in line
    assert json.loads(json_line(event("{path}", path=forged)))["path"] == forged


def test_a_line_is_bounded_whatever_a_peer_sends() -> None:
    name = "x" * 1_000_000
    for line in (text_line(event("{path}", path=name, peer=name)), json_line(event(peer=name))):
        assert len(line) < 3 * TEXT_CHARS_MAX
        assert "... (1000" in line


def test_the_end_of_a_long_traceback_is_written_without_terminal_escapes() -> None:
    failure = Failure(ValueError("x" * 1_000_000 + "\x1b[31m\x9b31m the end"))
    for line in (text_line(event(log_failure=failure)), json_line(event(log_failure=failure))):
        assert len(line) < 2 * TRACEBACK_CHARS_MAX
        assert "the end" in line
        assert "\x1b" not in line
        assert "\x9b" not in line


def test_json_has_no_character_that_drives_a_terminal() -> None:
    name = "\x9b31m\u202e\U000e0001"
    line = json_line(event("{path}", path=name))
    assert line.rstrip("\n").isprintable()
    assert json.loads(line)["path"] == name


def test_a_failure_follows_its_line() -> None:
    line = text_line(
        event("oh", log_failure=Failure(ValueError("why")), log_level=LogLevel.critical)
    )
    assert " FATAL " in line.splitlines()[0]
    assert line.rstrip().endswith("ValueError: why")


def test_a_json_line_has_flat_attributes_and_utc() -> None:
    fields = json.loads(json_line(event(ledger_id=5, directory=Path("/d"))))
    assert fields == {
        "ts": "2023-11-14T22:13:20.250+00:00",
        "level": "INFO",
        "thread": "MainThread",
        "logger": "bookied.server.rules.request_rules",
        "msg": "ledger 5 fenced",
        "ledgerId": 5,
        "directory": "/d",
    }


def test_a_json_line_keeps_a_failure_on_the_line() -> None:
    line = json_line(event("oh", log_failure=Failure(ValueError("why"))))
    assert "ValueError: why" in json.loads(line)["trace"]
    assert line.count("\n") == 1


def test_repeats_are_counted_rather_than_written() -> None:
    seen: list[dict[str, object]] = []
    limiter = RepeatLimiter(cast("ILogObserver", seen.append))
    for number in range(REPEATS_MAX + 7):
        limiter(event(ledger_id=number))
    limiter(event("another"))
    assert len(seen) == REPEATS_MAX + 1
    limiter({**event(ledger_id=1), "log_time": 1_700_000_000.25 + REPEAT_S})
    assert seen[-1]["suppressed"] == 7


def test_a_clock_that_was_set_back_silences_no_log() -> None:
    seen: list[dict[str, object]] = []
    limiter = RepeatLimiter(cast("ILogObserver", seen.append))
    for number in range(REPEATS_MAX + 7):
        limiter(event(ledger_id=number))
    limiter({**event(ledger_id=1), "log_time": 1_600_000_000.0})
    assert seen[-1].get("suppressed") == 7


def test_lines_of_several_threads_do_not_mix() -> None:
    out = io.StringIO()
    observer = LineObserver(out, text_line)
    threads = [
        threading.Thread(target=lambda: list(map(observer, [event(ledger_id=5)] * 50)))
        for _ in range(4)
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert all(line.endswith("fenced") for line in out.getvalue().splitlines())


def test_a_log_file_that_was_moved_away_is_opened_anew(tmp_path: Path) -> None:
    path = tmp_path / "b.log"
    logging = Logging(file=path)
    logging._observer(event(ledger_id=1))
    path.rename(tmp_path / "b.log.1")
    logging._observer(event(ledger_id=2))
    logging.reopen()
    logging._observer(event(ledger_id=3))
    assert (tmp_path / "b.log.1").read_text().count("\n") == 2
    assert "ledger 3" in path.read_text()
    logging._observer.write_to(io.StringIO()).close()
