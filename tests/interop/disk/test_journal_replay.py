"""Journals of ours before Java's own reader: whole, after a kill, and torn as crashes tear them.

``tests.bookied.storage.journal.java_rules`` is the model of Java's rules that the unit tests prove
things with; here Java's ``readjournal`` says that the model is right.
"""

from __future__ import annotations

import struct
from pathlib import Path

import pytest

from bookied.storage.files.files import RealFiles
from bookied.storage.journal import format as layout
from bookied.storage.journal import group_format
from bookied.storage.journal.reader import journal_ids, open_scan
from tests.bookied.storage.journal.java_rules import JavaFailsError, java_scan
from tests.interop.peers.java_shell import java_shell
from tests.interop.peers.our_bookie import OurBookie
from tests.interop.peers.peers import JavaBookie, JavaVM, Peers, write_conf

BLOCK = group_format.BLOCK_BYTES
GENERATION = 0x0102030405060708


def entry(number: int, size: int) -> bytes:
    head = layout.IDS.pack(7, number) + struct.pack(">qq", number - 1, 0)
    return layout.entry_record(head + bytes([number + 1]) * size)


CONTENTS = [
    [layout.ledger_key_record(7, b"k" * 20), *(entry(number, 100) for number in range(3))],
    [entry(3, 6000), entry(4, 40), entry(5, 3000)],
    [layout.fence_record(7), entry(6, 0)],
]


def journal() -> tuple[bytes, list[int]]:
    """Return a journal, and where each group begins and the last one ends."""
    data, places = group_format.file_start(6, GENERATION, BLOCK), []
    for records in CONTENTS:
        places.append(len(data))
        data += group_format.group_head(
            records, generation=GENERATION, offset=len(data), synced=len(data), alignment=BLOCK
        )
        data += b"".join(records)
    return data, [*places, len(data)]


def journals() -> dict[str, bytes]:
    """Return journals as a crash might leave them, by what is special about each."""
    data, (_first, second, third, end) = journal()
    cases = {
        "whole": data,
        "zeros behind": data + bytes(1 << 16),
        "last group missing": data[:third] + bytes(BLOCK),
        "no group": data[:BLOCK] + bytes(BLOCK),
        "header cut": data[:512] + bytes(BLOCK),
        "second group: first block missing": _without(data, second, second + BLOCK),
        "second group: second block missing": _without(data[:third], second + BLOCK, third),
        "second group: first block only": data[: second + BLOCK] + bytes(5 * BLOCK),
        "first sector only": data[: second + 512] + bytes(5 * BLOCK),
        "ends in the head": data[: third + 4],
        "old groups behind a torn one": data[: second + BLOCK] + data[second:end],
    }
    assert third - second == 3 * BLOCK
    return cases


def _without(data: bytes, begin: int, end: int) -> bytes:
    return data[:begin] + bytes(end - begin) + data[end:] + bytes(BLOCK)


@pytest.mark.parametrize("case", journals())
def test_java_reads_our_journals_as_the_model_says(
    case: str, tmp_path: Path, java_vm: JavaVM
) -> None:
    data = journals()[case]
    current = tmp_path / "journal" / "current"
    current.mkdir(parents=True)
    (current / "5.txn").write_bytes(data)
    conf = tmp_path / "bk_server.conf"
    write_conf(
        conf, {"journalDirectories": current.parent, "ledgerDirectories": tmp_path / "ledgers"}
    )
    result = java_shell(java_vm, conf, "readjournal", "5")
    try:
        wanted = [(at, layout.IDS.unpack_from(body)[1]) for at, body in java_scan(data)]
    except JavaFailsError:
        assert result.returncode != 0
        return
    assert result.returncode == 0, result.stderr
    read = [
        (int(event.attributes["position"]), int(event.attributes["entryId"]))
        for event in result.events
        if "position" in event.attributes
    ]
    assert read == wanted


@pytest.mark.parametrize("direct", ["true", "false"])
def test_java_replays_what_was_acknowledged_before_a_kill_and_ours_replays_java(
    peers: Peers, direct: str
) -> None:
    uri, directory = peers.metadata_uri(), peers.new_directory("shared")
    conf = {"journalRemoveFromPageCache": direct, "flushInterval": 3_600_000}
    payloads: list[bytes] = []
    port, ledger = 0, None
    for turn, kind in enumerate([OurBookie, JavaBookie, OurBookie, JavaBookie]):
        bookie = kind(uri, directory, port, **conf)
        peers.on_close(bookie.kill)
        port = bookie.start().port
        with peers.java_client(uri) as client:
            if ledger is not None:
                reader = client.open_ledger(ledger)
                assert reader.read(0, len(payloads) - 1) == payloads
            writer = client.create_ledger(1, 1, 1)
            payloads = [bytes([turn + 1]) * size for size in (0, 10, 5000, 100_000, 1)] * 20
            assert len(writer.add_many(payloads)) == len(payloads)
            ledger = writer.ledger_id
            bookie.kill()
    scans = [
        open_scan(RealFiles(), directory / "journal" / "current" / layout.file_name(number))
        for number in journal_ids(RealFiles(), directory / "journal" / "current")
    ]
    # Readers recover the ledgers, and write some entries again.
    found = {(each.ledger_id, each.entry_id) for scan in scans for each in scan}
    assert sum(entry_id >= 0 for _, entry_id in found) == 4 * len(payloads)
    assert not any(scan.is_torn for scan in scans)


def test_java_goes_on_from_our_mark_after_a_clean_stop(peers: Peers) -> None:
    uri, directory = peers.metadata_uri(), peers.new_directory("shared")
    bookie = OurBookie(uri, directory)
    peers.on_close(bookie.kill)
    bookie.start()
    with peers.java_client(uri) as client:
        writer = client.create_ledger(1, 1, 1)
        writer.add_many([b"one", b"two"])
        writer.close()
    assert bookie.stop() == 0
    after = JavaBookie(uri, directory, bookie.port)
    peers.on_close(after.kill)
    for turn in (after, bookie):
        turn.start()
        # Its client is new as well: it has no lost connection to find out about.
        with peers.java_client(uri) as client:
            assert client.open_ledger(writer.ledger_id).read(0, 1) == [b"one", b"two"]
        turn.kill()
