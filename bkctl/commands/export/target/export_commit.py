"""The commit of an export: it moves files into place and records the run, also across crashes.

1. Tasks write below ``_bkctl-tmp-<random>/``, which Spark ignores.
2. ``_bkctl/commit.json`` is written with the run's record and the moves to make. From then on the
   run is decided: the next run in the directory finishes the moves.
3. Files that the run replaces move into the staging directory, new files move to their places.
4. ``_bkctl/run-<n>.json`` is written, and the run is committed to the Delta table, if any.
5. ``commit.json`` and the staging directory are removed.

If a move fails, the earlier moves are undone and ``commit.json`` is removed: the directory is then
unchanged. An export that has lost its lock after a long pause undoes and removes nothing: the next
export finishes the run, or has finished it.
"""

from __future__ import annotations

import contextlib
import itertools
import json
import uuid
from collections.abc import Iterable, Iterator, Sequence
from typing import Final

import attrs

from bkctl.commands.export.target.arrow_file_systems import DRAFT_SUFFIX
from bkctl.commands.export.target.delta_table import LOG_FOLDER, publish
from bkctl.commands.export.target.file_systems import TargetFiles
from bkctl.commands.export.target.manifest import (
    DELTA,
    FOLDER,
    ManifestError,
    RunRecord,
    TargetTree,
    decode_run,
    path_within,
    run_from_json,
    run_number,
)

STAGING_PREFIX: Final = "_bkctl-tmp-"
COMMIT_PATH: Final = f"{FOLDER}/commit.json"


@attrs.frozen
class Commit:
    """A decided run: its record, and the moves (from, to) that put its files in place.

    ``added`` are the paths of the files that this run adds to a Delta table.
    """

    staging: str
    moves: tuple[tuple[str, str], ...]
    record: RunRecord
    added: tuple[str, ...] = ()

    def encode(self) -> bytes:
        """Return the commit in its stored form."""
        value = {
            "staging": self.staging,
            "moves": [list(move) for move in self.moves],
            "record": self.record.to_json(),
            "added": list(self.added),
        }
        return json.dumps(value, separators=(",", ":")).encode()


def decode_commit(stored: bytes) -> Commit:
    """Return the commit from the stored form of ``Commit.encode``.

    Raises:
        ManifestError: the stored form is invalid.
    """
    try:
        value = json.loads(stored)
        moves = tuple((path_within(old), path_within(new)) for old, new in value["moves"])
        added = tuple(map(path_within, value.get("added", ())))
        return Commit(path_within(value["staging"]), moves, run_from_json(value["record"]), added)
    except (ValueError, TypeError, KeyError, RecursionError) as error:
        raise ManifestError(f"{COMMIT_PATH} cannot be read: {error!r}") from error


def load_tree(files: TargetFiles, *, finish: bool = True) -> TargetTree:
    """Return the sum of all committed runs; finish an interrupted commit first.

    Call this only under the directory's lock, or without ``finish``, which changes nothing.

    Raises:
        ManifestError: a record is missing or cannot be read.
        OSError: the file system reports an error.
        ExportWriteError: the Delta log of an interrupted commit cannot be written.
    """
    if finish:
        _finish_interrupted(files)
    runs = sorted(n for name in files.names(FOLDER) if (n := run_number(name)) is not None)
    records: list[RunRecord] = []
    for number in reversed(runs):
        path = f"{FOLDER}/run-{number:06d}.json"
        record = decode_run(f"{files.uri}/{path}", files.read(path) or b"")
        if records and number != records[-1].run - 1:
            raise ManifestError(f"{files.uri}/{FOLDER}/run-{number + 1:06d}.json is missing")
        records.append(record)
        if record.is_full:
            break
    if records and not records[-1].is_full and records[-1].run != 1:
        raise ManifestError(f"{files.uri}/{FOLDER}/run-{records[-1].run - 1:06d}.json is missing")
    tree = TargetTree()
    for record in reversed(records):
        tree.apply(record)
    return tree


def _finish_interrupted(files: TargetFiles) -> None:
    stored = files.read(COMMIT_PATH)
    if stored is not None:
        _carry_out(files, decode_commit(stored))


def sweep_staging(files: TargetFiles) -> None:
    """Remove files of killed runs.

    Call this only under the directory's lock, after ``load_tree``.
    """
    for name in files.names():
        if name.startswith(STAGING_PREFIX):
            files.remove(name)
    for name in files.names(FOLDER):
        if name.endswith(DRAFT_SUFFIX):
            files.remove(f"{FOLDER}/{name}")


@contextlib.contextmanager
def staging(files: TargetFiles) -> Iterator[str]:
    """Make a staging directory, yield its name, and always remove the directory afterwards.

    Tasks do not make it: a local task that Spark has given up leaves no file after its removal.
    """
    name = STAGING_PREFIX + uuid.uuid4().hex
    if not files.is_object_store:
        files.child(name).make_root()
    try:
        yield name
    finally:
        # The next run removes it; the error being raised is more important.
        with contextlib.suppress(OSError):
            if not files.exists(COMMIT_PATH):
                files.remove(name)


READY: Final = "_ready"
"""The directory in the staging directory for the files of a run, and no others."""


def gather(files: TargetFiles, staged: str, paths: Iterable[str]) -> str:
    """Move the files that tasks reported to their own directory; return its path.

    A failed attempt, or one that Spark has given up but that still runs, leaves other files. These
    must not be in the directories that are moved into place. In an object store the files stay in
    place.

    Raises:
        OSError: the file system reports an error.
    """
    ready = f"{staged}/{READY}"
    if files.is_object_store:  # An object store moves files one by one, so no other file is moved.
        return staged
    moves = [(f"{staged}/{path}", f"{ready}/{path}") for path in paths]
    for source, target in moves:
        files.move(source, target)
    files.settle_moves(target for _, target in moves)
    return ready


def moves_of(
    staged: str, ready: str, added: Sequence[tuple[str, str]], removed: Sequence[str]
) -> tuple[tuple[str, str], ...]:
    """Return the moves of a run: first the replaced files, then the new ones.

    ``added`` are pairs of a path below ``ready`` and the final path. Replaced files move below
    ``staged``.
    """
    away = [(path, f"{staged}/_old/{path}") for path in removed]
    return (*away, *((f"{ready}/{source}", target) for source, target in added))


def commit(files: TargetFiles, change: Commit) -> None:
    """Move a run into place, completely or not at all.

    Raises:
        BlockingIOError: the lock was lost; the export that has it finishes the run.
        OSError: the file system refused a move; the moves before it were undone.
        ExportWriteError: the files are in place, but the Delta log cannot be written; the next run
            in the directory writes it.
    """
    files.check_locked()
    files.put(COMMIT_PATH, change.encode())
    begun = 0
    try:
        for source, target in change.moves:
            begun += 1
            files.move(source, target)
    except OSError:
        files.check_locked()
        for source, target in reversed(change.moves[:begun]):
            # The failed move may have been made: its answer was lost.
            if not files.exists(source):
                files.finish_move(target, source)
        files.settle_moves(_paths_of(change))
        files.remove(COMMIT_PATH)
        raise
    _record(files, change)


def _carry_out(files: TargetFiles, change: Commit) -> None:
    """Finish a commit that was interrupted at any point: each move is made once."""
    for source, target in change.moves:
        files.finish_move(source, target)
    _record(files, change)


def _paths_of(change: Commit) -> Iterable[str]:
    return itertools.chain.from_iterable(change.moves)


def _record(files: TargetFiles, change: Commit) -> None:
    files.settle_moves(_paths_of(change))
    files.check_locked()
    files.put(change.record.path, change.record.encode())
    if change.record.table_format == DELTA:
        files.names(LOG_FOLDER)  # This fails at a symbolic link, which deltalake would follow.
        publish(files.uri, change.record, change.added)
    # First the staging directory: only commit.json shows that its removal is safe.
    files.remove(change.staging)
    files.check_locked()  # Without the lock, commit.json may belong to the next export.
    files.remove(COMMIT_PATH)
    if change.record.is_full:
        for name in files.names(FOLDER):
            number = run_number(name)
            if number is not None and number < change.record.run:
                files.remove(f"{FOLDER}/{name}")
