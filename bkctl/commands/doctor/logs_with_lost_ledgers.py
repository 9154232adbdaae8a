"""The logs of a cluster that have lost a ledger."""

from __future__ import annotations

from collections.abc import Collection, Mapping

from bkclient.client import Client
from bkclient.errors import ClientError
from bkclient.log import LogManager
from bkclient.log.ledger_list import LedgerList
from bkclient.metadata.errors import NoSuchLogError
from wire.ids import LedgerId


async def ledgers_of_logs(client: Client) -> dict[str, frozenset[LedgerId] | None]:
    """Return the ledgers that each log lists; None if the log cannot be read."""
    found: dict[str, frozenset[LedgerId] | None] = {}
    for name in await client.store.list_logs():
        try:
            record = (await LedgerList(client, name).read()).record
        except NoSuchLogError:
            continue  # The log was deleted after it was listed.
        except ClientError:
            found[name] = None
        else:
            found[name] = frozenset(one.ledger_id for one in record.ledgers)
    return found


async def damaged_logs(
    client: Client,
    listed: Mapping[str, frozenset[LedgerId] | None],
    unseen: Collection[LedgerId],
) -> tuple[str, ...]:
    """Return the logs that have lost a ledger; ``unseen`` are ledgers that a walk did not find.

    Each log is read again: it may have been trimmed or deleted in the meantime.
    """
    damaged = []
    for name, ledger_ids in listed.items():
        if ledger_ids is not None and ledger_ids.isdisjoint(unseen):
            continue
        try:
            info = await LogManager(client).info(name)
        except NoSuchLogError:
            continue
        except ClientError:
            damaged.append(name)
            continue
        if any(one.state is None for one in info.ledgers):
            damaged.append(name)
    return tuple(damaged)
