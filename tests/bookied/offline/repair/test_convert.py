"""From index files to databases and back: nothing is lost on the way, whatever happens."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from pathlib import Path
from random import Random

import attrs
import pytest

from bookied.directories.roots import CONVERTING, Directories, prepare
from bookied.errors import DirectoryError, IndexFormatError, IndexFullError, IndexTruncatedError
from bookied.offline.repair.convert import Conversion, StagedIndex
from bookied.offline.repair.convert_logs import ConversionRefusedError
from bookied.storage.entrylog.format import location
from bookied.storage.entrylog.reader import EntryLogReader
from bookied.storage.files.files import Files
from bookied.storage.index.format import FENCED, IndexHeader
from bookied.storage.index.index_files.index import IndexFiles
from bookied.storage.index.ledger_pages import LedgerChange
from bookied.storage.index.rocks.format import ledger_key
from bookied.storage.index.rocks.index import RocksIndex
from bookied.storage.index.store import IndexStore
from tests.bookied.offline.repair.test_rebuild_index import KEY, index, lac_packet, log, packet
from tests.bookied.worlds.golden_disk import ledgers_of, load_golden, locations
from tests.bookied.worlds.old_layouts import each_crash, put_files
from tests.sim.world.disk import SimFiles
from tests.sim.world.key_values import SimKeyValues

ONE = Directories((Path("/j"),), (Path("/l0"),), (Path("/l0"),))
TWO = Directories((Path("/j"),), (Path("/l0"), Path("/l1")), (Path("/l0"), Path("/l1")))


def conversion(files: Files, found: Directories = ONE, stamp: str = "s1") -> Conversion:
    return Conversion(files, found, partial(SimKeyValues, files), stamp)


def has_databases(files: Files) -> bool:
    return StagedIndex(files, ONE, partial(SimKeyValues, files), "s1", print).has_databases()


def disk(found: Directories, changes: dict[str, bytes], files: SimFiles | None = None) -> SimFiles:
    files = files or SimFiles(Random(1))
    files.make_durable(*found.all_dirs)
    put_files(files, changes)
    return files


@attrs.frozen
class Seen:
    """What an index has of one ledger."""

    header: IndexHeader
    places: dict[int, int]


def contents(store: IndexStore) -> dict[int, Seen]:
    store.open()
    try:
        found = {}
        for ledger_id in store.ledger_ids():
            stored = store.load(ledger_id)
            assert stored is not None
            places = {
                page_no * 1024 + slot: place
                for page_no, page in store.pages(ledger_id)
                for slot, place in enumerate(page)
                if place
            }
            found[ledger_id] = Seen(stored.header, places)
        return found
    finally:
        store.close()


def in_files(files: Files, found: Directories = ONE) -> dict[int, Seen]:
    return contents(IndexFiles(files, found.index_dirs))


def in_db(files: Files, found: Directories = ONE) -> dict[int, Seen]:
    seen: dict[int, Seen] = {}
    for number, directory in enumerate(found.index_dirs):
        mine = contents(RocksIndex(directory, partial(SimKeyValues, files)))
        assert all(ledger_id % len(found.index_dirs) == number for ledger_id in mine)
        seen |= mine
    return seen


@pytest.mark.parametrize("name", ["interleaved/clean", "interleaved/rotated", "sorted/clean"])
def test_what_java_stored_goes_there_and_back_unchanged(name: str) -> None:
    files = SimFiles(Random(1))
    found = load_golden(files, name)
    before = in_files(files, found)
    work = conversion(files, found)
    assert "remove the index files" in work.plan("db")
    done = work.to_db()
    said = ledgers_of(name)
    assert (done.ledgers, done.entries) == (
        len(said),
        sum(len(one["entries"]) for one in said.values()),
    )
    assert in_db(files, found) == before
    assert not [path for path in files.contents() if path.endswith(".idx")]
    assert work.plan("db") == []
    assert conversion(files, found).to_interleaved().ledgers == len(said)
    after = in_files(files, found)
    assert after == before
    for ledger_id, one in said.items():
        assert after[ledger_id].places == locations(one)
        lac = one["explicitLac"]
        assert (after[ledger_id].header.explicit_lac or b"").hex() == (lac["hex"] if lac else "")
    assert sorted(name for name in files.list(found.index_dirs[0]) if "backup" in name) == [
        "ledgers.backup",
        "locations.backup",
    ]


def small(files: SimFiles) -> SimFiles:
    return disk(
        ONE,
        {
            "/l0/current/0.log": log(packet(7, 0), packet(8, 1)),
            "/l0/current/0/7/7.idx": index(
                places=(location(0, 1028),), state_bits=FENCED, explicit_lac=lac_packet(7, 5)
            ),
            "/l0/current/0/8/8.idx": index(places=(0, location(0, 1071))),
            "/l0/current/lastId": b"0\n",
        },
        files,
    )


def as_db(files: SimFiles) -> SimFiles:
    conversion(small(files)).to_db()
    for directory in ("/", "/l0", "/l0/current"):
        files.sync_dir(Path(directory))
    return files


def test_a_ledger_whose_row_is_lost_is_not_left_behind() -> None:
    """It has locations alone; without them garbage collection would remove its entries."""
    files = small(SimFiles(Random(1)))
    conversion(files).to_db()
    rows = SimKeyValues(files, Path("/l0/current/ledgers"))
    rows.delete([ledger_key(8)])
    rows.sync()
    rows.close()
    with pytest.raises(ConversionRefusedError, match="ledger 8 may have lost entries"):
        conversion(files).to_interleaved()


@pytest.mark.parametrize("to", ["db", "interleaved"])
def test_a_crash_anywhere_leaves_the_old_index_or_one_that_another_run_finishes(to: str) -> None:
    make: Callable[[SimFiles], SimFiles] = small if to == "db" else as_db
    before = in_files(small(SimFiles(Random(0))))
    crashes = resumed = 0
    for files, through in each_crash(make, partial(_convert, to), seeds=2):
        crashes += not through
        if files.exists(ONE.roots[0] / CONVERTING):
            resumed += 1
            with pytest.raises(DirectoryError, match="disk convert"):
                prepare(files, ONE)
        elif not through:
            work = conversion(files)
            is_done = not work.plan(to)
            whole = in_db if is_done == (to == "db") else in_files
            assert whole(files) == before
        _convert(to, files)
        assert (in_db if to == "db" else in_files)(files) == before
        assert not files.exists(ONE.roots[0] / CONVERTING)
        left = [path for path in files.contents() if "converting" in path.lower()]
        assert left == []
        prepare(files, ONE)
    assert crashes > 30
    assert resumed > 3


def _convert(to: str, files: Files) -> None:
    work = conversion(files)
    if to == "db":
        work.to_db()
    else:
        work.to_interleaved()


@pytest.mark.parametrize("to", ["db", "interleaved"])
def test_without_room_the_old_index_stays_alone(to: str) -> None:
    files = SimFiles(Random(1))
    (small if to == "db" else as_db)(files)
    before = files.contents()
    files.bytes_max = sum(map(len, before.values())) + 300
    with pytest.raises((OSError, IndexFullError), match=r"(?i)no (space|room)"):
        _convert(to, files)
    assert set(files.contents()) == set(before)
    files.bytes_max = None
    _convert(to, files)


class TestSeveralDirectories:
    """Index files share one space of log ids; each pair of databases has its own."""

    def make(self, files: SimFiles) -> SimFiles:
        return disk(
            TWO,
            {
                "/l0/current/0.log": log(packet(7, 0), packet(8, 0)),
                "/l1/current/1.log": log(packet(7, 1), packet(8, 1)),
                "/l1/current/0/7/7.idx": index(places=(location(0, 1028), location(1, 1028))),
                "/l0/current/0/8/8.idx": index(places=(location(0, 1071), location(1, 1071))),
            },
            files,
        )

    def read(self, files: Files, seen: dict[int, Seen], *, shared: bool) -> None:
        for ledger_id, one in seen.items():
            own = TWO.ledger_dirs[ledger_id % 2]
            reader = EntryLogReader(files, TWO.ledger_dirs if shared else [own])
            for entry_id, place in one.places.items():
                assert reader.read(place, ledger_id, entry_id) == packet(ledger_id, entry_id)
            assert set(one.places) == {0, 1}

    def test_each_directory_gets_the_logs_that_its_ledgers_need_and_back(self) -> None:
        files = self.make(SimFiles(Random(1)))
        work = conversion(files, TWO)
        assert "link or copy 2 entry logs into other directories" in work.plan("db")
        assert work.to_db().logs_placed == 2
        self.read(files, in_db(files, TWO), shared=False)
        done = conversion(files, TWO).to_interleaved()
        assert done.logs_placed == 2, "0.log and 1.log are in both directories by now"
        self.read(files, in_files(files, TWO), shared=True)
        names = [set(files.list(directory)) for directory in TWO.ledger_dirs]
        assert not {name for name in names[0] & names[1] if name.endswith(".log")}

    @pytest.mark.parametrize("to", ["db", "interleaved"])
    def test_a_crash_anywhere_is_made_good_by_another_run(self, to: str) -> None:
        def make(files: SimFiles) -> SimFiles:
            self.make(files)
            if to == "interleaved":
                conversion(files, TWO).to_db()
                for directory in ("/", "/l0", "/l1", "/l0/current", "/l1/current"):
                    files.sync_dir(Path(directory))
            return files

        def act(files: Files) -> None:
            work = conversion(files, TWO)
            if to == "db":
                work.to_db()
            else:
                work.to_interleaved()

        for files, _ in each_crash(make, act, seeds=1):
            act(files)
            if to == "db":
                self.read(files, in_db(files, TWO), shared=False)
            else:
                self.read(files, in_files(files, TWO), shared=True)


class TestRefusals:
    def test_index_files_beside_databases(self) -> None:
        files = as_db(SimFiles(Random(1)))
        put_files(files, {"/l0/current/0/9/9.idx": index()})
        for to in ("db", "interleaved"):
            with pytest.raises(ConversionRefusedError, match="which of them"):
                _convert(to, files)

    def test_the_other_way_while_one_is_not_through(self) -> None:
        for files, _ in each_crash(small, partial(_convert, "db"), seeds=1):
            if files.exists(ONE.roots[0] / CONVERTING):
                with pytest.raises(ConversionRefusedError, match="finish that one first"):
                    _convert("interleaved", files)

    def test_a_damaged_index_stops_it_before_anything_goes(self) -> None:
        files = small(SimFiles(Random(1)))
        put_files(files, {"/l0/current/0/8/8.idx": b"x" * 2000})
        with pytest.raises(IndexFormatError):
            _convert("db", files)
        assert files.exists(Path("/l0/current/0/7/7.idx"))
        assert not has_databases(files)

    def test_an_index_file_that_has_lost_entries_stops_it_too(self) -> None:
        """The bookie refuses to say what is not there; databases could not note that."""
        files = small(SimFiles(Random(1)))
        path = Path("/l0/current/0/8/8.idx")
        put_files(files, {str(path): files.read(path)[:-100]})
        with pytest.raises(IndexTruncatedError, match="entries may be missing"):
            _convert("db", files)
        assert files.exists(path)
        assert not has_databases(files)

    def test_limbo_and_an_integrity_check_that_is_due(self) -> None:
        for limbo, flags in ((True, 0), (False, 1)):
            files = disk(ONE, {})
            store = RocksIndex(Path("/l0/current"), partial(SimKeyValues, files))
            store.open()
            header = IndexHeader(KEY, limbo=limbo)
            store.write([LedgerChange(7, header, ())])
            store.set_flags(flags)
            store.close()
            with pytest.raises(ConversionRefusedError, match="only the databases can record"):
                _convert("interleaved", files)
            assert has_databases(files)

    def test_a_compaction_that_is_not_through(self) -> None:
        files = as_db(SimFiles(Random(1)))
        put_files(files, {"/l0/current/5.log.0.compacted": b""})
        with pytest.raises(ConversionRefusedError, match="a compaction has not ended"):
            _convert("interleaved", files)
