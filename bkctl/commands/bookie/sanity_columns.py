"""Columns of the outcome of a bookie's sanity test."""

from __future__ import annotations

from bkclient.admin.bookie_test import Sanity
from bkctl.output.units import counted, human_duration
from bkctl.output.views import BOOKIE, LEDGER, Kind, column, show


def _sanity(v: Sanity) -> str:
    return (
        f"bookie {v.bookie_id} is sane: {counted(v.entries, 'entry')} written in "
        f"{human_duration(v.write_s)}, read in {human_duration(v.read_s)}"
    )


show(
    Sanity,
    "tests",
    BOOKIE,
    LEDGER,
    column("entries", "How many entries."),
    column("write_s", "Seconds to write them.", kind=Kind.SECONDS),
    column("read_s", "Seconds to read them.", kind=Kind.SECONDS),
    sentence=_sanity,
)
