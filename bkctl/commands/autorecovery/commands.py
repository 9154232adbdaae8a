"""``bkctl autorecovery``: the cluster's healing, its switch, its work and who directs it."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Final

import click

from bkctl.cli.command import SubGroup
from bkctl.cli.params import BOOKIE_ID, DURATION
from bkctl.commands.autorecovery.repairs_commands import CHECKS, LAZY
from bkctl.exit_status import Effect, ExitStatus

if TYPE_CHECKING:
    from bkctl.session.session import Session
    from wire.ids import LedgerId

_FAILURES: Final = (ExitStatus.FAILED, ExitStatus.UNREACHABLE, ExitStatus.TIME_LIMIT)

autorecovery = SubGroup(
    name="autorecovery",
    short_help="Autorecovery: re-replicate ledgers after a bookie is lost.",
    help="""Autorecovery: re-replicate ledgers after a bookie is lost.

    An auditor, elected among all that run autorecovery, marks the ledgers of a lost bookie. Workers
    take the marks one by one and copy what is missing to other bookies.
    """,
    lazy=LAZY,
    order=("status", "list", "enable", "disable", "auditor", "trigger", "delay"),
)


@autorecovery.command(
    "status",
    effect=Effect.READ,
    examples=(
        ("bkctl autorecovery status", "switch, auditor, delay, and the number of marked ledgers"),
        ("bkctl autorecovery status --json", "the same for programs"),
    ),
    exits=_FAILURES,
    replaces="bookkeeper shell autorecovery; queryautorecoverystatus; lostbookierecoverydelay -g",
)
@click.pass_obj
def status(session: Session) -> None:
    """Show autorecovery's switch, its auditor, and the number of marked ledgers."""
    from bkclient.repair import autorecovery as work

    session.reminds = False
    session.emit(session.call(work.status))


@autorecovery.command(
    "list",
    effect=Effect.READ,
    examples=(
        ("bkctl autorecovery list", "every ledger that lacks replicas, and its worker"),
        ("bkctl autorecovery list --missing 10.0.0.1:3181 --count", "how many lack that bookie's"),
        ("bkctl autorecovery list --detail", "sizes, and what each one waits for"),
        ("bkctl autorecovery list --older-than 1h -o id", "ids of those that make no progress"),
    ),
    exits=(*_FAILURES, ExitStatus.PARTLY),
    replaces="bookkeeper shell listunderreplicated [-mr ID] [-emr ID] [-pmr] [-prw] [-c]",
)
@click.option("--missing", type=BOOKIE_ID, metavar="BOOKIE", help="Only what lacks its replicas.")
@click.option(
    "--not-missing", type=BOOKIE_ID, metavar="BOOKIE", help="Only what does not lack them."
)
@click.option(
    "--older-than", "older_than_s", type=DURATION, metavar="TIME", help="Only marks of that age."
)
@click.option("--detail", is_flag=True, help="Look at each ledger: size, and what it waits for.")
@click.option("--count", is_flag=True, help="Print only how many.")
@click.pass_obj
def list_(
    session: Session,
    *,
    missing: str | None,
    not_missing: str | None,
    older_than_s: float | None,
    detail: bool,
    count: bool,
) -> None:
    """List the ledgers that are marked as lacking replicas."""
    from bkclient.repair.autorecovery import Mark
    from bkclient.repair.outlook import LedgerProspect
    from bkctl.commands.autorecovery import repairs
    from bkctl.commands.autorecovery import work as autorecovery_work
    from bkctl.commands.ledger.views import LedgerCount

    damaged: list[LedgerId] = []
    found = autorecovery_work.marks(session, missing, not_missing, older_than_s, damaged)
    if count:
        session.emit(LedgerCount(sum(1 for _ in found)))
    elif detail:
        session.emit_all(repairs.detailed(session, found), LedgerProspect)
    else:
        session.emit_all(found, Mark)
    autorecovery_work.insist_readable(damaged)


@autorecovery.command(
    "enable",
    effect=Effect.REVERSIBLE,
    examples=(
        ("bkctl autorecovery enable", "the cluster repairs itself again"),
        ("bkctl autorecovery enable --dry-run", "only say whether that would change anything"),
    ),
    exits=_FAILURES,
    replaces="bookkeeper shell autorecovery -enable",
)
@click.pass_obj
def enable(session: Session) -> None:
    """Switch autorecovery on, for the whole cluster; marked ledgers are repaired at once."""
    _switch(session, enabled=True)


@autorecovery.command(
    "disable",
    effect=Effect.REVERSIBLE,
    examples=(
        ("bkctl autorecovery disable", "before bookies are restarted one by one"),
        ('bkctl autorecovery disable --for 30m --reason "new disks"', "and every command says so"),
        ("bkctl autorecovery disable --dry-run", "only say whether that would change anything"),
    ),
    exits=_FAILURES,
    replaces="bookkeeper shell autorecovery -disable",
)
@click.option(
    "--for",
    "for_s",
    type=DURATION,
    metavar="TIME",
    help="End the pause after so long: bookied enables autorecovery again.",
)
@click.option("--reason", metavar="TEXT", help="The reason, shown to other operators.")
@click.pass_obj
def disable(session: Session, *, for_s: float | None, reason: str | None) -> None:
    """Switch autorecovery off, for the whole cluster.

    Running copies continue; no new copy begins, and no lost bookie is noticed. Autorecovery stays
    off until `enable`, or until --for has passed: `bkctl doctor` and every command that succeeds
    say so, with the user and host that disabled it. Java's auditors and workers ignore --for; if
    only they run, the line for cron is printed.
    """
    _switch(session, enabled=False, for_s=for_s, reason=reason)


def _switch(
    session: Session, *, enabled: bool, for_s: float | None = None, reason: str | None = None
) -> None:
    from bkclient.repair import autorecovery as work
    from bkctl.commands.autorecovery.pause import pause, say_how_it_ends
    from bkctl.commands.autorecovery.work import Switched

    if session.dry_run:
        is_so = session.call(work.status).enabled is enabled
        verb = "enable" if enabled else "disable"
        session.plan([] if is_so else [f"{verb} autorecovery"])
        return
    why, session.reminds = None if enabled else pause(for_s, reason), False
    session.emit(Switched(enabled, session.call(work.set_enabled, enabled=enabled, pause=why)))
    if why is not None and why.until_ms is not None:
        say_how_it_ends(session, why.until_ms)


@autorecovery.command(
    "auditor",
    effect=Effect.READ,
    examples=(
        ("bkctl autorecovery auditor", "its id; status 3 without an auditor"),
        ("bkctl autorecovery auditor --json", "the same for programs"),
    ),
    exits=(*_FAILURES, ExitStatus.NOT_FOUND),
    replaces="bookkeeper shell whoisauditor",
)
@click.pass_obj
def auditor(session: Session) -> None:
    """Print the bookie id of the elected auditor."""
    from bkclient.repair import autorecovery as work
    from bkctl.commands.autorecovery.work import Auditor

    session.emit(Auditor(session.call(work.auditor)))


@autorecovery.command(
    "trigger",
    effect=Effect.REVERSIBLE,
    examples=(
        ("bkctl autorecovery trigger", "look for lost bookies now, without the delay"),
        ("bkctl autorecovery trigger --check all-ledgers", "have every ledger looked at soon"),
    ),
    exits=(*_FAILURES, ExitStatus.NOT_FOUND, ExitStatus.CONFLICT),
    replaces="bookkeeper shell triggeraudit; forceauditchecks -calc | -ppc | -rc",
)
@click.option(
    "--check", "checks", type=click.Choice(CHECKS), multiple=True,
    help="Instead: let this periodic check run when an auditor next starts.",
)  # fmt: skip
@click.pass_obj
def trigger(session: Session, checks: Sequence[str]) -> None:
    """Start an audit for lost bookies now."""
    from bkctl.commands.autorecovery import work as autorecovery_work

    if session.dry_run:
        session.plan(autorecovery_work.triggered(checks))
        return
    session.emit(autorecovery_work.trigger(session, checks))


@autorecovery.command(
    "delay",
    effect=Effect.REVERSIBLE,
    examples=(
        ("bkctl autorecovery delay", "print it"),
        ("bkctl autorecovery delay 30m", "give a bookie half an hour to come back"),
        ("bkctl autorecovery delay 0", "no delay; waiting repairs begin"),
    ),
    exits=(*_FAILURES, ExitStatus.NOT_FOUND),
    replaces="bookkeeper shell lostbookierecoverydelay -get | -set SECONDS",
)
@click.argument("delay_s", type=DURATION, required=False, metavar="[TIME]")
@click.pass_obj
def delay(session: Session, delay_s: float | None) -> None:
    """Print or set how long a lost bookie may stay away before its ledgers are repaired.

    The auditor waits only where a single bookie is lost. It stores its own setting if no
    delay is stored yet; the stored delay wins from then on.
    """
    from bkctl.commands.autorecovery import work as autorecovery_work

    if delay_s is None:
        session.emit(autorecovery_work.stored_delay(session))
    elif session.dry_run:
        session.plan([f"set the delay to {int(delay_s)} s"])
    else:
        session.emit(autorecovery_work.set_delay(session, int(delay_s)))
