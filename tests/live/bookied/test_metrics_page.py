"""The page of a live bookie under load: what waits, what hangs and what is held is there."""

from __future__ import annotations

import contextlib
import threading
import time
from collections.abc import Iterator
from itertools import count
from pathlib import Path
from urllib.request import urlopen

import pytest
from prometheus_client.parser import text_string_to_metric_families
from prometheus_client.samples import Sample

from tests.bookied.worlds.wedged_disk import Wedged
from tests.live.bookied.processes import free_port
from tests.support.waiting import until
from wire.codes import ReturnCode

pytestmark = pytest.mark.processes

HUNG_S = 1.5
ADDS, ADD_BYTES = 200, 1000
QUEUE_SIZE = "bookie_journal_JOURNAL_QUEUE_SIZE_total"
"""A counter that goes down, as in Java, where a dashboard looks for it; the parser adds the end."""

OWNERS_IN_USE = {"write cache", "changed index pages", "ledgers"}


class Page:
    """One scrape, as Prometheus reads it."""

    def __init__(self, port: int) -> None:
        with urlopen(f"http://127.0.0.1:{port}/metrics", timeout=30) as answer:
            text = answer.read().decode()
        self.families = {one.name: one for one in text_string_to_metric_families(text)}
        self.samples = [one for family in self.families.values() for one in family.samples]

    def value(self, name: str, **labels: str) -> float:
        (found,) = (one.value for one in self.samples if _fits(one, name, labels))
        return found

    def sum(self, name: str, **labels: str) -> float:
        return sum(one.value for one in self.samples if _fits(one, name, labels))

    def memory(self) -> dict[str, float]:
        of = self.families["bookied_memory_bytes"].samples
        return {one.labels["owner"]: one.value for one in of}

    def counters(self) -> dict[tuple[str, tuple[tuple[str, str], ...]], float]:
        """Return what may only grow: counters, and counts and sums of summaries."""
        return {
            (one.name, tuple(sorted(one.labels.items()))): one.value
            for family in self.families.values()
            for one in family.samples
            if one.name.endswith(("_total", "_count", "_sum")) and one.name != QUEUE_SIZE
        }


def _fits(sample: Sample, name: str, labels: dict[str, str]) -> bool:
    return sample.name == name and labels.items() <= sample.labels.items()


class Watched:
    def __init__(self, directory: Path) -> None:
        self.port = free_port()
        self.disk = Wedged(
            directory,
            httpServerEnabled="true",
            httpServerPort=self.port,
            # What came to its end shows that long, however seldom a busy machine looks.
            prometheusStatsLatencyRolloverSeconds=4,
        )
        self.bookie = self.disk.bookie

    @property
    def page(self) -> Page:
        return Page(self.port)


@pytest.fixture
def watched(tmp_path: Path) -> Iterator[Watched]:
    found = Watched(tmp_path)
    yield found
    found.disk.end()


def test_what_a_hung_disk_keeps_waiting_is_on_the_page(watched: Watched) -> None:
    with watched.bookie.client() as client:
        assert client.add(7, 0) is ReturnCode.EOK
        # The answer goes out before what it took is given back.
        until(lambda: watched.page.memory()["requests in flight"] == 0)
        calm = watched.page
        assert calm.sum(QUEUE_SIZE) == 0
        assert calm.sum("bookie_journal_JOURNAL_MEMORY_USED") == 0
        watched.disk.hang()
        for entry_id in range(1, ADDS + 1):
            client.send_add(7, entry_id, b"x" * ADD_BYTES)
        until(lambda: watched.page.sum(QUEUE_SIZE) == ADDS)
        began_s = time.monotonic()  # By now the sync hangs.
        stuck = watched.page
        least = ADDS * ADD_BYTES
        assert stuck.sum("bookie_journal_JOURNAL_MEMORY_USED") > least
        assert stuck.memory()["journal queues"] > least
        assert stuck.memory()["requests in flight"] > least
        time.sleep(max(0.0, began_s + HUNG_S - time.monotonic()))
        watched.disk.answer()
        for _ in range(ADDS):
            client.receive()
    until(lambda: watched.page.sum(QUEUE_SIZE) == 0)
    until(lambda: watched.page.memory()["requests in flight"] == 0)
    # Shown once the window has ended in which it came to its end.
    until(
        lambda: (
            watched.page.sum("bookie_journal_JOURNAL_SYNC", success="true", quantile="1.0")
            >= HUNG_S * 900
        )
    )
    page = watched.page
    assert page.sum("bookie_journal_JOURNAL_SYNC_sum", success="true") >= HUNG_S * 900
    assert page.memory()["journal queues"] == 0


def test_the_page_under_load_is_true_to_the_process(watched: Watched) -> None:
    ends = threading.Event()

    def load() -> None:
        with contextlib.suppress(ConnectionError), watched.bookie.client() as client:
            for entry_id in count():
                if ends.is_set():
                    return
                client.add(8, entry_id, b"x" * ADD_BYTES)
                client.read(8, entry_id)

    thread = threading.Thread(target=load, daemon=True)
    thread.start()
    until(lambda: watched.page.value("bookied_event_loop_lag_ms_count", success="true") >= 4)
    before, after = watched.page, watched.page
    ends.set()
    thread.join(120)
    grown = after.counters()
    assert [key for key, value in before.counters().items() if grown[key] < value] == []
    # A timer on a reactor that is in use is late; how late, the machine decides.
    assert after.value("bookied_event_loop_lag_ms_sum", success="true") > 0
    syncs = after.sum("bookie_journal_JOURNAL_SYNC_count", success="true")
    adds = after.value("bookkeeper_server_ADD_ENTRY_count", success="true")
    assert 0 < syncs <= adds + 10
    assert after.sum("bookie_journal_JOURNAL_SYNC_sum", success="true") > 0
    memory = after.memory()
    assert min(memory.values()) >= 0
    assert {owner for owner, held in memory.items() if held} >= OWNERS_IN_USE
    rss = after.value("process_resident_memory_bytes")
    assert sum(memory.values()) < rss
    assert abs(rss - watched.bookie.rss_kib() * 1024) < rss / 4
    descriptors = len(list(Path(f"/proc/{watched.bookie.pid}/fd").iterdir()))
    assert abs(after.value("process_open_fds") - descriptors) <= 4
