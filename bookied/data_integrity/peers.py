"""The rest of the cluster, as an ordinary client sees it, for repair."""

from __future__ import annotations

from collections import deque
from collections.abc import AsyncIterator, Sequence
from contextlib import closing
from typing import Final

from twisted.internet.defer import Deferred

from bkclient.client import Client
from wire.digest import Entry
from wire.ids import EntryId, LedgerId
from wire.ledger_metadata import LedgerMetadata

READS_AHEAD: Final = 64


class OtherBookies:
    """Recovers ledgers and reads entries of the other bookies.

    The bookie itself is asked like any other: it says "unknown state" or "no such entry" for what
    is being repaired, and the client turns to the next.
    """

    def __init__(self, client: Client) -> None:
        self._client = client

    async def recover(self, ledger_id: LedgerId) -> LedgerMetadata:
        """Recover the ledger and return its metadata.

        Raises:
            NoSuchLedgerError: it was deleted.
            ClientError: it cannot be recovered now.
        """
        with closing(await self._client.open_ledger(ledger_id)) as reader:
            return reader.metadata

    async def packets(
        self, ledger_id: LedgerId, wanted: Sequence[EntryId]
    ) -> AsyncIterator[tuple[EntryId, bytes]]:
        """Give the verified packets of some entries, ascending; some are read ahead.

        Raises:
            NoSuchLedgerError: it was deleted.
            ClientError: one cannot be read now.
        """
        metadata = (await self._client.read_metadata(ledger_id)).value
        keys = self._client.keys_of(ledger_id, metadata)
        fetcher = self._client.cluster.fetcher(keys)
        ahead: deque[Deferred[Entry]] = deque()
        left = deque(wanted)
        try:
            while ahead or left:
                while left and len(ahead) < READS_AHEAD:
                    ahead.append(fetcher.entry(metadata, left.popleft()))
                entry = await ahead.popleft()
                yield entry.entry_id, keys.packet_of(entry)
        finally:
            for read in ahead:
                read.addErrback(lambda _failure: None)
                read.cancel()
            fetcher.close()
