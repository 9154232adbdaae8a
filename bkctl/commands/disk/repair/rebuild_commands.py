"""The repairs of ``bkctl disk``: indexes made anew, entries saved, journals replayed."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, Final

import click

from bkctl.cli.params import LEDGER_ID, LEDGER_IDS
from bkctl.commands.disk.commands import FAILURES, directory_options, disk
from bkctl.exit_status import Effect, ExitStatus

if TYPE_CHECKING:
    from bkctl.session.session import Session

_CHANGES: Final = (*FAILURES, ExitStatus.REFUSED)


@disk.command(
    "rebuild-index",
    short_help="Rebuild index files from entry logs and journals.",
    effect=Effect.REVERSIBLE,
    examples=(
        ("bkctl disk rebuild-index 42 43 -c bk_server.conf", "two ledgers whose index is damaged"),
        ("bkctl disk rebuild-index --all --dry-run -c bk_server.conf", "what would be written"),
        (
            "bkctl disk rebuild-index 42 --password-file FILE -c bk_server.conf",
            "where nothing on the disk knows the ledger's key",
        ),
    ),
    exits=(*_CHANGES, ExitStatus.UNREACHABLE, ExitStatus.CONFLICT, ExitStatus.PARTLY),
    replaces="bookkeeper shell regenerate-interleaved-storage-index-file -l ID -password P",
)
@click.argument("ledger_ids", type=LEDGER_IDS, nargs=-1, metavar="[LEDGER_ID...]")
@click.option("--all", "all_ledgers", is_flag=True, help="Every ledger that is found.")
@click.option(
    "--password-file", metavar="FILE",
    help="The ledgers' password, for those whose key is in no journal and no index.",
)  # fmt: skip
@directory_options
@click.pass_obj
def rebuild_index(
    session: Session,
    /,
    *,
    ledger_ids: Sequence[Any],
    all_ledgers: bool,
    password_file: str | None,
    **dirs: tuple[str, ...],
) -> None:
    """Make index files of Interleaved or Sorted storage anew; `-` reads ids from stdin.

    The new index has every entry that can be read from the entry logs, the key and explicit LAC
    that journals or the old index know, and is fenced, as it may lack entries. Entries in logs that
    cannot be read keep their places. The old index stays until the new one is on disk.
    """
    from bkctl.commands.disk.repair import rebuild

    rebuild.rebuild_index(
        session,
        session.words(ledger_ids, LEDGER_ID),
        all_ledgers=all_ledgers,
        password_file=password_file,
        dirs=dirs,
    )


@disk.command(
    "salvage",
    short_help="Copy a ledger's entries out of logs and journals.",
    effect=Effect.READ,
    watch=False,
    examples=(
        ("bkctl disk salvage 42 --out saved -c bk_server.conf", "into saved/ledger-42.entries"),
        (
            "bkctl ledger write --length-prefixed saved/ledger-42.entries",
            "from there into a new ledger",
        ),
        ("bkctl disk salvage 42 --out saved --ledger-dir /data/l1", "from one directory's logs"),
    ),
    exits=(*FAILURES, ExitStatus.PARTLY),
    replaces="nothing in Java's tools",
)
@click.argument("ledger_id", type=LEDGER_ID)
@click.option("--out", metavar="DIR", required=True, help="Where to write; made if needed.")
@click.option("--password-file", metavar="FILE", help="The ledger's password, to check its MACs.")
@click.option(
    "--digest", type=click.Choice(["crc32c", "crc32", "mac", "dummy"]),
    help="The kind of digest.  [default: found out]",
)  # fmt: skip
@directory_options
@click.pass_obj
def salvage(
    session: Session,
    /,
    *,
    ledger_id: Any,
    out: str,
    password_file: str | None,
    digest: str | None,
    **dirs: tuple[str, ...],
) -> None:
    """Copy the entries of a ledger out of logs and journals, without index or metadata.

    DIR gets ledger-ID.entries, the payloads each after its length (4 bytes), and ledger-ID.jsonl, a
    line for each entry with its place, and the packet itself where its digest is wrong. Entries
    that this bookie never had are missing; other bookies may have them.
    """
    from bkctl.commands.disk.repair import rebuild

    rebuild.salvage_ledger(
        session, ledger_id, out, password_file=password_file, digest=digest, dirs=dirs
    )


@disk.command(
    "flush",
    short_help="Replay the journals of a stopped bookie into its files.",
    effect=Effect.REVERSIBLE,
    examples=(
        ("bkctl disk flush -c bk_server.conf", "after a crash, before a Java bookie takes over"),
        ("bkctl disk flush -c bk_server.conf --json", "what was replayed, for programs"),
    ),
    exits=(*_CHANGES, ExitStatus.CONFLICT),
    replaces="nothing in Java's tools",
)
@directory_options
@click.pass_obj
def flush(session: Session, /, **dirs: tuple[str, ...]) -> None:
    """Replay the journals of a stopped bookie into its entry logs and indexes.

    Afterwards the directories are as after a clean stop: marks at the ends of the journals, every
    key, fence and explicit LAC in the index. Run it after a crash of bookied before a Java bookie
    is started there, which could forget fences that only a journal holds.
    """
    from bkctl.commands.disk.repair import rebuild

    rebuild.flush_journals(session, dirs)
