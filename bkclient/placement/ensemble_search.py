"""The search for an order of racks, regions or zones in an ensemble, by a rule about windows.

A label is a bookie's location for a policy. A window is a number of consecutive places, with the
first after the last: a write quorum of the ensemble.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Collection, Mapping, Sequence
from typing import Any, Final

from bkclient.quorum.distribution import write_sets_of
from wire.ids import BookieId

TRIES_MAX: Final = 2500
"""Labels tried in a search; after more, an arrangement counts as impossible."""

Rule = Callable[[Sequence[str], int], bool]
"""Returns whether a window with these labels, and this number of open places, can satisfy the
rule.
"""

Preference = Callable[[str, Sequence[str]], Any]
"""The sort key of labels for the next place, given the labels before; the least is tried first.

Equal labels are tried in the order of the search's argument.
"""


def spans(needed: int) -> Rule:
    """Return the rule that a window has ``needed`` different labels."""
    return lambda labels, still_open: len(set(labels)) + still_open >= needed


def unused_first(label: str, before: Sequence[str]) -> bool:
    """Prefer an unused label."""
    return label in before


def by_label(
    bookies: Collection[BookieId], label_of: Callable[[BookieId], str]
) -> dict[str, list[BookieId]]:
    """Return bookies by their label, sorted, so that a seed decides a random choice among them."""
    found: dict[str, list[BookieId]] = {}
    for bookie in sorted(bookies):
        found.setdefault(label_of(bookie), []).append(bookie)
    return found


def holds(labels: Sequence[str], quorum: int, rule: Rule) -> bool:
    """Return whether each window satisfies the rule."""
    windows = write_sets_of(len(labels), min(quorum, len(labels)))
    return all(rule([labels[i] for i in window], 0) for window in windows)


def others_in_windows(index: int, size: int, quorum: int) -> list[list[int]]:
    """Return, for each window over a place, the other places."""
    windows = write_sets_of(size, min(quorum, size))
    return [[i for i in window if i != index] for window in windows if index in window]


def arrange(
    size: int,
    quorum: int,
    counts: Mapping[str, int],
    order: Sequence[str],
    rule: Rule,
    preference: Preference = unused_first,
) -> list[str] | None:
    """Return a label for each of ``size`` places; None if no order satisfies the rule.

    Args:
        size: the number of places.
        quorum: the places of a window.
        counts: how often each label may be used.
        order: the labels.
        rule: the rule of each window.
        preference: the sort key of labels to try.
    """
    return _Search(size, quorum, order, rule, preference).run(Counter(counts))


class _Search:
    """A search that fills one place after the other, and backtracks from a dead end."""

    def __init__(
        self, size: int, quorum: int, order: Sequence[str], rule: Rule, preference: Preference
    ) -> None:
        self._size, self._order, self._rule, self._preference = size, order, rule, preference
        windows = write_sets_of(size, min(quorum, size))
        self._windows = [[w for w in windows if place in w] for place in range(size)]
        self._tries = 0

    def run(self, counts: Counter[str]) -> list[str] | None:
        labels: list[str] = []
        return labels if self._fill(labels, counts) else None

    def _fill(self, labels: list[str], counts: Counter[str]) -> bool:
        if len(labels) == self._size:
            return True
        before = tuple(labels)
        left = [label for label in self._order if counts[label]]
        for label in sorted(left, key=lambda one: self._preference(one, before)):
            self._tries += 1
            if self._tries > TRIES_MAX:
                return False
            labels.append(label)
            counts[label] -= 1
            if self._may_hold(labels) and self._fill(labels, counts):
                return True
            labels.pop()
            counts[label] += 1
        return False

    def _may_hold(self, labels: Sequence[str]) -> bool:
        """Return whether all windows over the last place can still satisfy the rule."""
        filled = len(labels)
        return all(
            self._rule([labels[i] for i in window if i < filled], sum(i >= filled for i in window))
            for window in self._windows[filled - 1]
        )
