"""What a bookie's directories have held, so that an emptied one is not taken for a new one.

A directory that was emptied but for its cookie looks like one that nothing was ever written to, and
journals that were put back from an older copy like all there ever were. A bookie that started on
these would answer "no such entry" for what it has acknowledged, and a recovery takes that for
proof: with equal write and ack quorums it closes a ledger in front of confirmed entries. So beside
``current`` lie two notes that go with the root and not with its contents: ``bookied.journal`` names
the last journal that ours has begun (see ``last_journal_note``); ``bookied.held`` says what a
checkpoint has found in a directory.

    entries    a ledger directory has had a mark, the last log id or an entry log
    index      an index directory has had index files, or both databases with something in them

None of these goes away in the life of a bookie, be it ours or Java's: logs and index files do,
marks and the directories of index files do not. A note comes after what it tells of is durable, so
that no crash leaves a note alone, and before a mark says that the journals are not needed any more.
Both go before a directory gets a cookie for the first time.

A root that is lost as a whole loses its note with it. So ``bookied.held`` of each journal root also
has a line ``KIND:ROOT`` for each other root: a new directory to which only a cookie was copied is
found by it.
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
from bookied.storage.files.files import Files
from bookied.storage.index.format import DIRECTORY_NAME
from bookied.storage.index.rocks.format import LEDGERS, LOCATIONS
from bookied.storage.journal import format as layout
from bookied.storage.journal.crash_or_damage import has_begin
from bookied.storage.journal.mark import MARK_NAME
from bookied.storage.journal.reader import journal_ids

NAME: Final = "bookied.held"

NOT_MOVED: Final[Mapping[Path, Path]] = MappingProxyType({})

log = Logger()


class ContentKind(enum.Enum):
    """A kind of data; the value is what the file says."""

    ENTRIES = "entries"
    INDEX = "index"


@attrs.frozen
class DirectoryLoss:
    """A root that has lost what it held, and what says so."""

    root: Path
    error: CorruptError
    held: ContentKind | None
    """What is gone; None for journals."""


def losses(
    files: Files, found: Directories, former: Mapping[Path, Path] = NOT_MOVED
) -> Iterator[DirectoryLoss]:
    """Give the roots that were emptied, or have less than they once had. Blocks.

    ``former`` has the former path of each root that was moved, by its path now.

    Raises:
        OSError: a directory cannot be read.
    """
    for root in found.roots:
        if not files.exists(root / CURRENT):
            continue  # The cookies say so.
        missing = _ever_held(files, found, root, former) - contents_of(files, root)
        for kind in sorted(missing & _kinds(found, root), key=lambda one: one.value):
            what = f"{_EMPTIED[kind]}; {_GO_ON.format('BK-DIRECTORY-EMPTIED')}"
            yield DirectoryLoss(root, DirectoryEmptiedError(root / CURRENT, None, what), kind)
        if root in found.journals and (error := _lost_journal(files, root)) is not None:
            yield DirectoryLoss(root, error, None)


def check_losses(files: Files, found: Directories) -> None:
    """Insist that every directory has what it held. Blocks.

    Raises:
        DirectoryEmptiedError: one was emptied.
        JournalMissingError: the last journal that was begun is gone, or its begin is.
        OSError: a directory cannot be read.
    """
    for loss in losses(files, found):
        raise loss.error


def foreign_contents(files: Files, found: Directories, root: Path) -> list[str]:
    """Return what a root holds although the settings name it for something else. Blocks."""
    foreign = [kind.value for kind in contents_of(files, root) - _kinds(found, root)]
    if root not in found.journals and journal_ids(files, root / CURRENT):
        foreign.append("journals")
    return sorted(foreign)


def note_moves(files: Files, found: Directories, former: Mapping[Path, Path]) -> None:
    """Let the notes of the journal roots name the roots that were moved by their new paths. Blocks.

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
    """Remove the notes of a root, which begins anew. Blocks."""
    _remove(files, root / SERVED)
    _remove(files, root / NAME)
    _drop(files, found, root, frozenset(ContentKind))


def forget_loss(files: Files, found: Directories, loss: DirectoryLoss) -> None:
    """Begin anew with what was lost, and with nothing else. Blocks."""
    if loss.held is None:
        _remove(files, loss.root / SERVED)
    else:
        _drop(files, found, loss.root, frozenset({loss.held}))


def forget_index(files: Files, found: Directories, root: Path) -> None:
    """Let the next checkpoint say anew whether a root holds an index. Blocks."""
    _drop(files, found, root, frozenset({ContentKind.INDEX}))


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
    """Writes the notes of one bookie's directories; all methods block."""

    def __init__(self, files: Files, found: Directories) -> None:
        self.files, self.found = files, found
        self._open = {root: _kinds(found, root) for root in found.roots if _kinds(found, root)}
        """What may have to be noted yet."""

    def update(self) -> None:
        """Note what has come into the directories, all of which is durable.

        Where that fails the next call tries again: it costs a warning, no data.
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
        """Return what a root has held, after it was put down."""
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
}


def _kinds(found: Directories, root: Path) -> frozenset[ContentKind]:
    kinds = ((ContentKind.ENTRIES, found.ledgers), (ContentKind.INDEX, found.indexes))
    return frozenset(kind for kind, roots in kinds if root in roots)


def _keepers(found: Directories, root: Path) -> tuple[Path, ...]:
    """Return the roots whose notes tell of this one: itself, and the journals'."""
    return tuple(dict.fromkeys((root, *found.journals)))


def _line(keeper: Path, root: Path, kind: ContentKind) -> str:
    return kind.value if keeper == root else f"{kind.value}:{root}"


def _ever_held(
    files: Files, found: Directories, root: Path, former: Mapping[Path, Path] = NOT_MOVED
) -> frozenset[ContentKind]:
    """Return what the notes say; nothing if there is none, or none that can be read."""
    noted = {keeper: _lines(files, keeper) for keeper in _keepers(found, root)}
    names = {root, former.get(root, root)}
    return frozenset(
        kind
        for kind in ContentKind
        if any(_line(keeper, name, kind) in noted[keeper] for keeper in noted for name in names)
    )


def _lines(files: Files, root: Path) -> frozenset[str]:
    try:
        return frozenset(files.read(root / NAME).decode("utf-8", "replace").splitlines())
    except FileNotFoundError:
        return frozenset()


def _write(files: Files, root: Path, lines: frozenset[str]) -> None:
    files.write_atomic(root / NAME, "".join(f"{line}\n" for line in sorted(lines)).encode())


def contents_of(files: Files, root: Path) -> frozenset[ContentKind]:
    """Return what a root holds now, whatever the settings name it for. Blocks."""
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
