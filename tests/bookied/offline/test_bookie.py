"""A stopped bookie's directories as values: the golden ones, and those of a bookie of ours."""

from __future__ import annotations

from contextlib import closing
from pathlib import Path
from typing import Any

import pytest

from bookied.directories.roots import Directories
from bookied.errors import LastMarkError
from bookied.offline.bookie import OfflineBookie, RecordKind, journal_entry
from bookied.storage.entrylog.scan import open_scan
from bookied.storage.files.files import RealFiles
from bookied.storage.journal import reader as journal
from tests.bookied.offline.index_contents import index_entries, indexed_ledgers
from tests.bookied.worlds.golden import CRASHED, DIRECTORY, WITH_LEDGERS, expected, sha256
from wire.ids import LedgerId

KINDS = {
    "ENTRY": RecordKind.ENTRY,
    "LEDGER_KEY": RecordKind.LEDGER_KEY,
    "LEDGER_FENCE": RecordKind.FENCE,
    "FENCE": RecordKind.FENCE,
    "EXPLICIT_LAC": RecordKind.EXPLICIT_LAC,
}


def opened(name: str) -> OfflineBookie:
    root = DIRECTORY / name
    ledgers = (root / "ledgers",)
    return OfflineBookie(RealFiles(), Directories((root / "journal",), ledgers, ledgers))


def read_all(scan: Any) -> list[Any]:
    with closing(scan):
        return list(scan)


@pytest.mark.parametrize("name", WITH_LEDGERS)
def test_ledgers_and_their_entries_are_found_by_the_index(name: str) -> None:
    bookie, wanted = opened(name), expected(name)["ledgers"]
    found = {ledger.ledger_id: ledger for ledger in indexed_ledgers(bookie)}
    assert {str(ledger_id) for ledger_id in found} == set(wanted)
    for ledger_id, ledger in found.items():
        facts = wanted[str(ledger_id)]
        assert ledger.master_key.hex() == facts["masterKey"]
        assert ledger.is_fenced == facts["fenced"]
        entries = {one["entryId"]: one["location"]["value"] for one in facts["entries"]}
        assert index_entries(bookie, ledger_id) == entries
        assert ledger.last_entry == max(entries, default=-1)


@pytest.mark.parametrize("name", WITH_LEDGERS)
def test_every_indexed_entry_is_in_an_entry_log_byte_for_byte(name: str) -> None:
    bookie, wanted = opened(name), expected(name)["ledgers"]
    stored = {
        record.location: sha256(record.body)
        for path in bookie.entry_logs()
        for record in read_all(open_scan(bookie.files, path))
    }
    for facts in wanted.values():
        for one in facts["entries"]:
            assert stored[one["location"]["value"]] == one["storedSha256"]


@pytest.mark.parametrize("name", [*WITH_LEDGERS, *CRASHED])
def test_the_records_of_the_journals_are_given_in_order(name: str) -> None:
    bookie, wanted = opened(name), expected(name)["journals"]
    paths = list(bookie.journals())
    assert [path.name for path in paths] == sorted(wanted)
    for path in paths:
        scan = journal.open_scan(bookie.files, path)
        records = [journal_entry(path, record) for record in read_all(scan)]
        facts = wanted[path.name]["records"]
        assert [record.offset for record in records] == [one["offset"] for one in facts]
        for record, one in zip(records, facts, strict=True):
            assert record.kind is KINDS[one["type"]]
            assert record.ledger_id == one["ledgerId"]
            if record.kind is RecordKind.ENTRY:
                assert record.entry_id == one["entryId"]
                assert sha256(record.content) == one["storedSha256"]
            if record.kind is RecordKind.LEDGER_KEY:
                assert record.content.hex() == one["masterKey"]


@pytest.mark.parametrize("name", [*WITH_LEDGERS, *CRASHED])
def test_the_mark_is_given_with_its_file(name: str) -> None:
    (found,) = opened(name).marks()
    wanted = expected(name)["lastMark"]
    assert (found.mark.journal_id, found.mark.offset) == (wanted["logFileId"], wanted["offset"])
    assert (found.path.name, found.journal) == ("lastMark", 0)


def test_nothing_is_there_for_what_is_not_here() -> None:
    assert index_entries(opened("interleaved/clean"), LedgerId(999_999)) == {}


def test_marks_that_cannot_be_read_are_named(tmp_path: Path) -> None:
    (tmp_path / "current").mkdir()
    bookie = OfflineBookie(RealFiles(), Directories((tmp_path,), (tmp_path,), (tmp_path,)))
    assert list(bookie.marks()) == []
    (tmp_path / "current/lastMark").write_text("short")
    with pytest.raises(LastMarkError, match="current/lastMark"):
        list(bookie.marks())
