"""The engines that run the tasks of an export: Spark, or processes of this machine.

``run`` chooses the engine. Both engines run ``bkctl.commands.export.task.copy.copy_task``, and
return its result for every task.
"""

from __future__ import annotations

import contextlib
import os
import pickle
import queue
import struct
import subprocess
import sys
import threading
from collections.abc import Callable, Container, Sequence
from typing import Any, Final

from bkctl.commands.export.errors import ExportError, translated
from bkctl.commands.export.interrupts import uninterrupted
from bkctl.commands.export.task.copy import TaskResult, copy_task
from bkctl.commands.export.task.parquet_file import CopyJob, WrittenFile
from bkctl.commands.export.task.partitions import Task

WATCH_INTERVAL_S: Final = 0.2
Look = Callable[[], object]
"""A function that the calling thread calls a few times a second while tasks run."""


class SparkEngine:
    """The engine that runs each task as a task of a Spark session."""

    def __init__(self, spark: Any) -> None:
        self._spark = spark
        self.cores: int = spark.sparkContext.defaultParallelism
        self.progress_host: str = spark.conf.get("spark.driver.host", "127.0.0.1")

    def run(self, job: CopyJob, tasks: Sequence[Task], look: Look) -> list[TaskResult]:
        """Run all tasks; return their results, in any order.

        Raises:
            ExportReadError, ExportWriteError: a task failed in all its attempts.
            ExportError: Spark failed.
        """
        results: list[TaskResult] = []
        watch(self._spark, lambda: results.extend(self._collect(job, tasks)), look)
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


def watch(spark: Any, work: Callable[[], object], look: Look) -> None:
    """Run ``work`` in a thread and call ``look`` meanwhile; Ctrl-C cancels Spark's jobs first."""
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
            look()
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

_LENGTH: Final = struct.Struct(">I")


class LocalEngine:
    """The engine that runs tasks in worker processes of this machine, one task per worker.

    Each worker is a new Python interpreter, so that the caller's main module is not imported again.
    The workers end with the export, also if it fails.
    """

    progress_host = "127.0.0.1"

    def __init__(self, cores: int | None = None) -> None:
        self.cores = cores or len(os.sched_getaffinity(0))

    def run(self, job: CopyJob, tasks: Sequence[Task], look: Look) -> list[TaskResult]:
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
        waiting: queue.SimpleQueue[tuple[int, Task]] = queue.SimpleQueue()
        for numbered in enumerate(tasks):
            waiting.put(numbered)
        pool = [_Worker(job, waiting) for _ in range(min(self.cores, len(tasks)))]
        try:
            while any(worker.is_alive for worker in pool):
                _join_one(pool)
                look()
                for worker in pool:
                    if worker.failure is not None:
                        raise translated(worker.failure) from worker.failure
        finally:
            for worker in pool:
                worker.stop()
        return [result for worker in pool for result in worker.results]


def _join_one(pool: Sequence[_Worker]) -> None:
    next(worker for worker in pool if worker.is_alive).join(WATCH_INTERVAL_S)


class _Worker:
    """One worker process, and the thread that sends tasks to it."""

    def __init__(self, job: CopyJob, waiting: queue.SimpleQueue[tuple[int, Task]]) -> None:
        self.results: list[TaskResult] = []
        self.failure: BaseException | None = None
        self._process = subprocess.Popen(
            [sys.executable, "-m", __name__],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            env={**os.environ, "PYTHONPATH": os.pathsep.join(path for path in sys.path if path)},
            # Ctrl-C shall only reach the exporter, which ends its workers.
            start_new_session=True,
        )
        self._thread = threading.Thread(target=self._serve, args=(job, waiting), daemon=True)
        self._thread.start()

    @property
    def is_alive(self) -> bool:
        return self._thread.is_alive()

    def join(self, timeout_s: float) -> None:
        self._thread.join(timeout_s)

    def stop(self) -> None:
        self._process.kill()
        self._process.wait()
        self._thread.join()
        for stream in (self._process.stdin, self._process.stdout):
            assert stream is not None
            with contextlib.suppress(OSError):
                stream.close()

    def _serve(self, job: CopyJob, waiting: queue.SimpleQueue[tuple[int, Task]]) -> None:
        try:
            while True:
                try:
                    number, task = waiting.get_nowait()
                except queue.Empty:
                    return
                self.results.append(self._run(job, number, task))
        except BaseException as error:  # noqa: BLE001 -- raised again by the caller's thread
            self.failure = error

    def _run(self, job: CopyJob, number: int, task: Task) -> TaskResult:
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        try:
            _send(self._process.stdin, (job, number, task))
            answer = _receive(self._process.stdout)
        except (OSError, EOFError) as error:
            status = self._process.wait()
            raise ExportError(f"a worker process ended with {status}") from error
        if isinstance(answer, str):
            raise _TaskFailedError(answer)
        result: TaskResult = answer
        return result


class _TaskFailedError(Exception):
    """A task failed in a worker; the message is the text of the task's error."""


def _send(stream: Any, value: object) -> None:
    data = pickle.dumps(value)
    stream.write(_LENGTH.pack(len(data)) + data)
    stream.flush()


def _receive(stream: Any) -> Any:
    """Return the next value from a worker or its parent process.

    Raises:
        EOFError: the other process has closed the stream.
    """
    (size,) = _LENGTH.unpack(_exactly(stream, _LENGTH.size))
    return pickle.loads(_exactly(stream, size))  # noqa: S301 -- from our own child or parent


def _exactly(stream: Any, size: int) -> bytes:
    data: bytes = stream.read(size)
    if len(data) < size:
        raise EOFError
    return data


def work() -> None:
    """Run tasks from stdin until its end: the main function of a worker process."""
    answers = os.fdopen(os.dup(sys.stdout.fileno()), "wb")
    # Output of other code must not mix with the answers.
    os.dup2(sys.stderr.fileno(), sys.stdout.fileno())
    while True:
        try:
            job, number, task = _receive(sys.stdin.buffer)
        except EOFError:
            return
        try:
            answer: Any = copy_task(job, number, task)
        except Exception as error:  # noqa: BLE001 -- it goes to the exporter
            answer = str(error) or repr(error)
        _send(answers, answer)


if __name__ == "__main__":
    work()
