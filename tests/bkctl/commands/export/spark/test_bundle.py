"""``bkctl spark bundle``: which packages and files, for which hosts."""

from __future__ import annotations

import sys
import tarfile
from importlib import metadata
from pathlib import Path, PurePosixPath

import pytest

from bkctl.cli.root import cli
from bkctl.commands.export.spark.bundle import (
    LEFT_OUT,
    _files,
    _glibc_of,
    _is_wanted,
    _requirements,
    _tag,
    _write_tar,
    needed_distributions,
)
from bkctl.errors import NothingFoundError
from bkctl.exit_status import ExitStatus
from tests.bkctl.support.terminal import FakeHost


class Package:
    """An installed package, as ``importlib.metadata`` describes it."""

    def __init__(self, *requires: str, wheel: str = "") -> None:
        self.name, self.requires, self._wheel = "package", list(requires), wheel

    files = None

    def read_text(self, name: str) -> str | None:
        return {"WHEEL": self._wheel}.get(name)


def test_the_packages_are_ours_and_what_tasks_import() -> None:
    found = {one.name.lower() for one in needed_distributions()}
    assert {"bkctl", "pyarrow", "twisted", "crc32c", "kazoo", "cffi", "hdfs-native"} <= found
    assert not found & (LEFT_OUT | {"pytest", "mypy", "matplotlib"})


def test_the_files_are_those_of_the_packages_without_tests_and_caches() -> None:
    names = {name for name, _ in _files([metadata.distribution("pyarrow")])}
    assert "pyspark_bookkeeper/__init__.py" in names
    assert "wire/entry_batch.py" in names
    assert "pyarrow/__init__.py" in names
    assert not [name for name in names if "__pycache__" in name or name.startswith(("/", ".."))]
    assert not _is_wanted(PurePosixPath("pyarrow/tests/test_array.py"))
    assert not _is_wanted(PurePosixPath("a.pth"))


def test_requirements_of_extras_come_when_they_are_asked_for() -> None:
    package = Package(
        "attrs >=23.2",
        "kazoo[sasl]>=2.10",
        "tomli>=2; python_version < '3.11'",
        "pyarrow>=15; extra == 'spark'",
        'cramjam>=2.8; extra == "pulsar"',
        "mypy>=1; extra == 'test'",
    )
    assert list(_requirements(package, frozenset({"spark", "pulsar"}))) == [
        ("attrs", frozenset(), False),
        ("kazoo", frozenset({"sasl"}), False),
        ("tomli", frozenset(), True),
        ("pyarrow", frozenset(), False),
        ("cramjam", frozenset(), True),
    ]


@pytest.mark.parametrize(
    ("wheels", "glibc"),
    [
        (["Tag: py3-none-any"], None),
        (["Tag: cp311-cp311-manylinux_2_28_x86_64", "Tag: py3-none-any"], "2.28"),
        (
            [
                "Tag: cp311-cp311-manylinux_2_17_x86_64\nTag: cp311-cp311-manylinux_2_5_x86_64",
                "Tag: cp311-abi3-manylinux_2_9_x86_64",
            ],
            "2.9",
        ),
    ],
)
def test_the_oldest_glibc_is_that_of_the_newest_wheel(wheels, glibc) -> None:
    assert _glibc_of([Package(wheel=wheel) for wheel in wheels]) == glibc


def test_a_package_that_lists_no_files_is_named() -> None:
    with pytest.raises(NothingFoundError, match="package does not list its files"):
        list(_files([Package()]))


def test_the_same_files_are_the_same_archive(tmp_path: Path) -> None:
    (tmp_path / "a.py").write_text("a = 1\n")
    (tmp_path / "b.so").write_bytes(b"\x7fELF")
    files = [("x/a.py", tmp_path / "a.py"), ("x/b.so", tmp_path / "b.so")]
    written = []
    for name in ("one.tar.gz", "two.tar.gz"):
        size = _write_tar(tmp_path / name, files, lambda _number: None)
        written.append((tmp_path / name).read_bytes())
        assert size == len(written[-1])
    assert written[0] == written[1]
    with tarfile.open(tmp_path / "one.tar.gz") as tar:
        assert [(one.name, oct(one.mode)) for one in tar] == [
            ("x/a.py", "0o644"),
            ("x/b.so", "0o755"),
        ]


def test_an_archive_that_cannot_be_written_leaves_nothing(tmp_path: Path) -> None:
    with pytest.raises(NothingFoundError, match="gone"):
        _write_tar(tmp_path / "a.tgz", [("a", tmp_path / "gone")], lambda _number: None)
    assert list(tmp_path.iterdir()) == []


def run(*words: object) -> tuple[int, str, str]:
    host = FakeHost()
    status = cli.run([*map(str, words)], host)
    return status, host.out.data.decode(), host.err.text


def test_a_bundle_is_described_and_no_file_is_replaced(tmp_path: Path) -> None:
    status, _, said = run("spark", "bundle", tmp_path / "bundle.rar")
    assert status == ExitStatus.USAGE
    assert "Spark unpacks only .tar.gz and .tgz" in said
    (tmp_path / "there.tgz").touch()
    status, _, said = run("spark", "bundle", tmp_path / "there.tgz")
    assert status == ExitStatus.CONFLICT
    assert "exists already" in said
    status, planned, _ = run("spark", "bundle", "--dry-run", tmp_path / "new.tgz")
    assert status == 0
    assert "would write" in planned
    assert [one.name for one in tmp_path.iterdir()] == ["there.tgz"]


def test_the_name_says_what_hosts_need() -> None:
    version = f"{sys.version_info.major}.{sys.version_info.minor}"
    assert f"_py{version}_" in _tag()
