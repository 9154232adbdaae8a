"""Comparisons of fields, as --filter and --until take them."""

from __future__ import annotations

from typing import Any

import pytest

from bkctl.errors import UsageError
from bkctl.output.conditions import parse_comparison


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
        ("x<2026-02-01", "2026-01-31T10:00:00.000Z", True),
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
        ("x=a=b", "a=b", True),
    ],
)
def test_a_field_is_compared_by_what_it_holds(text: str, value: Any, *, holds: bool) -> None:
    assert parse_comparison(text).holds({"x": value}) == holds


@pytest.mark.parametrize("text", ["", "x", "=3", "x/y=3"])
def test_what_compares_nothing_is_wrong_usage(text: str) -> None:
    with pytest.raises(UsageError, match="is not a comparison"):
        parse_comparison(text)


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("stat=open", "no field 'stat'; did you mean state?"),
        ("count=many", "the field is a number"),
        ("fine=perhaps", "the field is yes or no"),
    ],
)
def test_what_cannot_be_compared_is_named(text: str, said: str) -> None:
    with pytest.raises(UsageError, match=said.replace("?", r"\?")) as caught:
        parse_comparison(text).holds({"state": "open", "count": 3, "fine": True})
    assert "state, count, fine" in caught.value.hint or "is" in said
