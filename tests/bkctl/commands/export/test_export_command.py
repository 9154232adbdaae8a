"""`bkctl export --follow`, as a process of its own."""

from __future__ import annotations

import os
import signal
import subprocess
import sys

import pytest

from tests.support.waiting import until

pytestmark = pytest.mark.processes

ALONE = {"ensemble_size": 1, "write_quorum": 1, "ack_quorum": 1}


def test_only_the_rounds_that_find_something_new_are_told(cluster, client, tmp_path) -> None:
    """Only the first round reads files of earlier exports: later rounds would take ever longer."""
    # Of an open ledger, a round may find a part.
    closed = ("--meta", "application=followed", "--state", "closed")
    chosen = (*closed, "--to", str(tmp_path / "target"), "--verify")
    told = tmp_path / "told"
    with told.open("wb") as out:
        following = subprocess.Popen(
            [sys.executable, "-m", "bkctl", "export", *chosen, "--follow", "50ms"],
            env={**os.environ, "BKCTL_SERVICE_URI": cluster.uri},
            stdout=out,
            stderr=subprocess.STDOUT,
        )
    try:
        for count in (1, 2, 3):
            payloads = [b"x"] * count
            client.write_ledger(payloads, **ALONE, custom={"application": b"followed"})
            words = f"copied {count} entr"
            until(lambda: words in told.read_text(), told.read_text, timeout_s=60)  # noqa: B023
            if count == 1:
                (path,) = tmp_path.glob("target/ledger=*/*.parquet")
                content = path.read_bytes()
                path.write_bytes(content[:40] + b"\xff\xff\xff\xff" + content[44:])
        path.unlink()
        lost = f"missing or changed, and not counted: {path.relative_to(tmp_path / 'target')}"
        until(lambda: lost in told.read_text(), told.read_text, timeout_s=60)
        following.send_signal(signal.SIGINT)
        following.wait(60)
    finally:
        following.kill()
        following.wait()
    lines = [line.split(";")[0].split(":")[0] for line in told.read_text().splitlines()]
    if lines[0] == "nothing is new":  # It began before the first ledger was there.
        lines = lines[1:]
    copied = [f"copied {entries} of 1 ledger" for entries in ("1 entry", "2 entries", "3 entries")]
    lost = ["nothing is new", "1 file of earlier exports missing or changed, and not counted"]
    progress = ("in Spark", "exporting (")  # On a busy host an export takes more than 2 s.
    assert [line for line in lines if not line.startswith(progress)] == [*copied, *lost]
    assert lines.count("in Spark") <= 1
