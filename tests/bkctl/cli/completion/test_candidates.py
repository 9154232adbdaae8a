"""What Tab is answered, without a shell around it."""

from __future__ import annotations

import subprocess
import sys

import click
import pytest

from bkctl.cli.completion.candidates import candidates, reply, split
from bkctl.cli.completion.scripts import LINE, SCRIPTS, VARIABLE
from bkctl.cli.root import cli
from tests.bkctl.cli.test_root import HEAVY
from tests.bkctl.support.imports import run_without
from tests.bkctl.support.runner import Result
from tests.bkctl.support.terminal import FakeHost


def _values(line: str) -> list[str]:
    return [str(item.value) for item in candidates(cli, *split(line))]


def _run(*words: str) -> Result:
    host = FakeHost()
    status = cli.run(words, host)
    return Result(status, host.out.text, host.err.text)


@pytest.mark.parametrize(
    ("line", "words", "word"),
    [
        ("bkctl", [], ""),
        ("bkctl ", [], ""),
        ("bkctl led", [], "led"),
        ("bkctl ledger ", ["ledger"], ""),
        ("bkctl log info 'a b", ["log", "info"], "a b"),
        ('bkctl log info "a b ', ["log", "info"], "a b "),
        ("bkctl log info a\\ b", ["log", "info"], "a b"),
        ("bkctl log info a\\ b ", ["log", "info", "a b"], ""),
        ("~/bin/bkctl -o j", ["-o"], "j"),
        ("bkctl --output=j", [], "--output=j"),
    ],
)
def test_a_line_is_cut_as_the_shell_cuts_it(line: str, words: list[str], word: str) -> None:
    assert split(line)[0] == words
    assert line == "bkctl" or split(line)[1] == word


@pytest.mark.parametrize(
    ("line", "found"),
    [
        ("bkctl led", ["ledger"]),
        ("bkctl --json --dry-run led", ["ledger"]),
        ("bkctl ledger cr", ["create"]),
        ("bkctl -u sqlite:///x ledger cr", ["create"]),
        ("bkctl ledger read 1 --password", ["--password-file"]),
        ("bkctl ledger read 1 --service", ["--service-uri"]),
        ("bkctl ledger list --state clo", ["closed"]),
        ("bkctl -o json", ["json", "jsonl"]),
        ("bkctl ledger list -o js", ["json", "jsonl"]),
        ("bkctl --output=js", ["--output=json", "--output=jsonl"]),
        ("bkctl ledger list --output=js", ["--output=json", "--output=jsonl"]),
        ("bkctl completion z", ["zsh"]),
        ("bkctl ledger read 1 0-9 ", []),
        ("bkctl nonsense ", []),
        ("bkctl ledger nonsense r", []),
    ],
)
def test_commands_options_and_choices_come_from_the_tree(line: str, found: list[str]) -> None:
    assert _values(line) == found


def test_the_first_word_is_any_command_in_the_order_of_the_help() -> None:
    assert _values("bkctl ") == cli.list_commands(click.Context(cli))


@pytest.mark.parametrize(
    ("line", "kind"),
    [
        ("bkctl -c ", "files"),
        ("bkctl ledger read 1 --out b", "files"),
        ("bkctl ledger read 1 --out=b", "files"),
        ("bkctl ledger write ", "files"),
        ("bkctl local 3 --dir ", "dirs"),
        ("bkctl ledger create --digest ", "values"),
    ],
)
@pytest.mark.parametrize("shell", SCRIPTS)
def test_files_and_directories_are_left_to_the_shell(line: str, kind: str, shell: str) -> None:
    assert next(reply(cli, shell, line)) == kind


def test_zsh_and_fish_are_told_what_each_is_about() -> None:
    values, zookeeper = reply(cli, "zsh", "bkctl local 3 --zookeeper")
    assert (values, zookeeper.split(":")[0]) == ("values", "--zookeeper")
    assert len(zookeeper) > 20
    values, ledger = reply(cli, "fish", "bkctl led")
    assert (values, ledger.split("\t")[0]) == ("values", "ledger")
    assert "\t" in ledger


class _Ids(click.ParamType):
    name = "ids"

    def shell_complete(self, ctx, param, incomplete):
        from click.shell_completion import CompletionItem

        found = ("127.0.0.1:3181", "127.0.0.1:3182", "a b'c", "x=1:2")
        return [CompletionItem(v, help="one: of") for v in found if v.startswith(incomplete)]


TOY = click.Group("toy", [click.Command("show", params=[click.Argument(["id"], type=_Ids())])])


@pytest.mark.parametrize(
    ("line", "breaks", "found"),
    [
        ("toy show 127", ":=", ["127.0.0.1:3181", "127.0.0.1:3182"]),
        ("toy show 127.0.0.1:", ":=", ["3181", "3182"]),
        ("toy show 127.0.0.1:31", ":=", ["3181", "3182"]),
        ("toy show 127.0.0.1:31", " \t", ["127.0.0.1:3181", "127.0.0.1:3182"]),
        ("toy show '127.0.0.1:31", ":=", ["127.0.0.1:3181", "127.0.0.1:3182"]),
        ("toy show a", ":=", ["'a b'\"'\"'c'"]),
        ("toy show 'a", ":=", ["a b'c"]),
        ("toy show x=1:", ":=", ["2"]),
    ],
)
def test_bash_gets_what_it_puts_in_the_place_of_its_own_last_word(
    line: str, breaks: str, found: list[str]
) -> None:
    assert list(reply(TOY, "bash", line, breaks)) == ["values", *found]


def test_zsh_gets_colons_that_are_no_separators() -> None:
    assert list(reply(TOY, "zsh", "toy show 127.0.0.1:3181")) == [
        "values", "127.0.0.1\\:3181:one: of",
    ]  # fmt: skip


@pytest.mark.parametrize(
    "line", ["bkctl ", "bkctl ledger ", "bkctl ledger create --", "bkctl ledger list --state "]
)
def test_nothing_heavy_is_imported_for_what_the_tree_knows(line: str) -> None:
    printed = run_without(
        HEAVY,
        "import os; from bkctl.cli.root import cli\n"
        "from bkctl.cli.completion.candidates import answer\n"
        "answer(cli, os.environ); status = 0",
        {VARIABLE: "bash", LINE: line, "PYTHONPATH": ":".join(sys.path)},
    )
    assert printed.startswith("values\n")
    assert len(printed.splitlines()) > 1


@pytest.mark.parametrize("line", [None, "", "bkctl ledger show 1 --columns \x1b 'x", "bkctl 'a"])
def test_a_line_that_nobody_can_read_is_answered_in_silence(line: str | None) -> None:
    environ = {VARIABLE: "bash", "PYTHONPATH": ":".join(sys.path)}
    environ |= {} if line is None else {LINE: line}
    command = [sys.executable, "-c", "from bkctl.__main__ import main; main()"]
    done = subprocess.run(command, check=False, capture_output=True, text=True, env=environ)
    assert (done.returncode, done.stderr) == (0, "")


@pytest.mark.parametrize("shell", SCRIPTS)
def test_the_script_of_a_shell_is_printed_as_it_is_and_in_every_form(shell: str) -> None:
    assert _run("completion", shell).out == SCRIPTS[shell]
    assert _run("completion", shell, "--json").json == {
        "schema": 1, "shell": shell, "script": SCRIPTS[shell],
    }  # fmt: skip
    assert _run("completion", shell, "-o", "id").out == f"{shell}\n"


def test_a_shell_that_is_not_known_is_a_usage_error(capsys: pytest.CaptureFixture[str]) -> None:
    assert _run("completion", "tcsh").status == 2
    assert "'bash', 'zsh', 'fish'" in capsys.readouterr().err
