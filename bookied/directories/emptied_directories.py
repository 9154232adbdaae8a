"""Notes of the contents of a bookie's directories, so that an emptied one does not pass as new.

A directory that lost everything but its cookie looks like a new directory, and an older copy of the
journals looks complete. A bookie that started with them would answer "no such entry" for entries
that it has acknowledged. Recovery takes that answer as proof: with equal write and ack quorums it
closes the ledger before confirmed entries. So two notes lie beside ``current``. They belong to the
root and not to its contents. ``bookied.journal`` names the last journal that bookied has begun (see
``last_journal_note``). ``bookied.held`` lists the contents that a checkpoint has found in a
directory:

    entries    a ledger directory has had a mark, the last log id or an entry log
    index      an index directory has had index files, or both databases with something in them
    rebuild    an index directory has lost its index, and not all ledgers have an index again

No bookie, ours or Java's, removes all of them: it removes entry logs and index files, but not marks
and the directories of index files. A note is written after its contents are durable, so that no
crash leaves only the note. It is written before a mark says that journals are not needed. Both
notes are removed before a directory gets a cookie for the first time.

A root that is lost completely loses its note, too. So ``bookied.held`` of each journal root also
has a line ``KIND:ROOT`` for each other root. The line shows that a directory is new, even if a
cookie was copied into it.
"""

from __future__ import annotations

import enum
from collections.abc import Iterator, Mapping
from pathlib import Path
from types import MappingProxyType
from typing import Final

import attrs
from twisted.logger import Logger

from bookied.directories.last_journal_note import NAME as SERVED
from bookied.directories.last_journal_note import read_note
from bookied.directories.roots import CURRENT, Directories
from bookied.errors import CorruptError, DirectoryEmptiedError, JournalMissingError
from bookied.storage.entrylog.format import LAST_ID, log_id
from bookied.storage.files.files import Files, read_if_there
from bookied.storage.index.file_names import DIRECTORY_NAME
from bookied.storage.index.rocks.format import LEDGERS, LOCATIONS
from bookied.storage.journal import format as layout
from bookied.storage.journal.crash_or_damage import has_begin
from bookied.storage.journal.mark import MARK_NAME
from bookied.storage.journal.reader import journal_ids

NAME: Final = "bookied.held"

NOT_MOVED: Final[Mapping[Path, Path]] = MappingProxyType({})

log = Logger()


class ContentKind(enum.Enum):
    """A kind of contents; the value is the word in the file."""

    ENTRIES = "entries"
    INDEX = "index"
    REBUILD = "rebuild"
    """Nothing in a directory is of this kind: a note of it stops each start until removed."""


@attrs.frozen
class DirectoryLoss:
    """A root that has lost contents, with the error that describes the loss."""

    root: Path
    error: CorruptError
    held: ContentKind | None
    """The lost kind of contents; None for journals."""


def losses(
    files: Files, found: Directories, former: Mapping[Path, Path] = NOT_MOVED
) -> Iterator[DirectoryLoss]:
    """Yield the roots that lack contents which they had. Blocks.

    ``former`` maps the present path of each moved root to its former path.

    Raises:
        OSError: a directory cannot be read.
    """
    for root in found.roots:
        if not files.exists(root / CURRENT):
            continue  # The check of the cookies reports a missing directory.
        held = _ever_held(files, found, root, former) | _half_index(files, root)
        missing = held - contents_of(files, root)
        for kind in sorted(missing & _kinds(found, root), key=lambda one: one.value):
            what = f"{_EMPTIED[kind]}; {_GO_ON.format('BK-DIRECTORY-EMPTIED')}"
            yield DirectoryLoss(root, DirectoryEmptiedError(root / CURRENT, None, what), kind)
        if root in found.journals and (error := _lost_journal(files, root)) is not None:
            yield DirectoryLoss(root, error, None)


def check_losses(files: Files, found: Directories) -> None:
    """Check that every directory has the contents that it had. Blocks.

    Raises:
        DirectoryEmptiedError: a directory was emptied.
        JournalMissingError: the last begun journal or its first bytes are missing.
        OSError: a directory cannot be read.
    """
    for loss in losses(files, found):
        raise loss.error


def foreign_contents(files: Files, found: Directories, root: Path) -> list[str]:
    """Return the contents of a root that do not match its purpose in the settings. Blocks."""
    foreign = [kind.value for kind in contents_of(files, root) - _kinds(found, root)]
    if root not in found.journals and journal_ids(files, root / CURRENT):
        foreign.append("journals")
    return sorted(foreign)


def note_moves(files: Files, found: Directories, former: Mapping[Path, Path]) -> None:
    """Add the new paths of moved roots to the notes of the journal roots. Blocks.

    Lines with the former paths stay: the move may have to be undone.
    """
    for keeper in found.journals:
        before = _lines(files, keeper)
        lines = before | {
            _line(keeper, root, kind)
            for root in former
            for kind in _ever_held(files, found, root, former)
        }
        if lines != before:
            _write(files, keeper, lines)


def forget(files: Files, found: Directories, root: Path) -> None:
    """Remove all notes about a root, which begins empty. Blocks."""
    _remove(files, root / SERVED)
    _remove(files, root / NAME)
    _drop(files, found, root, frozenset(ContentKind))


def forget_loss(files: Files, found: Directories, loss: DirectoryLoss) -> None:
    """Remove the notes about the lost contents only. Blocks."""
    if loss.held is None:
        _remove(files, loss.root / SERVED)
    else:
        _drop(files, found, loss.root, frozenset({loss.held}))


def forget_index(files: Files, found: Directories, root: Path) -> None:
    """Remove the notes about a root's index; the next checkpoint writes them again. Blocks."""
    _drop(files, found, root, frozenset({ContentKind.INDEX, ContentKind.REBUILD}))


def note_rebuild(files: Files, found: Directories, root: Path) -> None:
    """Note that a root has lost its index, before an index of some ledgers hides that. Blocks."""
    for keeper in _keepers(found, root):
        _write(files, keeper, _lines(files, keeper) | {_line(keeper, root, ContentKind.REBUILD)})


def _drop(files: Files, found: Directories, root: Path, kinds: frozenset[ContentKind]) -> None:
    for keeper in _keepers(found, root):
        lines = _lines(files, keeper)
        kept = lines - {_line(keeper, root, kind) for kind in kinds}
        if not kept:
            _remove(files, keeper / NAME)
        elif kept != lines:
            _write(files, keeper, kept)


def _remove(files: Files, note: Path) -> None:
    if files.exists(note):
        files.remove(note)
        files.sync_dir(note.parent)


class ContentsNotes:
    """A writer of the notes of one bookie's directories; all methods block."""

    def __init__(self, files: Files, found: Directories) -> None:
        self.files, self.found = files, found
        kinds = ((root, _kinds(found, root) - {ContentKind.REBUILD}) for root in found.roots)
        self._open = {root: some for root, some in kinds if some}
        """The kinds that are not noted yet, for each root."""

    def update(self) -> None:
        """Note new contents of the directories; all contents are durable at the call.

        A failed write only logs a warning: the next call tries again, and no data is lost.
        """
        for root in list(self._open):
            try:
                held = self._note(root)
            except OSError as error:
                log.warn("{path} is not written: {error}", path=root / NAME, error=error)
            else:
                self._open[root] -= held
                if not self._open[root]:
                    del self._open[root]

    def _note(self, root: Path) -> frozenset[ContentKind]:
        """Note a root's contents; return all kinds that are noted."""
        files, found = self.files, self.found
        held = _ever_held(files, found, root) | (contents_of(files, root) & _kinds(found, root))
        is_synced = False
        for keeper in _keepers(found, root):
            before = _lines(files, keeper)
            lines = before | {_line(keeper, root, kind) for kind in held}
            if lines != before:
                if not is_synced:
                    files.sync_dir(root / CURRENT)
                    is_synced = True
                _write(files, keeper, lines)
        return held


_GO_ON: Final = "put back the old files, or see `bkctl explain {}`"

_EMPTIED: Final = {
    ContentKind.ENTRIES: "was emptied: it has held entries, and holds neither mark nor entry log "
    "now",
    ContentKind.INDEX: "was emptied: it has held the index of ledgers, and holds no whole one now",
    ContentKind.REBUILD: "was emptied: it has lost the index of ledgers, and not all are rebuilt; "
    "run `bkctl disk rebuild-index --all`",
}


def _kinds(found: Directories, root: Path) -> frozenset[ContentKind]:
    kinds = (
        (ContentKind.ENTRIES, found.ledgers),
        *((kind, found.indexes) for kind in (ContentKind.INDEX, ContentKind.REBUILD)),
    )
    return frozenset(kind for kind, roots in kinds if root in roots)


def _keepers(found: Directories, root: Path) -> tuple[Path, ...]:
    """Return the roots with notes about ``root``: the root itself and the journal roots."""
    return tuple(dict.fromkeys((root, *found.journals)))


def _line(keeper: Path, root: Path, kind: ContentKind) -> str:
    return kind.value if keeper == root else f"{kind.value}:{root}"


def _ever_held(
    files: Files, found: Directories, root: Path, former: Mapping[Path, Path] = NOT_MOVED
) -> frozenset[ContentKind]:
    """Return the noted kinds of contents of a root.

    Notes that are missing or unreadable have none.
    """
    noted = {keeper: _lines(files, keeper) for keeper in _keepers(found, root)}
    names = {root, former.get(root, root)}
    return frozenset(
        kind
        for kind in ContentKind
        if any(_line(keeper, name, kind) in noted[keeper] for keeper in noted for name in names)
    )


def _lines(files: Files, root: Path) -> frozenset[str]:
    data = read_if_there(files, root / NAME) or b""
    return frozenset(data.decode("utf-8", "replace").splitlines())


def _write(files: Files, root: Path, lines: frozenset[str]) -> None:
    files.write_atomic(root / NAME, "".join(f"{line}\n" for line in sorted(lines)).encode())


def contents_of(files: Files, root: Path) -> frozenset[ContentKind]:
    """Return the present contents of a root, whatever its purpose in the settings. Blocks."""
    current, held = root / CURRENT, set()
    names = files.list(current)
    if any(name == LAST_ID or MARK_NAME.fullmatch(name) for name in names) or any(
        log_id(name) is not None for name in names
    ):
        held.add(ContentKind.ENTRIES)
    hexadecimal = (name for name in names if DIRECTORY_NAME.fullmatch(name))
    if any(files.is_dir(current / name) for name in hexadecimal) or (
        names and all(_has_any(files, current / name) for name in (LEDGERS, LOCATIONS))
    ):
        held.add(ContentKind.INDEX)
    return frozenset(held)


def _half_index(files: Files, root: Path) -> frozenset[ContentKind]:
    """Return the index if one database has rows and the other is gone: this needs no note.

    A bookie creates both before the first has a row. Java leaves no notes.
    """
    current = root / CURRENT
    for one, other in ((LEDGERS, LOCATIONS), (LOCATIONS, LEDGERS)):
        if _has_rows(files, current / one) and not _has_any(files, current / other):
            return frozenset({ContentKind.INDEX})
    return frozenset()


def _has_rows(files: Files, directory: Path) -> bool:
    """Return whether a database has a table, or a write-ahead log with a record."""
    return files.is_dir(directory) and any(
        name.endswith(".sst") or (name.endswith(".log") and files.size(directory / name) > 0)
        for name in files.list(directory)
    )


def _has_any(files: Files, directory: Path) -> bool:
    return files.is_dir(directory) and bool(files.list(directory))


def _lost_journal(files: Files, root: Path) -> JournalMissingError | None:
    served = read_note(files, root)
    ids = journal_ids(files, root / CURRENT)
    if served is None:
        return None
    path = root / CURRENT / layout.file_name(served.journal_id)
    if served.journal_id in ids and not has_begin(files, path):
        what = "its first bytes are missing: it was cut or overwritten"
    elif max(ids, default=-1) < served.journal_id:
        what = (
            "neither it nor a later one is there: the directory was emptied, or an older copy of "
            "it put back"
        )
    else:
        return None
    go_on = _GO_ON.format("BK-JOURNAL-MISSING")
    message = f"{root / SERVED} says that this journal was begun; {what}; {go_on}"
    return JournalMissingError(path, None, message)
