"""Garbage collection and compaction of a running bookie: v2 for bookied, v1 for Java's."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Final

import attrs

from bkctl.bookies.http.admin_client import AdminClient
from bkctl.bookies.http.answers import require_known_form, value_of_answer
from bkctl.errors import ConflictError
from bkctl.output.units import human_duration
from bkctl.output.views import BOOKIE, WIDE, field, shown

if TYPE_CHECKING:
    from wire.ids import BookieId

_SINCE: Final = "since the bookie started; of `gc --wait` in this collection"


def _last_round(v: GarbageRun) -> str:
    if v.last_ms is None:
        return "never" if v.rounds == 0 else "-"
    return f"{human_duration(max(0.0, time.time() - v.last_ms / 1000))} ago"


@shown("collectors", kw_only=True, done=lambda v: not v.running)
class GarbageRun:
    """One collector of a bookie; times are milliseconds since the epoch."""

    bookie_id: str | None = field(BOOKIE, default=None)
    number: int = field("Number of the bookie's storage, from 0.", header="STORAGE", rank=4)
    running: bool = field("Whether a collection runs now.")
    compacting: str | None = field("The compaction that runs now: major or minor.", rank=2)
    last_ms: int | None = field(
        "End of the last round.",
        name="last_round",
        header="LAST",
        rank=2,
        default=None,
        cell=_last_round,
        cell_of_none=True,
    )
    next_ms: int | None = field(
        "Start of the next round.",
        name="next_round",
        header="NEXT",
        rank=2,
        default=None,
        cell=lambda v: f"in {human_duration(max(0.0, v.next_ms / 1000 - time.time()))}",
    )
    rounds: int | None = field(f"Rounds {_SINCE}.", rank=5, default=None)
    minor_compactions: int = field(f"Minor compactions {_SINCE}.", header="MINOR", rank=3)
    major_compactions: int = field(f"Major compactions {_SINCE}.", header="MAJOR", rank=3)
    last_minor_ms: int | None = field(
        "End of the last minor compaction; before the first one a Java bookie reports its start.",
        name="last_minor",
        rank=WIDE,
    )
    last_major_ms: int | None = field(
        "End of the last major compaction, likewise.", name="last_major", rank=WIDE
    )
    ledgers: int | None = field("Number of ledgers on the bookie.", rank=6, default=None)
    logs: int | None = field("Finished entry logs.", rank=6, default=None)
    total_bytes: int | None = field("Size of all entry logs.", name="total", rank=2, default=None)
    live_bytes: int | None = field(
        "Size of the records that are still needed.", name="live", rank=2, default=None
    )
    freed_bytes: int | None = field(f"Freed bytes {_SINCE}.", name="freed", default=None)
    unreadable_logs: int | None = field(
        "Number of damaged entry logs; LOGS, TOTAL and LIVE leave them out.",
        name="damaged_logs",
        header="DAMAGED",
        rank=6,
        default=None,
    )
    last_error: str | None = field(
        "The error that ended the last round early.", rank=1, default=None
    )

    def since(self, before: GarbageRun) -> GarbageRun:
        """Return the state with only the counts after ``before``."""
        counted = {
            name: getattr(self, name) - getattr(before, name)
            for name in ("rounds", "minor_compactions", "major_compactions", "freed_bytes")
            if getattr(before, name) is not None
        }
        return attrs.evolve(self, **counted)  # type: ignore[misc]  # `shown` makes it one of attrs


@shown("collections", sentence=lambda v: f"bookie {v.bookie_id} collects garbage now")
class GarbageAsked:
    """The request of a garbage collection."""

    bookie_id: str = field(BOOKIE)


def _compactions(v: Compactions) -> str:
    words = {True: "suspended", False: "allowed"}
    return (
        f"bookie {v.bookie_id}: minor compaction {words[v.minor_suspended]}, "
        f"major compaction {words[v.major_suspended]}"
    )


@shown("compactions", kw_only=True, sentence=_compactions)
class Compactions:
    """The compactions that an operator has suspended."""

    bookie_id: str = field(BOOKIE)
    minor_suspended: bool = field("Whether an operator has suspended minor compaction.")
    major_suspended: bool = field("Whether an operator has suspended major compaction.")


def collect(admin: AdminClient, bookie_id: BookieId, *, major: bool, minor: bool) -> GarbageAsked:
    """Start a garbage collection of the bookie."""
    if admin.speaks_v2:
        admin.ask("POST", "/api/v2/bookie/gc", {"major": major, "minor": minor})
    else:
        admin.ask("PUT", "/api/v1/bookie/gc", {"forceMajor": major, "forceMinor": minor})
    return GarbageAsked(bookie_id)


def wait_collected(
    admin: AdminClient,
    before: Sequence[GarbageRun],
    pause: Callable[[list[GarbageRun]], object],
    clock: Callable[[], float] = time.monotonic,
) -> list[GarbageRun]:
    """Wait until each collector has ended a round since ``before``; return the work of each since.

    A Java bookie does not count rounds: there the wait ends when no forced collection runs.
    ``pause`` gets the work of each so far.

    Raises:
        ConflictError: the bookie restarted meanwhile.
    """
    rounds = {one.number: one.rounds for one in before}
    began_s = clock()
    while True:
        found = collections(admin)
        since = [one.since(was) for one, was in zip(found, before, strict=True)]
        if not any(one.running or _has_not_begun(one, rounds) for one in found):
            break
        pause(since)
    waited_s = int(clock() - began_s)
    if admin.speaks_v2 and admin.ask("GET", "/api/v2/bookie").json["uptime_s"] < waited_s:
        raise ConflictError(
            "the bookie restarted during the collection", next_step="start the collection again"
        )
    return since


def _has_not_begun(one: GarbageRun, rounds: Mapping[int, int | None]) -> bool:
    return one.rounds is not None and one.rounds == rounds.get(one.number)


@require_known_form
def collections(admin: AdminClient) -> list[GarbageRun]:
    """Return the state and counts of each of the bookie's collectors."""
    if admin.speaks_v2:
        found = admin.ask("GET", "/api/v2/bookie/gc").json
        return [_our_run(number, one) for number, one in enumerate(found)]
    found = admin.ask("GET", "/api/v1/bookie/gc_details").json
    forced = admin.ask("GET", "/api/v1/bookie/gc").json["is_in_force_gc"] == "true"
    return [_java_run(number, one, forced=forced) for number, one in enumerate(found)]


def _our_run(number: int, one: Mapping[str, Any]) -> GarbageRun:
    if not one["rounds"]:  # The first round counts these values.
        one = {**one, **dict.fromkeys(("ledgers", "logs", "total_bytes", "live_bytes"))}
    return value_of_answer(
        GarbageRun,
        one,
        bookie_id=None,
        number=number,
        last_ms=_ms(one["last_ended_s"]),
        next_ms=_ms(one.get("next_s")),  # Older releases do not report it.
        last_minor_ms=_ms(one["last_minor_s"]),
        last_major_ms=_ms(one["last_major_s"]),
        freed_bytes=one["freed_by_removal_bytes"] + one["freed_by_compaction_bytes"],
    )


def _ms(seconds: float | None) -> int | None:
    return None if seconds is None else int(seconds * 1000)


def _java_run(number: int, one: Mapping[str, Any], *, forced: bool) -> GarbageRun:
    kinds = [kind for kind in ("major", "minor") if one[f"{kind}Compacting"]]
    return GarbageRun(
        number=number,
        running=forced or bool(kinds),
        compacting=kinds[0] if kinds else None,
        minor_compactions=one["minorCompactionCounter"],
        major_compactions=one["majorCompactionCounter"],
        last_minor_ms=one["lastMinorCompactionTime"],
        last_major_ms=one["lastMajorCompactionTime"],
    )


@require_known_form
def compactions(
    admin: AdminClient,
    bookie_id: BookieId,
    *,
    suspend: bool | None = None,
    major: bool = True,
    minor: bool = True,
) -> Compactions:
    """Return the suspended compactions, after suspending or resuming the selected kinds."""
    if suspend is not None:
        _switch(admin, suspend=suspend, major=major, minor=minor)
    if admin.speaks_v2:
        found = admin.ask("GET", "/api/v2/bookie/compaction").json
        return Compactions(bookie_id=bookie_id, **found)
    found = admin.ask("GET", "/api/v1/bookie/gc/suspend_compaction").json
    return Compactions(
        bookie_id=bookie_id,
        minor_suspended=found["isMinorGcSuspended"] == "true",
        major_suspended=found["isMajorGcSuspended"] == "true",
    )


def _switch(admin: AdminClient, *, suspend: bool, major: bool, minor: bool) -> None:
    kinds = {"major": major, "minor": minor}
    if admin.speaks_v2:
        body = {f"{kind}_suspended": suspend for kind, wanted in kinds.items() if wanted}
        admin.ask("PUT", "/api/v2/bookie/compaction", body)
        return
    word = "suspend" if suspend else "resume"
    body = {f"{word}{kind.capitalize()}": True for kind, wanted in kinds.items() if wanted}
    admin.ask("PUT", f"/api/v1/bookie/gc/{word}_compaction", body)
