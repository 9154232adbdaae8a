"""What the fields of the values of `bookie recover` and `bookie decommission` are."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

from bkclient.repair.decommission import DecommissionReport
from bkclient.repair.recover_bookies import (
    BookieLedger,
    FragmentMove,
    LedgerMove,
    LedgerOutcome,
    RecoverReport,
)
from bkctl.commands.ledger.views import STATE_WORDS
from bkctl.output.emit import Field, Kind, View
from bkctl.output.units import counted, human_bytes

_LEDGER: Final = Field(
    "ledger_id", "The ledger.", lambda v: v.ledger_id, Kind.LEDGER_ID, header="LEDGER"
)


def _fragment(move: FragmentMove) -> dict[str, Any]:
    new = None if move.new is None else list(move.new)
    return {
        "first": move.first,
        "last": move.last,
        "old": list(move.old),
        "new": new,
        "copies": move.copies,
        "lost": move.is_lost,
    }


def _move_lines(v: LedgerMove) -> str:
    return "\n".join(
        f"{move.first}-{move.last}: {_swaps(move)}" if move.last >= move.first else _swaps(move)
        for move in v.fragments
    )


def _swaps(move: FragmentMove) -> str:
    if move.is_lost:
        return f"{' '.join(move.old)}: nobody who is there has some of it"
    if move.new is None:
        return f"{' '.join(move.old)}: nobody can take over"
    pairs = zip(move.old, move.new, strict=True)
    return ", ".join(f"{old} -> {new}" for old, new in pairs if old != new)


def _move(v: LedgerMove) -> str:
    fenced = ", after its writer is fenced" if v.fenced else ""
    if v.outcome is not LedgerOutcome.PLANNED:
        why = f": {v.error}" if v.error is not None else ""
        return f"ledger {v.ledger_id}: {v.outcome.value}{why}"
    lines = _move_lines(v).replace("\n", "\n  ")
    return f"would move ledger {v.ledger_id}{fenced}\n  {lines}"


def _recovered(v: RecoverReport) -> str:
    cookies = f"; cookies removed: {', '.join(v.cookies_deleted)}" if v.cookies_deleted else ""
    left = f"; {counted(len(v.left), 'ledger')} left" if v.left else ""
    return (
        f"moved {counted(v.moved, 'ledger')}: {v.copied_entries} copies of entries, "
        f"{human_bytes(v.copied_bytes)}{left}{cookies}"
    )


def _decommissioned(v: DecommissionReport) -> str:
    cookie = "its cookie is removed" if v.cookie_deleted else "no cookie was removed"
    return f"bookie {v.bookie_id} is out: {counted(v.ledgers, 'ledger')} moved, {cookie}"


RETIRE_VIEWS: Final[Mapping[type, View]] = {
    BookieLedger: View(
        "ledgers",
        (
            _LEDGER,
            Field(
                "state",
                "open, in-recovery or closed.",
                lambda v: STATE_WORDS[v.metadata.state.name],
                Kind.STATE,
            ),
            Field(
                "fragments",
                "First entries of the fragments that list one.",
                lambda v: list(v.fragments),
                Kind.NESTED,
            ),
        ),
        "ledger_id",
        done=lambda _: False,
    ),
    LedgerMove: View(
        "ledgers",
        (
            _LEDGER,
            Field("outcome", "What became of it, or would.", lambda v: v.outcome.value),
            Field("fenced", "Whether its writer is fenced for it.", lambda v: v.fenced, Kind.FLAG),
            Field("copies", "Copies of entries to make.", lambda v: v.copies, Kind.COUNT),
            Field("size", "Bytes of them, about; none: unknown.", lambda v: v.size_bytes,
                  Kind.BYTES),
            Field("unrecoverable", "Whether some of it cannot be moved.",
                  lambda v: v.is_unrecoverable, Kind.FLAG),
            Field(
                "fragments",
                "Each fragment's ensemble before and after; none: nobody can take over.",
                lambda v: [_fragment(move) for move in v.fragments],
                Kind.NESTED,
                cell=_move_lines,
            ),
            Field("error", "Why not.", lambda v: None if v.error is None else str(v.error)),
        ),
        "ledger_id",
        sentence=_move,
    ),
    RecoverReport: View(
        "recoveries",
        (
            Field("moved", "Ledgers moved.", lambda v: v.moved, Kind.COUNT),
            Field("copies", "Copies of entries made.", lambda v: v.copied_entries, Kind.COUNT),
            Field("size", "Bytes copied.", lambda v: v.copied_bytes, Kind.BYTES),
            Field(
                "left",
                "Ledgers that were not moved.",
                lambda v: [
                    {"ledger_id": str(one.ledger_id), "outcome": one.outcome.value,
                     "error": None if one.error is None else str(one.error)}
                    for one in v.left
                ],
                Kind.NESTED,
            ),
            Field(
                "cookies_deleted", "Whose cookies are gone.", lambda v: list(v.cookies_deleted),
                Kind.NESTED,
            ),
        ),
        "moved",
        sentence=_recovered,
    ),
    DecommissionReport: View(
        "decommissions",
        (
            Field("bookie_id", "The bookie.", lambda v: v.bookie_id, header="BOOKIE"),
            Field("ledgers", "Ledgers it had.", lambda v: v.ledgers, Kind.COUNT),
            Field("cookie_deleted", "Whether one is gone.", lambda v: v.cookie_deleted, Kind.FLAG),
        ),
        "bookie_id",
        sentence=_decommissioned,
    ),
}  # fmt: skip
