"""``bkctl export``: ledgers to Parquet."""

from __future__ import annotations

import click

from bkctl.cli.command import Command, SubGroup
from bkctl.cli.declarations import argument, flag, option
from bkctl.cli.ledger_options import STATE
from bkctl.cli.parameter_types import DURATION, KEY_VALUE, LEDGER_RANGES, LOG_NAME, TIME
from bkctl.exit_status import FAILURES, Effect, ExitStatus, Facility

export = Command(
    "export",
    body="bkctl.commands.export.export_command:export",
    help="""Export ledgers to Parquet; `-` reads ids from stdin. A range such as 1-100 selects the
    existing ledgers in it.

    Each ledger becomes DIR/ledger=ID. With --partition-by none, day or log, ledgers share files
    below DIR/run=N. With --format delta, DIR is a Delta table, and each run is a version of the
    table. A later export of a ledger to DIR copies only its new entries. The columns are ledger_id,
    entry_id, lac, length, ctime and payload. `length` is the payload of the ledger up to the entry.
    The size of an entry is length(payload).

    Tasks read from the bookies, up to the last add confirmed. They fence no writer without
    --recover. The files that settings name (keys, passwords) must be on each of Spark's hosts.

    If a file of an earlier export is missing or changed, the command still exports new entries, and
    the status is 1.
    """,
    params=(
        argument("ledger_ids", type=LEDGER_RANGES, nargs=-1, metavar="[LEDGER_ID|RANGE...]"),
        option("--log", type=LOG_NAME, metavar="NAME", help="The ledgers of a log."),
        option("--topic", metavar="TOPIC", help="The ledgers of a Pulsar topic."),
        STATE,
        option(
            "--created-after",
            type=TIME,
            help="Only ledgers since TIME: ISO 8601, ms since 1970, or an age (7d).",
        ),
        option("--created-before", type=TIME, help="Only ledgers created before TIME."),
        option(
            "--meta",
            type=KEY_VALUE,
            multiple=True,
            help="Only ledgers with this metadata; repeatable.",
        ),
        option(
            "--to",
            "target",
            required=True,
            metavar="DIR",
            help="Directory, or URI (s3a, hdfs, gs, ...).",
        ),
        flag(
            "--since-last",
            help="Export only new entries of the selected ledgers. If you select none, the "
            "selection of the last --since-last to DIR applies, else the selection of the first "
            "export to DIR. A new DIR gets all ledgers. Ledgers that cannot be read are named and "
            "left out.",
        ),
        option(
            "--follow",
            "follow_s",
            type=DURATION,
            metavar="EVERY",
            help="Repeat --since-last after each pause of this time.",
        ),
        option(
            "--partition-by",
            "layout",
            type=click.Choice(["ledger", "none", "day", "log"]),
            help="A directory for each ledger, or shared files.  [default: as before, else ledger]",
        ),
        option(
            "--format",
            "table_format",
            type=click.Choice(["parquet", "delta"]),
            help="Parquet files, or a Delta table over them.  [default: as before, else parquet]",
        ),
        flag("--recover", help="Close ledgers first, which fences writers."),
        option(
            "--compression",
            default="zstd",
            type=click.Choice(["zstd", "snappy", "gzip", "lz4", "none"]),
            help="Compression of the Parquet files.",
        ),
        flag("--again", help="Export unchanged ledgers again, too."),
        flag(
            "--verify",
            help="Read back all files of the selected ledgers, also earlier ones, and compare "
            "digests.",
        ),
        option(
            "--engine",
            type=click.Choice(["local", "spark"]),
            help="Where tasks run.  [default: spark with --master or for > 4 GiB, else local]",
        ),
        option("--master", metavar="URL", help="Spark's master."),
        option(
            "--spark-conf",
            "spark_conf",
            type=KEY_VALUE,
            multiple=True,
            help="Setting of Spark; repeatable.",
        ),
        option("--packages", metavar="NAMES", help="Packages that Spark loads from Maven."),
        option("--driver-memory", metavar="SIZE", help="Memory of Spark's driver, such as 2g."),
    ),
    effect=Effect.FENCES,
    examples="""
        bkctl export 42 43 --to /data/ledgers  # two ledgers, as ledger=42/ and ledger=43/
        bkctl export 1-100,205 --meta application=pulsar --to /data  # by ids and metadata
        bkctl export --since-last --state closed --meta team=a --to /data
          # what is new in closed ledgers of one team, from cron
        bkctl export 42 --to s3a://bucket/ledgers --master spark://spark:7077  # on a cluster
    """,
    exits=(*FAILURES, ExitStatus.NOT_FOUND, ExitStatus.REFUSED, ExitStatus.PARTLY),
)

spark = SubGroup(
    name="spark",
    help="""Spark: pack what its workers need.

    `bkctl export` runs on Spark by itself. The data source `bookkeeper` is for your own queries.
    """,
)

spark.command(
    "bundle",
    body="bkctl.commands.export.spark.bundle:write",
    help="""Write FILE, an archive for `spark.archives`: with it, workers need no packages.

    The archive has the installed packages of bkctl[spark], and of bkctl[pulsar] if those are
    installed. Workers need the version of Python and the platform that the command prints; the
    default file name contains both. Workers use their own PySpark, which is a part of Spark.
    """,
    params=(argument("path", required=False, metavar="[FILE]"),),
    effect=Effect.READ,
    without=(Facility.WATCH,),
    examples="""
        bkctl spark bundle  # for hosts like this one
        bkctl spark bundle /tmp/bkctl.tar.gz  # under another name
    """,
    exits=(ExitStatus.FAILED, ExitStatus.NOT_FOUND, ExitStatus.CONFLICT),
)
