"""Rules of a bookie's answers, broken on purpose: fences, deleted ledgers, syncs."""

from __future__ import annotations

import contextlib
from collections.abc import Callable
from typing import Any, Final

from bookied.server.adds.fast_adds import FastAdds
from bookied.server.connection import BookieConnection
from bookied.server.rules import entry_and_batch_reads, metadata_fence_check
from bookied.server.rules.deleted_ledgers import FencedDeletions
from bookied.server.rules.fencing import Fences
from bookied.server.rules.metadata_fence_check import FenceCheck, FenceState
from bookied.storage.journal.journal_file import JournalFile
from bookied.storage.ledger_storage.ledgers import StoredLedgers
from tests.sim.engine.mutation_switch import Mutation, put, switch


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


def _gathered_come_late(stack: contextlib.ExitStack) -> None:
    """Adds of other clients that came with a fence or a read are stored after it."""
    usual = FastAdds.store

    def store(self: FastAdds) -> None:
        if not self.is_gathering:
            usual(self)

    put(stack, FastAdds, store=store)


def _acks_early(stack: contextlib.ExitStack) -> None:
    """Journals are written, and not synced."""
    put(stack, JournalFile, sync=lambda self: self._note_synced(self._open_file))


def _doubt_is_open(stack: contextlib.ExitStack) -> None:
    """A ledger whose metadata cannot be read takes adds, though its fence may be lost."""
    put(
        stack,
        FenceCheck,
        _not_found=lambda _self, _failure, _ledger_id, _due_s: FenceState.OPEN,
    )


def _closed_is_open(stack: contextlib.ExitStack) -> None:
    """A ledger that metadata has as closed or in recovery takes adds, though its fence is lost."""
    put(stack, metadata_fence_check, _standing=lambda _state: FenceState.OPEN)


def _first_error_is_empty(stack: contextlib.ExitStack) -> None:
    """A batch whose first entry cannot be read is answered as one without entries."""
    usual = entry_and_batch_reads._fetch_rows

    def fetch_rows(storage: Any, needed: Any, entry_id: Any, more: Any, bytes_max: Any) -> Any:
        some = 0 if bytes_max is None else bytes_max
        return usual(storage, needed, entry_id, more, some)

    put(stack, entry_and_batch_reads, _fetch_rows=fetch_rows)


def _fence_of_the_former(stack: contextlib.ExitStack) -> None:
    """A fence on its way counts for the ledger that takes the place of a deleted one."""
    usual = Fences.fence

    def fence(self: Any, state: Any, fenced: Callable[[], None]) -> None:
        for one, waiting in self._fencing.items():
            if one.ledger_id == state.ledger_id:
                waiting.append(fenced)
                return
        usual(self, state, fenced)

    put(stack, Fences, fence=fence)


def _absent_from_memory(stack: contextlib.ExitStack) -> None:
    """Reads of ledgers that only the disk knows are refused in bulk."""

    def is_absent(self: StoredLedgers, ledger_id: int) -> bool:
        return ledger_id not in self._pages.hot

    put(stack, StoredLedgers, is_absent=is_absent)


def _half_close_at_once(stack: contextlib.ExitStack) -> None:
    """A client that ends its half of the connection gets no more answers."""
    put(stack, BookieConnection, readConnectionLost=lambda self: self._close())


def _half_close_too_soon(stack: contextlib.ExitStack) -> None:
    """A connection whose client ends its half is closed though requests wait for their turn."""

    def close_if_done(self: Any) -> None:
        if (self._is_draining or self._is_ended) and not self._replies.count:
            self._close()

    put(stack, BookieConnection, _close_if_done=close_if_done)


BOOKIE_MUTATIONS: Final[dict[str, Mutation]] = {
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
    "gathered-come-late": switch(
        "adds that came together with a fence are stored after it",
        "10",
        "I3",
        _gathered_come_late,
        "tests.bookied.server.adds.test_gathered_adds:"
        "test_a_fence_of_another_client_comes_after_the_adds_before_it",
        0,
    ),
    "acks-early": switch(
        "bookies answer before their sync", "storage", "I1 I14 I15 I2 L2", _acks_early, "fences", 30
    ),
    "doubt-is-open": switch(
        "a fence that may be lost does not count while metadata cannot be read",
        "S10",
        "I3",
        _doubt_is_open,
        "tests.bookied.server.rules.test_metadata_fence_check:"
        "test_an_outage_is_no_answer_and_is_asked_about_again_after_a_pause",
        0,
    ),
    "closed-is-open": switch(
        "a fence that may be lost does not count, whatever the metadata says",
        "S10",
        "I3",
        _closed_is_open,
        "tests.sim.test_scenarios:"
        "test_s10_fresh_bookies_under_old_ids_know_which_ledgers_were_fenced",
        0,
    ),
    "first-error-is-empty": switch(
        "a batch whose first entry cannot be read is empty",
        "9, S16",
        "I2",
        _first_error_is_empty,
        "tests.bookied.server.rules.test_request_rules:"
        "test_an_unreadable_entry_ends_a_batch_unless_it_is_the_first",
        0,
    ),
    "fence-of-the-former": switch(
        "a fence on its way counts for a ledger that was deleted and comes again",
        "14",
        "I3 I23",
        _fence_of_the_former,
        "tests.bookied.server.rules.test_request_rules:"
        "test_a_ledger_that_is_deleted_while_its_fence_is_on_its_way_is_fenced_again",
        0,
    ),
    "absent-from-memory": switch(
        "reads of ledgers that only the disk knows are refused",
        "9",
        "I14 I2",
        _absent_from_memory,
        "anything",
        80,
    ),
    "half-close-at-once": switch(
        "a client that ends its half of the connection gets no more answers",
        "wire",
        "L4",
        _half_close_at_once,
        "tests.bookied.server.test_server:"
        "test_a_client_that_ends_its_half_gets_the_answers_to_adds_on_their_way",
        0,
    ),
    "half-close-too-soon": switch(
        "a connection is closed with its client's half though requests wait for their turn",
        "wire",
        "L4",
        _half_close_too_soon,
        "tests.bookied.server.test_server:"
        "test_a_client_that_ends_its_half_gets_the_answers_to_what_waits_for_its_turn",
        0,
    ),
}
"""By name; part of ``mutations.MUTATIONS``."""
