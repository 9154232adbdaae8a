"""Rules of metadata services, their users and batches that logs take, broken on purpose."""

from __future__ import annotations

import contextlib
import sqlite3
from collections.abc import Callable
from typing import Any, Final

from bkclient.client import Client
from bkclient.errors import MetadataVersionError, NoSuchLedgerError
from bkclient.log import batch_append
from bkclient.log.ledger_list import batch_of
from bkclient.log.record import LastBatch, LogRecord
from bkclient.metadata import zk_paths
from bkclient.metadata.errors import MetadataUnavailableError
from bkclient.metadata.ledger_metadata_updates import LocalMetadata, Updater
from bkclient.metadata.sqlite.database import Key
from bkclient.metadata.sqlite.rows import Rows, Sessions
from bkclient.metadata.tree import logs, tree_part
from bkclient.metadata.tree.ids import TreeLedgerIds
from bkclient.metadata.tree.nodes import Tree
from bkclient.metadata.versions_and_watches import ANY, Version, Versioned
from tests.sim.engine.mutation_switch import Mutation, put, switch
from wire.ids import LedgerId
from wire.ledger_metadata import LedgerMetadata

Stack = contextlib.ExitStack
_LOST: Final = "tests.bkclient.metadata.test_lost_answers"
_BATCHES: Final = "tests.bkclient.log.test_batches"


def records_of_before(stack: Stack) -> None:
    """Versions of a log's node count whichever transaction created it."""
    usual = tree_part.checked

    async def checked(tree: Tree, path: str, version: Version) -> tuple[int, Version]:
        return await usual(tree, path, version if version == ANY else version % 2**32)

    put(stack, logs, checked=checked)


def _rows_blindly(stack: Stack) -> None:
    """A row of the file is replaced whatever its version."""
    usual = Rows.update

    def update(self: Any, kind: str, key: Key, value: bytes, _version: Version = ANY) -> Version:
        return usual(self, kind, key, value, ANY)

    put(stack, Rows, update=update)


def _leases_for_ever(stack: Stack) -> None:
    """What a session that is over owns is read as if it lived."""
    usual = Sessions.__init__

    def begin(self: Sessions, connection: sqlite3.Connection, now_ms: Callable[[], int]) -> None:
        usual(self, connection, now_ms)
        self.expired = frozenset()

    put(stack, Sessions, __init__=begin)


def _epochs_again(stack: Stack) -> None:
    """An epoch of ledger ids that was deleted is made again."""
    usual = TreeLedgerIds._read_epochs

    async def read_epochs(self: Any) -> None:
        await self._create_shared(zk_paths.epoch(1))
        await usual(self)

    put(stack, TreeLedgerIds, _read_epochs=read_epochs)


def _skips_to_former_epochs(stack: Stack) -> None:
    """Ids are skipped to the epoch after them, though later ones have begun."""

    async def skip(self: Any, last: LedgerId, _layout: str) -> None:
        await self._create_shared(zk_paths.IDGEN_LONG)
        await self._begin_epoch((last >> 32) + 1)

    put(stack, TreeLedgerIds, skip_ledger_ids=skip)


def _dead_votes_win(stack: Stack) -> None:
    """A vote wins although it is gone by then."""

    async def is_own(_tree: Any, _path: str) -> bool:
        return True

    put(stack, Tree, is_own=is_own)


def _gaps_end_batches(stack: Stack) -> None:
    """Behind a deleted ledger no batch is looked for."""

    async def last_batch(client: Client, record: LogRecord, stream: str) -> LastBatch | None:
        for ledger in reversed(record.ledgers):
            try:
                metadata = (await client.read_metadata(ledger.ledger_id)).value
            except NoSuchLedgerError:
                return None
            found = batch_of(dict(metadata.custom), stream)
            if found is not None:
                return LastBatch(stream, found)
        return None

    put(stack, batch_append, last_batch=last_batch)


def _closed_is_settled(stack: Stack) -> None:
    """A log whose last ledger is closed has no writer."""

    async def is_settled(client: Client, record: LogRecord) -> bool:
        last = record.last_ledger_id
        return last is None or (await client.read_metadata(last)).value.is_closed

    put(stack, batch_append, is_settled=is_settled)


def _write_blindly(stack: contextlib.ExitStack) -> None:
    """Writes whatever version there is."""

    async def update(
        self: Updater, ledger_id: LedgerId, local: LocalMetadata, *rules: Callable[..., Any]
    ) -> LedgerMetadata:
        needed, transform, *_ = rules
        if not needed(local.value):
            return local.value
        changed: LedgerMetadata = transform(local.value)
        await self.store.write_ledger(ledger_id, changed, ANY)
        local.install(await self.store.read_ledger(ledger_id))
        return changed

    put(stack, Updater, update=update)


def _stale_base(stack: contextlib.ExitStack) -> None:
    """After a conflict the same change is written again, under the version met."""

    async def update(
        self: Updater, ledger_id: LedgerId, local: LocalMetadata, *rules: Callable[..., Any]
    ) -> LedgerMetadata:
        needed, transform, *_ = rules
        base = local.value
        stored_version = local.version
        while needed(base):
            changed: LedgerMetadata = transform(base)
            try:
                version = await self.store.write_ledger(ledger_id, changed, stored_version)
            except MetadataVersionError:
                stored_version = (await self.store.read_ledger(ledger_id)).version
                continue
            local.install(Versioned(changed, version))
            return changed
        return base

    put(stack, Updater, update=update)


def _conflict_is_fatal(stack: contextlib.ExitStack) -> None:
    """A version conflict ends the operation, also one with itself after a lost answer."""

    async def update(
        self: Updater, ledger_id: LedgerId, local: LocalMetadata, *rules: Callable[..., Any]
    ) -> LedgerMetadata:
        needed, transform, *_ = rules
        while needed(local.value):
            changed: LedgerMetadata = transform(local.value)
            try:
                version = await self.store.write_ledger(ledger_id, changed, local.version)
            except MetadataUnavailableError:
                continue
            local.install(Versioned(changed, version))
            return changed
        return local.value

    put(stack, Updater, update=update)


METADATA_MUTATIONS: Final[dict[str, Mutation]] = {
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
    "rows-blindly": switch(
        "a row of the file is replaced whatever its version",
        "metadata",
        "I4 I1 I2 I3 I16 I17",
        _rows_blindly,
        "sqlite_partial",
        20,
    ),
    "leases-for-ever": switch(
        "what a session that is over owns is read as if it lived",
        "metadata",
        "L3",
        _leases_for_ever,
        "tests.sim.test_sqlite_deaths:"
        "test_nothing_of_a_session_that_is_over_is_seen_before_it_is_removed",
        0,
    ),
    "epochs-again": switch(
        "an epoch of ledger ids that was deleted is made again",
        "metadata 9",
        "I1",
        _epochs_again,
        f"{_LOST}:test_an_epoch_that_was_deleted_gives_no_id_twice",
        0,
    ),
    "skips-to-former-epochs": switch(
        "ids are skipped to the epoch after them, though later ones have begun",
        "metadata 9",
        "I1",
        _skips_to_former_epochs,
        f"{_LOST}:test_ids_are_skipped_without_an_epoch_that_others_may_have_used",
        0,
    ),
    "dead-votes-win": switch(
        "a vote wins although it is gone by then",
        "metadata 12",
        "L3",
        _dead_votes_win,
        f"{_LOST}:test_nobody_is_elected_by_a_vote_that_is_gone",
        0,
    ),
    "gaps-end-batches": switch(
        "behind a deleted ledger no batch of a stream is looked for",
        "log",
        "G1",
        _gaps_end_batches,
        f"{_BATCHES}:test_a_batch_is_taken_once_although_a_ledger_after_it_was_deleted",
        0,
    ),
    "records-of-before": switch(
        "the record of a log is replaced by one that was read before the metadata was lost",
        "log",
        "G3",
        records_of_before,
        "tests.bkclient.log.test_log:TestLeading."
        "test_who_lives_through_the_loss_of_the_metadata_does_not_list_over_the_next_writer",
        0,
    ),
    "closed-is-settled": switch(
        "a log whose last ledger is closed has no writer to be fenced",
        "log",
        "G6",
        _closed_is_settled,
        f"{_BATCHES}:test_a_writer_is_fenced_although_the_ledger_it_has_just_begun_is_closed",
        0,
    ),
}
"""By name; part of ``mutations.MUTATIONS``."""
