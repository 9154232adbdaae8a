"""The doctor's rules about the bookie on this machine: functions of its survey."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Final

from bkclient.config.findings import Severity
from bkctl.commands.doctor.columns import ClusterFinding
from bkctl.commands.doctor.rules.clocks import local_clock
from bkctl.commands.doctor.survey_values import LocalSurvey
from bookied.offline.check.start import LOSS_FIX

_OF_PROBLEM: Final = {
    Severity.PROBLEM: Severity.RISK,
    Severity.WARNING: Severity.TROUBLE,
    Severity.NOTE: Severity.NOTE,
}


def local_findings(seen: LocalSurvey) -> list[ClusterFinding]:
    """Return all findings about the bookie, in the order of the rules."""
    if seen.is_of_another_host:
        what = (
            f"no directory of {seen.conf} is on this host: the bookie is on another host, or new; "
            "its directories were not checked"
        )
        fix = f"to check them: bkctl doctor -c {seen.conf}, on the host of the bookie"
        return [ClusterFinding(Severity.NOTE, "local-on-another-host", what, fix=fix)]
    return [one for rule in _RULES for one in rule(seen)]


def _local_missing(seen: LocalSurvey) -> Iterator[ClusterFinding]:
    if seen.missing:
        first, *others = seen.missing
        what = f"{first} is not there" + (f", nor {len(others)} more" if others else "")
        fix = "mount its disk; a new bookie makes its directories when it first starts"
        if seen.cookie is not None or seen.stored is not None:
            fix = _with_file(LOSS_FIX.format(bookie=seen.bookie_id), seen)
        yield ClusterFinding(
            Severity.RISK,
            "local-directory-missing",
            what,
            fix=fix,
            examples=seen.missing,
            count=len(seen.missing),
        )


def _local_cookie(seen: LocalSurvey) -> Iterator[ClusterFinding]:
    if seen.cookie is None:
        if seen.stored is not None and not seen.missing:
            what = (
                f"the cluster has a cookie of {seen.bookie_id}, and its directories have none: "
                "they were emptied"
            )
            fix = _with_file(LOSS_FIX.format(bookie=seen.bookie_id), seen)
            yield ClusterFinding(Severity.RISK, "local-cookies-missing", what, fix=fix)
        return
    for one in seen.differs:
        what = (
            f"the cookie in the directories differs from the settings in its {one.field}: "
            f"{one.found}, not {one.configured}"
        )
        yield ClusterFinding(
            Severity.RISK, f"local-{_word(one.field)}", what, fix=_cookie_fix(one.field, seen)
        )
    if seen.stored is None and not seen.differs:
        what = (
            f"the directories have a cookie of {seen.bookie_id}, the cluster has none; after a "
            "decommission remove the data instead: bkctl disk format -c FILE"
        )
        fix = f"bkctl cookie create {seen.bookie_id} --file {seen.version_file}"
        yield ClusterFinding(Severity.RISK, "local-cookie-not-stored", what, fix=fix)
    fields = {one.field for one in seen.differs}
    for one in seen.stored_differs:
        if one.field not in fields:
            what = (
                f"the stored cookie differs from settings and directories in its {one.field}: "
                f"{one.found}, not {one.configured}"
            )
            fix = f"bkctl cookie update {seen.bookie_id} --file {seen.version_file}"
            yield ClusterFinding(Severity.RISK, f"local-stored-{_word(one.field)}", what, fix=fix)


def _word(field: str) -> str:
    return field.replace(" ", "-")


def _cookie_fix(field: str, seen: LocalSurvey) -> str:
    if field == "bookie id":
        return f"bkctl bookie rename -c {seen.conf}"
    if field in {"ledger directories", "index directories"}:
        return (
            f"bkctl cookie repair -c {seen.conf}, if they were moved; bkctl disk expand -c "
            f"{seen.conf}, if some were added"
        )
    if field == "journal directories":
        return f"bkctl cookie repair -c {seen.conf}, if they were moved; else the settings"
    if field == "instance id":
        return (
            "if the cluster was formatted or removed, stop its bookies, then: bkctl cluster "
            f"restore FILE, with its backup; if metadataServiceUri is another cluster's, correct "
            f"{seen.conf}. To lose all entries and begin anew: bkctl disk format --force metadata "
            f"-c {seen.conf}"
        )
    return "put the settings back as they were"


def _local_files(seen: LocalSurvey) -> Iterator[ClusterFinding]:
    for one in seen.problems:
        if one.severity is Severity.NOTE:
            continue
        where = "" if one.path is None else f"{one.path}: "
        fix = _with_file(one.fix or "bkctl disk check -c FILE", seen)
        yield ClusterFinding(
            _OF_PROBLEM[one.severity], f"local-{one.kind}", f"{where}{one.message}", fix=fix
        )


def _with_file(fix: str, seen: LocalSurvey) -> str:
    return fix.replace("-c FILE", f"-c {seen.conf}")


def _local_storage_kind(seen: LocalSurvey) -> Iterator[ClusterFinding]:
    if seen.storage_kind:
        yield ClusterFinding(
            Severity.RISK, "local-storage-kind", seen.storage_kind,
            fix=f"put ledgerStorageClass back in {seen.conf}",
        )  # fmt: skip


def _local_disks(seen: LocalSurvey) -> Iterator[ClusterFinding]:
    for directory, used in seen.disks.items():
        if used > seen.warn_at:
            is_full = used > seen.full_at
            what = (
                f"{directory} is {'full' if is_full else 'nearly full'} ({100 * used:.0f} % used)"
            )
            yield ClusterFinding(
                Severity.RISK if is_full else Severity.TROUBLE,
                "local-disk-full" if is_full else "local-disk-nearly-full",
                what,
                fix=f"bkctl disk usage -c {seen.conf}",
                examples=(directory,),
            )


def _local_settings(seen: LocalSurvey) -> Iterator[ClusterFinding]:
    for severity, of_bookie, name in (
        (Severity.ERROR, Severity.RISK, "local-setting-refused"),
        (Severity.WARNING, Severity.TROUBLE, "local-setting"),
    ):
        for one in seen.settings:
            if one.severity is severity:
                yield ClusterFinding(
                    of_bookie, name, str(one), fix=f"change it in {seen.conf}", examples=(one.key,)
                )


def _local_use(seen: LocalSurvey) -> Iterator[ClusterFinding]:
    if seen.is_registered and not seen.is_at_work:
        what = (
            f"{seen.bookie_id} is registered, but no process uses these directories: "
            "the bookie runs elsewhere"
        )
        fix = f"bkctl bookie show {seen.bookie_id}"
        yield ClusterFinding(Severity.TROUBLE, "local-runs-elsewhere", what, fix=fix)
    elif seen.is_at_work and not seen.is_registered:
        what = f"a bookie uses these directories, and {seen.bookie_id} is not registered"
        fix = "look into its log: it is starting, or has lost the metadata service"
        yield ClusterFinding(Severity.RISK, "local-not-registered", what, fix=fix)
    elif not seen.is_at_work:
        what = f"{seen.bookie_id} does not run"
        fix = f"bookied --conf {seen.conf}"
        if seen.is_emptied:
            fix = "bkctl explain BK-WRONG-IDENTITY, before it is started"
        yield ClusterFinding(Severity.NOTE, "local-stopped", what, fix=fix)


_RULES: Final[tuple[Callable[[LocalSurvey], Iterator[ClusterFinding]], ...]] = (
    _local_missing, _local_cookie, _local_storage_kind, _local_files, _local_disks, _local_use,
    _local_settings, local_clock,
)  # fmt: skip
