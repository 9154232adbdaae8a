"""`ledger list` and `ledger show`: ledgers from their metadata, and the filter of a list.

A list needs no client; modules that need a client are imported where they are used.
"""

from __future__ import annotations

import itertools
import time
from collections.abc import Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any

import attrs

from bkclient.quorum.fragments import fewest_racks
from bkctl.cli.parameter_types import LEDGER_ID
from bkctl.commands.ledger.columns import LedgerCount, LedgerDetails, LedgerSummary, LedgerTotal
from bkctl.output.views import evolve
from wire.codes import LedgerState
from wire.ids import BookieId, LedgerId

if TYPE_CHECKING:
    from bkclient.client import Client
    from bkctl.session.session import Session
    from wire.ledger_metadata import LedgerMetadata


@attrs.frozen
class LedgerFilter:
    """The conditions for the ledgers of a list."""

    state: LedgerState | None = None
    bookie: BookieId | None = None
    created_before_ms: int | None = None
    custom: Mapping[str, bytes] = attrs.field(factory=dict)
    one_rack_of: Mapping[BookieId, str] | None = None
    """The racks of bookies: show only ledgers with an entry whose copies are all in one rack."""

    @property
    def is_open(self) -> bool:
        """True if every ledger passes, so that no metadata must be read."""
        return self == LedgerFilter()

    def passes(self, metadata: LedgerMetadata) -> bool:
        """Return whether a ledger passes the filter."""
        before, racks = self.created_before_ms, self.one_rack_of
        return (
            (self.state is None or metadata.state is self.state)
            and (self.bookie is None or self.bookie in metadata.all_bookies())
            and (before is None or (metadata.ctime_ms or 0) < before)
            and all(metadata.custom.get(key) == value for key, value in self.custom.items())
            and (racks is None or fewest_racks(metadata, racks) == 1)
        )


def print_ledgers(
    session: Session,
    *,
    state: LedgerState | None,
    bookie: BookieId | None,
    older_than: float | None,
    meta: Sequence[tuple[str, str]],
    one_rack: bool,
    after: LedgerId | None,
    limit: int | None,
    count: bool,
    total: bool,
) -> None:
    """Print ledgers in the order of their ids, or only their number or sums.

    Raises:
        UsageError: ``one_rack``, and no topology script is configured.
    """
    racks = _racks(session, one_rack=one_rack)
    wanted = LedgerFilter(
        state,
        bookie,
        created_before_ms=None if older_than is None else int((time.time() - older_than) * 1000),
        custom={key: text.encode(errors="surrogateescape") for key, text in meta},
        one_rack_of=racks if one_rack else None,
    )
    options = session.options
    # The limit counts the ledgers after these filters.
    picks = bool(options.filters or options.sort_by)
    found = ledgers(
        session,
        wanted,
        after=after,
        limit=None if picks else limit,
        ids_only=wanted.is_open and not picks and not total and (count or options.ids_only),
    )
    if racks:
        found = ([evolve(one, racks=racks) for one in some] for some in found)
    if count or total:
        result = LedgerTotal.of if total else LedgerCount.of
        session.emitter.count(each(found), LedgerSummary, result, limit=limit)
    else:
        session.emitter.stream(found, LedgerSummary, limit=limit if picks else None)


def _racks(session: Session, *, one_rack: bool) -> Mapping[BookieId, str]:
    """Return the rack of each bookie; empty if racks are unknown, or no shown column needs them."""
    if not session.config.topology_script:
        if one_rack:
            from bkctl.errors import UsageError

            raise UsageError(
                "--one-rack: the settings name no topology script, so the racks are unknown",
                next_step="name a file with networkTopologyScriptFileName by -c: "
                "`bkctl explain rack`",
            )
        return {}
    from bkctl.bookies import ask_bookies

    return session.call(_racks_of_all) if one_rack or ask_bookies.reads_figures(session) else {}


async def _racks_of_all(client: Client) -> Mapping[BookieId, str]:
    from bkclient.admin import cluster_operations
    from bkctl.bookies import ask_bookies

    return await ask_bookies.racks_of(client, await cluster_operations.list_bookies(client))


def ledgers(
    session: Session,
    wanted: LedgerFilter,
    *,
    after: LedgerId | None,
    limit: int | None,
    ids_only: bool,
) -> Iterator[list[LedgerSummary]]:
    """Yield lists of the wanted ledgers, in ascending order.

    A ledger whose metadata cannot be read has ``metadata`` None, and a warning names it.
    """
    left = limit
    for found in _ledgers(session, wanted, after, limit, ids_only=ids_only):
        yield found[:left]
        if left is not None:
            left -= len(found)
            if left <= 0:
                return


def _ledgers(
    session: Session,
    wanted: LedgerFilter,
    after: LedgerId | None,
    limit: int | None,
    *,
    ids_only: bool,
) -> Iterator[list[LedgerSummary]]:
    everything = wanted.is_open
    for ids in session.cluster.view.ledger_ranges(after):
        if ids_only:
            yield [LedgerSummary(ledger_id, None) for ledger_id in ids]
            continue
        # Without a filter every ledger counts: do not read more than the limit.
        for some in _pieces(ids, limit if everything else None):
            for stored in session.cluster.view.ledgers(some):
                found = [LedgerSummary(one.ledger_id, one.metadata) for one in stored]
                for one in found:
                    if one.metadata is None:
                        session.warn(f"ledger {one.ledger_id}: its metadata cannot be read")
                yield (
                    found
                    if everything
                    else [one for one in found if one.metadata and wanted.passes(one.metadata)]
                )


def _pieces(ids: Sequence[LedgerId], size: int | None) -> Iterator[Sequence[LedgerId]]:
    if size is None:
        yield ids
        return
    for at in range(0, len(ids), size):
        yield ids[at : at + size]


def each(found: Iterator[list[LedgerSummary]]) -> Iterator[LedgerSummary]:
    """Yield the ledgers one by one."""
    return itertools.chain.from_iterable(found)


def show(session: Session, ledger_ids: Sequence[Any]) -> None:
    """Show quorums, fragments, state and custom metadata of ledgers; `-` reads ids from stdin."""
    from bkclient.admin.one_shot_adds import is_handed_over
    from bkctl.commands.ledger.id_arguments import outcomes, require_no_failures

    if len(ledger_ids) == 1 and ledger_ids[0] != "-":
        one = _details(session, LedgerId(ledger_ids[0]))
        session.emit(one)
        if not one.metadata.is_closed and session.options.is_for_people:
            if not is_handed_over(one.metadata):
                session.note(
                    "The ledger may have more entries than the metadata says: "
                    f"`bkctl ledger map {one.ledger_id}` asks the bookies"
                )
            session.note(writer_text(one.ledger_id, one.metadata))
        return
    ids = map(LedgerId, session.input.words(ledger_ids, LEDGER_ID))
    failures: list[str] = []
    found = outcomes(session, ids, _details, failures)
    if session.options.output in {None, "wide"}:
        for one in found:
            session.emit(one)
    else:
        session.emit_all(found, LedgerDetails)
    require_no_failures(session, failures)


def writer_text(ledger_id: LedgerId, metadata: LedgerMetadata) -> str:
    """Return the information about the writer in the metadata of a ledger that is not closed."""
    from bkclient.admin.one_shot_adds import is_handed_over
    from bkclient.ledger.handover_state import WRITER_KEY
    from bkclient.log.ledger_list import LOG_KEY

    custom = metadata.custom
    if metadata.state is LedgerState.IN_RECOVERY:
        return f"Ledger {ledger_id} has no writer any more: a recovery has begun"
    if is_handed_over(metadata):
        return f"Ledger {ledger_id} has no writer now: no `bkctl ledger add` runs on it"
    if (name := custom.get(LOG_KEY)) is not None:
        writer = f"The writer appends to log {name.decode(errors='backslashreplace')}"
    elif WRITER_KEY in custom:
        writer = "The writer is a `bkctl ledger add`, which runs or has failed"
    else:
        writer = "BookKeeper does not record who writes; custom metadata may name the writer"
    return f"{writer}. New entries show that a writer runs: bkctl ledger tail {ledger_id} -f -n 0"


def _details(session: Session, ledger_id: LedgerId) -> LedgerDetails:
    """Return a ledger with all shown details."""
    from bkclient.admin import cluster_operations

    session.about = f"ledger {ledger_id}"
    stored = session.call(cluster_operations.read_metadata, ledger_id)
    return LedgerDetails(
        ledger_id,
        stored.value,
        stored.version,
        stored.value.password if session.options.show_secrets else None,
    )


def metadata_of(session: Session, ledger_id: LedgerId) -> LedgerMetadata:
    """Return a ledger's metadata."""
    from bkclient.admin import cluster_operations

    stored = session.call(cluster_operations.read_metadata, ledger_id)
    return stored.value


async def summaries(client: Client, ids: Sequence[LedgerId]) -> list[LedgerSummary]:
    """Read the metadata of ledgers, many at a time; ledgers that no longer exist are left out.

    A ledger whose metadata cannot be read has ``metadata`` None.
    """
    from bkclient.admin.ledger_scan import read_ledgers

    return [
        LedgerSummary(one.ledger_id, one.metadata) for one in await read_ledgers(client.store, ids)
    ]
