"""``bkctl autorecovery``: the repair of ledgers, its switch, its queue and its auditor."""

from __future__ import annotations

from typing import Final

import click

from bkctl.cli.command import SubGroup
from bkctl.cli.declarations import argument, flag, force, option
from bkctl.cli.parameter_types import BOOKIE_ID, DURATION, LEDGER_ID
from bkctl.exit_status import CHANGE_FAILURES, FAILURES, Effect, ExitStatus
from bkctl.session.safety_check_names import DAMAGED_MARK

_CHECKS: Final = ("all-ledgers", "placement", "replicas")

autorecovery = SubGroup(
    name="autorecovery",
    help="""Autorecovery: re-replicate ledgers after a bookie is lost.

    The processes that run autorecovery elect an auditor. It marks the ledgers of a lost bookie.
    Workers take the marks one by one and copy the missing entries to other bookies.
    """,
    aliases={"trigger": "autorecovery audit"},
)


autorecovery.command(
    "status",
    body="bkctl.commands.autorecovery.switch:status",
    prints=("bkclient.replication.autorecovery_admin:Status",),
    help="Show autorecovery's switch, its auditor, and the number of marked ledgers.",
    effect=Effect.READ,
    examples="""
        bkctl autorecovery status  # switch, auditor, delay, and the number of marked ledgers
        bkctl autorecovery status --json  # the same for programs
    """,
    exits=FAILURES,
    replaces="bookkeeper shell autorecovery; queryautorecoverystatus; lostbookierecoverydelay -g",
)

autorecovery.command(
    "list",
    body="bkctl.commands.autorecovery.marks:list_marked",
    prints=(
        "bkclient.replication.autorecovery_admin:Mark",
        "bkclient.replication.repair_states:LedgerRepairState",
        "bkctl.commands.ledger.columns:LedgerCount",
    ),
    help="""List the ledgers that are marked as lacking replicas.

    The auditor marks the ledgers of a bookie when its registration has ended and the delay has
    passed, unless autorecovery is disabled. If no ledger is marked and a bookie is lost, the
    command reads the metadata of all ledgers. It prints how many ledgers lack replicas without a
    mark. `--until done` waits for these ledgers, too.
    """,
    params=(
        option(
            "--missing",
            type=BOOKIE_ID,
            metavar="BOOKIE",
            help="Only ledgers that lack replicas of this bookie.",
        ),
        option(
            "--not-missing",
            type=BOOKIE_ID,
            metavar="BOOKIE",
            help="Only ledgers that lack no replica of this bookie.",
        ),
        option("--older-than", "older_than_s", type=DURATION, help="Only marks older than TIME."),
        flag("--detail", help="Show each ledger's size, and why it waits."),
        flag("--count", help="Print only the number of ledgers."),
        flag(
            "--fail-if-any",
            help="End with status 10 if any ledger is listed. Without --older-than and --filter, a "
            "ledger that lacks replicas without a mark counts, too.",
        ),
    ),
    effect=Effect.READ,
    examples="""
        bkctl autorecovery list  # every marked ledger, and its worker
        bkctl autorecovery list --missing 10.0.0.1:3181 --count
          # the number of ledgers that lack that bookie's replica
        bkctl autorecovery list --fail-if-any
          # for an alarm: status 10 if a ledger lacks replicas, with or without a mark
        bkctl autorecovery list --until done --timeout 30m  # wait for the end of all repairs
    """,
    exits=(*FAILURES, ExitStatus.PARTLY, ExitStatus.PROBLEMS),
    replaces="bookkeeper shell listunderreplicated [-mr ID] [-emr ID] [-pmr] [-prw] [-c]",
)

autorecovery.command(
    "active",
    body="bkctl.commands.autorecovery.marks:active",
    prints=("bkclient.metadata.versions_and_watches:HeldLock",),
    help="List the ledgers that workers have locked, to copy them or to wait.",
    effect=Effect.READ,
    examples="""
        bkctl autorecovery active  # each ledger under repair, its worker, and since when
        bkctl autorecovery active -o id  # only the ids
    """,
    exits=FAILURES,
    replaces="bookkeeper shell queryautorecoverystatus",
)

autorecovery.command(
    "enable",
    body="bkctl.commands.autorecovery.switch:enable",
    help="Switch autorecovery on, for the whole cluster; marked ledgers are repaired at once.",
    effect=Effect.REVERSIBLE,
    examples="""
        bkctl autorecovery enable  # the cluster repairs itself again
        bkctl autorecovery enable --dry-run  # show whether that would change anything
    """,
    exits=FAILURES,
    replaces="bookkeeper shell autorecovery -enable",
)

autorecovery.command(
    "disable",
    body="bkctl.commands.autorecovery.switch:disable",
    help="""Switch autorecovery off, for the whole cluster.

    Running copies continue; no new copy begins, and no lost bookie is noticed. Autorecovery stays
    off until `enable`, or until --for has passed. `bkctl doctor` reports a pause, with the user and
    host that disabled autorecovery. Without --for, or later than its end, every command that
    succeeds prints a reminder. Only bookied ends the pause; Java's auditor does not. If no bookied
    runs autorecovery, the command prints a crontab line that runs `enable`.
    """,
    params=(
        option(
            "--for",
            "for_s",
            type=DURATION,
            help="End the pause after TIME: bookied enables autorecovery again.",
        ),
        option("--reason", help="The reason, shown to other operators."),
    ),
    effect=Effect.REVERSIBLE,
    examples="""
        bkctl autorecovery disable  # before bookies are restarted one by one
        bkctl autorecovery disable --for 30m --reason "new disks"
          # for half an hour; every command shows it
        bkctl autorecovery disable --dry-run  # show whether that would change anything
    """,
    exits=FAILURES,
    replaces="bookkeeper shell autorecovery -disable",
)

autorecovery.command(
    "auditor",
    body="bkctl.commands.autorecovery.audit:auditor",
    help="Print the bookie id of the elected auditor.",
    effect=Effect.READ,
    examples="""
        bkctl autorecovery auditor  # its id; status 3 without an auditor
        bkctl autorecovery auditor --json  # the same for programs
    """,
    exits=(*FAILURES, ExitStatus.NOT_FOUND),
    replaces="bookkeeper shell whoisauditor",
)

autorecovery.command(
    "audit",
    body="bkctl.commands.autorecovery.audit:audit",
    help="""Make the auditor look for lost bookies now; --wait waits until their ledgers are marked.

    The audit ignores the delay: the ledgers of a bookie that is down are copied at once.

    With --check, bookied's auditor begins the check within a minute, even if its settings switch
    the check off. Java's auditor begins the check when it next starts.
    """,
    params=(
        option(
            "--check",
            "--full",
            "checks",
            type=click.Choice(_CHECKS),
            multiple=True,
            help="Instead, run this periodic check now; repeatable.",
        ),
        flag("--wait", help="Return when the check has ended."),
    ),
    effect=Effect.REVERSIBLE,
    examples="""
        bkctl autorecovery audit  # look for lost bookies now, without the delay
        bkctl autorecovery audit --wait  # until their ledgers are marked
        bkctl autorecovery audit --check all-ledgers --wait --timeout 600
          # read samples of all ledgers now
    """,
    exits=(*FAILURES, ExitStatus.NOT_FOUND, ExitStatus.CONFLICT),
    replaces="bookkeeper shell triggeraudit; forceauditchecks -calc | -ppc | -rc",
)

autorecovery.command(
    "delay",
    body="bkctl.commands.autorecovery.audit:delay",
    help="""Print or set how long a lost bookie may stay away before its ledgers are repaired.

    The delay begins when the bookie's registration ends. Only the auditor's process knows how much
    of it is left; a new auditor begins without the delay.

    The auditor waits only if a single bookie is lost. If no delay is stored yet, the auditor stores
    its setting lostBookieRecoveryDelay. From then on the stored delay wins.
    """,
    params=(argument("delay_s", type=DURATION, required=False, metavar="[TIME]"),),
    effect=Effect.REVERSIBLE,
    examples="""
        bkctl autorecovery delay  # print it
        bkctl autorecovery delay 30m  # give a bookie half an hour to come back
        bkctl autorecovery delay 0  # no delay; waiting repairs begin
    """,
    exits=(*FAILURES, ExitStatus.NOT_FOUND),
    replaces="bookkeeper shell lostbookierecoverydelay -get | -set SECONDS",
)

autorecovery.command(
    "forget",
    body="bkctl.commands.autorecovery.marks:forget",
    help="""Remove the mark of a ledger that is deleted, or that lacks no replica.

    The command reads every replica first. An open ledger, or a ledger that a worker has locked,
    keeps its mark.

    With --force damaged-mark an unreadable mark is deleted in any case. If the ledger lacks
    replicas, the command writes a new mark.
    """,
    params=(
        argument("ledger_id", type=LEDGER_ID),
        force(DAMAGED_MARK),
    ),
    effect=Effect.REVERSIBLE,
    examples="""
        bkctl autorecovery forget 42  # every replica of every entry is read first
        bkctl autorecovery forget 42 --dry-run  # changes nothing
        bkctl autorecovery forget 42 --force damaged-mark  # an unreadable mark; asks first
    """,
    exits=CHANGE_FAILURES,
    replaces="deleting nodes of the metadata by hand",
)
