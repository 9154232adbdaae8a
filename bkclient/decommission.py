"""Retiring a bookie: autorecovery moves its ledgers, then its cookie goes.

Agrees with BookKeeper 4.18.0, BookKeeperAdmin.decommissionBookie, in what it waits for. It does not
ask the auditor for an audit and give it half a minute, but marks the bookie's ledgers itself, with
the marks that an auditor would make; who repairs them are the cluster's workers, Java's or ours.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

import attrs
from twisted.internet.task import deferLater

from bkclient.bounded import for_each
from bkclient.client import Client
from bkclient.errors import IllegalOperationError, NoSuchLedgerError
from bkclient.fragments import may_hold_entries
from bkclient.recover_bookies import ledgers_on_bookies
from bkclient.stored_cookies import delete_cookies, insist_gone, needs_cookies
from bkclient.walk import READS_AT_ONCE
from wire.ids import BookieId, LedgerId
from wire.ledger_metadata import LedgerMetadata

LOOK_S_PER_LEDGER: Final = 3.0
LOOK_S_MAX: Final = 30.0
"""Between two looks at the ledgers that are left; Java looks every five minutes where many are."""


@attrs.frozen(kw_only=True)
class DecommissionProgress:
    """How far a decommission has come.

    ``step``: ``marking``, ``moving``, ``moving what is marked``, ``deleting the cookie`` or
    ``done``.
    ``auditor``: who it is, ``None`` when nobody is: then there may be no workers either.
    """

    bookie_id: BookieId
    step: str
    ledgers: int = 0
    ledgers_left: int = 0
    auditor: BookieId | None = None


@attrs.frozen
class DecommissionReport:
    """What a decommission has done: how many ledgers were there, and whether there was a cookie."""

    bookie_id: BookieId
    ledgers: int
    cookie_deleted: bool


Report = Callable[[DecommissionProgress], None]


async def decommission(
    client: Client, bookie_id: BookieId, report: Report = lambda _progress: None
) -> DecommissionReport:
    """Wait until no ledger has anything on a bookie that was stopped, then delete its cookie.

    There is no time limit. May be interrupted at any time and started again: it begins from the
    metadata, and the cookie is the last thing to go.

    Raises:
        IllegalOperationError: the bookie is registered, or re-replication is disabled.
        CookieNeededError: a ledger that is not closed began to list the bookie at the very end.
        MetadataSerializationError: a ledger's metadata cannot be read; it may list the bookie.
        MetadataStoreError: the store failed.
    """
    return await _Decommission(client, bookie_id, report).run()


class _Decommission:
    """One run of ``decommission``."""

    def __init__(self, client: Client, bookie_id: BookieId, report: Report) -> None:
        self._client, self._store = client, client.store
        self._bookie_id, self._report_to = bookie_id, report
        self._ledgers = 0

    async def run(self) -> DecommissionReport:
        await self._insist()
        await self._report("marking")
        listed = [
            one.ledger_id async for one in ledgers_on_bookies(self._client, [self._bookie_id])
        ]
        self._ledgers = len(listed)
        await for_each(listed, self._mark, READS_AT_ONCE)
        left = await self._still_holding(listed)
        while left:
            await self._wait("moving", left)
            left = await self._still_holding(left)
        while left := await self._still_holding(await self._marked()):
            await self._wait("moving what is marked", left)
        await self._report("deleting the cookie")
        deleted = await delete_cookies(self._client, [self._bookie_id])
        await self._report("done")
        return DecommissionReport(self._bookie_id, self._ledgers, bool(deleted))

    async def _insist(self) -> None:
        await insist_gone(self._client, [self._bookie_id])
        if not await self._store.replication_enabled():
            raise IllegalOperationError(
                "re-replication is disabled: nobody would move the bookie's ledgers"
            )

    async def _mark(self, ledger_id: LedgerId) -> None:
        await self._store.mark_underreplicated(ledger_id, (self._bookie_id,))

    async def _wait(self, step: str, left: list[LedgerId]) -> None:
        await self._report(step, len(left))
        seconds = min(LOOK_S_MAX, LOOK_S_PER_LEDGER * len(left))
        await deferLater(self._client.cluster.clock, seconds)
        await self._insist()

    async def _still_holding(self, ledgers: list[LedgerId]) -> list[LedgerId]:
        """Return those of some ledgers that need the bookie, or its cookie; mark them anew.

        A worker may have taken a mark away that it could not make sense of.
        """
        left: list[LedgerId] = []

        async def look(ledger_id: LedgerId) -> None:
            try:
                metadata = (await self._client.read_metadata(ledger_id)).value
            except NoSuchLedgerError:
                return
            if self._needs_bookie(metadata):
                left.append(ledger_id)
                if await self._store.underreplicated(ledger_id) is None:
                    await self._mark(ledger_id)

        await for_each(ledgers, look, READS_AT_ONCE)
        return sorted(left)

    def _needs_bookie(self, metadata: LedgerMetadata) -> bool:
        return needs_cookies(metadata, (self._bookie_id,)) or may_hold_entries(
            metadata, self._bookie_id
        )

    async def _marked(self) -> list[LedgerId]:
        return [
            ledger_id
            async for ledger_id, mark in self._store.list_underreplicated()
            if self._bookie_id in mark.replicas
        ]

    async def _report(self, step: str, left: int = 0) -> None:
        self._report_to(
            DecommissionProgress(
                bookie_id=self._bookie_id,
                step=step,
                ledgers=self._ledgers,
                ledgers_left=left,
                auditor=await self._store.current_auditor(),
            )
        )
