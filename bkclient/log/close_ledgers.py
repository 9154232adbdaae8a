"""The recovery of a log before another writer goes on: its open ledgers are closed."""

from __future__ import annotations

from bkclient.client import Client
from bkclient.errors import NoSuchLedgerError
from bkclient.log.errors import LogDamagedError
from bkclient.log.ledger_list import LedgerList
from bkclient.log.record import LogRecord, Position
from wire.ids import LedgerId


async def close_ledgers(client: Client, name: str, record: LogRecord) -> Position | None:
    """Close the ledgers that are not closed; return the last entry.

    Raises:
        LogDamagedError: a listed ledger is missing.
        ClientError: a ledger cannot be recovered.
    """
    tail: Position | None = None
    for index in record.indexes():
        ledger_id = record.ledger(index).ledger_id
        try:
            last = await _closed_at(client, ledger_id, record)
        except NoSuchLedgerError as error:
            if not (await LedgerList(client, name).read_patiently()).record.lists(ledger_id):
                continue  # The log was trimmed since; its record cannot be replaced.
            raise LogDamagedError(
                f"ledger {ledger_id} of log {name} is gone: its entries are lost"
            ) from error
        if last >= 0:
            tail = Position(index, last, ledger_id)
    return tail


async def _closed_at(client: Client, ledger_id: LedgerId, record: LogRecord) -> int:
    metadata = (await client.read_metadata(ledger_id)).value
    if metadata.is_closed:
        assert metadata.last_entry_id is not None
        return metadata.last_entry_id
    reader = await client.open_ledger(ledger_id, password=record.options.password)
    reader.close()
    return reader.last_add_confirmed
