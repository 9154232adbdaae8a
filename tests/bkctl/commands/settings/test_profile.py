"""Profiles: what they say, where they give way, and how their file is kept."""

from __future__ import annotations

import json
import stat
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from bkctl.bookies.http.bookie_settings import BookieSetting
from bkctl.cli.root import cli
from bkctl.commands.settings.profile_file import with_default, with_profile, without_profile
from bkctl.commands.tool.shell_program import ShellHost, ShellProgram
from bkctl.errors import CommandError, NothingFoundError, UsageError
from bkctl.exit_status import Effect, ExitStatus
from bkctl.global_options import Options
from bkctl.session.cluster_settings import cluster_settings
from bkctl.session.interrupt import Interrupts
from bkctl.session.profiles import (
    Profile,
    parse_profiles,
    profile_path,
    read_profiles,
    resolve_profile,
    take_profile,
    use_profile,
)
from bkctl.session.session import Session
from tests.bkclient.worlds import World
from tests.bkctl.support.terminal import FakeHost
from tests.bkctl.support.world import WorldHost
from wire.ids import BookieId

FILE = """\
# Ours.
profile = "lab"  # the harmless one

[profiles.lab]
service-uri = "sqlite:///lab.db"

[profiles.prod]
# Ask before touching.
service-uri = "zk+hierarchical://a,b/ledgers"
production = true
output = "jsonl"

[profiles.prod.client]
readTimeout = 9   # far away
"""

Run = Callable[..., tuple[int, str, str]]


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "new" / "config.toml"


@pytest.fixture
def environ(path: Path) -> dict[str, str]:
    return {"BKCTL_CONFIG": str(path)}


@pytest.fixture
def run(environ: dict[str, str]) -> Run:
    def run(*args: str, typed: str = "", tty: bool = False) -> tuple[int, str, str]:
        host = FakeHost(typed, tty=tty, environ=environ)
        return cli.run(args, host), host.out.text, host.err.text

    return run


@pytest.fixture
def two(path: Path) -> Path:
    path.parent.mkdir()
    path.write_text(FILE)
    path.chmod(0o600)
    return path


def _options(**given: Any) -> Options:
    options = Options()
    for name, value in given.items():
        setattr(options, name, value)
    return options


# Which one counts --------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("given", "name"),
    [
        ({}, "lab"),
        ({"profile": "prod"}, "prod"),
        ({"profile": "none"}, None),
        ({"service_uri": "sqlite:///x"}, None),
        ({"conf": "x.conf"}, None),
        ({"profile": "prod", "conf": "x.conf"}, "prod"),
    ],
)
@pytest.mark.usefixtures("two")
def test_a_default_gives_way_to_whatever_names_a_cluster(
    environ: dict[str, str], given: dict[str, Any], name: str | None
) -> None:
    found = resolve_profile(_options(**given), environ)
    assert (found and found.name) == name


@pytest.mark.usefixtures("two")
def test_flags_and_the_environment_come_before_the_profile_and_the_file_after_it(
    environ: dict[str, str], tmp_path: Path
) -> None:
    conf = tmp_path / "bk.conf"
    conf.write_text("metadataServiceUri=sqlite:///file.db\nreadTimeout=1\nthrottle=77\n")

    def found(environment: dict[str, str] | None = None, **given: Any) -> tuple[str, float, int]:
        options = _options(profile="prod", conf=str(conf), **given)
        settings = cluster_settings(options, {**environ, **(environment or {})})
        return settings.uri, settings.config.read_timeout_s, settings.config.requests_per_s_max

    uri = "zk+hierarchical://a,b/ledgers"
    assert found() == (uri, 9, 77)
    assert found({"BK_readTimeout": "8"}) == (uri, 8, 77)
    assert found({"BK_readTimeout": "8"}, overrides=("readTimeout=7",)) == (uri, 7, 77)
    assert found(service_uri="sqlite:///flag.db")[0] == "sqlite:///flag.db"


@pytest.mark.usefixtures("two")
def test_an_idle_writer_publishes_its_last_entry_unless_a_setting_says_otherwise(
    environ: dict[str, str],
) -> None:
    def interval_ms(*overrides: str) -> int:
        options = _options(profile="prod", overrides=overrides)
        return cluster_settings(options, environ).config.explicit_lac_interval_ms

    assert interval_ms() == 500
    assert interval_ms("explicitLacInterval=0") == 0
    assert interval_ms("explicitLacInterval=70") == 70


@pytest.mark.usefixtures("two")
def test_a_profile_says_the_form_of_results_unless_a_flag_does(environ: dict[str, str]) -> None:
    for given, output in (({}, "jsonl"), ({"output": "csv"}, "csv")):
        options = _options(profile="prod", **given)
        use_profile(options, environ)
        use_profile(options, environ)
        assert options.output == output
        assert options.is_of_profile("output") == (not given)
    assert options.used_profile is not None


def test_its_files_for_tls_are_keys_of_java() -> None:
    keys = Profile(name="x", tls={"ca-file": "/ca.pem", "key-file": "/k.pem"}).keys
    assert (keys["clientTrustStore"], keys["clientTrustStoreType"]) == ("/ca.pem", "PEM")
    assert (keys["clientKeyStore"], keys["clientKeyStoreType"]) == ("/k.pem", "PEM")
    assert "TLSContextFactory" in keys["tlsProviderFactoryClass"]
    assert Profile(name="x").keys == {}


def test_an_unknown_profile_is_not_found_and_the_nearest_is_named(run: Run, two: Path) -> None:
    status, _, err = run("--profile", "prd", "ledger", "list", "--json")
    assert status == ExitStatus.NOT_FOUND
    assert f"there is no profile 'prd' in {two}; did you mean prod?" in json.loads(err)["error"]


def test_a_profile_file_that_was_removed_is_named_with_the_variables_to_unset(
    run: Run, two: Path
) -> None:
    two.unlink()
    status, _, err = run("--profile", "prod", "ledger", "list")
    assert status == ExitStatus.NOT_FOUND
    assert f"{two}: no such file" in err
    assert "unset BKCTL_CONFIG BKCTL_PROFILE BKCTL_SERVICE_URI" in err


@pytest.mark.parametrize(
    ("environ", "found"),
    [
        ({"BKCTL_CONFIG": "/a.toml", "HOME": "/h"}, "/a.toml"),
        ({"XDG_CONFIG_HOME": "/x", "HOME": "/h"}, "/x/bkctl/config.toml"),
        ({"HOME": "/h"}, "/h/.config/bkctl/config.toml"),
    ],
)
def test_the_file_is_in_the_usual_place(environ: dict[str, str], found: str) -> None:
    assert str(profile_path(environ)) == found
    assert profile_path({}) is None


@pytest.mark.usefixtures("nameless")
def test_a_path_in_the_home_of_nobody_stays_as_it_is() -> None:
    assert profile_path({"BKCTL_CONFIG": "~/a.toml"}) == Path("~/a.toml")


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("x = ", "Invalid value"),
        ("[profile.a]", "profile is not a string"),
        ("[profiles.a]\nserviceuri = 'x'", "no profiles.a.serviceuri; did you mean service-uri?"),
        ("[profiles.a]\nproduction = 'yes'", "is not a boolean"),
        ("[profiles.a]\noutput = 'xml'", "'xml' is not one of table"),
        ("[profiles.a.tls]\nca = 'x'", "no profiles.a.tls.ca"),
        ("[profiles.a.client]\nx = {}", "profiles.a.client.x is not a string"),
        ("profiles = 3", "profiles is not a table"),
        ("x = " + "[" * 100_000, "nested too deep"),
    ],
)
def test_what_no_profile_can_say_is_named(text: str, said: str) -> None:
    with pytest.raises(UsageError, match=said.replace("(", r"\(")) as caught:
        parse_profiles(text, Path("c.toml"))
    assert str(caught.value).startswith("c.toml: ")


def test_a_file_without_an_end_is_refused() -> None:
    with pytest.raises(UsageError, match="/dev/zero: more than"):
        read_profiles({"BKCTL_CONFIG": "/dev/zero"})


# The file ----------------------------------------------------------------------------------------


def _parsed(text: str = FILE) -> Any:
    return parse_profiles(text, Path("c.toml"))


def test_a_change_leaves_comments_and_everything_else_alone() -> None:
    file = _parsed()
    prod = file.profiles["prod"]
    changed = with_profile(file, Profile(**{**_fields(prod), "output": "csv"}))
    assert changed == FILE.replace('"jsonl"', '"csv"')
    assert with_profile(file, prod) == FILE
    assert with_default(file, "prod") == FILE.replace('profile = "lab"', 'profile = "prod"')


def _fields(profile: Profile) -> dict[str, Any]:
    return {name: getattr(profile, name) for name in profile.__slots__ if name != "__weakref__"}


def test_a_new_profile_comes_last_and_can_be_taken_out_again() -> None:
    file = _parsed()
    new = Profile(name="a.b", service_uri='x"y\\z', tls={"ca-file": "ü"}, client={"throttle": "1"})
    text = with_profile(file, new)
    assert text.startswith(FILE)
    assert '[profiles."a.b".tls]' in text
    assert _parsed(text).profiles["a.b"] == new
    assert without_profile(_parsed(text), "a.b").rstrip() == FILE.rstrip()


def test_the_default_goes_with_its_profile() -> None:
    left = _parsed(without_profile(_parsed(), "lab"))
    assert (left.default, list(left.profiles)) == (None, ["prod"])


@pytest.mark.parametrize(
    "text",
    [
        'profile = """\na"""\n[profiles.a]\n',
        'profiles.a.service-uri = "x"\n[shell]\nbar = true\n',
        "",
    ],
)
def test_a_file_in_other_forms_can_be_changed(text: str) -> None:
    file = _parsed(text)
    new = Profile(name="a", service_uri="y", tls={"ca-file": "c"}, client={"throttle": "1"})
    changed = _parsed(with_profile(file, new))
    assert changed.profiles == {**file.profiles, "a": new}
    assert (changed.default, changed.shell) == (file.default, file.shell)
    assert _parsed(with_default(changed, "a")).default == "a"
    left = _parsed(without_profile(_parsed(with_default(changed, "a")), "a"))
    assert (left.default, left.shell) == (None, file.shell)
    assert left.profiles == {name: one for name, one in file.profiles.items() if name != "a"}


@pytest.mark.parametrize(
    "text",
    [
        'profiles = {a = {service-uri = "x"}}\n',
        '[profiles]\na.conf = "c"\n[profiles.b]\noutput = "csv"\n',
    ],
)
def test_a_form_that_the_library_would_break_is_left_to_the_files_owner(text: str) -> None:
    new = Profile(name="a", service_uri="y", tls={"ca-file": "c"}, client={"throttle": "1"})
    with pytest.raises(CommandError, match="cannot change"):
        with_profile(_parsed(text), new)


# Commands ----------------------------------------------------------------------------------------


def test_profiles_are_made_used_changed_and_deleted(
    run: Run, path: Path, environ: dict[str, str]
) -> None:
    made = run("profile", "create", "lab", "-u", "sqlite:///l.db", "-X", "throttle=3", "--use")
    told = "profile lab is the default now\n"
    assert made == (0, f"profile lab created ({path})\n", told)
    assert stat.S_IMODE(path.stat().st_mode) == 0o600
    assert stat.S_IMODE(path.parent.stat().st_mode) == 0o700
    assert path.read_text().startswith("# For bkctl.")
    assert run("profile", "create", "lab", "-u", "x")[0] == ExitStatus.CONFLICT
    assert run("profile", "edit", "lab", "--production", "--unset", "throttle")[0] == 0
    found = json.loads(run("profile", "show", "--json")[1])
    assert (found["profile"], found["default"], found["production"]) == ("lab", True, True)
    assert found["client"] == {}
    assert "client" not in run("profile", "show", "lab")[1]
    edited = run("profile", "edit", "lab", "-X", "throttle=3", "-X", "addEntryTimeoutSec=5")
    assert edited[0] == 0
    assert "throttle=3 addEntryTimeoutSec=5" in run("profile", "show", "lab")[1]
    assert run("profile", "use", "none")[0] == 0
    assert run("profile", "show")[0] == ExitStatus.NOT_FOUND
    refused = run("profile", "delete", "lab")
    assert (refused[0], "--yes" in refused[2]) == (ExitStatus.REFUSED, True)
    assert run("profile", "delete", "lab", typed="y\n", tty=True)[0] == 0
    assert read_profiles(environ).profiles == {}


def test_variables_that_override_the_default_profile_are_named(
    run: Run, environ: dict[str, str], monkeypatch: pytest.MonkeyPatch
) -> None:
    unset = "in this shell; to use the default: unset"
    both = f"BKCTL_PROFILE and BKCTL_SERVICE_URI override the default profile {unset}"
    one = f"BKCTL_SERVICE_URI overrides the default profile {unset} BKCTL_SERVICE_URI\n"
    for name, text in (("BKCTL_PROFILE", "local"), ("BKCTL_SERVICE_URI", "sqlite:///l.db")):
        monkeypatch.setenv(name, text)  # What click reads.
        environ[name] = text
    made = run("profile", "create", "lab", "-c", __file__, "--use")
    assert (made[0], both in made[2]) == (0, True), made[2]
    assert run("profile", "create", "local", "-c", __file__)[2] == ""
    assert run("profile", "use", "lab")[2].endswith(f"{both} BKCTL_PROFILE BKCTL_SERVICE_URI\n")
    assert run("profile", "use", "local")[2] == f"bkctl: warning: {one}"
    monkeypatch.delenv("BKCTL_SERVICE_URI")
    assert run("profile", "use", "local")[2] == ""


@pytest.mark.usefixtures("two")
def test_a_dry_run_writes_nothing(run: Run, two: Path) -> None:
    for args in (
        ("create", "new", "-u", "sqlite:x"),
        ("use", "prod"),
        ("edit", "lab", "--production"),
        ("delete", "lab"),
        ("import", str(two), "--replace"),
    ):
        status, out, _ = run("profile", *args, "--dry-run")
        assert (status, out[:6]) == (0, "would "), args
    assert two.read_text() == FILE


@pytest.mark.parametrize("uri", ["127.0.0.1:2181", "zk://127.0.0.1:2181", "zk+x://a/b"])
def test_a_uri_that_no_command_could_use_is_refused(run: Run, two: Path, uri: str) -> None:
    wanted = run("ledger", "list", "-u", uri)
    assert run("profile", "create", "new", "-u", uri) == wanted
    assert run("profile", "edit", "lab", "-u", uri) == wanted
    assert wanted[0] == ExitStatus.USAGE
    assert two.read_text() == FILE


def test_what_cannot_be_a_profile_is_wrong_usage(run: Run) -> None:
    for args, said in (
        (("create", "none", "-u", "x"), "is not a valid name"),
        (("create", "a b", "-u", "x"), "is not a valid name"),
        (("create", "a"), "no cluster is named"),
        (("create", "a", "-u", "sqlite:x", "-X", "readTimeot=1"), "did you mean readTimeout?"),
        (("edit", "--production"), "no profile is named"),
    ):
        status, _, err = run("profile", *args)
        assert (status, said in err) == (ExitStatus.USAGE, True), (args, err)


@pytest.mark.usefixtures("two")
def test_what_a_profile_does_not_say_cannot_be_taken_out(run: Run) -> None:
    assert run("profile", "edit", "lab", "--unset", "output")[0] == ExitStatus.NOT_FOUND
    assert run("profile", "edit", "lab", "--unset", "name")[0] == ExitStatus.NOT_FOUND


def test_profiles_of_others_and_settings_files_can_be_taken_over(
    run: Run, two: Path, tmp_path: Path, environ: dict[str, str]
) -> None:
    other = tmp_path / "team.toml"
    other.write_text(FILE.replace("profiles.lab", "profiles.qa").replace("a,b", "c"))
    taken = run("profile", "import", str(other))
    assert (taken[0], "'prod' already" in taken[2]) == (ExitStatus.CONFLICT, True)
    assert run("profile", "import", str(other), "--as", "team")[0] == ExitStatus.USAGE
    assert run("profile", "import", str(other), "--name", "qa", "--as", "team")[0] == 0
    assert "team" in read_profiles(environ).profiles
    assert run("profile", "delete", "team", "--yes")[0] == 0
    assert run("profile", "import", str(other), "--name", "qa")[0] == 0
    assert run("profile", "import", str(other), "--replace")[0] == 0
    conf = tmp_path / "bk_server.conf"
    conf.write_text("metadataServiceUri=zk+null://z1;z2/l\nthrottle=8\nbookiePort=1\n")
    assert run("profile", "import", str(conf), "--name", "old")[0] == 0
    found = read_profiles(environ).profiles
    assert list(found) == ["lab", "prod", "qa", "old"]
    assert found["prod"].service_uri == "zk+hierarchical://c/ledgers"
    assert found["old"] == Profile(
        name="old", service_uri="zk+null://z1;z2/l", client={"throttle": "8"}
    )
    empty = tmp_path / "empty.conf"
    empty.write_text("bookiePort=1\n")
    assert run("profile", "import", str(empty))[0] == ExitStatus.USAGE
    assert "# Ask before touching." in two.read_text()


def test_a_file_that_others_can_read_is_warned_about_once(run: Run, two: Path) -> None:
    two.chmod(0o644)
    assert run("profile", "list")[2] == (
        f"bkctl: warning: {two} can be read by others; chmod 600 {two}\n"
    )
    assert run("ledger", "list", "-u", "sqlite:///nowhere/x")[2].count("warning") == 0


@pytest.mark.usefixtures("two")
def test_on_a_production_cluster_a_question_says_so(environ: dict[str, str]) -> None:
    host = FakeHost("y\n", tty=True, environ=environ)
    session = Session(host, _options(profile="prod"), Effect.FENCES, Interrupts())
    take_profile(session.options, session.host.environ, session.messages)
    session.confirm(["ledger 7: open"], "Fence it?")
    assert host.err.text.startswith("profile prod is marked production\nledger 7: open\n")


def test_the_shells_prompt_names_the_profile(environ: dict[str, str], two: Path) -> None:
    program = ShellProgram(cli, ShellHost(environ=environ))
    assert program.where([]) == ("lab", "")
    assert program.where(["--profile", "prod"]) == ("prod", "production")
    assert program.where(["--profile", "gone"]) == ("", "")
    two.unlink()
    assert program.where([]) == ("", "")


@pytest.mark.usefixtures("two")
def test_a_file_is_edited_by_hand_and_checked(
    environ: dict[str, str], two: Path, tmp_path: Path
) -> None:
    editor = tmp_path / "editor"
    editor.write_text('#!/bin/sh\nsed -i "s/lab/home/" "$1"\n')
    editor.chmod(0o755)
    host = FakeHost(tty=True, environ={**environ, "EDITOR": str(editor)})
    assert cli.run(["profile", "edit"], host) == 0
    assert read_profiles(environ).default == "home"
    editor.write_text('#!/bin/sh\necho "what is this" >> "$1"\n')
    assert cli.run(["profile", "edit"], host) == ExitStatus.USAGE
    assert read_profiles(environ).default == "home"
    assert len(list(two.parent.glob("config-*.toml"))) == 1
    assert cli.run(["profile", "edit"], FakeHost(environ=environ)) == ExitStatus.REFUSED


def test_no_profile_of_a_name_is_an_error_of_its_own() -> None:
    with pytest.raises(NothingFoundError):
        _parsed()["nope"]


# Where results are from ---------------------------------------------------------------------------


@pytest.mark.usefixtures("two")
def test_a_table_on_a_terminal_says_of_which_profile_and_cluster_it_is(
    environ: dict[str, str],
) -> None:
    world = World(2)
    title = f"profile lab, cluster {world.run(world.client().store.instance_id())}, "

    def printed(*words: str, tty: bool = True) -> str:
        host = WorldHost(world, "", tty=tty)
        host.environ = {**environ, "PAGER": "", "NO_COLOR": "1"}
        assert cli.run(words, host) == 0
        return host.out.text

    table = printed("bookie", "list", "--exact")
    assert table.startswith(title)
    assert table.splitlines()[1].startswith("BOOKIE ")
    assert printed("bookie", "info", "b1", "--utc").splitlines()[0].endswith("Z")
    untitled = table.split("\n", 1)[1]
    assert printed("bookie", "list", "--exact", tty=False) == untitled
    assert (
        printed("bookie", "list", "--exact", "--profile", "none", "-u", "sqlite:///x") == untitled
    )
    for words in (["--no-headers"], ["-o", "csv"], ["--json"]):
        assert "profile lab" not in printed("bookie", "list", *words)


@pytest.mark.usefixtures("two")
def test_what_asks_no_cluster_has_no_title(
    environ: dict[str, str],
) -> None:
    host = FakeHost("", tty=True, environ={**environ, "PAGER": ""})

    def connect(*_: object) -> Any:
        raise AssertionError("asked")

    host._connect = connect
    session = Session(host, _options(profile="lab"), Effect.READ, Interrupts())
    take_profile(session.options, session.host.environ, session.messages)
    assert session.config.https is not None  # As where a bookie is named by its address.
    session.emit(BookieSetting(BookieId("b1"), "journalDirectory", "/j"))
    session.finish()
    assert host.out.text == "bookie  b1\nkey     journalDirectory\nvalue   /j\n"


def test_a_settings_file_of_a_profile_exists_and_has_a_plain_path(run: Run, tmp_path: Path) -> None:
    status, _, err = run("profile", "create", "p", "-c", str(tmp_path / "none.conf"))
    assert (status, "none.conf: no such file; give" in err) == (ExitStatus.NOT_FOUND, True)
    (tmp_path / "a").mkdir()
    conf = tmp_path / "bk.conf"
    conf.write_text("metadataServiceUri=sqlite:///file.db\n")
    assert run("profile", "create", "p", "-c", f"{tmp_path}/a/../bk.conf")[0] == 0
    assert json.loads(run("profile", "show", "p", "--json")[1])["conf"] == str(conf)


@pytest.mark.parametrize("option", ["--ca-file", "--key-file", "--admin-token-file"])
def test_the_files_of_a_profile_exist(run: Run, tmp_path: Path, option: str) -> None:
    file = tmp_path / "a.pem"
    words = ("profile", "create", "p", "-u", "sqlite:///l.db", option, str(file))
    status, _, err = run(*words)
    assert (status, f"{file}: no such file" in err) == (ExitStatus.NOT_FOUND, True)
    file.touch()
    assert run(*words)[0] == 0


def test_a_profile_that_is_typed_wins_over_variables(
    run: Run, environ: dict[str, str], monkeypatch: pytest.MonkeyPatch
) -> None:
    run("profile", "create", "big", "-u", "sqlite:///big.db", "-X", "readTimeout=7")
    for name in ("BKCTL_SERVICE_URI", "BK_metadataServiceUri"):
        monkeypatch.setenv(name, "sqlite:///other.db")
        environ[name] = "sqlite:///other.db"
    for name, value in (("BKCTL_CONF", "none.conf"), ("BK_readTimeout", "9")):
        monkeypatch.setenv(name, value)
        environ[name] = value

    def settings(*words: str) -> dict[str, str]:
        status, out, err = run("config", "show", "--origin", "-o", "jsonl", *words)
        assert status == 0, err
        return {one["key"]: one["value"] for one in map(json.loads, out.splitlines())}

    typed = settings("--profile", "big")
    assert (typed["metadataServiceUri"], typed["readTimeout"]) == ("sqlite:///big.db", "7")
    uri = settings("--profile", "big", "-u", "sqlite:///typed.db")["metadataServiceUri"]
    assert uri == "sqlite:///typed.db"
    monkeypatch.delenv("BKCTL_CONF")
    monkeypatch.setenv("BKCTL_PROFILE", "big")
    assert settings()["metadataServiceUri"] == "sqlite:///other.db"
    assert settings("--profile", "none")["metadataServiceUri"] == "sqlite:///other.db"
