"""LedgerWriter: the one handle that may add to a ledger.

Agrees with BookKeeper 4.18.0, LedgerHandle. Stricter: after a pending add has failed, the handle
accepts no more adds; after it was fenced it never writes the ledger's metadata; its LAC comes only
from its own acks.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable, Iterable

from twisted.internet.defer import Deferred, DeferredLock, fail
from twisted.internet.interfaces import IReactorTime
from twisted.logger import Logger

from bkclient.connection.add_frames import LedgerKeys
from bkclient.errors import (
    ClientClosedError,
    ClientError,
    ClientLedgerFencedError,
    IllegalOperationError,
    IncorrectParameterError,
    ReadFailedError,
)
from bkclient.ledger.adds.closing import ForcedAdds, LedgerClosing, WriterEnd
from bkclient.ledger.adds.ensemble_changes import EnsembleChanges
from bkclient.ledger.adds.pipeline import AddEffects, AddPipeline, AddSettings
from bkclient.ledger.cluster import Cluster, PendingCopies
from bkclient.ledger.force_and_explicit_lac import ExplicitLac
from bkclient.ledger.reads.range_read import read_range
from bkclient.metadata.ledger_metadata_updates import LocalMetadata
from bkclient.quorum.add_rules import AddQuorum, AddState
from wire.codes import AddFlag
from wire.digest import Entry
from wire.ids import EntryId, LedgerId
from wire.ledger_metadata import LedgerMetadata

log = Logger()


class LedgerWriter:
    """A handle that adds entries to one ledger, and closes it.

    Entries are confirmed in the order of their adds. A failed add ends the handle: whether its
    entry is in the ledger is known when the ledger is closed or recovered.

    ``last_add_confirmed`` is the highest entry that is safe together with all below it.

    Two kinds of writer differ, as in Java. With ``explicit_ids`` the caller chooses each entry's
    id, in any order; entries above a gap are not confirmed until the gap is filled. With
    ``deferred_sync`` bookies answer before an entry is on their disks: a confirmed add is safe only
    after ``force``, which moves the LAC. A bookie that fails ends the writer.
    """

    def __init__(
        self,
        cluster: Cluster,
        local: LocalMetadata,
        keys: LedgerKeys,
        *,
        last_confirmed: int = -1,
        length: int = 0,
        explicit_ids: bool = False,
        deferred_sync: bool = False,
    ) -> None:
        self.ledger_id: LedgerId = keys.ledger_id
        self._cluster, self._local, self._keys = cluster, local, keys
        metadata, config = local.value, cluster.config
        self.explicit_ids, self.deferred_sync = explicit_ids, deferred_sync
        changes = EnsembleChanges(cluster, self.ledger_id, local)
        self._quorum = _quorum(
            cluster, metadata, changes, last_confirmed, may_change=not deferred_sync
        )
        rate = cluster.rate_limit()
        self._pipeline = AddPipeline(
            cluster.pool,
            keys,
            self._quorum,
            AddSettings(
                write_quorum=metadata.write_quorum,
                flags=AddFlag.DEFERRED_SYNC if deferred_sync else AddFlag.NONE,
                rate=rate,
                quorum_timeout_s=config.add_quorum_timeout_s,
            ),
            AddEffects(
                change_ensemble=changes.carry_out,
                gave_up=self._gave_up,
                stamped_lac=lambda: self.last_add_confirmed,
            ),
            length=length,
        )
        self._explicit_lac = ExplicitLac(
            cluster.pool,
            keys,
            lambda: self.metadata,
            confirmed=lambda: self.last_add_confirmed,
            piggybacked=lambda: self._pipeline.piggybacked_lac,
        )
        if config.explicit_lac_interval_ms > 0:
            self._explicit_lac.start(cluster.clock, config.explicit_lac_interval_ms / 1000)
        self._taking = DeferredLock()
        self._fetcher = cluster.fetcher(keys, rate)
        self._end = WriterEnd()
        self._forced = ForcedAdds(
            cluster.pool, self.ledger_id, self._quorum, self._pipeline, self._end
        )
        self._closing = LedgerClosing(
            cluster,
            self.ledger_id,
            local,
            self._pipeline,
            self._end,
            self._forced if deferred_sync else None,
            last_confirmed=lambda: self.last_add_confirmed,
            leave=self._leave,
        )

    def __repr__(self) -> str:
        return f"<LedgerWriter {self.ledger_id} LAC {self.last_add_confirmed}>"

    # What is known

    @property
    def metadata(self) -> LedgerMetadata:
        """The ledger's metadata as this handle last stored or read it."""
        return self._local.value

    @property
    def last_add_pushed(self) -> EntryId:
        """The highest entry id that an add has got."""
        return self._quorum.last_pushed

    @property
    def last_add_confirmed(self) -> EntryId:
        """The highest entry that is safe with all below it; -1 if there is none."""
        return self._forced.last if self.deferred_sync else self._quorum.last_confirmed

    @property
    def length(self) -> int:
        """Payload bytes of all added entries, including unconfirmed entries."""
        return self._pipeline.length

    @property
    def is_writable(self) -> bool:
        """True if the handle accepts more entries."""
        return self._quorum.state is not AddState.ENDED

    @property
    def in_flight_anywhere(self) -> int:
        """The number of copies in flight, including copies of confirmed entries."""
        return self._pipeline.in_flight_anywhere

    @property
    def clock(self) -> IReactorTime:
        """The clock of the client."""
        return self._cluster.clock

    # Adding

    def add(self, payload: bytes) -> Deferred[EntryId]:
        """Add an entry; the Deferred fires with its id when it is confirmed.

        Never waits: a caller that adds many entries awaits ``wait_for_space``, or uses
        ``add_many``. Cancelling the Deferred does not undo the add.

        Raises (through the Deferred):
            LedgerClosedError, ClientLedgerFencedError: the handle accepts no more entries.
            IncorrectParameterError: the entry is too large; the handle stays usable.
            IllegalOperationError: the writer needs entry ids; use ``add_at``.
            ClientError: the entry's outcome is unknown until the ledger is closed or recovered.
        """
        try:
            self._require_mode(explicit_ids=False)
            entry_id = self._pipeline.push(payload)
        except ClientError as error:
            return fail(error)
        return self._pipeline.when_confirmed(entry_id)

    def add_at(self, entry_id: EntryId, payload: bytes) -> Deferred[EntryId]:
        """Add an entry with an id of the caller's choice; see ``add``.

        The entry is confirmed only when every lower id is: fill every gap.

        Raises (through the Deferred):
            IllegalOperationError: the writer was created without ``explicit_ids``.
            DuplicateEntryIdError: the id was added before.
            IncorrectParameterError: an invalid id, or an entry that is too large.
            ClientError: as for ``add``.
        """
        try:
            self._require_mode(explicit_ids=True)
            if not 0 <= entry_id < 2**63:
                raise IncorrectParameterError(f"entry {entry_id}: ids are 0 to 2^63 - 1")
            self._pipeline.push_at(entry_id, payload)
        except ClientError as error:
            return fail(error)
        return self._pipeline.when_confirmed(entry_id)

    def _require_mode(self, *, explicit_ids: bool) -> None:
        if explicit_ids is not self.explicit_ids:
            how = "add_at" if self.explicit_ids else "add"
            text = f"ledger {self.ledger_id} was not created for that: use {how}()"
            raise IllegalOperationError(text)

    def add_many(self, payloads: Iterable[bytes]) -> Deferred[EntryId]:
        """Add entries as space allows; the Deferred fires when the last one is confirmed.

        It fires with the last entry's id. This is the fastest way, because an entry has no object
        except its bytes. ``payloads`` is consumed as space allows, from this call on. Overlapping
        calls keep their order: a call adds no entry before all entries of earlier calls. Cancelling
        stops further adds.
        """
        return Deferred.fromCoroutine(self._add_many(payloads))

    async def _add_many(self, payloads: Iterable[bytes]) -> EntryId:
        self._require_mode(explicit_ids=False)
        pipeline, remaining = self._pipeline, iter(payloads)
        await self._taking.acquire()
        try:
            await pipeline.space.wait()
            while pipeline.push_some(remaining):
                await pipeline.space.wait()
            last = self._quorum.last_pushed
        finally:
            self._taking.release()
        return await pipeline.when_confirmed(last)

    async def wait_for_space(self) -> None:
        """Wait until adding one more stays within limits of entries, bytes and connections."""
        await self._pipeline.space.wait()

    async def drain(self) -> EntryId:
        """Wait until everything added so far is confirmed; return the LAC.

        Raises:
            ClientError: an add failed.
        """
        if self._quorum.pending:
            await self._pipeline.when_confirmed(self._quorum.last_pushed)
        if self._end.error is not None:
            raise self._end.error
        return self.last_add_confirmed

    async def publish_lac(self) -> None:
        """Write the LAC to the bookies, so that readers see the last entries at once.

        Without ``publish_lac`` readers learn the LAC from the next add, at the end of the ledger,
        or at the interval of the setting. A bookie that refuses the LAC is not a failure.
        """
        await self._explicit_lac.publish()

    async def force(self) -> EntryId:
        """Wait until all confirmed entries are on their bookies' disks; return the last entry's id.

        With ``deferred_sync`` the LAC is then this entry. Without entries ``force`` returns at
        once.

        Raises:
            LedgerClosedError: the ledger has ended, or is closing, before the last of these
                entries.
            ClientLedgerFencedError: another client recovers the ledger and decides its end.
            ClientError: a bookie failed; the entries since the last ``force`` may be lost.
        """
        return await self._forced.force()

    # Closing

    async def close(self) -> LedgerMetadata:
        """Close the ledger at the LAC; return its final metadata.

        Unconfirmed adds fail with ``LedgerClosedError``: await ``drain`` first to keep them. With
        ``deferred_sync`` confirmed entries are forced first; if that fails, the ledger ends with
        the entries forced before. Overlapping calls share one result; a failed close can be tried
        again.

        Raises:
            ClientLedgerFencedError: another client recovers the ledger, and will close it.
            MetadataVersionError: another client closed it at another entry.
            MetadataUnavailableError: the store cannot be reached; the outcome is unknown.
        """
        return await self._closing.close()

    def _gave_up(self, error: ClientError) -> None:
        self._closing.adds_failed(error)

    async def update_metadata(
        self,
        needed: Callable[[LedgerMetadata], bool],
        changed: Callable[[LedgerMetadata], LedgerMetadata],
        lost_reply: Callable[[], None] = lambda: None,
    ) -> LedgerMetadata:
        """Change the ledger's metadata as this handle; see ``Updater.update``."""
        return await self._cluster.updater.update(
            self.ledger_id, self._local, needed, changed, lost_reply
        )

    def retire(self) -> None:
        """Accept no more entries, because another client will; no add may be pending."""
        assert not self._quorum.pending, "adds are pending"
        error = self._end.error = ClientLedgerFencedError(
            f"ledger {self.ledger_id} was handed over to its next writer"
        )
        self._pipeline.end(error)
        self._leave()

    def abandon(self) -> None:
        """Abandon the ledger without closing it: pending adds fail, the metadata stays.

        ``recover`` then determines which entries the ledger has.
        """
        error = ClientClosedError(f"the writer of ledger {self.ledger_id} was abandoned")
        if not self._end.is_left_to_others:
            self._end.error = error  # The writer then does not close the ledger itself.
        self._pipeline.end(error)
        self._leave()

    def _leave(self, last_copies: PendingCopies | None = None) -> None:
        self._explicit_lac.stop()
        self._pipeline.leave(last_copies)
        self._fetcher.close()

    # Reading

    async def read(self, first: int, last: int) -> AsyncIterator[Entry]:
        """Yield entries ``first`` to ``last``, both confirmed, in order.

        Raises:
            ReadFailedError: ``last`` is not confirmed, or an entry cannot be read.
        """
        if last > self.last_add_confirmed:
            raise ReadFailedError(
                f"entry {last} of ledger {self.ledger_id} is not confirmed: "
                f"the last one that is, is {self.last_add_confirmed}"
            )
        async for found in read_range(self._cluster, self._fetcher, self._local, first, last):
            for entry in found.entries():
                yield entry


def _quorum(
    cluster: Cluster,
    metadata: LedgerMetadata,
    changes: EnsembleChanges,
    last_confirmed: int,
    *,
    may_change: bool,
) -> AddQuorum:
    """Return the rules of a writer; with deferred sync it may not replace a bookie.

    The entries that a bookie has acknowledged may be on no disk.
    """
    config = cluster.config
    return AddQuorum(
        metadata.last_fragment.ensemble,
        metadata.write_quorum,
        metadata.ack_quorum,
        last_confirmed=last_confirmed,
        delay_changes=config.delay_ensemble_change,
        allow_changes=may_change,
        changes_max=config.ensemble_changes_max,
        spans_enough=changes.spans_enough if config.enforce_fault_domains else None,
    )
