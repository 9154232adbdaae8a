"""The columns of `bookie recover` and `bookie decommission`."""

from __future__ import annotations

from typing import Any

from bkclient.replication.decommission import DecommissionReport, DecommissionStatus
from bkclient.replication.recover_bookies import (
    BookieLedger,
    FragmentMove,
    LedgerMove,
    LedgerOutcome,
    RecoverReport,
)
from bkctl.commands.autorecovery.columns import BEING_REPAIRED
from bkctl.output.units import counted, human_bytes
from bkctl.output.views import BOOKIE, LEDGER, Column, Kind, declare_view


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
        return f"{' '.join(move.old)}: no running bookie has some of its entries"
    if move.new is None:
        return f"{' '.join(move.old)}: no other bookie can take over"
    pairs = zip(move.old, move.new, strict=True)
    return ", ".join(f"{old} -> {new}" for old, new in pairs if old != new)


def _move(v: LedgerMove) -> str:
    fenced = ", after its writer is fenced" if v.fenced else ""
    if v.outcome is not LedgerOutcome.PLANNED:
        why = f": {v.error}" if v.error is not None else ""
        return f"ledger {v.ledger_id}: {v.outcome.value}{why}"
    lines = _move_lines(v).replace("\n", "\n  ")
    can = (
        "would" if any(one.new is not None and not one.is_lost for one in v.fragments) else "cannot"
    )
    return f"{can} move ledger {v.ledger_id}{fenced}\n  {lines}"


def _recovered(v: RecoverReport) -> str:
    cookies = f"; cookies removed: {', '.join(v.cookies_deleted)}" if v.cookies_deleted else ""
    left = f"; {counted(len(v.left), 'ledger')} left" if v.left else ""
    if not v.moved and not v.left:
        return f"no ledger was left to move{cookies}"
    return (
        f"moved {counted(v.moved, 'ledger')}: {v.copied_entries} copies of entries, "
        f"{human_bytes(v.copied_bytes)}{left}{cookies}"
    )


def _decommissioned(v: DecommissionReport) -> str:
    cookie = "its cookie deleted" if v.cookie_deleted else "no cookie deleted"
    moved = f"{counted(v.ledgers, 'ledger')} moved" if v.ledgers else "no ledger was left to move"
    return f"bookie {v.bookie_id} is decommissioned: {moved}, {cookie}"


declare_view(
    BookieLedger,
    "ledgers",
    LEDGER,
    Column("state", "open, in-recovery or closed.", "metadata.state.word", Kind.STATE),
    Column("fragments", "First entry of each fragment that names one of the bookies."),
    done=lambda _: False,
)


declare_view(
    LedgerMove,
    "ledgers",
    LEDGER,
    Column(
        "outcome", "Result for the ledger, or with --dry-run the result to expect.", "outcome.value"
    ),
    Column("fenced", "Whether the writer is fenced by this command."),
    Column("copies", "Copies of entries to make."),
    Column("size", "Approximate size of the entries to move; null where unknown.", "size_bytes"),
    Column("unrecoverable", "Whether some entries cannot be moved.", "is_unrecoverable"),
    Column(
        "fragments",
        "Each fragment's ensemble before and after; none: no other bookie can take over.",
        lambda v: [_fragment(move) for move in v.fragments],
        Kind.NESTED,
        cell=_move_lines,
    ),
    Column(
        "error",
        "The error, if the ledger could not be moved.",
        lambda v: None if v.error is None else str(v.error),
    ),
    sentence=_move,
)


declare_view(
    RecoverReport,
    "recoveries",
    Column("moved", "Ledgers moved."),
    Column("copies", "Copies of entries made.", "copied_entries"),
    Column("size", "Bytes copied.", "copied_bytes"),
    Column(
        "left",
        "Ledgers that were not moved.",
        lambda v: [
            {
                "ledger_id": str(one.ledger_id),
                "outcome": one.outcome.value,
                "error": None if one.error is None else str(one.error),
            }
            for one in v.left
        ],
        Kind.NESTED,
    ),
    Column("cookies_deleted", "Bookies whose cookies were deleted."),
    sentence=_recovered,
)


declare_view(
    DecommissionReport,
    "decommissions",
    BOOKIE,
    Column("ledgers", "Number of ledgers that were on the bookie."),
    Column("cookie_deleted", "Whether a cookie was deleted."),
    sentence=_decommissioned,
)


def _status(v: DecommissionStatus) -> str:
    if v.is_out:
        return (
            f"bookie {v.bookie_id} is decommissioned, or never was in this cluster: no ledger "
            "lists it, and it has no cookie"
        )
    cookie = "it has a cookie" if v.has_cookie else "it has no cookie"
    if not v.ledgers:
        now = f"{v.state}: you can stop it" if v.state == "read-only" else v.state
        return f"bookie {v.bookie_id} is empty and {now}; {cookie}"
    not_closed = f"{v.open_ledgers} of them not closed" if v.open_ledgers else "all closed"
    return (
        f"bookie {v.bookie_id} is {v.state} and has {counted(v.ledgers, 'ledger')}, "
        f"{not_closed}, about {human_bytes(v.size_bytes)}: {v.marked} marked, "
        f"{v.being_repaired} with a worker; {cookie}"
    )


declare_view(
    DecommissionStatus,
    "decommissions",
    BOOKIE,
    Column("state", "writable, read-only or down."),
    Column("cookie", "Whether the bookie has a cookie.", "has_cookie"),
    Column("ledgers", "Number of ledgers that need the bookie."),
    Column("not_closed", "Number of these ledgers that are not closed.", "open_ledgers"),
    Column("size", "Size of the bookie's replicas of closed ledgers.", "size_bytes"),
    Column("marked", "Ledgers that are marked."),
    BEING_REPAIRED,
    Column("out", "Whether no ledger and no cookie names the bookie any more.", "is_out"),
    sentence=_status,
)
