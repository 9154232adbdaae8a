"""``bkctl cookie``: what ties a bookie's id to its directories and to its cluster."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any, Final

import click

from bkctl.cli.command import Effect, SubGroup
from bkctl.cli.params import BOOKIE_ID
from bkctl.commands.cookie.local_commands import LAZY
from bkctl.exit_status import ExitStatus
from bkctl.session.check_names import ONLY_COPIES, OPEN_LEDGERS, REGISTERED

if TYPE_CHECKING:
    from bkctl.session.session import Session
    from wire.ids import BookieId

_FAILURES: Final = (ExitStatus.FAILED, ExitStatus.UNREACHABLE)
_REFUSED: Final = (*_FAILURES, ExitStatus.NOT_FOUND, ExitStatus.REFUSED, ExitStatus.CONFLICT)

CONTENT: Final = "content"
"""The check that a cookie is this bookie's, of this cluster."""

cookie = SubGroup(
    name="cookie",
    short_help="Cookies: what ties a bookie's id to its directories.",
    help="""Cookies: what ties a bookie's id to its directories.

    The same text is kept in the metadata service and as the file VERSION in each directory. A
    bookie starts only where they all agree with its settings.
    """,
    lazy=LAZY,
    order=("list", "get", "generate", "create", "update", "delete"),
)


def _force(*checks: str) -> Callable[[Callable[..., Any]], Callable[..., Any]]:
    return click.option(
        "--force", type=click.Choice(checks), multiple=True,
        help="Override a safety check by its name.",
    )  # fmt: skip


@cookie.command(
    "list",
    effect=Effect.READ,
    examples=(
        ("bkctl cookie list", "every bookie that ever was and was not taken out"),
        ("bkctl cookie list -o wide", "with all directories"),
    ),
    exits=_FAILURES,
    replaces="nothing in Java's tools; updatecookie -list for local files",
)
@click.pass_obj
def list_(session: Session) -> None:
    """List the cookies that the metadata service keeps."""
    from bkclient.admin import cookies

    session.emit_all(session.call(cookies.list_cookies), cookies.StoredCookie)


@cookie.command(
    "get",
    effect=Effect.READ,
    examples=(
        ("bkctl cookie get 10.0.0.1:3181", "as it is stored"),
        ("bkctl cookie get 10.0.0.1:3181 > VERSION", "into a file for `cookie create`"),
        ("bkctl cookie get 10.0.0.1:3181 --json", "taken apart"),
    ),
    exits=(*_FAILURES, ExitStatus.NOT_FOUND),
    replaces="bookkeeper shell cookie_get ID",
)
@click.argument("bookie_id", type=BOOKIE_ID)
@click.pass_obj
def get(session: Session, bookie_id: BookieId) -> None:
    """Print the stored cookie of BOOKIE_ID."""
    from bkctl.commands.cookie import work as cookie_work

    cookie_work.print_cookie(session, bookie_id)


@cookie.command(
    "generate",
    effect=Effect.READ,
    watch=False,
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
@click.argument("bookie_id", type=BOOKIE_ID, required=False)
@click.option("--journal-dir", "journal_dirs", metavar="DIR", multiple=True,
              help="Journal directory; once for each, in the order of the settings.")  # fmt: skip
@click.option("--ledger-dir", "ledger_dirs", metavar="DIR", multiple=True,
              help="Ledger directory, likewise.")  # fmt: skip
@click.option("--index-dir", "index_dirs", metavar="DIR", multiple=True,
              help="Index directory, where they are not the ledger directories.")  # fmt: skip
@click.option("--instance-id", metavar="ID", help="The cluster's.  [default: asked of it]")
@click.option("--out", metavar="FILE", help="Write it to FILE, not to stdout.")
@click.pass_obj
def generate(session: Session, /, bookie_id: BookieId | None, **given: Any) -> None:
    """Print the cookie that a bookie with these directories has; nothing is stored.

    With neither id nor directories it is the one that a bookie with the settings of -c would write.
    """
    from bkctl.commands.cookie import work as cookie_work

    cookie_work.generate(session, bookie_id, **given)


@cookie.command(
    "create",
    effect=Effect.REVERSIBLE,
    examples=(
        ("bkctl cookie create 10.0.0.1:3181 --file VERSION", "store what a directory has"),
        ("bkctl cookie generate -c F | bkctl cookie create ID --file -", "without a file"),
    ),
    exits=_REFUSED,
    replaces="bookkeeper shell cookie_create -cf FILE ID",
)
@click.argument("bookie_id", type=BOOKIE_ID)
@click.option("--file", "path", metavar="FILE", required=True, help="The cookie; - is stdin.")
@_force(CONTENT)
@click.pass_obj
def create(session: Session, bookie_id: BookieId, *, path: str, force: Sequence[str]) -> None:
    """Store a cookie of BOOKIE_ID, which has none."""
    from bkctl.commands.cookie import work as cookie_work

    cookie_work.create(session, bookie_id, path, check=CONTENT not in force)


@cookie.command(
    "update",
    effect=Effect.REVERSIBLE,
    examples=(
        ("bkctl cookie update 10.0.0.1:3181 --file VERSION", "shows what would change, and asks"),
        ("bkctl cookie update 10.0.0.1:3181 --file VERSION --dry-run", "only shows it"),
    ),
    exits=_REFUSED,
    replaces="bookkeeper shell cookie_update -cf FILE ID",
)
@click.argument("bookie_id", type=BOOKIE_ID)
@click.option("--file", "path", metavar="FILE", required=True, help="The cookie; - is stdin.")
@_force(CONTENT)
@click.pass_obj
def update(session: Session, bookie_id: BookieId, *, path: str, force: Sequence[str]) -> None:
    """Replace the stored cookie of BOOKIE_ID."""
    from bkctl.commands.cookie import work as cookie_work

    cookie_work.update(session, bookie_id, path, check=CONTENT not in force)


@cookie.command(
    "delete",
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
@click.argument("bookie_id", type=BOOKIE_ID, required=False)
@click.option("--local", is_flag=True, help="Remove the VERSION files of -c's bookie as well.")
@_force(REGISTERED, OPEN_LEDGERS, ONLY_COPIES)
@click.pass_obj
def delete(
    session: Session, bookie_id: BookieId | None, *, local: bool, force: Sequence[str]
) -> None:
    """Remove the stored cookie of BOOKIE_ID: its directories can never be started again.

    A new bookie may begin under the same id then, one that knows of no fence. So this is refused
    while a ledger that is not closed lists the bookie, while it has the only copy of anything, and
    while it is registered. With --local it is the bookie of the settings, which must be stopped.
    """
    from bkctl.commands.cookie import work as cookie_work

    if local:
        cookie_work.delete_with_files(session, bookie_id, force)
    elif bookie_id is None:
        raise click.UsageError("which bookie? give its id, or --local for that of -c")
    else:
        cookie_work.delete(session, bookie_id, force)
