from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from bkctl.output.forms.table import Cell, Table, vertical
from bkctl.output.forms.text_width import display_width, wrapped

COLUMNS = (("ID", 0, False), ("SIZE", 1, True), ("NOTE", 2, False))


def _rows(*rows: tuple[str, str, str]) -> list[list[Cell]]:
    return [[Cell(text) for text in row] for row in rows]


def test_numbers_are_right_aligned_and_ends_are_trimmed() -> None:
    table = Table(COLUMNS, width=None)
    assert list(table.lines(_rows(("a", "10", ""), ("bcd", "9", "x")))) == [
        "ID   SIZE  NOTE",
        "a      10",
        "bcd     9  x",
    ]


def test_later_rows_keep_the_widths_and_are_not_cut() -> None:
    table = Table(COLUMNS, width=None)
    list(table.lines(_rows(("a", "1", "x"))))
    assert list(table.lines(_rows(("longer", "1", "x")))) == ["longer     1  x"]


def test_the_highest_rank_gives_way_first() -> None:
    table = Table(COLUMNS, width=9)
    assert list(table.lines(_rows(("abc", "12", "text")))) == ["ID   SIZE", "abc    12"]
    assert table.hidden == ["NOTE"]


WHAT = "The bookie does not answer in time."


def test_a_text_is_wrapped_before_a_column_gives_way() -> None:
    table = Table((("NAME", 0, False), ("STATUS", 0, True), ("WHAT", 2, False)), width=44)
    assert list(table.lines(_rows(("BK-1", "5", WHAT), ("BK-2", "5", "Short.")))) == [
        "NAME  STATUS  WHAT",
        "BK-1       5  The bookie does not answer in",
        "              time.",
        "BK-2       5  Short.",
    ]
    assert table.hidden == []


def test_what_has_no_spaces_is_not_wrapped() -> None:
    path = "/var/lib/bookkeeper/bookie-1/ledgers/current"
    table = Table((("ID", 0, False), ("DIR", 1, False)), width=40)
    assert list(table.lines(_rows(("1", path))))[1] == "1"
    assert table.hidden == ["DIR"]


def test_a_text_narrower_than_a_few_words_gives_way() -> None:
    table = Table((("ID", 0, False), ("WHAT", 1, False)), width=25)
    assert list(table.lines(_rows(("1", WHAT))))[1] == "1"


@given(text=st.text("ab é日", max_size=60), width=st.integers(1, 30))
def test_wrapping_loses_no_word(text: str, width: int) -> None:
    lines = wrapped(text, width)
    assert " ".join(lines).split() == text.split()
    assert all(display_width(line) <= width or " " not in line.strip() for line in lines)


def test_a_command_that_is_to_be_copied_is_not_wrapped() -> None:
    pairs = [("ID", Cell("7")), ("FIX", Cell("start it: `bkctl local start DIR 127.0.0.1:3181`"))]
    assert list(vertical(pairs, width=36)) == [
        "id   7", "fix  start it:", "     `bkctl local start DIR 127.0.0.1:3181`",
    ]  # fmt: skip


def test_an_object_is_wrapped_at_words() -> None:
    pairs = [("ID", Cell("7")), ("WHAT", Cell(WHAT))]
    assert list(vertical(pairs, width=36)) == [
        "id    7", "what  The bookie does not answer in", "      time.",
    ]  # fmt: skip


@given(
    rows=st.lists(st.tuples(*[st.text("abc", max_size=12)] * 3), min_size=1),
    width=st.integers(1, 60),
)
def test_what_may_never_give_way_is_always_whole(
    rows: list[tuple[str, str, str]], width: int
) -> None:
    table = Table(COLUMNS, width=width)
    _, *lines = table.lines(_rows(*rows))
    for row, line in zip(rows, lines, strict=True):
        assert line.startswith(row[0].rstrip())
        assert len(line) <= width or len(table.hidden) == 2


def test_wide_characters_take_two_columns_and_combining_ones_none() -> None:
    assert display_width("日本") == 4
    assert display_width("e\u0301") == 1


def test_an_object_is_titles_and_texts_with_further_lines_indented() -> None:
    pairs = [("ID", Cell("7")), ("BOOKIES", Cell("a\nb"))]
    assert list(vertical(pairs)) == ["id       7", "bookies  a", "         b"]


URI = "zk+hierarchical://zk1.example.com:2181;zk2.example.com:2181/ledgers"


def test_rows_become_records_where_no_column_may_give_way() -> None:
    table = Table((("KEY", 0, False), ("FIRST", 0, False)), width=40, records=True)
    assert list(table.lines([["uri", URI]])) == ["key    uri", f"first  {URI}"]
    assert list(table.lines([["gcWaitTime", "1"]])) == ["", "key    gcWaitTime", "first  1"]
    assert table.hidden == []


def test_rows_stay_rows_where_they_fit_or_have_no_titles() -> None:
    fits = Table((("KEY", 0, False), ("FIRST", 0, False)), width=80, records=True)
    assert next(iter(fits.lines([["uri", URI]]))) == "KEY  FIRST"
    bare = Table((("KEY", 0, False),), width=40, records=True, headers=False)
    assert list(bare.lines([[URI]])) == [URI]


def test_columns_of_what_is_rare_are_left_out_where_no_row_has_any() -> None:
    columns = (("KEY", 0, False), ("WHY", 1, False), ("SIZE", 1, True))
    for width in (80, 5):
        table = Table(columns, width=width, if_any={1, 2}, records=True)
        assert list(table.lines([["a", "-", "-"]])) == ["KEY", "a"]
        assert table.hidden == []
    table = Table(columns, width=80, if_any={1, 2})
    assert list(table.lines([["a", "-", "-"], ["b", "-", "3"]])) == [
        "KEY  SIZE", "a       -", "b       3",
    ]  # fmt: skip
    record = Table((("KEY", 0, False), ("LONGER", 0, False), ("WHY", 0, False)),
                   width=9, if_any={2}, records=True)  # fmt: skip
    assert list(record.lines([["a", "bcdefg", "-"]])) == ["key     a", "longer  bcdefg"]
