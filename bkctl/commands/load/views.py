"""What the fields of the values are that tell the load of bookies."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, Final

from bkctl.commands.load.looks import BookieLoad, ClusterLoad, SlowBookie
from bkctl.commands.load.plot import PlotPoint
from bkctl.commands.load.screen import line
from bkctl.output.emit import Field, Kind, View
from bkctl.output.units import human_ms

_BOOKIE: Final = Field("bookie_id", "The bookie.", lambda v: v.bookie_id, header="BOOKIE")
_TIME: Final = Field("time", "When it was looked at.", lambda v: v.time_ms, Kind.TIME_MS)

_OF_RATES: Final = ("adds_s", "reads_s", "failures_s", "added_bytes_s", "read_bytes_s")
_OF_FIGURES: Final = ("add_p50_ms", "add_p99_ms", "read_p50_ms", "read_p99_ms", "sync_p99_ms")


def _rounded(value: float | None) -> float | None:
    return None if value is None else round(value, 3)


def _bookie(one: BookieLoad) -> dict[str, Any]:
    return {
        "bookie_id": one.bookie_id,
        "state": one.state,
        **{name: _rounded(getattr(one.rates, name)) for name in _OF_RATES},
        **{name: _rounded(getattr(one.figures, name)) for name in _OF_FIGURES},
        "journal_queue": one.figures.journal_queue,
        "disk_used": _rounded(one.disk_used),
        "error": one.error or None,
    }


def _sum(name: str, doc: str) -> Field:
    def get(load: ClusterLoad) -> float | None:
        return _rounded(load.total(lambda one: getattr(one.rates, name)))

    return Field(name, doc, get, Kind.NUMBER)


def _worst(name: str, doc: str, get: Callable[[BookieLoad], float | None]) -> Field:
    return Field(name, doc, lambda load: _rounded(load.worst(get)), Kind.NUMBER)


_LOAD: Final = (
    _TIME,
    Field("over_s", "Seconds that the rates are over.", lambda v: v.over_s, Kind.SECONDS),
    Field("instance_id", "The cluster's id.", lambda v: v.instance_id),
    Field("writable", "Bookies that take adds.", lambda v: v.in_state("writable"), Kind.COUNT),
    Field(
        "read_only", "Bookies that only serve reads.", lambda v: v.in_state("read-only"), Kind.COUNT
    ),
    Field("down", "Bookies that are not there.", lambda v: v.in_state("down"), Kind.COUNT),
    _sum("adds_s", "Adds a second, of all bookies."),
    _sum("reads_s", "Reads a second, of all bookies."),
    _sum("failures_s", "Adds and reads a second that failed."),
    _sum("added_bytes_s", "Bytes added a second."),
    _sum("read_bytes_s", "Bytes read a second."),
    _worst("add_p50_ms", "The worst median of an add, in ms.", lambda b: b.figures.add_p50_ms),
    _worst("add_p99_ms", "The worst 99th of 100 adds, in ms.", lambda b: b.figures.add_p99_ms),
    _worst("read_p50_ms", "The worst median of a read, in ms.", lambda b: b.figures.read_p50_ms),
    _worst("read_p99_ms", "The worst 99th of 100 reads, in ms.", lambda b: b.figures.read_p99_ms),
    Field(
        "journal_queue",
        "Entries that wait for journals.",
        lambda v: v.total(lambda b: b.figures.journal_queue),
        Kind.COUNT,
    ),
    _worst("disk_used", "Per cent in use of the fullest disk.", lambda b: b.disk_used),
    Field(
        "underreplicated",
        "Ledgers marked as lacking replicas.",
        lambda v: v.underreplicated,
        Kind.COUNT,
    ),
    Field(
        "bookies",
        "The same of each bookie.",
        lambda v: [_bookie(one) for one in v.bookies],
        Kind.NESTED,
    ),
)

TOP_VIEWS: Final[Mapping[type, View]] = {
    ClusterLoad: View("loads", _LOAD, "time", sentence=line),
    SlowBookie: View(
        "outliers",
        (
            _BOOKIE,
            Field("metric", "What is slow.", lambda v: v.metric),
            Field(
                "value_ms",
                "Its latency, in ms.",
                lambda v: _rounded(v.value_ms),
                Kind.NUMBER,
                header="LATENCY",
                cell=lambda v: human_ms(v.value_ms),
            ),
            Field(
                "median_ms",
                "The median of all bookies, in ms.",
                lambda v: _rounded(v.median_ms),
                Kind.NUMBER,
                header="MEDIAN",
                cell=lambda v: human_ms(v.median_ms),
            ),
            Field(
                "times",
                "So many times the median.",
                lambda v: _rounded(v.times),
                Kind.NUMBER,
                cell=lambda v: f"{v.times:.1f}x",
            ),
        ),
        "bookie_id",
    ),
    PlotPoint: View(
        "points",
        (
            _TIME,
            _BOOKIE,
            Field("metric", "What it is.", lambda v: v.metric),
            Field("value", "Its value, or its rate a second.", lambda v: _rounded(v.value),
                  Kind.NUMBER),
        ),
        "time",
    ),
}  # fmt: skip
