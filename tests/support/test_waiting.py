"""The one wait that tests with threads and processes have."""

from __future__ import annotations

import fcntl
import os
import threading

import pytest

from tests.support.waiting import NotInTimeError, is_readable, pause_after, until


def test_it_ends_as_soon_as_the_condition_holds_with_what_that_gave() -> None:
    asked: list[int] = []

    def third() -> list[int]:
        asked.append(0)
        return asked if len(asked) == 3 else []

    assert until(third) == [0, 0, 0]


def test_it_sees_what_another_thread_does() -> None:
    done = threading.Event()
    thread = threading.Thread(target=done.set)
    thread.start()
    assert until(done.is_set) is True
    thread.join()


def test_it_fails_at_the_deadline_with_what_is_wrong_by_then() -> None:
    asked: list[int] = []
    with pytest.raises(NotInTimeError, match="asked 1 times"):
        until(lambda: asked.append(0), lambda: f"asked {len(asked)} times", timeout_s=-1.0)
    with pytest.raises(NotInTimeError, match="no bookie"):
        until(lambda: False, "no bookie", timeout_s=-1.0)


def test_pauses_grow_with_the_wait_to_a_bound() -> None:
    assert [pause_after(waited_s) for waited_s in (0.0, 0.2, 0.5, 1.0, 60.0)] == [
        0.02, 0.02, 0.05, 0.1, 0.1,
    ]  # fmt: skip
    assert pause_after(60.0, pause_s=1.0) == 1.0


def test_what_makes_waiting_useless_ends_it_at_once() -> None:
    def check() -> None:
        raise RuntimeError("the process ended")

    with pytest.raises(RuntimeError, match="the process ended"):
        until(lambda: False, check=check)


def test_a_descriptor_above_1023_is_readable_once_there_is_data_or_an_end() -> None:
    reading, writing = os.pipe()
    high = fcntl.fcntl(reading, fcntl.F_DUPFD, 1024)
    try:
        assert not is_readable(high)
        os.write(writing, b"1")
        assert is_readable(high)
        os.read(high, 1)
        assert not is_readable(high)
    finally:
        os.close(writing)
    assert is_readable(high)
    os.close(reading)
    os.close(high)
