"""Errors by name: each one is explained, and what is told to be tried exists."""

from __future__ import annotations

import importlib
import json
import pkgutil
import re
import shlex
from collections.abc import Iterator

import click
import pytest

import bkclient
import bkctl
import bookied
import wire
from bkclient.errors import ClientLedgerFencedError
from bkctl.cli.error_report import describe
from bkctl.cli.root import cli
from bkctl.commands.tool.explain import JAVA_NAMES, TERMS
from bkctl.commands.tool.explanations import ADVICE, ALIASES, all_errors
from bkctl.errors import CommandError, Interrupted, RefusedError, UsageError, error_name
from bkctl.exit_status import ExitStatus
from tests.bkctl.support.terminal import FakeHost
from wire.errors import BookKeeperError

ELSEWHERE = (
    "bookied.admin.", "bookied.autorecovery.", "bookied.storage.garbage.",
    "bookied.state.", "bookied.service.", "bookied.config.reload", "bkctl.commands.export.spark.",
)  # fmt: skip
"""Modules whose errors end in a daemon or in Spark, and never a command."""

ERRORS = all_errors()


def _kinds() -> Iterator[type[BookKeeperError]]:
    for package in (wire, bkclient, bookied, bkctl):
        for module in pkgutil.walk_packages(package.__path__, f"{package.__name__}."):
            if not module.name.startswith(ELSEWHERE) and not module.name.endswith("__main__"):
                importlib.import_module(module.name)
    kinds = [BookKeeperError]
    while kinds:
        kind = kinds.pop()
        kinds += kind.__subclasses__()
        if kind is not BookKeeperError:
            yield kind


def test_every_error_of_a_command_has_an_explanation() -> None:
    ours = ("wire.", "bkclient.", "bookied.", "bkctl.")
    missing = {
        error_name(kind)
        for kind in _kinds()
        if kind.__module__.startswith(ours) and not kind.__module__.startswith(ELSEWHERE)
    } - set(ERRORS)
    assert missing == set()
    assert all(re.fullmatch(r"BK(-[A-Z0-9]+)+", name) for name in ERRORS)


def test_advice_and_other_names_are_about_errors_that_there_are() -> None:
    assert set(ADVICE) <= set(ERRORS)
    assert set(ALIASES.values()) <= set(ERRORS)
    assert not set(ALIASES) & set(ERRORS)


def _advised() -> Iterator[str]:
    for advice in ADVICE.values():
        for step in advice.steps:
            yield from re.findall(r"`bkctl ([^`]*)`", step)


@pytest.mark.parametrize("line", sorted(set(_advised())))
def test_what_is_told_to_be_tried_is_a_command_with_such_options(line: str) -> None:
    words = shlex.split(line)
    if words[0] == "COMMAND":
        return
    command: click.Command = cli
    while isinstance(command, click.Group):
        found = command.get_command(click.Context(command), words.pop(0))
        assert found is not None, line
        command = found
    known = {name for parameter in command.params for name in parameter.opts} | {"--help"}
    assert {word for word in words if word.startswith("-")} <= known, line


def _run(*args: str) -> tuple[int, str, str]:
    host = FakeHost()
    return cli.run(["explain", *args], host), host.out.text, host.err.text


def test_an_error_is_found_by_its_name_in_any_case_and_by_other_names() -> None:
    for name in ("BK-LEDGER-FENCED", "ledger-fenced", "[BK-LEDGER-FENCED]", "ledger_fenced"):
        status, out, _ = _run(name)
        assert (status, out.startswith("BK-LEDGER-FENCED: ")) == (0, True)
    assert "Exit status 7: conflict" in out
    assert "What to do:\n  - `bkctl ledger show ID`" in out
    found = json.loads(_run("BK-COOKIE-MISMATCH", "--json")[1])
    assert (found["name"], found["program"], found["meaning"]) == (
        "BK-WRONG-IDENTITY", "bookied", None,
    )  # fmt: skip
    status, _, err = _run("ledger-fence")
    assert (status, "did you mean BK-LEDGER-FENCED?" in err) == (ExitStatus.NOT_FOUND, True)
    assert _run("-o", "id")[1].split() == list(ERRORS)


def test_the_line_of_an_error_ends_with_its_name_where_there_is_more_to_say() -> None:
    assert describe(ClientLedgerFencedError(), None).line().endswith(" [BK-LEDGER-FENCED]")
    assert describe(RefusedError("no", next_step="x"), None).line() == "bkctl: no; x"
    assert describe(UsageError("how?"), None).line() == "bkctl: how?"
    assert describe(CommandError("broken"), None).line() == "bkctl: broken"
    assert describe(CommandError("broken"), None).machine()["name"] == "BK-COMMAND"


@pytest.mark.parametrize(
    ("status", "name"),
    [
        (ExitStatus.TIME_LIMIT, "BK-TIME-LIMIT"),
        (ExitStatus.INTERRUPTED, "BK-INTERRUPTED"),
        (ExitStatus.TERMINATED, "BK-INTERRUPTED"),
    ],
)
def test_a_time_limit_has_another_name_than_a_signal(status: int, name: str) -> None:
    told = describe(Interrupted("over", status), None).machine()
    assert (told["name"], told["code"]) == (name, status)


@pytest.mark.parametrize(
    ("java", "ours"),
    [
        ("BKLedgerFencedException", "BK-LEDGER-FENCED"),
        ("org.apache.bookkeeper.client.BKException$BKNotEnoughBookiesException",
         "BK-NOT-ENOUGH-BOOKIES"),
        ("BKException.BKNoSuchLedgerExistsException", "BK-NO-SUCH-LEDGER"),
        ("InvalidCookieException", "BK-WRONG-IDENTITY"),
    ],
)  # fmt: skip
def test_an_exception_of_java_is_explained_by_its_class(java: str, ours: str) -> None:
    host = FakeHost()
    assert cli.run(["explain", java, "--json"], host) == 0
    assert json.loads(host.out.text)["name"] == ours


def test_names_of_java_stand_for_errors_that_there_are() -> None:
    assert set(JAVA_NAMES.values()) <= set(ERRORS)
    assert not set(JAVA_NAMES) & set(ERRORS)


@pytest.mark.parametrize("width", [40, 80, 200])
def test_an_explanation_is_wrapped_at_words(width: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COLUMNS", str(width))
    monkeypatch.setenv("LINES", "100")  # No pager.
    host = FakeHost(tty=True)
    assert cli.run(["explain", "BK-LEDGER-FENCED"], host) == 0
    lines = host.out.text.splitlines()
    assert max(map(len, lines)) <= min(width, 96)
    assert "continue in a new ledger: a fenced ledger accepts no more entries" in " ".join(
        line.strip() for line in lines
    )
    piped = _run("BK-LEDGER-FENCED")[1]
    assert piped.split() == host.out.text.split()
    assert max(map(len, piped.splitlines())) <= min(width, 96)


@pytest.mark.parametrize(
    ("word", "name"),
    [
        ("lac", "last add confirmed"), ("LAC", "last add confirmed"), ("QW", "write quorum"),
        ("last_add_confirmed", "last add confirmed"), ("ensemble", "ensemble"),
        ("ack-quorum", "ack quorum"), ("fragments", "fragment"),
        ("EIO", "input/output error"), ("headroom", "headroom"), ("instance-id", "instance id"),
        ("cursor", "cursor"), ("label", "custom metadata"), ("under-replicated", "mark"),
        ("sealed", "sealed"), ("read-only", "read-only"), ("rebalance", "balance"),
        ("log", "log"), ("bookie", "bookie"), ("profile", "profile"), ("cluster", "cluster"),
        ("fenced", "fence"), ("journals", "journal"), ("entry logs", "entry log"),
        ("quarantine", "quarantine"),
    ],
)  # fmt: skip
def test_terms_of_columns_are_explained(word: str, name: str) -> None:
    host = FakeHost()
    assert cli.run(["explain", word], host) == 0
    assert host.out.text.startswith(f"{name}: ")


def test_the_help_lists_all_terms(capsys: pytest.CaptureFixture[str]) -> None:
    assert cli.run(["explain", "--help"], FakeHost()) == 0
    words = "".join(capsys.readouterr().out.split())
    assert [term for term in TERMS if term.replace(" ", "") not in words] == []
    short = {"e", "eio", "lac", "qa", "qw"}
    assert [term for term in short if f"({term})" not in words] == []


def test_an_exit_status_is_explained() -> None:
    host = FakeHost()
    assert cli.run(["explain", "6"], host) == 0
    assert host.out.text.startswith("exit status 6: time limit reached")

    assert "with this status: BK-ADD-QUORUM-TIMEOUT, " in " ".join(host.out.text.split())
    assert cli.run(["explain", "exit", "status", "6"], again := FakeHost()) == 0
    assert again.out.text == host.out.text


def test_a_word_of_both_a_term_and_an_error_explains_both() -> None:
    host = FakeHost()
    assert cli.run(["explain", "fenced"], host) == 0
    assert host.out.text.startswith("fence: ")
    assert "BK-LEDGER-FENCED: " in host.out.text


@pytest.mark.parametrize("words", [["listledgers"], ["bookkeeper", "shell", "listledgers"]])
def test_a_command_of_java_is_named_by_the_line_that_does_the_same(words: list[str]) -> None:
    host = FakeHost()
    assert cli.run(["explain", *words], host) == ExitStatus.NOT_FOUND
    assert "`bkctl ledger list` does what Java's listledgers does" in host.err.text


def test_no_word_explains_nothing() -> None:
    assert cli.run(["explain", ""], FakeHost()) == ExitStatus.NOT_FOUND


def test_an_error_is_found_by_its_words() -> None:
    host = FakeHost()
    assert cli.run(["explain", "digest mismatch"], host) == 0
    assert host.out.text.startswith("BK-DIGEST-MISMATCH: ")


@pytest.mark.parametrize(
    ("word", "said"),
    [
        ("busiest", "'busiest' is not an error and not a term; `bkctl explain` lists"),
        ("seal", "'seal' is not an error and not a term; `bkctl explain` lists"),
        ("slow", "'slow' is not an error and not a term; `bkctl explain` lists"),
        ("BK-LEDGR-EXISTS", "did you mean BK-LEDGER-EXISTS?"),
        ("ledger-exsts", "did you mean BK-LEDGER-EXISTS?"),
    ],
)
def test_only_a_name_that_is_alike_is_proposed(word: str, said: str) -> None:
    host = FakeHost()
    assert cli.run(["explain", word], host) == ExitStatus.NOT_FOUND
    assert said in host.err.text
