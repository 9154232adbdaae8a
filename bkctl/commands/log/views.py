"""What logs, their ledgers and their entries look like."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, Final

import attrs

from bkctl.commands.ledger.views import STATE_WORDS
from bkctl.output.emit import Field, Kind, View
from bkctl.output.units import counted, human_bytes, human_duration
from bkctl.output.views import ENTRIES, PAYLOAD, SECONDS, SIZE

if TYPE_CHECKING:
    from bkclient.log import Position
    from bkclient.log.manager import LedgerInfo
    from wire.ids import LedgerId


@attrs.frozen
class LogSummary:
    """One log. ``state`` is open, sealed, or what is wrong with it; the rest is None then."""

    name: str
    state: str
    trimmed: int | None
    ledgers: int | None
    entries: int | None
    length: int | None


@attrs.frozen
class LogLedgerRow:
    """One ledger of a log."""

    info: LedgerInfo


@attrs.frozen
class LogEntry:
    """One entry of a log; ``text`` as in ``EntryRecord``."""

    position: Position
    payload: bytes
    text: Any


@attrs.frozen(kw_only=True)
class LogAppended:
    """What one ``log append`` appended. ``first`` and ``last`` are None when that was nothing."""

    name: str
    first: str | None
    last: str | None
    entries: int
    size: int
    seconds: float
    sealed: bool


@attrs.frozen
class LogChanged:
    """What became of a log: created, trimmed, swept or deleted."""

    name: str
    change: str
    first: str | None = None
    """The first position that is kept, after a trim."""
    ledgers: tuple[LedgerId, ...] = ()
    """Ledgers that were deleted."""


def _appended_sentence(appended: LogAppended) -> str:
    seal = "; the log is sealed" if appended.sealed else ""
    if appended.first is None:
        return f"nothing to append to log {appended.name}{seal}"
    if appended.entries == 1:
        return f"appended {appended.first} to log {appended.name}{seal}"
    how = f"{human_bytes(appended.size)} in {human_duration(appended.seconds)}"
    return (
        f"appended {counted(appended.entries, 'entry')}, {appended.first} to {appended.last}, "
        f"to log {appended.name} ({how}){seal}"
    )


def _log_changed_sentence(changed: LogChanged) -> str:
    if changed.change == "trimmed":
        return f"log {changed.name} begins with {changed.first} now"
    if changed.change == "swept":
        count = len(changed.ledgers)
        what = "ledger that was" if count == 1 else "ledgers that were"
        return f"deleted {count or 'no'} {what} not part of log {changed.name}"
    more = f" with {counted(len(changed.ledgers), 'ledger')}" if changed.ledgers else ""
    return f"log {changed.name}{more} {changed.change}"


def _log_ledger_state(row: LogLedgerRow) -> str:
    return "lost" if row.info.state is None else STATE_WORDS[row.info.state.name]


LOG_VIEWS: Final[Mapping[type, View]] = {
    LogSummary: View(
        "logs",
        (
            Field("name", "The log.", lambda v: v.name),
            Field("state", "open or sealed.", lambda v: v.state, Kind.STATE),
            Field("ledgers", "Ledgers it is made of.", lambda v: v.ledgers, Kind.COUNT),
            Field("entries", "Entries of its closed ledgers.", lambda v: v.entries, Kind.COUNT),
            Field("length", "Bytes of those.", lambda v: v.length, Kind.BYTES),
            Field(
                "trimmed", "Ledgers dropped off the front.", lambda v: v.trimmed, Kind.COUNT, rank=1
            ),
        ),
        "name",
    ),
    LogLedgerRow: View(
        "ledgers",
        (
            Field("index", "Its place in the log.", lambda v: v.info.index, Kind.COUNT),
            Field("ledger_id", "The ledger.", lambda v: v.info.ledger_id, Kind.LEDGER_ID),
            Field("state", "Its state; lost: it is gone.", _log_ledger_state, Kind.STATE),
            Field("last_entry", "Last entry.", lambda v: v.info.last_entry_id, Kind.COUNT),
            Field("length", "Bytes of payload.", lambda v: v.info.length_bytes, Kind.BYTES),
            Field(
                "created", "When it was listed.", lambda v: v.info.created_ms, Kind.TIME_MS, rank=1
            ),
        ),
        "ledger_id",
    ),
    LogEntry: View(
        "entries",
        (
            Field("position", "Its place in the log.", lambda v: str(v.position)),
            Field("ledger", "Its ledger.", lambda v: v.position.ledger_id, Kind.LEDGER_ID, rank=1),
            Field("entry", "Its entry there.", lambda v: v.position.entry_id, Kind.COUNT, rank=2),
            Field("length", "Bytes of payload.", lambda v: len(v.payload), Kind.BYTES),
            *PAYLOAD,
        ),
        "position",
    ),
    LogAppended: View(
        "additions",
        (
            Field("name", "The log.", lambda v: v.name),
            Field("first", "Position of the first entry.", lambda v: v.first),
            Field("last", "Position of the last.", lambda v: v.last),
            ENTRIES,
            SIZE,
            SECONDS,
            Field("sealed", "Whether the log is complete.", lambda v: v.sealed, Kind.FLAG),
        ),
        "last",
        sentence=_appended_sentence,
    ),
    LogChanged: View(
        "logs",
        (
            Field("name", "The log.", lambda v: v.name),
            Field("change", "What became of it.", lambda v: v.change),
            Field("first", "First position kept, after a trim.", lambda v: v.first),
            Field(
                "ledgers",
                "Ledgers that were deleted.",
                lambda v: [str(ledger_id) for ledger_id in v.ledgers],
                Kind.NESTED,
            ),
        ),
        "name",
        sentence=_log_changed_sentence,
    ),
}
