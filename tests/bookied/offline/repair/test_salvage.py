"""Entries out of logs and journals, with neither index nor metadata."""

from __future__ import annotations

import json
import struct
from pathlib import Path
from random import Random
from typing import Any

import pytest

from bkctl.commands.ledger.input_cutting import Framing, cutter
from bookied.directories.roots import Directories
from bookied.offline.repair.salvage import EarlierEntriesError, SalvagedLedger, salvage
from bookied.storage.entrylog.format import LogHeader
from bookied.storage.files.files import Files
from bookied.storage.journal import format as journal_layout
from tests.bookied.worlds.golden import sha256
from tests.bookied.worlds.golden_disk import ledgers_of, load_golden
from tests.bookied.worlds.old_layouts import put_files
from tests.sim.world.disk import PowerCut, SimFiles
from wire.codes import DigestType
from wire.digest import digester

OUT = Path("/out")
FOUND = Directories((Path("/j"),), (Path("/l0"), Path("/l1")), (Path("/l0"), Path("/l1")))


def payloads(files: Files, salvaged: SalvagedLedger) -> list[bytes]:
    """Read the payload file the way `bkctl ledger write --length-prefixed` does."""
    assert salvaged.payload_path is not None
    cutting = cutter(Framing.LENGTH_PREFIXED, entry_bytes_max=1 << 20)
    found = cutting.feed(files.read(salvaged.payload_path))
    assert cutting.end() == []
    return found


def lines(files: Files, salvaged: SalvagedLedger) -> list[dict[str, Any]]:
    assert salvaged.list_path is not None
    return [json.loads(line) for line in files.read(salvaged.list_path).splitlines()]


@pytest.mark.parametrize(
    "name", ["interleaved/clean", "sorted/clean", "sorted/crash", "interleaved/crash"]
)
def test_every_entry_of_a_java_bookie_comes_out_clean_or_killed(name: str) -> None:
    files = SimFiles(Random(1))
    found = load_golden(files, name, leave_out=".idx")
    said = ledgers_of(name.replace("crash", "clean"))
    for ledger_id, expected in said.items():
        out = salvage(files, found, ledger_id, OUT, password=expected["password"].encode())
        entries = expected["entries"]
        assert [sha256(payload) for payload in payloads(files, out)] == [
            entry["payloadSha256"] for entry in entries
        ]
        assert (out.entries, out.refused, out.missing) == (len(entries), 0, 0)
        assert (out.first, out.last) == (0, len(entries) - 1)
        kind = {"HMAC": "MAC"}.get(expected["digestType"], expected["digestType"])
        assert out.digest is DigestType[kind]
        assert out.unverified == (len(entries) if kind == "DUMMY" else 0)
        assert [line["entry"] for line in lines(files, out)] == list(range(len(entries)))


def test_a_mac_without_its_password_is_taken_unverified() -> None:
    files = SimFiles(Random(1))
    found = load_golden(files, "sorted/clean")
    out = salvage(files, found, 1, OUT)
    assert (out.digest, out.entries, out.unverified) == (DigestType.MAC, 3, 3)
    wrong = salvage(files, found, 1, OUT, password=b"wrong")
    assert (wrong.entries, wrong.refused) == (0, 3)


def packed(ledger_id: int, entry_id: int, text: bytes, length: int) -> bytes:
    return digester(DigestType.CRC32C, b"").package(ledger_id, entry_id, entry_id - 1, length, text)


def logged(*packets: bytes) -> bytes:
    return LogHeader().encode() + b"".join(map(journal_layout.entry_record, packets))


def disk(changes: dict[str, bytes]) -> SimFiles:
    files = SimFiles(Random(1))
    files.make_durable(*FOUND.all_dirs)
    put_files(files, changes)
    return files


def test_a_copy_whose_digest_is_right_counts_before_a_later_one() -> None:
    right, rotten = packed(7, 0, b"right", 5), bytearray(packed(7, 0, b"right", 5))
    rotten[-1] ^= 1
    files = disk(
        {
            "/l0/current/5.log": logged(bytes(rotten)),
            "/j/current/1.txn": journal_layout.header(6) + journal_layout.entry_record(right),
        }
    )
    out = salvage(files, FOUND, 7, OUT)
    assert payloads(files, out) == [b"right"]
    assert lines(files, out)[0]["file"] == "/j/current/1.txn"


@pytest.mark.parametrize("latest", [b"\0right", b""])
def test_an_older_log_counts_where_the_latest_copy_is_rotten(latest: bytes) -> None:
    """A compaction that a crash has cut short leaves two."""
    right = packed(7, 0, b"right", 5)
    files = disk(
        {
            "/l0/current/4.log": logged(right),
            "/l1/current/5.log": logged(right[:-6] + latest),
            "/l0/current/6.log": logged(right[:-6]),
        }
    )
    assert payloads(files, salvage(files, FOUND, 7, OUT)) == [b"right"]


@pytest.mark.parametrize("damage", [b"\0\0\0\3", b"\xff\xff\xff\0", bytes(8), b"\7\0\0\0" * 9])
def test_records_behind_damage_are_found_by_the_id_of_their_ledger(damage: bytes) -> None:
    first, last = packed(7, 0, b"first", 5), packed(7, 9, b"last", 99)
    other = packed(8, 4, struct.pack(">iqq", 40, 7, 5) + bytes(40), 60)
    behind = b"".join(map(journal_layout.entry_record, (other, packed(7, 3, b"one", 8), last)))
    files = disk(
        {
            "/l0/current/0.log": logged(first, packed(7, 2, b"two", 5)) + damage + behind,
            "/j/current/1.txn": journal_layout.header(6)
            + journal_layout.entry_record(first)
            + b"\0\0\0\3bad"
            + journal_layout.entry_record(packed(7, 1500, b"far", 1000)),
        }
    )
    out = salvage(files, FOUND, 7, OUT)
    assert [line["entry"] for line in lines(files, out)] == [0, 2, 3, 9, 1500]
    assert payloads(files, out) == [b"first", b"two", b"one", b"last", b"far"]
    assert (out.refused, out.last) == (0, 1500)


def test_a_ledger_that_is_wholly_behind_damage_tells_its_digest_by_trying() -> None:
    behind = journal_layout.entry_record(packed(7, 3, b"alone", 8))
    files = disk({"/l0/current/0.log": logged(packed(8, 0, b"other", 5)) + bytes(9) + behind})
    out = salvage(files, FOUND, 7, OUT)
    assert (out.digest, payloads(files, out)) == (DigestType.CRC32C, [b"alone"])


def test_what_the_disk_has_lost_costs_no_other_entry() -> None:
    packets = [packed(7, one, b"%d" % one * 9000, 9000 * (one + 1)) for one in range(9)]
    files = disk({"/l0/current/0.log": logged(*packets), "/l1/current/1.log": logged(packets[3])})
    size = len(packets[0]) + 4
    log = Path("/l0/current/0.log")
    files.unreadable[log] = {1024 + one * size + 900 for one in (3, 6)}
    out = salvage(files, FOUND, 7, OUT)
    assert [line["entry"] for line in lines(files, out)] == [0, 1, 2, 3, 4, 5, 7, 8]
    files.unopenable.add(log)
    assert payloads(files, salvage(files, FOUND, 7, Path("/other"))) == [b"3" * 9000]


def test_the_latest_log_counts_among_copies_that_are_right() -> None:
    files = disk(
        {
            "/l1/current/a.log": logged(packed(7, 0, b"newer", 5)),
            "/l0/current/9.log": logged(packed(7, 0, b"older", 5)),
        }
    )
    assert payloads(files, salvage(files, FOUND, 7, OUT)) == [b"newer"]


def test_a_wrong_digest_is_listed_and_kept_out_of_the_payloads() -> None:
    rotten = bytearray(packed(7, 1, b"rotten", 11))
    rotten[-1] ^= 1
    files = disk(
        {
            "/l0/current/0.log": logged(
                packed(7, 0, b"first", 5), bytes(rotten), packed(7, 3, b"last", 20)
            )
        }
    )
    out = salvage(files, FOUND, 7, OUT)
    assert payloads(files, out) == [b"first", b"last"]
    assert (out.entries, out.refused, out.missing, out.last) == (2, 1, 1, 3)
    line = lines(files, out)[1]
    assert (line["entry"], line["verified"]) == (1, False)
    assert "packet_b64" in line


def test_damage_is_told_and_what_comes_before_it_is_saved() -> None:
    files = disk(
        {
            "/l0/current/0.log": logged(packed(7, 0, b"first", 5)) + b"\0\0\0\3bad",
            "/l0/current/1.log": b"no log at all" * 10,
            "/j/current/1.txn": journal_layout.header(6)
            + journal_layout.entry_record(packed(7, 1, b"next", 9))
            + b"\0\0\0\3bad",
        }
    )
    out = salvage(files, FOUND, 7, OUT)
    assert payloads(files, out) == [b"first", b"next"]
    assert len(out.damaged) == 3


def test_an_entry_alone_tells_its_digest_by_trying() -> None:
    files = disk({"/l0/current/0.log": logged(packed(7, 12, b"alone", 500))})
    out = salvage(files, FOUND, 7, OUT)
    assert (out.digest, out.entries, out.missing) == (DigestType.CRC32C, 1, 12)


def test_where_no_payload_can_be_told_the_packets_are_listed() -> None:
    packet = bytearray(packed(7, 12, b"alone", 500))
    packet[-1] ^= 1
    files = disk({"/l0/current/0.log": logged(bytes(packet))})
    out = salvage(files, FOUND, 7, OUT)
    assert (out.digest, out.entries, out.refused, out.unverified) == (None, 0, 1, 0)
    forced = salvage(files, FOUND, 7, OUT, digest=DigestType.DUMMY)
    assert (forced.entries, forced.unverified) == (1, 1)
    assert payloads(files, forced)[0].endswith(b"alone"[:-1] + b"d")


def test_a_ledger_that_is_nowhere_writes_nothing() -> None:
    files = disk({})
    out = salvage(files, FOUND, 7, OUT)
    assert (out.entries, out.payload_path, out.last) == (0, None, None)
    assert not files.exists(OUT)


def test_entries_of_another_bookie_are_not_replaced() -> None:
    log = "/l0/current/0.log"
    entries = [packed(7, one, b"first", 5 * (one + 1)) for one in range(3)]
    files = disk({log: logged(*entries[:2])})
    salvage(files, FOUND, 7, OUT)
    before = files.read(OUT / "ledger-7.entries"), files.read(OUT / "ledger-7.jsonl")
    files.write_atomic(Path(log), logged(*entries[1:]))
    with pytest.raises(EarlierEntriesError) as error:
        salvage(files, FOUND, 7, OUT)
    assert error.value.entry_id == 0
    assert before == (files.read(OUT / "ledger-7.entries"), files.read(OUT / "ledger-7.jsonl"))
    assert sorted(files.list(OUT)) == ["ledger-7.entries", "ledger-7.jsonl"]
    files.write_atomic(Path(log), logged(*entries))
    assert salvage(files, FOUND, 7, OUT).entries == 3


def test_what_is_not_through_does_not_replace_what_is_there() -> None:
    files = disk({"/l0/current/0.log": logged(packed(7, 0, b"first", 5))})
    salvage(files, FOUND, 7, OUT)
    before = files.read(OUT / "ledger-7.entries")
    for cut in range(1, 30):
        files.cut_at = files.operations + cut
        try:
            salvage(files, FOUND, 7, OUT)
        except PowerCut:
            files.crash()
        assert files.read(OUT / "ledger-7.entries") == before
    files.cut_at = None
    files.bytes_max = sum(map(len, files.contents().values()))
    with pytest.raises(OSError, match="No space"):
        salvage(files, FOUND, 7, OUT)
    assert sorted(files.list(OUT)) == ["ledger-7.entries", "ledger-7.jsonl"]
