"""The logs of a cluster as the doctor looks at them: which have lost a ledger."""

from __future__ import annotations

from collections.abc import Collection, Mapping

from bkclient.client import Client
from bkclient.errors import ClientError
from bkclient.log import LogManager
from bkclient.log.ledger_list import LedgerList
from bkclient.metadata.errors import NoSuchLogError
from wire.ids import LedgerId


async def ledgers_of_logs(client: Client) -> dict[str, frozenset[LedgerId] | None]:
    """Return which ledgers each log lists; None where that cannot be read."""
    found: dict[str, frozenset[LedgerId] | None] = {}
    for name in await client.store.list_logs():
        try:
            record = (await LedgerList(client, name).read()).record
        except NoSuchLogError:
            continue  # Deleted meanwhile.
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
    """Return the logs that have lost a ledger; ``unseen`` are those that a walk has not met.

    Each is looked up again: a log may have been trimmed or deleted meanwhile.
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
