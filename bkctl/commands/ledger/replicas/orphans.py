"""`ledger orphans`: the ledgers that neither a file nor a log names."""

from __future__ import annotations

import time
from collections.abc import Collection, Iterator
from typing import Any, Final

import attrs

from bkclient.client import Client
from bkclient.ledger import handover_state
from bkclient.log.ledger_list import LedgerList
from bkctl.commands.ledger.columns import LEDGER_COLUMNS
from bkctl.commands.ledger.id_arguments import ids_in_file
from bkctl.commands.ledger.list_and_show import LedgerFilter, each, ledgers
from bkctl.commands.ledger.write import FRAMING_KEY
from bkctl.output.units import counted
from bkctl.output.views import LEDGER, Column, field, shown
from bkctl.session.session import Session
from wire.ids import LedgerId
from wire.ledger_metadata import LedgerMetadata


def _of_summary(name: str, **changes: Any) -> Column:
    """Return a column of ``ledger list``."""
    field = next(one for one in LEDGER_COLUMNS if one.name == name)
    return attrs.evolve(field, **changes)


@shown(
    "orphans",
    _of_summary("state"),
    _of_summary("last_entry"),
    _of_summary("length"),
    _of_summary("created"),
    Column("owner", "The owner that the ledger's metadata names.", lambda v: v.owner or None),
)
class Orphan:
    """A ledger without a known owner, and the owner that its metadata names."""

    ledger_id: LedgerId = field(LEDGER)
    metadata: LedgerMetadata

    @property
    def owner(self) -> str:
        """The custom metadata, without our own keys; applications write their name there."""
        return " ".join(
            f"{key}={value.decode(errors='backslashreplace')}"
            for key, value in sorted(self.metadata.custom.items(), key=_hints_first)
            if key not in _OURS
        )


_OURS: Final = {handover_state.HANDOVER_KEY, handover_state.WRITER_KEY, FRAMING_KEY}
_HINTS: Final = ("application", "component")


def _hints_first(item: tuple[str, bytes]) -> tuple[int, str]:
    key = item[0]
    return (_HINTS.index(key) if key in _HINTS else len(_HINTS)), key


def orphans(session: Session, keep_file: str, older_than: float) -> None:
    """List the ledgers that neither a file nor a log names."""
    keep = set(ids_in_file(session, keep_file))
    if not keep:
        session.warn(
            f"{keep_file} names no ledger, so all ledgers count as orphans, except those of logs"
        )
    kept = keep | session.call(_of_logs)
    wanted = LedgerFilter(created_before_ms=int((time.time() - older_than) * 1000))
    seen: set[LedgerId] = set()
    session.emit_all(_orphans(session, kept, wanted, seen), Orphan)
    gone = len(keep - seen)
    if gone:
        are = "is" if gone == 1 else "are"
        session.note(
            f"{counted(gone, 'ledger')} that {keep_file} names {are} missing from the cluster"
        )


def _orphans(
    session: Session, kept: Collection[LedgerId], wanted: LedgerFilter, seen: set[LedgerId]
) -> Iterator[Orphan]:
    everything = ledgers(session, LedgerFilter(), after=None, limit=None, ids_only=False)
    for one in each(everything):
        seen.add(one.ledger_id)
        if one.ledger_id not in kept and one.metadata and wanted.passes(one.metadata):
            yield Orphan(one.ledger_id, one.metadata)


async def _of_logs(client: Client) -> set[LedgerId]:
    """Return the ledgers that belong to logs."""
    found: set[LedgerId] = set()
    for name in await client.store.list_logs():
        record = (await LedgerList(client, name).read()).record
        found.update(ledger.ledger_id for ledger in record.ledgers)
    return found
