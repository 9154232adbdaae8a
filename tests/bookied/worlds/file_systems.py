"""Small file systems of their own, for tests of full and failing disks."""

from __future__ import annotations

import os
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest


def may_mount() -> bool:
    """Whether this user and system let a test mount a file system."""
    return os.geteuid() == 0 and Path("/proc/self/mounts").exists()


@contextmanager
def small_file_system(path: Path, size_bytes: int) -> Iterator[Path]:
    """Mount a file system in memory, gone afterwards; skip where that is refused."""
    path.mkdir(parents=True)
    if not may_mount():
        pytest.skip("only root may mount a small file system")
    options = f"size={size_bytes}"
    mounting = subprocess.run(
        ["mount", "-t", "tmpfs", "-o", options, "tmpfs", str(path)],
        capture_output=True,
        text=True,
        check=False,
    )
    if mounting.returncode:
        pytest.skip(f"no small file system: {mounting.stderr.strip()}")
    try:
        yield path
    finally:
        # What a killed process had open may take a moment to be let go.
        subprocess.run(["umount", "--lazy", str(path)], check=True)


@contextmanager
def read_only(path: Path) -> Iterator[None]:
    """Make a mounted file system read-only for all that is opened from now on.

    That is what the system does to one that has errors; files that are open stay so.
    """
    subprocess.run(["mount", "--bind", str(path), str(path)], check=True)
    try:
        subprocess.run(["mount", "-o", "remount,ro,bind", str(path)], check=True)
        yield
    finally:
        subprocess.run(["umount", "--lazy", str(path)], check=True)


def fill(path: Path, name: str = "ballast") -> Path:
    """Take all the room there is to the last byte; return the file that has it."""
    ballast = path / name
    with ballast.open("ab", buffering=0) as file:
        for size in (1 << 16, 1 << 12, 1):
            try:
                while True:
                    file.write(bytes(size))
            except OSError:
                continue
    return ballast
