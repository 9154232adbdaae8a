"""What the fields of the values of `ledger verify`, `orphans` and `metadata` are."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

import attrs

from bkclient.repair.verify import BadCopies, Verified
from bkctl.commands.ledger.metadata import MetadataDumped, MetadataRestored
from bkctl.commands.ledger.replicas.check import Orphan
from bkctl.commands.ledger.views import LEDGER_VIEWS, LedgerSummary
from bkctl.output.emit import Field, Kind, View
from bkctl.output.units import counted, human_bytes

_ID: Final = Field(
    "ledger_id", "The ledger.", lambda v: v.ledger_id, Kind.LEDGER_ID, header="LEDGER"
)

_RANGES_MAX: Final = 6
"""Ranges of entries that a sentence names."""


def _ranges(bad: BadCopies) -> list[str]:
    return [f"{first}" if first == last else f"{first}-{last}" for first, last in bad.entries]


def _bad(bad: BadCopies) -> dict[str, Any]:
    return {
        "bookie_id": bad.bookie_id,
        "flaw": bad.flaw.value,
        "count": bad.count,
        "entries": _ranges(bad),
        "why": bad.why,
    }


def _bad_sentence(bad: BadCopies) -> str:
    ranges = _ranges(bad)
    more = len(ranges) - _RANGES_MAX
    named = ", ".join(ranges[:_RANGES_MAX]) + (f" and {more} more ranges" if more > 0 else "")
    word = "entry" if bad.count == 1 else "entries"
    return f"  {bad.bookie_id}  {bad.flaw.value} {bad.count}: {word} {named}"


def _verified(v: Verified) -> str:
    read = f"{counted(v.entries, 'entry')}, {counted(v.copies, 'copy')}, {human_bytes(v.size)}"
    state = "" if v.metadata.is_closed else f" ({v.metadata.state.name.lower().replace('_', '-')})"
    lines = [f"ledger {v.ledger_id}{state}: {read}: {'all' if v.sound else 'not all'} sound"]
    lines += map(_bad_sentence, v.bad)
    if not v.end_known:
        lines.append("  where it ends is not known: too few bookies of its last fragment answer")
    if not v.digests_checked:
        lines.append("  digests were not checked: the metadata has no password")
    return "\n".join(lines)


def _restored(v: MetadataRestored) -> str:
    if v.how == "unchanged":
        return f"ledger {v.ledger_id}: nothing to change, it has this metadata"
    kept = f"; the old metadata is in {v.backup}" if v.backup else ""
    return f"metadata of ledger {v.ledger_id} {v.how}, version {v.version}{kept}"


def _of_summary(name: str, **changes: Any) -> Field:
    """Return a field of ``ledger list``."""
    field = LEDGER_VIEWS[LedgerSummary][name]
    return attrs.evolve(field, **changes)


LEDGER_CHECK_VIEWS: Final[Mapping[type, View]] = {
    Verified: View(
        "ledgers",
        (
            _ID,
            Field("sound", "Whether every copy is there and right.", lambda v: v.sound, Kind.FLAG),
            Field("entries", "Entries looked at.", lambda v: v.entries, Kind.COUNT),
            Field("copies", "Copies that there should be.", lambda v: v.copies, Kind.COUNT),
            Field("size", "Bytes of payload read.", lambda v: v.size, Kind.BYTES),
            Field(
                "bad",
                "Copies that are missing, damaged, differing or unreadable, by bookie.",
                lambda v: [_bad(one) for one in v.bad],
                Kind.NESTED,
                cell=lambda v: "\n".join(_bad_sentence(one).strip() for one in v.bad) or "-",
            ),
            Field("end_known", "Whether its end is known.", lambda v: v.end_known, Kind.FLAG),
            Field(
                "digests_checked",
                "Whether digests could be checked.",
                lambda v: v.digests_checked,
                Kind.FLAG,
            ),
        ),
        "ledger_id",
        sentence=_verified,
    ),
    Orphan: View(
        "orphans",
        (
            _ID,
            _of_summary("state"),
            _of_summary("last_entry"),
            _of_summary("length"),
            _of_summary("created"),
            Field("owner", "What it says of its owner.", lambda v: v.owner or None),
        ),
        "ledger_id",
    ),
    MetadataDumped: View(
        "dumps",
        (
            _ID,
            Field("file", "Where it is.", lambda v: v.file),
            Field("size", "Its bytes.", lambda v: v.size, Kind.BYTES),
            Field("version", "The version of the metadata.", lambda v: v.version, Kind.COUNT),
        ),
        "file",
        sentence=lambda v: f"metadata of ledger {v.ledger_id}, version {v.version}, in {v.file}",
    ),
    MetadataRestored: View(
        "ledgers",
        (
            _ID,
            Field("how", "created, replaced or unchanged.", lambda v: v.how),
            Field("version", "The version of the metadata now.", lambda v: v.version, Kind.COUNT),
            Field("backup", "Where the old metadata is.", lambda v: v.backup, optional=True),
        ),
        "ledger_id",
        sentence=_restored,
    ),
}
