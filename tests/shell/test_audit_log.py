from __future__ import annotations

import json
import os
import stat
import syslog
from pathlib import Path

import pytest

from shell.audit_log import SYSLOG, AuditLog, as_typed, user_name
from shell.builtin import commands
from shell.command_line import parse
from shell.settings import Preferences
from shell.shell import Shell
from tests.shell.toy_program import ToyProgram


def test_who_ran_what_where_and_how_it_ended_is_kept(tmp_path: Path) -> None:
    path = tmp_path / "audit"
    shell = Shell(ToyProgram(), own=commands, prefer=Preferences(audit=str(path)))
    for line in parse("fail 3; use latin; words 'a b' | cat > /dev/null; !true"):
        shell.run(line)
    kept = [json.loads(one) for one in path.read_text().splitlines()]
    assert [(one["place"], one["line"], one["status"]) for one in kept] == [
        ("", "fail 3", 3), ("", "use latin", 0), ("latin", "words 'a b' | cat > /dev/null", 0),
        ("latin", "!true", 0),
    ]  # fmt: skip
    assert {one["user"] for one in kept} == {user_name()}
    assert stat.S_IMODE(path.stat().st_mode) == 0o600


def test_the_time_is_that_of_the_end_in_utc(tmp_path: Path) -> None:
    (line,) = parse("how")
    AuditLog("shelf", str(tmp_path / "audit"), clock=lambda: 86_400.5).add("", line, 0)
    assert json.loads((tmp_path / "audit").read_text())["time"] == "1970-01-02T00:00:00Z"


@pytest.mark.parametrize(
    ("typed", "kept"),
    [
        ("login --password 'se cret' --loud", "login --password *** --loud"),
        ("set mark token=abc", "set mark token=***"),
        ("!curl -H 'X-Token: abc'", "!curl -H 'X-Token: ***"),
        ("read b1 --password-file pw >> out < in", "read b1 --password-file pw < in >> out"),
    ],
)
def test_secrets_are_masked(typed: str, kept: str) -> None:
    (line,) = parse(typed)
    assert as_typed(line) == kept


def test_what_cannot_be_kept_is_run_and_told(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    shell = Shell(ToyProgram(), own=commands, prefer=Preferences(audit=str(tmp_path)))
    (line,) = parse("words on")
    assert shell.run(line) == 0
    said = capsys.readouterr()
    assert said.out == "on\n"
    assert said.err.startswith("shelf: not kept in the audit: ")


def test_nobody_is_named_by_the_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("LOGNAME", "USER", "LNAME", "USERNAME"):
        monkeypatch.setenv(name, "somebody-else")
    assert user_name() not in {"", "somebody-else"}


@pytest.mark.usefixtures("nameless")
def test_who_has_no_name_is_a_number() -> None:
    assert user_name() == str(os.getuid())


def test_the_systems_log_can_take_it(monkeypatch: pytest.MonkeyPatch) -> None:
    logged: list[tuple[int, str]] = []
    monkeypatch.setattr(syslog, "syslog", lambda level, text: logged.append((level, text)))
    (line,) = parse("how")
    AuditLog("shelf", SYSLOG).add("attic", line, 4)
    ((level, text),) = logged
    assert level == syslog.LOG_NOTICE
    assert json.loads(text) == {
        "user": user_name(), "place": "attic", "line": "how", "status": 4,
    }  # fmt: skip
