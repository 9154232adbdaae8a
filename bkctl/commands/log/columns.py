"""Logs, their ledgers and entries: values and their columns."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

import attrs

from bkctl.output.units import counted, human_bytes, human_duration
from bkctl.output.views import (
    ENTRIES,
    ENTRY,
    LEDGER,
    OLDER_SIZE,
    PAYLOAD,
    PAYLOAD_SIZE,
    SECONDS,
    SIZE,
    Column,
    Kind,
    field,
    formerly,
    shown,
)

if TYPE_CHECKING:
    from bkclient.log import Position
    from bkclient.log.log_manager import LedgerInfo
    from wire.ids import LedgerId


@shown("logs")
class LogSummary:
    """One log. ``state`` is the error if the log cannot be read; the rest is None then."""

    name: str = field("The log.")
    state: str = field("open, sealed or damaged; damaged: a ledger is lost.")
    ledgers: int | None = field("Number of ledgers in the log.")
    entries: int | None = field(
        "Number of entries in the log's closed ledgers.", header="CLOSED ENTRIES"
    )
    length: int | None = field(
        "Payload size of the log's closed ledgers.", kind=Kind.BYTES, header="CLOSED LENGTH"
    )
    trimmed: int | None = field("Number of ledgers that were trimmed.", rank=1)
    roll_size: int | None = field(
        "Size at which a new ledger begins; 0 means never.",
        kind=Kind.BYTES,
        rank=2,
        default=None,
        cell=lambda v: human_bytes(v.roll_size) if v.roll_size else "never",
    )
    roll_entries: int | None = field(
        "Entries after about which a new ledger begins; 0 means never.",
        rank=2,
        default=None,
        cell=lambda v: str(v.roll_entries or "never"),
    )
    roll_after_s: float | None = field(
        "Time after which a new ledger begins; 0 means never.",
        header="ROLL AFTER",
        rank=2,
        default=None,
        cell=lambda v: human_duration(v.roll_after_s) if v.roll_after_s else "never",
    )


def _log_ledger_state(row: LogLedgerRow) -> str:
    return "lost" if row.info.state is None else row.info.state.word


def _length(row: LogLedgerRow) -> int | None:
    return None if row.info.last_entry_id is None else row.info.length_bytes


@shown(
    "ledgers",
    Column("index", "Number of the ledger in the log, from 0.", "info.index", Kind.COUNT),
    Column("ledger_id", "The ledger.", "info.ledger_id", Kind.LEDGER_ID, header="LEDGER"),
    Column(
        "state",
        "State of the ledger; lost: the ledger no longer exists.",
        _log_ledger_state,
        Kind.STATE,
    ),
    Column(
        "last_entry", "Last entry, once the ledger is closed.", "info.last_entry_id", Kind.COUNT
    ),
    Column("length", "Payload size, once the ledger is closed.", _length, Kind.BYTES),
    Column(
        "created",
        "Time at which the ledger was added to the log; `ledger list` shows its creation.",
        "info.created_ms",
        header="ADDED",
        rank=1,
    ),
    id="ledger_id",
)
class LogLedgerRow:
    """One ledger of a log."""

    info: LedgerInfo


_LEDGER: Final = attrs.evolve(LEDGER, of="position.ledger_id", rank=1)
_ENTRY: Final = attrs.evolve(ENTRY, of="position.entry_id", rank=2)


@shown(
    "entries",
    Column("position", "Position of the entry in the log.", lambda v: str(v.position)),
    _LEDGER,
    _ENTRY,
    PAYLOAD_SIZE,
    *PAYLOAD,
    formerly(_LEDGER, "ledger"),
    formerly(_ENTRY, "entry"),
    OLDER_SIZE,
)
class LogEntry:
    """One entry of a log; ``text`` as in ``EntryRecord``."""

    position: Position
    payload: bytes
    text: Any


@shown("cursors", kw_only=True, id="name")
class CursorRow:
    """One cursor of a log or topic; a value is None if it cannot be determined."""

    source: str = field("The log or topic.")
    name: str = field("The cursor.", header="CURSOR")
    position: str | None = field(
        "Next entry to read: the first entry that the reader has not committed.", default=None
    )
    entries_behind: int | None = field(
        "Number of entries from the cursor to the last add confirmed.", default=None
    )
    ledgers_behind: int | None = field(
        "Number of ledgers with these entries; the ledger of the position counts.",
        rank=2,
        default=None,
    )
    updated_ms: int | None = field("Time of the last move.", name="updated", rank=1, default=None)
    is_trimmed: bool | None = field(
        "Whether entries at the cursor were trimmed.", name="trimmed", default=None
    )


@shown(
    "cursors",
    id="name",
    sentence=lambda v: f"deleted cursor {v.name} of {v.source}, which was at {v.position}",
)
class CursorDeleted:
    """A deleted cursor and its last position."""

    source: str = field("The log or topic.")
    name: str = field("The cursor that was deleted.")
    position: str = field("The cursor's last position.")


def _appended_sentence(appended: LogAppended) -> str:
    seal = "; the log is sealed" if appended.sealed else ""
    if appended.first is None:
        end = f"it ends at {appended.ended_at}" if appended.ended_at else "it has no entry"
        return f"nothing to append to log {appended.name}: {end}{seal}"
    what = f"appended {counted(appended.entries, 'entry')} to log {appended.name}"
    if appended.entries == 1:
        return f"{what}, at {appended.first}, in a new ledger{seal}"
    first, last = (str(one).partition(":")[0] for one in (appended.first, appended.last))
    ledgers = int(last) - int(first) + 1
    where = "in a new ledger" if ledgers == 1 else f"in {ledgers} new ledgers"
    how = f"{human_bytes(appended.size)} in {human_duration(appended.seconds)}"
    return f"{what}, from {appended.first} to {appended.last}, {where} ({how}){seal}"


@shown("additions", kw_only=True, id="last", sentence=_appended_sentence)
class LogAppended:
    """The result of one ``log append``.

    ``first`` and ``last`` are None if no entry was appended.
    """

    name: str = field("The log.")
    ended_at: str | None = field(
        "Position of the last entry before the append; null in an empty log."
    )
    first: str | None = field("Position of the first appended entry.")
    last: str | None = field("Position of the last appended entry.")
    entries: int = field(ENTRIES)
    size: int = field(SIZE)
    seconds: float = field(SECONDS)
    sealed: bool = field("Whether the log is sealed.")


def _log_changed_sentence(changed: LogChanged) -> str:
    if changed.change == "trimmed":
        deleted = counted(len(changed.ledgers), "ledger")
        return f"deleted {deleted}: log {changed.name} begins with {changed.first} now"
    if changed.change == "unchanged":
        return (
            f"nothing was dropped from log {changed.name}: a trim deletes complete ledgers, and no "
            f"closed ledger ends before that limit; the first entry kept is {changed.first}"
        )
    if changed.change == "swept":
        count = len(changed.ledgers)
        what = "ledger that was" if count == 1 else "ledgers that were"
        return f"deleted {count or 'no'} {what} not part of log {changed.name}"
    more = f" with {counted(len(changed.ledgers), 'ledger')}" if changed.ledgers else ""
    return f"log {changed.name}{more} {changed.change}"


@shown(
    "logs",
    Column(
        "ledgers",
        "Ledgers that were deleted.",
        lambda v: [str(ledger_id) for ledger_id in v.ledgers],
        Kind.NESTED,
    ),
    sentence=_log_changed_sentence,
)
class LogChanged:
    """A change to a log: created, trimmed, swept or deleted."""

    name: str = field("The log.")
    change: str = field("The change that was made.")
    first: str | None = field("First position that the trim kept.", default=None)
    """The first position that a trim kept."""
    ledgers: tuple[LedgerId, ...] = ()
    """Ledgers that were deleted."""
