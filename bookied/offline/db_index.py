"""DbLedgerStorage's index of a stopped bookie, read only: see ``offline.index``."""

from __future__ import annotations

from array import array
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Final, cast

from bookied.errors import CorruptError, DbRecordError
from bookied.offline.index import IndexKind
from bookied.storage.index.key_value_store import KeyValues
from bookied.storage.index.ledger_pages import LedgerOnDisk
from bookied.storage.index.rocks import format as layout
from bookied.storage.index.rocks.database import open_read_only
from bookied.storage.index.rocks.index import RocksIndex

OPEN_TRIES: Final = 3
"""A running bookie may remove a table file while the database is being opened beside it."""


class DbIndex:
    """The databases of one index directory (its ``current``), as they are.

    One that cannot be opened is damage that every method raises; a ledger whose key or value is
    damaged is passed over and told by ``damage``.
    """

    kind: Final = IndexKind.DB

    def __init__(self, directory: Path) -> None:
        self._directory = directory
        self._damage: list[CorruptError] = []
        self._broken: CorruptError | None = None
        self._index = self._open()

    def _open(self) -> RocksIndex:
        for tries_left in range(OPEN_TRIES - 1, -1, -1):
            self._damage.clear()
            index = RocksIndex(self._directory, self._open_one, damaged=self._damage.append)
            try:
                index.open()
            except (DbRecordError, OSError) as error:
                if tries_left:
                    continue
                self._broken = (
                    error
                    if isinstance(error, CorruptError)
                    else DbRecordError(self._directory, None, f"cannot be opened: {error}")
                )
            break
        return index

    def _open_one(self, path: Path) -> KeyValues:
        try:
            return open_read_only(path)
        except FileNotFoundError:
            if (path / "CURRENT").exists():
                raise
            self._damage.append(DbRecordError(path, None, "there is no such database"))
            return cast("KeyValues", _Nothing())

    @property
    def damage(self) -> list[CorruptError]:
        return self._damage

    def ledger_ids(self) -> list[int]:
        return sorted(self._whole().ledger_ids())

    def place(self, ledger_id: int, entry_id: int | None = None) -> tuple[Path, int | None]:  # noqa: ARG002  # one place for all
        name = layout.LEDGERS if entry_id is None else layout.LOCATIONS
        return self._directory / name, None

    def load(self, ledger_id: int) -> LedgerOnDisk | None:
        return self._whole().load(ledger_id)

    def pages(self, ledger_id: int) -> Iterator[tuple[int, array[int]]]:
        return self._whole().pages(ledger_id)

    def location(self, ledger_id: int, entry_id: int) -> int:
        return self._whole().location(ledger_id, entry_id)

    def _whole(self) -> RocksIndex:
        if self._broken is not None:
            raise self._broken
        return self._index

    def close(self) -> None:
        if self._broken is None:
            self._index.close()


class _Nothing:
    """A database that is not there, as far as it is read."""

    def get(self, key: bytes) -> None:
        """Return None."""

    def get_many(self, keys: Sequence[bytes]) -> list[None]:
        return [None for _ in keys]

    def items(self, begin: bytes, end: bytes, count_max: int) -> list[tuple[bytes, bytes]]:  # noqa: ARG002
        return []

    def floor(self, key: bytes) -> None:
        """Return None."""

    def check_synced(self) -> None:
        """Find nothing lost."""

    def close(self) -> None:
        """Do nothing."""
