"""Rules of recovery, broken on purpose: fences, last entry, close."""

from __future__ import annotations

import contextlib
from typing import Any, Final
from unittest.mock import patch

import attrs

from bkclient.errors import (
    ClientDigestMismatchError,
    ClientError,
    RequestTimeoutError,
)
from bkclient.ledger import opening, recovery_run
from bkclient.ledger.adds.pipeline import AddPipeline
from bkclient.ledger.recovery_run import RecoveryRun
from bkclient.metadata import ledger_metadata_updates as updates
from bkclient.quorum.read_rules import LacQuorum
from bkclient.quorum.recovery_rules import (
    EntryVerdict,
    ReadReplicas,
    Recovery,
    RecoveryCommand,
)
from tests.sim.engine.mutation_switch import Mutation, put, switch
from wire.codes import LedgerState, ReadFlag
from wire.ids import EntryId


def _fence_before_mark(stack: contextlib.ExitStack) -> None:
    usual = recovery_run.mark

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


def lac_moves(stack: contextlib.ExitStack) -> None:
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
    put(stack, recovery_run, _still_recovering=lambda _metadata: True)


def _own_end(stack: contextlib.ExitStack) -> None:
    """A recoverer that was overtaken reports its own end, not the stored one."""
    usual = RecoveryRun._store_close

    async def store_close(self: Any, command: Any) -> None:
        await usual(self, command)
        local = self._local
        local.value = updates.as_closed(local.value, command.last_entry, command.length)

    put(stack, RecoveryRun, _store_close=store_close)


def _no_measuring(stack: contextlib.ExitStack) -> None:
    """The length stored is that of the first answer's entry, as Java has it."""

    def close(self: Any) -> Any:
        if self.ended or not self._end_found or self._written != self._next_write - 1:
            return []
        return self._close(self._length)

    put(stack, Recovery, _close_when_written=close)


def _any_end_of_a_window(stack: contextlib.ExitStack) -> None:
    """Of the entries that are read together any that nobody has ends the ledger."""
    usual = Recovery._go_on

    def go_on(self: Recovery) -> list[RecoveryCommand]:
        commands = usual(self)
        if not self._end_found and any(one.is_end for one in self._verdicts.values()):
            self._end_found = True
            self._verdicts.clear()
            commands += self._close_when_written()
        return commands

    put(stack, Recovery, _go_on=go_on)


RECOVERY_MUTATIONS: Final[dict[str, Mutation]] = {
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
        lac_moves,
        "tests.bkclient.scenarios.test_recovery_scenarios:test_s14_recovery_adds_carry_lac0",
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
        "tests.bkclient.scenarios.test_recovery_scenarios:test_s24_a_stalled_recoverer_adopts_what_another_has_closed",
        0,
    ),
    "no-measuring": switch(
        "a length that was not measured", "10, S42", "I17 I4", _no_measuring, "partial", 200
    ),
    "any-end-of-a-window": switch(
        "of the entries that are read together any that no bookie has ends the ledger",
        "10",
        "I2 I15",
        _any_end_of_a_window,
        "tests.bkclient.quorum.test_recovery_rules:test_the_end_is_the_first_entry_that_nobody_has",
        0,
    ),
}
"""By name; part of ``mutations.MUTATIONS``."""
