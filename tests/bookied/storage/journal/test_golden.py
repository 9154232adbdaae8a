from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest

from bookied.errors import JournalFormatError, JournalMissingError, JournalRecordError
from bookied.storage.files.files import RealFiles
from bookied.storage.journal import format as layout
from bookied.storage.journal.mark import LastMark, decode_mark, read_mark
from bookied.storage.journal.reader import JournalRecord, journal_ids, open_scan
from tests.bookied.worlds import golden

SETS = [*golden.CRASHED, *golden.WITH_LEDGERS]
JOURNALS = [
    *(
        pytest.param(f"{name}/journal/current/{file}", wanted, id=f"{name}/{file}")
        for name in SETS
        for file, wanted in golden.expected(name)["journals"].items()
    ),
    *(
        pytest.param(f"sorted/multi-dirs/{file.replace('/', '/current/')}", wanted, id=file)
        for file, wanted in golden.expected("sorted/multi-dirs")["journals"].items()
    ),
]
META = {-0x1000: "LEDGER_KEY", -0x2000: "FENCE", -0x8000: "EXPLICIT_LAC"}


def describe(record: JournalRecord) -> dict[str, Any]:
    """Return a record as the golden sets do."""
    kind = META.get(record.entry_id, "ENTRY")
    common = {
        "offset": record.offset,
        "length": len(record.body),
        "ledgerId": record.ledger_id,
        "entryId": record.entry_id,
        "type": kind,
    }
    if kind == "LEDGER_KEY":
        common["masterKey"] = layout.inner_bytes(record.body).hex()
    elif kind == "EXPLICIT_LAC":
        common["explicitLac"] = layout.inner_bytes(record.body).hex()
    elif kind == "ENTRY":
        common["storedSha256"] = golden.sha256(record.body)
        common["lac"] = int.from_bytes(record.body[16:24], "big", signed=True)
    return common


def wanted_of(record: dict[str, Any]) -> dict[str, Any]:
    wanted = {key: value for key, value in record.items() if not key.startswith("payload")}
    if "explicitLac" in wanted:
        wanted["explicitLac"] = wanted["explicitLac"]["hex"]
    return wanted


@pytest.mark.parametrize(("path", "wanted"), JOURNALS)
def test_a_java_journal_decodes_record_by_record(path: str, wanted: dict[str, Any]) -> None:
    scan = open_scan(RealFiles(), golden.DIRECTORY / path)
    records = list(scan)
    assert scan.version == wanted["formatVersion"]
    assert [describe(record) for record in records] == list(map(wanted_of, wanted["records"]))
    assert scan.end == wanted["endOfRecords"]
    assert not scan.is_torn
    assert scan.residue() is None
    scan.close()


@pytest.mark.parametrize(("path", "wanted"), JOURNALS)
def test_our_records_are_the_bytes_java_wrote(path: str, wanted: dict[str, Any]) -> None:
    data = (golden.DIRECTORY / path).read_bytes()
    assert data.startswith(layout.header(wanted["formatVersion"]))
    scan = open_scan(RealFiles(), golden.DIRECTORY / path)
    for record in scan:
        assert data[record.offset :].startswith(encode_again(record))
    scan.close()


def encode_again(record: JournalRecord) -> bytes:
    if record.entry_id == layout.LEDGER_KEY:
        return layout.ledger_key_record(record.ledger_id, layout.inner_bytes(record.body))
    if record.entry_id == layout.FENCE:
        return layout.fence_record(record.ledger_id)
    if record.entry_id == layout.EXPLICIT_LAC:
        return layout.explicit_lac_record(record.ledger_id, layout.inner_bytes(record.body))
    return layout.entry_record(record.body)


@pytest.mark.parametrize(("path", "wanted"), JOURNALS)
def test_our_padding_is_the_bytes_java_wrote(path: str, wanted: dict[str, Any]) -> None:
    data = (golden.DIRECTORY / path).read_bytes()
    scan = open_scan(RealFiles(), golden.DIRECTORY / path)
    ends = [record.offset + 4 + len(record.body) for record in scan]
    scan.close()
    padded = [end for end in ends if data[end : end + 4] == b"\xff\xff\xff\x00"]
    assert len(padded) == wanted["paddingRecords"]
    for end in padded:
        assert data[end:].startswith(layout.padding(end, 512))


@pytest.mark.parametrize("name", [*golden.WITH_LEDGERS, *golden.CRASHED])
def test_the_mark_of_a_java_bookie_is_read(name: str) -> None:
    path = golden.DIRECTORY / name / "ledgers" / "current" / "lastMark"
    wanted = golden.expected(name)["lastMark"]
    assert decode_mark(path.read_bytes(), path) == (wanted["logFileId"], wanted["offset"])


def test_the_highest_mark_of_several_directories_counts() -> None:
    base = golden.DIRECTORY / "sorted/multi-dirs"
    directories = [base / "l0" / "current", base / "l1" / "current"]
    wanted = golden.expected("sorted/multi-dirs")["lastMarks"]
    for number in range(2):
        name = f"lastMark.{number}"
        highest = max(
            LastMark(
                wanted[f"{directory}/{name}"]["logFileId"], wanted[f"{directory}/{name}"]["offset"]
            )
            for directory in ("l0", "l1")
        )
        assert read_mark(RealFiles(), directories, name) == highest


# Hand-made journals, with our outcome for each: storage.md section 3.6, the column "bookied".
# What comes after END may be "torn", the type of the error, or nothing.
OURS = {
    "103": "v6@512[37]1:0 END=553 torn",
    "104": "v6@512[37]1:0 END=553 torn",
    "105": "v6@512[37]1:0 JournalRecordError@553",
    "106": "v6@512[37]1:0 JournalRecordError@553",
    "107": "v4@8[37]1:0 JournalRecordError@49",
    "108": "v6@512[37]1:0 END=553 torn",
    "109": "v6@512[37]1:0 JournalRecordError@553",
    "10a": "JournalFormatError@4",
    "10b": "JournalFormatError@4",
    "111": "END=512",
    "113": "JournalFormatError@0",
    "114": "v6@512[37]1:0 END=553",
    "115": "v6@512[37]1:0 END=553 torn",
}
SYNTHETIC = golden.DIRECTORY / "journal-synthetic"


def outcome(path: Path) -> str:
    words = []
    try:
        scan = open_scan(RealFiles(), path)
        try:
            for record in scan:
                place = f"v{scan.version}@{record.offset}[{len(record.body)}]"
                words.append(f"{place}{record.ledger_id}:{record.entry_id}")
            words.append(f"END={scan.end}")
            words += ["torn"] if scan.is_torn else []
        finally:
            scan.close()
    except (JournalRecordError, JournalFormatError) as error:
        words.append(f"{type(error).__name__}@{error.offset}")
    return " ".join(words)


@pytest.mark.parametrize("number", journal_ids(RealFiles(), SYNTHETIC))
def test_a_hand_made_journal_ends_as_the_table_says(number: int) -> None:
    java = golden.expected("journal-synthetic")["files"][f"{number:x}.txn"]["javaScan"]
    assert outcome(SYNTHETIC / f"{number:x}.txn") == OURS.get(f"{number:x}", java)


def test_where_java_reads_records_we_read_the_same_ones() -> None:
    for number in journal_ids(RealFiles(), SYNTHETIC):
        java = golden.expected("journal-synthetic")["files"][f"{number:x}.txn"]["javaScan"]
        ours = outcome(SYNTHETIC / f"{number:x}.txn")
        records = re.findall(r"v\d@\d+\[\d+\]\d+:-?\d+", ours)
        assert java.startswith(" ".join(records))


def test_what_lies_behind_a_gap_of_zeros_is_reported() -> None:
    scan = open_scan(RealFiles(), SYNTHETIC / "114.txn")
    list(scan)
    assert scan.residue() == 0x614
    scan.close()


def test_a_journal_that_is_not_there_is_not_created(tmp_path: Path) -> None:
    with pytest.raises(JournalMissingError):
        open_scan(RealFiles(), tmp_path / "5.txn")
    assert list(tmp_path.iterdir()) == []
