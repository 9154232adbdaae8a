"""The metrics named ``bookied_*``, which Java's bookie does not have; autorecovery; the process.

``bookied.stats.metrics`` declares the counters of the bookie's parts.
"""

from __future__ import annotations

import gc
import os
import resource
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Final

from bookied.admin.control.disks import DiskControl
from bookied.admin.monitoring.prometheus_text import Family, counter, declared, gauge, summary
from bookied.server.server import BookieServer
from bookied.service.start_and_stop import BookieService
from bookied.stats.metrics import ADD, READ, RepairStats
from bookied.stats.quantiles import Summary
from bookied.storage.index.format import PAGE_BYTES
from bookied.storage.storages import Storages

LEDGER_BYTES: Final = 600
"""Bytes of a ledger in memory, as in docs/operations.md."""

BESIDE_BOOKIE: Final = "replication_"
"""The prefix of names if autorecovery runs in a bookie; alone, Java has no such prefix."""

_PROC: Final = Path("/proc/self")


def families(of: BookieService) -> Iterator[Family]:
    """Yield the present metrics of a bookie; ``of_process`` has those of its process."""
    yield Family("bookied_dir_usage_percent", "gauge", tuple(_usages(of)))
    if of.server is not None:
        yield from _server(of.server)
        yield Family("bookied_memory_bytes", "gauge", tuple(_memory(of, of.server)))
    if of.engine is not None:
        seen = of.engine.scrubber.counters
        yield counter("bookied_scrub_entries_total", seen.entries)
        yield counter("bookied_scrub_errors_total", seen.detected_errors)


def of_autorecovery(stats: RepairStats, prefix: str = BESIDE_BOOKIE) -> Iterator[Family]:
    """Yield the metrics of autorecovery under Java's names and types (4.18.0)."""
    stats.auditor.settle()
    stats.worker.settle()
    yield from declared(stats.auditor, f"{prefix}auditor_")
    yield from declared(stats.worker, f"{prefix}replication_worker_")
    yield gauge("bookied_last_audit_time_seconds", round(stats.auditor.audited_s, 3))


def of_process(lag: Summary) -> Iterator[Family]:
    """Yield the metrics of any process."""
    yield summary("bookied_event_loop_lag_ms", lag)
    yield from _python()
    yield from _process()


def _usages(of: BookieService) -> Iterator[tuple[Mapping[str, str], float]]:
    for sample in DiskControl(of).samples():
        yield {"dir": str(sample.directory.parent)}, round(sample.used * 100, 3)


def _server(server: BookieServer) -> Iterator[Family]:
    stats = server.stats
    yield gauge("bookied_connections", len(server.connections))
    for name, bound in (
        ("bookied_connections_max", server.settings.count_max),
        ("bookied_connections_of_address_max", server.settings.of_address_max),
    ):
        if bound is not None:
            yield gauge(name, bound)
    yield counter("bookied_connections_broken_total", server.connections_broken)
    hits = tuple(({"limit": one.label}, count) for one, count in server.hits.counts.items())
    yield Family("bookied_limit_hits_total", "counter", hits)
    yield gauge("bookied_long_polls_waiting", len(server.bookie.polls))
    least = tuple(
        ({"operation": name}, stats.requests[name].success.least()) for name in (ADD, READ)
    )
    yield Family("bookied_request_min_ms", "gauge", least)
    seen = tuple(
        ({"operation": name, "window": window}, count)
        for name in (ADD, READ)
        for window, count in zip(
            ("last", "current"), stats.requests[name].success.seen(), strict=True
        )
    )
    yield Family("bookied_latency_requests", "gauge", seen)


def _memory(of: BookieService, server: BookieServer) -> Iterator[tuple[Mapping[str, str], float]]:
    """Yield (labels, bytes) of each owner in the table of docs/operations.md."""
    if of.engine is not None:
        yield from _storage_memory(of.engine.storages)
        queued = sum(journal.queued_bytes for journal in of.engine.journals)
        yield {"owner": "journal queues"}, queued
    yield {"owner": "requests in flight"}, server.backpressure.in_flight_bytes
    yield {"owner": "half frames"}, server.half_frames.held_bytes
    yield {"owner": "answers not taken"}, server.unsent.size_bytes


def _storage_memory(storages: Storages) -> Iterator[tuple[Mapping[str, str], float]]:
    found = [storage.memory for storage in storages]
    yield {"owner": "write cache"}, sum(one.cache_bytes for one in found)
    yield {"owner": "entries in no log yet"}, sum(one.unwritten_bytes for one in found)
    yield {"owner": "changed index pages"}, sum(one.dirty_pages for one in found) * PAGE_BYTES
    yield {"owner": "index pages for writers"}, sum(one.clean_pages for one in found) * PAGE_BYTES
    yield {"owner": "index pages for readers"}, sum(one.read_pages_bytes for one in found)
    yield {"owner": "ledgers"}, sum(one.ledgers for one in found) * LEDGER_BYTES


def _python() -> Iterator[Family]:
    generations = list(enumerate(gc.get_stats()))
    for name, key in (("collections", "collections"), ("objects_collected", "collected")):
        samples = tuple(({"generation": str(number)}, one[key]) for number, one in generations)
        yield Family(f"python_gc_{name}_total", "counter", samples)


def _process() -> Iterator[Family]:
    """Yield the metrics that every Prometheus client, Java's included, has under these names."""
    fields = (_PROC / "stat").read_text(encoding="ascii").rpartition(")")[2].split()
    ticks = os.sysconf("SC_CLK_TCK")
    seconds = (int(fields[11]) + int(fields[12])) / ticks
    yield counter("process_cpu_seconds_total", seconds)
    yield gauge("process_start_time_seconds", _booted_s() + int(fields[19]) / ticks)
    yield gauge("process_open_fds", len(list((_PROC / "fd").iterdir())))
    yield gauge("process_max_fds", resource.getrlimit(resource.RLIMIT_NOFILE)[0])
    yield gauge("process_virtual_memory_bytes", int(fields[20]))
    yield gauge("process_resident_memory_bytes", int(fields[21]) * resource.getpagesize())


def _booted_s() -> int:
    for line in Path("/proc/stat").read_text(encoding="ascii").splitlines():
        if line.startswith("btime "):
            return int(line.split()[1])
    return 0
