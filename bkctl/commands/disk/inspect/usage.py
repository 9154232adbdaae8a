"""`disk usage`: the live bytes of a bookie's files."""

from __future__ import annotations

from collections import Counter
from collections.abc import Container, Iterable, Iterator, Mapping
from pathlib import Path
from typing import Final

from bkctl.bookies.directories import bookie_properties, open_bookie
from bkctl.commands.disk.inspect.records import DamagedRecords, log_summaries
from bkctl.errors import UsageError
from bkctl.output.units import counted, human_bytes
from bkctl.output.views import LEDGER, Kind, field, shown
from bkctl.session.session import Session
from bookied.errors import CorruptError
from bookied.offline import files as offline_files
from bookied.offline.bookie import OfflineBookie, Shard
from bookied.offline.entry_logs import LogUse, MapState, freed_by
from bookied.offline.files import DirectoryUse
from wire.ids import LedgerId

_MINOR, _MAJOR = ("minorCompactionThreshold", 0.2), ("majorCompactionThreshold", 0.8)
"""The keys and defaults of the compaction thresholds."""

_NOTHING_LEFT: Final = 1e-12


def usage(
    session: Session,
    /,
    *,
    directories: bool,
    existing: bool,
    by_ledger: bool,
    **dirs: tuple[str, ...],
) -> None:
    """Print for each entry log the bytes of ledgers in the bookie's index."""
    if directories:
        session.emit_all(_directories(session, dirs), DirectoryUse)
        return
    damage = DamagedRecords(session)
    bookie = open_bookie(session, **dirs)
    alive: set[int] = set()
    found = _logs(session, bookie, damage, alive, existing=existing)
    if by_ledger:
        session.emit_all(_by_ledger(found, alive), LedgerUse)
    else:
        session.emit_all(found, LogUse)
    session.finish()  # Print the table before the sums.
    written = _written(found) if bookie.is_live else set()
    counted_as = (
        "without ledgers that no longer exist"
        if existing
        else "as of the last garbage collection: ledgers deleted since then count as live; "
        "--existing asks the cluster"
    )
    complete = [one for one in found if one.summary.path not in written]
    _note_sums(session, found, complete, counted_as)
    damage.finish()


def _directories(session: Session, dirs: Mapping[str, tuple[str, ...]]) -> Iterator[DirectoryUse]:
    """Yield size and use of each directory."""
    bookie = open_bookie(session, **dirs)
    yield from offline_files.directory_uses(bookie.files, bookie.found)


def _logs(
    session: Session,
    bookie: OfflineBookie,
    damage: DamagedRecords,
    living: set[int],
    *,
    existing: bool,
) -> list[LogUse]:
    """Return the live bytes of each log; logs with the most bytes to free come first.

    Add the ledgers that count as live to ``living``.
    """
    with bookie.shards() as shards:
        shard_of = {path: id(shard) for shard in shards for path in shard.entry_logs()}
        alive = {id(shard): _alive(shard, damage) for shard in shards}
        if existing:
            alive = _existing(session, alive)
        living.update(*alive.values())
        found = [
            LogUse(summary, summary.live_bytes(alive[shard_of[summary.path]]))
            for summary in log_summaries(session, bookie, list(shard_of), damage)
        ]
    return sorted(found, key=lambda one: (-one.dead_bytes, one.summary.log_id))


@shown("ledgers", id="ledger_id")
class LedgerUse:
    """The bytes of one ledger in all entry logs of a bookie."""

    ledger_id: LedgerId = field(LEDGER)
    size: int = field("Size of the ledger's records in entry logs.", kind=Kind.BYTES)
    logs: int = field("Entry logs with records of the ledger.")
    is_live: bool = field("Whether the records are live.", name="live")


def _by_ledger(found: Iterable[LogUse], alive: Container[int]) -> list[LedgerUse]:
    """Return the bytes of each ledger, the largest first."""
    sizes: Counter[int] = Counter()
    logs: Counter[int] = Counter()
    for one in found:
        for share in one.summary.ledgers:
            sizes[share.ledger_id] += share.size_bytes
            logs[share.ledger_id] += 1
    return [
        LedgerUse(LedgerId(ledger_id), size, logs[ledger_id], ledger_id in alive)
        for ledger_id, size in sizes.most_common()
    ]


def _alive(shard: Shard, damage: DamagedRecords) -> frozenset[int]:
    try:
        return frozenset(shard.index.ledger_ids())
    except CorruptError as error:
        damage(error)
        return frozenset()


def _existing(session: Session, alive: dict[int, frozenset[int]]) -> dict[int, frozenset[int]]:
    """Return the ledgers that exist in the cluster's metadata, by shard."""
    left = frozenset().union(*alive.values())
    known = {
        one for some in session.cluster.view.ledger_ranges(None) for one in some if one in left
    }
    return {shard: ids & known for shard, ids in alive.items()}


def _written(found: list[LogUse]) -> set[Path]:
    """Return the logs that a running bookie still writes: the newest of each directory.

    A log with a ledgers map is complete. Scheduled garbage collections skip these logs.
    """
    logs = sorted((one.summary for one in found), key=lambda log: log.log_id)
    newest = {log.path.parent: log for log in logs}
    return {log.path for log in newest.values() if log.map_state is MapState.NONE}


def _note_sums(
    session: Session, found: list[LogUse], complete: list[LogUse], counted_as: str
) -> None:
    """Print the bytes that a collection and each compaction would free in the ``complete`` logs."""
    live = sum(one.live_bytes for one in found)
    dead = sum(one.dead_bytes for one in found)
    minor_at, major_at = (_threshold(session, *one) for one in (_MINOR, _MAJOR))
    empty, minor, major = (freed_by(complete, at) for at in (_NOTHING_LEFT, minor_at, major_at))
    session.note(
        f"{counted(len(found), 'entry log')}: {human_bytes(live)} live, "
        f"{human_bytes(dead)} dead, {counted_as}\n"
        f"logs without live bytes free {human_bytes(empty)}, a minor compaction (below "
        f"{minor_at:.0%} live) {human_bytes(minor)}, a major one (below {major_at:.0%}) "
        f"{human_bytes(major)}"
    )
    for log_id in sorted(one.summary.log_id for one in found if one not in complete):
        session.note(
            f"log {log_id} is not counted there: the bookie still writes it. `bkctl bookie gc` "
            "takes it too if most of it is of deleted ledgers"
        )


def _threshold(session: Session, key: str, default: float) -> float:
    """Return a threshold from the settings file, or the default without a valid number."""
    try:
        properties = bookie_properties(session, (key,))
    except UsageError:  # Directories were named instead of a settings file.
        return default
    found = properties.entries.get(key)
    if found is None:
        return default
    try:
        return float(properties.expand(found.values[0]))
    except ValueError:
        return default
