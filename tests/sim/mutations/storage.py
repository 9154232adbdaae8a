"""Rules of storage that matter after a crash or damage, broken on purpose; a test notices each."""

from __future__ import annotations

import contextlib
from collections.abc import Iterable, Mapping
from pathlib import Path
from types import MappingProxyType
from typing import Any, Final

import attrs

from bookied.errors import CorruptError
from bookied.server.rules import disk_read
from bookied.storage import replay
from bookied.storage.entrylog.failures import SyncGuard
from bookied.storage.entrylog.ids import LogIds
from bookied.storage.entrylog.reader import list_all_logs
from bookied.storage.garbage.ledger_removal import LedgerRemoval
from bookied.storage.garbage.live_records import LiveRecords, WrittenRecords
from bookied.storage.garbage.log_usage import LogCensus
from bookied.storage.index.ledger_pages import LedgerChange, LedgerPages
from bookied.storage.index.rocks.index import RocksIndex
from bookied.storage.ledger_storage.logs import EntryLogs, LogsSnapshot
from bookied.storage.ledger_storage.relocation import Relocation
from tests.sim.engine.switches import Mutation, put, switch
from wire.codes import ReturnCode
from wire.ids import LedgerId

Stack = contextlib.ExitStack


def _targets_outlive_checkpoints(stack: Stack) -> None:
    """A replay goes on to write to pages that a checkpoint has taken."""
    usual = replay._Replay._drain

    def drain(self: Any) -> None:
        targets = dict(self._targets)
        usual(self)
        self._targets.update(targets)

    put(stack, replay._Replay, _drain=drain)


def _damage_ends_source(stack: Stack) -> None:
    """A compaction takes damage in the log that it copies for the end of that log."""
    put(stack, LiveRecords, insist_complete=lambda _self: None)


def _target_is_believed(stack: Stack) -> None:
    """A transactional compaction switches to its target without reading what it has written."""
    put(stack, WrittenRecords, insist_stored=lambda _self, _files, _path: None)


def _unreadable_is_absent(stack: Stack) -> None:
    """A bookie whose disk fails a read says that it never had the entry."""
    usual = disk_read.refusal_code

    def refusal_code(error: Exception, ledger_id: LedgerId) -> ReturnCode:
        return ReturnCode.ENOENTRY if isinstance(error, OSError) else usual(error, ledger_id)

    put(stack, disk_read, refusal_code=refusal_code)


def _doubt_is_ignored(stack: Stack) -> None:
    """A compaction believes an index that may have lost places of entries."""
    put(stack, Relocation, _insist_sure=lambda _self, _ledger_id: None)


def _failed_switch_stays(stack: Stack) -> None:
    """A switch that failed is made again with the next moves only."""
    usual = Relocation.switch

    async def switch_some(self: Any, moves: Any, run_blocking: Any) -> None:
        if moves:
            await usual(self, moves, run_blocking)

    put(stack, Relocation, switch=switch_some)


def _logs_listed_late(stack: Stack) -> None:
    """A collection counts the logs that ended during its checkpoint among the finished ones."""
    usual = EntryLogs.finished

    def finished(self: EntryLogs, _begun: LogsSnapshot) -> dict[int, Path]:
        return usual(self, self.begun())

    put(stack, EntryLogs, finished=finished)


def _new_logs_are_finished(stack: Stack) -> None:
    """Every log but the one that was active when the collection began counts as finished."""

    def finished(self: EntryLogs, begun: LogsSnapshot) -> dict[int, Path]:
        found = list_all_logs(self._files, self._directories.all)
        return {
            log_id: paths[0]
            for log_id, paths in found.items()
            if len(paths) == 1 and log_id != begun.active_log_id
        }

    put(stack, EntryLogs, finished=finished)


def _either_log_of_an_id(stack: Stack) -> None:
    """Of two logs with one id the first is taken for the log."""

    def finished(self: EntryLogs, begun: LogsSnapshot) -> dict[int, Path]:
        found = list_all_logs(self._files, self._directories.all)
        unfinished = {begun.active_log_id, *self._log.paths} - begun.log_ids
        return {log_id: paths[0] for log_id, paths in found.items() if log_id not in unfinished}

    put(stack, EntryLogs, finished=finished)


def _sync_after_a_failed_one(stack: Stack) -> None:
    """A sync that waited for one that failed is believed."""
    put(stack, SyncGuard, sync=lambda _self, file: file.sync())


def _drops_in_memory(stack: Stack) -> None:
    """Logs go before the index without their ledgers is durable."""
    usual = LedgerRemoval.drop

    async def drop(self: Any) -> None:
        async def checkpoint() -> None: ...

        effects, self._effects = self._effects, attrs.evolve(self._effects, checkpoint=checkpoint)
        await usual(self)
        self._effects = effects

    put(stack, LedgerRemoval, drop=drop)


def _any_header_has_the_key(stack: Stack) -> None:
    """A key counts as stored once any header of its ledger is."""
    usual = LedgerPages.written

    def written(
        self: LedgerPages,
        changes: Iterable[LedgerChange],
        damaged: Mapping[int, CorruptError] = MappingProxyType({}),
    ) -> None:
        changes = list(changes)
        usual(self, changes, damaged)
        for change in changes:
            if change.taken_from is not None and change.header is not None:
                change.taken_from.key_logged = True

    put(stack, LedgerPages, written=written)


def _left_logs_are_compacted(stack: Stack) -> None:
    """Source and target of a compaction that cannot be finished are compacted as other logs are."""
    usual = LogCensus.drop

    async def drop(self: LogCensus, begun: LogsSnapshot, _left: frozenset[int]) -> None:
        await usual(self, begun, frozenset())

    put(stack, LogCensus, drop=drop)


def _deletions_are_not_kept(stack: Stack) -> None:
    """A ledger is dropped before the memory of its fence is durable."""
    usual = LedgerRemoval._drop

    async def drop(self: Any, ledger_ids: Any, written: set[int], *, live_on: bool = False) -> None:
        async def keep() -> None: ...

        effects, self._effects = self._effects, attrs.evolve(self._effects, keep_deletions=keep)
        await usual(self, ledger_ids, written, live_on=live_on)
        self._effects = effects

    put(stack, LedgerRemoval, _drop=drop)


def _late_ids_are_noted(stack: Stack) -> None:
    """The id of a log is noted after a higher one."""
    put(stack, LogIds, note=lambda self, log_id: self._write(log_id))


def _ledgers_before_locations(stack: Stack) -> None:
    """DbLedgerStorage stores a ledger before the locations of its entries."""

    def write(self: Any, changes: Any) -> None:
        self._write_ledgers(changes)
        self._write_locations([change for change in changes if change.pages])

    put(stack, RocksIndex, write=write)


def _targets_are_not_noted(stack: Stack) -> None:
    """The id of a compaction's target is not noted for the next start."""
    put(stack, EntryLogs, note_id=lambda _self, _log_id: None)


_STORAGE: Final = "tests.bookied.storage"
_COLLECTOR: Final = f"{_STORAGE}.garbage.test_collector"

STORAGE_MUTATIONS: Final[dict[str, Mutation]] = {
    "unreadable-is-absent": switch(
        "a bookie whose disk fails a read says that it never had the entry",
        "9, S41",
        "I2 I14",
        _unreadable_is_absent,
        "dying",
        100,
    ),
    "targets-outlive-checkpoints": switch(
        "a replay writes to index pages that a checkpoint has taken",
        "storage",
        "I1 I14",
        _targets_outlive_checkpoints,
        f"{_STORAGE}.test_replay:"
        "test_a_checkpoint_during_a_replay_does_not_lose_the_entries_behind_it",
        0,
    ),
    "damage-ends-source": switch(
        "a compaction takes damage for the end of the log that it copies",
        "storage",
        "I1",
        _damage_ends_source,
        f"{_COLLECTOR}:test_live_records_behind_a_damaged_length_keep_their_log",
        0,
    ),
    "target-is-believed": switch(
        "a transactional compaction does not read what it has written",
        "storage",
        "I1",
        _target_is_believed,
        f"{_STORAGE}.garbage.test_transactional_compaction:"
        "test_a_target_that_is_damaged_after_it_was_written_leaves_its_source",
        0,
    ),
    "doubt-is-ignored": switch(
        "a compaction believes an index that is in doubt",
        "storage",
        "I1",
        _doubt_is_ignored,
        f"{_COLLECTOR}:test_a_ledger_whose_index_is_in_doubt_keeps_its_logs",
        0,
    ),
    "failed-switch-stays": switch(
        "a collection does not first make a failed switch again",
        "storage",
        "I1",
        _failed_switch_stays,
        f"{_COLLECTOR}:test_a_failed_switch_is_made_again_before_anything_relies_on_it",
        0,
    ),
    "logs-listed-late": switch(
        "a collection takes a log that ends during its checkpoint for a finished one",
        "storage",
        "I1",
        _logs_listed_late,
        f"{_COLLECTOR}:test_a_log_that_ends_during_the_checkpoint_is_not_compacted",
        0,
    ),
    "new-logs-are-finished": switch(
        "a collection takes logs that begin after it for finished ones",
        "storage",
        "I1",
        _new_logs_are_finished,
        f"{_STORAGE}.test_ledger_storage:"
        "test_logs_that_begin_after_a_collection_are_not_finished_for_it",
        0,
    ),
    "either-log-of-an-id": switch(
        "a collection removes one of two logs with the same id",
        "storage",
        "I1",
        _either_log_of_an_id,
        f"{_COLLECTOR}:test_two_files_of_one_log_id_are_left_alone",
        0,
    ),
    "sync-after-a-failed-one": switch(
        "a sync of an entry log that waited for one that failed is believed",
        "storage",
        "I1",
        _sync_after_a_failed_one,
        f"{_STORAGE}.entrylog.test_writer:test_a_sync_that_waited_for_one_that_failed_fails_too",
        0,
    ),
    "drops-in-memory": switch(
        "logs are removed before the index without their ledgers is durable",
        "storage",
        "I14",
        _drops_in_memory,
        f"{_COLLECTOR}:test_a_dropped_ledger_stays_away_after_a_power_cut",
        0,
    ),
    "any-header-has-the-key": switch(
        "a replaced key counts as stored with the header before it",
        "storage",
        "I1 I14",
        _any_header_has_the_key,
        f"{_STORAGE}.index.test_ledger_pages:"
        "test_a_key_that_is_replaced_while_the_one_before_is_written_is_not_logged_yet",
        0,
    ),
    "left-logs-are-compacted": switch(
        "the logs of a compaction that cannot be finished are not left alone",
        "storage",
        "I1",
        _left_logs_are_compacted,
        f"{_STORAGE}.garbage.test_transactional_compaction:"
        "test_a_compacted_log_that_is_not_whole_leaves_its_source",
        0,
    ),
    "deletions-are-not-kept": switch(
        "a ledger is dropped before the memory of its fence is durable",
        "14",
        "I23",
        _deletions_are_not_kept,
        f"{_COLLECTOR}:test_a_ledger_is_dropped_once_its_deletion_is_kept",
        0,
    ),
    "late-ids-are-noted": switch(
        "the id of a log is noted after a higher one",
        "storage",
        "I14",
        _late_ids_are_noted,
        f"{_STORAGE}.entrylog.test_writer:test_an_id_noted_late_does_not_put_back_a_higher_one",
        0,
    ),
    "ledgers-before-locations": switch(
        "a ledger is stored before the locations of its entries",
        "storage",
        "I14",
        _ledgers_before_locations,
        f"{_STORAGE}.index.rocks.test_database:test_a_ledger_is_not_stored_before_its_locations",
        0,
    ),
    "targets-are-not-noted": switch(
        "the id of a compaction's target is not noted for the next start",
        "storage",
        "I14",
        _targets_are_not_noted,
        f"{_STORAGE}.garbage.test_transactional_compaction:"
        "test_the_id_of_a_target_is_noted_so_that_no_later_log_has_it",
        0,
    ),
}
"""By name; part of ``mutations.MUTATIONS``."""
