"""What this machine allows beyond processes and sockets: disks of one's own."""

from __future__ import annotations

import ctypes
import errno
import os
import subprocess
import sys
from pathlib import Path
from typing import Final

import attrs

from tests.proof.schedule import Fault

_CLONE_NEWNS: Final = 0x00020000


@attrs.frozen
class Means:
    """``mounts``: whether file systems can be mounted."""

    mounts: bool

    def missing(self) -> dict[Fault, str]:
        """Return the faults that cannot be made here, each with the reason."""
        if self.mounts:
            return {}
        reason = "no file system can be mounted; it takes root"
        return dict.fromkeys((Fault.FULL, Fault.READ_ONLY), reason)


def find_means() -> Means:
    """Return what there is here.

    Where file systems can be mounted, the calling process gets a namespace of its own for them
    first: they vanish with it. So call this before any thread or child is started.
    """
    return Means(_own_mounts())


def _own_mounts() -> bool:
    """Go into a mount namespace of one's own; return whether that was allowed."""
    if sys.platform != "linux" or os.geteuid() != 0:
        return False
    if ctypes.CDLL(None, use_errno=True).unshare(_CLONE_NEWNS) != 0:
        return False
    done = subprocess.run(
        ["mount", "--make-rprivate", "/"], capture_output=True, check=False, timeout=30
    )
    return done.returncode == 0


class OwnDisk:
    """A small file system in memory, which can be filled and made read-only."""

    def __init__(self, directory: Path, size_bytes: int) -> None:
        self.directory = directory
        directory.mkdir(parents=True, exist_ok=True)
        _mount("-t", "tmpfs", "-o", f"size={size_bytes}", "proof", str(directory))

    @property
    def _filler(self) -> Path:
        return self.directory / "filler"

    def fill(self) -> None:
        """Take all that is free, also what a bookie leaves while this goes on."""
        free = os.statvfs(self.directory)
        taken, step = 0, free.f_bavail * free.f_frsize
        with self._filler.open("wb") as file:
            while step >= free.f_frsize:
                try:
                    os.posix_fallocate(file.fileno(), taken, step)
                except OSError as error:
                    if error.errno != errno.ENOSPC:
                        raise
                    step //= 2
                else:
                    taken += step

    def empty(self) -> None:
        """Give back what ``fill`` took."""
        self._filler.unlink(missing_ok=True)

    def set_read_only(self, *, read_only: bool) -> None:
        """Refuse writes, or allow them again; no file may be open for writing."""
        _mount("-o", f"remount,{'ro' if read_only else 'rw'}", str(self.directory))

    def close(self) -> None:
        """Unmount it, whoever still has files open there."""
        subprocess.run(
            ["umount", "--lazy", str(self.directory)], capture_output=True, check=False, timeout=30
        )


def _mount(*words: str) -> None:
    subprocess.run(["mount", *words], capture_output=True, check=True, timeout=30)
