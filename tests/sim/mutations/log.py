"""Rules of logs, broken on purpose: ledgers2logs.md sections 2 to 6."""

from __future__ import annotations

import contextlib
from typing import Any, Final

from bkclient.client import Client
from bkclient.log import Position, batch_append, log_manager
from bkclient.log.append_queue import Append, AppendQueue
from bkclient.log.failed_appends import AppendRepair, RetrySchedule
from bkclient.log.ledger_list import KnownRecord, LedgerList
from bkclient.log.open_segments import Segments
from bkclient.log.reader import LogReader
from bkclient.log.record import LogRecord
from bkclient.log.trim_and_delete import LogRemoval
from bkclient.metadata.versions_and_watches import ANY
from tests.sim.engine.mutation_switch import Mutation, put, switch
from wire.ids import LedgerId

Stack = contextlib.ExitStack
LOG: Final = "tests.bkclient.log.test_log"


def _nobody_fenced(stack: Stack) -> None:
    """A new writer leaves the last two ledgers as they are."""

    async def close_ledgers(_client: Client, _name: str, _record: LogRecord) -> Position | None:
        return None

    put(stack, log_manager, close_ledgers=close_ledgers)
    put(stack, batch_append, close_ledgers=close_ledgers)


def _blind_list(stack: Stack) -> None:
    """The list of ledgers is written whatever its version."""

    async def write(self: Any, _known: KnownRecord, record: LogRecord) -> KnownRecord:
        version = await self._client.store.write_log(self.name, record.encode(), ANY)
        return KnownRecord(record, version)

    put(stack, LedgerList, write=write)


def _acks_ahead(stack: Stack) -> None:
    """Entries of the next ledger are acknowledged before the one before is closed."""
    usual = Segments.begin_next

    async def begin_next(self: Any) -> None:
        await usual(self)
        self.current.is_settled = True

    def settle(self: Any) -> None:
        for append in [one for one in self if one.is_stored]:
            self._waiting.remove(append)
            self._answer(append, append.position)

    put(stack, Segments, begin_next=begin_next)
    put(stack, AppendQueue, settle=settle)


def _reads_ahead(stack: Stack) -> None:
    """A reader goes on to the next ledger as soon as there is one."""
    usual = LogReader._of_ledger

    async def of_ledger(self: Any, record: LogRecord, index: int, first: int) -> Any:
        known = (await self._ledgers.read_patiently()).record
        if index + 1 not in known:
            async for entry in usual(self, record, index, first):
                yield entry
            return
        reader = await self._open(record, index)
        try:
            async for entry in reader.read(first):
                yield entry
            self._ended_closed = True
        finally:
            reader.close()

    put(stack, LogReader, _of_ledger=of_ledger)


def _reads_any_log(stack: Stack) -> None:
    """A reader goes on in whichever log has the name."""

    def of_one_log(_self: LogReader, found: KnownRecord) -> LogRecord:
        return found.record

    put(stack, LogReader, _of_one_log=of_one_log)


def _any_cursor(stack: Stack) -> None:
    """A cursor counts for whichever log has the name."""

    def may_have_id(_self: LogRecord, _log_id: str) -> bool:
        return True

    put(stack, LogRecord, may_have_id=may_have_id)


def _begins_ahead(stack: Stack) -> None:
    """A reader from the latest entry looks at the last ledger only."""

    async def end(self: LogReader, record: LogRecord) -> Position:
        if not record.ledgers:
            return Position(record.next_index, 0)
        _, end = await self._end_of(record, record.next_index - 1)
        return end

    put(stack, LogReader, _end=end)


def _delete_first(stack: Stack) -> None:
    """A trim deletes ledgers before the list lets go of them."""

    async def trim(self: Any, name: str, before: Position) -> Position:
        ledgers = LedgerList(self._client, name)
        known = await ledgers.read_patiently()
        index = await self._first_kept(known.record, before.index)
        if index == known.record.trimmed:
            return Position(index, 0)
        for gone in known.record.ledgers[: index - known.record.trimmed]:
            await self._client.delete_ledger(gone.ledger_id)
        await ledgers.write(known, known.record.trimmed_to(index))
        return Position(index, 0)

    put(stack, LogRemoval, trim=trim)


def _trims_what_is_open(stack: Stack) -> None:
    """A trim does not look whether a ledger is closed."""

    async def first_kept(_self: Any, record: LogRecord, wanted: int) -> int:
        return max(record.trimmed, min(wanted, record.next_index - 1))

    put(stack, LogRemoval, _first_kept=first_kept)


def _appends_again(stack: Stack) -> None:
    """A repair appends all that was not acknowledged again, whatever is in the ledger."""
    usual = Segments._recovered_end

    async def recovered_end(self: Any, segment: Any) -> int:
        await usual(self, segment)
        return -1

    put(stack, Segments, _recovered_end=recovered_end)


def _ignores_holes(stack: Stack) -> None:
    """A repair appends what the older ledger lost behind what the newer one has."""
    put(stack, AppendQueue, has_hole_before=lambda _self, _segment: False)


def _repairs_blindly(stack: Stack) -> None:
    """A repair does not look whether another writer has listed a ledger."""

    async def confirm_leading(self: Segments) -> None:
        self._known = await self._ledgers.read_patiently()

    put(stack, Segments, confirm_leading=confirm_leading)


def _impatient(stack: Stack) -> None:
    """A writer that cannot go on gives up after five tries, however quick they were."""
    usual = RetrySchedule.next_pause_s

    def next_pause_s(self: Any) -> float | None:
        pause_s = usual(self)
        return None if self._tries > 5 else pause_s

    put(stack, RetrySchedule, next_pause_s=next_pause_s)


def _sent_once(stack: Stack) -> None:
    """A repair sends what waits when it has a new ledger, and nothing that comes meanwhile."""
    usual = AppendRepair._attempt

    async def attempt(self: Any) -> None:
        send = self._send
        waits = {id(one) for one in self._queue}

        def send_once(append: Append) -> None:
            if id(append) in waits:
                send(append)
            else:
                append.segment = self._segments.current

        self._send = send_once
        await usual(self)
        self._send = send

    put(stack, AppendRepair, _attempt=attempt)


def _sweeps_without_writing(stack: Stack) -> None:
    """A sweep reads the record before it deletes, and does not write it again."""

    async def rewritten(self: Any, name: str) -> LogRecord | None:
        record: LogRecord | None = await self._stored(name)
        return record

    put(stack, LogRemoval, _rewritten=rewritten)


def _batches_not_marked(stack: Stack) -> None:
    """A sweep deletes the ledgers of a batch without a mark."""

    async def mark(_self: Any, _ledger_id: LedgerId) -> None: ...

    put(stack, LogRemoval, _mark=mark)


def _marks_not_seen(stack: Stack) -> None:
    """A log takes ledgers that a sweep has marked."""
    put(stack, batch_append, SWEPT_KEY="")


LOG_MUTATIONS: Final[dict[str, Mutation]] = {
    "nobody-fenced": switch(
        "a new writer does not fence the last two ledgers",
        "log 2",
        "G4 G5 G6",
        _nobody_fenced,
        "duel",
        10,
    ),
    "blind-list": switch(
        "the list of ledgers is written without its version",
        "log 2",
        "G1 G3 G4 G5 G6 G7 G8",
        _blind_list,
        "duel",
        20,
    ),
    "acks-ahead": switch(
        "entries of N+1 are acknowledged before N is closed",
        "log 3",
        "G6",
        _acks_ahead,
        "rolling",
        20,
    ),
    "reads-ahead": switch(
        "a reader moves on before N is closed", "log 5", "G2 G6", _reads_ahead, "rolling", 30
    ),
    "begins-ahead": switch(
        "a reader from the latest entry begins in the last ledger, though another one grows",
        "log 5",
        "G2",
        _begins_ahead,
        f"{LOG}:TestReading.test_latest_during_a_roll_misses_nothing_of_the_ledger_that_ends",
        0,
    ),
    "reads-any-log": switch(
        "a reader goes on in another log of the name",
        "log 5",
        "G2",
        _reads_any_log,
        f"{LOG}:TestReading."
        "test_a_reader_that_goes_on_later_does_not_go_on_in_another_log_of_the_name",
        0,
    ),
    "any-cursor": switch(
        "a cursor counts for whichever log has the name",
        "log 5",
        "G2",
        _any_cursor,
        "tests.bkclient.log.test_cursors:"
        "test_a_cursor_behind_the_last_ledger_of_a_deleted_log_skips_nothing_of_the_new_one",
        0,
    ),
    "delete-first": switch(
        "a trim deletes before the list changes", "log 6", "G3", _delete_first, "trimming", 20
    ),
    "trims-open": switch(
        "a trim takes ledgers that are not closed",
        "log 6",
        "G7",
        _trims_what_is_open,
        "trimming",
        20,
    ),
    "appends-again": switch(
        "a repair appends what is in the log already", "log 4", "G1", _appends_again, "scarce", 10
    ),
    "ignores-holes": switch(
        "a repair appends what the older ledger lost behind what the newer one has",
        "log 4",
        "G1",
        _ignores_holes,
        f"{LOG}:TestFailingBookies.test_a_log_ends_rather_than_go_on_behind_what_is_missing",
        0,
    ),
    "repairs-blindly": switch(
        "a repair goes on though another writer has taken over",
        "log 4",
        "G6",
        _repairs_blindly,
        f"{LOG}:TestFailingBookies.test_a_repair_ends_where_another_writer_has_taken_over_meanwhile",
        0,
    ),
    "impatient": switch(
        "a writer that cannot go on gives up after five tries",
        "log 4",
        "L1",
        _impatient,
        "scarce",
        60,
    ),
    "sent-once": switch(
        "a repair sends only what waited when it began to send",
        "log 4",
        "L4",
        _sent_once,
        f"{LOG}:TestFailingBookies."
        "test_who_appends_again_as_soon_as_an_entry_was_too_large_is_not_forgotten",
        0,
    ),
    "sweeps-without-writing": switch(
        "a sweep does not write the record again before it deletes",
        "log 6",
        "G1",
        _sweeps_without_writing,
        f"{LOG}:TestTakingAway.test_a_ledger_that_was_swept_before_it_was_listed_is_never_listed",
        0,
    ),
    "batches-not-marked": switch(
        "a batch is swept without a mark before that",
        "log",
        "G1",
        _batches_not_marked,
        "tests.bkclient.log.test_batches:test_a_batch_is_marked_before_it_is_swept",
        0,
    ),
    "marks-not-seen": switch(
        "a log takes a batch that a sweep is about to delete",
        "log",
        "G1",
        _marks_not_seen,
        "tests.bkclient.log.test_batches:test_a_ledger_that_a_sweep_has_marked_is_not_taken",
        0,
    ),
}
"""By name; part of ``mutations.MUTATIONS``."""
