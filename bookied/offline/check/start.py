"""The check of the files that a bookie reads at its start: cookies, marks and journals."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import islice
from pathlib import Path
from typing import Final

import attrs

from bkclient.config.findings import Severity
from bookied.directories.cookie_check import directories_of
from bookied.directories.emptied_directories import ContentKind, losses
from bookied.directories.lock import is_locked
from bookied.directories.root_paths import exchanged, exchanged_message
from bookied.directories.roots import COOKIE_BYTES_MAX, DIRTY, VERSION
from bookied.errors import (
    BadCookieError,
    CorruptError,
    JournalMissingError,
    JournalRecordError,
    LedgerPlaceError,
)
from bookied.offline.bookie import OfflineBookie, Shard
from bookied.offline.check.findings import DiskFinding, Findings, from_error, kind_of
from bookied.offline.index import entries_of
from bookied.offline.journal_tail import Tick, bytes_to_replay, offset_of, with_progress
from bookied.storage.journal import format as layout
from bookied.storage.journal import reader as journals
from bookied.storage.journal.crash_or_damage import (
    blank_ends,
    check_end,
    is_boundary,
    journals_to_replay,
    require_own_journals,
    trusted_mark,
)
from bookied.storage.journal.mark import START, LastMark
from bookied.storage.storages import SAMPLES_MAX, require_own_ledgers, require_own_logs
from wire.errors import FormatError
from wire.records.cookie import Cookie, decode_cookie

_COOKIE_FIX: Final = "bkctl cookie repair -c FILE"
_NEW_FIX: Final = "bkctl disk expand -c FILE, if the directory is new; else put the settings back"
SALVAGE: Final = (
    "save the entries that only this bookie has: `bkctl disk format --dry-run -c FILE` names "
    "their ledgers, `bkctl disk salvage LEDGER --out DIR -c FILE` saves the entries of one"
)
_REPLACE: Final = (
    "`bkctl recover {bookie}` copies the entries that other bookies have, `bkctl disk format "
    "--delete-cookie -c FILE` empties all directories, and the bookie starts as a new one"
)
LOSS_FIX: Final = (
    "mount the disk, or put back the old files. If both are impossible, first " + SALVAGE + ". "
    "Then " + _REPLACE + ". Never copy VERSION into an empty directory"
)
_DAMAGE_FIX: Final = (
    "first " + SALVAGE + ". Then " + _REPLACE + ". Without other bookies: "
    "skipReplayJournalInvalidRecord=true starts without the rest of that journal, whose entries "
    "the bookie then denies; keep a copy of the file"
)
EXCHANGE_FIX: Final = (
    "exchange mounts, directories or settings back; rebuild and format nothing before"
)
_EXPLAIN_FIX: Final = "the bookie will not start: put back the old files, or see `bkctl explain {}`"


OTHER_DIRECTORIES: Final = "cookie-directories"
"""The kind of finding if the checked directories are not those of the cookie: possibly a copy."""


def check_start(
    bookie: OfflineBookie, found: Findings, tick: Tick, shards: Sequence[Shard] = ()
) -> Iterator[DiskFinding]:
    """Check cookies, marks, the place of ledgers, and the file that shows an unclean stop."""
    yield from _check_cookies(bookie, found)
    for root, former in exchanged(bookie.files, bookie.found):
        what = exchanged_message(root, former)
        yield DiskFinding(Severity.PROBLEM, "directories-exchanged", what, root, fix=EXCHANGE_FIX)
    for loss in losses(bookie.files, bookie.found):
        fix = _EXPLAIN_FIX.format(f"BK-{kind_of(loss.error).upper()}")
        if loss.held is ContentKind.ENTRIES:
            fix = LOSS_FIX.format(bookie=found.bookie_id or "BOOKIE")
        yield from_error(loss.error, fix=fix)
    yield from _check_marks(bookie, found)
    for directory in bookie.found.ledger_dirs:
        if bookie.files.exists(directory / DIRTY):
            runs = is_locked(directory.parent)
            what = "a bookie runs here" if runs else "the bookie was not stopped cleanly"
            yield DiskFinding(Severity.NOTE, "dirty", what, directory / DIRTY)
    for number, shard in enumerate(shards):
        yield from _check_place(shard, number, len(shards))
    tick(1, 0)


def _check_place(shard: Shard, number: int, count: int) -> Iterator[DiskFinding]:
    """Check that the ledgers of a directory belong there, and its entry logs to its index."""
    root, index = shard.ledger_dirs[0].parent, shard.index
    try:
        ids = index.ledger_ids()
        require_own_ledgers(ids, root, number, count)
        places = (
            (location, ledger_id, entry_id)
            for ledger_id in ids[: -SAMPLES_MAX - 1 : -1]
            for entry_id, location in islice(entries_of(index, ledger_id), 1)
        )
        require_own_logs(places, shard.reader.check, root, number, count)
    except LedgerPlaceError as error:
        yield DiskFinding(Severity.PROBLEM, "ledger-place", str(error), root, fix=EXCHANGE_FIX)
    except (CorruptError, OSError):
        return  # Reported with the index.


# Cookies -----------------------------------------------------------------------------------------


def _check_cookies(bookie: OfflineBookie, findings: Findings) -> Iterator[DiskFinding]:
    found: dict[Path, Cookie] = {}
    missing = []
    for directory in bookie.found.all_dirs:
        path = directory / VERSION
        try:
            found[path] = decode_cookie(bookie.files.read(path, COOKIE_BYTES_MAX))
        except FileNotFoundError:
            missing.append(path)
        except FormatError as error:
            damage = BadCookieError(path, None, f"is not a cookie: {error}")
            yield from_error(damage, fix="copy VERSION from another directory of this bookie")
        except OSError as error:
            yield from_error(error)
    for cookie in list(found.values())[:1]:
        findings.bookie_id, findings.instance_id = cookie.bookie_id, cookie.instance_id
    yield from _compare_cookies(found)
    known = {directory for cookie in found.values() for directory in directories_of(cookie)}
    for path in missing:
        if found and str(path.parent.parent) not in known:
            message = "no cookie here, and the other directories' cookies do not name this one"
            yield DiskFinding(Severity.PROBLEM, "cookie-missing", message, path, fix=_NEW_FIX)
        elif found:
            message = "no cookie here, but in other directories of this bookie"
            if bookie.files.exists(path.parent) and bookie.files.list(path.parent):
                fix = _COOKIE_FIX
            else:
                message += "; the directory is empty"
                fix = LOSS_FIX.format(bookie=next(iter(found.values())).bookie_id)
            yield DiskFinding(Severity.PROBLEM, "cookie-missing", message, path, fix=fix)
        else:
            message = "no cookie: no bookie has started with this directory"
            yield DiskFinding(Severity.NOTE, "cookie-missing", message, path)
    for path, cookie in list(found.items())[:1]:
        yield from _compare_directories(bookie, path, cookie)


def _compare_cookies(found: dict[Path, Cookie]) -> Iterator[DiskFinding]:
    first = next(iter(found.items()), None)
    for path, cookie in found.items():
        if first is not None and cookie != first[1]:
            message = f"differs from the cookie {first[0]}"
            fix = "the directory belongs to another bookie, or to other settings"
            yield DiskFinding(Severity.PROBLEM, "cookie-mismatch", message, path, fix=fix)


def _compare_directories(
    bookie: OfflineBookie, path: Path, cookie: Cookie
) -> Iterator[DiskFinding]:
    """Compare the directories in order, which decides where DbLedgerStorage stores a ledger."""
    roots = bookie.found
    lists = [
        ("journal", tuple(cookie.journal_dirs.split(",")), roots.journals),
        ("ledger", cookie.ledger_dirs, roots.ledgers),
    ]
    if cookie.index_dirs or roots.indexes != roots.ledgers:
        lists.append(("index", cookie.index_dirs or cookie.ledger_dirs, roots.indexes))
    for kind, stamped, configured in lists:
        if configured and tuple(map(Path, stamped)) != configured:
            message = (
                f"{kind} directories are {', '.join(stamped)} in the cookie and "
                f"{', '.join(map(str, configured))} here"
            )
            yield DiskFinding(Severity.WARNING, OTHER_DIRECTORIES, message, path)


# Marks -------------------------------------------------------------------------------------------


def _check_marks(bookie: OfflineBookie, found: Findings) -> Iterator[DiskFinding]:
    damage: list[CorruptError] = []
    counted = [mark.journal for mark in bookie.marks(report=damage.append)]
    for error in damage:
        message = "the bookie uses the other copies, or replays all journals"
        yield from_error(error, severity=Severity.WARNING, fix=message)
    for number, directory in enumerate(bookie.found.journal_dirs):
        if number not in counted and journals.journal_ids(bookie.files, directory):
            message = "no lastMark for this directory: all its journals are replayed"
            yield DiskFinding(Severity.NOTE, "no-mark", message, directory)
        highest = bookie.highest_mark(number)
        yield from check_mark(bookie, number, highest, found.bookie_id)


def check_mark(
    bookie: OfflineBookie, number: int, mark: LastMark, bookie_id: str = "BOOKIE"
) -> Iterator[DiskFinding]:
    """Check whether replay can start at a mark of the ``number``-th journal directory."""
    if mark <= START or not mark.journal_id:
        return
    path = bookie.found.journal_dirs[number] / layout.file_name(mark.journal_id)
    if not bookie.files.exists(path):
        message = f"lastMark names this journal (id {mark.journal_id}); the bookie will not start"
        fix = LOSS_FIX.format(bookie=bookie_id)
        yield DiskFinding(Severity.PROBLEM, "journal-missing", message, path, fix=fix)
        return
    try:
        size, is_place = bookie.files.size(path), is_boundary(bookie.files, path, mark.offset)
    except JournalRecordError as error:
        yield from_error(error, fix=_DAMAGE_FIX.format(bookie=bookie_id))
        return
    except (CorruptError, OSError):
        return  # Reported with the journals.
    if mark.offset > size:
        message = f"lastMark is at {mark.offset}, beyond its end"
        yield DiskFinding(Severity.WARNING, "mark-beyond-end", message, path, size)
    elif mark.offset and not is_place:
        message = "no record begins at this lastMark: all journals are replayed"
        yield DiskFinding(Severity.WARNING, "mark-inside-record", message, path, mark.offset)


# Journals ----------------------------------------------------------------------------------------


def journal_bytes(bookie: OfflineBookie, *, deep: bool) -> int:
    """Return the bytes that ``check_journals`` reads at most."""
    if not deep:
        return bytes_to_replay(bookie)
    return sum(bookie.files.size(path) for path in bookie.journals())


def check_journals(
    bookie: OfflineBookie, found: Findings, tick: Tick, *, deep: bool
) -> Iterator[DiskFinding]:
    """Read the journals that a start replays, or all.

    Add the replayed records to ``found.tail``.
    """
    done = 0
    for number, directory in enumerate(bookie.found.journal_dirs):
        yield from _check_gaps(bookie, number, found.bookie_id)
        to_replay = dict(bookie.to_replay(number))
        mark = bookie.highest_mark(number)
        blank = blank_ends(bookie.files, directory, mark)  # A start removes them.
        ids = journals.journal_ids(bookie.files, directory)
        last = ids[-1 - len(blank)] if len(ids) > len(blank) else -1
        for one in ids:
            path = directory / layout.file_name(one)
            if deep or path in to_replay:
                start = 0 if deep else to_replay[path]
                follows = mark > START and path in to_replay and one < last
                part = _JournalPart(
                    path,
                    start,
                    to_replay.get(path),
                    has_later=follows,
                    has_mark=one == mark.journal_id,
                )
                yield from _check_journal(bookie, found, part, tick, done)
                done += bookie.files.size(path) - start
                found.counts.journals += 1


@attrs.frozen
class _JournalPart:
    """The part of one journal to read, and the offset from which a start replays it, if at all."""

    path: Path
    start: int
    replay_from: int | None
    has_later: bool = attrs.field(kw_only=True)
    has_mark: bool = attrs.field(kw_only=True)

    def is_replayed(self, offset: int) -> bool:
        return self.replay_from is not None and offset >= self.replay_from


def _check_gaps(bookie: OfflineBookie, number: int, bookie_id: str) -> Iterator[DiskFinding]:
    """Yield findings for missing or another directory's journals: the bookie would not start."""
    fix = LOSS_FIX.format(bookie=bookie_id)
    mark = bookie.highest_mark(number)
    directory = bookie.found.journal_dirs[number]
    try:
        trusted = trusted_mark(bookie.files, directory, mark, may_be_cut=True)
        journals_to_replay(bookie.files, directory, trusted)
    except JournalMissingError as error:
        if error.path.name != layout.file_name(mark.journal_id):  # Else reported with the marks.
            yield from_error(error, fix=fix)
    try:
        count = len(bookie.found.journal_dirs)
        require_own_journals(bookie.files, directory, mark, number, count)
    except JournalMissingError as error:
        yield from_error(error, fix=fix)


def _check_journal(
    bookie: OfflineBookie, found: Findings, part: _JournalPart, tick: Tick, before: int
) -> Iterator[DiskFinding]:
    fix = _DAMAGE_FIX.format(bookie=found.bookie_id)
    try:
        scan = journals.open_scan(bookie.files, part.path, part.start)
    except (CorruptError, OSError) as error:
        yield from_error(error, fix=fix)
        return

    def report_progress(at: int) -> None:
        tick(before + at - part.start, found.counts.records)

    try:
        for record in with_progress(scan, offset_of, report_progress, part.start):
            found.counts.records += 1
            if part.is_replayed(record.offset):
                found.tail.add(record)
        if part.replay_from is not None:
            check_end(scan, is_last=not part.has_later, has_mark=part.has_mark)
        yield from _after_the_end(scan)
    except JournalRecordError as error:
        is_replayed = part.is_replayed(error.offset or 0)
        severity = Severity.PROBLEM if is_replayed else Severity.WARNING
        yield from_error(error, severity=severity, fix=fix if is_replayed else "")
        if part.replay_from is not None and not is_replayed:
            rest = attrs.evolve(part, start=part.replay_from)
            yield from _check_journal(bookie, found, rest, tick, before)
    except (CorruptError, OSError) as error:
        yield from_error(error, fix=fix)
    finally:
        scan.close()


def _after_the_end(scan: journals.JournalScan) -> Iterator[DiskFinding]:
    if scan.is_torn:
        message = "the last record is cut: a crash came before it was acknowledged"
        yield DiskFinding(Severity.NOTE, "torn-tail", message, scan.path, scan.end)
    residue = scan.residue()
    if residue is not None:
        message = f"data ends at {scan.end}, but the file has bytes after it that no replay reads"
        yield DiskFinding(Severity.WARNING, "journal-residue", message, scan.path, residue)
