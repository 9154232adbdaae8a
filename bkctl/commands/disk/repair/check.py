"""`disk check`: runs the stages of ``bookied.offline.check.check`` and counts their findings."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator
from functools import cached_property
from typing import TYPE_CHECKING, Final

import attrs

from bkclient.client import Client
from bkclient.config.findings import Severity
from bkclient.errors import NoSuchLedgerError
from bkctl.bookies.directories import open_bookie
from bkctl.commands.ledger.list_and_show import metadata_of
from bkctl.errors import NothingFoundError, ProblemsError, UsageError, WarningsError
from bkctl.output.units import counted
from bkctl.output.views import Column, field, shown
from bkctl.session.session import Session
from bookied.offline.check.check import stages
from bookied.offline.check.entry_logs import IF_IT_EXISTS
from bookied.offline.check.findings import DiskFinding, Findings
from bookied.offline.check.start import OTHER_DIRECTORIES
from bookied.offline.index import IndexKind
from wire.errors import BookKeeperError
from wire.ids import BookieId, LedgerId
from wire.ledger_metadata import LedgerMetadata

_NO_START: Final = (
    "the bookie does not start with these settings: `bkctl cookie repair -c FILE` if the "
    "directories were moved, `bkctl disk expand -c FILE` if some were added"
)

_READ_AT_START: Final = {"cookies and marks", "journals"}
"""Stages whose problems prevent a start. A bookie does start with damaged entries."""

if TYPE_CHECKING:
    from bkctl.commands.disk.inspect.journals import Dirs
    from bookied.offline.bookie import Shard


def check(
    session: Session, /, *, deep: bool, repair_plan: bool, db: bool, **dirs: tuple[str, ...]
) -> None:
    """Check a bookie's directories, without a change."""
    checking = Checking(session, deep=deep, only_db=db)
    found = checking.run(dirs)
    if repair_plan:
        session.emit_all(plan(found), RepairStep)
    else:
        session.emit_all(found, DiskFinding)
    checking.finish(has_plan=repair_plan)


def _step_sentence(step: RepairStep) -> str:
    about = f", of {len(step.ledgers)} ledgers" if step.ledgers[1:] else ""
    if len(step.ledgers) == 1:
        about = f", of ledger {step.ledgers[0]}"
    entries = f" with {counted(step.entries, 'entry')}" if step.entries else ""
    found = counted(step.count, step.severity.value)
    return f"{step.step}\n    against {found}{about}{entries}: {', '.join(step.kinds)}"


@shown(
    "steps",
    Column(
        "severity",
        "The highest severity among the findings of the step.",
        "severity.value",
        after="step",
    ),
    sentence=_step_sentence,
)
class RepairStep:
    """One repair step, and the findings that it repairs."""

    step: str = field("The repair step.")
    severity: Severity
    count: int = field("Number of findings that the step repairs.")
    kinds: tuple[str, ...] = field("Kinds of these findings.")
    ledgers: tuple[str, ...] = field("The ledgers of these findings.")
    entries: int = field("Number of entries of these findings.")


class Checking:
    """One run of the check, with its counts."""

    def __init__(self, session: Session, *, deep: bool, only_db: bool) -> None:
        self._session, self._deep, self._only_db = session, deep, only_db
        self._findings = Findings()
        self._moved = MovedLedgers(session, self._findings)
        self._severities: Counter[Severity] = Counter()
        self._stops_start = 0
        """Problems that prevent a start of the bookie."""

    def run(self, dirs: Dirs) -> Iterator[DiskFinding]:
        """Yield findings while the stages run.

        Raises:
            NothingFoundError: only RocksDB indexes are checked, and there are none.
        """
        bookie = open_bookie(self._session, **dirs)
        self._findings.is_live = bookie.is_live
        is_copy = any(dirs.values())
        with bookie.shards() as shards:
            self._require_db(shards)
            for stage in stages(bookie, self._findings, shards=shards, deep=self._deep):
                if self._only_db and stage.title not in {"journals", "index"}:
                    continue
                title = f"checking {stage.title}"
                progress = self._session.progress(title, total=stage.total, unit=stage.unit)
                with progress as shown:
                    for problem in stage.run(shown.update):
                        if self._only_db and stage.title != "index":
                            # Journals are only read to know the entries that the next start
                            # replays.
                            continue
                        judged = self._moved.judge(problem)
                        if judged.kind == OTHER_DIRECTORIES and not is_copy:
                            judged = attrs.evolve(judged, severity=Severity.PROBLEM, fix=_NO_START)
                        self._severities[judged.severity] += 1
                        if stage.title in _READ_AT_START:
                            self._stops_start += judged.severity is Severity.PROBLEM
                        yield judged

    def _require_db(self, shards: tuple[Shard, ...]) -> None:
        if self._only_db and all(shard.index.kind is not IndexKind.DB for shard in shards):
            raise NothingFoundError(
                "there is no RocksDB index here", next_step="leave --db out to check index files"
            )

    def finish(self, *, has_plan: bool) -> None:
        """Print the counts, and end with status 10 for problems, or 9 for warnings alone.

        Raises:
            ProblemsError: the check found problems.
            WarningsError: the check found warnings, but no problem.
        """
        self._session.finish()  # Print the findings before the counts.
        counts = self._findings.counts
        digests = f", {counted(counts.verified, 'digest')}" if self._deep else ""
        seen = (
            counted(counts.ledgers, "ledger"),
            counted(counts.entries, "entry") + digests,
            counted(counts.logs, "entry log"),
            counted(counts.journals, "journal"),
        )
        self._session.note(f"checked {', '.join(seen)}: {self._sum()}")
        if not self._deep and not self._only_db:
            self._session.note(
                "(payloads, and journals that no start replays, were not read; --deep reads them)"
            )
        if self._deep and counts.unverified:
            self._session.note(
                f"({counted(counts.unverified, 'entry')} of ledgers with a digest that needs the "
                "password, or without one: only their heads were compared)"
            )
        if self._moved.unasked:
            self._session.note(
                "(whether autorecovery has moved these ledgers to other bookies is unknown: "
                f"{self._moved.unasked})"
            )
        if not self._findings.is_live and not self._only_db:
            problems = counted(self._stops_start, "problem")
            self._session.note(
                f"{problems} with cookies, marks or journals: the bookie does not start"
                if self._stops_start
                else "cookies, marks and journals do not stop a start of the bookie"
            )
        if self._severities[Severity.PROBLEM]:
            raise ProblemsError(
                counted(self._severities[Severity.PROBLEM], "problem") + " found",
                next_step="" if has_plan else "--repair-plan says what to do",
            )
        if self._severities[Severity.WARNING]:
            raise WarningsError(
                f"{counted(self._severities[Severity.WARNING], 'warning')}, and no problem"
            )

    def _sum(self) -> str:
        found = [
            counted(self._severities[severity], severity.value)
            for severity in Severity
            if self._severities[severity]
        ]
        return ", ".join(found) or "no problem found"


def plan(problems: Iterable[DiskFinding]) -> Iterator[RepairStep]:
    """Yield the repair steps for the findings: each step once, the most severe first."""
    found: dict[str, list[DiskFinding]] = {}
    for problem in problems:
        if problem.fix and problem.severity is not Severity.NOTE:
            found.setdefault(problem.fix, []).append(problem)
    order = list(Severity)
    steps = [
        RepairStep(
            step,
            min((one.severity for one in about), key=order.index),
            len(about),
            tuple(dict.fromkeys(one.kind for one in about)),
            tuple(dict.fromkeys(str(one.ledger_id) for one in about if one.ledger_id is not None)),
            sum(one.entries for one in about),
        )
        for step, about in found.items()
    ]
    yield from sorted(steps, key=lambda step: order.index(step.severity))


_NO_INDEX: Final = "no-index"
_FREED: Final = "none needed: garbage collection frees its space here"


class MovedLedgers:
    """The judge of findings about ledgers. It reads the metadata at the first of these findings.

    Missing entries of a ledger that was deleted, or that other bookies store now, are not lost.
    Autorecovery copies the entries of a stopped bookie to other bookies, and only the metadata
    shows these copies.
    """

    def __init__(self, session: Session, found: Findings) -> None:
        self._session, self._found = session, found
        self._known: dict[int, LedgerMetadata | None] = {}
        """The ledgers whose metadata was read; None if the ledger was deleted."""
        self.unasked = ""
        """The reason why the metadata was not read, or ""."""

    def judge(self, finding: DiskFinding) -> DiskFinding:
        """Return a finding with the severity by the metadata, or unchanged without metadata."""
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
                fix=finding.fix.removeprefix(IF_IT_EXISTS),
            )
        return finding

    @cached_property
    def _is_here(self) -> bool:
        """True if the metadata can be read and belongs to the bookie's cluster."""
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
    """Return whether a fragment with any entry of the finding lists the bookie."""
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
