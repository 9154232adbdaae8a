"""Ledger metadata and ids in a file."""

from __future__ import annotations

import contextlib
from collections.abc import AsyncGenerator, AsyncIterator, Callable, Sequence
from functools import partial
from typing import Final

from bkclient.errors import LedgerExistsError, NoSuchLedgerError
from bkclient.metadata.api import ANY, StoredLedger, Version, Versioned, Watch
from bkclient.metadata.sqlite.base import LEDGER, SqlitePart
from bkclient.metadata.sqlite.init_and_format import stored_layout
from bkclient.metadata.sqlite.rows import Key, NodeRow, Rows
from bkclient.metadata.stored_values import IDS_AT_ONCE, as_stored, decode_stored
from bkclient.metadata.tree.ledgers import check_new_id, ledger_errors, with_token
from bkclient.metadata.tree.nodes import NoNodeError
from wire.errors import MetadataFormatError
from wire.ids import LedgerId
from wire.ledger_metadata import (
    LedgerMetadata,
    decode_metadata,
    encode_for_write,
)

_LEDGERS_AT_ONCE: Final = 200
_SKIPPED_END: Final = 2**62
"""Ids from here on are not generated in any lifetime, so they are not skipped either."""


class SqliteLedgers(SqlitePart):
    """Implements ``LedgerStore`` and ``LedgerIds``."""

    async def create_ledger(
        self, ledger_id: LedgerId, metadata: LedgerMetadata, *, is_allocated: bool = False
    ) -> Version:
        """See ``LedgerStore``; an id that was chosen is not generated afterwards."""
        check_new_id(ledger_id)
        metadata = with_token(metadata, self._chance.randrange(1, 2**63 - 1))
        value = encode_for_write(metadata)

        def create(rows: Rows, _session_id: int) -> Version:
            stored = rows.get(LEDGER, ledger_id)
            if stored is None:
                stored_layout(rows)
                if not is_allocated and ledger_id < _SKIPPED_END:
                    rows.sequences.skip_to(LEDGER, ledger_id + 1)
                return rows.insert(LEDGER, ledger_id, value)
            if not _same_creator(stored.value, metadata.creator_token):
                raise LedgerExistsError(f"ledger {ledger_id} exists")
            return stored.version

        return await self._write(create)

    async def read_ledger(self, ledger_id: LedgerId) -> Versioned[LedgerMetadata]:
        row = await self._read(lambda rows, _: rows.get(LEDGER, ledger_id))
        if row is None:
            raise NoSuchLedgerError.of(ledger_id)
        return Versioned(decode_stored(ledger_id, row.value, row.ctime_ms), row.version)

    async def read_ledgers(self, ids: Sequence[LedgerId]) -> AsyncGenerator[list[StoredLedger]]:
        for at in range(0, len(ids), _LEDGERS_AT_ONCE):
            some_ids = ids[at : at + _LEDGERS_AT_ONCE]

            some_rows = await self._read(partial(_rows_of, some_ids))
            yield [
                as_stored(ledger_id, row.value, row.ctime_ms, row.version)
                for ledger_id, row in zip(some_ids, some_rows, strict=True)
                if row is not None
            ]

    async def write_ledger(
        self, ledger_id: LedgerId, metadata: LedgerMetadata, version: Version
    ) -> Version:
        value = encode_for_write(metadata)
        with ledger_errors(ledger_id, version):
            return await self._write(lambda rows, _: rows.update(LEDGER, ledger_id, value, version))

    async def remove_ledger(self, ledger_id: LedgerId, version: Version = ANY) -> None:
        may_be_gone = (NoNodeError,) if version == ANY else ()
        with ledger_errors(ledger_id, version), contextlib.suppress(*may_be_gone):
            await self._write(lambda rows, _: rows.delete(LEDGER, ledger_id, version))

    async def ledger_ranges(
        self, *, after: LedgerId | None = None
    ) -> AsyncIterator[tuple[LedgerId, ...]]:
        last = LedgerId(-1) if after is None else after

        def some(rows: Rows, _session_id: int) -> list[Key]:
            return rows.keys_after(LEDGER, last, IDS_AT_ONCE)

        while keys := await self._read(some):
            ids = tuple(LedgerId(int(key)) for key in keys)
            yield ids
            last = ids[-1]

    async def watch_ledger(self, ledger_id: LedgerId, changed: Callable[[], None]) -> Watch:
        return await self._watch(changed, LEDGER, key=ledger_id)

    async def allocate_ledger_id(self) -> LedgerId:
        def take(rows: Rows, _session_id: int) -> int:
            stored_layout(rows)
            return rows.sequences.take(LEDGER)

        return LedgerId(await self._write(take))


def _rows_of(ids: Sequence[LedgerId], rows: Rows, _session_id: int) -> list[NodeRow | None]:
    return [rows.get(LEDGER, ledger_id) for ledger_id in ids]


def _same_creator(value: bytes, token: int) -> bool:
    """Return whether stored metadata is of the same creation: then this is a retry of it."""
    try:
        return token != 0 and decode_metadata(value).creator_token == token
    except MetadataFormatError:
        return False
