"""Tasks that meet ledgers that cannot be read."""

from __future__ import annotations

from collections.abc import Sequence

from hypothesis import given
from hypothesis import strategies as st

from bkctl.commands.export.engines import copy_readable
from bkctl.commands.export.task.copy import TaskResult
from bkctl.commands.export.task.parquet_file import WrittenFile, WrittenRange
from bkctl.commands.export.task.partitions import EntryRange, Task
from wire.ids import EntryId, LedgerId

tasks_of_ledgers = st.lists(st.lists(st.integers(0, 9), min_size=1, max_size=4), max_size=8)


def range_of(ledger_id: int, number: int) -> EntryRange:
    return EntryRange(LedgerId(ledger_id), EntryId(number), EntryId(number))


def file_of(task: Task) -> WrittenFile:
    ranges = tuple(WrittenRange(r.ledger_id, r.first, r.last) for r in task)
    return WrittenFile("f", 1, len(task), 1, "", ranges)


@given(tasks_of_ledgers, st.sets(st.integers(0, 9)), st.integers(1, 4))
def test_every_readable_ledger_is_copied_whole_and_once(
    plan: list[list[int]], bad: set[int], at_once: int
) -> None:
    tasks = [
        tuple(range_of(ledger_id, 10 * number + n) for n, ledger_id in enumerate(ledgers))
        for number, ledgers in enumerate(plan)
    ]

    def run(some: Sequence[Task]) -> list[TaskResult]:
        results = []
        for number, task in enumerate(some):
            met = [r.ledger_id for r in task if r.ledger_id in bad]
            found = tuple((one, "why") for one in met[:at_once])
            results.append(TaskResult(number, () if found else (file_of(task),), found))
        return results[::-1]

    unreadable: dict[int, str] = {}
    files = copy_readable(run, tasks, unreadable)
    planned = {(r.ledger_id, r.first) for task in tasks for r in task}
    copied = [(r.ledger_id, r.first) for file in files for r in file.ranges]
    assert set(unreadable) == {ledger_id for ledger_id, _ in planned} & bad
    assert sorted(copied) == sorted(one for one in planned if one[0] not in bad)
