"""How ``bkctl config`` shows values of the library."""

from __future__ import annotations

from bkclient.config.findings import SettingFinding
from bkctl.output.views import WIDE, Kind, column, show

show(
    SettingFinding,
    "findings",
    column("severity", "error, warning or note.", "severity.value", Kind.STATE),
    column("key", "The key."),
    column("kind", "A stable word for what is odd.", "kind.value", rank=WIDE),
    column("message", "What is odd."),
    column(
        "origin",
        "The file and its line.",
        lambda v: None if v.origin is None else str(v.origin),
        rank=2,
    ),
    column("allowed", "What the value may be.", lambda v: v.allowed or None, rank=WIDE),
    id="key",
    sentence=lambda v: f"{v.severity.value}: {v}",
)
