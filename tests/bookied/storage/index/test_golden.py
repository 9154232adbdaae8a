from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from bookied.storage.files.files import RealFiles
from bookied.storage.index import file_names
from bookied.storage.index import format as layout
from bookied.storage.index.index_files.index import IndexFiles
from bookied.storage.index.index_files.reads import read_index
from tests.bookied.worlds import golden

INDEXES = [
    pytest.param(name, int(ledger_id), wanted, id=f"{name}/{ledger_id}")
    for name in golden.WITH_LEDGERS
    for ledger_id, wanted in golden.expected(name)["ledgers"].items()
]


def current(name: str) -> Path:
    return golden.DIRECTORY / name / "ledgers" / "current"


@pytest.mark.parametrize(("name", "ledger_id", "wanted"), INDEXES)
def test_a_java_index_file_decodes(name: str, ledger_id: int, wanted: dict[str, Any]) -> None:
    assert file_names.relative_path(ledger_id) == Path(wanted["indexFile"])
    path = current(name) / wanted["indexFile"]
    file = RealFiles().open_read(path)
    stored = read_index(file, path)
    lac = wanted["explicitLac"]
    assert stored.header == layout.IndexHeader(
        master_key=bytes.fromhex(wanted["masterKey"]),
        state_bits=wanted["stateBits"],
        explicit_lac=bytes.fromhex(lac["hex"]) if lac else None,
        version=wanted["indexHeaderVersion"],
    )
    assert stored.header.is_fenced == wanted["fenced"]
    assert stored.last_entry == max(entry["entryId"] for entry in wanted["entries"])
    assert stored.pages == 1
    file.close()


@pytest.mark.parametrize(("name", "ledger_id", "wanted"), INDEXES)
def test_each_location_is_found(name: str, ledger_id: int, wanted: dict[str, Any]) -> None:
    index = IndexFiles(RealFiles(), [current(name)])
    index.open()
    locations = {entry["entryId"]: entry["location"]["value"] for entry in wanted["entries"]}
    for entry_id in range(len(locations) + 3):
        assert index.location(ledger_id, entry_id) == locations.get(entry_id, 0)
    ((page_no, page),) = index.pages(ledger_id)
    assert page_no == 0
    assert {slot: at for slot, at in enumerate(page) if at} == locations
    index.close()


@pytest.mark.parametrize(("name", "ledger_id", "wanted"), INDEXES)
def test_our_bytes_are_the_bytes_java_wrote(
    name: str, ledger_id: int, wanted: dict[str, Any]
) -> None:
    data = (current(name) / file_names.relative_path(ledger_id)).read_bytes()
    header = layout.decode_header(data, Path())
    page = layout.decode_page(data[layout.HEADER_BYTES :])
    assert header.encode() + layout.encode_page(page.tobytes()) == data
    assert wanted["entries"]


@pytest.mark.parametrize("name", golden.WITH_LEDGERS)
def test_all_ledgers_of_a_java_bookie_are_listed(name: str) -> None:
    index = IndexFiles(RealFiles(), [current(name)])
    index.open()
    assert sorted(index.ledger_ids()) == sorted(map(int, golden.expected(name)["ledgers"]))
    index.close()


def test_several_index_directories_are_one_index(tmp_path: Path) -> None:
    directories = [tmp_path, golden.DIRECTORY / "sorted/multi-dirs" / "i1" / "current"]
    index = IndexFiles(RealFiles(), directories)
    index.open()
    wanted = golden.expected("sorted/multi-dirs")["ledgersByJournal"].values()
    assert sorted(index.ledger_ids()) == sorted(ledger for ledgers in wanted for ledger in ledgers)
    index.close()
