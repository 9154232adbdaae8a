"""Directories that go from Java's bookie to ours and back, with everything that can be in them.

Java's client writes ledgers of every kind to one bookie, which then stops or is killed. The other
bookie starts on the same directories; Java's client reads all of it with its digests checked, then
writes more, and it goes back. Both storage classes, both pairs of format versions, and files so
small that everything rolls. What the interop tests of one bookie do is not repeated here.
"""

from __future__ import annotations

import hashlib
import shutil
from pathlib import Path
from typing import Any, Final

import attrs
import pytest

from bkclient.client import Client
from bookied.storage.index.format import decode_header
from tests.interop.peers.java_client import JavaClient, JavaLedger
from tests.interop.peers.jvm import JavaError
from tests.interop.peers.our_bookie import PATIENT_CONFIG, OurBookie
from tests.interop.peers.peers import JavaBookie, Peers
from tests.support.reactor import run, the_reactor
from tests.support.waiting import until
from wire.ids import LedgerId

DIGESTS: Final = ("CRC32", "CRC32C", "MAC", "DUMMY")
MIB: Final = 1 << 20
LONGEST_S: Final = 300.0
"""For reading all of it: it takes seconds, but not on every machine."""

SORTED: Final[dict[str, Any]] = {
    "ledgerStorageClass": "org.apache.bookkeeper.bookie.SortedLedgerStorage",
    "journalMaxSizeMB": 2,
    "logSizeLimit": 2 * MIB,
    "flushInterval": 300,
    "skipListSizeLimit": 4 * MIB,
    "entryLogFilePreallocationEnabled": "true",
    "gcWaitTime": 3_600_000,
    "pageLimit": 1000,
}
INTERLEAVED: Final = SORTED | {
    "ledgerStorageClass": "org.apache.bookkeeper.bookie.InterleavedLedgerStorage"
}
OLD_FORMATS: Final = INTERLEAVED | {
    "journalFormatVersionToWrite": 5,
    "fileInfoFormatVersionToWrite": 0,
}
OLDER_JOURNAL: Final = SORTED | {
    "journalFormatVersionToWrite": 4,
    "fileInfoFormatVersionToWrite": 0,
}


def many_directories(directory: Path) -> dict[str, Any]:
    """Return settings with several directories of each kind."""
    return {
        f"{kind}Directories": ",".join(str(directory / f"{kind}{n}") for n in range(count))
        for kind, count in (("journal", 2), ("ledger", 3), ("index", 2))
    }


def payload(ledger_id: int, entry_id: int, size: int) -> bytes:
    """Return an entry that tells where it belongs."""
    seed = hashlib.sha256(b"%d/%d" % (ledger_id, entry_id)).digest()
    return (seed * (size // len(seed) + 1))[:size]


@attrs.define
class Written:
    """One ledger, and what a reader has to find in it."""

    ledger_id: int
    digest: str
    password: bytes
    entries: dict[int, bytes]
    is_closed: bool
    lac: int | None = None
    """The last add confirmed that only an explicit LAC tells; None where entries do."""

    def check(self, client: JavaClient) -> None:
        """Read all of it with Java's digests, without recovery: nothing is made good on the way."""
        ledger = client.open_ledger(
            self.ledger_id, digest=self.digest, password=self.password, recover=False
        )
        if self.lac is not None:
            assert ledger.read_explicit_last_confirmed() == self.lac
        for first, last in _runs(sorted(self.entries)):
            found = ledger.read_unconfirmed(first, last)
            assert found == [self.entries[number] for number in range(first, last + 1)]
        if self.is_closed:
            metadata = client.metadata(self.ledger_id)
            assert metadata.last_entry_id == max(self.entries, default=-1)
            assert metadata.length == sum(map(len, self.entries.values()))
        ledger.close()

    async def check_with_ours(self, client: Client) -> None:
        """The same with our client and its digests."""
        reader = await client.open_ledger(
            LedgerId(self.ledger_id), password=self.password, recover=False
        )
        found = {
            entry.entry_id: entry.payload
            for first, last in _runs(sorted(self.entries))
            async for entry in reader.read(first, last, unconfirmed=True)
        }
        reader.close()
        assert found == self.entries


def _runs(ids: list[int]) -> list[tuple[int, int]]:
    """Return consecutive ids as ranges, none of them so long that it makes one huge answer."""
    runs: list[tuple[int, int]] = []
    for number in ids:
        if runs and runs[-1][1] == number - 1 and number - runs[-1][0] < 200:
            runs[-1] = (runs[-1][0], number)
        else:
            runs.append((number, number))
    return runs


class Handover:
    """One set of directories, the bookies that take turns on it, and Java's client."""

    def __init__(self, peers: Peers, conf: dict[str, Any], *, is_wide: bool) -> None:
        self.peers = peers
        self.uri, self.directory = peers.metadata_uri(), peers.new_directory("handover")
        self.conf = conf | (many_directories(self.directory) if is_wide else {})
        self.port = 0
        self.written: list[Written] = []
        self.bookie: JavaBookie
        self.client: JavaClient
        self.open_writers: list[JavaLedger] = []

    def start(self, kind: type[JavaBookie]) -> None:
        self.bookie = kind(self.uri, self.directory, self.port, **self.conf)
        self.peers.on_close(self.bookie.kill)
        self.port = self.bookie.start().port
        # A client of its own for each turn: it knows the bookie, and waits for no lost connection.
        self.client = self.peers.java_client(self.uri, explicitLacInterval=50)

    def end(self, how: str) -> None:
        if how == "killed":
            self.bookie.kill()
        else:
            assert self.bookie.stop() in {0, 143}

    def take_over(self, kind: type[JavaBookie], how: str) -> None:
        self.end(how)
        if how == "killed" and kind is JavaBookie:
            self._leave_out_lacs_that_java_loses()
        self.start(kind)
        self.check()

    def _leave_out_lacs_that_java_loses(self) -> None:
        """Expect no explicit LAC of a ledger whose index file has another (storage.md, D12)."""
        for one in self.written:
            if one.lac is not None and one.lac != self.lac_in_index(one.ledger_id):
                one.lac = None

    def lac_in_index(self, ledger_id: int) -> int | None:
        """Return the explicit LAC of an index file: -1 without one, None without a file."""
        for path in self.directory.rglob(f"{ledger_id:x}.idx"):
            packet = decode_header(path.read_bytes()[:1024], path).explicit_lac
            return -1 if packet is None else int.from_bytes(packet[8:16], "big", signed=True)
        return None

    def check(self) -> None:
        """Read everything: with Java's client always, from our bookie with ours as well."""
        for one in self.written:
            one.check(self.client)
        if isinstance(self.bookie, OurBookie):
            run(self._check_with_ours(), LONGEST_S)

    async def _check_with_ours(self) -> None:
        client = await Client.connect(self.uri, reactor=the_reactor(), config=PATIENT_CONFIG)
        try:
            for one in self.written:
                await one.check_with_ours(client)
        finally:
            await client.close()

    # What is written ------------------------------------------------------------------------------

    def write(self, *, explicit_lacs: bool) -> None:
        """Write a ledger of each kind."""
        for digest in DIGESTS:
            self._closed(digest)
        self._open_with_holes()
        self._deferred()
        self._big()
        self._fenced()
        if explicit_lacs:
            self._explicit_lac()

    def _create(
        self, digest: str = "CRC32C", password: bytes = b"pw", **options: Any
    ) -> JavaLedger:
        return self.client.create_ledger(1, 1, 1, digest=digest, password=password, **options)

    def _note(self, ledger: JavaLedger, entries: dict[int, bytes], **what: Any) -> Written:
        settings = {"digest": "CRC32C", "password": b"pw", "is_closed": False} | what
        written = Written(ledger.ledger_id, entries=entries, **settings)
        self.written.append(written)
        return written

    def _closed(self, digest: str) -> None:
        """Some 700 KiB of entries of all small sizes, the empty one too."""
        ledger = self._create(digest, b"secret")
        entries = {n: payload(ledger.ledger_id, n, n * 37 % 2900) for n in range(500)}
        assert ledger.add_many(entries.values()) == list(entries)
        ledger.close()
        self._note(ledger, entries, digest=digest, password=b"secret", is_closed=True)

    def _open_with_holes(self) -> None:
        """Ids given by the writer; the ones before it was killed need not be without holes."""
        ledger = self._create(ledger_id=2**36 + len(self.written))
        ids = [0, 1, 2]
        entries = {n: payload(ledger.ledger_id, n, 100) for n in ids}
        for number, body in entries.items():
            ledger.add(body, entry_id=number)
        self._note(ledger, entries)

    def _deferred(self) -> None:
        ledger = self._create(deferred_sync=True)
        entries = {n: payload(ledger.ledger_id, n, 200) for n in range(40)}
        ledger.add_many(entries.values())
        ledger.force()
        self._note(ledger, entries)

    def _big(self) -> None:
        ledger = self._create()
        entries = {n: payload(ledger.ledger_id, n, MIB) for n in range(4)}
        ledger.add_many(entries.values())
        ledger.close()
        self._note(ledger, entries, is_closed=True)

    def _fenced(self) -> None:
        """Its writer lives on, so that the fence has somebody to hold off."""
        ledger = self._create()
        entries = {n: payload(ledger.ledger_id, n, 50) for n in range(10)}
        ledger.add_many(entries.values())
        self.client.fence(ledger.ledger_id, password=b"pw")
        self.open_writers.append(ledger)
        self._note(ledger, entries, is_closed=True)

    def _explicit_lac(self) -> None:
        """Entry 9 is confirmed by an explicit LAC alone; the entry itself tells 8."""
        ledger = self._create()
        entries = {n: payload(ledger.ledger_id, n, 60) for n in range(10)}
        ledger.add_many(entries.values())
        reader = self.client.open_ledger(ledger.ledger_id, password=b"pw", recover=False)
        until(lambda: reader.read_explicit_last_confirmed() == 9)
        reader.close()
        ledger.force()  # What a reader sees need not be durable yet.
        self._note(ledger, entries, lac=9)

    def check_fences(self) -> None:
        """Every writer that was fenced stays so: its next add is refused."""
        for writer in self.open_writers:
            with pytest.raises(JavaError, match=r"(?i)fenced"):
                writer.add(b"too late")
        self.open_writers.clear()


@pytest.mark.parametrize("how", ["stopped", "killed"])
@pytest.mark.parametrize(
    ("conf", "is_wide"),
    [
        pytest.param(SORTED, False, id="sorted"),
        pytest.param(INTERLEAVED, True, id="interleaved-wide"),
    ],
)
def test_what_java_wrote_is_ours_and_what_we_wrote_is_java_s(
    peers: Peers, *, conf: dict[str, Any], is_wide: bool, how: str
) -> None:
    handover = Handover(peers, conf, is_wide=is_wide)
    handover.start(JavaBookie)
    handover.write(explicit_lacs=True)
    handover.take_over(OurBookie, how)
    if how == "stopped":  # Java's own kill may lose a fence (storage.md, D1 to D3).
        handover.check_fences()
    handover.write(explicit_lacs=True)
    handover.take_over(JavaBookie, how)
    handover.write(explicit_lacs=False)
    handover.take_over(OurBookie, how)


@pytest.mark.parametrize(
    ("conf", "is_wide"),
    [
        pytest.param(OLD_FORMATS, True, id="journal-5-index-0"),
        pytest.param(OLDER_JOURNAL, False, id="journal-4-index-0"),
    ],
)
def test_older_formats_go_both_ways(peers: Peers, *, conf: dict[str, Any], is_wide: bool) -> None:
    handover = Handover(peers, conf, is_wide=is_wide)
    handover.start(JavaBookie)
    handover.write(explicit_lacs=False)
    handover.take_over(OurBookie, "killed")
    handover.write(explicit_lacs=False)
    handover.take_over(JavaBookie, "stopped")


@pytest.mark.parametrize("writer", [JavaBookie, OurBookie])
def test_java_s_replay_puts_the_index_s_lac_in_place_of_the_journal_s(
    peers: Peers, writer: type[JavaBookie]
) -> None:
    """Killed after a checkpoint has written index files, and before it moved the mark (D12)."""
    handover = Handover(peers, SORTED | {"flushInterval": 3_600_000}, is_wide=False)
    handover.start(writer)
    ledger = handover.client.create_ledger(1, 1, 1)
    reader = handover.client.open_ledger(ledger.ledger_id, recover=False)

    def confirm(entry_id: int) -> None:
        assert ledger.add(b"entry") == entry_id
        until(lambda: reader.read_explicit_last_confirmed() == entry_id)
        ledger.force()

    confirm(0)
    mark = handover.directory / "ledgers/current/lastMark"
    before = mark.read_bytes() if mark.exists() else bytes(16)
    handover.end("killed")
    handover.start(writer)  # The end of its replay is a checkpoint.
    assert handover.lac_in_index(ledger.ledger_id) == 0
    confirm(1)
    confirm(2)
    handover.end("killed")
    assert handover.lac_in_index(ledger.ledger_id) == 0
    mark.write_bytes(before)
    saved = shutil.copytree(handover.directory, peers.new_directory("saved"), dirs_exist_ok=True)

    def lac_of(kind: type[JavaBookie]) -> int:
        handover.start(kind)
        found = handover.client.open_ledger(ledger.ledger_id, recover=False)
        lac = found.read_explicit_last_confirmed()
        handover.end("killed")
        return lac

    assert lac_of(JavaBookie) == 1  # As the last entry tells; the index's is 0.
    shutil.rmtree(handover.directory)
    shutil.copytree(saved, handover.directory)
    assert lac_of(OurBookie) == 2
