"""Write sets and coverage, exhaustively for small ensembles."""

from __future__ import annotations

import itertools
import time
import tracemalloc
from collections.abc import Iterator

import pytest

from bkclient.errors import QuorumError
from bkclient.quorum.distribution import Coverage, check_quorums, is_striped_to, write_set

SIZES = [
    (size, write, ack)
    for size in range(1, 7)
    for write in range(1, size + 1)
    for ack in range(1, write + 1)
]


def subsets(size: int) -> Iterator[frozenset[int]]:
    for count in range(size + 1):
        yield from map(frozenset, itertools.combinations(range(size), count))


@pytest.mark.parametrize(("size", "write", "ack"), SIZES)
def test_coverage_leaves_no_ack_quorum_unseen(size: int, write: int, ack: int) -> None:
    coverage = Coverage(size, write, ack)
    quorums = {
        frozenset(quorum)
        for start in range(size)
        for quorum in itertools.combinations([(start + i) % size for i in range(write)], ack)
    }
    for answered in subsets(size):
        # Covered: every set of bookies that could have confirmed an entry has answered in part.
        assert coverage.covered(answered) == all(quorum & answered for quorum in quorums)


@pytest.mark.parametrize(("size", "write", "ack"), [s for s in SIZES if s[0] == s[1]])
def test_without_striping_coverage_is_a_count(size: int, write: int, ack: int) -> None:
    coverage = Coverage(size, write, ack)
    for answered in subsets(size):
        assert coverage.covered(answered) == (len(answered) >= size - ack + 1)


@pytest.mark.parametrize("entry_id", [0, 1, 5, 2**31 - 1, 2**31, 2**40 + 3, 2**63 - 1])
def test_write_sets_count_in_64_bits(entry_id: int) -> None:
    for size, write, _ in SIZES:
        expected = tuple((entry_id + i) % size for i in range(write))
        assert write_set(entry_id, size, write) == expected
        for index in range(size):
            assert is_striped_to(entry_id, index, size, write) == (index in expected)


@pytest.mark.parametrize(
    ("size", "write", "ack"), [(2, 3, 1), (3, 2, 3), (3, 3, 0), (0, 0, 0), (1, 0, 0)]
)
def test_sizes_that_do_not_fit_are_refused(size: int, write: int, ack: int) -> None:
    with pytest.raises(QuorumError):
        check_quorums(size, write, ack)


def test_an_ensemble_of_1000_takes_little_memory_and_time() -> None:
    size = 1000
    tracemalloc.start()
    began_s = time.process_time()
    for quorum in range(1, size, 50):
        assert write_set(2**40 + 3, size, quorum)[0] == (2**40 + 3) % size
    coverage, answers = Coverage(size, size, 500), set[int]()
    for index in range(501):
        assert not coverage.covered(answers)
        answers.add(index)
    assert coverage.covered(answers)
    _, peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert peak < 1_000_000
    assert time.process_time() - began_s < 5
