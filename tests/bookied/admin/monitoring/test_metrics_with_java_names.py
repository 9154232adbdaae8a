"""The page of a bookie that works: Java's names, labels and types, and figures that are true."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest
from prometheus_client.parser import text_string_to_metric_families

from bookied.admin.monitoring import metrics_with_own_names
from bookied.admin.monitoring.prometheus_text import exposition
from bookied.admin.server import AdminServer
from bookied.config.bookie import StorageClass
from bookied.stats.metrics import RepairStats
from tests.bookied.stats.java_metrics import Shape, excused, is_excused, java_seen, shapes
from tests.bookied.worlds.clock_world import World
from tests.bookied.worlds.fakes import done
from tests.bookied.worlds.served_bookie import KEY, packet
from wire.codes import AddFlag, ReadFlag
from wire.frames import v2, v3
from wire.ids import EntryId, LedgerId
from wire.messages import AddRequest, ReadRequest

KINDS = [StorageClass.SORTED, StorageClass.DB]


class Served:
    """A bookie on a clock and its page."""

    def __init__(self, tmp_path: Path, kind: StorageClass = StorageClass.SORTED, **conf: Any):
        self.world = World(tmp_path, storage_class=kind, **conf)
        self.admin = AdminServer(self.world.service)
        done(self.world.service.start())
        self.world.connect()

    def send(self, *frames: bytes) -> None:
        self.world.connection.dataReceived(b"".join(frames))
        self.world.step()

    def rotate(self) -> None:
        """Let the first window end."""
        self.world.run_for(1)

    @property
    def page(self) -> str:
        return self.admin.metrics.text()

    @property
    def shapes(self) -> dict[str, Shape]:
        """Everything there is, with autorecovery beside the bookie."""
        return shapes(self.page + exposition(metrics_with_own_names.of_autorecovery(RepairStats())))

    def value(self, name: str, **labels: str) -> float:
        for family in text_string_to_metric_families(self.page):
            for sample in family.samples:
                wanted = {*labels.items()} <= {*sample.labels.items()}
                if sample.name in {name, f"{name}_total"} and wanted:
                    return sample.value
        raise AssertionError(f"no {name} {labels}")

    def count(self, name: str, *, ok: bool = True) -> float:
        return self.value(f"{name}_count", success=str(ok).lower())

    def close(self) -> None:
        done(self.admin.close())
        self.world.stop()


def add(entry_id: int, flags: AddFlag = AddFlag.NONE, key: bytes = KEY) -> bytes:
    entry = packet(7, entry_id, payload=b"x" * 90)
    return v2.encode_request(AddRequest(LedgerId(7), EntryId(entry_id), key, entry, flags))


def read(entry_id: int, flags: ReadFlag = ReadFlag.NONE) -> bytes:
    key = KEY if flags else None
    return v2.encode_request(ReadRequest(LedgerId(7), EntryId(entry_id), flags, key))


def seen_by_java(kind: StorageClass) -> dict[str, Any]:
    seen = java_seen()
    if kind is StorageClass.DB:
        return seen["sorted"] | seen["db"]
    return seen["sorted"]


@pytest.mark.parametrize("kind", KINDS)
def test_what_has_java_s_name_has_java_s_type_and_labels(
    tmp_path: Path, kind: StorageClass
) -> None:
    served = Served(tmp_path, kind)
    ours = served.shapes
    repairs = {n: s for n, s in java_seen()["db"].items() if n.startswith("replication_")}
    java = seen_by_java(kind) | repairs
    own = re.compile(r"bookied_|python_gc_")
    named = {name: shape for name, shape in ours.items() if not own.match(name)}
    assert named == {name: java.get(name) for name in named}
    served.close()


@pytest.mark.parametrize("kind", KINDS)
def test_what_java_has_is_there_or_the_documentation_says_why_not(
    tmp_path: Path, kind: StorageClass
) -> None:
    served = Served(tmp_path, kind)
    ours = served.shapes
    java = java_seen()["sorted"]
    if kind is StorageClass.DB:
        # Of Sorted's own figures none is expected there, nor those of its collector.
        java = {n: s for n, s in java.items() if n.startswith(("bookkeeper_", "bookie_journal"))}
        java |= java_seen()["db"]
    missing = [name for name in java if name not in ours and not is_excused(name)]
    assert missing == []
    served.close()


def test_what_operators_watch_is_there_or_the_documentation_says_why_not(tmp_path: Path) -> None:
    ours: set[str] = set()
    for kind in KINDS:
        served = Served(tmp_path / kind.value, kind)
        ours |= served.shapes.keys()
        served.close()
    text = (Path(__file__).parents[2] / "vectors/wanted-metrics.txt").read_text(encoding="utf-8")
    wanted = [line for line in text.splitlines() if not line.startswith("#")]
    assert [name for name in wanted if name not in ours and not is_excused(name)] == []


def test_nothing_is_excused_that_is_there(tmp_path: Path) -> None:
    served = Served(tmp_path)
    patterns = excused()
    assert len(patterns) > 30
    assert [name for name in served.shapes if is_excused(name)] == []
    served.close()


def test_adds_of_the_hot_path_and_others_are_counted_with_their_bytes(tmp_path: Path) -> None:
    served = Served(tmp_path)
    served.send(add(0))
    served.send(*(add(entry_id) for entry_id in range(1, 51)))
    served.send(add(51, AddFlag.RECOVERY), add(52, key=b"w" * 20))
    size_bytes = len(packet(7, 0, payload=b"x" * 90))
    for name in ("bookkeeper_server_ADD_ENTRY", "bookkeeper_server_ADD_ENTRY_REQUEST"):
        assert (served.count(name), served.count(name, ok=False)) == (52, 1)
    assert served.count("bookie_BOOKIE_RECOVERY_ADD_ENTRY") == 1
    assert served.count("bookie_journal_JOURNAL_ADD_ENTRY") == 53, "and the ledger's key"
    assert served.value("bookie_WRITE_BYTES") == 53 * size_bytes
    assert served.value("bookie_BOOKIE_ADD_ENTRY_BYTES_sum", success="true") == 53 * size_bytes
    assert served.value("bookied_packets_received_total") == 53
    assert served.value("bookied_packets_sent_total") == 53
    assert served.count("bookkeeper_server_CHANNEL_WRITE") == 53
    assert served.value("bookkeeper_server_ADD_ENTRY_IN_PROGRESS") == 0
    assert served.value("bookie_journal_JOURNAL_QUEUE_SIZE", journalIndex="0") == 0
    served.close()


def test_what_waits_for_the_journal_is_in_progress(tmp_path: Path) -> None:
    served = Served(tmp_path)
    served.world.connection.dataReceived(add(0) + add(1))
    assert served.value("bookkeeper_server_ADD_ENTRY_IN_PROGRESS") == 2
    assert served.value("bookie_journal_JOURNAL_QUEUE_SIZE") == 3, "and the ledger's key"
    assert served.value("bookie_journal_JOURNAL_MEMORY_USED") > 0
    assert served.value("bookied_memory_bytes", owner="requests in flight") > 0
    served.world.step()
    assert served.value("bookie_journal_JOURNAL_QUEUE_SIZE") == 0
    assert served.count("bookie_journal_JOURNAL_SYNC") >= 1
    served.close()


def test_reads_are_counted_whether_found_or_not(tmp_path: Path) -> None:
    served = Served(tmp_path)
    served.send(*(add(entry_id) for entry_id in range(3)))
    served.send(*(read(entry_id) for entry_id in range(3)), read(9), read(-1))
    served.send(read(0, ReadFlag.FENCE))
    assert served.count("bookkeeper_server_READ_ENTRY") == 4
    assert served.count("bookkeeper_server_READ_ENTRY", ok=False) == 1
    assert served.count("bookkeeper_server_READ_ENTRY_FENCE_REQUEST") == 1
    assert served.count("bookkeeper_server_READ_ENTRY_FENCE_WAIT") == 1
    size_bytes = len(packet(7, 0, payload=b"x" * 90))
    assert served.value("bookie_READ_BYTES") == 5 * size_bytes
    served.close()


def test_a_long_poll_counts_its_wait_and_one_that_need_not_wait_has_none(tmp_path: Path) -> None:
    served = Served(tmp_path)
    served.send(add(0), add(1))

    def poll(previous_lac: int) -> bytes:
        request = ReadRequest(LedgerId(7), EntryId(-1), previous_lac=previous_lac, timeout_ms=500)
        return v3.encode_request(request, txn_id=9)

    wait, whole = "READ_ENTRY_LONG_POLL_WAIT", "READ_ENTRY_LONG_POLL_REQUEST"
    served.send(poll(-1))
    assert served.count(f"bookkeeper_server_{wait}") == 0
    served.send(poll(5))
    assert served.value("bookied_long_polls_waiting") == 1
    served.world.run_for(1)
    assert served.count(f"bookkeeper_server_{wait}", ok=False) == 1
    assert served.count(f"bookkeeper_server_{whole}") == 2
    served.close()


def test_quantiles_are_of_the_last_window_or_of_the_first_that_runs(tmp_path: Path) -> None:
    served = Served(tmp_path)
    least = 'bookied_request_min_ms{operation="ADD_ENTRY"} '
    assert f"{least}NaN" in served.page
    served.send(add(0))
    assert f"{least}NaN" not in served.page
    served.rotate()
    assert served.value("bookkeeper_server_ADD_ENTRY", success="true", quantile="1.0") >= 0
    assert f"{least}NaN" not in served.page
    served.world.run_for(60)
    assert f"{least}NaN" in served.page
    served.close()


def test_a_read_only_bookie_shows_in_the_status(tmp_path: Path) -> None:
    served = Served(tmp_path)
    assert served.value("bookie_SERVER_STATUS") == 1
    served.world.service.disk_mode.mode.set_by_hand(read_only=True)  # type: ignore[union-attr]
    assert served.value("bookie_SERVER_STATUS") == 0
    served.close()


def test_a_reactor_that_is_held_up_shows_as_lag(tmp_path: Path) -> None:
    served = Served(tmp_path)
    served.world.run_for(5)
    lag = "bookied_event_loop_lag_ms"
    in_time = served.value(f"{lag}_sum", success="true") / served.count(lag)
    assert in_time < 250, "the half second between two looks is none"
    served.world.clock.advance(3)  # As if one turn had taken so long.
    assert served.value(f"{lag}_sum", success="true") >= 2000
    served.close()


def test_garbage_collection_shows_what_it_did(tmp_path: Path) -> None:
    served = Served(tmp_path)
    collecting = served.world.service.background.collect_garbage()
    served.world.run_for(2)
    assert collecting is not None
    assert collecting.called
    assert served.count("bookie_gc_THREAD_RUNTIME") == 1
    assert served.count("bookie_gc_COMPACT_RUNTIME") == 1
    assert served.value("bookie_gc_MAJOR_COMPACTION_TOTAL") == 1
    served.close()
