from __future__ import annotations

import pytest

from shell.current_values import fill, resolve
from tests.shell.toy_program import make_shell, shelf

HERE = {"book_id": "b7"}


def _filled(line: str, values: dict[str, str] | None = None, **how: bool) -> str:
    words = line.split()
    place = resolve(shelf, words)
    if place.is_group:
        return line
    filled = fill(place.ctx, place.rest, HERE if values is None else values, **how)
    return " ".join([*words[: len(words) - len(place.rest)], *filled])


@pytest.mark.parametrize(
    ("typed", "run"),
    [
        ("book read", "book read b7"),
        ("book read --aloud", "book read b7 --aloud"),
        ("book read --voice low", "book read b7 --voice low"),
        ("book note", "book note b7"),
        ("book burn", "book burn b7"),
        ("book lend ann", "book lend ann b7"),
        ("-l latin book read", "-l latin book read b7"),
    ],
)
def test_a_missing_argument_is_taken_from_what_is_in_use(typed: str, run: str) -> None:
    assert _filled(typed) == run


@pytest.mark.parametrize(
    "typed",
    [
        "book read b1",
        "book read b1 3-4",
        "book read --to b1 b2",
        "book note b1 and more",
        "book burn b1 b2",
        "book lend ann b1",
        "book lend",
        "book read xyz",
        "book note hello",
        "book read --nonsense",
        "how",
        "words . x",
    ],
)
def test_what_was_typed_is_never_put_aside(typed: str) -> None:
    wanted = "book read b7 --nonsense" if "nonsense" in typed else typed
    assert _filled(typed) == wanted


@pytest.mark.parametrize(
    ("typed", "run"),
    [
        ("book read .", "book read b7"),
        ("book note . hello .", "book note b7 hello ."),
        ("book note . hello", "book note b7 hello"),
        ("book lend . .", "book lend . b7"),
        ("book burn b1 . b2", "book burn b1 b7 b2"),
        ("book read --aloud . 3", "book read --aloud b7 3"),
        ("book read b1 --to .", "book read b1 --to ."),
    ],
)
def test_a_dot_stands_for_what_is_in_use_where_that_can_stand(typed: str, run: str) -> None:
    assert _filled(typed) == run


def test_a_word_that_only_the_next_argument_can_be_makes_room() -> None:
    assert _filled("book read 3-4") == "book read b7 3-4"
    assert _filled("book read 3-4 --aloud") == "book read b7 3-4 --aloud"
    assert _filled("book read 3x4") == "book read 3x4"


def test_where_only_dots_count_nothing_else_is_filled_in() -> None:
    assert _filled("book burn", only_here=True) == "book burn"
    assert _filled("book burn .", only_here=True) == "book burn b7"


def test_nothing_in_use_changes_nothing() -> None:
    for typed in ("book read", "book read .", "book note . x"):
        assert _filled(typed, {}) == typed


def test_one_of_a_kind_is_in_use_at_a_time() -> None:
    current = make_shell().current
    current.use("book", "b1")
    current.use("book", "b2")
    assert dict(current.values) == {"book": "b2"}
    assert dict(current.by_type) == {"book_id": "b2"}
    current.use("book", None)
    assert dict(current.values) == {}
