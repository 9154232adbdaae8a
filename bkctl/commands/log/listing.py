"""The logs of a cluster and the ledgers of a log: `log list`, `show`."""

from __future__ import annotations

from typing import TYPE_CHECKING

from bkclient.client import Client
from bkclient.errors import ClientError
from bkclient.log import LogManager
from bkctl.commands.log.columns import LogLedgerRow, LogSummary

if TYPE_CHECKING:
    from bkctl.session.session import Session


def list_all(session: Session) -> None:
    """List the logs of the cluster, by name."""
    session.emit_all(session.call(_summaries), LogSummary)


async def _summaries(client: Client) -> list[LogSummary]:
    """Return the summary of each log; a damaged one is marked as damaged."""
    manager, found = LogManager(client), []
    for name in await manager.list():
        try:
            info = await manager.info(name)
        except ClientError as error:
            found.append(LogSummary(name, str(error), None, None, None, None))
            continue
        state = "sealed" if info.sealed else "open"
        entries, length = info.entries, info.length_bytes
        found.append(LogSummary(name, state, info.trimmed, len(info.ledgers), entries, length))
    return found


def show(session: Session, *, name: str) -> None:
    """Show the ledgers that the log NAME is made of."""
    session.about = f"log {name}"
    session.emit_all(session.call(_ledgers, name), LogLedgerRow)


async def _ledgers(client: Client, name: str) -> list[LogLedgerRow]:
    """Return a log's ledgers."""
    info = await LogManager(client).info(name)
    return [LogLedgerRow(info=one) for one in info.ledgers]
