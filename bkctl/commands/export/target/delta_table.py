"""The Delta table over an export: ``_delta_log`` beside the files, and one Delta commit a run.

Readers of the table see all files of a run or none. Each Delta commit has the number of its run as
the version of its transaction, so a run that is committed twice is in the table once. A file that
a run replaces leaves the table and stays on disk: older versions of the table have it, until
``VACUUM`` removes it.

Agrees with the transaction protocol of Delta Lake (actions add, remove and txn). The Delta log is
written by the library ``deltalake``.
"""

from __future__ import annotations

import json
import time
from collections.abc import Collection, Sequence
from typing import TYPE_CHECKING, Any, Final
from urllib.parse import unquote

from bkctl.commands.export.errors import (
    DeltaMissingError,
    ExportWriteError,
    ForeignFilesError,
    TableChangedError,
)
from bkctl.commands.export.target.manifest import RunRecord, TargetTree
from bkctl.commands.export.target.new_since_last import NULL_FOLDER
from bkctl.commands.export.task.arrow_schema import arrow_schema
from bkctl.commands.export.task.parquet_file import WrittenFile

if TYPE_CHECKING:
    import pyarrow as pa

    from bkctl.commands.export.target.file_systems import TargetFiles

LOG_FOLDER: Final = "_delta_log"
PARTITION_COLUMNS: Final = {"day": "day", "log": "log"}
"""The column that a layout's directories add to the rows."""


def check_library() -> None:
    """Check that ``deltalake`` is installed.

    Raises:
        DeltaMissingError: it is not.
    """
    try:
        import deltalake  # noqa: F401
    except ImportError as error:
        raise DeltaMissingError("--format delta needs deltalake, which is not installed") from error


def check_table(files: TargetFiles, tree: TargetTree, removed: Collection[str]) -> None:
    """Check that the table is the one of this export, and lists the files that a run replaces.

    Raises:
        ForeignFilesError: there is a Delta table that no export made, or can be none.
        TableChangedError: the table lacks runs of this export, or files in ``removed``.
        ExportWriteError: the Delta log cannot be read.
    """
    if tree.run == 0:
        if files.names(LOG_FOLDER):
            raise _foreign(files.uri)
        if "%" in files.uri:  # deltalake decodes it, and looks in another directory.
            raise ForeignFilesError(f"{files.uri} has a % in its name, which no Delta table may")
        return
    table = _opened(files.uri)
    found = 0 if table is None else _last_run(table, tree.cluster)
    if found != tree.run:
        raise TableChangedError(_lacking(files.uri, found, tree.run))
    _check_lists(table, removed)


def _check_lists(table: Any, removed: Collection[str]) -> None:
    """Refuse to replace files that others took out of the table: their rows may be in other files.

    Raises:
        TableChangedError: the table lacks one.
    """
    listed = _listed(table) if removed else frozenset()
    for path in removed:
        if path not in listed:
            raise TableChangedError(
                f"{path} is to be written again, but the Delta table no longer lists it"
            )


def listed_files(uri: str) -> frozenset[str]:
    """Return the paths of the files that are in the table; none where there is no table.

    Raises:
        ExportWriteError: the Delta log cannot be read.
    """
    table = _opened(uri)
    return frozenset() if table is None else _listed(table)


def publish(uri: str, record: RunRecord, added: Collection[str]) -> None:
    """Put a run into the table in one Delta commit, unless the table has the run already.

    ``added`` are the paths of the files that are new with this run. The files are in place.

    Raises:
        ForeignFilesError: there is a Delta table that no export made.
        TableChangedError: runs before this one are not in the table, or a file that this one
            replaces.
        ExportWriteError: the Delta log cannot be read or written.
    """
    from deltalake import CommitProperties, Transaction
    from deltalake.exceptions import DeltaError
    from deltalake.transaction import create_table_with_add_actions

    table = _opened(uri)
    found = 0 if table is None else _last_run(table, record.cluster)
    if found >= record.run:
        return
    if found != record.run - 1:
        raise TableChangedError(_lacking(uri, found, record.run))
    if table is not None and record.run == 1:
        raise _foreign(uri)
    _check_lists(table, record.removed)
    schema, columns = _schema(record.layout), _partition_columns(record.layout)
    now_ms = time.time_ns() // 1_000_000
    chosen = frozenset(added)
    adds = [_add(record.layout, file, now_ms) for file in record.files if file.path in chosen]
    properties = CommitProperties(
        app_transactions=[Transaction(_app_id(record.cluster), record.run, now_ms)]
    )
    try:
        if table is None:
            create_table_with_add_actions(
                uri, schema, adds, partition_by=columns, commit_properties=properties
            )
        else:
            actions = [*adds, *(_remove(path, now_ms) for path in record.removed)]
            table.create_write_transaction(
                actions, "append", schema, columns, commit_properties=properties
            )
    except (DeltaError, OSError) as error:
        raise _not_written(uri, error) from error


def _opened(uri: str) -> Any:
    """Return the table; None where there is none."""
    from deltalake import DeltaTable
    from deltalake.exceptions import DeltaError, TableNotFoundError

    try:
        return DeltaTable(uri)
    except TableNotFoundError:
        return None
    except (DeltaError, OSError) as error:
        raise _not_written(uri, error) from error


def _not_written(uri: str, error: Exception) -> ExportWriteError:
    return ExportWriteError(
        f"the Delta table in {uri} cannot be read or written: {error}; export again to finish"
    )


def _foreign(uri: str) -> ForeignFilesError:
    return ForeignFilesError(f"{uri} holds a Delta table that no export made")


def _lacking(uri: str, found: int, made: int) -> str:
    return f"the Delta table in {uri} has {found} of the {made} runs of this export"


def _app_id(cluster: str | None) -> str:
    return f"bkctl-export/{cluster}"


def _last_run(table: Any, cluster: str | None) -> int:
    version: int | None = table.transaction_version(_app_id(cluster))
    return version or 0


def _listed(table: Any) -> frozenset[str]:
    """Return the paths of the files that are in the table."""
    import pyarrow as pa

    paths: Sequence[str] = pa.table(table.get_add_actions()).column("path").to_pylist()
    return frozenset(map(unquote, paths))


def _partition_columns(layout: str) -> list[str]:
    column = PARTITION_COLUMNS.get(layout)
    return [] if column is None else [column]


def _schema(layout: str) -> Any:
    """Return the table's columns: those of the rows, and the one of the directories."""
    import pyarrow as pa
    from deltalake import Schema

    kinds: dict[str, pa.DataType] = {"day": pa.date32(), "log": pa.string()}
    columns = arrow_schema()
    for name in _partition_columns(layout):
        columns = columns.append(pa.field(name, kinds[name]))
    return Schema.from_arrow(columns)


def _add(layout: str, file: WrittenFile, now_ms: int) -> Any:
    from deltalake.transaction import AddAction

    values = _partition_values(layout, file.path)
    return AddAction(file.path, file.size, values, now_ms, data_change=True, stats=_stats(file))


def _remove(path: str, now_ms: int) -> Any:
    from deltalake.transaction import RemoveAction

    return RemoveAction(path, data_change=True, deletion_timestamp=now_ms)


def _partition_values(layout: str, path: str) -> dict[str, str | None]:
    """Return the value of a file's partition column, from the name of its directory."""
    folders = dict(name.split("=", 1) for name in path.split("/")[:-1])
    found = {name: folders[name] for name in _partition_columns(layout)}
    return {name: None if it == NULL_FOLDER else unquote(it) for name, it in found.items()}


def _stats(file: WrittenFile) -> str:
    """Return what readers skip files by, from what the task reported."""
    ledgers = [one.ledger_id for one in file.ranges]
    return json.dumps(
        {
            "numRecords": file.rows,
            "minValues": {
                "ledger_id": min(ledgers),
                "entry_id": min(one.first for one in file.ranges),
            },
            "maxValues": {
                "ledger_id": max(ledgers),
                "entry_id": max(one.last for one in file.ranges),
            },
            "nullCount": {"ledger_id": 0, "entry_id": 0},
        }
    )
