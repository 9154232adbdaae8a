"""A Spark session that bkctl starts, configures and stops; the user's settings override its own."""

from __future__ import annotations

import contextlib
import fcntl
import os
import re
import shutil
import signal
import sys
import tempfile
import threading
import warnings
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, Final

from bkctl.commands.export.errors import SparkMissingError, SparkStartError, start_cause
from bkctl.commands.export.interrupts import uninterrupted

PREFIX: Final = "bkctl-spark-"

MARK: Final = ".bkctl-scratch"
"""The file in each directory that is locked while the directory is in use.

It has the machine's name.
"""

_NAME_BYTES_MAX: Final = 256


@contextlib.contextmanager
def scratch_directory(prefix: str = PREFIX) -> Iterator[Path]:
    """Make a directory; remove it afterwards, with its content.

    First removes directories with the same prefix that killed processes of this machine left. Other
    directories with a similar name stay.
    """
    for left in Path(tempfile.gettempdir()).glob(f"{prefix}*"):
        # The directory is in use, has no mark, or belongs to another user.
        with contextlib.suppress(OSError):
            _remove_left(left)
    made = tempfile.TemporaryDirectory(prefix=prefix, ignore_cleanup_errors=True)
    with made as name, (Path(name) / MARK).open("xb", buffering=0) as mark:
        # If files cannot be locked, the mark stays empty: no later session removes the directory.
        with contextlib.suppress(OSError):
            fcntl.flock(mark, fcntl.LOCK_EX)  # Another session may be checking the mark.
            mark.write(os.uname().nodename.encode())
        yield Path(name)


def _remove_left(directory: Path) -> None:
    """Remove a directory whose process has ended.

    Raises:
        BlockingIOError: the process still runs.
        OSError: the directory is a link, belongs to another user, or has no mark.
    """
    with _opened(directory, os.O_RDONLY | os.O_DIRECTORY) as descriptor:
        if os.fstat(descriptor).st_uid != os.geteuid():
            return
        # Opened for writing, because locks on NFS require it.
        with _opened(MARK, os.O_RDWR | os.O_NONBLOCK, within=descriptor) as mark:
            fcntl.flock(mark, fcntl.LOCK_EX | fcntl.LOCK_NB)
            if os.read(mark, _NAME_BYTES_MAX) == os.uname().nodename.encode():
                shutil.rmtree(directory, ignore_errors=True)


@contextlib.contextmanager
def _opened(path: Path | str, flags: int, *, within: int | None = None) -> Iterator[int]:
    """Open a file, but not a symbolic link, and yield its descriptor."""
    descriptor = os.open(path, flags | os.O_NOFOLLOW, dir_fd=within)
    try:
        yield descriptor
    finally:
        os.close(descriptor)


DEFAULTS: Final = {
    "spark.ui.enabled": "false",
    "spark.ui.showConsoleProgress": "false",
    "spark.sql.session.timeZone": "UTC",
    # Filters that Spark pushes reduce reads: see the data source.
    "spark.sql.python.filterPushdown.enabled": "true",
    # The JVM only calls Python; in a short session most of its CPU compiled its own code.
    "spark.driver.extraJavaOptions": "-XX:TieredStopAtLevel=1",
}
"""Settings of bkctl's sessions; the user's spark-defaults.conf and options override them."""

_SILENT_LOGGERS: Final = (
    "org.apache.spark.executor.Executor",
    "org.apache.spark.scheduler.TaskSetManager",
    "org.apache.spark.scheduler.TaskSchedulerImpl",
    "org.apache.spark.SparkContext",
)
"""Loggers that print a hundred lines for a failed task or master; the command prints one line."""

LOG_FILE_NAME: Final = "log4j2.properties"


@contextlib.contextmanager
def spark_session(
    master: str = "local[*]", *, options: Mapping[str, str] | None = None
) -> Iterator[Any]:
    """Start Spark; stop it afterwards.

    The user's environment applies: ``SPARK_CONF_DIR`` with ``spark-defaults.conf`` and
    ``log4j2.properties``, ``PYSPARK_PYTHON``, ``JAVA_HOME``. By default, workers run this
    interpreter's Python, any Java is used, and only errors are logged. ``options`` override all
    settings. Spark's processes get their environment at the start; the environment of this process
    is restored afterwards.

    Raises:
        SparkMissingError: PySpark is not installed.
        SparkStartError: Spark does not start; the message has the reason.
    """
    try:
        with warnings.catch_warnings():
            # PySpark warns about newer pandas versions, but bkctl does not use pandas.
            warnings.simplefilter("ignore", FutureWarning)
            from pyspark.sql import SparkSession
    except ImportError as error:
        raise SparkMissingError("this export needs PySpark, which is not installed here") from error
    from bkctl.commands.local import java

    given = dict(options or {})
    with scratch_directory() as scratch:
        conf_dir = configuration(scratch, os.environ)
        kept = set(given) | keys_in(conf_dir / "spark-defaults.conf")
        with environment(
            **python_of_workers(os.environ, kept),
            **temporary_files(scratch, os.environ),
            PYTHONPATH=os.pathsep.join(path for path in sys.path if path),
            PYTHONWARNINGS="ignore::FutureWarning",
            JAVA_HOME=str(java.spark_java_home(scratch, quiet=True)),
            SPARK_CONF_DIR=str(conf_dir),
            SPARK_HOME=spark_home(scratch, master, os.environ),
            SPARK_LOCAL_IP=own_address(master, os.environ),
        ):
            builder = SparkSession.builder.master(master).appName("bkctl")
            for key, value in DEFAULTS.items():
                if key not in kept:
                    builder = builder.config(key, value)
            for key, value in given.items():
                builder = builder.config(key, value)
            with _own_interrupts():
                spark = _started(builder, master)
        try:
            yield spark
        finally:
            with uninterrupted():
                spark.stop()
                _forget_gateway()


def _started(builder: Any, master: str) -> Any:
    try:
        return builder.getOrCreate()
    except Exception as error:
        # Py4j asks the JVM for the text, so this comes before the JVM ends.
        cause = start_cause(error)
        _forget_gateway()
        raise SparkStartError(f"Spark does not start on {master}: {cause}") from error


def python_of_workers(environ: Mapping[str, str], kept: set[str]) -> dict[str, str | None]:
    """Return the variables that select the Python of workers: the user's choice, or this one.

    Otherwise Spark's workers start another Python, without this one's packages.
    """
    if "PYSPARK_PYTHON" in environ or "spark.pyspark.python" in kept:
        return {}
    return {"PYSPARK_PYTHON": sys.executable, "PYSPARK_DRIVER_PYTHON": sys.executable}


def temporary_files(scratch: Path, environ: Mapping[str, str]) -> dict[str, str]:
    """Return the variable that makes Spark here keep its temporary files in ``scratch``.

    Spark's local directories follow ``java.io.tmpdir``, so they are in ``scratch``, too, unless the
    user has chosen others. The user's options for the JVM are read later, and override this one.
    """
    users = environ.get("SPARK_SUBMIT_OPTS", "")
    quoted = re.sub(r'(["\\])', r"\\\1", f"-Djava.io.tmpdir={scratch}")
    return {"SPARK_SUBMIT_OPTS": f'"{quoted}" {users}'.rstrip()}


def spark_home(scratch: Path, master: str, environ: Mapping[str, str]) -> str | None:
    """Return Spark's home: the user's, or PySpark's without the archive of its Python code.

    Each worker would compile modules from that archive. Without it, workers import the compiled
    modules of this process. A cluster needs the archive, so it stays there.
    """
    from bkctl.commands.local.java import SparkNotFoundError, pyspark_jars

    users = environ.get("SPARK_HOME")
    if users is not None or not master.startswith("local"):
        return users
    try:
        package = pyspark_jars().parent
    except SparkNotFoundError:
        return None
    made = scratch / "home"
    made.mkdir()
    for path in package.iterdir():
        if path.name != "python":
            (made / path.name).symlink_to(path)
    return str(made)


def own_address(master: str, environ: Mapping[str, str]) -> str | None:
    """Return the address for Spark here; None lets Spark choose.

    If all of Spark runs here, no host name must resolve. A cluster must reach this host; the user
    may set its address.
    """
    return "127.0.0.1" if master.startswith("local") else environ.get("SPARK_LOCAL_IP")


def configuration(scratch: Path, environ: Mapping[str, str]) -> Path:
    """Make a configuration directory: the user's files, or a quiet log configuration."""
    conf = scratch / "conf"
    conf.mkdir()
    home = environ.get("SPARK_HOME")
    users = environ.get("SPARK_CONF_DIR") or (home and f"{home}/conf")
    if users and Path(users).is_dir():
        for file in Path(users).absolute().iterdir():
            (conf / file.name).symlink_to(file)
    if not any((conf / name).exists() for name in (LOG_FILE_NAME, "log4j2.xml", "log4j2.yaml")):
        (conf / LOG_FILE_NAME).write_text(_quiet_log())
    return conf


def keys_in(defaults: Path) -> set[str]:
    """Return the keys of a spark-defaults.conf; empty if the file is missing."""
    try:
        lines = defaults.read_text(encoding="utf-8", errors="replace").splitlines()
    except OSError:
        return set()
    words = (line.replace("=", " ").split() for line in lines if not line.lstrip().startswith("#"))
    return {found[0] for found in words if found}


def _quiet_log() -> str:
    """Return a log4j2 configuration that logs only errors, on stderr."""
    return (
        "rootLogger.level = error\n"
        "rootLogger.appenderRef.stderr.ref = stderr\n"
        "appender.stderr.type = Console\n"
        "appender.stderr.name = stderr\n"
        "appender.stderr.target = SYSTEM_ERR\n"
        "appender.stderr.layout.type = PatternLayout\n"
        "appender.stderr.layout.pattern = spark: %m%n\n"
        # Without this name, Spark prints that it changes the log level.
        "logger.spark.name = org.apache.spark\n"
        "logger.spark.level = error\n"
        + "".join(
            f"logger.{number}.name = {name}\nlogger.{number}.level = off\n"
            for number, name in enumerate(_SILENT_LOGGERS)
        )
    )


@contextlib.contextmanager
def environment(**variables: str | None) -> Iterator[None]:
    """Set environment variables for a block; None removes one."""
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


@contextlib.contextmanager
def _own_interrupts() -> Iterator[None]:
    """Keep this process's handler of Ctrl-C: a Spark context installs its own."""
    before = signal.getsignal(signal.SIGINT)
    try:
        yield
    finally:
        if threading.current_thread() is threading.main_thread():
            signal.signal(signal.SIGINT, before)


def _forget_gateway() -> None:
    """End the JVM, so that a later session can use another Java or master."""
    import py4j.java_gateway
    import py4j.protocol
    from pyspark import SparkContext

    gateway = SparkContext._gateway  # noqa: SLF001 -- PySpark has no public way to end its JVM
    if gateway is not None:
        with contextlib.suppress(Exception):
            gateway.shutdown()
        process = getattr(gateway, "proc", None)
        if process is not None:
            process.stdin.close()
            process.wait()
        SparkContext._gateway = None  # noqa: SLF001
        SparkContext._jvm = None  # noqa: SLF001
    # PySpark replaces this function of py4j in the complete process.
    py4j.java_gateway.get_return_value = py4j.protocol.get_return_value
