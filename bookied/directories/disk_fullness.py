"""The checks of the disks' free space, at intervals, and the decision about read-only mode.

The thresholds are settings: ``bookied.config.disks``.

Agrees with BookKeeper 4.18.0, LedgerDirsMonitor, except for a directory that vanishes. Java creates
it again, empty, and goes on; bookied treats it as a failed disk.
"""

from __future__ import annotations

import errno
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

import attrs
from twisted.internet.defer import Deferred
from twisted.internet.interfaces import IReactorTime
from twisted.internet.task import LoopingCall
from twisted.logger import Logger
from twisted.python.failure import Failure

from bookied.config.bookie import BookieConfig
from bookied.directories.roots import VERSION, Directories
from bookied.storage.files.files import Files

log = Logger()


@attrs.frozen
class DiskSample:
    """The size and free space of one directory's disk."""

    directory: Path
    total_bytes: int
    usable_bytes: int
    takes_logs: bool = True
    takes_indexes: bool = True

    @property
    def used(self) -> float:
        """The share in use, 0 to 1; a disk that reports no size counts as empty."""
        return 1 - self.usable_bytes / self.total_bytes if self.total_bytes else 0.0


@attrs.frozen(kw_only=True)
class DiskLimits:
    """The limits at which a bookie becomes read-only, and writable again."""

    full_at: float
    warn_at: float
    writable_below: float
    on_any_full: bool
    high_priority_bytes_min: int
    log_bytes_min: int = 0
    """Free bytes with which a full directory still accepts an entry log."""
    index_bytes_min: int = 0
    """Free bytes that the index of a new ledger needs in one of the index directories."""

    @classmethod
    def of(cls, config: BookieConfig) -> DiskLimits:
        return cls(
            full_at=config.disk_full_at,
            warn_at=config.disk_warn_at,
            writable_below=config.disk_writable_below,
            on_any_full=config.read_only_on_any_full,
            high_priority_bytes_min=config.high_priority_bytes_min,
            log_bytes_min=config.entry_log_bytes_min(config.log_bytes_max),
            index_bytes_min=config.index_file_bytes_min,
        )


@attrs.frozen
class DiskVerdict:
    """The result of a check: full and nearly full directories, and which adds are allowed."""

    full: tuple[Path, ...]
    nearly_full: tuple[Path, ...]
    read_only: bool
    high_priority_allowed: bool
    tight: tuple[Path, ...] = ()
    """The full directories that must not get an entry log, not even for recovery adds."""


def judge(samples: Iterable[DiskSample], limits: DiskLimits, *, was_read_only: bool) -> DiskVerdict:
    """Decide about read-only mode.

    The mode begins when any directory (or each, without ``on_any_full``) is above ``full_at``. It
    ends when this is over, and the use of all directories together is below ``writable_below``.
    """
    seen = tuple(samples)
    full = tuple(one.directory for one in seen if one.used > limits.full_at)
    nearly = tuple(one.directory for one in seen if limits.warn_at < one.used <= limits.full_at)
    read_only = bool(full) if limits.on_any_full else len(full) == len(seen)
    if was_read_only and not read_only:
        read_only = _used_together(seen) >= limits.writable_below
    tight = tuple(
        one.directory
        for one in seen
        if one.directory in full and one.usable_bytes < limits.log_bytes_min
    )
    return DiskVerdict(full, nearly, read_only, _has_space_for_recovery(seen, limits), tight)


def _has_space_for_recovery(samples: tuple[DiskSample, ...], limits: DiskLimits) -> bool:
    least_log, least_index = limits.high_priority_bytes_min, limits.index_bytes_min
    logs = any(one.usable_bytes >= least_log for one in samples if one.takes_logs)
    return logs and any(one.usable_bytes >= least_index for one in samples if one.takes_indexes)


def _used_together(samples: tuple[DiskSample, ...]) -> float:
    total = sum(one.total_bytes for one in samples)
    usable = sum(one.usable_bytes for one in samples)
    return DiskSample(Path(), total, usable).used


def sample_disks(
    files: Files, found: Directories, *, may_be_new: bool = False
) -> tuple[DiskSample, ...]:
    """Return the free space of the ledger and index directories; blocks.

    With ``may_be_new`` directories may lack a cookie.

    Raises:
        OSError: a directory (also of a journal) cannot be used, or its cookie is missing.
    """
    require_usable(files, found, may_be_new=may_be_new)
    logs, indexes = frozenset(found.ledger_dirs), frozenset(found.index_dirs)
    return tuple(
        DiskSample(one, *files.disk_usage(one), one in logs, one in indexes)
        for one in dict.fromkeys((*found.ledger_dirs, *found.index_dirs))
    )


def require_usable(files: Files, found: Directories, *, may_be_new: bool = False) -> None:
    """Check that all directories exist on their disks; blocks.

    Raises:
        OSError: a directory cannot be used, or its cookie is missing.
    """
    for directory in found.all_dirs:
        files.check_usable(directory)
        if not may_be_new and not files.exists(directory / VERSION):
            message = "the directory was emptied or unmounted: its cookie is missing"
            raise FileNotFoundError(errno.ENOENT, message, str(directory / VERSION))


def total_and_free(files: Files, found: Directories) -> tuple[int, int]:
    """Return total and usable bytes over the disks of the ledger directories; blocks.

    A file system counts once, as do file systems with equal numbers, such as those of one pool.
    """
    devices = {files.device(directory): directory for directory in found.ledger_dirs}
    seen = {files.disk_usage(directory) for directory in devices.values()}
    return sum(total for total, _ in seen), sum(free for _, free in seen)


class DiskWatch:
    """Checks of the disks every ``interval_s``, in a thread, judged on the reactor.

    ``changed`` is called with each verdict that differs from the previous one. While ``is_awaited``
    returns True it is called with every verdict: a write may find no space between two checks that
    both find enough. ``failed`` is called with the error of a disk that does not answer; then the
    checks end.
    """

    def __init__(
        self,
        clock: IReactorTime,
        sample: Callable[[], tuple[DiskSample, ...]],
        limits: DiskLimits,
        *,
        run_blocking: Callable[[Callable[[], Any]], Deferred[Any]],
        was_read_only: bool = False,
        changed: Callable[[DiskVerdict], None],
        failed: Callable[[Exception], None],
        is_awaited: Callable[[], bool] = lambda: False,
    ) -> None:
        self._sample, self.limits, self._run_blocking = sample, limits, run_blocking
        self._changed, self._failed = changed, failed
        self._is_awaited = is_awaited
        self._loop: LoopingCall = LoopingCall(self._check)
        self._loop.clock = clock
        self.verdict = DiskVerdict((), (), was_read_only, high_priority_allowed=True)
        self.samples: tuple[DiskSample, ...] = ()
        """The samples of the last check."""

    async def check_once(self) -> DiskVerdict:
        """Check and judge the disks now; no callback is called.

        Raises:
            OSError: a disk does not answer.
        """
        self.samples = await self._run_blocking(self._sample)
        self.verdict = judge(self.samples, self.limits, was_read_only=self.verdict.read_only)
        return self.verdict

    def start(self, interval_s: float) -> None:
        """Check every ``interval_s``, first after one interval."""
        self._loop.start(interval_s, now=False).addErrback(self._ended)

    def stop(self) -> None:
        """Stop the checks."""
        if self._loop.running:
            self._loop.stop()

    def _check(self) -> Deferred[None]:
        return Deferred.fromCoroutine(self._check_and_report())

    async def _check_and_report(self) -> None:
        before = self.verdict
        after = await self.check_once()
        if not self._loop.running or (after == before and not self._is_awaited()):
            return
        for directory in after.full:
            if directory not in before.full:
                log.warn("{directory} is full", directory=directory)
        for directory in after.nearly_full:
            if directory not in before.nearly_full:
                log.warn("{directory} is almost full", directory=directory)
        self._changed(after)

    def _ended(self, failure: Failure) -> None:
        error = failure.value
        assert isinstance(error, Exception)
        self._failed(error)
