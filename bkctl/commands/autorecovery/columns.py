"""Columns of marks, locks, ledgers to repair, and the state of autorecovery."""

from __future__ import annotations

import time
from collections.abc import Sequence
from typing import Final

import attrs

from bkclient.metadata.versions_and_watches import HeldLock
from bkclient.replication.autorecovery_admin import (
    CHECK_REQUESTED_MS,
    Mark,
    Pause,
    RemovedMark,
    Status,
)
from bkclient.replication.repair_states import LedgerRepairState
from bkctl.commands.autorecovery.audit import delay_text
from bkctl.output.autorecovery_pause import pause_text
from bkctl.output.units import human_duration, rfc3339
from bkctl.output.views import LEDGER, WIDE, Column, Kind, declare_view
from bkctl.session.safety_checks import some_names
from wire.ids import BookieId

_NAMED_MAX: Final = 10


def _ago(time_ms: int | None) -> str:
    return "-" if time_ms is None else f"{human_duration(max(0, time.time() - time_ms / 1000))} ago"


def _some(bookies: Sequence[BookieId]) -> str:
    """Return the first bookies, for a cell: a forged mark could name thousands."""
    more = len(bookies) - _NAMED_MAX
    return " ".join(bookies[:_NAMED_MAX]) + (f" and {more:,} more" if more > 0 else "")


def _checked(time_ms: int | None) -> str:
    """Return the age of a check; "due" for a requested check, whose time is three weeks back."""
    if time_ms is None:
        return "never"
    return "due" if time.time() * 1000 - time_ms >= CHECK_REQUESTED_MS else _ago(time_ms)


def _pause(pause: Pause | None) -> str:
    if pause is None:
        return "-"
    return pause_text(pause, time.time()).lstrip(" ,") or "(unknown)"


_CHECKED: Final = Column(
    "checked",
    "End of the last run of each periodic check.",
    lambda v: {
        check: None if time_ms is None else rfc3339(time_ms)
        for check, time_ms in v.checked_ms.items()
    },
    Kind.NESTED,
    cell=lambda v: "\n".join(
        f"{check}: {_checked(time_ms)}" for check, time_ms in v.checked_ms.items()
    ),
)


BEING_REPAIRED: Final = Column(
    "being_repaired",
    "Number of under-replicated ledgers that a worker has locked, also after a failed repair.",
    header="LOCKED BY WORKERS",
)


declare_view(
    Status,
    "autorecoveries",
    Column("enabled", "Whether autorecovery is enabled."),
    Column(
        "pause",
        "Start, end and reason of the pause.",
        lambda v: None if v.pause is None else attrs.asdict(v.pause),
        Kind.NESTED,
        cell=lambda v: _pause(v.pause),
        optional=True,
    ),
    Column("auditor", "The bookie that is the auditor."),
    Column(
        "delay_s",
        "Time that one lost bookie may stay away before its ledgers are marked.",
        kind=Kind.COUNT,
        header="DELAY",
        cell=lambda v: delay_text(v.delay_s),
    ),
    Column("marked", "Number of under-replicated ledgers."),
    BEING_REPAIRED,
    Column("oldest", "Time of the oldest mark.", "oldest_ms", cell=lambda v: _ago(v.oldest_ms)),
    _CHECKED,
    id="auditor",
    healthy=lambda v: v.enabled and v.auditor is not None and not v.marked,
    done=lambda v: not v.marked,
)


declare_view(
    Mark,
    "marks",
    LEDGER,
    Column(
        "missing",
        "Bookies whose replicas the ledger lacks.",
        cell=lambda v: _some(v.missing) or "(placement)",
    ),
    Column("since", "Time of the mark.", "since_ms", cell=lambda v: _ago(v.since_ms)),
    Column("worker", "The worker that has locked the ledger.", rank=1),
    Column(
        "locked_since",
        "Time at which the worker locked the ledger.",
        "locked_since_ms",
        rank=WIDE,
        cell=lambda v: _ago(v.locked_since_ms),
    ),
    done=lambda _: False,
    nothing="no ledger is marked under-replicated",
)


def _age(time_ms: int | None) -> str:
    return "-" if time_ms is None else human_duration(max(0, time.time() - time_ms / 1000))


def _forgotten(v: RemovedMark) -> str:
    if v.lacking:
        return (
            f"replaced the unreadable mark of ledger {v.ledger_id}: the ledger lacks replicas on "
            f"{some_names(v.lacking)}"
        )
    if v.kept_for:
        why = "it could not be read, and no replica was found missing"
    else:
        why = "the ledger is deleted" if v.was_deleted else "every replica of every entry exists"
    return f"removed the mark of ledger {v.ledger_id}: {why}"


declare_view(
    LedgerRepairState,
    "ledgers",
    LEDGER,
    Column("prospect", "The event for which the repair waits.", "repair_state.value", Kind.STATE),
    Column("state", "open, in-recovery or closed.", "state.word", Kind.STATE, rank=2),
    Column("size", "Size of the ledger's entries, once the ledger is closed.", "size_bytes"),
    Column("since", "Time of the mark.", "since_ms", header="AGE", cell=lambda v: _age(v.since_ms)),
    Column("worker", "The worker that has locked the ledger.", rank=1),
    Column(
        "missing",
        "Bookies whose replicas are missing, or will be removed.",
        rank=WIDE,
        cell=lambda v: _some(v.missing) or "(placement)",
    ),
    Column("why", "The reason as a sentence.", rank=3),
    nothing="no ledger waits for a repair",
)


declare_view(
    HeldLock,
    "repairs",
    LEDGER,
    Column("worker", "The worker that has locked the ledger.", "owner"),
    Column(
        "since",
        "Time at which the worker locked the ledger.",
        "since_ms",
        cell=lambda v: f"{_age(v.since_ms)} ago",
    ),
)


declare_view(
    RemovedMark,
    "marks",
    LEDGER,
    Column("deleted", "Whether the ledger was deleted.", "was_deleted"),
    Column(
        "lacking",
        "Bookies in the new mark, if the old mark could not be read.",
        cell=lambda v: _some(v.lacking),
    ),
    sentence=_forgotten,
)
