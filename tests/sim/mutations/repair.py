"""Rules of re-replication, broken on purpose: client.md 12 to 14 and its section 17."""

from __future__ import annotations

import contextlib
from typing import Any, Final

import attrs
from twisted.internet.task import deferLater

from bkclient.admin import cookies
from bkclient.connection.add_frames import AddBatch, FrameMaker, LedgerKeys
from bkclient.metadata import zk_paths
from bkclient.metadata.tree.nodes import Stat, retry_until_answered
from bkclient.metadata.tree.underreplication.marks import TreeMarks
from bkclient.metadata.tree.underreplication.queue import TreeLocks
from bkclient.metadata.versions_and_watches import ANY
from bkclient.quorum import fragments
from bkclient.quorum.fragments import LedgerFragment, MissingPlaces, Swap
from bkclient.replication import decommission, fragment_copy, replica_check
from bkclient.replication.fragment_copy import FragmentRepairer
from bkclient.replication.replica_check import LedgerChecker, LedgerView
from bookied.autorecovery import auditor, worker
from bookied.autorecovery.audit_schedule import PATIENT, AuditJob
from bookied.autorecovery.auditor import Auditor
from bookied.autorecovery.lost_bookies import LostBookies
from bookied.autorecovery.worker import RepairOutcome, Worker
from tests.sim.engine.mutation_switch import Mutation, put, switch
from wire.codes import AddFlag
from wire.ids import BookieId, LedgerId
from wire.ledger_metadata import Fragment, LedgerMetadata

Stack = contextlib.ExitStack

WORKER: Final = "tests.bookied.autorecovery.test_worker"
AUDITOR: Final = "tests.bookied.autorecovery.test_auditor"
FRAGMENTS: Final = "tests.bkclient.quorum.test_fragments"


# Swaps --------------------------------------------------------------------------------------------


def _swap_of_any_key(stack: Stack) -> None:
    """A swap does not look whether its fragment is still there."""

    def ensemble_at(metadata: LedgerMetadata, first: int) -> tuple[BookieId, ...]:
        found = [f.ensemble for f in metadata.fragments if f.first_entry_id == first]
        return found[0] if found else metadata.ensemble

    put(stack, fragments, _ensemble_at=ensemble_at)


def _swap_doubles(stack: Stack) -> None:
    """A swap does not look whether a bookie would be listed twice."""

    def swapped(metadata: LedgerMetadata, swap: Swap) -> LedgerMetadata:
        changed = [
            Fragment(f.first_entry_id, swap.of(f.ensemble)) if f.first_entry_id == swap.first else f
            for f in metadata.fragments
        ]
        return attrs.evolve(metadata, fragments=tuple(changed), creator_token=0)

    put(stack, fragment_copy, swapped=swapped)


def _swap_of_what_grows(stack: Stack) -> None:
    """A swap does not look whether its fragment may grow again."""
    put(stack, fragments, is_closed_fragment=lambda _metadata, _first: True)


def _open_is_copied(stack: Stack) -> None:
    """The last fragment of an open ledger is copied like any other."""
    usual = fragments._fragment

    def fragment(*arguments: Any, **named: Any) -> LedgerFragment:
        return attrs.evolve(usual(*arguments, **named), is_closed=True)

    put(stack, fragments, _fragment=fragment)
    _swap_of_what_grows(stack)


def _swap_first(stack: Stack) -> None:
    """The metadata names the new bookies before these have the copies."""
    usual = FragmentRepairer.carry_out

    async def carry_out(self: Any, ledger: LedgerView, lack: MissingPlaces, swap: Swap) -> None:
        await self.cluster.updater.update(
            ledger.ledger_id,
            ledger.local,
            lambda metadata: fragments.swap_is_needed(metadata, swap),
            lambda metadata: fragments.swapped(metadata, swap),
        )
        await usual(self, ledger, lack, swap)

    put(stack, FragmentRepairer, carry_out=carry_out)


def _copies_not_awaited(stack: Stack) -> None:
    """A copy counts when it is sent."""
    usual = fragment_copy._NewReplica.write

    async def write(self: Any, packed: list[Any]) -> None:
        if packed:
            self._member.send(AddBatch(packed, self._frames))

    assert usual is not write
    put(stack, fragment_copy._NewReplica, write=write)


def _one_place_for_all(stack: Stack) -> None:
    """Of what is striped to a place only every other entry is copied."""
    usual = LedgerFragment.entries_at_any

    def entries_at_any(self: LedgerFragment, indexes: Any) -> Any:
        return (entry_id for entry_id in usual(self, indexes) if entry_id % 2)

    put(stack, LedgerFragment, entries_at_any=entries_at_any)


def _plain_adds(stack: Stack) -> None:
    """Copies are sent as a writer's adds are (#4163)."""

    def plain(keys: LedgerKeys, _flags: AddFlag, txn_ids: Any) -> FrameMaker:
        return FrameMaker(keys, AddFlag.NONE, txn_ids)

    put(stack, fragment_copy, FrameMaker=plain)


def _lac_decides(stack: Stack) -> None:
    """The fragment before the last one counts as open while the LAC is short of its end (#3917)."""
    usual = fragments.fragments_of

    def fragments_of(metadata: LedgerMetadata, lac: int | None) -> tuple[LedgerFragment, ...]:
        found = usual(metadata, lac)
        known = -1 if lac is None else lac
        if metadata.is_closed or known >= metadata.last_fragment.first_entry_id - 1:
            return found
        return tuple(attrs.evolve(one, is_closed=False) for one in found)

    put(stack, replica_check, fragments_of=fragments_of)


def _trusts_status(stack: Stack) -> None:
    """A check does not look at what it reads, as Java's."""
    usual = replica_check._ReplicaCheck.__init__

    def init(self: Any, client: Any, ledger: LedgerView) -> None:
        usual(self, client, ledger)
        self._can_verify = False

    put(stack, replica_check._ReplicaCheck, __init__=init)


def _silent_once(stack: Stack) -> None:
    """A bookie that did not answer in the check is replaced whatever it does afterwards."""

    async def nobody(*_arguments: Any) -> frozenset[int]:
        return frozenset()

    put(stack, fragment_copy, places_that_answer=nobody)


# Marks --------------------------------------------------------------------------------------------


def _mark_without_version(stack: Stack) -> None:
    usual = TreeMarks._delete_mark

    async def delete(self: Any, ledger_id: LedgerId, mark: Stat) -> None:
        await usual(self, ledger_id, attrs.evolve(mark, version=ANY))

    put(stack, TreeMarks, _delete_mark=delete)


def _deletes_again_without_a_look(stack: Stack) -> None:
    """A mark is deleted again after a lost answer, also where it was made again."""

    async def delete(self: Any, ledger_id: LedgerId, mark: Stat) -> None:
        path = zk_paths.mark(ledger_id)
        await retry_until_answered(lambda: self._tree.delete(path, mark.version))

    put(stack, TreeMarks, _delete_mark=delete)


def _expired_lock(stack: Stack) -> None:
    """What a worker locked once is its own for ever."""
    _mark_without_version(stack)

    async def still_has_lock(_self: Any, _ledger_id: LedgerId) -> bool:
        return True

    put(stack, TreeLocks, _still_has_lock=still_has_lock, _own_locks=lambda self: self._locks)


def _no_second_look(stack: Stack) -> None:
    """A ledger counts as whole when all was done that could be."""
    usual = Worker._pass

    async def one_pass(self: Any, ledger_id: LedgerId) -> Any:
        outcome, ledger = await usual(self, ledger_id)
        return (RepairOutcome.INTACT if outcome is RepairOutcome.LACKING else outcome), ledger

    put(stack, Worker, _pass=one_pass)


def _what_is_copied_is_whole(stack: Stack) -> None:
    """A ledger is not looked at again when its fragments were copied."""
    usual_pass, usual_check = Worker._pass, LedgerChecker.check

    async def one_pass(self: Any, ledger_id: LedgerId) -> Any:
        looks = 0

        class Once:
            async def check(_self, ledger: LedgerView, available: Any) -> Any:  # noqa: N805
                nonlocal looks
                looks += 1
                return await usual_check(checker, ledger, available) if looks == 1 else ()

        checker, self._checker = self._checker, Once()
        try:
            return await usual_pass(self, ledger_id)
        finally:
            self._checker = checker

    put(stack, Worker, _pass=one_pass)


def _deleted_is_an_error(stack: Stack) -> None:
    """The mark of a deleted ledger stays."""

    class NeverError(Exception):
        pass

    put(stack, worker, NoSuchLedgerError=NeverError)


# Writers ------------------------------------------------------------------------------------------


def _never_fences(stack: Stack) -> None:
    """A ledger that grows on a lost bookie is left to its writer, whoever that was."""

    async def see_to_writer(self: Any, _before: LedgerView) -> None:
        await deferLater(self._clock, self._config.open_ledger_grace_ms / 1000)

    put(stack, Worker, _see_to_writer=see_to_writer)


def _no_grace(stack: Stack) -> None:
    """A writer gets no time to replace a lost bookie itself."""
    usual = Worker._see_to_writer

    async def see_to_writer(self: Any, before: LedgerView) -> None:
        self._config = attrs.evolve(self._config, open_ledger_grace_ms=0)
        await usual(self, before)

    put(stack, Worker, _see_to_writer=see_to_writer)


def _fences_at_once(stack: Stack) -> None:
    """Any open ledger with a mark is recovered, whether its bookies are there or not."""
    put(stack, worker, needs_recovery=lambda metadata, _available: not metadata.is_closed)


# The auditor, and cookies -------------------------------------------------------------------------


def _blind_to_the_past(stack: Stack) -> None:
    """An auditor knows of those bookies only that it has seen (#4419)."""

    def only_seen(_known: Any, delay: Any) -> LostBookies:
        return LostBookies((), delay)

    async def check_bookies(self: Any) -> None:
        self._has_audited = True
        self._schedule.add(AuditJob.LOOK_AT_BOOKIES)

    put(stack, auditor, LostBookies=only_seen)
    put(stack, Auditor, _check_bookies=check_bookies)


def _delayed_for_ever(stack: Stack) -> None:
    """An audit whose delay is over, and that fails, waits for the delay of the next lost bookie."""
    usual = Auditor.__init__

    def init(self: Any, *args: Any, **rest: Any) -> None:
        usual(self, *args, **rest)
        self._jobs[AuditJob.AUDIT_LATER] = self._jobs[AuditJob.AUDIT]

    def next_job(self: Any) -> AuditJob:
        job: AuditJob = self._schedule.take(None if self._has_audited else AuditJob.CHECK_BOOKIES)
        return job

    put(stack, Auditor, __init__=init, _next_job=next_job)
    put(stack, auditor, PATIENT=PATIENT | {AuditJob.AUDIT_LATER})


def _cookie_at_once(stack: Stack) -> None:
    """A cookie goes whatever ledgers list its bookie (#4812)."""

    async def none(_client: Any, _bookies: Any) -> tuple[LedgerId, ...]:
        return ()

    put(stack, cookies, ledgers_that_need_cookies=none)


def _samples_anew(stack: Stack) -> None:
    """A worker reads a sample of its own, where an audit has found that an entry is missing."""

    async def checker_of_mark(checker: LedgerChecker, _store: Any, _ledger_id: Any) -> Any:
        return checker

    put(stack, worker, _checker_of_mark=checker_of_mark)


def _mark_as_listed(stack: Stack) -> None:
    """A mark is taken back without another look at whom it names."""

    async def take_back(client: Any, ledger_id: Any, bookies: Any, available: Any) -> bool:
        lacks = await decommission._lacks(client, ledger_id, bookies, available)
        store = client.store
        await (store.release_lock(ledger_id) if lacks else store.mark_replicated(ledger_id))
        return not lacks

    put(stack, decommission, _take_back=take_back)


REPAIR_MUTATIONS: Final[dict[str, Mutation]] = {
    "swap-of-any-key": switch(
        "a swap of a fragment that is gone goes on",
        "13.3",
        "I19",
        _swap_of_any_key,
        f"{FRAGMENTS}:test_a_fragment_that_is_gone_is_not_swapped",
        0,
    ),
    "swap-doubles": switch(
        "a swap lists a bookie twice",
        "13.3, S28",
        "I10",
        _swap_doubles,
        "tests.bkclient.replication.test_fragment_copy:test_s28_two_repairs_at_once_never_put_one_bookie_into_two_places",
        0,
    ),
    "silent-once": switch(
        "a bookie that answers again during the copy loses its place",
        "13.3",
        "L3",
        _silent_once,
        "tests.bkclient.replication.test_fragment_copy:test_a_bookie_that_answers_while_the_copy_is_made_keeps_its_place",
        0,
    ),
    "swap-of-what-grows": switch(
        "a swap of a fragment that may grow goes on",
        "13.3, S27",
        "I19",
        _swap_of_what_grows,
        f"{FRAGMENTS}:test_the_fragment_that_grows_is_not_swapped",
        0,
    ),
    "open-is-copied": switch(
        "the fragment that grows is copied and swapped",
        "13.2, S27",
        "I1 I19 I20 L5",
        _open_is_copied,
        "lost_bookie",
        30,
    ),
    "swap-first": switch(
        "a swap is stored before the copies are made", "13.3", "I19", _swap_first, "lost_bookie", 10
    ),
    "copies-not-awaited": switch(
        "a swap does not wait for the copies",
        "13.3",
        "I19",
        _copies_not_awaited,
        "lost_bookie",
        10,
    ),
    "half-copied": switch(
        "not all entries of a place are copied",
        "13.3",
        "I19",
        _one_place_for_all,
        "lost_bookie",
        10,
    ),
    "plain-adds": switch(
        "copies are sent as adds of a writer", "13.3, S32", "L3", _plain_adds, "lost_bookie", 20
    ),
    "lac-decides": switch(
        "the penultimate fragment waits for the LAC",
        "13.2, S33",
        "L3",
        _lac_decides,
        f"{WORKER}:test_s33_a_penultimate_fragment_is_copied_although_the_lac_is_short_of_it",
        0,
    ),
    "trusts-status": switch(
        "a check looks at the status only", "13.1, S40", "L3 I20", _trusts_status, "lost_bookie", 30
    ),
    "mark-without-version": switch(
        "a mark is deleted whatever its version",
        "13.4, S31",
        "I20",
        _mark_without_version,
        f"{WORKER}:test_s31_a_mark_that_is_renewed_during_the_repair_stays_and_is_seen_to",
        0,
    ),
    "marks-deleted-again": switch(
        "a mark is deleted again after a lost answer, also where it was made again",
        "13.4",
        "I20",
        _deletes_again_without_a_look,
        "tests.bkclient.metadata.test_lost_answers:"
        "test_a_mark_made_again_is_not_taken_for_the_one_whose_deletion_had_no_answer",
        0,
    ),
    "expired-lock": switch(
        "an expired lock still counts",
        "13.4, S30",
        "I20",
        _expired_lock,
        f"{WORKER}:test_s30_a_worker_whose_session_expired_takes_no_mark_away_that_is_not_its",
        0,
    ),
    "lacking-is-whole": switch(
        "a repair that failed takes the mark away", "13.4", "I20", _no_second_look, "lost_rack", 20
    ),
    "no-second-look": switch(
        "a ledger is not checked again after its repair",
        "13.4, S29",
        "I20 L3",
        _what_is_copied_is_whole,
        "lost_rack",
        20,
    ),
    "deleted-is-an-error": switch(
        "the mark of a deleted ledger stays", "13.4, S36", "L3", _deleted_is_an_error, "crowd", 30
    ),
    "never-fences": switch(
        "an open ledger on a lost bookie is left as it is",
        "13.4, S26",
        "L3",
        _never_fences,
        "lost_bookie",
        30,
    ),
    "no-grace": switch(
        "a writer gets no time to replace a bookie",
        "13.4, S27",
        "L5",
        _no_grace,
        f"{WORKER}:test_s27_a_writer_that_replaces_the_lost_bookie_itself_is_not_fenced",
        0,
    ),
    "fences-at-once": switch(
        "a writer is fenced though its bookies are there",
        "13.4, S27",
        "L5",
        _fences_at_once,
        "live_writer",
        15,
    ),
    "blind-to-the-past": switch(
        "bookies that died before the auditor came are not known",
        "12, S34",
        "L3",
        _blind_to_the_past,
        "lost_bookie",
        40,
    ),
    "delayed-for-ever": switch(
        "an audit that fails after its delay waits for the next lost bookie",
        "12",
        "L3",
        _delayed_for_ever,
        f"{AUDITOR}:"
        "test_an_audit_after_the_delay_that_fails_is_tried_again_whatever_other_bookies_do",
        0,
    ),
    "cookie-at-once": switch(
        "a cookie goes while a ledger needs it",
        "14, S10",
        "I3",
        _cookie_at_once,
        "tests.bkclient.replication.test_recover_bookies:"
        "test_s10_a_cookie_stays_while_a_ledger_that_is_not_closed_lists_its_bookie",
        0,
    ),
    "samples-anew": switch(
        "a worker reads another sample than the audit whose mark it sees to",
        "13",
        "I20",
        _samples_anew,
        f"{WORKER}:"
        "test_what_one_sample_has_found_is_repaired_though_the_next_one_would_not_find_it",
        0,
    ),
    "mark-as-listed": switch(
        "a mark is taken back by what it named when it was listed",
        "13",
        "I20",
        _mark_as_listed,
        "tests.bookied.autorecovery.test_decommission:"
        "test_cancelling_keeps_a_mark_that_comes_to_name_another_bookie_meanwhile",
        0,
    ),
}
"""By name; part of ``mutations.MUTATIONS``."""
