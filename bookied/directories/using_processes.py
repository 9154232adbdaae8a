"""The processes that use a bookie's directories now, for offline tools.

bookied locks each root. A Java bookie locks nothing except RocksDB's databases, so the kernel is
asked which processes have files below a root open for writing. Only root sees the processes of
other users; without that, ``DIRTY`` is the only sign of another user's Java bookie.
"""

from __future__ import annotations

import contextlib
import itertools
import os
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import Final

import attrs

from bookied.directories.lock import LOCK, is_locked, lock_owner
from bookied.directories.roots import CURRENT, DIRTY

PROC: Final = Path("/proc")
TOOL: Final = "bkctl"
"""The program whose commands lock a bookie's directories while they change them."""

_NAME_WITHIN: Final = 3
"""The first words in which a program's name is, if an interpreter runs it: ``python -m NAME``."""


@attrs.frozen
class WritingProcess:
    """A process that writes below a root, and its name: ``bookied``, ``Java bookie``, or another.

    A bkctl command has its group in the name: ``bkctl disk convert``.
    """

    pid: int
    program: str

    def __str__(self) -> str:
        return f"{self.program} (process {self.pid})"


@attrs.frozen
class DirectoryUser:
    """The use of one root."""

    root: Path
    exists: bool
    is_locked: bool
    """True if a running bookied, or a repair command of bkctl, has locked the root."""
    is_dirty: bool
    """True if ``DIRTY`` exists: a bookie runs, or did not stop cleanly."""
    workers: tuple[WritingProcess, ...]

    @property
    def is_used(self) -> bool:
        """True if a process uses the directories."""
        return self.is_locked or bool(self.workers)


def uses(roots: Iterable[Path], proc: Path = PROC) -> list[DirectoryUser]:
    """Return the use of each root."""
    wanted = tuple(roots)
    workers = _workers(wanted, proc)
    return [_use(root, workers.get(root, []), proc) for root in wanted]


def _use(root: Path, workers: Sequence[WritingProcess], proc: Path) -> DirectoryUser:
    locked = _is_locked(root)
    found = {worker.pid: worker for worker in workers}
    owner = lock_owner(root) if locked else None
    if owner is not None and owner not in found:
        found[owner] = WritingProcess(owner, _program(proc / str(owner)))
    return DirectoryUser(
        root=root,
        exists=root.is_dir(),
        is_locked=locked,
        is_dirty=(root / CURRENT / DIRTY).exists(),
        workers=tuple(found[pid] for pid in sorted(found)),
    )


def _is_locked(root: Path) -> bool:
    try:
        return is_locked(root)
    except OSError:  # The lock file cannot be read; a process that writes here may still be found.
        return False


def _workers(roots: Sequence[Path], proc: Path) -> dict[Path, list[WritingProcess]]:
    """Return the processes with files open for writing, by root."""
    places = {f"{os.path.realpath(root)}/": root for root in roots}
    found: dict[Path, list[WritingProcess]] = {}
    for process in _processes(proc):
        used = {
            root
            for path in _written_files(process, tuple(places))
            for place, root in places.items()
            if path.startswith(place) and not path.endswith(f"/{LOCK}")
        }
        for root in used:
            worker = WritingProcess(int(process.name), _program(process))
            found.setdefault(root, []).append(worker)
    return found


def _processes(proc: Path) -> Iterator[Path]:
    with contextlib.suppress(OSError):
        for entry in proc.iterdir():
            if entry.name.isdecimal() and int(entry.name) != os.getpid():
                yield entry


def _written_files(process: Path, places: tuple[str, ...]) -> Iterator[str]:
    """Yield the files below ``places`` that a process has open for writing.

    A process that cannot be inspected yields nothing. Only files below ``places`` are inspected, as
    strings and not as Path: a process may have thousands of open files, and few are a bookie's.
    """
    descriptors = f"{process}/fd"
    try:
        numbers = os.listdir(descriptors)  # noqa: PTH208
    except OSError:
        return
    for number in numbers:
        with contextlib.suppress(OSError, ValueError):
            path = os.readlink(f"{descriptors}/{number}")  # noqa: PTH115
            if path.startswith(places) and _is_written(process / "fdinfo" / number):
                yield path


def _is_written(info: Path) -> bool:
    for line in info.read_text("ascii").splitlines():
        if line.startswith("flags:"):
            return int(line.split()[1], 8) & os.O_ACCMODE != os.O_RDONLY
    return False


def _program(process: Path) -> str:
    try:
        words = (process / "cmdline").read_bytes().decode(errors="replace").split("\0")
    except OSError:
        return "unknown program"
    name = Path(words[0]).name or "unknown program"
    if name == "java":
        is_bookie = any(word.startswith("org.apache.bookkeeper.") for word in words)
        return "Java bookie" if is_bookie else "java"
    for at, word in enumerate(words[:_NAME_WITHIN]):
        if Path(word).name == TOOL:
            command = itertools.takewhile(lambda one: one[:1].isalpha(), words[at + 1 : at + 3])
            return " ".join((TOOL, *command))
    if any(Path(word).name == "bookied" or word.startswith("bookied") for word in words):
        return "bookied"
    return name
