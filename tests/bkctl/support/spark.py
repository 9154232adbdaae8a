"""A Spark that is quick to start: tests end before a JVM's optimising compiler pays.

Its JVMs start from an archive of the classes that they load (class data sharing), which takes half
of the CPU of a short session. It is made once for a user and a Java, beside a copy of PySpark's
jars, by a session that does a bit of everything.
"""

from __future__ import annotations

import functools
import hashlib
import importlib.metadata
import os
import subprocess
import sys
import tempfile
import venv
from pathlib import Path
from typing import Final

from bkctl.commands.export.spark.session import spark_session
from bkctl.commands.local.java import find_java, pyspark_jars
from tests.interop.peers.jars import copied, default_directory, locked

_JVM: Final = (
    "-XX:TieredStopAtLevel=1",
    "-XX:+UseSerialGC",
    "-XX:+UnlockDiagnosticVMOptions",
    "-XX:-BytecodeVerificationRemote",
    "-Xlog:cds=off",
    "-Xlog:cds+dynamic=off",
)
_WRITING_S: Final = 600
_ROOT: Final = Path(__file__).parents[3]


@functools.cache
def quick_jvm() -> tuple[str, ...]:
    """Return the options of a JVM whose class path begins with ``class_path``."""
    archive = _archive()
    return (*_JVM, f"-XX:SharedArchiveFile={archive}") if archive.exists() else _JVM


@functools.cache
def class_path() -> str:
    """Return what the class path of each JVM begins with.

    It is a copy of Spark's jars: those of a virtual environment have its own times and place.
    """
    return os.pathsep.join(map(str, _jars()))


def quick(directory: Path | None = None) -> dict[str, str]:
    """Return the options of a session: a quarter of the CPU for the first queries.

    ``directory`` is one for the temporary files of the driver and executors.
    """
    temporary = () if directory is None else (f"-Djava.io.tmpdir={directory}",)
    return _options((*quick_jvm(), *temporary))


def _options(jvm: tuple[str, ...]) -> dict[str, str]:
    return {"spark.sql.shuffle.partitions": "2"} | {
        f"spark.{process}.{name}": value
        for process in ("driver", "executor")
        for name, value in (("extraJavaOptions", " ".join(jvm)), ("extraClassPath", class_path()))
    }


def _jars() -> list[Path]:
    release = importlib.metadata.version("pyspark")
    directory = default_directory().with_name(f"spark-jars-{release}")
    directory.mkdir(parents=True, exist_ok=True)
    return [copied(jar, directory / jar.name) for jar in sorted(pyspark_jars().glob("*.jar"))]


def _archive() -> Path:
    """Return where the archive for the Java in use is, made unless it is there.

    A JVM leaves one aside that was made by another Java, or with other jars.
    """
    java, jars = find_java(), _jars()
    files = [(path, path.stat()) for path in (java.executable, *jars)]
    made_for = [(str(path), stat.st_size, stat.st_mtime_ns) for path, stat in files]
    key = hashlib.sha256(repr(made_for).encode()).hexdigest()[:12]
    archive = jars[0].with_name(f"classes-{java.feature}-{key}.jsa")
    if not archive.exists():
        with locked(archive.with_suffix(".lock")):
            if not archive.exists():
                _write(archive)
    return archive


def _write(archive: Path) -> None:
    """Make an archive, in a process of its own: one that has a session begins no other."""
    draft = archive.with_suffix(".draft")
    code = f"from {__name__} import _do_a_bit_of_everything as do; do({str(draft)!r})"
    command = [sys.executable, "-c", code]
    subprocess.run(command, check=True, timeout=_WRITING_S, cwd=_ROOT)
    if draft.exists():
        draft.rename(archive)


def _do_a_bit_of_everything(draft: str) -> None:
    options = _options((*_JVM, f"-XX:ArchiveClassesAtExit={draft}"))
    with (
        tempfile.TemporaryDirectory() as directory,
        spark_session("local[2]", options=options) as spark,
    ):
        written = f"{directory}/written"
        rows = spark.createDataFrame([(n, b"%d" % n) for n in range(100)], "id long, b binary")
        rows.repartition(2).write.parquet(written)
        spark.read.parquet(written).where("id > 1").orderBy("id").collect()
        stream = spark.readStream.schema(rows.schema).parquet(written).writeStream
        stream = stream.format("parquet").option("checkpointLocation", f"{directory}/checkpoint")
        stream = stream.option("path", f"{directory}/out").trigger(availableNow=True)
        stream.start().awaitTermination()


def bare_python(directory: Path) -> Path:
    """Make a Python in a directory that has no packages; return its program."""
    venv.create(directory / "bare", symlinks=True, with_pip=False)
    program = directory / "bare" / "bin" / "python3"
    for package in ("bkctl", "pyarrow", "pyspark"):
        found = subprocess.run(
            [program, "-c", f"import {package}"], check=False, capture_output=True, cwd=directory
        )
        assert found.returncode == 1, f"{program} has {package}"
    return program
