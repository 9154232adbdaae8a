"""The checker notices each violation: histories in which one thing is wrong."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.proof.checker import Rule, check
from tests.proof.history import Event, Kind, checksum, events_in, parse, payload

LEDGER = 7


def created(client: str = "w", handle: int = 1) -> Event:
    return Event(client=client, kind=Kind.CREATED, handle=handle, ledger=LEDGER, note="CRC32C")


def acked(first: int, last: int) -> Event:
    return Event(client="w", kind=Kind.ACKED, handle=1, ledger=LEDGER, first=first, last=last)


def refused(entry: int) -> Event:
    return Event(client="w", kind=Kind.REFUSED, handle=1, ledger=LEDGER, first=entry)


def closed(last: int) -> Event:
    return Event(client="w", kind=Kind.CLOSED, handle=1, ledger=LEDGER, last=last)


def read(first: int, last: int, client: str = "r", other: int | None = None) -> Event:
    sums = tuple(
        checksum(payload(LEDGER, entry) + (b"!" if entry == other else b""))
        for entry in range(first, last + 1)
    )
    return Event(client=client, kind=Kind.READ, ledger=LEDGER, first=first, sums=sums)


def end(last: int, client: str = "r") -> Event:
    return Event(client=client, kind=Kind.END, ledger=LEDGER, last=last)


SOUND = [created(), acked(0, 9), refused(10), read(0, 10), end(10)]


def rules(events: list[Event], **marks: list[int]) -> set[Rule]:
    return {violation.rule for violation in check(events, **marks)}


def test_a_sound_history_has_no_violation() -> None:
    assert check(SOUND) == []
    assert check([created(), acked(0, 0), acked(1, 4), closed(4), read(0, 4), end(4)]) == []
    assert check([created(), closed(-1), end(-1), end(-1, "r2")]) == []
    assert check([]) == []


BROKEN = [
    (Rule.PRESENT, [created(), acked(0, 9), read(0, 8), end(8)]),
    (Rule.PRESENT, [created(), acked(0, 9), read(0, 7), end(9)]),
    (Rule.SAME, [created(), acked(0, 9), read(0, 9, other=4), end(9)]),
    (Rule.IN_ORDER, [created(), acked(0, 3), acked(5, 9), read(0, 9), end(9)]),
    (Rule.IN_ORDER, [created(), acked(0, 3), acked(3, 3), read(0, 9), end(9)]),
    (Rule.IN_ORDER, [created(), acked(0, 9), read(0, 3), read(5, 9), end(9)]),
    (Rule.IN_ORDER, [created(), acked(0, 9), read(1, 9), end(9)]),
    (Rule.ONE_END, [*SOUND, read(0, 11, "r2"), end(11, "r2")]),
    (Rule.ONE_END, [created(), acked(0, 9), closed(9), read(0, 10), end(10)]),
    (Rule.ONE_END, [*SOUND, read(0, 12, "tail")]),
    (Rule.FENCED, [created(), acked(0, 2), refused(3), acked(4, 4), read(0, 4), end(4)]),
    (Rule.READABLE, [created(), acked(0, 9), closed(9), read(0, 9)]),
    (Rule.READABLE, [created()]),
]


@pytest.mark.parametrize(("rule", "events"), BROKEN)
def test_each_violation_is_noticed(rule: Rule, events: list[Event]) -> None:
    assert rule in rules(events)


def test_an_acknowledgement_that_came_after_a_recovery_is_noticed() -> None:
    """The order in which two processes report says nothing; the end of the ledger does."""
    reader = [read(0, 4), end(4)]
    late = [created(), acked(0, 4), acked(5, 5)]
    assert rules([*reader, *late]) == rules([*late, *reader]) == {Rule.PRESENT}


def test_marks_that_are_left_are_noticed() -> None:
    assert rules(SOUND, marks=[LEDGER]) == {Rule.DRAINED}


def test_every_rule_is_among_these() -> None:
    assert {rule for rule, _ in BROKEN} | {Rule.DRAINED} == {*Rule}


def test_two_handles_of_one_client_are_apart() -> None:
    second = Event(
        client="r", kind=Kind.READ, handle=2, ledger=LEDGER, sums=read(0, 10).sums, first=0
    )
    assert check([*SOUND, second]) == []


def test_a_history_is_read_back_without_what_else_a_process_printed(tmp_path: Path) -> None:
    lines = [event.line() for event in SOUND]
    (tmp_path / "w.events").write_text("a warning\n" + "".join(lines) + lines[0][:20])
    assert events_in(tmp_path) == SOUND
    assert list(parse(["{\n"])) == []


def test_the_ids_of_an_entry_determine_its_bytes() -> None:
    assert payload(1, 2) == payload(1, 2)
    assert len({payload(ledger, entry) for ledger in (1, 2) for entry in range(50)}) == 100
