"""``bkctl ledger``: what there is, and a ledger's life from create to delete."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, Final

import click

from bkctl.cli.command import SubGroup
from bkctl.cli.params import BOOKIE_ID, DURATION, KEY_VALUE, LEDGER_ID, LEDGER_IDS
from bkctl.commands.ledger.replicas.map_commands import LAZY as MAPS
from bkctl.exit_status import Effect, ExitStatus

if TYPE_CHECKING:
    from bkctl.session.session import Session
    from wire.ids import LedgerId

OPEN_LEDGER: Final = "open-ledger"
LOG_LEDGER: Final = "log-ledger"
"""The safety check of ``delete`` that ``--force`` can override."""

FAILURES: Final = (ExitStatus.FAILED, ExitStatus.UNREACHABLE, ExitStatus.TIME_LIMIT)
"""What every command that talks to a cluster can exit with."""

_DIGESTS: Final = ("crc32c", "crc32", "mac", "dummy")

ledger = SubGroup(
    name="ledger",
    short_help="Ledgers: create, add, read, close, recover, delete.",
    help="""Ledgers: create, add, read, close, recover, delete.

    A ledger is a sequence of entries that only grows, and that nobody changes once it is closed.
    """,
    lazy={
        "add": ("bkctl.commands.ledger.write:add", "Add entries to a ledger."),
        "write": ("bkctl.commands.ledger.write:write", "Create a ledger, fill it, close it."),
        "read": ("bkctl.commands.ledger.read:read", "Print the entries of a ledger."),
        "tail": (
            "bkctl.commands.ledger.read:tail",
            "Print the last entries, and new entries as they are confirmed.",
        ),
        "verify": (
            "bkctl.commands.ledger.replicas.check_commands:verify",
            "Read and compare every copy of every entry.",
        ),
        "orphans": (
            "bkctl.commands.ledger.replicas.check_commands:orphans",
            "List ledgers that the application does not name.",
        ),
        "metadata": (
            "bkctl.commands.ledger.metadata_commands:metadata",
            "A ledger's metadata to a file, and back.",
        ),
        "update-bookie": (
            "bkctl.commands.bookie.ledgers_of_commands:update_bookie",
            "Replace one bookie id by another in ledger metadata.",
        ),
        **MAPS,
    },
    order=("create", "add", "write", "read", "tail", "close", "list", "show"),
)


def copies_options(function: Any) -> Any:
    """Add the options that say how entries are to be kept."""
    return _with(
        function,
        (
            click.option(
                "-E",
                "--ensemble-size",
                type=click.IntRange(1),
                metavar="N",
                default=3,
                show_default=True,
                help="Bookies that share the ledger.",
            ),
            click.option(
                "-W",
                "--write-quorum",
                type=click.IntRange(1),
                metavar="N",
                default=2,
                show_default=True,
                help="Copies of each entry.",
            ),
            click.option(
                "-A",
                "--ack-quorum",
                type=click.IntRange(1),
                metavar="N",
                default=2,
                show_default=True,
                help="Copies that must be on disk before an add counts.",
            ),
            click.option(
                "--digest",
                type=click.Choice(_DIGESTS),
                default="crc32c",
                show_default=True,
                help="How entries are protected against damage.",
            ),
            click.option(
                "--password-file",
                metavar="FILE",
                help="File with the ledger's password; - asks for it.",
            ),
        ),
    )


def quorum_options(function: Any) -> Any:
    """Add the options that say how a new ledger is to be made."""
    more = _with(
        function,
        (
            click.option(
                "--meta",
                type=KEY_VALUE,
                multiple=True,
                metavar="KEY=VALUE",
                help="Custom metadata, any number of times.",
            ),
            click.option(
                "--ledger-id",
                "wanted_id",
                type=LEDGER_ID,
                metavar="ID",
                help="This id, instead of a new one; never one that existed.",
            ),
        ),
    )
    return copies_options(more)


def _with(function: Any, options: Sequence[Any]) -> Any:
    for option in reversed(options):
        function = option(function)
    return function


@ledger.command(
    "create",
    short_help="Create an empty ledger and print its id.",
    effect=Effect.REVERSIBLE,
    examples=(
        ("bkctl ledger create", "three bookies, two copies of each entry; prints the id"),
        (
            "id=$(bkctl ledger create -E 3 -W 3 -A 2 --meta owner=me)",
            "keep the id for `ledger add`",
        ),
        (
            "bkctl ledger create --digest mac --password-file pw",
            "only who has the password can add",
        ),
    ),
    exits=(*FAILURES, ExitStatus.CONFLICT),
    replaces="nothing in Java's tools; createLedger of its client",
)
@quorum_options
@click.pass_obj
def create(session: Session, /, **wanted: Any) -> None:
    """Create an empty ledger and print its id.

    Any process may then add to it with `bkctl ledger add`, one at a time, until it is closed.
    """
    from bkctl.commands.ledger import lifecycle

    new = lifecycle.new_ledger(session, **wanted)
    if session.dry_run:
        session.plan([f"create a ledger: {new}"])
        return
    lifecycle.warn_of_chosen_id(session, new)
    session.emit(session.call(lifecycle.create, new))


@ledger.command(
    "list",
    short_help="List ledgers by id, as they are found.",
    effect=Effect.READ,
    examples=(
        ("bkctl ledger list", "all ledgers, by id"),
        ("bkctl ledger list --state open --older-than 1d", "writers that were perhaps forgotten"),
        ("bkctl ledger list -o id --limit 100 --after 4711", "the next hundred ids, for a pipe"),
    ),
    exits=FAILURES,
    replaces="bookkeeper shell listledgers [-m] [-bookieid ID]",
)
@click.option(
    "--state", type=click.Choice(["open", "in-recovery", "closed"]), help="Only ledgers in it."
)
@click.option(
    "--bookie", type=BOOKIE_ID, metavar="ID", help="Only ledgers that have, or had, a copy there."
)
@click.option(
    "--older-than", type=DURATION, metavar="TIME", help="Only ledgers created before that: 7d."
)
@click.option(
    "--meta", type=KEY_VALUE, multiple=True, metavar="KEY=VALUE", help="Only with this metadata."
)
@click.option("--after", type=LEDGER_ID, metavar="ID", help="Only ids above this one.")
@click.option("--limit", type=click.IntRange(1), metavar="N", help="Stop after so many.")
@click.option("--count", is_flag=True, help="Only say how many there are.")
@click.pass_obj
def list_(
    session: Session,
    *,
    state: str | None,
    bookie: str | None,
    older_than: float | None,
    meta: Sequence[tuple[str, str]],
    after: LedgerId | None,
    limit: int | None,
    count: bool,
) -> None:
    """List ledgers in the order of their ids, as they are found."""
    from bkctl.commands.ledger import listing
    from bkctl.commands.ledger.views import LedgerCount, LedgerSummary

    wanted = listing.LedgerFilter.of(
        state=state, bookie=bookie, older_than_s=older_than, meta=dict(meta)
    )
    ids_only = wanted.is_open and (count or session.options.ids_only)
    found = listing.ledgers(session, wanted, after=after, limit=limit, ids_only=ids_only)
    if count:
        session.emit(LedgerCount(sum(map(len, found))))
    else:
        session.emit_stream(found, LedgerSummary)


@ledger.command(
    "show",
    short_help="Show a ledger's full metadata: quorums, fragments, custom metadata.",
    effect=Effect.READ,
    examples=(
        ("bkctl ledger show 42", "quorums, state, fragments and custom metadata"),
        ("bkctl ledger show 42 -o json | jq .fragments", "the same for programs"),
        ("bkctl ledger list -o id --state open | bkctl ledger show -", "ids from a pipe"),
    ),
    exits=(*FAILURES, ExitStatus.NOT_FOUND),
    replaces="bookkeeper shell ledgermetadata -ledgerid ID",
)
@click.argument("ledger_ids", type=LEDGER_IDS, nargs=-1, required=True, metavar="LEDGER_ID...")
@click.pass_obj
def show(session: Session, ledger_ids: Sequence[Any]) -> None:
    """Show quorums, fragments, state and custom metadata of ledgers; `-` reads ids from stdin."""
    from bkctl.commands.ledger import lifecycle
    from bkctl.commands.ledger.views import LedgerDetails

    details = lifecycle.details(session, session.words(ledger_ids, LEDGER_ID))
    if len(ledger_ids) == 1 and ledger_ids[0] != "-":
        session.emit(next(details))
    elif session.options.output in {None, "wide"}:
        for one in details:
            session.emit(one)
    else:
        session.emit_all(details, LedgerDetails)


@ledger.command(
    "close",
    short_help="Close a ledger where its last writer ended.",
    effect=Effect.FENCES,
    examples=(
        ("bkctl ledger close 42", "nobody adds to it any more; readers see its end"),
        ("bkctl ledger close 42 --yes", "also where a writer may still be at work"),
    ),
    exits=(
        *FAILURES,
        ExitStatus.NOT_FOUND,
        ExitStatus.REFUSED,
        ExitStatus.CONFLICT,
        ExitStatus.PARTLY,
    ),
    replaces="nothing in Java's tools; close of its client",
)
@click.argument("given", type=LEDGER_IDS, nargs=-1, required=True, metavar="LEDGER_ID...")
@click.pass_obj
def close(session: Session, given: Sequence[Any]) -> None:
    """Close ledgers where their last writers ended; `-` reads ids from stdin.

    A ledger that `bkctl ledger create` made, or that `bkctl ledger add` handed back, is closed at
    once. Any other open ledger may have a writer: that one is fenced off, which is asked about.
    """
    from bkctl.commands.ledger import ids as ledger_ids
    from bkctl.commands.ledger.change_views import LedgerClosed

    ledger_ids.each(session, given, _close, LedgerClosed)


def _close(session: Session, ledger_id: LedgerId) -> Any:
    from bkctl.commands.ledger import lifecycle
    from bkctl.session import writers

    session.about = f"ledger {ledger_id}"
    writer = writers.held_writer(session, ledger_id)
    if writer is not None:
        if session.dry_run:
            return f"close ledger {ledger_id}, which this shell writes to"
        return lifecycle.closed(ledger_id, session.call(lifecycle.close, writer), "closed")
    how, found = lifecycle.way_to_close(session, ledger_id)
    if how is lifecycle.Close.RECOVER:
        return _recovered(session, ledger_id, found)
    if session.dry_run:
        done = how is lifecycle.Close.ALREADY
        what = "which is closed" if done else "which its last writer has handed over"
        return f"{'leave' if done else 'close'} ledger {ledger_id}, {what}"
    if how is lifecycle.Close.ALREADY:
        return lifecycle.closed(ledger_id, found, "was closed before")
    return session.call(lifecycle.claim_and_close, ledger_id)


@ledger.command(
    "fence",
    short_help="Fence a ledger: its writer can add no more. The ledger stays open.",
    effect=Effect.FENCES,
    examples=(
        ("bkctl ledger fence 42", "its writer cannot add any more; it is not closed yet"),
        ("bkctl ledger fence 42 --dry-run", "only say which bookies would be asked"),
    ),
    exits=(
        *FAILURES, ExitStatus.NOT_FOUND, ExitStatus.REFUSED, ExitStatus.CONFLICT, ExitStatus.PARTLY,
    ),
    replaces="nothing in Java's tools",
)  # fmt: skip
@click.argument("given", type=LEDGER_IDS, nargs=-1, required=True, metavar="LEDGER_ID...")
@click.pass_obj
def fence(session: Session, given: Sequence[Any]) -> None:
    """Make sure that no writer can add to ledgers any more, without closing them.

    Marks each in metadata, then tells the bookies that hold its end, and says which of them
    answered. `-` reads ids from stdin.
    """
    from bkctl.commands.ledger import ids as ledger_ids
    from bkctl.commands.ledger.change_views import LedgerFenced

    ledger_ids.each(session, given, _fence, LedgerFenced, after=_insist_covered)


def _fence(session: Session, ledger_id: LedgerId) -> Any:
    from bkctl.commands.ledger import lifecycle

    session.about = f"ledger {ledger_id}"
    found = lifecycle.metadata_of(session, ledger_id)
    lifecycle.refuse_closed(found)
    if session.dry_run:
        return f"fence ledger {ledger_id} on {', '.join(found.ensemble)}"
    _confirm_fencing(session, ledger_id, found, f"Fence ledger {ledger_id}?")
    return session.call(lifecycle.fence, ledger_id)


def _insist_covered(fenced: Any) -> None:
    from bkctl.errors import PartlyDoneError

    if not fenced.covered:
        raise PartlyDoneError(
            "not every write set is covered: a writer may still add",
            next_step=f"`bkctl ledger fence {fenced.ledger_id}` again when the missing bookies are "
            "back",
        )


@ledger.command(
    "recover",
    short_help="Recover a ledger: fence its writer, find its last entry, close it.",
    effect=Effect.FENCES,
    examples=(
        ("bkctl ledger recover 42", "close a ledger whose writer has died"),
        ("bkctl ledger recover 42 --yes --timeout 60", "the same from a script"),
        (
            "bkctl ledger list -o id --state in-recovery | bkctl ledger recover -",
            "all recoveries that began and did not end",
        ),
    ),
    exits=(
        *FAILURES,
        ExitStatus.NOT_FOUND,
        ExitStatus.REFUSED,
        ExitStatus.CONFLICT,
        ExitStatus.PARTLY,
    ),
    replaces="opening the ledger with Java's client",
)
@click.argument("given", type=LEDGER_IDS, nargs=-1, required=True, metavar="LEDGER_ID...")
@click.pass_obj
def recover(session: Session, given: Sequence[Any]) -> None:
    """Find out where ledgers end and close them there; `-` reads ids from stdin.

    Fences the writer, reads on from the last entry that is known to be confirmed, writes what it
    finds to full copies and closes the ledger. It may be interrupted and run again at any time.
    """
    from bkctl.commands.ledger import ids as ledger_ids
    from bkctl.commands.ledger.change_views import LedgerClosed

    ledger_ids.each(session, given, _recover, LedgerClosed)


def _recover(session: Session, ledger_id: LedgerId) -> Any:
    from bkctl.commands.ledger import lifecycle

    session.about = f"ledger {ledger_id}"
    found = lifecycle.metadata_of(session, ledger_id)
    if not found.is_closed:
        return _recovered(session, ledger_id, found)
    if session.dry_run:
        return f"leave ledger {ledger_id}, which is closed"
    return lifecycle.closed(ledger_id, found, "was closed before")


def _recovered(session: Session, ledger_id: LedgerId, found: Any) -> Any:
    from bkctl.commands.ledger import lifecycle

    if session.dry_run:
        return f"fence, recover and close ledger {ledger_id} ({found.state.name.lower()})"
    _confirm_fencing(session, ledger_id, found, f"Recover and close ledger {ledger_id}?")
    session.resume = f"it is safe to run again: {session.again()}"
    return lifecycle.recover(session, ledger_id)


def _confirm_fencing(session: Session, ledger_id: LedgerId, found: Any, question: str) -> None:
    """Ask before a live writer may lose its ledger; one in recovery has lost it already."""
    from wire.codes import LedgerState

    if found.state is LedgerState.OPEN:
        session.confirm(
            [f"Ledger {ledger_id} is open: a writer at work on it will fail at its next add."],
            question,
        )


@ledger.command(
    "delete",
    short_help="Delete ledgers for good.",
    effect=Effect.LOSES_DATA,
    examples=(
        ("bkctl ledger delete 42", "shows what goes, and asks"),
        ("bkctl ledger delete 42 43 --yes", "from a script"),
        ("bkctl ledger delete --from-file ids --dry-run", "what would be lost"),
        ("bkctl ledger list -o id --older-than 90d | bkctl ledger delete - --yes", "in bulk"),
    ),
    exits=(
        *FAILURES, ExitStatus.NOT_FOUND, ExitStatus.REFUSED, ExitStatus.CONFLICT, ExitStatus.PARTLY,
    ),
    replaces="bookkeeper shell deleteledger -ledgerid ID [-force]",
)  # fmt: skip
@click.argument("given", type=LEDGER_IDS, nargs=-1, metavar="LEDGER_ID...")
@click.option("--from-file", metavar="FILE", help="Ledger ids from FILE as well; - is stdin.")
@click.option(
    "--force",
    type=click.Choice([OPEN_LEDGER, LOG_LEDGER]),
    multiple=True,
    help="Override a safety check by its name.",
)
@click.pass_obj
def delete(
    session: Session, given: Sequence[Any], from_file: str | None, force: Sequence[str]
) -> None:
    """Delete ledgers for good; `-` reads ids from stdin.

    Bookies free the space at their next garbage collection. A ledger that is not closed is left
    alone unless its check is overridden with --force open-ledger; so is one that a log is made of,
    with --force log-ledger: `bkctl log trim` and `bkctl log delete` keep the log intact.
    """
    from bkctl.commands.ledger import ids as ledger_ids
    from bkctl.commands.ledger import lifecycle

    chosen = ledger_ids.chosen(session, given, from_file)
    doomed = lifecycle.doomed(session, chosen)
    lifecycle.refuse_open(doomed, forced=OPEN_LEDGER in force)
    lifecycle.refuse_of_logs(doomed, forced=LOG_LEDGER in force)
    lines = [lifecycle.loss(one) for one in doomed]
    if session.dry_run:
        session.plan([f"delete {line}" for line in lines])
        return
    session.confirm(
        ["This will be lost for good:", *(f"  {line}" for line in lines)],
        f"Delete {len(doomed)} ledger{'s' if len(doomed) != 1 else ''}?",
        proof=lifecycle.proof_of(session, doomed),
    )
    if force:
        session.warn(f"overridden: {', '.join(force)}")
    lifecycle.delete(session, doomed)
