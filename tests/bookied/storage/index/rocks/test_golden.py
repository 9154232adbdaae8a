"""The databases that Java's DbLedgerStorage wrote."""

from __future__ import annotations

import shutil
from array import array
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from bookied.config.db import RocksSettings
from bookied.errors import DatabaseInUseError, DbRecordError
from bookied.storage.index.format import FENCED, PAGE_SLOTS, IndexHeader, decode_native
from bookied.storage.index.ledger_pages import LedgerChange
from bookied.storage.index.rocks import format as layout
from bookied.storage.index.rocks.database import (
    ledgers_options,
    locations_options,
    open_database,
    open_read_only,
)
from bookied.storage.index.rocks.index import RocksIndex
from tests.bookied.worlds import golden

SETS = ["db/clean", "db/crash"]
SETTINGS = RocksSettings(write_buffer_bytes=1 << 20, block_cache_bytes=1 << 20)
END = b"\xff" * 20


def current(name: str) -> Path:
    return golden.DIRECTORY / name / "ledgers" / "current"


def rows(name: str, database: str) -> list[tuple[bytes, bytes]]:
    found = golden.expected(name)["rocksdb"][database]
    return [(bytes.fromhex(row["key"]), bytes.fromhex(row["value"])) for row in found]


def listing(directory: Path) -> list[tuple[str, int]]:
    return sorted((str(path), path.stat().st_mtime_ns) for path in directory.rglob("*"))


@pytest.mark.parametrize("name", SETS)
@pytest.mark.parametrize("database", ["ledgers", "locations"])
def test_java_databases_are_read_as_they_are_and_left_so(name: str, database: str) -> None:
    before = listing(current(name))
    store = open_read_only(current(name) / database)
    assert store.items(b"", END, 1000) == rows(name, database)
    store.close()
    assert listing(current(name)) == before


@pytest.mark.parametrize("name", SETS)
def test_java_ledgers_and_locations_decode(name: str) -> None:
    index = RocksIndex(current(name), open_read_only)
    index.open()
    ledgers: dict[str, Any] = golden.expected(name)["ledgers"]
    assert sorted(index.ledger_ids()) == sorted(map(int, ledgers))
    for ledger_id, wanted in ledgers.items():
        stored = index.load(int(ledger_id))
        assert stored is not None
        lac = wanted["explicitLac"]
        assert stored.header.master_key.hex() == wanted["masterKey"]
        assert stored.header.is_fenced == wanted["fenced"]
        assert stored.header.explicit_lac == (bytes.fromhex(lac["hex"]) if lac else None)
        assert not stored.header.limbo
        places = {entry["entryId"]: entry["location"]["value"] for entry in wanted["entries"]}
        assert stored.last_entry == max(places)
        ((page_no, page),) = index.pages(int(ledger_id))
        assert page_no == 0
        assert {slot: at for slot, at in enumerate(page) if at} == places
        assert [index.location(int(ledger_id), entry) for entry in places] == [*places.values()]
    assert index.flags() == 0
    index.close()


@pytest.mark.parametrize("name", SETS)
def test_our_values_are_the_bytes_java_wrote(name: str) -> None:
    for key, value in rows(name, "ledgers"):
        header = layout.decode_ledger(value, key, Path())
        assert header is not None
        assert layout.encode_ledger(header) == value
        assert layout.ledger_key(layout.decode_ledger_key(key, Path())) == key
    for key, value in rows(name, "locations"):
        assert layout.location_key(*layout.decode_location_key(key, Path())) == key
        assert layout.encode_location(layout.decode_number(value, key, Path())) == value


def test_a_rebuilt_index_is_read_and_gets_newer_keys(tmp_path: Path) -> None:
    name = "db/rebuilt-ledgers-index"
    shutil.copytree(golden.DIRECTORY / name / "ledgers", tmp_path / "ledgers")
    index = writable(tmp_path)
    assert sorted(index.ledger_ids()) == [0, 1, 2, 3, 4, 511, 123456789012]
    stored = index.load(511)
    assert stored is not None
    assert (stored.header.master_key, stored.header.is_fenced) == (b"", True)
    index.write([LedgerChange(511, IndexHeader(b"key"), ())])
    index.hide(4)
    index.remove_hidden()
    index.close()
    store = open_read_only(tmp_path / "ledgers")
    found = dict(store.items(b"", END, 100))
    store.close()
    rebuilt = [key for key, _ in rows(name, "ledgers")]
    kept = [key for key in rebuilt if layout.decode_ledger_key(key, Path()) not in (4, 511)]
    assert sorted(found) == sorted([*kept, layout.ledger_key(511)])
    index = writable(tmp_path)
    again = index.load(511)
    assert again is not None
    assert again.header.master_key == b"key"
    index.close()


def test_a_key_that_a_rebuild_left_beside_a_newer_one_goes(tmp_path: Path) -> None:
    store = open_database(tmp_path / "ledgers", partial(ledgers_options, SETTINGS))
    old = layout.encode_ledger(IndexHeader(b"", FENCED))
    new = layout.encode_ledger(IndexHeader(b"key"))
    store.put([(layout.long_ledger_key(7), old), (layout.ledger_key(7), new)])
    store.close()
    index = writable(tmp_path)
    stored = index.load(7)
    assert stored is not None
    assert (stored.header.master_key, stored.header.is_fenced) == (b"key", False)
    index.remove_hidden()
    index.close()
    store = open_read_only(tmp_path / "ledgers")
    assert store.items(b"", END, 9) == [(layout.ledger_key(7), new)]
    store.close()


def writable(directory: Path) -> RocksIndex:
    """Open databases as the bookie does."""

    def opened(path: Path) -> Any:
        options = locations_options if path.name == layout.LOCATIONS else ledgers_options
        return open_database(path, partial(options, SETTINGS))

    index = RocksIndex(directory, opened)
    index.open()
    return index


def test_a_database_of_a_killed_process_is_read_with_all_that_was_synced(tmp_path: Path) -> None:
    index = writable(tmp_path / "live")
    page = decode_native(bytes(8192))
    page[3] = 5000
    header = IndexHeader(b"key", limbo=True)
    index.write([LedgerChange(1, header, ((0, page.tobytes()),))])
    index.set_flags(layout.NEEDS_INTEGRITY_CHECK)
    shutil.copytree(tmp_path / "live", tmp_path / "killed")
    index.close()
    for opened in (open_read_only, None):
        found = RocksIndex(tmp_path / "killed", opened) if opened else writable(tmp_path / "killed")
        if opened:
            found.open()
        stored = found.load(1)
        assert stored is not None
        assert (stored.header, found.location(1, 3)) == (header, 5000)
        assert found.flags() == layout.NEEDS_INTEGRITY_CHECK
        assert found.ledger_ids() == [1]
        found.close()


def test_two_cannot_have_a_database_open_to_write(tmp_path: Path) -> None:
    index = writable(tmp_path)
    with pytest.raises(DatabaseInUseError, match="open in another process"):
        writable(tmp_path)
    index.close()


def test_there_is_nothing_to_read_where_there_is_no_database(tmp_path: Path) -> None:
    with pytest.raises(FileNotFoundError):
        open_read_only(tmp_path / "ledgers")
    assert listing(tmp_path) == []


@pytest.mark.parametrize(
    ("key", "value", "words"),
    [
        (b"\0" * 7, "080110001a00", "key 00000000000000; expected a ledger id"),
        (b"\0" * 15 + b"\1", "080110001a00", "expected a ledger id"),
        (b"\0" * 8, "0801", "lacks"),
        (b"\0" * 8, "ff", "no DbLedgerFormat"),
        (b"\0" * 8, "080110001a002203010203", "explicit LAC of 3 bytes"),
        (layout.FLAGS_KEY, "01", "1 bytes at key ffffffffffff1103; expected 8"),
    ],
)
def test_damage_keeps_a_bookie_from_starting_and_is_reported_offline(
    tmp_path: Path, key: bytes, value: str, words: str
) -> None:
    store = open_database(tmp_path / "ledgers", partial(ledgers_options, SETTINGS))
    good = layout.encode_ledger(IndexHeader(b"key"))
    store.put([(key, bytes.fromhex(value)), (layout.ledger_key(9), good)])
    store.close()
    with pytest.raises(DbRecordError, match=words) as caught:
        writable(tmp_path)
    assert caught.value.path == tmp_path / "ledgers"
    if key != layout.FLAGS_KEY:
        open_database(tmp_path / "locations", partial(locations_options, SETTINGS)).close()
        damaged: list[DbRecordError] = []
        index = RocksIndex(tmp_path, open_read_only, damaged=damaged.append)
        index.open()
        assert index.ledger_ids() == [9]
        assert len(damaged) == 1
        index.close()


def test_a_ledger_that_says_it_does_not_exist_does_not(tmp_path: Path) -> None:
    store = open_database(tmp_path / "ledgers", partial(ledgers_options, SETTINGS))
    store.put([(layout.ledger_key(1), bytes.fromhex("080010001a00"))])
    store.close()
    index = writable(tmp_path)
    assert index.ledger_ids() == []
    index.close()


@pytest.mark.parametrize("is_noted", [False, True])
def test_ledgers_with_only_locations_are_listed_again_bit_by_bit(
    tmp_path: Path, *, is_noted: bool
) -> None:
    """At once where no bookied was before: a client may ask for one of them next."""
    index = writable(tmp_path)
    page = decode_native(bytes(8192))
    page[3] = 5000
    all_of_them = range(0, 2000, 2)
    index.write(
        [LedgerChange(one, IndexHeader(b""), ((0, page.tobytes()),)) for one in all_of_them]
    )
    if is_noted:
        index.note_synced()
    index.close()
    store = open_database(tmp_path / "ledgers", partial(ledgers_options, SETTINGS))
    store.delete(layout.ledger_key(one) for one in all_of_them if one % 3 == 0)
    store.close()
    index = writable(tmp_path)
    before = index.ledger_ids()
    assert index.remove_hidden() is not is_noted
    now = len(index.ledger_ids())
    assert len(before) < now < len(all_of_them) if is_noted else now == len(all_of_them)
    while not index.remove_hidden():
        pass
    assert index.ledger_ids() == list(all_of_them)
    limbo = {one for one, stored in index.load_many(all_of_them) if stored.header.limbo}
    assert limbo == {*all_of_them[::3]}
    index.close()


def test_ledgers_that_replay_or_garbage_collection_knows_do_not_wait_for_the_search(
    tmp_path: Path,
) -> None:
    index = writable(tmp_path)
    page = decode_native(bytes(8192))
    page[3] = 5000
    all_of_them = range(1000)
    index.write(
        [LedgerChange(one, IndexHeader(b""), ((0, page.tobytes()),)) for one in all_of_them]
    )
    index.note_synced()
    index.close()
    store = open_database(tmp_path / "ledgers", partial(ledgers_options, SETTINGS))
    store.delete(map(layout.ledger_key, range(990, 1000)))
    store.close()
    index = writable(tmp_path)
    index.hide(995)
    found: dict[int, int] = {}
    assert not index.remove_hidden({5: None, 999: None, 2000: None}, found)
    assert found == {999: 3}, "the next checkpoint stores the ledger, and no search finds it then"
    while not index.remove_hidden({999: None}):
        pass
    assert {*all_of_them} - {*index.ledger_ids()} == {995, 999}, "995 was deleted"
    index.close()


def test_damaged_locations_end_no_checkpoint_and_no_search(tmp_path: Path) -> None:
    index = writable(tmp_path)
    page = array("q", range(5000, 5000 + PAGE_SLOTS)).tobytes()
    for ledger_id in range(200):
        index.write([LedgerChange(ledger_id, IndexHeader(b""), ((0, page),))])
    index.close()
    store = open_database(tmp_path / "ledgers", partial(ledgers_options, SETTINGS))
    store.delete([layout.ledger_key(199)])
    store.close()
    index = writable(tmp_path)
    index.compact_locations()
    index.close()
    table = max((tmp_path / "locations").glob("*.sst"), key=lambda path: path.stat().st_size)
    with table.open("r+b") as file:
        file.seek(table.stat().st_size // 2)
        file.write(b"damage" * 10)
    index = writable(tmp_path)
    with pytest.raises(DbRecordError):
        index.locations([(ledger_id, 5) for ledger_id in range(200)])
    while not index.remove_hidden():
        pass
    assert index.ledger_ids() == list(range(200))
    index.close()
