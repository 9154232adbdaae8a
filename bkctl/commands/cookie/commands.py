"""``bkctl cookie``: what ties a bookie's id to its directories and to its cluster."""

from __future__ import annotations

from typing import Final

import click

from bkctl.cli.command import SubGroup
from bkctl.cli.params import BOOKIE_ID, argument, option
from bkctl.exit_status import Effect, ExitStatus, Facility
from bkctl.session.check_names import CONTENT, ONLY_COPIES, OPEN_LEDGERS, REGISTERED

_FAILURES: Final = (ExitStatus.FAILED, ExitStatus.UNREACHABLE)
_REFUSED: Final = (*_FAILURES, ExitStatus.NOT_FOUND, ExitStatus.REFUSED, ExitStatus.CONFLICT)

cookie = SubGroup(
    name="cookie",
    short_help="Cookies: what ties a bookie's id to its directories.",
    help="""Cookies: what ties a bookie's id to its directories.

    The same text is kept in the metadata service and as the file VERSION in each directory. A
    bookie starts only where they all agree with its settings.
    """,
    aliases={"get": "cookie show", "rename": "bookie rename --no-ledgers"},
)


def _force(*checks: str) -> click.Option:
    return option(
        "--force",
        type=click.Choice(checks),
        multiple=True,
        help="Override a safety check by its name.",
    )


cookie.command(
    "list",
    body="bkctl.commands.cookie.work:list_stored",
    help="List the cookies that the metadata service keeps.",
    effect=Effect.READ,
    examples=(
        ("bkctl cookie list", "every bookie that ever was and was not taken out"),
        ("bkctl cookie list -o wide", "with all directories"),
    ),
    exits=_FAILURES,
    replaces="nothing in Java's tools; updatecookie -list for local files",
)

cookie.command(
    "show",
    body="bkctl.commands.cookie.work:print_cookie",
    help="Print the stored cookie of BOOKIE_ID.",
    params=(argument("bookie_id", type=BOOKIE_ID),),
    effect=Effect.READ,
    examples=(
        ("bkctl cookie show 10.0.0.1:3181", "as it is stored"),
        ("bkctl cookie show 10.0.0.1:3181 > VERSION", "into a file for `cookie create`"),
        ("bkctl cookie show 10.0.0.1:3181 --json", "taken apart"),
    ),
    exits=(*_FAILURES, ExitStatus.NOT_FOUND),
    replaces="bookkeeper shell cookie_get ID",
)

cookie.command(
    "generate",
    body="bkctl.commands.cookie.work:generate",
    help="""Print the cookie that a bookie with these directories has; nothing is stored.

    With neither id nor directories it is the one that a bookie with the settings of -c would write.
    """,
    params=(
        argument("bookie_id", type=BOOKIE_ID, required=False),
        option(
            "--journal-dir",
            "journal_dirs",
            metavar="DIR",
            multiple=True,
            help="Journal directory; once for each, in the order of the settings.",
        ),
        option(
            "--ledger-dir",
            "ledger_dirs",
            metavar="DIR",
            multiple=True,
            help="Ledger directory, likewise.",
        ),
        option(
            "--index-dir",
            "index_dirs",
            metavar="DIR",
            multiple=True,
            help="Index directory, where they are not the ledger directories.",
        ),
        option("--instance-id", metavar="ID", help="The cluster's.  [default: asked of it]"),
        option("--out", metavar="FILE", help="Write it to FILE, not to stdout."),
    ),
    effect=Effect.READ,
    without=(Facility.WATCH,),
    examples=(
        ("bkctl cookie generate -c bk_server.conf > VERSION", "what this bookie would write"),
        (
            "bkctl cookie generate 10.0.0.1:3181 --journal-dir /j --ledger-dir /a --ledger-dir /b",
            "for another one, by its id and directories",
        ),
    ),
    exits=(*_FAILURES, ExitStatus.NOT_FOUND),
    replaces="bookkeeper shell cookie_generate -j DIRS -l DIRS [-ix DIRS] [-i ID] -o FILE ID",
)

cookie.command(
    "create",
    body="bkctl.commands.cookie.work:create",
    help="Store a cookie of BOOKIE_ID, which has none.",
    params=(
        argument("bookie_id", type=BOOKIE_ID),
        option("--file", "path", metavar="FILE", required=True, help="The cookie; - is stdin."),
        _force(CONTENT),
    ),
    effect=Effect.REVERSIBLE,
    examples=(
        ("bkctl cookie create 10.0.0.1:3181 --file VERSION", "store what a directory has"),
        ("bkctl cookie generate -c F | bkctl cookie create ID --file -", "without a file"),
    ),
    exits=_REFUSED,
    replaces="bookkeeper shell cookie_create -cf FILE ID",
)

cookie.command(
    "update",
    body="bkctl.commands.cookie.work:update",
    help="Replace the stored cookie of BOOKIE_ID.",
    params=(
        argument("bookie_id", type=BOOKIE_ID),
        option("--file", "path", metavar="FILE", required=True, help="The cookie; - is stdin."),
        _force(CONTENT),
    ),
    effect=Effect.REVERSIBLE,
    examples=(
        ("bkctl cookie update 10.0.0.1:3181 --file VERSION", "shows what would change, and asks"),
        ("bkctl cookie update 10.0.0.1:3181 --file VERSION --dry-run", "only shows it"),
    ),
    exits=_REFUSED,
    replaces="bookkeeper shell cookie_update -cf FILE ID",
)

cookie.command(
    "delete",
    body="bkctl.commands.cookie.work:delete",
    help="""Remove the stored cookie of BOOKIE_ID: its directories can never be started again.

    A new bookie may begin under the same id then, one that knows of no fence. So this is refused
    while a ledger that is not closed lists the bookie, while it has the only copy of anything, and
    while it is registered. With --local it is the bookie of the settings, which must be stopped.
    """,
    params=(
        argument("bookie_id", type=BOOKIE_ID, required=False),
        option("--local", is_flag=True, help="Remove the VERSION files of -c's bookie as well."),
        _force(REGISTERED, OPEN_LEDGERS, ONLY_COPIES),
    ),
    effect=Effect.LOSES_DATA,
    examples=(
        ("bkctl cookie delete 10.0.0.1:3181", "shows what relies on the bookie, and asks"),
        ("bkctl cookie delete 10.0.0.1:3181 --dry-run", "only shows it"),
        ("bkctl cookie delete --local -c bk_server.conf", "and the VERSION files of this bookie"),
        (
            "bkctl cookie delete 10.0.0.1:3181 --yes --force only-copies",
            "although what it holds is nowhere else",
        ),
    ),
    exits=_REFUSED,
    replaces="bookkeeper shell cookie_delete ID; updatecookie -delete [force]",
)

cookie.command(
    "verify",
    body="bkctl.commands.cookie.stopped_bookie:verify",
    short_help="Compare a bookie's cookies with its settings, field by field.",
    help="Compare the stored cookie and each VERSION file with the settings, field by field.",
    effect=Effect.READ,
    examples=(
        ("bkctl cookie verify -c bk_server.conf", "status 10 if one does not fit"),
        ("bkctl cookie verify -c bk_server.conf --json", "each difference, for programs"),
    ),
    exits=(*_FAILURES, ExitStatus.PROBLEMS),
    replaces="reading VERSION files and the log of a bookie that does not start",
)

cookie.command(
    "repair",
    body="bkctl.commands.cookie.stopped_bookie:repair",
    short_help="Write a bookie's lost cookies again.",
    help="""Write the cookies of a stopped bookie anew where they are lost or damaged.

    One that fits the settings must be left, in the metadata service or in a directory. A directory
    that is empty is refused: what was on it is lost, and no cookie brings it back.
    """,
    effect=Effect.REVERSIBLE,
    examples=(
        ("bkctl cookie repair -c bk_server.conf", "shows what would be written, and asks"),
        ("bkctl cookie repair -c bk_server.conf --dry-run", "only shows it"),
    ),
    exits=_REFUSED,
    replaces="bookkeeper shell cookie_generate, cookie_update and cookie_create, and copying files",
)
