"""`disk check`: what a disk lacks of a ledger that has moved away, or is deleted, is not lost.

Autorecovery gives the entries of a stopped bookie to other bookies, and only the metadata says so.
"""

from __future__ import annotations

from functools import cached_property
from typing import TYPE_CHECKING, Final

import attrs

from bkclient.client import Client
from bkclient.config.findings import Severity
from bkclient.errors import NoSuchLedgerError
from bkctl.commands.ledger.list_and_show import metadata_of
from bkctl.errors import UsageError
from wire.errors import BookKeeperError
from wire.ids import BookieId, LedgerId

if TYPE_CHECKING:
    from bkctl.session.session import Session
    from bookied.offline.check.findings import DiskFinding, Findings
    from wire.ledger_metadata import LedgerMetadata

_NO_INDEX: Final = "no-index"
_FREED: Final = "none needed: garbage collection frees its space here"


class MovedLedgers:
    """Judges findings about ledgers by the metadata, which is asked at the first one."""

    def __init__(self, session: Session, found: Findings) -> None:
        self._session, self._found = session, found
        self._known: dict[int, LedgerMetadata | None] = {}
        """The ledgers that were asked for; None is deleted."""
        self.unasked = ""
        """Why it is not known whether the ledgers of findings are still this bookie's, or ""."""

    def judge(self, finding: DiskFinding) -> DiskFinding:
        """Return a finding as the metadata lets it appear, or unchanged if nothing tells."""
        is_of_interest = finding.severity is not Severity.NOTE or finding.kind == _NO_INDEX
        ledger_id = finding.ledger_id
        if ledger_id is None or not is_of_interest or self._found.is_live or not self._is_here:
            return finding
        try:
            metadata = self._metadata(ledger_id)
        except BookKeeperError as error:
            self.unasked = self.unasked or str(error)
            return finding
        if metadata is None:
            return _not_needed(finding, "no such ledger exists")
        if not _is_listed(metadata, BookieId(self._found.bookie_id), finding):
            return _not_needed(finding, "these entries belong to other bookies now")
        if finding.kind == _NO_INDEX:
            return attrs.evolve(
                finding,
                severity=Severity.PROBLEM if metadata.is_closed else Severity.WARNING,
                message=f"{finding.message}; the ledger exists and lists this bookie",
                fix=f"bkctl disk rebuild-index {ledger_id}",
            )
        return finding

    @cached_property
    def _is_here(self) -> bool:
        """Whether the metadata can be asked, and is that of the bookie's cluster."""
        if self._found.instance_id is None:
            return False
        try:
            instance_id = self._session.call(_instance_id)
        except UsageError:
            self.unasked = "-c FILE or -u URI names the cluster"
            return False
        except BookKeeperError as error:
            self.unasked = str(error)
            return False
        if instance_id != self._found.instance_id:
            self.unasked = f"{self._session.uri} is another cluster than that of the cookies"
        return not self.unasked

    def _metadata(self, ledger_id: int) -> LedgerMetadata | None:
        if ledger_id not in self._known:
            try:
                self._known[ledger_id] = metadata_of(self._session, LedgerId(ledger_id))
            except NoSuchLedgerError:
                self._known[ledger_id] = None
        return self._known[ledger_id]


async def _instance_id(client: Client) -> str:
    return str(await client.store.instance_id())


def _is_listed(metadata: LedgerMetadata, bookie_id: BookieId, finding: DiskFinding) -> bool:
    """Return whether a fragment with any of the entries lists the bookie."""
    if finding.entry_id is None:
        return bookie_id in metadata.all_bookies()
    first = finding.entry_id
    last = first if finding.last_entry is None else finding.last_entry
    later = (one for one in metadata.fragments if first < one.first_entry_id <= last)
    return any(bookie_id in one.ensemble for one in (metadata.fragment_of(first), *later))


def _not_needed(finding: DiskFinding, why: str) -> DiskFinding:
    return attrs.evolve(
        finding, severity=Severity.NOTE, message=f"{finding.message}; {why}", fix=_FREED
    )
