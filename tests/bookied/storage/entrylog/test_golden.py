from __future__ import annotations

from typing import Any

import pytest

from bookied.errors import LedgersMapError
from bookied.storage.entrylog import format as layout
from bookied.storage.entrylog.log_list import list_logs, next_log_id
from bookied.storage.entrylog.reader import EntryLogReader
from bookied.storage.entrylog.scan import open_scan, read_ledgers_map
from bookied.storage.files.files import RealFiles
from tests.bookied.worlds import golden

SETS = ["interleaved/crash", *golden.WITH_LEDGERS]
LOGS = [
    pytest.param(f"{name}/ledgers/current/{file}", wanted, id=f"{name}/{file}")
    for name in SETS
    for file, wanted in golden.expected(name)["entryLogs"].items()
]


@pytest.mark.parametrize(("path", "wanted"), LOGS)
def test_a_java_log_decodes_entry_by_entry(path: str, wanted: dict[str, Any]) -> None:
    scan = open_scan(RealFiles(), golden.DIRECTORY / path)
    found = [
        {
            "recordOffset": (record.location & 0xFFFFFFFF) - 4,
            "location": record.location,
            "ledgerId": record.ledger_id,
            "entryId": record.entry_id,
            "storedLen": len(record.body),
            "storedSha256": golden.sha256(record.body),
        }
        for record in scan
    ]
    assert found == wanted.get("entries", [])
    assert scan.size == wanted["size"]
    assert not scan.is_torn
    if wanted.get("empty"):
        assert scan.header is None
    else:
        assert scan.header == layout.LogHeader(
            wanted["headerVersion"], wanted["ledgersMapOffset"], wanted["ledgersCount"]
        )
    scan.close()


@pytest.mark.parametrize(("path", "wanted"), LOGS)
def test_the_ledgers_map_is_what_java_wrote(path: str, wanted: dict[str, Any]) -> None:
    full = golden.DIRECTORY / path
    if not wanted.get("ledgersMap"):
        with pytest.raises(LedgersMapError):
            read_ledgers_map(RealFiles(), full)
        return
    ledgers = read_ledgers_map(RealFiles(), full)
    assert ledgers == {int(ledger): size for ledger, size in wanted["ledgersMap"].items()}
    data = full.read_bytes()
    assert data[wanted["ledgersMapOffset"] :] == layout.encode_ledgers_map(ledgers)
    header = layout.LogHeader(1, wanted["ledgersMapOffset"], len(ledgers))
    assert data.startswith(header.encode())


@pytest.mark.parametrize("name", SETS)
def test_a_new_log_gets_an_id_behind_all_that_java_gave_out(name: str) -> None:
    directory = golden.DIRECTORY / name / "ledgers" / "current"
    last = int(golden.expected(name)["lastId"], 16)
    assert next_log_id(RealFiles(), [directory]) == last + 1
    assert sorted(list_logs(RealFiles(), [directory])) == list(range(last + 1))


@pytest.mark.parametrize("name", golden.WITH_LEDGERS)
def test_each_entry_is_read_at_its_location(name: str) -> None:
    directory = golden.DIRECTORY / name / "ledgers" / "current"
    reader = EntryLogReader(RealFiles(), [directory], open_logs_max=2)
    for ledger_id, ledger in golden.expected(name)["ledgers"].items():
        for entry in ledger["entries"]:
            packet = reader.read(entry["location"]["value"], int(ledger_id), entry["entryId"])
            assert golden.sha256(packet) == entry["storedSha256"]
    reader.close()


def test_a_log_written_with_direct_io_is_read() -> None:
    path, wanted = golden.DIRECTORY / "db/direct-io/0.log", golden.expected("db/direct-io")
    scan = open_scan(RealFiles(), path)
    assert scan.header == layout.LogHeader(1, wanted["ledgersMapOffset"], wanted["ledgersCount"])
    records = list(scan)
    found = [
        {
            "recordOffset": (record.location & 0xFFFFFFFF) - 4,
            "ledgerId": record.ledger_id,
            "entryId": record.entry_id,
            "storedLen": len(record.body),
            "storedSha256": golden.sha256(record.body),
        }
        for record in records
    ]
    assert found == wanted["entries"]
    assert not scan.is_torn
    scan.close()
    held = {int(one): size for one, size in wanted["ledgersMap"]["ledgers"].items()}
    assert read_ledgers_map(RealFiles(), path) == held
    reader = EntryLogReader(RealFiles(), [path.parent])
    for record in records:
        body = reader.read(record.location, record.ledger_id, record.entry_id)
        assert body == record.body
    reader.close()
    # There is no lastId: the id comes from the largest gap.
    assert next_log_id(RealFiles(), [path.parent]) == 1
