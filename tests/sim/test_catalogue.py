"""Every scenario of client.md 16.3 has its tests, by name."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

TESTS = Path(__file__).parents[1]
NAMES = {
    int(number)
    for path in TESTS.rglob("test_*.py")
    for number in re.findall(r"def test_s(\d+)_", path.read_text())
}


@pytest.mark.parametrize("number", range(1, 43))
def test_a_scenario_has_its_test(number: int) -> None:
    assert number in NAMES, f"no test_s{number}_..."
