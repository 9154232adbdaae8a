"""Tab in bash, zsh and fish, each on a terminal of its own, with a cluster that runs."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Iterator
from contextlib import nullcontext, suppress
from pathlib import Path

import attrs
import pytest

from bkclient.blocking import BlockingClient
from bkctl.cli.completion.scripts import FILES
from bkctl.cli.root import cli
from bkctl.manual.generate import ROOT
from tests.bkctl.support.cluster import Cluster, local_cluster
from tests.shell.screen import ANSWER_S, Terminal, terminal
from tests.support.programs import program
from tests.support.waiting import TIMEOUT_S

pytestmark = pytest.mark.processes

PROMPT = "$"
LEDGER = 987_654_321
TABS_MAX = 20
"""Each Tab waits two seconds for the cluster, in which a busy machine cannot even start to ask."""

COMMANDS = {
    "bash": ["--norc", "--noprofile", "-i"],
    "zsh": ["-f", "-i"],
    "fish": ["--no-config", "-i"],
}
START = {
    "bash": ["PS1='$ '", "bind 'set bell-style none'", "source {script}"],
    # As it is installed: found by its first line, in a directory of $fpath.
    "zsh": ["PS1='$ '", "fpath=({script.parent} $fpath)", "autoload -U compinit && compinit -u -D"],
    "fish": [
        "function fish_prompt; echo '$ '; end",
        "set fish_greeting; set fish_autosuggestion_enabled 0",
        "source {script}",
    ],
}


@attrs.frozen
class Shell:
    """A shell that waits for a line."""

    name: str
    screen: Terminal

    def completes(self, typed: str, line: str, *, tabs_max: int = 1) -> None:
        """Type something and Tab; wait until the line is as it should be, and throw it away.

        Values that are alive may come with a later Tab.
        """
        self.screen.type(typed)
        self.screen.shows(f"{PROMPT} {typed}".rstrip())
        for tab in range(tabs_max):
            self.screen.type("\t")
            is_last = tab == tabs_max - 1
            with nullcontext() if is_last else suppress(AssertionError):
                self.screen.until(
                    lambda lines: any(line in one for one in lines),
                    TIMEOUT_S if is_last else ANSWER_S,
                )
                break
        self.clear()

    def clear(self) -> None:
        """Take back what was typed, and have the screen empty but for the prompt."""
        self.screen.type("\x15", "\x0c")
        self.screen.until(lambda lines: [one for one in lines if one] == [PROMPT])


@pytest.fixture(scope="module")
def cluster(tmp_path_factory) -> Iterator[Cluster]:
    with local_cluster(tmp_path_factory.mktemp("tab") / "bk") as running:
        assert cli.run(["-u", running.uri, "ledger", "create", "--ledger-id", str(LEDGER)]) == 0
        yield running


@pytest.fixture(scope="module")
def home(tmp_path_factory) -> Path:
    """A directory with a file in it, and a bkctl to be found on the path."""
    home = tmp_path_factory.mktemp("home")
    (home / "records.txt").touch()
    (home / "bin").mkdir()
    script = home / "bin" / "bkctl"
    run = "from bkctl.__main__ import main; main()"
    script.write_text(f'#!/bin/sh\nexec "{sys.executable}" -c "{run}" "$@"\n')
    script.chmod(0o755)
    return home


@pytest.fixture(params=["bash", "zsh", "fish"])
def shell(request, cluster: Cluster, home: Path, tmp_path: Path) -> Iterator[Shell]:
    name = request.param
    environ = {
        "PATH": f"{home / 'bin'}:{os.environ['PATH']}", "HOME": str(home),
        "PYTHONPATH": str(ROOT), "XDG_CACHE_HOME": str(tmp_path), "XDG_CONFIG_HOME": str(tmp_path),
        "XDG_DATA_HOME": str(tmp_path), "BKCTL_SERVICE_URI": cluster.uri, "LC_ALL": "C.UTF-8",
    }  # fmt: skip
    script = ROOT / "completions" / FILES[name]
    with terminal([program(name), *COMMANDS[name]], columns=100, **environ) as running:
        for line in [*START[name], f"cd {home}"]:
            running.type(line.format(script=script), "\r")
        shell = Shell(name, running)
        running.until(lambda lines: lines[running.screen.cursor.y] == PROMPT)
        shell.clear()
        yield shell


def test_tab_completes_what_the_tree_knows(shell: Shell) -> None:
    shell.completes("bkctl led", "$ bkctl ledger")
    shell.completes("bkctl ledger cre", "$ bkctl ledger create")
    shell.completes("bkctl ledger create --dig", "$ bkctl ledger create --digest")
    shell.completes("bkctl --json ledger list --state clo", "--state closed")
    shell.completes("bkctl --output=wi", "$ bkctl --output=wide")


def test_tab_completes_files_where_files_are_meant(shell: Shell) -> None:
    shell.completes("bkctl ledger write rec", "$ bkctl ledger write records.txt")
    shell.completes("bkctl ledger read 1 --out rec", "--out records.txt")
    shell.completes("bkctl ledger read 1 --out=rec", "--out=records.txt")
    shell.completes("bkctl local 3 --dir b", "--dir bin/")


def test_tab_completes_ledgers_and_bookies_that_exist(shell: Shell, cluster: Cluster) -> None:
    with BlockingClient(cluster.uri) as client:
        bookies = client.call(lambda client: client.store.writable_bookies())
    shell.completes("bkctl ledger show 98", f"$ bkctl ledger show {LEDGER}", tabs_max=TABS_MAX)
    only = next(iter(bookies))
    typed = _unique_prefix(only, bookies)
    shell.completes(f"bkctl bookie info {typed}", f"$ bkctl bookie info {only}", tabs_max=TABS_MAX)
    shell.completes(f"bkctl cookie get {typed}", f"$ bkctl cookie get {only}", tabs_max=TABS_MAX)


def test_zsh_takes_the_script_from_an_eval_as_well() -> None:
    line = 'autoload -U compinit && compinit -u -D; eval "$(<completions/_bkctl)"; print $_comps'
    done = subprocess.run(
        [program("zsh"), "-fc", f"{line}[bkctl]"], cwd=ROOT, capture_output=True, text=True,
        check=True,
    )  # fmt: skip
    assert (done.stdout, done.stderr) == ("_bkctl\n", "")


@pytest.mark.parametrize("name", ["bash", "zsh", "fish"])
def test_a_shell_reads_its_script_without_a_word(name: str) -> None:
    done = subprocess.run(
        [program(name), "-n", ROOT / "completions" / FILES[name]],
        capture_output=True, text=True, check=True,
    )  # fmt: skip
    assert (done.stdout, done.stderr) == ("", "")


def _unique_prefix(word: str, words: set[str]) -> str:
    """Return the shortest beginning of a word that no other one has."""
    return next(
        word[:n] for n in range(1, len(word) + 1)
        if sum(one.startswith(word[:n]) for one in words) == 1
    )  # fmt: skip


def test_tab_returns_at_once_where_no_cluster_is_known(shell: Shell) -> None:
    unset = "set -e BKCTL_SERVICE_URI" if shell.name == "fish" else "unset BKCTL_SERVICE_URI"
    shell.screen.type(unset, "\r")
    shell.clear()
    shell.completes("bkctl ledger show 9", "$ bkctl ledger show 9")
    shell.completes("bkctl ledger sho", "$ bkctl ledger show")
