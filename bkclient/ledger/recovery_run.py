"""Recovery of a ledger, run over the pool and the metadata store.

``bkclient.quorum.recovery_rules`` decides which entry is read next, and which is the last.

Agrees with BookKeeper 4.18.0, LedgerOpenOp, LedgerRecoveryOp and ReadOnlyLedgerHandle.
"""

from __future__ import annotations

from collections.abc import Callable, Coroutine, Sequence
from typing import Any, ClassVar, Final

import attrs
from twisted.internet.defer import Deferred
from twisted.logger import Logger
from twisted.python.failure import Failure

from bkclient.connection.add_frames import LedgerKeys
from bkclient.errors import ClientError, InterruptedOperationError, UnexpectedConditionError
from bkclient.ledger.adds.pipeline import AddEffects, AddPipeline, AddSettings
from bkclient.ledger.cluster import Cluster
from bkclient.ledger.reads.replica_read import as_client_error
from bkclient.metadata.ledger_metadata_updates import LocalMetadata, as_in_recovery, as_recovered
from bkclient.placement.policy import Ensemble
from bkclient.quorum.add_rules import AddQuorum
from bkclient.quorum.pending_adds import ChangeEnsemble
from bkclient.quorum.read_rules import KnownLac
from bkclient.quorum.recovery_rules import (
    AbortRecovery,
    CloseAt,
    FenceBookies,
    MeasureLength,
    ReadReplicas,
    Recovery,
    RecoveryCommand,
    WriteBack,
)
from wire.codes import AddFlag, LedgerState, ReadFlag
from wire.digest import Entry
from wire.ids import NO_ENTRY, BookieId, EntryId, LedgerId
from wire.ledger_metadata import Fragment, LedgerMetadata
from wire.messages import ReadRequest, Response

log = Logger()

RECOVERY_FRAME_BYTES: Final = 160
"""The largest number of bytes in a recovery add besides the payload: headers, key and digest.

Java's writers leave no more free, so a ledger may have an entry that bkclient would refuse to add.
"""


@attrs.frozen
class RecoveryProgress:
    """The progress of a recovery; ``recovered`` counts entries written back."""

    ledger_id: LedgerId
    step: str
    """``fencing``, ``reading``, ``closing`` or ``closed``."""
    last_entry: EntryId = NO_ENTRY
    recovered: int = 0


ProgressReport = Callable[[RecoveryProgress], None]


async def recover(
    cluster: Cluster,
    local: LocalMetadata,
    keys: LedgerKeys,
    report: ProgressReport = lambda _progress: None,
) -> LedgerMetadata:
    """Find a ledger's last entry and close the ledger there; return the stored metadata.

    A closed ledger is unchanged. A cancellation leaves the ledger in recovery: fenced, not closed,
    and ready for the next recovery to begin again.

    Raises:
        LedgerRecoveryError: the ledger cannot be recovered now.
        ClientUnauthorizedError: wrong password.
        RequestTimeoutError: too many bookies do not answer.
        MetadataStoreError: the store failed.
    """
    metadata = await mark(cluster, local, keys.ledger_id)
    if metadata.is_closed:
        return metadata
    run = RecoveryRun(cluster, local, keys, metadata, report)
    try:
        return await run.start()
    finally:
        run.leave()


async def mark(cluster: Cluster, local: LocalMetadata, ledger_id: LedgerId) -> LedgerMetadata:
    """Store IN_RECOVERY, unless the ledger is closed; return the stored metadata.

    No bookie may be fenced before: the mark keeps the writer from moving to other bookies.
    """
    return await cluster.updater.update(
        ledger_id, local, lambda m: m.state is LedgerState.OPEN, as_in_recovery
    )


class RecoveryRun:
    """One recovery in progress: carries out the commands of ``Recovery``.

    Args:
        metadata: the stored metadata, in recovery; all reads use it.
    """

    def __init__(
        self,
        cluster: Cluster,
        local: LocalMetadata,
        keys: LedgerKeys,
        metadata: LedgerMetadata,
        report: ProgressReport,
    ) -> None:
        self._cluster, self._local, self._keys = cluster, local, keys
        self._metadata, self._report_to = metadata, report
        self._fetcher = cluster.fetcher(keys)
        self._rules = Recovery(
            metadata,
            window=cluster.config.recovery_read_batch_size,
            entries_max=cluster.config.recovery_entries_max,
            bytes_max=cluster.config.recovery_bytes_max,
        )
        self._pipeline: AddPipeline | None = None
        self._ensemble = metadata.last_fragment.ensemble
        self._fragments: dict[EntryId, Ensemble] = {}
        self._recovered = 0
        self._result: Deferred[LedgerMetadata] = Deferred(self._cancelled)

    def start(self) -> Deferred[LedgerMetadata]:
        """Start; return a Deferred of the closed ledger's metadata."""
        self._report("fencing")
        self._run(self._rules.start())
        return self._result

    def leave(self) -> None:
        """Release connections and timers."""
        if self._pipeline is not None:
            self._pipeline.end(InterruptedOperationError("the recovery has ended"))
            self._pipeline.leave()
        self._fetcher.close()

    def _cancelled(self, _result: Deferred[LedgerMetadata]) -> None:
        self._rules.ended = True

    def _report(self, step: str, last: EntryId = NO_ENTRY) -> None:
        progress = RecoveryProgress(self._keys.ledger_id, step, last, self._recovered)
        self._report_to(progress)

    def _run(self, commands: Sequence[RecoveryCommand]) -> None:
        """Carry out commands. Any error, even in the report, ends the recovery.

        Answers call this function: no other code would see the error.
        """
        try:
            for command in commands:
                self._DOERS[type(command)](self, command)
        except Exception as error:  # noqa: BLE001 - passed on to the waiting caller.
            self._fail(error)

    def _spawn(self, work: Coroutine[Deferred[Any], Any, None]) -> None:
        Deferred.fromCoroutine(work).addErrback(self._broke)

    def _broke(self, failure: Failure) -> None:
        self._abort(AbortRecovery(as_client_error(failure)))

    # Fencing and reading

    def _fence(self, command: FenceBookies) -> None:
        for index, bookie in enumerate(command.ensemble):
            self._ask(bookie, NO_ENTRY, ReadFlag.FENCE).addCallbacks(
                self._fenced,
                lambda failure, i: self._run(self._rules.fence_failed(i, as_client_error(failure))),
                callbackArgs=(index, bookie),
                errbackArgs=(index,),
            )

    def _ask(self, bookie: BookieId, entry_id: EntryId, flags: ReadFlag) -> Deferred[Any]:
        request = ReadRequest(self._keys.ledger_id, entry_id, flags, self._keys.master_key)
        return self._cluster.pool.send(bookie, request)

    def _fenced(self, response: Response, index: int, bookie: BookieId) -> None:
        try:
            entry = self._fetcher.verifier.entry(bookie, response, None)
        except ClientError as error:
            self._run(self._rules.fence_failed(index, error))
        else:
            self._run(self._rules.fence_answered(index, KnownLac(entry.lac, entry.length)))

    def _read(self, command: ReadReplicas) -> None:
        entry_id = command.entry_id
        flags = ReadFlag.FENCE | ReadFlag.HIGH_PRIORITY
        for index, bookie in command.replicas:
            self._ask(bookie, entry_id, flags).addCallbacks(
                self._read_answered,
                lambda failure, i: self._run(
                    self._rules.read_failed(entry_id, i, as_client_error(failure))
                ),
                callbackArgs=(entry_id, index, bookie),
                errbackArgs=(index,),
            )

    def _read_answered(
        self, response: Response, entry_id: EntryId, index: int, bookie: BookieId
    ) -> None:
        try:
            entry = self._fetcher.verifier.entry(bookie, response, entry_id)
        except ClientError as error:
            self._run(self._rules.read_failed(entry_id, index, error))
        else:
            self._run(self._rules.read_answered(index, entry))

    # Writing back

    def _write_back(self, command: WriteBack) -> None:
        pipeline = self._pipeline
        if pipeline is None:
            pipeline = self._pipeline = self._make_pipeline(command.lac)
        self._push(pipeline, command.entry)

    def _push(self, pipeline: AddPipeline, entry: Entry) -> None:
        # The copy has the length of the original, whatever this recovery knows of earlier entries.
        pipeline.length = entry.length - len(entry.payload)
        try:
            entry_id = pipeline.push(entry.payload)
        except ClientError as error:
            self._run(self._rules.write_back_failed(error))
            return
        assert entry_id == entry.entry_id, (entry_id, entry.entry_id)
        self._recovered += 1
        self._report("reading", entry_id)

    def _make_pipeline(self, lac0: EntryId) -> AddPipeline:
        """Return the pipeline for entries to write back, without the add-quorum time-out.

        The time-out would end each recovery before a silent bookie can be replaced. Java's
        recovery has none, either.
        """
        meta = self._metadata
        return AddPipeline(
            self._cluster.pool,
            self._keys,
            AddQuorum(
                self._ensemble,
                meta.write_quorum,
                meta.ack_quorum,
                last_confirmed=lac0,
                delay_changes=self._cluster.config.delay_ensemble_change,
                changes_max=self._cluster.config.ensemble_changes_max,
            ),
            AddSettings(
                write_quorum=meta.write_quorum,
                flags=AddFlag.RECOVERY | AddFlag.HIGH_PRIORITY,
                rate=self._cluster.rate_limit(),
                frame_bytes_kept=RECOVERY_FRAME_BYTES,
            ),
            AddEffects(
                change_ensemble=self._change_ensemble,
                gave_up=lambda error: self._run(self._rules.write_back_failed(error)),
                confirmed=lambda last: self._run(self._rules.wrote_back(last)),
                stamped_lac=lambda: lac0,
            ),
            length=0,
        )

    async def _change_ensemble(self, command: ChangeEnsemble) -> Ensemble:
        """Note the change; it is stored only when the ledger is closed.

        Otherwise a second recovery would read from bookies that may lack entries.
        """
        replacement = await self._cluster.replacement(self._metadata, command.failed)
        self._ensemble = replacement.of(self._ensemble)
        self._fragments[command.first_entry] = self._ensemble
        return self._ensemble

    # The end

    def _measure(self, command: MeasureLength) -> None:
        self._spawn(self._read_length(command.entry_id))

    async def _read_length(self, entry_id: EntryId) -> None:
        try:
            entry = await self._fetcher.entry(self._metadata, entry_id)
        except ClientError:
            self._run(self._rules.measured(None))
        else:
            self._run(self._rules.measured(entry.length))

    def _close(self, command: CloseAt) -> None:
        self._spawn(self._store_close(command))

    async def _store_close(self, command: CloseAt) -> None:
        self._report("closing", command.last_entry)
        fragments = [Fragment(e, ensemble) for e, ensemble in sorted(self._fragments.items())]
        metadata = await self._cluster.updater.update(
            self._keys.ledger_id,
            self._local,
            _still_recovering,
            lambda m: as_recovered(m, fragments, command.last_entry, command.length),
        )
        # Another recovery may have closed the ledger first: the stored end counts.
        last = metadata.last_entry_id
        self._report("closed", NO_ENTRY if last is None else last)
        if not self._result.called:
            self._result.callback(metadata)

    def _abort(self, command: AbortRecovery) -> None:
        self._fail(command.error)

    def _fail(self, error: Exception) -> None:
        self._rules.ended = True
        if not self._result.called:
            self._result.errback(error)

    _DOERS: ClassVar[dict[type, Callable[..., None]]] = {
        FenceBookies: _fence,
        ReadReplicas: _read,
        WriteBack: _write_back,
        MeasureLength: _measure,
        CloseAt: _close,
        AbortRecovery: _abort,
    }


def _still_recovering(metadata: LedgerMetadata) -> bool:
    if metadata.state is LedgerState.OPEN:
        raise UnexpectedConditionError("the ledger went back from IN_RECOVERY to OPEN")
    return metadata.state is LedgerState.IN_RECOVERY
