"""Everything wrong at once: what the doctor tells to type can be typed, and is in the manual."""

from __future__ import annotations

import re
import shlex
from pathlib import Path

import attrs
import click
import pytest

from bkclient.config.findings import FindingKind, SettingFinding, Severity
from bkclient.metadata.stored_values import BookieState
from bkclient.metadata.versions_and_watches import HeldLock
from bkclient.placement.rack_script import ScriptError
from bkclient.replication.autorecovery_admin import Mark
from bkctl.bookies.bookie_columns import BookieSummary
from bkctl.bookies.rack_losses import LedgerSample, RackLosses
from bkctl.cli.root import cli
from bkctl.commands.doctor.columns import ClusterFinding
from bkctl.commands.doctor.rules.diagnosis import diagnose
from bkctl.commands.doctor.survey_values import (
    ClusterSurvey,
    DoctorLimits,
    LedgerCensus,
    LocalSurvey,
)
from bkctl.output.views import view_of
from bookied.offline.check.findings import DiskFinding
from wire.ids import BookieId, LedgerId
from wire.records.cookie import Cookie, CookieDifference

REPAIR = Path(__file__).parents[4] / "docs" / "repair.md"
NOW_MS = 2_000_000_000_000
OLD_MS = NOW_MS - 90 * 86_400_000


def some(count: int = 2) -> LedgerSample:
    found = LedgerSample()
    for number in range(count):
        found.add(LedgerId(number))
    return found


def everything_wrong() -> ClusterSurvey:
    marks = (Mark(LedgerId(1), (BookieId("a:1"),), OLD_MS), Mark(LedgerId(2), (), NOW_MS + 10**6))
    ledgers = LedgerCensus(
        now_ms=NOW_MS,
        in_service=frozenset(),
        marks={mark.ledger_id: mark for mark in marks[:1]},
        limits=DoctorLimits(),
        by_ensemble={9: some()},
        rack_losses=RackLosses({}, {"/rack": some()}),
        **{
            name: some()
            for name in (
                "unreadable", "out_of_reach", "unanswered", "last_copy", "lacking", "unmarked",
                "unmendable", "bad_copies",
                "marked_in_service", "lost", "single", "abandoned", "open_long", "refused_id",
                "from_future",
            )
        },
    )  # fmt: skip
    ledgers.holds.update(["down:1", "unknown:1"])
    ledgers.marks_of_gone = {LedgerId(99)}
    up = BookieState.WRITABLE.value
    return ClusterSurvey(
        now_ms=NOW_MS,
        limits=DoctorLimits(),
        instance_id="i",
        bookies=(
            BookieSummary(bookie_id=BookieId("full:1"), state=up, address="h:1", free=1, total=99),
            BookieSummary(bookie_id=BookieId("twin:1"), state=up, address="h:1", unreachable="no"),
            BookieSummary(
                bookie_id=BookieId("shut:1"),
                state=up,
                address="s:1",
                unreachable="no",
                refuses=True,
            ),
            BookieSummary(bookie_id=BookieId("ro:1"), state=BookieState.READ_ONLY.value),
            BookieSummary(bookie_id=BookieId("down:1"), state=BookieState.DOWN.value),
            BookieSummary(bookie_id=BookieId("empty:1"), state=BookieState.DOWN.value),
        ),
        addresses={"down": "h"},
        cookies={
            BookieId("full:1"): None,
            BookieId("ro:1"): Cookie("ro:1", "/j", ("/l",), None, "another"),
        },
        enabled=False,
        delay_s=10**6,
        health_check=False,
        checked_ms={"all-ledgers": OLD_MS},
        marks=marks,
        locks=(HeldLock(LedgerId(1), "host", OLD_MS),),
        ledgers=ledgers,
        damaged={"a mark is nonsense": "remove it"},
        damaged_logs=("events",),
        topology_error=ScriptError("the script failed"),
        stuck=(LedgerId(5),),
    )


def everything_wrong_here(*, at_work: bool) -> LocalSurvey:
    def differs(*fields: str) -> tuple[CookieDifference, ...]:
        return tuple(CookieDifference(field, "ours", "theirs") for field in fields)

    return LocalSurvey(
        conf="bk.conf",
        bookie_id=BookieId("b:1"),
        is_registered=not at_work,
        is_at_work=at_work,
        settings=tuple(
            SettingFinding(severity, FindingKind.RISKY, "is odd", "key")
            for severity in (Severity.ERROR, Severity.WARNING)
        ),
        missing=(Path("/x"), Path("/y")),
        cookie=Cookie("b:1", "/j", ("/l",)),
        stored=Cookie("b:1", "/j", ("/l",)),
        differs=differs(
            "bookie id", "journal directories", "ledger directories", "index directories",
            "instance id",
        ),
        stored_differs=differs("whole text"),
        version_file=Path("/x/VERSION"),
        problems=(DiskFinding(Severity.PROBLEM, "journal-missing", "is gone", Path("/x")),),
        storage_kind="another kind",
        disks={Path("/full"): 0.99, Path("/nearly"): 0.92},
        newest_ms=NOW_MS + 10**6,
        now_ms=NOW_MS,
    )  # fmt: skip


def all_findings() -> list[ClusterFinding]:
    seen = everything_wrong()
    found = diagnose(seen, everything_wrong_here(at_work=True))
    found += diagnose(seen, everything_wrong_here(at_work=False))
    found += diagnose(attrs.evolve(seen, bookies=(), instance_id=None), None)
    found += diagnose(attrs.evolve(seen, read_only_by_hand=frozenset({BookieId("ro:1")})), None)
    return list({one.kind + one.fix: one for one in found}.values())


FINDINGS = all_findings()


def test_a_bookie_that_is_read_only_by_hand_is_not_sent_to_free_its_disk() -> None:
    seen = attrs.evolve(everything_wrong(), read_only_by_hand=frozenset({BookieId("ro:1")}))
    (found,) = (one for one in diagnose(seen, None) if one.kind == "bookie-read-only")
    back = "bkctl bookie readonly ro:1 off"
    assert "read-only by hand" in found.message
    assert found.fix == f"stop it, then: bkctl decommission ro:1, or keep it: {back}"
    seen.ledgers.holds["ro:1"] = 3
    (found,) = (one for one in diagnose(seen, None) if one.kind == "bookie-read-only")
    assert found.fix == f"if no drain of it is in progress: {back}"


def test_bookies_of_a_local_cluster_are_started_by_a_line_to_type() -> None:
    seen = attrs.evolve(everything_wrong(), local_directory="/tmp/a b")
    down = [one.bookie_id for one in seen.of_state(BookieState.DOWN)]
    # `bkctl local` starts no bookie that another command has added to its cluster.
    assert not any("bkctl local start" in one.fix for one in diagnose(seen, None))
    seen = attrs.evolve(seen, local_bookies=frozenset(down))
    fixes = {
        one.fix for one in diagnose(seen, None) if one.kind in {"bookie-down", "bookie-retired"}
    }
    assert any(f"bkctl local start '/tmp/a b' {down[0]}" in fix for fix in fixes), fixes
    assert not any("again" in one.fix for one in diagnose(seen, None) if down[0] in one.fix)


def _out_of_reach(down: int, *, emptied: int = 0, needed: int = 0) -> str:
    """Return what brings back a ledger that the last ``needed`` of the bookies list."""
    names = [BookieId(f"b{n}:1") for n in range(down)]
    seen = everything_wrong()
    seen.ledgers.holds.clear()
    seen.ledgers.needed.update(names[down - needed :])
    seen = attrs.evolve(
        seen,
        bookies=tuple(BookieSummary(bookie_id=one, state="down") for one in names),
        emptied={one: f"/{one}/bk.conf" for one in names[:emptied]},
    )
    (found,) = (one for one in diagnose(seen, None) if one.kind == "ledgers-out-of-reach")
    return found.fix


def test_all_bookies_that_can_help_are_named() -> None:
    assert _out_of_reach(4) == "start b0:1, b1:1, b2:1, b3:1 again"
    assert "and 2 more again" in _out_of_reach(12)
    assert _out_of_reach(4, needed=2) == "start b2:1, b3:1 again"


def test_an_emptied_bookie_is_not_started_but_salvaged() -> None:
    assert _out_of_reach(3, emptied=1, needed=3) == "start b1:1, b2:1 again"
    salvage = "bkctl disk salvage 0 --out DIR -c /b0:1/bk.conf"
    assert _out_of_reach(1, emptied=1, needed=1) == salvage
    seen = attrs.evolve(everything_wrong(), emptied={BookieId("down:1"): "bk.conf"})
    fixes = [one.fix for one in diagnose(seen, None) if one.kind == "bookie-down"]
    assert fixes
    assert not [one for one in fixes if "start" in one]
    assert "bkctl doctor -c bk.conf" in fixes[0]
    same = attrs.evolve(seen, examined=BookieId("down:1"))
    fixes = [one.fix for one in diagnose(same, None) if one.kind == "bookie-down"]
    assert fixes[0].startswith("the findings about its lost directory say what to do")


def test_ledgers_to_recover_are_named_together() -> None:
    seen = attrs.evolve(everything_wrong(), stuck=(LedgerId(3), LedgerId(4)))
    (found,) = (one for one in diagnose(seen, None) if one.kind == "ledgers-in-recovery")
    assert found.fix == "bkctl ledger recover 3 4"


@pytest.mark.parametrize(
    "fix", sorted({one.fix for one in FINDINGS if "bkctl " in one.fix}), ids=str
)
def test_what_the_doctor_tells_to_type_is_a_command(fix: str) -> None:
    typed = re.split("[,`]", "bkctl " + fix.partition("bkctl ")[2])[0]
    words = shlex.split(typed)[1:]
    command: click.Command = cli
    ctx = click.Context(cli, info_name="bkctl", **cli.context_settings)
    while isinstance(command, click.Group):
        _, found, words = command.resolve_command(ctx, words)
        assert found is not None
        command = found
        if not isinstance(command, click.Group):
            command.make_context(command.name, words, parent=ctx)


def test_every_finding_says_what_mends_it() -> None:
    for one in FINDINGS:
        assert one.fix or "workers check that and repair it" in one.message, one
        assert one.message[-1] not in ".:;", one
        assert re.fullmatch(r"[a-z]+(-[a-z]+)+", one.kind), one


def test_every_finding_is_in_the_manual() -> None:
    manual = REPAIR.read_text(encoding="utf-8")
    written = set(re.findall(r"^\| `([a-z-]+)` \|", manual, re.MULTILINE))
    names = {one.kind for one in FINDINGS}
    assert {name for name in names if not name.startswith("local-")} <= written
    assert {name for name in written if not name.startswith("local-")} <= names


def test_a_cluster_on_one_machine_may_do_without_an_auditor_until_it_needs_one() -> None:
    up = BookieState.WRITABLE.value
    here = [
        BookieSummary(BookieId(f"b:{n}"), up, f"{host}:3181")
        for n, host in enumerate(["127.0.0.1", "::1", "localhost"])
    ]
    seen = ClusterSurvey(
        now_ms=0, limits=DoctorLimits(), instance_id="i", bookies=tuple(here),
        addresses={"localhost": "127.0.0.1"},
        ledgers=LedgerCensus(now_ms=0, in_service=frozenset(), marks={}, limits=DoctorLimits()),
    )  # fmt: skip

    def danger(seen: ClusterSurvey) -> Severity:
        return next(one.severity for one in diagnose(seen, None) if one.kind == "auditor-missing")

    assert danger(seen) is Severity.NOTE
    elsewhere = attrs.evolve(here[0], address="10.0.0.1:3181")
    assert danger(attrs.evolve(seen, bookies=(*here, elsewhere))) is Severity.TROUBLE
    assert danger(attrs.evolve(seen, marks=(Mark(LedgerId(1), (), 0),))) is Severity.RISK


def test_a_remedy_that_does_not_fit_breaks_no_command() -> None:
    long = "stop it, then: bkctl decommission ro:1, or keep it: bkctl bookie readonly ro:1 off"
    finding = ClusterFinding(Severity.TROUBLE, "x", "ro:1 is read-only", fix=long)
    assert _shown(finding, 120)[1:] == [f"-> {long}"]
    assert _shown(finding, 60)[1:] == [
        "-> stop it, then:",
        "bkctl decommission ro:1",
        "or keep it:",
        "bkctl bookie readonly ro:1 off",
    ]
    words = attrs.evolve(finding, fix="start the bookie again if its process has ended here")
    assert _shown(words, 45)[1:] == ["-> start the bookie again if its", "process has ended here"]


def _shown(finding: ClusterFinding, width: int) -> list[str]:
    lines = view_of(ClusterFinding).lines
    assert lines is not None
    return [line.strip() for line in lines(finding, width, False)]
