"""What this process and the processes that it started take: CPU time and memory, by their kind."""

from __future__ import annotations

import os
from collections import Counter, defaultdict
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path
from types import MappingProxyType
from typing import Final

from tests.bench.loads.load import rss_bytes

TICKS: Final = os.sysconf("SC_CLK_TCK")
SPARK: Final = ("python", "driver", "daemon", "worker")
"""This process, the JVM of Spark's driver, the parent of Python workers, and these."""


def family() -> dict[int, str]:
    """Return the kind of this process and of all below it, by process id."""
    parents: dict[int, int] = {}
    commands: dict[int, str] = {}
    for path in Path("/proc").glob("[0-9]*"):
        with suppress(OSError):  # The process has ended.
            parents[int(path.name)] = int(_stat(int(path.name))[1])
            command = (path / "cmdline").read_bytes().replace(b"\0", b" ")
            commands[int(path.name)] = command.decode(errors="replace")
    found = {os.getpid(): "python"}
    for parent in (todo := [os.getpid()]):
        for pid in [pid for pid, above in parents.items() if above == parent]:
            found[pid] = _kind(commands.get(pid, ""), found[parent])
            todo.append(pid)
    return found


def cpu_by_process() -> dict[tuple[int, str], float]:
    """Return the CPU seconds of each process, with those of children that have ended."""
    found: dict[tuple[int, str], float] = {}
    for pid, kind in family().items():
        with suppress(OSError):
            found[pid, kind] = sum(int(ticks) for ticks in _stat(pid)[11:15]) / TICKS
    return found


def cpu_by_kind(before: Mapping[tuple[int, str], float] = MappingProxyType({})) -> Counter[str]:
    """Return the CPU seconds of each kind of process, without those of ``before``.

    Spark ends workers that were idle for a minute: what these took before is not subtracted.
    """
    found: Counter[str] = Counter()
    for process, seconds in cpu_by_process().items():
        found[process[1]] += seconds - before.get(process, 0.0)  # type: ignore[assignment]
    return found


def rss_by_kind() -> defaultdict[str, list[int]]:
    """Return the resident memory of each process in bytes, by its kind."""
    found: defaultdict[str, list[int]] = defaultdict(list)
    for pid, kind in family().items():
        with suppress(OSError, StopIteration):
            found[kind].append(rss_bytes(pid))
    return found


def _stat(pid: int) -> list[str]:
    return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()


def _kind(command: str, parent: str) -> str:
    marks = {
        "SparkSubmit": "driver",
        "PulsarBrokerStarter": "broker",
        "py4j.GatewayServer": "java",
        "bookied": "bookie",
        "zookeeper": "zookeeper",
        " local ": "bookie",
        "spark_bench.stream": "writer",
    }
    if "pyspark.daemon" in command or "pyspark.worker" in command:
        return "worker" if parent in {"daemon", "worker"} else "daemon"
    return next((kind for mark, kind in marks.items() if mark in command), "other")
