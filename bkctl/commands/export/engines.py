"""The engines that run the tasks of an export: Spark, or processes of this machine.

``run`` chooses the engine. Both engines run ``bkctl.commands.export.task.copy.copy_task``, and
return its result for every task.
"""

from __future__ import annotations

import contextlib
import os
import subprocess
import sys
import threading
from collections.abc import Callable, Container, Sequence
from multiprocessing import connection
from typing import Any, Final

from bkctl.commands.export.errors import ExportError, translated
from bkctl.commands.export.interrupts import uninterrupted
from bkctl.commands.export.task.copy import TaskResult, copy_task
from bkctl.commands.export.task.parquet_file import CopyJob, WrittenFile
from bkctl.commands.export.task.partitions import Task

WATCH_INTERVAL_S: Final = 0.2
Poll = Callable[[], object]
"""A function that the calling thread calls a few times a second while tasks run."""


class SparkEngine:
    """The engine that runs each task as a task of a Spark session."""

    def __init__(self, spark: Any) -> None:
        self._spark = spark
        self.cores: int = spark.sparkContext.defaultParallelism
        self.progress_host: str = spark.conf.get("spark.driver.host", "127.0.0.1")

    def run(self, job: CopyJob, tasks: Sequence[Task], poll: Poll) -> list[TaskResult]:
        """Run all tasks; return their results, in any order.

        Raises:
            ExportReadError, ExportWriteError: a task failed in all its attempts.
            ExportError: Spark failed.
        """
        results: list[TaskResult] = []
        watch(self._spark, lambda: results.extend(self._collect(job, tasks)), poll)
        return results

    def _collect(self, job: CopyJob, tasks: Sequence[Task]) -> list[TaskResult]:
        context = self._spark.sparkContext
        numbered = context.parallelize(list(enumerate(tasks)), max(1, len(tasks)))

        def run_one(share: tuple[int, Task]) -> TaskResult:
            return copy_task(job, *share)

        collected: list[TaskResult] = numbered.map(run_one).collect()
        return collected


def copy_readable(
    run: Callable[[Sequence[Task]], Sequence[TaskResult]],
    tasks: Sequence[Task],
    unreadable: dict[int, str],
) -> list[WrittenFile]:
    """Run tasks; return the files of all readable ledgers, and note the other ledgers.

    No file may have a part of an unreadable ledger. Files of tasks with this ledger are dropped,
    and the tasks run again without it.
    """
    kept: list[tuple[Task, TaskResult]] = []
    left = tasks
    while left:
        results = run(left)
        kept += [(left[result.number], result) for result in results]
        for result in results:
            unreadable.update(result.unreadable)
        again = [task for task, _ in kept if _has_any(task, unreadable)]
        kept = [(task, result) for task, result in kept if not _has_any(task, unreadable)]
        readable = (tuple(r for r in task if r.ledger_id not in unreadable) for task in again)
        left = [task for task in readable if task]
    return [file for _, result in kept for file in result.files]


def _has_any(task: Task, ledger_ids: Container[int]) -> bool:
    return any(entry_range.ledger_id in ledger_ids for entry_range in task)


def watch(spark: Any, work: Callable[[], object], poll: Poll) -> None:
    """Run ``work`` in a thread and call ``poll`` meanwhile; Ctrl-C cancels Spark's jobs first."""
    failure: list[BaseException] = []

    def run() -> None:
        try:
            work()
        except BaseException as error:  # noqa: BLE001 -- raised again by the caller's thread
            failure.append(error)

    thread = threading.Thread(target=run, name="bkctl-export", daemon=True)
    thread.start()
    try:
        while thread.is_alive():
            thread.join(WATCH_INTERVAL_S)
            poll()
    except BaseException:
        with uninterrupted():
            while thread.is_alive():  # Repeated, because a job may begin after the first call.
                spark.sparkContext.cancelAllJobs()
                thread.join(WATCH_INTERVAL_S)
        raise
    if failure:
        raise translated(failure[0]) from failure[0]


IN_PROCESS_BYTES_MAX: Final = 16 * 1024 * 1024
"""Largest number of payload bytes that this process copies itself: a worker needs longer to
start.
"""


class LocalEngine:
    """The engine that runs tasks in worker processes of this machine, one task per worker.

    Each worker is a new Python interpreter, so that the caller's main module is not imported again.
    The workers end with the export, also if it fails.
    """

    progress_host = "127.0.0.1"

    def __init__(self, cores: int | None = None) -> None:
        self.cores = cores or len(os.sched_getaffinity(0))

    def run(self, job: CopyJob, tasks: Sequence[Task], poll: Poll) -> list[TaskResult]:
        """Run all tasks; return their results, in any order.

        Raises:
            ExportReadError, ExportWriteError: a task failed.
            ExportError: a worker process ended.
        """
        if sum(r.length for task in tasks for r in task) <= IN_PROCESS_BYTES_MAX:
            try:
                return [copy_task(job, n, task) for n, task in enumerate(tasks)]
            except Exception as error:
                raise translated(error) from error
        left = list(enumerate(tasks))[::-1]
        results: list[TaskResult] = []
        workers = [_Worker() for _ in range(min(self.cores, len(tasks)))]
        try:
            for worker in workers:
                worker.begin(job, *left.pop())
            busy = list(workers)
            while busy:
                ready = connection.wait([one.connection for one in busy], WATCH_INTERVAL_S)
                for worker in [one for one in busy if one.connection in ready]:
                    results.append(worker.result())
                    if left:
                        worker.begin(job, *left.pop())
                    else:
                        busy.remove(worker)
                poll()
        finally:
            for worker in workers:
                worker.stop()
        return results


class _Worker:
    """One worker process."""

    def __init__(self) -> None:
        self.connection, theirs = connection.Pipe()
        with theirs:
            self._process = subprocess.Popen(
                [sys.executable, "-m", __name__, str(theirs.fileno())],
                pass_fds=[theirs.fileno()],
                stdin=subprocess.DEVNULL,
                stdout=2,  # The exporter's stdout has only its results.
                env={
                    **os.environ,
                    "PYTHONPATH": os.pathsep.join(path for path in sys.path if path),
                },
                # Ctrl-C shall only reach the exporter, which ends its workers.
                start_new_session=True,
            )

    def begin(self, job: CopyJob, number: int, task: Task) -> None:
        """Send the next task; if the process has ended, ``result`` reports it."""
        with contextlib.suppress(BrokenPipeError):
            self.connection.send((job, number, task))

    def result(self) -> TaskResult:
        """Return the result of the task.

        Raises:
            ExportReadError, ExportWriteError: the task failed.
            ExportError: the process ended.
        """
        try:
            answer: TaskResult | str = self.connection.recv()
        except (OSError, EOFError) as error:
            status = self._process.wait()
            raise ExportError(f"a worker process ended with {status}") from error
        if isinstance(answer, str):
            raise translated(_TaskFailedError(answer))
        return answer

    def stop(self) -> None:
        self._process.kill()
        self._process.wait()
        self.connection.close()


class _TaskFailedError(Exception):
    """A task failed in a worker; the message is the text of the task's error."""


def work(exporter: connection.Connection) -> None:
    """Run the exporter's tasks until it closes the connection: a worker's main function."""
    while True:
        try:
            job, number, task = exporter.recv()
        except EOFError:
            return
        try:
            answer: Any = copy_task(job, number, task)
        except Exception as error:  # noqa: BLE001 -- it goes to the exporter
            answer = str(error) or repr(error)
        exporter.send(answer)


if __name__ == "__main__":
    work(connection.Connection(int(sys.argv[1])))
