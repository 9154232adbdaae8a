"""Commands that are shown again and again, through the whole tree; time is what a test says."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

import pytest

from bkctl.cli.root import cli
from bkctl.errors import Interrupted
from bkctl.exit_status import ExitStatus
from tests.bkctl.support.terminal import FakeHost

LAB = '[profiles.lab]\nservice-uri = "sqlite:///lab.db"\n'
PROD = '[profiles.prod]\nservice-uri = "sqlite:///prod.db"\n'


class Clockwork(FakeHost):
    """A host on which each wait does what comes next, and the last one ends the time."""

    def __init__(self, path: Path, *texts: str | None, tty: bool = False, term: str = "") -> None:
        super().__init__(tty=tty, environ={"BKCTL_CONFIG": str(path), "TERM": term})
        self._path, self._texts = path, list(texts)
        self.waited: list[float] = []
        self.shown: list[str] = []

    def clock_s(self) -> float:
        return 1_000_000.0 + sum(self.waited)

    def sleep(self, seconds: float) -> None:
        self.waited.append(seconds)
        self.shown.append(self.out.text)
        if not self._texts:
            raise Interrupted("time limit reached", ExitStatus.TIME_LIMIT)
        text = self._texts.pop(0)
        if text is not None:
            self._path.write_text(text)


Watch = Callable[..., tuple[int, Clockwork]]


@pytest.fixture
def watch(tmp_path: Path) -> Watch:
    path = tmp_path / "config.toml"
    path.write_text(LAB)
    path.chmod(0o600)

    def watch(*args: str, texts: tuple[str | None, ...] = (), tty: bool = False, term: str = ""):
        host = Clockwork(path, *texts, tty=tty, term=term)
        return cli.run(["profile", *args], host), host

    return watch


def test_rounds_are_json_lines_with_their_time_for_programs(watch: Watch) -> None:
    status, host = watch("list", "--watch=5", "--json", texts=(LAB + PROD,))
    assert status == ExitStatus.TIME_LIMIT
    assert host.waited == [5, 5]
    records = [json.loads(line) for line in host.out.text.splitlines()]
    assert [(one["profile"], one["watched_at"][11:19]) for one in records] == [
        ("lab", "13:46:40"), ("lab", "13:46:45"), ("prod", "13:46:45"),
    ]  # fmt: skip


@pytest.mark.parametrize(
    ("tty", "term", "new"), [(False, "xterm", "prod "), (True, "dumb", "prod*")]
)
def test_tables_are_appended_where_nothing_can_be_painted(
    watch: Watch, term: str, new: str, *, tty: bool
) -> None:
    _, host = watch("list", "--watch", texts=(LAB + PROD,), tty=tty, term=term)
    assert host.waited == [2, 2]
    assert host.out.text.count("PROFILE") == 2
    assert new in host.out.text
    assert "\x1b[H" not in host.out.text


def test_csv_has_one_header_and_yaml_documents_are_parted(watch: Watch) -> None:
    _, host = watch("list", "--watch", "-o", "csv", texts=(None,))
    assert host.out.text.count("service_uri") == 1
    assert host.out.text.count("lab,") == 2
    _, host = watch("list", "--watch", "-o", "yaml", texts=(None,))
    assert host.out.text.count("---\n") == 1
    _, host = watch("show", "lab", "--watch", "-o", "yaml", texts=(None,))
    assert host.out.text.startswith("schema: 1\n")
    assert host.out.text.count("\n---\nschema: 1\n") == 1


def test_on_a_terminal_a_round_is_painted_over_the_last_and_changes_are_marked(
    watch: Watch,
) -> None:
    changed = LAB.replace("lab.db", "new.db")
    _, host = watch("list", "--watch", texts=(changed, None), tty=True, term="xterm")
    first, second, third = (
        after.removeprefix(before)
        for before, after in zip(["", *host.shown], host.shown, strict=False)
    )
    assert first.startswith("\x1b[?7l\x1b[2J\x1b[H\x1b[Kbkctl profile list --watch  every 2 s")
    assert "\x1b[7m" not in first
    assert second.startswith("\x1b[?7l\x1b[H")
    assert "\x1b[7msqlite:///new.db\x1b[0m" in second
    assert "\x1b[7mlab" not in second
    assert "\x1b[7m" not in third
    assert third.endswith("\x1b[J\x1b[?7h")


def test_a_long_command_is_shortened_for_what_stands_behind_it(
    watch: Watch, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("LINES", "24")
    monkeypatch.setenv("COLUMNS", "80")
    args = ("list", "--watch", "--filter", f"profile!={'n' * 100}")
    _, host = watch(*args, texts=(LAB, None), tty=True, term="xterm")
    head = host.shown[0].removeprefix("\x1b[?7l\x1b[2J\x1b[H\x1b[K").partition("\r\n")[0]
    assert head.startswith("bkctl profile list --watch --filter ")
    assert "...  every 2 s  " in head
    assert len(head) == 80


def test_a_long_condition_has_a_line_below_the_command(
    watch: Watch, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("LINES", "24")
    monkeypatch.setenv("COLUMNS", "60")
    args = ("list", "--watch", "--until", "profile=a-profile-with-a-long-name")
    _, host = watch(*args, texts=(LAB, None), tty=True, term="xterm")
    head = host.shown[0].removeprefix("\x1b[?7l\x1b[2J\x1b[H\x1b[K")
    command, how, *_ = head.replace("\x1b[K", "").split("\r\n")
    assert command.startswith("bkctl profile list --watch --until profile=")
    assert how.startswith("every 2 s, until profile=a-profile-with-a-long-name")
    assert max(len(command), len(how)) <= 60


def test_what_the_screen_has_no_room_for_is_counted(
    watch: Watch, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("LINES", "8")
    monkeypatch.setenv("COLUMNS", "200")
    many = "".join(f'[profiles.p{n}]\nservice-uri = "x"\n' for n in range(20))
    watch("list", texts=())
    _, host = watch("list", "--watch", texts=(many,), tty=True, term="xterm")
    assert "(17 more lines)" in host.shown[1]
    assert "p4" not in host.shown[1]


def test_it_ends_well_once_the_condition_holds(watch: Watch) -> None:
    marked = LAB + "production = true\n"
    status, host = watch("show", "lab", "--until", "production=yes", texts=(None, marked))
    assert (status, len(host.waited)) == (0, 2)
    assert host.err.text == ""


def test_a_condition_is_for_all_that_is_shown_and_for_something(watch: Watch) -> None:
    both = "".join(text + "production = true\n" for text in (LAB, PROD))
    status, host = watch("list", "--until", "production=yes", texts=("", LAB + PROD, both))
    assert (status, len(host.waited)) == (0, 3)
    assert (host.out.text.count("PROFILE"), host.out.text.count("prod ")) == (1, 1)


def test_time_that_is_up_first_is_status_6_and_names_the_condition(watch: Watch) -> None:
    status, host = watch("list", "--until", "profile=prod", "--timeout", "9")
    assert status == ExitStatus.TIME_LIMIT
    assert "profile=prod did not hold within 9.0s" in host.err.text


@pytest.mark.parametrize(
    ("condition", "said"),
    [
        ("healthy", "profiles have no state healthy"),
        ("ready", "profiles have no state healthy"),
        ("done", "profiles have no state done"),
        ("wrong", "'wrong' is not a comparison"),
        ("prod=1", "no field 'prod'"),
    ],
)
def test_a_condition_that_means_nothing_here_is_wrong_usage(
    watch: Watch, condition: str, said: str
) -> None:
    status, host = watch("list", "--until", condition)
    assert (status, said in host.err.text) == (ExitStatus.USAGE, True), host.err.text
    assert host.waited == []


def test_a_list_is_done_when_nothing_is_left(watch: Watch) -> None:
    status, _ = watch("delete", "lab", "--yes")
    assert status == 0
    assert watch("list", "--until", "done")[0] == 0


def test_failures_that_may_pass_are_shown_and_others_end_it(watch: Watch) -> None:
    status, host = watch("show", "prod", "--watch", texts=(LAB + PROD,))
    assert (status, host.waited) == (ExitStatus.NOT_FOUND, [])
    host = Clockwork(Path("none.toml"), None)
    args = ["cluster", "info", "--watch", "-u", "sqlite:///nowhere/at/all.db"]
    assert cli.run(args, host) == ExitStatus.TIME_LIMIT
    assert len(host.waited) == 2
    assert host.err.text.count("no directory /nowhere/at") == 2


def test_what_changes_things_cannot_be_watched_and_a_word_for_all_does_not_count_for_it(
    watch: Watch, capsys: pytest.CaptureFixture[str]
) -> None:
    assert watch("use", "lab", "--watch")[0] == ExitStatus.USAGE
    assert "`bkctl profile use` changes something; --watch works" in capsys.readouterr().err
    host = Clockwork(Path("none.toml"))
    assert cli.run(["--watch", "profile", "use", "none", "--dry-run"], host) == 0
    assert host.waited == []


def test_watch_takes_no_word_that_follows() -> None:
    host = Clockwork(Path("none.toml"))
    assert cli.run(["--watch", "profile", "list"], host) == ExitStatus.TIME_LIMIT
    assert host.waited == [2]
    assert host.err.text.count("no profiles") == 1


def test_lists_are_filtered_and_sorted(watch: Watch) -> None:
    watch("create", "b", "-u", "zk://z:2181/ledgers")
    watch("create", "c", "-X", "readTimeout=3", "--production")
    watch("create", "a", "-u", "zk://y:2181/ledgers", "--production")

    def shown(*args: str) -> list[str]:
        return watch("list", "-o", "id", *args)[1].out.text.split()

    assert shown("--filter", "production=yes") == ["c", "a"]
    assert shown("--filter", "production=yes", "--filter", "service_uri=none") == ["c"]
    assert shown("--sort-by", "profile") == ["a", "b", "c", "lab"]
    assert shown("--sort-by", "service_uri:desc") == ["b", "a", "lab", "c"]
    assert shown("--sort-by", "-service_uri") == ["b", "a", "lab", "c"]
    assert shown("--sort-by", "production,-profile") == ["lab", "b", "c", "a"]
    assert shown("--sort-by", "production,profile:desc") == ["lab", "b", "c", "a"]
    assert (
        watch("show", "b", "--filter", "production=yes")[1].err.text
        == "no profiles match --filter\n"
    )
    for wrong in ("--sort-by=profil", "--sort-by=profile:up", "--filter=profil=a"):
        assert watch("list", wrong)[0] == ExitStatus.USAGE
