"""Ledgers to Parquet with Spark: plan, run, verify, and only then put in place.

Each ledger becomes ``DIR/ledger=<id>/part-*.parquet``. It is written under a hidden name, counted,
and renamed, so that whatever carries its final name is whole. Exporting again replaces a ledger's
directory, or leaves it alone when the ledger is closed and nothing about it has changed.
"""

from __future__ import annotations

import contextlib
import json
import os
import signal
import sys
import tempfile
import threading
import uuid
import warnings
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import attrs

from bkctl.commands.export.spark.plan import LedgerExtent, cut, encode_tasks
from bkctl.commands.export.spark.progress import Done, ProgressListener
from bkctl.commands.export.views import ExportedLedger, ExportReport
from wire.errors import BookKeeperError

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from bkclient.blocking import BlockingClient
    from bkclient.config.client import ClientConfig

FORMAT: Final = 1
MANIFEST: Final = "_bkctl.json"
"""In each ledger's directory: what it holds. Spark passes over names that begin with ``_``."""

STAGING_PREFIX: Final = "_bkctl-tmp-"
_WATCH_INTERVAL_S: Final = 0.2


class ExportError(BookKeeperError):
    """The export failed; what was exported before is untouched, and nothing half-done is left."""


class SparkMissingError(ExportError):
    """PySpark is not installed here."""

    exit_status = 4
    hint = "pip install 'bkctl[spark]'"


class ExportReadError(ExportError):
    """A task is not let in, or an entry can be read from no bookie that should hold it."""


class ExportVerifyError(ExportError):
    """What Spark wrote is not what the plan says; nothing was put in place."""


Progress = Callable[[Done, "int", "int"], None]
"""Called a few times a second with what is done, and the totals of entries and bytes."""


# What to read ----------------------------------------------------------------------------------


def ledger_extents(
    client: BlockingClient, ledger_ids: Sequence[int], *, recover: bool
) -> list[LedgerExtent]:
    """Ask how far each ledger goes: closed ones to their end, open ones to what is confirmed.

    Raises:
        NoSuchLedgerError: one of them is not there; nothing has been recovered then.
    """
    from bkclient.admin import operations
    from wire.ids import LedgerId

    wanted = [LedgerId(number) for number in dict.fromkeys(ledger_ids)]
    for ledger_id in wanted:
        client.call(operations.read_metadata, ledger_id)
    if recover:
        for ledger_id in wanted:
            client.call(operations.recover_ledger, ledger_id)
    return [_extent(client, ledger_id) for ledger_id in wanted]


def _extent(client: BlockingClient, ledger_id: Any) -> LedgerExtent:
    from bkclient.admin import operations
    from wire.codes import LedgerState

    metadata = client.call(operations.read_metadata, ledger_id).value
    if metadata.state is LedgerState.CLOSED:
        last, length = metadata.last_entry_id, metadata.length
    else:
        last, length = client.call(operations.confirmed_end, ledger_id)
    digest = metadata.digest_type.name if metadata.digest_type else "unknown"
    return LedgerExtent(ledger_id, last, length, metadata.state.name, digest, metadata.ctime_ms)


# Spark -----------------------------------------------------------------------------------------


@contextlib.contextmanager
def spark_session(
    master: str = "local[*]", *, app_name: str = "bkctl", options: dict[str, str] | None = None
) -> Iterator[Any]:
    """Start Spark with this interpreter's Python and whatever Java there is; stop it afterwards.

    Raises:
        SparkMissingError: PySpark is not installed.
    """
    try:
        with warnings.catch_warnings():
            # PySpark warns of a pandas newer than it knows, which nothing here uses.
            warnings.simplefilter("ignore", FutureWarning)
            from pyspark.sql import SparkSession
    except ImportError as error:
        raise SparkMissingError("export needs PySpark, which is not installed here") from error
    from bkctl.commands.local import java

    with (
        tempfile.TemporaryDirectory(prefix="bkctl-spark-") as scratch,
        _environment(
            # Or Spark's workers start another Python, without what this one has.
            PYSPARK_PYTHON=sys.executable,
            PYSPARK_DRIVER_PYTHON=sys.executable,
            PYTHONPATH=os.pathsep.join(path for path in sys.path if path),
            PYTHONWARNINGS="ignore::FutureWarning",
            JAVA_HOME=str(java.spark_java_home(Path(scratch), quiet=True)),
            SPARK_CONF_DIR=str(_quiet_conf(Path(scratch))),
            SPARK_LOCAL_IP=own_address(master, os.environ),
        ),
    ):
        builder = SparkSession.builder.master(master).appName(app_name)
        for key, value in {**_SPARK_OPTIONS, **(options or {})}.items():
            builder = builder.config(key, value)
        with _own_interrupts():
            spark = builder.getOrCreate()
        try:
            yield spark
        finally:
            with _uninterrupted():
                _stop(spark)


@contextlib.contextmanager
def _own_interrupts() -> Iterator[None]:
    """Keep Ctrl-C as it is: a Spark context puts a handler of its own in its place."""
    before = signal.getsignal(signal.SIGINT)
    try:
        yield
    finally:
        if threading.current_thread() is threading.main_thread():
            signal.signal(signal.SIGINT, before)


@contextlib.contextmanager
def _uninterrupted() -> Iterator[None]:
    """Let signals wait for the end of this block, which must be short.

    py4j keeps one connection a thread: a call that is left half way would give its answer to the
    next one, and the clean-up would be the one that goes wrong.
    """
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    came: list[int] = []
    before = {
        number: signal.signal(number, lambda signum, _frame: came.append(signum))
        for number in (signal.SIGINT, signal.SIGTERM, signal.SIGALRM)
    }
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
    if came:
        signal.raise_signal(signal.Signals(came[0]))


_SPARK_OPTIONS: Final = {
    "spark.ui.enabled": "false",
    "spark.ui.showConsoleProgress": "false",
    "spark.sql.session.timeZone": "UTC",
    # Files of one task go to one directory: no sort of the payloads by ledger is worth it.
    "spark.sql.maxConcurrentOutputFileWriters": "256",
    # The only shuffle is of one row a ledger and file.
    "spark.sql.shuffle.partitions": "4",
    # An entry that cannot be read cannot be read the fourth time either.
    "spark.task.maxFailures": "1",
}


_SILENT_LOGGERS: Final = (
    "org.apache.spark.executor.Executor",
    "org.apache.spark.scheduler.TaskSetManager",
    "org.apache.spark.scheduler.TaskSchedulerImpl",
    "org.apache.spark.sql.execution.datasources.FileFormatWriter",
)
"""They tell of a failed task in a hundred lines; the command itself does in one."""


def own_address(master: str, environ: Mapping[str, str]) -> str | None:
    """Return the address that Spark here is to use; None leaves it to Spark.

    Where all of it runs here, no host name has to resolve; a cluster has to reach us, and the user
    may know how.
    """
    return "127.0.0.1" if master.startswith("local") else environ.get("SPARK_LOCAL_IP")


@contextlib.contextmanager
def _environment(**variables: str | None) -> Iterator[None]:
    before = {name: os.environ.get(name) for name in variables}
    _set_environment(variables)
    try:
        yield
    finally:
        _set_environment(before)


def _set_environment(variables: dict[str, str | None]) -> None:
    for name, value in variables.items():
        if value is None:
            os.environ.pop(name, None)
        else:
            os.environ[name] = value


def _quiet_conf(scratch: Path) -> Path:
    """Write a log4j2 configuration that lets only errors through, on stderr."""
    conf = scratch / "conf"
    conf.mkdir()
    (conf / "log4j2.properties").write_text(
        "rootLogger.level = error\n"
        "rootLogger.appenderRef.stderr.ref = stderr\n"
        "appender.stderr.type = Console\n"
        "appender.stderr.name = stderr\n"
        "appender.stderr.target = SYSTEM_ERR\n"
        "appender.stderr.layout.type = PatternLayout\n"
        "appender.stderr.layout.pattern = spark: %m%n\n"
        # Named, or Spark announces that it sets a level of its own.
        "logger.spark.name = org.apache.spark\n"
        "logger.spark.level = error\n"
        + "".join(
            f"logger.{number}.name = {name}\nlogger.{number}.level = off\n"
            for number, name in enumerate(_SILENT_LOGGERS)
        )
    )
    return conf


def _stop(spark: Any) -> None:
    """Stop Spark and its JVM, so that a later session can have another Java or master."""
    import py4j.java_gateway
    import py4j.protocol
    from pyspark import SparkContext

    gateway = spark.sparkContext._gateway  # noqa: SLF001 -- PySpark has no public way to end its JVM
    spark.stop()
    if gateway is not None:
        gateway.shutdown()
        process = getattr(gateway, "proc", None)
        if process is not None:
            process.stdin.close()
            process.wait()
        SparkContext._gateway = None  # noqa: SLF001
        SparkContext._jvm = None  # noqa: SLF001
    # PySpark puts itself between py4j and all its users in this process.
    py4j.java_gateway.get_return_value = py4j.protocol.get_return_value


# The export ------------------------------------------------------------------------------------


def export_ledgers(
    uri: str,
    ledger_ids: Sequence[int],
    target: str,
    *,
    master: str = "local[*]",
    recover: bool = False,
    compression: str = "zstd",
    again: bool = False,
    progress: Progress | None = None,
    spark: Any = None,
    config: ClientConfig | None = None,
) -> ExportReport:
    """Export ledgers to Parquet under ``target``, a directory or a URI that Spark can write.

    With ``again`` also closed ledgers that have not changed since they were last exported are
    written anew. Blocks until done; ``progress`` is called on the calling thread. ``spark`` is a
    session that runs already; without one, one is started on ``master`` and stopped again.
    ``config`` is how bookies are talked to, by tasks too: the files that it names, with keys and
    passwords, are read on each host of Spark's.

    Raises:
        NoSuchLedgerError: one of the ledgers is not there.
        ExportReadError: an entry could not be read, and names ledger, entry and bookie; or a task
            could not connect, and names its host.
        ExportVerifyError: the files do not hold what was planned.
        SparkMissingError: PySpark is not installed.
    """
    from bkclient.blocking import BlockingClient
    from bkclient.config.client import ClientConfig

    config = config or ClientConfig()
    with BlockingClient(uri, config=config) as client:
        extents = ledger_extents(client, ledger_ids, recover=recover)
    running = spark_session(master) if spark is None else contextlib.nullcontext(spark)
    with running as session:
        output = _Output(session, target)
        kept = [] if again else [e for e in extents if output.holds(e)]
        todo = [e for e in extents if e not in kept]
        with output.staging() as staging:
            if todo:
                source = _source(session, uri, config)
                _run(session, source, todo, staging, compression, progress)
                counted = _verify(session, todo, staging)
                for extent in todo:
                    with _uninterrupted():
                        output.seal(staging, extent, counted.get(extent.ledger_id, 0))
                for extent in todo:
                    with _uninterrupted():
                        output.install(staging, extent)
        ledgers = tuple(output.describe(e, unchanged=e in kept) for e in extents)
    return _report(output.target, ledgers)


def _report(target: str, ledgers: tuple[ExportedLedger, ...]) -> ExportReport:
    return ExportReport(
        target=target,
        ledgers=ledgers,
        entries=sum(e.entries for e in ledgers),
        payload_bytes=sum(e.payload_bytes for e in ledgers),
        files=sum(e.files for e in ledgers),
        file_bytes=sum(e.file_bytes for e in ledgers),
        read_back=f"spark.read.parquet({target!r})",
    )


def _run(
    spark: Any,
    source: Any,
    extents: list[LedgerExtent],
    staging: str,
    compression: str,
    progress: Progress | None,
) -> None:
    """Write all extents below ``staging``, telling ``progress`` how far it is."""
    with _uninterrupted():
        listener, write = _prepared(spark, source, extents, staging, compression)
    try:
        _watch(
            spark,
            write,
            lambda: (
                progress
                and progress(
                    listener.done(), sum(e.entries for e in extents), sum(e.length for e in extents)
                )
            ),
        )
    finally:
        listener.close()


def _source(spark: Any, uri: str, config: ClientConfig) -> Any:
    """Return what reads the ledgers of a cluster, but for which."""
    from bkctl.commands.export.spark.datasource import LedgerSource, with_settings

    spark.dataSource.register(with_settings(config))
    return spark.read.format(LedgerSource.short_name).option("uri", uri)


def _prepared(
    spark: Any, source: Any, extents: list[LedgerExtent], staging: str, compression: str
) -> tuple[ProgressListener, Callable[[], None]]:
    """Return where tasks report, and what runs the job."""
    from pyspark.sql import functions

    tasks = cut(extents, spark.sparkContext.defaultParallelism)
    listener = ProgressListener(spark.conf.get("spark.driver.host", "127.0.0.1"))
    rows = source.option("progress", listener.address).option("tasks", encode_tasks(tasks)).load()
    digests = {str(e.ledger_id): e.digest_type for e in extents}
    # In the footer of each file, as metadata of its columns.
    frame = rows.withMetadata("payload", {"bookkeeper.digest_types": json.dumps(digests)})
    frame = frame.withColumn("ledger", functions.col("ledger_id"))
    writer = frame.write.mode("append").partitionBy("ledger").option("compression", compression)
    return listener, lambda: writer.parquet(staging)


def _watch(spark: Any, work: Callable[[], None], look: Callable[[], object]) -> None:
    """Run ``work`` in a thread and ``look`` here meanwhile; Ctrl-C ends Spark's jobs first."""
    failure: list[BaseException] = []

    def run() -> None:
        try:
            work()
        except BaseException as error:  # noqa: BLE001 -- raised again by the caller's thread
            failure.append(error)

    thread = threading.Thread(target=run, name="bkctl-export", daemon=True)
    thread.start()
    try:
        while thread.is_alive():
            thread.join(_WATCH_INTERVAL_S)
            look()
    except BaseException:
        while thread.is_alive():  # Also a job that only begins now.
            spark.sparkContext.cancelAllJobs()
            thread.join(_WATCH_INTERVAL_S)
        raise
    if failure:
        raise _translated(failure[0]) from failure[0]


def _translated(error: BaseException) -> BaseException:
    """Find in Spark's report of a failed job what the task said, if it is from us."""
    from bkctl.commands.export.spark.datasource import FAILURE_MARK

    text = str(error)
    at = text.find(FAILURE_MARK)
    if at < 0:
        summary = next((line for line in text.splitlines() if line.strip()), type(error).__name__)
        return ExportError(f"Spark could not write the export: {summary}")
    told, _ = json.JSONDecoder().raw_decode(text[at + len(FAILURE_MARK) :])
    # The message names entry and bookie; read-ahead meets them before the entries in between.
    return ExportReadError("{where}: {message} ({error})".format_map(told))


def _verify(spark: Any, extents: list[LedgerExtent], staging: str) -> dict[int, int]:
    """Compare what was written with the plan; return payload bytes by ledger.

    Reads no payloads: entry ids must be 0 to last, each once, and the last entry's length field is
    the sum of all payloads.
    """
    from pyspark.sql import functions as f

    expected = {e.ledger_id: e for e in extents if e.entries}
    if not expected:
        return {}
    rows: list[Any] = []
    _watch(spark, lambda: rows.extend(_counts(spark, staging, f)), lambda: None)
    found = {row["ledger_id"]: row for row in rows}
    for ledger_id, extent in expected.items():
        row = found.get(ledger_id)
        want = (extent.entries, extent.entries, 0, extent.last_entry_id)
        have = row and (row["entries"], row["distinct"], row["first"], row["last"])
        if have != want:
            raise ExportVerifyError(
                f"ledger {ledger_id}: planned entries 0 to {extent.last_entry_id}, "
                f"found (count, distinct, first, last) = {have}"
            )
    return {ledger_id: row["payload_bytes"] for ledger_id, row in found.items()}


def _counts(spark: Any, staging: str, f: Any) -> list[Any]:
    """Return a row a ledger: entries, distinct ids, first, last, payload bytes."""
    rows: list[Any] = (
        spark.read.parquet(staging)
        .groupBy("ledger_id")
        .agg(
            f.count("*").alias("entries"),
            f.countDistinct("entry_id").alias("distinct"),
            f.min("entry_id").alias("first"),
            f.max("entry_id").alias("last"),
            f.max("length").alias("payload_bytes"),
        )
        .collect()
    )
    return rows


@contextlib.contextmanager
def _told(what: str) -> Iterator[None]:
    """Turn what a Hadoop file system throws into one line."""
    from py4j.protocol import Py4JJavaError

    try:
        yield
    except Py4JJavaError as error:
        raise ExportError(f"{what}: {error.java_exception.getMessage()}") from error


class _Output:
    """The target directory, through Hadoop's file systems: local, HDFS, S3 and so on."""

    def __init__(self, spark: Any, target: str) -> None:
        self._jvm = spark._jvm  # noqa: SLF001 -- PySpark has no other way to Hadoop's file systems
        if "://" not in target:
            target = str(Path(target).absolute())
        path = self._jvm.org.apache.hadoop.fs.Path(target)
        with _told(f"{target} cannot be reached"):
            self._fs = path.getFileSystem(spark._jsc.hadoopConfiguration())  # noqa: SLF001
        self.target = target

    def _path(self, *names: str) -> Any:
        return self._jvm.org.apache.hadoop.fs.Path("/".join((self.target.rstrip("/"), *names)))

    @contextlib.contextmanager
    def staging(self) -> Iterator[str]:
        """Give a hidden directory below the target that is gone afterwards, whatever happens."""
        path = self._path(STAGING_PREFIX + uuid.uuid4().hex)
        try:
            with _uninterrupted(), _told(f"{self.target} cannot be written"):
                made = self._fs.mkdirs(path)
            if not made:  # The local file system tells no reason; Spark's own would fill a screen.
                raise ExportError(
                    f"{self.target} cannot be written: no directory can be made in it"
                )
            yield path.toString()
        finally:
            with _uninterrupted(), contextlib.suppress(ExportError), _told("nothing was staged"):
                self._fs.delete(path, True)

    def holds(self, extent: LedgerExtent) -> bool:
        """Tell whether this very ledger, closed, is there already with all its files."""
        manifest = self._manifest(extent.ledger_id)
        return (
            manifest is not None
            and extent.state == "CLOSED"
            and manifest["ledger"] == attrs.asdict(extent)
            and self._files(self._ledger_path(extent.ledger_id)) == manifest["files"]
        )

    def seal(self, staging: str, extent: LedgerExtent, payload_bytes: int) -> None:
        """Write the manifest beside a staged ledger's files."""
        name = staging.rsplit("/", 1)[1]
        directory = self._path(name, f"ledger={extent.ledger_id}")
        self._fs.mkdirs(directory)
        told = {
            "format": FORMAT,
            "ledger": attrs.asdict(extent),
            "payload_bytes": payload_bytes,
            "files": self._files(directory),
        }
        stream = self._fs.create(self._path(name, f"ledger={extent.ledger_id}", MANIFEST), True)
        stream.write(json.dumps(told, indent=1).encode())
        stream.close()

    def install(self, staging: str, extent: LedgerExtent) -> None:
        """Put a sealed ledger in place of what is there; each rename is atomic."""
        name = staging.rsplit("/", 1)[1]
        final = self._ledger_path(extent.ledger_id)
        if self._fs.exists(final):
            self._rename(final, self._path(name, f"old-{extent.ledger_id}"))
        self._rename(self._path(name, f"ledger={extent.ledger_id}"), final)

    def _rename(self, source: Any, destination: Any) -> None:
        with _told(f"{source} cannot be renamed to {destination}"):
            if not self._fs.rename(source, destination):
                raise ExportError(f"{source} cannot be renamed to {destination}")

    def describe(self, extent: LedgerExtent, *, unchanged: bool) -> ExportedLedger:
        manifest = self._manifest(extent.ledger_id)
        assert manifest is not None, extent
        return ExportedLedger(
            ledger_id=extent.ledger_id,
            state=extent.state,
            last_entry=extent.last_entry_id,
            entries=extent.entries,
            payload_bytes=manifest["payload_bytes"],
            digest_type=extent.digest_type,
            files=len(manifest["files"]),
            file_bytes=sum(manifest["files"].values()),
            path=f"{self.target.rstrip('/')}/ledger={extent.ledger_id}",
            unchanged=unchanged,
        )

    def _ledger_path(self, ledger_id: int) -> Any:
        return self._path(f"ledger={ledger_id}")

    def _files(self, directory: Any) -> dict[str, int]:
        """Return the Parquet files of a directory with their sizes in bytes."""
        statuses = self._fs.listStatus(directory)
        named = {s.getPath().getName(): s.getLen() for s in statuses if s.isFile()}
        return {name: size for name, size in sorted(named.items()) if name.endswith(".parquet")}

    def _manifest(self, ledger_id: int) -> dict[str, Any] | None:
        path = self._path(f"ledger={ledger_id}", MANIFEST)
        if not self._fs.exists(path):
            return None
        stream = self._fs.open(path)
        try:
            told = json.loads(bytes(stream.readAllBytes()))
        except ValueError:
            return None
        finally:
            stream.close()
        return told if isinstance(told, dict) and told.get("format") == FORMAT else None
