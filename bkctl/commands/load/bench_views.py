"""What the fields of a measurement are."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from bkctl.commands.load.bench import Measured
from bkctl.output.emit import Field, Kind, View
from bkctl.output.units import human_bytes


def _latency(name: str, doc: str) -> Field:
    return Field(
        name, f"{doc}, in seconds.", lambda v: getattr(v, name), Kind.SECONDS,
        cell=lambda v: f"{getattr(v, name) * 1000:.3f} ms",
    )  # fmt: skip


BENCH_VIEWS: Final[Mapping[type, View]] = {
    Measured: View(
        "measurements",
        (
            Field("what", "What was measured.", lambda v: v.what),
            Field("ledger_id", "The ledger, where it is still there.", lambda v: v.ledger_id,
                  Kind.LEDGER_ID, header="LEDGER", optional=True),
            Field("entries", "Entries that count.", lambda v: v.entries, Kind.COUNT),
            Field("size", "Their bytes of payload.", lambda v: v.size, Kind.BYTES),
            Field("seconds", "How long they took.", lambda v: v.seconds, Kind.SECONDS),
            Field("entries_per_s", "Entries a second.", lambda v: round(v.entries_per_s),
                  Kind.COUNT, header="ENTRIES/S", cell=lambda v: f"{v.entries_per_s:,.0f}"),
            Field("bytes_per_s", "Bytes a second.", lambda v: round(v.bytes_per_s), Kind.BYTES,
                  header="BYTES/S", cell=lambda v: f"{human_bytes(round(v.bytes_per_s))}/s"),
            Field("requests", "Requests that were timed.", lambda v: v.requests, Kind.COUNT),
            _latency("mean", "The mean latency"),
            _latency("p50", "What half of them did not exceed"),
            _latency("p90", "What 90 % did not exceed"),
            _latency("p99", "What 99 % did not exceed"),
            _latency("p999", "What 99.9 % did not exceed"),
            _latency("worst", "The longest"),
        ),
        "what",
    ),
}  # fmt: skip
