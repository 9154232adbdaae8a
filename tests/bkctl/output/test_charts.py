"""Bars, sparklines and charts, in Unicode and in ASCII."""

from __future__ import annotations

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from bkctl.output.charts import Canvas, supports_unicode
from bkctl.output.forms.text_width import display_width
from bkctl.output.units import human_count, human_ms
from tests.bkctl.support.drawings import WIDTHS, check_drawing

PLAIN = Canvas(60, unicode=False)


def test_a_text_in_a_drawing_is_nothing_that_a_terminal_would_obey() -> None:
    assert Canvas().fitted("a\x1b[2Jb", 12) == r"a\x1b[2Jb   "


def test_a_bar_fills_by_its_share_and_keeps_its_width() -> None:
    assert Canvas().bar(0.5, 4) == "██░░"
    assert Canvas().bar(0.3125, 4) == "█▎░░"
    assert PLAIN.bar(0.5, 4) == "##.."
    assert Canvas().bar(7, 3) == "███"
    assert Canvas().bar(-1, 3) == "░░░"


def test_a_bar_that_is_nearly_empty_shows_something() -> None:
    assert Canvas().bar(0.0001, 3) == "▏░░"


@given(share=st.floats(0, 1), width=st.integers(1, 50))
def test_a_bar_is_never_wider_or_narrower(share: float, width: int) -> None:
    assert len(Canvas().bar(share, width)) == len(PLAIN.bar(share, width)) == width


def test_a_bar_turns_yellow_and_red_as_it_fills() -> None:
    canvas = Canvas(color=True)
    assert "\x1b[32m" in canvas.bar(0.5, 10)
    assert "\x1b[33m" in canvas.bar(0.91, 10)
    assert "\x1b[31m" in canvas.bar(0.97, 10)


def test_a_sparkline_has_the_last_values_and_blanks_for_what_is_not_known() -> None:
    assert Canvas().sparkline([99, 0, 4, None, 8], 4) == "▁▄ █"
    assert PLAIN.sparkline([0, 4, None, 8], 6) == "  .= @"
    assert Canvas().sparkline([], 3) == "   "
    assert Canvas().sparkline([0, 0], 2) == "▁▁"


@pytest.mark.parametrize("width", WIDTHS)
@pytest.mark.parametrize("unicode", [True, False])
def test_a_chart_has_its_scale_and_what_is_not_known_is_a_gap(width: int, unicode: bool) -> None:  # noqa: FBT001
    values = [None if 60 < n < 70 else 500 + 400 * math.sin(n / 12) for n in range(120)]
    lines = Canvas(width, unicode).chart(values, 8, lambda v: f"{v:.0f}/s", ("2m ago", "now"))
    check_drawing("chart" if unicode else "chart-ascii", lines, width)


def test_a_chart_of_nothing_and_of_one_value_can_be_drawn() -> None:
    assert len(PLAIN.chart([], 4, str)) == 6
    assert any("*" in line for line in PLAIN.chart([5.0], 4, str))
    assert len(Canvas(20).chart([3.0, 3.0], 4, str)) == 6


def test_text_is_cut_with_a_mark_and_filled_up() -> None:
    assert Canvas().fitted("bookie", 8) == "bookie  "
    assert Canvas().fitted("bookie", 4) == "boo…"
    assert PLAIN.fitted("bookie", 4) == "boo~"
    assert display_width(Canvas().fitted("日本語", 4)) == 4
    assert Canvas().fitted("e\u0301" * 4, 3) == "e\u0301" * 2 + "…"
    assert [Canvas().fitted("日本", width) for width in (0, 1, 2)] == ["", "…", "… "]


def test_a_text_of_a_megabyte_is_cut_at_once() -> None:
    """Metadata can hold one; cut column by column it took hours."""
    assert Canvas().fitted("├─ " + "A" * 1_000_000, 8) == "├─ AAAA…"


@pytest.mark.parametrize(
    ("environ", "encoding", "speaks"),
    [
        ({}, "utf-8", True),
        ({"LANG": "en_US.UTF-8"}, "UTF-8", True),
        ({"LC_ALL": "C", "LANG": "en_US.UTF-8"}, "utf-8", False),
        ({"LC_ALL": "", "LANG": "C.utf8"}, "utf-8", True),
        ({"LANG": "de_DE.ISO-8859-1"}, "utf-8", False),
        ({"TERM": "dumb", "LANG": "C.UTF-8"}, "utf-8", False),
        ({}, "latin-1", False),
    ],
)
def test_the_locale_and_the_stream_decide_about_unicode(
    environ: dict[str, str],
    encoding: str,
    speaks: bool,  # noqa: FBT001
) -> None:
    assert supports_unicode(environ, encoding) is speaks


def test_figures_fit_into_little_room() -> None:
    numbers = (0, 0.25, 7, 987, 999.6, 12_345, 4_500_000)
    assert [human_count(n) for n in numbers] == ["0", "0.2", "7.0", "987", "1.0k", "12.3k", "4.5M"]
    assert [human_ms(n) for n in (None, 0.421, 17.26, 431, 2100)] == [
        "-", "0.42 ms", "17.3 ms", "431 ms", "2.1 s",
    ]  # fmt: skip
