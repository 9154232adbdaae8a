"""Columns of what `cluster test` prints."""

from __future__ import annotations

from bkclient.admin.cluster_test import Trial
from bkctl.output.units import counted, human_bytes, human_latency
from bkctl.output.views import LEDGER, Column, Kind, column, show


def _trial(v: Trial) -> str:
    adds = v.entries / v.add_s if v.add_s else 0.0
    steps = (
        ("create", v.create_s),
        ("add", v.add_s),
        ("read open", v.read_open_s),
        ("close", v.close_s),
        ("read closed", v.read_s),
        ("delete", v.delete_s),
    )
    times = ", ".join(f"{name} {human_latency(took)}" for name, took in steps if took is not None)
    kept = f"; ledger {v.ledger_id} was kept" if v.delete_s is None else ""
    return (
        f"the cluster works: {counted(v.entries, 'entry')} of {human_bytes(v.entry_bytes)} on"
        f" {counted(len(v.ensemble), 'bookie')} ({times}; {adds:.0f} adds/s){kept}"
    )


def _took(name: str, doc: str) -> Column:
    title = name.upper().replace("_", " ")
    return column(f"{name}_s", doc, kind=Kind.SECONDS, header=title)


show(
    Trial,
    "tests",
    LEDGER,
    column("ensemble", "Its bookies."),
    column("write_quorum", "Copies of each entry."),
    column("ack_quorum", "Copies before an add counts."),
    column("entries", "How many entries."),
    column("entry_bytes", "Bytes of each entry.", kind=Kind.BYTES),
    _took("create", "Seconds to create the ledger."),
    _took("add", "Seconds until all were confirmed."),
    _took("read_open", "Seconds to read them while it was open."),
    _took("close", "Seconds to close it."),
    _took("read", "Seconds to read them then."),
    _took("delete", "Seconds to delete it, unless it was kept."),
    sentence=_trial,
)
