"""What the fields of ledgers under repair are, and of bookies that are to go."""

from __future__ import annotations

import time
from collections.abc import Mapping
from typing import Final

from bkclient.metadata.api import HeldLock
from bkclient.repair.autorecovery import Forgotten
from bkclient.repair.decommission import DecommissionStatus
from bkclient.repair.outlook import LedgerProspect
from bkctl.commands.autorecovery.repairs import Audited
from bkctl.commands.bookie.retire.decommission import DecommissionCancelled
from bkctl.commands.ledger.views import STATE_WORDS
from bkctl.output.emit import WIDE, Field, Kind, View
from bkctl.output.units import counted, human_bytes, human_duration

_BOOKIE: Final = Field("bookie_id", "The bookie.", lambda v: v.bookie_id, header="BOOKIE")
_LEDGER: Final = Field(
    "ledger_id", "The ledger.", lambda v: v.ledger_id, Kind.LEDGER_ID, header="LEDGER"
)


def _age(time_ms: int | None) -> str:
    return "-" if time_ms is None else human_duration(max(0, time.time() - time_ms / 1000))


_PROSPECT: Final = (
    _LEDGER,
    Field("prospect", "What its repair waits for.", lambda v: v.prospect.value, Kind.STATE),
    Field(
        "state",
        "open, in-recovery or closed.",
        lambda v: None if v.state is None else STATE_WORDS[v.state.name],
        Kind.STATE,
        rank=2,
    ),
    Field("size", "Bytes of its entries, once closed.", lambda v: v.size_bytes, Kind.BYTES),
    Field(
        "since",
        "When it was marked.",
        lambda v: v.since_ms,
        Kind.TIME_MS,
        header="AGE",
        cell=lambda v: _age(v.since_ms),
    ),
    Field("worker", "Who has it now.", lambda v: v.worker, rank=1),
    Field(
        "missing",
        "Whose replicas it lacks, or is to lose.",
        lambda v: list(v.missing),
        Kind.NESTED,
        rank=WIDE,
        cell=lambda v: " ".join(v.missing) or "(placement)",
    ),
    Field("why", "The same as a sentence.", lambda v: v.why, rank=3),
)


def _forgotten(v: Forgotten) -> str:
    if v.lacking:
        return (
            f"the mark of ledger {v.ledger_id}, which could not be read, is replaced: "
            f"it lacks replicas on {', '.join(v.lacking)}"
        )
    if v.kept_for:
        why = "it could not be read, and nothing is seen to be lacking"
    else:
        why = "it is deleted" if v.was_deleted else "every replica of every entry is there"
    return f"the mark of ledger {v.ledger_id} is gone: {why}"


def _status(v: DecommissionStatus) -> str:
    if v.is_out:
        return f"bookie {v.bookie_id} is out: no ledger needs it, and it has no cookie"
    cookie = "it has a cookie" if v.has_cookie else "it has no cookie"
    if not v.ledgers:
        return f"bookie {v.bookie_id} is empty and {v.state}; {cookie}"
    return (
        f"bookie {v.bookie_id} is {v.state} and has {counted(v.ledgers, 'ledger')} "
        f"({v.open_ledgers} not closed), about {human_bytes(v.size_bytes)}: {v.marked} marked, "
        f"{v.being_mended} being repaired; {cookie}"
    )


def _cancelled(v: DecommissionCancelled) -> str:
    marks = counted(len(v.ledgers), "mark")
    return f"bookie {v.bookie_id} stays: {marks} taken back, and it takes adds"


def _audited(v: Audited) -> str:
    return f"audited by {v.auditor} in {human_duration(v.took_s)}"


REPAIR_VIEWS: Final[Mapping[type, View]] = {
    LedgerProspect: View("ledgers", _PROSPECT, "ledger_id"),
    HeldLock: View(
        "repairs",
        (
            _LEDGER,
            Field("worker", "Who has it.", lambda v: v.owner),
            Field(
                "since",
                "Since when.",
                lambda v: v.since_ms,
                Kind.TIME_MS,
                cell=lambda v: f"{_age(v.since_ms)} ago",
            ),
        ),
        "ledger_id",
    ),
    Forgotten: View(
        "marks",
        (
            _LEDGER,
            Field("deleted", "Whether it is gone.", lambda v: v.was_deleted, Kind.FLAG),
            Field(
                "lacking",
                "What a new mark names, where the old one could not be read.",
                lambda v: list(v.lacking),
                Kind.NESTED,
                cell=lambda v: " ".join(v.lacking),
            ),
        ),
        "ledger_id",
        sentence=_forgotten,
    ),
    Audited: View(
        "audits",
        (
            Field("auditor", "Who looked.", lambda v: v.auditor),
            Field("checks", "What was looked at.", lambda v: list(v.checks), Kind.NESTED),
            Field("took_s", "Seconds.", lambda v: round(v.took_s, 3), Kind.SECONDS),
        ),
        "auditor",
        sentence=_audited,
    ),
    DecommissionStatus: View(
        "decommissions",
        (
            _BOOKIE,
            Field("state", "writable, read-only or down.", lambda v: v.state, Kind.STATE),
            Field("cookie", "Whether it has one.", lambda v: v.has_cookie, Kind.FLAG),
            Field("ledgers", "Ledgers that need it.", lambda v: v.ledgers, Kind.COUNT),
            Field("not_closed", "Of these, not closed.", lambda v: v.open_ledgers, Kind.COUNT),
            Field("size", "Bytes of its copies of closed ones.", lambda v: v.size_bytes,
                  Kind.BYTES),
            Field("marked", "Ledgers that are marked.", lambda v: v.marked, Kind.COUNT),
            Field("being_mended", "Of these, with a worker.", lambda v: v.being_mended, Kind.COUNT),
            Field("out", "Whether nothing of it is left.", lambda v: v.is_out, Kind.FLAG),
        ),
        "bookie_id",
        sentence=_status,
    ),
    DecommissionCancelled: View(
        "decommissions",
        (
            _BOOKIE,
            Field("ledgers", "Whose marks are gone.", lambda v: [str(one) for one in v.ledgers],
                  Kind.NESTED),
        ),
        "bookie_id",
        sentence=_cancelled,
    ),
}  # fmt: skip
