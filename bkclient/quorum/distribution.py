"""The write set of an entry, and the coverage of an ensemble by answers.

Agrees with BookKeeper 4.18.0, RoundRobinDistributionSchedule, but counts in 64 bits everywhere.
"""

from __future__ import annotations

import functools
from collections.abc import Collection
from typing import Final

from bkclient.errors import QuorumError


def check_quorums(ensemble_size: int, write_quorum: int, ack_quorum: int) -> None:
    """Raise ``QuorumError`` unless E >= Qw >= Qa >= 1."""
    if not ensemble_size >= write_quorum >= ack_quorum >= 1:
        raise QuorumError(
            f"ensemble {ensemble_size}, write quorum {write_quorum}, ack quorum {ack_quorum}: "
            "each must be at least the next, and the last at least 1"
        )


_KEPT_SIZE_MAX: Final = 64
"""The largest ensemble whose write sets are cached: their total size grows with its square."""


def write_set(entry_id: int, ensemble_size: int, write_quorum: int) -> tuple[int, ...]:
    """Return the ensemble indexes that store an entry, in the order of reads."""
    if ensemble_size > _KEPT_SIZE_MAX:
        return _write_set(entry_id, ensemble_size, write_quorum)
    return write_sets_of(ensemble_size, write_quorum)[entry_id % ensemble_size]


def _write_set(entry_id: int, ensemble_size: int, write_quorum: int) -> tuple[int, ...]:
    return tuple((entry_id + i) % ensemble_size for i in range(write_quorum))


def is_striped_to(entry_id: int, index: int, ensemble_size: int, write_quorum: int) -> bool:
    """Return whether the bookie at ``index`` stores the entry."""
    return (index - entry_id) % ensemble_size < write_quorum


@functools.lru_cache(64)
def write_sets_of(ensemble_size: int, write_quorum: int) -> tuple[tuple[int, ...], ...]:
    """Return the write set of each entry id modulo the ensemble size."""
    return tuple(_write_set(start, ensemble_size, write_quorum) for start in range(ensemble_size))


class Coverage:
    """The test that no ack quorum can consist of bookies without a definite answer.

    An answer is definite if it is OK, "no such entry" or "no such ledger". After anything else
    (silence, limbo, a wrong digest) it is unknown what the bookie stores.
    """

    def __init__(self, ensemble_size: int, write_quorum: int, ack_quorum: int) -> None:
        check_quorums(ensemble_size, write_quorum, ack_quorum)
        self.ensemble_size = ensemble_size
        self._write_quorum, self._ack_quorum = write_quorum, ack_quorum

    def covered(self, answers: Collection[int]) -> bool:
        """Return whether the definite answers of the ensemble indexes ``answers`` are enough."""
        size, write_quorum = self.ensemble_size, self._write_quorum
        silent = [index not in answers for index in range(size)]
        in_window = sum(silent[:write_quorum])
        for start in range(size):
            if in_window >= self._ack_quorum:
                return False
            in_window += silent[(start + write_quorum) % size] - silent[start]
        return True
