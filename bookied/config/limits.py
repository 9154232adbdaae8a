"""The limits on clients' requests in progress, and on their memory."""

from __future__ import annotations

from collections.abc import Iterator

import attrs

from bkclient.config.declaration import setting
from bkclient.config.findings import FindingKind, SettingFinding, invalid


@attrs.frozen(kw_only=True, slots=False)  # One of several base classes.
class LimitsConfig:
    """The settings that limit a bookie's work, and those of its mode."""

    adds_in_progress_max: int = setting(
        0,
        key="maxAddsInProgressLimit",
        reloads=True,
        group="Limits",
        minimum=0,
        doc="Adds in progress above which the bookie stops reading from connections; 0 leaves the "
        "limit to bytes.",
    )
    reads_in_progress_max: int = setting(
        10_000,
        key="maxReadsInProgressLimit",
        reloads=True,
        minimum=0,
        doc="Reads in progress above which the bookie stops reading from connections; 0 is no "
        "limit.",
    )
    read_threads: int = setting(
        8,
        key="numReadWorkerThreads",
        minimum=0,
        maximum=256,
        doc="Threads that read from disk; 0 reads on the reactor thread.",
    )
    batch_read_bytes_max: int = setting(
        5_242_880, key="maxBatchReadSize", minimum=1, doc="Largest response to a batch read."
    )
    write_low_water_bytes: int = setting(
        393_216,
        key="serverWriteBufferLowWaterMark",
        minimum=1,
        doc="Unsent bytes below which the bookie reads from a connection again.",
    )
    write_high_water_bytes: int = setting(
        524_288,
        key="serverWriteBufferHighWaterMark",
        minimum=1,
        doc="Unsent bytes above which the bookie stops reading from a connection.",
    )
    close_on_response_timeout: bool = setting(
        False,
        key="closeChannelOnResponseTimeout",
        reloads=True,
        doc="Close connections that leave their responses unread for longer than "
        "waitTimeoutOnResponseBackpressureMs. If false, bookied keeps the connection and "
        "reads no requests from it. Java drops the responses.",
    )
    response_wait_ms: int = setting(
        -1,
        key="waitTimeoutOnResponseBackpressureMs",
        reloads=True,
        doc="How long a connection may leave its responses unread; below 0 means no limit.",
    )
    connections_max: int = setting(
        0,
        key="serverMaxConnections",
        reloads=True,
        minimum=0,
        doc="Most connections from clients; 0 is as many as the limit on open files allows.",
    )
    address_connections_max: int = setting(
        0,
        key="serverMaxConnectionsPerAddress",
        reloads=True,
        minimum=0,
        doc="Most connections from one address; 0 is half of serverMaxConnections.",
    )
    frame_wait_ms: int = setting(
        60_000,
        key="serverFrameTimeoutMs",
        reloads=True,
        minimum=0,
        doc="Time limit for a request to arrive completely; 0 means no limit.",
    )
    idle_wait_ms: int = setting(
        0,
        key="serverIdleTimeoutMs",
        reloads=True,
        minimum=0,
        doc="How long a client may be idle: it sends nothing and waits for no response. 0 is no "
        "limit.",
    )
    login_wait_ms: int = setting(
        30_000,
        key="serverAuthTimeoutMs",
        reloads=True,
        minimum=0,
        doc="Time limit for a client's login, if the bookie requires one; 0 means no limit.",
    )
    half_frames_bytes_max: int = setting(
        67_108_864,
        key="serverHalfFramesMaxBytes",
        reloads=True,
        minimum=1,
        doc="Memory for incomplete requests of all connections together.",
    )
    unsent_bytes_max: int = setting(
        67_108_864,
        key="serverUnsentResponsesMaxBytes",
        reloads=True,
        minimum=1,
        doc="Memory for unread responses of all connections together.",
    )
    stop_wait_ms: int = setting(
        90_000,
        key="serverStopTimeoutMs",
        reloads=True,
        minimum=0,
        doc="Time limit of a clean stop; 0 means no limit. After it the process ends, and the next "
        "start replays the journals.",
    )
    force_read_only: bool = setting(
        False, key="forceReadOnlyBookie", doc="Start read-only, and stay read-only."
    )
    allow_storage_expansion: bool = setting(
        False,
        key="allowStorageExpansion",
        doc="Accept new, empty directories that are added to the settings.",
    )
    extra_components: tuple[str, ...] = setting(
        (), key="extraServerComponents", doc="Java plug-ins. bookied cannot load any."
    )
    ignore_extra_component_failures: bool = setting(
        False,
        key="ignoreExtraServerComponentsStartupFailures",
        doc="Start without the plug-ins in extraServerComponents.",
    )

    def limits_problems(self) -> Iterator[SettingFinding]:
        """Yield settings that bookied does not support, and limits that contradict each other."""
        if self.extra_components and not self.ignore_extra_component_failures:
            yield attrs.evolve(
                invalid(
                    "extraServerComponents",
                    f"'{','.join(self.extra_components)}' are Java classes; remove the key, or set "
                    "ignoreExtraServerComponentsStartupFailures=true",
                ),
                kind=FindingKind.REFUSED,
            )
        if self.write_low_water_bytes > self.write_high_water_bytes:
            yield invalid(
                "serverWriteBufferLowWaterMark", "is above serverWriteBufferHighWaterMark"
            )
