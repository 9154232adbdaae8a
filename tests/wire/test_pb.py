"""The generated protobuf modules."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

import wire.pb

PB = Path(wire.pb.__file__).parent


def test_generated_modules_are_fresh(tmp_path) -> None:
    pytest.importorskip("grpc_tools", reason="grpcio-tools is not installed: cannot regenerate")
    subprocess.run([sys.executable, str(PB / "generate.py"), str(tmp_path)], check=True)
    made = sorted(path.name for path in tmp_path.iterdir())
    assert made == sorted(path.name for path in PB.glob("*_pb2.py*"))
    for name in made:
        assert (tmp_path / name).read_text() == (PB / name).read_text(), name


def test_wire_imports_nothing_of_ours_and_no_twisted() -> None:
    code = (
        "import sys, wire.framing, wire.digest, wire.ledger_metadata, wire.records.entry_list;"
        "bad = {'twisted', 'kazoo', 'bkclient', 'bookied', 'bkctl', 'crc32c', 'asyncio'};"
        "print(sorted(bad & set(sys.modules)))"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"
