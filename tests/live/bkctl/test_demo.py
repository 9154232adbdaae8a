"""The main job, from the file to Parquet and back."""

from __future__ import annotations

import os
import subprocess
from pathlib import Path

import pytest

from bkctl.commands.local.demo import ENTRY_BYTES_MAX, batches_of, bundled_text, entries_of
from tests.bkctl.support.cluster import BKCTL
from tests.bkctl.support.spark import quick

TIMEOUT_S = 240


def _demo(*args: object, **variables: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [*BKCTL, "demo", *map(str, args)],
        check=False,
        capture_output=True,
        text=True,
        timeout=TIMEOUT_S,
        env={**os.environ, **variables},
    )


def test_the_default_text_is_a_real_one() -> None:
    assert bundled_text().stat().st_size > 50_000


def test_the_entries_of_any_file_are_the_file(tmp_path: Path) -> None:
    file = tmp_path / "f"
    for data in (b"", b"a", b"a\n\nb", b"x" * (3 * ENTRY_BYTES_MAX + 1), bytes(range(256)) * 4000):
        file.write_bytes(data)
        assert b"".join(entries_of(file)) == data
        assert [e for batch in batches_of(file) for e in batch] == list(entries_of(file))
        assert all(0 < len(entry) <= ENTRY_BYTES_MAX for entry in entries_of(file))


@pytest.mark.processes
def test_a_file_survives_the_loss_of_a_bookie_and_of_its_writer(tmp_path: Path) -> None:
    file = tmp_path / "input"
    file.write_bytes(b"".join(b"line %d\n" % n for n in range(3000)) + b"no newline")
    shown = _demo(file, "--dir", tmp_path / "demo", "--no-export")
    assert shown.returncode == 0, shown.stderr
    for step in ("kill -9", "crash", "recover", "identical, byte for byte", "is back"):
        assert step in shown.stdout
    assert f"bkctl local 3 --dir {tmp_path}/demo" in shown.stdout


@pytest.mark.processes
def test_an_empty_file_is_taken_the_whole_way_too(tmp_path: Path) -> None:
    file = tmp_path / "empty"
    file.touch()
    shown = _demo(file, "--dir", tmp_path / "demo", "--no-export")
    assert shown.returncode == 0, shown.stderr
    assert "closed at entry -1" in shown.stdout


@pytest.mark.processes
@pytest.mark.spark
def test_the_whole_way_ends_in_parquet_that_spark_reads(tmp_path: Path) -> None:
    file = tmp_path / "input"
    file.write_bytes(b"".join(b"line %d\n" % n for n in range(3000)))
    defaults = "".join(f"{name} {value}\n" for name, value in quick().items())
    (tmp_path / "spark-defaults.conf").write_text(defaults)
    shown = _demo(file, "--dir", tmp_path / "demo", SPARK_CONF_DIR=str(tmp_path))
    assert shown.returncode == 0, shown.stderr
    assert "reads back 3,000 entries" in shown.stdout
    assert f"spark.read.parquet('{tmp_path}/demo/parquet')" in shown.stdout
    assert list((tmp_path / "demo" / "parquet").rglob("*.parquet"))


def test_a_file_that_is_not_there_is_not_found_before_anything_starts(tmp_path: Path) -> None:
    refused = _demo(tmp_path / "none", "--dir", tmp_path / "demo")
    assert refused.returncode == 3
    assert not (tmp_path / "demo").exists()
