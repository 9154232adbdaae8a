"""The directories for a ``bkctl disk`` command: from options, else from the bookie's settings."""

from __future__ import annotations

import re
from collections.abc import Collection, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Final

from bkclient.config.properties import Properties
from bkctl.errors import NothingFoundError, UsageError
from bkctl.output.views import Column, Kind, shown
from bkctl.session.cluster_settings import DEFAULT_CONF, overrides, read_conf
from bookied.directories.roots import CURRENT, OLD_DATA, Directories
from bookied.directories.using_processes import DirectoryUser, uses
from bookied.offline import directories
from bookied.offline.bookie import OfflineBookie
from bookied.storage.files.files import RealFiles

if TYPE_CHECKING:
    from bkctl.session.session import Session

_HEX: Final = re.compile("[0-9a-f]+")
"""The names of journals and entry logs, before the dot."""


def find_directories(
    session: Session,
    journal_dirs: tuple[str, ...],
    ledger_dirs: tuple[str, ...],
    index_dirs: tuple[str, ...],
    bookie_dirs: tuple[str, ...] = (),
) -> Directories:
    """Return the directories from arguments, options, the settings file or ``-X``.

    If any directory is named, the settings file is ignored: directories that are not named are left
    out. ``bookie_dirs`` are ledger directories, or directories with the roots of a bookie inside.

    Raises:
        UsageError: no directory is named, or they are named twice.
        PropertiesError, ConfigError: the settings file cannot be read.
    """
    if bookie_dirs and (journal_dirs or ledger_dirs or index_dirs):
        raise UsageError("give either DIR, or --ledger-dir and --journal-dir")
    for directory in bookie_dirs:
        journals, ledgers = _roots_in(directory)
        journal_dirs, ledger_dirs = (*journal_dirs, *journals), (*ledger_dirs, *ledgers)
    if journal_dirs or ledger_dirs or index_dirs:
        return directories.directories_by_name(journal_dirs, ledger_dirs, index_dirs)
    return directories.directories_of(bookie_properties(session, directories.KEYS))


def _roots_in(directory: str) -> tuple[tuple[str, ...], tuple[str, ...]]:
    """Return the journal and the ledger roots in a directory; itself as ledger root if none."""
    path = Path(directory)
    inner = sorted(path.iterdir()) if path.is_dir() and not (path / CURRENT).is_dir() else []
    roots = [one for one in inner if (one / CURRENT).is_dir()]
    journals = tuple(str(one) for one in roots if any((one / CURRENT).glob("*.txn")))
    return journals, tuple(str(one) for one in roots if str(one) not in journals) or (directory,)


def bookie_properties(session: Session, keys: Collection[str]) -> Properties:
    """Return a bookie's settings from its file, the environment (only ``keys``) and ``-X``.

    Raises:
        UsageError: no settings file is named or found.
        PropertiesError: the file cannot be read.
    """
    path = session.options.conf or next((str(p) for p in DEFAULT_CONF if p.is_file()), None)
    if path is None:
        raise UsageError(
            "no directories are named",
            next_step="give the bookie's settings with -c FILE, or name its directories",
        )
    session.verbose(f"directories: from {path}")
    properties = read_conf(Path(path), session.host.environ)
    given = {
        key[3:]: text
        for key, text in session.host.environ.items()
        if key.startswith("BK_") and key[3:] in keys
    }
    properties = properties.override(given, "BK_{key} in the environment")
    return properties.override(overrides(session.options.overrides), "-X")


def open_bookie(session: Session, **dirs: tuple[str, ...]) -> OfflineBookie:
    """Return the bookie in the named directories, read-only; print a note if it runs.

    Raises:
        NothingFoundError: a directory does not exist.
        UsageError: no directory is named.
    """
    found = find_directories(session, **dirs)
    for root in found.roots:
        _require_bookie(root, found.roots)
    each = uses(found.roots, Path(session.host.proc))
    note_use(session, each)
    return OfflineBookie(RealFiles(), found, is_live=any(use.is_used for use in each))


def _require_bookie(root: Path, roots: Sequence[Path]) -> None:
    """Raise ``NothingFoundError`` if a root lacks the data of a bookie of layout 3 to 5."""
    if not root.is_dir():
        raise NothingFoundError(
            f"{root}: no such directory",
            next_step="correct DIR, --ledger-dir, --journal-dir or --index-dir, or the file of -c",
        )
    if not (root / CURRENT).is_dir():
        raise NothingFoundError(
            f"{root} has no directory {CURRENT}", next_step=_elsewhere(root, roots)
        )


def _elsewhere(root: Path, roots: Sequence[Path]) -> str:
    """Return the hint for a directory without ``current``, from its content."""
    found = sorted(root.iterdir())
    if any(path.suffix in OLD_DATA and _HEX.fullmatch(path.stem) for path in found):
        return "it holds an older layout: `bkctl disk upgrade`"
    inner = [str(path) for path in found if (path / CURRENT).is_dir()]
    if inner:
        return f"did you mean {' or '.join(inner)}?"
    if any((other / CURRENT).is_dir() for other in roots):
        return f"is its disk mounted? To look at the other directories, leave {root} out"
    return "a bookie keeps all its data there: is this the right place?"


def note_use(session: Session, found: list[DirectoryUser]) -> None:
    """Print on stderr that the shown data may change while it is read."""
    workers = dict.fromkeys(str(worker) for use in found for worker in use.workers)
    if workers:
        session.note(f"(in use by {', '.join(workers)}: shown as it is on disk at this moment)")
    elif any(use.is_locked for use in found):
        session.note("(in use by a running bookie: shown as it is on disk at this moment)")


@shown(
    "directories",
    Column("directory", "The root directory, as in the settings.", lambda v: str(v.use.root)),
    Column("state", "in use, free or missing."),
    Column("holds", "Kinds of data: journal, ledger, index.", rank=2),
    Column(
        "locked", "Whether a bookied process has locked the directory.", "use.is_locked", Kind.FLAG
    ),
    Column(
        "dirty",
        "Whether the file DIRTY exists: a bookie runs, or was killed.",
        "use.is_dirty",
        Kind.FLAG,
    ),
    Column(
        "workers",
        "Visible processes that write to the directory.",
        lambda v: [{"pid": w.pid, "program": w.program} for w in v.use.workers],
        Kind.NESTED,
        rank=1,
        header="USED BY",
        cell=lambda v: ", ".join(map(str, v.use.workers)) or "-",
    ),
)
class DirectoryState:
    """One directory of a bookie: its kinds of data, and the processes that use it.

    An idle Java bookie has no open file in a ledger directory: if one directory is in use, all are.
    """

    use: DirectoryUser
    holds: tuple[str, ...]
    is_bookie_at_work: bool

    @property
    def state(self) -> str:
        if not self.use.exists:
            return "missing"
        return "in use" if self.is_bookie_at_work else "free"


def directory_states(session: Session, found: Directories) -> list[DirectoryState]:
    """Return the use of each directory of a bookie."""
    kinds = {"journal": found.journals, "ledger": found.ledgers, "index": found.indexes}
    each = uses(found.roots, Path(session.host.proc))
    is_at_work = any(use.is_used for use in each)
    return [
        DirectoryState(
            use, tuple(kind for kind, roots in kinds.items() if use.root in roots), is_at_work
        )
        for use in each
    ]
