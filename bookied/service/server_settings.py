"""What the server of a bookie is bounded by, from the bookie's settings."""

from __future__ import annotations

from typing import Final

from bookied.config.bookie import BookieConfig
from bookied.server.limits.backpressure import SHARED_ADDS_BYTES, ServerLimits
from bookied.server.limits.connections import ConnectionSettings
from bookied.server.limits.timeouts import Timeouts
from bookied.storage.ledger_storage.limits import StorageLimits

SPARE_FILES: Final = 256
"""Journals, marks, the metadata service, the log, and what a moment needs."""

_UNLIMITED: Final = 2**62


def _connections_max(
    config: BookieConfig, open_files_max: int | None, storage: StorageLimits
) -> int | None:
    """Return how many connections clients may have: of the descriptors, those storage leaves."""
    asked = config.connections_max or None
    if open_files_max is None:
        return asked
    for_reading = storage.open_logs_max + storage.open_indexes_max
    files = for_reading + storage.open_to_write_max + SPARE_FILES
    most = max(open_files_max - files, open_files_max // 8)
    return most if asked is None else min(asked, most)


def connection_settings(
    config: BookieConfig, open_files_max: int | None, storage: StorageLimits
) -> ConnectionSettings:
    """Return how many connections there may be, and what each may do.

    Args:
        config: the bookie's settings.
        open_files_max: how many descriptors the process may have; None if unknown.
        storage: what storage takes of them.
    """
    count_max = _connections_max(config, open_files_max, storage)
    return ConnectionSettings(
        count_max=count_max,
        of_address_max=config.address_connections_max or _half(count_max),
        timeouts=_timeouts(config),
        frame_bytes_max=config.frame_bytes_max,
        tcp_keep_alive=config.tcp_keepalive,
    )


def _half(connections_max: int | None) -> int | None:
    return None if connections_max is None else max(1, connections_max // 2)


def _timeouts(config: BookieConfig) -> Timeouts:
    cuts = config.close_on_response_timeout and config.response_wait_ms >= 0
    return Timeouts(
        frame_s=config.frame_wait_ms / 1000 or None,
        answer_s=config.response_wait_ms / 1000 if cuts else None,
        idle_s=config.idle_wait_ms / 1000 or None,
        login_s=config.login_wait_ms / 1000 or None,
    )


def server_limits(config: BookieConfig, storage: StorageLimits) -> ServerLimits:
    """Return how much of the requests of all connections may be in memory."""
    return ServerLimits(
        in_flight_bytes_max=config.journal_queue_bytes_max,
        unwritten_bytes_max=storage.unwritten_bytes_max,
        adds_max=config.adds_in_progress_max or None,
        shared_adds_bytes_max=SHARED_ADDS_BYTES * len(config.journal_directories),
        reads_pending_max=config.reads_in_progress_max or _UNLIMITED,
        half_frames_bytes_max=config.half_frames_bytes_max,
        unsent_bytes_max=config.unsent_bytes_max,
    )
