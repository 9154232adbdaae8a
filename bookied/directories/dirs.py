"""A bookie's directories: where they are, who uses them, whether they are ours, how full they are.

Each configured root holds ``current/`` (all data), ``bookied.lock`` (held by the process that uses
it), notes of what ``current/`` has held (see ``held``) and, while a new cookie is being written,
``bookied.stamping``. All but the first lie beside
``current/`` because Java refuses a new ``current/`` that is not empty. Agrees with BookKeeper
4.18.0, BookieImpl.checkDirectoryStructure, LedgerDirsMonitor and UncleanShutdownDetectionImpl.
"""

from __future__ import annotations

import errno
import fcntl
import os
from collections.abc import Iterable
from pathlib import Path
from typing import Final

import attrs
from twisted.logger import Logger

from bookied.config.bookie import BookieConfig
from bookied.errors import DirectoryError, DirectoryInUseError, LayoutTooOldError
from bookied.storage.files.files import Files

CURRENT: Final = "current"
VERSION: Final = "VERSION"
DIRTY: Final = "DIRTY"
LOCK: Final = "bookied.lock"
LOCK_MODE: Final = 0o600
_LOCKS: Final = Path("/proc/locks")
CONVERTING: Final = "bookied.converting"
"""In the first root while the index is moved to another kind of storage."""

_NOT_OURS: Final = {errno.EACCES, errno.EPERM, errno.EROFS, errno.EINVAL}
"""What a directory says that we cannot have made, nor anything in it."""

OLD_DATA: Final = (".txn", ".idx", ".log")
"""How files end that lie in the root itself before layout 3."""
_FULL: Final = frozenset({errno.ENOSPC, errno.EDQUOT})

log = Logger()


@attrs.frozen
class Directories:
    """The configured roots by what they hold, in order of configuration."""

    journals: tuple[Path, ...]
    ledgers: tuple[Path, ...]
    indexes: tuple[Path, ...]

    @property
    def roots(self) -> tuple[Path, ...]:
        """Every root once: journal, ledger, then index."""
        return tuple(dict.fromkeys((*self.journals, *self.ledgers, *self.indexes)))

    @property
    def journal_dirs(self) -> tuple[Path, ...]:
        return tuple(root / CURRENT for root in self.journals)

    @property
    def ledger_dirs(self) -> tuple[Path, ...]:
        return tuple(root / CURRENT for root in self.ledgers)

    @property
    def index_dirs(self) -> tuple[Path, ...]:
        return tuple(root / CURRENT for root in self.indexes)

    @property
    def all_dirs(self) -> tuple[Path, ...]:
        """Every ``current`` once: journal, ledger, then index."""
        return tuple(root / CURRENT for root in self.roots)


def directories(config: BookieConfig) -> Directories:
    """Return the directories of a configuration.

    Raises:
        DirectoryError: one is listed twice for the same purpose.
    """
    lists = (config.journal_directories, config.ledger_directories, config.index_directories)
    kinds = ("journalDirectories", "ledgerDirectories", "indexDirectories")
    for kind, names in zip(kinds, lists, strict=True):
        twice = {name for name in names if names.count(name) > 1}
        if twice:
            raise DirectoryError(f"{kind}: {', '.join(sorted(twice))} is listed twice")
    return Directories(*(tuple(map(Path, names)) for names in lists))


def prepare(files: Files, found: Directories, *, several_per_disk: bool = True) -> None:
    """Make the roots and their ``current``, and refuse what cannot hold data.

    Raises:
        DirectoryError: not a directory, not readable or writable, or two on one disk partition
            with ``several_per_disk`` off; or a conversion was cut short.
        LayoutTooOldError: data of a layout before version 3.
    """
    if files.exists(found.roots[0] / CONVERTING):
        raise DirectoryError(
            f"{found.roots[0]}: the index is on its way to another kind of storage; run the "
            "`bkctl disk convert` again that was cut short"
        )
    for root in found.roots:
        try:
            files.mkdirs(root)
            _refuse_old_layout(files, root)
            files.mkdirs(root / CURRENT)
            _make_names_durable(files, root)
            files.check_usable(root / CURRENT)
            files.check_usable(root)
        except OSError as error:
            raise DirectoryError(f"{root} cannot be used: {error.strerror or error}") from error
    if not several_per_disk:
        for roots in (found.journals, found.ledgers, found.indexes):
            _refuse_shared_disk(roots)


def _make_names_durable(files: Files, root: Path) -> None:
    """Make sure that a power cut takes no directory away in which a cookie is going to be."""
    files.sync_dir(root)
    for parent in root.parents:
        try:
            files.sync_dir(parent)
        except OSError as error:
            if error.errno not in _NOT_OURS:
                raise
            return


def _refuse_old_layout(files: Files, root: Path) -> None:
    if files.exists(root / CURRENT):
        return
    old = [name for name in files.list(root) if name == VERSION or name.endswith(OLD_DATA)]
    if old:
        raise LayoutTooOldError(
            root, None, f"holds {old[0]} of an old layout; run `bkctl upgrade --upgrade` first"
        )


def _refuse_shared_disk(roots: tuple[Path, ...]) -> None:
    by_device: dict[int, Path] = {}
    for root in roots:
        other = by_device.setdefault(root.stat().st_dev, root)
        if other != root:
            raise DirectoryError(
                f"{other} and {root} are on one disk partition, which "
                "allowMultipleDirsUnderSameDiskPartition=false forbids"
            )


class DirectoryLocks:
    """Advisory locks on roots, one process at a time; they go with the process."""

    def __init__(self) -> None:
        self._fds: list[int] = []

    def take(self, roots: Iterable[Path]) -> None:
        """Lock every root.

        Raises:
            DirectoryInUseError: another process has one of them; none is kept.
            DirectoryError: a lock file cannot be made.
        """
        try:
            for root in roots:
                self._fds.append(_lock(root))
        except BaseException:
            self.release()
            raise

    def release(self) -> None:
        """Give all locks up. The files stay: removing one could unlock a successor's."""
        for fd in self._fds:
            os.close(fd)
        self._fds.clear()


def _lock(root: Path) -> int:
    path = root / LOCK
    try:
        root.mkdir(parents=True, exist_ok=True)
        fd = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC | os.O_NOFOLLOW, LOCK_MODE)
    except OSError as error:
        raise DirectoryError(f"{root} cannot be used: {error.strerror or error}") from error
    _keep_others_out(fd, path)
    try:
        fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError as error:
        owner = os.pread(fd, 20, 0).decode("ascii", "replace").strip()
        os.close(fd)
        by = f" (process {owner})" if owner else ""
        raise DirectoryInUseError(f"{root} is in use by another bookie{by}") from error
    os.ftruncate(fd, 0)
    os.pwrite(fd, f"{os.getpid()}\n".encode(), 0)
    return fd


def _keep_others_out(fd: int, path: Path) -> None:
    """Leave a lock file to its owner alone: who can open it can hold its lock against us."""
    found = os.fstat(fd)
    if os.geteuid() not in {found.st_uid, 0}:
        os.close(fd)
        raise DirectoryError(f"{path} belongs to user {found.st_uid}, who could lock us out")
    if found.st_uid == os.geteuid() and found.st_mode & 0o077:
        os.fchmod(fd, LOCK_MODE)


def is_locked(root: Path) -> bool:
    """Whether a running bookie of ours uses this root; for offline tools."""
    try:
        fd = os.open(root / LOCK, os.O_RDONLY | os.O_CLOEXEC)
    except FileNotFoundError:
        return False
    except PermissionError:  # Another user's: the system tells about its locks all the same.
        return _has_lock((root / LOCK).stat().st_ino, _LOCKS.read_text(encoding="ascii"))
    try:
        fcntl.flock(fd, fcntl.LOCK_SH | fcntl.LOCK_NB)
    except OSError:
        return True
    finally:
        os.close(fd)
    return False


def lock_owner(root: Path) -> int | None:
    """Return the process that locked a root last; None if the lock file does not say."""
    try:
        return int((root / LOCK).read_text(encoding="ascii"))
    except (OSError, ValueError):
        return None


def _has_lock(inode: int, locks: str) -> bool:
    """Whether a file has an exclusive lock, by the lines of /proc/locks (proc(5))."""
    lines = (line.split() for line in locks.splitlines())
    return any(
        fields[1:4] == ["FLOCK", "ADVISORY", "WRITE"] and fields[5].endswith(f":{inode}")
        for fields in lines
    )


def mark_dirty(files: Files, found: Directories) -> None:
    """Say on disk that a bookie runs here; what finds the mark at a start follows a crash."""
    for directory in found.ledger_dirs:
        try:
            files.write_atomic(directory / DIRTY, b"")
        except OSError as error:
            if error.errno not in _FULL:
                raise
            log.warn("no space for {name} in {path}", name=DIRTY, path=directory)


def clear_dirty(files: Files, found: Directories) -> None:
    """Say on disk that the bookie stopped with everything flushed."""
    for directory in found.ledger_dirs:
        if files.exists(directory / DIRTY):
            files.remove(directory / DIRTY)
            files.sync_dir(directory)


def was_dirty(files: Files, found: Directories) -> bool:
    """Whether the last stop was unclean."""
    return any(files.exists(directory / DIRTY) for directory in found.ledger_dirs)


@attrs.frozen
class DiskSample:
    """How full the disk of one directory is."""

    directory: Path
    total_bytes: int
    usable_bytes: int
    takes_logs: bool = True
    takes_indexes: bool = True

    @property
    def used(self) -> float:
        """Share in use, 0 to 1; a disk that tells no size counts as empty."""
        return 1 - self.usable_bytes / self.total_bytes if self.total_bytes else 0.0


@attrs.frozen(kw_only=True)
class DiskLimits:
    """When a bookie turns read-only for want of space, and when it turns back."""

    full_at: float
    warn_at: float
    writable_below: float
    on_any_full: bool
    high_priority_bytes_min: int
    log_bytes_min: int = 0
    """What a full directory needs to take an entry log all the same."""
    index_bytes_min: int = 0
    """What one of the index directories needs for the index of a ledger that is new."""

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
    """What the samples mean: directories that are full or nearly, and what may be written."""

    full: tuple[Path, ...]
    nearly_full: tuple[Path, ...]
    read_only: bool
    high_priority_allowed: bool
    tight: tuple[Path, ...] = ()
    """Those of the full that should take no entry log, not even for recovery adds."""


def judge(samples: Iterable[DiskSample], limits: DiskLimits, *, was_read_only: bool) -> DiskVerdict:
    """Decide about read-only mode.

    It begins when any directory (or every one, without ``on_any_full``) is above ``full_at``, and
    ends when that is over and the use of all of them together is below ``writable_below``.
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
    return DiskVerdict(full, nearly, read_only, _has_room_for_recovery(seen, limits), tight)


def _has_room_for_recovery(samples: tuple[DiskSample, ...], limits: DiskLimits) -> bool:
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
    """Ask how full the ledger and index directories are, and whether any has failed; blocking.

    With ``may_be_new`` directories have no cookie yet.

    Raises:
        OSError: a directory, be it a journal's, cannot be used any more, or its cookie is gone.
    """
    for directory in found.all_dirs:
        files.check_usable(directory)
        if not may_be_new and not files.exists(directory / VERSION):
            message = "the directory was emptied or unmounted: its cookie is gone"
            raise FileNotFoundError(errno.ENOENT, message, str(directory / VERSION))
    logs, indexes = frozenset(found.ledger_dirs), frozenset(found.index_dirs)
    return tuple(
        DiskSample(one, *files.disk_usage(one), one in logs, one in indexes)
        for one in dict.fromkeys((*found.ledger_dirs, *found.index_dirs))
    )


def total_and_free(files: Files, found: Directories) -> tuple[int, int]:
    """Return total and usable bytes over the disks of the ledger directories; blocking.

    Directories on one disk are counted once where its numbers are the same.
    """
    seen = {files.disk_usage(directory) for directory in found.ledger_dirs}
    return sum(total for total, _ in seen), sum(free for _, free in seen)
