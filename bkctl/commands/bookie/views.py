"""What the fields of the values of the commands are that ask a bookie over HTTP."""

from __future__ import annotations

from typing import Any, Final

from bkctl.bookies.admin_api import (
    BookieSetting,
    Compactions,
    GarbageAsked,
    GarbageRun,
    JmxSample,
    MetricSample,
    Mode,
    Ready,
    RunningBookie,
)
from bkctl.commands.bookie.admin_settings import ChangedSetting
from bkctl.output.emit import WIDE, Field, Kind, View

_BOOKIE: Final = Field("bookie_id", "The bookie.", lambda v: v.bookie_id, header="BOOKIE")
_READ_ONLY: Final = Field(
    "read_only", "Whether it takes no adds.", lambda v: v.read_only, Kind.FLAG
)


def _compactions(v: Compactions) -> str:
    words = {True: "suspended", False: "allowed"}
    return (
        f"bookie {v.bookie_id}: minor compaction {words[v.minor_suspended]}, "
        f"major compaction {words[v.major_suspended]}"
    )


def _labels(v: Any) -> str:
    return ",".join(f"{name}={value}" for name, value in v.labels.items()) or "-"


def _sample_fields(prefix: str = "") -> tuple[Field, ...]:
    def of(v: Any) -> MetricSample:
        found: MetricSample = v.sample if prefix else v
        return found

    return (
        Field("name", "The metric.", lambda v: of(v).name, header="METRIC"),
        Field(
            "labels",
            "Its labels.",
            lambda v: dict(of(v).labels),
            Kind.NESTED,
            cell=lambda v: _labels(of(v)),
        ),
        Field("value", "Its value.", lambda v: _value(of(v).value)),
    )


def _value(value: float) -> str:
    return repr(int(value)) if value == value // 1 else repr(value)


BOOKIE_HTTP_VIEWS: Final[dict[type, View]] = {
    RunningBookie: View(
        "bookies",
        (
            _BOOKIE,
            Field(
                "state",
                "starting, writable, read-only or stopping.",
                lambda v: v.state,
                Kind.STATE,
            ),
            _READ_ONLY,
            Field(
                "read_only_by_hand",
                "Whether an operator made it so.",
                lambda v: v.read_only_by_hand,
                Kind.FLAG,
            ),
            Field(
                "takes_recovery_adds",
                "Whether it takes the adds of recovery and repair.",
                lambda v: v.takes_recovery_adds,
                Kind.FLAG,
            ),
            Field("registered", "Whether clients find it.", lambda v: v.registered, Kind.FLAG),
            Field("uptime", "Since its start.", lambda v: v.uptime_s, Kind.SECONDS),
        ),
        "bookie_id",
        healthy=lambda v: v.registered is not False and not v.read_only,
    ),
    Mode: View(
        "modes",
        (_BOOKIE, _READ_ONLY),
        "bookie_id",
        sentence=lambda v: f"bookie {v.bookie_id} is {'read-only' if v.read_only else 'writable'}",
    ),
    GarbageAsked: View(
        "collections",
        (_BOOKIE,),
        "bookie_id",
        sentence=lambda v: f"bookie {v.bookie_id} collects garbage now",
    ),
    GarbageRun: View(
        "collectors",
        (
            Field("number", "One for each storage.", lambda v: v.number, Kind.COUNT, header="NO"),
            Field("running", "Whether it is at work.", lambda v: v.running, Kind.FLAG),
            Field("compacting", "major or minor, if it compacts.", lambda v: v.compacting),
            Field("rounds", "Rounds so far.", lambda v: v.rounds, Kind.COUNT, rank=2),
            Field(
                "minor_compactions", "So far.", lambda v: v.minor_compactions, Kind.COUNT, rank=3
            ),
            Field(
                "major_compactions", "So far.", lambda v: v.major_compactions, Kind.COUNT, rank=3
            ),
            Field(
                "last_minor",
                "When one ended; a Java bookie's start, if none has.",
                lambda v: v.last_minor_ms,
                Kind.TIME_MS,
                rank=WIDE,
            ),
            Field("last_major", "Likewise.", lambda v: v.last_major_ms, Kind.TIME_MS, rank=WIDE),
            Field("ledgers", "Ledgers there are.", lambda v: v.ledgers, Kind.COUNT, rank=4),
            Field("logs", "Finished entry logs.", lambda v: v.logs, Kind.COUNT, rank=4),
            Field("total", "Their bytes.", lambda v: v.total_bytes, Kind.BYTES, rank=1),
            Field("live", "Those still needed.", lambda v: v.live_bytes, Kind.BYTES, rank=1),
            Field("freed", "What it brought so far.", lambda v: v.freed_bytes, Kind.BYTES, rank=2),
            Field("last_error", "What ended the last round early.", lambda v: v.last_error, rank=5),
        ),
        "number",
        done=lambda v: not v.running,
    ),
    Compactions: View(
        "compactions",
        (
            _BOOKIE,
            Field("minor_suspended", "By an operator.", lambda v: v.minor_suspended, Kind.FLAG),
            Field("major_suspended", "By an operator.", lambda v: v.major_suspended, Kind.FLAG),
        ),
        "bookie_id",
        sentence=_compactions,
    ),
    BookieSetting: View(
        "settings",
        (
            Field("key", "The setting.", lambda v: v.key),
            Field("value", "Its value; secrets are masked.", lambda v: v.value),
        ),
        "key",
    ),
    ChangedSetting: View(
        "changes",
        (
            Field("key", "The setting.", lambda v: v.key),
            Field("was", "What it was, if it was set; secrets are masked.", lambda v: v.was),
            Field("value", "What it is; secrets are masked.", lambda v: v.value),
        ),
        "key",
    ),
    MetricSample: View("metrics", _sample_fields(), "name"),
    JmxSample: View(
        "attributes",
        (
            Field("attribute", "MBean and attribute.", lambda v: v.attribute, header="ATTRIBUTE"),
            *_sample_fields("sample"),
        ),
        "attribute",
    ),
    Ready: View(
        "bookies", (_BOOKIE,), "bookie_id", sentence=lambda v: f"bookie {v.bookie_id} is ready"
    ),
}
