"""The settings by which a disk counts as full, and the bookie's reaction.

Keys, defaults and limits are Java's (BookKeeper 4.18.0, ServerConfiguration). Numbers keep the
unit that their key has in a file; the properties are bytes and seconds.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

import attrs

from bkclient.config.declaration import setting
from bkclient.config.findings import SettingFinding, invalid

_MB: Final = 1024 * 1024


@attrs.frozen(kw_only=True, slots=False)  # One of several base classes.
class DiskConfig:
    """The settings by which a disk counts as full, and the bookie's reaction."""

    disk_check_interval_ms: int = setting(
        10_000,
        key="diskCheckInterval",
        group="Disks",
        minimum=1,
        doc="Pause between checks of the disks' free space.",
    )
    disk_full_at: float = setting(
        0.95,
        key="diskUsageThreshold",
        reloads=True,
        minimum=0.001,
        maximum=1,
        doc="Share of a disk in use above which the disk is full.",
    )
    disk_warn_at: float = setting(
        0.90,
        key="diskUsageWarnThreshold",
        reloads=True,
        minimum=0.001,
        maximum=1,
        doc="Share of a disk in use above which the disk is almost full; new entry logs then go to "
        "other disks.",
    )
    _disk_writable_below: float | None = setting(
        None,
        key="diskUsageLwmThreshold",
        reloads=True,
        minimum=0.001,
        maximum=1,
        doc="Share of a disk in use below which a read-only bookie becomes writable again.",
        default_text="diskUsageThreshold",
    )
    read_only_mode: bool = setting(
        True,
        key="readOnlyModeEnabled",
        doc="Become read-only when disks are full. If false, the bookie stops.",
    )
    read_only_on_any_full: bool = setting(
        True,
        key="readOnlyModeOnAnyDiskFullEnabled",
        reloads=True,
        doc="Become read-only when one disk is full. If false, only when all disks are full.",
    )
    persist_status: bool = setting(
        False, key="persistBookieStatusEnabled", doc="Stay read-only after a restart."
    )
    index_file_bytes_min: int = setting(
        100 * _MB,
        key="minUsableSizeForIndexFileCreation",
        minimum=0,
        doc="Free space needed for new index files on a full disk. With less space the bookie "
        "refuses recovery adds. Acknowledged entries are written to any directory with space.",
    )
    _entry_log_bytes_min: int | None = setting(
        None,
        key="minUsableSizeForEntryLogCreation",
        minimum=0,
        doc="Free space needed for a new entry log on a full disk.",
        default_text="logSizeLimit",
    )
    _high_priority_bytes_min: int | None = setting(
        None,
        key="minUsableSizeForHighPriorityWrites",
        reloads=True,
        minimum=0,
        doc="Free space needed for recovery adds while the bookie is read-only.",
        default_text="minUsableSizeForEntryLogCreation",
    )
    several_dirs_per_disk: bool = setting(
        True,
        key="allowMultipleDirsUnderSameDiskPartition",
        doc="Allow two directories of a kind on one disk partition.",
    )

    @property
    def disk_writable_below(self) -> float:
        """The share in use below which a read-only bookie becomes writable again."""
        low = self._disk_writable_below
        return self.disk_full_at if low is None else low

    def entry_log_bytes_min(self, log_bytes_max: int) -> int:
        """Return the space that a new entry log needs on a full disk."""
        least = self._entry_log_bytes_min
        return log_bytes_max if least is None else least

    def disk_problems(self) -> Iterator[SettingFinding]:
        """Yield thresholds that contradict each other."""
        above = f"is above diskUsageThreshold={self.disk_full_at}"
        if self.disk_writable_below > self.disk_full_at:
            yield invalid("diskUsageLwmThreshold", f"{self.disk_writable_below} {above}")
        if self.disk_warn_at > self.disk_full_at:
            yield invalid("diskUsageWarnThreshold", f"{self.disk_warn_at} {above}")
