"""What ``bkctl disk usage`` does: what of the entry logs is still needed, and what takes space."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Final

from bkctl.bookies.directories import bookie_properties, open_bookie
from bkctl.commands.disk.inspect.records import DamagedRecords
from bkctl.errors import UsageError
from bkctl.output.units import counted, human_bytes
from bookied.directories.in_use import uses
from bookied.errors import CorruptError
from bookied.offline import files as offline_files
from bookied.offline.bookie import OfflineBookie, Shard
from bookied.offline.files import DirectoryUse
from bookied.offline.logs import LogUse, MapState, freed_by, summarize

if TYPE_CHECKING:
    from bkctl.commands.disk.inspect.journals import Dirs
    from bkctl.session.session import Session

_MINOR, _MAJOR = ("minorCompactionThreshold", 0.2), ("majorCompactionThreshold", 0.8)
"""Keys and defaults of the thresholds of compactions."""

_NOTHING_LEFT: Final = 1e-12


def usage(session: Session, /, *, directories: bool, **dirs: tuple[str, ...]) -> None:
    """Print for each entry log how many of its bytes are of ledgers in the bookie's index."""
    if directories:
        session.emit_all(_directories(session, dirs), DirectoryUse)
        return
    damage = DamagedRecords(session)
    bookie = open_bookie(session, **dirs)
    found = _logs(session, bookie, damage)
    session.emit_all(found, LogUse)
    session.finish()  # The table comes first.
    written = _written(found) if any(use.is_used for use in uses(bookie.found.roots)) else set()
    _note_sums(session, found, [one for one in found if one.summary.path not in written])
    damage.finish()


def _directories(session: Session, dirs: Dirs) -> Iterator[DirectoryUse]:
    """Give room and use of each directory."""
    bookie = open_bookie(session, **dirs)
    yield from offline_files.directory_uses(bookie.files, bookie.found)


def _logs(session: Session, bookie: OfflineBookie, damage: DamagedRecords) -> list[LogUse]:
    """Return how much of each log is live, those with most to free first."""
    found: list[LogUse] = []
    with bookie.shards() as shards:
        paths = [(shard, path) for shard in shards for path in shard.entry_logs()]
        total = sum(bookie.files.size(path) for _, path in paths)
        alive = {id(shard): _alive(shard, damage) for shard in shards}
        done = 0
        with session.progress("reading entry logs", total=total) as progress:
            for shard, path in paths:
                try:
                    summary = summarize(bookie.files, path)
                except CorruptError as error:
                    damage(error)
                else:
                    if summary.damage is not None:
                        damage(summary.damage)
                    found.append(LogUse(summary, summary.live_bytes(alive[id(shard)])))
                done += bookie.files.size(path)
                progress.update(done)
    return sorted(found, key=lambda one: (-one.dead_bytes, one.summary.log_id))


def _alive(shard: Shard, damage: DamagedRecords) -> frozenset[int]:
    try:
        return frozenset(shard.index.ledger_ids())
    except CorruptError as error:
        damage(error)
        return frozenset()


def _written(found: list[LogUse]) -> set[Path]:
    """Return the logs that a running bookie still writes: the newest of a directory, without map.

    Garbage collection leaves these logs alone.
    """
    logs = sorted((one.summary for one in found), key=lambda log: log.log_id)
    newest = {log.path.parent: log for log in logs}
    return {log.path for log in newest.values() if log.map_state is MapState.NONE}


def _note_sums(session: Session, found: list[LogUse], complete: list[LogUse]) -> None:
    """Say what could be freed, and by what: of the logs that are ``complete``."""
    live = sum(one.live_bytes for one in found)
    dead = sum(one.dead_bytes for one in found)
    minor_at, major_at = (_threshold(session, *one) for one in (_MINOR, _MAJOR))
    empty, minor, major = (freed_by(complete, at) for at in (_NOTHING_LEFT, minor_at, major_at))
    session.note(
        f"{counted(len(found), 'entry log')}: {human_bytes(live)} live, "
        f"{human_bytes(dead)} dead, as of the last garbage collection: ledgers deleted since then "
        "count as live\n"
        f"logs without live bytes free {human_bytes(empty)}, a minor compaction (below "
        f"{minor_at:.0%} live) {human_bytes(minor)}, a major one (below {major_at:.0%}) "
        f"{human_bytes(major)}"
    )
    for log_id in sorted(one.summary.log_id for one in found if one not in complete):
        session.note(
            f"log {log_id} is not counted there: the bookie still writes it, so no compaction "
            "takes it"
        )


def _threshold(session: Session, key: str, default: float) -> float:
    """Return a threshold from the settings file, where that has a number for it."""
    try:
        properties = bookie_properties(session, (key,))
    except UsageError:  # The directories were named: no settings file is known.
        return default
    found = properties.get(key)
    if found is None:
        return default
    try:
        return float(properties.expand(found.values[0]))
    except ValueError:
        return default
