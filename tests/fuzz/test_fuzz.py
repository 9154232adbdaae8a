"""Decoders on the corpus, on random bytes, and for a while on what a fuzzer makes of them."""

from __future__ import annotations

import random
import subprocess
import sys

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.fuzz.fuzzer import ROOT, Hunt, Target, judge, kept
from tests.fuzz.mutate import SIZE_MAX, mutated
from tests.fuzz.targets import TARGETS

every_target = pytest.mark.parametrize("target", TARGETS.values(), ids=TARGETS)


@every_target
def test_what_hunts_have_found_breaks_nothing(target: Target) -> None:
    for data in (*target.seeds, *kept(target)):
        assert judge(target, data) == []


@every_target
@settings(max_examples=20)
@given(data=st.binary(max_size=300))
def test_random_bytes_are_a_value_or_a_typed_error(target: Target, data: bytes) -> None:
    assert judge(target, data) == []


@pytest.mark.processes
def test_a_short_hunt_finds_nothing() -> None:
    command = [sys.executable, "-m", "tests.fuzz", "--minutes", "0.4", "--executions", "1000"]
    done = subprocess.run(
        command, check=False, cwd=ROOT, capture_output=True, text=True, timeout=600
    )
    print(done.stdout)
    assert done.returncode == 0, done.stdout + done.stderr


# The fuzzer itself --------------------------------------------------------------------------------


def test_an_error_that_is_not_named_is_a_crash() -> None:
    def decode(data: bytes) -> None:
        if data.startswith(b"no"):
            raise ValueError(data)
        raise KeyError(data)

    target = Target(name="t", decode=decode, errors=(ValueError,))
    assert judge(target, b"no!") == []
    (crash,) = judge(target, b"yes")
    assert (crash.data, crash.where) == (b"yes", "KeyError at the target")


def test_a_decoder_that_takes_too_long_is_a_crash() -> None:
    def decode(_data: bytes) -> None:
        sum(range(5_000_000))

    (crash,) = judge(Target(name="t", decode=decode, errors=(), slow_s=0.01), b"x")
    assert crash.where == "slow"


def test_a_hunt_goes_where_no_seed_went() -> None:
    target = TARGETS["last-mark"]
    hunt = Hunt(target)
    hunt.feed([b"\0" * 16])
    seeded = len(hunt.branches.seen)
    rng = random.Random(1)
    for _ in range(60):  # However few executions a busy machine gets to within a second.
        hunt.run(rng, 0.5)
        if len(hunt.branches.seen) > seeded:
            break
    assert len(hunt.branches.seen) > seeded
    assert hunt.executions > 20
    assert hunt.crashes == {}


@settings(max_examples=50)
@given(seed=st.integers(0, 2**32), corpus=st.lists(st.binary(max_size=50), min_size=1))
def test_one_seed_makes_one_input_of_a_bounded_size(seed: int, corpus: list[bytes]) -> None:
    made = [mutated(random.Random(seed), corpus) for _ in range(2)]
    assert made[0] == made[1]
    assert len(made[0]) <= SIZE_MAX
