"""A bookie that lost its disks heals itself (BP-46): on real processes, with Java's client.

Its directories are emptied, and it starts again under the same name. It must not say "no such
entry" of what it may have had, and in the end it holds again whatever the metadata places on it.
"""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest

from bkclient.client import Client
from bookied.errors import BookieExitStatus
from tests.interop.peers.our_bookie import PATIENT_CONFIG, OurBookie, our_bookies
from tests.interop.peers.peers import Peers
from tests.support.reactor import run, the_reactor
from tests.support.waiting import until

DB = "org.apache.bookkeeper.bookie.storage.ldb.DbLedgerStorage"
HEALING = {
    "ledgerStorageClass": DB,
    "dataIntegrityChecking": "true",
    "dataIntegrityStampMissingCookies": "true",
}
PAYLOADS = [b"entry %d" % number for number in range(300)]


@pytest.fixture
def uri(peers: Peers) -> str:
    return peers.metadata_uri()


@pytest.fixture
def bookies(peers: Peers, uri: str) -> list[OurBookie]:
    return our_bookies(peers, 3, uri, **HEALING)


@pytest.fixture
def client(peers: Peers, uri: str) -> Client:
    connected = run(Client.connect(uri, reactor=the_reactor(), config=PATIENT_CONFIG))
    peers.on_close(lambda: run(connected.close()))
    return connected


def lose_everything(bookie: OurBookie) -> None:
    """Replace all disks of a bookie by empty ones."""
    for directory in (bookie.journal_directory, bookie.ledger_directory):
        shutil.rmtree(directory)


def heal(lost: OurBookie, timeout_s: float = 120.0) -> str:
    """Start a bookie on empty disks; return what it logs until it has nothing left to fetch."""
    told_before = lost.log.stat().st_size
    lose_everything(lost)
    lost.start()

    def text() -> str:
        return lost.log.read_bytes()[told_before:].decode()

    until(lambda: ", 0 ledgers to retry" in text(), lambda: text()[-3000:], timeout_s=timeout_s)
    return text()


def test_what_was_lost_comes_back(
    peers: Peers, uri: str, bookies: list[OurBookie], client: Client
) -> None:
    java = peers.java_client(uri)
    closed = java.create_ledger(3, 2, 2, password=b"pw", digest="MAC")
    closed.add_many(PAYLOADS)
    closed.close()

    async def open_one() -> int:
        writer = await client.create_ledger(ensemble_size=3, write_quorum=3, ack_quorum=2)
        await writer.add_many(PAYLOADS)
        return writer.ledger_id

    growing = run(open_one())
    lost, *others = bookies
    lost.kill()
    assert "in limbo until recovered" in heal(lost)
    # With one of the others gone, half of the closed ledger can come from it alone.
    others[0].kill()
    reader = peers.java_client(uri).open_ledger(closed.ledger_id, password=b"pw", digest="MAC")
    assert reader.read(0, len(PAYLOADS) - 1) == PAYLOADS

    async def read_all(ledger_id: int) -> list[bytes]:
        opened = await client.open_ledger(ledger_id)
        return [entry.payload async for entry in opened.read()]

    assert run(read_all(growing)) == PAYLOADS
    lost.stop()
    lost.start()
    assert run(read_all(closed.ledger_id)) == PAYLOADS


def test_a_fence_that_was_lost_with_the_disks_holds(
    peers: Peers, uri: str, bookies: list[OurBookie], client: Client
) -> None:
    """The writer must not find an ack quorum among bookies that forgot that it was fenced."""

    async def write_some() -> object:
        writer = await client.create_ledger(ensemble_size=3, write_quorum=3, ack_quorum=2)
        await writer.add_many(PAYLOADS[:50])
        return writer

    writer = run(write_some())
    java = peers.java_client(uri)
    assert java.open_ledger(writer.ledger_id).read(0, 49) == PAYLOADS[:50]
    for lost in bookies[:2]:
        lost.kill()
        heal(lost)

    async def late() -> str:
        try:
            await writer.add(b"too late")
        except Exception as error:  # noqa: BLE001 -- whatever it is, it is not a confirmation
            return type(error).__name__
        return "confirmed"

    assert run(late()) != "confirmed"


def test_without_the_setting_a_bookie_without_its_disks_does_not_start(
    peers: Peers, uri: str
) -> None:
    (bookie,) = our_bookies(peers, 1, uri, ledgerStorageClass=DB, dataIntegrityChecking="true")
    bookie.kill()
    lose_everything(bookie)
    bookie.spawn()
    assert bookie.wait(120) == BookieExitStatus.WRONG_IDENTITY
    text = Path(bookie.log).read_text()
    assert "dataIntegrityStampMissingCookies" in text
