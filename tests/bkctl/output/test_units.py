from __future__ import annotations

import time

import pytest

from bkctl.output.units import human_bytes, human_duration, human_time, rfc3339
from bkctl.parse_quantities import parse_duration, parse_moment_ms, parse_size


@pytest.mark.parametrize(
    ("count", "text"),
    [
        (0, "0 B"),
        (1023, "1023 B"),
        (1024, "1.0 KiB"),
        (13207024435, "12.3 GiB"),
        (2**70, "1024.0 EiB"),
    ],
)
def test_sizes_are_shown_in_the_unit_people_would_use(count: int, text: str) -> None:
    assert human_bytes(count) == text


@pytest.mark.parametrize(
    ("seconds", "text"),
    [
        (0, "0s"),
        (0.00042, "0.42ms"),
        (0.0042, "4.2ms"),
        (0.421, "421ms"),
        (0.9996, "1.0s"),
        (7.46, "7.5s"),
        (59.6, "1m"),
        (200, "3m20s"),
        (3600, "1h"),
        (353_000, "4d2h"),
        (59, "59s"),
    ],
)
def test_durations_have_two_units_at_most(seconds: float, text: str) -> None:
    assert human_duration(seconds) == text


@pytest.mark.parametrize(
    ("text", "count"),
    [("512", 512), ("64k", 65536), ("1MiB", 2**20), ("20MB", 20_000_000), ("1.5k", 1536)],
)
def test_sizes_are_read_binary_unless_they_say_otherwise(text: str, count: int) -> None:
    assert parse_size(text) == count


@pytest.mark.parametrize(
    ("text", "seconds"), [("90", 90), ("1.5s", 1.5), ("30m", 1800), ("7d", 604800), ("1h30m", 5400)]
)
def test_durations_are_read_with_and_without_units(text: str, seconds: float) -> None:
    assert parse_duration(text) == seconds


@pytest.mark.parametrize("text", ["", "x", "-1", "1q", "1 k B", "ten"])
def test_what_is_no_size_is_refused(text: str) -> None:
    with pytest.raises(ValueError, match="is not a size"):
        parse_size(text)


@pytest.mark.parametrize("text", ["", "x", "-1", "1y", "1h-2m", "h"])
def test_what_is_no_duration_is_refused(text: str) -> None:
    with pytest.raises(ValueError, match="is not a duration"):
        parse_duration(text)


def test_times_for_machines_are_utc_with_milliseconds() -> None:
    assert rfc3339(1_700_000_000_042) == "2023-11-14T22:13:20.042Z"
    assert human_time(1_700_000_000_042, utc=True) == "2023-11-14 22:13:20Z"


@pytest.mark.parametrize(
    ("zone", "shown"),
    [
        ("Asia/Kolkata", "2023-11-15 03:43:20+05:30"),
        ("America/St_Johns", "2023-11-14 18:43:20-03:30"),
        ("UTC", "2023-11-14 22:13:20Z"),
    ],
)
def test_times_for_people_have_the_offset_of_their_zone(
    zone: str, shown: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("TZ", zone)
    time.tzset()
    try:
        assert human_time(1_700_000_000_042, utc=False) == shown
        assert parse_moment_ms(shown, 0.0, utc=False) == 1_700_000_000_000
    finally:
        monkeypatch.undo()
        time.tzset()
