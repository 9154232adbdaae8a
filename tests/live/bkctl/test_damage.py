"""A copy that was damaged on a disk is found and repaired, in a cluster without a spare bookie."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from bkctl.exit_status import ExitStatus
from tests.bkctl.support.cluster import local_cluster
from tests.bkctl.support.terminal import run_here

pytestmark = pytest.mark.processes


def _damage(ledgers: Path, payload: bytes) -> None:
    """Change a byte of a payload in an entry log."""
    for log in ledgers.rglob("*.log"):
        found = log.read_bytes()
        if payload in found:
            log.write_bytes(found.replace(payload, payload.swapcase()))
            return
    raise AssertionError(f"no log below {ledgers} has {payload!r}")


def test_damaged_copies_are_written_again_on_the_same_bookie(tmp_path: Path) -> None:
    directory, lines = tmp_path / "bk", tmp_path / "lines"
    lines.write_text("".join(f"line {number} of all\n" for number in range(100)))
    with local_cluster(directory, 3) as cluster:
        at = ("-u", cluster.uri)
        made = run_here(*at, "ledger", "write", lines, "-E3", "-W3", "-A3")
        ledger = made.stdout.strip()
        bookie = run_here("local", "status", directory, "-o", "id").stdout.split()[0]
        assert run_here("local", "stop", directory, bookie).returncode == 0
        _damage(directory / "bookie-1" / "ledgers", b"line 57 of all")
        assert run_here("local", "start", directory, bookie).returncode == 0
        found = run_here(*at, "ledger", "verify", ledger)
        assert found.returncode == ExitStatus.PROBLEMS
        assert f"  {bookie}  damaged 1: entry 57\n" in found.stdout
        recover = (*at, "bookie", "recover", bookie, "--ledger", ledger, "--yes")
        assert run_here(*recover).returncode == ExitStatus.PARTLY  # No bookie is free.
        repaired = run_here(*recover, "--to", bookie)
        assert repaired.returncode == 0, repaired.stderr
        assert "wrote 1 entry of 1 ledger again" in repaired.stdout
        assert "all sound" in run_here(*at, "ledger", "verify", ledger).stdout
        for word in ("stop", "start"):  # What was written is on the disk, and in the index.
            assert run_here("local", word, directory, bookie).returncode == 0
        assert "all sound" in run_here(*at, "ledger", "verify", ledger).stdout


def test_the_advice_of_a_disk_check_leads_to_a_bookie_without_problems(tmp_path: Path) -> None:
    directory, lines = tmp_path / "bk", tmp_path / "lines"
    lines.write_text("".join(f"line {number} of all\n" for number in range(100)))
    conf = directory / "bookie-1" / "bookie.conf"
    with local_cluster(directory, 3) as cluster:
        at = ("-u", cluster.uri)
        assert run_here(*at, "ledger", "write", lines, "-E3", "-W3", "-A3").returncode == 0
        bookie = run_here("local", "status", directory, "-o", "id").stdout.split()[0]
        assert run_here("local", "stop", directory, bookie).returncode == 0
        (log,) = (directory / "bookie-1" / "ledgers").rglob("*.log")
        at_line = log.read_bytes().index(b"line 57 of all")
        with log.open("r+b") as file:
            file.seek(at_line - 50)
            file.write(bytes(100))
        planned = run_here("disk", "check", "--deep", "--repair-plan", "-c", conf)
        assert planned.returncode == ExitStatus.PROBLEMS
        advice = re.search(r"`bkctl (bookie recover [^`]*)`", planned.stdout)
        assert advice is not None, planned.stdout
        assert "of ledger 0 with 3 entries: wrong-digest, damaged-entry" in planned.stdout, (
            planned.stdout
        )
        assert run_here("local", "start", directory, bookie).returncode == 0
        repaired = run_here(*at, *advice[1].split(), "--yes")
        assert repaired.returncode == 0, repaired.stderr
        assert run_here("local", "stop", directory, bookie).returncode == 0
        checked = run_here("disk", "check", "--deep", "-c", conf)
        assert checked.returncode == 0, checked.stdout
        assert "no index on the disk points at the damaged bytes" in checked.stdout
