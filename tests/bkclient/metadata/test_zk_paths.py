"""Paths of ledgers, marks and locks, as Java spells them."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from bkclient.errors import IncorrectParameterError
from bkclient.metadata import zk_paths
from bkclient.metadata.zk_paths import FLAT, HIERARCHICAL, LAYOUTS, LEGACY, LONG, Digits
from tests.wire.vectors import load
from wire.ids import LedgerId

PATHS = load("metadata.json")["paths"]

ledger_ids = st.integers(0, 2**63 - 2) | st.integers(0, 2**32) | st.integers(2**31 - 9, 2**31 + 9)


@pytest.mark.parametrize("vector", PATHS, ids=lambda vector: str(vector["ledger_id"]))
def test_paths_are_javas(vector: dict[str, Any]) -> None:
    ledger_id = LedgerId(vector["ledger_id"])
    for name, layout in LAYOUTS.items():
        if name not in vector:
            with pytest.raises(IncorrectParameterError):
                layout.path_of(ledger_id)
        else:
            assert layout.path_of(ledger_id) == vector[name]
            assert layout.id_of(vector[name]) == ledger_id
    assert zk_paths.mark(ledger_id) == vector["underreplicated"]
    assert zk_paths.lock(ledger_id) == vector["lock"]
    assert zk_paths.marked_ledger(vector["underreplicated"]) == ledger_id
    assert zk_paths.marked_ledger(vector["lock"]) == ledger_id


@given(ledger_ids)
def test_every_path_leads_back_to_its_ledger(number: int) -> None:
    ledger_id = LedgerId(number)
    for layout in (FLAT, LONG, HIERARCHICAL):
        path = layout.path_of(ledger_id)
        assert layout.id_of(path) == ledger_id
        assert layout.is_ledger_parent(path.split("/")[1])
    assert zk_paths.marked_ledger(zk_paths.mark(ledger_id)) == ledger_id


@pytest.mark.parametrize(
    "path",
    [
        "/LAYOUT",
        "/INSTANCEID",
        "/available",
        "/00/0000",
        "/00/0000/L00x0",
        "/00/0000/L000",
        "/00/0000/K0000",
        "/0/0000/L0000",
        "/99/9999/L9999",  # Above 31 bits an id lies in the long levels.
        "/000/0000/0000/0000/L0000",  # And below them in the short ones.
        "/999/9999/9999/9999/L99990000",
        "/\u0660\u0660/0000/L0000",
        "",
    ],
)
def test_what_is_no_ledgers_path_is_refused(path: str) -> None:
    assert HIERARCHICAL.id_of(path) is None


@pytest.mark.parametrize("ledger_id", [-1, -(2**63)])
def test_negative_ids_have_no_path(ledger_id: int) -> None:
    for layout in LAYOUTS.values():
        with pytest.raises(IncorrectParameterError):
            layout.path_of(LedgerId(ledger_id))


def test_the_legacy_layout_has_no_place_for_eleven_digits() -> None:
    assert LEGACY.path_of(LedgerId(9_999_999_999)) == "/99/9999/L9999"
    with pytest.raises(IncorrectParameterError):
        LEGACY.path_of(LedgerId(10_000_000_000))


@pytest.mark.parametrize(
    ("layout", "parents", "others"),
    [
        ("flat", ["L0000000000", "L9223372036854775806"], ["00", "000", "L1", "L", "LAYOUT"]),
        ("legacyhierarchical", ["00", "21"], ["000", "0", "L0000000000", "x0"]),
        ("longhierarchical", ["000", "922"], ["00", "0000", "abc"]),
        ("hierarchical", ["00", "99", "000", "922"], ["0", "0000", "idgen", "LAYOUT"]),
    ],
)
def test_ledger_parents_are_told_from_the_rest(
    layout: str, parents: list[str], others: list[str]
) -> None:
    assert all(LAYOUTS[layout].is_ledger_parent(name) for name in parents)
    assert not any(LAYOUTS[layout].is_ledger_parent(name) for name in others)


@pytest.mark.parametrize(
    ("name", "special"),
    [
        ("available", True),
        ("cookies", True),
        ("LAYOUT", True),
        ("INSTANCEID", True),
        ("underreplication", True),
        ("idgen", True),
        ("idgen-long", True),
        ("ID-0000000007", True),
        ("disableHealthCheck", False),
        ("00", False),
        ("mine", False),
    ],
)
def test_special_nodes_are_javas(name: str, *, special: bool) -> None:
    assert zk_paths.is_special(name) is special


@given(ledger_ids)
def test_an_inner_node_knows_the_highest_id_below_it(number: int) -> None:
    spelling = Digits((3, 4, 4, 4, 4))
    names = tuple(spelling.path_of(LedgerId(number)).split("/")[1:-1])
    for depth in range(1, len(names) + 1):
        last = spelling.last_below(names[:depth])
        assert number <= last
        assert spelling.path_of(LedgerId(last)).split("/")[1 : depth + 1] == list(names[:depth])
        following = spelling.path_of(LedgerId(last + 1)).split("/")[1 : depth + 1]
        assert following != list(names[:depth])


@pytest.mark.parametrize(
    ("name", "number"),
    [
        ("/idgen/ID-0000000003", 3),
        ("/idgen/ID--2147483648", -(2**31)),
        ("HOB-0000000007", 7),
        ("/underreplication/auditorelection/V_0000000012", 12),
    ],
)
def test_sequence_numbers_are_read_off_names(name: str, number: int) -> None:
    assert zk_paths.sequence_of(name) == number


def test_a_name_is_numbered_as_zookeeper_does_it() -> None:
    names = [
        "V_0000000012",
        "V_-2147483648",
        "V_",
        "V_x",
        "V_1_",
        "V_\u0663",
        "ID-1",
        "V_" + "9" * 11,
    ]
    assert [name for name in names if zk_paths.is_numbered(name, "V_")] == names[:2]


def test_other_names_have_no_sequence_number() -> None:
    with pytest.raises(ValueError, match="L0000"):
        zk_paths.sequence_of("/00/0000/L0000")
