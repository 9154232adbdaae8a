from __future__ import annotations

import contextlib
import time
from typing import Any

import click
import pytest
from hypothesis import given
from hypothesis import strategies as st

from bkctl.cli.parameter_types import (
    BOOKIE_ID,
    DURATION,
    ENTRY_RANGE,
    ENTRY_SIZE,
    KEY_VALUE,
    LEDGER_ID,
    LEDGER_IDS,
    RATE,
    SHARE,
    SIZE,
    TIME,
)
from bkctl.cli.root import cli
from bkctl.ledger_ids import format_ledger_id, parse_ledger_id


@given(ledger_id=st.integers(0, 2**63 - 1), form=st.sampled_from(["long", "hex", "uuid"]))
def test_a_ledger_id_is_read_as_it_is_shown(ledger_id: int, form: str) -> None:
    assert parse_ledger_id(format_ledger_id(ledger_id, form), form) == ledger_id


def test_the_forms_are_those_of_java() -> None:
    assert format_ledger_id(3_735_928_559, "hex") == "deadbeef"
    assert format_ledger_id(3_735_928_559, "uuid") == "00000000-0000-0000-0000-0000deadbeef"


def test_an_empty_name_of_a_directory_is_refused() -> None:
    """It comes from a variable that is not set, and was the current directory."""
    export = cli.get_command(click.Context(cli), "export")
    assert export is not None
    with pytest.raises(click.BadParameter, match="the name is empty"):
        export.make_context("export", ["1", "--to", ""])


@pytest.mark.parametrize(("text", "age_s"), [("10m", 600), ("2h", 7200), ("7d", 604_800)])
def test_an_age_is_a_time(text: str, age_s: int) -> None:
    before_s = time.time()
    found_s = TIME.convert(text, None, None) / 1000
    assert before_s - age_s - 0.001 <= found_s <= time.time() - age_s


@pytest.mark.parametrize(
    "text", ["yesterday", "10x", "31.1.2026", "2026-13-01", "-5", "9" * 99, "9" * 400 + "d"]
)
def test_what_is_not_a_time_is_answered_with_examples(text: str) -> None:
    with pytest.raises(
        click.BadParameter, match=r"is not a time; try 2026-01-31, .* or 10m for ten"
    ):
        TIME.convert(text, None, None)


def test_a_time_is_read_in_utc_or_in_ms() -> None:
    assert TIME.convert("1970-01-02", None, None) == 86_400_000
    assert TIME.convert("86400000", None, None) == 86_400_000


def test_a_hexadecimal_prefix_counts_in_every_form() -> None:
    assert LEDGER_ID.convert("0x2A", None, None) == 42


@pytest.mark.parametrize(
    ("text", "hint"),
    [
        ("2a", "written 0x2a"),
        ("-1", "is not a ledger id"),
        ("", "is not a ledger id"),
        ("9223372036854775808", "too large"),
        ("00000000-0000-0000-0000-00000000002a", "--ledger-id-format uuid"),
    ],
)
def test_what_is_no_ledger_id_is_refused_with_a_hint(text: str, hint: str) -> None:
    with pytest.raises(click.BadParameter, match=hint):
        LEDGER_ID.convert(text, None, None)


def test_a_dash_passes_only_where_ids_may_come_from_stdin() -> None:
    assert LEDGER_IDS.convert("-", None, None) == "-"
    with pytest.raises(click.BadParameter):
        LEDGER_ID.convert("-", None, None)


@pytest.mark.parametrize(
    ("text", "expected"), [("5", (5, 5)), ("5-9", (5, 9)), ("5-", (5, None)), ("-9", (0, 9))]
)
def test_ranges_of_entries_include_both_ends(text: str, expected: tuple[int, int | None]) -> None:
    assert ENTRY_RANGE.convert(text, None, None) == expected


@pytest.mark.parametrize("text", ["", "-", "a", "9-5", "1-2-3"])
def test_what_is_no_range_is_refused(text: str) -> None:
    with pytest.raises(click.BadParameter):
        ENTRY_RANGE.convert(text, None, None)


def test_bookie_ids_are_what_java_accepts() -> None:
    assert BOOKIE_ID.convert("bookie-1.example:3181", None, None) == "bookie-1.example:3181"
    for text in ("", "a b", "a/b", "readonly"):
        with pytest.raises(click.BadParameter):
            BOOKIE_ID.convert(text, None, None)


def test_pairs_are_cut_at_the_first_equals_sign() -> None:
    assert KEY_VALUE.convert("a=b=c", None, None) == ("a", "b=c")
    for text in ("a", "=b"):
        with pytest.raises(click.BadParameter):
            KEY_VALUE.convert(text, None, None)


def test_a_rate_is_a_size_with_or_without_its_second() -> None:
    assert RATE.convert("20MB/s", None, None) == RATE.convert("20MB", None, None) == 20_000_000
    with pytest.raises(click.BadParameter):
        RATE.convert("20/h", None, None)


HOSTILE = (
    "", " ", "-", "-1", "0", "1e400", "nan", "inf", "9" * 20, "9" * 400, "9" * 5000, "\udcff", "٣",
    "\x1b[31m", "a=b", "=", "a=", "1-", "5-1", "1:", ":", "1:1", "1:" + "9" * 30, "1-" + "9" * 5000,
    "9" * 400 + "d", "9" * 400 + "GiB", "9999999d", "0001-01-01", "9999-12-31T23:59:59",
    "2020-13-45", "x" * 70_000, "(", "%s", "../..", "0x", "0x" + "f" * 400, "+1", "1_0", "[::1]:1",
    "b" * 400,
)  # fmt: skip


def _types(command: click.Command, context: click.Context) -> dict[str, click.ParamType]:
    found = {f"{one.type!r} {type(one.type).__name__}": one.type for one in command.params}
    if isinstance(command, click.Group):
        for name in command.list_commands(context):
            below = command.get_command(context, name)
            assert below is not None
            found |= _types(below, context)
    return found


def test_hostile_texts_are_taken_or_refused_by_each_type_of_the_tree() -> None:
    types = _types(cli, click.Context(cli))
    assert len(types) > 20
    for kind in types.values():
        for text in HOSTILE:
            with contextlib.suppress(click.UsageError):
                kind.convert(text, None, None)


@pytest.mark.parametrize(
    ("kind", "text", "said"),
    [
        (DURATION, "36501d", "36501d is too long: the maximum is 36500d"),
        (SIZE, "9" * 30, "is too large: the maximum is 4611686018427387904 bytes"),
        (ENTRY_SIZE, "65MiB", "65MiB is too large: an entry has at most 64MiB"),
        (ENTRY_RANGE, "1-" + "9" * 5000, "is not a range of entries"),
    ],
)
def test_numbers_beyond_any_use_are_refused(kind: Any, text: str, said: str) -> None:
    with pytest.raises(click.BadParameter, match=said):
        kind.convert(text, None, None)


@pytest.mark.parametrize(
    ("text", "share"),
    [
        ("80%", 0.8),
        ("80", 0.8),
        ("0.8", 0.8),
        (".5", 0.5),
        ("0.5%", 0.005),
        ("1%", 0.01),
        ("100", 1),
    ],
)
def test_a_share_is_a_percentage_or_a_fraction(text: str, share: float) -> None:
    assert SHARE.convert(text, None, None) == share


@pytest.mark.parametrize(
    "text", ["0", "0%", "-1", "101", "100.1%", "1e1", "x", "٨٠", "%", "9" * 5000]
)
def test_what_is_no_share_is_refused(text: str) -> None:
    with pytest.raises(click.BadParameter, match="give one such as 5%"):
        SHARE.convert(text, None, None)


@pytest.mark.parametrize("text", ["1", "1.0"])
def test_a_share_that_could_be_two_is_refused(text: str) -> None:
    with pytest.raises(click.BadParameter, match="could be 1% or 100%"):
        SHARE.convert(text, None, None)


def test_a_size_that_is_none_is_a_usage_error() -> None:
    assert SIZE.convert("1MiB", None, None) == 2**20
    with pytest.raises(click.BadParameter):
        SIZE.convert("much", None, None)
