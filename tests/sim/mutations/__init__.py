"""Switches that break one rule each, to see the hunt notice.

A hunt that does not find these proves nothing by finding nothing. Each is a mistake that somebody
has made, in BookKeeper's history or in the model checkers' counterexamples, or an [S] rule of
client.md taken back. ``with mutation.built_in():`` puts it into the product's code for a while.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Sequence
from typing import Any, Final
from unittest.mock import patch

import attrs

from bkclient.connection.channel import BookieChannel
from bkclient.connection.tcp import Silence
from bkclient.errors import (
    ClientDigestMismatchError,
    ClientError,
    ClientLedgerFencedError,
    MetadataVersionError,
    RequestTimeoutError,
)
from bkclient.ledger import explicit_lac, opening, recovery
from bkclient.ledger.adds import closing, ensemble_members
from bkclient.ledger.adds.ensemble_members import EnsembleMembers, Member
from bkclient.ledger.adds.pipeline import AddPipeline
from bkclient.ledger.reads.tail import ConfirmedEnd, MetadataFollower
from bkclient.ledger.reads.verifier import AnswerVerifier
from bkclient.ledger.recovery import RecoveryRun
from bkclient.ledger.writer import LedgerWriter
from bkclient.metadata import update as updates
from bkclient.metadata.api import ANY, Versioned
from bkclient.metadata.errors import MetadataUnavailableError
from bkclient.metadata.update import LocalMetadata, Updater
from bkclient.quorum.add_rules import AddQuorum, AddState
from bkclient.quorum.distribution import write_set
from bkclient.quorum.pending_adds import (
    AddsAcked,
    AddsFailed,
    Command,
    EnsembleStored,
    FailAdds,
    SendAgain,
)
from bkclient.quorum.read_rules import LacQuorum
from bkclient.quorum.recovery_rules import EntryVerdict, ReadReplicas, Recovery
from bookied.server.rules.deleted_ledgers import FencedDeletions
from bookied.server.rules.fencing import Fences
from bookied.storage.journal.journal_file import JournalFile
from bookied.storage.ledger_storage.ledgers import StoredLedgers
from tests.sim.engine.switches import Mutation, put, switch
from tests.sim.mutations.log import LOG_MUTATIONS
from tests.sim.mutations.metadata import METADATA_MUTATIONS
from tests.sim.mutations.repair import REPAIR_MUTATIONS
from tests.sim.mutations.scenarios import SCENARIO_MUTATIONS
from tests.sim.mutations.storage import STORAGE_MUTATIONS
from wire.codes import LedgerState, ReadFlag
from wire.digest import _Digester
from wire.ids import EntryId, LedgerId
from wire.ledger_metadata import LedgerMetadata


def _rule(stack: contextlib.ExitStack, state: AddState, event: type, rule: Any) -> None:
    stack.enter_context(patch.dict(AddQuorum.TRANSITIONS, {(state, event): rule}))


# The writer ---------------------------------------------------------------------------------------


def _release_interleaved(stack: contextlib.ExitStack) -> None:
    """Java's order: acks are taken back one by one, and adds confirmed meanwhile."""

    def stored_change(self: Any, event: EnsembleStored) -> list[Command]:
        self._stored = event.ensemble
        self._delayed = {i: b for i, b in self._delayed.items() if self._stored[i] == b}
        if self._delayed:
            return list(self._next_change())
        replaced = [i for i in range(self._size) if self.ensemble[i] != self._stored[i]]
        self.ensemble, self.state = self._stored, AddState.OPEN
        commands: list[Command] = []
        for entry in sorted(self._acks):
            members = write_set(entry, self._size, self._write_quorum)
            mine = [i for i in replaced if i in members]
            for index in mine if entry in self._acks else ():
                self._acks[entry] &= ~(1 << index)
                commands.append(SendAgain(index, self.ensemble[index], (entry,)))
            if not mine:
                commands += self._confirm()
        kept = [i for i, b in self._given_up.items() if self._stored[i] == b and i not in replaced]
        return [*commands, *self._send_again(kept), *self._confirm()]

    _rule(stack, AddState.CHANGING, EnsembleStored, stored_change)


def _no_confirm_after_release(stack: contextlib.ExitStack) -> None:
    usual = AddQuorum._stored_change

    def stored_change(self: Any, event: EnsembleStored) -> list[Command]:
        commands = usual(self, event)
        return [one for one in commands if type(one).__name__ != "ConfirmAdds"]

    def confirm(self: Any) -> list[Command]:
        return []

    def released(self: Any, event: EnsembleStored) -> list[Command]:
        with patch.object(AddQuorum, "_confirm", confirm):
            return stored_change(self, event)

    _rule(stack, AddState.CHANGING, EnsembleStored, released)


def _failures_forgotten_by_changes(stack: contextlib.ExitStack) -> None:
    """With delayed changes the second one goes by what has failed since the first alone."""
    usual = AddQuorum._take_back

    def take_back(self: Any, replaced: Sequence[int], kept: Sequence[int]) -> None:
        usual(self, replaced, kept)
        self._failures = {}

    put(stack, AddQuorum, _take_back=take_back)


def _acks_while_changing(stack: contextlib.ExitStack) -> None:
    _rule(stack, AddState.CHANGING, AddsAcked, AddQuorum._ack)


def _ack_of_anybody(stack: contextlib.ExitStack) -> None:
    """Counts an ack also from a bookie that was replaced at its index."""

    def count(self: Any, event: AddsAcked) -> None:
        bit = 1 << event.index
        for entry_id in event.entries:
            if entry_id in self._acks:
                self._acks[entry_id] |= bit

    def take_back(self: Any, replaced: Any, kept: Any) -> None:
        pass

    put(stack, AddQuorum, _count=count, _take_back=take_back)


def _local_ensemble_first(stack: contextlib.ExitStack) -> None:
    """Goes over to the new bookies before the store knows them."""
    usual = AddQuorum._next_change

    def next_change(self: Any) -> list[Command]:
        failed = dict(self._delayed)
        commands = usual(self)
        mask = sum(1 << index for index in failed)
        self._acks = {entry: held | mask for entry, held in self._acks.items()}
        return [*commands, *self._confirm()]

    put(stack, AddQuorum, _next_change=next_change)


def _second_failure_ignored(stack: contextlib.ExitStack) -> None:
    """A failure during a change is forgotten."""

    def fail(self: Any, event: AddsFailed) -> list[Command]:
        return []

    _rule(stack, AddState.CHANGING, AddsFailed, fail)


def _one_ack_less(stack: contextlib.ExitStack) -> None:
    usual = AddQuorum.__init__

    def init(self: Any, ensemble: Any, write: int, ack: int, **rest: Any) -> None:
        usual(self, ensemble, write, max(1, ack - 1), **rest)

    put(stack, AddQuorum, __init__=init)


def _gap_confirmed(stack: contextlib.ExitStack) -> None:
    """Confirms whatever has its quorum, below a gap or above."""

    def confirm(self: Any) -> list[Command]:
        while self._acks and self._head not in self._acks and self._head < self._next:
            self._head += 1
        return usual(self)

    usual = AddQuorum._confirm
    put(stack, AddQuorum, _confirm=confirm)


def _fenced_writer_closes(stack: contextlib.ExitStack) -> None:
    """As Java does: a fenced writer closes the ledger at its own LAC, from IN_RECOVERY too."""

    def may_close(metadata: LedgerMetadata, last: int, length: int) -> bool:
        return not metadata.is_closed

    put(stack, closing, NO_METADATA_AFTER=())
    put(stack, closing, writer_may_close=may_close)


def _close_over_another(stack: contextlib.ExitStack) -> None:
    """A close that finds the ledger closed elsewhere is content."""

    def may_close(metadata: LedgerMetadata, last: int, length: int) -> bool:
        if metadata.state is LedgerState.IN_RECOVERY:
            raise updates.state_error(None, metadata.state)
        return not metadata.is_closed

    put(stack, closing, writer_may_close=may_close)


def _second_close_early(stack: contextlib.ExitStack) -> None:
    """A second close returns at once with what the handle believes."""
    usual = closing.LedgerClosing.close

    async def close(self: Any) -> LedgerMetadata:
        if self._closing is not None:
            return updates.closed(self._local.value, *self._safe_end())
        return await usual(self)

    put(stack, closing.LedgerClosing, close=close)


def _writer_learns_lac(stack: contextlib.ExitStack) -> None:
    """A writer's LAC rises with what a bookie says along with an entry it reads.

    With recoverers as Java has them: those of ours never tell more than the writer has confirmed.
    """
    _lac_moves(stack)
    usual = LedgerWriter.read

    async def read(self: Any, first: int, last: int) -> Any:
        def saw(lac: int) -> None:
            self._quorum._head = max(self._quorum._head, lac + 1)

        self._fetcher.follow_lac(saw)
        async for entry in usual(self, first, last):
            yield entry

    put(stack, LedgerWriter, read=read)


def _usable_after_drain(stack: contextlib.ExitStack) -> None:
    """A writer takes adds again after those pending were failed, as Java's does in recovery."""
    usual = AddQuorum._drain

    def drain(self: Any, error: ClientError) -> list[Command]:
        commands = usual(self, error)
        if isinstance(error, ClientLedgerFencedError):
            self.state, self.ended_by = AddState.OPEN, None
        return commands

    put(stack, AddQuorum, _drain=drain)


def _change_over_recovery(stack: contextlib.ExitStack) -> None:
    """An ensemble change does not look at the state, and stores OPEN."""

    def still_has(metadata: LedgerMetadata, failed: Any) -> bool:
        return any(metadata.last_fragment.ensemble[i] == bookie for i, bookie in failed)

    def with_ensemble(metadata: LedgerMetadata, first: int, ensemble: Any) -> LedgerMetadata:
        made = updates.with_ensemble(metadata, first, ensemble)
        return attrs.evolve(made, state=LedgerState.OPEN, last_entry_id=None, length=0)

    put(stack, ensemble_members, still_has=still_has, with_ensemble=with_ensemble)


def _changes_unsynced(stack: contextlib.ExitStack) -> None:
    """With deferred sync a bookie is replaced that has entries nobody has forced."""
    usual = AddQuorum.__init__

    def init(self: Any, *sizes: Any, **rest: Any) -> None:
        usual(self, *sizes, **(rest | {"allow_changes": True}))

    put(stack, AddQuorum, __init__=init)


def _length_of_the_lost(stack: contextlib.ExitStack) -> None:
    """Entries that failed count for the length with which a writer closes."""
    usual = AddPipeline._fail

    def fail(self: Any, command: Any) -> None:
        length = self.length
        usual(self, command)
        self.length = length

    doers = AddPipeline._DOERS | {FailAdds: fail}
    put(stack, AddPipeline, _DOERS=doers)


# The metadata -------------------------------------------------------------------------------------


def _write_blindly(stack: contextlib.ExitStack) -> None:
    """Writes whatever version there is."""

    async def update(
        self: Updater,
        ledger_id: LedgerId,
        local: LocalMetadata,
        needed: Callable[[LedgerMetadata], bool],
        transform: Callable[[LedgerMetadata], LedgerMetadata],
        _lost_reply: Callable[[], None] = lambda: None,
    ) -> LedgerMetadata:
        base = local.current
        if not needed(base.value):
            return base.value
        changed: LedgerMetadata = transform(base.value)
        await self.store.write_ledger(ledger_id, changed, ANY)
        local.install(await self.store.read_ledger(ledger_id))
        return changed

    put(stack, Updater, update=update)


def _stale_base(stack: contextlib.ExitStack) -> None:
    """After a conflict the same change is written again, under the version met."""

    async def update(
        self: Updater,
        ledger_id: LedgerId,
        local: LocalMetadata,
        needed: Callable[[LedgerMetadata], bool],
        transform: Callable[[LedgerMetadata], LedgerMetadata],
        _lost_reply: Callable[[], None] = lambda: None,
    ) -> LedgerMetadata:
        base, stored = local.current, local.current
        while needed(base.value):
            changed = transform(base.value)
            try:
                version = await self.store.write_ledger(ledger_id, changed, stored.version)
            except MetadataVersionError:
                stored = await self.store.read_ledger(ledger_id)
                continue
            local.install(Versioned(changed, version))
            return changed
        return base.value

    put(stack, Updater, update=update)


def _conflict_is_fatal(stack: contextlib.ExitStack) -> None:
    """A version conflict ends the operation, also one with itself after a lost answer."""

    async def update(
        self: Updater,
        ledger_id: LedgerId,
        local: LocalMetadata,
        needed: Callable[[LedgerMetadata], bool],
        transform: Callable[[LedgerMetadata], LedgerMetadata],
        _lost_reply: Callable[[], None] = lambda: None,
    ) -> LedgerMetadata:
        base = local.current
        while needed(base.value):
            changed = transform(base.value)
            try:
                version = await self.store.write_ledger(ledger_id, changed, base.version)
            except MetadataUnavailableError:
                continue
            local.install(Versioned(changed, version))
            return changed
        return base.value

    put(stack, Updater, update=update)


# Recovery -----------------------------------------------------------------------------------------


def _fence_before_mark(stack: contextlib.ExitStack) -> None:
    usual = recovery.mark

    async def recover(cluster: Any, local: Any, keys: Any, report: Any = None) -> Any:
        if local.value.is_closed:
            return local.value
        early = attrs.evolve(local.value, state=LedgerState.IN_RECOVERY)
        run = RecoveryRun(cluster, local, keys, early, report)
        started = run.start()
        metadata = await usual(cluster, local, keys.ledger_id)
        try:
            return metadata if metadata.is_closed else await started
        finally:
            run.leave()

    put(stack, opening, recover=recover)


def _reads_do_not_fence(stack: contextlib.ExitStack) -> None:
    def read(self: Any, command: ReadReplicas) -> None:
        ask = self._ask
        self._ask = lambda bookie, entry, _flags: ask(bookie, entry, ReadFlag.HIGH_PRIORITY)
        try:
            usual(self, command)
        finally:
            del self._ask

    usual = RecoveryRun._read
    stack.enter_context(patch.dict(RecoveryRun._DOERS, {ReadReplicas: read}))


def _from_the_beginning(stack: contextlib.ExitStack) -> None:
    """Begins behind the LAC it was told, also where the last fragment begins later."""
    usual = Recovery._see_fence

    def see_fence(self: Any) -> Any:
        metadata = self._metadata
        first = attrs.evolve(metadata.last_fragment, first_entry_id=EntryId(0))
        fragments = (*metadata.fragments[:-1], first)
        self._metadata = attrs.evolve(metadata, fragments=fragments)
        try:
            return usual(self)
        finally:
            self._metadata = metadata

    put(stack, Recovery, _see_fence=see_fence)


def _ensembles_stored_early(stack: contextlib.ExitStack) -> None:
    """A recovery stores its ensemble changes at once, and reads from them."""
    usual = RecoveryRun._change_ensemble

    async def change(self: Any, command: Any) -> Any:
        ensemble = await usual(self, command)
        await self._cluster.updater.update(
            self._keys.ledger_id,
            self._local,
            lambda metadata: not metadata.is_closed,
            lambda metadata: updates.with_ensemble(metadata, command.first_entry, ensemble),
        )
        return ensemble

    put(stack, RecoveryRun, _change_ensemble=change)


def _reads_follow(stack: contextlib.ExitStack) -> None:
    """Recovery reads go to the ensemble of the moment, not to the frozen one."""
    usual = RecoveryRun._change_ensemble

    async def change(self: Any, command: Any) -> Any:
        ensemble = await usual(self, command)
        metadata = self._rules._metadata
        last = attrs.evolve(metadata.last_fragment, ensemble=ensemble)
        fragments = (*metadata.fragments[:-1], last)
        self._rules._metadata = attrs.evolve(metadata, fragments=fragments)
        return ensemble

    put(stack, RecoveryRun, _change_ensemble=change)


def _one_negative_ends(stack: contextlib.ExitStack) -> None:
    usual = EntryVerdict.__init__

    def init(self: Any, entry_id: EntryId, write: int, ack: int) -> None:
        usual(self, entry_id, write, ack)
        self._negatives_needed = 1

    put(stack, EntryVerdict, __init__=init)


def _hang_is_negative(stack: contextlib.ExitStack) -> None:
    usual = EntryVerdict.failed

    def failed(self: Any, index: int, error: ClientError) -> None:
        if isinstance(error, RequestTimeoutError):
            error = _no_entry()
        usual(self, index, error)

    put(stack, EntryVerdict, failed=failed)


def _damage_is_negative(stack: contextlib.ExitStack) -> None:
    usual, of_lac = EntryVerdict.failed, LacQuorum.failed

    def failed(self: Any, index: int, error: ClientError) -> None:
        usual(self, index, _no_entry() if isinstance(error, ClientDigestMismatchError) else error)

    def lac_failed(self: Any, index: int, error: ClientError) -> None:
        of_lac(self, index, _no_entry() if isinstance(error, ClientDigestMismatchError) else error)

    put(stack, EntryVerdict, failed=failed)
    put(stack, LacQuorum, failed=lac_failed)


def _error_is_negative(stack: contextlib.ExitStack) -> None:
    """Any error of a bookie counts as if it had no such entry: EIO, limbo, a lost connection."""
    usual = EntryVerdict.failed

    def failed(self: Any, index: int, error: ClientError) -> None:
        usual(self, index, _no_entry())

    put(stack, EntryVerdict, failed=failed)


def _no_entry() -> ClientError:
    from bkclient.errors import NoSuchEntryInLedgerError

    return NoSuchEntryInLedgerError("taken for no such entry")


def _all_must_answer(stack: contextlib.ExitStack) -> None:
    """A recovery waits for every bookie of the write set."""
    usual = EntryVerdict.__init__

    def init(self: Any, entry_id: EntryId, write: int, ack: int) -> None:
        usual(self, entry_id, write, ack)
        self._negatives_needed = write

    put(stack, EntryVerdict, __init__=init)


def _lac_moves(stack: contextlib.ExitStack) -> None:
    """What is written back carries the LAC of the moment."""
    usual = RecoveryRun._make_pipeline

    def make(self: Any, lac0: EntryId) -> AddPipeline:
        pipeline = usual(self, lac0)
        pipeline._effects = attrs.evolve(pipeline._effects, stamped_lac=None)
        return pipeline

    put(stack, RecoveryRun, _make_pipeline=make)


def _close_before_written(stack: contextlib.ExitStack) -> None:
    """A recovery closes as soon as it has read the end, whatever is still written back."""

    def close(self: Any) -> Any:
        if self.ended or not self._end_found:
            return []
        self._written = EntryId(self._next_write - 1)
        return self._close(self._length if self._written >= 0 else 0)

    put(stack, Recovery, _close_when_written=close)


def _close_over_closed(stack: contextlib.ExitStack) -> None:
    """A recoverer does not look whether another was faster."""
    put(stack, recovery, _still_recovering=lambda _metadata: True)


def _own_end(stack: contextlib.ExitStack) -> None:
    """A recoverer that was overtaken reports its own end, not the stored one."""
    usual = RecoveryRun._store_close

    async def store_close(self: Any, command: Any) -> None:
        await usual(self, command)
        stored = self._local.current
        own = updates.closed(stored.value, command.last_entry, command.length)
        self._local.current = Versioned(own, stored.version)

    put(stack, RecoveryRun, _store_close=store_close)


def _no_measuring(stack: contextlib.ExitStack) -> None:
    """The length stored is that of the first answer's entry, as Java has it."""

    def close(self: Any) -> Any:
        if self.ended or not self._end_found or self._written != self._next_write - 1:
            return []
        return self._close(self._length)

    put(stack, Recovery, _close_when_written=close)


# Readers ------------------------------------------------------------------------------------------


def _no_digest(stack: contextlib.ExitStack) -> None:
    """Entries are taken without looking at their digest."""
    usual = _Digester.verify

    def verify(self: Any, ledger_id: int, entry_id: int | None, packet: bytes) -> Any:
        head, payload = packet[:32], packet[32 + self.size :]
        whole = head + self._compute(head, payload) + payload
        return usual(self, ledger_id, entry_id, whole)

    put(stack, _Digester, verify=verify)


def _no_lac_digest(stack: contextlib.ExitStack) -> None:
    """A LAC is taken from a bookie's last entry, and from an explicit LAC, without their digest."""
    usual = AnswerVerifier.lac

    def known(self: Any, bookie: Any, response: Any) -> Any:
        with contextlib.ExitStack() as answer:
            _no_digest(answer)
            return usual(self, bookie, response)

    put(stack, AnswerVerifier, lac=known)


def _lac_goes_back(stack: contextlib.ExitStack) -> None:
    def saw(self: Any, lac: int) -> None:
        self._lac = lac

    put(stack, ConfirmedEnd, raise_to=saw)


def _reads_beyond(stack: contextlib.ExitStack) -> None:
    """A reader takes an entry that a bookie has for one that is confirmed."""

    def known(self: Any, bookie: Any, response: Any) -> Any:
        found = usual(self, bookie, response)
        if found is None or response.last_entry is None:
            return found
        last = self.packet(bookie, response.last_entry, None)
        return attrs.evolve(found, lac=max(found.lac, last.entry_id))

    usual = AnswerVerifier.lac
    put(stack, AnswerVerifier, lac=known)


def _does_not_follow(stack: contextlib.ExitStack) -> None:
    """A reader asks the bookies that it knew when it was opened, for ever."""

    async def start(_self: Any) -> None:
        pass

    async def refresh(self: Any) -> LedgerMetadata:
        return self._local.value  # type: ignore[no-any-return]

    put(stack, MetadataFollower, start=start, refresh=refresh)


def _any_password(stack: contextlib.ExitStack) -> None:
    usual = opening.settle_keys

    def keys(cluster: Any, ledger_id: Any, metadata: Any, password: Any, digest_type: Any) -> Any:
        return usual(cluster, ledger_id, metadata, metadata.password, digest_type)

    put(stack, opening, settle_keys=keys)


# Deferred sync ------------------------------------------------------------------------------------


def _lac_before_force(stack: contextlib.ExitStack) -> None:
    def lac(self: Any) -> EntryId:
        return EntryId(self._quorum.last_confirmed)

    put(stack, LedgerWriter, last_add_confirmed=property(lac))


def _force_asks_one(stack: contextlib.ExitStack) -> None:
    usual = explicit_lac.force

    async def force(pool: Any, ledger_id: Any, bookies: Any) -> None:
        await usual(pool, ledger_id, tuple(bookies)[:1])

    put(stack, closing, force=force)


def _force_of_another_life(stack: contextlib.ExitStack) -> None:
    """A force believes a bookie that was started again since it acknowledged, as Java does."""
    put(stack, EnsembleMembers, that_lost=lambda _self, _forced: [])


def _next_connection_is_the_same(stack: contextlib.ExitStack) -> None:
    """A force does not see that the connection of earlier entries was lost."""
    usual = Member._open_stream

    def open_stream(self: Member, channel: BookieChannel) -> None:
        broken_at = self._broken_at
        usual(self, channel)
        self._broken_at = broken_at

    put(stack, Member, _open_stream=open_stream)


def _force_behind_the_end(stack: contextlib.ExitStack) -> None:
    """A force succeeds although the ledger was closed before what it forced."""

    async def force(self: Any) -> EntryId:
        head, length = self._quorum.last_confirmed, self._pipeline.confirmed_length
        if self._quorum.last_pushed >= 0:
            await explicit_lac.force(self._pool, self._ledger_id, self._quorum.ensemble)
        if head > self.last:
            self.last, self.length = head, length
        return EntryId(head)

    put(stack, closing.ForcedAdds, force=force)


def _silence_is_kept(stack: contextlib.ExitStack) -> None:
    """A connection that nothing comes on is kept until the system gives it up, as in Java."""
    put(stack, Silence, is_over=lambda _self, _now_s: False)


# Bookies ------------------------------------------------------------------------------------------


def _fence_in_memory(stack: contextlib.ExitStack) -> None:
    """A fence is answered before it is durable, and a checkpoint does not write it."""

    def fence(self: Any, state: Any, fenced: Callable[[], None]) -> None:
        state.fenced = True
        fenced()

    put(stack, Fences, fence=fence)


def _negative_at_once(stack: contextlib.ExitStack) -> None:
    """As Java 4.18.0: a fencing read that finds nothing is answered before the fence is durable."""
    usual = Fences.fence_then

    def fence_then(self: Any, asked: Any, read: Any) -> None:
        ledgers = self._writes.storages.of(asked.request.ledger_id).ledgers
        state = ledgers.lookup(asked.request.ledger_id)
        if state is None or state.last_entry < max(0, asked.request.entry_id):
            key = asked.request.master_key
            state = self._writes.ledger_to_write(asked.request.ledger_id, key)
            self.fence(state, lambda: None)
            asked.attempt(read)
        else:
            usual(self, asked, read)

    put(stack, Fences, fence_then=fence_then)


def _no_fence_check(stack: contextlib.ExitStack) -> None:
    """A fenced ledger takes normal adds."""

    def set_fenced(self: Any, state: Any) -> None:
        pass

    put(stack, StoredLedgers, set_fenced=set_fenced)


def _forgets_deleted(stack: contextlib.ExitStack) -> None:
    """A ledger that was fenced and deleted is made anew by the next add (#4462)."""
    put(stack, FencedDeletions, remember=lambda _self, _ledger_id, **_: None)


def _acks_early(stack: contextlib.ExitStack) -> None:
    """Journals are written, and not synced."""
    put(stack, JournalFile, sync=lambda self: self._note_synced(self._open_file))


MUTATIONS: Final[dict[str, Mutation]] = {
    "release-interleaved": switch(
        "acks are taken back and adds confirmed in one walk",
        "6.3, S6",
        "I1",
        _release_interleaved,
        "churn",
        300,
    ),
    "no-confirm-after-release": switch(
        "nothing is confirmed when a change is over",
        "6.3, S22",
        "L1",
        _no_confirm_after_release,
        "tests.bkclient.quorum.test_add_rules:test_s22_confirming_goes_on_after_a_change_that_replaced_nothing",
        0,
    ),
    "confirm-while-changing": switch(
        "adds are confirmed while the ensemble changes",
        "6.2, S7",
        "I1 I10",
        _acks_while_changing,
        "churn",
        250,
    ),
    "failures-forgotten-by-changes": switch(
        "an ensemble change forgets which bookies have failed an entry that waits in spite of it",
        "6.1",
        "L1 L4",
        _failures_forgotten_by_changes,
        "delayed",
        100,
    ),
    "ack-of-anybody": switch(
        "acks of replaced bookies count", "5, S8", "I1 I15", _ack_of_anybody, "churn", 100
    ),
    "local-ensemble-first": switch(
        "new bookies count before the store knows them",
        "6.2, S5",
        "I1 I10 I15",
        _local_ensemble_first,
        "churn",
        30,
    ),
    "failure-forgotten": switch(
        "a failure during a change is forgotten",
        "6.1, S22",
        "L1 L4 L2",
        _second_failure_ignored,
        "churn",
        50,
    ),
    "one-ack-less": switch("Qa - 1 acks confirm", "5", "I1 I15", _one_ack_less, "fences", 10),
    "gap-confirmed": switch(
        "a gap of ids is jumped over", "5, S38", "I9 I1", _gap_confirmed, "anything", 150
    ),
    "fenced-writer-closes": switch(
        "a fenced writer closes the ledger",
        "6.4, S14",
        "I6 I7 I16 I17 I2",
        _fenced_writer_closes,
        "anything",
        300,
    ),
    "close-over-another": switch(
        "a close is content with another end", "7, S21", "I17", _close_over_another, "anything", 300
    ),
    "second-close-early": switch(
        "a second close does not wait for the first",
        "7, S20",
        "I17",
        _second_close_early,
        "race",
        20,
    ),
    "length-of-the-lost": switch(
        "a writer closes with the length of what failed",
        "7",
        "I17",
        _length_of_the_lost,
        "anything",
        60,
    ),
    "usable-after-drain": switch(
        "a drained writer takes adds", "6.4", "I9 L1 L4", _usable_after_drain, "fences", 10
    ),
    "writer-learns-lac": switch(
        "a writer's LAC follows what it reads",
        "8, S37",
        "I1 I9 I17",
        _writer_learns_lac,
        "tests.bkclient.stories.test_writer_scenarios:test_s37_reading_does_not_move_a_writers_lac",
        0,
    ),
    "change-over-recovery": switch(
        "an ensemble change overwrites IN_RECOVERY",
        "6.2, S17",
        "I4 I10",
        _change_over_recovery,
        "partial",
        30,
    ),
    "write-blindly": switch(
        "metadata is written without its version",
        "3, S18, S24",
        "I4 I2 I10 I16",
        _write_blindly,
        "partial",
        20,
    ),
    "stale-base": switch(
        "after a conflict the change made of older metadata is written",
        "3, S18",
        "I4 I19",
        _stale_base,
        "crowd",
        60,
    ),
    "conflict-is-fatal": switch(
        "a conflict with one's own write is an error",
        "3, S19",
        "L1 L2 L4 I17",
        _conflict_is_fatal,
        "partial",
        100,
    ),
    "fence-before-mark": switch(
        "fencing before IN_RECOVERY", "10, S25", "I12", _fence_before_mark, "partial", 10
    ),
    "reads-do-not-fence": switch(
        "recovery reads do not fence",
        "10, S1",
        "I1 I2 I3",
        _reads_do_not_fence,
        "unheard_fence",
        200,
    ),
    "from-the-beginning": switch(
        "LAC0 ignores where the last fragment begins",
        "10, S2",
        "I10 I4 L2",
        _from_the_beginning,
        "replaced",
        60,
    ),
    "ensembles-stored-early": switch(
        "recovery stores its ensembles at once",
        "10, S3",
        "I1 I2 I6 I8 I15 I4",
        _ensembles_stored_early,
        "tests.sim.test_scenarios:"
        "test_s3_a_recoverer_that_dies_while_it_replaces_bookies_hides_no_entry",
        0,
    ),
    "reads-follow": switch(
        "recovery reads from its own new ensembles",
        "10, S4",
        "I2 I6 I12 I16",
        _reads_follow,
        "anything",
        150,
    ),
    "one-negative-ends": switch(
        "the first negative answer ends a ledger",
        "10, S15",
        "I2 I3 I6 I7",
        _one_negative_ends,
        "partial",
        150,
    ),
    "hang-is-negative": switch(
        "a time-out counts as negative", "10, S13", "I2", _hang_is_negative, "partial", 20
    ),
    "damage-is-negative": switch(
        "a digest mismatch counts as negative",
        "9, S16",
        "I2 I6 I7",
        _damage_is_negative,
        "anything",
        300,
    ),
    "error-is-negative": switch(
        "any error counts as negative", "10, S11, S41", "I2", _error_is_negative, "partial", 20
    ),
    "all-must-answer": switch(
        "recovery waits for the whole write set", "10, S13", "L2", _all_must_answer, "anything", 150
    ),
    "lac-moves": switch(
        "recovery adds carry a moving LAC",
        "10, S14",
        "I6 I7",
        _lac_moves,
        "tests.bkclient.stories.test_recovery_scenarios:test_s14_recovery_adds_carry_lac0",
        0,
    ),
    "close-before-written": switch(
        "recovery closes before write backs are done",
        "10",
        "I15",
        _close_before_written,
        "anything",
        60,
    ),
    "close-over-closed": switch(
        "a slow recoverer closes again", "10, S24", "I4 I2 I16", _close_over_closed, "partial", 250
    ),
    "own-end": switch(
        "a slow recoverer reports its own end",
        "10, S24",
        "I16 I8 I6",
        _own_end,
        "tests.bkclient.stories.test_recovery_scenarios:test_s24_a_stalled_recoverer_adopts_what_another_has_closed",
        0,
    ),
    "no-measuring": switch(
        "a length that was not measured", "10, S42", "I17 I4", _no_measuring, "partial", 200
    ),
    "no-digest": switch(
        "digests are not verified", "8, S16", "I5 I2 I6 I7 I16", _no_digest, "anything", 120
    ),
    "no-lac-digest": switch(
        "LACs are taken without their digest",
        "9, S16",
        "I7",
        _no_lac_digest,
        "tests.sim.test_scenarios:test_s16_a_damaged_lac_is_no_answer",
        0,
    ),
    "lac-goes-back": switch("a reader's LAC goes back", "8", "I7", _lac_goes_back, "anything", 50),
    "reads-beyond": switch(
        "an unconfirmed entry is read as confirmed", "9", "I7 I6 I18", _reads_beyond, "anything", 50
    ),
    "does-not-follow": switch(
        "a reader does not follow the metadata",
        "4, #4613",
        "I8 L1 L4",
        _does_not_follow,
        "anything",
        10,
    ),
    "any-password": switch(
        "the password is not compared", "4", "I21", _any_password, "anything", 20
    ),
    "lac-before-force": switch(
        "with deferred sync the LAC follows acks",
        "5, S39",
        "I18 I1 I7 I17",
        _lac_before_force,
        "unsynced",
        20,
    ),
    "changes-unsynced": switch(
        "with deferred sync a bookie is replaced",
        "5, 6.1",
        "I18 I1",
        _changes_unsynced,
        "unsynced",
        60,
    ),
    "force-asks-one": switch(
        "a force asks one bookie", "5, S39", "I18", _force_asks_one, "unsynced", 30
    ),
    "force-of-another-life": switch(
        "a force believes a restarted bookie",
        "5, S39",
        "I18",
        _force_of_another_life,
        "tests.sim.test_scenarios:test_s39_what_was_not_forced_is_never_told_to_be_safe",
        0,
    ),
    "next-connection-is-the-same": switch(
        "a force believes a restarted bookie that has taken a later entry",
        "5, S39",
        "I18",
        _next_connection_is_the_same,
        "tests.bkclient.stories.test_writer_kinds:TestDeferredSync."
        "test_a_bookie_that_was_restarted_and_has_taken_a_later_entry_is_not_believed",
        0,
    ),
    "force-behind-the-end": switch(
        "a force succeeds behind the ledger's end",
        "5",
        "I17 I2 I18",
        _force_behind_the_end,
        "unsynced",
        350,
    ),
    "silence-kept": switch(
        "a connection that nothing comes on is kept",
        "2",
        "L1",
        _silence_is_kept,
        "tests.sim.test_scenarios:test_a_half_open_connection_is_made_anew",
        0,
    ),
    "fence-in-memory": switch(
        "a fence is not durable", "10, S9", "I13 I3 I2", _fence_in_memory, "fences", 200
    ),
    "negative-at-once": switch(
        "a negative fencing answer comes before the fence is durable",
        "10, S9",
        "I13 I3 I2",
        _negative_at_once,
        "tests.sim.test_scenarios:test_s9_a_fence_that_was_answered_outlives_its_bookie",
        0,
    ),
    "no-fence": switch(
        "a fence stops no writer", "10, S12", "I13 I3 I2", _no_fence_check, "fences", 10
    ),
    "forgets-deleted": switch(
        "a deleted ledger is made anew by an add", "S35", "I23 I13", _forgets_deleted, "fences", 60
    ),
    "acks-early": switch(
        "bookies answer before their sync", "storage", "I1 I14 I15 I2 L2", _acks_early, "fences", 30
    ),
    **REPAIR_MUTATIONS,
    **LOG_MUTATIONS,
    **SCENARIO_MUTATIONS,
    **STORAGE_MUTATIONS,
    **METADATA_MUTATIONS,
}
"""By name; tests run each."""
