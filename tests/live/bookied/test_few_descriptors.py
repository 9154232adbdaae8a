"""A live bookie that may open 128 files: it keeps what it promises, and starts again so."""

from __future__ import annotations

import contextlib
from pathlib import Path

import pytest

from tests.bookied.worlds.raw_client import RawClient
from tests.live.bookied.processes import BookieProcess, free_port, make_cluster, write_conf
from tests.support.waiting import until
from wire.codes import ReturnCode

pytestmark = pytest.mark.processes

FEW = ("sh", "-c", 'ulimit -n 128; exec "$@"', "sh")
LEDGERS = 1500


def test_more_ledgers_than_descriptors_are_kept_through_a_kill(tmp_path: Path) -> None:
    conf = write_conf(
        tmp_path / "b1",
        make_cluster(tmp_path / "metadata.db"),
        flushInterval=300,
        httpServerEnabled="true",
        httpServerPort=free_port(),
    )
    process = BookieProcess(conf, prefix=FEW).ready()
    try:
        with contextlib.ExitStack() as stack:
            for _ in range(6):
                stack.enter_context(process.client())
            client = stack.enter_context(process.client())
            assert fill(client) == {ReturnCode.EOK}
        until(lambda: index_files(tmp_path) == LEDGERS)
        assert "checkpoint failed" not in process.output.read_text()
        with process.client() as client:
            client.add(9999, 0, b"journal only")
    finally:
        process.kill()
    process = BookieProcess(conf, prefix=FEW).ready()
    try:
        with process.client() as client:
            for ledger_id in range(LEDGERS):
                assert b"%d." % ledger_id in bytes(client.read(ledger_id, 0))
            assert b"journal only" in bytes(client.read(9999, 0))
    finally:
        assert process.stop() == 0


def fill(client: RawClient) -> set[object]:
    return {client.add(ledger_id, 0, b"%d." % ledger_id) for ledger_id in range(LEDGERS)}


def index_files(directory: Path) -> int:
    return sum(1 for _ in directory.rglob("*.idx"))
