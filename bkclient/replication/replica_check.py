"""Checks that the bookies in a ledger's metadata have its replicas.

Agrees with BookKeeper 4.18.0, LedgerChecker. Stricter: entries must match their digest, if the
metadata says which digest. A ledger with an unknown LAC is also checked, up to its last fragment.
"""

from __future__ import annotations

import enum
import random
from collections.abc import Collection
from contextlib import closing
from typing import Final

import attrs
from twisted.logger import Logger

from bkclient.client import Client
from bkclient.concurrency import for_each
from bkclient.connection.add_frames import LedgerKeys
from bkclient.errors import (
    BookieUnavailableError,
    ClientClosedError,
    ClientError,
    InterruptedOperationError,
    ReadFailedError,
    RequestTimeoutError,
    refusal,
)
from bkclient.ledger.cluster import Cluster
from bkclient.ledger.reads.answer_verifier import AnswerVerifier
from bkclient.ledger.reads.entry_fetcher import EntryFetcher
from bkclient.metadata.ledger_metadata_updates import LocalMetadata
from bkclient.quorum.fragments import LedgerFragment, MissingPlaces, fragments_of, samples
from bkclient.quorum.read_rules import NEGATIVE
from wire.codes import ReturnCode
from wire.ids import BookieId, EntryId, LedgerId
from wire.ledger_metadata import LedgerMetadata
from wire.messages import ListEntriesRequest, ListEntriesResponse, ReadRequest, Response
from wire.records.entry_list import EntryList, decode_entry_list

log = Logger()

READS_AT_ONCE: Final = 64
"""Reads in progress in the check of one ledger, by default."""

OURS: Final = (ClientClosedError, InterruptedOperationError)
"""Errors that prove nothing about a bookie."""


SILENT: Final = (BookieUnavailableError, RequestTimeoutError)
"""Errors of a bookie that has not answered about an entry."""


class ReplicaLoss(enum.IntEnum):
    """The certainty that a replica is lost; the most certain losses are repaired first."""

    GONE = 0
    """The bookie is not registered."""
    SURE = 1
    """The bookie lacks the entry, or its copy is damaged."""
    MAY_BE = 2
    """The bookie did not answer."""


@attrs.frozen(kw_only=True)
class LedgerView:
    """A recent view of a ledger, from its metadata and its bookies; no writer was fenced.

    ``lac`` is ``None`` if too few bookies of the last fragment answered to know it.
    """

    ledger_id: LedgerId
    local: LocalMetadata
    keys: LedgerKeys
    lac: EntryId | None

    @property
    def metadata(self) -> LedgerMetadata:
        """The metadata at the last read."""
        return self.local.value


async def view_ledger(client: Client, ledger_id: LedgerId) -> LedgerView:
    """Read a ledger's metadata and LAC without recovery, with the password in its metadata.

    Raises:
        NoSuchLedgerError: the ledger does not exist.
        MetadataSerializationError: the ledger's metadata cannot be read.
        MetadataStoreError: the store failed.
    """
    local = await client.local_metadata(ledger_id)
    keys = client.keys_of(ledger_id, local.value)
    lac = local.value.last_entry_id
    if lac is None:
        lac = await _lac(client.cluster.fetcher(keys), local.value, ledger_id)
    return LedgerView(ledger_id=ledger_id, local=local, keys=keys, lac=lac)


async def _lac(
    fetcher: EntryFetcher, metadata: LedgerMetadata, ledger_id: LedgerId
) -> EntryId | None:
    with closing(fetcher):
        try:
            return EntryId(await fetcher.lacs.quorum(metadata))
        except OURS:
            raise
        except ClientError as error:
            log.info("ledger {id}: the LAC is not known: {error}", id=ledger_id, error=error)
            return None


def _reads_at_once(wanted: int) -> int:
    return wanted if wanted > 0 else READS_AT_ONCE


@attrs.frozen(kw_only=True)
class LedgerChecker:
    """A check of ledgers by samples of their entries.

    ``percentage`` of the entries of each fragment are read from each of its bookies, always
    including the first and the last entry on the bookie. All entries are read from the bookies
    ``in_full``. ``reads_at_once`` 0 means the default.
    """

    client: Client
    rng: random.Random
    percentage: float = 0
    in_full: Collection[BookieId] = ()
    reads_at_once: int = attrs.field(default=0, converter=_reads_at_once)

    async def check(
        self, ledger: LedgerView, available: Collection[BookieId]
    ) -> tuple[MissingPlaces, ...]:
        """Return the places without a replica; an unavailable bookie has no replicas.

        Damaged places come first, places of bookies that did not answer last.

        Raises:
            ClientClosedError: the client was closed during the check.
        """
        run = _ReplicaCheck(self.client.cluster, ledger)
        checks = [
            _FragmentCheck.begin(fragment, available)
            for fragment in fragments_of(ledger.metadata, ledger.lac)
            if not fragment.may_be_empty or await run.may_have_begun(fragment)
        ]
        reads = (
            (one, index, entry_id)
            for one in checks
            for index, bookie in enumerate(one.fragment.ensemble)
            if index not in one.places
            for entry_id in samples(one.fragment, index, self._share_of(bookie), self.rng)
        )

        async def look(read: tuple[_FragmentCheck, int, EntryId]) -> None:
            one, index, entry_id = read
            if index not in one.places:
                loss = await run.loss(one.fragment, index, entry_id)
                if loss is not None:
                    one.note(index, entry_id, loss)

        await for_each(reads, look, self.reads_at_once)
        return tuple(one.missing() for one in checks if one.places)

    def _share_of(self, bookie: BookieId) -> float:
        return 100 if bookie in self.in_full else self.percentage


@attrs.define
class _FragmentCheck:
    """The places of one fragment that lack a replica, so far."""

    fragment: LedgerFragment
    places: dict[int, ReplicaLoss]
    _silent: dict[int, frozenset[EntryId]] = attrs.field(factory=dict, init=False)
    """The entries that the bookie of a place did not answer for."""

    @classmethod
    def begin(cls, fragment: LedgerFragment, available: Collection[BookieId]) -> _FragmentCheck:
        ensemble = enumerate(fragment.ensemble)
        return cls(fragment, {i: ReplicaLoss.GONE for i, one in ensemble if one not in available})

    def note(self, index: int, entry_id: EntryId, loss: ReplicaLoss) -> None:
        """Record the result of a read; the most certain loss counts."""
        self.places[index] = min(loss, self.places.get(index, loss))
        if loss is ReplicaLoss.MAY_BE:
            self._silent[index] = self._silent.get(index, frozenset()) | {entry_id}

    def missing(self) -> MissingPlaces:
        """Return the places that lack a replica, the most certain first."""
        surest_first = (index for _, index in sorted((loss, i) for i, loss in self.places.items()))
        may_be = (i for i, loss in self.places.items() if loss is ReplicaLoss.MAY_BE)
        return MissingPlaces(
            self.fragment, tuple(surest_first), {i: self._silent[i] for i in may_be}
        )


async def places_that_answer(
    cluster: Cluster, ledger: LedgerView, lack: MissingPlaces, places: Collection[int]
) -> frozenset[int]:
    """Return the ``places`` whose bookies now return the entries that were unanswered.

    Raises:
        ClientClosedError: the client was closed during the check.
    """
    run = _ReplicaCheck(cluster, ledger)
    asked = [index for index in lack.unanswered if index in places]
    silent: set[int] = set()

    async def ask(read: tuple[int, EntryId]) -> None:
        index, entry_id = read
        if await run.loss(lack.fragment, index, entry_id) is not None:
            silent.add(index)

    reads = [(index, entry_id) for index in asked for entry_id in sorted(lack.unanswered[index])]
    await for_each(reads, ask, READS_AT_ONCE)
    return frozenset(asked) - silent


class _ReplicaCheck:
    """The reads of one check."""

    def __init__(self, cluster: Cluster, ledger: LedgerView) -> None:
        self._ledger_id, self._pool = ledger.ledger_id, cluster.pool
        self._verifier = AnswerVerifier(ledger.ledger_id, ledger.keys.digester)
        # Without a password in the metadata, the digest may differ from the configured one.
        self._can_verify = ledger.metadata.password is not None

    async def loss(
        self, fragment: LedgerFragment, index: int, entry_id: EntryId
    ) -> ReplicaLoss | None:
        """Return the loss of an entry on a bookie; None if the bookie returns the entry intact."""
        try:
            await self._read(fragment.ensemble[index], entry_id)
        except OURS:
            raise
        except ClientError as error:
            log.info(
                "ledger {id}, entry {entry}: {error}",
                id=self._ledger_id,
                entry=entry_id,
                error=error,
            )
            return ReplicaLoss.MAY_BE if isinstance(error, SILENT) else ReplicaLoss.SURE
        return None

    async def may_have_begun(self, fragment: LedgerFragment) -> bool:
        """Return whether the first entry of a fragment may exist.

        It cannot exist if all bookies of its write set answer that they do not have it.
        """
        said: list[bool] = []

        async def ask(index: int) -> None:
            try:
                await self._read(fragment.ensemble[index], fragment.first)
            except NEGATIVE:
                return
            except OURS:
                raise
            except ClientError:
                pass
            said.append(True)

        places = [i for i in range(len(fragment.ensemble)) if fragment.holds(fragment.first, i)]
        await for_each(places, ask, len(places))
        return bool(said)

    async def _read(self, bookie: BookieId, entry_id: EntryId) -> None:
        response: Response = await self._pool.send(bookie, ReadRequest(self._ledger_id, entry_id))
        if self._can_verify:
            self._verifier.entry(bookie, response, entry_id)
        elif response.rc is not ReturnCode.EOK:
            raise refusal(response.rc, ReadFailedError, f"bookie {bookie}")


async def list_entries(client: Client, ledger_id: LedgerId, bookie: BookieId) -> EntryList:
    """Return a bookie's list of a ledger's entries; an empty list if it lacks the ledger.

    Raises:
        ReadFailedError: the bookie returns no list.
        FormatError: the list cannot be decoded.
        ClientError: the bookie does not answer.
    """
    response: Response = await client.cluster.pool.send(bookie, ListEntriesRequest(ledger_id))
    if response.rc in {ReturnCode.ENOLEDGER, ReturnCode.ENOENTRY}:
        return EntryList(())
    if response.rc is not ReturnCode.EOK:
        raise refusal(response.rc, ReadFailedError, f"bookie {bookie}, list of entries")
    assert isinstance(response, ListEntriesResponse)
    return decode_entry_list(response.availability or b"")
