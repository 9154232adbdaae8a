"""Our bookie killed again and again while it collects garbage, with Java's client at work.

Small logs, frequent checkpoints, several directories, compaction every moment, ledgers deleted
meanwhile. ``BOOKIED_KILLS`` asks for more kills.
"""

from __future__ import annotations

import hashlib
import os
import random
import time
from typing import Any, Final

import pytest

from tests.interop.peers.java_client import JavaClient, JavaFuture, JavaLedger
from tests.interop.peers.jvm import JavaError
from tests.interop.peers.our_bookie import OurBookie
from tests.interop.peers.peers import Peers
from tests.support.waiting import until

KILLS: Final = int(os.environ.get("BOOKIED_KILLS", "3"))
CONF: Final[dict[str, Any]] = {
    "journalMaxSizeMB": 1,
    "journalMaxBackups": 0,
    "logSizeLimit": 1_000_000,
    "flushInterval": 100,
    "pageLimit": 20,
    "gcWaitTime": 300,
    "minorCompactionInterval": 1,
    "minorCompactionThreshold": 0.5,
    "majorCompactionInterval": 2,
    "majorCompactionThreshold": 0.9,
    "compactionRateByEntries": 100_000,
}


def payload(ledger_id: int, entry_id: int) -> bytes:
    seed = hashlib.sha256(b"%d/%d" % (ledger_id, entry_id)).digest()
    return (seed * 130)[: entry_id * 97 % 4000]


class Load:
    """Ledgers that Java's client writes at once, and what of them was confirmed."""

    def __init__(self, client: JavaClient) -> None:
        self._client = client
        self.confirmed: dict[int, int] = {}
        """By ledger how many entries, from 0 on."""

    def run(self, rng: random.Random, seconds: float) -> None:
        """Write until the time is up; what is in flight then may come to nothing."""
        ledgers = [self._client.create_ledger(1, 1, 1, password=b"") for _ in range(4)]
        flying: list[tuple[JavaLedger, int, JavaFuture]] = []
        until_s = time.monotonic() + seconds
        while time.monotonic() < until_s:
            ledger = rng.choice(ledgers)
            entry_id = sum(1 for one, _, _ in flying if one is ledger)
            body = payload(ledger.ledger_id, entry_id)
            flying.append((ledger, entry_id, ledger.add_async(body)))
        for ledger, entry_id, add in flying:
            if add.done:
                try:
                    assert add.result() == entry_id
                except JavaError:
                    continue
                self.confirmed[ledger.ledger_id] = entry_id + 1

    def delete_some(self, rng: random.Random) -> None:
        for ledger_id in rng.sample(sorted(self.confirmed), len(self.confirmed) // 2):
            self._client.delete_ledger(ledger_id)
            del self.confirmed[ledger_id]

    def check(self, client: JavaClient) -> None:
        for ledger_id, count in self.confirmed.items():
            reader = client.open_ledger(ledger_id, recover=False)
            for first in range(0, count, 200):
                last = min(count, first + 200) - 1
                wanted = [payload(ledger_id, entry_id) for entry_id in range(first, last + 1)]
                assert reader.read_unconfirmed(first, last) == wanted
            reader.close()


@pytest.mark.parametrize("transactional", ["false", "true"])
def test_no_kill_loses_what_was_confirmed_while_garbage_is_collected(
    peers: Peers, transactional: str
) -> None:
    uri, directory = peers.metadata_uri(), peers.new_directory("killed")
    rng, port = random.Random(5), 0
    conf = CONF | {
        "useTransactionalCompaction": transactional,
        "journalDirectories": ",".join(str(directory / f"journal{n}") for n in range(2)),
        "ledgerDirectories": ",".join(str(directory / f"ledgers{n}") for n in range(2)),
    }
    loads: list[Load] = []
    for _ in range(KILLS):
        bookie = OurBookie(uri, directory, port, **conf)
        peers.on_close(bookie.kill)
        port = bookie.start().port
        client = peers.java_client(uri)
        for load in loads:
            load.check(client)
        loads.append(Load(client))
        loads[-1].run(rng, 1.5)
        loads[-1].delete_some(rng)
        time.sleep(rng.uniform(0.5, 2.5))  # Rounds of the collector, until the kill.
        bookie.kill()
    with OurBookie(uri, directory, port, **conf):
        client = peers.java_client(uri)
        for load in loads:
            load.check(client)
        until(lambda: not [*directory.rglob("0.log")], "nothing is collected")
