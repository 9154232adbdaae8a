"""``bkctl cookie``: the record that binds a bookie's id to its directories and its cluster."""

from __future__ import annotations

from typing import Final

from bkctl.cli.command import SubGroup
from bkctl.cli.declarations import DIRECTORIES, argument, flag, force, option
from bkctl.cli.parameter_types import BOOKIE_ID
from bkctl.exit_status import Effect, ExitStatus, Facility
from bkctl.session.safety_check_names import CONTENT, ONLY_COPIES, OPEN_LEDGERS, REGISTERED

_FAILURES: Final = (ExitStatus.FAILED, ExitStatus.UNREACHABLE)
_REFUSED: Final = (*_FAILURES, ExitStatus.NOT_FOUND, ExitStatus.REFUSED, ExitStatus.CONFLICT)

cookie = SubGroup(
    name="cookie",
    help="""Cookies: what ties a bookie's id to its directories.

    A cookie is stored in the metadata service and in the file VERSION of each directory. A bookie
    starts only if all of them agree with its settings.
    """,
    aliases={"get": "cookie show", "rename": "bookie rename --no-ledgers"},
)


cookie.command(
    "list",
    body="bkctl.commands.cookie.stored_cookies:list_stored",
    prints=("bkclient.admin.cookies:StoredCookie",),
    help="List the cookies that the metadata service keeps.",
    effect=Effect.READ,
    examples="""
        bkctl cookie list  # every bookie that was not removed
        bkctl cookie list -o wide  # with all directories
    """,
    exits=_FAILURES,
    replaces="nothing in Java's tools; updatecookie -list for local files",
)

cookie.command(
    "show",
    body="bkctl.commands.cookie.stored_cookies:print_cookie",
    help="Print the stored cookie of BOOKIE_ID.",
    params=(argument("bookie_id", type=BOOKIE_ID),),
    effect=Effect.READ,
    examples="""
        bkctl cookie show 10.0.0.1:3181  # as it is stored
        bkctl cookie show 10.0.0.1:3181 > VERSION  # into a file for `cookie create`
        bkctl cookie show 10.0.0.1:3181 --json  # each field, as JSON
    """,
    exits=(*_FAILURES, ExitStatus.NOT_FOUND),
    replaces="bookkeeper shell cookie_get ID",
)

cookie.command(
    "generate",
    body="bkctl.commands.cookie.stored_cookies:generate",
    help="""Print the cookie that a bookie with these directories has; nothing is stored.

    Without an id and directories the command prints the cookie of the bookie of the settings file
    (-c).
    """,
    params=(
        argument("bookie_id", type=BOOKIE_ID, required=False),
        *DIRECTORIES,
        option(
            "--instance-id",
            metavar="ID",
            help="The cluster's instance id.  [default: from the metadata service]",
        ),
        option("--out", metavar="FILE", help="Write the cookie to FILE, not to stdout."),
    ),
    effect=Effect.READ,
    without=(Facility.WATCH,),
    examples="""
        bkctl cookie generate -c bk_server.conf > VERSION  # the cookie of this bookie
        bkctl cookie generate 10.0.0.1:3181 --journal-dir /j --ledger-dir /l
          # the cookie of another bookie
    """,
    exits=(*_FAILURES, ExitStatus.NOT_FOUND),
    replaces="bookkeeper shell cookie_generate -j DIRS -l DIRS [-ix DIRS] [-i ID] -o FILE ID",
)

cookie.command(
    "create",
    body="bkctl.commands.cookie.stored_cookies:create",
    help="Store a cookie for BOOKIE_ID, which has no stored cookie.",
    params=(
        argument("bookie_id", type=BOOKIE_ID),
        option("--file", "path", metavar="FILE", required=True, help="The cookie; - is stdin."),
        force(CONTENT),
    ),
    effect=Effect.REVERSIBLE,
    examples="""
        bkctl cookie create 10.0.0.1:3181 --file VERSION  # store the cookie of a directory
        bkctl cookie generate -c F | bkctl cookie create ID --file -  # without a file
    """,
    exits=_REFUSED,
    replaces="bookkeeper shell cookie_create -cf FILE ID",
)

cookie.command(
    "update",
    body="bkctl.commands.cookie.stored_cookies:update",
    help="Replace the stored cookie of BOOKIE_ID.",
    params=(
        argument("bookie_id", type=BOOKIE_ID),
        option("--file", "path", metavar="FILE", required=True, help="The cookie; - is stdin."),
        force(CONTENT),
    ),
    effect=Effect.REVERSIBLE,
    examples="""
        bkctl cookie update 10.0.0.1:3181 --file VERSION  # shows what would change, and asks
        bkctl cookie update 10.0.0.1:3181 --file VERSION --dry-run  # only shows it
    """,
    exits=_REFUSED,
    replaces="bookkeeper shell cookie_update -cf FILE ID",
)

cookie.command(
    "delete",
    body="bkctl.commands.cookie.stored_cookies:delete",
    help="""Remove the stored cookie of BOOKIE_ID: no bookie can start on its directories again.

    A new bookie may then start under the same id, without knowing which ledgers are fenced. So the
    command refuses while the bookie is registered, while an open ledger lists the bookie, and while
    the bookie has the only copy of an entry. With --local the command takes the bookie of the
    settings file (-c), which must be stopped.
    """,
    params=(
        argument("bookie_id", type=BOOKIE_ID, required=False),
        flag("--local", help="Remove the VERSION files of -c, too."),
        force(REGISTERED, OPEN_LEDGERS, ONLY_COPIES),
    ),
    effect=Effect.LOSES_DATA,
    examples="""
        bkctl cookie delete 10.0.0.1:3181  # shows the ledgers that need the bookie, and asks
        bkctl cookie delete 10.0.0.1:3181 --dry-run  # only shows it
        bkctl cookie delete --local -c bk_server.conf
          # the stored cookie and the VERSION files of this bookie
        bkctl cookie delete 10.0.0.1:3181 --yes --force only-copies
          # even if it has the only copy of some entries
    """,
    exits=_REFUSED,
    replaces="bookkeeper shell cookie_delete ID; updatecookie -delete [force]",
)

cookie.command(
    "verify",
    body="bkctl.commands.cookie.cookie_repair:verify",
    short_help="Compare a bookie's cookies with its settings, field by field.",
    help="Compare the stored cookie and each VERSION file with the settings, field by field.",
    effect=Effect.READ,
    examples="""
        bkctl cookie verify -c bk_server.conf  # status 10 if a cookie differs
        bkctl cookie verify -c bk_server.conf --json  # each difference, for programs
    """,
    exits=(*_FAILURES, ExitStatus.PROBLEMS),
    replaces="reading VERSION files and the log of a bookie that does not start",
)

cookie.command(
    "repair",
    body="bkctl.commands.cookie.cookie_repair:repair",
    short_help="Write lost cookies again; follow moved directories.",
    help="""Write lost or damaged cookies of a stopped bookie again, or follow moved directories.

    For lost cookies, at least one cookie that agrees with the settings must exist, in the metadata
    service or in a directory. All other cookies must agree with it. The command refuses empty
    directories: their data is lost, and a cookie does not restore it.

    To move a directory to another path, stop the bookie, move the directory with all its files,
    change its path in the settings, and run this command. The VERSION file must still be in each
    directory. Move several journal directories, or several directories of DbLedgerStorage, one at a
    time.
    """,
    effect=Effect.REVERSIBLE,
    examples="""
        bkctl cookie repair -c bk_server.conf  # shows what would be written, and asks
        bkctl cookie repair -c bk_server.conf --dry-run  # only shows it; also after a move
    """,
    exits=_REFUSED,
    replaces="bookkeeper shell cookie_generate, cookie_update and cookie_create, and copying files",
)
