"""The check whether a bookie's cookies, marks, journals, logs and index agree.

``stages`` yields the parts of a check, each a generator of ``DiskFinding`` values. The check
changes nothing, and continues after damage. A note is a state after a crash that the next start
repairs: a torn tail, or an index that is ahead of its log while the journal has the entry. The
modules ``start``, ``entry_logs`` and ``index`` read the files. The plain check of the index covers
what InterleavedLedgerStorage's localConsistencyCheck covers in BookKeeper 4.18.0; the rest is ours.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import partial

import attrs

from bookied.offline.bookie import OfflineBookie, Shard
from bookied.offline.check import entry_logs, index, start
from bookied.offline.check.findings import DiskFinding, Findings
from bookied.offline.journal_tail import Tick


@attrs.frozen
class Stage:
    """One part of a check.

    ``unit`` is that of ``total`` and of the progress that ``run`` reports.
    """

    title: str
    unit: str
    total: int
    run: Callable[[Tick], Iterator[DiskFinding]]


def stages(
    bookie: OfflineBookie, found: Findings, *, shards: tuple[Shard, ...], deep: bool = False
) -> Iterator[Stage]:
    """Yield the parts of a check, to be run in this order.

    Args:
        bookie: the directories.
        found: filled while the stages run.
        shards: the bookie's, open.
        deep: read every journal, every record of every log and all bytes of every entry, and check
            digests that need no password.
    """
    yield Stage(
        "cookies and marks",
        "directories",
        1,
        partial(start.check_start, bookie, found, shards=shards if len(shards) > 1 else ()),
    )
    yield Stage(
        "journals",
        "bytes",
        start.journal_bytes(bookie, deep=deep),
        partial(start.check_journals, bookie, found, deep=deep),
    )
    log_bytes = sum(bookie.files.size(path) for shard in shards for path in shard.entry_logs())
    yield Stage(
        "entry logs",
        "bytes",
        log_bytes if deep else 0,
        partial(entry_logs.check_logs, shards, found, deep=deep),
    )
    for shard in shards:
        ledger_ids: list[int] = []
        damaged = index.list_ledgers(shard, ledger_ids)
        yield Stage(
            "index",
            "ledgers",
            len(ledger_ids),
            partial(index.check_index, shard, found, ledger_ids, damaged, deep=deep),
        )
    if deep:  # Last: damage matters only if an index points at it.
        yield Stage("ledgers in logs", "logs", 0, partial(entry_logs.check_ids, found))
        yield Stage("damaged bytes", "logs", 0, partial(entry_logs.check_gaps, found))
