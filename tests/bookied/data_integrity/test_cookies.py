"""The cookies of a bookie that repairs itself, and what is forgotten once it has."""

from __future__ import annotations

from functools import partial
from pathlib import Path

from twisted.internet.task import Clock

from bookied.config.bookie import BookieConfig
from bookied.data_integrity.cookies import IntegrityCookies
from bookied.directories.bookie_id import Identity
from bookied.directories.emptied_directories import ContentKind, ContentsNotes, losses
from bookied.directories.highest_ledger import highest_ledger
from bookied.directories.last_journal_note import (
    ALL_LEDGERS,
    NAME,
    NO_LEDGER,
    LastJournalNote,
    note_journal,
)
from bookied.directories.roots import VERSION, directories, prepare
from bookied.storage.files.files import RealFiles
from bookied.storage.journal.format import header
from tests.bookied.worlds.fakes import config_for, done
from tests.support.memory_zookeeper import MemoryMetadata, MemoryZooKeeper
from wire.ids import BookieId

FILES = RealFiles()


def cookies_of(config: BookieConfig, store: MemoryMetadata) -> IntegrityCookies:
    return IntegrityCookies(
        config=config,
        identity=Identity("b1", "h", 1, (BookieId("b1"),)),
        found=directories(config),
        store=store,
        instance_id=done(store.instance_id()),
        files=FILES,
        highest_ledger=partial(highest_ledger, store),
    )


def test_what_was_lost_is_forgotten_with_the_new_cookies_and_nothing_else(tmp_path: Path) -> None:
    cluster = MemoryZooKeeper.initialized(Clock())
    store = cluster.metadata()
    done(store.connect())
    config = config_for(tmp_path, check_integrity=True, stamp_missing_cookies=True)
    found = directories(config)
    prepare(FILES, found)
    cookies = cookies_of(config, store)
    assert done(cookies.check()) is None
    journals, ledgers = found.journal_dirs[0], found.ledger_dirs[0]
    (journals / "5.txn").write_bytes(header(6))
    note_journal(FILES, journals.parent, LastJournalNote(5, ALL_LEDGERS))
    (ledgers / "lastMark").write_bytes(bytes(20))
    ContentsNotes(FILES, found).update()
    for path in (ledgers / VERSION, ledgers / "lastMark"):
        path.unlink()
    stale = done(cookies.check())
    assert stale is not None
    assert [loss.root for loss in losses(FILES, found)] == [ledgers.parent]
    done(cookies.stamp(stale.version))
    assert list(losses(FILES, found)) == []
    assert (journals.parent / NAME).exists()
    assert done(cookies.check()) is None


def test_lost_journals_take_no_word_of_what_else_is_in_their_root(tmp_path: Path) -> None:
    cluster = MemoryZooKeeper.initialized(Clock())
    store = cluster.metadata()
    done(store.connect())
    roots = (str(tmp_path / "all"),)
    config = config_for(
        tmp_path,
        check_integrity=True,
        stamp_missing_cookies=True,
        journal_directories=roots,
        ledger_directories=roots,
    )
    found = directories(config)
    prepare(FILES, found)
    cookies = cookies_of(config, store)
    assert done(cookies.check()) is None
    (root,) = found.roots
    (found.all_dirs[0] / "lastMark").write_bytes(bytes(20))
    ContentsNotes(FILES, found).update()
    note_journal(FILES, root, LastJournalNote(5, NO_LEDGER))
    (found.all_dirs[0] / VERSION).unlink()
    stale = done(cookies.check())
    assert stale is not None
    done(cookies.stamp(stale.version))
    assert list(losses(FILES, found)) == []
    (found.all_dirs[0] / "lastMark").unlink()
    assert [loss.held for loss in losses(FILES, found)] == [ContentKind.ENTRIES]
