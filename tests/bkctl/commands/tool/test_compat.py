"""Java's commands, by their names and options: each is known, and each becomes one of ours."""

from __future__ import annotations

import json
import os
import shlex
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import click
import pytest

from bkctl.cli.root import cli
from bkctl.commands.local.cluster import LocalCluster
from bkctl.commands.tool.compat import shell_globals, translate
from bkctl.commands.tool.java_command_table import (
    BKCTL,
    ELSEWHERE,
    LAUNCHER,
    ROWS,
    SHELL,
    JavaOption,
    Row,
)
from bkctl.errors import RefusedError
from bkctl.exit_status import ExitStatus
from tests.bkctl.support.terminal import FakeHost

JAVA: dict[str, list[str]] = json.loads(
    (Path(__file__).parents[3] / "vectors" / "java_commands.json").read_text()
)
"""Every command of Java's shell and bkctl and its options, as Java's classes tell them."""

SAMPLES = {"ID": "7", "N": "5", "POSITION": "100", "MS": "1500", "SECONDS": "3", "BYTES": "1000",
           "true|false": "true", "hostname|ip": "ip", "[force]": "force", "ID,...": "7,8",
           "DIR,...": "/a,/b", "TEXT": "pw"}  # fmt: skip
JAVA_REQUIRES = {"cf"}
OF_BOOKIES = {"bookie", "bookieid", "mr", "emr", "sb", "db", "bs", "f", "t", "b"}


def sample(row: Row, option: JavaOption) -> str:
    if option.value == "ID" and OF_BOOKIES & set(option.names):
        return "127.0.0.1:3181"
    if option.value == "FORMAT":
        return "hex"
    if option.name == "f" and option.value == "FILE":
        return "1a.txn" if "journal" in row.java else "1a.log"
    return SAMPLES.get(option.value, "file")


def arguments(row: Row) -> list[str]:
    if "recover" in row.java or "cookie" in row.java:
        return ["127.0.0.1:3181"]
    return [SAMPLES["N"]] if row.arguments else []


def java_lines(row: Row) -> Iterator[list[str]]:
    """Yield command lines that have each form and each option of a Java command once."""
    gaps = {option.name: [f"-{option.name}", *([sample(row, option)] if option.value else [])]
            for option in row.options}  # fmt: skip
    for asked, form in row.forms:
        needed = [n for n in gaps if f"{{{n}}}" in form or n in {asked, *JAVA_REQUIRES}]
        base = [word for name in needed for word in gaps[name]]
        named = [one for one, _ in row.forms if one]
        more = [name for name in gaps if name not in needed and name not in named]
        yield [*row.java.split(), *base, *arguments(row)]
        yield [*row.java.split(), *base, *(w for n in more for w in gaps[n]), *arguments(row)]
    if "{2?}" in row.forms[-1][1]:
        yield [*row.java.split(), *arguments(row), "127.0.0.2:3181"]


def missing_from_tree(words: list[str]) -> str:
    """Parse a command line down to its command; return what the tree lacks, or nothing."""
    command: click.Command = cli
    ctx = cli.make_context("bkctl", list(words))
    path: list[str] = []
    while isinstance(command, click.Group):
        rest = [*(getattr(ctx, "_protected_args", None) or ctx.protected_args), *ctx.args]
        name = rest[0]
        path.append(name)
        if command.get_command(ctx, name) is None:
            return " ".join(path)
        _, found, rest = command.resolve_command(ctx, rest)
        assert found is not None
        try:
            command, ctx = found, found.make_context(name, rest, parent=ctx)
        except click.NoSuchOption as error:
            return " ".join([*path, error.option_name.split("=")[0]])
    return ""


# The table -------------------------------------------------------------------------------------


def test_every_command_of_java_is_known() -> None:
    known = set(ROWS) | {"help"}
    assert set(JAVA) <= known
    assert {row.java for row in BKCTL} - set(JAVA) == {"bookieid searchreplace"}
    of_shell = {row.java for row in SHELL if not row.java.startswith("cookie_")}
    assert of_shell | {"help"} == {name for name in JAVA if " " not in name}


@pytest.mark.parametrize("name", JAVA)
def test_every_option_of_java_is_known(name: str) -> None:
    if name == "help":
        return
    known = {spelled for option in ROWS[name].options for spelled in option.names}
    assert set(JAVA[name]) - known <= {"h", "help"}


@pytest.mark.parametrize("name", [name for name in JAVA if name.startswith("cookie ")])
def test_the_shell_has_the_cookie_commands_under_names_of_their_own(name: str) -> None:
    if name != "cookie admin":
        assert ROWS[name.replace(" ", "_")].options == ROWS[name].options


def test_no_option_is_known_twice() -> None:
    for row in ROWS.values():
        names = [spelled for option in row.options for spelled in option.names]
        assert len(names) == len(set(names)), row.java


def test_every_option_becomes_something_or_says_why_not() -> None:
    for row in ROWS.values():
        gaps = " ".join(f"{asked} {form}" for asked, form in row.forms)
        for option in row.options:
            used = f"{{{option.name}" in gaps or option.name in gaps.split()
            ours = {"g"}  # `autorecovery delay` without a time gets it.
            assert option.to or option.why or used or option.name in ours, (row.java, option)


def test_every_line_it_makes_can_be_parsed_by_the_tree() -> None:
    lacking = {}
    for row in ROWS.values():
        for java in java_lines(row):
            lack = missing_from_tree(translate(java))
            if lack:
                lacking[lack] = row.java
    assert lacking == {}


def test_what_is_nowhere_says_what_to_do_instead() -> None:
    for one in ELSEWHERE:
        with pytest.raises(click.UsageError) as refused:
            translate(one.java.replace("CLASS", "org.example.Main").split())
        if "CLASS" not in one.java:
            assert refused.value.message == f"{one.java}: {one.instead}"


# Lines -----------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("java", "ours"),
    [
        ("listbookies -rw", "bookie list --state rw"),
        ("readledger -l 3 -fe 0 -le 9", "ledger read 3 --first 0 --last 9"),
        ("readledger --ledgerid=3 -lastentryid -1", "ledger read 3"),
        ("metaformat -nonInteractive -force", "cluster format --no-input --yes"),
        ("metaformat -n", "cluster format --no-input"),
        ("bookies metaformat nonInteractive", "cluster format --no-input"),
        ("recover a:1,b:2 -q", "bookie recover a:1 b:2 --query"),
        ("recover a:1 c:3 -f", "bookie recover a:1 --to=c:3 --yes"),
        ("autorecovery -enable -disable", "autorecovery enable"),
        ("autorecovery", "autorecovery status"),
        ("autorecovery toggle", "autorecovery disable"),
        ("ledger -m 5", "disk index 5 --meta"),
        ("ledger show -l 5", "ledger show 5"),
        ("ledgermetadata -l 5 -restorefromfile f -update",
         "ledger metadata restore 5 f --replace"),
        ("lostbookierecoverydelay -s 0", "autorecovery delay 0"),
        ("readlog 26", "disk entrylog 26"),
        ("readlogmetadata 1a", "disk entrylog 0x1a --summary"),
        ("readlogmetadata 1a.log", "disk entrylog 1a.log --summary"),
        ("activeledgers -l 3 -t 1500", "disk entrylog 3 --live --timeout 1.5"),
        ("simpletest", "cluster test -n 1000"),
        ("ledger simpletest", "cluster test -n 100"),
        ("updatecookie -d", "cookie delete --local"),
        ("updatecookie -delete force", "cookie delete --local --yes"),
        ("updateBookieInLedger -sb a:1 -db b:2 -v false", "bookie rename a:1 b:2"),
        ("cookie_generate -j /a,/b -l /c -o f x:1",
         "cookie generate x:1 --journal-dir /a --journal-dir /b --ledger-dir /c --out f"),
        ("bookkeeper shell listledgers -m", "ledger list --output wide"),
        ("listledgers --json --timeout 5", "ledger list --json --timeout 5"),
        ("help readledger", "ledger read --help"),
        ("listledgers -help", "ledger list --help"),
        ("upgrade --rollback", "disk upgrade --rollback"),
    ],
)  # fmt: skip
def test_a_java_line_becomes_ours(java: str, ours: str) -> None:
    assert shlex.join(translate(shlex.split(java))) == ours


@pytest.mark.parametrize(
    ("java", "said"),
    [
        ("readledgr -l 3", "did you mean `readledger`"),
        ("readledger -ledgerd 3", "did you mean -ledgerid"),
        ("listfilesondisc -txn -c f", "`bkctl -c FILE compat listfilesondisc ...`"),
        ("readledger", "needs -l"),
        ("readledger -l", "-l needs a value"),
        ("ledger", "needs ID"),
        ("updatecookie", "needs one of -b, -e, -l, -d"),
        ("bookie listledger", "did you mean"),
    ],
)
def test_a_line_that_java_would_not_take_either_is_wrong_usage(java: str, said: str) -> None:
    with pytest.raises(click.UsageError, match=said):
        translate(shlex.split(java))


def test_what_has_no_counterpart_is_told() -> None:
    told: list[str] = []
    assert translate(["updateledgers", "-b", "ip", "-r", "20"], told.append) == [
        "bookie", "rename", "ip",
    ]  # fmt: skip
    (line,) = told
    assert line.startswith("bkctl: -r is not needed here: ledgers are read")


def test_the_options_of_the_shell_itself_stand_before_the_command() -> None:
    line = ["-conf", "f", "-ledgeridformat", "hex", "-entryformat", "string", "listledgers", "-m"]
    ours, rest = shell_globals(line, {})
    assert ours == ["--conf", "f", "--ledger-id-format", "hex", "--entry-format", "string"]
    assert rest == ["listledgers", "-m"]


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can give a directory away")
def test_the_settings_of_a_local_bookie_are_not_taken_from_another_user(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    configs = tmp_path / "configs"
    configs.mkdir()
    (configs / "baseconf.conf").write_text("networkTopologyScriptFileName=/tmp/script\n")
    os.chown(configs, 65534, 65534)
    with closing(FakeHost(environ={"LOCALBOOKIES_CONFIG_DIR": str(configs)})) as host:
        words = ["compat", "-localbookie", "listbookies", "-rw"]
        assert cli.run(words, host) == ExitStatus.REFUSED
    assert "configs belongs to user 65534" in capsys.readouterr().err
    with pytest.raises(RefusedError, match="configs belongs to user 65534"):
        LocalCluster(tmp_path / "bk", 1).write_configs(configs)


def test_a_local_bookie_is_found_by_the_file_that_it_left() -> None:
    ours, rest = shell_globals(["-localbookie", "h:3181", "lastmark"], {})
    assert (ours, rest) == (["--conf", "/tmp/localbookies-config/h:3181.conf"], ["lastmark"])
    ours, _ = shell_globals(["-localbookie", "lastmark"], {"LOCALBOOKIES_CONFIG_DIR": "/d"})
    assert ours == ["--conf", "/d/baseconf.conf"]


# Runs ------------------------------------------------------------------------------------------


def test_it_prints_the_line_and_ends_as_that_command() -> None:
    host, uri = FakeHost(), "sqlite:///nowhere/x.db"
    status = cli.run(["-u", uri, "compat", "ledgermetadata", "-l", "3", "--json"], host)
    assert status == ExitStatus.UNREACHABLE
    said, error = host.err.text.splitlines()
    assert said == f"bkctl ledger show 3 --json --service-uri {uri}"
    assert json.loads(error)["object"] == "ledger 3"


def test_only_the_options_that_were_typed_are_repeated(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("BKCTL_SERVICE_URI", "sqlite:///nowhere/x.db")
    host = FakeHost()
    assert cli.run(["--json", "compat", "-q", "listledgers"], host) == ExitStatus.UNREACHABLE
    assert host.err.text.splitlines()[0] == "bkctl ledger list --output json --quiet"


def test_launcher_commands_are_there() -> None:
    assert {row.java for row in LAUNCHER} == {"localbookie", "standalone", "zookeeper", "upgrade"}
