"""Rules of a ledger's writer, broken on purpose: adds, ensemble changes, closes."""

from __future__ import annotations

import contextlib
from collections.abc import Sequence
from typing import Any, Final
from unittest.mock import patch

import attrs
from twisted.internet.defer import DeferredList

from bkclient import concurrency
from bkclient.connection.channel import BookieChannel
from bkclient.connection.tcp import ConnectionSilence
from bkclient.errors import (
    ClientError,
    ClientLedgerFencedError,
)
from bkclient.ledger import force_and_explicit_lac
from bkclient.ledger.adds import closing, ensemble_changes
from bkclient.ledger.adds.ensemble_members import EnsembleMembers, Member
from bkclient.ledger.adds.pipeline import AddPipeline
from bkclient.ledger.writer import LedgerWriter
from bkclient.metadata import ledger_metadata_updates as updates
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
from tests.sim.engine.mutation_switch import Mutation, put, switch
from tests.sim.mutations.recovery import lac_moves
from wire.codes import LedgerState
from wire.ids import EntryId
from wire.ledger_metadata import LedgerMetadata


def _rule(stack: contextlib.ExitStack, state: AddState, event: type, rule: Any) -> None:
    stack.enter_context(patch.dict(AddQuorum.TRANSITIONS, {(state, event): rule}))


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
            return updates.as_closed(self._local.value, *self._safe_end())
        return await usual(self)

    put(stack, closing.LedgerClosing, close=close)


def _writer_learns_lac(stack: contextlib.ExitStack) -> None:
    """A writer's LAC rises with what a bookie says along with an entry it reads.

    With recoverers as Java has them: those of ours never tell more than the writer has confirmed.
    """
    lac_moves(stack)
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

    def lists_a_failed_bookie(metadata: LedgerMetadata, failed: Any) -> bool:
        return any(metadata.last_fragment.ensemble[i] == bookie for i, bookie in failed)

    def with_ensemble(metadata: LedgerMetadata, first: int, ensemble: Any) -> LedgerMetadata:
        made = updates.with_ensemble(metadata, first, ensemble)
        return attrs.evolve(made, state=LedgerState.OPEN, last_entry_id=None, length=0)

    put(
        stack,
        ensemble_changes,
        lists_a_failed_bookie=lists_a_failed_bookie,
        with_ensemble=with_ensemble,
    )


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


def _lac_before_force(stack: contextlib.ExitStack) -> None:
    def lac(self: Any) -> EntryId:
        return EntryId(self._quorum.last_confirmed)

    put(stack, LedgerWriter, last_add_confirmed=property(lac))


def _force_asks_one(stack: contextlib.ExitStack) -> None:
    usual = force_and_explicit_lac.force

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
            await force_and_explicit_lac.force(self._pool, self._ledger_id, self._quorum.ensemble)
        if head > self.last:
            self.last, self.length = head, length
        return EntryId(head)

    put(stack, closing.ForcedAdds, force=force)


def _silence_is_kept(stack: contextlib.ExitStack) -> None:
    """A connection that nothing comes on is kept until the system gives it up, as in Java."""
    put(stack, ConnectionSilence, is_over=lambda _self, _now_s: False)


def _silence_is_final(stack: contextlib.ExitStack) -> None:
    """What comes after a time-out does not end the doubt about a bookie."""
    put(stack, ConnectionSilence, is_doubted=property(lambda self: self._doubted_s > float("-inf")))


def _errors_of_many_are_lost(stack: contextlib.ExitStack) -> None:
    """What is done for many things at a time succeeds, though one of them fails."""

    def wait_for_all(running: Any, **_options: bool) -> Any:
        return DeferredList(running, consumeErrors=True)

    put(stack, concurrency, DeferredList=wait_for_all)


WRITER_MUTATIONS: Final[dict[str, Mutation]] = {
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
        "tests.bkclient.scenarios.test_writer_scenarios:test_s37_reading_does_not_move_a_writers_lac",
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
        "tests.bkclient.scenarios.test_writer_kinds:TestDeferredSync."
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
    "silence-is-final": switch(
        "a bookie that answers again after a time-out is still taken for silent",
        "2",
        "L1",
        _silence_is_final,
        "tests.bkclient.connection.test_silence:test_a_byte_after_a_time_out_ends_the_doubt",
        0,
    ),
    "errors-of-many-are-lost": switch(
        "the first error of several operations at a time is lost",
        "13",
        "L3",
        _errors_of_many_are_lost,
        "tests.bkclient.test_concurrency:"
        "test_the_first_error_ends_the_others_and_is_raised_as_it_was",
        0,
    ),
}
"""By name; part of ``mutations.MUTATIONS``."""
