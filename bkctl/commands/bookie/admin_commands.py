"""``bkctl bookie``: the commands that use a running bookie's HTTP admin API.

``admin_requests`` sends the requests; ``bkctl.bookies.http`` turns answers into values and masks
passwords.
"""

from __future__ import annotations

from pathlib import Path
from typing import Final

import click

from bkctl.cli.command import Command
from bkctl.cli.declarations import argument, flag, option
from bkctl.cli.parameter_types import BOOKIE_ID, BOOKIE_WORDS
from bkctl.exit_status import Effect, ExitStatus

_EXITS: Final = (
    ExitStatus.FAILED,
    ExitStatus.NOT_FOUND,
    ExitStatus.REFUSED,
    ExitStatus.UNREACHABLE,
    ExitStatus.CONFLICT,
)

WHERE: Final = (
    option(
        "--token-file",
        type=click.Path(path_type=Path),
        metavar="FILE",
        help="Token for changes.  [default: of the profile or of -c]",
    ),
    option(
        "--http",
        "address",
        metavar="[https://]HOST:PORT",
        help="The bookie's HTTP server.  [default: as published]",
    ),
)
"""The options for the address of a bookie's HTTP server, and for its token."""

_ALL: Final = flag("--all", "every", help="Every registered bookie, instead of BOOKIE_ID.")

ADMIN: Final = (
    Command(
        "state",
        body="bkctl.commands.bookie.admin_requests:state",
        help="Show the state of a running bookie.",
        params=(argument("bookie_id", type=BOOKIE_ID), *WHERE),
        effect=Effect.READ,
        examples="""
            bkctl bookie state 10.0.0.1:3181  # what it is doing
            bkctl bookie state b1 --http 10.0.0.1:8080  # of a bookie that is not registered
        """,
        exits=_EXITS,
        replaces="curl http://BOOKIE:8080/api/v1/bookie/state",
    ),
    Command(
        "ready",
        body="bkctl.commands.bookie.admin_requests:ready",
        help="""Check that a bookie is registered and serves.

    Exit status 7 means that the bookie is not registered or does not serve. `--until healthy` waits
    until it serves.
    """,
        params=(argument("bookie_id", type=BOOKIE_ID), *WHERE),
        effect=Effect.READ,
        examples="""
            bkctl bookie ready 10.0.0.1:3181  # status 0 if it serves, 7 if not yet
            bkctl bookie ready 10.0.0.1:3181 --until healthy --timeout 60  # wait after a restart
            bkctl bookie ready b1 --http 10.0.0.1:8080  # of a bookie that is not registered yet
        """,
        exits=_EXITS,
        replaces="curl http://BOOKIE:8080/api/v1/bookie/is_ready",
    ),
    Command(
        "readonly",
        body="bkctl.commands.bookie.admin_requests:readonly",
        help="""Make a bookie read-only or writable, or show which it is.

    `on` holds until `off` is given or the bookie starts again. With persistBookieStatusEnabled=true
    in the bookie's settings, `on` also holds over restarts. Full disks make a bookie read-only,
    too, until they have space again.
    """,
        params=(
            argument("bookie_id", type=BOOKIE_ID),
            *WHERE,
            argument("wanted", type=click.Choice(["status", "on", "off"]), default="status"),
        ),
        effect=Effect.REVERSIBLE,
        examples="""
            bkctl bookie readonly 10.0.0.1:3181  # show whether it is read-only
            bkctl bookie readonly 10.0.0.1:3181 on  # take no more adds, before a stop
            bkctl bookie readonly 10.0.0.1:3181 off  # take adds again
        """,
        exits=_EXITS,
        replaces="curl -X PUT http://BOOKIE:8080/api/v1/bookie/state/readonly",
    ),
    Command(
        "gc",
        body="bkctl.commands.bookie.admin_requests:gc",
        help="""Start a bookie's garbage collection now.

    `gc-status` shows the progress; --wait returns at the end. The collection deletes only the data
    of deleted ledgers, as the bookie's own collections do. If most of the current entry log belongs
    to deleted ledgers, bookied first begins a new log, so that it can free the old one. A Java
    bookie does not.
    """,
        params=(
            argument("bookie_id", type=BOOKIE_ID),
            *WHERE,
            option(
                "--major/--no-major", default=True, help="Allow a major compaction, the default."
            ),
            option(
                "--minor/--no-minor", default=True, help="Allow a minor compaction, the default."
            ),
            flag("--wait", help="Return when the collection has ended; show its work."),
        ),
        effect=Effect.REVERSIBLE,
        examples="""
            bkctl bookie gc 10.0.0.1:3181  # with the compaction that the settings allow
            bkctl bookie gc 10.0.0.1:3181 --no-major  # at most a minor compaction
            bkctl bookie gc 10.0.0.1:3181 --wait  # wait, and show the freed space
            bkctl bookie list -o id | xargs -n 1 bkctl bookie gc  # on every bookie
        """,
        exits=_EXITS,
        replaces="curl -X PUT http://BOOKIE:8080/api/v1/bookie/gc",
    ),
    Command(
        "gc-status",
        body="bkctl.commands.bookie.admin_requests:gc_status",
        prints=("bkctl.bookies.http.garbage:GarbageRun",),
        help="""Show the state of garbage collection, of a bookie or of every registered bookie.

    Counts begin at the bookie's start. A round begins every `gcWaitTime`, and the first round
    within twice that time after the start. Java bookies do not report when the next round begins.
    LOGS, TOTAL and LIVE leave out damaged entry logs, and logs that the bookie still writes.
    """,
        params=(argument("bookie_id", type=BOOKIE_ID, required=False), *WHERE),
        effect=Effect.READ,
        examples="""
            bkctl bookie gc-status  # the last and the next round, and the freed space
            bkctl bookie gc-status 10.0.0.1:3181 -o wide  # with the times of compactions
        """,
        exits=(*_EXITS, ExitStatus.PARTLY),
        replaces="curl http://BOOKIE:8080/api/v1/bookie/gc_details",
    ),
    Command(
        "compaction",
        body="bkctl.commands.bookie.admin_requests:compaction",
        help="""Suspend or resume a bookie's compaction, or show its state.

    A suspension ends when the bookie restarts. Entry logs without any live ledger are deleted in
    any case.
    """,
        params=(
            argument("bookie_id", type=BOOKIE_ID),
            *WHERE,
            argument(
                "wanted", type=click.Choice(["status", "suspend", "resume"]), default="status"
            ),
            option("--major/--no-major", default=True, help="The major compaction."),
            option("--minor/--no-minor", default=True, help="The minor compaction."),
        ),
        effect=Effect.REVERSIBLE,
        examples="""
            bkctl bookie compaction 10.0.0.1:3181  # what is suspended
            bkctl bookie compaction 10.0.0.1:3181 suspend  # both kinds, until the next start
            bkctl bookie compaction 10.0.0.1:3181 resume --no-minor  # only the major compaction
        """,
        exits=_EXITS,
        replaces="curl -X PUT http://BOOKIE:8080/api/v1/bookie/gc/suspend_compaction",
    ),
    Command(
        "config",
        body="bkctl.commands.bookie.admin_requests:config",
        prints=("bkctl.bookies.http.bookie_settings:BookieSetting",),
        help="""Show the settings that a bookie runs with.

    KEY is a name, a part of a name, or a pattern with `*`. A Java bookie reports only the settings
    of its file. `config-set` changes some settings.

    ORIGIN is where the value comes from: a line of a file, the environment, the command line,
    default, or `set at run time`. BOOKIE_ID may be several ids, separated by commas. Without
    BOOKIE_ID the command asks every registered bookie.
    """,
        params=(
            argument("words", type=BOOKIE_WORDS, metavar="[BOOKIE_ID] [KEY...]", nargs=-1),
            *WHERE,
            _ALL,
        ),
        effect=Effect.READ,
        examples="""
            bkctl bookie config 10.0.0.1:3181  # all of its settings
            bkctl bookie config gcWaitTime  # one setting of every registered bookie
            bkctl bookie config 10.0.0.1:3181 'journal*'  # settings whose names begin with journal
            bkctl bookie config 10.0.0.1:3181 --filter 'origin!=default'  # settings that were set
        """,
        exits=(*_EXITS, ExitStatus.PARTLY),
        replaces="curl http://BOOKIE:8080/api/v1/config/server_config",
    ),
    Command(
        "config-set",
        body="bkctl.commands.bookie.admin_requests:config_set",
        help="""Change settings of a running bookie.

    Changes last until the bookie restarts or reads its settings file again (SIGHUP). The command
    prints the file's name, and the lines to write there to keep the change. It sets all settings or
    none. Only some settings can change at run time; the error lists them. A Java bookie accepts
    every setting.

    BOOKIE_ID may be several ids, separated by commas. For several bookies the command asks once,
    and reports the result of each bookie. The status is 8 if only some bookies accepted the change.
    """,
        params=(
            argument("words", type=BOOKIE_WORDS, metavar="BOOKIE_ID KEY=VALUE...", nargs=-1),
            *WHERE,
            _ALL,
        ),
        effect=Effect.REVERSIBLE,
        examples="""
            bkctl bookie config-set b1 gcWaitTime=600000 --dry-run  # show the change
            bkctl bookie config-set b1 compactionRateByEntries=5000 logLevel=debug
              # change both settings, or neither
            bkctl bookie config-set --all gcWaitTime=600000  # on every registered bookie
        """,
        exits=(*_EXITS, ExitStatus.PARTLY),
        replaces="curl -X PUT http://BOOKIE:8080/api/v1/config/server_config",
    ),
    Command(
        "metrics",
        body="bkctl.commands.bookie.admin_requests:metrics",
        prints=(
            "bkctl.bookies.http.bookie_metrics:MetricSample",
            "bkctl.bookies.http.bookie_metrics:JmxSample",
        ),
        help="""Show a bookie's metrics.

    The command reads the bookie's /metrics. Tables leave out metrics without a value (nan), such as
    latencies without a request; -o jsonl has them. `bkctl bench write --fail-if` measures adds as a
    client sees them.
    """,
        params=(
            argument("bookie_id", type=BOOKIE_ID),
            *WHERE,
            option("--grep", "pattern", metavar="REGEX", help="Only lines that match."),
            flag("--jmx-names", help="Use the names of BookKeeper 4.4's MBeans."),
        ),
        effect=Effect.READ,
        examples="""
            bkctl bookie metrics 10.0.0.1:3181 --grep JOURNAL_SYNC  # how long syncs take
            bkctl bookie metrics 10.0.0.1:3181 --jmx-names  # under the names of JMX attributes
        """,
        exits=_EXITS,
        replaces="curl http://BOOKIE:8080/metrics; remote JMX",
    ),
)
"""The commands of this module, for the group ``bookie``."""
