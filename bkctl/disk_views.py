"""What the fields of the values of ``bkctl disk`` are; ``views`` has those of a cluster."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from bkctl.disk_dirs import DirectoryState
from bkctl.emit import Field, Kind, View

DISK_VIEWS: Final[Mapping[type, View]] = {
    DirectoryState: View(
        "directories",
        (
            Field("directory", "The root, as the settings name it.", lambda v: str(v.use.root)),
            Field("state", "in use, free or missing.", lambda v: v.state, Kind.STATE),
            Field("holds", "journal, ledger, index.", lambda v: list(v.holds), Kind.NESTED, rank=2),
            Field("locked", "A bookied holds its lock.", lambda v: v.use.is_locked, Kind.FLAG),
            Field(
                "dirty",
                "DIRTY is there: a bookie runs, or was killed.",
                lambda v: v.use.is_dirty,
                Kind.FLAG,
            ),
            Field(
                "workers",
                "Processes that write there, as far as they can be seen.",
                lambda v: [{"pid": w.pid, "program": w.program} for w in v.use.workers],
                Kind.NESTED,
                rank=1,
                header="USED BY",
                cell=lambda v: ", ".join(map(str, v.use.workers)) or "-",
            ),
        ),
        "directory",
    ),
}
