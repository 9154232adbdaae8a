"""The state of a bookie that seems stuck, logged on ``SIGQUIT``."""

from __future__ import annotations

from collections.abc import Iterator

from bookied.directories.disk_fullness import DiskWatch
from bookied.server.server import BookieServer
from bookied.service.garbage_and_autorecovery import Collectors
from bookied.service.storage_engine import Engine


def service_state(
    server: BookieServer | None,
    engine: Engine | None,
    collectors: Collectors | None,
    disks: DiskWatch | None,
) -> Iterator[tuple[str, object]]:
    """Yield (description, state) for each part that exists."""
    if server is not None:
        yield from _of_server(server)
    if engine is not None and engine.has_begun:
        yield "ledgers in memory", engine.storages.ledgers_in_memory
        yield "unwritten bytes", engine.storages.unwritten_bytes
        yield "local check", engine.scrubber.counters
        yield "journal queues, bytes", [one.queued_bytes for one in engine.journals]
    for number, status in enumerate(collectors.statuses() if collectors is not None else ()):
        yield f"garbage collection {number}", status
    if disks is not None:
        yield "full directories", [str(directory) for directory in disks.verdict.full]


def _of_server(server: BookieServer) -> Iterator[tuple[str, object]]:
    waits = [one.waiting for one in server.connections]
    yield "connections", len(waits)
    yield "connections that are not read", sum(not one.is_read for one in waits)
    yield "connections that wait for answers", sum(not one.is_idle for one in waits)
    yield "bytes in flight", server.backpressure.in_flight_bytes
    yield "clients that wait for others' requests", server.backpressure.held
    yield "bytes of half frames", server.half_frames.held_bytes
    yield "bytes of answers not taken", server.unsent.size_bytes
