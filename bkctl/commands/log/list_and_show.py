"""The bodies of `log list` and `log show`."""

from __future__ import annotations

from bkclient.client import Client
from bkclient.errors import ClientError
from bkclient.log import LogManager, LogOptions
from bkctl.commands.log.columns import LogLedgerRow, LogSummary
from bkctl.output.units import counted, human_bytes, human_duration
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
        if any(one.state is None for one in info.ledgers):
            state = "damaged"
        entries, length, how = info.entries, info.length_bytes, info.options
        limits = how.roll_bytes, how.roll_entries, how.roll_s
        ledgers = len(info.ledgers)
        found.append(LogSummary(name, state, ledgers, entries, length, info.trimmed, *limits))
    return found


def show(session: Session, *, name: str) -> None:
    """Show the ledgers of the log NAME."""
    session.about = f"log {name}"
    info = session.call(lambda client: LogManager(client).info(name))
    session.emit_all([LogLedgerRow(info=one) for one in info.ledgers], LogLedgerRow)
    session.finish()
    session.note("the log is sealed" if info.sealed else _rolls(info.options))


def _rolls(how: LogOptions) -> str:
    """Return the limits at which the writer of a log begins a new ledger."""
    limits = [f"at {human_bytes(how.roll_bytes)}"] if how.roll_bytes else []
    limits += [f"after {counted(how.roll_entries, 'entry')}"] if how.roll_entries else []
    limits += [f"after {human_duration(how.roll_s)}"] if how.roll_s else []
    if not limits:
        return "no limit begins a new ledger"
    first = [", ".join(limits[:-1])] if limits[1:] else []
    return f"a new ledger begins {' or '.join([*first, limits[-1]])}"
