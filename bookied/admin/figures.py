"""The figures of a bookie that runs, or is about to: what metrics are made of."""

from __future__ import annotations

from collections.abc import Iterator

from bookied.admin.monitoring.java_names import Figures
from bookied.config.bookie import BookieConfig, StorageClass
from bookied.metrics.stats import Summaries
from bookied.runtime.state import State
from bookied.service.bookie import BookieService


def figures_of(service: BookieService) -> Figures:
    """Return what there is to tell now."""
    config, disks, collectors = service.config, service.disks, service.collectors
    for stats in stats_of(service):
        stats.settle()
    return Figures(
        status=_status(service),
        directories=service.directories,
        samples=disks.samples if disks is not None else (),
        full=disks.verdict.full if disks is not None else (),
        server=service.server,
        engine=service.engine,
        statuses=tuple(collectors.statuses()) if collectors is not None else (),
        collector_stats=tuple(collectors.stats()) if collectors is not None else (),
        queues=dict(service.parts.queues),
        metadata=service.parts.metadata_stats,
        journal_bytes_max=config.journal_queue_bytes_max,
        reads_max=config.reads_in_progress_max,
        threads=config.read_threads,
        is_db=_is_db(config),
        repair=None if service.autorecovery is None else service.autorecovery.stats,
    )


def stats_of(service: BookieService) -> Iterator[Summaries]:
    """Give all that counts by windows."""
    if service.parts.metadata_stats is not None:
        yield service.parts.metadata_stats
    if service.server is not None:
        yield service.server.stats
    if service.engine is not None:
        for journal in service.engine.journals:
            yield journal.stats
        for storage in service.engine.storages:
            yield storage.stats
    if service.collectors is not None:
        yield from service.collectors.stats()
    if service.autorecovery is not None:
        yield service.autorecovery.stats.auditor
        yield service.autorecovery.stats.worker


def _is_db(config: BookieConfig) -> bool:
    return config.storage_class is StorageClass.DB


def _status(service: BookieService) -> int:
    """Return Java's SERVER_STATUS: 1 writable, 0 read-only, -1 not registered."""
    if service.registration is None or not service.registration.is_registered:
        return -1
    return 1 if service.state.now is State.WRITABLE else 0
