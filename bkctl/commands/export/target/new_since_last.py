"""The changes of an export: the ledgers' current extents compared with the directory's record.

``target.manifest`` has this record, one part for each run.
"""

from __future__ import annotations

import datetime as dt
from collections.abc import Iterable, Mapping, Sequence
from typing import Final
from urllib.parse import quote

import attrs

from bkctl.commands.export.errors import ExportVerifyError, ForeignFilesError
from bkctl.commands.export.target.manifest import TargetTree
from bkctl.commands.export.task.parquet_file import WrittenFile
from bkctl.commands.export.task.partitions import LedgerExtent
from wire.ids import EntryId

LAYOUTS: Final = ("ledger", "none", "day", "log")
"""The arrangements of files: one directory per ledger, or shared files, by nothing, day or log."""

NULL_FOLDER: Final = "__HIVE_DEFAULT_PARTITION__"
"""The part of a directory name that Spark reads as null."""


@attrs.frozen
class ExportChange:
    """The changes of a run.

    ``todo`` are the extents to copy, ``removed`` the files that these copies replace, ``noted`` the
    ledgers whose state alone is recorded, ``unchanged`` the ids of unchanged ledgers. ``damaged``
    are ledgers that are copied again because a file is missing or has another size. ``recopied`` is
    the content of replaced shared files; it changes no ledger's end.
    """

    todo: tuple[LedgerExtent, ...]
    removed: tuple[str, ...]
    noted: tuple[LedgerExtent, ...]
    unchanged: frozenset[int]
    damaged: tuple[int, ...] = ()
    recopied: tuple[LedgerExtent, ...] = ()

    @property
    def parts(self) -> tuple[LedgerExtent, ...]:
        """All extents to copy; a ledger may have several."""
        return *self.todo, *self.recopied


def folder_of(layout: str, extent: LedgerExtent) -> str:
    """Return the directory, below the target or the run's directory, for a ledger's files."""
    if layout == "ledger":
        return f"ledger={extent.ledger_id}"
    if layout == "day":
        if extent.ctime_ms is None:
            return f"day={NULL_FOLDER}"
        day = dt.datetime.fromtimestamp(extent.ctime_ms / 1000, tz=dt.timezone.utc).date()
        return f"day={day.isoformat()}"
    if layout == "log":
        return f"log={NULL_FOLDER if extent.log is None else quote(extent.log, safe=' ')}"
    return ""


def in_order(layout: str, extents: Iterable[LedgerExtent]) -> list[LedgerExtent]:
    """Return parts of ledgers in the order of the rows: by folder, then by id and entry."""

    def key(extent: LedgerExtent) -> tuple[str, int, int]:
        folder = "" if layout == "ledger" else folder_of(layout, extent)
        return folder, extent.ledger_id, extent.first_entry_id

    return sorted(extents, key=key)


def check_ours(tree: TargetTree, cluster: str, layout: str, table_format: str, target: str) -> None:
    """Refuse the directory of another cluster's export, layout or format.

    Raises:
        ForeignFilesError: the directory has another cluster, layout or format.
    """
    if tree.cluster not in (None, cluster):
        raise ForeignFilesError(
            f"{target} holds an export of cluster {tree.cluster}; this is cluster {cluster}"
        )
    if tree.layout not in (None, layout):
        raise ForeignFilesError(
            f"{target} is arranged by {tree.layout}; this export would arrange it by {layout}: "
            f"leave out --partition-by"
        )
    if tree.table_format not in (None, table_format):
        raise ForeignFilesError(
            f"{target} holds an export with --format {tree.table_format}; this is {table_format}: "
            f"leave out --format"
        )


def check_strangers(tree: TargetTree, sizes: Mapping[str, int], target: str) -> None:
    """Refuse a directory with files of other programs that Spark would read.

    Files below a name that begins with ``_`` or ``.`` are ignored, as Spark ignores them.

    Raises:
        ForeignFilesError: the directory has other files; the message names one.
    """
    for path in sizes:
        is_hidden = any(name.startswith(("_", ".")) for name in path.split("/"))
        if not is_hidden and path not in tree.files:
            raise ForeignFilesError(f"{target}/{path} is not from an export of this cluster")


def find_changes(
    tree: TargetTree,
    extents: Sequence[LedgerExtent],
    sizes: Mapping[str, int],
    *,
    again: bool,
    replaces_lost: bool = True,
) -> ExportChange:
    """Return the changes for ``extents``; ``sizes`` are the sizes of existing files.

    Confirmed entries never change, so only the new entries of a grown ledger are copied. Without
    ``replaces_lost`` this also applies to ledgers with missing or changed files. Shared files are
    replaced with their complete content, also of other ledgers.

    Raises:
        ExportVerifyError: a ledger ends before its exported entries.
        ForeignFilesError: a shared file has entries of another ledger with the same id.
    """
    files = tree.files_of(extent.ledger_id for extent in extents)
    todo, noted, unchanged, damaged = [], [], set[int](), list[int]()
    replaced: dict[str, WrittenFile] = {}
    for extent in extents:
        mine = files.get(extent.ledger_id, [])
        known = tree.ledgers.get(extent.ledger_id)
        lost = [f for f in mine if replaces_lost and sizes.get(f.path) != f.size]
        is_replaced = again or bool(lost)
        if lost:
            damaged.append(extent.ledger_id)
        if known is None:
            todo.append(extent)
        elif tree.layout == "ledger" and (is_replaced or is_another(tree, extent)):
            replaced.update((file.path, file) for file in mine)
            todo.append(extent if is_another(tree, extent) else _not_before(known, extent))
        elif is_another(tree, extent):
            raise ForeignFilesError(_shared_by_another(extent))
        else:
            replaced.update((file.path, file) for file in (mine if again else lost))
            if (rest := _rest(known, extent)) is not None:
                todo.append(rest)
            elif (news := _ending_with(known, extent)) != known:
                noted.append(news)
            elif not is_replaced:
                unchanged.add(extent.ledger_id)
    recopied = () if tree.layout == "ledger" else _all_in(tree, replaced.values())
    return ExportChange(
        tuple(todo),
        tuple(replaced),
        tuple(noted),
        frozenset(unchanged),
        tuple(damaged),
        recopied,
    )


def _all_in(tree: TargetTree, files: Iterable[WrittenFile]) -> tuple[LedgerExtent, ...]:
    """Return the recorded content of files."""
    return tuple(
        tree.ledgers[part.ledger_id].sliced(part.first, part.last)
        for file in files
        for part in file.ranges
    )


def is_another(tree: TargetTree, extent: LedgerExtent) -> bool:
    """Return whether the exported ledger with this id was another ledger."""
    known = tree.ledgers.get(extent.ledger_id)
    if known is None:
        return False
    # Metadata may have no creation time. A closed ledger does not grow.
    has_grown = known.is_closed and extent.last_entry_id > known.last_entry_id
    return known.ctime_ms != extent.ctime_ms or has_grown


def contradiction(tree: TargetTree, extent: LedgerExtent) -> str | None:
    """Return the reason why a ledger contradicts the exported entries of its id, or None."""
    known = tree.ledgers.get(extent.ledger_id)
    if known is None:
        return None
    if not is_another(tree, extent):
        return _shortened(known, extent)
    if tree.layout == "ledger":
        return (
            f"another ledger with the id {extent.ledger_id} was exported: "
            f"`bkctl export {extent.ledger_id} --to DIR` replaces its files"
        )
    return _shared_by_another(extent)


def deleted_early(known: LedgerExtent) -> str:
    """Return the reason why the last entries of an exported ledger may be missing."""
    return (
        f"ledger {known.ledger_id} was deleted since: it was exported up to entry "
        f"{known.last_entry_id}, and later entries, if any, are lost"
    )


def _shared_by_another(extent: LedgerExtent) -> str:
    return (
        f"another ledger with the id {extent.ledger_id} was exported, and shares files: "
        "export this one to another directory"
    )


def _shortened(known: LedgerExtent, extent: LedgerExtent) -> str | None:
    if not extent.is_closed or extent.last_entry_id >= known.last_entry_id:
        return None
    return (
        f"ledger {extent.ledger_id} is closed at entry {extent.last_entry_id}, and was "
        f"exported up to {known.last_entry_id}"
    )


def _rest(known: LedgerExtent, extent: LedgerExtent) -> LedgerExtent | None:
    """Return the new entries of a ledger, or None."""
    if (reason := _shortened(known, extent)) is not None:
        raise ExportVerifyError(reason)
    if extent.last_entry_id <= known.last_entry_id:
        return None
    return attrs.evolve(
        extent,
        first_entry_id=EntryId(known.last_entry_id + 1),
        length=max(0, extent.length - known.length),
    )


def _not_before(known: LedgerExtent, extent: LedgerExtent) -> LedgerExtent:
    """Return the extent; for an open ledger, not ending before the known extent.

    Exported entries are confirmed, but bookies may now report a lower LAC.
    """
    is_shorter = not extent.is_closed and extent.last_entry_id < known.last_entry_id
    return _ending_with(known, extent) if is_shorter else extent


def _ending_with(known: LedgerExtent, extent: LedgerExtent) -> LedgerExtent:
    """Return the extent with the end of the known extent."""
    return attrs.evolve(extent, last_entry_id=known.last_entry_id, length=known.length)


def whole(tree: TargetTree, part: LedgerExtent) -> LedgerExtent:
    """Return the extent to record after the export of ``part``, a ledger's new entries."""
    if part.first_entry_id == 0:
        return part
    known = tree.ledgers[part.ledger_id]
    return attrs.evolve(part, first_entry_id=EntryId(0), length=known.length + part.length)


def added_paths(
    layout: str,
    run: int,
    files: Sequence[WrittenFile],
    existing: frozenset[str],
    *,
    by_file: bool = False,
) -> list[tuple[str, str]]:
    """Return the moves (below staging, below the target) that put new files in place.

    A new directory moves as one, so readers see all its files or none. ``existing`` are the names
    at the top of the target. With ``by_file`` each file moves alone.
    """
    if by_file:
        return [(file.path, file.path) for file in files]
    if layout != "ledger":
        return [(f"run={run}", f"run={run}")] if files else []
    moves: dict[str, str] = {}
    for file in files:
        folder = file.path.partition("/")[0]
        source = file.path if folder in existing else folder
        moves[source] = source
    return list(moves.items())
