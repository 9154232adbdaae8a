"""The checker: histories of clients in, violations out.

The rules need no clock. An entry that a writer saw acknowledged behind the end that a reader saw is
lost, whichever came first.
"""

from __future__ import annotations

import enum
from collections import defaultdict
from collections.abc import Callable, Collection, Iterable

import attrs

from tests.proof.history import Event, Kind, checksum, payload


class Rule(enum.Enum):
    """What is promised."""

    PRESENT = "every acknowledged entry is in its ledger"
    SAME = "every entry that is read has the bytes that were written"
    IN_ORDER = "entries are acknowledged and read in order, without a gap"
    ONE_END = "all readers and the writer of a closed ledger see the same end"
    FENCED = "a writer whose add was refused acknowledges nothing more"
    READABLE = "after the faults every ledger can be closed and read to its end"
    DRAINED = "after the faults no mark of an under-replicated ledger is left"


@attrs.frozen
class Violation:
    """A rule that does not hold, and where."""

    rule: Rule
    what: str

    def __str__(self) -> str:
        return f"{self.rule.name}: {self.what}"


def check(
    events: Iterable[Event],
    *,
    marks: Collection[int] = (),
    expected: Callable[[int, int], str] = lambda ledger, entry: checksum(payload(ledger, entry)),
) -> list[Violation]:
    """Return the violations in the histories of all clients.

    ``events`` has each client's own in its order; ``marks`` are the under-replicated ledgers at
    the end; ``expected`` gives the checksum of an entry.
    """
    found = [Violation(Rule.DRAINED, f"ledger {ledger} is still marked") for ledger in marks]
    handles: dict[tuple[str, int], list[Event]] = defaultdict(list)
    for event in events:
        if event.ledger >= 0:
            handles[event.client, event.handle].append(event)
    ledgers: dict[int, Ledger] = {}
    for (client, _), seen in handles.items():
        ledger = ledgers.setdefault(seen[0].ledger, Ledger(seen[0].ledger, expected))
        found += ledger.take(client, seen)
    for ledger in ledgers.values():
        found += ledger.judge()
    return found


class Ledger:
    """What all clients together saw of one ledger."""

    def __init__(self, ledger: int, expected: Callable[[int, int], str]) -> None:
        self._ledger, self._expected = ledger, expected
        self._acked = self._read = -1
        self._ends: dict[int, list[str]] = defaultdict(list)
        self._was_read = False

    def take(self, client: str, events: list[Event]) -> list[Violation]:
        """Take the history of one handle; return what is wrong with it alone."""
        acks, reads = _Run(), _Run()
        refused: int | None = None
        found: list[Violation] = []
        for event in events:
            match event.kind:
                case Kind.ACKED:
                    if refused is not None:
                        what = f"{client} saw {event.first} acknowledged, {refused} was refused"
                        found.append(self._violation(Rule.FENCED, what))
                    found += self._in_order(client, "acknowledged", acks, event.first, event.last)
                case Kind.REFUSED:
                    refused = event.first if refused is None else refused
                case Kind.READ:
                    last = event.first + len(event.sums) - 1
                    found += self._in_order(client, "read", reads, event.first, last)
                    found += self._compare(client, event)
                case Kind.CLOSED:
                    self._ends[event.last].append(client)
                case Kind.END:
                    self._ends[event.last].append(client)
                    self._was_read = True
                    if reads.next <= event.last:
                        what = f"{client} read {reads.next} entries and ended at {event.last}"
                        found.append(self._violation(Rule.PRESENT, what))
        self._acked, self._read = max(self._acked, acks.next - 1), max(self._read, reads.next - 1)
        return found

    def judge(self) -> list[Violation]:
        """Return what the histories of all handles together show."""
        found = []
        if len(self._ends) > 1:
            ends = "; ".join(f"{end} by {', '.join(who)}" for end, who in self._ends.items())
            found.append(self._violation(Rule.ONE_END, ends))
        end = min(self._ends, default=None)
        if not self._was_read:
            found.append(self._violation(Rule.READABLE, "nobody came to its end"))
        if end is not None and self._acked > end:
            what = f"entry {self._acked} was acknowledged, the ledger ends at {end}"
            found.append(self._violation(Rule.PRESENT, what))
        if end is not None and self._read > end:
            what = f"entry {self._read} was read, the ledger ends at {end}"
            found.append(self._violation(Rule.ONE_END, what))
        return found

    def _in_order(
        self, client: str, what: str, run: _Run, first: int, last: int
    ) -> list[Violation]:
        expected, run.next = run.next, last + 1
        if first == expected:
            return []
        text = f"{client}: {first} was {what} where {expected} was next"
        return [self._violation(Rule.IN_ORDER, text)]

    def _compare(self, client: str, event: Event) -> list[Violation]:
        return [
            self._violation(Rule.SAME, f"{client} read another entry {entry}")
            for entry, found in enumerate(event.sums, event.first)
            if found != self._expected(self._ledger, entry)
        ]

    def _violation(self, rule: Rule, what: str) -> Violation:
        return Violation(rule, f"ledger {self._ledger}: {what}")


@attrs.define
class _Run:
    """Ids that follow each other; ``next`` is the one to come."""

    next: int = 0
