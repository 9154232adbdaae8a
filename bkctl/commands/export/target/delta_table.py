"""The Delta table over an export: ``_delta_log`` beside the files, and one Delta commit per run.

Readers of the table see all files of a run or none. The version of a Delta commit's transaction is
the run's number, so a run that is committed twice is in the table once. A replaced file leaves the
table and stays on disk: older versions of the table list it, until ``VACUUM`` removes it.

Agrees with the transaction protocol of Delta Lake (actions add, remove and txn). The library
``deltalake`` writes the Delta log.
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
        DeltaMissingError: ``deltalake`` is not installed.
    """
    try:
        import deltalake  # noqa: F401
    except ImportError as error:
        raise DeltaMissingError("--format delta needs deltalake, which is not installed") from error


def check_table(files: TargetFiles, tree: TargetTree, removed: Collection[str]) -> None:
    """Check that the table belongs to this export, and lists the files that a run replaces.

    Raises:
        ForeignFilesError: another program made the Delta table, or no table is possible there.
        TableChangedError: the table lacks runs of this export, or files in ``removed``.
        ExportWriteError: the Delta log cannot be read.
    """
    if tree.run == 0:
        if files.names(LOG_FOLDER):
            raise _foreign(files.uri)
        if "%" in files.uri:  # deltalake decodes the URI, and searches another directory.
            raise ForeignFilesError(f"{files.uri} has a % in its name, which no Delta table may")
        return
    table = _opened(files.uri)
    found = 0 if table is None else _last_run(table, tree.cluster)
    if found != tree.run:
        raise TableChangedError(_lacking(files.uri, found, tree.run))
    _check_lists(table, removed)


def _check_lists(table: Any, removed: Collection[str]) -> None:
    """Refuse to replace files outside the table: another program may have rewritten their rows.

    Raises:
        TableChangedError: the table lacks a file.
    """
    listed = _listed(table) if removed else frozenset()
    for path in removed:
        if path not in listed:
            raise TableChangedError(
                f"{path} is to be written again, but the Delta table no longer lists it"
            )


def listed_files(uri: str) -> frozenset[str]:
    """Return the paths of the files in the table; empty without a table.

    Raises:
        ExportWriteError: the Delta log cannot be read.
    """
    table = _opened(uri)
    return frozenset() if table is None else _listed(table)


def publish(uri: str, record: RunRecord, added: Collection[str]) -> None:
    """Commit a run to the table in one Delta commit, unless the table has the run already.

    ``added`` are the paths of the run's new files, which are in place.

    Raises:
        ForeignFilesError: another program made the Delta table.
        TableChangedError: the table lacks an earlier run, or a file that this run replaces.
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
    """Return the table, or None if it does not exist."""
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
    """Return the paths of the files in the table."""
    import pyarrow as pa

    paths: Sequence[str] = pa.table(table.get_add_actions()).column("path").to_pylist()
    return frozenset(map(unquote, paths))


def _partition_columns(layout: str) -> list[str]:
    column = PARTITION_COLUMNS.get(layout)
    return [] if column is None else [column]


def _schema(layout: str) -> Any:
    """Return the table's columns: the columns of the rows, and that of the directories."""
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
    """Return the statistics by which readers skip a file, from its task's report."""
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
