"""What the fields of the values are that come of looking at a whole cluster."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from bkclient.admin.cluster_test import Trial
from bkctl.commands.cluster.map import ClusterMap
from bkctl.commands.cluster.status import ClusterStatus, Pong
from bkctl.output.emit import WIDE, Field, Kind, View
from bkctl.output.units import counted, free_of, human_bytes, human_duration, human_ms


def _ms(seconds: float | None) -> str:
    return human_ms(None if seconds is None else seconds * 1000)


def _counts(found: Mapping[str, int]) -> str:
    return "\n".join(f"{name}: {count}" for name, count in found.items()) or "-"


_STATUS: Final = (
    Field("uri", "The metadata service.", lambda v: v.uri),
    Field("instance_id", "The cluster's id.", lambda v: v.instance_id),
    Field("layout", "Layout of the metadata.", lambda v: v.layout),
    Field("writable", "Bookies that take adds.", lambda v: v.writable, Kind.COUNT),
    Field("read_only", "Bookies that only serve reads.", lambda v: v.read_only, Kind.COUNT),
    Field("down", "Bookies with a cookie that are not there.", lambda v: v.down, Kind.COUNT),
    Field(
        "versions",
        "How many bookies run what, of those that tell.",
        lambda v: dict(v.versions),
        Kind.NESTED,
        cell=lambda v: _counts(v.versions),
    ),
    Field("free", "Free bytes on all disks, shared ones once.", lambda v: v.free, Kind.BYTES),
    Field("total", "Bytes of all disks, shared ones once.", lambda v: v.total, Kind.BYTES),
    Field(
        "racks",
        "How many registered bookies are in each rack.",
        lambda v: dict(v.racks),
        Kind.NESTED,
        cell=lambda v: _counts(v.racks),
    ),
    Field(
        "ensemble_size",
        "The ensemble that must find enough bookies.",
        lambda v: v.ensemble_size,
        Kind.COUNT,
    ),
    Field(
        "headroom",
        "Writable bookies that may go before an ensemble cannot be made.",
        lambda v: v.headroom,
        Kind.COUNT,
    ),
    Field(
        "autorecovery",
        "Whether it is switched on.",
        lambda v: v.autorecovery.enabled,
        Kind.FLAG,
    ),
    Field("auditor", "Who is the auditor.", lambda v: v.autorecovery.auditor),
    Field(
        "delay_s",
        "Seconds that a lost bookie may stay away.",
        lambda v: v.autorecovery.delay_s,
        Kind.COUNT,
        header="DELAY",
        cell=lambda v: human_duration(v.autorecovery.delay_s or 0),
    ),
    Field(
        "underreplicated",
        "Ledgers marked as lacking replicas.",
        lambda v: v.autorecovery.marked,
        Kind.COUNT,
    ),
    Field(
        "being_mended",
        "Of these, with a worker.",
        lambda v: v.autorecovery.being_mended,
        Kind.COUNT,
    ),
    Field("ledgers", "Ledgers, if counted.", lambda v: v.ledgers, Kind.COUNT),
    Field("not_closed", "Of these, not closed.", lambda v: v.not_closed, Kind.COUNT),
    Field(
        "problems",
        "What is not as it should be.",
        lambda v: list(v.problems),
        Kind.NESTED,
        cell=lambda v: "\n".join(v.problems) or "none",
    ),
)

_PONG: Final = (
    Field("peer", "Who was asked: metadata, or a bookie.", lambda v: v.peer),
    Field("kind", "metadata or bookie.", lambda v: v.kind, rank=WIDE),
    Field("state", "What metadata says.", lambda v: v.state, Kind.STATE),
    Field("address", "Where it listens.", lambda v: v.address, rank=2),
    Field(
        "connect_s",
        "Seconds to connect, handshake included.",
        lambda v: v.connect_s,
        Kind.SECONDS,
        header="CONNECT",
        cell=lambda v: _ms(v.connect_s),
    ),
    Field(
        "answer_s",
        "Seconds to the answer.",
        lambda v: v.answer_s,
        Kind.SECONDS,
        header="ANSWER",
        cell=lambda v: _ms(v.answer_s),
    ),
    Field("error", "Why it does not answer.", lambda v: v.error or None),
)


def _trial(v: Trial) -> str:
    adds = v.entries / v.add_s if v.add_s else 0.0
    steps = (
        ("create", v.create_s), ("add", v.add_s), ("read open", v.read_open_s),
        ("close", v.close_s), ("read closed", v.read_s), ("delete", v.delete_s),
    )  # fmt: skip
    times = ", ".join(f"{name} {_ms(took)}" for name, took in steps if took is not None)
    kept = f"; ledger {v.ledger_id} was kept" if v.delete_s is None else ""
    return (
        f"the cluster works: {counted(v.entries, 'entry')} of {human_bytes(v.entry_bytes)} on"
        f" {counted(len(v.ensemble), 'bookie')} ({times}; {adds:.0f} adds/s){kept}"
    )


def _took(name: str, doc: str) -> Field:
    return Field(f"{name}_s", doc, lambda v: getattr(v, f"{name}_s"), Kind.SECONDS)


_TRIAL: Final = (
    Field("ledger_id", "The ledger.", lambda v: v.ledger_id, Kind.LEDGER_ID, header="LEDGER"),
    Field("ensemble", "Its bookies.", lambda v: list(v.ensemble), Kind.NESTED),
    Field("write_quorum", "Copies of each entry.", lambda v: v.write_quorum, Kind.COUNT),
    Field("ack_quorum", "Copies before an add counts.", lambda v: v.ack_quorum, Kind.COUNT),
    Field("entries", "How many entries.", lambda v: v.entries, Kind.COUNT),
    Field("entry_bytes", "Bytes of each.", lambda v: v.entry_bytes, Kind.BYTES),
    _took("create", "Seconds to create the ledger."),
    _took("add", "Seconds until all were confirmed."),
    _took("read_open", "Seconds to read them while it was open."),
    _took("close", "Seconds to close it."),
    _took("read", "Seconds to read them then."),
    _took("delete", "Seconds to delete it, unless it was kept."),
)

_MAP: Final = (
    Field("instance_id", "The cluster's id.", lambda v: v.instance_id),
    Field(
        "racks",
        "The racks, and the bookies in each.",
        lambda v: [rack.machine() for rack in v.racks],
        Kind.NESTED,
        cell=lambda v: "\n".join(
            f"{rack.name or '-'}: {' '.join(one.bookie_id for one in rack.bookies)}"
            for rack in v.racks
        ),
    ),
    Field("free", "Free bytes on all disks, shared ones once.", lambda v: v.free, Kind.BYTES),
    Field(
        "total",
        "Bytes of all disks, shared ones once.",
        lambda v: v.total,
        Kind.BYTES,
        cell=lambda v: free_of(v.free, v.total) or "-",
    ),
)

CLUSTER_VIEWS: Final[Mapping[type, View]] = {
    ClusterStatus: View("clusters", _STATUS, "instance_id"),
    Pong: View("peers", _PONG, "peer"),
    Trial: View("tests", _TRIAL, "ledger_id", sentence=_trial),
    ClusterMap: View("clusters", _MAP, "instance_id"),
}
