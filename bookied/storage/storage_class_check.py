"""The kind of index in a bookie's directories, checked against the configured kind.

Java does not check: after a change of ``ledgerStorageClass`` it starts with an empty index beside
the old one. It treats every ledger as absent and, once the collector has run, deletes the logs.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Final

from bookied.config.storage import StorageClass
from bookied.errors import StorageKindError
from bookied.storage.files.files import Files
from bookied.storage.index.file_names import MOVING, ledger_id
from bookied.storage.index.index_files.paths import index_files
from bookied.storage.index.rocks.format import LEDGERS, LOCATIONS

CURRENT: Final = "CURRENT"
"""The file that marks a directory as a RocksDB database."""

_CONVERT: Final = "or convert the directories, with the bookie stopped: bkctl disk convert --to "


def has_databases(files: Files, directory: Path) -> bool:
    """Return whether an index directory (its ``current``) has DbLedgerStorage's index."""
    return any(files.exists(directory / name / CURRENT) for name in (LEDGERS, LOCATIONS))


def has_index_files(files: Files, directory: Path) -> bool:
    """Return whether an index directory has an index file of a ledger."""
    names = (path.name.removesuffix(MOVING) for path in index_files(files, directory))
    return any(ledger_id(name) is not None for name in names)


def check_kind(files: Files, kind: StorageClass, index_directories: Sequence[Path]) -> None:
    """Check that the directories have no index of another kind than ``kind``.

    Raises:
        StorageKindError: they have one; the message says what to do.
        OSError: a directory cannot be read.
    """
    for directory in index_directories:
        if kind is StorageClass.DB:
            if has_index_files(files, directory):
                raise StorageKindError(
                    f"{directory} holds index files, which DbLedgerStorage does not read: set "
                    "ledgerStorageClass=org.apache.bookkeeper.bookie.SortedLedgerStorage, "
                    f"{_CONVERT}db"
                )
        elif has_databases(files, directory):
            raise StorageKindError(
                f"{directory} holds the RocksDB index of DbLedgerStorage, which {kind.value} does "
                "not read: set ledgerStorageClass=org.apache.bookkeeper.bookie.storage.ldb."
                f"DbLedgerStorage, {_CONVERT}interleaved"
            )
