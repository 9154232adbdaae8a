"""The format of a stopped bookie: removal of all files in its roots.

Agrees with BookKeeper 4.18.0, BookieImpl.format, except for the order. The cookies are removed
first, so that neither kind of bookie starts on the rest after a crash. The stored cookie is removed
last. Our own lock file remains, because this process has locked it.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from pathlib import Path

import attrs

from bookied.directories.lock import LOCK
from bookied.directories.roots import CURRENT, VERSION, Directories
from bookied.directories.stored_cookie import CookieInStore
from bookied.storage.files.files import Files, remove_tree


@attrs.frozen
class Contents:
    """The number and total size of the files in one root, without our lock file."""

    root: Path
    files: int
    size_bytes: int


def contents(files: Files, roots: Iterable[Path]) -> list[Contents]:
    """Return what a format would remove, root by root."""
    found = []
    for root in roots:
        sizes = [files.size(path) for path in _below(files, root) if path != root / LOCK]
        found.append(Contents(root, len(sizes), sum(sizes)))
    return found


def _below(files: Files, directory: Path) -> Iterator[Path]:
    if not files.exists(directory):
        return
    for name in sorted(files.list(directory)):
        path = directory / name
        if files.is_dir(path):
            yield from _below(files, path)
        elif files.exists(path):
            yield path


def wipe(
    files: Files,
    found: Directories,
    *,
    also: Iterable[Path] = (),
    stored: CookieInStore | None = None,
) -> bool:
    """Remove everything in every root; safe to repeat after a crash at any step.

    Args:
        files: the disk.
        found: the bookie's roots; missing roots are created.
        also: further directories to empty: ``gcEntryLogMetadataCachePath``.
        stored: the cookie to remove from the metadata service once the roots are empty; None to
            keep the stored cookie.

    Returns:
        Whether a stored cookie was removed.

    Raises:
        OSError: some files remain, on which no bookie starts. Repeat.
        MetadataStoreError: the roots are empty, the stored cookie may remain. Repeat.
    """
    directories = list(dict.fromkeys((*found.roots, *also)))
    for root in found.roots:
        _remove_cookies(files, root)
    for directory in directories:
        files.mkdirs(directory)
        for name in sorted(files.list(directory)):
            if name != LOCK:
                remove_tree(files, directory / name)
        files.sync_dir(directory)
    return stored is not None and _forget(stored)


def _remove_cookies(files: Files, root: Path) -> None:
    for directory in (root / CURRENT, root):
        if files.exists(directory / VERSION):
            files.remove(directory / VERSION)
            files.sync_dir(directory)


def _forget(stored: CookieInStore) -> bool:
    found = stored.read()
    if found is None:
        return False
    stored.remove(found.version)
    return True
