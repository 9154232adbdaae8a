"""What is made from the click tree and the settings is there, and is up to date."""

from __future__ import annotations

import functools
import re
import subprocess
from pathlib import Path

import click
import pytest

from bkclient.config.declaration import declared
from bkctl.cli.root import cli
from bkctl.exit_status import MEANING
from bkctl.global_options import is_global
from bkctl.manual.generate import ROOT, generated, main, stale, write
from bkctl.manual.man_pages import PageFooter, pages
from bkctl.manual.roff import bold
from bookied.config.bookie import BookieConfig
from bookied.errors import BookieExitStatus
from tests.bkctl.cli.test_root import TREE
from tests.support.programs import program

MACROS = {".SH", ".SS", ".TH", ".PP", ".TP", ".IP", ".RS", ".RE", ".nf", ".fi", ".br", ".ad",
          ".nh", ".PD", r".\""}  # fmt: skip

PAGES = sorted(f"man/{path.name}" for path in (ROOT / "man").iterdir())


@functools.cache
def files() -> dict[str, str]:
    """Make what is generated: once, and not in the processes that only collect tests."""
    return generated()


def manual() -> dict[str, str]:
    """Return the manual pages of it."""
    return {name: text for name, text in files().items() if name.startswith("man/")}


def test_nothing_generated_is_stale() -> None:
    assert stale(files()) == [], "run: python -m bkctl.manual.generate"


def test_making_it_again_gives_the_same() -> None:
    assert generated() == files()


def test_what_is_stale_is_named_and_mended(tmp_path: Path) -> None:
    wanted = {"docs/c.json": "{}\n", "man/a.1": "a\n", "man/b.1": "b\n"}
    assert write(wanted, tmp_path) == ["docs/c.json", "man/a.1", "man/b.1"]
    (tmp_path / "docs/by-hand.md").write_text("stays")
    assert write(wanted, tmp_path) == []
    (tmp_path / "man/a.1").write_text("other")
    (tmp_path / "man/gone.1").write_text("of a command that was renamed")
    (tmp_path / "man/b.1").unlink()
    assert stale(wanted, tmp_path) == ["man/a.1", "man/b.1", "man/gone.1"]
    assert write(wanted, tmp_path) == ["man/a.1", "man/b.1", "man/gone.1"]
    assert stale(wanted, tmp_path) == []
    assert not (tmp_path / "man/gone.1").exists()


def test_checking_writes_nothing_and_says_so_in_its_status() -> None:
    assert main(["--check"]) == 0


# Manual pages ------------------------------------------------------------------------------------


def test_there_is_a_page_for_each_name_below_bkctl() -> None:
    names = cli.list_commands(click.Context(cli))
    assert set(PAGES) == set(manual()) == {
        "man/bkctl.1", "man/bookied.8", "man/bk_server.conf.5",
        *(f"man/bkctl-{name}.1" for name in names),
    }  # fmt: skip


def test_each_command_is_in_its_page_with_its_options_and_examples() -> None:
    for path, command in TREE.items():
        text = manual()[f"man/bkctl-{path[0]}.1"]
        assert bold(f"bkctl {' '.join(path)}") in text
        assert {bold(line) for line, _ in command.examples} <= set(text.splitlines()), path
        own = [
            one for one in command.params if isinstance(one, click.Option) and not is_global(one)
        ]
        for option in own:
            assert option.hidden or bold(max(option.opts, key=len)) in text, (path, option.opts)


def test_the_page_of_bkctl_has_every_exit_status_and_variable() -> None:
    text = manual()["man/bkctl.1"]
    for status, meaning in MEANING.items():
        assert f"\n{bold(str(int(status)))}\n{meaning.split(':')[0]}" in text
    for option in cli.params:
        for name in [option.envvar] if isinstance(option.envvar, str) else option.envvar or ():
            assert name in text


def test_every_setting_is_in_the_page_of_the_settings_file() -> None:
    text = manual()["man/bk_server.conf.5"]
    for one in declared(BookieConfig):
        assert f"\n{bold(one.spec.key)} = " in text
    for other in BookieConfig.other_keys:
        assert f"\n{bold(other.pattern)}\n" in text
    assert "\\fBbookiePort\\fR = \\fI3181\\fR\nPort that the bookie listens on" in text


def test_the_page_of_the_daemon_has_its_options_signals_and_ends() -> None:
    text = manual()["man/bookied.8"]
    assert bold("--log-format") in text
    for status in BookieExitStatus:
        assert f"\n{bold(str(int(status)))}\n" in text
    for name in ("TERM and INT", "HUP", "USR1", "QUIT"):
        assert bold(name) in text


@pytest.mark.parametrize("name", PAGES)
def test_a_page_has_only_lines_that_manual_pages_have(name: str) -> None:
    lines = manual()[name].splitlines()
    assert lines[1].startswith(".TH ")
    titles = [line for line in lines if line.startswith(".SH")]
    assert titles[:3] == ['.SH "NAME"', '.SH "SYNOPSIS"', '.SH "DESCRIPTION"'] or ".5" in name
    for line in lines:
        may_be_long = line.startswith(".TH") or " " not in line or " * * * bkctl" in line
        assert len(line) <= 100 or may_be_long, line
        assert line == line.rstrip(), line
        assert line.isascii(), line
        if line.startswith((".", "'")):
            assert line.split()[0] in MACROS, line
        assert re.fullmatch(r"([^\\]|\\f[BIR]|\\\([a-z]{2}|\\[-e&\"]|\\\[u[0-9A-F]{4}\])*", line), (
            line
        )


def test_mandoc_finds_nothing_to_say() -> None:
    mandoc = program("mandoc")
    done = subprocess.run(
        [mandoc, "-Tlint", "-Wstyle", *(ROOT / name for name in PAGES)],
        check=False, capture_output=True, text=True,
    )  # fmt: skip
    assert (done.stdout, done.returncode) == ("", 0)


def test_a_command_is_described_wherever_it_hangs_in_the_tree() -> None:
    inner = click.Command("leaf", help="Do. Then rest.", params=[click.Option(["--x"], help="X.")])
    tree = click.Group("tool", commands=[click.Group("a", commands=[click.Group("b", [inner])])])
    made = pages(tree, PageFooter("2026-01-02", "1"))
    assert "\\fBbkctl\\fR" in made["bkctl.1"]
    assert "\\fBtool a b leaf\\fR" in made["bkctl-a.1"]
    assert "Do.\nThen rest." in made["bkctl-a.1"]
