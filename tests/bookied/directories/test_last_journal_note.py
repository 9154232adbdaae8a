"""Whether somebody else has served a bookie's directories, by what they look like afterwards."""

from __future__ import annotations

import errno
from pathlib import Path
from random import Random

import pytest

from bookied.directories.last_journal_note import (
    ALL_LEDGERS,
    NAME,
    NO_JOURNAL,
    NO_LEDGER,
    LastJournalNote,
    decode_note,
    encode_note,
    fences_in_doubt_to,
    note_doubt,
    note_journal,
)
from bookied.storage.journal import format as layout
from bookied.storage.journal import group_format
from tests.sim.world.disk import SimFiles

J0, J1 = Path("/j0"), Path("/j1")
KEPT = LastJournalNote(0x1F, NO_LEDGER)


@pytest.fixture
def files() -> SimFiles:
    files = SimFiles(Random(1))
    files.make_durable(*(root / "current" for root in (J0, J1)))
    return files


def begin(files: SimFiles, root: Path, journal_id: int) -> None:
    files.write_atomic(root / "current" / f"{journal_id:x}.txn", b"BKLG")


@pytest.mark.parametrize("in_doubt_to", [NO_LEDGER, 0, 0x2A, ALL_LEDGERS])
@pytest.mark.parametrize("journal_id", [NO_JOURNAL, 0x18C0FFEE])
def test_what_is_left_is_read_back(journal_id: int, in_doubt_to: int) -> None:
    served = LastJournalNote(journal_id, in_doubt_to)
    assert decode_note(encode_note(served)) == served


@pytest.mark.parametrize("data", [b"", b"journal 1f\n", b"journal x\nfences kept\n", b"\xff" * 30])
def test_what_is_none_of_ours_says_nothing(data: bytes) -> None:
    assert decode_note(data) is None


def test_a_new_bookie_has_lost_no_fence(files: SimFiles) -> None:
    assert fences_in_doubt_to(files, [J0, J1]) == NO_LEDGER


def test_our_own_journals_leave_no_doubt(files: SimFiles) -> None:
    for journal_id in (0x1E, 0x1F):
        begin(files, J0, journal_id)
    note_journal(files, J0, KEPT)
    assert fences_in_doubt_to(files, [J0, J1]) == NO_LEDGER


@pytest.mark.parametrize("data", [None, b"nonsense"])
def test_journals_without_word_of_ours_leave_doubt(files: SimFiles, data) -> None:
    begin(files, J1, 5)
    if data is not None:
        files.write_atomic(J1 / NAME, data)
    assert fences_in_doubt_to(files, [J0, J1]) == ALL_LEDGERS


def test_a_journal_that_somebody_else_began_leaves_doubt_for_good(files: SimFiles) -> None:
    note_journal(files, J0, KEPT)
    begin(files, J0, 0x20)
    assert fences_in_doubt_to(files, [J0, J1]) == ALL_LEDGERS
    note_journal(files, J0, LastJournalNote(0x21, ALL_LEDGERS))
    files.remove(J0 / "current/20.txn")
    begin(files, J0, 0x21)
    assert fences_in_doubt_to(files, [J0, J1]) == ALL_LEDGERS


def test_a_journal_of_ours_that_was_not_noted_leaves_no_doubt(files: SimFiles) -> None:
    note_journal(files, J0, KEPT)
    for journal_id, start in (
        (0x20, group_format.file_start(6, 77, 4096)),
        (0x21, layout.header(6)),
    ):
        files.write_atomic(J0 / "current" / f"{journal_id:x}.txn", start)
        in_doubt_to = ALL_LEDGERS if journal_id == 0x21 else NO_LEDGER
        assert fences_in_doubt_to(files, [J0]) == in_doubt_to


def test_what_is_noted_survives_a_power_cut(files: SimFiles) -> None:
    note_journal(files, J0, KEPT)
    files.crash()
    assert decode_note(files.read(J0 / NAME)) == KEPT


def test_a_note_without_room_leaves_doubt_and_nothing_worse(files: SimFiles) -> None:
    begin(files, J0, 0x1F)
    files.fault = lambda *_: OSError(errno.ENOSPC, "full")
    note_journal(files, J0, KEPT)
    assert fences_in_doubt_to(files, [J0]) == ALL_LEDGERS


def test_who_begins_anew_doubts_the_fences_of_all_ledgers_that_there_are(files: SimFiles) -> None:
    note_doubt(files, [J0, J1], 0x2A)
    files.crash()
    assert fences_in_doubt_to(files, [J0]) == fences_in_doubt_to(files, [J1]) == 0x2A
    files.write_atomic(J0 / "current/20.txn", group_format.file_start(6, 77, 4096))
    assert fences_in_doubt_to(files, [J0, J1]) == 0x2A
    note_journal(files, J0, LastJournalNote(0x20, 0x2A))
    note_doubt(files, [J0, J1], 7)
    assert decode_note(files.read(J0 / NAME)) == LastJournalNote(0x20, 0x2A)
    begin(files, J1, 0x20)
    assert fences_in_doubt_to(files, [J0, J1]) == ALL_LEDGERS


def test_doubt_that_cannot_be_put_down_stops_the_start(files: SimFiles) -> None:
    files.fault = lambda *_: OSError(errno.ENOSPC, "full")
    with pytest.raises(OSError, match="full"):
        note_doubt(files, [J0], 7)
