"""The command tree as a whole, without a cluster."""

from __future__ import annotations

import inspect
import json
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import click
import pytest

from bkclient.errors import MORE_THREADS
from bkctl.cli.command import NOTHING, Command, Group
from bkctl.cli.command_names import COMMANDS, SECTIONS
from bkctl.cli.error_report import describe
from bkctl.cli.root import cli
from bkctl.exit_status import MEANING, Effect, ExitStatus
from bkctl.global_options import Options, Seconds, global_options, is_global, options_of
from bkctl.session.session import SESSION_META
from bkctl.suggest import LINES, SYNONYMS
from tests.bkctl.support.imports import run_without
from tests.bkctl.support.terminal import FakeHost

HEAVY = ("twisted", "kazoo", "rich", "pyspark", "pyarrow", "attr", "attrs", "google.protobuf",
         "sqlite3", "crc32c", "asyncio", "bkclient", "bookied", "wire")  # fmt: skip
DATA_PATH = ("bkclient.ledger.cluster", "bkclient.connection.channel", "bkclient.ledger.reader",
             "bkclient.ledger.writer", "wire.frames.v2", "wire.messages", "rich")  # fmt: skip


@pytest.mark.parametrize(
    ("text", "seconds"), [("90", 90), ("1.5", 1.5), ("5m", 300), ("1h30m", 5400), ("0", 0)]
)
def test_times_have_units(text: str, seconds: float) -> None:
    assert Seconds(min=0).convert(text, None, None) == seconds


@pytest.mark.parametrize("text", ["-5m", "5x", "m", "", "nan", "1e99"])
def test_what_is_no_time_is_refused(text: str) -> None:
    with pytest.raises(click.BadParameter):
        Seconds(min=0).convert(text, None, None)


def _walk(group: Group, path: tuple[str, ...] = ()) -> Iterator[tuple[tuple[str, ...], Command]]:
    ctx = click.Context(group)
    for name in group.list_commands(ctx):
        command = group.get_command(ctx, name)
        assert command is not None, name
        if isinstance(command, Group):
            yield from _walk(command, (*path, name))
        else:
            assert isinstance(command, Command), (*path, name)
            yield (*path, name), command


TREE = dict(_walk(cli))


def _groups(group: Group, path: tuple[str, ...] = ()) -> Iterator[tuple[tuple[str, ...], Group]]:
    yield path, group
    ctx = click.Context(group)
    for name in group.list_commands(ctx):
        command = group.get_command(ctx, name)
        if isinstance(command, Group):
            yield from _groups(command, (*path, name))


ALIASES = {(*path, name): words.split() for path, group in _groups(cli)
           for name, words in group.aliases.items()}  # fmt: skip


def _run(*args: str, host: FakeHost | None = None) -> tuple[int, str, str]:
    host = host or FakeHost()
    status = cli.run(args, host)
    return status, host.out.text, host.err.text


# Every command ---------------------------------------------------------------------------------


@pytest.mark.parametrize("path", TREE, ids=" ".join)
def test_every_command_can_be_used_by_people_and_programs(path: tuple[str, ...]) -> None:
    command = TREE[path]
    flags = {flag for parameter in command.params for flag in parameter.opts}
    assert {"-o", "--json", "--timeout", "--dry-run", "-y", "--no-input"} <= flags
    assert isinstance(command.effect, Effect)
    assert 2 <= len(command.examples) <= 4
    assert all(line.startswith("bkctl ") or "| bkctl " in line or "(bkctl " in line
               for line, _ in command.examples)  # fmt: skip
    assert set(command.exits) <= set(MEANING)
    assert command.replaces


@pytest.mark.parametrize("path", TREE, ids=" ".join)
def test_every_help_has_a_purpose_examples_exit_statuses_and_what_it_replaces(
    path: tuple[str, ...], capsys: pytest.CaptureFixture[str]
) -> None:
    command = TREE[path]
    assert cli.run([*path, "-h"]) == 0
    text = capsys.readouterr().out
    usage, purpose = text.split("\n\n")[:2]
    assert usage.startswith(f"Usage: bkctl {' '.join(path)}")
    assert purpose.strip().split("\n")[0]
    for title in ("Examples:", "Common options:"):
        assert title in text
    assert ("\nReplaces: " in text) == (command.replaces != NOTHING)
    explained = re.findall(r"^  (\d+)  ", text.partition("\nExit status:\n")[2], re.MULTILINE)
    (elsewhere,) = re.findall(r"explains common options, and statuses\s([\d,\s]+)\.", text)
    assert sorted(map(int, [*explained, *elsewhere.split(",")])) == sorted(command.exits)
    # A line of a crontab cannot be broken.
    assert all(len(line) <= 100 or " * * * bkctl" in line for line in text.splitlines())


@pytest.mark.parametrize("path", TREE, ids=" ".join)
def test_the_body_of_every_command_takes_the_parameters_that_are_declared(
    path: tuple[str, ...],
) -> None:
    command = TREE[path]
    names = [str(one.name) for one in command.params if not is_global(one)]
    assert not {one.name for one in global_options(root=True)} & set(names)
    inspect.signature(command.load()).bind("session", **dict.fromkeys(names))
    assert len(list(command.views())) == len(command.prints)


@pytest.mark.parametrize("path", ALIASES, ids=" ".join)
def test_an_alias_is_hidden_and_does_what_its_command_does(
    path: tuple[str, ...], capsys: pytest.CaptureFixture[str]
) -> None:
    meant = ALIASES[path]
    known = {*TREE, *dict(_groups(cli))}
    assert any(tuple(meant[:words]) in known for words in range(1, len(meant) + 1))
    assert path not in known

    def helped(*words: str) -> str:
        assert cli.run([*words, "--help"]) == 0
        return capsys.readouterr().out

    assert helped(*path) == helped(*meant)
    assert f"\n  {path[-1]} " not in helped(*path[:-1])


def _left_over(ctx: click.Context) -> list[str]:
    """Return the command's name and what follows, wherever this click keeps that."""
    found: list[str] = getattr(ctx, "_protected_args", None) or ctx.protected_args
    return found


@pytest.mark.parametrize("path", TREE, ids=" ".join)
def test_the_examples_of_every_command_can_be_parsed(path: tuple[str, ...]) -> None:
    import shlex

    for line, _ in TREE[path].examples:
        one = line.split("bkctl ", 1)[1].split(" | ")[0].split(" > ")[0]
        words = shlex.split(one.rstrip(")"))
        command: click.Command = cli
        ctx = cli.make_context("bkctl", words)
        while isinstance(command, click.Group):
            _, found, rest = command.resolve_command(ctx, [*_left_over(ctx), *ctx.args])
            assert found is not None
            command, ctx = found, found.make_context(found.name, rest, parent=ctx)
        if path == tuple(ctx.command_path.split()[1:]):
            assert command is TREE[path]


def test_the_short_help_of_lazy_commands_is_their_own() -> None:
    ctx = click.Context(cli)
    names = ("ledger", "disk", "bookie", "cluster")
    for group in (cli, *(cli.get_command(ctx, name) for name in names)):
        assert isinstance(group, Group)
        for name, (_, told) in group.lazy.items():
            command = group.get_command(ctx, name)
            assert command is not None
            if name not in {"fence", "decommission", "upgrade"} or group is not cli:
                assert command.get_short_help_str(100) == told, name


@pytest.mark.parametrize("path", TREE, ids=" ".join)
def test_every_changing_command_says_what_it_can_do_and_cannot_be_watched(
    path: tuple[str, ...],
) -> None:
    command = TREE[path]
    changes = command.effect is not Effect.READ
    text = " ".join(command.get_help(click.Context(command)).split())
    assert (command.effect_sentence in text) == changes
    flags = {flag for parameter in command.params for flag in parameter.opts}
    assert ("--watch" in flags) == ("--until" in flags) == command.can_be_watched
    assert not (changes and command.can_be_watched)


def test_every_list_status_and_show_command_can_be_watched() -> None:
    words = {"list", "show", "status", "info", "state", "ready", "doctor", "usage"}
    shown = {path for path in TREE if words & set(path[-1].split("-"))}
    assert len(shown) > 15
    assert all(TREE[path].can_be_watched for path in shown)


def test_a_command_without_an_effect_cannot_be_made() -> None:
    with pytest.raises(TypeError, match="effect"):
        Command("probe", examples=())  # type: ignore[call-arg]


def test_what_fences_or_loses_data_is_declared_so() -> None:
    effects = {" ".join(path): command.effect for path, command in TREE.items()}
    assert effects["ledger delete"] is Effect.LOSES_DATA
    assert effects["ledger recover"] is effects["ledger fence"] is Effect.FENCES
    assert effects["ledger close"] is Effect.FENCES
    for path in ("cluster format", "metaformat", "cluster nuke", "cookie delete", "decommission"):
        assert effects[path] is Effect.LOSES_DATA
    for path in ("ledger list", "ledger show", "ledger read", "ledger tail", "bookie list"):
        assert effects[path] is Effect.READ


@pytest.mark.parametrize("columns", [60, 80, 102])
def test_help_is_never_cut_and_breaks_no_word_that_is_to_be_typed(
    columns: int, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("COLUMNS", str(columns))
    for group in sorted({path[:-1] for path in TREE}):
        assert cli.run([*group, "--help"]) == 0
        shown = capsys.readouterr().out
        assert "..." not in shown.partition("\nCommands:")[2].partition("\n\n")[0], group
    for path in TREE:
        assert cli.run([*path, "--help"]) == 0
        broken = [
            line
            for line in capsys.readouterr().out.splitlines()
            if (line[-2:-1].isalpha() and line.endswith("-")) or line.count("`") % 2
        ]
        assert not broken, path


@pytest.mark.parametrize("columns", [40, 80, 120])
def test_help_fits_the_terminal_but_for_what_is_to_be_typed(
    columns: int, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("COLUMNS", str(columns))
    for path in [(), *sorted({path[:1] for path in TREE}), *TREE]:
        assert cli.run([*path, "--help"]) == 0
        for line in capsys.readouterr().out.splitlines():
            to_type = line.lstrip().startswith(("-", "[", "Usage:")) or "|" in line
            to_type |= "bkctl " in line or "`" in line
            is_table = "    " in line.strip()
            fits = len(line) <= columns or len(line.split()) == 1
            assert fits or to_type or is_table, (path, line)


@pytest.mark.parametrize(
    ("args", "told"),
    [
        (["--timeout", "abc", "ledger", "list"], "'abc' is not a number"),
        (["ledger", "list", "--limit", "1.5"], "'1.5' is not a whole number"),
        (["ledger", "list", "--timeout", "nan"], "nan is too large, or not a number"),
        (["ledger", "list", "--timeout", "inf"], "inf is too large, or not a number"),
        (["--timeout", "1e300", "ledger", "list"], "1e300 is too large, or not a number"),
        (["bookie", "rename", "--rate", "nan"], "nan is too large, or not a number"),
    ],
)
def test_numbers_are_asked_for_in_plain_words(
    args: list[str], told: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert cli.run(args) == ExitStatus.USAGE
    assert told in capsys.readouterr().err


@pytest.mark.parametrize(
    ("tty", "told"), [(True, "\nbkctl: interrupted\n"), (False, "bkctl: interrupted\n")]
)
def test_an_interruption_is_told_below_the_sign_of_the_terminal(tty: bool, told: str) -> None:  # noqa: FBT001
    class Impatient(FakeHost):
        def client(self, uri: str, config: Any) -> Any:
            raise KeyboardInterrupt

    host = Impatient(tty=tty)
    assert cli.run(["ledger", "list", "-u", "sqlite:///nowhere.db"], host) == ExitStatus.INTERRUPTED
    assert host.err.text == told


# Start -----------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "args", [["--help"], *([name, "--help"] for name in COMMANDS), ["ledger", "read", "--help"]]
)
def test_help_imports_nothing_heavy(args: list[str]) -> None:
    printed = run_without(HEAVY, f"from bkctl.cli.root import cli; status = cli.run({args!r})")
    assert "Usage: bkctl" in printed


@pytest.mark.parametrize(
    "args", [["ledger", "list", "-o", "id"], ["ledger", "list"], ["bookie", "list", "--no-ask"]]
)
def test_a_look_at_metadata_imports_nothing_of_the_way_to_bookies(
    args: list[str], tmp_path: Path
) -> None:
    uri = f"sqlite:///{tmp_path}/metadata.db"
    run_without(
        DATA_PATH,
        "from bkctl.cli.root import cli\n"
        f"cli.run(['cluster', 'init', '-u', {uri!r}])\n"
        f"status = cli.run(['-u', {uri!r}, *{args!r}])",
    )


def test_openssl_is_loaded_where_tls_is_used(tmp_path: Path) -> None:
    uri = f"sqlite:///{tmp_path}/metadata.db"
    assert cli.run(["cluster", "init", "-u", uri]) == 0
    run_without(
        ("OpenSSL", "cryptography"),
        "from bkctl.cli.root import cli\n"
        "try:\n"
        f"    cli.main(['-u', {uri!r}, 'ledger', 'list'])\n"
        "except SystemExit as end:\n"
        "    status = end.code",
    )


def test_it_says_which_bkctl_it_is(capsys: pytest.CaptureFixture[str]) -> None:
    assert cli.run(["--version"]) == 0
    assert "Python toolkit for Apache BookKeeper (not the Java bkctl)" in capsys.readouterr().out


def test_every_lazy_command_is_listed_without_being_imported() -> None:
    assert set(cli.list_commands(click.Context(cli))) == set(COMMANDS)


# The help of the root --------------------------------------------------------------------------


def test_the_help_is_one_screen_and_has_each_name_in_one_section(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("COLUMNS", "80")
    assert cli.run(["--help"]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert len(lines) <= 40
    sections = [name for names in SECTIONS.values() for name in names]
    assert sorted(", ".join(sections).split(", ")) == sorted(COMMANDS)
    assert any("-u URI or -c FILE" in line for line in lines)
    assert [line.rstrip(":") for line in lines if line.endswith(":")] == list(SECTIONS)
    for name in sections:
        assert sum(line.startswith(f"  {name} ") for line in lines) == 1


def test_the_help_of_a_command_is_found_by_its_words(capsys: pytest.CaptureFixture[str]) -> None:
    for words in ([], ["ledger"], ["ledger", "read"], ["cookie", "get"]):
        assert cli.run([*words, "--help"]) == 0
        own = capsys.readouterr().out
        status, out, _ = _run("help", *words)
        assert (status, out) == (0, own)
    status, _, err = _run("help", "ledger", "read", "twice")
    assert (status, "`bkctl ledger read` has no command 'twice'" in err) == (ExitStatus.USAGE, True)


def test_the_options_of_every_command_are_listed_with_their_variables() -> None:
    status, out, _ = _run("options")
    text = " ".join(out.split())
    assert status == 0
    for option in global_options(root=True):
        assert isinstance(option, click.Option)
        word = max(option.opts, key=len).lstrip("-").replace("-", "_").upper()
        assert isinstance(option.envvar, list)
        assert option.envvar[0] == f"BKCTL_{word}"
        assert option.envvar[0] in text
    assert "BKCTL_CONF, BOOKIE_CONF, CLI_CONF" in text
    assert all(meaning in text for meaning in MEANING.values())


@pytest.mark.parametrize(
    ("java", "ours"),
    [
        (("listbookies", "-rw"), "bkctl bookie list --state rw"),
        (("readledger", "-ledgerid", "7"), "bkctl ledger read 7"),
        (("listunderreplicated",), "bkctl autorecovery list"),
        (("readledger",), "bkctl ledger read --help"),
        (("readledger", "0"), "bkctl ledger read 0"),
        (("readledger", "0", "1"), "bkctl ledger read --help"),
        (("updateBookieInLedger", "old:1", "new:1"), "bkctl bookie rename old:1 new:1"),
        (("bookies", "instanceid"), "bkctl cluster id"),
        (("autorecovery", "toggle", "-e"), "bkctl autorecovery enable"),
        (("bookie", "readlog"), "bkctl disk entrylog --help"),
    ],
)
def test_a_name_of_javas_shell_prints_the_line_to_use(
    java: tuple[str, ...], ours: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert _run(*java)[:2] == (ExitStatus.USAGE, "")
    assert capsys.readouterr().err.endswith(f"' is a name of Java's tools; use `{ours}`\n")


@pytest.mark.parametrize(("answer", "status"), [("y\n", 0), ("n\n", 2), ("", 2)])
def test_on_a_terminal_the_line_for_a_name_of_javas_is_run_if_wanted(
    answer: str, status: int, tmp_path: Path
) -> None:
    uri = f"sqlite:///{tmp_path}/metadata.db"
    assert _run("-u", uri, "cluster", "init", "-y")[0] == 0
    host = FakeHost(answer, tty=True)
    found, out, err = _run("-u", uri, "-o", "id", "whatisinstanceid", host=host)
    assert (found, bool(out)) == (status, status == 0)
    assert "use `bkctl cluster id`\nRun it? [y/N] " in err


@pytest.mark.parametrize(
    ("old", "new"),
    [
        ("bookies list", "bookie list"),
        ("bookie expand-storage", "disk expand"),
        ("bookie flip-id", "bookie rename"),
        ("bookie info", "bookie show"),
        ("bookie replace-id", "bookie rename"),
        ("bookie sanity", "bookie test"),
        ("bookie top", "top"),
        ("autorecovery trigger", "autorecovery audit"),
        ("cluster info", "cluster status"),
        ("cluster instance-id", "cluster id"),
        ("cluster topology", "cluster map"),
        ("config explain", "config show"),
        ("cookie get", "cookie show"),
        ("cookie rename", "bookie rename"),
        ("ledger update-bookie", "bookie rename"),
        ("ledger where", "ledger map"),
        ("log info", "log show"),
        ("standalone", "local"),
    ],
)
def test_a_name_of_before_still_works(old: str, new: str) -> None:
    command: click.Command = cli
    ctx = cli.make_context("bkctl", old.split())
    while isinstance(command, click.Group):
        _, found, rest = command.resolve_command(ctx, [*_left_over(ctx), *ctx.args])
        assert found is not None
        command, ctx = (
            found,
            found.make_context(found.name, rest, parent=ctx, resilient_parsing=True),
        )
    assert command is TREE[tuple(new.split())]


def test_a_word_of_nobody_is_unknown(capsys: pytest.CaptureFixture[str]) -> None:
    assert _run("gibberish-of-no-shell")[0] == ExitStatus.USAGE
    assert "no such command" in (err := capsys.readouterr().err)
    assert "Java" not in err


# Options ---------------------------------------------------------------------------------------


def _options(*args: str, environ: dict[str, str] | None = None) -> Options:
    """Return what a command sees of the global options."""
    seen: list[Options] = []
    probe = Command("probe", body="", effect=Effect.READ, examples="")
    probe.invoke = lambda ctx: seen.append(options_of(ctx))  # type: ignore[method-assign]
    inner = Group("inner", params=global_options(root=False))
    inner.add_command(probe)
    root = Group("bkctl", params=global_options(root=True))
    root.add_command(inner)
    with pytest.MonkeyPatch.context() as patch:
        for name, value in (environ or {}).items():
            patch.setenv(name, value)
        root.main(list(args), standalone_mode=False)
    return seen[0]


@pytest.mark.parametrize(
    "args",
    [
        ["-o", "json", "inner", "probe"],
        ["inner", "-o", "json", "probe"],
        ["inner", "probe", "-o", "json"],
        ["inner", "probe", "--json"],
        ["--json", "inner", "probe"],
        ["-o", "csv", "inner", "probe", "--json"],
    ],
)
def test_options_are_taken_before_and_after_the_verb_and_the_last_one_wins(args: list[str]) -> None:
    assert _options(*args).output == "json"


def test_of_two_options_in_one_place_the_last_one_wins() -> None:
    assert _options("inner", "probe", "--json", "-o", "csv").output == "csv"
    assert _options("inner", "probe", "-o", "csv", "--json").output == "json"


def test_the_environment_gives_way_to_flags_wherever_they_stand() -> None:
    environ = {"BKCTL_OUTPUT": "csv", "BKCTL_SERVICE_URI": "sqlite:///a", "BKCTL_TIMEOUT": "7"}
    assert _options("inner", "probe", environ=environ).output == "csv"
    assert _options("inner", "probe", environ=environ).timeout_s == 7
    assert _options("inner", "probe", "-o", "id", environ=environ).output == "id"
    assert _options("-o", "id", "inner", "probe", environ=environ).output == "id"
    assert _options("inner", "probe", "-u", "b", environ=environ).service_uri == "b"


def test_where_a_value_is_from_is_known() -> None:
    options = _options("inner", "probe", "-o", "id", environ={"BOOKIE_CONF": "x", "BKCTL_YES": "1"})
    assert options.origins == {"output": "--output", "conf": "BOOKIE_CONF", "yes": "BKCTL_YES"}


def test_repeated_options_add_up_over_both_places() -> None:
    options = _options("-v", "-X", "a=1", "inner", "probe", "-v", "-X", "b=2", "-X", "c=3")
    assert options.verbose == 2
    assert options.overrides == ("a=1", "b=2", "c=3")


def test_the_form_of_ledger_ids_counts_wherever_it_stands() -> None:
    for args in (
        ["ledger", "show", "ff", "--ledger-id-format", "hex"],
        ["--ledger-id-format", "hex", "ledger", "show", "ff"],
    ):
        status, _, err = _run(*args)
        assert status == ExitStatus.USAGE
        assert "no cluster is named" in err


def test_each_line_that_is_offered_for_another_is_a_command() -> None:
    for line in (line for lines in LINES.values() for line in lines):
        command: click.Command = cli
        context = click.Context(command, info_name="bkctl")
        for word in line.split():
            if not isinstance(command, click.Group):
                break
            found = command.get_command(context, word)
            assert found is not None, line
            command = found
        assert not isinstance(command, click.Group), line


@pytest.mark.parametrize(
    ("line", "meant"),
    [
        ("ledger write f --label a=b", "ledger write f --meta a=b"),
        ("ledger write f --label=a=b", "ledger write f --meta a=b"),
        ("export --label a=b --to d", "export --meta a=b --to d"),
        ("bench write --time 10s", "bench write --for 10s"),
        ("bookie config b:1 --changed", "bookie config b:1 --filter origin!=default"),
        ("ledger list --where state=open", "ledger list --filter state=open"),
        ("log tail l --to 2:11", "log tail l --before 2:11"),
        ("log tail l --reader r", "log tail l --cursor r"),
        ("ledger write f -Qw 3 -Qa 2", "ledger write f -W 3 -A 2"),
        ("ledger list --open --sort id", "ledger list --state open --sort-by id"),
        ("bench write --max-p99 20ms", "bench write --fail-if p99>20ms"),
        ("bench add --max-p99=20ms", "bench write --fail-if p99>20ms"),
        ("bench write --duration 20s", "bench write --for 20s"),
        ("bench write --seconds 20", "bench write --for 20"),
        ("ledger list --sum length --meta a=b", "ledger list --total --meta a=b"),
        ("doctor --wait", "doctor --until healthy"),
        ("bookie ready b:1 --wait", "bookie ready b:1 --until healthy"),
        ("export --closed --to d", "export --state closed --to d"),
        ("export 1 --out d", "export 1 --to d"),
        ("cluster format --override ledgers", "cluster format --force ledgers"),
        ("metaformat --force ledgers", "metaformat --override ledgers"),
        ("metaformat -n --force", "metaformat -n --force"),
        ("bookie config-show b:1", "bookie config b:1"),
        ("bookie gc-status --all", "bookie gc-status"),
        ("config list gcWaitTime", "config show gcWaitTime"),
        ("ledger read 7 --text", "ledger read 7 --entry-format string"),
        ("log tail l --text", "log tail l --entry-format string"),
    ],
)
def test_another_name_of_an_option_or_a_command_does_the_same(line: str, meant: str) -> None:
    assert _parsed(line.split()) == _parsed(meant.split())


def _parsed(words: list[str]) -> Any:
    """Return the command that a line runs, its parameters, and the options of every command."""
    ctx = click.Context(cli, info_name="bkctl")
    command: click.Command = cli
    while isinstance(command, Group):
        _, found, words = command.resolve_command(ctx, words)
        assert found is not None
        command, ctx = found, click.Context(found, parent=ctx, info_name=found.name)
    ctx = command.make_context(command.name, words, parent=ctx.parent)
    options = options_of(ctx)
    asked = options.filters, options.sort_by, options.until
    return command, ctx.params, asked, options.entry_format


def test_every_other_name_of_an_option_stands_for_options_of_its_command() -> None:
    for key, words in SYNONYMS.items():
        path = key.partition("--")[0].partition(" -")[0].split()
        command: Any = cli
        for word in path:
            command = command.get_command(click.Context(command), word)
        if isinstance(command, Command):
            known = {name for one in command.params for name in (*one.opts, *one.secondary_opts)}
            assert {word for word in words if word.startswith("--")} <= known, key


# Errors ----------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("args", "said"),
    [
        (["ledgr"], "did you mean `bkctl ledger`"),
        (["ledger", "raed", "1"], "did you mean `bkctl ledger read`"),
        (["cluster", "ls", "/"], "did you mean `bkctl cluster tree`"),
        (["ledger", "rm", "1"], "did you mean `bkctl ledger delete`"),
        (["log", "read", "events"], "did you mean `bkctl log tail`"),
        (["log", "cat", "events"], "did you mean `bkctl log tail`"),
        (["ledger", "check", "1"], "did you mean `bkctl ledger verify`"),
        (["ledger", "scrub", "1"], "did you mean `bkctl ledger verify`"),
        (["bookie", "replace", "b1"], "did you mean `bkctl bookie decommission`"),
        (["cluster", "health"], "did you mean `bkctl cluster status`"),
        (["cluster", "doctor"], "did you mean `bkctl doctor`"),
        (["health"], "did you mean `bkctl doctor`"),
        (["autorecovery", "lost"], "did you mean `bkctl autorecovery list` or `bkctl doctor`?"),
        (["bookie", "df"], "did you mean `bkctl bookie show`?"),
        (["bookie", "lost"], "did you mean `bkctl doctor` or `bkctl bookie list`?"),
        (["bookie", "stats"], "did you mean `bkctl bookie metrics BOOKIE_ID` or `bkctl top`?"),
        (["bookie", "upgrade"], "did you mean `bkctl disk upgrade -c FILE`?"),
        (["compact"], "did you mean `bkctl bookie gc BOOKIE_ID`?"),
        (["export-ledger", "1"], "did you mean `bkctl export LEDGER_ID --to DIR`?"),
        (["ledger", "new"], "did you mean `bkctl ledger create`?"),
        (["ledger", "get", "1"], "did you mean `bkctl ledger show` or `bkctl ledger read`?"),
        (["bookie", "ledgers", "b1"], "did you mean `bkctl ledger list --bookie BOOKIE_ID`"),
        (["autorecovery", "pause", "30m"], "did you mean `bkctl autorecovery disable`"),
        (["local", "logs", "d"], "`bkctl local status DIR -o wide` names the log of each bookie"),
        (["logs", "orders"], "did you mean `bkctl log tail orders` or `bkctl log show orders`?"),
        (["ledger", "7"], "did you mean `bkctl ledger show 7` or `bkctl ledger read 7`?"),
        (["bookie", "b:1"], "did you mean `bkctl bookie show b:1`?"),
        (
            ["cluster", "rebalance"],
            "mean `bkctl bookie show --ledgers` or `bkctl explain balance`?",
        ),
        (["bookie", "load"], "did you mean `bkctl bookie show --ledgers` or `bkctl explain balanc"),
        (["ledger", "move", "15"], "mean `bkctl bookie recover OLD --ledger LEDGER_ID --to NEW`"),
        (["bookie", "list", "--ledgers"], "`bkctl bookie show --ledgers` counts ledgers and bytes"),
        (["bookie", "list", "--free"], "the columns FREE and TOTAL are of the bookie's disks"),
        (["profile", "rename", "a", "b"], "did you mean `bkctl profile create NEW -u URI` or"),
        (["log", "follow", "l"], "did you mean `bkctl log tail NAME --follow`?"),
        (["log", "edit", "l"], "did you mean `bkctl log create NAME --roll-after 1d`"),
        (["log", "create", "l", "--label", "a=b"], "a log has no custom metadata"),
        (["ledger", "read", "7-8"], "FIRST-LAST are entries: `bkctl ledger read LEDGER_ID 7-8`"),
        (["cluster", "backup", "f", "--keep", "7"], "| xargs -r rm --` keeps the last seven"),
        (["bookie", "quarantine"], "did you mean `bkctl bookie readonly BOOKIE_ID on`?"),
        (
            ["log", "trim", "orders"],
            "for example: `bkctl log trim orders --older-than 30d`",
        ),
        (
            ["ledger", "list", "--state", "underreplicated"],
            "`bkctl ledger list --bookie ID` lists all ledgers of a lost",
        ),
        (["topic", "export", "t", "--to", "f"], "for example: `bkctl topic export t f`"),
        (["disk", "ledger", "1", "2", "3"], "give one range: FIRST-LAST"),
        (["disk", "init", "d"], "unexpected argument: d; name the bookie by -c FILE"),
        (["ledger", "export", "--format", "jsonl"], "or `bkctl ledger read LEDGER_ID -o jsonl`?"),
        (["export", "5", "--format", "jsonl"], "`bkctl ledger read LEDGER_ID -o jsonl`"),
        (["cluster", "backup", "f", "--force"], "it never replaces a file: give another name"),
        (
            ["ledger", "list", "--underreplicated"],
            "`bkctl ledger list --bookie ID` lists all ledgers of a lost",
        ),
        (["ledger", "read", "7", "--count", "5"], "`bkctl ledger read LEDGER_ID 0-4` prints the"),
        (["cluster", "backup", "--to", "f"], "FILE is an argument: `bkctl cluster backup FILE`"),
        (["backup", "--to", "f"], "did you mean `bkctl cluster backup FILE`?"),
        (["config", "set", "gcWaitTime=1"], "no bookie is named; name a BOOKIE_ID first, or all"),
        (["bench", "--ensemble", "3"], "`bkctl bench write --ensemble N` measures adds"),
        (["ledger", "verify", "--bookie", "b:1"], "-o id | bkctl ledger verify -`"),
        (["entry", "show", "4", "57"], "or `bkctl ledger read LEDGER_ID ENTRY --bookie all`?"),
        (["ledger", "compare", "4", "57"], "mean `bkctl ledger read LEDGER_ID ENTRY --bookie all`"),
        (["ledger", "verify", "4", "--entry", "5"], "`bkctl ledger read LEDGER_ID ENTRY --bookie"),
        (["ledger", "lac", "7"], "did you mean `bkctl ledger map LEDGER_ID`?"),
        (["ledger", "show", "7", "--lac"], "`bkctl ledger map LEDGER_ID` asks the bookies"),
        (["autorecovery", "repair"], "did you mean `bkctl autorecovery audit`"),
        (["bookie", "config-set", "b1", "gcWaitTime", "1"], "write gcWaitTime=VALUE"),
        (["list"], "`bkctl ledger list` or `bkctl log list`"),
        (["ledger", "read", "1", "--frist", "2"], "--first"),
        (["ledger", "read"], "missing argument 'LEDGER_ID'"),
        (["local", "start", "/tmp", "--set", "a=b"], "`local start` takes no --set: it is for"),
        (["local", "stop", "/tmp", "--racks", "2"], "`local stop` takes no --racks: it is for"),
        (["ledger", "show", "3-12"], "'3-12' is not a ledger id; for a range: $(seq 3 12)"),
        (["ledger", "show", "abc"], "'abc' is not a ledger id; hexadecimal is written 0xabc"),
        (["ledger", "list", "-o", "xml"], "'xml' is not one of"),
        (["ledger", "list", "--watch", "5"], "unexpected argument: 5; write --watch=5"),
        (["ledger", "show", "--last"], "bkctl: no such option '--last'"),
        (["bookie", "list", "--columsn", "x"], "no such option '--columsn'; did you mean --co"),
        (["ledger", "list", "--orphans"], "`bkctl ledger orphans --keep-file FILE` lists unused"),
        (["local", "3", "--tls"], "`bkctl config show --for bookie tls jaas` explains the keys"),
        (["local", "3", "--password", "x"], "`bkctl config show --for bookie tls jaas` explains"),
        (["ledger", "list", "--tls"], "`bkctl config show tls jaas` explains the keys"),
        (["ledger", "unused"], "did you mean `bkctl ledger orphans --keep-file FILE`?"),
        (["ledger", "list", "--nope"], "no such option '--nope'; did you mean --no-pager?"),
        (["ledger", "list", "--stae", "open"], "no such option '--stae'; did you mean --state?"),
        (["ledger", "locate", "1"], "did you mean `bkctl ledger map LEDGER_ID`?"),
        (["metadata", "backup", "f"], "did you mean `bkctl cluster backup FILE`"),
        (["verify"], "did you mean `bkctl ledger verify --all`?"),
        (["bookie", "xverify"], "no such command 'xverify'; `bkctl bookie --help` shows how"),
        (["log", "append", "l", "--create"], "`bkctl log create NAME` creates the log"),
        (["log", "write", "l"], "did you mean `bkctl log append NAME` or `bkctl log create NAME`?"),
        (["log", "tail", "l", "100-110"], "`bkctl log tail NAME --from 0:100 | head -n 11`"),
        (["log", "trim", "l", "--cursor", "c"], "lowest position that `bkctl log cursors NAME`"),
        (["ledger", "head", "1"], "did you mean `bkctl ledger read LEDGER_ID 0-4`?"),
        (["ledger", "read", "1", "--head", "5"], "`bkctl ledger read LEDGER_ID 0-4` prints the"),
        (["topic", "read", "t"], "did you mean `bkctl topic peek TOPIC`?"),
        (["--zookeeper", "zk1:2181", "doctor"], "name the cluster by -u 'zk+hierarchical://HOST"),
        (["disk", "check", "--dir", "d"], "no such option '--dir'; name the directories as DIR"),
        (["ledger", "read", "1", "-o", "raw"], "use --raw; with --out FILE the bytes go to FILE"),
        (["ledger", "delete"], "`-` and the ids of `bkctl ledger list -o id` on stdin"),
        (["profile", "set", "dev"], "did you mean `bkctl profile edit NAME -X KEY=VALUE`?"),
        (["bookie", "find", "b:1"], "did you mean `bkctl bookie show BOOKIE_ID`"),
        (["cluster", "diff"], "did you mean `bkctl cluster restore FILE --force root --dry-run`"),
        (["cluster", "diff", "f"], "or `bkctl config diff FILE FILE`?"),
        (["cluster", "backup", "--diff", "f"], "` compares a backup with the cluster; `diff FILE"),
        (["ledger", "usage", "--by", "owner"], "`bkctl ledger list --columns custom.KEY,stored"),
        (["ledger", "map"], "name a ledger of `bkctl ledger list`; `bkctl cluster map` draws all"),
        (["ledger", "who", "1"], "did you mean `bkctl ledger map LEDGER_ID`"),
        (["ledger", "list", "--meta", "owner"], "--filter custom=KEY keeps ledgers with any"),
        (["ledger", "delete", "--filter", "a=b"], "ids of `bkctl ledger list --filter a=b -o id`"),
        (["bookie", "set-rack", "b:1", "/r"], "did you mean `bkctl explain rack` or `bkctl cluste"),
        (["cluster", "ping", "--fail-if", "p99>1ms"], "`bkctl bench write --fail-if 'p99>50ms'`"),
        (["config", "diff", "b:1", "b:2"], "`bkctl bookie config KEY` shows a setting of each"),
        (["export", "orders"], "`bkctl export --log NAME --to DIR` exports a log"),
        (["bookie", "bench"], "did you mean `bkctl bench write`"),
        (
            ["ledger", "top"],
            "did you mean `bkctl disk usage --ledgers -c FILE` or `bkctl ledger list",
        ),
        (["bookie", "gc"], "for all bookies: `bkctl bookie list -o id | xargs -n1 bkctl bookie gc"),
        (["ledger", "read", "7", "10", "14"], "give the range as FIRST-LAST, as in 10-14"),
        (["disk", "move", "a", "b"], "did you mean `bkctl cookie repair`?"),
        (["bookie", "restart", "b:1"], "`bkctl autorecovery disable --for 30m` or `bkctl bookie r"),
        (["cluster", "restart"], "mean `bkctl autorecovery disable --for 30m` or `bkctl bookie re"),
        (["rolling-restart"], "or `bkctl bookie ready BOOKIE_ID --until healthy`?"),
        (["ledger", "undelete", "3"], "mean `bkctl cluster restore FILE --ledger LEDGER_ID`?"),
        (["ledger", "restore", "3", "f"], "an `bkctl cluster restore FILE --ledger LEDGER_ID`?"),
        (["cluster", "undo"], "did you mean `bkctl cluster restore FILE`?"),
        (["bookie", "drain", "b:1"], "did you mean `bkctl bookie decommission BOOKIE_ID --drain`"),
        (["drain", "b:1"], "did you mean `bkctl bookie decommission BOOKIE_ID --drain`?"),
        (["decommission", "b:1", "b:2"], "name one bookie; decommission the next one after it"),
        (["bookie", "latency"], "did you mean `bkctl bookie slow` or `bkctl cluster ping --watch"),
        (["disk", "replace"], "did you mean `bkctl doctor -c FILE` or `bkctl explain BK-WRONG-I"),
        (["ledger", "list", "--no-writer"], "`bkctl doctor --open-for 1h` lists ledgers that are"),
        (["ledger", "list", "--fail-if-any"], "`-o json | jq -e '.ledgers == []'` ends with 1 if"),
        (["ledger", "recover", "--all"], "--older-than 1h -o id | bkctl ledger close -`"),
        (["bookie", "list", "--limit", "1"], "add `| head -n N`; --sort-by used:desc puts the"),
        (
            ["local", "start", "4", "--background"],
            "example: `bkctl local 3 --dir DIR --background`",
        ),
        (["disk", "owner", "d"], "did you mean `bkctl disk lock-status DIR`?"),
        (["ledger", "copy", "0"], "| bkctl -u URI ledger write - --length-prefixed`?"),
        (["autorecovery", "throttle"], "did you mean `bkctl config show replicationRateByBytes`?"),
        (["profile", "create", "p", "--tls-ca", "f"], "use --ca-file, --cert-file and --key-file"),
        (["ledger", "count"], "did you mean `bkctl ledger list --count`?"),
        (["ledger", "repair", "7"], "or `bkctl autorecovery audit --check all-ledgers`?"),
        (["cluster", "wait"], "did you mean `bkctl cluster status --until healthy`?"),
        (["ledger", "metadata", "7"], "did you mean `bkctl ledger show 7` or `bkctl ledger metada"),
        (["ledger", "list", "--larger-than", "1"], "'--larger-than'; use --filter 'length>10MB'"),
        (["ledger", "list", "--newer-than", "1h"], "'--newer-than'; use --filter 'created>1d' for"),
        (["ledger", "list", "--since", "today"], "use --filter 'created>1d' for ledgers of the"),
        (["ledger", "map", "3", "0-5"], "name one ENTRY; without ENTRY the command shows all"),
        (["usage"], "did you mean `bkctl ledger list --total` or `bkctl cluster map` or"),
        (["cluster", "usage"], "did you mean `bkctl cluster map` or `bkctl ledger list --total`?"),
        (["disk", "entrylog", "1", "--ledgers"], "no such option '--ledgers'; use --summary"),
        (["doctor", "--brief"], "no such option '--brief'; use -q: it prints only results and"),
        (
            ["ledger", "read", "7", "--tail", "5"],
            "`bkctl ledger tail LEDGER_ID -n 5` prints the last",
        ),
        (
            ["ledger", "delete", "--meta", "app=a"],
            "use `bkctl ledger list --meta KEY=VALUE -o id | bkctl ledger delete -`",
        ),
        (["disk", "ledger", "1", "x"], "'x' is not a range of entries; try 5, 5-9 or 5-"),
        (["local", "--detach"], "no such option '--detach'; `bkctl local --help` shows how"),
        (["ledger", "read", "0", "--last"], "; `bkctl ledger read --help` shows how"),
    ],
)
def test_wrong_usage_ends_with_2_and_says_what_was_perhaps_meant(
    args: list[str], said: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert cli.run(args) == ExitStatus.USAGE
    err = capsys.readouterr().err
    assert said in err
    assert err.count("\n") == 1


def test_wrong_usage_is_json_where_json_was_asked_for(capsys: pytest.CaptureFixture[str]) -> None:
    for args in (["--json", "ledgr"], ["ledger", "show", "x", "-o", "json"], ["nope", "-ojson"]):
        assert cli.run(args) == ExitStatus.USAGE
        told = json.loads(capsys.readouterr().err)
        assert told["name"] == "BK-USAGE"
        assert told["code"] == 2


def test_wrong_usage_is_json_where_the_environment_asks_for_it(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    def told(*args: str) -> str:
        assert cli.run(["ledger", "raed", *args]) == ExitStatus.USAGE
        return capsys.readouterr().err

    monkeypatch.setenv("BKCTL_OUTPUT", "jsonl")
    assert json.loads(told())["code"] == 2
    assert told("-o", "table").startswith("bkctl: ")
    monkeypatch.setenv("BKCTL_OUTPUT", "csv")
    assert told().startswith("bkctl: ")
    monkeypatch.setenv("BKCTL_JSON", "1")
    assert json.loads(told())["code"] == 2


def test_no_arguments_at_all_print_help(capsys: pytest.CaptureFixture[str]) -> None:
    assert cli.run([]) == ExitStatus.DONE
    printed = capsys.readouterr()
    assert "\n  demo " in printed.out
    assert printed.err == ""


def test_without_a_cluster_the_error_says_how_to_name_one() -> None:
    status, out, err = _run("ledger", "list")
    assert (status, out) == (ExitStatus.USAGE, "")
    assert "give -u URI, -c FILE or --profile NAME, set BKCTL_SERVICE_URI, or start one" in err


def test_an_error_is_one_json_object_with_a_hint() -> None:
    status, out, err = _run("--json", "ledger", "show", "7", "-u", "sqlite:///nowhere/at/all.db")
    assert (status, out) == (ExitStatus.UNREACHABLE, "")
    told = json.loads(err)
    assert told["schema"] == 1
    assert told["object"] == "ledger 7"
    assert told["code"] == ExitStatus.UNREACHABLE
    assert told["name"].startswith("BK-")
    assert told["hint"]


def test_an_uri_that_means_nothing_is_wrong_usage() -> None:
    status, _, err = _run("ledger", "list", "-u", "redis://localhost")
    assert status == ExitStatus.USAGE
    assert "is not a metadata service URI" in err


def test_an_unknown_override_is_named_with_the_nearest_key() -> None:
    _, _, err = _run("ledger", "list", "-u", "sqlite:///nowhere.db", "-X", "readTimeuot=3")
    assert "did you mean readTimeout" in err
    status, _, err = _run("ledger", "list", "-u", "sqlite:///nowhere.db", "-X", "readTimeout")
    assert status == ExitStatus.USAGE
    assert "not KEY=VALUE" in err


def test_a_settings_file_names_the_cluster_and_the_flag_wins(tmp_path) -> None:
    conf = tmp_path / "bk_server.conf"
    conf.write_text("metadataServiceUri=sqlite:///from/file.db\nbookiePort=3181\n")
    status, _, err = _run("-c", str(conf), "ledger", "list")
    assert status == ExitStatus.UNREACHABLE
    assert "/from" in err
    assert "bookiePort" not in err
    _, _, err = _run("-c", str(conf), "-u", "sqlite:///other/flag.db", "ledger", "list")
    assert "/other" in err
    status, _, err = _run("-c", str(tmp_path / "missing"), "ledger", "list")
    assert status == ExitStatus.NOT_FOUND
    assert "missing" in err


def test_a_bug_is_called_one_and_shows_where_only_when_asked() -> None:
    def broken(uri: str, config: object) -> Any:
        raise ZeroDivisionError("boom")

    for verbose, expected in (([], False), (["-v"], True)):
        host = FakeHost()
        host._connect = broken
        status = cli.run(["ledger", "list", "-u", "sqlite:///x", *verbose], host)
        assert status == ExitStatus.FAILED
        assert "ZeroDivisionError: boom; this is a bug" in host.err.text
        assert ("Traceback" in host.err.text) == expected


def test_a_process_that_gets_no_thread_is_no_bug() -> None:
    report = describe(RuntimeError("can't start new thread"), None)
    assert (report.status, report.hint) == (1, MORE_THREADS)
    assert report.message == "the process can start no more threads"


def test_a_command_knows_its_own_line_to_be_repeated() -> None:
    host = FakeHost()
    with cli.make_context("bkctl", ["ledger", "list"], obj=host) as ctx:
        options_of(ctx).args = ("ledger", "delete", "a b")
        with pytest.raises(Exception, match="no cluster is named"):
            cli.invoke(ctx)
        assert ctx.meta[SESSION_META].options.again("--yes") == "bkctl ledger delete 'a b' --yes"


@pytest.mark.parametrize(
    "line",
    [
        "-c {none} bookie list", "shell {none}", "ledger create --password-file {none}",
        "profile import {none}", "disk check -c {none}",
        "bookie state b:1 --http a:1 --token-file {none}",
        "ledger write {none}", "cookie create b:1 --file {none}", "config check {none}",
        "cluster backup {none}/file",
    ],
)  # fmt: skip
def test_a_file_that_is_named_and_missing_is_not_found_and_named_once(
    tmp_path: Path, line: str, capsys: pytest.CaptureFixture[str]
) -> None:
    none = str(tmp_path / "none")
    uri = f"sqlite:///{tmp_path}/metadata.db"
    assert _run("-u", uri, "cluster", "init", "-y")[0] == 0
    status, _, err = _run("-u", uri, *line.format(none=none).split())
    err += capsys.readouterr().err  # The shell's own: it has no session.
    assert (status, err.count(none)) == (ExitStatus.NOT_FOUND, 1), err
