"""Comparisons of fields, as --filter and --until take them."""

from __future__ import annotations

import time
from typing import Any

import pytest

from bkctl.errors import UsageError
from bkctl.output.comparison import Comparison, parse_comparison


@pytest.mark.parametrize(
    ("text", "value", "holds"),
    [
        ("x=open", "open", True),
        ("x == open", "open", True),
        ("x=ope", "open", False),
        ("x!=open", "closed", True),
        ("x~LOS", "closed", True),
        ("x=", None, True),
        ("x=none", None, True),
        ("x!=none", None, False),
        ("x=none", 0, False),
        ("x!=none", 0, True),
        ("x=3", None, False),
        ("x!=3", None, True),
        ("x<3", None, False),
        ("x>=10", 9, False),
        ("x>=9", 9.5, True),
        ("x<10GiB", 3 << 30, True),
        ("x>1h", 3601, True),
        ("x=yes", True, True),
        ("x!=on", True, False),
        ("x=false", False, True),
        ("x<10", "9", True),
        ("x=" + "9" * 5000, "7", False),
        ("x=b1", ["b1", "b2"], True),
        ("x!=b1", ["b1", "b2"], False),
        ("x=none", [], True),
        ("x~B2", ["b1", "b2"], True),
        ("x>=2", ["b1", "b2"], True),
        ("x=owner", {"owner": "me"}, True),
        ("x=owner=me", {"owner": "me"}, True),
        ("x~owner=m", {"owner": "me"}, True),
        ("x=owner=you", {"owner": "me"}, False),
        ("x!=owner=me", {"owner": "me"}, False),
        ("x!=owner", {"owner": "me"}, False),
        ("x!=owner", {"team": "me"}, True),
        ("x!~owner=", {"owner": "me"}, False),
        ("x!~owner=", {"team": "me"}, True),
        ("x!~owner=", {}, True),
        ("x!~OSE", "closed", False),
        ("x !~ b3", ["b1", "b2"], True),
        ("x!~3", None, True),
        ("x~-", "b-1", True),
        ("x~none", None, False),
        ("x~a*b", "a*b", True),
        ("x=a=b", "a=b", True),
    ],
)
def test_a_field_is_compared_by_what_it_holds(text: str, value: Any, *, holds: bool) -> None:
    assert parse_comparison(text).holds({"x": value}) == holds


@pytest.mark.parametrize("text", ["", "x", "=3", "x#y=3"])
def test_what_compares_nothing_is_wrong_usage(text: str) -> None:
    with pytest.raises(UsageError, match="is not a comparison"):
        parse_comparison(text)


@pytest.mark.parametrize(
    ("text", "hint"),
    [
        ("custom!=*keep=*", "'custom!~keep='"),
        ("custom=*keep*", "'custom~keep'"),
        ("state==o*", "'state~o'"),
    ],
)
def test_a_wildcard_is_refused_with_what_to_write(text: str, hint: str) -> None:
    with pytest.raises(UsageError, match="is not a wildcard") as raised:
        parse_comparison(text)
    assert raised.value.hint == f"for a part of a text: {hint}"


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("count=many", "the field is a number"),
        ("fine=perhaps", "the field is yes or no"),
    ],
)
def test_what_cannot_be_compared_is_named(text: str, said: str) -> None:
    with pytest.raises(UsageError, match=said):
        parse_comparison(text).holds({"state": "open", "count": 3, "fine": True})


NOON_S = 1_769_860_800.0
"""2026-01-31 12:00:00 UTC."""


@pytest.mark.parametrize(
    ("text", "holds"),
    [
        ("x>2026-01-31 10:59:59", True),
        ("x>2026-01-31 11:00:00", False),
        ("x=2026-01-31 11:00:00", True),
        ("x=2026-01-31 11:00:00Z", True),
        ("x=2026-01-31T11:00:00", True),
        ("x>2026-01-31T11:00:00.000Z", True),
        ("x=2026-01-31T11:00:00.250Z", True),
        ("x=2026-01-31T13:00:00+02:00", True),
        ("x>2026-01-31", True),
        ("x<2026-02-01", True),
        ("x>2h", True),
        ("x>30m", False),
        ("x<1h", False),
        ("x<59m", True),
        ("x!=none", True),
        ("x~2026-01", False),
    ],
)
def test_a_time_is_compared_as_a_time(text: str, *, holds: bool) -> None:
    seen_ms = int(NOON_S * 1000) - 3_600_000 + 250
    assert parse_comparison(text).of_time(NOON_S, utc=True).holds({"x": seen_ms}) == holds


def test_a_time_without_a_zone_is_one_of_this_machine(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TZ", "Asia/Kolkata")
    time.tzset()
    try:
        one = parse_comparison("x=2026-01-31 17:30:00").of_time(NOON_S, utc=False)
        assert one.holds({"x": int(NOON_S * 1000)})
    finally:
        monkeypatch.undo()
        time.tzset()


@pytest.mark.parametrize("word", ["yesterday", "90", "2026-01-32", "1x", "12:00", "9" * 400 + "d"])
def test_what_is_no_time_is_refused(word: str) -> None:
    with pytest.raises(UsageError, match="is not a time; try 2026-01-31, ") as refused:
        parse_comparison(f"x>{word}").of_time(NOON_S, utc=False)
    assert refused.value.hint == "the last day: 'x>1d'"


def test_a_space_before_a_unit_is_ignored() -> None:
    assert Comparison("p99", ">", "5 ms", in_seconds=True).holds({"p99": 0.006})


def test_a_field_of_durations_says_so() -> None:
    wrong = Comparison("p99", ">", "20ms,bookies<4", in_seconds=True)
    with pytest.raises(UsageError, match="the field is a duration"):
        wrong.require_number()
