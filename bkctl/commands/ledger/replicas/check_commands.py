"""``bkctl ledger verify`` and ``orphans``: are all copies there, and does anybody want them."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import click

from bkctl.cli.command import Command
from bkctl.cli.params import DURATION, LEDGER_IDS
from bkctl.exit_status import Effect, ExitStatus

if TYPE_CHECKING:
    from bkctl.session.session import Session

    _ParamType = click.ParamType[Any]
else:
    _ParamType = click.ParamType

_FAILURES = (ExitStatus.FAILED, ExitStatus.UNREACHABLE, ExitStatus.TIME_LIMIT)


class ShareType(_ParamType):
    """A share of the whole: ``5%`` or ``0.05``."""

    name = "share"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Any:
        if isinstance(value, float):
            return value
        try:
            share = float(value.removesuffix("%")) / (100 if value.endswith("%") else 1)
        except ValueError:
            share = 0.0
        if not 0 < share <= 1:
            self.fail(f"{value!r} is no share; try 5% or 0.05", param, ctx)
        return share


@click.command(
    "verify",
    cls=Command,
    short_help="Read and compare every copy of every entry.",
    effect=Effect.READ,
    examples=(
        ("bkctl ledger verify 42", "each copy, on each bookie that should have one"),
        ("bkctl ledger verify --all --sample 5%", "some entries of all ledgers, for a nightly job"),
        ("bkctl ledger list -o id | bkctl ledger verify - -o jsonl", "ids from a pipe"),
    ),
    exits=(*_FAILURES, ExitStatus.NOT_FOUND, ExitStatus.PROBLEMS, ExitStatus.INTERRUPTED),
    replaces="nothing in Java's tools, whose checks read samples and compare nothing",
)
@click.argument("given", type=LEDGER_IDS, nargs=-1, metavar="LEDGER_ID...")
@click.option("--all", "everything", is_flag=True, help="All ledgers of the cluster.")
@click.option("--sample", "share", type=ShareType(), default="100%", show_default=True,
              metavar="SHARE", help="Only so many entries; both ends in any case.")  # fmt: skip
@click.option("--from-file", metavar="FILE", help="Ledger ids from FILE as well; - is stdin.")
@click.pass_obj
def verify(
    session: Session,
    *,
    given: Sequence[Any],
    everything: bool,
    share: float,
    from_file: str | None,
) -> None:
    """Read every copy of every entry, and name those that are missing, damaged or another.

    Nothing is changed, and no writer is fenced: of a ledger that is open it is what is confirmed.
    Ends with 10 if any copy is bad, or could not be read. `bkctl autorecovery trigger --check
    all-ledgers` has what is missing copied anew.
    """
    from bkctl.commands.ledger import ids as ledger_ids
    from bkctl.commands.ledger.replicas import check as ledger_check_work

    ids = ledger_ids.chosen(session, given, from_file, everything=everything)
    ledger_check_work.verify(session, ids, share, tolerant=everything)


@click.command(
    "orphans",
    cls=Command,
    short_help="List ledgers that the application does not name.",
    effect=Effect.READ,
    examples=(
        ("bkctl ledger orphans --keep-file ids", "what is not in ids, one id a line"),
        ("list-my-ledgers | bkctl ledger orphans --keep-file -", "asked of the application"),
        (
            "bkctl ledger orphans --keep-file ids -o id | bkctl ledger delete -",
            "and away with them; asks first",
        ),
    ),
    exits=(*_FAILURES, ExitStatus.NOT_FOUND),
    replaces="nothing in Java's tools",
)
@click.option("--keep-file", metavar="FILE", required=True,
              help="Ids of the ledgers that are in use; - is stdin.")  # fmt: skip
@click.option("--older-than", type=DURATION, default="1d", show_default=True, metavar="TIME",
              help="Ignore ledgers younger than this; the list may be that old.")  # fmt: skip
@click.pass_obj
def orphans(session: Session, *, keep_file: str, older_than: float) -> None:
    """List ledgers that the application does not name, with what they say about their owner.

    Ledgers of `bkctl log` are in use, whatever the list says. Nothing is deleted here. Make the
    list of ids after writers have told of their new ledgers, and mind --older-than: a ledger that
    is younger than the list is in use too.
    """
    from bkctl.commands.ledger.replicas import check as ledger_check_work

    ledger_check_work.orphans(session, keep_file, older_than)
