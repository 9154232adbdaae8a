"""DbLedgerStorage directories handed from Java's bookie to ours and back, stopped and killed.

Pulsar's bookies run this storage. What Java wrote is served by ours with every entry, fence, key
and explicit LAC; ours adds to it and is stopped or killed; Java serves it all, digests checked by
its client.
"""

from __future__ import annotations

import itertools
import struct
import subprocess
import sys
from typing import Any, Final

import attrs
import pytest

from bookied.storage.index.rocks.database import open_read_only
from bookied.storage.index.rocks.index import RocksIndex
from tests.interop.peers.our_bookie import OurBookie
from tests.interop.peers.peers import JavaBookie, JavaClient, JavaLedger, Peers
from tests.support.waiting import until
from wire.digest import master_key

DB: Final = "org.apache.bookkeeper.bookie.storage.ldb.DbLedgerStorage"
PASSWORD: Final = b"secret"
DIGESTS: Final = itertools.cycle(["CRC32C", "CRC32", "MAC", "DUMMY"])


@attrs.define
class Written:
    """What one client wrote to a ledger, and what became of it."""

    ledger_id: int
    digest: str
    payloads: list[bytes] = attrs.field(factory=list)
    is_closed: bool = False
    is_fenced: bool = False
    explicit_lac: int | None = None


class Shared:
    """One bookie's directories, run by Java's bookie and ours in turn."""

    def __init__(self, peers: Peers, directories: int) -> None:
        self.peers, self.uri = peers, peers.metadata_uri()
        self.directory = peers.new_directory("shared")
        self.ledger_roots = [self.directory / f"ledgers{n}" for n in range(directories)]
        self.conf: dict[str, Any] = {
            "ledgerStorageClass": DB,
            "ledgerDirectories": ",".join(map(str, self.ledger_roots)),
            "dbStorage_writeCacheMaxSizeMb": 16,
            "dbStorage_readAheadCacheMaxSizeMb": 16,
            "dbStorage_rocksDB_blockCacheSize": 4 << 20,
            "flushInterval": 500,
            "gcWaitTime": 3_600_000,
        }
        self.port = 0
        self.written: list[Written] = []

    def start(self, kind: type[JavaBookie], how: str) -> JavaBookie:
        """Start a bookie that is to be ``stopped`` or ``killed``.

        A Java bookie to be killed has flushed nothing: its journal alone then holds the turn. Had
        it moved its mark past a fence or an explicit LAC without an entry, that would be gone
        with the process (4.18.0, storage.md D2), whatever was added later.
        """
        for root in self.ledger_roots:
            root.mkdir(exist_ok=True)
        conf = dict(self.conf)
        if kind is JavaBookie and how == "killed":
            conf["flushInterval"] = 3_600_000
        bookie = kind(self.uri, self.directory, self.port, **conf)
        self.peers.on_close(bookie.kill)
        self.port = bookie.start().port
        return bookie

    def client(self, *, v2: bool = False) -> JavaClient:
        return self.peers.java_client(self.uri, v2=v2, explicitLacInterval=50)

    def write(self, *, v2: bool, fences_empty: bool) -> None:
        """Write ledgers of every kind: closed, open, fenced while open, and empty and fenced."""
        with self.client(v2=v2) as client:
            for number in range(4):
                ledger, one = self._create(client)
                one.payloads += [b"%d/%d." % (number, n) * (40 * n % 700) for n in range(30)]
                assert ledger.add_many(one.payloads) == list(range(30))
                if number == 0:
                    ledger.close()
                    one.is_closed = True
                elif number == 1:
                    self._fence(client, one)
            if fences_empty:
                _, one = self._create(client)
                self._fence(client, one)

    def write_explicit_lac(self) -> None:
        with self.client() as client:
            ledger, one = self._create(client)
            one.payloads += [b"explicit"] * 3
            assert ledger.add_many(one.payloads) == [0, 1, 2]
            one.explicit_lac = 2
            reader = self._open(client, one, recover=False)
            until(lambda: reader.read_explicit_last_confirmed() == 2)
            reader.close()

    def write_last_entry(self) -> None:
        """Give Java something to flush in each directory.

        Without an entry since its last flush it moves the mark past fences and explicit LACs that
        are nowhere but in the journal, and loses them with a clean stop (4.18.0, storage.md D2).
        """
        with self.client() as client:
            for _ in self.ledger_roots:
                ledger, one = self._create(client)
                one.payloads.append(b"last")
                assert ledger.add_many(one.payloads) == [0]

    def _create(self, client: JavaClient) -> tuple[JavaLedger, Written]:
        digest = next(DIGESTS)
        ledger = client.create_ledger(1, 1, 1, digest=digest, password=PASSWORD)
        self.written.append(Written(ledger.ledger_id, digest))
        return ledger, self.written[-1]

    def _fence(self, client: JavaClient, one: Written) -> None:
        client.fence(one.ledger_id, digest=one.digest, password=PASSWORD)
        one.is_fenced = True

    def _open(self, client: JavaClient, one: Written, *, recover: bool) -> JavaLedger:
        return client.open_ledger(
            one.ledger_id, digest=one.digest, password=PASSWORD, recover=recover
        )

    def check(self) -> None:
        """Read everything with Java's client, in both protocols; it checks the digests."""
        for v2 in (False, True):
            with self.client(v2=v2) as client:
                for one in self.written:
                    ledger = self._open(client, one, recover=False)
                    if one.payloads:
                        last = len(one.payloads) - 1
                        assert ledger.read_unconfirmed(0, last) == one.payloads
                    if one.explicit_lac is not None and not v2:
                        assert ledger.read_explicit_last_confirmed() == one.explicit_lac
                    ledger.close()

    def check_recovery(self) -> None:
        """Recover all: that fences those still open and asks where they end."""
        with self.client() as client:
            for one in self.written:
                ledger = self._open(client, one, recover=True)
                assert ledger.last_add_confirmed == len(one.payloads) - 1
                if one.payloads:
                    assert ledger.read(0, len(one.payloads) - 1) == one.payloads
                one.is_fenced = not one.is_closed
                ledger.close()

    def check_index(self) -> None:
        """Look, the bookie stopped, at what the databases say of each ledger."""
        found = {}
        for root in self.ledger_roots:
            index = RocksIndex(root / "current", open_read_only)
            index.open()
            found.update({ledger_id: index.load(ledger_id) for ledger_id in index.ledger_ids()})
            index.close()
        for one in self.written:
            stored = found[one.ledger_id]
            assert stored is not None
            assert stored.header.master_key == master_key(PASSWORD)
            assert stored.header.is_fenced or not one.is_fenced
            assert stored.last_entry == len(one.payloads) - 1
            if one.explicit_lac is not None:
                assert stored.header.explicit_lac is not None
                assert struct.unpack_from(">qq", stored.header.explicit_lac) == (
                    one.ledger_id,
                    one.explicit_lac,
                )


def end(bookie: JavaBookie, how: str) -> None:
    """End a bookie. Ours, if killed, is flushed offline, as is asked for before Java's may start.

    Java forgets, one start later, an explicit LAC that a journal holds without an entry behind the
    mark (storage.md D2), and ours makes a checkpoint whenever it is time for one.
    """
    if how == "killed":
        bookie.kill()
        if isinstance(bookie, OurBookie):
            flush = [sys.executable, "-m", "bkctl", "disk", "flush", "-c", str(bookie.conf_path)]
            subprocess.run(flush, check=True, capture_output=True, timeout=120)
    else:
        assert bookie.stop() in (0, 143)


@pytest.mark.parametrize(
    ("directories", "ends"),
    [
        pytest.param(1, ("stopped", "killed", "killed", "stopped"), id="1-directory"),
        pytest.param(2, ("killed", "stopped", "stopped", "killed"), id="2-directories"),
    ],
)
def test_directories_go_from_java_to_ours_and_back(
    peers: Peers, directories: int, ends: tuple[str, ...]
) -> None:
    """Each of the two bookies is stopped once and killed once."""
    shared = Shared(peers, directories)
    kinds = itertools.cycle([JavaBookie, OurBookie])
    for turn, (kind, how) in enumerate(zip(kinds, ends, strict=False)):
        bookie = shared.start(kind, how)
        shared.check()
        # A killed Java bookie loses the fence of a ledger without a key (storage.md D1).
        fences_empty = kind is OurBookie or how == "stopped"
        shared.write(v2=bool(turn % 2), fences_empty=fences_empty)
        shared.write_explicit_lac()
        shared.check()
        if kind is JavaBookie:
            shared.write_last_entry()
        end(bookie, how)
        if how == "stopped":
            shared.check_index()
    for kind in (JavaBookie, OurBookie):
        bookie = shared.start(kind, "stopped")
        shared.check()
        shared.check_recovery()
        if kind is JavaBookie:
            shared.write_last_entry()
        end(bookie, "stopped")
        shared.check_index()
