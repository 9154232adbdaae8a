"""The bodies of `log create`, `trim`, `sweep` and `delete`."""

from __future__ import annotations

import contextlib
import shlex
from collections.abc import Sequence
from typing import Any

from bkclient.client import Client
from bkclient.concurrency import wall_s
from bkclient.log import LogInfo, LogManager, LogOptions, Position
from bkclient.log.cursors import Cursors
from bkclient.log.errors import LogDamagedError
from bkclient.log.ledger_list import LedgerList
from bkclient.metadata.errors import NoSuchLogError
from bkctl.commands.log.columns import LogChanged, LogLedgerRow
from bkctl.errors import NothingFoundError, UsageError
from bkctl.exit_status import Effect
from bkctl.output.units import counted, human_bytes
from bkctl.session.safety_check_names import UNREAD
from bkctl.session.safety_checks import Objection, refuse_unless_forced, some_names
from bkctl.session.session import Session
from wire.codes import DigestType


def create(session: Session, /, name: str, **wanted: Any) -> None:
    """Create a log called NAME, without entries."""
    options = _options_of(session, **wanted)
    session.about = f"log {name}"
    if session.plans_only([f"create log {name}"]):
        return
    session.call(lambda client: LogManager(client).create(name, options))
    session.emit(LogChanged(name, "created"))


def _options_of(
    session: Session,
    *,
    ensemble_size: int,
    write_quorum: int,
    ack_quorum: int,
    digest: str,
    password_file: str | None,
    roll_size: int,
    roll_entries: int,
    roll_after: float,
) -> LogOptions:
    """Return the options of a new log.

    Raises:
        QuorumError: invalid quorums.
    """
    options = LogOptions(
        ensemble_size=ensemble_size,
        write_quorum=write_quorum,
        ack_quorum=ack_quorum,
        digest_type=DigestType[digest.upper()],
        password=session.questions.password(password_file) if password_file else b"",
        roll_bytes=roll_size,
        roll_entries=roll_entries,
        roll_s=roll_after,
    )
    options.check()
    return options


def trim(
    session: Session,
    *,
    name: str,
    before: Position | None,
    age_s: float | None,
    keep_entries: int | None,
    keep_ledgers: int | None,
    force: tuple[str, ...],
) -> None:
    """Delete the first ledgers of the log NAME, up to one of the limits.

    Raises:
        RefusedError: a cursor has not read the entries; ignored with ``force``.
        UsageError: no limit is set, or several.
    """
    session.about = f"log {name}"
    limits = before, age_s, keep_entries, keep_ledgers
    if sum(limit is not None for limit in limits) != 1:
        raise UsageError(
            "give one of --before INDEX:ENTRY, --older-than TIME, --keep-entries N and "
            "--keep-ledgers N",
            next_step=f"for example: `bkctl log trim {shlex.quote(name)} --older-than 30d`",
        )
    if age_s is not None:
        before = session.call(_begun_before, name, age_s)
    elif keep_entries is not None:
        before = session.call(_followed_by, name, keep_entries)
    elif keep_ledgers is not None:
        before = session.call(_first_of_last, name, keep_ledgers)
    assert before is not None
    log_id = session.call(lambda client: LedgerList(client, name).read()).record.log_id
    kept, going = session.call(removed_by_trim, name, before)
    steps = [_deletion(one) for one in going]
    if going:
        refuse_unless_forced(session, session.call(_unread, name, going), force)
    if session.dry_run:
        if session.options.output == "id":
            session.emit_all(map(LogLedgerRow, going), LogLedgerRow)
            session.end_plan()
            return
        session.plan(steps)
        if going:
            session.note(f"log {name} would begin with {kept}")
        else:
            session.note(
                f"no closed ledger of log {name} ends before {before}; the last ledger stays until "
                f"a writer begins the next: `bkctl log show {shlex.quote(name)}` shows when"
            )
        return
    if going:
        question = f"Trim log {name}, so that it begins with {kept}?"
        session.confirm(steps, question, proof=name, effect=Effect.LOSES_DATA)
    trimmed: LogChanged = session.call(_trim, name, log_id, kept, going)
    session.emit(trimmed)
    if before.entry_id and trimmed.first == str(Position(before.index, 0)):
        session.note(
            f"note: entries from {trimmed.first} on stay: a trim deletes only complete ledgers, "
            "and the last ledger stays until a writer begins the next"
        )


async def _begun_before(client: Client, name: str, age_s: float) -> Position:
    """Return the start of the last ledger older than an age: all earlier entries are older."""
    limit_ms = (wall_s(client.cluster.clock) - age_s) * 1000
    info = await LogManager(client).info(name)
    index = info.trimmed
    for one in info.ledgers:
        if one.created_ms > limit_ms:
            break
        index = one.index
    return Position(index, 0)


async def _followed_by(client: Client, name: str, entries: int) -> Position:
    """Return the start of the last ledger from which the log has ``entries`` entries.

    The entries of an open ledger do not count.
    """
    info = await LogManager(client).info(name)
    for one in reversed(info.ledgers):
        entries -= 0 if one.last_entry_id is None else one.last_entry_id + 1
        if entries <= 0:
            return Position(one.index, 0)
    return Position(info.trimmed, 0)


async def _first_of_last(client: Client, name: str, ledgers: int) -> Position:
    """Return the start of the last ``ledgers`` ledgers of the log."""
    info = await LogManager(client).info(name)
    kept = info.ledgers[-ledgers:]
    return Position(kept[0].index if kept else info.trimmed, 0)


async def removed_by_trim(
    client: Client, name: str, before: Position
) -> tuple[Position, list[Any]]:
    """Return the first position that a trim keeps, with its ledger, and the ledgers it deletes.

    A ledger that is closed afterwards is kept: the user has not agreed to delete it.

    Raises:
        NothingFoundError: the log has no ledger at this position yet.
    """
    info = await LogManager(client).info(name)
    last = info.ledgers[-1].index if info.ledgers else info.trimmed
    if before.index > last:
        raise NothingFoundError(
            f"log {name} has no ledger {before.index}: "
            + (f"its last is {last}" if info.ledgers else "it has none"),
            next_step=f"`bkctl log show {name}` lists the ledgers",
        )
    going = []
    for one in info.ledgers[:-1]:
        is_closed = one.state is None or one.last_entry_id is not None
        if one.index >= before.index or not is_closed:
            break
        going.append(one)
    kept = info.ledgers[len(going)] if info.ledgers else None
    ledger_id = None if kept is None else kept.ledger_id
    return Position(info.trimmed if kept is None else kept.index, 0, ledger_id), going


async def _unread(client: Client, name: str, going: Sequence[Any]) -> list[Objection]:
    """Return the objections to deleting these ledgers of a log."""
    try:
        cursors = await Cursors(client, name).list()
    except LogDamagedError as error:
        shown = f"`bkctl log cursors {shlex.quote(name)}` shows the same error"
        return [Objection(UNREAD, f"the cursors cannot be read: {error}", shown)]
    behind = [one for one in cursors if one.position <= _last_of(going)]
    if not behind:
        return []
    slowest = min(one.position for one in behind)
    names = some_names([f"{one.name} at {one.position}" for one in behind])
    what = "1 cursor has" if len(behind) == 1 else f"{len(behind)} cursors have"
    why = f"{what} not read all of this: {names}"
    trim = f"`bkctl log trim {shlex.quote(name)} --before {slowest}` stops before the slowest"
    return [Objection(UNREAD, why, trim)]


def _last_of(going: Sequence[Any]) -> Position:
    """Return the position of the last entry of these ledgers; (0, -1) if they are empty."""
    ends = [one for one in going if one.last_entry_id is not None and one.last_entry_id >= 0]
    return Position(ends[-1].index, ends[-1].last_entry_id) if ends else Position(0, -1)


def _deletion(one: Any) -> str:
    entries = counted((one.last_entry_id or 0) + 1, "entry")
    size = human_bytes(one.length_bytes)
    return f"delete ledger {one.ledger_id}, index {one.index} of the log: {entries}, {size}"


async def _trim(
    client: Client, name: str, log_id: str, before: Position, going: Sequence[Any]
) -> LogChanged:
    """Delete the ledgers ``going`` of a log.

    Raises:
        NoSuchLogError: the log with ``log_id`` was replaced by another log of this name.
    """
    if going:
        cursors = Cursors(client, name, log_id=log_id)
        await _advance_cursors(cursors, _last_of(going), before)
    kept = await LogManager(client).trim(name, before)
    deleted = tuple(one.ledger_id for one in going if one.index < kept.index)
    return LogChanged(name, "trimmed" if deleted else "unchanged", first=str(kept), ledgers=deleted)


async def _advance_cursors(cursors: Cursors, last: Position, kept: Position) -> None:
    """Move cursors that have read all entries up to ``last`` to the first position that is kept.

    Once the ledgers are deleted, nothing shows that the cursors have lost no entry.
    """
    with contextlib.suppress(LogDamagedError):  # With `--force unread-entries` the trim continues.
        for one in await cursors.list():
            if last < one.position < kept:
                await cursors.advance(one.name, kept)


def sweep(session: Session, *, name: str, age_s: float) -> None:  # fmt: skip
    """Delete ledgers that were made for the log NAME and are not part of it."""
    session.about = f"log {name}"
    if session.dry_run:
        found = session.call(lambda client: LogManager(client).unlisted(name, age_s=age_s))
        session.plan(f"delete ledger {one}, which log {name} does not list" for one in found)
        return
    swept = session.call(lambda client: LogManager(client).sweep(name, age_s=age_s))
    session.emit(LogChanged(name, "swept", ledgers=tuple(swept)))


def delete(session: Session, *, name: str) -> None:
    """Delete the log NAME, its ledgers and all their entries.

    Raises:
        NoSuchLogError: the log does not exist; ledgers of it may be left.
    """
    session.about = f"log {name}"
    try:
        info: LogInfo = session.call(lambda client: LogManager(client).info(name))
    except NoSuchLogError:
        session.failed = (
            f"`bkctl log list` lists the existing logs, `bkctl log sweep {shlex.quote(name)}` "
            "deletes ledgers that an interrupted deletion has left"
        )
        raise
    steps = _plan_delete(info)
    if session.plans_only(steps):
        return
    session.confirm(steps, f"Delete log {name}?", proof=name, effect=Effect.LOSES_DATA)
    session.emit(session.call(delete_shown, info))


def _plan_delete(info: LogInfo) -> list[str]:
    """Return what the deletion of a log deletes, as sentences."""
    open_ones = sum(one.last_entry_id is None and one.state is not None for one in info.ledgers)
    more = f", and what is in {open_ones} open ones" if open_ones else ""
    what = f"{counted(info.entries, 'entry')}, {human_bytes(info.length_bytes)}{more}"
    return [f"delete log {info.name} with {counted(len(info.ledgers), 'ledger')}: {what}"]


async def delete_shown(client: Client, shown: LogInfo) -> LogChanged:
    """Delete a log and its ledgers, if it is still the log that was shown.

    Raises:
        NoSuchLogError: another log has this name now.
    """
    manager = LogManager(client)
    gone = tuple(one.ledger_id for one in (await manager.info(shown.name)).ledgers)
    await manager.delete(shown.name, force=True, log_id=shown.log_id)
    return LogChanged(shown.name, "deleted", ledgers=gone)
