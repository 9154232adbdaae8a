"""Writers that go on adding while something happens to them, and count what was acknowledged."""

from __future__ import annotations

import threading
import time
from abc import ABC, abstractmethod
from collections.abc import Callable
from typing import Final

from twisted.internet.defer import Deferred

from bkclient.client import Client
from bkclient.ledger.writer import LedgerWriter
from tests.interop.peers.peers import JavaError, JavaLedger
from tests.interop.replication.cluster import (
    LONGEST_S,
    PASSWORD,
    PATIENCE_S,
    MixedCluster,
    entry,
)
from tests.support.reactor import begin, run, sleep
from tests.support.waiting import until
from wire.codes import DigestType, ProtocolVersion

DIGESTS: Final = {"ours-v3": "CRC32C", "java-v3": "CRC32", "ours-v2": "MAC", "java-v2": "CRC32C"}
KINDS: Final = tuple(DIGESTS)
WINDOW: Final = 20
PAUSE_S: Final = 0.04


class Stream(ABC):
    """Adds ``entry(ledger, 0)``, ``entry(ledger, 1)`` … until told to stop, or refused.

    ``acked`` counts what was acknowledged, in order and without a gap. ``error`` is what the first
    add that failed got; no later one may be acknowledged.
    """

    def __init__(self, ledger_id: int, pause_s: float) -> None:
        self.ledger_id, self.pause_s = ledger_id, pause_s
        self.acked = self.sent = 0
        self.error: Exception | None = None
        self.slowest_s = 0.0
        """The longest that an add waited for its outcome."""
        self._stopping = False
        self._latest_s = time.monotonic()

    @property
    def stands_still(self) -> bool:
        """Whether there was no outcome for longer than a bookie may take for its answer."""
        return time.monotonic() - self._latest_s > 3 * PATIENCE_S

    def wait_for(self, acked: int, timeout_s: float = LONGEST_S) -> None:
        """Return when so many are acknowledged; fail if the stream ends before."""
        self._wait(lambda: self.acked >= acked, timeout_s, f"{acked} acks")

    def wait_for_more(self, count: int = 3 * WINDOW, timeout_s: float = LONGEST_S) -> None:
        """Return when the stream has surely gone on, with more than was in flight."""
        self.wait_for(self.acked + count, timeout_s)

    def goes_on(self) -> bool:
        """Wait until the stream has surely gone on, or has ended; return whether it goes on."""
        wanted = self.acked + 3 * WINDOW
        until(lambda: self.acked >= wanted or self.error is not None, timeout_s=LONGEST_S)
        return self.error is None

    def wait_for_sent(self, sent: int, timeout_s: float = LONGEST_S) -> None:
        self._wait(lambda: self.sent >= sent, timeout_s, f"{sent} adds")

    def _wait(self, condition: Callable[[], bool], timeout_s: float, what: str) -> None:
        def goes_on() -> None:
            assert self.error is None, f"the writer ended after {self.acked}: {self.error!r}"

        until(
            condition,
            lambda: f"{self.acked} acks and no {what}",
            timeout_s=timeout_s,
            check=goes_on,
        )

    def stop(self) -> int:
        """Add no more; return how many were acknowledged, all of them.

        Raises:
            Exception: what an add failed with.
        """
        self._stopping = True
        self._join(LONGEST_S)
        if self.error is not None:
            raise self.error
        return self.acked

    def ended(self, timeout_s: float = LONGEST_S) -> Exception:
        """Wait until an add fails; return its error."""
        self._join(timeout_s)
        assert self.error is not None
        return self.error

    @abstractmethod
    def _join(self, timeout_s: float) -> None:
        """Return when nothing is added any more; raise what kept it from going on."""

    def _take(self, began_s: float, outcome: int | Exception) -> None:
        self._latest_s = time.monotonic()
        self.slowest_s = max(self.slowest_s, self._latest_s - began_s)
        if isinstance(outcome, Exception):
            self.error = self.error or outcome
            return
        assert self.error is None, f"entry {outcome} acknowledged after an add that failed"
        assert outcome == self.acked
        self.acked += 1


class OurStream(Stream):
    def __init__(self, writer: LedgerWriter, pause_s: float) -> None:
        super().__init__(writer.ledger_id, pause_s)
        self.writer = writer
        self._running = begin(self._run(), LONGEST_S)

    async def _run(self) -> None:
        while not self._stopping and self.error is None:
            adds = [self._add() for _ in range(WINDOW)]
            await sleep(self.pause_s)
            await adds[WINDOW // 2]
        await adds[-1]

    def _add(self) -> Deferred[None]:
        adding = self.writer.add(entry(self.ledger_id, self.sent))
        self.sent += 1
        began_s = time.monotonic()
        return adding.addCallbacks(
            lambda entry_id: self._take(began_s, entry_id),
            lambda failure: self._take(began_s, failure.value),
        )

    def _join(self, timeout_s: float) -> None:
        self._running.result(timeout_s)

    def close(self) -> int:
        """Stop, close the ledger, and return how many entries it has."""
        acked = self.stop()
        assert run(self.writer.close()).last_entry_id == acked - 1
        return acked


class JavaStream(Stream):
    def __init__(self, ledger: JavaLedger, pause_s: float) -> None:
        super().__init__(ledger.ledger_id, pause_s)
        self.ledger = ledger
        self._failed: Exception | None = None
        self._thread = threading.Thread(target=self._run, daemon=True)
        self._thread.start()

    def _run(self) -> None:
        try:
            while not self._stopping and self.error is None:
                self._add_some()
                time.sleep(self.pause_s)
        except Exception as error:  # noqa: BLE001  the test's thread raises it
            self._failed = error

    def _add_some(self) -> None:
        began_s = time.monotonic()
        payloads = [entry(self.ledger_id, self.sent + i) for i in range(WINDOW)]
        futures = [self.ledger.add_async(payload) for payload in payloads]
        self.sent += WINDOW
        for future in futures:
            try:
                self._take(began_s, future.result(LONGEST_S))
            except JavaError as error:
                self._take(began_s, error)

    def _join(self, timeout_s: float) -> None:
        self._thread.join(timeout_s)
        assert not self._thread.is_alive(), f"adds have no outcome after {timeout_s} s"
        if self._failed is not None:
            raise self._failed

    def close(self) -> int:
        """Stop, close the ledger, and return how many entries it has."""
        acked = self.stop()
        self.ledger.close()
        return acked


def begin_stream(
    cluster: MixedCluster,
    kind: str,
    sizes: tuple[int, int, int] = (3, 3, 2),
    *,
    proxied: bool = False,
    pause_s: float = PAUSE_S,
    **conf: object,
) -> Stream:
    """Return a writer at work, a window and a pause by turns; ``kind`` is one of ``KINDS``."""
    whose, version = kind.split("-")
    if whose == "java":
        client = cluster.java(v2=version == "v2", proxied=proxied, **conf)
        ledger = client.create_ledger(*sizes, digest=DIGESTS[kind], password=PASSWORD)
        return JavaStream(ledger, pause_s)
    ours = cluster.ours(ProtocolVersion[version.upper()], proxied=proxied, **conf)
    return OurStream(run(create_ledger(ours, sizes, DigestType[DIGESTS[kind]])), pause_s)


async def create_ledger(
    client: Client, sizes: tuple[int, int, int], digest_type: DigestType
) -> LedgerWriter:
    ensemble_size, write_quorum, ack_quorum = sizes
    return await client.create_ledger(
        ensemble_size=ensemble_size,
        write_quorum=write_quorum,
        ack_quorum=ack_quorum,
        digest_type=digest_type,
        password=PASSWORD,
    )
