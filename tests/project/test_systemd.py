"""The units of systemd: what they start can be started, and systemd has nothing to say of them."""

from __future__ import annotations

import configparser
import re
import shlex
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from bkclient.blocking import BlockingClient
from bkctl.cli.root import cli
from bkctl.exit_status import ExitStatus as CommandStatus
from bkctl.global_options import options_of
from bookied.config.bookie import BookieConfig
from bookied.errors import BookieExitStatus
from bookied.process.command_line import parse_options
from tests.live.bookied.processes import BookieProcess, make_cluster, write_conf
from tests.support.programs import program

ROOT = Path(__file__).parents[2]
UNITS = sorted((ROOT / "systemd").iterdir())
SERVICES = [unit for unit in UNITS if unit.suffix == ".service"]
DAEMONS = [unit for unit in SERVICES if unit.name.startswith("bookied")]
EXPOSURE_MAX = 1.1
"""The figure of docs/operations.md; 0 is best, 10 is not hardening at all."""


class _Many(dict[str, str]):
    """Keys that may be given again, as systemd has them: put together."""

    def __setitem__(self, key: str, value: object) -> None:
        # configparser hands over lists of lines while it reads.
        if isinstance(value, list) and key in self:
            value = [*self[key], *value]
        super().__setitem__(key, value)  # type: ignore[assignment]


def _settings(unit: Path) -> configparser.RawConfigParser:
    found = configparser.RawConfigParser(dict_type=_Many, strict=False)
    found.optionxform = str  # type: ignore[assignment, method-assign]
    found.read(unit)
    return found


def _hardening(unit: Path) -> str:
    text = unit.read_text()
    start = text.index("# What it may not do.")
    return text[start:].partition("\n\n[Install]")[0].strip()


def test_units_are_for_a_bookie_for_repair_and_for_the_doctor() -> None:
    assert [unit.name for unit in UNITS] == [
        "bkctl-doctor.service", "bkctl-doctor.timer",
        "bookied-autorecovery.service", "bookied.service",
    ]  # fmt: skip


@pytest.mark.parametrize("unit", DAEMONS, ids=lambda unit: unit.name)
def test_a_daemon_is_started_as_it_can_be_and_restarted_where_that_helps(unit: Path) -> None:
    service = _settings(unit)["Service"]
    path, *words = shlex.split(service["ExecStart"])
    options = parse_options(words)
    assert path == "/usr/local/bin/bookied"
    assert str(options.conf) == "/etc/bookkeeper/bk_server.conf"
    assert options.autorecovery_only is ("autorecovery" in unit.name)
    never = {int(word) for word in service["RestartPreventExitStatus"].split()}
    status = BookieExitStatus
    ends = {status.INVALID_CONFIGURATION, status.WRONG_IDENTITY, status.DAMAGED}
    assert never == ({status.INVALID_CONFIGURATION} if options.autorecovery_only else ends)
    assert (service["Type"], service["NotifyAccess"]) == ("notify", "main")
    assert (service["Restart"], service["KillMode"]) == ("on-failure", "mixed")
    assert int(service["LimitNOFILE"]) >= 65_536
    assert service["WatchdogSec"]


@pytest.mark.parametrize("unit", DAEMONS, ids=lambda unit: unit.name)
def test_a_daemon_ends_by_itself_before_it_is_killed(unit: Path) -> None:
    minutes = re.fullmatch(r"(\d+)min", _settings(unit)["Service"]["TimeoutStopSec"])
    assert minutes is not None
    assert BookieConfig(metadata_service_uri="memory:").stop_wait_ms < int(minutes[1]) * 60_000


def test_the_doctor_is_started_as_it_can_be_and_fails_where_something_is_at_risk() -> None:
    service = _settings(ROOT / "systemd/bkctl-doctor.service")["Service"]
    path, *words = shlex.split(service["ExecStart"])
    assert path == "/usr/local/bin/bkctl"
    with cli.make_context("bkctl", words) as ctx:
        name, command, rest = cli.resolve_command(ctx, [*_left_over(ctx), *ctx.args])
        assert command is not None
        with command.make_context(name, rest, parent=ctx) as inner:
            assert inner.command.name == "doctor"
            assert options_of(inner).timeout_s < 20 * 60 == _seconds(service["TimeoutStartSec"])
    assert int(service["SuccessExitStatus"]) == CommandStatus.WARNINGS


def _left_over(ctx) -> list[str]:
    return getattr(ctx, "_protected_args", None) or ctx.protected_args


def _seconds(text: str) -> int:
    return int(text.removesuffix("min")) * 60


def test_all_are_hardened_alike() -> None:
    assert len({_hardening(unit) for unit in SERVICES}) == 1
    for word in ("NoNewPrivileges=yes", "ProtectSystem=strict", "SystemCallFilter=@system-service"):
        assert word in _hardening(SERVICES[0])


def test_systemd_verifies_them_and_finds_their_manual_pages(tmp_path: Path) -> None:
    analyze = program("systemd-analyze")
    (tmp_path / "bin").mkdir()
    for name in ("bookied", "bkctl"):
        (tmp_path / "bin" / name).write_text("#!/bin/sh\n")
        (tmp_path / "bin" / name).chmod(0o755)
    for page in (ROOT / "man").iterdir():
        section = tmp_path / "man" / f"man{page.suffix[1:]}"
        section.mkdir(parents=True, exist_ok=True)
        (section / page.name).write_text(page.read_text())
    copies = []
    for unit in UNITS:
        copies.append(tmp_path / unit.name)
        text = unit.read_text().replace("/usr/local/bin/", f"{tmp_path}/bin/")
        copies[-1].write_text(text)
    without_man = [] if shutil.which("man") else ["--man=no"]
    done = subprocess.run(
        [analyze, "verify", *without_man, *copies], check=False, capture_output=True, text=True,
        env={"PATH": "/usr/bin:/bin", "MANPATH": str(tmp_path / "man")},
    )  # fmt: skip
    told = [line for line in done.stderr.splitlines() if str(tmp_path) in line or "bk" in line]
    assert told == []
    assert done.returncode == 0, done.stderr


STRICT = """
import ctypes, os, sys
PR_SET_MDWE, REFUSE_EXEC_GAIN = 65, 1
if ctypes.CDLL(None).prctl(PR_SET_MDWE, REFUSE_EXEC_GAIN, 0, 0, 0):
    sys.exit("this kernel has no PR_SET_MDWE")
os.execv(sys.argv[1], sys.argv[1:])
"""


@pytest.mark.processes
@pytest.mark.parametrize("storage", ["SortedLedgerStorage", "ldb.DbLedgerStorage"])
def test_a_bookie_needs_no_memory_that_is_written_and_run(storage: str, tmp_path: Path) -> None:
    """What MemoryDenyWriteExecute= of the units forbids."""
    uri = make_cluster(tmp_path / "metadata.db")
    name = f"org.apache.bookkeeper.bookie.{storage}"
    conf = write_conf(tmp_path / "b1", uri, ledgerStorageClass=name)
    bookie = BookieProcess(conf, prefix=(sys.executable, "-c", STRICT))
    try:
        if "no PR_SET_MDWE" in _first_words(bookie):
            pytest.skip("this kernel has no PR_SET_MDWE")
        with BlockingClient(uri) as client:
            one = {"ensemble_size": 1, "write_quorum": 1, "ack_quorum": 1}
            ledger_id, _ = client.write_ledger([b"entry"] * 1000, **one)
            assert sum(1 for _ in client.iter_entries(ledger_id)) == 1000
        assert bookie.stop() == 0
    finally:
        bookie.kill()


def _first_words(bookie: BookieProcess) -> str:
    """Wait until a bookie serves, or has ended; return what it said by then."""
    try:
        bookie.ready()
    except AssertionError:
        return bookie.output.read_text()
    return ""


@pytest.mark.parametrize("unit", SERVICES, ids=lambda unit: unit.name)
def test_they_are_as_little_exposed_as_the_docs_say(unit: Path) -> None:
    analyze = program("systemd-analyze")
    done = subprocess.run(
        [analyze, "security", "--offline=true", "--no-pager", unit],
        check=False, capture_output=True, text=True,
    )  # fmt: skip
    found = re.search(r"exposure level for \S+: ([\d.]+)", done.stdout)
    assert found is not None, done.stdout + done.stderr
    assert float(found[1]) <= EXPOSURE_MAX
    assert f"exposure {EXPOSURE_MAX}" in (ROOT / "docs/operations.md").read_text()
