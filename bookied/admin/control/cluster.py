"""The operations of an operator on the cluster of a bookie."""

from __future__ import annotations

import contextlib
import itertools
from collections.abc import AsyncIterator, Mapping
from typing import Final

import attrs
from twisted.logger import Logger

from bkclient.admin.cluster_operations import bookie_info, list_bookies
from bkclient.client import Client
from bkclient.metadata.errors import AlreadySetError
from bkclient.metadata.stored_values import BookieState as Registered
from bkclient.metadata.stored_values import BookieStatus
from bkclient.metadata.tree.store import MetadataStore
from bkclient.metadata.versions_and_watches import MarkError
from bkclient.replication.autorecovery_admin import (
    AutorecoveryDisabledError,
    NoAuditorError,
    count_marks,
    how_to_repair_mark,
    trigger_audit,
)
from bookied.admin.v2.values import ClusterSummary
from bookied.errors import ChangeRefusedError, TooMuchError
from bookied.service.dependencies import make_client
from bookied.service.start_and_stop import BookieService
from wire.digest import Entry
from wire.errors import BookKeeperError
from wire.ids import BookieId, LedgerId
from wire.ledger_metadata import LedgerMetadata

log = Logger()


READ_ENTRIES_MAX: Final = 10_000
READ_BYTES_MAX: Final = 32 * 1024 * 1024
"""Bytes of a ledger that one request may read."""


@attrs.frozen
class MarkReport:
    """The content of a mark: the bookies that lack replicas, or the error of a mark with a hint."""

    missing: tuple[BookieId, ...]
    problem: str | None = None


class ClusterControl:
    """Ledgers, bookies and repair of the cluster. Its client is created at the first use."""

    def __init__(self, service: BookieService) -> None:
        self._service, self._parts = service, service.parts
        self._client: Client | None = None

    async def close(self) -> None:
        """Close the connections with other bookies."""
        if self._client is not None:
            await self._client.close()

    @property
    def store(self) -> MetadataStore:
        """The cluster's metadata."""
        return self._parts.store

    @property
    def client(self) -> Client:
        """A client of the cluster that the bookie belongs to."""
        if self._client is None:
            self._client = make_client(self._parts, self.store)
        return self._client

    async def ledger_ids(self, *, after: LedgerId | None = None) -> AsyncIterator[LedgerId]:
        """Yield the ids of the cluster's ledgers, ascending."""
        async for ids in self.store.ledger_ranges(after=after):
            for ledger_id in ids:
                yield ledger_id

    async def metadata(self, ledger_id: LedgerId) -> LedgerMetadata:
        """Return a ledger's metadata.

        Raises:
            NoSuchLedgerError: the ledger does not exist.
        """
        return (await self.store.read_ledger(ledger_id)).value

    async def entries(self, ledger_id: LedgerId, first: int, last: int | None) -> list[Entry]:
        """Read confirmed entries of a ledger from its bookies, without recovery.

        Raises:
            TooMuchError: the entries exceed the memory for one request.
            ClientError: the ledger or an entry does not exist or cannot be read.
        """
        reader = await self.client.open_ledger(ledger_id, recover=False)
        found: list[Entry] = []
        size_bytes = 0
        with contextlib.closing(reader):
            lac: int = reader.last_add_confirmed
            end = lac if last is None else min(last, lac)
            if first > end:
                return []
            async for entry in reader.read(first, end):
                found.append(entry)
                size_bytes += len(entry.payload)
                if size_bytes > READ_BYTES_MAX or len(found) > READ_ENTRIES_MAX:
                    raise TooMuchError(f"more than {len(found) - 1} entries; ask for fewer")
        return found

    async def summary(self) -> ClusterSummary:
        """Return the number of bookies and the auditor."""
        store = self.store
        writable, read_only = await store.writable_bookies(), await store.read_only_bookies()
        known = await store.known_bookies() | writable | read_only
        return ClusterSummary(
            auditor=await store.current_auditor(),
            has_underreplicated=await count_marks(self.store, 1) > 0,
            replication_enabled=await store.replication_enabled(),
            bookies=len(known),
            writable=len(writable),
            read_only=len(read_only),
            down=len(known) - len(writable) - len(read_only),
        )

    async def underreplicated(self, *, limit: int | None = None) -> dict[LedgerId, MarkReport]:
        """Return the ledgers that are marked for repair, ascending."""
        found: dict[LedgerId, MarkReport] = {}

        def damaged(ledger_id: LedgerId, error: MarkError) -> None:
            problem = f"{error}; {how_to_repair_mark(ledger_id)}"
            log.warn("{problem}", problem=problem)
            found[ledger_id] = MarkReport((), problem)

        async for ledger_id, mark in self.store.list_underreplicated(damaged):
            found[ledger_id] = MarkReport(mark.replicas)
            if limit is not None and len(found) >= limit:
                break
        return dict(itertools.islice(found.items(), limit))

    def repair_failures(self) -> Mapping[LedgerId, tuple[float, str]]:
        """Return the ledgers that this bookie's worker could not repair: time and reason by id."""
        beside = self._service.background.autorecovery
        return {} if beside is None else beside.stats.worker.failures

    async def trigger_audit(self) -> BookieId:
        """Have the auditor look for lost bookies; return the auditor.

        Raises:
            ChangeRefusedError: repair is disabled, or the cluster has no auditor.
        """
        try:
            return await trigger_audit(self.client)
        except (AutorecoveryDisabledError, NoAuditorError) as error:
            raise ChangeRefusedError(str(error)) from error

    async def set_replication_enabled(self, *, enabled: bool) -> None:
        """Enable or disable repair in the cluster; no error if it is so already."""
        with contextlib.suppress(AlreadySetError):
            await self.store.set_replication_enabled(enabled=enabled)

    async def bookies(self) -> list[tuple[BookieId, str, str | None]]:
        """Return (id, state, host) of every bookie.

        The host is None if the bookie publishes none.
        """
        found = await list_bookies(self.client)
        return [(one.bookie_id, one.state.value, _host_of(one)) for one in found]

    async def bookie_sizes(self) -> dict[BookieId, tuple[int, int]]:
        """Return total and free bytes of every bookie that answers."""
        found: dict[BookieId, tuple[int, int]] = {}
        for one in await list_bookies(self.client):
            if one.state is Registered.DOWN:
                continue
            try:
                sizes = await bookie_info(self.client, one.bookie_id)
            except BookKeeperError:
                continue
            found[one.bookie_id] = sizes.total_bytes, sizes.free_bytes
        return found


def _host_of(status: BookieStatus) -> str | None:
    return status.info.endpoints[0].host if status.info and status.info.endpoints else None
