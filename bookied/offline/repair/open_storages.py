"""The storages of a stopped bookie for a tool that writes to them, of the kind of its files."""

from __future__ import annotations

from pathlib import Path

from bookied.config.storage import StorageClass
from bookied.directories.emptied_directories import ContentsNotes
from bookied.directories.roots import Directories
from bookied.offline.settings import OfflineConfig
from bookied.storage.entrylog.log_file import LogSettings
from bookied.storage.files.files import Files
from bookied.storage.index.index_files.index import IndexFiles
from bookied.storage.index.key_value_store import KeyValues
from bookied.storage.index.rocks.index import RocksIndex
from bookied.storage.index.store import IndexStore
from bookied.storage.ledger_storage.storage import LedgerStorage
from bookied.storage.ledger_storage.storage_limits import StorageEvents
from bookied.storage.storage_class_check import check_kind, has_databases
from bookied.storage.storages import Storages


def open_rocks(path: Path) -> KeyValues:
    """Open one of an index's databases as the bookie does; create a missing one.

    Raises:
        DatabaseInUseError: another process has opened the database.
        DbRecordError: the database is damaged.
        OSError: the database cannot be read or written.
    """
    from bookied.config.db import RocksSettings
    from bookied.storage.index.rocks.database import open_of_index

    return open_of_index(RocksSettings(), path)


def open_rocks_read_only(path: Path) -> KeyValues:
    """Open one of an index's databases to read it.

    Raises:
        FileNotFoundError: the database is missing. Other errors as for ``open_rocks``.
    """
    from bookied.storage.index.rocks.database import open_read_only

    return open_read_only(path)


def holds_databases(files: Files, found: Directories) -> bool:
    """Return whether the index is that of DbLedgerStorage."""
    return any(has_databases(files, directory) for directory in found.index_dirs)


def storages_of(
    files: Files, found: Directories, config: OfflineConfig | None = None, *, as_found: bool = False
) -> Storages:
    """Return the storages of the kind that the directories have, not open yet.

    Sorted and Interleaved are one kind. Without an index the settings decide. With ``as_found`` the
    settings may name another kind, to which the directories are to be converted.

    Raises:
        StorageKindError: the settings name another kind.
        DirectoryError: DbLedgerStorage cannot pair the directories.
    """
    settings = config or OfflineConfig()
    is_db = holds_databases(files, found)
    if config is not None and not as_found:
        check_kind(files, config.storage_class, found.index_dirs)
        is_db = config.storage_class is StorageClass.DB

    def storage(directories: tuple[Path, ...], index: IndexStore) -> LedgerStorage:
        return LedgerStorage(
            files,
            directories,
            index,
            events=StorageEvents(
                on_fatal=lambda _error: None
            ),  # Only a thread's failure: here errors are raised.
            log_settings=LogSettings(direct=False, size_bytes_max=settings.log_bytes_max),
            index_version=settings.file_info_format_version,
        )

    noted = ContentsNotes(files, found).update
    if not is_db:
        only = storage(found.ledger_dirs, IndexFiles(files, found.index_dirs))
        return Storages(files, [only], before_marks=noted)
    return Storages(
        files,
        [storage((ledgers,), RocksIndex(index, open_rocks)) for ledgers, index in found.pairs()],
        before_marks=noted,
    )
