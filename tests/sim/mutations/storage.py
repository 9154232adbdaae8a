"""Rules of storage that matter after a crash or damage, broken on purpose; a test notices each."""

from __future__ import annotations

import contextlib
from array import array
from collections.abc import Iterable, Mapping
from pathlib import Path
from types import MappingProxyType
from typing import Any, Final

import attrs

from bookied.errors import CorruptError
from bookied.offline.repair import rebuild_index, rescan
from bookied.offline.repair.rebuild_db import RebuildDb
from bookied.server.rules import answer_from_disk
from bookied.storage import replay
from bookied.storage.entrylog.log_ids_and_directories import LogIds
from bookied.storage.entrylog.log_list import list_all_logs
from bookied.storage.entrylog.scan import LogScan
from bookied.storage.entrylog.write_failures import SyncGuard
from bookied.storage.files.files import Buffer, Files
from bookied.storage.garbage.collector import Collector
from bookied.storage.garbage.ledger_removal import LedgerRemoval
from bookied.storage.garbage.live_records import LiveRecords, WrittenRecords
from bookied.storage.garbage.log_removal import LogCensus
from bookied.storage.garbage.unneeded_ledgers import LedgerGarbage
from bookied.storage.index.ledger_pages import CachedLedger, LedgerChange, LedgerPages
from bookied.storage.index.rocks.index import RocksIndex
from bookied.storage.journal import crash_or_damage
from bookied.storage.journal.mark import LastMark
from bookied.storage.journal.reader import JournalScan
from bookied.storage.journal.writer import Journal
from bookied.storage.ledger_storage.adds import EntryAdds
from bookied.storage.ledger_storage.entry_logs import EntryLogs, LogsSnapshot
from bookied.storage.ledger_storage.relocation import Relocation
from bookied.storage.ledger_storage.storage import LedgerStorage
from tests.sim.engine.mutation_switch import Mutation, put, switch
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
    put(stack, LiveRecords, require_complete=lambda _self: None)


def _torn_end_is_believed(stack: Stack) -> None:
    """A log's last record counts as cut off without a look at what the index has behind it."""

    def require_complete(_self: Relocation, scan: LogScan) -> None:
        scan.require_complete()

    put(stack, Relocation, require_complete=require_complete)


def _padding_is_believed(stack: Stack) -> None:
    """A negative length in an entry log counts as padding, whatever the bytes up to a block are."""

    def pass_padding(self: LogScan, at: int) -> None:
        self._at += -at % 4096 or 4096

    put(stack, LogScan, _pass_padding=pass_padding)


def _grown_length_is_believed(stack: Stack) -> None:
    """A length in an entry log counts though the index has entries inside the record."""
    put(stack, Relocation, require_sizes=lambda _self, _scan, _piece: None)


def _elsewhere_is_believed(stack: Stack) -> None:
    """A compaction does not look whether an entry is where the index has it."""
    usual = Relocation.still_at

    def still_at(
        self: Relocation,
        places: Any,
        sure: set[int] | None = None,
        *,
        are_records: bool = True,
    ) -> list[bool]:
        return usual(self, places, sure, are_records=False)

    put(stack, Relocation, still_at=still_at)


def _index_is_complete(stack: Stack) -> None:
    """An index that is made anew beside a damaged log counts as complete."""
    put(stack, rebuild_index._Rebuild, _is_in_doubt=lambda _self, _ledger_id: False)


def _lost_fences_unasked(stack: Stack) -> None:
    """An index that is made anew is believed to have all fences."""
    put(stack, rebuild_index._Rebuild, note_lost_fences=lambda _self: None)


def _any_journal_is_own(stack: Stack) -> None:
    """A journal is replayed whatever directory's ledgers it has."""

    def require_own_journals(
        _files: Files, _directory: Path, _mark: LastMark, _number: int, _count: int
    ) -> None:
        return

    put(stack, replay, require_own_journals=require_own_journals)


def _tear_at_the_mark(stack: Stack) -> None:
    """A journal of which nothing can be read from the mark on was replayed by an earlier start."""
    usual = crash_or_damage.check_end

    def check_end(scan: JournalScan, *, is_last: bool, has_mark: bool) -> None:
        if is_last or scan.end > scan.start:
            usual(scan, is_last=is_last, has_mark=has_mark)

    put(stack, replay, check_end=check_end)


def _hidden_records_unseen(stack: Stack) -> None:
    """A rebuild believes a length that may hide the records after it."""
    put(stack, rescan, hides_records=lambda _body: False)


def _map_is_believed(stack: Stack) -> None:
    """A log of an earlier process goes when its map names no ledger that is alive."""

    async def is_map_right(
        _self: LogCensus, _log_id: int, _path: Path, _alive: frozenset[int]
    ) -> bool:
        return True

    put(stack, LogCensus, _is_map_right=is_map_right)


def _unwritten_is_finished(stack: Stack) -> None:
    """Logs count as finished though there was no space for a checkpoint."""
    usual = Collector._checkpoint

    async def checkpoint(self: Collector) -> bool:
        begun = self._storage.logs.begun()
        is_done = await usual(self)
        self._begun = begun
        return is_done

    put(stack, Collector, _checkpoint=checkpoint)


def _damage_denies(stack: Stack) -> None:
    """Locations that are rebuilt from a damaged log count as complete."""
    put(stack, RebuildDb, _put_into_limbo=lambda _self, _path, _ids: None)


def _target_is_believed(stack: Stack) -> None:
    """A transactional compaction switches to its target without reading what it has written."""
    put(stack, WrittenRecords, require_stored=lambda _self, _files, _path: None)


def _unreadable_is_absent(stack: Stack) -> None:
    """A bookie whose disk fails a read says that it never had the entry."""
    usual = answer_from_disk.refusal_code

    def refusal_code(error: Exception, ledger_id: LedgerId) -> ReturnCode:
        return ReturnCode.ENOENTRY if isinstance(error, OSError) else usual(error, ledger_id)

    put(stack, answer_from_disk, refusal_code=refusal_code)


def _doubt_is_ignored(stack: Stack) -> None:
    """A compaction believes an index that may have lost places of entries."""
    put(stack, Relocation, _require_no_doubt=lambda _self, _ledger_id: None)


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

    async def remove_deleted(_self: LedgerStorage, _run_blocking: Any) -> None: ...

    put(stack, LedgerStorage, remove_deleted=remove_deleted)


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


def _cut_off_before_the_map(stack: Stack) -> None:
    """A record that seems to be cut off ends a log, though the log's map comes after it."""
    usual = LogScan.require_complete

    def require_complete(self: LogScan) -> None:
        header = self.header
        self.header = None if header is None else attrs.evolve(header, map_offset=0)
        usual(self)
        self.header = header

    put(stack, LogScan, require_complete=require_complete)


def _taken_back_blindly(stack: Stack) -> None:
    """Entries that a full log has not taken go into another one, and the index is not told."""

    def append_again(self: EntryAdds, _base: int, blob: bytes) -> None:
        self.reserve(len(blob))
        self.append(blob)

    put(stack, EntryAdds, _append_again=append_again)


def _space_is_pretended(stack: Stack) -> None:
    """A journal that has no space for a group goes on as if it had written it."""
    usual = Journal._has_space_for

    def has_space_for(self: Journal, records: list[Buffer]) -> bool:
        usual(self, records)
        return True

    put(stack, Journal, _has_space_for=has_space_for)


def _replay_trouble_unseen(stack: Stack) -> None:
    """A replay goes on after its second thread could not write."""

    def end_writes(self: Any) -> bool:
        if self._writes is not None:
            self._writes.wait()
        return True

    put(stack, replay._Replay, end_writes=end_writes)


def _tear_before_the_mark(stack: Stack) -> None:
    """After a replay the mark is in front of a torn group."""
    usual = replay._Replay.directory

    def directory(self: Any, directory: Path, mark: LastMark) -> LastMark:
        found = usual(self, directory, mark)
        torn = [end for path, end in self._torn_ends if path.parent == directory]
        return LastMark(found.journal_id, torn[0]) if torn else found

    put(stack, replay._Replay, directory=directory)


def _torn_ends_stay(stack: Stack) -> None:
    """A torn group stays in a journal that the next start reads again."""
    put(stack, replay._Replay, cut_torn_ends=lambda _self: None)


def _end_is_believed(stack: Stack) -> None:
    """A replay takes what it can read of a journal for durable."""
    put(stack, replay._Replay, _make_durable=lambda _self, _path, _marked, _end: None)


def _changes_not_counted(stack: Stack) -> None:
    """An index page that a reader has brought is kept, though it was written to meanwhile."""

    def keep_read(
        self: LedgerPages, state: CachedLedger, _changes: int, page_no: int, page: array[int]
    ) -> None:
        self.read_pages.keep(state.ledger_id, page_no, page)

    put(stack, LedgerPages, keep_read=keep_read)


def _unlisted_is_gone(stack: Stack) -> None:
    """A ledger that a list lacks is deleted, though its metadata is there."""

    async def is_gone(_self: LedgerGarbage, _ledger_id: LedgerId) -> bool:
        return True

    put(stack, LedgerGarbage, _is_gone=is_gone)


def _repaired_is_excess(stack: Stack) -> None:
    """Copies that a repair has just brought are deleted as excess."""

    async def is_being_repaired(_self: LedgerGarbage, _ledger_id: LedgerId) -> bool:
        return False

    put(stack, LedgerGarbage, _is_being_repaired=is_being_repaired)


def _written_is_dropped(stack: Stack) -> None:
    """A ledger is dropped though clients have written to it since the metadata was asked."""
    usual = LedgerRemoval._drop

    async def drop(
        self: Any, ledger_ids: Any, _written: set[int], *, live_on: bool = False
    ) -> None:
        await usual(self, ledger_ids, set(), live_on=live_on)

    put(stack, LedgerRemoval, _drop=drop)


_STORAGE: Final = "tests.bookied.storage"
_COLLECTOR: Final = f"{_STORAGE}.garbage.test_collector"
_UNNEEDED: Final = f"{_STORAGE}.garbage.test_unneeded_ledgers"
_REBUILD: Final = "tests.bookied.offline.repair.test_rebuild_index"

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
    "torn-end-is-believed": switch(
        "a log's last record counts as cut off though the index has entries behind it",
        "storage",
        "I1",
        _torn_end_is_believed,
        f"{_STORAGE}.garbage.test_collector:"
        "test_live_records_behind_what_looks_like_a_torn_end_keep_their_log",
        0,
    ),
    "padding-is-believed": switch(
        "a negative length in an entry log counts as padding whatever the bytes behind it are",
        "storage",
        "I1",
        _padding_is_believed,
        f"{_STORAGE}.entrylog.test_format:"
        "test_a_negative_length_without_padding_behind_it_is_damage",
        0,
    ),
    "grown-length-is-believed": switch(
        "a length in an entry log counts though the index has entries inside the record",
        "storage",
        "I1",
        _grown_length_is_believed,
        f"{_COLLECTOR}:test_a_live_record_inside_one_whose_length_has_grown_by_it_keeps_its_log",
        0,
    ),
    "elsewhere-is-believed": switch(
        "a compaction does not look whether an entry is where the index has it",
        "storage",
        "I1",
        _elsewhere_is_believed,
        f"{_COLLECTOR}:test_a_record_that_a_damaged_index_has_elsewhere_keeps_its_log",
        0,
    ),
    "index-is-complete": switch(
        "an index that is made anew beside a damaged log counts as complete",
        "storage",
        "I14",
        _index_is_complete,
        f"{_REBUILD}:TestWhatCannotBeRead."
        "test_where_no_index_says_what_damage_has_taken_the_new_one_is_in_doubt",
        0,
    ),
    "lost-fences-unasked": switch(
        "an index that is made anew counts as having all fences",
        "storage",
        "I13",
        _lost_fences_unasked,
        f"{_REBUILD}:test_where_an_index_is_lost_fences_are_looked_up_in_the_metadata",
        0,
    ),
    "any-journal-is-own": switch(
        "a journal is replayed whatever directory's ledgers it has",
        "storage",
        "I14",
        _any_journal_is_own,
        f"{_STORAGE}.test_replay:test_a_journal_of_another_directory_stops_the_start",
        0,
    ),
    "tear-at-the-mark": switch(
        "a journal that cannot be read from its mark on is passed over",
        "storage",
        "I14",
        _tear_at_the_mark,
        f"{_STORAGE}.test_replay:test_a_damaged_group_that_the_mark_is_in_front_of_stops_the_start",
        0,
    ),
    "hidden-records-unseen": switch(
        "a rebuild believes a length that may hide the records after it",
        "storage",
        "I14",
        _hidden_records_unseen,
        "tests.bookied.offline.repair.test_rebuild_db:"
        "test_a_length_that_has_grown_by_the_records_after_it_is_damage",
        0,
    ),
    "map-is-believed": switch(
        "a log goes by its map alone, which has no checksum",
        "storage",
        "I1",
        _map_is_believed,
        f"{_COLLECTOR}:test_a_log_whose_map_names_another_ledger_stays",
        0,
    ),
    "unwritten-is-finished": switch(
        "a collection on a full disk takes a log that waits for space for a finished one",
        "storage",
        "I1",
        _unwritten_is_finished,
        f"{_COLLECTOR}:test_on_a_full_disk_the_log_of_what_waits_for_space_stays",
        0,
    ),
    "damage-denies": switch(
        "locations that are rebuilt from a damaged log count as complete",
        "storage",
        "I14",
        _damage_denies,
        "tests.bookied.offline.repair.test_rebuild_db:"
        "test_where_a_log_is_damaged_no_ledger_is_said_to_lack_entries",
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
    "cut-off-before-the-map": switch(
        "a record that seems to be cut off ends a log in front of its map",
        "storage",
        "I1",
        _cut_off_before_the_map,
        "tests.bookied.offline.repair.test_rebuild_db:"
        "test_a_length_that_leads_behind_a_finished_log_is_damage",
        0,
    ),
    "taken-back-blindly": switch(
        "the index does not learn where entries went that a full log has not taken",
        "storage",
        "I1 I14",
        _taken_back_blindly,
        f"{_STORAGE}.test_ledger_storage:"
        "test_entries_are_found_in_the_log_that_has_taken_what_another_had_no_space_for",
        0,
    ),
    "space-is-pretended": switch(
        "a journal without space goes on as if it had written",
        "storage",
        "I1 I14",
        _space_is_pretended,
        f"{_STORAGE}.journal.test_writer:"
        "test_a_full_disk_is_waited_for_and_nothing_is_acknowledged_before_it_is_there",
        0,
    ),
    "replay-trouble-unseen": switch(
        "a replay goes on after its second thread could not write",
        "storage",
        "I1 I14",
        _replay_trouble_unseen,
        f"{_STORAGE}.test_replay:"
        "test_entries_of_two_storages_between_those_that_nobody_knows_find_their_places",
        0,
    ),
    "tear-before-the-mark": switch(
        "after a replay the mark is in front of a torn group",
        "storage",
        "I14",
        _tear_before_the_mark,
        f"{_STORAGE}.test_replay:test_a_torn_tail_is_where_writing_stopped",
        0,
    ),
    "torn-ends-stay": switch(
        "a torn group stays in a journal that is read again",
        "storage",
        "L2",
        _torn_ends_stay,
        f"{_STORAGE}.test_replay:"
        "test_a_tear_that_no_mark_could_pass_is_no_damage_once_another_follows",
        0,
    ),
    "end-is-believed": switch(
        "a replay takes what it reads of a journal for durable",
        "storage",
        "L2",
        _end_is_believed,
        f"{_STORAGE}.test_replay:"
        "test_what_was_not_synced_when_the_process_died_stays_under_the_mark",
        0,
    ),
    "changes-not-counted": switch(
        "a page of an index is kept for readers though it has changed since it was read",
        "storage",
        "I1",
        _changes_not_counted,
        f"{_STORAGE}.test_ledger_storage:test_a_page_that_is_written_to_is_read_again",
        0,
    ),
    "unlisted-is-gone": switch(
        "a ledger that a list lacks is deleted without a look at its metadata",
        "13",
        "I1",
        _unlisted_is_gone,
        f"{_UNNEEDED}:test_a_ledger_missing_from_the_list_is_read_before_it_counts_as_gone",
        0,
    ),
    "repaired-is-excess": switch(
        "copies that a repair has brought are deleted as excess",
        "13",
        "I19",
        _repaired_is_excess,
        f"{_UNNEEDED}:test_a_ledger_that_is_under_replicated_or_locked_is_left_alone",
        0,
    ),
    "written-is-dropped": switch(
        "a ledger is dropped though clients have written to it meanwhile",
        "13",
        "I1",
        _written_is_dropped,
        f"{_COLLECTOR}:test_a_ledger_that_comes_again_while_the_metadata_is_asked_is_spared",
        0,
    ),
}
"""By name; part of ``mutations.MUTATIONS``."""
