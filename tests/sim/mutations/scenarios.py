"""Rules that random simulations seldom reach, broken on purpose: a scenario has to notice each."""

from __future__ import annotations

import contextlib
from array import array
from functools import partial
from pathlib import Path
from typing import Any, Final

import attrs

from bkclient.admin import one_shot_adds
from bkclient.client import Client
from bkclient.connection.channel import BookieChannel
from bkclient.ledger.handover_state import HANDOVER_KEY, WRITER_KEY, HandoverState
from bkclient.ledger.writer import LedgerWriter
from bkclient.log.record import LogRecord
from bkclient.metadata import zk_paths
from bkclient.metadata.tree.ledgers import TreeLedgers
from bkclient.metadata.tree.logs import TOMBSTONE, TreeLogs
from bkclient.metadata.tree.nodes import NoNodeError
from bkclient.metadata.versions_and_watches import Version
from bookied.autorecovery.worker import RepairOutcome, Worker
from bookied.data_integrity import check as integrity
from bookied.directories import cookie_check
from bookied.directories.roots import Directories
from bookied.state.registration import Registration
from bookied.storage.entrylog import entry_rows
from bookied.storage.files.files import Files
from bookied.storage.garbage.live_records import WrittenRecords
from bookied.storage.garbage.transactional_compaction import (
    TransactionalCompaction,
    UnfinishedCompaction,
)
from bookied.storage.index.index_files import reads as index_files
from bookied.storage.ledger_storage.ledgers import StoredLedgers
from bookied.storage.ledger_storage.reads import StoredEntryReads
from tests.sim.engine.mutation_switch import Mutation, put, switch
from tests.sim.mutations.metadata import records_of_before
from wire import digest
from wire.digest import VerifiedEntries
from wire.ids import BookieId, LedgerId
from wire.ledger_metadata import LedgerMetadata

Stack = contextlib.ExitStack


def _stale_claim(stack: Stack) -> None:
    """A claim that meets another one goes on behind the last entry that it read first."""

    async def claim(client: Client, ledger_id: LedgerId) -> LedgerWriter:
        local = await client.local_metadata(ledger_id)
        start = one_shot_adds.read_handover(ledger_id, local.value)
        nonce = b"%032x" % client.cluster.rng.getrandbits(128)

        def needed(metadata: LedgerMetadata) -> bool:
            is_done = metadata.custom.get(WRITER_KEY) == nonce
            return not is_done and bool(one_shot_adds.read_handover(ledger_id, metadata))

        def claimed(metadata: LedgerMetadata) -> LedgerMetadata:
            custom = {k: value for k, value in metadata.custom.items() if k != HANDOVER_KEY}
            return attrs.evolve(metadata, custom={**custom, WRITER_KEY: nonce}, creator_token=0)

        await client.cluster.updater.update(ledger_id, local, needed, claimed)
        return client.writer_of(ledger_id, local, last=start.last, length=start.length)

    put(stack, one_shot_adds, claim_ledger=claim)


def _releases_anything(stack: Stack) -> None:
    """A release does not look who has the ledger."""

    async def release(writer: LedgerWriter, **_options: Any) -> LedgerMetadata:
        await writer.drain()
        value = HandoverState(writer.last_add_confirmed, writer.length).encode()
        writer.retire()

        def released(metadata: LedgerMetadata) -> LedgerMetadata:
            return attrs.evolve(metadata, custom={**metadata.custom, HANDOVER_KEY: value})

        return await writer.update_metadata(
            lambda metadata: metadata.custom.get(HANDOVER_KEY) != value, released
        )

    put(stack, one_shot_adds, release_ledger=release)


def _cookie_not_looked_for(stack: Stack) -> None:
    """A bookie that was taken out while it had no session serves on."""

    async def require_cookie(_self: Registration) -> None: ...

    put(stack, Registration, _require_cookie=require_cookie)


def _clear_is_tls(stack: Stack) -> None:
    """A client keeps what came in clear with the answer to START_TLS."""
    usual = BookieChannel.start_tls

    def start_tls(self: BookieChannel, end: Any) -> Any:
        self._connection.buffer = bytearray()
        return usual(self, end)

    put(stack, BookieChannel, start_tls=start_tls)


def _index_is_believed(stack: Stack) -> None:
    """The integrity check takes what the index has for what the logs have."""
    put(stack, StoredEntryReads, not_in_logs=lambda _self, _entries: set())


def _lost_meanwhile(stack: Stack) -> None:
    """A registration is done though its session was lost before its cookie was read."""

    async def write(self: Any) -> None:
        async with self._one_at_a_time:
            await self._store.register(self._bookie_id, self._info, read_only=self._read_only)
            if not self.is_registered:
                await self._require_cookie()
            self.is_registered = True

    put(stack, Registration, _write=write)


def _cookie_is_enough(stack: Stack) -> None:
    """A root passes the check of cookies wherever it was at the last start."""

    def check_paths(_files: Files, _found: Directories, _moved: object = None) -> None: ...

    put(stack, cookie_check, check_paths=check_paths)


def _emptied_is_new(stack: Stack) -> None:
    """A bookie without a stored cookie is new if any directory is empty."""

    def require_new(self: Any, _local: object, missing: list[Path]) -> None:
        assert missing
        self._require_empty(missing)

    put(stack, cookie_check._CookieCheck, require_new=require_new)


def _listing_not_fresh(stack: Stack) -> None:
    """A listing may be of a server that is behind."""

    async def names_in(self: TreeLedgers, names: tuple[str, ...]) -> list[str]:
        try:
            return await self._tree.children("".join(f"/{name}" for name in names))
        except NoNodeError:
            return []

    put(stack, TreeLedgers, _names_in=names_in)


def _log_versions_begin_again(stack: Stack) -> None:
    """A log that is created again takes away first what the deleted one has left."""
    real = TreeLogs.create_log

    async def create_log(self: TreeLogs, name: str, record: bytes) -> Version:
        with contextlib.suppress(NoNodeError):
            if (await self._tree.get(zk_paths.log(name))).value == TOMBSTONE:
                await self._tree.delete(zk_paths.log(name))
        return await real(self, name, record)

    put(stack, TreeLogs, create_log=create_log)
    records_of_before(stack)  # Or the transaction that created it tells the two apart.


def _fences_in_memory_only(stack: Stack) -> None:
    """Garbage collection asks only ledgers in memory whether they are fenced."""
    put(stack, StoredLedgers, are_fenced=lambda _self, _ledger_ids: set())


def _last_slot_unseen(stack: Stack) -> None:
    """The last slot of a page is left out where a ledger's last entry is looked for."""
    usual = index_files._last_in_page

    def last_in_page(page_no: int, page: array[int]) -> int:
        return usual(page_no, array("Q", [*page[:-1], 0]))

    put(stack, index_files, _last_in_page=last_in_page)


def _runs_of_anything(stack: Stack) -> None:
    """Entries that are read together are taken whatever their ids."""

    def verify_run(self: Any, ledger_id: int, ids: range, packets: Any) -> VerifiedEntries:
        spans = digest._spans(packets, self._payload_at)[: len(ids)]
        sized = packets.sized
        return VerifiedEntries.of(
            [self.verify(ledger_id, None, sized[at:end]) for at, end in spans]
        )

    put(stack, digest._Digester, verify_run=verify_run)


def _heads_of_rows_unchecked(stack: Stack) -> None:
    """Rows of entries are sent as they lie, whoever's they are."""

    def alike(
        _data: Any,
        begin: int,
        locations: Any,
        _ledger_id: int,
        _entry_id: int,
        _stride: int,
        bytes_max: int,
        _end_max: int,
    ) -> tuple[int, int, int]:
        size = locations[1] - locations[0]
        count = min(len(locations), bytes_max // size) if begin >= 0 < size else 0
        return count, size, size

    put(stack, entry_rows, _alike=alike)


def _moved_entries_are_gone(stack: Stack) -> None:
    """A read whose log was removed does not look for the entry in another log."""

    def read_disk(self: Any, location: int, ledger_id: int, entry_id: int) -> bytes:
        location = location or self._index.location(ledger_id, entry_id)
        packet: bytes = self._reader.read(location, ledger_id, entry_id)
        return packet

    put(stack, StoredEntryReads, read_disk=read_disk)


def _unknown_end_is_whole(stack: Stack) -> None:
    """A ledger whose LAC is not known counts as whole where nothing else is missing."""
    usual = Worker._pass

    async def look(self: Any, ledger_id: LedgerId) -> Any:
        outcome, ledger = await usual(self, ledger_id)
        return (RepairOutcome.INTACT if ledger.lac is None else outcome), ledger

    put(stack, Worker, _pass=look)


def _source_goes_first(stack: Stack) -> None:
    """A transactional compaction removes its source before the index is switched."""
    usual = TransactionalCompaction._finish

    async def finish(
        self: TransactionalCompaction,
        todo: UnfinishedCompaction,
        source: Path | None,
        *,
        written: WrittenRecords | None,
    ) -> None:
        if source is not None:
            await self._pace.blocking(partial(self._storage.logs.remove, source))
        await usual(self, todo, source, written=written)

    put(stack, TransactionalCompaction, _finish=finish)


def _ids_of_logs_ignored(stack: Stack) -> None:
    """Records of two logs are compared by their ledgers alone."""
    usual = LogRecord.is_of_log_of

    def is_of_log_of(self: LogRecord, other: LogRecord) -> bool:
        return usual(attrs.evolve(self, log_id=""), other)

    put(stack, LogRecord, is_of_log_of=is_of_log_of)


def _no_limbo(stack: Stack) -> None:
    """No ledger goes into limbo where a bookie has lost what it held."""

    def may_have_forgotten(_metadata: LedgerMetadata, _bookie_id: BookieId) -> bool:
        return False

    put(stack, integrity, may_have_forgotten=may_have_forgotten)


_BATCHES: Final = "tests.bookied.server.rules.test_batch_reads"
_COOKIES: Final = "tests.bookied.directories.test_cookie_check"
_COLLECTOR: Final = "tests.bookied.storage.garbage.test_collector"

SCENARIO_MUTATIONS: Final[dict[str, Mutation]] = {
    "stale-claim": switch(
        "a claim that meets another goes on from the last entry it read first",
        "hand-over",
        "I1 I9 I17",
        _stale_claim,
        "relay",
        20,
    ),
    "releases-anything": switch(
        "a release does not look who has the ledger",
        "hand-over",
        "I1 I9 I17",
        _releases_anything,
        "relay",
        60,
    ),
    "cookie-not-looked-for": switch(
        "a bookie that registers again does not look for its cookie",
        "14, S10",
        "S10",
        _cookie_not_looked_for,
        "absent",
        160,
    ),
    "clear-is-tls": switch(
        "a client does not notice what comes in clear with the answer to START_TLS",
        "9",
        "I2",
        _clear_is_tls,
        "tests.bkclient.connection.test_channel:"
        "test_what_comes_in_clear_with_the_answer_to_start_tls_is_no_answer_in_tls",
        0,
    ),
    "index-is-believed": switch(
        "the integrity check does not look for entries in the logs",
        "storage",
        "L3",
        _index_is_believed,
        "tests.bookied.data_integrity.test_repaired_storages:"
        "test_entries_whose_logs_are_gone_are_lacking_though_the_index_has_them",
        0,
    ),
    "lost-meanwhile": switch(
        "a registration is done though its session was lost before its cookie was read",
        "14",
        "S10 L3",
        _lost_meanwhile,
        "tests.bookied.state.test_registration:"
        "test_a_session_that_is_lost_while_the_cookie_is_read_counts_for_nothing",
        0,
    ),
    "cookie-is-enough": switch(
        "directories of a bookie that changed places are not noticed",
        "storage",
        "I14",
        _cookie_is_enough,
        f"{_COOKIES}:test_directories_that_changed_places_are_refused",
        0,
    ),
    "emptied-is-new": switch(
        "a bookie without a stored cookie is new if any directory is empty",
        "storage",
        "I14",
        _emptied_is_new,
        f"{_COOKIES}:test_a_lost_stored_cookie_is_refused_also_where_a_directory_was_emptied",
        0,
    ),
    "listing-not-fresh": switch(
        "ledgers are listed without a sync before",
        "13, H4",
        "L2 I1 I14 I15 G1",
        _listing_not_fresh,
        "young",
        20,
    ),
    "log-versions-begin-again": switch(
        "a log that is created again begins with version 0",
        "log 1",
        "G3",
        _log_versions_begin_again,
        "outlived",
        80,
    ),
    "ids-of-logs-ignored": switch(
        "a reader takes the next log of a name for its own where they list no ledger in common",
        "log 1",
        "G1 G2",
        _ids_of_logs_ignored,
        "made_again",
        160,
    ),
    "next-log-takes-it": switch(
        "a batch whose answer was lost is listed by the next log of the name",
        "log",
        "G1",
        _ids_of_logs_ignored,
        "tests.bkclient.log.test_batches:"
        "test_a_batch_whose_answer_is_lost_is_not_listed_by_the_next_log_of_the_name",
        0,
    ),
    "no-limbo": switch(
        "a bookie with empty disks says that it never had an entry",
        "storage",
        "I2 I14",
        _no_limbo,
        "emptied",
        150,
    ),
    "fences-in-memory-only": switch(
        "a fence that only the disk knows is forgotten with the ledger",
        "14",
        "I23",
        _fences_in_memory_only,
        f"{_COLLECTOR}:test_a_fence_is_remembered_where_only_the_disk_knows_it",
        0,
    ),
    "last-slot-unseen": switch(
        "the last entry of a full page is not the last after a restart",
        "storage",
        "I1 I14",
        _last_slot_unseen,
        "pages",
        20,
    ),
    "runs-of-anything": switch(
        "bulk reads take any entry id",
        "9",
        "I22",
        _runs_of_anything,
        "tests.wire.test_digest:test_a_run_ends_before_an_entry_that_nobody_asked_for",
        0,
    ),
    "heads-of-rows-unchecked": switch(
        "rows of a batch are sent without a look at their heads",
        "storage",
        "I1",
        _heads_of_rows_unchecked,
        f"{_BATCHES}:test_a_batch_ends_where_the_index_names_a_run_of_another_ledger",
        0,
    ),
    "moved-entries-are-gone": switch(
        "a read from a log that is removed meanwhile does not look for the entry elsewhere",
        "storage",
        "I1",
        _moved_entries_are_gone,
        f"{_BATCHES}:test_a_batch_is_complete_though_compaction_removes_its_logs_meanwhile",
        0,
    ),
    "unknown-end-is-whole": switch(
        "a ledger whose LAC is not known counts as whole",
        "13",
        "I20",
        _unknown_end_is_whole,
        "tests.bookied.autorecovery.test_worker:"
        "test_l2_a_ledger_of_which_nobody_knows_the_end_stays_marked",
        0,
    ),
    "source-goes-first": switch(
        "transactional compaction removes the source before the index is switched",
        "storage",
        "I1",
        _source_goes_first,
        f"{_COLLECTOR}:"
        "test_a_transactional_compaction_keeps_its_source_until_the_index_is_switched",
        0,
    ),
}
"""By name; part of ``mutations.MUTATIONS``."""
