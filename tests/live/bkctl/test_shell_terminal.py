"""The shell on a real terminal, with a cluster that runs."""

from __future__ import annotations

import sys
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest

from bkclient.blocking import BlockingClient
from bkctl.cli.root import cli
from bkctl.commands.tool.shell_program import ShellHost, ShellProgram
from shell.repl import run
from tests.bkctl.support.cluster import BKCTL, Cluster, local_cluster
from tests.shell.screen import Terminal, terminal

pytestmark = pytest.mark.processes


@pytest.fixture(scope="module")
def cluster(tmp_path_factory) -> Iterator[Cluster]:
    with local_cluster(tmp_path_factory.mktemp("shell") / "bk") as running:
        yield running


@pytest.fixture(scope="module")
def ledgers(cluster: Cluster) -> list[int]:
    """Three ledgers, with the numbers from 0 on as their entries."""
    with BlockingClient(cluster.uri) as client:
        return [client.write_ledger([str(n).encode() for n in range(100)])[0] for _ in range(3)]


@pytest.fixture
def label(cluster: Cluster) -> str:
    with BlockingClient(cluster.uri) as client:
        instance_id: str = client.call(lambda client: client.store.instance_id())
    return instance_id[:8]


@pytest.fixture
def shell(cluster: Cluster, label: str, tmp_path: Path) -> Iterator[Terminal]:
    config = tmp_path / "config.toml"
    config.write_text("[shell]\ntiming = false\n")  # No line about a command that took long.
    config.chmod(0o600)
    environ = {"BKCTL_SERVICE_URI": cluster.uri, "XDG_STATE_HOME": str(tmp_path),
               "BKCTL_CONFIG": str(config)}  # fmt: skip
    with terminal([*BKCTL, "shell"], columns=100, **environ) as running:
        running.prompts("bkctl>")
        running.shows("3 of 3 bookies writable")
        yield running


def test_the_prompt_says_which_cluster_and_completes_ledgers_that_exist(
    shell: Terminal, label: str, ledgers: list[int]
) -> None:
    shell.offers("ledger read ", lambda lines: any("closed, 190 B" in line for line in lines))
    shell.type("\t")
    shell.shows(f"bkctl> ledger read {max(ledgers)}")
    shell.type("\r", " 5-6\r")
    lines = shell.prompts(f"bkctl {label}>")
    assert lines[lines.index("5") + 1] == "6"


@pytest.mark.usefixtures("ledgers")
def test_a_ledger_made_here_is_offered_at_once(shell: Terminal, label: str) -> None:
    shell.offers("ledger read ", lambda lines: any("closed, " in line for line in lines))
    shell.type("\x15")
    lines = shell.enter("ledger create", f"bkctl {label}>")
    made = lines[shell.screen.cursor.y - 1]
    assert made.isdigit()
    shell.offers(
        "ledger read ",
        lambda lines: any(line.split()[:2] == [made, "open,"] for line in lines),
    )


def test_a_ledger_that_is_added_to_is_held_in_the_bar_and_handed_back_at_the_end(
    shell: Terminal, label: str
) -> None:
    made = shell.enter("ledger create", f"bkctl {label}>")[shell.screen.cursor.y - 1]
    shell.enter("ledger add _ one", f"bkctl {label}>")
    shell.shows(f"holds ledger {made}")
    shell.type("\x04")
    assert shell.ended() == 0
    assert f"ledger {made} released, after entry 0".encode() in shell.raw


def test_bookies_are_offered_too(shell: Terminal) -> None:
    shell.offers(
        "use bookie 127.",
        lambda lines: sum("127.0.0.1:" in line and "writable" in line for line in lines) == 3,
    )


def test_ctrl_c_ends_a_command_that_waits_and_the_next_one_works(
    shell: Terminal, label: str
) -> None:
    lines = shell.enter("ledger create", f"bkctl {label}>")
    made = lines[shell.screen.cursor.y - 1]
    shell.enter(f"use ledger {made}", f"bkctl {label} ledger:{made}>")
    shell.enter("ledger add . hello", f"bkctl {label} ledger:{made}>")
    shell.type("ledger tail --follow\r")
    shell.until(lambda lines: "hello" in lines)
    shell.type("\x03")
    shell.shows(f"bkctl: ledger {made}: interrupted")
    lines = shell.enter("ledger tail --json | grep -c schema", f"bkctl {label} ledger:{made}>")
    assert lines[shell.screen.cursor.y - 1] == "1"


def test_what_loses_data_asks_in_the_shell_too_and_no_is_an_answer(
    shell: Terminal, label: str, ledgers: list[int]
) -> None:
    shell.type(f"ledger delete {ledgers[2]}\r")
    shell.shows("To confirm, type")
    shell.type("no\r")
    shell.shows("not confirmed; nothing was changed")
    shell.prompts(f"bkctl {label}>")


def test_many_commands_and_who_asks_in_the_background_share_one_connection(
    cluster: Cluster, ledgers: list[int], capsys: pytest.CaptureFixture[str]
) -> None:
    connected: list[str] = []
    closed = threading.Event()

    class Counted(BlockingClient):
        def close(self) -> None:
            closed.set()
            super().close()

    def connect(uri, config):
        connected.append(uri)
        return Counted(uri, config=config)

    host = ShellHost(environ={}, connect=connect)
    given = {"service-uri": ("-u", cluster.uri)}
    program = ShellProgram(cli, host, ["-u", cluster.uri])
    words = ["-u", cluster.uri]
    found, whole = program.candidates("ledger_id", str(ledgers[1]), words)
    assert str(ledgers[1]) in dict(found)
    assert whole
    assert program.status(words).writable == 3
    assert program.candidates("log_name", "", words) == ([], True)
    script = f"ledger read {ledgers[0]} 0-1; log create events; log list -o id"
    assert run(program, given, text=script) == 0
    assert connected == [cluster.uri]
    assert closed.is_set()
    assert capsys.readouterr().out.splitlines()[:2] == ["0", "1"]


def test_ids_have_the_form_that_is_set(cluster: Cluster, ledgers: list[int]) -> None:
    host = ShellHost(environ={})
    program = ShellProgram(cli, host)
    words = ["-u", cluster.uri, "--ledger-id-format", "uuid"]
    found, _ = program.candidates("ledger_id", "00000000-0000-0000", words)
    assert f"00000000-0000-0000-0000-{ledgers[0]:012x}" in dict(found)
    program.close()


def test_a_script_ends_with_the_status_of_what_failed(
    cluster: Cluster, capfd: pytest.CaptureFixture[str]
) -> None:
    line = ["-u", cluster.uri, "shell", "-c", "cluster info -o id; ledger show 999999; bookie list"]
    assert cli.run(line) == 3
    out, err = capfd.readouterr()
    sys.stdout.flush()
    assert out.count("\n") == 1
    assert "there is no ledger 999999" in err
