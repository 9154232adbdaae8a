"""``bkctl bookie``: the commands that ask a running bookie over its HTTP admin API."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, TypeVar

import click

from bkctl.cli.command import Command
from bkctl.cli.params import KEY_VALUE, BookieIdType
from bkctl.exit_status import Effect, ExitStatus

if TYPE_CHECKING:
    from bkctl.session.session import Session
    from wire.ids import BookieId

_F = TypeVar("_F", bound=Callable[..., Any])

_EXITS: Final = (
    ExitStatus.FAILED,
    ExitStatus.NOT_FOUND,
    ExitStatus.REFUSED,
    ExitStatus.UNREACHABLE,
    ExitStatus.CONFLICT,
)

LAZY: Final = {
    "state": ("bkctl.commands.bookie.admin_commands:state", "Show the state of a running bookie."),
    "ready": (
        "bkctl.commands.bookie.admin_commands:ready",
        "Check that a bookie is registered and serves.",
    ),
    "readonly": (
        "bkctl.commands.bookie.admin_commands:readonly",
        "Make a bookie read-only or writable, or show which it is.",
    ),
    "gc": ("bkctl.commands.bookie.admin_commands:gc", "Start a bookie's garbage collection now."),
    "gc-status": (
        "bkctl.commands.bookie.admin_commands:gc_status",
        "Show the state of a bookie's garbage collection.",
    ),
    "compaction": (
        "bkctl.commands.bookie.admin_commands:compaction",
        "Suspend or resume a bookie's compaction, or show its state.",
    ),
    "config": (
        "bkctl.commands.bookie.admin_commands:config",
        "Show the settings that a bookie runs with.",
    ),
    "config-set": (
        "bkctl.commands.bookie.admin_commands:config_set",
        "Change settings of a running bookie.",
    ),
    "metrics": ("bkctl.commands.bookie.admin_commands:metrics", "Show a bookie's metrics."),
}
"""For the group they hang in."""


def _asking(function: _F) -> _F:
    """Add which bookie, and ``where_to_ask``."""
    bookie: Any = click.argument("bookie_id", type=BookieIdType())
    with_bookie: _F = bookie(click.pass_obj(function))
    return where_to_ask(with_bookie)


def where_to_ask(function: _F) -> _F:
    """Add what says where a bookie's HTTP server listens, and by what right it is asked."""
    options: tuple[Callable[[Any], Any], ...] = (
        click.option(
            "--token-file",
            type=click.Path(path_type=Path),
            metavar="FILE",
            help="File with the token for changes.  [default: as the profile says]",
        ),
        click.option(
            "--http",
            "address",
            metavar="[https://]HOST:PORT",
            help="Where its HTTP server listens.  [default: as the bookie has published]",
        ),
    )
    for option in reversed(options):
        function = option(function)
    return function


def _admin(session: Session, bookie_id: BookieId, where: dict[str, Any]) -> Any:
    from bkctl.bookies import admin_api

    session.about = f"bookie {bookie_id}"
    return admin_api.connect(session, bookie_id, where["address"], where["token_file"])


@click.command(
    "state",
    cls=Command,
    effect=Effect.READ,
    examples=(
        ("bkctl bookie state 10.0.0.1:3181", "what it is doing"),
        ("bkctl bookie state b1 --http 10.0.0.1:8080", "of one that is not registered"),
    ),
    exits=_EXITS,
    replaces="curl http://BOOKIE:8080/api/v1/bookie/state",
)
@_asking
def state(session: Session, bookie_id: BookieId, **where: Any) -> None:
    """Show the state of a running bookie."""
    from bkctl.bookies import admin_api

    session.emit(admin_api.state(_admin(session, bookie_id, where), bookie_id))


@click.command(
    "ready",
    cls=Command,
    effect=Effect.READ,
    examples=(
        ("bkctl bookie ready 10.0.0.1:3181", "status 0 if it serves, 7 if not yet"),
        ("bkctl bookie ready b1 --http 10.0.0.1:8080", "of one that is not registered yet"),
    ),
    exits=_EXITS,
    replaces="curl http://BOOKIE:8080/api/v1/bookie/is_ready",
)
@_asking
def ready(session: Session, bookie_id: BookieId, **where: Any) -> None:
    """Check that a bookie is registered and serves.

    Status 7 says that it does not.
    """
    from bkctl.bookies import admin_api

    session.emit(admin_api.ready(_admin(session, bookie_id, where), bookie_id))


@click.command(
    "readonly",
    cls=Command,
    effect=Effect.REVERSIBLE,
    examples=(
        ("bkctl bookie readonly 10.0.0.1:3181", "whether it is"),
        ("bkctl bookie readonly 10.0.0.1:3181 on", "take no more adds, before it is taken down"),
        ("bkctl bookie readonly 10.0.0.1:3181 off", "take adds again"),
    ),
    exits=_EXITS,
    replaces="curl -X PUT http://BOOKIE:8080/api/v1/bookie/state/readonly",
)
@_asking
@click.argument("wanted", type=click.Choice(["status", "on", "off"]), default="status")
def readonly(session: Session, bookie_id: BookieId, wanted: str, **where: Any) -> None:
    """Make a bookie read-only or writable, or show which it is.

    What an operator has set only an operator takes back; full disks make it read-only besides.
    """
    from bkctl.bookies import admin_api

    if session.dry_run and wanted != "status":
        session.plan([f"turn read-only mode of bookie {bookie_id} {wanted}"])
        return
    shift = None if wanted == "status" else wanted == "on"
    session.emit(admin_api.mode(_admin(session, bookie_id, where), bookie_id, shift))


@click.command(
    "gc",
    cls=Command,
    effect=Effect.REVERSIBLE,
    examples=(
        ("bkctl bookie gc 10.0.0.1:3181", "with the compaction that is allowed"),
        ("bkctl bookie gc 10.0.0.1:3181 --no-major", "no more than a minor compaction"),
    ),
    exits=_EXITS,
    replaces="curl -X PUT http://BOOKIE:8080/api/v1/bookie/gc",
)
@_asking
@click.option("--major/--no-major", default=True, help="Allow a major compaction.")
@click.option("--minor/--no-minor", default=True, help="Allow a minor compaction.")
def gc(session: Session, bookie_id: BookieId, *, major: bool, minor: bool, **where: Any) -> None:
    """Start a bookie's garbage collection now.

    `gc-status` shows what becomes of it. What goes is what no ledger needs any more, as it would
    by itself in time.
    """
    from bkctl.bookies import admin_api

    if session.dry_run:
        session.plan([f"collect garbage on bookie {bookie_id}"])
        return
    admin = _admin(session, bookie_id, where)
    session.emit(admin_api.collect(admin, bookie_id, major=major, minor=minor))


@click.command(
    "gc-status",
    cls=Command,
    effect=Effect.READ,
    examples=(
        ("bkctl bookie gc-status 10.0.0.1:3181", "what it does, and what it has brought"),
        ("bkctl bookie gc-status 10.0.0.1:3181 -o wide", "with the times of compactions"),
    ),
    exits=_EXITS,
    replaces="curl http://BOOKIE:8080/api/v1/bookie/gc_details",
)
@_asking
def gc_status(session: Session, bookie_id: BookieId, **where: Any) -> None:
    """Show the state of a bookie's garbage collection.

    Counts and times are those since its start.
    """
    from bkctl.bookies import admin_api

    found = admin_api.collections(_admin(session, bookie_id, where))
    session.emit_all(found, admin_api.GarbageRun)


@click.command(
    "compaction",
    cls=Command,
    effect=Effect.REVERSIBLE,
    examples=(
        ("bkctl bookie compaction 10.0.0.1:3181", "what is suspended"),
        ("bkctl bookie compaction 10.0.0.1:3181 suspend", "both kinds, until the next start"),
        ("bkctl bookie compaction 10.0.0.1:3181 resume --no-minor", "the major one alone"),
    ),
    exits=_EXITS,
    replaces="curl -X PUT http://BOOKIE:8080/api/v1/bookie/gc/suspend_compaction",
)
@_asking
@click.argument("wanted", type=click.Choice(["status", "suspend", "resume"]), default="status")
@click.option("--major/--no-major", default=True, help="The major compaction.")
@click.option("--minor/--no-minor", default=True, help="The minor compaction.")
def compaction(
    session: Session, bookie_id: BookieId, wanted: str, *, major: bool, minor: bool, **where: Any
) -> None:
    """Suspend or resume a bookie's compaction, or show its state.

    It holds until the next start. Logs of which no ledger is left go all the same.
    """
    from bkctl.bookies import admin_api
    from bkctl.errors import UsageError

    if wanted != "status" and not (major or minor):
        raise UsageError("--no-major and --no-minor together leave nothing to do")
    if session.dry_run and wanted != "status":
        session.plan([f"{wanted} compaction on bookie {bookie_id}"])
        return
    suspend = None if wanted == "status" else wanted == "suspend"
    admin = _admin(session, bookie_id, where)
    found = admin_api.compactions(admin, bookie_id, suspend=suspend, major=major, minor=minor)
    session.emit(found)


@click.command(
    "config",
    cls=Command,
    effect=Effect.READ,
    examples=(
        ("bkctl bookie config 10.0.0.1:3181", "all of its settings"),
        ("bkctl bookie config 10.0.0.1:3181 pageLimit openFileLimit", "two of them"),
    ),
    exits=_EXITS,
    replaces="curl http://BOOKIE:8080/api/v1/config/server_config",
)
@_asking
@click.argument("keys", metavar="[KEY...]", nargs=-1)
def config(session: Session, bookie_id: BookieId, keys: tuple[str, ...], **where: Any) -> None:
    """Show the settings that a bookie runs with.

    A Java bookie answers those of its file only. `config-set` changes some.
    """
    from bkctl.bookies import admin_api
    from bkctl.errors import UsageError

    if "set" in {bookie_id, *keys[:1]} or any("=" in key for key in keys):
        raise UsageError(
            "this only shows settings",
            next_step="`bkctl bookie config-set BOOKIE_ID KEY=VALUE` changes them",
        )
    found = admin_api.settings(_admin(session, bookie_id, where), keys)
    session.emit_all(found, admin_api.BookieSetting)


@click.command(
    "config-set",
    cls=Command,
    effect=Effect.REVERSIBLE,
    examples=(
        ("bkctl bookie config-set b1 gcWaitTime=600000 --dry-run", "what that would change"),
        ("bkctl bookie config-set b1 compactionRateByEntries=5000 logLevel=debug", "both or none"),
    ),
    exits=_EXITS,
    replaces="curl -X PUT http://BOOKIE:8080/api/v1/config/server_config",
)
@_asking
@click.argument("pairs", metavar="KEY=VALUE...", type=KEY_VALUE, nargs=-1, required=True)
def config_set(
    session: Session, bookie_id: BookieId, pairs: Sequence[tuple[str, str]], **where: Any
) -> None:
    """Change settings of a running bookie.

    They hold until the settings are read again. Only what SIGHUP changes too can be set, all that
    is given or none of it; the error names those settings. A Java bookie takes any.
    """
    from bkctl.commands.bookie import admin_settings

    admin = _admin(session, bookie_id, where)
    if not admin.speaks_v2:
        session.warn("a Java bookie takes any key and value, and looks at most of them no more")
    if session.dry_run:
        session.plan(
            f"set {one.key} to {one.value}; it is {'not set' if one.was is None else one.was}"
            for one in admin_settings.planned(admin, pairs)
        )
        return
    session.emit_all(admin_settings.change(admin, pairs), admin_settings.ChangedSetting)


@click.command(
    "metrics",
    cls=Command,
    effect=Effect.READ,
    examples=(
        ("bkctl bookie metrics 10.0.0.1:3181 --grep JOURNAL_SYNC", "how long syncs take"),
        ("bkctl bookie metrics 10.0.0.1:3181 --jmx-names", "under the names of JMX attributes"),
    ),
    exits=_EXITS,
    replaces="curl http://BOOKIE:8080/metrics; remote JMX",
)
@_asking
@click.option("--grep", "pattern", metavar="REGEX", help="Only lines that match.")
@click.option("--jmx-names", is_flag=True, help="What replaces the MBeans of BookKeeper 4.4.")
def metrics(
    session: Session, bookie_id: BookieId, pattern: str | None, *, jmx_names: bool, **where: Any
) -> None:
    """Show a bookie's metrics.

    These are the samples of its /metrics.
    """
    from bkctl.bookies import admin_api

    admin = _admin(session, bookie_id, where)
    if jmx_names:
        session.emit_all(admin_api.jmx(admin), admin_api.JmxSample)
    else:
        found = admin_api.metrics(admin, pattern)
        session.emit_all(found, admin_api.MetricSample)
