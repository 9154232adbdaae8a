"""Tasks that meet ledgers that cannot be read."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from bkclient.blocking import with_store
from bkctl.commands.export.engines import IN_PROCESS_BYTES_MAX, LocalEngine, copy_readable
from bkctl.commands.export.errors import ExportReadError
from bkctl.commands.export.task.copy import TaskResult
from bkctl.commands.export.task.parquet_file import CopyJob, WrittenFile, WrittenRange
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


@pytest.mark.processes
def test_the_error_of_a_task_in_a_worker_process_reaches_the_exporter(tmp_path: Path) -> None:
    job = CopyJob(f"sqlite://{tmp_path / 'no' / 'metadata.db'}", None, str(tmp_path), "cluster")
    large = EntryRange(LedgerId(1), EntryId(0), EntryId(9), length=IN_PROCESS_BYTES_MAX)
    with pytest.raises(ExportReadError, match="no client on "):
        LocalEngine(2).run(job, [(large,)] * 3, lambda: None)


@pytest.mark.processes
def test_each_task_of_a_large_export_is_copied_once_by_a_worker_process(tmp_path: Path) -> None:
    uri = f"sqlite://{tmp_path / 'metadata.db'}"
    with_store(uri, lambda store: store.initialize())
    job = CopyJob(uri, None, str(tmp_path), "cluster", skips_unreadable=True)
    tasks = [
        (EntryRange(LedgerId(n), EntryId(0), EntryId(9), length=IN_PROCESS_BYTES_MAX),)
        for n in range(5)
    ]
    results = LocalEngine(2).run(job, tasks, lambda: None)
    assert sorted(one.number for one in results) == [0, 1, 2, 3, 4]
    assert all(one.unreadable[0][0] == one.number for one in results)
